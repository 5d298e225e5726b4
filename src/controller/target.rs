//! The version that a spec asks for, found and rendered, or why it cannot be. Pure.

use std::sync::Arc;

use crate::{
    api::Promoted,
    definitions::Definition,
    manifest::Manifest,
    valid::{Finding, sentence},
};

/// A version that can be attempted.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its version.
    pub version: String,
    /// Its instance ID; empty for the instance without a name.
    pub instance: String,
    /// Its definition.
    pub definition: Arc<Definition>,
    /// Its objects.
    pub manifest: Arc<Manifest>,
    /// Set where no ConfigMap defines it any more and the definition comes from a pinned revision: what is missing.
    pub only_pinned: Option<Unresolved>,
}

/// Why the version of the spec cannot be attempted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// One word.
    pub reason: Reason,
    /// What is wrong, and what to do, by the fields that say it: one at least.
    pub findings: Vec<Finding>,
}

/// Why, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The spec is not valid.
    InvalidSpec,
    /// The instance belongs to another rollout.
    InstanceConflict,
    /// The instance that it has cannot be left.
    InstanceInUse,
    /// Nobody defines the version.
    DefinitionNotFound,
    /// It is defined more than once, with different content.
    DefinitionAmbiguous,
    /// Its definition is none.
    DefinitionMalformed,
    /// Its definition cannot be rendered for this namespace.
    DefinitionUnusable,
    /// Its definition is for another namespace.
    ForeignNamespace,
}

impl Reason {
    /// The word in conditions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidSpec => "InvalidSpec",
            Self::InstanceConflict => "InstanceConflict",
            Self::InstanceInUse => "InstanceInUse",
            Self::DefinitionNotFound => "DefinitionNotFound",
            Self::DefinitionAmbiguous => "DefinitionAmbiguous",
            Self::DefinitionMalformed => "DefinitionMalformed",
            Self::DefinitionUnusable => "DefinitionUnusable",
            Self::ForeignNamespace => "ForeignNamespace",
        }
    }
}

impl Target {
    /// Whether this is what is promoted.
    #[must_use]
    pub fn is(&self, promoted: &Promoted) -> bool {
        promoted.version == self.version
            && promoted.instance_id == self.instance
            && promoted.definition_hash == self.manifest.hash
    }
}

impl Unresolved {
    /// About one field.
    #[must_use]
    pub fn of(reason: Reason, field: String, message: String) -> Self {
        Self { reason, findings: vec![Finding { field, message }] }
    }

    /// All that is wrong, as one text.
    #[must_use]
    pub fn message(&self) -> String {
        sentence(&self.findings)
    }

    /// Whether it is about the definition, rather than about the spec or about another rollout.
    #[must_use]
    pub fn is_about_definition(&self) -> bool {
        !matches!(self.reason, Reason::InvalidSpec | Reason::InstanceConflict | Reason::InstanceInUse)
    }
}
