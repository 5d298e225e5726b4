//! The pipeline that a rollout asks for, apart from its wanted phase and its grace period, which are steered. Pure.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    api::{LABEL_ISB, LABEL_ISB_CHILD, PipelineRollout, label_value},
    numaflow::isb_of,
    wrapped::{PIPELINE, Wanted, take_phase},
};

/// Seconds that a pipeline may take to drain when it is deleted, where its user does not say. Numaflow's own default does not
/// reach an object without a schema.
const DELETION_GRACE: i64 = 30;

/// What a pipeline should be like.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// All but its wanted phase and the grace period of pauses.
    pub wanted: Wanted,
    /// The wanted phase, as the user writes it; absent where the user does not say.
    pub phase: Option<String>,
    /// The grace period of pauses in seconds, where the user says one.
    pub grace: Option<i64>,
    /// The ISBServiceRollout that says which ISB service it is on; absent where none does.
    pub isb_rollout: Option<String>,
}

/// Why it cannot be told what a pipeline should be like.
#[derive(Clone, Debug, PartialEq)]
pub enum Unclear {
    /// Its rollout cannot be read: a sentence that names the field and says what to do.
    Invalid(String),
    /// The ISB service that its spec names is not there: all but that, and what is waited for.
    Waiting(Box<Desired>, String),
}

/// The grace period of pauses that a rollout asks for, whatever else of its spec cannot be read.
pub(super) fn grace_of(rollout: &PipelineRollout) -> Option<i64> {
    rollout.spec.pipeline.spec.0["lifecycle"]["pauseGracePeriodSeconds"].as_i64().filter(|grace| *grace >= 0)
}

impl Desired {
    /// What a rollout asks for, for a pipeline of this name, on the ISB service of the name that its spec has. What is wrong with
    /// it [`crate::valid::pipeline`] says; what cannot be read counts as not said here.
    #[must_use]
    pub fn of(rollout: &PipelineRollout, name: &str) -> Self {
        let template = &rollout.spec.pipeline;
        let mut wanted = Wanted::of(PIPELINE, &rollout.metadata, template.metadata.as_ref(), &template.spec, name);
        let (phase, mut lifecycle) = take_phase(&mut wanted.spec);
        lifecycle.remove("pauseGracePeriodSeconds");
        let grace = grace_of(rollout);
        if lifecycle.get("deletionGracePeriodSeconds").is_none() && lifecycle.get("deleteGracePeriodSeconds").is_none()
        {
            lifecycle.insert("deletionGracePeriodSeconds".to_owned(), json!(DELETION_GRACE));
        }
        wanted.spec["lifecycle"] = Value::Object(lifecycle);
        let isb = label_value(isb_of(&wanted.spec));
        wanted.labels.insert(LABEL_ISB.to_owned(), isb.clone());
        wanted.labels.insert(LABEL_ISB_CHILD.to_owned(), isb);
        Self { wanted: wanted.hashed(), phase, grace, isb_rollout: None }
    }

    /// On this ISB service.
    #[must_use]
    pub fn on(mut self, service: &str) -> Self {
        // Where nothing is written, that may mean the same.
        if self.isb() != service {
            self.wanted.spec["interStepBufferServiceName"] = json!(service);
        }
        self.wanted.labels.insert(LABEL_ISB_CHILD.to_owned(), label_value(service));
        self.wanted = self.wanted.hashed();
        self
    }

    /// With vertices, edges and side inputs in the order in which a spec has the same ones already: it means nothing to
    /// Numaflow, and another one is no reason to write.
    #[must_use]
    pub fn arranged_like(mut self, there: &Value) -> Self {
        for (list, keys) in [("vertices", &["name"][..]), ("edges", &["from", "to"]), ("sideInputs", &["name"])] {
            let Some(old) = there[list].as_array() else { continue };
            let Some(new) = self.wanted.spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
            let key = |entry: &Value| -> Vec<Value> { keys.iter().map(|key| entry[*key].clone()).collect() };
            let place = |entry: &Value| old.iter().position(|known| key(known) == key(entry));
            let places: BTreeSet<usize> = new.iter().filter_map(place).collect();
            if places.len() == old.len() && old.len() == new.len() {
                new.sort_by_key(place);
            }
        }
        self.wanted = self.wanted.hashed();
        self
    }

    /// Whether the user wants it paused.
    #[must_use]
    pub fn wants_paused(&self) -> bool {
        self.phase.as_deref() == Some("Paused")
    }

    /// The ISB service that it is to use.
    #[must_use]
    pub fn isb(&self) -> &str {
        isb_of(&self.wanted.spec)
    }

    /// Instance of the controller that is to manage it.
    #[must_use]
    pub fn instance(&self) -> &str {
        self.wanted.instance()
    }

    /// The object to be applied, with the wanted phase and grace period that it is to have.
    #[must_use]
    pub fn body(&self, name: &str, phase: Option<&Value>, grace: Option<&Value>) -> Value {
        let mut body = self.wanted.body(name);
        for (key, value) in [("desiredPhase", phase), ("pauseGracePeriodSeconds", grace)] {
            if let Some(value) = value {
                body["spec"]["lifecycle"][key] = value.clone();
            }
        }
        body
    }

    /// Vertices that this one has and another spec has not, and whose scaling is disabled.
    #[must_use]
    pub fn added_unscaled(&self, other: &Value) -> Vec<String> {
        let name = |v: &Value| v["name"].as_str().unwrap_or_default().to_owned();
        let known: Vec<String> = other["vertices"].as_array().into_iter().flatten().map(name).collect();
        let vertices = self.wanted.spec["vertices"].as_array().into_iter().flatten();
        vertices.filter(|v| v["scale"]["disabled"] == true).map(name).filter(|n| !known.contains(n)).collect()
    }

    /// Fewest replicas of a vertex.
    #[must_use]
    pub fn least_replicas(&self, vertex: &str) -> i64 {
        let vertices = self.wanted.spec["vertices"].as_array().into_iter().flatten();
        let found = vertices.into_iter().find(|v| v["name"] == vertex);
        let scale = found.map_or(&Value::Null, |v| &v["scale"]);
        let most = scale["max"].as_i64().unwrap_or(i64::MAX);
        scale["min"].as_i64().unwrap_or(1).max(0).min(most)
    }
}
