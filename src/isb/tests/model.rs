//! A cluster with one ISBServiceRollout: its ISB services with their StatefulSets, the pipelines that use them, and an API
//! server that may refuse or not answer. Rules of conduct are checked at every write.

mod looks;
mod numaflow;
mod pipelines;
mod writes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

pub use self::{
    numaflow::Service,
    pipelines::{Pipe, Rule, State},
};
use crate::{
    api::{FINALIZER, IsbServiceRollout, IsbServiceRolloutStatus, Raw, Strategy, TemplateMetadata},
    changes::{Kind, Rules},
    isb::{decide, snapshot::Snapshot},
    pipeline::snapshot::Controller,
    plan::{Learned, NOT_KEPT, Plan, Refusal, Step},
    settings::Defaults,
};

/// Most decisions of a turn.
const LONGEST: usize = 40;

#[allow(clippy::struct_excessive_bools)] // each switches something of the world on or off
pub struct Model {
    pub now: Timestamp,
    pub rollout: IsbServiceRollout,
    /// It was let go: its finalizer is gone while it was being deleted.
    pub released: bool,
    pub services: BTreeMap<String, Service>,
    /// Names that somebody else has.
    pub foreign: BTreeSet<String>,
    pub pipes: BTreeMap<String, Pipe>,
    pub served: bool,
    pub unknown: Vec<String>,
    /// Instances whose controllers are being upgraded.
    pub upgrading: BTreeSet<String>,
    /// Instances whose controllers are gone.
    pub gone: BTreeSet<String>,
    /// Versions that the controllers know, where that can be read.
    pub versions: Option<Vec<&'static str>>,
    /// The rollout cannot be decoded: nobody looks at it, and its request does not count.
    pub undecodable: bool,
    /// StatefulSets cannot be read.
    pub unreadable: bool,
    pub strategy: Strategy,
    pub rules: Arc<Rules>,
    pub server: Server,
    /// Writes to ISB services, in words.
    pub writes: Vec<String>,
    /// Texts of events.
    pub events: Vec<String>,
    pub learned: Learned,
    made: u32,
    /// Turns in a row that ended without an answer.
    unanswered: u32,
}

/// How the API server is.
#[derive(Clone, Debug, Default)]
pub struct Server {
    /// It refuses an object that holds this text, with these words of its own.
    pub refuses: Option<String>,
    /// … and says yes when it is only asked.
    pub lies: bool,
    /// It refuses to delete services.
    pub keeps: bool,
    /// It refuses changes of single fields.
    pub rigid: bool,
    /// It answers no write of services; whether it carries them out all the same.
    pub silent: Option<bool>,
    /// So many writes meet somebody else's.
    pub conflicts: u32,
}

/// What came of a step.
pub enum Answer {
    Done,
    Refused(Refusal),
    Silent(Refusal),
    Conflict,
}

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// A spec of this version.
pub fn spec(version: &str) -> Value {
    json!({"jetstream": {
        "version": version, "replicas": 3, "settings": "max_payload: 1", "persistence": {"volumeSize": "1Gi"},
        "containerTemplate": {"resources": {"requests": {"cpu": "1"}}},
    }})
}

impl Model {
    pub fn new() -> Self {
        let mut rollout = IsbServiceRollout::default();
        rollout.metadata.name = Some("isb".into());
        rollout.metadata.namespace = Some("team".into());
        rollout.metadata.uid = Some("u".into());
        rollout.metadata.generation = Some(1);
        rollout.spec.inter_step_buffer_service.spec = Raw(spec("2.10"));
        Self {
            now: at(0),
            rollout,
            released: false,
            services: BTreeMap::new(),
            foreign: BTreeSet::new(),
            pipes: BTreeMap::new(),
            served: true,
            unknown: Vec::new(),
            upgrading: BTreeSet::new(),
            gone: BTreeSet::new(),
            versions: Some(vec!["2.10", "2.12", "2.14", "sick", "failing"]),
            undecodable: false,
            unreadable: false,
            strategy: Strategy::Progressive,
            rules: Arc::new(Rules::built_in(Kind::InterStepBufferService)),
            server: Server::default(),
            writes: Vec::new(),
            events: Vec::new(),
            learned: Learned::default(),
            made: 0,
            unanswered: 0,
        }
    }

    /// One that is deployed, with pipelines that answer so; the first is called `p0`.
    pub fn deployed(rules: &[Rule]) -> Self {
        let mut model = Self::new();
        model.settle();
        for (n, rule) in rules.iter().enumerate() {
            model.pipe(&format!("p{n}"), *rule);
        }
        model.settle();
        assert_eq!(model.phase(), "Deployed", "{}", model.message());
        model.writes.clear();
        model
    }

    // ---- what is said -------------------------------------------------------------------------------------------

    pub fn status(&self) -> IsbServiceRolloutStatus {
        self.rollout.status.clone().unwrap_or_default()
    }

    pub fn phase(&self) -> String {
        self.status().phase.as_str().to_owned()
    }

    pub fn message(&self) -> String {
        self.status().message
    }

    /// The stage of the change that is under way; empty at rest.
    pub fn stage(&self) -> String {
        self.status().change.map(|c| c.stage).unwrap_or_default()
    }

    pub fn asks(&self) -> bool {
        self.status().pause_request.is_some_and(|r| r.active)
    }

    pub fn child(&self) -> String {
        self.status().child
    }

    /// Version of the service in use.
    pub fn version(&self) -> String {
        self.service(&self.child()).version()
    }

    pub fn service(&self, name: &str) -> &Service {
        self.services.get(name).unwrap_or_else(|| panic!("no service {name:?}: {:?}", self.services.keys()))
    }

    pub fn names(&self) -> Vec<&str> {
        self.services.keys().map(String::as_str).collect()
    }

    pub fn condition(&self, kind: &str) -> (String, String) {
        let found = self.status().conditions.into_iter().find(|c| c.type_ == kind);
        found.map(|c| (c.status, c.reason)).unwrap_or_default()
    }

    /// It ended as it should: what is asked for is in use, nobody is paused, and nothing is left.
    pub fn assert_good(&self) {
        let status = self.status();
        let told = || format!("{:?} {}: {:?} {:?}", status.phase, status.message, status.change, self.pipes);
        assert_eq!(status.phase.as_str(), "Deployed", "{}", told());
        assert!(status.change.is_none() && !self.asks(), "{}", told());
        assert_eq!(self.names(), [self.child()], "{}", told());
        assert!(self.is_healthy(&self.child()), "{}", told());
        assert_eq!(self.service(&self.child()).spec, self.rollout.spec.inter_step_buffer_service.spec.0);
        for pipe in self.pipes.values() {
            assert_eq!((pipe.state, &pipe.isb), (State::Running, &self.child()), "{}", told());
        }
    }

    // ---- users --------------------------------------------------------------------------------------------------

    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.rollout.spec.inter_step_buffer_service.spec.0);
        self.next_generation();
    }

    pub fn next_generation(&mut self) {
        *self.rollout.metadata.generation.as_mut().unwrap() += 1;
    }

    pub fn set_version(&mut self, version: &str) {
        self.edit(|spec| spec["jetstream"]["version"] = json!(version));
    }

    /// A change that needs another service.
    pub fn set_volume(&mut self, size: &str) {
        self.edit(|spec| spec["jetstream"]["persistence"]["volumeSize"] = json!(size));
    }

    /// A change that needs nothing.
    pub fn set_cpu(&mut self, cpu: &str) {
        self.edit(|spec| spec["jetstream"]["containerTemplate"]["resources"]["requests"]["cpu"] = json!(cpu));
    }

    pub fn set_instance(&mut self, instance: &str) {
        let annotations = BTreeMap::from([(crate::api::ANNOTATION_INSTANCE.to_owned(), instance.to_owned())]);
        let metadata = TemplateMetadata { annotations, ..TemplateMetadata::default() };
        self.rollout.spec.inter_step_buffer_service.metadata = Some(metadata);
        self.next_generation();
    }

    /// `strategy.ppnd` and the deadline.
    pub fn manner(&mut self, ppnd: &Value, deadline: &str) {
        let strategy = json!({"ppnd": ppnd, "assessment": {"deadline": deadline}});
        self.rollout.spec.strategy = Some(serde_json::from_value(strategy).unwrap());
        self.next_generation();
    }

    pub fn annotate(&mut self, key: &str, value: &str) {
        let key = format!("numaplane.numaproj.io/{key}");
        self.rollout.metadata.annotations.get_or_insert_default().insert(key, value.to_owned());
    }

    pub fn delete(&mut self) {
        self.rollout.metadata.deletion_timestamp.get_or_insert(Time(self.now));
    }

    /// Somebody edits the status.
    pub fn meddle(&mut self, change: impl FnOnce(&mut IsbServiceRolloutStatus)) {
        let mut status = self.status();
        change(&mut status);
        self.rollout.status = Some(status);
    }

    // ---- time ---------------------------------------------------------------------------------------------------

    pub fn pass(&mut self, seconds: i64) {
        if seconds > 0 {
            // What is only so for a moment is over.
            self.wake();
        }
        self.now = self.now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
    }

    /// One pass of everybody but the operator.
    pub fn others(&mut self) {
        self.numaflow();
        self.play_pipelines();
    }

    /// Everybody takes turns, three seconds apart, until nobody has anything to do but wait for a time that is further away.
    pub fn settle(&mut self) {
        for _ in 0..60 {
            let before = self.picture();
            self.turn();
            self.others();
            self.pass(3);
            if before == self.picture() {
                return;
            }
        }
    }

    /// As [`Self::settle`], until the stage is this one.
    pub fn until(&mut self, stage: &str) {
        for _ in 0..400 {
            self.turn();
            if self.stage() == stage {
                return;
            }
            self.others();
            self.pass(2);
        }
        panic!("not in {stage}: {} {}: {}", self.stage(), self.phase(), self.message());
    }

    /// Minutes pass, with everybody taking turns.
    pub fn wait(&mut self, minutes: i64) {
        for _ in 0..minutes * 2 {
            self.settle();
            self.pass(30);
        }
        self.settle();
    }

    fn picture(&self) -> impl PartialEq + use<> {
        (self.rollout.clone(), self.services.clone(), self.pipes.clone(), self.released)
    }

    // ---- the operator -------------------------------------------------------------------------------------------

    pub fn snapshot(&self) -> Snapshot {
        let known = self.versions.iter().flatten();
        let versions: Vec<Value> = known.map(|v| json!({"version": v, "natsImage": format!("nats:{v}")})).collect();
        let told = Arc::new(json!({"jetstream": {"versions": versions}}));
        let instances = ["", "blue"].map(str::to_owned);
        Snapshot {
            rollout: Arc::new(self.rollout.clone()),
            namespace_terminating: false,
            children: self.services.iter().map(|(name, s)| (name.clone(), Arc::new(s.live(name)))).collect(),
            foreign_children: self.foreign.clone(),
            served: self.served,
            unknown: self.unknown.clone(),
            controllers: instances.clone().map(|i| (i.clone(), Controller { gone: self.gone.contains(&i) })).into(),
            settings: instances.into_iter().filter(|_| self.versions.is_some()).map(|i| (i, told.clone())).collect(),
            pipelines: self.pipelines_seen(),
            upgrading: self.upgrading.clone(),
            rules: self.rules.clone(),
            learned: self.learned.clone(),
        }
    }

    pub fn decide(&self) -> Plan {
        decide(&self.snapshot(), &Defaults { strategy: self.strategy, ..Defaults::default() }, self.now)
    }

    /// The operator's turn, to its end.
    pub fn turn(&mut self) -> Plan {
        self.turn_of(usize::MAX)
    }

    /// A turn that ends in a crash after so many writes: what was learned goes with the process.
    pub fn turn_of(&mut self, writes: usize) -> Plan {
        self.learned = Learned::default();
        let (mut refused, mut written): (Vec<Step>, Vec<Step>) = (Vec::new(), Vec::new());
        let mut left = writes;
        for _ in 0..LONGEST {
            let plan = self.decide();
            if self.undecodable || self.released || plan.steps.is_empty() {
                return plan;
            }
            for step in &plan.steps {
                if refused.contains(step) {
                    return plan;
                }
                let is_write = !matches!(step, Step::Look(_) | Step::CheckNumaflow { .. });
                if is_write && left == 0 {
                    return plan;
                }
                if written.iter().any(|before| step.repeats(before)) {
                    self.learned.refusals.push(not_kept(step));
                    refused.push(step.clone());
                    break;
                }
                left -= usize::from(is_write);
                match self.carry_out(step) {
                    Answer::Done => self.unanswered = 0,
                    Answer::Conflict => return plan,
                    Answer::Refused(refusal) => {
                        self.learned.refusals.push(refusal);
                        refused.push(step.clone());
                        break;
                    }
                    Answer::Silent(silence) => {
                        self.unanswered += 1;
                        let check = matches!(step, Step::CheckNumaflow { .. });
                        if (self.unanswered < 3 && !check) || !self.learned.silences.is_empty() {
                            return plan;
                        }
                        self.learned.silences.push(silence);
                        refused.push(step.clone());
                        break;
                    }
                }
                if step.is_of_numaflow() {
                    written.push(step.clone());
                }
                if step.changes_subject() {
                    break;
                }
            }
        }
        panic!("a turn has no end: {} {:?}", self.message(), self.decide());
    }

    fn is_held(&self) -> bool {
        self.rollout.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER)
    }
}

fn not_kept(step: &Step) -> Refusal {
    let about = match step {
        Step::PatchNumaflow { .. } => crate::plan::About::Steering,
        _ => crate::plan::About::Own,
    };
    Refusal { about, reason: NOT_KEPT.to_owned(), message: "changed back at once".to_owned() }
}
