//! The stages of a change that pipelines pause for, and how it ends. Pure.
//!
//! In place: Drain, Apply, Confirm and, if it does not get healthy, RollBack to what was before. With another service in its
//! place: Beside, where nobody is paused, and Drain; then the other one is on record as the one that counts, pipelines are let
//! go, and each that has paused is made anew on it.

use super::decide::Turn;
use crate::{
    api::{IsbChange, IsbStage},
    drain::{closed, force},
    plan::{Event, Plan, Refusal},
    summary::Summary,
    wrapped::Now,
};

/// Reason for taking back what nobody has judged.
pub(super) const SUPERSEDED: &str = "Superseded";

impl Turn<'_> {
    /// Goes on with a change.
    pub(super) fn go_on(mut self, change: IsbChange) -> Plan {
        let stage = IsbStage::parse(&change.stage);
        let drains = matches!(stage, Some(IsbStage::Beside | IsbStage::Drain));
        if !drains && let Some(text) = self.force() {
            // It is this change's, which has no drain to be ended any more.
            self.in_status().use_force(&text, "nothing: there was no drain to wait for");
        }
        let Some(child) = self.child else {
            return self.drop_change(&change, "the InterStepBufferService is gone");
        };
        match stage {
            Some(IsbStage::Beside) => self.beside(change),
            Some(IsbStage::Drain) => self.drain(change),
            Some(IsbStage::Apply) => self.apply(change, child),
            Some(IsbStage::Confirm) => self.confirm(change, child),
            Some(IsbStage::RollBack) => self.roll_back(change, child),
            // Written by a newer operator: from the beginning.
            None => self.drop_change(&change, "its stage is not known to this operator"),
        }
    }

    /// Whether the spec asks for something else by now.
    pub(super) fn superseded(&self, change: &IsbChange) -> bool {
        let same = self.wanted.as_ref().is_ok_and(|w| w.hash == change.hash);
        !same || change.retry != self.retry
    }

    /// The next stage of a change, from now.
    pub(super) fn enter(mut self, change: IsbChange, stage: IsbStage) -> Plan {
        let change = IsbChange {
            stage: stage.as_str().to_owned(),
            stage_started_at: Some(self.stamp()),
            healthy_since: None,
            rolled: false,
            ..change
        };
        let words = format!("{} is on its way: {}", Self::change_in_words(&change), stage.as_str());
        self.next.change = Some(change);
        self.finish(Vec::new(), Summary::pending(stage.as_str(), &words))
    }

    /// Puts the drain of a change that ends on record, and lets pipelines go.
    pub(super) fn end(&mut self, change: &IsbChange, why: &str) {
        let superseded = self.superseded(change) && self.wanted.is_ok();
        if let Some(text) = self.force().filter(|_| !superseded) {
            // It was for this change, and is not left over for the next. What came with another spec is for that.
            self.in_status().use_force(&text, "nothing: the change that it was for ended before");
        }
        self.in_status().withdraw();
        if let Some(drain) = change.drain.clone() {
            self.next.last_drain = Some(closed(drain, why));
        }
        self.next.change = None;
    }

    /// Text of a force annotation that has not been honoured yet.
    pub(super) fn force(&self) -> Option<String> {
        force(&self.s.rollout.metadata, self.next.last_force.as_ref())
    }

    /// What pipelines are asked by: unlike any request before it, answers to which would count for this one.
    pub(super) fn new_attempt(&self, hash: &str) -> String {
        let last = self.next.pause_request.as_ref().and_then(|r| r.attempt.rsplit_once('-')?.1.parse::<i64>().ok());
        let now = self.now.as_second();
        format!("{hash}-{}", last.map_or(now, |last| now.max(last.saturating_add(1))))
    }

    /// A change that is not asked for any more, or cannot go on: everything is decided afresh.
    pub(super) fn drop_change(mut self, change: &IsbChange, why: &str) -> Plan {
        self.end(change, why);
        let words = format!("{} is not gone on with: {why}", Self::change_in_words(change));
        self.finish(Vec::new(), Summary::pending("Progressing", &words))
    }

    /// A change that the server refuses before anything was changed: it is tried again later.
    pub(super) fn blocked(mut self, refusal: &Refusal) -> Plan {
        if let Ok(wanted) = self.wanted.clone() {
            let record = self.as_asked(&wanted).blocked(refusal, self.next.last_attempt.as_ref(), self.now);
            self.next.last_attempt = Some(record);
        }
        self.finish(Vec::new(), Summary::blocked(&refusal.reason, &refusal.message))
    }

    /// A change that was judged: it is not repeated as it is. About another one that the spec asks for by now nothing is said.
    pub(super) fn give_up(mut self, change: &IsbChange, reason: &str, words: &str) -> Plan {
        if reason == SUPERSEDED || (self.superseded(change) && self.wanted.is_ok()) {
            return self.drop_change(change, words);
        }
        let words = format!("{words}; change the spec, or the annotation numaplane.numaproj.io/retry, to try again");
        if let Ok(wanted) = self.wanted.clone() {
            // One that was taken back was judged before that; what was edited meanwhile makes another attempt.
            let judged = change.stage == IsbStage::RollBack.as_str();
            let generation = if judged { change.generation } else { self.next.observed_generation };
            let attempt = Now { generation, ..self.as_asked(&wanted) };
            self.next.last_attempt = Some(attempt.failed(reason, &words, self.now));
        }
        self.events.push(Event { warning: true, reason: "ChangeFailed", note: words.clone() });
        self.end(change, reason);
        self.finish(Vec::new(), Summary::failed(reason, &words))
    }
}
