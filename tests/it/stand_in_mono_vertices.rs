//! What the stand-in does about MonoVertices as Numaflow's controller would, against a real API server and without an
//! operator: the sequences that were measured of the real one.

use std::time::{Duration, Instant};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Pod};
use kube::{
    ResourceExt,
    api::{DynamicObject, Patch},
};
use serde_json::{Value, json};

use crate::support::{
    Invariant, Scene, Team, eventually,
    leases::LEASE,
    mono_vertices::{NO_PODS, count, images, pods, pods_now, ready, running, says, set_image, spec, want},
    numaflow::{self, api},
    pipelines::{condition, controller, create, create_turned, edit, phase, poke, seen, still, turn, until},
    stays,
};

/// A team with a controller that leads.
async fn led(team: &Team) {
    team.apply(&controller("1.4.0"), "").await;
    team.leads(LEASE, "held", |held| !held.holder.is_empty()).await;
}

/// Waits until there is no object of this name.
async fn gone(team: &Team, name: &str) {
    eventually(&format!("{name} is gone"), async || {
        let found = api(team, "MonoVertex").get_opt(name).await.map_err(|error| error.to_string())?;
        found.map_or(Ok(()), |object| Err(object.data.to_string()))
    })
    .await;
}

/// Looks at all states of all MonoVertices of a namespace.
async fn always(team: &Team, what: &str, holds: impl Fn(&DynamicObject) -> bool + Send + 'static) -> Invariant {
    Invariant::watch(what, api(team, "MonoVertex"), move |all| {
        all.values().find(|m| !holds(m)).map_or(Ok(()), |m| Err(format!("{:?} {}", m.metadata.generation, m.data)))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mono_vertex_says_that_it_is_paused_while_its_pods_are_still_going() {
    let scene = Scene::new("mv-pause").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    led(team).await;
    create_turned(team, "MonoVertex", "m", &[("terminates-after", "5s")], spec(json!({"scale": {"min": 2}}))).await;
    // Running at once, with healthy pods that are not there yet, and a daemon that takes a moment.
    let begun = says(team, "m", "Running").await;
    assert_eq!((count(&begun, "replicas"), condition(&begun, "PodsHealthy").0), (2, "True"), "{}", begun.data);
    let made = ready(team, "m").await;
    assert!(made.finalizers().is_empty() && condition(&made, "PodsHealthy") == ("True", "Running"), "{}", made.data);
    let first = pods(team, "m", 2).await;
    assert!(first.iter().any(|p| p.name_any().starts_with("m-mv-1-")), "{first:?}");
    assert!(first.iter().all(|p| p.labels()["app.kubernetes.io/component"] == "mono-vertex"));
    assert!(first.iter().all(|p| p.owner_references()[0].name == "m"));
    // What it says of a spec that it has seen is in one write: there is nothing in between.
    let one_write = always(team, "phase and replicas come with the generation", |m| {
        let paused = m.data["spec"]["lifecycle"]["desiredPhase"] == "Paused";
        let status = &m.data["status"];
        !seen(m)
            || (status["phase"] == "Paused" && count(m, "replicas") == 0 && status["desiredReplicas"] == 0) == paused
    })
    .await;

    let began = Instant::now();
    want(team, "m", "Paused").await;
    let paused = says(team, "m", "Paused").await;
    assert_eq!(condition(&paused, "PodsHealthy"), ("True", "Running"), "they are there: {}", paused.data);
    let going = pods(team, "m", 2).await;
    assert_eq!(images(&going), Vec::<String>::new(), "all are going");
    until(team, "MonoVertex", "m", "no pods", |m| condition(m, "PodsHealthy") == NO_PODS).await;
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    pods(team, "m", 0).await;

    want(team, "m", "Running").await;
    let resumed = says(team, "m", "Running").await;
    assert_eq!(count(&resumed, "replicas"), 2);
    ready(team, "m").await;
    pods(team, "m", 2).await;
    one_write.held();
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_those_that_were_written_as_far_as_the_scale_allows_also_after_a_pause() {
    let scene = Scene::new("mv-scale").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    led(team).await;
    running(team, "m", json!({"scale": {"min": 1, "max": 4}})).await;
    pods(team, "m", 1).await;
    // As an autoscaler does.
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    api(team, "MonoVertex").patch_scale("m", &Default::default(), &scale).await.unwrap();
    ready(team, "m").await;
    pods(team, "m", 3).await;
    let told = api(team, "MonoVertex").get_scale("m").await.unwrap().status.unwrap();
    assert!(told.replicas == 3 && told.selector.unwrap().contains("mono-vertex-name=m"));
    for (resume, after) in [
        (json!({}), 3),
        (json!({"replicas": null}), 1),
        (json!({"replicas": null, "scale": {"min": 2}}), 2),
        (json!({"replicas": 9}), 4),
    ] {
        want(team, "m", "Paused").await;
        pods(team, "m", 0).await;
        let mut resumed = resume.clone();
        resumed["lifecycle"] = json!({"desiredPhase": "Running"});
        edit(team, "MonoVertex", "m", json!({"spec": resumed})).await;
        let running = ready(team, "m").await;
        assert_eq!(count(&running, "replicas"), after, "{resume}");
        pods(team, "m", usize::try_from(after).unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_image_comes_pod_by_pod_and_goes_no_further_than_one_that_is_not_ready() {
    let scene = Scene::new("mv-image").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    led(team).await;
    running(team, "m", json!({"replicas": 2})).await;
    let runs = always(team, "it runs", |m| phase(m) == "Running").await;
    turn(team, "MonoVertex", "m", "pod-takes", json!("2s")).await;
    let began = Instant::now();
    set_image(team, "m", "f:2").await;
    let rolling =
        until(team, "MonoVertex", "m", "one is updated", |m| seen(m) && count(m, "updatedReplicas") == 1).await;
    assert_ne!(rolling.data["status"]["updateHash"], rolling.data["status"]["currentHash"]);
    // Its status counts those that are going as long as they are ready.
    eventually("both pods are new and ready", async || {
        let all = pods_now(team, "m").await;
        let ready = |pod: &&Pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
        };
        let (images, ready) = (images(&all), all.iter().filter(ready).count());
        if images == ["f:2", "f:2"] && (all.len(), ready) == (2, 2) {
            Ok(())
        } else {
            Err(format!("{images:?}, {ready} ready"))
        }
    })
    .await;
    assert!(began.elapsed() >= Duration::from_secs(4), "one after the other: {:?}", began.elapsed());
    ready(team, "m").await;
    turn(team, "MonoVertex", "m", "pod-takes", Value::Null).await;

    set_image(team, "m", "registry.invalid/f:3").await;
    until(team, "MonoVertex", "m", "is ill", |m| {
        seen(m) && condition(m, "PodsHealthy") == ("False", "PodImagePullBackOff") && count(m, "readyReplicas") == 1
    })
    .await;
    still(team, "MonoVertex", "m").await;
    assert_eq!(images(&pods(team, "m", 2).await), ["registry.invalid/f:3", "f:2"]);
    set_image(team, "m", "f:2").await;
    ready(team, "m").await;
    assert_eq!(images(&pods(team, "m", 2).await), ["f:2", "f:2"]);
    runs.held();

    turn(team, "MonoVertex", "m", "never-ready", json!("true")).await;
    set_image(team, "m", "f:4").await;
    until(team, "MonoVertex", "m", "one is updated", |m| seen(m) && count(m, "updatedReplicas") == 1).await;
    // Healthy as it says, and never done.
    still(team, "MonoVertex", "m").await;
    let stuck = api(team, "MonoVertex").get("m").await.unwrap();
    assert_eq!((condition(&stuck, "PodsHealthy").0, count(&stuck, "updatedReadyReplicas")), ("True", 0));
    assert_eq!(images(&pods(team, "m", 2).await), ["f:4", "f:2"]);
    turn(team, "MonoVertex", "m", "never-ready", Value::Null).await;

    // With a pause in the same change it is paused at once, and comes up new.
    let both = json!({"spec": {"lifecycle": {"desiredPhase": "Paused"}, "udf": {"container": {"image": "f:5"}}}});
    edit(team, "MonoVertex", "m", both).await;
    says(team, "m", "Paused").await;
    pods(team, "m", 0).await;
    want(team, "m", "Running").await;
    ready(team, "m").await;
    assert_eq!(images(&pods(team, "m", 2).await), ["f:5", "f:5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_deployed_is_failed_and_its_pods_run_on_even_if_it_is_to_pause() {
    let scene = Scene::new("mv-failed").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    led(team).await;
    running(team, "m", json!({"replicas": 2})).await;
    let before: Vec<String> = pods(team, "m", 2).await.iter().map(ResourceExt::name_any).collect();
    let fails = async |reason: &str, words: &str| {
        until(team, "MonoVertex", "m", words, |m| {
            let status = &m.data["status"];
            let said = status["message"].as_str().unwrap_or_default().contains(words) && status["reason"] == reason;
            seen(m) && phase(m) == "Failed" && said && condition(m, "Deployed") == ("False", reason)
        })
        .await
    };
    edit(team, "MonoVertex", "m", json!({"spec": {"sink": null}})).await;
    let failed = fails("InvalidSpec", "sink is not defined").await;
    assert_eq!((condition(&failed, "PodsHealthy"), count(&failed, "readyReplicas")), (("True", "Running"), 2));
    want(team, "m", "Paused").await;
    fails("InvalidSpec", "sink").await;
    let after: Vec<String> = pods(team, "m", 2).await.iter().map(ResourceExt::name_any).collect();
    assert_eq!(before, after);
    edit(team, "MonoVertex", "m", json!({"spec": {"sink": {"log": {}}}})).await;
    says(team, "m", "Paused").await;
    pods(team, "m", 0).await;
    edit(team, "MonoVertex", "m", json!({"spec": {"source": null}})).await;
    let failed = fails("InvalidSpec", "source is not defined").await;
    assert_eq!((condition(&failed, "DaemonHealthy").0, condition(&failed, "PodsHealthy")), ("True", NO_PODS));
    let repaired = json!({"source": {"generator": {}}, "lifecycle": {"desiredPhase": "Running"}});
    edit(team, "MonoVertex", "m", json!({"spec": repaired})).await;
    ready(team, "m").await;

    for (knob, value) in [("no-retries", "true"), ("fails", "no quota")] {
        turn(team, "MonoVertex", "m", knob, json!(value)).await;
    }
    poke(team, "MonoVertex", "m").await;
    fails("OrchestrateFixedResourcesFailed", "no quota").await;
    turn(team, "MonoVertex", "m", "fails", Value::Null).await;
    stays("nobody looks at it", Duration::from_secs(3), async || {
        let now = api(team, "MonoVertex").get("m").await.map_err(|error| error.to_string())?;
        if phase(&now) == "Failed" { Ok(()) } else { Err(phase(&now).to_owned()) }
    })
    .await;
    poke(team, "MonoVertex", "m").await;
    ready(team, "m").await;
    // Without that knob it is tried again by itself.
    for (knob, value) in [("no-retries", Value::Null), ("fails", json!("no quota"))] {
        turn(team, "MonoVertex", "m", knob, value).await;
    }
    poke(team, "MonoVertex", "m").await;
    fails("OrchestrateFixedResourcesFailed", "no quota").await;
    turn(team, "MonoVertex", "m", "fails", Value::Null).await;
    ready(team, "m").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_happens_to_it_without_its_controller_and_another_one_rolls_its_pods() {
    let scene = Scene::new("mv-change").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    led(team).await;
    create(team, "MonoVertex", "foreign", "blue", spec(json!({}))).await;
    create_turned(team, "MonoVertex", "silent", &[("silent", "true")], spec(json!({}))).await;
    running(team, "m", json!({})).await;
    let old = pods(team, "m", 1).await[0].name_any();
    let before = team.lease(LEASE).await.unwrap();
    team.edit::<Deployment>("numaflow-controller", json!({"spec": {"replicas": 0}})).await;
    eventually("its pod is gone", async || {
        let left = team.all::<Pod>().await.iter().any(|p| before.by(&p.name_any()));
        if left { Err("still there".to_owned()) } else { Ok(()) }
    })
    .await;
    want(team, "m", "Paused").await;
    let version = api(team, "MonoVertex").get("m").await.unwrap().resource_version();
    stays("nobody looks at it", Duration::from_secs(3), async || {
        let now = api(team, "MonoVertex").get("m").await.map_err(|error| error.to_string())?;
        if now.resource_version() == version { Ok(()) } else { Err(now.data.to_string()) }
    })
    .await;
    assert_eq!(pods(team, "m", 1).await[0].name_any(), old);

    team.apply(&controller("1.5.0"), "").await;
    says(team, "m", "Paused").await;
    pods(team, "m", 0).await;
    want(team, "m", "Running").await;
    ready(team, "m").await;
    let image = |pod: &Pod| pod.spec.clone().unwrap().containers[0].image.clone().unwrap();
    let made = pods(team, "m", 1).await.remove(0);
    team.apply(&controller("1.6.0"), "").await;
    eventually("its pods have the image of the next controller", async || {
        let now: Vec<String> = pods_now(team, "m").await.iter().map(image).collect();
        if now.len() == 1 && now[0] != image(&made) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    ready(team, "m").await;
    for name in ["foreign", "silent"] {
        let other = api(team, "MonoVertex").get(name).await.unwrap();
        assert!(other.data["status"].is_null(), "{other:?}");
        pods(team, name, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn its_pods_go_with_it_and_may_take_their_time_while_the_next_one_of_that_name_begins() {
    let scene = Scene::new("mv-delete").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    led(team).await;
    running(team, "m", json!({"replicas": 2})).await;
    numaflow::delete(team, "MonoVertex", "m").await;
    gone(team, "m").await;
    pods(team, "m", 0).await;

    create_turned(team, "MonoVertex", "m", &[("terminates-after", "7s")], spec(json!({}))).await;
    ready(team, "m").await;
    let old = pods(team, "m", 1).await.remove(0).uid().unwrap();
    let began = Instant::now();
    numaflow::delete(team, "MonoVertex", "m").await;
    gone(team, "m").await;
    running(team, "m", json!({})).await;
    let both = pods(team, "m", 2).await;
    let going = both.iter().find(|p| p.metadata.deletion_timestamp.is_some()).unwrap();
    assert_eq!(going.uid().unwrap(), old);
    let left = pods(team, "m", 1).await.remove(0);
    assert!(left.uid().unwrap() != old && left.metadata.deletion_timestamp.is_none(), "{left:?}");
    // Whole seconds are noted of a deletion.
    assert!(began.elapsed() >= Duration::from_secs(6), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worker_looks_at_all_mono_vertices_so_that_a_slow_one_holds_up_the_others() {
    let scene = Scene::new("mv-delay").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    led(team).await;
    running(team, "slow", json!({})).await;
    still(team, "MonoVertex", "slow").await;
    turn(team, "MonoVertex", "slow", "pass-delay", json!("3s")).await;
    // Knobs are read from what is seen, as everything is.
    still(team, "MonoVertex", "slow").await;
    let began = Instant::now();
    poke(team, "MonoVertex", "slow").await;
    create(team, "MonoVertex", "other", "", spec(json!({}))).await;
    says(team, "other", "Running").await;
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
}
