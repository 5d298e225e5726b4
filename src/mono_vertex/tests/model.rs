//! A cluster with one MonoVertexRollout, its MonoVertex, and Numaflow, which takes one pass at a time when it is told to. Rules
//! of conduct are checked at every write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    api::{MonoVertexRollout, MonoVertexRolloutStatus, Raw, Strategy},
    changes::Rules,
    live::{ANNOTATION_APPLIED, Version},
    mono_vertex::{decide, snapshot::Snapshot},
    numaflow::{DataPlane, LiveMonoVertex, LiveObject, Ownership, VertexPod},
    pipeline::snapshot::Controller,
    plan::{About, Learned, NOT_KEPT, Plan, Refusal, Step},
};

/// A finalizer of nobody that is known here.
pub const FOREIGN: &str = "team/audit";

#[allow(clippy::struct_excessive_bools)] // each switches something of the world on or off
pub struct Model {
    pub now: Timestamp,
    pub rollout: MonoVertexRollout,
    pub child: Option<LiveMonoVertex>,
    pub pods: Vec<VertexPod>,
    /// Whether Numaflow looks.
    pub alive: bool,
    /// Whether it is certain that it does not.
    pub gone: bool,
    pub unknown: Vec<String>,
    pub strategy: Strategy,
    pub rules: Arc<Rules>,
    pub served: bool,
    pub terminating: bool,
    /// The pods cannot be listed.
    pub blind: bool,
    /// The server refuses a spec that holds this text.
    pub refuses: Option<String>,
    /// … and says yes when it is only asked.
    pub lies: bool,
    /// It refuses to have the wanted phase changed.
    pub refuses_phase: bool,
    /// A webhook fills a field in again whenever it is removed.
    pub fills_in: bool,
    /// Writes to the MonoVertex, in words.
    pub writes: Vec<String>,
    /// Texts of events.
    pub events: Vec<String>,
    created: i64,
    pub learned: Learned,
    /// Applied by us: what is ours in the spec.
    ours: Option<Value>,
    /// Where the fields are that somebody else has.
    foreign: Vec<Vec<String>>,
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// A source, a function and a sink.
pub fn spec() -> Value {
    json!({
        "source": {"generator": {"rpu": 5}}, "udf": {"container": {"image": "f:1"}}, "sink": {"log": {}},
        "scale": {"min": 2},
    })
}

impl Model {
    pub fn new() -> Self {
        let mut rollout = MonoVertexRollout::default();
        rollout.metadata.name = Some("m".into());
        rollout.metadata.namespace = Some("team".into());
        rollout.metadata.uid = Some("u".into());
        rollout.metadata.generation = Some(1);
        rollout.spec.mono_vertex.spec = Raw(spec());
        Self {
            now: at(0),
            rollout,
            child: None,
            pods: Vec::new(),
            alive: true,
            gone: false,
            unknown: Vec::new(),
            strategy: Strategy::PauseAndDrain,
            rules: super::built_in(),
            served: true,
            terminating: false,
            blind: false,
            refuses: None,
            lies: false,
            refuses_phase: false,
            fills_in: false,
            writes: Vec::new(),
            events: Vec::new(),
            created: 0,
            learned: Learned::default(),
            ours: None,
            foreign: Vec::new(),
        }
    }

    /// One that runs.
    pub fn running() -> Self {
        Self::running_with(|_| {})
    }

    /// One that runs with another spec.
    pub fn running_with(change: impl FnOnce(&mut Value)) -> Self {
        let mut model = Self::new();
        model.edit(change);
        model.settle();
        assert_eq!(model.phase(), "Running", "{:?}", model.child);
        assert_eq!(model.status().phase.as_str(), "Deployed", "{}", model.status().message);
        model.writes.clear();
        model
    }

    /// One that runs, where another source needs a pause and another sink a new one.
    pub fn with_lists() -> Self {
        let mut model = Self::running();
        model.rules = super::lists();
        model
    }

    pub fn status(&self) -> MonoVertexRolloutStatus {
        self.rollout.status.clone().unwrap_or_default()
    }

    pub fn live(&self) -> &LiveMonoVertex {
        self.child.as_ref().expect("a MonoVertex")
    }

    pub fn phase(&self) -> &str {
        &self.live().phase
    }

    /// Phase of the MonoVertex, phase of the rollout.
    pub fn stands(&self) -> (String, String) {
        (self.phase().to_owned(), self.status().phase.as_str().to_owned())
    }

    /// How the pause stands.
    pub fn pause(&self) -> String {
        self.status().pause.map(|p| p.state).unwrap_or_default()
    }

    pub fn condition(&self, kind: &str) -> (String, String) {
        let found = self.status().conditions.into_iter().find(|c| c.type_ == kind);
        found.map(|c| (c.status, c.reason)).unwrap_or_default()
    }

    pub fn replicas(&self) -> Option<i64> {
        self.live().spec["replicas"].as_i64()
    }

    // ---- users and others ---------------------------------------------------------------------------------------

    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.rollout.spec.mono_vertex.spec.0);
        *self.rollout.metadata.generation.as_mut().unwrap() += 1;
    }

    pub fn image(&mut self, image: &str) {
        self.edit(|spec| spec["udf"]["container"]["image"] = json!(image));
    }

    /// Another source: with the lists here, a change that needs a pause.
    pub fn source(&mut self, rpu: i64) {
        self.edit(|spec| spec["source"]["generator"]["rpu"] = json!(rpu));
    }

    pub fn want(&mut self, phase: &str) {
        self.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": phase}));
    }

    pub fn fast_resume(&mut self, fast: bool) {
        let strategy = json!({"pauseResume": {"fastResume": fast}});
        self.rollout.spec.strategy = Some(serde_json::from_value(strategy).unwrap());
    }

    pub fn annotate(&mut self, key: &str, value: &str) {
        let key = format!("numaplane.numaproj.io/{key}");
        self.rollout.metadata.annotations.get_or_insert_default().insert(key, value.to_owned());
    }

    /// Somebody changes the spec of the MonoVertex, behind the operator's back.
    pub fn meddle(&mut self, patch: &Value) {
        let child = self.child.as_mut().expect("a MonoVertex");
        let mut spec = (*child.spec).clone();
        merge(&mut spec, patch);
        if *child.spec == spec {
            return;
        }
        child.spec = Arc::new(spec);
        child.generation += 1;
        for key in patch.as_object().unwrap().keys().filter(|key| *key != "lifecycle") {
            if let Some(ours) = self.ours.as_mut().and_then(Value::as_object_mut) {
                ours.remove(key);
            }
            self.foreign.push(vec![key.clone()]);
        }
        self.own();
    }

    // ---- time ---------------------------------------------------------------------------------------------------

    pub fn pass_time(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    /// Pods that are told to go are gone.
    pub fn pods_go(&mut self) {
        self.pods.retain(|pod| pod.goes_at.is_none());
    }

    /// Operator, Numaflow and pods take turns until none has anything to do.
    pub fn settle(&mut self) {
        for _ in 0..12 {
            let before = (self.child.clone(), self.rollout.status.clone(), self.pods.clone());
            self.turn();
            self.numaflow();
            self.pods_go();
            if before == (self.child.clone(), self.rollout.status.clone(), self.pods.clone()) {
                break;
            }
        }
        self.turn();
    }

    /// The operator's turn, to its end.
    pub fn turn(&mut self) -> Plan {
        self.learned = Learned::default();
        let (mut refused, mut written) = (Vec::new(), Vec::<Step>::new());
        for _ in 0..30 {
            let plan = decide(&self.snapshot(), self.now);
            if plan.steps.is_empty() || plan.steps.iter().any(|s| refused.contains(s)) {
                return plan;
            }
            for step in &plan.steps {
                if written.iter().any(|before| step.repeats(before)) {
                    // As the operator notices it.
                    let (about, message) = (About::Steering, "it is changed back at once".to_owned());
                    self.learned.refusals.push(Refusal { about, reason: NOT_KEPT.into(), message });
                    refused.push(step.clone());
                    break;
                }
                written.extend(step.is_of_numaflow().then(|| step.clone()));
                if !self.carry_out(step) {
                    refused.push(step.clone());
                    break;
                }
                if matches!(step, Step::WriteMonoVertexStatus { .. } | Step::SetFinalizers(_)) {
                    break;
                }
            }
        }
        panic!("a turn has no end: {:?}", decide(&self.snapshot(), self.now));
    }

    /// One write of the operator, with the looks that it takes, as before a crash: what was learned goes with the process.
    pub fn step(&mut self) {
        self.learned = Learned::default();
        loop {
            let Some(step) = decide(&self.snapshot(), self.now).steps.first().cloned() else { return };
            let done = self.carry_out(&step);
            if !done || !matches!(step, Step::LookAtMonoVertex { .. } | Step::CheckNumaflow { .. }) {
                return;
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let child = self.child.clone().map(|c| (c.version.name.clone(), Arc::new(c)));
        Snapshot {
            rollout: Arc::new(self.rollout.clone()),
            namespace_terminating: self.terminating,
            children: child.into_iter().collect(),
            foreign_children: BTreeSet::new(),
            served: self.served,
            unknown: self.unknown.clone(),
            controllers: BTreeMap::from([(String::new(), Controller { gone: self.gone })]),
            strategy: self.strategy,
            rules: self.rules.clone(),
            learned: self.learned.clone(),
        }
    }

    fn refuse(&mut self, about: About, what: &str) -> bool {
        let message = format!("MonoVertex/m-0: {what} is not allowed");
        self.learned.refusals.push(Refusal { about, reason: "Forbidden".into(), message });
        false
    }

    /// Whether it was carried out.
    fn carry_out(&mut self, step: &Step) -> bool {
        let refused = |body: &Value| self.refuses.clone().filter(|text| body.to_string().contains(text));
        match step {
            Step::SetFinalizers(all) => self.rollout.metadata.finalizers = Some(all.clone()),
            Step::WriteMonoVertexStatus { status, events } => {
                self.check_status(status);
                self.rollout.status = Some((**status).clone());
                self.events.extend(events.iter().map(|e| format!("{}: {}", e.reason, e.note)));
            }
            Step::LookAtMonoVertex { name } => {
                let unreadable = self.blind.then(|| "pods: no answer".to_owned());
                let pods = if self.blind { Vec::new() } else { self.pods.clone() };
                self.learned.planes.insert(name.clone(), DataPlane { pods, unreadable, ..DataPlane::default() });
            }
            Step::CheckNumaflow { body, expect, .. } => {
                if let Some(text) = refused(body).filter(|_| !self.lies) {
                    return self.refuse(About::Own, &text);
                }
                let hash = body["metadata"]["annotations"][ANNOTATION_APPLIED].as_str().unwrap();
                self.learned.planned.insert((expect.name.clone(), hash.to_owned()));
            }
            Step::ApplyNumaflow { body, expect, .. } => {
                if let Some(text) = refused(body) {
                    return self.refuse(About::Own, &text);
                }
                self.apply(body, expect.as_ref());
            }
            Step::PatchNumaflow { patch, .. } => {
                if self.refuses_phase && patch["spec"]["lifecycle"].get("desiredPhase").is_some() {
                    return self.refuse(About::Steering, "another phase");
                }
                self.patch(patch);
            }
            Step::DeleteNumaflow { .. } => {
                self.writes.push("delete".into());
                let child = self.child.as_mut().expect("a MonoVertex");
                child.deleting = true;
                if child.finalizers.is_empty() {
                    (self.child, self.ours) = (None, None);
                    self.foreign.clear();
                    let goes_at = Some(self.now);
                    self.pods.iter_mut().for_each(|pod| pod.goes_at = goes_at);
                }
            }
            other => panic!("not a step about MonoVertices: {other:?}"),
        }
        true
    }

    /// Nobody is told that it is paused while a pod works.
    fn check_status(&self, status: &MonoVertexRolloutStatus) {
        let was = self.pause();
        if status.pause.as_ref().is_some_and(|p| p.state == "Paused") && was != "Paused" {
            let lost = |pod: &&VertexPod| pod.goes_at.is_some_and(|at| self.now.duration_since(at).as_secs() > 60);
            let works: Vec<_> = self.pods.iter().filter(|pod| !lost(pod) && pod.phase == "Running").collect();
            assert!(works.is_empty(), "said to be paused with {works:?}");
        }
    }

    fn apply(&mut self, body: &Value, expect: Option<&Version>) {
        let text = |map: &Value| -> BTreeMap<String, String> { serde_json::from_value(map.clone()).unwrap() };
        let (labels, annotations) = (text(&body["metadata"]["labels"]), text(&body["metadata"]["annotations"]));
        let owner = Some(("MonoVertexRollout".into(), "m".into(), "u".into()));
        if expect.is_none() {
            assert!(self.child.is_none());
            let name = body["metadata"]["name"].as_str().unwrap().to_owned();
            self.created += 1;
            self.writes.push(format!("create {name}"));
            let version = Version { name, uid: format!("c{}", self.created), resource_version: "1".into() };
            let object = LiveObject { version, spec: Arc::new(json!({})), ..LiveObject::default() };
            self.child = Some(LiveMonoVertex { object, rolling: false });
        } else {
            let waits = self.rules.data_loss.iter().any(|rule| rule.path == "spec.source");
            let changed = self.live().spec["source"] != body["spec"]["source"] && self.ours.is_some();
            let without = self.status().last_pause.is_some_and(|last| last.reason.contains("without a pause"));
            let excused =
                without || self.strategy == Strategy::NoStrategy || self.pause() == "Paused" || self.live().never_ran();
            assert!(!(waits && changed) || excused, "changed while it runs: {:?} {}", self.pods, self.status().message);
            self.writes.push("apply".into());
        }
        // What we had and leave out goes, what others have stays.
        let mut spec = (*self.live().spec).clone();
        let (wanted, map) = (body["spec"].as_object().unwrap(), spec.as_object_mut().unwrap());
        for key in self.ours.iter().filter_map(Value::as_object).flat_map(|ours| ours.keys()) {
            if !wanted.contains_key(key) {
                map.remove(key);
            }
        }
        map.extend(wanted.clone());
        self.foreign.retain(|path| !wanted.contains_key(&path[0]));
        self.ours = Some(body["spec"].clone());
        let child = self.child.as_mut().unwrap();
        (child.owner, child.labels) = (owner, labels);
        child.annotations.extend(annotations);
        child.generation += i64::from(*child.spec != spec);
        child.spec = Arc::new(spec);
        self.own();
    }

    fn own(&mut self) {
        let child = self.child.as_mut().unwrap();
        let phase = child.written_phase().is_some();
        child.ownership = Arc::new(Ownership {
            ours: self.ours.clone(),
            foreign: self.foreign.clone(),
            phase,
            ..Ownership::default()
        });
    }

    fn patch(&mut self, patch: &Value) {
        let turns = patch["spec"]["lifecycle"].get("desiredPhase").is_some();
        assert!(self.unknown.is_empty() || !turns, "turned while something is not known: {:?}", self.unknown);
        self.writes.push(format!("patch {patch}"));
        let child = self.child.as_mut().expect("a MonoVertex");
        let mut spec = (*child.spec).clone();
        merge(&mut spec, &patch["spec"]);
        if self.fills_in {
            spec["filled"] = json!(1);
        }
        child.generation += i64::from(*child.spec != spec);
        child.spec = Arc::new(spec);
        if let Some(ours) = self.ours.as_mut().and_then(Value::as_object_mut) {
            ours.retain(|key, _| child.spec.get(key).is_some());
        }
        let there = child.spec.clone();
        self.foreign.retain(|path| there.get(&path[0]).is_some());
        self.own();
    }

    // ---- Numaflow -----------------------------------------------------------------------------------------------

    /// One pass of Numaflow over the MonoVertex: a pause is all of it, and the pods are there for a while yet.
    pub fn numaflow(&mut self) {
        let now = self.now;
        let Some(child) = self.child.as_mut().filter(|child| self.alive && !child.deleting) else { return };
        child.observed_generation = child.generation;
        if child.spec["source"].as_object().is_none_or(serde_json::Map::is_empty) {
            (child.phase, child.message) = ("Failed".into(), "source is not defined".into());
            return;
        }
        let healthy = |reason: &str| ("True".to_owned(), reason.to_owned(), String::new());
        child.message = String::new();
        child.conditions.insert("DaemonHealthy".into(), healthy("Successful"));
        child.conditions.insert("PodsHealthy".into(), healthy("Running"));
        if child.spec["lifecycle"]["desiredPhase"] == "Paused" {
            child.phase = "Paused".into();
            self.pods.iter_mut().for_each(|pod| pod.goes_at = pod.goes_at.or(Some(now)));
            return;
        }
        child.phase = "Running".into();
        let image = child.spec["udf"]["container"]["image"].as_str().unwrap_or_default().to_owned();
        self.pods.iter_mut().filter(|pod| pod.name != image).for_each(|pod| pod.goes_at = pod.goes_at.or(Some(now)));
        if !self.pods.iter().any(|pod| pod.goes_at.is_none()) {
            self.pods.push(VertexPod { name: image, phase: "Running".into(), goes_at: None });
        }
    }
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let map = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}
