//! What the stand-in does about each InterStepBufferService as Numaflow's controller would, and what pipelines make of
//! that, against a real API server and without an operator.

use std::time::{Duration, Instant};

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::support::{
    Invariant, Scene, Team, eventually,
    numaflow::{self, api},
    pipelines::{
        PTS, condition, drained, edit, healthy, phase, poke, quiet, ready, running, seen, settled, still, turn, until,
        want,
    },
    stays,
};

const SERVICE: &str = "InterStepBufferService";

/// The image that its StatefulSet asks for.
async fn image(team: &Team) -> String {
    let set: StatefulSet = team.get("isbsvc-default-js").await;
    set.spec.unwrap().template.spec.unwrap().containers[0].image.clone().unwrap()
}

/// Sets the version of the service.
async fn set_version(team: &Team, version: &str) {
    edit(team, SERVICE, "default", json!({"spec": {"jetstream": {"version": version}}})).await;
}

/// Waits until the StatefulSet has this image in all its pods, and the service is healthy.
async fn rolled(team: &Team, wanted: &str) {
    eventually(&format!("rolled to {wanted} and healthy"), async || {
        let set: StatefulSet = team.get("isbsvc-default-js").await;
        let status = set.status.clone().unwrap_or_default();
        let service = api(team, SERVICE).get("default").await.map_err(|error| error.to_string())?;
        let done = status.current_revision == status.update_revision
            && status.observed_generation == set.metadata.generation
            && status.ready_replicas == Some(3);
        let images: Vec<String> = pods(team).await.iter().map(main_image).collect();
        if done && healthy(&service) && image(team).await == wanted && images == [wanted; 3] {
            Ok(())
        } else {
            Err(format!("{status:?} {images:?} {}", service.data["status"]))
        }
    })
    .await;
}

/// The pods of the StatefulSet, in their order.
async fn pods(team: &Team) -> Vec<Pod> {
    let mut all = team.all::<Pod>().await;
    all.retain(is_of_service);
    all.sort_by_key(ResourceExt::name_any);
    all
}

async fn uids(team: &Team) -> Vec<Option<String>> {
    pods(team).await.iter().map(ResourceExt::uid).collect()
}

fn is_of_service(pod: &Pod) -> bool {
    pod.labels().get("numaflow.numaproj.io/isbsvc-name").is_some_and(|name| name == "default")
}

fn main_image(pod: &Pod) -> String {
    pod.spec.clone().unwrap().containers[0].image.clone().unwrap()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Waits until a pipeline that is looked at has failed because of its service.
async fn fails(team: &Team, name: &str) {
    poke(team, "Pipeline", name).await;
    until(team, "Pipeline", name, "isbsvc not healthy", |p| {
        phase(p) == "Failed" && p.data["status"]["message"] == "isbsvc not healthy"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_says_for_a_moment_that_it_is_healthy_when_its_version_has_changed() {
    let scene = Scene::new("isb-stale").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    assert_eq!(image(team).await, "nats:2.10.29");
    // The roll has to last longer than that, or nobody would ever say that there is one.
    for (knob, time) in [("stale-health", "2s"), ("pod-takes", "2s")] {
        turn(team, SERVICE, "default", knob, json!(time)).await;
    }
    set_version(team, "latest").await;
    until(team, SERVICE, "default", "healthy, as it says", healthy).await;
    until(team, SERVICE, "default", "not healthy, and it says so", |s| {
        seen(s) && phase(s) == "Running" && condition(s, "ChildrenResourcesHealthy") == ("False", "Progressing")
    })
    .await;
    rolled(team, "nats:latest").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_cannot_be_deployed_is_failed_and_runs_on_until_that_is_reverted() {
    let scene = Scene::new("isb-failed").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    running(team, "p", json!({})).await;
    quiet(team, "p").await;
    let before = uids(team).await;
    let fails_with = async |words: &str| {
        let failed = until(team, SERVICE, "default", words, |s| {
            let message = s.data["status"]["message"].as_str().unwrap_or_default();
            seen(s) && phase(s) == "Failed" && message.contains(words)
        })
        .await;
        assert_eq!(condition(&failed, "Deployed"), ("False", "JetStreamStatefulSetFailed"));
        assert_eq!(condition(&failed, "ChildrenResourcesHealthy"), ("Unknown", "Unknown"));
        assert_eq!(image(team).await, "nats:2.10.29", "untouched");
        fails(team, "p").await;
    };
    set_version(team, "9.9.9").await;
    fails_with("no jetstream configuration found for \"9.9.9\"").await;
    set_version(team, "2.10").await;
    until(team, SERVICE, "default", "healthy", healthy).await;
    settled(team, "p", "Running").await;

    let persistence = |value: Value| json!({"spec": {"jetstream": {"persistence": value}}});
    edit(team, SERVICE, "default", persistence(json!({"volumeSize": "3Gi"}))).await;
    fails_with("are forbidden").await;
    edit(team, SERVICE, "default", persistence(Value::Null)).await;
    until(team, SERVICE, "default", "healthy", healthy).await;
    settled(team, "p", "Running").await;
    assert_eq!(uids(team).await, before, "no pod was replaced");
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelines_that_are_looked_at_fail_while_their_service_is_rolled_and_come_back_after() {
    let scene = Scene::new("isb-roll").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    for name in ["busy", "left", "lazy", "paused"] {
        running(team, name, json!({})).await;
    }
    want(team, "paused", "Paused").await;
    assert!(drained(&settled(team, "paused", "Paused").await));
    turn(team, "Pipeline", "lazy", "no-retries", json!("true")).await;
    for name in ["busy", "left", "lazy", "paused"] {
        quiet(team, name).await;
    }
    let before = uids(team).await;
    turn(team, SERVICE, "default", "pod-takes", json!("4s")).await;
    still(team, SERVICE, "default").await;
    rolled(team, "nats:2.10.29").await;
    assert_eq!(uids(team).await, before, "alone it rolls nothing");
    let one_by_one = Invariant::watch("one pod at a time", team.api::<Pod>(), |all| {
        let ready = all.values().filter(|pod| is_of_service(pod) && is_ready(pod)).count();
        if ready >= 2 { Ok(()) } else { Err(format!("{ready} are ready")) }
    })
    .await;
    let runs = Invariant::watch("it runs", api(team, SERVICE), |all| {
        all.values().find(|s| phase(s) != "Running").map_or(Ok(()), |s| Err(s.data.to_string()))
    })
    .await;
    let undisturbed = api(team, "Pipeline").get("left").await.unwrap().resource_version();

    let began = Instant::now();
    set_version(team, "latest").await;
    until(team, SERVICE, "default", "rolls", |s| {
        let conditions = s.data["status"]["conditions"].as_array().unwrap();
        let rolls = |c: &Value| c["message"].as_str().is_some_and(|m| m.starts_with("waiting for statefulset rolling"));
        seen(s) && conditions.iter().any(rolls)
    })
    .await;
    // All at once: on a busy machine the roll could be over before the last one is asked.
    tokio::join!(fails(team, "busy"), fails(team, "lazy"), fails(team, "paused"));
    let failed = api(team, "Pipeline").get("paused").await.unwrap();
    assert!(drained(&failed) && failed.annotations().contains_key(PTS), "{failed:?}");
    rolled(team, "nats:latest").await;
    assert!(began.elapsed() >= Duration::from_secs(12), "one after the other: {:?}", began.elapsed());
    one_by_one.held();
    runs.held();
    settled(team, "busy", "Running").await;
    assert!(drained(&settled(team, "paused", "Paused").await));
    let lazy = api(team, "Pipeline").get("lazy").await.unwrap();
    assert_eq!(phase(&lazy), "Failed", "nothing wakes it");
    poke(team, "Pipeline", "lazy").await;
    settled(team, "lazy", "Running").await;
    let left = api(team, "Pipeline").get("left").await.unwrap();
    assert_eq!(left.resource_version(), undisturbed, "nobody has looked at it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_never_ends_is_ended_by_going_back() {
    let scene = Scene::new("isb-stuck").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    running(team, "p", json!({})).await;
    quiet(team, "p").await;
    turn(team, SERVICE, "default", "never-ready", json!("true")).await;
    set_version(team, "latest").await;
    let stuck = async || {
        let all = pods(team).await;
        let seen: Vec<(String, bool)> = all.iter().map(|pod| (main_image(pod), is_ready(pod))).collect();
        let service = api(team, SERVICE).get("default").await.map_err(|error| error.to_string())?;
        let says = condition(&service, "ChildrenResourcesHealthy");
        let old = || ("nats:2.10.29".to_owned(), true);
        if seen == [old(), old(), ("nats:latest".to_owned(), false)] && says == ("False", "Progressing") {
            Ok(())
        } else {
            Err(format!("{seen:?} {says:?}"))
        }
    };
    eventually("the first pod is rolled and not ready", &stuck).await;
    fails(team, "p").await;
    turn(team, SERVICE, "default", "never-ready", Value::Null).await;
    // The pod is as it was made.
    stays("it goes no further", Duration::from_secs(3), &stuck).await;
    assert_eq!(phase(&api(team, "Pipeline").get("p").await.unwrap()), "Failed");
    set_version(team, "2.10").await;
    rolled(team, "nats:2.10.29").await;
    settled(team, "p", "Running").await;
}
