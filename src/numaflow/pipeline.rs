//! A Pipeline as last seen, and what its state means. Status alone lies: the pause timestamp and the vertices are the
//! cross-check. Pure.

use std::ops::{Deref, DerefMut};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::LiveObject;
use crate::api::ANNOTATION_PAUSE_TIMESTAMP;

/// One Pipeline as last seen. It is an object of Numaflow's like any other, and says more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LivePipeline {
    /// What it has like all others.
    pub object: LiveObject,
    /// `status.drainedOnPause`.
    pub drained: bool,
}

impl Deref for LivePipeline {
    type Target = LiveObject;

    fn deref(&self) -> &LiveObject {
        &self.object
    }
}

impl DerefMut for LivePipeline {
    fn deref_mut(&mut self) -> &mut LiveObject {
        &mut self.object
    }
}

/// A state that Numaflow never leaves by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wedged {
    /// It says Running, and its sources are paused.
    Running,
    /// It says Paused, and its vertices run.
    Paused,
}

impl Wedged {
    /// The phase that it says it is in.
    #[must_use]
    pub fn says(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Paused => "Paused",
        }
    }
}

impl LivePipeline {
    /// Reads a Pipeline as the API server gives it.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, data: &Value) -> Self {
        Self { object: LiveObject::read(metadata, data), drained: data["status"]["drainedOnPause"] == true }
    }

    /// The ISB service that it uses.
    #[must_use]
    pub fn isb(&self) -> &str {
        isb_of(&self.spec)
    }

    /// When its pause began, by its controller's clock.
    #[must_use]
    pub fn paused_at(&self) -> Option<&str> {
        self.annotations.get(ANNOTATION_PAUSE_TIMESTAMP).map(String::as_str)
    }

    /// The grace period of its spec, in seconds.
    #[must_use]
    pub fn grace(&self) -> Option<i64> {
        self.spec["lifecycle"]["pauseGracePeriodSeconds"].as_i64()
    }

    /// Whether its spec cannot work: Numaflow touches nothing of it then.
    #[must_use]
    pub fn is_misconfigured(&self) -> bool {
        self.phase == "Failed" && self.conditions.get("Configured").is_some_and(|(status, ..)| status == "False")
    }

    /// Whether it says that it is paused, and its vertices and pods are all that is left to look at.
    #[must_use]
    pub fn says_paused(&self) -> bool {
        self.is_observed() && self.wants_paused() && self.phase == "Paused" && self.paused_at().is_some()
    }

    /// Whether it says that it runs, and its vertices are all that is left to look at.
    #[must_use]
    pub fn says_running(&self) -> bool {
        self.is_observed() && !self.wants_paused() && self.phase == "Running" && self.paused_at().is_none()
    }

    /// Whether the wanted phase may be changed although the last change is not settled: while the pause is seen and going on;
    /// or while it fails, because Numaflow does nothing with it then, and begins with what is wanted once the cause is gone.
    /// (One that failed after it had paused is paused again first where that is to be had, see `pipeline::nudge`.)
    #[must_use]
    pub fn may_turn_back(&self) -> bool {
        let pausing = self.phase == "Pausing" && self.wants_paused() && self.paused_at().is_some();
        self.is_observed() && (pausing || self.phase == "Failed")
    }

    /// Whether it looks like one of the two states that Numaflow never leaves. For a moment a healthy one may look so too.
    #[must_use]
    pub fn looks_wedged(&self) -> Option<Wedged> {
        if !self.is_observed() || self.deleting {
            return None;
        }
        match (self.wants_paused(), self.phase.as_str(), self.paused_at()) {
            (false, "Running", Some(_)) => Some(Wedged::Running),
            (true, "Paused", None) => Some(Wedged::Paused),
            _ => None,
        }
    }
}

/// The ISB service that a pipeline with this spec uses.
#[must_use]
pub fn isb_of(spec: &Value) -> &str {
    spec["interStepBufferServiceName"].as_str().filter(|name| !name.is_empty()).unwrap_or("default")
}
