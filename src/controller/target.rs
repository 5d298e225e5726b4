//! The version that a spec asks for, found and rendered, or why it cannot be. Pure.

use std::sync::Arc;

use crate::{api::Promoted, definitions::Definition, manifest::Manifest};

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
    pub reason: &'static str,
    /// A sentence that names the object and the field and says what to do.
    pub message: String,
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
    /// Whether it is about the definition, rather than about the spec or about another rollout.
    #[must_use]
    pub fn is_about_definition(&self) -> bool {
        !matches!(self.reason, "InvalidSpec" | "InstanceConflict" | "InstanceInUse")
    }
}
