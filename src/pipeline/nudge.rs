//! Pipelines that are Failed because of their ISB service: when Numaflow is woken for them, and how long one that had paused may
//! take to be paused again. Pure.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::decide::Turn;
use crate::{
    api::{LABEL_POKE, pausing},
    evidence::Look,
    numaflow::LivePipeline,
    plan::Step,
    time::{elapsed, is_ahead},
    wrapped::PIPELINE,
};

/// Time after which a pipeline that failed is nudged at the earliest, and shortest and longest time between two nudges.
const FIRST: Duration = Duration::from_secs(2);
const BETWEEN: (Duration, Duration) = (Duration::from_secs(10), Duration::from_mins(10));
/// Longest time between two looks whether an ISB service is as healthy as it says.
const LOOK: Duration = Duration::from_secs(30);
/// Time that one that failed after it had paused has to be paused again, from when it was nudged with its ISB service healthy.
const TO_BE_BACK: Duration = Duration::from_secs(15);
/// … after which that nudge says nothing any more, and there is another one.
const OUTDATED: Duration = Duration::from_mins(1);
/// … and how long it may have been failing in any case.
const AT_MOST: Duration = Duration::from_mins(10);

impl Turn<'_> {
    /// Nothing wakes Numaflow when an ISB service becomes healthy, and its own retries may be a quarter of an hour apart.
    pub(super) fn nudge(&mut self, child: &LivePipeline) -> Option<Step> {
        if child.phase != "Failed" || !child.is_observed() || child.is_misconfigured() {
            return None;
        }
        let isb = self.s.isb.get(child.isb()).filter(|isb| isb.instance() == child.instance())?;
        if !isb.says_healthy() || self.refusal().is_some() {
            return None;
        }
        let failed = elapsed(self.next.failed_since.as_ref(), self.now);
        let pace = if self.is_to_be_back(child) { OUTDATED } else { (failed / 4).clamp(BETWEEN.0, BETWEEN.1) };
        let wait = pace.saturating_sub(self.nudged(child)).max(FIRST.saturating_sub(failed));
        if !wait.is_zero() {
            self.again(wait);
            return None;
        }
        if child.wants_paused() {
            // It says so for a moment when it is about to be changed, too.
            let look = Look { isb: vec![child.isb().to_owned()], ..Look::default() };
            let Some(seen) = self.s.learned.looks.get(&look) else { return Some(Step::Look(look)) };
            let settings = self.s.settings.get(child.instance()).map(Arc::as_ref);
            let healthy = seen.isb.get(child.isb()).is_some_and(|isb| isb.lacks(settings).is_empty());
            if !healthy && seen.unreadable.is_none() {
                self.again((failed / 4).clamp(FIRST, LOOK));
                return None;
            }
        }
        let labels = json!({"metadata": {"labels": {LABEL_POKE: self.now.as_second().to_string()}}});
        let object = child.version.clone().of_any_state();
        Some(Step::PatchNumaflow {
            kind: PIPELINE.kind,
            object,
            patch: Arc::new(labels),
            why: "its ISB service is healthy again",
        })
    }

    /// How long ago it was nudged; of a time that lies ahead nobody knows.
    fn nudged(&self, child: &LivePipeline) -> Duration {
        let at = child.labels.get(LABEL_POKE).and_then(|at| at.parse().ok());
        at.and_then(|second| Timestamp::from_second(second).ok())
            .map(Time)
            .filter(|at| !is_ahead(at, self.now))
            .map_or(Duration::MAX, |at| elapsed(Some(&at), self.now))
    }

    /// Whether this one failed after it had paused, because of its ISB service, and is to be paused again before it is resumed.
    fn is_to_be_back(&self, child: &LivePipeline) -> bool {
        let was_paused =
            self.next.pause.as_ref().is_some_and(|p| p.settled_at.is_some() && p.state == pausing::RESUMING);
        was_paused
            && child.is_observed()
            && child.wants_paused()
            && child.phase == "Failed"
            && child.paused_at().is_some()
            && !child.is_misconfigured()
            && self.s.isb.get(child.isb()).is_some_and(|isb| isb.instance() == child.instance())
    }

    /// Whether it is still waited for such a one to be paused again. It has its time from when it was nudged with its ISB service
    /// healthy again; one that fails for long is not waited for at all, nor one whose user does not want to wait: nothing is
    /// left paused.
    pub(super) fn waits_to_be_back(&mut self, child: &LivePipeline) -> bool {
        let left = AT_MOST.saturating_sub(elapsed(self.next.failed_since.as_ref(), self.now));
        let forced = self.allows_data_loss() || !self.next.forced.is_empty();
        if !self.is_to_be_back(child) || left.is_zero() || forced {
            return false;
        }
        self.again(left);
        let healthy = self.s.isb.get(child.isb()).is_some_and(|isb| isb.says_healthy());
        let nudged = self.nudged(child);
        if healthy && nudged >= TO_BE_BACK && nudged < OUTDATED {
            return false;
        }
        if healthy && nudged < TO_BE_BACK {
            self.again(TO_BE_BACK.saturating_sub(nudged));
        }
        true
    }
}
