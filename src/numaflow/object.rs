//! What all objects of Numaflow's have that our rollouts make, as last seen. Pure.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::{Held, Ownership};
use crate::{
    api::ANNOTATION_INSTANCE,
    live::{ANNOTATION_APPLIED, Version},
};

/// One object of Numaflow's as last seen: what all its kinds have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveObject {
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
    /// `status.conditions`, by type: (status, reason, message).
    pub conditions: BTreeMap<String, (String, String, String)>,
}

impl LiveObject {
    /// Reads an object as the API server gives it.
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

    /// Hash of what was applied last, as the object itself says.
    #[must_use]
    pub fn applied(&self) -> Option<&str> {
        self.annotations.get(ANNOTATION_APPLIED).map(String::as_str)
    }

    /// Whether two looks at an object differ in nothing that anything is decided from.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let mut other = other.clone();
        other.version.resource_version.clone_from(&self.version.resource_version);
        *self == other
    }

    /// Whether Numaflow has seen the spec as it is now.
    #[must_use]
    pub fn is_observed(&self) -> bool {
        self.observed_generation == self.generation
    }
}
