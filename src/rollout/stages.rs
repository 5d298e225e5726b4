//! The stages that touch production: CutOver, Confirm, RollBack. Pure.

use crate::{
    api::{Assessment, AttemptResult, Promoted, Stage, Upgrade},
    controller::standing::Standing,
    plan::{About, Event, Plan},
    rollout::{
        decide::{HandOver, Turn, taken},
        report::Report,
        snapshot::elapsed,
    },
    words::duration,
};

impl Turn<'_> {
    /// Production changes hands: labels, then objects, then what is left over.
    pub(super) fn cut_over(mut self, upgrade: Upgrade) -> Plan {
        if self.superseded(&upgrade) {
            return self.supersede(&upgrade);
        }
        // A refused label or child touches nothing in production: it is asked for again, until the deadline.
        if let Some(refusal) = self.s.learned.refusals.iter().find(|r| r.about != About::Own).cloned() {
            if self.stored.promoted.is_some() {
                return self.start_roll_back(&upgrade, &refusal.reason, &refusal.message);
            }
            return self.stuck(upgrade, AttemptResult::Blocked, &refusal.reason, &refusal.message);
        }
        let late = self.in_stage(&upgrade) >= self.manner.deadline;
        let entering = entering(&upgrade);
        let waiting = match self.hand_over(&entering) {
            HandOver::Steps(steps) => return Plan::of(steps),
            HandOver::Wait(words) => words,
            HandOver::Done => match self.s.manifest(&entering.revision, &entering.instance_id) {
                Err(words) => match self.repin_attempt(&upgrade) {
                    Some(step) => return Plan::of(vec![step]),
                    None if self.stored.promoted.is_some() => {
                        return self.start_roll_back(&upgrade, "RevisionUnusable", &words);
                    }
                    None => words,
                },
                Ok(manifest) => {
                    let standing = self.standing(&manifest);
                    if let Some((id, owner)) = standing.taken.first() {
                        let words = taken(id, owner);
                        return if self.stored.promoted.is_some() {
                            self.start_roll_back(&upgrade, "ObjectExists", &words)
                        } else {
                            self.stuck(upgrade, AttemptResult::Blocked, "ObjectExists", &words)
                        };
                    }
                    let steps = self.produce(&entering.name, &manifest, &standing, false);
                    if !steps.is_empty() {
                        return Plan::of(steps);
                    }
                    if standing.applied() {
                        self.next.upgrade = Some(Upgrade {
                            stage: Stage::Confirm.as_str().to_owned(),
                            stage_started_at: Some(self.not_before_now()),
                            ..upgrade.clone()
                        });
                        let report = Report::confirming(&upgrade.version, &standing.waiting_for());
                        return self.save(Some(&standing), report);
                    }
                    self.waiting(&standing)
                }
            },
        };
        if late {
            let words = format!(
                "version {:?} could not be put in place within {}: {waiting}",
                upgrade.version,
                duration(self.manner.deadline)
            );
            if self.stored.promoted.is_some() {
                return self.start_roll_back(&upgrade, "DeadlineExceeded", &words);
            }
            return self.stuck(upgrade, AttemptResult::Failed, "DeadlineExceeded", &words);
        }
        self.look_again_at_deadline(&upgrade);
        let report = match self.s.learned.own_refusal() {
            Some(refusal) => Report::blocked(&refusal.reason, &refusal.message),
            None => Report::cutting_over(&upgrade.version, &waiting),
        };
        self.finish(Vec::new(), None, report)
    }

    /// The new version is judged: available before the deadline, then healthy for a whole window.
    pub(super) fn confirm(self, upgrade: Upgrade) -> Plan {
        if self.superseded(&upgrade) {
            return self.supersede(&upgrade);
        }
        let entering = entering(&upgrade);
        match self.hand_over(&entering) {
            HandOver::Steps(steps) => return Plan::of(steps),
            HandOver::Wait(words) => return self.judge(upgrade, None, &words),
            HandOver::Done => {}
        }
        let manifest = match self.s.manifest(&entering.revision, &entering.instance_id) {
            Ok(manifest) => manifest,
            Err(words) => {
                return match self.repin_attempt(&upgrade) {
                    Some(step) => Plan::of(vec![step]),
                    None if self.stored.promoted.is_some() => {
                        self.start_roll_back(&upgrade, "RevisionUnusable", &words)
                    }
                    None => self.judge(upgrade, None, &words),
                };
            }
        };
        let standing = self.standing(&manifest);
        let steps = self.produce(&entering.name, &manifest, &standing, standing.healthy());
        if !steps.is_empty() {
            return Plan::of(steps);
        }
        let waiting = self.waiting(&standing);
        self.judge(upgrade, Some(&standing), &waiting)
    }

    fn judge(mut self, mut upgrade: Upgrade, standing: Option<&Standing>, waiting: &str) -> Plan {
        let healthy = standing.is_some_and(Standing::healthy);
        let since = Self::healthy_since(&upgrade).cloned();
        match (healthy, since) {
            (true, _) if self.manner.window.is_zero() => self.promote(&upgrade, standing),
            (true, None) => {
                upgrade.assessment = Some(Assessment { healthy_since: Some(self.not_before_now()) });
                self.next.upgrade = Some(upgrade.clone());
                let report = self.in_window(&upgrade);
                self.save(standing, report)
            }
            (true, Some(since)) if elapsed(Some(&since), self.now) >= self.manner.window => {
                self.promote(&upgrade, standing)
            }
            (true, Some(since)) => {
                let left = self.manner.window.saturating_sub(elapsed(Some(&since), self.now));
                self.again_after = Some(left.max(std::time::Duration::from_millis(100)));
                let report = self.in_window(&upgrade);
                self.finish(Vec::new(), standing, report)
            }
            // Unhealthy past the deadline; a version that flaps does not get a new one.
            (false, _) if self.in_stage(&upgrade) >= self.manner.deadline => {
                let words = format!(
                    "version {:?} was not healthy within {}: {waiting}",
                    upgrade.version,
                    duration(self.manner.deadline)
                );
                if self.stored.promoted.is_some() {
                    self.start_roll_back(&upgrade, "DeadlineExceeded", &words)
                } else {
                    upgrade.assessment = None;
                    self.stuck(upgrade, AttemptResult::Failed, "DeadlineExceeded", &words)
                }
            }
            (false, Some(_)) => {
                upgrade.assessment = None;
                self.next.upgrade = Some(upgrade.clone());
                self.save(standing, Report::confirming(&upgrade.version, waiting))
            }
            (false, None) => {
                self.look_again_at_deadline(&upgrade);
                self.finish(Vec::new(), standing, Report::confirming(&upgrade.version, waiting))
            }
        }
    }

    fn in_window(&self, upgrade: &Upgrade) -> Report {
        let words = format!("healthy; promoted after it has stayed so for {}", duration(self.manner.window));
        Report::confirming(&upgrade.version, &words)
    }

    fn promote(mut self, upgrade: &Upgrade, standing: Option<&Standing>) -> Plan {
        self.next.promoted = Some(Promoted { name: upgrade.to.clone(), ..entering(upgrade) });
        self.end(upgrade, AttemptResult::Succeeded, Stage::Confirm.as_str(), "Confirmed", "");
        self.save(standing, Report::deployed(None))
    }

    /// The last confirmed version comes back.
    pub(super) fn roll_back(mut self, upgrade: &Upgrade) -> Plan {
        let Some(promoted) = self.stored.promoted.clone() else {
            // Nothing to go back to; the attempt starts afresh.
            self.end(upgrade, AttemptResult::Superseded, &upgrade.failed_stage, &upgrade.reason, &upgrade.message);
            return self.save(None, Report::pending("Restarting", "nothing is promoted; starting afresh"));
        };
        let late = self.in_stage(upgrade) >= self.manner.deadline;
        // With another version waiting, the old one need not prove itself first: it may be what is broken.
        let another = self.superseded(upgrade) && self.s.desired.as_ref().is_ok_and(|t| !self.is_promoted(t));
        let mut stuck = true;
        let waiting = match self.hand_over(&promoted) {
            HandOver::Steps(steps) => return Plan::of(steps),
            HandOver::Wait(words) => words,
            HandOver::Done => match self.s.manifest(&promoted.revision, &promoted.instance_id) {
                Err(words) => words,
                Ok(manifest) => {
                    let standing = self.standing(&manifest);
                    let steps = self.produce(&promoted.name, &manifest, &standing, standing.healthy() || late);
                    if !steps.is_empty() {
                        return Plan::of(steps);
                    }
                    // With another version waiting, the old one need not prove itself first: it may be what is broken.
                    let another =
                        self.superseded(upgrade) && !self.s.desired.as_ref().is_ok_and(|t| self.is_promoted(t));
                    if standing.healthy() || (another && standing.applied()) {
                        return self.rolled_back(upgrade, &promoted, Some(&standing), "");
                    }
                    stuck = false;
                    self.waiting(&standing)
                }
            },
        };
        if late || (another && stuck) {
            return self.rolled_back(upgrade, &promoted, None, &waiting);
        }
        self.look_again_at_deadline(upgrade);
        self.finish(Vec::new(), None, Report::rolling_back(&promoted.version, &upgrade.message, &waiting))
    }

    fn rolled_back(
        mut self,
        upgrade: &Upgrade,
        promoted: &Promoted,
        standing: Option<&Standing>,
        trouble: &str,
    ) -> Plan {
        let superseded = upgrade.reason == SUPERSEDED;
        let result = if superseded { AttemptResult::Superseded } else { AttemptResult::Failed };
        let mut message = format!("{}; rolled back to version {:?}", upgrade.message, promoted.version);
        if !trouble.is_empty() {
            message = format!("{message}, which is not healthy either: {trouble}");
        }
        self.end(upgrade, result, &upgrade.failed_stage, &upgrade.reason, &message);
        let report = if superseded {
            Report::pending("Superseded", &message)
        } else {
            Report::failed(&upgrade.reason, &message)
        };
        self.events.push(Event { warning: !superseded, reason: "RolledBack", note: message });
        self.save(standing, report)
    }

    pub(super) fn start_roll_back(mut self, upgrade: &Upgrade, reason: &str, message: &str) -> Plan {
        let promoted = self.stored.promoted.clone().unwrap_or_default();
        self.next.upgrade = Some(Upgrade {
            stage: Stage::RollBack.as_str().to_owned(),
            failed_stage: upgrade.stage.clone(),
            from: upgrade.name.clone(),
            to: promoted.name,
            stage_started_at: Some(self.not_before_now()),
            assessment: None,
            recreate: Vec::new(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            ..upgrade.clone()
        });
        if reason != SUPERSEDED {
            self.events.push(Event { warning: true, reason: "UpgradeFailed", note: message.to_owned() });
        }
        self.save(None, Report::rolling_back(&promoted.version, message, ""))
    }

    /// Another spec came in between. Before anything was ever confirmed there is nothing to go back to, and the next
    /// attempt takes over what this one left.
    fn supersede(mut self, upgrade: &Upgrade) -> Plan {
        let message = format!("version {:?} was superseded by another spec", upgrade.version);
        if self.stored.promoted.is_some() {
            return self.start_roll_back(upgrade, SUPERSEDED, &message);
        }
        self.end(upgrade, AttemptResult::Superseded, &upgrade.stage, SUPERSEDED, &message);
        self.save(None, Report::pending(SUPERSEDED, &message))
    }

    /// A first version that does not come up has nothing to be rolled back to: it is reported, and watched on, so that it
    /// is confirmed when its cause heals, and any other spec replaces it.
    fn stuck(mut self, upgrade: Upgrade, result: AttemptResult, reason: &str, message: &str) -> Plan {
        let old = self.stored.last_attempt.clone();
        self.end(&upgrade, result, &upgrade.stage, reason, message);
        if let (Some(old), Some(new)) = (old, self.next.last_attempt.as_mut())
            && old.started_at == new.started_at
            && old.reason == new.reason
        {
            new.finished_at = old.finished_at;
        } else {
            self.events.push(Event { warning: true, reason: "UpgradeFailed", note: message.to_owned() });
        }
        self.next.upgrade = Some(upgrade);
        let report = match result {
            AttemptResult::Blocked => Report::blocked(reason, message),
            _ => Report::failed(reason, message),
        };
        self.finish(Vec::new(), None, report)
    }

    /// What is waited for, with what the server said to it.
    fn waiting(&self, standing: &Standing) -> String {
        let learned = &self.s.learned;
        let said = learned.refusals.first().or_else(|| learned.silence_of(standing));
        let said = said.map(|r| format!("; the server says: {}", r.message)).unwrap_or_default();
        format!("{}{said}", standing.waiting_for())
    }

    fn look_again_at_deadline(&mut self, upgrade: &Upgrade) {
        let left = self.manner.deadline.saturating_sub(self.in_stage(upgrade));
        self.again_after = Some(left.max(std::time::Duration::from_millis(100)));
    }
}

/// Reason of an attempt that gave way to another spec.
const SUPERSEDED: &str = "Superseded";

/// The attempted version, as it will be recorded.
fn entering(upgrade: &Upgrade) -> Promoted {
    Promoted {
        name: upgrade.name.clone(),
        version: upgrade.version.clone(),
        instance_id: upgrade.instance_id.clone(),
        definition_hash: upgrade.definition_hash.clone(),
        revision: upgrade.revision.clone(),
    }
}
