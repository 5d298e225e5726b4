//! Which change of a Numaflow object needs what: nothing, a pause, or a new object in its place. Pure.
//!
//! Rules name fields; [`classify`] compares two specs and says what the fields that differ need. What is built in knows
//! the fields of Numaflow; a ConfigMap may say otherwise, see [`parse`] and [`Rulebook`].

mod built_in;
mod classify;
mod compare;
mod parse;
mod rulebook;

use std::fmt;

pub use self::{
    classify::{Change, Field, classify},
    parse::{Written, parse},
    rulebook::{Difference, Rulebook},
};

/// A kind whose changes are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A pipeline.
    Pipeline,
    /// An inter-step buffer service.
    InterStepBufferService,
    /// A MonoVertex.
    MonoVertex,
    /// The Numaflow controller. Its version is the rollout's own business, so its rules are read and checked, and
    /// nothing uses them.
    NumaflowController,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Pipeline, Self::InterStepBufferService, Self::MonoVertex, Self::NumaflowController];

    /// Its name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pipeline => "Pipeline",
            Self::InterStepBufferService => "InterStepBufferService",
            Self::MonoVertex => "MonoVertex",
            Self::NumaflowController => "NumaflowController",
        }
    }

    /// Its key in a ConfigMap.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline",
            Self::InterStepBufferService => "interstepbufferservice",
            Self::MonoVertex => "monovertex",
            Self::NumaflowController => "numaflowcontroller",
        }
    }

    /// Fields at the top of its spec by which it is told from the others.
    fn own_fields(self) -> &'static [&'static str] {
        match self {
            Self::Pipeline => {
                &["interStepBufferServiceName", "vertices", "edges", "watermark", "sideInputs", "interStepBuffer"]
            }
            Self::InterStepBufferService => &["jetstream", "redis"],
            Self::MonoVertex => &["source", "sink", "udf", "bypass"],
            Self::NumaflowController => &["version", "instanceID"],
        }
    }
}

/// A list of rules: what a change of the fields in it needs. The later one is the stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum List {
    /// To be tried beside what runs; as there is no such trial for these kinds yet, it is treated as `dataLoss`. It means nothing
    /// for MonoVertices.
    Progressive,
    /// A pause: what is unprocessed would be processed otherwise, or not at all.
    DataLoss,
    /// A pause, and a new object in place of the old: it cannot be changed, or the change would not take effect.
    Recreate,
}

impl List {
    /// All of them, the strongest first.
    pub const ALL: [Self; 3] = [Self::Recreate, Self::DataLoss, Self::Progressive];

    /// Its key in a ConfigMap.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::Recreate => "recreate",
            Self::DataLoss => "dataLoss",
            Self::Progressive => "progressive",
        }
    }
}

/// A field, and whether those below it count as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// As it is written, `spec.a.b`. It goes through lists by itself, and upper or lower case makes no difference.
    pub path: String,
    /// `false`: only that the field is there or not, and its value if it has no fields of its own. A list of `vertices`,
    /// `edges` or `sideInputs` changes when an entry comes or goes; any other list is one value.
    pub include_subfields: bool,
}

impl Rule {
    /// A rule for a kind.
    ///
    /// # Errors
    /// Why the path cannot be the path of a field, and what to do.
    pub fn new(kind: Kind, path: &str, include_subfields: bool) -> Result<Self, String> {
        let told = |why: String| Err(format!("path {path:?} {why}"));
        let mut fields = path.split('.');
        if fields.next() != Some("spec") {
            return told(
                "does not begin with spec; write it from there, like spec.vertices.udf.container.image".into(),
            );
        }
        for field in fields.clone() {
            if field.is_empty() {
                return told("has a dot too many; write names with one dot between them".into());
            }
            if field.contains(['[', ']', '*']) || field.chars().all(|c| c.is_ascii_digit()) {
                return told(format!(
                    "has {field:?}; leave it out: a path goes through all entries of a list by itself"
                ));
            }
            if !field.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '/')) {
                return told(format!("has {field:?}, which is not the name of a field"));
            }
        }
        let Some(first) = fields.next() else { return Ok(Self { path: path.to_owned(), include_subfields }) };
        let has = |kind: Kind| kind.own_fields().iter().any(|name| name.eq_ignore_ascii_case(first));
        // A field that no kind is known to have may be one of a Numaflow that is newer than this.
        if !has(kind)
            && let Some(other) = Kind::ALL.into_iter().find(|kind| has(*kind))
        {
            let (this, other) = (kind.name(), other.name());
            return told(format!(
                "is a field of {other}, and {this} has no spec.{first}; remove it, or correct the path"
            ));
        }
        if compare::IGNORED.iter().any(|ignored| path.eq_ignore_ascii_case(ignored)) {
            return told("never counts as a change, because it says when to pause; remove it".into());
        }
        Ok(Self { path: path.to_owned(), include_subfields })
    }

    fn fields(&self) -> impl Iterator<Item = &str> {
        self.path.split('.')
    }
}

/// What the changes of a kind need. A field that no rule names is changed without further ado.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Fields whose change needs a new object.
    pub recreate: Vec<Rule>,
    /// Fields whose change needs a pause.
    pub data_loss: Vec<Rule>,
    /// Fields whose change is to be tried first.
    pub progressive: Vec<Rule>,
}

impl Rules {
    /// The rules of a list.
    #[must_use]
    pub fn list(&self, list: List) -> &[Rule] {
        match list {
            List::Recreate => &self.recreate,
            List::DataLoss => &self.data_loss,
            List::Progressive => &self.progressive,
        }
    }

    /// These rules, with what was written over them.
    #[must_use]
    pub fn with(self, lists: &Lists) -> Self {
        Self {
            recreate: lists.recreate.clone().unwrap_or(self.recreate),
            data_loss: lists.data_loss.clone().unwrap_or(self.data_loss),
            progressive: lists.progressive.clone().unwrap_or(self.progressive),
        }
    }
}

/// What a ConfigMap says about a kind; a list that it leaves out is as built in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// See [`Rules::recreate`].
    pub recreate: Option<Vec<Rule>>,
    /// See [`Rules::data_loss`].
    pub data_loss: Option<Vec<Rule>>,
    /// See [`Rules::progressive`].
    pub progressive: Option<Vec<Rule>>,
}

impl Lists {
    fn list_mut(&mut self, list: List) -> &mut Option<Vec<Rule>> {
        match list {
            List::Recreate => &mut self.recreate,
            List::DataLoss => &mut self.data_loss,
            List::Progressive => &mut self.progressive,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
