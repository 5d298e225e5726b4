//! Conditions: their types, and a set that keeps what must not change by itself.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// A condition as the Kubernetes API defines it.
pub type Condition = k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Types of the conditions that this operator writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// The desired spec is promoted and was confirmed, and nothing is wrong (kstatus).
    Ready,
    /// Something is being waited for or retried (kstatus).
    Reconciling,
    /// Nothing will change by itself (kstatus).
    Stalled,
    /// Every workload of the promoted version is available.
    ChildResourcesHealthy,
    /// The objects of the desired version are in the cluster.
    ChildResourceDeployed,
    /// Pipelines are asked to pause.
    PausingPipelines,
    /// The pipeline is pausing or paused, whoever asked for it.
    PipelinePausingOrPaused,
    /// The MonoVertex is pausing or paused, whoever asked for it.
    MonoVertexPausingOrPaused,
    /// How the last attempt ended.
    ProgressiveUpgradeSucceeded,
    /// The promoted version is no longer defined (or no longer readable); what runs is held by its pinned revision.
    DefinitionMissing,
    /// A deletion is waiting.
    Deleting,
}

impl ConditionType {
    /// The text in `type`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::ChildResourcesHealthy => "ChildResourcesHealthy",
            Self::ChildResourceDeployed => "ChildResourceDeployed",
            Self::PausingPipelines => "PausingPipelines",
            Self::PipelinePausingOrPaused => "PipelinePausingOrPaused",
            Self::MonoVertexPausingOrPaused => "MonoVertexPausingOrPaused",
            Self::ProgressiveUpgradeSucceeded => "ProgressiveUpgradeSucceeded",
            Self::DefinitionMissing => "DefinitionMissing",
            Self::Deleting => "Deleting",
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The conditions of one object while its next status is made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions(Vec<Condition>);

impl Conditions {
    /// Starts from the conditions that are stored now.
    #[must_use]
    pub fn from_stored(stored: &[Condition]) -> Self {
        Self(stored.to_vec())
    }

    /// Sets one condition. The transition time is kept unless the status flips, so that saying the same thing again
    /// changes nothing (a refreshed time would wake the operator's own watch, for ever).
    pub fn set(
        &mut self,
        kind: ConditionType,
        status: Option<bool>,
        reason: &str,
        message: &str,
        generation: i64,
        now: Timestamp,
    ) {
        let status = match status {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let since =
            self.get(kind).filter(|old| old.status == status).map_or(Time(now), |old| old.last_transition_time.clone());
        let next = Condition {
            type_: kind.as_str().to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: cut(message, 32_000),
            observed_generation: Some(generation),
            last_transition_time: since,
        };
        match self.0.iter_mut().find(|c| c.type_ == kind.as_str()) {
            Some(slot) => *slot = next,
            None => self.0.push(next),
        }
    }

    /// Removes a condition that no longer means anything.
    pub fn remove(&mut self, kind: ConditionType) {
        self.0.retain(|c| c.type_ != kind.as_str());
    }

    /// The condition of this type, if there is one.
    #[must_use]
    pub fn get(&self, kind: ConditionType) -> Option<&Condition> {
        self.0.iter().find(|c| c.type_ == kind.as_str())
    }

    /// The list as stored in status.
    #[must_use]
    pub fn into_vec(self) -> Vec<Condition> {
        self.0
    }
}

/// Cuts a text to at most `limit` bytes, on a character boundary.
#[must_use]
pub fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = (0..=limit).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn saying_the_same_again_changes_nothing() {
        let mut conditions = Conditions::default();
        conditions.set(ConditionType::Ready, Some(true), "Deployed", "m", 1, at(10));
        let before = conditions.clone();
        conditions.set(ConditionType::Ready, Some(true), "Deployed", "m", 1, at(20));
        assert_eq!(conditions, before);
    }

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let mut conditions = Conditions::default();
        conditions.set(ConditionType::Ready, Some(false), "A", "m", 1, at(10));
        conditions.set(ConditionType::Ready, Some(false), "B", "n", 2, at(20));
        assert_eq!(conditions.get(ConditionType::Ready).unwrap().last_transition_time, Time(at(10)));
        conditions.set(ConditionType::Ready, None, "C", "n", 2, at(30));
        assert_eq!(conditions.get(ConditionType::Ready).unwrap().last_transition_time, Time(at(30)));
    }

    #[test]
    fn a_long_message_is_cut_on_a_character_boundary() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
    }
}
