//! Beside: another ISB service is made and gets healthy before any pipeline hears of it. Pure.

use super::{change::Pending, decide::Turn, judge::Health};
use crate::{
    api::{IsbChange, LABEL_UPGRADE_STATE, UpgradeState},
    plan::{Plan, Step},
    summary::Summary,
    words::duration,
    wrapped::ISB_SERVICE,
};

impl Turn<'_> {
    /// Another service is made beside the one that there is. Nobody is paused for that.
    pub(super) fn beside(mut self, mut change: IsbChange) -> Plan {
        if self.superseded(&change) || self.child.is_some_and(|c| self.pending(c) == Pending::None) {
            return self.drop_change(&change, "another spec is asked for");
        }
        let wanted = self.wanted_for(&change.to);
        if let Some(gone) = self.gone(wanted.instance()) {
            // Nobody would make anything of it, nor pause for it. Its clock stands still.
            change.stage_started_at = None;
            self.next.change = Some(change);
            return self.finish(Vec::new(), Summary::pending("ControllerUnavailable", &gone));
        }
        let to = change.to.clone();
        let name = format!("InterStepBufferService/{to}");
        let Some(beside) = self.s.children.get(&to) else {
            if to.is_empty() || self.s.foreign_children.contains(&to) {
                return self.drop_change(&change, "the name for it is somebody else's by now");
            }
            if let Some(refusal) = self.refusal().cloned() {
                self.next.change = None;
                return self.blocked(&refusal);
            }
            let mut body = wanted.body(&to);
            body["metadata"]["labels"][LABEL_UPGRADE_STATE] = UpgradeState::Upgrading.as_str().into();
            let step = Step::ApplyNumaflow { kind: ISB_SERVICE.kind, body: body.into(), expect: None };
            let words = format!("{name} is made beside the one that there is, for {}", Self::change_in_words(&change));
            self.next.change = Some(change);
            return self.finish(vec![step], Summary::pending("Beside", &words));
        };
        if beside.deleting {
            return self.give_up(&change, "ServiceGone", &format!("{name} was deleted before it was used"));
        }
        if beside.applied() != Some(&wanted.hash) {
            // Left by a change before this one, to whose making there was no answer.
            return self.drop_change(&change, "what has its name is another one");
        }
        let health = match self.health(&to, wanted.instance()) {
            Ok(health) => health,
            Err(step) => return Plan::of(vec![step]),
        };
        let words = match health {
            Health::Good => return self.ask(change),
            Health::Bad { lacks, .. } => lacks,
            Health::Unknown(words) => {
                // What cannot be read is no fault of its own, and nobody is paused: its clock stands still.
                change.stage_started_at = None;
                self.look_again(self.manner.deadline);
                self.next.change = Some(change);
                return self.finish(Vec::new(), Summary::pending("Beside", &format!("{name}: {words}")));
            }
        };
        let left = self.left(&change);
        if left.is_zero() {
            let words = format!(
                "{name} was not healthy within {}: {words}; it is removed, and pipelines run on as they were",
                duration(self.manner.deadline)
            );
            return self.give_up(&change, "NotHealthy", &words);
        }
        self.look_again(left);
        let words = format!("waiting until {} for {name} to be healthy: {words}", self.until(left));
        self.next.change = Some(change);
        // What a change before this one has left goes meanwhile, so that many in a row do not pile up.
        let tidy = self.tidy();
        self.finish(tidy, Summary::pending("Beside", &words))
    }
}
