//! Verify: the new version proves itself in an isolated copy beside production, which is kept as it is meanwhile. Pure.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{
        Assessment, AttemptResult, LABEL_FORCE_PROMOTE, NumaflowController, NumaflowControllerSpec, Upgrade,
        UpgradeState, isolated_instance,
    },
    controller::standing::Standing,
    live::Version,
    plan::{Event, Plan, Refusal, Step},
    rollout::{
        decide::Turn,
        judge::{Health, Verdict},
        report,
        snapshot::state_of,
        upkeep::Upkeep,
    },
    summary::Summary,
};

/// How far the isolated copy is.
enum Copy {
    /// Steps to be taken.
    Steps(Vec<Step>),
    /// There is no copy yet: the words for what is waited for.
    Wait(String),
    /// It is to be made, with this instance, which is written down before: its lease is known by nothing else once its child is
    /// gone.
    Due(String),
    /// Its child is being deleted, and somebody's finalizer holds it: another child is needed.
    Lost,
    /// It is there.
    Seen(Health),
}

impl Turn<'_> {
    pub(super) fn verify(mut self, upgrade: Upgrade) -> Plan {
        if let Some(step) = self.stale_lease(&upgrade) {
            return Plan::of(vec![step]);
        }
        if self.superseded(&upgrade) {
            return self.supersede(&upgrade);
        }
        // A production that cannot be kept as it should be holds no better version back.
        let production = match self.stored.promoted.clone().map(|promoted| self.upkeep(&promoted)) {
            Some(Upkeep::Steps(steps)) => return Plan::of(steps),
            Some(Upkeep::Kept(standing)) => Some(standing),
            _ => None,
        };
        let production = production.as_ref();
        if let Some(why) = self.forced(&upgrade) {
            return self.go_on(Upgrade { verify_skipped: why, ..upgrade }, production);
        }
        let health = match self.copy(&upgrade) {
            Copy::Steps(steps) => return Plan::of(steps),
            Copy::Lost => return self.give_way(&upgrade, production),
            Copy::Wait(words) => Health::Bad(words),
            // The deadline counts on; but what was seen of another copy says nothing about this one.
            Copy::Due(instance) => {
                return self.record(Upgrade { isolated: instance, assessment: None, ..upgrade }, production, "");
            }
            Copy::Seen(health) => health,
        };
        let held = self.holds_clocks(&upgrade, &health);
        if let Some(next) = self.with_clocks(&upgrade, held.is_some()) {
            if held.as_ref().is_some_and(Summary::is_retried) {
                self.again_after = Some(self.manner.interval);
            }
            let report = held.unwrap_or_else(|| report::verifying(&upgrade.version, ""));
            let tidy = self.tidy_around(&upgrade);
            self.next.upgrade = Some(next);
            return self.finish(tidy, production, report);
        }
        match self.verdict(&upgrade, health, self.manner.window, self.manner.interval) {
            Verdict::Passed => self.go_on(Upgrade { verified: true, ..upgrade }, production),
            Verdict::Failed(words) => self.fail_untouched(&upgrade, "DeadlineExceeded", &words, production),
            Verdict::Changed(assessment, words) => {
                self.record(Upgrade { assessment: Some(assessment), ..upgrade }, production, &words)
            }
            Verdict::Waiting(words, at_most) => {
                self.again_after = Some(at_most);
                let tidy = self.tidy_around(&upgrade);
                self.finish(tidy, production, report::verifying(&upgrade.version, &words))
            }
            // Seen above: the clocks stand still then.
            Verdict::Unknown(words) => self.finish(Vec::new(), production, report::verifying(&upgrade.version, &words)),
        }
    }

    /// Writes down how the attempt stands now.
    fn record(mut self, upgrade: Upgrade, production: Option<&Standing>, waiting: &str) -> Plan {
        let report = report::verifying(&upgrade.version, waiting);
        self.next.upgrade = Some(upgrade);
        self.save(production, report)
    }

    /// Removes what nothing needs, children of earlier attempts that are still going among it.
    pub(super) fn tidy_around(&self, upgrade: &Upgrade) -> Vec<Step> {
        let promoted = self.stored.promoted.as_ref().map(|p| p.name.as_str()).unwrap_or_default();
        self.tidy(&[promoted, &upgrade.name])
    }

    /// Why the user does not want to wait for the assessment any longer; `None` where nobody says so.
    fn forced(&mut self, upgrade: &Upgrade) -> Option<String> {
        if self.wants_force_promote() && self.next.force_promoted.is_none() {
            self.use_force_promote(&upgrade.version);
            return Some("spec.strategy.forcePromote is set".to_owned());
        }
        let labels = self.s.child(&upgrade.name).and_then(|c| c.metadata.labels.as_ref());
        let label = labels.and_then(|l| l.get(LABEL_FORCE_PROMOTE));
        (label.map(String::as_str) == Some("true"))
            .then(|| format!("NumaflowController/{} is labelled {LABEL_FORCE_PROMOTE}=true", upgrade.name))
    }

    // ---- the copy -----------------------------------------------------------------------------------------------

    /// Makes the copy, and looks at it.
    fn copy(&self, upgrade: &Upgrade) -> Copy {
        let child = match self.proving_child(upgrade) {
            Ok(child) => child,
            Err(copy) => return copy,
        };
        let manifest = match &self.s.copy {
            Some(Ok(manifest)) => manifest,
            Some(Err(why)) => match self.repin_attempt(upgrade) {
                Some(step) => return Copy::Steps(vec![step]),
                None => return Copy::Wait(why.clone()),
            },
            None => return Copy::Wait("its definition to be read".to_owned()),
        };
        let (instance, before) = (instance_of(&child), &upgrade.isolated);
        if instance != *before {
            // Somebody deleted the child that had this name. Pods of its copy that never go are no reason to fail: then the
            // lease is left behind.
            if self.s.learned.living_copies.contains(before) && self.in_stage(upgrade) < self.manner.deadline / 2 {
                return Copy::Wait(format!("pods of the isolated copy {before} to be gone"));
            }
            return Copy::Due(instance);
        }
        let standing = self.standing_of_copy(&child, manifest);
        let steps = self.produce_copy(&child, manifest, &standing);
        if !steps.is_empty() {
            return Copy::Steps(steps);
        }
        match self.health(upgrade, manifest, &standing, manifest.leader.as_ref()) {
            Err(step) => Copy::Steps(vec![step]),
            Ok(health) => Copy::Seen(health),
        }
    }

    /// The child that proves itself, labelled so; alone in that.
    fn proving_child(&self, upgrade: &Upgrade) -> Result<Arc<NumaflowController>, Copy> {
        let name = &upgrade.name;
        let others = self
            .s
            .children
            .iter()
            .filter(|c| c.metadata.name.as_ref() != Some(name) && state_of(c) == Some(UpgradeState::Upgrading));
        let mut steps: Vec<Step> = others
            .map(|c| Step::LabelChild { child: Version::of(&c.metadata), state: UpgradeState::Recyclable })
            .collect();
        match self.s.child(name) {
            Some(child) if child.metadata.deletion_timestamp.is_some() => return Err(Copy::Lost),
            Some(child) if state_of(child) == Some(UpgradeState::Upgrading) && self.owns(child) => {
                if steps.is_empty() {
                    return Ok(child.clone());
                }
            }
            Some(child) => {
                steps.push(Step::LabelChild { child: Version::of(&child.metadata), state: UpgradeState::Upgrading });
            }
            None if self.s.foreign_children.contains(name) => {
                return Err(Copy::Wait(format!(
                    "NumaflowController/{name}, which belongs to somebody else, to be gone"
                )));
            }
            None => steps.push(Step::CreateChild {
                name: name.clone(),
                spec: Box::new(NumaflowControllerSpec {
                    version: upgrade.version.clone(),
                    instance_id: Some(upgrade.instance_id.clone()).filter(|i| !i.is_empty()),
                    revision: Some(upgrade.revision.clone()),
                }),
                state: UpgradeState::Upgrading,
            }),
        }
        match self.s.learned.own_refusal() {
            Some(refusal) => Err(Copy::Wait(format!("the server says: {}", refusal.message))),
            None => Err(Copy::Steps(steps)),
        }
    }

    /// What the server refuses of the copy or its child.
    fn refusal_of_copy(&self) -> Option<&Refusal> {
        let objects = match &self.s.copy {
            Some(Ok(manifest)) => manifest.objects.as_slice(),
            _ => &[],
        };
        let of_copy = self.s.learned.trouble_with(objects.iter());
        self.s.learned.own_refusal().or(of_copy.filter(|trouble| self.s.learned.refusals.contains(trouble)))
    }

    // ---- clocks -------------------------------------------------------------------------------------------------

    /// What makes the clocks stand still: the user, who holds the rollout; the server, which refuses the copy; or that nobody
    /// can tell, at the deadline, how the version does. None of these says anything about the version.
    fn holds_clocks(&self, upgrade: &Upgrade, health: &Health) -> Option<Summary> {
        if self.s.rollout.spec.paused == Some(true) {
            let words = format!(
                "paused by spec.paused: the assessment of version {:?} stands still until it is unset",
                upgrade.version
            );
            return Some(Summary::pending("Paused", &words));
        }
        if let Some(refusal) = self.refusal_of_copy() {
            return Some(Summary::blocked(&refusal.reason, &refusal.message));
        }
        match health {
            Health::Unknown(words) if self.is_late(upgrade) => {
                Some(Summary::blocked("NoAnswer", &format!("waiting for {words}")))
            }
            _ => None,
        }
    }

    /// The attempt with its clocks stopped or going on; `None` where they go and are to go. Nobody looks while they stand, so
    /// a window begins anew.
    fn with_clocks(&self, upgrade: &Upgrade, held: bool) -> Option<Upgrade> {
        match (&upgrade.held_since, held) {
            (None, false) => None,
            (Some(_), true) => Some(upgrade.clone()),
            (None, true) => Some(Upgrade { held_since: Some(Time(self.now)), ..upgrade.clone() }),
            (Some(since), false) => {
                let stood = self.now.duration_since(since.0).max(SignedDuration::ZERO);
                let started = upgrade.stage_started_at.clone().map(|t| Time(t.0.checked_add(stood).unwrap_or(t.0)));
                let assessment =
                    upgrade.assessment.clone().map(|a| Assessment { healthy_since: None, holder: String::new(), ..a });
                Some(Upgrade { held_since: None, stage_started_at: started, assessment, ..upgrade.clone() })
            }
        }
    }

    // ---- the end ------------------------------------------------------------------------------------------------

    /// The attempt is given up before production was touched: the version did not prove itself, or pipelines did not drain.
    pub(super) fn fail_untouched(
        mut self,
        upgrade: &Upgrade,
        reason: &str,
        words: &str,
        production: Option<&Standing>,
    ) -> Plan {
        let running = self.stored.promoted.as_ref().map(|p| p.version.clone()).unwrap_or_default();
        let words = format!("{words}; version {running:?} runs on");
        let upgrade = Upgrade { generation: self.judged_generation(upgrade), ..upgrade.clone() };
        self.end(&upgrade, AttemptResult::Failed, &upgrade.stage, reason, &words);
        self.events.push(Event { warning: true, reason: "UpgradeFailed", note: words.clone() });
        self.save(production, Summary::failed(reason, &words))
    }

    /// The child is lost; the next attempt makes another.
    pub(super) fn give_way(mut self, upgrade: &Upgrade, production: Option<&Standing>) -> Plan {
        let words = format!(
            "NumaflowController/{} is being deleted, and a finalizer holds it; another child takes its place",
            upgrade.name
        );
        self.end(upgrade, AttemptResult::Superseded, &upgrade.stage, "ChildDeleted", &words);
        self.save(production, Summary::pending("Restarting", &words))
    }
}

/// The instance of a child's isolated copy.
fn instance_of(child: &NumaflowController) -> String {
    isolated_instance(child.metadata.uid.as_deref().unwrap_or_default())
}
