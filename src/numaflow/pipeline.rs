//! A Pipeline as last seen, and what its state means. Status alone lies: the pause timestamp and the vertices are the
//! cross-check. Pure.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{Held, Ownership};
use crate::{
    api::{ANNOTATION_INSTANCE, ANNOTATION_PAUSE_TIMESTAMP},
    live::{ANNOTATION_APPLIED, Version},
};

/// One Pipeline as last seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LivePipeline {
    /// Name, uid and resourceVersion.
    pub version: Version,
    /// Generation of its spec.
    pub generation: i64,
    /// Generation that Numaflow has seen; 0 where it has seen none.
    pub observed_generation: i64,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Since when it is being deleted.
    pub deleted_at: Option<Timestamp>,
    /// Kind, name and uid of what controls it.
    pub owner: Option<(String, String, String)>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations, without those that kubectl keeps for itself.
    pub annotations: BTreeMap<String, String>,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Its spec.
    pub spec: Arc<Value>,
    /// Whose the fields of the spec are.
    pub ownership: Arc<Ownership>,
    /// `status.phase`; empty where Numaflow has not looked.
    pub phase: String,
    /// `status.message`.
    pub message: String,
    /// `status.drainedOnPause`.
    pub drained: bool,
    /// `status.conditions`, by type: (status, reason, message).
    pub conditions: BTreeMap<String, (String, String, String)>,
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
        let status = &data["status"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let spec = data["spec"].clone();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let owner = metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true));
        let mut annotations = metadata.annotations.clone().unwrap_or_default();
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
        Self {
            version: Version::of(metadata),
            generation: metadata.generation.unwrap_or_default(),
            observed_generation: status["observedGeneration"].as_i64().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            deleted_at: metadata.deletion_timestamp.as_ref().map(|t| t.0),
            owner: owner.map(|o| (o.kind.clone(), o.name.clone(), o.uid.clone())),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations,
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            ownership: Arc::new(Ownership::read(metadata.managed_fields.as_deref().unwrap_or_default(), &spec)),
            spec: Arc::new(spec),
            phase: text(&status["phase"]),
            message: text(&status["message"]),
            drained: status["drainedOnPause"] == true,
            conditions: conditions
                .map(|c| (text(&c["type"]), (text(&c["status"]), text(&c["reason"]), text(&c["message"]))))
                .collect(),
        }
    }

    /// What holds it when it is deleted.
    #[must_use]
    pub fn held(&self) -> Held {
        Held {
            object: self.version.clone().of_any_state(),
            finalizers: self.finalizers.clone(),
            deleted_at: self.deleted_at,
        }
    }

    /// Instance of the controller that manages it; empty for the one without a name.
    #[must_use]
    pub fn instance(&self) -> &str {
        self.annotations.get(ANNOTATION_INSTANCE).map_or("", String::as_str)
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

    /// Whether its spec asks for a pause: only `Paused` does, anything else means Running.
    #[must_use]
    pub fn wants_paused(&self) -> bool {
        self.spec["lifecycle"]["desiredPhase"] == "Paused"
    }

    /// The wanted phase as it is written, if any is.
    #[must_use]
    pub fn written_phase(&self) -> Option<&Value> {
        self.spec["lifecycle"].get("desiredPhase").filter(|phase| !phase.is_null())
    }

    /// The grace period of its spec, in seconds.
    #[must_use]
    pub fn grace(&self) -> Option<i64> {
        self.spec["lifecycle"]["pauseGracePeriodSeconds"].as_i64()
    }

    /// Hash of what was applied last, as the object itself says.
    #[must_use]
    pub fn applied(&self) -> Option<&str> {
        self.annotations.get(ANNOTATION_APPLIED).map(String::as_str)
    }

    /// Whether Numaflow has seen the spec as it is now.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.observed_generation == self.generation
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
