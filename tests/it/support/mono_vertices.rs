//! What tests do to the MonoVertices of a namespace, and see of them and of their pods.

use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    Team, eventually,
    pipelines::{condition, create, edit, phase, seen, until},
};

/// What the controller says of the pods when there are none.
pub const NO_PODS: (&str, &str) = ("True", "NoPodsFound");

/// A source, a function of the image `f:1` and a sink, with more or other fields.
pub fn spec(more: Value) -> Value {
    let mut spec = json!({
        "source": {"generator": {"rpu": 5, "duration": "1s"}},
        "udf": {"container": {"image": "f:1"}},
        "sink": {"log": {}},
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// One that runs, with all its pods ready.
pub async fn running(team: &Team, name: &str, more: Value) -> DynamicObject {
    create(team, "MonoVertex", name, "", spec(more)).await;
    ready(team, name).await
}

/// Waits until it runs with all its pods ready, and those of the spec as it is now.
pub async fn ready(team: &Team, name: &str) -> DynamicObject {
    until(team, "MonoVertex", name, "runs with all pods", |m| {
        let status = &m.data["status"];
        let all = count(m, "replicas");
        seen(m)
            && phase(m) == "Running"
            && status["updateHash"] == status["currentHash"]
            && ["desiredReplicas", "updatedReplicas", "readyReplicas"].iter().all(|name| count(m, name) == all)
            && ["Deployed", "DaemonHealthy", "PodsHealthy"].iter().all(|kind| condition(m, kind).0 == "True")
    })
    .await
}

/// Sets the phase that it is to have.
pub async fn want(team: &Team, name: &str, phase: &str) {
    edit(team, "MonoVertex", name, json!({"spec": {"lifecycle": {"desiredPhase": phase}}})).await;
}

/// Sets the image of its function.
pub async fn set_image(team: &Team, name: &str, image: &str) {
    edit(team, "MonoVertex", name, json!({"spec": {"udf": {"container": {"image": image}}}})).await;
}

/// Waits until it says that it is in this phase, about the spec as it is now. That says nothing of its pods.
pub async fn says(team: &Team, name: &str, wanted: &str) -> DynamicObject {
    until(team, "MonoVertex", name, &format!("says {wanted}"), |m| seen(m) && phase(m) == wanted).await
}

/// A count of its status; what is zero is left out there.
pub fn count(mono_vertex: &DynamicObject, name: &str) -> i64 {
    mono_vertex.data["status"][name].as_i64().unwrap_or_default()
}

/// Its pods, also those that are going.
pub async fn pods_now(team: &Team, name: &str) -> Vec<Pod> {
    let mut all = team.all::<Pod>().await;
    all.retain(|p| p.labels().get("numaflow.numaproj.io/mono-vertex-name").is_some_and(|l| l == name));
    all
}

/// Waits until it has so many pods, counting those that are going.
pub async fn pods(team: &Team, name: &str, wanted: usize) -> Vec<Pod> {
    eventually(&format!("{wanted} pods of {name}"), async || {
        let all = pods_now(team, name).await;
        let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
        if all.len() == wanted { Ok(all) } else { Err(format!("{names:?}")) }
    })
    .await
}

/// The image of the function in each pod that is not going, in the order of the replicas.
pub fn images(pods: &[Pod]) -> Vec<String> {
    let mut pods: Vec<&Pod> = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
    pods.sort_by_key(|pod| pod.name_any());
    let function = |pod: &&Pod| {
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        containers.into_iter().find(|c| c.name == "udf").and_then(|c| c.image.clone()).unwrap_or_default()
    };
    pods.iter().map(function).collect()
}
