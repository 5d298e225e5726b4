//! A cluster in memory: takes the steps of plans as the API server would, and plays controllers, users and crashes.

mod looks;
mod pipelines;
mod questions;

pub use pipelines::Rule;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::core::ObjectMeta;

use crate::{
    api::{
        AppliedObject, AssessmentSpec, ControllerSpec, FINALIZER, LABEL_UPGRADE_STATE, NumaflowController,
        NumaflowControllerRollout, NumaflowControllerRolloutSpec, StrategySpec, UpgradeState, Wait,
        is_mark_of_isolated, isolated_instance, mark_of_isolated, mark_of_rollout,
    },
    controller::target::Target,
    definitions::{
        Definition, Footprint, Instance, Lookup, PermittedKinds, isolate, leader, lease_of_instance, render,
    },
    evidence::{Evidence, Look},
    live::{Live, ObjectId, Workload},
    manifest::{DesiredObject, Manifest, Part},
    numaflow::{Dependant, Dependants},
    plan::{About, Learned, Plan, Refusal, Step},
    rollout::{
        decide,
        resolve::{Question, Rival, resolve},
        snapshot::{Revision, Snapshot, state_of},
    },
    settings::Defaults,
};

type Copies = BTreeMap<(String, String, String), Result<Arc<Manifest>, String>>;

thread_local! {
    /// Isolated copies, each rendered once.
    static COPIES: std::cell::RefCell<Copies> = const { std::cell::RefCell::new(BTreeMap::new()) };
}

/// The modelled cluster, with one rollout in one namespace.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools)] // each switches something of the world on or off
pub struct Model {
    pub rollout: NumaflowControllerRollout,
    pub children: BTreeMap<String, NumaflowController>,
    pub revisions: Vec<Revision>,
    pub live: BTreeMap<ObjectId, Live>,
    pub definitions: BTreeMap<String, Arc<Definition>>,
    pub dependants: Dependants,
    pub rivals: Vec<Rival>,
    pub terminating: bool,
    pub gone: bool,
    /// Versions whose workloads never become available.
    pub broken: BTreeSet<String>,
    /// Objects that the server refuses, by content hash of the version's Deployment or any object name.
    pub refused: BTreeSet<String>,
    /// Objects that cannot be changed in place.
    pub immutable: BTreeSet<String>,
    /// Whether versions that are defined can be isolated.
    pub isolatable: bool,
    /// Pipelines, as drains see them.
    pub pipes: Vec<pipelines::Pipe>,
    /// ISB services of the instance without a name.
    pub isbs: BTreeMap<String, crate::numaflow::IsbEvidence>,
    /// Numaflow objects that the watches have not brought yet.
    pub unseen: Vec<Dependant>,
    /// Since when the process looks.
    pub watching_since: Timestamp,
    /// Whether leases and ISB services cannot be read.
    pub unreadable: bool,
    /// Whether ISB services cannot be read.
    pub isb_unreadable: bool,
    /// Versions none of whose pods ever takes the lease.
    pub leaderless: BTreeSet<String>,
    /// Until then an old process keeps every lease.
    pub lease_from: Timestamp,
    /// Leases, by name, with the pod that holds each.
    pub leases: BTreeMap<String, String>,
    pub now: Timestamp,
    pub log: Vec<String>,
    /// Reasons of the events told.
    pub events: Vec<&'static str>,
    next_uid: u64,
}

/// A definition text with a ConfigMap and so many Deployments.
pub fn text(version: &str, deployments: &[&str]) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: 'config{{{{ .InstanceSuffix }}}}'}}\ndata:\n  version: '{version}'\n  \
         controller-config.yaml: |\n    instance: \"{{{{ .InstanceID }}}}\"\n"
    );
    for name in deployments {
        text += &format!(
            "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: '{name}{{{{ .InstanceSuffix }}}}'}}\nspec: {{selector: \
             {{matchLabels: {{app: {name}}}}}, template: {{metadata: {{labels: {{app: {name}}}}}, spec: {{containers: [{{name: main, \
             image: 'numaflow:{version}'}}], volumes: [{{name: c, configMap: {{name: 'config{{{{ .InstanceSuffix }}}}'}}}}]}}}}}}\n"
        );
    }
    text
}

impl Model {
    /// Two good versions, one that never becomes available; a rollout at the first, judged for a minute after ten.
    pub fn new() -> Self {
        Self::with(false)
    }

    /// The same, whose versions can be isolated.
    pub fn isolatable() -> Self {
        Self::with(true)
    }

    pub fn with(isolatable: bool) -> Self {
        let mut model = Self {
            rollout: NumaflowControllerRollout {
                metadata: ObjectMeta {
                    name: Some("numaflow-controller".into()),
                    namespace: Some("team-a".into()),
                    uid: Some("abcdef0123456789".into()),
                    generation: Some(1),
                    ..ObjectMeta::default()
                },
                spec: NumaflowControllerRolloutSpec {
                    controller: ControllerSpec { version: "1.0".into(), instance_id: None },
                    strategy: Some(StrategySpec {
                        assessment: Some(AssessmentSpec {
                            deadline: Some(Wait::from("10m")),
                            window: Some(Wait::from("1m")),
                            interval: Some(Wait::from("1m")),
                        }),
                        ..StrategySpec::default()
                    }),
                    ..NumaflowControllerRolloutSpec::default()
                },
                status: None,
            },
            children: BTreeMap::new(),
            revisions: Vec::new(),
            live: BTreeMap::new(),
            definitions: BTreeMap::new(),
            dependants: Dependants::default(),
            rivals: Vec::new(),
            terminating: false,
            gone: false,
            broken: BTreeSet::from(["3.0-broken".to_owned()]),
            refused: BTreeSet::new(),
            immutable: BTreeSet::new(),
            isolatable,
            pipes: Vec::new(),
            isbs: BTreeMap::new(),
            unseen: Vec::new(),
            watching_since: Timestamp::MIN,
            unreadable: false,
            isb_unreadable: false,
            leaderless: BTreeSet::new(),
            lease_from: Timestamp::MIN,
            leases: BTreeMap::new(),
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            log: Vec::new(),
            events: Vec::new(),
            next_uid: 1,
        };
        model.define("1.0", &["numaflow-controller"]);
        model.define("2.0", &["numaflow-controller", "numaflow-server"]);
        model.define("3.0-broken", &["numaflow-controller"]);
        model
    }

    pub fn define(&mut self, version: &str, deployments: &[&str]) {
        self.define_text(version, &text(version, deployments));
    }

    pub fn define_text(&mut self, version: &str, text: &str) {
        let isolated = Some(self.isolatable);
        let definition =
            Definition { version: version.into(), full_spec: text.into(), isolated, leader_election: None };
        self.definitions.insert(version.into(), Arc::new(definition));
    }

    /// The user sets another version.
    pub fn set_version(&mut self, version: &str) {
        self.edit(|spec| spec.controller.version = version.into());
    }

    /// The user edits the spec.
    pub fn edit(&mut self, change: impl FnOnce(&mut NumaflowControllerRolloutSpec)) {
        let before = self.rollout.spec.clone();
        change(&mut self.rollout.spec);
        if self.rollout.spec != before {
            *self.rollout.metadata.generation.get_or_insert(0) += 1;
        }
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += SignedDuration::try_from(time).unwrap();
    }

    fn owner(&self) -> OwnerReference {
        OwnerReference {
            uid: self.rollout.metadata.uid.clone().unwrap(),
            controller: Some(true),
            ..OwnerReference::default()
        }
    }

    fn uid(&mut self) -> String {
        self.next_uid += 1;
        format!("uid-{}", self.next_uid)
    }

    fn render(definition: &Arc<Definition>, instance: &str) -> Result<Arc<Manifest>, String> {
        type Rendered = BTreeMap<(String, String, Option<bool>), Result<Arc<Manifest>, String>>;
        thread_local!(static KNOWN: std::cell::RefCell<Rendered> = const { std::cell::RefCell::new(BTreeMap::new()) });
        let key = (definition.full_spec.clone(), instance.to_owned(), definition.leader_election);
        KNOWN.with_borrow_mut(|known| {
            known
                .entry(key)
                .or_insert_with(|| {
                    render(definition, &Instance::production(instance), &PermittedKinds::default())
                        .map(|r| {
                            let leader = leader(definition, &r.objects);
                            Arc::new(Manifest::new(r, leader))
                        })
                        .map_err(|e| e.to_string())
                })
                .clone()
        })
    }

    /// The isolated copy that is asked for, as `observe` makes it.
    fn copy(
        &self,
        desired: Option<&Target>,
        manifests: &BTreeMap<(String, String), Result<Arc<Manifest>, String>>,
    ) -> Option<Result<Arc<Manifest>, String>> {
        let status = self.rollout.status.as_ref()?;
        let (definition, child, uid) = match &status.upgrade {
            Some(upgrade) if upgrade.stage != "Verify" => return None,
            Some(upgrade) => {
                let uid = self.children.get(&upgrade.name)?.metadata.uid.clone()?;
                let pinned = self.revisions.iter().find(|r| r.name == upgrade.revision);
                (pinned.and_then(|r| r.definition.clone()), upgrade.name.clone(), uid)
            }
            None if status.promoted.is_none() => return None,
            None => (Some(desired?.definition.clone()), "none".to_owned(), "0".to_owned()),
        };
        let Some(definition) = definition else { return Some(Err("its revision is missing".to_owned())) };
        let mut footprint = Footprint::default();
        let production = manifests.values().filter_map(|m| m.as_ref().ok()).chain(desired.map(|t| &t.manifest));
        for object in production.flat_map(|m| &m.objects) {
            footprint.add(&object.id.group, &object.id.kind, &object.id.name, object.body());
        }
        let id = isolated_instance(&uid);
        let what = format!("{:?} {:?} {child} {uid}", definition.isolated, definition.leader_election);
        let key = (definition.full_spec.clone(), what, footprint.fingerprint());
        let make = || {
            let made = isolate(&definition, &id, &PermittedKinds::default(), &footprint).map_err(|e| e.to_string());
            made.map(|rendered| {
                let leader = leader(&definition, &rendered.objects);
                Arc::new(Manifest::isolated(rendered, leader, &child, &uid))
            })
        };
        Some(COPIES.with_borrow_mut(|known| known.entry(key).or_insert_with(make).clone()))
    }

    pub fn snapshot(&self, learned: &Learned) -> Snapshot {
        let version = &self.rollout.spec.controller.version;
        let lookup = match self.definitions.get(version) {
            Some(definition) => Lookup::Found(definition.clone()),
            None => Lookup::Missing {
                defined: self.definitions.keys().cloned().collect(),
                looked_at: vec!["numaplane-system/definitions".into()],
                nearest: None,
            },
        };
        let mut revisions = self.revisions.clone();
        revisions.sort_by_key(|r| std::cmp::Reverse(r.number));
        let desired = resolve(&Question {
            rollout: &self.rollout,
            field: "spec.controller",
            lookup,
            revisions: &revisions,
            rivals: &self.rivals,
            render: &Self::render,
        });
        let status = self.rollout.status.clone().unwrap_or_default();
        let mut used: Vec<(String, String, String, Option<String>)> = Vec::new();
        used.extend(status.promoted.map(|p| (p.revision, p.version, p.instance_id, Some(p.definition_hash))));
        used.extend(status.upgrade.map(|u| (u.revision, u.version, u.instance_id, Some(u.definition_hash))));
        for child in self.children.values() {
            let spec = child.spec.clone();
            used.extend(spec.revision.map(|r| (r, spec.version, spec.instance_id.unwrap_or_default(), None)));
        }
        let mut manifests = BTreeMap::new();
        for (revision, version, instance, hash) in used {
            let pinned = revisions.iter().find(|r| r.name == revision).and_then(|r| r.definition.clone());
            let manifest = match pinned {
                Some(definition) => Self::render(&definition, &instance),
                None => self
                    .definitions
                    .get(&version)
                    .and_then(|definition| Self::render(definition, &instance).ok())
                    .filter(|found| hash.as_ref() == Some(&found.hash))
                    .ok_or_else(|| format!("{revision} is missing")),
            };
            manifests.entry((revision, instance)).or_insert(manifest);
        }
        let copy = self.copy(desired.as_ref().ok(), &manifests);
        Snapshot {
            copy,
            watching_since: self.watching_since,
            rollout: Arc::new(self.rollout.clone()),
            namespace_terminating: self.terminating,
            children: self.children.values().cloned().map(Arc::new).collect(),
            foreign_children: BTreeSet::new(),
            desired,
            revisions,
            manifests,
            live: self.live.clone(),
            unwatched: BTreeSet::new(),
            elsewhere: BTreeSet::new(),
            dependants: self.dependants.clone(),
            pipelines: self.pipes.iter().map(|p| p.seen.clone()).collect(),
            isb_services: self.isbs.keys().map(|name| (name.clone(), String::new())).collect(),
            learned: learned.clone(),
        }
    }

    pub fn decide(&self, learned: &Learned) -> Plan {
        decide(&self.snapshot(learned), &Defaults::default(), self.now)
    }

    /// One turn, as the operator takes it; `steps` are carried out at the most, then the process dies. Returns how many
    /// were, and when to look again.
    pub fn turn(&mut self, steps: usize) -> (usize, Option<Duration>) {
        if steps != usize::MAX {
            // Another process goes on.
            self.watching_since = self.now;
        }
        let mut learned = Learned::default();
        let mut refused: Vec<Step> = Vec::new();
        let mut done = 0;
        for _ in 0..200 {
            if self.gone {
                return (done, None);
            }
            let plan = self.decide(&learned);
            if plan.steps.is_empty() {
                return (done, plan.again_after);
            }
            for step in &plan.steps {
                if refused.contains(step) {
                    return (done, None);
                }
                if done == steps {
                    return (done, None);
                }
                if let Err(refusal) = self.carry_out(step, &mut learned) {
                    learned.refusals.push(*refusal);
                    refused.push(step.clone());
                    break;
                }
                done += 1;
                self.check_invariants(step);
                if matches!(step, Step::WriteStatus { .. } | Step::WriteChildStatus { .. } | Step::SetFinalizers(_)) {
                    break;
                }
            }
        }
        panic!("no fixed point after 200 plans; the last steps: {:#?}", &self.log[self.log.len().saturating_sub(12)..]);
    }

    /// The steps that are decided while what has just happened was not seen yet, as the server takes them: each states what it
    /// expects, and the first that expects what is no longer so is answered with a conflict, after which everything is
    /// decided anew. (The operator's own writes are never unseen: their answers go into its stores.)
    pub fn turn_that_has_not_seen_it(&mut self, before: &Self) {
        let plan = before.decide(&Learned::default());
        let mut learned = Learned::default();
        for step in &plan.steps {
            if self.gone || !self.expects_what_is(step, before) {
                return;
            }
            self.next_uid = self.next_uid.max(before.next_uid);
            if self.carry_out(step, &mut learned).is_err() {
                return;
            }
            self.check_invariants(step);
        }
    }

    /// Whether what a step expects still holds.
    fn expects_what_is(&self, step: &Step, before: &Self) -> bool {
        let same_child = |name: &str| {
            let child = |model: &Self| serde_json::to_value(model.children.get(name)).unwrap();
            self.children.contains_key(name) && child(self) == child(before)
        };
        match step {
            Step::WriteStatus { .. } | Step::SetFinalizers(_) => self.rollout == before.rollout,
            Step::LabelChild { child, .. } | Step::WriteChildStatus { child, .. } => same_child(&child.name),
            Step::CreateChild { name, .. } => !self.children.contains_key(name),
            Step::Apply { object, uid } => self.live.get(&object.id).map(|l| &l.uid) == uid.as_ref(),
            Step::Recreate { object, uid, .. } => self.live.get(&object.id).is_some_and(|l| l.uid == *uid),
            Step::Prune { id, uid, .. } => self.live.get(id).is_some_and(|l| l.uid == *uid),
            _ => true,
        }
    }

    /// Turns until nothing is left to do now.
    pub fn settle(&mut self) {
        self.turn(usize::MAX);
    }

    /// Lets time pass until nothing changes any more. Each of five stages may take its deadline (ten minutes here, and Drain
    /// a little more), in the attempt under way and in the one after it; what goes on for longer is stuck.
    pub fn run(&mut self) {
        let mut idle = 0;
        let begun = self.now;
        while self.now.duration_since(begun) < SignedDuration::from_mins(2 * 5 * 11) {
            self.play_workloads();
            self.play_pipelines();
            self.collect_garbage();
            let before = self.rollout.status.clone();
            let (steps, again) = self.turn(usize::MAX);
            idle = if steps == 0 || self.rollout.status == before { idle + 1 } else { 0 };
            if idle > 3 && self.phase() != "Pending" {
                // It only looks again at what no watch tells.
                return;
            }
            match again {
                Some(wait) => self.pass(wait + Duration::from_secs(1)),
                None if steps == 0 => return,
                None => self.pass(Duration::from_secs(1)),
            }
        }
        panic!("nothing settles: {:?}", self.rollout.status);
    }

    /// The garbage collector does its part: what belongs to a child that is gone goes.
    fn collect_garbage(&mut self) {
        let marks: BTreeSet<String> = self.children.keys().map(|name| mark_of_isolated(name)).collect();
        self.live.retain(|_, l| l.tracking.as_ref().is_none_or(|m| !is_mark_of_isolated(m) || marks.contains(m)));
    }

    /// Controllers do their part: workloads of good versions become available.
    pub fn play_workloads(&mut self) {
        let broken = self.broken.clone();
        for live in self.live.values_mut() {
            if let Some(workload) = &mut live.workload {
                let stuck = live.applied.as_ref().is_some_and(|hash| broken.contains(hash));
                *workload = if stuck {
                    Workload {
                        generation: 2,
                        observed_generation: 2,
                        desired: 1,
                        total: 2,
                        updated: 1,
                        available: 1,
                        trouble: None,
                    }
                } else {
                    Workload {
                        generation: 2,
                        observed_generation: 2,
                        desired: 1,
                        total: 1,
                        updated: 1,
                        available: 1,
                        trouble: None,
                    }
                };
            }
        }
    }

    fn is_refused(&self, object: &DesiredObject) -> bool {
        self.refused.contains(&object.id.name) || self.refused.iter().any(|v| object.body().to_string().contains(v))
    }

    fn carry_out(&mut self, step: &Step, learned: &mut Learned) -> Result<(), Box<Refusal>> {
        self.log.push(format!("{step:?}").chars().take(160).collect());
        match step {
            Step::SetFinalizers(all) => {
                self.rollout.metadata.finalizers = Some(all.clone());
                self.gone = self.rollout.metadata.deletion_timestamp.is_some() && all.is_empty();
            }
            Step::WriteStatus { status, events } => {
                self.events.extend(events.iter().map(|e| e.reason));
                let stored = serde_json::to_value(status).unwrap();
                let before = self.request();
                self.rollout.status = Some(serde_json::from_value(stored).unwrap());
                self.check_request(before.as_ref());
            }
            Step::ReadPin { .. } => {}
            Step::WritePipelineStatus { .. }
            | Step::ApplyNumaflow { .. }
            | Step::PatchNumaflow { .. }
            | Step::DeleteNumaflow { .. }
            | Step::LookAtPipeline { .. } => panic!("no step of a controller: {step:?}"),
            Step::AskDependants => {
                let mut now = self.dependants.clone();
                now.objects.extend(self.unseen.clone());
                learned.dependants = Some(now);
            }
            Step::Look(look) => {
                let seen = self.look(look);
                learned.looks.insert(look.clone(), seen);
            }
            Step::DeleteLease { instance } => {
                if self.live.keys().any(|id| id.kind == "Deployment" && id.name.ends_with(&format!("-{instance}"))) {
                    learned.living_copies.insert(instance.clone());
                } else {
                    self.leases.remove(&lease_of_instance(instance));
                    learned.deleted_leases.insert(instance.clone());
                }
            }
            Step::Pin(pin) => {
                let uid = self.uid();
                self.revisions.retain(|r| r.name != pin.name);
                self.revisions.push(Revision {
                    name: pin.name.clone(),
                    uid,
                    number: pin.number,
                    version: pin.definition.version.clone(),
                    definition: Some(pin.definition.clone()),
                    secret: None,
                });
            }
            Step::Check(objects) => {
                for object in objects {
                    if self.is_refused(object) {
                        return Err(refusal(object));
                    }
                    learned.checked.insert((object.id.clone(), object.hash.clone()));
                    if self.immutable.contains(&object.id.name) && self.live.contains_key(&object.id) {
                        learned.immutable.insert(object.id.clone());
                    }
                }
            }
            Step::CreateChild { name, spec, state } => {
                let mut child = NumaflowController::new(name, (**spec).clone());
                child.metadata.uid = Some(self.uid());
                child.metadata.labels =
                    Some(BTreeMap::from([(LABEL_UPGRADE_STATE.to_owned(), state.as_str().to_owned())]));
                child.metadata.owner_references = Some(vec![self.owner()]);
                assert!(self.children.insert(name.clone(), child).is_none(), "{name} exists");
            }
            Step::LabelChild { child, state } => {
                let owner = self.owner();
                let child = self.children.get_mut(&child.name).unwrap();
                child.metadata.owner_references = Some(vec![owner]);
                let labels = child.metadata.labels.get_or_insert_default();
                labels.insert(LABEL_UPGRADE_STATE.to_owned(), state.as_str().to_owned());
            }
            Step::WriteChildStatus { child, status } => {
                self.children.get_mut(&child.name).unwrap().status = Some((**status).clone());
            }
            Step::DeleteChild { child } => {
                self.children.remove(&child.name);
            }
            Step::Apply { object, uid } => self.apply(object, uid.as_ref(), learned)?,
            Step::Recreate { object, uid, .. } => {
                assert_eq!(self.live[&object.id].uid, *uid);
                self.live.remove(&object.id);
            }
            Step::Prune { id, uid, .. } => {
                assert_eq!(self.live[id].uid, *uid);
                self.live.remove(id);
                learned.pruned.insert(id.clone());
            }
            Step::DeleteRevision { name, .. } => self.revisions.retain(|r| r.name != *name),
            other => panic!("not a step of a rollout of controllers: {other:?}"),
        }
        Ok(())
    }

    fn apply(
        &mut self,
        object: &Arc<DesiredObject>,
        uid: Option<&String>,
        learned: &mut Learned,
    ) -> Result<(), Box<Refusal>> {
        if self.is_refused(object) {
            return Err(refusal(object));
        }
        let old = self.live.get(&object.id).cloned();
        if let (Some(old), true) = (&old, self.immutable.contains(&object.id.name))
            && old.applied.as_ref() != Some(&object.hash)
        {
            learned.immutable.insert(object.id.clone());
            return Ok(());
        }
        assert_eq!(old.as_ref().map(|l| &l.uid), uid, "{}: applied to another object than the one seen", object.id);
        if self.broken.iter().any(|v| object.body().to_string().contains(&format!("numaflow:{v}"))) {
            self.broken.insert(object.hash.clone());
        }
        if self.leaderless.iter().any(|v| object.body().to_string().contains(&format!("numaflow:{v}"))) {
            self.leaderless.insert(object.hash.clone());
        }
        let uid = old.as_ref().map_or_else(|| self.uid(), |l| l.uid.clone());
        let same = old.as_ref().is_some_and(|l| l.applied.as_ref() == Some(&object.hash));
        let fields = format!("fields of {}", object.hash);
        let workload = (object.id.kind == "Deployment").then(|| match &old {
            Some(Live { workload: Some(known), .. }) if same => known.clone(),
            _ => Workload { generation: 2, observed_generation: 1, ..Workload::default() },
        });
        let live = Live {
            id: object.id.clone(),
            uid: uid.clone(),
            resource_version: "1".into(),
            deleting: false,
            finalizers: Vec::new(),
            tracking: Some(object.mark(&mark_of_rollout("numaflow-controller"))),
            adoptable: false,
            controlled: false,
            applied: Some(object.hash.clone()),
            fields: fields.clone(),
            workload,
        };
        self.live.insert(object.id.clone(), live);
        let entry = AppliedObject {
            group: object.id.group.clone(),
            version: object.version.clone(),
            kind: object.id.kind.clone(),
            name: object.id.name.clone(),
            uid,
            hash: object.hash.clone(),
            fields,
        };
        match &object.part {
            Part::Production => learned.applied.push(entry),
            Part::Isolated { uid, .. } => learned.applied_copies.push((uid.clone(), entry)),
        }
        Ok(())
    }

    fn check_invariants(&self, step: &Step) {
        let promoted = self.children.values().filter(|c| state_of(c) == Some(UpgradeState::Promoted)).count();
        assert!(promoted <= 1, "two promoted children after {step:?}");
        let upgrading = self.children.values().filter(|c| state_of(c) == Some(UpgradeState::Upgrading)).count();
        assert!(upgrading <= 1, "two upgrading children after {step:?}");
        if let (Step::Apply { object, .. } | Step::Recreate { object, .. }, Some("Verify")) = (step, self.stage())
            && object.part == Part::Production
        {
            let promoted = self.rollout.status.as_ref().unwrap().promoted.clone().unwrap();
            let snapshot = self.snapshot(&Learned::default());
            let manifest = snapshot.manifest(&promoted.revision, &promoted.instance_id).unwrap();
            assert!(manifest.objects.contains(object), "{} changed while another version proves itself", object.id);
        }
        if let Step::Prune { id, foreground: false, .. } = step
            && !id.name.contains("-x-")
            && self.rollout.metadata.deletion_timestamp.is_none()
        {
            // What takes the place of the pruned object is applied: every object that the child in production wants is
            // there with its content.
            let child = self.children.values().find(|c| state_of(c) == Some(UpgradeState::Promoted)).unwrap();
            let revision = child.spec.revision.as_ref().unwrap();
            let definition = self.revisions.iter().find(|r| r.name == *revision).unwrap().definition.clone().unwrap();
            let wanted = Self::render(&definition, child.spec.instance_id.as_deref().unwrap_or_default()).unwrap();
            for object in &wanted.objects {
                let there = self.live.get(&object.id).and_then(|l| l.applied.as_ref());
                assert_eq!(there, Some(&object.hash), "{id} pruned before {} was applied", object.id);
            }
        }
    }
}

fn refusal(object: &DesiredObject) -> Box<Refusal> {
    Box::new(Refusal {
        about: About::Object(object.id.clone(), object.hash.clone()),
        reason: "Forbidden".into(),
        message: format!("{}: exceeded quota", object.id),
    })
}
