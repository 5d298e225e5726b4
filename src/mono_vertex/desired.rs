//! The MonoVertex that a rollout asks for, apart from its wanted phase, which is steered. Pure.

use serde_json::{Value, json};

use crate::{
    api::MonoVertexRollout,
    wrapped::{MONO_VERTEX, Wanted, take_phase},
};

/// What a MonoVertex should be like.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// All but its wanted phase and the number of replicas that an autoscaler has.
    pub wanted: Wanted,
    /// The wanted phase, as the user writes it; absent where the user does not say.
    pub phase: Option<String>,
    /// The number of replicas to begin with, where an autoscaler has it from then on.
    pub replicas: Option<Value>,
}

impl Desired {
    /// What a rollout asks for, for a MonoVertex of this name. What is wrong with it [`crate::valid::mono_vertex`] says; what cannot
    /// be read counts as not said here.
    #[must_use]
    pub fn of(rollout: &MonoVertexRollout, name: &str) -> Self {
        let template = &rollout.spec.mono_vertex;
        let mut wanted = Wanted::of(MONO_VERTEX, &rollout.metadata, template.metadata.as_ref(), &template.spec, name);
        let (phase, lifecycle) = take_phase(&mut wanted.spec);
        if !lifecycle.is_empty() {
            wanted.spec["lifecycle"] = Value::Object(lifecycle);
        }
        let replicas = wanted.spec.get("replicas").cloned().filter(Value::is_u64);
        let fixed = replicas.is_some() && is_unscaled(&wanted.spec);
        if let Some(spec) = wanted.spec.as_object_mut().filter(|_| !fixed) {
            spec.remove("replicas");
        }
        Self { wanted: wanted.hashed(), phase, replicas: replicas.filter(|_| !fixed) }
    }

    /// Instance of the controller that is to manage it.
    #[must_use]
    pub fn instance(&self) -> &str {
        self.wanted.instance()
    }

    /// Whether its user, and no autoscaler, says how many replicas it has.
    #[must_use]
    pub fn fixes_replicas(&self) -> bool {
        self.wanted.spec.get("replicas").is_some()
    }

    /// The object to be applied, with the wanted phase that it is to have and the number of replicas, where they are not its
    /// user's.
    #[must_use]
    pub fn body(&self, name: &str, phase: Option<&Value>, replicas: Option<&Value>) -> Value {
        let mut body = self.wanted.body(name);
        if let Some(phase) = phase {
            body["spec"]["lifecycle"]["desiredPhase"] = phase.clone();
        }
        if let Some(replicas) = replicas.filter(|_| !self.fixes_replicas()) {
            body["spec"]["replicas"] = json!(replicas);
        }
        body
    }
}

/// Whether no autoscaler of Numaflow's has a MonoVertex with this spec.
#[must_use]
pub fn is_unscaled(spec: &Value) -> bool {
    spec["scale"]["disabled"] == true
}
