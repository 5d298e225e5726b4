//! PipelineRollout: a Numaflow pipeline that is changed without losing data, and how far that is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    attempt::{LastChange, LastForce},
    pause::{PauseAnswer, PauseStatus},
    phase::Phase,
    template::{Raw, TemplateMetadata},
    wait::Wait,
};

/// The Numaflow pipeline that you want. Change `spec.pipeline.spec`; a change that could lose data pauses and drains the
/// pipeline first, and whatever goes wrong, it is running again afterwards.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "numaplane.numaproj.io",
    version = "v1alpha1",
    kind = "PipelineRollout",
    plural = "pipelinerollouts",
    shortname = "plr",
    category = "numaplane",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "PipelineRolloutStatus",
    doc = "A Numaflow pipeline that is changed without losing data.",
    printcolumn(name = "Pipeline", type_ = "string", json_path = ".status.child"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Upgrade In Progress", type_ = "string", json_path = ".status.upgradeInProgress"),
    printcolumn(name = "Pause", type_ = "string", json_path = ".status.pause.state"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PipelineRolloutSpec {
    /// The pipeline that should run.
    pub pipeline: PipelineTemplate,
    /// How it is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<PipelineStrategySpec>,
    /// Objects that go with the pipeline. Accepted, and without effect in this release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub riders: Vec<Raw>,
}

/// A pipeline to be made. `{{.pipeline-name}}` and `{{.pipeline-namespace}}` are filled in; other braces are left alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineTemplate {
    /// Labels and annotations of the pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the pipeline, as Numaflow has it. `interStepBufferServiceName` is the name of an ISBServiceRollout, whose ISB
    /// service the pipeline uses or, where there is none of that name, of an InterStepBufferService; left out: `default`. A
    /// new pipeline waits until that is there.
    pub spec: Raw,
}

/// How a pipeline is changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineStrategySpec {
    /// How it is paused and drained for a change, of its own or of what it depends on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ppnd: Option<PipelinePpndSpec>,
    /// How it comes back from a pause that its own spec asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_resume: Option<ResumeSpec>,
    /// Settings of progressive upgrades. Accepted, and without effect in this release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressive: Option<Raw>,
    /// Settings of analyses. Accepted, and without effect in this release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analysis: Option<Raw>,
    /// Settings of recycling. Accepted, and without effect in this release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recycle_strategy: Option<Raw>,
}

/// How a pipeline is paused, drained and resumed for a change.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PipelinePpndSpec {
    /// Resume with the replicas that there were, instead of from the minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_resume: Option<bool>,
    /// Longest time for a drain before a change of this pipeline; unset: as long as its own grace period; 0s: no pause at
    /// all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<Wait>,
    /// What to do then: `Proceed` (apply the change, and record what was not drained) or `Abort` (give the change up).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self in ['Proceed', 'Abort']").message("must be Proceed or Abort"))]
    pub on_drain_timeout: Option<String>,
}

/// How a pipeline comes back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResumeSpec {
    /// Resume with the replicas that there were, instead of from the minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_resume: Option<bool>,
}

/// How far things are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelineRolloutStatus {
    /// Pending while anything is waited for; Deployed when the pipeline has the spec that is asked for; Failed when it has
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
    /// Name of the pipeline.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub child: String,
    /// Highest number given to a pipeline.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub name_count: Option<i32>,
    /// What kind of change is under way: empty, or `PipelinePauseAndDrain` while the pipeline is paused for one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub upgrade_in_progress: String,
    /// The pause that is going on; absent while the pipeline runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<PipelinePause>,
    /// The pause that ended last: whether it was drained stays on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_pause: Option<PipelinePause>,
    /// What was answered to those who ask for a pause now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pause_requests: Vec<PauseAnswer>,
    /// Times of the last pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_status: Option<PauseStatus>,
    /// Since when the pipeline has been in phase Failed.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub failed_since: Option<Time>,
    /// Set while the pipeline is in a state that Numaflow never leaves by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wedge: Option<Wedge>,
    /// The force annotation that was last honoured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_force: Option<LastForce>,
    /// What it was honoured for: requests and changes that do not wait for a drain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forced: Vec<String>,
    /// Hash of the fields that others set and that come back when they are removed: they are left alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub left_alone: String,
    /// The change that was given up last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt: Option<LastChange>,
    /// When the phase last became Failed.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub last_failure_time: Option<Time>,
}

/// One pause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PipelinePause {
    /// `Pausing`, `Paused` or `Resuming`.
    #[serde(default)]
    pub state: String,
    /// Why: a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Who asked for it: `PipelineRollout/<name>` for a change of its own, `spec` for a user's pause, else the requesters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked_by: Vec<String>,
    /// Since when: time-outs count from here.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// When it was settled.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub settled_at: Option<Time>,
    /// Whether everything was processed then; absent while it is not settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<bool>,
    /// Why not: a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub not_drained: String,
    /// Pods that were there all the same when it was settled, and are not waited for: they ended by themselves, or their node
    /// does not answer, where one may still run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods_left: Vec<String>,
    /// When the drain was cut short because its time was up.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub cut_at: Option<Time>,
    /// Since when a change of the pipeline itself waits for it.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub own_since: Option<Time>,
    /// Vertices added meanwhile whose scaling is disabled: Numaflow leaves them without replicas.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// When it ended.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
}

impl PipelinePause {
    /// It is not settled any more: what was on record about that is not true of it now. Why it was not drained may be about a
    /// change that went in meanwhile, and is written anew when it is settled again.
    pub fn unsettle(&mut self) {
        super::pausing::PAUSING.clone_into(&mut self.state);
        (self.settled_at, self.drained) = (None, None);
        self.pods_left.clear();
    }
}

/// A pipeline in a state that Numaflow never leaves by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Wedge {
    /// `Running` (it says so, and its sources are paused) or `Paused` (it says so, and its vertices run).
    pub says: String,
    /// Since when it has been seen so.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Whether it is being healed: it is paused and resumed (or the other way round) once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub healing: bool,
    /// Generation of its spec when the healing began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
}
