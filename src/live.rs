//! What is kept of an object in the cluster: identity, marks, a fingerprint of the fields we own, and the numbers that
//! health is read from. A few hundred bytes instead of the whole object, so that hundreds of namespaces fit in memory.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use serde_json::Value;

use crate::api::{ANNOTATION_ADOPT, LABEL_TRACKING, MANAGER_ISOLATED, MANAGER_PRODUCTION, short_hash};

/// Annotation on every object we apply: hash of what was applied. Written together with the content, so that it can
/// never be older or newer than the content itself.
pub const ANNOTATION_APPLIED: &str = "numaplane.numaproj.io/applied";

/// Identity of an object within its namespace. The API version is left out: the same object is served in several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// API group; empty for the core group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl ObjectId {
    /// An identity from its three parts.
    #[must_use]
    pub fn new(group: &str, kind: &str, name: &str) -> Self {
        Self { group: group.to_owned(), kind: kind.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

/// Name, uid and resourceVersion of an object that is about to be changed: somebody else's change in between is noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// resourceVersion.
    pub resource_version: String,
}

impl Version {
    /// The version of an object as last seen.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
        }
    }

    /// The same object, whatever has become of it since: it is told by its uid alone.
    #[must_use]
    pub fn of_any_state(self) -> Self {
        Self { resource_version: String::new(), ..self }
    }
}

/// One object as last seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Which object.
    pub id: ObjectId,
    /// Its uid.
    pub uid: String,
    /// Its resourceVersion.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What holds it then.
    pub finalizers: Vec<String>,
    /// Value of the tracking label: whose object it is.
    pub tracking: Option<String>,
    /// Whether its annotations allow the operator to take it over.
    pub adoptable: bool,
    /// Whether another object controls it.
    pub controlled: bool,
    /// Hash of what was applied last, as the object itself says.
    pub applied: Option<String>,
    /// Hash of the fields that our manager owns; empty when it owns none.
    pub fields: String,
    /// Numbers of a workload.
    pub workload: Option<Workload>,
}

/// Numbers of a Deployment, StatefulSet or DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Workload {
    /// Generation of the spec.
    pub generation: i64,
    /// Generation that its controller has seen.
    pub observed_generation: i64,
    /// Replicas wanted.
    pub desired: i64,
    /// Replicas that exist.
    pub total: i64,
    /// Replicas of the current template.
    pub updated: i64,
    /// Replicas available.
    pub available: i64,
    /// What its controller says of a failure to make progress.
    pub trouble: Option<String>,
}

impl Live {
    /// Reads an object as the API server gives it.
    #[must_use]
    pub fn read(group: &str, kind: &str, metadata: &ObjectMeta, data: &Value) -> Self {
        let annotation = |key: &str| metadata.annotations.as_ref().and_then(|a| a.get(key));
        Self {
            id: ObjectId::new(group, kind, metadata.name.as_deref().unwrap_or_default()),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.deletion_timestamp.as_ref().and(metadata.finalizers.clone()).unwrap_or_default(),
            tracking: metadata.labels.as_ref().and_then(|l| l.get(LABEL_TRACKING)).cloned(),
            adoptable: annotation(ANNOTATION_ADOPT).is_some(),
            controlled: metadata.owner_references.iter().flatten().any(|o| o.controller == Some(true)),
            applied: annotation(ANNOTATION_APPLIED).cloned(),
            fields: owned_fields(metadata.managed_fields.as_deref().unwrap_or_default()),
            workload: Workload::read(group, kind, metadata, data),
        }
    }
}

/// Fingerprint of the fields that our manager (an object has one of the two) owns by server-side apply. Whoever changes the value of one of them, by
/// any kind of write, takes it from this set; so the fingerprint tells drift from the server's own defaulting and
/// spelling (`1024Mi` and `1Gi`) without comparing a single value.
fn owned_fields(managed: &[ManagedFieldsEntry]) -> String {
    managed
        .iter()
        .find(|entry| {
            matches!(entry.manager.as_deref(), Some(MANAGER_PRODUCTION | MANAGER_ISOLATED))
                && entry.operation.as_deref() == Some("Apply")
                && entry.subresource.as_deref().unwrap_or_default().is_empty()
        })
        .and_then(|entry| entry.fields_v1.as_ref())
        .map(|fields| short_hash(fields.0.to_string().as_bytes()))
        .unwrap_or_default()
}

impl Workload {
    fn read(group: &str, kind: &str, metadata: &ObjectMeta, data: &Value) -> Option<Self> {
        let number = |value: &Value| value.as_i64().unwrap_or_default();
        let (spec, status) = (&data["spec"], &data["status"]);
        let common = Self {
            generation: metadata.generation.unwrap_or_default(),
            observed_generation: number(&status["observedGeneration"]),
            desired: spec["replicas"].as_i64().unwrap_or(1),
            total: number(&status["replicas"]),
            updated: number(&status["updatedReplicas"]),
            available: number(&status["availableReplicas"]),
            trouble: trouble(status),
        };
        match (group, kind) {
            // currentRevision equals updateRevision only at the end of a roll; updatedReplicas is absent when nothing
            // is being rolled.
            ("apps", "StatefulSet") if status["updateRevision"] == status["currentRevision"] => {
                Some(Self { updated: common.total, ..common })
            }
            ("apps", "Deployment" | "StatefulSet") => Some(common),
            ("apps", "DaemonSet") => Some(Self {
                desired: number(&status["desiredNumberScheduled"]),
                total: number(&status["currentNumberScheduled"]),
                updated: number(&status["updatedNumberScheduled"]),
                available: number(&status["numberAvailable"]),
                ..common
            }),
            _ => None,
        }
    }

    /// What is missing until every replica is updated and available; `None` when nothing is.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        if self.observed_generation < self.generation
            || self.updated < self.desired
            || self.available < self.desired
            || self.total > self.desired
        {
            // Old replicas count as available too, and while the new spec was not observed the numbers are about an older
            // one; a replica is done when it is new, available, and the old one in its place is gone.
            let old = (self.total - self.updated).max(0);
            let done = if self.observed_generation >= self.generation {
                (self.available - old).min(self.updated).min(self.desired - old).max(0)
            } else {
                0
            };
            let mut text = format!("{done} of {} replicas updated and available", self.desired);
            if let Some(trouble) = &self.trouble {
                text = format!("{text} ({trouble})");
            }
            Some(text)
        } else {
            None
        }
    }
}

/// The sentence of a condition that says the workload cannot progress.
fn trouble(status: &Value) -> Option<String> {
    status["conditions"].as_array()?.iter().find_map(|condition| {
        let (kind, state) = (condition["type"].as_str()?, condition["status"].as_str()?);
        let stuck = (kind == "Progressing" && state == "False") || (kind == "ReplicaFailure" && state == "True");
        stuck.then(|| condition["message"].as_str().unwrap_or_default().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(generation: i64, spec: &Value, status: &Value) -> Workload {
        let metadata = ObjectMeta { generation: Some(generation), ..ObjectMeta::default() };
        Workload::read("apps", "Deployment", &metadata, &json!({"spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn a_deployment_is_healthy_only_when_the_new_spec_was_seen_and_all_replicas_are_new_and_available() {
        let good = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        assert_eq!(deployment(2, &json!({"replicas": 2}), &good).missing(), None);
        for (change, words) in [
            (json!({"observedGeneration": 1}), "0 of 2"),
            (json!({"updatedReplicas": 1}), "1 of 2"),
            (json!({"availableReplicas": 1}), "1 of 2"),
            (json!({"replicas": 3, "availableReplicas": 3}), "1 of 2"),
            (json!({"replicas": 4, "availableReplicas": 2}), "0 of 2"),
        ] {
            let mut status = good.clone();
            status.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            let text = deployment(2, &json!({"replicas": 2}), &status).missing().unwrap();
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn a_deployment_scaled_to_zero_is_healthy() {
        assert_eq!(deployment(1, &json!({"replicas": 0}), &json!({"observedGeneration": 1})).missing(), None);
    }

    #[test]
    fn what_holds_a_deployment_up_is_said() {
        let status = json!({"observedGeneration": 1, "conditions": [
            {"type": "Progressing", "status": "False", "message": "deadline exceeded"}]});
        assert!(deployment(1, &json!({}), &status).missing().unwrap().contains("deadline exceeded"));
    }

    #[test]
    fn a_field_taken_by_somebody_else_changes_the_fingerprint() {
        let entry = |fields: Value| ManagedFieldsEntry {
            manager: Some(MANAGER_PRODUCTION.into()),
            operation: Some("Apply".into()),
            fields_v1: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1(fields)),
            ..ManagedFieldsEntry::default()
        };
        let whole = owned_fields(&[entry(json!({"f:data": {"f:a": {}, "f:b": {}}}))]);
        let taken = owned_fields(&[entry(json!({"f:data": {"f:a": {}}}))]);
        assert_ne!(whole, taken);
        assert_eq!(owned_fields(&[]), "");
    }
}
