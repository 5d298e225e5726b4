//! From Verify to production: what is looked at once more before pipelines are asked to pause, and before anything of
//! production changes. Pure.

use crate::{
    api::{Stage, Strategy, Upgrade},
    controller::standing::Standing,
    drain::not_drained,
    manifest::Manifest,
    plan::{Event, Plan, Step},
    rollout::{
        attempt::{Holder, rolls},
        decide::Turn,
        report,
    },
    summary::Summary,
};

/// What is to be known before production's turn.
pub(super) enum Prepared {
    /// Who holds the lease, and which ISB services are not healthy.
    Known {
        /// As [`Upgrade::holder_before`].
        holder: String,
        /// As [`Upgrade::isb_unhealthy`].
        isb: Vec<String>,
    },
    /// This look is needed to know.
    Look(Step),
    /// That cannot be told now: why.
    Unknown(String),
}

impl Turn<'_> {
    /// Whether pipelines pause in this attempt before production changes hands.
    pub(super) fn drains(&self, strategy: Strategy) -> bool {
        strategy == Strategy::PauseAndDrain && self.stored.promoted.is_some()
    }

    /// Looks at what a later judgement needs to know from before. `manifest` is what is to be put in place.
    pub(super) fn prepare(&self, manifest: &Manifest, instance: &str, drains: bool) -> Prepared {
        let holder = match self.holder_before(manifest) {
            Holder::Known(holder) => holder,
            Holder::Look(step) => return Prepared::Look(step),
            Holder::Unknown(words) => return Prepared::Unknown(words),
        };
        if !drains {
            return Prepared::Known { holder, isb: Vec::new() };
        }
        let unlisted = &self.s.dependants.unlisted;
        if let Some(kind) = unlisted.iter().find(|kind| *kind == "Pipeline" || *kind == "InterStepBufferService") {
            return Prepared::Unknown(format!("{kind} objects cannot be listed, and nobody is paused unseen"));
        }
        match self.isb_unhealthy(instance) {
            Ok(Ok(isb)) => Prepared::Known { holder, isb },
            Ok(Err(words)) => Prepared::Unknown(words),
            Err(step) => Prepared::Look(step),
        }
    }

    /// The attempt has nothing more to prove, or its pipelines have paused: on with it.
    pub(super) fn go_on(mut self, mut upgrade: Upgrade, production: Option<&Standing>) -> Plan {
        // Minutes have passed since this was looked at.
        if let Some(in_use) = self.instance_in_use(&upgrade.instance_id) {
            return self.fail_untouched(&upgrade, in_use.reason.as_str(), &in_use.message(), production);
        }
        let manifest = match self.s.manifest(&upgrade.revision, &upgrade.instance_id) {
            Ok(manifest) => manifest,
            Err(words) => {
                return match self.repin_attempt(&upgrade) {
                    Some(step) => Plan::of(vec![step]),
                    None => self.fail_untouched(&upgrade, "RevisionUnusable", &words, production),
                };
            }
        };
        let drained = upgrade.drain.is_some();
        let drains = !drained && self.drains(Self::strategy(&upgrade));
        match self.prepare(&manifest, &upgrade.instance_id, drains) {
            Prepared::Known { holder, isb } => {
                upgrade.holder_before = holder;
                if drains {
                    upgrade.isb_unhealthy = isb;
                }
            }
            Prepared::Look(step) => return Plan::of(vec![step]),
            // Pipelines are paused: what was known before they were has to do.
            Prepared::Unknown(_) if drained => {}
            Prepared::Unknown(words) => {
                self.again_after = Some(self.manner.interval);
                return self.finish(Vec::new(), production, Summary::blocked("NoAnswer", &words));
            }
        }
        let rolls = rolls(&self.standing(&manifest));
        self.enter(upgrade, rolls, production)
    }

    /// The next stage of an attempt of which everything is known.
    pub(super) fn enter(self, upgrade: Upgrade, rolls: bool, production: Option<&Standing>) -> Plan {
        if upgrade.drain.is_none() && self.drains(Self::strategy(&upgrade)) {
            self.enter_drain(upgrade, rolls, production)
        } else {
            self.enter_cut_over(upgrade, rolls, production)
        }
    }

    /// Production's turn.
    pub(super) fn enter_cut_over(mut self, upgrade: Upgrade, rolls: bool, production: Option<&Standing>) -> Plan {
        let lost = not_drained(upgrade.drain.as_ref());
        if !lost.is_empty() {
            let note = format!("before version {:?} is put in place: {lost}", upgrade.version);
            self.events.push(Event { warning: true, reason: "NotDrained", note });
        }
        let report = report::cutting_over(&upgrade.version, "");
        self.next.upgrade = Some(Upgrade {
            stage: Stage::CutOver.as_str().to_owned(),
            stage_started_at: Some(self.not_before_now()),
            from: self.holder().unwrap_or_default().to_owned(),
            to: upgrade.name.clone(),
            assessment: None,
            held_since: None,
            rolls,
            ..upgrade
        });
        self.save(production, report)
    }
}
