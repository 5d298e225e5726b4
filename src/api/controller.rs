//! NumaflowController: one version of the controller, rendered into objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::phase::Phase;

/// One version of the Numaflow controller. Children of a NumaflowControllerRollout are made, labelled and deleted by the
/// operator and never change; a NumaflowController that you create yourself is edited in place.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "numaplane.numaproj.io",
    version = "v1alpha1",
    kind = "NumaflowController",
    plural = "numaflowcontrollers",
    shortname = "nc",
    category = "numaplane",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "NumaflowControllerStatus",
    doc = "One version of the Numaflow controller, rendered into the objects that run it.",
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version"),
    printcolumn(name = "Instance", type_ = "string", json_path = ".spec.instanceID", priority = 1),
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".metadata.labels.numaplane\\.numaproj\\.io/upgrade-state"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
// Compared field by field and with has(): a rule on the whole spec would forbid every field added later.
#[x_kube(validation = Rule::new(
    "!has(oldSelf.revision) || (has(self.revision) && self.revision == oldSelf.revision && self.version == oldSelf.version && (has(self.instanceID) ? self.instanceID : '') == (has(oldSelf.instanceID) ? oldSelf.instanceID : ''))"
).message("the spec of a child of a NumaflowControllerRollout is immutable: change the rollout instead"))]
pub struct NumaflowControllerSpec {
    /// Version to run: one that a definitions ConfigMap defines.
    #[schemars(length(min = 1, max = 63))]
    pub version: String,
    /// Instance of the controller, when several run in one namespace. A DNS label of at most 20 characters.
    #[serde(default, rename = "instanceID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    #[x_kube(validation = Rule::new("self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')")
        .message("must be a DNS label: lower-case letters, digits and '-', at most 20 characters"))]
    pub instance_id: Option<String>,
    /// ControllerRevision (or Secret) in which the definition is pinned. Set by the operator on children of a rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub revision: Option<String>,
}

/// What the operator last saw and did for a NumaflowController.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaflowControllerStatus {
    /// Pending while anything is waited for, Deployed when all objects are applied and every workload is available,
    /// Failed when the objects cannot be applied.
    #[serde(default, skip_serializing_if = "Phase::is_unset")]
    pub phase: Phase,
    /// What is waited for or what went wrong; names the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Generation of the spec that this status is about.
    #[serde(default)]
    pub observed_generation: i64,
    /// Conditions, keyed by type.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Identity under which the objects were rendered: `production`, `isolated`, or absent when nothing is rendered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Hash of the rendered objects: `v1:` and the sha256 of their canonical JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition_hash: Option<String>,
    /// Production objects applied, with what is needed to see whether somebody else changed them since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<AppliedObject>,
    /// The isolated copy in which this version proves itself; absent once nothing is left of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<IsolatedCopy>,
    /// Health of each workload.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<WorkloadHealth>,
}

/// Identity under which a child renders: a text, so that a newer operator's word can be read by an older one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Identity(pub String);

impl Identity {
    /// The production objects.
    #[must_use]
    pub fn production() -> Self {
        Self("production".to_owned())
    }

    /// A copy beside production.
    #[must_use]
    pub fn isolated() -> Self {
        Self("isolated".to_owned())
    }
}

/// What exists of an isolated copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IsolatedCopy {
    /// Its instance: `x-` and the first eight hexadecimal digits of the child's uid.
    pub instance: String,
    /// Its objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inventory: Vec<AppliedObject>,
}

/// One object that the operator applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppliedObject {
    /// API group; empty for the core group.
    #[serde(default)]
    pub group: String,
    /// API version within the group.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name, in the namespace of the NumaflowController.
    pub name: String,
    /// Uid of the object when it was applied.
    pub uid: String,
    /// Hash of what was applied.
    pub hash: String,
    /// Hash of the fields that the operator owned afterwards. Somebody who changes one of them takes it from this set.
    pub fields: String,
}

/// Health of one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadHealth {
    /// Kind of the workload.
    pub kind: String,
    /// Name of the workload.
    pub name: String,
    /// Whether all its replicas are updated and available.
    pub healthy: bool,
    /// What is missing; empty when healthy.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}
