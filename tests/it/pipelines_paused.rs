//! Pipelines and controllers that their users pause: what happens meanwhile, and how they come back.

use std::time::Duration;

use kube::{ResourceExt, api::DynamicObject};
use numaplane::api::{NumaflowControllerRollout, PipelineRollout};
use serde_json::{Value, json};

use crate::{
    pipelines::said,
    support::{
        Team, audit, eventually, numaflow,
        pauses::State,
        pipelines::{NoPods, PTS, edit, pods, poke, turn, until, vertices},
        requesters::{By, told_for_both},
        rollouts::{Stage, pipeline_spec, unfit_spec},
        stays,
    },
};

/// A lifecycle that asks for this phase.
fn phase(phase: Option<&str>) -> Value {
    json!({"lifecycle": {"desiredPhase": phase}})
}

/// Replicas of the vertex that works.
async fn replicas(team: &Team, pipeline: &str) -> Option<i64> {
    vertices(team, pipeline).await[1].data["spec"]["replicas"].as_i64()
}

/// Scales that vertex, as an autoscaler does.
async fn scale(team: &Team, pipeline: &str, replicas: i64) {
    edit(team, "Vertex", &format!("{pipeline}-cat"), json!({"spec": {"replicas": replicas}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_its_user_pauses_has_no_pods_and_comes_back_as_fast_as_is_asked_for() {
    let (stage, _operator) = Stage::at_work("pl-user").await;
    let team = stage.team();
    let fast = json!({"fastResume": true});
    team.pipeline("slow", json!({})).await;
    team.pipeline_with("fast", pipeline_spec(), json!({}), json!({"pauseResume": fast})).await;
    team.pipeline_with("drained", pipeline_spec(), json!({}), json!({"pauseResume": fast})).await;
    team.pipeline_with("drained-fast", pipeline_spec(), json!({}), json!({"ppnd": fast})).await;
    let all = ["slow", "fast", "drained", "drained-fast"];
    for name in all {
        team.pipeline_runs(name).await;
        let child = format!("{name}-0");
        pods(team, &child, 3).await;
        scale(team, &child, 3).await;
        pods(team, &child, 5).await;
    }
    for name in ["slow", "fast"] {
        team.edit_pipeline(name, phase(Some("Paused"))).await;
    }
    for name in ["slow", "fast"] {
        team.pipeline_rests(name).await;
        pods(team, &format!("{name}-0"), 0).await;
        let status = team.pipeline_status(name).await;
        assert_eq!(said(&status, "PipelinePausingOrPaused"), ("True", "PipelinePaused"));
        assert_eq!(status.pause.unwrap().asked_by, ["spec"]);
        println!("{}", status.message);
        team.edit_pipeline(name, phase(None)).await;
        let status = team.pipeline_until(name, "runs", |s| s.pause.is_none()).await;
        assert_eq!(status.last_pause.unwrap().drained, Some(true));
    }
    for name in ["drained", "drained-fast"] {
        team.set_image(name, "cat:2").await;
        let status = team.pipeline_until(name, "drained", |s| s.last_pause.is_some()).await;
        assert_eq!(status.last_pause.unwrap().drained, Some(true));
    }
    for (name, wanted) in all.into_iter().zip([1, 3, 1, 3]) {
        team.pipeline_runs(name).await;
        let child = format!("{name}-0");
        eventually(&format!("{name} has {wanted}"), async || match replicas(team, &child).await {
            Some(n) if n == wanted => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await;
        pods(team, &child, usize::try_from(wanted).unwrap() + 2).await;
        assert_eq!(stage.recorder.flips(&child).len(), 2, "{}", stage.recorder.history(&child));
    }
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d02_edits_of_a_paused_pipeline_start_no_pod_and_the_last_one_runs_on_resume() {
    let (stage, _operator) = Stage::at_work("pl-edits").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    team.pipeline_runs("my").await;
    team.edit_pipeline("my", phase(Some("Paused"))).await;
    team.pipeline_rests("my").await;
    pods(team, "my-0", 0).await;
    let none = NoPods::of(team, "my").await;
    for image in ["cat:2", "cat:3", "cat:2"] {
        team.set_image("my", image).await;
        team.pipeline_rests("my").await;
        let has = |p: &DynamicObject| p.data["spec"]["vertices"][1]["udf"]["container"]["image"] == image;
        until(team, "Pipeline", "my-0", image, has).await;
    }
    // Three at once, too.
    for image in ["cat:4", "cat:5", "cat:4"] {
        team.set_image("my", image).await;
    }
    team.pipeline_rests("my").await;
    stays("still paused", Duration::from_secs(2), async || {
        let now = team.live_pipeline("my").await;
        if now.data["status"]["phase"] == "Paused" { Ok(()) } else { Err(format!("{}", now.data["status"])) }
    })
    .await;
    none.held();
    team.edit_pipeline("my", phase(None)).await;
    team.pipeline_until("my", "runs", |s| s.pause.is_none() && s.phase.as_str() == "Deployed").await;
    let runs = team.pipeline_runs("my").await;
    assert_eq!(runs.data["spec"]["vertices"][1]["udf"]["container"]["image"], "cat:4");
    pods(team, "my-0", 3).await;
    let history = stage.recorder.history("my-0");
    assert_eq!(stage.recorder.flips("my-0").len(), 2, "{history}");
    let last = stage.recorder.states("my-0").last().unwrap().spec.clone();
    let specs: std::collections::BTreeSet<String> = {
        let states = stage.recorder.states("my-0");
        let resumed = states.iter().rposition(State::wants_pause).unwrap();
        states[resumed..].iter().map(|s| s.spec.clone()).collect()
    };
    assert_eq!(specs, [last].into(), "{history}");
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d02_a_paused_controller_rollout_attempts_nothing_and_then_exactly_the_last_version() {
    let (stage, _operator) = Stage::at_work("pl-held").await;
    let team = stage.team();
    let name = "numaflow-controller";
    let hold = |paused: Option<bool>| json!({"spec": {"paused": paused}});
    team.edit::<NumaflowControllerRollout>(name, hold(Some(true))).await;
    let before = team.status(name).await.name_count;
    for version in ["1.8.1", "1.8.2", "1.8.1"] {
        team.set_version(name, version).await;
        let words = ["paused by spec.paused", version];
        let held = team
            .until(name, "says that it is paused", |r| {
                let status = r.status.clone().unwrap_or_default();
                Some(status.observed_generation) == r.metadata.generation
                    && words.iter().all(|w| status.message.contains(w))
            })
            .await;
        let status = held.status.unwrap();
        println!("{}", status.message);
        assert!(status.upgrade.is_none() && status.name_count == before, "{status:?}");
    }
    stays("no attempt", Duration::from_secs(1), async || {
        let status = team.status(name).await;
        if status.upgrade.is_none() && status.name_count == before { Ok(()) } else { Err(status.message) }
    })
    .await;
    team.edit::<NumaflowControllerRollout>(name, hold(None)).await;
    let done = team.deployed(name, "1.8.1").await.status.unwrap();
    assert_eq!(done.name_count, before.map(|n| n + 1), "one attempt");
    team.edit::<NumaflowControllerRollout>(name, hold(Some(true))).await;
    team.set_version(name, "1.8.2").await;
    team.until(name, "says that it is paused", |r| r.status.as_ref().is_some_and(|s| s.message.contains("\"1.8.2\"")))
        .await;
    team.set_version(name, "1.8.1").await;
    team.edit::<NumaflowControllerRollout>(name, hold(None)).await;
    let quiet = team.deployed(name, "1.8.1").await.status.unwrap();
    assert_eq!(quiet.name_count, done.name_count, "no attempt");
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a12_a_change_of_a_pipeline_that_was_never_to_run_ends_and_no_pod_ever_runs() {
    let (stage, _operator) = Stage::at_work("pl-never").await;
    let team = stage.team();
    let none = NoPods::of(team, "my").await;
    let mut spec = pipeline_spec();
    spec["lifecycle"] = json!({"desiredPhase": "Paused"});
    team.pipeline_with("my-paused", spec, json!({}), json!({})).await;
    let mut spec = pipeline_spec();
    for vertex in spec["vertices"].as_array_mut().unwrap() {
        vertex["scale"] = json!({"min": 0, "max": 0});
    }
    team.pipeline_with("my-empty", spec, json!({}), json!({})).await;
    team.pipeline_rests("my-paused").await;
    team.pipeline_runs("my-empty").await;
    for name in ["my-paused", "my-empty"] {
        team.set_image(name, "cat:2").await;
    }
    let rests = team.pipeline_rests("my-paused").await;
    let runs = team.pipeline_runs("my-empty").await;
    for child in [rests, runs] {
        assert!(child.name_any().ends_with("-0"));
        assert_eq!(child.data["spec"]["vertices"][1]["udf"]["container"]["image"], "cat:2");
    }
    for name in ["my-paused", "my-empty"] {
        let status = team.pipeline_status(name).await;
        println!("{name}: {} {:?}", status.message, status.last_pause);
        assert_eq!((status.phase.as_str(), status.upgrade_in_progress.as_str()), ("Deployed", ""));
    }
    assert_eq!(numaflow::api(team, "Pipeline").list(&Default::default()).await.unwrap().items.len(), 2);
    none.held();
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-paused-0").len(), 0);
}

async fn a_spec_that_cannot_be_read_is_named_and_its_paused_pipeline_is_resumed_all_the_same(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "pl-unread", &[("my", json!({"drains-after": "6s"}))]).await;
    let team = stage.team();
    // What the server can refuse, it refuses.
    let bad = json!({"spec": {"strategy": {"ppnd": {"drainTimeout": "soon"}}}});
    let refused = team.pipelines().patch("my", &Default::default(), &kube::api::Patch::Merge(bad)).await;
    let words = refused.unwrap_err().to_string();
    println!("{words}");
    assert!(words.contains("spec.strategy.ppnd.drainTimeout") && words.contains("must be a duration"), "{words}");

    requester.change(1).await;
    team.pipeline_until("my", "pauses", |s| s.pause.as_ref().is_some_and(|p| p.state == "Pausing")).await;
    team.edit::<PipelineRollout>("my", json!({"spec": {"pipeline": {"spec": {"lifecycle": {"desiredPhase": 7}}}}}))
        .await;
    let status = team
        .pipeline_says("my", &["spec.pipeline.spec.lifecycle.desiredPhase", "7 is not a phase", "Paused or Running"])
        .await;
    println!("{}: {}", status.phase.as_str(), status.message);
    requester.deployed(1).await;
    let status = team.pipeline_until("my", "resumed", |s| s.pause.is_none()).await;
    assert_eq!(status.phase.as_str(), "Failed");
    assert_eq!(said(&status, "Stalled").0, "True");
    until(team, "Pipeline", "my-0", "runs", |p| p.data["status"]["phase"] == "Running").await;
    team.edit_pipeline("my", phase(None)).await;
    team.pipeline_runs("my").await;
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 2, "{}", stage.recorder.history("my-0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_a_phase_from_before_the_last_change_counts_for_nothing() {
    let (stage, _operator) = Stage::at_work("pl-stale").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    team.pipeline_runs("my").await;
    team.edit_pipeline("my", phase(Some("Paused"))).await;
    team.pipeline_rests("my").await;
    turn(team, "Pipeline", "my-0", "silent", json!("true")).await;
    let image = |p: &DynamicObject| p.data["spec"]["vertices"][1]["udf"]["container"]["image"].clone();
    team.set_image("my", "cat:2").await;
    let changed = until(team, "Pipeline", "my-0", "changed", |p| image(p) == "cat:2").await;
    assert_eq!(changed.data["status"]["phase"], "Paused");
    assert_ne!(changed.data["status"]["observedGeneration"], json!(changed.metadata.generation));
    let status = team.pipeline_says("my", &["waiting for Numaflow's controller to look at Pipeline/my-0"]).await;
    println!("{}: {}", status.phase.as_str(), status.message);
    // It says Paused still, about what it was before: neither another change nor a resume goes by that.
    team.set_image("my", "cat:3").await;
    team.edit_pipeline("my", phase(None)).await;
    stays("nothing is done", Duration::from_secs(3), async || {
        let now = team.live_pipeline("my").await;
        let same = now.metadata.generation == changed.metadata.generation;
        if same { Ok(()) } else { Err(format!("{}", now.data["spec"])) }
    })
    .await;
    turn(team, "Pipeline", "my-0", "silent", Value::Null).await;
    poke(team, "Pipeline", "my-0").await;
    team.pipeline_until("my", "runs", |s| s.pause.is_none() && s.phase.as_str() == "Deployed").await;
    assert_eq!(image(&team.pipeline_runs("my").await), "cat:3");
    println!("{}", stage.recorder.history("my-0"));
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 2);
}

async fn a_mistake_in_the_spec_of_a_paused_pipeline_is_mended_by_a_good_one(by: By) {
    let slow = json!({"never-pauses": "true"});
    let (stage, requester, _operator) = Stage::asked(by, "pl-mended", &[("my", json!({})), ("slow", slow)]).await;
    let team = stage.team();
    let vertices = |of: Value| json!({"vertices": of["vertices"]});
    let says = |wanted: &'static str| move |p: &DynamicObject| p.data["status"]["phase"] == wanted;
    team.edit_pipeline("my", phase(Some("Paused"))).await;
    team.pipeline_rests("my").await;
    team.edit_pipeline("my", vertices(unfit_spec())).await;
    until(team, "Pipeline", "my-0", "failed", says("Failed")).await;
    team.edit_pipeline("my", vertices(pipeline_spec())).await;
    team.pipeline_rests("my").await;
    team.edit_pipeline("my", phase(None)).await;
    stage.all_run(&["my"]).await;

    // The same while it is paused for an upgrade.
    requester.change(1).await;
    requester.draining(1, &["slow-0"]).await;
    team.edit_pipeline("my", vertices(unfit_spec())).await;
    until(team, "Pipeline", "my-0", "failed", says("Failed")).await;
    team.edit_pipeline("my", vertices(pipeline_spec())).await;
    until(team, "Pipeline", "my-0", "paused", says("Paused")).await;
    requester.force("go on").await;
    requester.deployed(1).await;
    stage.all_run(&["my", "slow"]).await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_pipeline_whose_time_stamp_somebody_took_is_left_in_peace_and_takes_changes() {
    let (stage, _operator) = Stage::at_work("pl-stripped").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    team.pipeline_runs("my").await;
    team.edit_pipeline("my", phase(Some("Paused"))).await;
    team.pipeline_rests("my").await;
    team.meddle("my-0", json!({"metadata": {"annotations": {PTS: null}}})).await;
    let mut mark = audit::settled(team, Duration::from_secs(7)).await;
    stays("nothing is written", Duration::from_secs(12), async || {
        match audit::new_writes(&mut mark, &team.namespace) {
            writes if writes.is_empty() => Ok(()),
            writes => Err(writes.join("; ")),
        }
    })
    .await;
    team.set_image("my", "cat:2").await;
    let changed = |p: &DynamicObject| p.data["spec"]["vertices"][1]["udf"]["container"]["image"] == "cat:2";
    until(team, "Pipeline", "my-0", "changed", changed).await;
    team.edit_pipeline("my", phase(None)).await;
    stage.all_run(&["my"]).await;
    stage.at_rest_after_a_wedge().await;
}

told_for_both! {
    a_spec_that_cannot_be_read_is_named_and_its_paused_pipeline_is_resumed_all_the_same,
    a_mistake_in_the_spec_of_a_paused_pipeline_is_mended_by_a_good_one,
}
