//! A change of a pipeline's own spec: how long it waits for a pause, and when it goes without one. Pure.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    change::without_pause,
    decide::Turn,
    desired::Desired,
    want::{Want, key_of_change},
};
use crate::{
    api::{ANNOTATION_ALLOW_DATA_LOSS, ANNOTATION_FORCE, OnDrainTimeout, PipelinePause, Wait, pausing},
    numaflow::{LivePipeline, last_wait},
    plan::Event,
    time::{elapsed, not_before},
    words::{duration, list},
    wrapped::Tries,
};

impl Turn<'_> {
    pub(super) fn own_timeout(&self) -> Option<Duration> {
        let ppnd = self.s.rollout.spec.strategy.as_ref()?.ppnd.as_ref()?;
        ppnd.drain_timeout.as_ref().map(Wait::get)?.ok()
    }

    fn on_drain_timeout(&self) -> OnDrainTimeout {
        let ppnd = self.s.rollout.spec.strategy.as_ref().and_then(|s| s.ppnd.as_ref());
        let text = ppnd.and_then(|p| p.on_drain_timeout.as_deref());
        text.and_then(OnDrainTimeout::parse).unwrap_or(OnDrainTimeout::Proceed)
    }

    /// Whether this change is to be attempted now: it was not given up, nor refused a moment ago.
    pub(super) fn may_attempt(&mut self, desired: &Desired) -> bool {
        let retry = self.retry();
        match self.as_asked(desired, &retry).tries(self.next.last_attempt.as_ref(), self.now) {
            Tries::Now => true,
            Tries::Never => false,
            Tries::After(wait) => {
                self.again(wait);
                false
            }
        }
    }

    /// Why a change does not wait for a pause.
    pub(super) fn bypass(&mut self, child: &LivePipeline, desired: &Desired, want: &Want) -> Option<String> {
        if child.observed_generation == 0 && child.phase.is_empty() && !child.wants_paused() {
            return Some("Numaflow has not begun with it yet".to_owned());
        }
        if self.allows_data_loss() {
            return Some(format!("{ANNOTATION_ALLOW_DATA_LOSS} is set"));
        }
        if self.is_forced(&key_of_change(&desired.wanted.hash)) {
            return Some(format!("{ANNOTATION_FORCE} is set"));
        }
        let settled = self.stored.pause.as_ref().is_some_and(|p| p.state == pausing::PAUSED);
        if settled {
            return None;
        }
        if self.is_gone(child) {
            return Some("ControllerUnavailable: no pod of its controller is available".to_owned());
        }
        if let Some(why) = &want.excused {
            return Some(why.clone());
        }
        if self.own_timeout() == Some(Duration::ZERO) {
            return Some("spec.strategy.ppnd.drainTimeout is 0s".to_owned());
        }
        None
    }

    /// What becomes of a change whose time is up: given up, or applied once the pipeline had a last chance to pause.
    pub(super) fn cut_short(&mut self, desired: &Desired) -> Option<String> {
        let (now, timeout) = (self.now, self.own_timeout()?);
        if self.stored.pause.as_ref()?.state == pausing::PAUSED {
            return None;
        }
        let since = self.stored.pause.as_ref()?.own_since.clone()?;
        let left = timeout.saturating_sub(elapsed(Some(&since), now));
        if !left.is_zero() {
            self.again(left);
            return None;
        }
        if self.on_drain_timeout() == OnDrainTimeout::Abort {
            if self.given_up(desired).is_none() {
                let words = format!(
                    "the change was given up, because the pipeline was not paused within {}; change the spec, or the \
                     annotation numaplane.numaproj.io/retry, to try again",
                    duration(timeout)
                );
                self.events.push(Event { warning: true, reason: "ChangeAborted", note: words.clone() });
                let record = self.as_asked(desired, &self.retry()).failed("DrainTimeout", &words, now);
                self.next.last_attempt = Some(record);
            }
            return None;
        }
        let cut_at = self.next.pause.as_mut()?.cut_at.get_or_insert_with(|| not_before(now)).clone();
        let most = last_wait(self.s.pipelines);
        let left = most.saturating_sub(elapsed(Some(&cut_at), now));
        if !left.is_zero() {
            self.again(left);
            return None;
        }
        Some(format!("it did not pause within {} and {} more", duration(timeout), duration(most)))
    }

    pub(super) fn own_cut(&self) -> bool {
        self.next.pause.as_ref().is_some_and(|p| p.cut_at.is_some())
    }

    /// Writes down that a change is applied without a pause.
    pub(super) fn record_without_pause(&mut self, desired: &Desired, paths: &[String], why: &str) {
        let (now, words) = (Some(Time(self.now)), format!("applied without a pause: {why}"));
        let reason = without_pause(desired);
        if self.stored.last_pause.as_ref().is_some_and(|last| last.reason == reason)
            || self.stored.pause.as_ref().is_some_and(|pause| pause.not_drained == words)
        {
            return;
        }
        let note = format!("a change of {} is {words}", list(paths, 3));
        self.events.push(Event { warning: true, reason: "NotDrained", note });
        if let Some(pause) = self.next.pause.as_mut() {
            (pause.drained, pause.not_drained) = (Some(false), words);
            return;
        }
        self.next.last_pause = Some(PipelinePause {
            reason,
            asked_by: vec![format!("PipelineRollout/{}", self.name())],
            since: now.clone(),
            drained: Some(false),
            not_drained: words,
            ended_at: now,
            ..PipelinePause::default()
        });
    }
}
