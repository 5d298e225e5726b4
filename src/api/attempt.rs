//! What the attempts of every kind have in common: how they are made, what becomes of a drain that takes too long, how they
//! end, and the force that ended a wait.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::wait::Wait;
use crate::words::quoted;

/// Strategy of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// The new version proves itself beside the running one.
    #[default]
    Progressive,
    /// And pipelines are paused for the switch.
    PauseAndDrain,
    /// Switch at once.
    NoStrategy,
}

impl Strategy {
    /// All of them, in messages.
    pub const NAMES: &'static str = "progressive, pause-and-drain or no-strategy";

    /// The text in spec and status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Progressive => "progressive",
            Self::PauseAndDrain => "pause-and-drain",
            Self::NoStrategy => "no-strategy",
        }
    }

    /// Reads the text in a spec or a configuration.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Progressive, Self::PauseAndDrain, Self::NoStrategy].into_iter().find(|s| s.as_str() == text)
    }

    /// Reads the text in a spec or a configuration.
    ///
    /// # Errors
    /// What is said of a text that is no strategy.
    pub fn read(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| format!("{} is not a strategy; use {}", quoted(text), Self::NAMES))
    }
}

/// How a version, or an ISB service, is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AssessmentSpec {
    /// Time to become ready, from the start of the stage; 10m unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Wait>,
    /// Time to stay healthy without a break once ready; 30s unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Wait>,
    /// Time between two looks; 5s unless set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Wait>,
}

/// What happens when a drain takes too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDrainTimeout {
    /// Go on, and record what was not drained.
    #[default]
    Proceed,
    /// Give up the attempt.
    Abort,
}

impl OnDrainTimeout {
    /// The text in a spec.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Proceed => "Proceed",
            Self::Abort => "Abort",
        }
    }

    /// Reads the text in a spec.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Proceed" => Some(Self::Proceed),
            "Abort" => Some(Self::Abort),
            _ => None,
        }
    }

    /// Reads the text in a spec or a configuration.
    ///
    /// # Errors
    /// What is said of a text that is neither.
    pub fn read(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| format!("{} is neither Proceed nor Abort", quoted(text)))
    }
}

/// How an attempt ended: `status.lastAttempt.result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// Promoted and confirmed.
    Succeeded,
    /// Judged: not repeated while the attempt is the same.
    Failed,
    /// The server refuses; retried with backoff.
    Blocked,
    /// Another spec came in between.
    Superseded,
}

impl AttemptResult {
    /// The text in status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Blocked => "Blocked",
            Self::Superseded => "Superseded",
        }
    }
}

/// A force annotation that was honoured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastForce {
    /// Its text.
    pub text: String,
    /// What it ended.
    #[serde(default)]
    pub ended: String,
    /// When.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
}

/// A change of an object of Numaflow's that was given up, or that the server keeps refusing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastChange {
    /// Generation of the spec then.
    #[serde(default)]
    pub generation: i64,
    /// Hash of the object asked for.
    pub hash: String,
    /// Text of the retry annotation then.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub retry: String,
    /// `Failed`: not repeated while these are the same; `Blocked`: the server refused it, it is retried.
    pub result: String,
    /// How often in a row the server refused it.
    #[serde(default, deserialize_with = "super::readable::readable")]
    pub tries: i32,
    /// Why: one word.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Why: a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When.
    #[serde(default, deserialize_with = "super::readable::readable", skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}
