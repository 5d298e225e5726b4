//! What objects of Numaflow say, taken out of their JSON; and what a pass over one of them comes to.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    kinds::{GROUP, Kind},
    knobs::{Knobs, knobs},
};

/// An object as it was seen.
pub type Seen = Arc<DynamicObject>;

/// When a pause began.
pub const PAUSE_TIMESTAMP: &str = "numaflow.numaproj.io/pause-timestamp";
/// What a child was made from.
pub const HASH: &str = "numaflow.numaproj.io/hash";
/// The instance that an object belongs to.
pub const INSTANCE: &str = "numaflow.numaproj.io/instance";
/// The pipeline of a vertex or pod.
pub const PIPELINE_NAME: &str = "numaflow.numaproj.io/pipeline-name";
/// The vertex of a pod.
pub const VERTEX_NAME: &str = "numaflow.numaproj.io/vertex-name";
/// The MonoVertex of a pod.
pub const MONO_VERTEX_NAME: &str = "numaflow.numaproj.io/mono-vertex-name";
/// Which of the replicas a pod is.
pub const REPLICA: &str = "numaflow.numaproj.io/replica";
/// The InterStepBufferService of a StatefulSet.
pub const SERVICE_NAME: &str = "numaflow.numaproj.io/isbsvc-name";

/// How long things take that a controller does.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Time between two looks at a pipeline that drains.
    pub tick: Duration,
    /// Time until what failed is tried again; doubled each time.
    pub retry: Duration,
    /// Longest such time.
    pub retry_limit: Duration,
    /// How long a daemon that hangs keeps the worker.
    pub hung: Duration,
    /// How long a new daemon takes until it answers.
    pub daemon: Duration,
    /// How long changes take until the controller sees them: it decides from what was so then.
    pub lag: Duration,
}

impl Pace {
    /// As it was measured of the real one.
    pub const REAL: Self = Self {
        tick: Duration::from_secs(10),
        retry: Duration::from_millis(5),
        retry_limit: Duration::from_secs(1000),
        hung: Duration::from_secs(20),
        daemon: Duration::from_millis(300),
        lag: Duration::from_millis(1),
    };
}

/// Something to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing, for so long; the worker is busy with it.
    Wait(Duration),
    /// Create an object.
    Create(Kind, Value),
    /// Change an object of this name by a merge patch.
    Merge(Kind, String, Value),
    /// Change an object of this name by a JSON patch.
    Json(Kind, String, Value),
    /// Apply an object.
    Apply(Kind, String, Value),
    /// Apply the status of an object.
    Status(Kind, String, Value),
    /// Apply the status that an object had when it was changed last in this pass, with these fields; null removes one.
    StatusAgain(Kind, String, Map<String, Value>),
    /// Delete an object.
    Delete(Kind, String),
}

/// What happens when all steps of a pass are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// Nothing until something changes.
    Rest,
    /// Another pass then, or when something changes.
    At(Timestamp),
    /// Another pass after a while that grows each time.
    Retry,
}

/// What a pass over an object comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// In this order.
    pub steps: Vec<Step>,
    /// And then.
    pub after: After,
}

impl Pass {
    /// There is nothing to do.
    pub const NOTHING: Self = Self { steps: Vec::new(), after: After::Rest };
}

/// A text at a place such as `/spec/lifecycle/desiredPhase`; empty if there is none.
pub fn text<'a>(object: &'a DynamicObject, place: &str) -> &'a str {
    object.data.pointer(place).and_then(Value::as_str).unwrap_or_default()
}

/// A number at a place.
pub fn number(object: &DynamicObject, place: &str) -> Option<i64> {
    object.data.pointer(place).and_then(Value::as_i64)
}

/// A list at a place; empty if there is none.
pub fn list<'a>(object: &'a DynamicObject, place: &str) -> &'a [Value] {
    object.data.pointer(place).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The status; empty if there is none.
pub fn status(object: &DynamicObject) -> Map<String, Value> {
    object.data.get("status").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// The instance that an object belongs to; the one without a name if it says nothing.
pub fn instance(object: &DynamicObject) -> &str {
    object.annotations().get(INSTANCE).map(String::as_str).unwrap_or_default()
}

/// What the annotations of an object ask for.
pub fn asked(object: &DynamicObject) -> Knobs {
    knobs(object.annotations())
}

/// The generation of an object.
pub fn generation(object: &DynamicObject) -> i64 {
    object.metadata.generation.unwrap_or_default()
}

/// Whether an object is being deleted.
pub fn going(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

/// A time as Kubernetes writes it: whole seconds.
pub fn written(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or_default().to_string()
}

/// What tells two values apart, short.
pub fn hash(value: &Value) -> String {
    Sha256::digest(value.to_string()).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The step that puts a finalizer on an object, or takes it away, if that is due.
pub fn finalizer(kind: Kind, object: &DynamicObject, name: &str, wanted: bool) -> Option<Step> {
    let mut all = object.finalizers().to_vec();
    if all.iter().any(|f| f == name) == wanted {
        return None;
    }
    all.retain(|f| f != name);
    if wanted {
        all.push(name.to_owned());
    }
    Some(Step::Merge(kind, object.name_any(), json!({"metadata": {"finalizers": all}})))
}

/// The reference from a child to its owner.
pub fn owner(kind: Kind, object: &DynamicObject) -> Value {
    let resource = kind.resource();
    json!([{
        "apiVersion": resource.api_version, "kind": resource.kind, "name": object.name_any(),
        "uid": object.uid().unwrap_or_default(), "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A condition that is being made: status, reason, message.
type Condition = (&'static str, String, String);

/// A status that is being made.
#[derive(Clone, Debug)]
pub struct Draft {
    /// All fields but the conditions.
    pub fields: Map<String, Value>,
    conditions: BTreeMap<&'static str, Condition>,
    /// Conditions that stay as they are, with their time, unless they are set to something else.
    kept: Vec<Value>,
}

impl Draft {
    /// Begins with the old status, and with conditions of which nothing is known.
    pub fn new(object: &DynamicObject, conditions: &[&'static str]) -> Self {
        let unknown = |name: &&'static str| (*name, ("Unknown", "Unknown".to_owned(), String::new()));
        let mut fields = status(object);
        fields.insert("observedGeneration".to_owned(), generation(object).into());
        Self { fields, conditions: conditions.iter().map(unknown).collect(), kept: Vec::new() }
    }

    /// Begins with the old status, its conditions included.
    pub fn keeping(object: &DynamicObject) -> Self {
        Self { kept: list(object, "/status/conditions").to_vec(), ..Self::new(object, &[]) }
    }

    /// Sets a field.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    /// What is set in a field.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// Sets phase and message.
    pub fn phase(&mut self, phase: &str, message: &str) {
        self.set("phase", phase);
        self.set("message", message);
    }

    /// Sets a condition.
    pub fn condition(&mut self, name: &'static str, is: bool, reason: &str, message: &str) {
        let word = if is { "True" } else { "False" };
        self.conditions.insert(name, (word, reason.to_owned(), message.to_owned()));
    }

    /// The status as it is written. Every condition that is not kept changes whenever there is a pass: so does the real
    /// one's.
    pub fn finish(mut self, generation: i64, now: Timestamp) -> Map<String, Value> {
        let (kept, set) = (&self.kept, &self.conditions);
        let one = |(name, (status, reason, message)): (&&str, &Condition)| {
            let same = kept
                .iter()
                .find(|k| k["type"] == **name && k["status"] == *status && k["reason"] == *reason)
                .filter(|k| k["message"] == *message);
            same.cloned().unwrap_or_else(|| {
                json!({
                    "type": name, "status": status, "reason": reason, "message": message,
                    "observedGeneration": generation, "lastTransitionTime": written(now),
                })
            })
        };
        let untouched = |old: &&Value| !set.keys().any(|name| old["type"] == *name);
        let mut all: Vec<Value> = set.iter().map(one).chain(kept.iter().filter(untouched).cloned()).collect();
        all.sort_by_key(|condition| condition["type"].as_str().map(str::to_owned));
        self.fields.insert("conditions".to_owned(), all.into());
        self.fields
    }
}

/// The annotation of the instance for a child, if its owner has one.
pub fn inherited(object: &DynamicObject) -> Map<String, Value> {
    let pair = |value: &String| (INSTANCE.to_owned(), Value::from(value.clone()));
    object.annotations().get(INSTANCE).map(pair).into_iter().collect()
}

/// The labels that every child has.
pub fn labels(component: &str, managed_by: &str, more: &[(&str, &str)]) -> Value {
    let mut all = json!({
        "app.kubernetes.io/part-of": "numaflow",
        "app.kubernetes.io/managed-by": managed_by,
        "app.kubernetes.io/component": component,
    });
    for (name, value) in more {
        all[*name] = Value::from(*value);
    }
    all
}

/// A name under [`GROUP`], as finalizers have it.
pub fn in_group(name: &str) -> String {
    format!("{GROUP}/{name}")
}
