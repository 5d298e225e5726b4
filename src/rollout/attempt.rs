//! An attempt: what makes it one, how it starts, and how its end is written down. Pure.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{
        ANNOTATION_RETRY, AttemptResult, ForcePromoted, LastAttempt, Stage, Strategy, Upgrade, child_name,
        child_number, fit, short_uid,
    },
    controller::{
        standing::Standing,
        target::{Target, Unresolved},
    },
    definitions::Definition,
    evidence::{Evidence, Look},
    manifest::Manifest,
    plan::{Event, Pin, Plan, Step},
    rollout::{decide::Turn, enter::Prepared, report, resolve::in_use, upkeep::taken},
    summary::Summary,
    time::elapsed,
};

/// When to look again at what no watch tells.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(10);

/// What an attempt is about; "the same attempt" is judged once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AttemptKey {
    generation: i64,
    version: String,
    instance: String,
    hash: String,
    settings: String,
    retry: String,
}

impl Turn<'_> {
    pub(super) fn start(mut self, target: &Target) -> Plan {
        let key = self.key_of(target);
        let standing = self.standing(&target.manifest);
        let learned = &self.s.learned;
        let refused = learned.own_refusal().or_else(|| learned.refusal_of(&standing));
        if let Some(refusal) = refused.or_else(|| learned.silence_of(&standing)).cloned() {
            self.fail(key, Stage::Resolve, AttemptResult::Blocked, &refusal.reason, &refusal.message);
            return self.keep(Summary::blocked(&refusal.reason, &refusal.message));
        }
        if let Some((id, owner)) = standing.taken.first() {
            let words = taken(id, owner);
            self.fail(key, Stage::Resolve, AttemptResult::Blocked, "ObjectExists", &words);
            self.again_after = Some(LOOK_AGAIN);
            return self.keep(Summary::blocked("ObjectExists", &words));
        }
        let unchecked: Vec<_> = standing
            .to_apply
            .iter()
            .map(|(object, _)| object)
            .filter(|o| !self.s.learned.has_checked(o))
            .cloned()
            .collect();
        if !unchecked.is_empty() {
            return Plan::of(vec![Step::Check(unchecked)]);
        }
        let (copy, skipped) = match self.proof() {
            Ok(copy) => (Some(copy), String::new()),
            Err(why) => (None, why),
        };
        if let Some(copy) = &copy {
            // What the server would say to the copy is known before anything is made.
            if let Some(refusal) = self.s.learned.trouble_with(copy.objects.iter()).cloned() {
                let words = format!("of the isolated copy: {}", refusal.message);
                self.fail(key, Stage::Resolve, AttemptResult::Blocked, &refusal.reason, &words);
                return self.keep(Summary::blocked(&refusal.reason, &words));
            }
            if copy.objects.iter().any(|o| !self.s.learned.has_checked(o)) {
                return Plan::of(vec![Step::Check(copy.objects.clone())]);
            }
        }
        let rolls = rolls(&standing);
        let drains = self.drains(self.manner.strategy);
        let (holder_before, isb_unhealthy) = match self.prepare(&target.manifest, &target.instance, drains) {
            // It is asked for when it matters.
            _ if copy.is_some() => Default::default(),
            Prepared::Known { holder, isb } => (holder, isb),
            Prepared::Look(step) => return Plan::of(vec![step]),
            Prepared::Unknown(words) => {
                self.fail(key, Stage::Resolve, AttemptResult::Blocked, "NoAnswer", &words);
                self.again_after = Some(LOOK_AGAIN);
                return self.keep(Summary::blocked("NoAnswer", &words));
            }
        };
        let revision = self.revision_name(target);
        if self.s.revision(&revision).is_none_or(|r| r.definition.is_none()) {
            return Plan::of(vec![self.pin(target, revision)]);
        }
        let name = self.next_name();
        self.next.name_count = child_number(self.s.name(), &name);
        if self.wants_force_promote() {
            self.use_force_promote(&key.version);
        }
        let upgrade = Upgrade {
            name,
            version: key.version,
            instance_id: key.instance,
            definition_hash: key.hash,
            revision,
            generation: key.generation,
            settings: Some(key.settings),
            retry: key.retry,
            strategy: self.manner.strategy.as_str().to_owned(),
            stage: Stage::Verify.as_str().to_owned(),
            started_at: Some(Time(self.now)),
            stage_started_at: Some(self.not_before_now()),
            recreate: self.s.learned.immutable.iter().map(ToString::to_string).collect(),
            verify_skipped: skipped,
            rolls,
            holder_before,
            isb_unhealthy,
            ..Upgrade::default()
        };
        if copy.is_none() {
            return self.enter(upgrade, rolls, None);
        }
        self.next.upgrade = Some(upgrade);
        self.save(None, report::verifying(&target.version, ""))
    }

    /// What an attempt that starts now has to prove itself in.
    ///
    /// # Errors
    /// It goes without Verify: why, and without a word where nobody would expect one.
    fn proof(&self) -> Result<Arc<Manifest>, String> {
        if self.manner.strategy == Strategy::NoStrategy || self.stored.promoted.is_none() {
            // Nobody wants it to, or there is nothing beside which it could prove itself.
            return Err(String::new());
        }
        if self.wants_force_promote() && self.next.force_promoted.is_none() {
            return Err("spec.strategy.forcePromote is set".to_owned());
        }
        self.s.copy.clone().unwrap_or_else(|| Err("the isolated copy could not be made".to_owned()))
    }

    /// Whether the user does not want to wait for a version to prove itself.
    pub(super) fn wants_force_promote(&self) -> bool {
        self.s.rollout.spec.strategy.as_ref().is_some_and(|s| s.force_promote == Some(true))
    }

    /// Notes that `forcePromote` is honoured for this version, if it was not for another since it was set.
    pub(super) fn use_force_promote(&mut self, version: &str) {
        let at = Some(Time(self.now));
        self.next.force_promoted.get_or_insert_with(|| ForcePromoted { version: version.to_owned(), at });
    }

    /// Who holds the lease before pods are replaced, where the new holder could have the same hostname: on the host's network,
    /// and in a StatefulSet. Empty where no such pod is replaced.
    pub(super) fn holder_before(&self, manifest: &Manifest) -> Holder {
        let promoted = self.stored.promoted.as_ref();
        let running = promoted.and_then(|p| self.s.manifest(&p.revision, &p.instance_id).ok());
        let Some(leader) = manifest.leader.as_ref().filter(|l| l.hostnames_stay()) else {
            return Holder::Known(String::new());
        };
        let replaced = manifest.objects.iter().filter(|o| leader.is_of(&o.id)).any(|object| {
            let old = running.as_ref().and_then(|m| m.objects.iter().find(|o| o.id == object.id));
            old.is_none_or(|old| old.body()["spec"]["template"] != object.body()["spec"]["template"])
        });
        if !replaced {
            return Holder::Known(String::new());
        }
        let look = Look { lease: Some(leader.lease.clone()), ..Look::default() };
        match self.s.learned.looks.get(&look) {
            None => Holder::Look(Step::Look(look)),
            Some(Evidence { unreadable: Some(why), .. }) => {
                Holder::Unknown(format!("lease {} cannot be read: {why}", leader.lease))
            }
            Some(seen) => Holder::Known(seen.lease.as_ref().map(|l| l.holder.clone()).unwrap_or_default()),
        }
    }

    pub(super) fn pin(&self, target: &Target, name: String) -> Step {
        Step::Pin(Box::new(Pin {
            name,
            number: self.s.revisions.iter().map(|r| r.number).max().unwrap_or(0).saturating_add(1),
            definition: target.definition.clone(),
            secret: target.manifest.has_kind("", "Secret"),
        }))
    }

    /// A revision is named after the rollout, its uid and the content: the same content is pinned once.
    fn revision_name(&self, target: &Target) -> String {
        let uid = short_uid(self.s.rollout.metadata.uid.as_deref().unwrap_or_default());
        let text = serde_json::to_string(&*target.definition).unwrap_or_default();
        format!("{}-{uid}-{}", fit(self.s.name(), 200), crate::api::short_hash(text.as_bytes()))
    }

    /// The name of the next child: one above every number that was ever given.
    fn next_name(&self) -> String {
        let names = self.s.children.iter().filter_map(|c| c.metadata.name.as_deref());
        let highest = names
            .chain(self.s.foreign_children.iter().map(String::as_str))
            .filter_map(|name| child_number(self.s.name(), name))
            .chain(self.stored.name_count)
            .max()
            .unwrap_or(-1);
        let taken = |name: &String| self.s.child(name).is_some() || self.s.foreign_children.contains(name);
        // Past the last number (somebody wrote it into the status) the first free one does.
        let above = highest.checked_add(1).map(|n| child_name(self.s.name(), n));
        above
            .or_else(|| (0..i32::MAX).map(|n| child_name(self.s.name(), n)).find(|name| !taken(name)))
            .unwrap_or_default()
    }

    /// Ends an attempt in status.
    pub(super) fn end(&mut self, upgrade: &Upgrade, result: AttemptResult, stage: &str, reason: &str, message: &str) {
        if reason != "Deleting"
            && let Some(text) = self.force()
        {
            self.use_force(&text, "nothing: the attempt that it was for ended before");
        }
        self.end_drain(upgrade, message);
        self.next.upgrade = None;
        self.next.last_attempt = Some(LastAttempt {
            generation: upgrade.generation,
            version: upgrade.version.clone(),
            instance_id: upgrade.instance_id.clone(),
            definition_hash: upgrade.definition_hash.clone(),
            settings: upgrade.settings.clone().unwrap_or_default(),
            retry: upgrade.retry.clone(),
            result: result.as_str().to_owned(),
            stage: stage.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            started_at: upgrade.started_at.clone(),
            finished_at: Some(Time(self.now)),
        });
    }

    /// Records an attempt that ended before production was touched. Saying the same again changes nothing.
    pub(super) fn fail(&mut self, key: AttemptKey, stage: Stage, result: AttemptResult, reason: &str, message: &str) {
        let mut last = LastAttempt {
            generation: key.generation,
            version: key.version,
            instance_id: key.instance,
            definition_hash: key.hash,
            settings: key.settings,
            retry: key.retry,
            result: result.as_str().to_owned(),
            stage: stage.as_str().to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            started_at: Some(Time(self.now)),
            finished_at: Some(Time(self.now)),
        };
        if let Some(old) = &self.stored.last_attempt {
            let judged = old.result == AttemptResult::Failed.as_str() && !old.definition_hash.is_empty();
            if judged
                && last.definition_hash.is_empty()
                && (old.generation, &old.version, &old.instance_id, &old.retry)
                    == (last.generation, &last.version, &last.instance_id, &last.retry)
            {
                // It was tried and judged; that its definition cannot be read just now does not make it untried.
                return;
            }
            let same_attempt = (old.generation, &old.version, &old.instance_id, &old.retry)
                == (last.generation, &last.version, &last.instance_id, &last.retry)
                && old.result == last.result
                && old.reason == last.reason;
            if same_attempt {
                last.started_at.clone_from(&old.started_at);
                last.finished_at.clone_from(&old.finished_at);
            } else {
                self.announce(&last);
            }
        } else {
            self.announce(&last);
        }
        self.next.last_attempt = Some(last);
    }

    fn announce(&mut self, last: &LastAttempt) {
        let reason = if last.result == AttemptResult::Blocked.as_str() { "UpgradeBlocked" } else { "UpgradeFailed" };
        self.events.push(Event { warning: true, reason, note: last.message.clone() });
    }

    pub(super) fn key(&self, version: &str, instance: &str, hash: &str) -> AttemptKey {
        let annotations = self.s.rollout.metadata.annotations.as_ref();
        AttemptKey {
            generation: self.s.generation(),
            version: version.to_owned(),
            instance: instance.to_owned(),
            hash: hash.to_owned(),
            settings: String::new(),
            retry: annotations.and_then(|a| a.get(ANNOTATION_RETRY)).cloned().unwrap_or_default(),
        }
    }

    pub(super) fn key_of(&self, target: &Target) -> AttemptKey {
        AttemptKey {
            settings: settings(&target.definition),
            ..self.key(&target.version, &target.instance, &target.manifest.hash)
        }
    }

    /// The generation that a judgement of this attempt is about: edits that did not supersede it (a pause, another deadline)
    /// are covered by it, and do not call for another attempt.
    pub(super) fn judged_generation(&self, upgrade: &Upgrade) -> i64 {
        if self.superseded(upgrade) { upgrade.generation } else { self.s.generation() }
    }

    /// Whether this very attempt was judged already.
    pub(super) fn judged(&self, target: &Target) -> bool {
        self.stored.last_attempt.as_ref().is_some_and(|last| {
            last.result == AttemptResult::Failed.as_str()
                && self.key_of(target)
                    == AttemptKey {
                        generation: last.generation,
                        version: last.version.clone(),
                        instance: last.instance_id.clone(),
                        hash: last.definition_hash.clone(),
                        settings: last.settings.clone(),
                        retry: last.retry.clone(),
                    }
        })
    }

    /// The instance ID cannot change while something depends on the old one.
    pub(super) fn instance_in_use(&self, wanted: &str) -> Option<Unresolved> {
        let promoted = self.stored.promoted.as_ref()?;
        in_use(&promoted.instance_id, wanted, &self.s.dependants)
    }

    /// Whether the spec asks for something else than the running attempt. That a definition was removed changes nothing.
    pub(super) fn superseded(&self, upgrade: &Upgrade) -> bool {
        let controller = &self.s.rollout.spec.controller;
        let other_spec = controller.version != upgrade.version || controller.instance() != upgrade.instance_id;
        let other = |t: &Target| {
            let settings = settings(&t.definition);
            // Attempts of an older operator do not know.
            t.manifest.hash != upgrade.definition_hash || upgrade.settings.as_ref().is_some_and(|s| *s != settings)
        };
        other_spec || self.s.desired.as_ref().is_ok_and(|t| t.only_pinned.is_none() && other(t))
    }

    /// How long the running stage has taken.
    pub(super) fn in_stage(&self, upgrade: &Upgrade) -> std::time::Duration {
        elapsed(upgrade.stage_started_at.as_ref(), self.now)
    }
}

/// Who holds a lease.
pub(super) enum Holder {
    /// The holder, or nothing where nobody does or it does not matter.
    Known(String),
    /// This look is needed to know.
    Look(Step),
    /// That cannot be told now: why.
    Unknown(String),
}

/// What the entry of a definition says besides its objects.
fn settings(definition: &Definition) -> String {
    let isolated = definition.isolated.map(|yes| format!("isolated: {yes}"));
    let leader = definition.leader_election.map(|yes| format!("leaderElection: {yes}"));
    isolated.into_iter().chain(leader).collect::<Vec<_>>().join(", ")
}

/// Whether what is to be applied replaces pods: a workload with other content than it has now. (Where only the number of
/// replicas differs no pod is replaced, and the one that leads goes on leading.)
pub(super) fn rolls(standing: &Standing) -> bool {
    standing.to_apply.iter().any(|(object, _)| object.is_workload() && !standing.in_place.contains(&object.id))
}
