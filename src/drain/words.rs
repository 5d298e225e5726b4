//! What is said about a drain. Times are as they are on a clock, so that the words stay the same while they pass. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Answers, Asking, answers::Awaited};
use crate::{
    api::{DrainProgress, OnDrainTimeout, PauseRequest},
    numaflow::last_wait,
    time::of_day,
    words::{duration, list},
};

impl Asking<'_> {
    /// The words for pipelines that have an answer still to the request that was withdrawn; `None` where none has.
    #[must_use]
    pub fn unseen_withdrawal(&self) -> Option<String> {
        let behind = self.still_answered();
        let words = || format!("waiting for {} to have seen that the last request was withdrawn", list(&behind, 10));
        (!behind.is_empty()).then(words)
    }

    /// What is waited for, and until when.
    pub(super) fn words(
        &self,
        seen: &Answers,
        waited: Duration,
        request: Option<&PauseRequest>,
        now: Timestamp,
    ) -> String {
        let at = |time: Option<&Time>, later: Duration| {
            let then = time.and_then(|t| t.0.checked_add(later).ok()).unwrap_or(now);
            of_day(then)
        };
        let since = request.and_then(|r| r.since.as_ref());
        let mut words = match request.and_then(|r| r.cut_at.as_ref()) {
            Some(cut) => format!(
                "the time to drain was up at {}; waiting until {} for {} to pause as they are: {}",
                at(Some(cut), Duration::ZERO),
                at(Some(cut), last_wait(seen.managed)),
                seen.count(),
                seen.names(None),
            ),
            None => format!(
                "waiting since {} for {} to drain: {}",
                at(since, Duration::ZERO),
                seen.count(),
                seen.names(Some(waited))
            ),
        };
        if request.is_some_and(|r| r.cut_at.is_none()) {
            words += &match (self.timeout, self.on_timeout) {
                (None, _) => "; no drainTimeout is set".to_owned(),
                (Some(timeout), action) => format!(
                    "; times out at {} (drainTimeout {}), and {} then",
                    at(since, timeout),
                    duration(timeout),
                    if action == OnDrainTimeout::Abort { "gives up" } else { "goes on" }
                ),
            };
        }
        if !seen.unmanaged.is_empty() {
            let names: Vec<String> = seen.unmanaged.iter().map(|name| format!("Pipeline/{name}")).collect();
            words += &format!("; {} left alone, without a PipelineRollout: {}", names.len(), list(&names, 5));
        }
        words
    }
}

impl Answers {
    /// The pipelines waited for, in words; after `waited` it is said of each that it takes longer than it should.
    pub(super) fn names(&self, waited: Option<Duration>) -> String {
        let of = |p: &Awaited| {
            let slow = waited.is_some_and(|waited| waited >= p.budget);
            let slow = if slow {
                format!("; not paused within {}: its controller may not be responding", duration(p.budget))
            } else {
                String::new()
            };
            format!("Pipeline/{} ({}{slow})", p.name, p.says)
        };
        let mut names: Vec<String> = self.waiting.iter().map(of).collect();
        if self.unlisted {
            names.push("Pipelines, which cannot be listed".to_owned());
        }
        list(&names, 10)
    }

    /// How many of how many.
    pub(super) fn count(&self) -> String {
        let many = if self.managed == 1 { "pipeline" } else { "pipelines" };
        format!("{} of {} {many}", self.waiting.len(), self.managed)
    }
}

/// The words for what was not drained; empty where all was, and where there was no drain.
#[must_use]
pub fn not_drained(drain: Option<&DrainProgress>) -> String {
    match drain {
        Some(drain) if !drain.not_drained.is_empty() => format!("not drained: {}", list(&drain.not_drained, 10)),
        _ => String::new(),
    }
}

/// The condition `PausingPipelines` by a request: its status, reason and message. `what` names the thing that its attempt is.
#[must_use]
pub fn condition(request: Option<&PauseRequest>, what: impl FnOnce(&str) -> String) -> (bool, &'static str, String) {
    match request.filter(|r| r.active) {
        None => (false, "NoPause", String::new()),
        Some(request) => {
            let since = request.since.as_ref().map(|t| of_day(t.0)).unwrap_or_default();
            let what = what(&request.attempt);
            (true, "Pause", format!("pipelines are asked to pause since {since}, for {what}"))
        }
    }
}
