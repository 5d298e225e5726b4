//! What tests do to the pipelines of a namespace, and see of them and of their vertices and pods.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::{
    ResourceExt,
    api::{DynamicObject, Patch},
};
use serde_json::{Value, json};

use super::{Invariant, Team, Version, eventually, leases::LEASE, numaflow::api, version};

/// In which the controller notes when a pause began.
pub const PTS: &str = "numaflow.numaproj.io/pause-timestamp";

/// Versions of an InterStepBufferService that controllers know, each with its image.
pub const IMAGES: [(&str, &str); 7] = [
    ("2.10", "nats:2.10.29"),
    ("2.11", "nats:2.11.8"),
    ("2.12", "nats:2.12.1"),
    ("2.13", "nats:2.13.0"),
    ("2.14", "nats:2.14.0"),
    ("2.15", "nats:2.15.0"),
    ("latest", "nats:latest"),
];

/// A version whose controller knows these.
pub fn controller(name: &str) -> Version {
    version(name).nats(&IMAGES)
}

/// A team with a controller that leads, and an InterStepBufferService that is healthy.
pub async fn ready(team: &Team) {
    team.apply(&controller("1.4.0"), "").await;
    team.leads(LEASE, "held", |held| !held.holder.is_empty()).await;
    service(team, "default", "").await;
}

/// Makes an InterStepBufferService and waits until it is healthy.
pub async fn service(team: &Team, name: &str, instance: &str) {
    create(team, "InterStepBufferService", name, instance, json!({"jetstream": {"version": "2.10"}})).await;
    until(team, "InterStepBufferService", name, "healthy", healthy).await;
}

/// Whether an InterStepBufferService says that it is healthy, about the spec it has.
pub fn healthy(service: &DynamicObject) -> bool {
    let conditions = service.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let current = service.data["status"]["observedGeneration"] == json!(service.metadata.generation);
    current && phase(service) == "Running" && !conditions.is_empty() && conditions.iter().all(|c| c["status"] == "True")
}

/// Creates an object of Numaflow.
pub async fn create(team: &Team, kind: &str, name: &str, instance: &str, spec: Value) {
    let annotations = if instance.is_empty() { json!({}) } else { json!({"numaflow.numaproj.io/instance": instance}) };
    create_annotated(team, kind, name, annotations, spec).await;
}

/// Creates an object of Numaflow with knobs of the stand-in turned from the beginning.
pub async fn create_turned(team: &Team, kind: &str, name: &str, knobs: &[(&str, &str)], spec: Value) {
    let annotations: serde_json::Map<String, Value> =
        knobs.iter().map(|(knob, value)| (format!("stand-in.numaflow/{knob}"), json!(value))).collect();
    create_annotated(team, kind, name, annotations.into(), spec).await;
}

async fn create_annotated(team: &Team, kind: &str, name: &str, annotations: Value, spec: Value) {
    let object = json!({
        "apiVersion": "numaflow.numaproj.io/v1alpha1", "kind": kind,
        "metadata": {"name": name, "annotations": annotations}, "spec": spec,
    });
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api(team, kind).create(&Default::default(), &object).await.unwrap();
}

/// Three vertices in a row, and this lifecycle.
pub fn spec(lifecycle: Value) -> Value {
    json!({
        "lifecycle": lifecycle,
        "vertices": [
            {"name": "in", "source": {"generator": {"rpu": 5, "duration": "1s"}}},
            {"name": "cat", "udf": {"container": {"image": "cat:1"}}},
            {"name": "out", "sink": {"log": {}}},
        ],
        "edges": [{"from": "in", "to": "cat"}, {"from": "cat", "to": "out"}],
    })
}

/// A pipeline that runs.
pub async fn running(team: &Team, name: &str, lifecycle: Value) {
    create(team, "Pipeline", name, "", spec(lifecycle)).await;
    settled(team, name, "Running").await;
}

/// One that runs on this ISB service.
pub async fn running_on(team: &Team, name: &str, service: &str) {
    let mut spec = spec(json!({}));
    spec["interStepBufferServiceName"] = json!(service);
    create(team, "Pipeline", name, "", spec).await;
    settled(team, name, "Running").await;
}

/// Changes one by a merge patch.
pub async fn edit(team: &Team, kind: &str, name: &str, patch: Value) -> DynamicObject {
    api(team, kind).patch(name, &Default::default(), &Patch::Merge(patch)).await.unwrap()
}

/// Sets the phase that a pipeline is to have.
pub async fn want(team: &Team, name: &str, phase: &str) {
    edit(team, "Pipeline", name, json!({"spec": {"lifecycle": {"desiredPhase": phase}}})).await;
}

/// Turns a knob of the stand-in.
pub async fn turn(team: &Team, kind: &str, name: &str, knob: &str, value: Value) {
    edit(team, kind, name, json!({"metadata": {"annotations": {format!("stand-in.numaflow/{knob}"): value}}})).await;
}

/// Changes a label, which is a reason to look at it.
pub async fn poke(team: &Team, kind: &str, name: &str) {
    let mark = jiff::Timestamp::now().as_nanosecond().to_string();
    edit(team, kind, name, json!({"metadata": {"labels": {"poked": mark}}})).await;
}

/// Waits until nothing has been written to a pipeline for a while: all children have told their news.
pub async fn quiet(team: &Team, name: &str) {
    still(team, "Pipeline", name).await;
}

/// As [`quiet`], for an object of any kind.
pub async fn still(team: &Team, kind: &str, name: &str) {
    let mut last = (None, Instant::now());
    eventually(&format!("nothing more happens to {kind}/{name}"), async || {
        let now = api(team, kind).get(name).await.map_err(|error| error.to_string())?;
        if last.0 != now.resource_version() {
            last = (now.resource_version(), Instant::now());
        }
        if last.1.elapsed() >= Duration::from_secs(1) { Ok(()) } else { Err(format!("{}", now.data["status"])) }
    })
    .await;
}

/// The phase that an object says it has.
pub fn phase(object: &DynamicObject) -> &str {
    object.data["status"]["phase"].as_str().unwrap_or_default()
}

/// Whether a pipeline says that it was drained when it paused.
pub fn drained(object: &DynamicObject) -> bool {
    object.data["status"]["drainedOnPause"] == true
}

/// Status and reason of a condition.
pub fn condition<'a>(object: &'a DynamicObject, kind: &str) -> (&'a str, &'a str) {
    let all = object.data["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = all.iter().find(|c| c["type"] == kind);
    found.map_or(("", ""), |c| (c["status"].as_str().unwrap(), c["reason"].as_str().unwrap()))
}

/// Whether an object says something about the spec that it has now.
pub fn seen(object: &DynamicObject) -> bool {
    object.data["status"]["observedGeneration"] == json!(object.metadata.generation)
}

/// Waits until an object of Numaflow is as it should be.
pub async fn until(
    team: &Team,
    kind: &str,
    name: &str,
    what: &str,
    is: impl Fn(&DynamicObject) -> bool,
) -> DynamicObject {
    eventually(&format!("{kind}/{name}: {what}"), async || {
        let object = api(team, kind).get(name).await.map_err(|error| error.to_string())?;
        if is(&object) { Ok(object) } else { Err(format!("{:?} {}", object.metadata.generation, object.data)) }
    })
    .await
}

/// Waits until a pipeline is seen to be in this phase, with its vertices.
pub async fn settled(team: &Team, name: &str, wanted: &str) -> DynamicObject {
    let object = until(team, "Pipeline", name, &format!("settled {wanted}"), |object| {
        let current = object.data["status"]["observedGeneration"] == json!(object.metadata.generation);
        current && phase(object) == wanted && object.annotations().contains_key(PTS) == (wanted == "Paused")
    })
    .await;
    desired(team, name, &[wanted; 3]).await;
    object
}

/// Waits until the vertices, by name, are asked for this.
pub async fn desired(team: &Team, pipeline: &str, wanted: &[&str]) {
    eventually(&format!("vertices of {pipeline} are asked for {wanted:?}"), async || {
        let seen = vertices(team, pipeline).await;
        let phases: Vec<&str> =
            seen.iter().map(|v| v.data["spec"]["lifecycle"]["desiredPhase"].as_str().unwrap()).collect();
        if phases == wanted { Ok(()) } else { Err(format!("{phases:?}")) }
    })
    .await;
}

/// The vertices of a pipeline.
pub async fn vertices(team: &Team, pipeline: &str) -> Vec<DynamicObject> {
    let mut all = api(team, "Vertex").list(&Default::default()).await.unwrap().items;
    all.retain(|v| v.labels()["numaflow.numaproj.io/pipeline-name"] == pipeline);
    // In the order of the pipeline: in, cat, out, and whatever comes then.
    let order = |v: &DynamicObject| {
        ["in", "cat", "out"].iter().position(|n| v.name_any().ends_with(&format!("-{n}"))).unwrap_or(9)
    };
    all.sort_by_key(order);
    all
}

/// Waits until the vertices have so many pods, counting those that are going.
pub async fn pods(team: &Team, pipeline: &str, count: usize) -> Vec<Pod> {
    eventually(&format!("{count} pods of {pipeline}"), async || {
        let mut all = team.all::<Pod>().await;
        all.retain(|p| p.labels().get("numaflow.numaproj.io/pipeline-name").is_some_and(|l| l == pipeline));
        if all.len() == count {
            Ok(all)
        } else {
            Err(format!("{:?}", all.iter().map(ResourceExt::name_any).collect::<Vec<_>>()))
        }
    })
    .await
}

/// Sees to it that there is never a pod of certain pipelines.
pub struct NoPods(Invariant);

impl NoPods {
    /// From now on, of pipelines whose names begin like this.
    pub async fn of(team: &Team, prefix: &str) -> Self {
        let prefix = prefix.to_owned();
        let what = format!("no pod of {prefix}");
        let watched = Invariant::watch(&what, team.api::<Pod>(), move |pods| {
            let of_it = |pod: &&Pod| {
                let label = pod.labels().get("numaflow.numaproj.io/pipeline-name");
                label.is_some_and(|name| name.starts_with(&prefix))
            };
            pods.values().find(of_it).map_or(Ok(()), |pod| Err(pod.name_any()))
        });
        Self(watched.await)
    }

    /// Panics if there was one.
    pub fn held(self) {
        self.0.held();
    }
}
