//! The vertices of a pipeline: what is made of its spec, and one pass over a Vertex, which has pods.

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    kinds::{GROUP, Kind},
    knobs::{Knobs, PREFIX},
    pipeline::service_name,
    view::{
        After, Draft, HASH, PIPELINE_NAME, Pass, REPLICA, Seen, Step, VERTEX_NAME, generation, going, hash, inherited,
        instance, labels, list, number, owner, status, text,
    },
};

/// What a pod waits for before it goes, if it is to take its time.
pub const SLOW: &str = "stand-in.numaflow/terminates";

/// What a pipeline or vertex is to do: anything but Paused is Running.
pub fn desired(object: &DynamicObject) -> &'static str {
    if text(object, "/spec/lifecycle/desiredPhase") == "Paused" { "Paused" } else { "Running" }
}

/// Makes, changes and removes the vertices of a pipeline: the steps, and how the vertices are after them.
pub fn apply(pipeline: &DynamicObject, seen: &[Seen], lifecycle_change: bool) -> (Vec<Step>, Vec<DynamicObject>) {
    let (mut steps, mut after) = (Vec::new(), Vec::new());
    let wanted: Vec<DynamicObject> = list(pipeline, "/spec/vertices").iter().map(|v| vertex(pipeline, v)).collect();
    for mut new in wanted {
        let name = new.name_any();
        let Some(old) = seen.iter().find(|v| v.name_any() == name) else {
            let replicas = if lifecycle_change { 0 } else { clamped(&new) };
            new.data["spec"]["replicas"] = replicas.into();
            steps.push(Step::Create(Kind::Vertex, serde_json::to_value(&new).unwrap_or_default()));
            after.push(new);
            continue;
        };
        let mut old = old.as_ref().clone();
        if old.annotations().get(HASH) != new.annotations().get(HASH) {
            // All of the new spec at once, the wanted phase included; only the replicas stay.
            new.data["spec"]["replicas"] = old.data["spec"]["replicas"].clone();
            let spec = new.data["spec"].clone();
            let hash = new.annotations().get(HASH).cloned();
            let place = format!("/metadata/annotations/{}", HASH.replace('/', "~1"));
            let patch = json!([
                {"op": "replace", "path": "/spec", "value": spec},
                {"op": "add", "path": place, "value": hash},
            ]);
            steps.push(Step::Json(Kind::Vertex, name, patch));
            old.data["spec"] = spec;
        }
        after.push(old);
    }
    let kept = |old: &&Seen| after.iter().any(|new| new.name_any() == old.name_any());
    steps.extend(seen.iter().filter(|old| !kept(old)).map(|old| Step::Delete(Kind::Vertex, old.name_any())));
    (steps, after)
}

// It is written right here.
#[allow(clippy::expect_used)]
fn vertex(pipeline: &DynamicObject, vertex: &Value) -> DynamicObject {
    let (owner_name, name) = (pipeline.name_any(), vertex["name"].as_str().unwrap_or_default());
    let mut spec = vertex.clone();
    let edges = |end: &str| -> Value {
        list(pipeline, "/spec/edges").iter().filter(|edge| edge[end] == *name).cloned().collect::<Vec<_>>().into()
    };
    spec["pipelineName"] = owner_name.clone().into();
    spec["interStepBufferServiceName"] = service_name(pipeline).into();
    spec["toEdges"] = edges("from");
    spec["fromEdges"] = edges("to");
    let made_from = hash(&spec);
    spec["lifecycle"] = json!({"desiredPhase": desired(pipeline)});
    let mut annotations = inherited(pipeline);
    annotations.insert(HASH.to_owned(), made_from.into());
    let object = json!({
        "apiVersion": format!("{GROUP}/v1alpha1"),
        "kind": "Vertex",
        "metadata": {
            "name": format!("{owner_name}-{name}"),
            "annotations": annotations,
            "labels": labels("vertex", "pipeline-controller", &[(PIPELINE_NAME, &owner_name), (VERTEX_NAME, name)]),
            "ownerReferences": owner(Kind::Pipeline, pipeline),
        },
        "spec": spec,
    });
    serde_json::from_value(object).expect("a vertex")
}

/// The steps that set what some of the vertices are to do; without a count of replicas when they begin small.
pub fn set_desired(
    vertices: &[DynamicObject],
    which: impl Fn(&DynamicObject) -> bool,
    phase: &'static str,
    small: bool,
) -> Vec<Step> {
    let due = vertices.iter().filter(|v| which(v) && text(v, "/spec/lifecycle/desiredPhase") != phase);
    due.map(|v| {
        let mut patch = json!({"spec": {"lifecycle": {"desiredPhase": phase}}});
        if small {
            patch["spec"]["replicas"] = Value::Null;
        }
        Step::Merge(Kind::Vertex, v.name_any(), patch)
    })
    .collect()
}

/// One replica, as far as the scale allows it.
fn clamped(vertex: &DynamicObject) -> i64 {
    let min = number(vertex, "/spec/scale/min").unwrap_or(0);
    let max = number(vertex, "/spec/scale/max").unwrap_or(50);
    1.max(min).min(max)
}

/// What is seen in a pass over a vertex.
pub struct Look<'a> {
    /// The vertex.
    pub vertex: &'a DynamicObject,
    /// Its pods, including those that are going.
    pub pods: &'a [Seen],
    /// What is asked of its pipeline.
    pub knobs: &'a Knobs,
    /// The instance of the controller.
    pub instance: &'a str,
    /// The image of the controller, which runs beside everything that users have in their pods.
    pub image: &'a str,
    /// The time.
    pub now: Timestamp,
}

/// What is to be done about a vertex.
pub fn pass(look: &Look) -> Pass {
    let Look { vertex, pods, now, .. } = *look;
    if instance(vertex) != look.instance || look.knobs.silent || going(vertex) {
        return Pass::NOTHING;
    }
    let paused = desired(vertex) == "Paused";
    let fixed = vertex.data.pointer("/spec/scale/disabled") == Some(&Value::Bool(true));
    let set = number(vertex, "/spec/replicas");
    let mut steps = Vec::new();
    // What scales by itself does not stay without a pod, nor without a number.
    let scaled = (!paused && !fixed && set.unwrap_or_default() == 0).then(|| clamped(vertex));
    if let Some(replicas) = scaled.filter(|replicas| Some(*replicas) != set) {
        let patch = json!({"spec": {"replicas": replicas}});
        steps.push(Step::Merge(Kind::Vertex, vertex.name_any(), patch));
        // The next pass is about a vertex that has it.
        return Pass { steps, after: After::Rest };
    }
    let replicas = if paused { 0 } else { set.unwrap_or(1) };
    let made_from = hash(&json!([vertex.annotations().get(HASH), look.image]));
    let up_to_date = |pod: &&Seen| {
        let number = pod.annotations().get(REPLICA).and_then(|n| n.parse::<i64>().ok());
        !going(pod) && pod.annotations().get(HASH) == Some(&made_from) && number.is_some_and(|n| n < replicas)
    };
    for old in pods.iter().filter(|pod| !going(pod) && !up_to_date(pod)) {
        steps.extend(remove(old, look.knobs, now));
    }
    for n in 0..replicas {
        let is = |pod: &&Seen| pod.annotations().get(REPLICA) == Some(&n.to_string());
        if !pods.iter().filter(up_to_date).any(|pod| is(&pod)) {
            steps.push(Step::Create(Kind::Pod, pod(look, n, &made_from)));
        }
    }
    let mut draft = Draft::new(vertex, &[]);
    draft.phase(if paused { "Paused" } else { "Running" }, "");
    draft.set("replicas", replicas);
    draft.set("desiredReplicas", replicas);
    draft.set("readyReplicas", pods.iter().filter(|pod| is_ready(pod)).count());
    draft.set("reason", format!("{} pods", pods.len()));
    draft.set("selector", format!("{PIPELINE_NAME}={},{VERTEX_NAME}={}", pipeline_of(vertex), name_of(vertex)));
    // Written only when it says something new: a change of it is a reason to look at the pipeline.
    let mut new = draft.fields.clone();
    let mut old = status(vertex);
    old.remove("conditions");
    new.remove("conditions");
    if new != old {
        draft.condition("Deployed", true, "Successful", "");
        draft.condition("PodsHealthy", true, "Running", "");
        let written = draft.finish(generation(vertex), now);
        steps.push(Step::Status(Kind::Vertex, vertex.name_any(), written.into()));
    }
    Pass { steps, after: After::Rest }
}

/// The steps that delete a pod, which may have been asked to take its time.
pub fn remove(pod: &DynamicObject, knobs: &Knobs, now: Timestamp) -> Vec<Step> {
    let mut steps = Vec::new();
    if let Some(time) = knobs.terminates_after {
        let until = (now + time).to_string();
        let patch = json!({"metadata": {"finalizers": [SLOW], "annotations": {format!("{PREFIX}until"): until}}});
        steps.push(Step::Merge(Kind::Pod, pod.name_any(), patch));
    }
    steps.push(Step::Delete(Kind::Pod, pod.name_any()));
    steps
}

/// Whether a pod is ready; also one that is going can be.
pub fn is_ready(pod: &DynamicObject) -> bool {
    list(pod, "/status/conditions").iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// The pipeline of a vertex or of one of its pods.
pub fn pipeline_of(object: &DynamicObject) -> &str {
    object.labels().get(PIPELINE_NAME).map(String::as_str).unwrap_or_default()
}

/// What a vertex is called in its pipeline.
pub fn name_of(object: &DynamicObject) -> &str {
    object.labels().get(VERTEX_NAME).map(String::as_str).unwrap_or_default()
}

fn pod(look: &Look, number: i64, made_from: &str) -> Value {
    let vertex = look.vertex;
    // The same for the same vertex at the same generation, so that a pod that was not seen yet is not made twice.
    let random = hash(&json!([vertex.uid(), generation(vertex), number, made_from]));
    let mut annotations = inherited(vertex);
    annotations.insert(HASH.to_owned(), made_from.into());
    annotations.insert(REPLICA.to_owned(), number.to_string().into());
    annotations.extend(look.knobs.of_pods());
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{}-{number}-{}", vertex.name_any(), random.get(..5).unwrap_or_default()),
            "annotations": annotations,
            "labels": labels(
                "vertex", "vertex-controller", &[(PIPELINE_NAME, pipeline_of(vertex)), (VERTEX_NAME, name_of(vertex))],
            ),
            "ownerReferences": owner(Kind::Vertex, vertex),
        },
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "numa", "image": look.image, "args": ["processor"]}],
        },
    })
}
