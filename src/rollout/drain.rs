//! Drain: the pipelines of the instance pause before production changes hands. Pure.

use crate::{
    api::{Stage, Upgrade},
    controller::standing::Standing,
    drain::{Beginning, Ending},
    plan::Plan,
    rollout::{decide::Turn, report, upkeep::Upkeep},
    summary::Summary,
};

impl Turn<'_> {
    /// Waits until every pipeline is settled, excused, or not waited for any longer.
    pub(super) fn drain(mut self, upgrade: Upgrade) -> Plan {
        if let Some(step) = self.stale_lease(&upgrade) {
            return Plan::of(vec![step]);
        }
        if self.superseded(&upgrade) {
            return self.supersede(&upgrade);
        }
        let paused = self.s.rollout.spec.paused == Some(true);
        if paused && self.asks(&upgrade.name) {
            return self.hold(upgrade, None);
        }
        let production = match self.stored.promoted.clone().map(|promoted| self.upkeep(&promoted)) {
            Some(Upkeep::Steps(steps)) => return Plan::of(steps),
            Some(Upkeep::Kept(standing)) => Some(standing),
            _ => None,
        };
        let production = production.as_ref();
        if self.s.child(&upgrade.name).is_some_and(|c| c.metadata.deletion_timestamp.is_some()) {
            return self.give_way(&upgrade, production);
        }
        if paused {
            return self.hold(upgrade, production);
        }
        let asking = self.asking(&upgrade);
        if !self.asks(&upgrade.name) {
            // Held before, or the status was written by somebody else: from the beginning. What a pipeline has answered to the
            // request that was withdrawn says nothing about the next one.
            if let Some(words) = asking.unseen_withdrawal() {
                let tidy = self.tidy_around(&upgrade);
                return self.finish(tidy, production, report::draining(&upgrade.version, &words));
            }
            return self.go_on(Upgrade { drain: None, ..upgrade }, production);
        }
        match asking.ending(upgrade.stage_started_at.as_ref(), &mut self.in_status()) {
            Ending::Over(drain) => self.go_on(Upgrade { drain: Some(drain), ..upgrade }, production),
            Ending::Abort(drain, words) => {
                let upgrade = Upgrade { drain: Some(drain), ..upgrade };
                self.fail_untouched(&upgrade, "DrainTimeout", &words, production)
            }
            Ending::Waiting { drain, words, again_after } => {
                self.again_after = again_after;
                let tidy = self.tidy_around(&upgrade);
                let report = report::draining(&upgrade.version, &words);
                self.next.upgrade = Some(Upgrade { drain: Some(drain), ..upgrade });
                self.finish(tidy, production, report)
            }
        }
    }

    /// The user holds the rollout: pipelines run on until it is let go.
    fn hold(mut self, upgrade: Upgrade, production: Option<&Standing>) -> Plan {
        self.withdraw();
        let report = held(&upgrade.version);
        let tidy = if production.is_some() { self.tidy_around(&upgrade) } else { Vec::new() };
        self.next.upgrade = Some(Upgrade { drain: None, ..upgrade });
        self.finish(tidy, production, report)
    }

    /// Production's turn is next: pipelines pause first, where the strategy asks for it and there are any.
    pub(super) fn enter_drain(mut self, upgrade: Upgrade, rolls: bool, production: Option<&Standing>) -> Plan {
        let held_back = self.s.rollout.spec.paused == Some(true);
        let beginning = self.asking(&upgrade).begin(held_back, &mut self.in_status());
        let (drain, report) = match beginning {
            Beginning::LeftOut(drain) => {
                return self.enter_cut_over(Upgrade { drain: Some(drain), ..upgrade }, rolls, production);
            }
            Beginning::Held => (upgrade.drain, held(&upgrade.version)),
            Beginning::Asked(drain, words) => (Some(drain), report::draining(&upgrade.version, &words)),
        };
        self.next.upgrade = Some(Upgrade {
            stage: Stage::Drain.as_str().to_owned(),
            stage_started_at: Some(self.not_before_now()),
            assessment: None,
            held_since: None,
            drain,
            ..upgrade
        });
        self.save(production, report)
    }
}

fn held(version: &str) -> Summary {
    Summary::pending(
        "Paused",
        &format!(
            "paused by spec.paused: no pipeline is paused for version {version:?}, and nothing changes, until it is unset"
        ),
    )
}
