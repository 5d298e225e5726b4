//! The pause protocol: what is asked of pipelines, what they answer, and when a pause was.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wait::Wait;

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
