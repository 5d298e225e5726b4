//! Pipelines as far as a drain is concerned, and which of them a requester means.

use crate::api::PauseAnswer;

/// A pipeline, as far as a drain is concerned.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PipelineSeen {
    /// Its name.
    pub name: String,
    /// Instance that manages it; empty for the one without a name.
    pub instance: String,
    /// ISB service that it uses, by the name that its spec has, or the one that Numaflow takes where that has none.
    pub isb: String,
    /// The PipelineRollout that manages it: one that exists, can be decoded, and is not being deleted.
    pub rollout: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What its rollout answers to those who ask for a pause.
    pub answers: Vec<PauseAnswer>,
    /// The grace period of its spec as it is now, in seconds.
    pub grace: Option<i64>,
}

/// Whose pipelines a request means. Requesters and pipelines both go by it, so that nobody waits for one who does not feel
/// asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of a controller instance.
    Instance(String),
    /// Those of ISB services, by the names that pipelines use.
    Isb(Vec<String>),
}

impl Scope {
    /// Whether it means a pipeline of this instance on this ISB service.
    #[must_use]
    pub fn means(&self, instance: &str, isb: &str) -> bool {
        match self {
            Self::Instance(wanted) => wanted == instance,
            Self::Isb(wanted) => wanted.iter().any(|name| name == isb),
        }
    }
}
