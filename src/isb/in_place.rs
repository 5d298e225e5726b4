//! Apply, Confirm, RollBack: an ISB service is changed while its pipelines are paused. Pure.

use serde_json::{Value, json};

use super::{change::Pending, decide::Turn, judge::Verdict};
use crate::{
    api::{IsbChange, IsbStage, Raw},
    live::ANNOTATION_APPLIED,
    numaflow::LiveIsb,
    plan::Plan,
    summary::Summary,
    wrapped::Wanted,
};

impl Turn<'_> {
    /// The ISB service gets what is asked for. Pipelines are paused.
    pub(super) fn apply(mut self, mut change: IsbChange, child: &LiveIsb) -> Plan {
        if let Some(turned) = self.turned(&change, child) {
            change = match turned {
                Ok(change) => change,
                Err(words) => return self.drop_change(&change, words),
            };
        }
        let Ok(wanted) = self.wanted_for(&child.version.name) else {
            return self.take_back(change, child, "InvalidSpec", "the spec cannot be read any more");
        };
        if child.applied() == Some(&wanted.hash) {
            return self.enter(change, IsbStage::Confirm);
        }
        if let Some(refusal) = self.refusal().cloned() {
            if let Ok(asked) = self.wanted.clone() {
                let record = self.as_asked(&asked).blocked(&refusal, self.next.last_attempt.as_ref(), self.now);
                self.next.last_attempt = Some(record);
            }
            if change.before.is_some() {
                return self.take_back(change, child, &refusal.reason, &refusal.message);
            }
            self.end(&change, "the server refuses the change");
            return self.finish(Vec::new(), Summary::blocked(&refusal.reason, &refusal.message));
        }
        if change.before.is_none() {
            change.before = Some(as_it_is(child));
        }
        let steps = self.applying(child, &wanted);
        let words = format!("InterStepBufferService/{} is being changed", child.version.name);
        self.next.change = Some(change);
        self.finish(steps, Summary::pending("Applying", &words))
    }

    /// Waits until the changed ISB service is healthy, with all of its pods.
    pub(super) fn confirm(mut self, mut change: IsbChange, child: &LiveIsb) -> Plan {
        if let Some(turned) = self.turned(&change, child) {
            return match turned {
                Ok(change) => self.enter(change, IsbStage::Apply),
                Err(words) => self.drop_change(&change, words),
            };
        }
        let name = format!("InterStepBufferService/{}", child.version.name);
        let health = match self.health(&child.version.name, child.instance()) {
            Ok(health) => health,
            Err(step) => return Plan::of(vec![step]),
        };
        match self.judge(&mut change, health) {
            Verdict::Good => {
                let words = format!("{name} is healthy; pipelines are let go");
                self.next.last_attempt = None;
                self.end(&change, "done");
                self.finish(Vec::new(), Summary::pending("Resuming", &words))
            }
            Verdict::Wait(words) => {
                self.next.change = Some(change);
                self.finish(Vec::new(), Summary::pending("Confirming", &format!("{name}: {words}")))
            }
            Verdict::Bad(words) => self.take_back(change, child, "NotHealthy", &format!("{name}: {words}")),
        }
    }

    /// The spec from before comes back; pipelines are let go at the end, in any case.
    pub(super) fn roll_back(mut self, mut change: IsbChange, child: &LiveIsb) -> Plan {
        if self.superseded(&change) && self.wanted.is_ok() {
            return match self.turned(&change, child) {
                Some(Ok(change)) => self.enter(change, IsbStage::Apply),
                Some(Err(words)) => self.drop_change(&change, words),
                None => self.drop_change(&change, "another spec is asked for"),
            };
        }
        let name = format!("InterStepBufferService/{}", child.version.name);
        let back = from_before(change.before.as_ref());
        if child.applied() != Some(&back.hash) {
            if let Some(refusal) = self.refusal().cloned() {
                let words = format!("{}; and the spec before cannot be put back: {}", change.message, refusal.message);
                let reason = change.reason.clone();
                return self.give_up(&change, &reason, &words);
            }
            let steps = self.applying(child, &back);
            let words = format!("{}; the spec before comes back", change.message);
            self.next.change = Some(change);
            return self.finish(steps, Summary::pending("RollingBack", &words));
        }
        let health = match self.health(&child.version.name, child.instance()) {
            Ok(health) => health,
            Err(step) => return Plan::of(vec![step]),
        };
        let (reason, message) = (change.reason.clone(), change.message.clone());
        match self.judge(&mut change, health) {
            Verdict::Good => self.give_up(&change, &reason, &format!("{message}; the spec before is back")),
            Verdict::Bad(words) => {
                let words =
                    format!("{message}; the spec before is back, and it is not healthy with that either: {words}");
                self.give_up(&change, &reason, &words)
            }
            Verdict::Wait(words) => {
                let words = format!("{message}; the spec before is back; {name}: {words}");
                self.next.change = Some(change);
                self.finish(Vec::new(), Summary::pending("RollingBack", &words))
            }
        }
    }

    /// Begins to take a change back.
    fn take_back(self, change: IsbChange, child: &LiveIsb, reason: &str, words: &str) -> Plan {
        let change = IsbChange { reason: reason.to_owned(), message: words.to_owned(), ..change };
        if change.before.is_none() || child.deleting {
            return self.give_up(&change, reason, words);
        }
        self.enter(change, IsbStage::RollBack)
    }

    /// A change in mid-roll of which the spec says something else by now: pipelines are paused, so another one in place goes
    /// on from here. Another kind of change, as an error, needs a beginning.
    fn turned(&self, change: &IsbChange, child: &LiveIsb) -> Option<Result<IsbChange, &'static str>> {
        if child.deleting {
            return Some(Err("the InterStepBufferService is being deleted"));
        }
        if !self.superseded(change) {
            return None;
        }
        let Ok(wanted) = &self.wanted else {
            // The last one that could be read stays.
            return None;
        };
        match self.pending(child) {
            Pending::Recreate(_) => Some(Err("another service is asked for")),
            Pending::Unknown => None,
            _ => Some(Ok(IsbChange {
                hash: wanted.hash.clone(),
                generation: self.next.observed_generation,
                retry: self.retry.clone(),
                reason: String::new(),
                message: String::new(),
                ..change.clone()
            })),
        }
    }
}

/// What of an ISB service is ours, to come back to. What others have set is theirs to keep or to remove.
fn as_it_is(child: &LiveIsb) -> Raw {
    let (mut labels, mut annotations) = (child.labels.clone(), child.annotations.clone());
    labels.retain(|key, _| child.ownership.labels.contains(key));
    annotations.retain(|key, _| child.ownership.annotations.contains(key) && key != ANNOTATION_APPLIED);
    let spec = child.ownership.ours.clone().unwrap_or_else(|| (*child.spec).clone());
    Raw(json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}))
}

/// What [`as_it_is`] wrote down.
fn from_before(before: Option<&Raw>) -> Wanted {
    let before = before.map_or(&Value::Null, |raw| &raw.0);
    let map = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
    let metadata = &before["metadata"];
    let (labels, annotations) = (map(&metadata["labels"]), map(&metadata["annotations"]));
    Wanted { labels, annotations, spec: before["spec"].clone(), hash: String::new() }.hashed()
}
