//! Drain: the pipelines on an ISB service pause before it is changed, or before they move to another one. Pure.

use super::{change::Pending, decide::Turn, judge::Health};
use crate::{
    api::{DrainProgress, IsbChange, IsbStage, Strategy},
    drain::{Asking, Beginning, Ending, Scope, not_drained, standing},
    plan::{Event, Plan},
    summary::Summary,
};

impl<'a> Turn<'a> {
    /// Whom the drain of a change means.
    pub(super) fn asking(&self, change: &IsbChange) -> Asking<'a> {
        // Those that an earlier change has not moved yet are meant as well.
        let mut services: Vec<String> = self.s.children.keys().cloned().collect();
        services.push(self.stored.child.clone());
        services.retain(|name| *name != change.to && !name.is_empty());
        services.sort();
        services.dedup();
        Asking {
            by: format!("ISBServiceRollout/{}", self.name()),
            attempt: change.attempt.clone(),
            what: format!("the drain for {}", Self::change_in_words(change)),
            scope: Scope::Isb(services),
            pipelines: &self.s.pipelines,
            // What is not listed is waited for before anything is decided.
            unlisted: false,
            timeout: self.manner.drain_timeout,
            on_timeout: self.manner.on_drain_timeout,
            force: self.force(),
            // Of those that pipelines use, not of the one that they move to.
            gone: self.gone(self.instance()),
        }
    }

    /// Asks pipelines to pause, unless there is a reason not to.
    pub(super) fn ask(mut self, change: IsbChange) -> Plan {
        let asking = self.asking(&change);
        let beginning = asking.begin(false, &mut self.in_status());
        match beginning {
            Beginning::LeftOut(drain) => self.drained(change, drain),
            // Nothing holds it back here.
            Beginning::Held => self.drop_change(&change, "it is held back"),
            Beginning::Asked(drain, words) => {
                let words = format!("{words}; {}", self.then(&change));
                self.next.change = Some(IsbChange {
                    stage: IsbStage::Drain.as_str().to_owned(),
                    stage_started_at: Some(self.stamp()),
                    healthy_since: None,
                    rolled: false,
                    drain: Some(drain),
                    ..change
                });
                self.finish(Vec::new(), Summary::pending("Draining", &words))
            }
        }
    }

    /// Waits until every pipeline is settled, excused, or not waited for any longer.
    pub(super) fn drain(mut self, change: IsbChange) -> Plan {
        let pending = self.child.map(|c| self.pending(c));
        if self.superseded(&change) || pending == Some(Pending::None) {
            return self.drop_change(&change, "another spec is asked for");
        }
        if change.to.is_empty() && matches!(pending, Some(Pending::Recreate(_))) {
            // It is being deleted, or the rules are others by now.
            return self.drop_change(&change, "another service is to take its place");
        }
        if !change.to.is_empty() && self.s.children.get(&change.to).is_none_or(|c| c.deleting) {
            let words = format!("InterStepBufferService/{} is gone before it was used", change.to);
            return self.give_up(&change, "ServiceGone", &words);
        }
        if standing(self.next.pause_request.as_ref(), &change.attempt).is_none() {
            // Somebody else wrote the status: from the beginning, as another attempt.
            return self.drop_change(&change, "its request for a pause was lost");
        }
        if self.force().is_none()
            && let Some(words) = self.gone(self.wanted_instance())
        {
            return self.wait_for_controller(change, &words);
        }
        let asking = self.asking(&change);
        match asking.ending(change.stage_started_at.as_ref(), &mut self.in_status()) {
            Ending::Over(drain) => self.drained(change, drain),
            Ending::Abort(drain, words) => {
                let change = IsbChange { drain: Some(drain), ..change };
                self.give_up(&change, "DrainTimeout", &format!("nothing was changed: {words}"))
            }
            Ending::Waiting { drain, words, again_after } => {
                self.again_after = again_after;
                let words = format!("{words}; {}", self.then(&change));
                self.next.change = Some(IsbChange { drain: Some(drain), ..change });
                self.finish(Vec::new(), Summary::pending("Draining", &words))
            }
        }
    }

    /// Nobody would act upon the change: pipelines run on meanwhile, and it begins anew when somebody does. A service that is
    /// ready for them is kept until then.
    fn wait_for_controller(mut self, change: IsbChange, words: &str) -> Plan {
        if change.to.is_empty() {
            return self.drop_change(&change, words);
        }
        self.end(&change, words);
        let attempt = self.new_attempt(&change.hash);
        self.enter(IsbChange { attempt, drain: None, ..change }, IsbStage::Beside)
    }

    /// Nobody is waited for any more: on with it.
    pub(super) fn drained(mut self, change: IsbChange, drain: DrainProgress) -> Plan {
        let lost = not_drained(Some(&drain));
        if !lost.is_empty() {
            let note = format!("before {}: {lost}", Self::change_in_words(&change));
            self.events.push(Event { warning: true, reason: "NotDrained", note });
        }
        if change.to.is_empty() {
            return self.enter(IsbChange { drain: Some(drain), ..change }, IsbStage::Apply);
        }
        // A drain takes its time: what was healthy before it need not be any more. What cannot be read now was so then.
        match self.health(&change.to, self.wanted_instance()) {
            Err(step) => return Plan::of(vec![step]),
            Ok(Health::Bad { lacks, .. }) => {
                let words = format!("InterStepBufferService/{} was healthy, and is no longer: {lacks}", change.to);
                let words = format!("{words}; it is removed, and pipelines run on as they were");
                return self.give_up(&IsbChange { drain: Some(drain), ..change }, "NotHealthy", &words);
            }
            Ok(Health::Good | Health::Unknown(_)) => {}
        }
        // Pipelines are made anew on the other one, each by its own rollout, which reads here that it was waited for.
        let words = format!("pipelines move to InterStepBufferService/{}", change.to);
        self.next.child.clone_from(&change.to);
        self.next.last_attempt = None;
        self.end(&IsbChange { drain: Some(drain), ..change }, "done");
        self.finish(Vec::new(), Summary::pending("Moving", &words))
    }

    /// What comes after the drain, in words.
    fn then(&self, change: &IsbChange) -> String {
        let mut words = format!("then {}", Self::change_in_words(change));
        if self.manner.strategy == Strategy::Progressive {
            words.push_str("; in this release such a change pauses and drains under strategy progressive too");
        }
        words
    }
}
