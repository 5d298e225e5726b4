//! Whether a change is attempted: one that was given up is not, one that the server refused is tried again later. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{AttemptResult, LastChange},
    plan::Refusal,
    time::elapsed,
};

/// Shortest and longest time after which a change that the server refused is tried again.
const BLOCKED: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(1));

/// A change as its user asks for it now.
#[derive(Clone, Copy, Debug)]
pub struct Now<'a> {
    /// Generation of the rollout's spec.
    pub generation: i64,
    /// Hash of what is wanted.
    pub hash: &'a str,
    /// Text of the retry annotation.
    pub retry: &'a str,
}

/// Whether a change may be attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tries {
    /// Now.
    Now,
    /// Not before this time has passed.
    After(Duration),
    /// Never, as it is.
    Never,
}

impl Now<'_> {
    /// Whether a record is about this very change.
    #[must_use]
    pub fn is(&self, last: &LastChange) -> bool {
        last.hash == self.hash && last.retry == self.retry && last.generation == self.generation
    }

    /// Whether it was judged, and so is not attempted again.
    #[must_use]
    pub fn was_given_up(&self, last: Option<&LastChange>) -> bool {
        last.is_some_and(|last| self.is(last) && last.result == AttemptResult::Failed.as_str())
    }

    /// Whether it is to be attempted now: it was not given up, nor refused a moment ago.
    #[must_use]
    pub fn tries(&self, last: Option<&LastChange>, now: Timestamp) -> Tries {
        let Some(last) = last.filter(|last| self.is(last)) else { return Tries::Now };
        if last.result == AttemptResult::Failed.as_str() {
            return Tries::Never;
        }
        let doubled = 1u32 << u32::try_from(last.tries.saturating_sub(1)).unwrap_or_default().min(10);
        let wait = BLOCKED.0.saturating_mul(doubled).min(BLOCKED.1);
        let wait = wait.saturating_sub(elapsed(last.finished_at.as_ref(), now));
        if wait.is_zero() { Tries::Now } else { Tries::After(wait) }
    }

    /// The record of a change that was judged.
    #[must_use]
    pub fn failed(&self, reason: &str, message: &str, now: Timestamp) -> LastChange {
        LastChange {
            tries: 0,
            generation: self.generation,
            hash: self.hash.to_owned(),
            retry: self.retry.to_owned(),
            result: AttemptResult::Failed.as_str().to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            finished_at: Some(Time(now)),
        }
    }

    /// The record of a change that the server refuses, after the one that there is.
    #[must_use]
    pub fn blocked(&self, refusal: &Refusal, last: Option<&LastChange>, now: Timestamp) -> LastChange {
        let tries = last.filter(|last| self.is(last)).map_or(0, |last| last.tries);
        LastChange {
            tries: tries.saturating_add(1),
            result: AttemptResult::Blocked.as_str().to_owned(),
            ..self.failed(&refusal.reason, &refusal.message, now)
        }
    }
}
