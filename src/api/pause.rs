//! The pause protocol: what is asked of pipelines, what they answer, and when a pause was.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wait::Wait;

/// How pipelines are paused and drained.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PpndSpec {
    /// Longest time for a drain; unset: as long as each pipeline's own grace period; 0s: no pause at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<Wait>,
    /// What to do then: `Proceed` (go on, and record what was not drained) or `Abort` (give up the attempt).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    #[x_kube(validation = Rule::new("self in ['Proceed', 'Abort']").message("must be Proceed or Abort"))]
    pub on_drain_timeout: Option<String>,
}

/// Whether pipelines are asked to pause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PauseRequest {
    /// Whether the request stands.
    pub active: bool,
    /// Attempt it belongs to.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub attempt: String,
    /// Since when: the time-out counts from here.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Longest time for the drain; unset: as long as each pipeline's own grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<Wait>,
    /// Since when pipelines are to pause without draining any further, because the time is up.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub cut_at: Option<Time>,
}

/// How a drain stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainProgress {
    /// When pipelines were asked to pause.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// Pipelines waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_for: Vec<String>,
    /// Pipelines that paused with everything processed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drained: Vec<String>,
    /// Pipelines that paused with messages left, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_drained: Vec<String>,
    /// Pipelines that were not paused for this request, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excused: Vec<String>,
    /// Pipelines of the instance that no PipelineRollout manages: they are left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmanaged: Vec<String>,
    /// Why the drain was ended early or left out: a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ended: String,
}

/// Times of the last pause, as the existing API has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PauseStatus {
    /// When the last pause began.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub last_pause_begin_time: Option<Time>,
    /// When pausing became paused.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub last_pause_phase_change_time: Option<Time>,
    /// When the last pause ended.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub last_pause_end_time: Option<Time>,
}

/// What a pipeline answers to a request for a pause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PauseAnswer {
    /// Who asks: `Kind/name`.
    pub by: String,
    /// For which attempt.
    #[serde(default)]
    pub attempt: String,
    /// `Pausing`, `Paused`, `Excused` (it is not paused for this request) or `Forced` (its user does not want to wait).
    pub answer: String,
    /// Whether it was drained; absent unless it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained: Option<bool>,
    /// Why it is not drained, or not paused: a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// Answers to a request for a pause.
pub mod answer {
    /// It is on its way.
    pub const PAUSING: &str = "Pausing";
    /// It is paused, settled.
    pub const PAUSED: &str = "Paused";
    /// It is not paused for this request.
    pub const EXCUSED: &str = "Excused";
    /// Its user does not want to wait.
    pub const FORCED: &str = "Forced";
}

/// States of a pause.
pub mod pausing {
    /// On its way.
    pub const PAUSING: &str = "Pausing";
    /// Settled.
    pub const PAUSED: &str = "Paused";
    /// On its way back.
    pub const RESUMING: &str = "Resuming";
}
