//! One pass over a Pipeline: what Numaflow's controller would write for what it sees of it.

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Map, Value, json};

use super::{
    kinds::Kind,
    knobs::Wedge,
    lifecycle,
    vertices::{self, desired},
    view::{
        After, Draft, PAUSE_TIMESTAMP, Pace, Pass, Seen, Step, VERTEX_NAME, asked, finalizer, going, hash, in_group,
        instance, list, number, status, text, written,
    },
};

const CONDITIONS: [&str; 5] =
    ["Configured", "DaemonServiceHealthy", "Deployed", "SideInputsManagersHealthy", "VerticesHealthy"];

/// What is seen in a pass.
pub struct Look<'a> {
    /// The pipeline.
    pub pipeline: &'a DynamicObject,
    /// The InterStepBufferService that it names, if there is one.
    pub service: Option<&'a DynamicObject>,
    /// Its vertices.
    pub vertices: &'a [Seen],
    /// The pods of its vertices, including those that are going.
    pub pods: &'a [Seen],
    /// The instance of the controller.
    pub instance: &'a str,
    /// What the controller remembers.
    pub memory: &'a Memory,
    /// The time.
    pub now: Timestamp,
    /// How long things take.
    pub pace: &'a Pace,
}

/// What a controller remembers of a pipeline from one pass to the next. Lost with its process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// What the daemon was made from, and since when it answers.
    pub daemon: Option<(String, Timestamp)>,
    /// When its sources were paused, more exactly than the annotation says.
    pub paused_at: Option<Timestamp>,
    /// The generation at which it was wedged because that was asked for.
    pub wedged: Option<(i64, Wedge)>,
}

/// The InterStepBufferService that a pipeline uses.
pub fn service_name(pipeline: &DynamicObject) -> &str {
    match text(pipeline, "/spec/interStepBufferServiceName") {
        "" => "default",
        name => name,
    }
}

/// What is to be done about a pipeline, and what is remembered of it from then on.
pub fn pass(look: &Look) -> (Pass, Memory) {
    let Look { pipeline, now, .. } = *look;
    let mut memory = look.memory.clone();
    let knobs = asked(pipeline);
    if instance(pipeline) != look.instance || knobs.silent {
        return (Pass::NOTHING, memory);
    }
    if going(pipeline) {
        return (lifecycle::delete(look), memory);
    }
    let mut steps = Vec::new();
    steps.extend(finalizer(Kind::Pipeline, pipeline, &in_group("pipeline-controller"), true));
    let mut draft = Draft::new(pipeline, &CONDITIONS);
    let failed = |mut draft: Draft, mut steps: Vec<Step>, message: &str| {
        draft.phase("Failed", message);
        steps.push(write(look, finish(draft, look)));
        Pass { steps, after: After::Retry }
    };
    if let Some(message) = invalid(pipeline) {
        draft.condition("Configured", false, "InvalidSpec", &message);
        return (failed(draft, steps, &message), memory);
    }
    draft.condition("Configured", true, "Successful", "");
    counts(pipeline, &mut draft);
    if let Some(message) = knobs.fails.or_else(|| unusable(look)) {
        draft.condition("Deployed", false, "ReconcileFixedResourcesFailed", &message);
        return (failed(draft, steps, &message), memory);
    }
    let lifecycle_change = desired(pipeline) == "Paused"
        || matches!(text(pipeline, "/status/phase"), "Paused" | "Pausing")
        || pipeline.annotations().contains_key(PAUSE_TIMESTAMP);
    let (changes, vertices) = vertices::apply(pipeline, look.vertices, lifecycle_change);
    steps.extend(changes);
    let named = |pod: &&Seen| vertices.iter().any(|v| vertices::name_of(v) == vertices::name_of(pod));
    // What garbage collection does, sooner or later.
    let left = look.pods.iter().filter(|pod| !going(pod) && !named(pod));
    steps.extend(left.map(|pod| Step::Delete(Kind::Pod, pod.name_any())));
    draft.condition("Deployed", true, "Successful", "");
    if !lifecycle_change {
        draft.phase("Running", "");
    }

    let made_from = hash(&without_lifecycle(pipeline));
    if memory.daemon.as_ref().is_none_or(|(of, _)| *of != made_from) {
        memory.daemon = Some((made_from, now + look.pace.daemon));
    }
    let daemon_ready = memory.daemon.as_ref().map_or(now, |(_, ready)| *ready);
    health(look, daemon_ready <= now, &mut draft);

    let (more, mut after) = lifecycle::step(look, draft, &vertices, lifecycle_change, &mut memory);
    steps.extend(more);
    if daemon_ready > now {
        // Its Deployment changes then, which is a reason to look again.
        after = match after {
            After::At(at) => After::At(at.min(daemon_ready)),
            _ => After::At(daemon_ready),
        };
    }
    (Pass { steps, after }, memory)
}

/// The status of a draft.
pub fn finish(draft: Draft, look: &Look) -> Map<String, Value> {
    draft.finish(super::view::generation(look.pipeline), look.now)
}

/// The step that writes a status.
pub fn write(look: &Look, mut status: Map<String, Value>) -> Step {
    status.insert("lastUpdated".to_owned(), written(look.now).into());
    // What is false is left out, and goes when it was there.
    if status.get("drainedOnPause") == Some(&Value::Bool(false)) {
        status.remove("drainedOnPause");
    }
    Step::Status(Kind::Pipeline, look.pipeline.name_any(), status.into())
}

/// The spec as far as the daemon depends on it.
fn without_lifecycle(pipeline: &DynamicObject) -> Value {
    let mut spec = pipeline.data.get("spec").cloned().unwrap_or_default();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("lifecycle");
    }
    spec
}

/// Why a spec is not valid, if it is not.
fn invalid(pipeline: &DynamicObject) -> Option<String> {
    let (all, edges) = (list(pipeline, "/spec/vertices"), list(pipeline, "/spec/edges"));
    if all.is_empty() {
        return Some("empty vertices".to_owned());
    }
    if edges.is_empty() {
        return Some("no edges defined".to_owned());
    }
    let name = |v: &Value| v["name"].as_str().unwrap_or_default().to_owned();
    let mut names: Vec<String> = Vec::new();
    for vertex in all {
        let name = name(vertex);
        if name.is_empty() || names.contains(&name) {
            return Some(format!("duplicate or empty vertex name {name:?}"));
        }
        if ["source", "udf", "sink"].iter().filter(|part| vertex[**part].is_object()).count() != 1 {
            return Some(format!("invalid vertex {name:?}, it is to have one of source, udf and sink"));
        }
        let sink = &vertex["sink"];
        if sink["retryStrategy"]["onFailure"] == "fallback" && !sink["fallback"].is_object() {
            let words = "given OnFailure strategy is fallback but fallback sink is not provided";
            return Some(format!("invalid vertex {name:?}: {words}"));
        }
        names.push(name);
    }
    for part in ["source", "sink"] {
        if !all.iter().any(|v| v[part].is_object()) {
            return Some(format!("pipeline has no {part}, at least one vertex with {part:?} is needed"));
        }
    }
    let unknown = |edge: &Value, end: &str| {
        let name = edge[end].as_str().unwrap_or_default();
        (!names.iter().any(|known| known == name)).then(|| format!("invalid edge: no vertex {name:?} ({end})"))
    };
    edges.iter().find_map(|edge| unknown(edge, "from").or_else(|| unknown(edge, "to")))
}

/// Why an InterStepBufferService cannot be used, if it cannot.
fn unusable(look: &Look) -> Option<String> {
    let Some(service) = look.service else {
        return Some(format!("isbsvc {} not found", service_name(look.pipeline)));
    };
    if instance(service) != look.instance {
        return Some("isbsvc not managed by the same controller of this pipeline".to_owned());
    }
    let conditions = list(service, "/status/conditions");
    let healthy = matches!(text(service, "/status/phase"), "Running" | "Deleting")
        && !conditions.is_empty()
        && conditions.iter().all(|c| c["status"] == "True")
        && !asked(service).unhealthy;
    (!healthy).then(|| "isbsvc not healthy".to_owned())
}

fn counts(pipeline: &DynamicObject, draft: &mut Draft) {
    let all = list(pipeline, "/spec/vertices");
    let with = |part: &str| all.iter().filter(|v| v[part].is_object()).count();
    draft.set("vertexCount", all.len());
    draft.set("sourceCount", with("source"));
    draft.set("sinkCount", with("sink"));
    draft.set("udfCount", with("udf"));
}

/// How the children are, before anything is done about pausing.
fn health(look: &Look, daemon: bool, draft: &mut Draft) {
    let waits = "Waiting for daemon deployment to be ready";
    let mut degraded = if daemon { String::new() } else { format!("Degraded: {waits}") };
    if daemon {
        draft.condition("DaemonServiceHealthy", true, "Successful", "");
    } else {
        draft.condition("DaemonServiceHealthy", false, "Progressing", waits);
    }
    draft.condition("SideInputsManagersHealthy", true, "NoSideInputs", "");
    let wanted = list(look.pipeline, "/spec/vertices").len();
    let waiting = look.vertices.iter().find(|v| number(v, "/status/observedGeneration") != v.metadata.generation);
    let message = match waiting {
        Some(vertex) => Some(format!(
            "Vertex {:?} Waiting for reconciliation",
            vertex.labels().get(VERTEX_NAME).unwrap_or(&vertex.name_any())
        )),
        None if look.vertices.len() < wanted => Some("Waiting for vertices".to_owned()),
        None => None,
    };
    if let Some(message) = &message {
        degraded = format!("Degraded: Some Vertices are unhealthy: {message}");
        draft.condition("VerticesHealthy", false, "Progressing", message);
    } else {
        draft.condition("VerticesHealthy", true, "Successful", "All vertices are healthy");
    }
    draft.set("message", degraded);
}

/// The old status.
pub fn old(look: &Look) -> Map<String, Value> {
    status(look.pipeline)
}

/// The step that notes when a pause began, or that it is over.
pub fn note(look: &Look, time: Option<Timestamp>) -> Step {
    let value = time.map(written);
    let patch = json!({"metadata": {"annotations": {PAUSE_TIMESTAMP: value}}});
    Step::Merge(Kind::Pipeline, look.pipeline.name_any(), patch)
}
