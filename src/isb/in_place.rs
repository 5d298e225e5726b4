//! Apply, Confirm, RollBack: an ISB service is changed while its pipelines are paused. Pure.

use serde_json::{Value, json};

use super::{change::Pending, decide::Turn, judge::Verdict, stages::SUPERSEDED};
use crate::{
    api::{IsbChange, IsbStage, Raw},
    drain::standing,
    live::ANNOTATION_APPLIED,
    numaflow::LiveIsb,
    plan::{Event, Plan},
    summary::Summary,
    wrapped::Wanted,
};

/// Why a change ends whose service goes: another one is made for its pipelines.
const DELETING: &str = "the InterStepBufferService is being deleted";
/// Why a change ends of whose service the spec asks for another one.
const AWAY: &str = "another service is asked for";

/// Where a change in place goes from here, by what the spec says now.
enum Course {
    /// On.
    On,
    /// On, towards what the spec says by now: pipelines are paused for it already.
    Turned(Box<IsbChange>),
    /// To another service, which has to get ready first.
    Away,
}

impl Turn<'_> {
    /// The ISB service gets what is asked for. Pipelines are paused.
    pub(super) fn apply(mut self, mut change: IsbChange, child: &LiveIsb) -> Plan {
        // Until then everything can be dropped as if nothing had been.
        let untouched = change.before.as_ref().is_none_or(|before| before.0["spec"] == as_it_is(child).0["spec"]);
        match (self.course(&change, child), untouched) {
            _ if child.deleting => return self.drop_change(&change, DELETING),
            (Course::Away, true) => return self.drop_change(&change, AWAY),
            (Course::Away, false) => return self.take_back(change, child, SUPERSEDED, AWAY),
            (Course::Turned(turned), _) => change = *turned,
            (Course::On, _) => {}
        }
        let Ok(wanted) = self.wanted.as_ref().map(|_| self.wanted_for(&child.version.name)) else {
            let words = "the spec cannot be read any more";
            if untouched {
                return self.drop_change(&change, words);
            }
            return self.take_back(change, child, "InvalidSpec", words);
        };
        if child.applied() == Some(&wanted.hash) {
            return self.enter(change, IsbStage::Confirm);
        }
        let refused = self.s.learned.own_refusal().cloned();
        // What is not answered may have been done all the same: it is asked again before anybody is let go.
        let refused = refused.or_else(|| self.refusal().filter(|_| self.left(&change).is_zero()).cloned());
        if let Some(refusal) = refused {
            if !untouched {
                return self.take_back(change, child, &refusal.reason, &refusal.message);
            }
            self.end(&change, "the server refuses the change");
            return self.blocked(&refusal);
        }
        match self.still_paused(&change) {
            Err(words) => return self.drop_change(&change, words),
            // In mid-roll they cannot settle before it is over, and this is what ends it.
            Ok(false) if untouched => return self.enter(change, IsbStage::Drain),
            Ok(_) => {}
        }
        change.before = change.before.or_else(|| Some(as_it_is(child)));
        let steps = self.applying(child, &wanted);
        let words = format!("InterStepBufferService/{} is being changed{}", child.version.name, self.unanswered());
        self.next.change = Some(change);
        self.finish(steps, Summary::pending("Applying", &words))
    }

    /// Waits until the changed ISB service is healthy, with all of its pods.
    pub(super) fn confirm(mut self, mut change: IsbChange, child: &LiveIsb) -> Plan {
        match self.course(&change, child) {
            _ if child.deleting => return self.drop_change(&change, DELETING),
            // Nothing can be taken back that is not on record.
            Course::Away if change.before.is_none() => return self.drop_change(&change, AWAY),
            // In the middle of a roll nobody is let go.
            Course::Away => return self.take_back(change, child, SUPERSEDED, AWAY),
            Course::Turned(turned) => return self.enter(*turned, IsbStage::Apply),
            Course::On => {}
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
            Verdict::Unproven(words) => {
                // It may well be good, so it stays; nobody waits for that to be known.
                let words = format!("{name}: {words}; it stays as it is, and pipelines are let go");
                self.events.push(Event { warning: true, reason: "NotConfirmed", note: words.clone() });
                self.next.last_attempt = None;
                self.end(&change, "not confirmed");
                self.finish(Vec::new(), Summary::pending("Resuming", &words))
            }
        }
    }

    /// The spec from before comes back; pipelines are let go at the end, in any case.
    pub(super) fn roll_back(mut self, mut change: IsbChange, child: &LiveIsb) -> Plan {
        if child.deleting {
            return self.drop_change(&change, DELETING);
        }
        if let Course::Turned(turned) = self.course(&change, child) {
            return self.enter(*turned, IsbStage::Apply);
        }
        let name = format!("InterStepBufferService/{}", child.version.name);
        let (reason, message) = (change.reason.clone(), change.message.clone());
        let Some(back) = from_before(change.before.as_ref()) else {
            // Somebody edited the status.
            return self.drop_change(&change, "what it was before is not on record");
        };
        if child.applied() != Some(&back.hash) {
            // Whoever refuses it is asked again for as long as it might have taken to get healthy.
            let refused = self.refusal().map(|r| format!("; the server says: {}", r.message)).unwrap_or_default();
            if self.left(&change).is_zero() && !refused.is_empty() {
                let words = format!("{message}; and the spec before cannot be put back{refused}");
                return self.give_up(&change, &reason, &words);
            }
            let steps = self.applying(child, &back);
            self.next.change = Some(change);
            let words = format!("{message}; the spec before comes back{refused}");
            return self.finish(steps, Summary::pending("RollingBack", &words));
        }
        let health = match self.health(&child.version.name, child.instance()) {
            Ok(health) => health,
            Err(step) => return Plan::of(vec![step]),
        };
        match self.judge(&mut change, health) {
            Verdict::Good => self.give_up(&change, &reason, &format!("{message}; the spec before is back")),
            Verdict::Unproven(words) => {
                let words = format!("{message}; the spec before is back; {name}: {words}");
                self.give_up(&change, &reason, &words)
            }
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
        let generation = self.next.observed_generation;
        let change = IsbChange { generation, reason: reason.to_owned(), message: words.to_owned(), ..change };
        if change.before.is_none() || child.deleting {
            return self.give_up(&change, reason, words);
        }
        self.enter(change, IsbStage::RollBack)
    }

    /// Where a change goes of which the spec says something else by now. What cannot be read says nothing.
    fn course(&self, change: &IsbChange, child: &LiveIsb) -> Course {
        let Ok(wanted) = &self.wanted else { return Course::On };
        let superseded = self.superseded(change);
        match self.pending(child) {
            Pending::Recreate(_) => Course::Away,
            _ if superseded => Course::Turned(Box::new(IsbChange {
                hash: wanted.hash.clone(),
                generation: self.next.observed_generation,
                retry: self.retry.clone(),
                reason: String::new(),
                message: String::new(),
                ..change.clone()
            })),
            _ => Course::On,
        }
    }

    /// Whether its pipelines are still paused for a change that is about to be applied.
    ///
    /// # Errors
    /// It has to begin anew: why.
    fn still_paused(&self, change: &IsbChange) -> Result<bool, &'static str> {
        let Some(drain) = &change.drain else { return Err("it is not on record whether its pipelines have paused") };
        let answers = self.asking(change).answers();
        let asked = drain.since.is_some();
        if asked && standing(self.next.pause_request.as_ref(), &change.attempt).is_none() {
            return Err("its request for a pause was lost");
        }
        // A drain that was ended or left out for a reason is as good as over.
        let over = !drain.ended.is_empty();
        if !asked && !over && answers.managed > 0 {
            return Err("there are pipelines by now that were not asked to pause");
        }
        Ok(!asked || over || answers.settled())
    }

    /// That the server does not answer, to be added to what is said.
    fn unanswered(&self) -> String {
        self.refusal().map(|r| format!("; the server does not answer: {}", r.message)).unwrap_or_default()
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

/// What [`as_it_is`] wrote down; `None` where somebody else wrote something else there.
fn from_before(before: Option<&Raw>) -> Option<Wanted> {
    let before = &before?.0;
    let map = |value: &Value| serde_json::from_value(value.clone()).unwrap_or_default();
    let metadata = &before["metadata"];
    let (labels, annotations) = (map(&metadata["labels"]), map(&metadata["annotations"]));
    let spec = before["spec"].clone();
    spec.is_object().then(|| Wanted { labels, annotations, spec, hash: String::new() }.hashed())
}
