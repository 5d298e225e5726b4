//! How a rollout wants its ISB service changed, with what it falls back to. Pure.

use std::time::Duration;

use crate::{
    api::{AssessmentSpec, IsbServiceRollout, OnDrainTimeout, Strategy, Wait},
    settings::Defaults,
};

/// How changes are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Strategy.
    pub strategy: Strategy,
    /// Time to become healthy.
    pub deadline: Duration,
    /// Time between two looks.
    pub interval: Duration,
    /// Longest time for a drain; `None`: as long as each pipeline's own grace period.
    pub drain_timeout: Option<Duration>,
    /// What happens then.
    pub on_drain_timeout: OnDrainTimeout,
}

impl Manner {
    /// Reads the strategy of a rollout. What cannot be read is replaced by the default: [`crate::valid::isb_service`] says what is wrong before
    /// any change starts, and one that runs already must not stop for it.
    #[must_use]
    pub fn of(rollout: &IsbServiceRollout, defaults: &Defaults) -> Self {
        let spec = rollout.spec.strategy.as_ref();
        let assessment = spec.and_then(|s| s.assessment.as_ref());
        let wait = |get: fn(&AssessmentSpec) -> Option<&Wait>, default: Duration| {
            assessment.and_then(get).and_then(|w| w.get().ok()).unwrap_or(default)
        };
        let ppnd = spec.and_then(|s| s.ppnd.as_ref());
        let timeout = ppnd.and_then(|p| p.drain_timeout.as_ref()).and_then(|w| w.get().ok());
        let then = ppnd.and_then(|p| p.on_drain_timeout.as_deref()).and_then(OnDrainTimeout::parse);
        Self {
            strategy: defaults.strategy,
            deadline: wait(|a| a.deadline.as_ref(), defaults.deadline),
            interval: wait(|a| a.interval.as_ref(), defaults.interval).max(Duration::from_millis(100)),
            drain_timeout: timeout.or(defaults.drain_timeout),
            on_drain_timeout: then.unwrap_or(defaults.on_drain_timeout),
        }
    }
}
