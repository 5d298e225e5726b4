//! What to do next for one rollout. Pure: a snapshot, what rollouts fall back to, and the time; it cannot fail.
//!
//! Each call gives the next few steps and no more. The caller carries them out and asks again, until there are none; so
//! everything that a step needs is in the API by the time it is taken, and a process that dies in between has lost
//! nothing.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{
        ANNOTATION_RETRY, Assessment, AttemptResult, FINALIZER, LastAttempt, NumaflowController,
        NumaflowControllerRolloutStatus, NumaflowControllerSpec, Promoted, Stage, Strategy, Upgrade, UpgradeState,
        child_name, child_number, fit, mark_of_rollout, short_uid,
    },
    controller::{
        produce::{Producing, steps},
        standing::{Production, Standing, assess},
    },
    manifest::Manifest,
    plan::{Event, Pin, Plan, Step, Version},
    rollout::{
        delete,
        report::Report,
        resolve::Manner,
        snapshot::{Revision, Snapshot, Target, Unresolved, elapsed, state_of},
    },
    settings::Defaults,
    words::list,
};

/// When to look again at what no watch tells.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(10);

/// Decides the next steps.
#[must_use]
pub fn decide(snapshot: &Snapshot, defaults: &Defaults, now: Timestamp) -> Plan {
    let rollout = &snapshot.rollout;
    let finalizers = rollout.metadata.finalizers.as_deref().unwrap_or_default();
    let held = finalizers.iter().any(|f| f == FINALIZER);
    if snapshot.namespace_terminating {
        // Everything goes with the namespace; nothing may be created in it and nobody waits for us.
        return if held { Plan::of(vec![Step::SetFinalizers(without_ours(finalizers))]) } else { Plan::default() };
    }
    if rollout.metadata.deletion_timestamp.is_some() {
        return if held { delete::decide(Turn::new(snapshot, defaults, now)) } else { Plan::default() };
    }
    if !held {
        let mut all = finalizers.to_vec();
        all.push(FINALIZER.to_owned());
        return Plan::of(vec![Step::SetFinalizers(all)]);
    }
    Turn::new(snapshot, defaults, now).decide()
}

/// The finalizers of others.
#[must_use]
pub fn without_ours(finalizers: &[String]) -> Vec<String> {
    finalizers.iter().filter(|f| *f != FINALIZER).cloned().collect()
}

impl Plan {
    /// Steps to be taken now.
    #[must_use]
    pub fn of(steps: Vec<Step>) -> Self {
        Self { steps, again_after: None }
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
    pub(super) again_after: Option<std::time::Duration>,
}

/// What an attempt is about; "the same attempt" is judged once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AttemptKey {
    generation: i64,
    version: String,
    instance: String,
    hash: String,
    retry: String,
}

impl<'a> Turn<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, defaults: &Defaults, now: Timestamp) -> Self {
        let stored = snapshot.rollout.status.clone().unwrap_or_default();
        let mut next = stored.clone();
        next.observed_generation = snapshot.generation();
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
        if let Some(step) = self.read_pin() {
            return Plan::of(vec![step]);
        }
        if let Some(adopted) = self.promoted_by_label() {
            self.next.promoted = Some(adopted);
            return self
                .save(None, Report::pending("Adopting", "the promoted child is known by its label; recording it"));
        }
        let Some(upgrade) = self.stored.upgrade.clone() else { return self.at_rest() };
        match Stage::parse(&upgrade.stage) {
            // Production has not been touched in these.
            Some(Stage::Resolve | Stage::Verify | Stage::Drain) => {
                self.next.upgrade = None;
                self.save(None, Report::pending("Restarting", "starting the attempt afresh"))
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

    // ---- at rest ------------------------------------------------------------------------------------------------

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
                    return self.keep(Report::pending("Paused", &words));
                }
                self.start(&target)
            }
        }
    }

    /// The version of the spec cannot be attempted.
    fn unresolved(mut self, why: &Unresolved) -> Plan {
        let controller = &self.s.rollout.spec.controller;
        let same = |p: &Promoted| p.version == controller.version && p.instance_id == controller.instance();
        if why.is_about_definition() && self.next.promoted.as_ref().is_some_and(same) {
            // It runs already, held by its pinned revision; what became of the definition changes nothing about that.
            return self.steady_missing(why);
        }
        let key = self.key(&controller.version, controller.instance(), "");
        self.fail(key, Stage::Resolve, AttemptResult::Failed, why.reason, &why.message);
        self.keep(Report::failed(why.reason, &why.message))
    }

    /// The desired version is promoted.
    fn steady(self, target: Option<&Target>) -> Plan {
        match target.and_then(|t| t.only_pinned.as_ref()) {
            Some(why) => self.steady_missing(why),
            None => self.keep(Report::deployed(None)),
        }
    }

    fn steady_missing(self, why: &Unresolved) -> Plan {
        let why = why.clone();
        self.keep(Report::deployed(Some(why)))
    }

    fn keep_failed(self) -> Plan {
        let last = self.stored.last_attempt.clone().unwrap_or_default();
        self.keep(Report::failed(&last.reason, &last.message))
    }

    /// Keeps what is promoted as it should be, and tidies up.
    fn keep(self, report: Report) -> Plan {
        let Some(promoted) = self.next.promoted.clone() else {
            // Nothing was ever confirmed; the child that tried last keeps the label until another takes it over.
            let last = self.holder().map(str::to_owned);
            let tidy = self.tidy(&last.iter().map(String::as_str).collect::<Vec<_>>());
            return self.finish(tidy, None, report);
        };
        match self.hand_over(&promoted) {
            HandOver::Steps(steps) => return Plan::of(steps),
            HandOver::Wait(words) => return self.finish(Vec::new(), None, report.with_trouble("ChildMissing", &words)),
            HandOver::Done => {}
        }
        if let Some(step) = self.repin(&promoted) {
            return Plan::of(vec![step]);
        }
        let manifest = match self.s.manifest(&promoted.revision, &promoted.instance_id) {
            Ok(manifest) => manifest,
            Err(words) => {
                let tidy = self.tidy(&[&promoted.name]);
                return self.finish(tidy, None, report.with_trouble("RevisionUnusable", &words));
            }
        };
        let standing = self.standing(&manifest);
        let steps = self.produce(&promoted.name, &manifest, &standing, standing.healthy());
        if !steps.is_empty() {
            return Plan::of(steps);
        }
        let tidy = self.tidy(&[&promoted.name]);
        self.finish(tidy, Some(&standing), report)
    }

    /// Pins the promoted definition again where somebody deleted its revision and a ConfigMap still has it.
    fn repin(&self, promoted: &Promoted) -> Option<Step> {
        let target = self.s.desired.as_ref().ok().filter(|t| self.is_promoted(t))?;
        let readable = self.s.revision(&promoted.revision).is_some_and(|r| r.definition.is_some());
        (!readable && self.s.learned.own_refusal().is_none()).then(|| self.pin(target, promoted.revision.clone()))
    }

    /// Pins an attempted definition again where somebody deleted its revision and a ConfigMap still has it.
    pub(super) fn repin_attempt(&self, upgrade: &Upgrade) -> Option<Step> {
        let target = self.s.desired.as_ref().ok().filter(|t| t.manifest.hash == upgrade.definition_hash)?;
        let readable = self.s.revision(&upgrade.revision).is_some_and(|r| r.definition.is_some());
        (!readable && self.s.learned.own_refusal().is_none()).then(|| self.pin(target, upgrade.revision.clone()))
    }

    /// Removes children and revisions that nothing needs.
    fn tidy(&self, keep: &[&str]) -> Vec<Step> {
        if self.s.learned.own_refusal().is_some() {
            return Vec::new();
        }
        let mut steps: Vec<Step> = self
            .s
            .children
            .iter()
            .filter(|c| c.metadata.deletion_timestamp.is_none())
            .filter(|c| !keep.contains(&c.metadata.name.as_deref().unwrap_or_default()))
            .map(|c| Step::DeleteChild { child: Version::of(&c.metadata) })
            .collect();
        let kept = self.kept_revisions();
        let goes = |name: &str| !kept.iter().any(|r| r.name == name);
        let going = self.s.revisions.iter().filter(|r| goes(&r.name));
        steps.extend(going.map(|r| Step::DeleteRevision { name: r.name.clone(), uid: r.uid.clone() }));
        steps
    }

    /// The pinned revisions that stay: those in use, and the newest of the others.
    pub(super) fn kept_revisions(&self) -> Vec<&Revision> {
        let limit = usize::try_from(self.s.rollout.spec.revision_history_limit.unwrap_or(3)).unwrap_or(0);
        let used = |name: &str| {
            self.next.promoted.as_ref().is_some_and(|p| p.revision == name)
                || self.next.upgrade.as_ref().is_some_and(|u| u.revision == name)
        };
        let mut others = 0;
        let stays = |r: &&Revision| {
            used(&r.name) || {
                others += 1;
                others <= limit
            }
        };
        self.s.revisions.iter().filter(stays).collect()
    }

    // ---- a new attempt ------------------------------------------------------------------------------------------

    fn start(mut self, target: &Target) -> Plan {
        let key = self.key_of(target);
        let standing = self.standing(&target.manifest);
        let learned = &self.s.learned;
        let refused = learned.own_refusal().or_else(|| learned.refusal_of(&standing));
        if let Some(refusal) = refused.or_else(|| learned.silence_of(&standing)).cloned() {
            self.fail(key, Stage::Resolve, AttemptResult::Blocked, &refusal.reason, &refusal.message);
            return self.keep(Report::blocked(&refusal.reason, &refusal.message));
        }
        if let Some((id, owner)) = standing.taken.first() {
            let words = taken(id, owner);
            self.fail(key, Stage::Resolve, AttemptResult::Blocked, "ObjectExists", &words);
            self.again_after = Some(LOOK_AGAIN);
            return self.keep(Report::blocked("ObjectExists", &words));
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
        let revision = self.revision_name(target);
        if self.s.revision(&revision).is_none_or(|r| r.definition.is_none()) {
            return Plan::of(vec![self.pin(target, revision)]);
        }
        let name = self.next_name();
        self.next.name_count = child_number(self.s.name(), &name);
        self.next.upgrade = Some(Upgrade {
            name: name.clone(),
            version: key.version,
            instance_id: key.instance,
            definition_hash: key.hash,
            revision,
            generation: key.generation,
            retry: key.retry,
            strategy: self.manner.strategy.as_str().to_owned(),
            stage: Stage::CutOver.as_str().to_owned(),
            from: self.holder().unwrap_or_default().to_owned(),
            to: name,
            started_at: Some(Time(self.now)),
            stage_started_at: Some(self.not_before_now()),
            recreate: self.s.learned.immutable.iter().map(ToString::to_string).collect(),
            ..Upgrade::default()
        });
        let report = Report::cutting_over(&target.version, "");
        self.save(None, report)
    }

    fn pin(&self, target: &Target, name: String) -> Step {
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

    // ---- shared by the stages -----------------------------------------------------------------------------------

    /// The child that holds the promoted label.
    pub(super) fn holder(&self) -> Option<&str> {
        let names = self.s.children.iter().filter(|c| state_of(c) == Some(UpgradeState::Promoted));
        names.filter_map(|c| c.metadata.name.as_deref()).max_by_key(|n| child_number(self.s.name(), n))
    }

    pub(super) fn standing(&self, manifest: &Manifest) -> Standing {
        let inventory = self.s.inventory();
        assess(&Production {
            mark: &mark_of_rollout(self.s.name()),
            manifest,
            inventory: &inventory,
            live: &self.s.live,
            unwatched: &self.s.unwatched,
            elsewhere: &self.s.elsewhere,
            pruned: &self.s.learned.pruned,
        })
    }

    /// The next steps for the production objects, through the child that holds them.
    pub(super) fn produce(&self, child: &str, manifest: &Manifest, standing: &Standing, orphans: bool) -> Vec<Step> {
        steps(&Producing {
            child: self.s.child(child).map(AsRef::as_ref),
            manifest,
            standing,
            learned: &self.s.learned,
            recreate: self.next.upgrade.as_ref().map(|u| u.recreate.as_slice()).unwrap_or_default(),
            orphans,
            now: self.now,
        })
    }

    /// Gives production to one child: first every other one loses the label, then this one gets it; so there are never
    /// two.
    pub(super) fn hand_over(&self, to: &Promoted) -> HandOver {
        match (self.next_label(to), self.s.learned.own_refusal()) {
            (HandOver::Steps(_), Some(refusal)) => HandOver::Wait(refusal.message.clone()),
            (step, _) => step,
        }
    }

    /// Whether a child says that it belongs to this rollout.
    fn owns(&self, child: &NumaflowController) -> bool {
        let owners = child.metadata.owner_references.as_deref().unwrap_or_default();
        owners.iter().any(|o| o.controller == Some(true) && Some(&o.uid) == self.s.rollout.metadata.uid.as_ref())
    }

    fn next_label(&self, to: &Promoted) -> HandOver {
        let name = to.name.as_str();
        let lose: Vec<Step> = self
            .s
            .children
            .iter()
            .filter(|c| c.metadata.name.as_deref() != Some(name) && state_of(c) == Some(UpgradeState::Promoted))
            .map(|c| Step::LabelChild { child: Version::of(&c.metadata), state: UpgradeState::Recyclable })
            .collect();
        if !lose.is_empty() {
            return HandOver::Steps(lose);
        }
        match self.s.child(name) {
            Some(child) if child.metadata.deletion_timestamp.is_some() => {
                HandOver::Wait(format!("NumaflowController/{name} is being deleted; it is made anew once it is gone"))
            }
            Some(child) if state_of(child) == Some(UpgradeState::Promoted) && self.owns(child) => HandOver::Done,
            // It comes back: what it applied once may have been changed since by the one that leaves.
            Some(child)
                if state_of(child) != Some(UpgradeState::Promoted)
                    && child.status.as_ref().is_some_and(|s| !s.inventory.is_empty()) =>
            {
                let mut status = child.status.clone().unwrap_or_default();
                status.inventory.clear();
                HandOver::Steps(vec![Step::WriteChildStatus {
                    child: Version::of(&child.metadata),
                    status: Box::new(status),
                }])
            }
            Some(child) => HandOver::Steps(vec![Step::LabelChild {
                child: Version::of(&child.metadata),
                state: UpgradeState::Promoted,
            }]),
            None if self.s.foreign_children.contains(name) => {
                HandOver::Wait(format!("NumaflowController/{name} belongs to somebody else; waiting until it is gone"))
            }
            None => HandOver::Steps(vec![Step::CreateChild {
                name: name.to_owned(),
                spec: Box::new(NumaflowControllerSpec {
                    version: to.version.clone(),
                    instance_id: Some(to.instance_id.clone()).filter(|i| !i.is_empty()),
                    revision: Some(to.revision.clone()),
                }),
                state: UpgradeState::Promoted,
            }]),
        }
    }

    /// Ends an attempt in status.
    pub(super) fn end(&mut self, upgrade: &Upgrade, result: AttemptResult, stage: &str, reason: &str, message: &str) {
        self.next.upgrade = None;
        self.next.last_attempt = Some(LastAttempt {
            generation: upgrade.generation,
            version: upgrade.version.clone(),
            instance_id: upgrade.instance_id.clone(),
            definition_hash: upgrade.definition_hash.clone(),
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
    fn fail(&mut self, key: AttemptKey, stage: Stage, result: AttemptResult, reason: &str, message: &str) {
        let mut last = LastAttempt {
            generation: key.generation,
            version: key.version,
            instance_id: key.instance,
            definition_hash: key.hash,
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

    fn key(&self, version: &str, instance: &str, hash: &str) -> AttemptKey {
        let annotations = self.s.rollout.metadata.annotations.as_ref();
        AttemptKey {
            generation: self.s.generation(),
            version: version.to_owned(),
            instance: instance.to_owned(),
            hash: hash.to_owned(),
            retry: annotations.and_then(|a| a.get(ANNOTATION_RETRY)).cloned().unwrap_or_default(),
        }
    }

    fn key_of(&self, target: &Target) -> AttemptKey {
        self.key(&target.version, &target.instance, &target.manifest.hash)
    }

    /// Whether this very attempt was judged already.
    fn judged(&self, target: &Target) -> bool {
        self.stored.last_attempt.as_ref().is_some_and(|last| {
            last.result == AttemptResult::Failed.as_str()
                && self.key_of(target)
                    == AttemptKey {
                        generation: last.generation,
                        version: last.version.clone(),
                        instance: last.instance_id.clone(),
                        hash: last.definition_hash.clone(),
                        retry: last.retry.clone(),
                    }
        })
    }

    pub(super) fn is_promoted(&self, target: &Target) -> bool {
        self.stored.promoted.as_ref().is_some_and(|p| {
            p.version == target.version && p.instance_id == target.instance && p.definition_hash == target.manifest.hash
        })
    }

    /// The instance ID cannot change while something depends on the old one.
    fn instance_in_use(&self, wanted: &str) -> Option<Unresolved> {
        let old = &self.stored.promoted.as_ref()?.instance_id;
        if old == wanted {
            return None;
        }
        let unlisted = &self.s.dependants.unlisted;
        let message = if unlisted.is_empty() {
            let names: Vec<String> =
                self.s.dependants.of_instance(old).map(|d| format!("{}/{}", d.kind, d.name)).collect();
            if names.is_empty() {
                return None;
            }
            format!(
                "spec.controller.instanceID: cannot change from {old:?} to {wanted:?} while {} {} the old one; move or delete \
                 {} first",
                list(&names, 5),
                if names.len() == 1 { "uses" } else { "use" },
                if names.len() == 1 { "it" } else { "them" }
            )
        } else {
            format!(
                "spec.controller.instanceID: cannot change from {old:?} to {wanted:?} while {} cannot be listed",
                list(unlisted, 5)
            )
        };
        Some(Unresolved { reason: "InstanceInUse", message })
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

    /// Whether the spec asks for something else than the running attempt. That a definition was removed changes nothing.
    pub(super) fn superseded(&self, upgrade: &Upgrade) -> bool {
        let controller = &self.s.rollout.spec.controller;
        let other_spec = controller.version != upgrade.version || controller.instance() != upgrade.instance_id;
        other_spec
            || self
                .s
                .desired
                .as_ref()
                .is_ok_and(|t| t.only_pinned.is_none() && t.manifest.hash != upgrade.definition_hash)
    }

    /// How long the running stage has taken.
    pub(super) fn in_stage(&self, upgrade: &Upgrade) -> std::time::Duration {
        elapsed(upgrade.stage_started_at.as_ref(), self.now)
    }

    /// Writes the status in the making; the next call goes on from there.
    pub(super) fn save(mut self, standing: Option<&Standing>, report: Report) -> Plan {
        report.write(&mut self, standing);
        let (status, events) = (Box::new(self.next), self.events);
        Plan::of(vec![Step::WriteStatus { status, events }])
    }

    /// The end of a decision: what is left to do, and the status if it says anything new.
    pub(super) fn finish(mut self, mut steps: Vec<Step>, standing: Option<&Standing>, report: Report) -> Plan {
        report.write(&mut self, standing);
        if self.next != self.stored {
            steps.insert(0, Step::WriteStatus { status: Box::new(self.next), events: self.events });
        }
        Plan { steps, again_after: self.again_after }
    }

    /// Whether the strategy of the attempt asks for a stage that is left out.
    pub(super) fn strategy(upgrade: &Upgrade) -> Strategy {
        Strategy::parse(&upgrade.strategy).unwrap_or_default()
    }

    /// The time in whole seconds, as it is stored, never before it: a wait that counts from it is never cut short.
    pub(super) fn not_before_now(&self) -> Time {
        let up = jiff::SignedDuration::from_nanos(999_999_999);
        Time(self.now.checked_add(up).unwrap_or(self.now))
    }

    /// When the window of the assessment began, if every workload has been healthy since.
    pub(super) fn healthy_since(upgrade: &Upgrade) -> Option<&Time> {
        upgrade.assessment.as_ref().and_then(|a: &Assessment| a.healthy_since.as_ref())
    }
}

/// How far the label is.
pub(super) enum HandOver {
    /// Steps to be taken.
    Steps(Vec<Step>),
    /// Something is in the way.
    Wait(String),
    /// The child holds it, alone.
    Done,
}

/// The sentence for an object that belongs to somebody else.
pub(super) fn taken(id: &crate::live::ObjectId, owner: &str) -> String {
    format!(
        "{id} exists and belongs to {owner}; it is not taken over. Delete it, rename it in the definition, or annotate it \
         numaplane.numaproj.io/adopt"
    )
}
