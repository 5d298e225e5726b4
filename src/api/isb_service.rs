//! ISBServiceRollout: an ISB service that is changed without losing what its pipelines hold in it, and how far that is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    attempt::{AssessmentSpec, LastChange, LastForce},
    pause::{DrainProgress, PauseRequest, PauseStatus, PpndSpec},
    phase::Phase,
    template::{Raw, TemplateMetadata},
};

/// The Numaflow ISB service that you want. Pipelines name this rollout in `interStepBufferServiceName`. A change that could
/// lose what they hold in it pauses and drains them first; whatever goes wrong, they run again afterwards.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "numaplane.numaproj.io",
    version = "v1alpha1",
    kind = "ISBServiceRollout",
    root = "IsbServiceRollout",
    plural = "isbservicerollouts",
    singular = "isbservicerollout",
    shortname = "isbr",
    category = "numaplane",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "IsbServiceRolloutStatus",
    doc = "A Numaflow ISB service that is changed without losing data.",
    printcolumn(name = "Service", type_ = "string", json_path = ".status.child"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Upgrade In Progress", type_ = "string", json_path = ".status.upgradeInProgress"),
    printcolumn(name = "Stage", type_ = "string", json_path = ".status.change.stage"),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct IsbServiceRolloutSpec {
    /// The ISB service that should run.
    pub inter_step_buffer_service: IsbServiceTemplate,
    /// How it is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<IsbStrategySpec>,
    /// Objects that go with the ISB service. Accepted, and without effect in this release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub riders: Vec<Raw>,
}

/// An ISB service to be made. `{{.isbsvc-name}}` and `{{.isbsvc-namespace}}` are filled in; other braces are left alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IsbServiceTemplate {
    /// Labels and annotations of the ISB service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// Spec of the ISB service, as Numaflow has it.
    pub spec: Raw,
}

/// How an ISB service is changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IsbStrategySpec {
    /// How long its pipelines may take to drain before it is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ppnd: Option<PpndSpec>,
    /// How long it may take to be healthy after a change (`deadline`), and how often that is looked at (`interval`). It is
    /// believed once all of its pods bear it out: `window` is accepted, and without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assessment: Option<AssessmentSpec>,
    /// Settings of progressive upgrades. Accepted, and without effect in this release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressive: Option<Raw>,
}

/// How far things are, and what the last change came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IsbServiceRolloutStatus {
    /// Pending while anything is waited for; Deployed when the ISB service has the spec that is asked for and was healthy with
    /// it; Failed when it has not and nothing will change that by itself, or the server refuses and it is being retried.
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
    /// Name of the ISB service that pipelines use.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub child: String,
    /// Highest number given to an ISB service.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub name_count: Option<i32>,
    /// What kind of change is under way: empty, `DirectApply`, or `PipelinePauseAndDrain` for one that pipelines pause for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub upgrade_in_progress: String,
    /// The change that is under way; absent at rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<IsbChange>,
    /// The change that was given up last, or that the server keeps refusing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt: Option<LastChange>,
    /// The force annotation that was last honoured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_force: Option<LastForce>,
    /// Whether pipelines are asked to pause, and for which change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_request: Option<PauseRequest>,
    /// Times of the last pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_request_status: Option<PauseStatus>,
    /// The drain of the last change that had one: what was not drained stays on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_drain: Option<DrainProgress>,
    /// Hash of the fields that others set and that come back when they are removed: they are left alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub left_alone: String,
    /// When the phase last became Failed.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub last_failure_time: Option<Time>,
}

/// A change of an ISB service that is under way.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IsbChange {
    /// What pipelines are asked for by: unlike that of any other change.
    #[serde(default)]
    pub attempt: String,
    /// Generation of the spec when it started.
    #[serde(default)]
    pub generation: i64,
    /// Hash of the ISB service asked for.
    #[serde(default)]
    pub hash: String,
    /// Text of the retry annotation when it started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub retry: String,
    /// Fields that change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
    /// Stage: Beside, Drain, Apply, Confirm or RollBack.
    #[serde(default)]
    pub stage: String,
    /// The ISB service that is made beside the one that there is; empty where that is changed in place.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// When it started.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When this stage started: deadlines count from here.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub stage_started_at: Option<Time>,
    /// Since when it has been healthy without a break in this stage; absent while it is not.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Time>,
    /// Whether it was seen to be on its way: what says that it is healthy before that may be from before the change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled: bool,
    /// How the drain stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainProgress>,
    /// Labels, annotations and spec from before, while it is changed in place: they come back if it does not get healthy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Raw>,
    /// Why it is taken back: one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why it is taken back: a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// Stage of a change: `status.change.stage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IsbStage {
    /// Another ISB service is made beside the one that there is, and gets healthy.
    Beside,
    /// Pipelines pause.
    Drain,
    /// The ISB service is changed in place.
    Apply,
    /// The changed ISB service is judged.
    Confirm,
    /// The spec that it had before comes back.
    RollBack,
}

impl IsbStage {
    /// The text in status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Beside => "Beside",
            Self::Drain => "Drain",
            Self::Apply => "Apply",
            Self::Confirm => "Confirm",
            Self::RollBack => "RollBack",
        }
    }

    /// Reads the text in status; `None` for a stage that only a newer operator knows.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Beside, Self::Drain, Self::Apply, Self::Confirm, Self::RollBack]
            .into_iter()
            .find(|stage| stage.as_str() == text)
    }
}
