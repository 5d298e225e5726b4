//! What the stand-in does about Pipelines as Numaflow's controller would, against a real API server and without an
//! operator: the sequences that were measured of the real one.

use std::time::{Duration, Instant};

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::Pod,
};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use crate::support::{
    Scene, Team, eventually,
    leases::LEASE,
    numaflow::{self, api},
    pauses::Recorder,
    pipelines::{
        PTS, condition, controller, create, desired, drained, edit, healthy, phase, pods, poke, quiet, ready, running,
        service, settled, spec, turn, until, vertices, want,
    },
    rest::assert_at_rest,
    stays,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_runs_pauses_drained_and_runs_again() {
    let scene = Scene::new("pl-pause").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    running(team, "p", json!({"pauseGracePeriodSeconds": 30})).await;
    let all = pods(team, "p", 3).await;
    assert!(all.iter().any(|p| p.name_any().starts_with("p-cat-0-")), "{all:?}");
    let recorder = Recorder::watch(team).await;

    want(team, "p", "Paused").await;
    let paused = settled(team, "p", "Paused").await;
    assert!(drained(&paused), "{}", paused.data);
    pods(team, "p", 0).await;
    want(team, "p", "Running").await;
    let resumed = settled(team, "p", "Running").await;
    assert!(!drained(&resumed));
    pods(team, "p", 3).await;
    let history = recorder.history("p");
    println!("{history}");
    let flips = recorder.flips("p");
    assert_eq!(flips.iter().map(|f| (f.to_paused, f.edits)).collect::<Vec<_>>(), [(true, 1), (false, 1)], "{history}");
    // The first pass of a pause writes the old phase and the old generation, with the time of the pause.
    let states = recorder.states("p");
    let first = states.iter().find(|s| s.pause_timestamp.is_some()).unwrap();
    assert_eq!((first.phase.as_str(), first.generation, first.observed), ("Running", 2, Some(1)), "{history}");
    // A flip back is written twice, with the old generation first.
    assert!(
        states.iter().any(|s| (s.generation, s.observed, s.phase.as_str()) == (3, Some(2), "Running")),
        "{history}"
    );
    assert!(states.iter().all(|s| !s.drained || s.phase == "Paused"), "{history}");
    recorder.rules().await;
    assert_at_rest(team).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_drain_is_paused_when_its_grace_is_over_and_is_looked_at_in_ticks() {
    let scene = Scene::new("pl-grace").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    running(team, "full", json!({"pauseGracePeriodSeconds": 4})).await;
    running(team, "slow", json!({"pauseGracePeriodSeconds": 60})).await;
    running(team, "never", json!({"pauseGracePeriodSeconds": 0})).await;
    running(team, "mute", json!({"pauseGracePeriodSeconds": 2})).await;
    turn(team, "Pipeline", "full", "pending", json!("7")).await;
    turn(team, "Pipeline", "slow", "drains-after", json!("2500ms")).await;
    turn(team, "Pipeline", "never", "never-pauses", json!("true")).await;
    turn(team, "Pipeline", "mute", "daemon", json!("refused")).await;
    let recorder = Recorder::watch(team).await;
    let began = Instant::now();
    for name in ["full", "slow", "never", "mute"] {
        want(team, name, "Paused").await;
    }
    until(team, "Pipeline", "full", "Pausing", |p| phase(p) == "Pausing").await;
    desired(team, "full", &["Paused", "Running", "Running"]).await;
    assert!(drained(&settled(team, "slow", "Paused").await));
    assert!(began.elapsed() >= Duration::from_millis(2500));
    assert!(!drained(&settled(team, "full", "Paused").await));
    // Whole seconds are noted, so that it may be up to one earlier.
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
    assert!(!drained(&settled(team, "mute", "Paused").await));
    let never = api(team, "Pipeline").get("never").await.unwrap();
    assert_eq!(phase(&never), "Pausing");
    println!("{}\n{}", recorder.history("full"), recorder.history("slow"));
    // Out of Pausing there is a clean way back.
    want(team, "never", "Running").await;
    settled(team, "never", "Running").await;
    recorder.rules().await;
}

/// Whether the controller has seen the spec and says this phase, and whether it is wedged there.
fn reached(pipeline: &DynamicObject, wanted: &str) -> Option<bool> {
    let current = pipeline.data["status"]["observedGeneration"] == json!(pipeline.metadata.generation);
    let wedged = pipeline.annotations().contains_key(PTS) != (wanted == "Paused");
    (current && phase(pipeline) == wanted).then_some(wedged)
}

/// Flips a pipeline away and back again as fast as can be, until that ends in a wedge.
async fn flip_until_wedged(team: &Team, name: &str, from: &str, to: &str) -> Recorder {
    // The second flip has to come while the first one is being worked at, which is a matter of luck.
    for round in 1..=60 {
        let recorder = Recorder::watch(team).await;
        want(team, name, to).await;
        want(team, name, from).await;
        until(team, "Pipeline", name, "has seen both", |p| reached(p, from).is_some()).await;
        quiet(team, name).await;
        let now = api(team, "Pipeline").get(name).await.unwrap();
        if reached(&now, from) == Some(true) {
            println!("{from}, {to}, {from}: wedged in round {round}");
            assert!(recorder.broken().await.iter().any(|words| words.contains("flip")), "{}", recorder.history(name));
            return recorder;
        }
        // By the way that is always clean.
        want(team, name, to).await;
        settled(team, name, to).await;
        want(team, name, from).await;
        settled(team, name, from).await;
    }
    panic!("{name}: no wedge within so many rounds");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_flips_too_close_to_each_other_end_in_a_wedge() {
    let scene = Scene::new("pl-wedge").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    running(team, "p", json!({"pauseGracePeriodSeconds": 30})).await;
    let recorder = flip_until_wedged(team, "p", "Running", "Paused").await;
    println!("{}", recorder.history("p"));
    desired(team, "p", &["Paused", "Running", "Running"]).await;
    let wedged = api(team, "Pipeline").get("p").await.unwrap();
    let all = wedged.data["status"]["conditions"].as_array().unwrap();
    assert!(all.iter().all(|c| c["status"] == "True") && wedged.data["status"]["message"] == "", "{}", wedged.data);
    // A pause now finds the old time: there is no grace left, and what is pending stays where it is.
    turn(team, "Pipeline", "p", "pending", json!("9")).await;
    edit(team, "Pipeline", "p", json!({"spec": {"lifecycle": {"pauseGracePeriodSeconds": 1}}})).await;
    want(team, "p", "Paused").await;
    let paused = settled(team, "p", "Paused").await;
    assert!(!drained(&paused), "{}", paused.data);
    assert_eq!(paused.annotations()[PTS], wedged.annotations()[PTS]);
    turn(team, "Pipeline", "p", "pending", Value::Null).await;
    edit(team, "Pipeline", "p", json!({"spec": {"lifecycle": {"pauseGracePeriodSeconds": 30}}})).await;
    want(team, "p", "Running").await;
    settled(team, "p", "Running").await;
    want(team, "p", "Paused").await;
    settled(team, "p", "Paused").await;

    let recorder = flip_until_wedged(team, "p", "Paused", "Running").await;
    println!("{}", recorder.history("p"));
    desired(team, "p", &["Running"; 3]).await;
    assert!(drained(&api(team, "Pipeline").get("p").await.unwrap()));
    pods(team, "p", 3).await;
    // The cure, and a pause that is one.
    want(team, "p", "Running").await;
    settled(team, "p", "Running").await;
    want(team, "p", "Paused").await;
    settled(team, "p", "Paused").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn knobs_wedge_a_pipeline_for_one_flip() {
    let scene = Scene::new("pl-knobs").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    running(team, "p", json!({})).await;
    turn(team, "Pipeline", "p", "wedge", json!("paused")).await;
    want(team, "p", "Paused").await;
    let wedged = until(team, "Pipeline", "p", "wedged", |p| phase(p) == "Paused").await;
    assert!(drained(&wedged) && !wedged.annotations().contains_key(PTS), "{wedged:?}");
    desired(team, "p", &["Running"; 3]).await;
    want(team, "p", "Running").await;
    settled(team, "p", "Running").await;
    want(team, "p", "Paused").await;
    settled(team, "p", "Paused").await;
    turn(team, "Pipeline", "p", "wedge", json!("running")).await;
    want(team, "p", "Running").await;
    let wedged = until(team, "Pipeline", "p", "wedged", |p| phase(p) == "Running").await;
    assert!(wedged.annotations().contains_key(PTS), "{wedged:?}");
    assert_eq!(wedged.data["status"]["observedGeneration"], json!(wedged.metadata.generation));
    desired(team, "p", &["Paused", "Running", "Running"]).await;
    // The cure.
    want(team, "p", "Paused").await;
    settled(team, "p", "Paused").await;
    want(team, "p", "Running").await;
    settled(team, "p", "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_deployed_is_failed_and_keeps_what_it_has() {
    let scene = Scene::new("pl-failed").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    team.apply(&controller("1.4.0"), "").await;
    team.apply(&controller("1.4.0"), "blue").await;
    create(team, "Pipeline", "p", "", spec(json!({}))).await;
    let fails = async |name: &str, kind: &str, reason: &str, words: &str| {
        until(team, "Pipeline", name, words, |p| {
            let message = p.data["status"]["message"].as_str().unwrap_or_default();
            let current = p.data["status"]["observedGeneration"] == json!(p.metadata.generation);
            current && phase(p) == "Failed" && message.contains(words) && condition(p, kind) == ("False", reason)
        })
        .await
    };
    let fixed = "ReconcileFixedResourcesFailed";
    fails("p", "Deployed", fixed, "isbsvc default not found").await;
    service(team, "default", "").await;
    // Tried again by itself.
    settled(team, "p", "Running").await;
    pods(team, "p", 3).await;
    create(team, "Pipeline", "b", "blue", spec(json!({}))).await;
    fails("b", "Deployed", fixed, "isbsvc not managed by the same controller of this pipeline").await;

    edit(team, "Pipeline", "p", json!({"spec": {"edges": [{"from": "in", "to": "nowhere"}]}})).await;
    fails("p", "Configured", "InvalidSpec", "nowhere").await;
    pods(team, "p", 3).await;
    // A pause is not begun then.
    want(team, "p", "Paused").await;
    let failed = until(team, "Pipeline", "p", "seen", |p| {
        p.data["status"]["observedGeneration"] == json!(p.metadata.generation)
    })
    .await;
    assert!(phase(&failed) == "Failed" && !failed.annotations().contains_key(PTS), "{failed:?}");
    edit(
        team,
        "Pipeline",
        "p",
        json!({"spec": {"edges": [{"from": "in", "to": "cat"}, {"from": "cat", "to": "out"}]}}),
    )
    .await;
    settled(team, "p", "Paused").await;

    // While the service is not healthy, whoever is looked at fails, and is as it was when that is over.
    quiet(team, "p").await;
    turn(team, "InterStepBufferService", "default", "unhealthy", json!("true")).await;
    until(team, "InterStepBufferService", "default", "unhealthy", |s| !healthy(s)).await;
    assert_eq!(phase(&api(team, "Pipeline").get("p").await.unwrap()), "Paused", "nobody has looked");
    poke(team, "Pipeline", "p").await;
    let failed = fails("p", "Deployed", fixed, "isbsvc not healthy").await;
    assert!(failed.annotations().contains_key(PTS));
    turn(team, "InterStepBufferService", "default", "unhealthy", Value::Null).await;
    settled(team, "p", "Paused").await;
    turn(team, "Pipeline", "p", "fails", json!("for a test")).await;
    poke(team, "Pipeline", "p").await;
    fails("p", "Deployed", fixed, "for a test").await;
    create(team, "Pipeline", "empty", "", json!({"vertices": []})).await;
    fails("empty", "Configured", "InvalidSpec", "empty vertices").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_drains_only_when_it_was_given_time() {
    let scene = Scene::new("pl-delete").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    running(team, "quick", json!({})).await;
    running(team, "slow", json!({"deletionGracePeriodSeconds": 30})).await;
    for name in ["quick", "slow"] {
        turn(team, "Pipeline", name, "pending", json!("3")).await;
        api(team, "Pipeline").delete(name, &Default::default()).await.unwrap();
    }
    let gone = async |kind: &str, name: &str| {
        eventually(&format!("{name} is gone"), async || {
            let found = api(team, kind).get_opt(name).await.unwrap();
            found.map_or(Ok(()), |object| Err(format!("{}", object.data["status"])))
        })
        .await;
    };
    gone("Pipeline", "quick").await;
    pods(team, "quick", 0).await;
    let going = until(team, "Pipeline", "slow", "Deleting", |p| phase(p) == "Deleting").await;
    assert!(going.data["status"]["observedGeneration"].as_i64() < going.metadata.generation);
    desired(team, "slow", &["Paused", "Running", "Running"]).await;
    // It is in use, and nothing but a poke has it looked at again.
    turn(team, "InterStepBufferService", "default", "no-retries", json!("true")).await;
    api(team, "InterStepBufferService").delete("default", &Default::default()).await.unwrap();
    until(team, "InterStepBufferService", "default", "refused", |s| {
        s.data["status"]["message"].as_str().is_some_and(|m| m.contains("has 1 pipelines connected"))
    })
    .await;
    turn(team, "Pipeline", "slow", "pending", Value::Null).await;
    gone("Pipeline", "slow").await;
    poke(team, "InterStepBufferService", "default").await;
    gone("InterStepBufferService", "default").await;
    team.gone::<StatefulSet>("isbsvc-default-js").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_survives_a_change_of_the_controller_and_nothing_happens_without_one() {
    let scene = Scene::new("pl-change").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    running(team, "p", json!({"pauseGracePeriodSeconds": 60})).await;
    create(team, "Pipeline", "foreign", "blue", spec(json!({}))).await;
    turn(team, "Pipeline", "p", "pending", json!("1")).await;
    want(team, "p", "Paused").await;
    let pausing = until(team, "Pipeline", "p", "Pausing", |p| phase(p) == "Pausing").await;
    let none = json!({"spec": {"replicas": 0}});
    let before = team.lease(LEASE).await.unwrap();
    team.edit::<Deployment>("numaflow-controller", none).await;
    eventually("its pod is gone", async || {
        let left = team.all::<Pod>().await.iter().any(|p| before.by(&p.name_any()));
        if left { Err("still there".to_owned()) } else { Ok(()) }
    })
    .await;
    turn(team, "Pipeline", "p", "pending", Value::Null).await;
    poke(team, "Pipeline", "p").await;
    let version = api(team, "Pipeline").get("p").await.unwrap().resource_version();
    stays("nobody looks at it", Duration::from_secs(3), async || {
        let now = api(team, "Pipeline").get("p").await.unwrap();
        if now.resource_version() == version { Ok(()) } else { Err(format!("{}", now.data["status"])) }
    })
    .await;
    let other = controller("1.5.0").nats(&[("2.10", "nats:2.10.30")]);
    team.apply(&other, "").await;
    let paused = settled(team, "p", "Paused").await;
    assert_eq!(paused.annotations()[PTS], pausing.annotations()[PTS]);
    // Its configuration knows another image.
    eventually("the StatefulSet has the other image", async || {
        let set = team.get::<StatefulSet>("isbsvc-default-js").await.spec.unwrap();
        let image = set.template.spec.unwrap().containers[0].image.clone();
        if image.as_deref() == Some("nats:2.10.30") { Ok(()) } else { Err(format!("{image:?}")) }
    })
    .await;
    until(team, "InterStepBufferService", "default", "healthy", healthy).await;
    let foreign = api(team, "Pipeline").get("foreign").await.unwrap();
    assert!(foreign.data["status"].is_null() && foreign.finalizers().is_empty(), "{foreign:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn vertices_follow_the_spec_and_begin_without_pods_while_paused() {
    let scene = Scene::new("pl-vertices").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    running(team, "p", json!({})).await;
    want(team, "p", "Paused").await;
    settled(team, "p", "Paused").await;
    let mut wider = spec(json!({"desiredPhase": "Paused"}));
    for (name, scale) in [("more", json!({})), ("fixed", json!({"disabled": true}))] {
        wider["vertices"].as_array_mut().unwrap().push(json!({"name": name, "sink": {"log": {}}, "scale": scale}));
        wider["edges"].as_array_mut().unwrap().push(json!({"from": "in", "to": name}));
    }
    edit(team, "Pipeline", "p", json!({"spec": wider})).await;
    desired(team, "p", &["Paused"; 5]).await;
    assert!(vertices(team, "p").await[3..].iter().all(|v| v.data["spec"]["replicas"] == 0));
    want(team, "p", "Running").await;
    desired(team, "p", &["Running"; 5]).await;
    let running = pods(team, "p", 4).await;
    assert!(!running.iter().any(|p| p.name_any().starts_with("p-fixed-")), "it stays without one");

    // What is changed during a pause stops at once, and with it what would have been drained.
    turn(team, "Pipeline", "p", "pending", json!("9")).await;
    want(team, "p", "Paused").await;
    until(team, "Pipeline", "p", "Pausing", |p| phase(p) == "Pausing").await;
    wider["vertices"][1]["udf"]["container"]["image"] = json!("cat:2");
    edit(team, "Pipeline", "p", json!({"spec": {"vertices": wider["vertices"]}})).await;
    eventually("only the one that was changed is stopped", async || {
        let all = vertices(team, "p").await;
        let paused: Vec<String> = all
            .iter()
            .filter(|v| v.data["spec"]["lifecycle"]["desiredPhase"] == "Paused")
            .map(ResourceExt::name_any)
            .collect();
        if paused == ["p-in", "p-cat"] { Ok(()) } else { Err(format!("{paused:?}")) }
    })
    .await;
    turn(team, "Pipeline", "p", "terminates-after", json!("2s")).await;
    want(team, "p", "Running").await;
    desired(team, "p", &["Running"; 5]).await;
    pods(team, "p", 4).await;
    turn(team, "Pipeline", "p", "pending", Value::Null).await;
    let began = Instant::now();
    want(team, "p", "Paused").await;
    settled_five(team).await;
    assert!(began.elapsed() >= Duration::from_secs(2), "a pod that is going is still there: {:?}", began.elapsed());
}

async fn settled_five(team: &Team) {
    until(team, "Pipeline", "p", "Paused and drained", |p| phase(p) == "Paused" && drained(p)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_to_be_tried_again_waits_for_a_change() {
    let scene = Scene::new("pl-retries").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    running(team, "p", json!({})).await;
    quiet(team, "p").await;
    for (knob, value) in [("no-retries", "true"), ("fails", "no quota")] {
        turn(team, "Pipeline", "p", knob, json!(value)).await;
    }
    poke(team, "Pipeline", "p").await;
    until(team, "Pipeline", "p", "failed", |p| phase(p) == "Failed").await;
    turn(team, "Pipeline", "p", "fails", Value::Null).await;
    stays("nobody looks at it", Duration::from_secs(5), async || {
        let now = api(team, "Pipeline").get("p").await.map_err(|error| error.to_string())?;
        if phase(&now) == "Failed" { Ok(()) } else { Err(phase(&now).to_owned()) }
    })
    .await;
    poke(team, "Pipeline", "p").await;
    settled(team, "p", "Running").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worker_looks_at_all_pipelines_so_that_a_slow_one_holds_up_the_others() {
    let scene = Scene::new("pl-delay").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    ready(team).await;
    running(team, "slow", json!({})).await;
    quiet(team, "slow").await;
    turn(team, "Pipeline", "slow", "pass-delay", json!("3s")).await;
    // Knobs are read from what is seen, as everything is.
    quiet(team, "slow").await;
    let began = Instant::now();
    poke(team, "Pipeline", "slow").await;
    create(team, "Pipeline", "other", "", spec(json!({}))).await;
    until(team, "Pipeline", "other", "is looked at", |p| phase(p) == "Running").await;
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_goes_on_when_the_kinds_come_back() {
    let scene = Scene::new("pl-kinds").await;
    let team = &scene.team;
    let _none = numaflow::absent(&team.client).await;
    team.apply(&controller("1.4.0"), "").await;
    team.leads(LEASE, "held", |held| !held.holder.is_empty()).await;
    for round in 0..2 {
        numaflow::install(&team.client).await;
        service(team, &format!("service-{round}"), "").await;
        let mut spec = spec(json!({}));
        spec["interStepBufferServiceName"] = json!(format!("service-{round}"));
        create(team, "Pipeline", "p", "", spec).await;
        settled(team, "p", "Running").await;
        want(team, "p", "Paused").await;
        settled(team, "p", "Paused").await;
        if round == 0 {
            numaflow::remove(&team.client).await;
        }
    }
}
