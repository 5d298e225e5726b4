//! Verify: the new version proves itself in an isolated copy beside production, which is kept as it is meanwhile. Pure.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{
        Assessment, AttemptResult, ForcePromoted, LABEL_FORCE_PROMOTE, NumaflowController, NumaflowControllerSpec,
        Stage, Upgrade, UpgradeState, isolated_instance,
    },
    controller::standing::Standing,
    plan::{Event, Plan, Refusal, Step, Version},
    rollout::{
        decide::Turn,
        judge::{Health, Verdict},
        report::Report,
        snapshot::state_of,
        upkeep::Upkeep,
    },
};

/// How far the isolated copy is.
enum Copy {
    /// Steps to be taken.
    Steps(Vec<Step>),
    /// There is no copy yet: the words for what is waited for.
    Wait(String),
    /// There can be none: why.
    Impossible(String),
    /// Healthy, or the words for what is waited for.
    Seen(Result<(), String>),
}

impl Turn<'_> {
    pub(super) fn verify(mut self, upgrade: Upgrade) -> Plan {
        if self.superseded(&upgrade) {
            return self.supersede(&upgrade);
        }
        // A production that cannot be kept as it should be holds no better version back.
        let production = match self.stored.promoted.clone().map(|promoted| self.upkeep(&promoted)) {
            Some(Upkeep::Steps(steps)) => return Plan::of(steps),
            Some(Upkeep::Kept(standing)) => Some(standing),
            _ => None,
        };
        if let Some(why) = self.forced(&upgrade) {
            return self.enter_cut_over(Upgrade { verify_skipped: why, ..upgrade });
        }
        let (health, made) = match self.copy(&upgrade) {
            Copy::Steps(steps) => return Plan::of(steps),
            Copy::Impossible(why) => return self.enter_cut_over(Upgrade { verify_skipped: why, ..upgrade }),
            Copy::Wait(words) => (Err(words), false),
            Copy::Seen(health) => (health, true),
        };
        let instance = self.s.child(&upgrade.name).map(|c| instance_of(c)).unwrap_or_default();
        if made && upgrade.isolated != instance {
            // The deadline counts on; but what was seen of another copy says nothing about this one.
            return self.record(Upgrade { isolated: instance, assessment: None, ..upgrade }, production.as_ref(), "");
        }
        if let Some((next, report)) = self.paused(&upgrade) {
            let tidy = self.tidy_around(&upgrade);
            self.next.upgrade = Some(next);
            return self.finish(tidy, production.as_ref(), report);
        }
        match self.verdict(&upgrade, health, self.manner.window) {
            Verdict::Passed => self.enter_cut_over(Upgrade { verified: true, ..upgrade }),
            Verdict::Failed(words) => self.fail_verify(&upgrade, &words, production.as_ref()),
            Verdict::Changed(assessment, words) => {
                self.record(Upgrade { assessment: Some(assessment), ..upgrade }, production.as_ref(), &words)
            }
            Verdict::Waiting(words, at_most) => {
                self.again_after = Some(at_most);
                let tidy = self.tidy_around(&upgrade);
                let refusal = self.s.learned.own_refusal().or_else(|| self.refusal_of_copy());
                let report = match refusal {
                    Some(refusal) => Report::blocked(&refusal.reason, &refusal.message),
                    None => Report::verifying(&upgrade.version, &words),
                };
                self.finish(tidy, production.as_ref(), report)
            }
        }
    }

    /// Writes down how the attempt stands now.
    fn record(mut self, upgrade: Upgrade, production: Option<&Standing>, waiting: &str) -> Plan {
        let report = Report::verifying(&upgrade.version, waiting);
        self.next.upgrade = Some(upgrade);
        self.save(production, report)
    }

    /// Removes what nothing needs, children of earlier attempts that are still going among it.
    fn tidy_around(&self, upgrade: &Upgrade) -> Vec<Step> {
        let promoted = self.stored.promoted.as_ref().map(|p| p.name.as_str()).unwrap_or_default();
        self.tidy(&[promoted, &upgrade.name])
    }

    /// Why the user does not want to wait for the assessment any longer; `None` where nobody says so.
    fn forced(&mut self, upgrade: &Upgrade) -> Option<String> {
        if self.wants_force_promote() && self.next.force_promoted.is_none() {
            self.next.force_promoted =
                Some(ForcePromoted { version: upgrade.version.clone(), at: Some(Time(self.now)) });
            return Some("spec.strategy.forcePromote is set".to_owned());
        }
        let labels = self.s.child(&upgrade.name).and_then(|c| c.metadata.labels.as_ref());
        let label = labels.and_then(|l| l.get(LABEL_FORCE_PROMOTE));
        (label.map(String::as_str) == Some("true"))
            .then(|| format!("NumaflowController/{} is labelled {LABEL_FORCE_PROMOTE}=true", upgrade.name))
    }

    /// Makes the copy, and looks at it.
    fn copy(&self, upgrade: &Upgrade) -> Copy {
        let child = match self.proving_child(upgrade) {
            Ok(child) => child,
            Err(copy) => return copy,
        };
        let instance = instance_of(&child);
        let before = &upgrade.isolated;
        if !before.is_empty() && *before != instance && !self.s.learned.deleted_leases.contains(before) {
            // Somebody deleted the child that had this name, and with it its copy, but not the lease.
            if !self.s.learned.living_copies.contains(before) {
                return Copy::Steps(vec![Step::DeleteLease { instance: before.clone() }]);
            }
            // Pods that never go are no reason to fail: then the lease is left behind.
            if self.in_stage(upgrade) < self.manner.deadline / 2 {
                return Copy::Wait(format!("pods of the isolated copy {before} to be gone"));
            }
        }
        let manifest = match &self.s.copy {
            Some(Ok(manifest)) => manifest,
            Some(Err(why)) => match self.repin_attempt(upgrade) {
                Some(step) => return Copy::Steps(vec![step]),
                None => return Copy::Impossible(why.clone()),
            },
            None => return Copy::Wait("its definition to be read".to_owned()),
        };
        let standing = self.standing_of_copy(&child, manifest);
        let steps = self.produce_copy(&child, manifest, &standing);
        if !steps.is_empty() {
            return Copy::Steps(steps);
        }
        match self.health(upgrade, manifest, &standing, manifest.leader.as_ref()) {
            Health::Look(step) => Copy::Steps(vec![step]),
            Health::Good => Copy::Seen(Ok(())),
            Health::Bad(words) => Copy::Seen(Err(words)),
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
            Some(child) if child.metadata.deletion_timestamp.is_some() => {
                return Err(Copy::Wait(format!("NumaflowController/{name}, which is being deleted, to be gone")));
            }
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

    /// While the user holds the rollout the clocks stand still. Nobody looks meanwhile, so a window begins anew.
    fn paused(&self, upgrade: &Upgrade) -> Option<(Upgrade, Report)> {
        let paused = self.s.rollout.spec.paused == Some(true);
        let next = match (&upgrade.paused_at, paused) {
            (None, false) => return None,
            (Some(_), true) => upgrade.clone(),
            (None, true) => Upgrade { paused_at: Some(Time(self.now)), ..upgrade.clone() },
            (Some(since), false) => {
                let held = self.now.duration_since(since.0).max(jiff::SignedDuration::ZERO);
                let started = upgrade.stage_started_at.clone().map(|t| Time(t.0.checked_add(held).unwrap_or(t.0)));
                let relapses = upgrade.assessment.as_ref().map_or(0, |a| a.relapses);
                let assessment = Some(Assessment { healthy_since: None, relapses });
                Upgrade { paused_at: None, stage_started_at: started, assessment, ..upgrade.clone() }
            }
        };
        let version = &upgrade.version;
        let words =
            format!("paused by spec.paused: the assessment of version {version:?} stands still until it is unset");
        let report = if paused { Report::pending("Paused", &words) } else { Report::verifying(version, "") };
        Some((next, report))
    }

    /// The version did not prove itself; production was not touched.
    fn fail_verify(mut self, upgrade: &Upgrade, words: &str, production: Option<&Standing>) -> Plan {
        let stage = Stage::Verify.as_str();
        // What the server refuses is not judged.
        if let Some(refusal) = self.s.learned.own_refusal().or_else(|| self.refusal_of_copy()).cloned() {
            self.end(upgrade, AttemptResult::Blocked, stage, &refusal.reason, &refusal.message);
            self.events.push(Event { warning: true, reason: "UpgradeBlocked", note: refusal.message.clone() });
            return self.save(production, Report::blocked(&refusal.reason, &refusal.message));
        }
        let upgrade = Upgrade { generation: self.judged_generation(upgrade), ..upgrade.clone() };
        self.end(&upgrade, AttemptResult::Failed, stage, "DeadlineExceeded", words);
        self.events.push(Event { warning: true, reason: "UpgradeFailed", note: words.to_owned() });
        self.save(production, Report::failed("DeadlineExceeded", words))
    }

    /// What the server refuses of the copy.
    fn refusal_of_copy(&self) -> Option<&Refusal> {
        let objects = match &self.s.copy {
            Some(Ok(manifest)) => manifest.objects.as_slice(),
            _ => &[],
        };
        self.s.learned.trouble_with(objects.iter()).filter(|trouble| self.s.learned.refusals.contains(trouble))
    }

    /// Production's turn.
    pub(super) fn enter_cut_over(mut self, upgrade: Upgrade) -> Plan {
        let manifest = self.s.manifest(&upgrade.revision, &upgrade.instance_id).ok();
        let holder_before = match manifest.map_or(Ok(String::new()), |m| self.holder_before(&m, upgrade.rolls)) {
            Ok(holder) => holder,
            Err(step) => return Plan::of(vec![step]),
        };
        let report = Report::cutting_over(&upgrade.version, "");
        self.next.upgrade = Some(Upgrade {
            stage: Stage::CutOver.as_str().to_owned(),
            stage_started_at: Some(self.not_before_now()),
            from: self.holder().unwrap_or_default().to_owned(),
            to: upgrade.name.clone(),
            assessment: None,
            paused_at: None,
            holder_before,
            ..upgrade
        });
        self.save(None, report)
    }
}

/// The instance of a child's isolated copy.
fn instance_of(child: &NumaflowController) -> String {
    isolated_instance(child.metadata.uid.as_deref().unwrap_or_default())
}
