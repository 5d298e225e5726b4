//! A cluster with one PipelineRollout, its pipeline, and Numaflow, which takes one pass at a time when it is told to. Rules of
//! conduct are checked at every write.

mod isb;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use crate::{
    api::{PipelineRollout, PipelineRolloutStatus, Raw, Strategy},
    drain::Scope,
    evidence::Evidence,
    live::Version,
    numaflow::{DataPlane, LiveObject, LivePipeline, Ownership, VertexPod, VertexSeen, isb_of},
    pipeline::{
        decide,
        snapshot::{Controller, IsbRollout, Request, Snapshot},
    },
    plan::{About, Learned, Plan, Refusal, Step},
    time::is_ahead,
};

/// How Numaflow is and what it is told of the data.
#[derive(Clone, Debug)]
pub struct Numaflow {
    pub alive: bool,
    /// Messages left.
    pub pending: bool,
    /// It never gets beyond Pausing, whatever the grace period.
    pub never_pauses: bool,
    /// Why it fails, other than by an invalid spec.
    pub fails: Option<String>,
}

#[allow(clippy::struct_excessive_bools)] // each switches something of the world on or off
pub struct Model {
    pub now: Timestamp,
    pub rollout: PipelineRollout,
    pub child: Option<LivePipeline>,
    pub vertices: Vec<VertexSeen>,
    pub pods: Vec<VertexPod>,
    pub numaflow: Numaflow,
    pub requests: Vec<Request>,
    pub unknown: Vec<String>,
    pub gone: bool,
    /// What the ISB service says.
    pub isb_healthy: bool,
    /// … and whether it is so.
    pub isb_rolled: bool,
    /// Whether the one called `default` is being deleted.
    pub isb_deleting: bool,
    /// How often writes to it are refused, and why.
    pub isb_refused: (u32, &'static str),
    pub strategy: Strategy,
    pub pipelines: usize,
    /// ISBServiceRollouts.
    pub isb_rollouts: BTreeMap<String, IsbRollout>,
    /// Names of the ISB services that there are.
    pub services: BTreeSet<String>,
    /// The image of their pods.
    pub isb_image: String,
    /// What the controllers are told about ISB services.
    pub settings: BTreeMap<String, Arc<Value>>,
    pub rules: Arc<crate::changes::Rules>,
    /// The server refuses a spec that holds this text.
    pub refuses: Option<String>,
    /// … and says yes when it is only asked.
    pub lies: bool,
    /// Writes to the pipeline, in words.
    pub writes: Vec<String>,
    /// Texts of events.
    pub events: Vec<String>,
    created: i64,
    pub learned: Learned,
    /// Applied by us: what is ours in the spec.
    ours: Option<Value>,
    pub foreign: Vec<Vec<String>>,
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// Makes a spec that is not valid to Numaflow, or makes it valid again: what versions of it disagree about is not refused.
pub fn unfit(spec: &mut Value, yes: bool) {
    spec["vertices"][2]["sink"] =
        if yes { json!({"retryStrategy": {"onFailure": "fallback"}}) } else { json!({"log": {}}) };
}

/// A spec with three vertices.
pub fn spec() -> Value {
    json!({"interStepBufferServiceName": "default", "vertices": [
        {"name": "in", "source": {"generator": {"rpu": 5}}},
        {"name": "cat", "udf": {"container": {"image": "cat:1"}}},
        {"name": "out", "sink": {"log": {}}},
    ], "edges": [{"from": "in", "to": "cat"}, {"from": "cat", "to": "out"}]})
}

impl Model {
    pub fn new() -> Self {
        let mut rollout = PipelineRollout::default();
        rollout.metadata.name = Some("p".into());
        rollout.metadata.namespace = Some("team".into());
        rollout.metadata.uid = Some("u".into());
        rollout.metadata.generation = Some(1);
        rollout.spec.pipeline.spec = Raw(spec());
        Self {
            now: at(0),
            rollout,
            child: None,
            vertices: Vec::new(),
            pods: Vec::new(),
            numaflow: Numaflow { alive: true, pending: false, never_pauses: false, fails: None },
            requests: Vec::new(),
            unknown: Vec::new(),
            gone: false,
            isb_healthy: true,
            isb_rolled: true,
            isb_deleting: false,
            isb_refused: (0, ""),
            strategy: Strategy::PauseAndDrain,
            pipelines: 1,
            isb_rollouts: BTreeMap::new(),
            services: ["default", "other"].map(str::to_owned).into(),
            isb_image: "nats:1".into(),
            settings: BTreeMap::new(),
            rules: super::rules(),
            refuses: None,
            lies: false,
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
        let mut model = Self::new();
        model.settle();
        assert_eq!(model.phase(), "Running", "{:?}", model.child);
        assert_eq!(model.status().phase.as_str(), "Deployed", "{}", model.status().message);
        model.writes.clear();
        model
    }

    pub fn status(&self) -> PipelineRolloutStatus {
        self.rollout.status.clone().unwrap_or_default()
    }

    pub fn live(&self) -> &LivePipeline {
        self.child.as_ref().expect("a pipeline")
    }

    pub fn phase(&self) -> &str {
        &self.live().phase
    }

    pub fn wants_paused(&self) -> bool {
        self.live().wants_paused()
    }

    pub fn condition(&self, kind: &str) -> (String, String) {
        let found = self.status().conditions.into_iter().find(|c| c.type_ == kind);
        found.map(|c| (c.status, c.reason)).unwrap_or_default()
    }

    // ---- users and others ---------------------------------------------------------------------------------------

    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.rollout.spec.pipeline.spec.0);
        *self.rollout.metadata.generation.as_mut().unwrap() += 1;
    }

    pub fn image(&mut self, image: &str) {
        self.edit(|spec| spec["vertices"][1]["udf"]["container"]["image"] = json!(image));
    }

    pub fn ppnd(&mut self, ppnd: &Value) {
        let strategy = json!({"ppnd": ppnd});
        self.rollout.spec.strategy = Some(serde_json::from_value(strategy).unwrap());
    }

    pub fn annotate(&mut self, key: &str, value: &str) {
        let key = format!("numaplane.numaproj.io/{key}");
        self.rollout.metadata.annotations.get_or_insert_default().insert(key, value.to_owned());
    }

    pub fn request(&mut self, timeout: Option<u64>) {
        self.requests = vec![Request {
            by: "NumaflowControllerRollout/c".into(),
            attempt: "c-4".into(),
            scope: Scope::Instance(String::new()),
            since: Some(self.now),
            timeout: timeout.map(Duration::from_secs),
            cut: false,
            changing: false,
        }];
    }

    /// What the pipeline answers to the one request.
    pub fn answer(&self) -> (String, Option<bool>, String) {
        self.status().pause_requests.first().map(|a| (a.answer.clone(), a.drained, a.why.clone())).unwrap_or_default()
    }

    /// Somebody tells the pipeline another phase, behind the operator's back.
    pub fn meddle(&mut self, phase: Value) {
        let child = self.child.as_mut().expect("a pipeline");
        let mut spec = (*child.spec).clone();
        spec["lifecycle"]["desiredPhase"] = phase;
        child.spec = Arc::new(spec);
        child.generation += 1;
        self.own();
    }

    /// Somebody changes fields of the pipeline, which are theirs from then on.
    pub fn tamper(&mut self, change: impl FnOnce(&mut Value)) {
        let child = self.child.as_mut().expect("a pipeline");
        let mut spec = (*child.spec).clone();
        change(&mut spec);
        let ours = self.ours.as_mut().and_then(Value::as_object_mut).expect("applied");
        ours.retain(|field, value| spec[field.as_str()] == *value);
        (child.spec, child.generation) = (Arc::new(spec), child.generation + 1);
        self.own();
    }

    // ---- time ---------------------------------------------------------------------------------------------------

    pub fn pass_time(&mut self, seconds: i64) {
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    /// Operator and Numaflow take turns until neither has anything to do; time stands still but for a second at a time in
    /// which pods go.
    pub fn settle(&mut self) {
        for _ in 0..12 {
            let before = (self.child.clone(), self.rollout.status.clone(), self.pods.clone());
            self.turn();
            self.numaflow();
            if before == (self.child.clone(), self.rollout.status.clone(), self.pods.clone()) {
                break;
            }
        }
        self.turn();
    }

    /// The operator's turn, to its end.
    pub fn turn(&mut self) -> Plan {
        self.learned = Learned::default();
        let mut refused = Vec::new();
        for _ in 0..30 {
            let plan = decide(&self.snapshot(), self.now);
            if plan.steps.is_empty() || plan.steps.iter().any(|s| refused.contains(s)) {
                return plan;
            }
            for step in &plan.steps {
                if !self.carry_out(step) {
                    refused.push(step.clone());
                    break;
                }
                if matches!(step, Step::WritePipelineStatus { .. } | Step::SetFinalizers(_)) {
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
            if !done || !matches!(step, Step::LookAtPipeline { .. } | Step::Look(_) | Step::CheckNumaflow { .. }) {
                return;
            }
        }
    }

    pub fn snapshot(&self) -> Snapshot {
        let child = self.child.clone().map(|c| (c.version.name.clone(), Arc::new(c)));
        Snapshot {
            rollout: Arc::new(self.rollout.clone()),
            namespace_terminating: false,
            children: child.into_iter().collect(),
            foreign_children: BTreeSet::new(),
            served: true,
            requests: self.requests.clone(),
            unknown: self.unknown.clone(),
            controllers: BTreeMap::from([(String::new(), Controller { gone: self.gone })]),
            isb: self.services.iter().map(|name| (name.clone(), Arc::new(self.isb_service(name)))).collect(),
            isb_rollouts: self.isb_rollouts.clone(),
            settings: self.settings.clone(),
            pipelines: self.pipelines,
            strategy: self.strategy,
            rules: self.rules.clone(),
            learned: self.learned.clone(),
        }
    }

    fn refuse(&mut self, body: &Value, about: About) -> bool {
        let Some(text) = self.refuses.clone().filter(|text| body.to_string().contains(text)) else { return false };
        let message = format!("Pipeline/p-0: {text} is not allowed");
        self.learned.refusals.push(Refusal { about, reason: "Forbidden".into(), message });
        true
    }

    /// Whether it was carried out.
    pub fn carry_out(&mut self, step: &Step) -> bool {
        match step {
            Step::SetFinalizers(all) => self.rollout.metadata.finalizers = Some(all.clone()),
            Step::WritePipelineStatus { status, events } => {
                if let (Some(old), Some(new)) = (&self.status().pause, &status.pause)
                    && old.state != "Resuming"
                    && old.since.as_ref().is_some_and(|since| !is_ahead(since, self.now))
                {
                    assert_eq!(old.since, new.since, "the clock of a pause goes on");
                }
                self.rollout.status = Some((**status).clone());
                self.events.extend(events.iter().map(|e| format!("{}: {}", e.reason, e.note)));
            }
            Step::LookAtPipeline { name } => {
                let plane = DataPlane { vertices: self.vertices.clone(), pods: self.pods.clone(), unreadable: None };
                self.learned.planes.insert(name.clone(), plane);
            }
            Step::Look(look) => {
                let isb = self.services.iter().map(|name| (name.clone(), self.isb_evidence())).collect();
                self.learned.looks.insert(look.clone(), Evidence { isb, ..Evidence::default() });
            }
            Step::CheckNumaflow { body, expect, .. } => {
                if !self.lies && self.refuse(body, About::Own) {
                    return false;
                }
                let hash = body["metadata"]["annotations"][crate::live::ANNOTATION_APPLIED].as_str().unwrap();
                self.learned.planned.insert((expect.name.clone(), hash.to_owned()));
            }
            Step::ApplyNumaflow { body, expect, .. } => {
                if self.refuse(body, About::Own) {
                    return false;
                }
                self.apply(body, expect.as_ref());
            }
            Step::PatchNumaflow { kind: "Vertex", object, patch, .. } => {
                let vertex = self.vertices.iter_mut().find(|v| v.object == object.name).unwrap();
                vertex.replicas = patch["spec"]["replicas"].as_i64();
                self.learned.planes.clear();
            }
            Step::PatchNumaflow { kind: "InterStepBufferService", .. } => {
                if let Some(left) = self.isb_refused.0.checked_sub(1) {
                    self.isb_refused.0 = left;
                    let (about, reason) = (About::Steering, self.isb_refused.1.to_owned());
                    self.learned.refusals.push(Refusal { about, reason, message: "not now".to_owned() });
                    return false;
                }
                self.writes.push("wake the ISB service".into());
            }
            Step::PatchNumaflow { patch, .. } => self.patch(patch),
            Step::DeleteNumaflow { .. } => {
                self.may_go();
                self.writes.push("delete".into());
                self.child.as_mut().expect("a pipeline").deleting = true;
            }
            other => panic!("not a step about pipelines: {other:?}"),
        }
        true
    }

    fn apply(&mut self, body: &Value, expect: Option<&Version>) {
        let text = |map: &Value| -> BTreeMap<String, String> { serde_json::from_value(map.clone()).unwrap() };
        let (labels, annotations) = (text(&body["metadata"]["labels"]), text(&body["metadata"]["annotations"]));
        if expect.is_none() {
            assert!(self.child.is_none());
            self.may_use(isb_of(&body["spec"]));
            let name = body["metadata"]["name"].as_str().unwrap().to_owned();
            self.created += 1;
            self.writes.push(format!("create {name}"));
            let object = LiveObject {
                version: Version { name, uid: format!("c{}", self.created), resource_version: "1".into() },
                generation: 1,
                labels: labels.clone(),
                annotations: annotations.clone(),
                owner: Some(("PipelineRollout".into(), "p".into(), "u".into())),
                ..LiveObject::default()
            };
            self.child = Some(LivePipeline { object, drained: false });
        } else {
            let child = self.child.as_ref().unwrap();
            let on = self.ours.as_ref().map(|ours| ours.get("interStepBufferServiceName").unwrap_or(&Value::Null));
            let stays = on.is_none_or(|on| on.is_null() || *on == body["spec"]["interStepBufferServiceName"]);
            assert!(stays, "another ISB service in place: {body}");
            let changed = without_lifecycle(&child.spec) != without_lifecycle(&body["spec"]);
            // Changed vertices are told to pause at once while a pause is on its way, and never see what is left.
            // One that is not seen yet has begun nothing.
            let stands = Stands::of(child);
            let begun = stands.seen || stands.noted;
            let still = self.pods.is_empty() && self.vertices.iter().all(|v| v.paused);
            let pausing = stands.wants_pause && begun && !(stands.phase == "Paused" && still);
            let late = self.status().pause.is_some_and(|p| p.not_drained.contains("did not pause within"));
            assert!(
                !(changed && pausing && child.phase != "Failed" && !late),
                "changed during the pause: {} {child:?}",
                self.status().message
            );
            self.writes.push("apply".into());
        }
        let child = self.child.as_mut().unwrap();
        child.owner = Some(("PipelineRollout".into(), "p".into(), "u".into()));
        child.labels.extend(labels);
        child.annotations.extend(annotations);
        if *child.spec != body["spec"] && expect.is_some() {
            child.generation += 1;
        }
        child.spec = Arc::new(body["spec"].clone());
        self.ours = Some(body["spec"].clone());
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
        let child = self.child.as_mut().expect("a pipeline");
        let stands = Stands::of(child);
        let mut all =
            json!({"metadata": {"labels": child.labels, "annotations": child.annotations}, "spec": *child.spec});
        merge(&mut all, patch);
        let spec = all["spec"].clone();
        let after = spec["lifecycle"]["desiredPhase"] == "Paused";
        if stands.wants_pause != after {
            let unseen = self.gone && !stands.seen;
            assert!(stands.safe() || unseen, "a second change before the first was safe: {child:?}");
        }
        self.writes.push(format!("patch {patch}"));
        if *child.spec != spec {
            child.generation += 1;
        }
        child.spec = Arc::new(spec);
        child.labels = serde_json::from_value(all["metadata"]["labels"].clone()).unwrap();
        child.annotations = serde_json::from_value(all["metadata"]["annotations"].clone()).unwrap();
        if self.foreign.iter().any(|path| path.iter().try_fold(&*child.spec, |v, k| v.get(k)).is_none()) {
            self.foreign.clear();
        }
        self.own();
    }

    // ---- Numaflow -----------------------------------------------------------------------------------------------

    /// One pass of Numaflow over the pipeline.
    pub fn numaflow(&mut self) {
        let now = self.now;
        let Some(child) = self.child.as_mut().filter(|_| self.numaflow.alive) else { return };
        if child.deleting {
            (self.child, self.vertices, self.pods, self.ours) = (None, Vec::new(), Vec::new(), None);
            return;
        }
        // Pods of vertices that are told to pause go between two passes.
        let running: Vec<String> = self.vertices.iter().filter(|v| !v.paused).map(|v| v.name.clone()).collect();
        self.pods.retain(|pod| running.contains(&pod.name));
        let mut vertices = child.spec["vertices"].as_array().into_iter().flatten();
        let broken = vertices.any(|v| v["sink"]["retryStrategy"]["onFailure"] == "fallback");
        let fails = if broken { Some("there is no fallback".to_owned()) } else { self.numaflow.fails.clone() };
        let configured = if broken { "False" } else { "True" };
        child.conditions.insert("Configured".into(), (configured.into(), "x".into(), String::new()));
        if let Some(words) = fails {
            child.observed_generation = child.generation;
            child.phase = "Failed".into();
            child.message = words;
            return;
        }
        let lifecycle =
            child.wants_paused() || matches!(child.phase.as_str(), "Paused" | "Pausing") || child.paused_at().is_some();
        let names: Vec<String> = child.spec["vertices"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|v| v["name"].as_str().unwrap().to_owned())
            .collect();
        self.vertices.retain(|v| names.contains(&v.name));
        for name in &names {
            if !self.vertices.iter().any(|v| v.name == *name) {
                self.vertices.push(VertexSeen {
                    object: format!("p-0-{name}"),
                    uid: name.clone(),
                    name: name.clone(),
                    paused: lifecycle,
                    replicas: Some(i64::from(!lifecycle)),
                });
            }
        }
        child.message = String::new();
        if child.wants_paused() && child.phase != "Paused" {
            let Some(since) = child.paused_at().map(|t| t.parse::<Timestamp>().unwrap()) else {
                self.vertices.iter_mut().filter(|v| v.name == "in").for_each(|v| v.paused = true);
                let words = now.to_string();
                child.annotations.insert(crate::api::ANNOTATION_PAUSE_TIMESTAMP.into(), words);
                return;
            };
            child.observed_generation = child.generation;
            child.phase = "Pausing".into();
            let grace = SignedDuration::from_secs(child.grace().unwrap_or(30));
            let over = now.duration_since(since) > grace || grace.is_zero();
            if (!self.numaflow.pending || over) && !self.numaflow.never_pauses {
                self.vertices.iter_mut().for_each(|v| v.paused = true);
                child.drained = !self.numaflow.pending;
                child.phase = "Paused".into();
            }
            return;
        }
        if !child.wants_paused() && lifecycle && child.phase != "Running" {
            let slow = child.annotations.get(crate::api::ANNOTATION_RESUME).is_some_and(|manner| manner == "slow");
            self.vertices.iter_mut().for_each(|v| (v.paused, v.replicas) = (false, v.replicas.filter(|_| !slow)));
            child.drained = false;
            if child.annotations.remove(crate::api::ANNOTATION_PAUSE_TIMESTAMP).is_some() {
                // Written with the generation that was seen before.
                child.phase = "Running".into();
                return;
            }
        }
        child.observed_generation = child.generation;
        if !child.wants_paused() {
            child.phase = "Running".into();
        }
        let there: Vec<String> = self.pods.iter().map(|p| p.name.clone()).collect();
        let missing = self.vertices.iter().filter(|v| !v.paused && !there.contains(&v.name));
        self.pods.extend(
            missing
                .map(|v| VertexPod { name: v.name.clone(), phase: "Running".into(), goes_at: None })
                .collect::<Vec<_>>(),
        );
    }

    /// Times in status for stories that begin in the middle.
    pub fn stamp(&self) -> Time {
        Time(self.now)
    }
}

/// How a pipeline stands, read here and not by the functions that are tested: they decide by it, too.
struct Stands {
    wants_pause: bool,
    /// Numaflow has seen the spec.
    seen: bool,
    /// The time of a pause is noted.
    noted: bool,
    phase: String,
}

impl Stands {
    fn of(child: &LivePipeline) -> Self {
        Self {
            wants_pause: child.spec["lifecycle"]["desiredPhase"] == "Paused",
            seen: child.observed_generation == child.generation,
            noted: child.annotations.contains_key("numaflow.numaproj.io/pause-timestamp"),
            phase: child.phase.clone(),
        }
    }

    /// Whether it says of the spec that it has that it is where it is to be.
    fn says_so(&self) -> bool {
        self.seen && self.phase == if self.wants_pause { "Paused" } else { "Running" }
    }

    /// Whether the wanted phase may be changed: it is where it is to be, or says so and is wedged, or is on its way into a pause
    /// that is seen and noted, or failed, so that nothing is under way.
    fn safe(&self) -> bool {
        let pausing = self.wants_pause && self.phase == "Pausing" && self.noted;
        self.says_so() || (self.seen && (pausing || self.phase == "Failed"))
    }
}

fn without_lifecycle(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(map) = spec.as_object_mut() {
        map.remove("lifecycle");
    }
    spec
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
