//! The stages that touch production: CutOver, Confirm, RollBack. Pure.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{Assessment, AttemptResult, Promoted, Stage, Upgrade},
    controller::standing::Standing,
    drain::not_drained,
    manifest::Manifest,
    plan::{Event, Plan, Step},
    rollout::{
        attempt::rolls,
        decide::Turn,
        judge::{Health, Verdict, in_window},
        report,
        upkeep::{HandOver, Teardown, taken},
    },
    summary::Summary,
    time::elapsed,
    words::duration,
};

/// Time between two looks at a first version that did not come up.
const STUCK: Duration = Duration::from_secs(30);
/// Time between two looks while pipelines are paused.
const WHILE_PAUSED: Duration = Duration::from_millis(100);

impl Turn<'_> {
    /// Production changes hands: labels, then objects, then what is left over.
    pub(super) fn cut_over(mut self, upgrade: Upgrade) -> Plan {
        if self.superseded(&upgrade) {
            return self.supersede(&upgrade);
        }
        if let Some(step) = self.stale_lease(&upgrade) {
            return Plan::of(vec![step]);
        }
        // What proved itself before, and gave way, does so no longer.
        let others = self.drop_others(&upgrade);
        if !others.is_empty() {
            return Plan::of(others);
        }
        let late = self.is_late(&upgrade);
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
                    // A refused label or child touches nothing in production: it is asked for again, until the deadline. And
                    // what is refused of the version that leaves says nothing about the one that comes.
                    let refused = self.s.learned.refusal_of(&standing).map(|r| (r.reason.clone(), r.message.clone()));
                    let taken = standing.taken.first().map(|(id, owner)| ("ObjectExists".to_owned(), taken(id, owner)));
                    if let Some((reason, words)) = refused.or(taken) {
                        return if self.stored.promoted.is_some() {
                            self.start_roll_back(&upgrade, &reason, &words)
                        } else {
                            self.stuck(upgrade, AttemptResult::Blocked, &reason, &words)
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
                        let report = report::confirming(&upgrade.version, &standing.waiting_for());
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
        self.look_again(&upgrade, self.manner.interval);
        let report = match self.s.learned.own_refusal() {
            Some(refusal) => Summary::blocked(&refusal.reason, &refusal.message),
            None => report::cutting_over(&upgrade.version, &waiting),
        };
        self.finish(Vec::new(), None, report)
    }

    /// The new version is judged in production: available before the deadline, and led by one of its own pods where pods were
    /// replaced; and healthy for a whole window, unless it has been so before.
    pub(super) fn confirm(self, upgrade: Upgrade) -> Plan {
        if self.superseded(&upgrade) {
            return self.supersede(&upgrade);
        }
        let entering = entering(&upgrade);
        match self.hand_over(&entering) {
            HandOver::Steps(steps) => return Plan::of(steps),
            HandOver::Wait(words) => return self.judge(upgrade, None, Health::Bad(words), Duration::ZERO),
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
                    None => self.judge(upgrade, None, Health::Bad(words), Duration::ZERO),
                };
            }
        };
        let standing = self.standing(&manifest);
        let mut steps = self.produce(&entering.name, &manifest, &standing, standing.healthy());
        if steps.is_empty() {
            steps = self.stale_lease(&upgrade).into_iter().chain(self.drop_others(&upgrade)).collect();
        }
        if steps.is_empty()
            && let Some(Teardown::Steps(teardown)) = self.s.child(&entering.name).map(|child| self.teardown(child))
        {
            // Its copy has done its work.
            steps = teardown;
        }
        if !steps.is_empty() {
            return Plan::of(steps);
        }
        let leader = manifest.leader.as_ref().filter(|_| upgrade.rolls);
        let health = match self.health(&upgrade, &manifest, &standing, leader) {
            Err(step) => return Plan::of(vec![step]),
            Ok(Health::Good(lease)) => match self.isb_health(&upgrade, &manifest, &upgrade.instance_id) {
                Err(step) => return Plan::of(vec![step]),
                Ok(trouble) => trouble.unwrap_or(Health::Good(lease)),
            },
            Ok(health) => health,
        };
        let promoted = self.stored.promoted.as_ref();
        let before = promoted.and_then(|p| self.s.manifest(&p.revision, &p.instance_id).ok());
        let window = self.window(&upgrade, before.as_deref(), &manifest, &upgrade.instance_id);
        self.judge(upgrade, Some(&standing), health, window)
    }

    fn judge(mut self, mut upgrade: Upgrade, standing: Option<&Standing>, health: Health, window: Duration) -> Plan {
        let window = if upgrade.verified { window } else { self.manner.window };
        let pace = self.pace(&upgrade, standing);
        match self.verdict(&upgrade, health, window, pace) {
            Verdict::Passed => self.promote(&upgrade, standing),
            Verdict::Failed(words) if self.stored.promoted.is_some() => {
                self.start_roll_back(&upgrade, "DeadlineExceeded", &words)
            }
            Verdict::Failed(words) => {
                upgrade.assessment = None;
                self.again_after = Some(self.manner.interval.max(STUCK));
                self.stuck(upgrade, AttemptResult::Failed, "DeadlineExceeded", &words)
            }
            // Nobody can tell: that is no reason to take it back, nor to trust it. Pipelines do not wait for it any longer.
            Verdict::Unknown(words) => {
                self.withdraw();
                self.again_after = Some(self.manner.interval);
                self.finish(Vec::new(), standing, Summary::blocked("NoAnswer", &format!("waiting for {words}")))
            }
            Verdict::Changed(assessment, words) => {
                let report = report::confirming(&upgrade.version, &words);
                self.next.upgrade = Some(Upgrade { assessment: Some(assessment), ..upgrade });
                self.save(standing, report)
            }
            Verdict::Waiting(words, at_most) => {
                self.again_after = Some(at_most);
                self.finish(Vec::new(), standing, report::confirming(&upgrade.version, &words))
            }
        }
    }

    /// Drops the children that have no part in this attempt.
    fn drop_others(&self, upgrade: &Upgrade) -> Vec<Step> {
        let promoted = self.stored.promoted.as_ref().map(|p| p.name.as_str()).unwrap_or_default();
        self.drop_children(&[promoted, &upgrade.name, &upgrade.from])
    }

    fn promote(mut self, upgrade: &Upgrade, standing: Option<&Standing>) -> Plan {
        self.next.promoted = Some(Promoted { name: upgrade.to.clone(), ..entering(upgrade) });
        let how = match (upgrade.verify_skipped.as_str(), not_drained(upgrade.drain.as_ref())) {
            ("", lost) if lost.is_empty() => String::new(),
            ("", lost) => format!("promoted; {lost}"),
            (why, lost) if lost.is_empty() => format!("promoted without Verify: {why}"),
            (why, lost) => format!("promoted without Verify: {why}; {lost}"),
        };
        self.end(upgrade, AttemptResult::Succeeded, Stage::Confirm.as_str(), "Confirmed", &how);
        self.save(standing, report::deployed())
    }

    /// The last confirmed version comes back.
    pub(super) fn roll_back(mut self, upgrade: &Upgrade) -> Plan {
        let Some(promoted) = self.stored.promoted.clone() else {
            // Nothing to go back to; the attempt starts afresh.
            self.end(upgrade, AttemptResult::Superseded, &upgrade.failed_stage, &upgrade.reason, &upgrade.message);
            return self.save(None, Summary::pending("Restarting", "nothing is promoted; starting afresh"));
        };
        let late = self.is_late(upgrade);
        // With another version waiting, the old one need not prove itself first: it may be what is broken.
        let superseded = self.superseded(upgrade);
        let wants_promoted = self.s.desired.as_ref().is_ok_and(|t| self.is_promoted(t));
        let another_can_start = superseded && self.s.desired.is_ok() && !wants_promoted;
        let mut stuck = true;
        let mut pace = self.manner.interval;
        // What is good again, and has to stay so for a while.
        let mut healthy = None;
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
                    if superseded && !wants_promoted && standing.applied() {
                        return self.rolled_back(upgrade, &promoted, Some(&standing), "");
                    }
                    stuck = false;
                    let leader = manifest.leader.as_ref().filter(|_| upgrade.rolls);
                    let health = match self.health(upgrade, &manifest, &standing, leader) {
                        Err(step) => return Plan::of(vec![step]),
                        Ok(Health::Good(lease)) => match self.isb_health(upgrade, &manifest, &promoted.instance_id) {
                            Err(step) => return Plan::of(vec![step]),
                            Ok(trouble) => trouble.unwrap_or(Health::Good(lease)),
                        },
                        Ok(health) => health,
                    };
                    pace = self.pace(upgrade, Some(&standing));
                    match health {
                        Health::Good(_) => match self.rest_of_window(upgrade, &promoted, &manifest) {
                            None => return self.rolled_back(upgrade, &promoted, Some(&standing), ""),
                            Some((since, words)) => {
                                healthy = Some(since);
                                words
                            }
                        },
                        Health::Bad(words) | Health::Unknown(words) => words,
                    }
                }
            },
        };
        if late || (another_can_start && stuck) {
            return self.rolled_back(upgrade, &promoted, None, &waiting);
        }
        self.look_again(upgrade, pace);
        let assessment = Assessment { healthy_since: healthy, ..Assessment::default() };
        let assessment = assessment.healthy_since.is_some().then_some(assessment);
        self.next.upgrade = Some(Upgrade { assessment, ..upgrade.clone() });
        self.finish(Vec::new(), None, report::rolling_back(&promoted.version, &upgrade.message, &waiting))
    }

    /// Since when what came back is healthy, while it has to stay so for longer; `None` where that is over.
    fn rest_of_window(&self, upgrade: &Upgrade, promoted: &Promoted, manifest: &Manifest) -> Option<(Time, String)> {
        let attempted = self.s.manifest(&upgrade.revision, &upgrade.instance_id).ok();
        let window = self.window(upgrade, attempted.as_deref(), manifest, &promoted.instance_id);
        let known = upgrade.assessment.as_ref().and_then(|a| a.healthy_since.clone());
        let known = known.filter(|t| t.0 >= self.s.watching_since);
        if window.is_zero() || known.as_ref().is_some_and(|t| elapsed(Some(t), self.now) >= window) {
            return None;
        }
        let since = known.unwrap_or_else(|| self.not_before_now());
        let words = in_window(&since, window);
        Some((since, words))
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
        let lost = not_drained(upgrade.drain.as_ref());
        if !lost.is_empty() {
            message = format!("{message}; {lost}");
        }
        self.end(upgrade, result, &upgrade.failed_stage, &upgrade.reason, &message);
        let report = if superseded {
            Summary::pending("Superseded", &message)
        } else {
            Summary::failed(&upgrade.reason, &message)
        };
        self.events.push(Event { warning: !superseded, reason: "RolledBack", note: message });
        self.save(standing, report)
    }

    pub(super) fn start_roll_back(mut self, upgrade: &Upgrade, reason: &str, message: &str) -> Plan {
        let promoted = self.stored.promoted.clone().unwrap_or_default();
        let back = self.s.manifest(&promoted.revision, &promoted.instance_id).ok();
        let rolls = back.is_some_and(|manifest| rolls(&self.standing(&manifest)));
        self.next.upgrade = Some(Upgrade {
            generation: self.judged_generation(upgrade),
            rolls,
            holder_before: String::new(),
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
        self.save(None, report::rolling_back(&promoted.version, message, ""))
    }

    /// Another spec came in between. Where production was not touched, or nothing was ever confirmed, there is nothing to go
    /// back to, and the next attempt starts at once.
    pub(super) fn supersede(mut self, upgrade: &Upgrade) -> Plan {
        let message = format!("version {:?} was superseded by another spec", upgrade.version);
        let production = matches!(Stage::parse(&upgrade.stage), Some(Stage::CutOver | Stage::Confirm));
        if production && self.stored.promoted.is_some() {
            return self.start_roll_back(upgrade, SUPERSEDED, &message);
        }
        self.end(upgrade, AttemptResult::Superseded, &upgrade.stage, SUPERSEDED, &message);
        self.save(None, Summary::pending(SUPERSEDED, &message))
    }

    /// A first version that does not come up has nothing to be rolled back to: it is reported, and watched on, so that it
    /// is confirmed when its cause heals, and any other spec replaces it.
    fn stuck(mut self, upgrade: Upgrade, result: AttemptResult, reason: &str, message: &str) -> Plan {
        let old = self.stored.last_attempt.clone();
        let upgrade = Upgrade { generation: self.judged_generation(&upgrade), ..upgrade };
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
            AttemptResult::Blocked => Summary::blocked(reason, message),
            _ => Summary::failed(reason, message),
        };
        self.finish(Vec::new(), None, report)
    }

    /// What no watch tells is looked at in every interval, and again at the deadline.
    fn look_again(&mut self, upgrade: &Upgrade, pace: Duration) {
        let left = self.manner.deadline.saturating_sub(self.in_stage(upgrade));
        self.again_after = Some(left.min(pace).max(Duration::from_millis(100)));
    }

    /// How often what no watch tells is looked at: often while pipelines are paused and nothing else is waited for.
    fn pace(&self, upgrade: &Upgrade, standing: Option<&Standing>) -> Duration {
        let quick = self.asks(&upgrade.name) && standing.is_some_and(Standing::healthy);
        if quick { self.manner.interval.min(WHILE_PAUSED) } else { self.manner.interval }
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
