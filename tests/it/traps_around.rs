//! Traps around pipelines: their controller, their ISB service, and how both go.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    core::v1::Pod,
};
use kube::{ResourceExt, api::DynamicObject};
use numaplane::api::PipelineRollout;
use serde_json::{Value, json};

use crate::{
    pipelines::said,
    support::{
        Invariant, Team, audit,
        drains::stage_of,
        eventually,
        leases::LEASE,
        mono_vertices, numaflow,
        pauses::State,
        pipelines::{controller, healthy, phase, pods, poke, turn, until},
        production,
        requesters::{By, told_for_both},
        rollouts::{Stage, versions},
        stays, version,
        wait::within,
    },
    traps::{ask, image, with_lifecycle},
};

/// The operator's writes of pipelines.
fn pipeline_writes(mark: audit::Mark, team: &Team) -> Vec<String> {
    let all = audit::since(mark, &team.namespace);
    all.iter().filter(|r| r.write() && r.resource() == "pipelines").map(audit::Request::describe).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn trap08_a_paused_pipeline_whose_isb_service_was_ill_is_paused_again_and_resumed() {
    let (stage, _operator) = Stage::at_work("trap08").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    team.pipeline_runs("my").await;
    ask(team, "my", Some("Paused")).await;
    team.pipeline_rests("my").await;
    turn(team, "InterStepBufferService", "default", "unhealthy", json!("true")).await;
    until(team, "InterStepBufferService", "default", "ill", |s| !healthy(s)).await;
    poke(team, "Pipeline", "my-0").await;
    let failed = until(team, "Pipeline", "my-0", "failed", |p| phase(p) == "Failed").await;
    println!("{}", failed.data["status"]["message"]);
    let ill = |s: &numaplane::api::PipelineRolloutStatus| said(s, "ChildResourcesHealthy").0 == "False";
    let status = team.pipeline_until("my", "says so", ill).await;
    println!("{}: {}", status.phase.as_str(), status.message);
    assert_eq!(said(&status, "Ready"), ("False", "PipelineFailed"), "{status:?}");
    assert_eq!(status.pause.unwrap().state, "Paused", "what was settled stays so");
    // Numaflow tries again only after a while, which may be a quarter of an hour: here, never.
    turn(team, "Pipeline", "my-0", "silent", json!("true")).await;
    // Its own next try, which is due by now, comes to nothing.
    stays("it is not looked at", Duration::from_secs(3), async || {
        let now = numaflow::api(team, "Pipeline").get("my-0").await.map_err(|error| error.to_string())?;
        if phase(&now) == "Failed" { Ok(()) } else { Err(phase(&now).to_owned()) }
    })
    .await;
    turn(team, "Pipeline", "my-0", "silent", Value::Null).await;
    let mark = audit::settled(team, Duration::from_secs(1)).await;
    turn(team, "InterStepBufferService", "default", "unhealthy", Value::Null).await;
    until(team, "Pipeline", "my-0", "paused again", |p| phase(p) == "Paused").await;
    team.pipeline_rests("my").await;
    audit::settled(team, Duration::from_secs(1)).await;
    let writes = pipeline_writes(mark, team);
    println!("{writes:?}");
    assert_eq!(writes.len(), 1, "it is poked once: {writes:?}");
    assert!(team.live_pipeline("my").await.labels().contains_key("numaplane.numaproj.io/poked"));
    ask(team, "my", None).await;
    team.pipeline_until("my", "runs", |s| s.pause.is_none() && s.phase.as_str() == "Deployed").await;
    team.pipeline_runs("my").await;
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 2, "{}", stage.recorder.history("my-0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn trap08_a_pipeline_resumed_onto_an_ill_isb_service_fails_and_runs_when_that_is_well() {
    let (stage, _operator) = Stage::at_work("trap08-resume").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    team.pipeline_runs("my").await;
    ask(team, "my", Some("Paused")).await;
    team.pipeline_rests("my").await;
    turn(team, "InterStepBufferService", "default", "unhealthy", json!("true")).await;
    until(team, "InterStepBufferService", "default", "ill", |s| !healthy(s)).await;
    ask(team, "my", None).await;
    until(team, "Pipeline", "my-0", "failed", |p| {
        phase(p) == "Failed" && p.data["spec"]["lifecycle"]["desiredPhase"].is_null()
    })
    .await;
    turn(team, "InterStepBufferService", "default", "unhealthy", Value::Null).await;
    team.pipeline_runs("my").await;
    println!("{}", stage.recorder.history("my-0"));
    crate::support::pipelines::desired(team, "my-0", &["Running"; 3]).await;
    assert!(team.pipeline_status("my").await.wedge.is_none());
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap09_a_controller_that_does_not_look_is_named_and_a_daemon_that_hangs_holds_up_nobody_for_good() {
    let (stage, _operator) = Stage::at_work("trap09").await;
    let team = stage.team();
    let grace = || with_lifecycle(json!({"pauseGracePeriodSeconds": 1}));
    team.pipeline_with("mute", grace(), json!({}), json!({})).await;
    team.pipeline_runs("mute").await;
    turn(team, "Pipeline", "mute-0", "silent", json!("true")).await;
    let began = Instant::now();
    team.set_image("mute", "cat:2").await;
    let status = team.pipeline_says("mute", &["Numaflow's controller to look at Pipeline/mute-0"]).await;
    assert!(!status.message.contains("does not seem to respond"), "{}", status.message);
    let status = team.pipeline_says("mute", &["Pipeline/mute-0", "its controller does not seem to respond"]).await;
    println!("after {:?}: {}", began.elapsed(), status.message);
    assert!(began.elapsed() >= Duration::from_secs(29), "{:?}", began.elapsed());
    assert_eq!(image(&team.live_pipeline("mute").await), "cat:1");
    turn(team, "Pipeline", "mute-0", "silent", Value::Null).await;
    poke(team, "Pipeline", "mute-0").await;
    assert_eq!(image(&team.pipeline_runs("mute").await), "cat:2");

    // One worker for both.
    team.pipeline_with(
        "hung",
        with_lifecycle(json!({"pauseGracePeriodSeconds": 4})),
        json!({"daemon": "hung"}),
        json!({}),
    )
    .await;
    team.pipeline("my", json!({"pass-delay": "300ms"})).await;
    team.pipeline_runs("hung").await;
    team.pipeline_runs("my").await;
    for name in ["hung", "my"] {
        team.set_image(name, "cat:2").await;
    }
    for (name, drained) in [("my", true), ("hung", false)] {
        let status = team.pipeline_until(name, "was paused", |s| s.last_pause.is_some()).await;
        assert_eq!(status.last_pause.unwrap().drained, Some(drained), "{name}");
        assert_eq!(image(&team.pipeline_runs(name).await), "cat:2");
    }
    stage.at_rest().await;
}

/// When the StatefulSet of the ISB service was rolled to this image, all pods ready, for the first time.
async fn rolled(team: &Team, image: &'static str) -> (Arc<Mutex<Option<Timestamp>>>, Invariant) {
    let when: Arc<Mutex<Option<Timestamp>>> = Arc::default();
    let into = when.clone();
    let watch = Invariant::watch("a StatefulSet", team.api::<StatefulSet>(), move |sets| {
        for set in sets.values() {
            let set = serde_json::to_value(set).unwrap();
            if production::image(&set) == image && production::is_rolled(&set) {
                into.lock().unwrap().get_or_insert_with(Timestamp::now);
            }
        }
        Ok(())
    });
    (when, watch.await)
}

async fn trap10_pipelines_resume_only_when_the_isb_service_runs_the_image_of_the_new_controller(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "trap10", &[("a", json!({})), ("b", json!({}))]).await;
    let team = stage.team();
    turn(team, "InterStepBufferService", &requester.service_name().await, "stale-health", json!("2s")).await;
    let (when, _watch) = match by {
        By::Controller => {
            let new = version("1.9.0").nats(&[("2.10", "nats:2.10.30"), ("latest", "nats:latest")]);
            stage.scene.define(&[versions(), vec![new]].concat()).await;
            let rolled = rolled(team, "nats:2.10.30").await;
            team.set_version("numaflow-controller", "1.9.0").await;
            team.deployed("numaflow-controller", "1.9.0").await;
            rolled
        }
        By::Isb => {
            let rolled = rolled(team, production::image_of(by.version(1))).await;
            requester.change(1).await;
            requester.deployed(1).await;
            rolled
        }
    };
    for name in ["a", "b"] {
        team.pipeline_runs(name).await;
        let states = stage.recorder.states(&format!("{name}-0"));
        let paused = states.iter().position(State::wants_pause).unwrap();
        let resumed = states[paused..].iter().find(|s| !s.wants_pause()).unwrap();
        let rolled = when.lock().unwrap().expect("the StatefulSet was rolled");
        println!("{name} was resumed {:#} after the ISB service was rolled", resumed.at.duration_since(rolled));
        assert!(resumed.at >= rolled, "{}", stage.recorder.history(&format!("{name}-0")));
    }
    stage.at_rest().await;
}

async fn trap11_a_mono_vertex_is_left_alone_and_stands_in_no_ones_way(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "trap11", &[("my", json!({}))]).await;
    let team = stage.team();
    mono_vertices::running(team, "mono", json!({"replicas": 1, "lifecycle": {"desiredPhase": "Running"}})).await;
    let before = numaflow::api(team, "MonoVertex").get("mono").await.unwrap();
    requester.change(1).await;
    let drain = requester.done(1).await;
    team.pipeline_runs("my").await;
    let after = numaflow::api(team, "MonoVertex").get("mono").await.unwrap();
    // Its controller has looked at it, who is another one now; nobody has asked anything of it.
    assert_eq!(after.metadata.generation, before.metadata.generation);
    assert_eq!((after.labels(), after.annotations()), (before.labels(), before.annotations()));
    println!("{drain:?}");
    assert_eq!(drain.drained.len(), 1);
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap12_another_controller_takes_over_in_the_middle_of_a_pause() {
    let (stage, _operator) = Stage::at_work("trap12").await;
    let team = stage.team();
    team.pipeline("my", json!({"drains-after": "8s"})).await;
    team.pipeline_runs("my").await;
    team.set_image("my", "cat:2").await;
    until(team, "Pipeline", "my-0", "pauses", |p| phase(p) == "Pausing").await;
    let before = team.lease(LEASE).await.unwrap();
    let host = before.holder.split('_').next().unwrap().to_owned();
    team.delete::<Pod>(&host).await;
    // A change that nobody sees: it is seen when somebody is there again.
    poke(team, "Pipeline", "my-0").await;
    let began = Instant::now();
    team.leads(LEASE, "another one leads", |held| !held.holder.is_empty() && held.holder != before.holder).await;
    println!("another controller led after {:?}", began.elapsed());
    assert_eq!(image(&team.pipeline_runs("my").await), "cat:2");
    let last = team.pipeline_status("my").await.last_pause.unwrap();
    println!("{last:?}\n{}", stage.recorder.history("my-0"));
    assert_eq!(last.drained, Some(true));
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn trap12_a_pipeline_of_an_instance_without_a_controller_says_which_one_is_waited_for() {
    let (stage, _operator) = Stage::at_work("trap12-nobody").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    team.pipeline_runs("my").await;
    let nobody = json!({"numaflow.numaproj.io/instance": "nobody"});
    let spec = json!({"pipeline": {"metadata": {"annotations": nobody}, "spec": with_lifecycle(json!({}))}});
    team.create::<PipelineRollout>(json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "PipelineRollout", "metadata": {"name": "lost"},
        "spec": spec,
    }))
    .await;
    let words = ["waiting for Numaflow's controller of instance \"nobody\" to look at Pipeline/lost-0"];
    let status = team.pipeline_says("lost", &words).await;
    println!("{}: {}", status.phase.as_str(), status.message);
    assert_eq!(status.phase.as_str(), "Pending");
    // Nobody has begun with it, so that there is nothing to drain.
    team.set_image("lost", "cat:2").await;
    until(team, "Pipeline", "lost-0", "changed", |p| image(p) == "cat:2").await;
    // And the upgrade of another instance does not wait for it.
    team.set_version("numaflow-controller", "1.8.1").await;
    team.deployed("numaflow-controller", "1.8.1").await;
    assert_eq!(stage.recorder.flips("lost-0").len(), 0, "{}", stage.recorder.history("lost-0"));
    team.pipeline_runs("my").await;
    // As it never had a controller, it has no finalizer that would keep it.
    team.delete::<PipelineRollout>("lost").await;
    team.gone::<PipelineRollout>("lost").await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap13_a_pipeline_deleted_together_with_its_isb_service_drains_and_both_go() {
    let (stage, _operator) = Stage::at_work("trap13").await;
    let team = stage.team();
    team.pipeline("my", json!({"drains-after": "3s"})).await;
    team.pipeline_runs("my").await;
    // Its own next try may be a quarter of an hour away: here, there is none.
    turn(team, "InterStepBufferService", "default", "no-retries", json!("true")).await;
    let began = Instant::now();
    numaflow::delete(team, "InterStepBufferService", "default").await;
    let waits = |s: &DynamicObject| phase(s) == "Deleting";
    until(team, "InterStepBufferService", "default", "waits for the pipeline", waits).await;
    let mark = audit::settled(team, Duration::from_secs(1)).await;
    team.delete::<PipelineRollout>("my").await;
    team.gone::<PipelineRollout>("my").await;
    let drained = began.elapsed();
    assert!(drained >= Duration::from_secs(3), "{drained:?}");
    within(Duration::from_secs(30), "the ISB service is gone", async || {
        let found = numaflow::api(team, "InterStepBufferService").get_opt("default").await;
        match found.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(left) => Err(format!("{:?}", left.finalizers())),
        }
    })
    .await;
    let wakes: Vec<String> = audit::since(mark, &team.namespace)
        .iter()
        .filter(|r| r.write() && r.resource() == "interstepbufferservices")
        .map(audit::Request::describe)
        .collect();
    assert_eq!(
        wakes,
        ["patch interstepbufferservices/default: 200"],
        "the operator's poke, and nothing else, wakes Numaflow"
    );
    println!("the pipeline was gone after {drained:?}, its ISB service after {:?}", began.elapsed());
    stage.at_rest().await;
}

/// A controller's Deployment that says nothing about replicas.
fn unscaled(name: &str) -> crate::support::Version {
    controller(name).controller(|w| w.with(json!({"spec": {"replicas": null}})))
}

#[tokio::test(flavor = "multi_thread")]
async fn b08_who_scales_the_controller_during_an_upgrade_is_not_fought_with() {
    let stage = Stage::bare("b08").await;
    let team = stage.team();
    stage.scene.define(&[unscaled("1.8.0"), unscaled("1.8.1")]).await;
    let _operator = stage.scene.operator().await;
    stage.furnish().await;
    team.pipeline("my", json!({"drains-after": "3s"})).await;
    team.pipeline_runs("my").await;
    let name = "numaflow-controller";
    let scale = async |replicas: i32| {
        team.edit::<Deployment>(name, json!({"spec": {"replicas": replicas}})).await;
    };
    let seen: Arc<Mutex<Vec<i32>>> = Arc::default();
    let into = seen.clone();
    let api = team.api::<Deployment>();
    let never_none = Invariant::watch("the controller is never scaled to nothing", api, move |all| {
        let Some(replicas) = all.get(name).and_then(|d| d.spec.as_ref()).and_then(|s| s.replicas) else {
            return Ok(());
        };
        let mut seen = into.lock().unwrap();
        if seen.last() != Some(&replicas) {
            seen.push(replicas);
        }
        if replicas > 0 { Ok(()) } else { Err("no replicas".to_owned()) }
    })
    .await;
    scale(2).await;
    team.set_version(name, "1.8.1").await;
    until(team, "Pipeline", "my-0", "pauses", |p: &DynamicObject| phase(p) == "Pausing").await;
    for replicas in [3, 1, 2] {
        scale(replicas).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    team.deployed(name, "1.8.1").await;
    team.pipeline_runs("my").await;
    eventually("as many as were asked for last", async || {
        let now = team.deployment(name).await.spec.unwrap().replicas;
        if now == Some(2) { Ok(()) } else { Err(format!("{now:?}")) }
    })
    .await;
    println!("{:?}", seen.lock().unwrap());
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3, 1, 2], "nobody else scaled it");
    never_none.held();
    pods(team, "my-0", 3).await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b08_who_scales_the_controller_while_an_upgrade_is_taken_back_is_not_fought_with() {
    let stage = Stage::bare("b08-back").await;
    let team = stage.team();
    let slow = unscaled("1.8.2").not_isolated().controller(|w| w.ready_after(8));
    stage.scene.define(&[unscaled("1.8.0"), unscaled("1.8.1"), slow]).await;
    let _operator = stage.scene.operator().await;
    stage.furnish().await;
    team.pipeline("my", json!({"drains-after": "3s"})).await;
    team.pipeline_runs("my").await;
    let name = "numaflow-controller";
    let scale = async |replicas: i32| {
        team.edit::<Deployment>(name, json!({"spec": {"replicas": replicas}})).await;
    };
    let seen: Arc<Mutex<Vec<i32>>> = Arc::default();
    let into = seen.clone();
    let never_none =
        Invariant::watch("the controller is never scaled to nothing", team.api::<Deployment>(), move |all| {
            let replicas = all.get(name).and_then(|d| d.spec.as_ref()).and_then(|s| s.replicas).unwrap_or_default();
            let mut seen = into.lock().unwrap();
            if seen.last() != Some(&replicas) {
                seen.push(replicas);
            }
            if replicas > 0 { Ok(()) } else { Err("no replicas".to_owned()) }
        })
        .await;
    let generation = team.deployment(name).await.metadata.generation;
    // While its pipeline drains, …
    team.set_version(name, "1.8.1").await;
    until(team, "Pipeline", "my-0", "pauses", |p: &DynamicObject| phase(p) == "Pausing").await;
    scale(3).await;
    scale(1).await;
    team.set_version(name, "1.8.0").await;
    scale(2).await;
    team.deployed(name, "1.8.0").await;
    team.pipeline_runs("my").await;
    assert_eq!(team.deployment(name).await.metadata.generation, generation.map(|g| g + 3), "changed by nobody else");
    // … and while it is judged in production.
    team.set_version(name, "1.8.2").await;
    team.controller_until("is being judged", |r| stage_of(r, "1.8.2") == "Confirm").await;
    scale(3).await;
    scale(1).await;
    team.set_version(name, "1.8.0").await;
    team.controller_until("is taken back", |r| stage_of(r, "1.8.2") != "Confirm").await;
    scale(2).await;
    team.deployed(name, "1.8.0").await;
    team.pipeline_runs("my").await;
    eventually("all that happened was seen", async || {
        let seen = seen.lock().unwrap().clone();
        if seen.len() >= 7 { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    assert_eq!(*seen.lock().unwrap(), [1, 3, 1, 2, 3, 1, 2], "nobody else scaled it");
    never_none.held();
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b08_a_controller_whose_definition_says_how_many_it_is_stays_so_and_is_never_scaled_to_nothing() {
    let (stage, _operator) = Stage::at_work("b08-said").await;
    let team = stage.team();
    team.pipeline("my", json!({"drains-after": "3s"})).await;
    team.pipeline_runs("my").await;
    let name = "numaflow-controller";
    let api = team.api::<Deployment>();
    let never_none = Invariant::watch("the controller is never scaled to nothing", api, move |all| {
        let replicas = all.get(name).and_then(|d| d.spec.as_ref()).and_then(|s| s.replicas);
        if replicas == Some(0) { Err("no replicas".to_owned()) } else { Ok(()) }
    })
    .await;
    let mark = audit::settled(team, Duration::from_secs(1)).await;
    let mut changes = 0;
    let mut scale = async |replicas: i32| {
        changes += 1;
        team.edit::<Deployment>(name, json!({"spec": {"replicas": replicas}})).await;
        eventually("as many as are defined", async || {
            let now = team.deployment(name).await.spec.unwrap().replicas;
            if now == Some(1) { Ok(()) } else { Err(format!("{now:?}")) }
        })
        .await;
    };
    scale(3).await;
    team.set_version(name, "1.8.1").await;
    until(team, "Pipeline", "my-0", "pauses", |p: &DynamicObject| phase(p) == "Pausing").await;
    scale(2).await;
    team.deployed(name, "1.8.1").await;
    scale(4).await;
    team.pipeline_runs("my").await;
    never_none.held();
    audit::settled(team, Duration::from_secs(1)).await;
    let all = audit::since(mark, &team.namespace);
    let writes: Vec<String> = all
        .iter()
        .filter(|r| r.write() && r.resource().starts_with("deployments") && r.name() == name)
        .map(audit::Request::describe)
        .collect();
    println!("{changes} changes by somebody else, and of the operator: {writes:?}");
    // One for each of them, and one for the upgrade.
    assert!(writes.len() <= changes + 1, "{writes:?}");
    stage.at_rest().await;
}

told_for_both! {
    trap10_pipelines_resume_only_when_the_isb_service_runs_the_image_of_the_new_controller as trap10_pipelines_resume_only_when_the_isb_service_runs_the_image_of_its_new_version,
    trap11_a_mono_vertex_is_left_alone_and_stands_in_no_ones_way,
}
