//! NumaflowControllerRollout: the version that a user wants, and how the operator gets there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    attempt::{AssessmentSpec, LastForce},
    pause::{DrainProgress, PauseRequest, PauseStatus, PpndSpec},
    phase::Phase,
};

/// The Numaflow controller that you want in this namespace. Change `spec.controller.version` to upgrade; whatever goes
/// wrong, the running controller stays, and setting a good version always works.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "numaplane.numaproj.io",
    version = "v1alpha1",
    kind = "NumaflowControllerRollout",
    plural = "numaflowcontrollerrollouts",
    shortname = "ncr",
    category = "numaplane",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "NumaflowControllerRolloutStatus",
    doc = "The Numaflow controller version that should run in this namespace.",
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.controller.version"),
    printcolumn(name = "Promoted", type_ = "string", json_path = ".status.promoted.version"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Stage", type_ = "string", json_path = ".status.upgrade.stage"),
    printcolumn(name = "Instance", type_ = "string", json_path = ".spec.controller.instanceID", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct NumaflowControllerRolloutSpec {
    /// The controller that should run.
    pub controller: ControllerSpec,
    /// How to get there. Every field left out falls back to the namespace's configuration, then to the operator's, then
    /// to what is built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<StrategySpec>,
    /// Start no new attempt while true; the clocks of a version that proves itself stand still, and pipelines that were asked to
    /// pause run on. What has reached production is still finished or rolled back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Revisions kept besides those in use, 3 unless set: the versions that can come back without their definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100))]
    pub revision_history_limit: Option<i32>,
}

/// A version of the controller, for one instance.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerSpec {
    /// Version to run: one that a definitions ConfigMap defines.
    #[schemars(length(min = 1, max = 63))]
    pub version: String,
    /// Instance of the controller, when several run in one namespace: pipelines choose it by the annotation
    /// `numaflow.numaproj.io/instance`. A DNS label of at most 20 characters; `x-` in front is kept for the operator.
    #[serde(default, rename = "instanceID", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    #[x_kube(validation = Rule::new("self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$') && !self.startsWith('x-')")
        .message("must be a DNS label (lower-case letters, digits and '-', at most 20 characters) that does not begin with 'x-'"))]
    pub instance_id: Option<String>,
}

impl ControllerSpec {
    /// The instance ID; empty for the instance without a name.
    #[must_use]
    pub fn instance(&self) -> &str {
        self.instance_id.as_deref().unwrap_or_default()
    }
}

/// How an upgrade is made.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StrategySpec {
    /// `progressive` (the new version proves itself beside the running one), `pause-and-drain` (and pipelines are
    /// paused for the switch) or `no-strategy` (switch at once). Fixed for an attempt when it starts.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    #[x_kube(validation = Rule::new("self in ['progressive', 'pause-and-drain', 'no-strategy']")
        .message("must be progressive, pause-and-drain or no-strategy"))]
    pub kind: Option<String>,
    /// How long a version may take to become ready, and how long it must then stay so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assessment: Option<AssessmentSpec>,
    /// How long pipelines may take to drain before the switch, with strategy `pause-and-drain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ppnd: Option<PpndSpec>,
    /// Do not wait for the new version to prove itself beside the running one. Honoured for one attempt: the one that runs
    /// when it is set, else the next; set it to false before you use it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_promote: Option<bool>,
}

/// How far things are, and what the last attempt came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NumaflowControllerRolloutStatus {
    /// Pending while anything is waited for; Deployed when the desired spec is promoted and was confirmed; Failed when it
    /// is not deployed and nothing will change that by itself, or the server refuses and it is being retried.
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
    /// The version that was last confirmed in production.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoted: Option<Promoted>,
    /// The attempt that is running; absent at rest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<Upgrade>,
    /// The attempt that ended last, or that the server keeps refusing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt: Option<LastAttempt>,
    /// The force annotation that was last honoured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_force: Option<LastForce>,
    /// The attempt for which `forcePromote` was honoured; absent once it is false again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_promoted: Option<ForcePromoted>,
    /// Versions whose definitions are pinned, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryEntry>,
    /// Highest number given to a child.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub name_count: Option<i32>,
    /// What kind of change is under way: empty, `DirectApply`, `PipelinePauseAndDrain` or `Progressive`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub upgrade_in_progress: String,
    /// Whether pipelines are asked to pause, and for which attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_request: Option<PauseRequest>,
    /// Times of the last pause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_request_status: Option<PauseStatus>,
    /// The drain of the last attempt that had one: what was not drained stays on record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_drain: Option<DrainProgress>,
    /// Set while no pod of the controller is available: nobody can pause or resume its pipelines then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller_unavailable: Option<ControllerUnavailable>,
    /// When the phase last became Failed.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub last_failure_time: Option<Time>,
}

/// That no pod of the controller is available.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControllerUnavailable {
    /// Since when.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Whether it has been so for long enough, and its lease has run out: it is not waited for any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gone: bool,
}

/// The version in production.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Promoted {
    /// Name of the child that renders it.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its instance ID; empty for the instance without a name.
    #[serde(default, rename = "instanceID")]
    pub instance_id: String,
    /// Hash of its rendered objects.
    #[serde(default)]
    pub definition_hash: String,
    /// Revision that pins its definition.
    #[serde(default)]
    pub revision: String,
}

impl Promoted {
    /// Whether this is the version and instance that a spec asks for.
    #[must_use]
    pub fn is_asked_for(&self, asked: &ControllerSpec) -> bool {
        self.version == asked.version && self.instance_id == asked.instance()
    }
}

/// A running attempt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Upgrade {
    /// Child of the attempted version.
    pub name: String,
    /// Version attempted.
    pub version: String,
    /// Instance attempted; empty for the instance without a name.
    #[serde(default, rename = "instanceID")]
    pub instance_id: String,
    /// Hash of the rendered objects of the attempted version.
    #[serde(default)]
    pub definition_hash: String,
    /// Revision that pins the attempted version.
    #[serde(default)]
    pub revision: String,
    /// Generation of the spec when the attempt started.
    #[serde(default)]
    pub generation: i64,
    /// Text of the retry annotation when the attempt started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub retry: String,
    /// Strategy of the attempt.
    #[serde(default)]
    pub strategy: String,
    /// Stage: Resolve, Verify, Drain, CutOver, Confirm or RollBack.
    pub stage: String,
    /// Child that leaves production in this stage; empty when there is none.
    #[serde(default)]
    pub from: String,
    /// Child that enters production in this stage.
    #[serde(default)]
    pub to: String,
    /// When the attempt started.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When this stage started: deadlines count from here.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub stage_started_at: Option<Time>,
    /// How the assessment stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assessment: Option<Assessment>,
    /// Whether the version has proved itself beside the running one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub verified: bool,
    /// Why it was not asked to: a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub verify_skipped: String,
    /// Instance of the isolated copy in which it proves itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub isolated: String,
    /// Since when the clocks of this stage stand still: `spec.paused` is set, or the server refuses.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub held_since: Option<Time>,
    /// What the entry of the definition says besides its objects, like `leaderElection: false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// Whether pods are replaced: a new one must lead then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolls: bool,
    /// Who held the lease before, where pods cannot be told from the name of the holder (they use the host's network).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub holder_before: String,
    /// How the drain stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainProgress>,
    /// ISB services that were not healthy before pipelines were asked to pause: the version is not judged by them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub isb_unhealthy: Vec<String>,
    /// Objects that must be made anew because a field cannot be changed in place, as `Kind/name`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recreate: Vec<String>,
    /// Why the attempt is being rolled back: one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why the attempt is being rolled back: a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Stage in which the attempt failed, while it is being rolled back.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub failed_stage: String,
}

/// How an assessment stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Assessment {
    /// Since when every workload has been healthy without a break; absent while one is not.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub healthy_since: Option<Time>,
    /// Who held the lease then; empty where none is asked for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub holder: String,
    /// When that holder had last renewed the lease then.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Time>,
    /// How often it was healthy and then was not.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "is_zero")]
    pub relapses: i32,
    /// What was wrong the last time.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_relapse: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde passes a reference
fn is_zero(n: &i32) -> bool {
    *n == 0
}

/// An attempt that ended, or that the server keeps refusing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastAttempt {
    /// Generation of the spec when the attempt started.
    #[serde(default)]
    pub generation: i64,
    /// Version attempted.
    pub version: String,
    /// Instance attempted; empty for the instance without a name.
    #[serde(default, rename = "instanceID")]
    pub instance_id: String,
    /// Hash of its rendered objects; empty where they could not be rendered.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub definition_hash: String,
    /// What the entry of the definition says besides its objects, like `leaderElection: false`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub settings: String,
    /// Text of the retry annotation when the attempt started.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub retry: String,
    /// `Succeeded`, `Failed` (judged: not repeated while the attempt is the same), `Blocked` (the server refuses: being
    /// retried) or `Superseded`.
    pub result: String,
    /// Stage in which it ended.
    pub stage: String,
    /// Why: one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why: a sentence that names the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it started.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// An attempt for which `forcePromote` was honoured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForcePromoted {
    /// Version attempted.
    pub version: String,
    /// When it was honoured.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// A version whose definition is pinned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// Name of the revision.
    pub revision: String,
    /// Its version.
    pub version: String,
}

/// Stage of an attempt: `status.upgrade.stage`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Find, parse, render, check, dry-run.
    Resolve,
    /// The new version proves itself in isolation.
    Verify,
    /// Pipelines pause.
    Drain,
    /// Production changes hands.
    CutOver,
    /// The new version is judged in production.
    Confirm,
    /// The last confirmed version comes back.
    RollBack,
}

impl Stage {
    /// The text in status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resolve => "Resolve",
            Self::Verify => "Verify",
            Self::Drain => "Drain",
            Self::CutOver => "CutOver",
            Self::Confirm => "Confirm",
            Self::RollBack => "RollBack",
        }
    }

    /// Reads the text in status; `None` for a stage that only a newer operator knows.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Resolve, Self::Verify, Self::Drain, Self::CutOver, Self::Confirm, Self::RollBack]
            .into_iter()
            .find(|stage| stage.as_str() == text)
    }
}
