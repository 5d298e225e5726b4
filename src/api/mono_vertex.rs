//! MonoVertexRollout: a Numaflow MonoVertex, and how far it is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    attempt::{LastChange, LastForce},
    pause::pausing,
    phase::Phase,
    pipeline::ResumeSpec,
    template::{Raw, TemplateMetadata},
};

/// The Numaflow MonoVertex that you want. It acknowledges a message after its sink has it, so that its changes are rolled out
/// pod by pod; only a change that a `usde-config` ConfigMap lists pauses it first.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "numaplane.numaproj.io",
    version = "v1alpha1",
    kind = "MonoVertexRollout",
    plural = "monovertexrollouts",
    shortname = "mvr",
    category = "numaplane",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "MonoVertexRolloutStatus",
    doc = "A Numaflow MonoVertex that is kept as you want it.",
    printcolumn(name = "MonoVertex", type_ = "string", json_path = ".status.child"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Upgrade In Progress", type_ = "string", json_path = ".status.upgradeInProgress"),
    printcolumn(name = "Pause", type_ = "string", json_path = ".status.pause.state"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct MonoVertexRolloutSpec {
    /// The MonoVertex that should run.
    pub mono_vertex: MonoVertexTemplate,
    /// How it is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<MonoVertexStrategySpec>,
    /// Objects that go with the MonoVertex. Accepted, and without effect in this release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub riders: Vec<Raw>,
}

/// A MonoVertex to be made. `{{.monovertex-name}}` and `{{.monovertex-namespace}}` are filled in; other braces are left alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MonoVertexTemplate {
    /// Labels and annotations of the MonoVertex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the MonoVertex, as Numaflow has it.
    pub spec: Raw,
}

/// How a MonoVertex is changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MonoVertexStrategySpec {
    /// How it comes back from a pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_resume: Option<ResumeSpec>,
    /// Settings of progressive upgrades. Accepted, and without effect in this release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressive: Option<Raw>,
    /// Settings of analyses. Accepted, and without effect in this release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analysis: Option<Raw>,
}

/// How far things are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MonoVertexRolloutStatus {
    /// Pending while anything is waited for; Deployed when the MonoVertex has the spec that is asked for; Failed when it has
    /// not and nothing will change that by itself, or the server refuses and it is being retried.
    #[serde(default, skip_serializing_if = "Phase::is_unset")]
    pub phase: Phase,
    /// What is waited for or what went wrong; names the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Generation of the spec that this status is about; -1 while nobody has looked.
    #[serde(default)]
    pub observed_generation: i64,
    /// Conditions, keyed by type: Ready, Reconciling and Stalled follow kstatus.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Name of the MonoVertex.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub child: String,
    /// Highest number given to a MonoVertex.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub name_count: Option<i32>,
    /// What kind of change is under way: empty, `DirectApply`, or `PipelinePauseAndDrain` while the MonoVertex is paused for
    /// one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub upgrade_in_progress: String,
    /// Selects the pods of the MonoVertex, for a VerticalPodAutoscaler.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub promoted_pod_selector: String,
    /// The pause that is going on; absent while the MonoVertex runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<MonoVertexPause>,
    /// The pause that ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_pause: Option<MonoVertexPause>,
    /// The change that was given up last, or that the server keeps refusing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt: Option<LastChange>,
    /// The force annotation that was last honoured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_force: Option<LastForce>,
    /// Hash of the change that it was honoured for: it does not wait for a pause.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub forced: String,
    /// Hash of the fields that others set and that come back when they are removed: they are left alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub left_alone: String,
    /// When the phase last became Failed.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub last_failure_time: Option<Time>,
}

/// One pause of a MonoVertex.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MonoVertexPause {
    /// `Pausing`, `Paused` or `Resuming`. Paused means that its pods are gone.
    #[serde(default)]
    pub state: String,
    /// Why: a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Who asked for it: `MonoVertexRollout/<name>` for a change of its own, `spec` for a user's pause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<String>,
    /// Since when.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When its pods were gone.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<Time>,
    /// Pods that were there all the same then, and are not waited for: they ended by themselves, or their node does not
    /// answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods_left: Vec<String>,
    /// When it ended.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
}

impl MonoVertexPause {
    /// Not settled, or not any more: what was found out when it was, says nothing now.
    pub fn unsettle(&mut self) {
        pausing::PAUSING.clone_into(&mut self.state);
        self.settled_at = None;
        self.pods_left.clear();
    }
}
