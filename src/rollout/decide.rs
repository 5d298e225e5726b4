//! What to do next for one rollout. Pure: a snapshot, what rollouts fall back to, and the time; it cannot fail.
//!
//! Each call gives the next few steps and no more. The caller carries them out and asks again, until there are none; so
//! everything that a step needs is in the API by the time it is taken, and a process that dies in between has lost
//! nothing.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{Assessment, AttemptResult, NumaflowControllerRolloutStatus, Promoted, Stage, Strategy, Upgrade},
    controller::{
        standing::Standing,
        target::{Target, Unresolved},
    },
    finalizer::Hold,
    plan::{Event, Plan, Step},
    rollout::{
        alive::in_production,
        delete,
        report::{self, Report},
        resolve::Manner,
        snapshot::{Revision, Snapshot},
    },
    settings::Defaults,
    summary::Summary,
    time::{is_ahead, not_before},
};

/// Time between two looks for pods that are to be gone.
const LOOK_FOR_PODS: Duration = Duration::from_secs(3);

/// Decides the next steps.
#[must_use]
pub fn decide(snapshot: &Snapshot, defaults: &Defaults, now: Timestamp) -> Plan {
    match Hold::of(&snapshot.rollout.metadata, snapshot.namespace_terminating) {
        Hold::First(plan) => plan,
        Hold::Deleting => delete::decide(Turn::new(snapshot, defaults, now)),
        Hold::Held => Turn::new(snapshot, defaults, now).decide(),
    }
}

/// One decision in the making.
pub(super) struct Turn<'a> {
    pub(super) s: &'a Snapshot,
    pub(super) now: Timestamp,
    pub(super) manner: Manner,
    /// The status as stored.
    pub(super) stored: NumaflowControllerRolloutStatus,
    /// The status in the making.
    pub(super) next: NumaflowControllerRolloutStatus,
    pub(super) events: Vec<Event>,
    pub(super) again_after: Option<Duration>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, defaults: &Defaults, now: Timestamp) -> Self {
        let stored = snapshot.rollout.status.clone().unwrap_or_default();
        let mut next = stored.clone();
        next.observed_generation = snapshot.generation();
        if snapshot.rollout.spec.strategy.as_ref().and_then(|s| s.force_promote) != Some(true) {
            // It may be used again.
            next.force_promoted = None;
        }
        Self {
            s: snapshot,
            now,
            manner: Manner::of(&snapshot.rollout, defaults),
            stored,
            next,
            events: Vec::new(),
            again_after: None,
        }
    }

    fn decide(mut self) -> Plan {
        if let Some(plan) = self.withdraw_stray() {
            return plan;
        }
        if let Some(step) = self.read_pin().or_else(|| self.watch_controller()) {
            return Plan::of(vec![step]);
        }
        if let Some(adopted) = self.promoted_by_label() {
            self.next.promoted = Some(adopted);
            return self
                .save(None, Summary::pending("Adopting", "the promoted child is known by its label; recording it"));
        }
        let Some(upgrade) = self.stored.upgrade.clone() else { return self.at_rest() };
        if let Some(upgrade) = self.restamped(&upgrade) {
            self.next.upgrade = Some(upgrade);
            return self
                .save(None, Summary::pending("Restarting", "the clock was set back; the stage counts from now"));
        }
        let stage = Stage::parse(&upgrade.stage);
        if in_production(&upgrade.stage)
            && let Some(text) = self.force()
        {
            // It is this attempt's, which has no drain to be ended any more.
            self.use_force(&text, "nothing: there was no drain to wait for");
        }
        if stage != Some(Stage::Verify) && self.wants_force_promote() {
            // It is this attempt's, which has nothing to skip any more.
            self.use_force_promote(&upgrade.version);
        }
        match stage {
            Some(Stage::Verify) => self.verify(upgrade),
            Some(Stage::Drain) => self.drain(upgrade),
            // Not of this operator's making; production has not been touched in it.
            Some(Stage::Resolve) => {
                self.next.upgrade = None;
                self.save(None, Summary::pending("Restarting", "starting the attempt afresh"))
            }
            Some(Stage::CutOver) => self.cut_over(upgrade),
            Some(Stage::Confirm) => self.confirm(upgrade),
            Some(Stage::RollBack) => self.roll_back(&upgrade),
            // Written by a newer operator: nobody knows what production holds, so the last confirmed version comes back.
            None => {
                let words = format!("stage {:?} is not known to this operator", upgrade.stage);
                self.start_roll_back(&upgrade, "UnknownStage", &words)
            }
        }
    }

    /// The attempt with clocks that have begun; `None` where they have. A time that lies ahead (the clock of the last operator
    /// was fast) would hold a deadline back until it comes.
    fn restamped(&self, upgrade: &Upgrade) -> Option<Upgrade> {
        let ahead = |time: &Time| is_ahead(time, self.now);
        let assessment = upgrade
            .assessment
            .clone()
            .map(|a| Assessment { healthy_since: a.healthy_since.filter(|t| !ahead(t)), ..a });
        let next = Upgrade {
            stage_started_at: Some(
                upgrade.stage_started_at.clone().filter(|t| !ahead(t)).unwrap_or_else(|| self.not_before_now()),
            ),
            held_since: upgrade.held_since.clone().filter(|t| !ahead(t)),
            assessment,
            ..upgrade.clone()
        };
        (next != *upgrade).then_some(next)
    }

    /// Definitions that are kept in Secrets are not watched; each is read once.
    pub(super) fn read_pin(&self) -> Option<Step> {
        let learned = &self.s.learned;
        let in_use = |name: &str| {
            self.stored.promoted.as_ref().is_some_and(|p| p.revision == name)
                || self.stored.upgrade.as_ref().is_some_and(|u| u.revision == name)
                || self.s.children.iter().any(|c| c.spec.revision.as_deref() == Some(name))
        };
        let version = &self.s.rollout.spec.controller.version;
        let needed = |r: &&Revision| r.definition.is_none() && (in_use(&r.name) || r.version == *version);
        let unread = self.s.revisions.iter().filter(needed).filter_map(|r| r.secret.as_ref());
        let secret = unread.into_iter().find(|secret| !learned.absent_pins.contains(*secret))?;
        learned.own_refusal().is_none().then(|| Step::ReadPin { secret: secret.clone() })
    }

    fn at_rest(self) -> Plan {
        let desired = self.s.desired.clone();
        match desired {
            Err(unresolved) => self.unresolved(&unresolved),
            Ok(target) if self.is_promoted(&target) => self.steady(Some(&target)),
            Ok(target) => {
                if let Some(in_use) = self.instance_in_use(&target.instance) {
                    return self.unresolved(&in_use);
                }
                if self.judged(&target) {
                    return self.keep_failed();
                }
                if self.s.rollout.spec.paused == Some(true) {
                    let words = format!(
                        "paused by spec.paused: version {:?} is not attempted until it is unset",
                        target.version
                    );
                    return self.keep(Summary::pending("Paused", &words));
                }
                self.start(&target)
            }
        }
    }

    /// The version of the spec cannot be attempted.
    fn unresolved(mut self, why: &Unresolved) -> Plan {
        let controller = &self.s.rollout.spec.controller;
        let runs = self.next.promoted.as_ref().is_some_and(|promoted| promoted.is_asked_for(controller));
        if why.is_about_definition() && runs {
            // It runs already, held by its pinned revision; what became of the definition changes nothing about that.
            return self.steady_missing(why);
        }
        let key = self.key(&controller.version, controller.instance(), "");
        let (reason, message) = (why.reason.as_str(), why.message());
        self.fail(key, Stage::Resolve, AttemptResult::Failed, reason, &message);
        self.keep(Summary::failed(reason, &message))
    }

    /// The desired version is promoted.
    fn steady(self, target: Option<&Target>) -> Plan {
        match target.and_then(|t| t.only_pinned.as_ref()) {
            Some(why) => self.steady_missing(why),
            None => self.keep(report::deployed()),
        }
    }

    fn steady_missing(self, why: &Unresolved) -> Plan {
        self.keep(Report::missing(why))
    }

    fn keep_failed(self) -> Plan {
        let last = self.stored.last_attempt.clone().unwrap_or_default();
        self.keep(Summary::failed(&last.reason, &last.message))
    }

    pub(super) fn is_promoted(&self, target: &Target) -> bool {
        self.stored.promoted.as_ref().is_some_and(|promoted| target.is(promoted))
    }

    /// A status that was lost (restored from a backup, say) is found again by the label.
    fn promoted_by_label(&self) -> Option<Promoted> {
        if self.stored.promoted.is_some() || self.stored.upgrade.is_some() || self.stored.last_attempt.is_some() {
            return None;
        }
        let child = self.s.child(self.holder()?)?;
        let revision = child.spec.revision.clone()?;
        let instance_id = child.spec.instance_id.clone().unwrap_or_default();
        let definition_hash = self.s.manifest(&revision, &instance_id).ok()?.hash.clone();
        let name = child.metadata.name.clone()?;
        Some(Promoted { name, version: child.spec.version.clone(), instance_id, definition_hash, revision })
    }

    /// Writes the status in the making; the next call goes on from there.
    pub(super) fn save(mut self, standing: Option<&Standing>, report: impl Into<Report>) -> Plan {
        report.into().write(&mut self, standing);
        let (status, events) = (Box::new(self.next), self.events);
        Plan::of(vec![Step::WriteStatus { status, events }])
    }

    /// The end of a decision: what is left to do, and the status if it says anything new.
    pub(super) fn finish(
        mut self,
        mut steps: Vec<Step>,
        standing: Option<&Standing>,
        report: impl Into<Report>,
    ) -> Plan {
        report.into().write(&mut self, standing);
        if self.next != self.stored {
            let (status, events) = (Box::new(self.next.clone()), std::mem::take(&mut self.events));
            steps.insert(0, Step::WriteStatus { status, events });
        }
        Plan { steps, again_after: self.look_again_after(self.again_after) }
    }

    /// Pods are not watched: while those of an isolated copy are waited for, they are looked for again and again. Nor does
    /// anybody tell that a controller has been away for long enough.
    pub(super) fn look_again_after(&self, again_after: Option<Duration>) -> Option<Duration> {
        let pods = (!self.s.learned.living_copies.is_empty()).then_some(LOOK_FOR_PODS);
        again_after.into_iter().chain(pods).chain(self.look_for_controller()).min()
    }

    /// The strategy of an attempt.
    pub(super) fn strategy(upgrade: &Upgrade) -> Strategy {
        Strategy::parse(&upgrade.strategy).unwrap_or_default()
    }

    /// The time in whole seconds, as it is stored, never before it: a wait that counts from it is never cut short.
    pub(super) fn not_before_now(&self) -> Time {
        not_before(self.now)
    }
}
