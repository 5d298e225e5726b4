//! Traps in what a pipeline of Numaflow says of itself, each as its user would meet it.

use std::time::Duration;

use kube::{ResourceExt, api::DynamicObject};
use numaplane::api::{PipelineRollout, PipelineRolloutStatus};
use serde_json::{Value, json};

use crate::support::{
    Team, audit, eventually, numaflow,
    pipelines::{NoPods, PTS, desired, edit, phase, pods, poke, turn, until, vertices, want},
    requesters::{By, told_for_both},
    rollouts::{Stage, pipeline_spec},
};

/// The spec of the tests, with this lifecycle.
pub fn with_lifecycle(lifecycle: Value) -> Value {
    let mut spec = pipeline_spec();
    spec["lifecycle"] = lifecycle;
    spec
}

pub fn image(pipeline: &DynamicObject) -> &Value {
    &pipeline.data["spec"]["vertices"][1]["udf"]["container"]["image"]
}

/// Asks for a pause, or for none, at the rollout.
pub async fn ask(team: &Team, name: &str, phase: Option<&str>) {
    team.edit_pipeline(name, json!({"lifecycle": {"desiredPhase": phase}})).await;
}

/// What the last poke left on a pipeline.
fn poked(pipeline: &DynamicObject) -> Option<String> {
    pipeline.labels().get("numaplane.numaproj.io/poked").cloned()
}

fn pause_state(status: &PipelineRolloutStatus) -> &str {
    status.pause.as_ref().map(|p| p.state.as_str()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn trap01_a_pipeline_that_says_paused_is_not_changed_while_a_pod_is_left() {
    let (stage, _operator) = Stage::at_work("trap01").await;
    let team = stage.team();
    team.pipeline("my", json!({"terminates-after": "4s"})).await;
    team.pipeline_runs("my").await;
    pods(team, "my-0", 3).await;
    team.set_image("my", "cat:2").await;
    let paused = until(team, "Pipeline", "my-0", "says that it is paused", |p| phase(p) == "Paused").await;
    assert_eq!(image(&paused), "cat:1");
    let status = team.pipeline_says("my", &["waiting for", "its pods to be gone"]).await;
    println!("{}", status.message);
    assert_eq!(pause_state(&status), "Pausing");
    until(team, "Pipeline", "my-0", "changed", |p| image(p) == "cat:2").await;
    team.pipeline_runs("my").await;
    // That none was left when it was changed is one of the rules.
    stage.at_rest().await;
    let states = stage.recorder.states("my-0");
    let said = states.iter().position(|s| s.phase == "Paused").unwrap();
    let changed = states.iter().position(|s| s.spec != states[0].spec).unwrap();
    let between = states[changed].at.duration_since(states[said].at);
    println!("changed {between:#} after it said that it is paused");
    assert!(between.as_secs() >= 2, "{}", stage.recorder.history("my-0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn trap02_a_pipeline_that_says_running_and_reads_nothing_is_healed() {
    let (stage, _operator) = Stage::at_work("trap02-running").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    team.pipeline_runs("my").await;
    turn(team, "Pipeline", "my-0", "wedge", json!("running")).await;
    team.set_image("my", "cat:2").await;
    let wedged = until(team, "Pipeline", "my-0", "wedged", |p| phase(p) == "Running" && image(p) == "cat:2").await;
    assert!(wedged.annotations().contains_key(PTS));
    team.event("PipelineRollout", "my", &["PipelineWedged", "Pipeline/my-0 says that it runs"]).await;
    team.event("PipelineRollout", "my", &["PipelineHealed", "runs again"]).await;
    assert_eq!(image(&team.pipeline_runs("my").await), "cat:2");
    desired(team, "my-0", &["Running"; 3]).await;
    assert!(team.pipeline_status("my").await.wedge.is_none());
    println!("{}", stage.recorder.history("my-0"));
    stage.at_rest_after_a_wedge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap02_a_pipeline_that_says_paused_and_reads_on_is_healed_and_paused_before_it_is_changed() {
    let (stage, _operator) = Stage::at_work("trap02-paused").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    team.pipeline_runs("my").await;
    turn(team, "Pipeline", "my-0", "wedge", json!("paused")).await;
    team.set_image("my", "cat:2").await;
    until(team, "Pipeline", "my-0", "wedged", |p| phase(p) == "Paused" && !p.annotations().contains_key(PTS)).await;
    team.event("PipelineRollout", "my", &["PipelineWedged", "Pipeline/my-0 says that it is paused"]).await;
    team.event("PipelineRollout", "my", &["PipelineHealed", "runs again"]).await;
    eventually("the change is applied", async || {
        let now = team.live_pipeline("my").await;
        if image(&now) == "cat:2" { Ok(()) } else { Err(team.pipeline_status("my").await.message) }
    })
    .await;
    team.pipeline_runs("my").await;
    let history = stage.recorder.history("my-0");
    println!("{history}");
    let states = stage.recorder.states("my-0");
    let changed = states.iter().position(|s| s.spec != states[0].spec).unwrap();
    assert!(states[changed].pause_timestamp.is_some() && states[changed].drained, "{history}");
    assert_eq!(team.pipeline_status("my").await.last_pause.unwrap().drained, Some(true));
    stage.at_rest_after_a_wedge().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap03_somebody_who_pauses_and_resumes_in_a_hurry_wedges_nothing() {
    let (stage, _operator) = Stage::at_work("trap03").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    team.pipeline("slow", json!({"pass-delay": "200ms", "drains-after": "1s"})).await;
    team.pipeline_runs("my").await;
    team.pipeline_runs("slow").await;
    for _ in 0..8 {
        for wanted in [Some("Paused"), None] {
            ask(team, "my", wanted).await;
            ask(team, "slow", wanted).await;
            tokio::time::sleep(Duration::from_millis(130)).await;
        }
    }
    for name in ["my", "slow"] {
        team.pipeline_until(name, "no pause is left", |s| s.pause.is_none() && s.phase.as_str() == "Deployed").await;
        team.pipeline_runs(name).await;
        desired(team, &format!("{name}-0"), &["Running"; 3]).await;
        println!("{name}: {} flips", stage.recorder.flips(&format!("{name}-0")).len());
        assert!(team.pipeline_status(name).await.wedge.is_none());
    }
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap03_somebody_who_pauses_the_pipeline_directly_is_waited_out_and_overruled() {
    let (stage, _operator) = Stage::at_work("trap03-direct").await;
    let team = stage.team();
    team.pipeline("my", json!({"drains-after": "2s"})).await;
    team.pipeline_runs("my").await;
    want(team, "my-0", "Paused").await;
    eventually("it was paused, and is resumed", async || {
        let flips = stage.recorder.flips("my-0").len();
        if flips >= 2 { Ok(()) } else { Err(format!("{flips} flips")) }
    })
    .await;
    team.pipeline_runs("my").await;
    println!("{}", stage.recorder.history("my-0"));
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap04_a_pause_without_a_phase_pausing_is_a_pause() {
    let (stage, _operator) = Stage::at_work("trap04").await;
    let team = stage.team();
    let spec = with_lifecycle(json!({"pauseGracePeriodSeconds": 0}));
    team.pipeline_with("my", spec, json!({}), json!({})).await;
    team.pipeline_runs("my").await;
    team.set_image("my", "cat:2").await;
    until(team, "Pipeline", "my-0", "changed", |p| image(p) == "cat:2").await;
    let runs = team.pipeline_runs("my").await;
    assert_eq!(runs.data["spec"]["lifecycle"]["pauseGracePeriodSeconds"], 0, "the user's stays");
    let phases: Vec<String> = stage.recorder.states("my-0").into_iter().map(|s| s.phase).collect();
    println!("{phases:?} {:?}", team.pipeline_status("my").await.last_pause);
    assert!(phases.contains(&"Paused".to_owned()), "{phases:?}");
    assert!(!phases.contains(&"Pausing".to_owned()), "{phases:?}");
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 2, "{}", stage.recorder.history("my-0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn trap05_what_was_not_drained_is_on_record_and_no_word_of_numaflow_says_so() {
    let (stage, _operator) = Stage::at_work("trap05").await;
    let team = stage.team();
    let all = [("full", json!({"pending": "7"})), ("mute", json!({"daemon": "refused"}))];
    for (name, knobs) in all.clone() {
        let spec = with_lifecycle(json!({"pauseGracePeriodSeconds": 2}));
        team.pipeline_with(name, spec, knobs, json!({})).await;
        team.pipeline_runs(name).await;
        team.set_image(name, "cat:2").await;
    }
    for (name, _) in all {
        let status = team.pipeline_until(name, "was paused", |s| s.last_pause.is_some()).await;
        let last = status.last_pause.unwrap();
        println!("{name}: {}", last.not_drained);
        assert_eq!(last.drained, Some(false));
        assert!(last.not_drained.contains("its grace period of 2 s ended"), "{last:?}");
        team.event("PipelineRollout", name, &["NotDrained", &format!("Pipeline/{name}-0")]).await;
        assert_eq!(image(&team.pipeline_runs(name).await), "cat:2");
    }
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap06_a_vertex_added_while_paused_that_nobody_scales_gets_its_pods_on_resume() {
    let (stage, _operator) = Stage::at_work("trap06").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    team.pipeline_runs("my").await;
    ask(team, "my", Some("Paused")).await;
    team.pipeline_rests("my").await;
    pods(team, "my-0", 0).await;
    let none = NoPods::of(team, "my").await;
    let mut spec = with_lifecycle(json!({"desiredPhase": "Paused"}));
    let more = json!({"name": "more", "scale": {"disabled": true, "min": 2}, "udf": {"container": {"image": "cat:2"}}});
    spec["vertices"].as_array_mut().unwrap().push(more);
    spec["edges"] = json!([{"from": "in", "to": "cat"}, {"from": "cat", "to": "more"}, {"from": "more", "to": "out"}]);
    team.edit_pipeline("my", spec).await;
    until(team, "Vertex", "my-0-more", "made", |_| true).await;
    team.pipeline_rests_with("my", 4).await;
    none.held();
    let mark = audit::settled(team, Duration::from_secs(1)).await;
    ask(team, "my", None).await;
    until(team, "Vertex", "my-0-more", "scaled", |v| v.data["spec"]["replicas"] == 2).await;
    team.pipeline_runs("my").await;
    pods(team, "my-0", 5).await;
    // Once; whoever scales it to nothing afterwards means it.
    edit(team, "Vertex", "my-0-more", json!({"spec": {"replicas": 0}})).await;
    poke(team, "Pipeline", "my-0").await;
    pods(team, "my-0", 3).await;
    audit::settled(team, Duration::from_secs(1)).await;
    let writes: Vec<String> = audit::since(mark, &team.namespace)
        .iter()
        .filter(|r| r.write() && r.resource() == "vertices")
        .map(audit::Request::describe)
        .collect();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert_eq!(vertices(team, "my-0").await[3].data["spec"]["replicas"], 0);
    stage.at_rest().await;
}

async fn trap07_a_pipeline_that_fails_on_its_way_into_a_pause_is_not_paused(by: By) {
    // Numaflow's own next try may be a quarter of an hour away: here, there is none.
    let knobs = json!({"drains-after": "8s", "no-retries": "true"});
    let (stage, requester, _operator) = Stage::asked(by, "trap07", &[("my", knobs)]).await;
    let team = stage.team();
    requester.change(1).await;
    until(team, "Pipeline", "my-0", "pauses", |p| phase(p) == "Pausing").await;
    turn(team, "Pipeline", "my-0", "fails", json!("no quota for it")).await;
    until(team, "Pipeline", "my-0", "failed", |p| phase(p) == "Failed").await;
    let status = team.pipeline_says("my", &["no quota for it"]).await;
    println!("{}", status.message);
    assert_eq!(pause_state(&status), "Pausing");
    let answers: Vec<_> = status.pause_requests.iter().map(|a| (a.answer.as_str(), a.why.as_str())).collect();
    assert_eq!(answers, [("Pausing", "no quota for it")]);
    assert_eq!(requester.view().await.has, Some(0));
    // Right after a poke the next one is some time away, in which its cause goes.
    let before = poked(&numaflow::api(team, "Pipeline").get("my-0").await.unwrap());
    until(team, "Pipeline", "my-0", "poked", |p| poked(p) != before).await;
    let mark = audit::settled(team, Duration::from_secs(1)).await;
    turn(team, "Pipeline", "my-0", "fails", Value::Null).await;
    until(team, "Pipeline", "my-0", "looked at again", |p| phase(p) != "Failed").await;
    let wakes: Vec<String> = audit::since(mark, &team.namespace)
        .iter()
        .filter(|r| r.write() && r.resource() == "pipelines" && r.name() == "my-0")
        .map(audit::Request::describe)
        .collect();
    assert_eq!(wakes, ["patch pipelines/my-0: 200"], "the operator's poke, and nothing else, wakes Numaflow");
    requester.deployed(1).await;
    team.pipeline_runs("my").await;
    let status = team.pipeline_status("my").await;
    assert_eq!(status.last_pause.unwrap().drained, Some(true));
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap14_the_time_at_which_a_pause_began_is_touched_by_nobody_but_numaflow() {
    let (stage, _operator) = Stage::at_work("trap14").await;
    let team = stage.team();
    let mark = audit::mark();
    team.pipeline_with("my", pipeline_spec(), json!({"drains-after": "4s"}), json!({"ppnd": {"drainTimeout": "50s"}}))
        .await;
    team.pipeline_runs("my").await;
    team.set_image("my", "cat:2").await;
    until(team, "Pipeline", "my-0", "pauses", |p| phase(p) == "Pausing").await;
    // Reasons to write to it, while it drains.
    let labels = json!({"spec": {"pipeline": {"metadata": {"labels": {"a": "b"}}}}});
    team.edit::<PipelineRollout>("my", labels).await;
    team.set_image("my", "cat:3").await;
    team.meddle("my-0", json!({"metadata": {"labels": {"numaplane.numaproj.io/upgrade-state": null}}})).await;
    let runs = team.pipeline_runs("my").await;
    assert_eq!((image(&runs), runs.labels()["a"].as_str()), (&json!("cat:3"), "b"));
    stage.at_rest().await;
    let history = stage.recorder.history("my-0");
    let states = stage.recorder.states("my-0");
    for pair in states.windows(2).filter(|pair| pair[1].wants_pause()) {
        let [before, after] = [&pair[0].pause_timestamp, &pair[1].pause_timestamp];
        assert!(before.is_none() || before == after, "{history}");
    }
    assert!(states.iter().any(|s| s.wants_pause() && s.grace == Some(50)), "{history}");
    for request in audit::since(mark, &team.namespace) {
        if request.write() && request.resource().starts_with("pipelines") {
            assert_eq!((request.resource().as_str(), request.verb.as_str()), ("pipelines", "patch"));
        }
    }
    // What is ours, field by field.
    let managed = serde_json::to_value(runs.managed_fields()).unwrap();
    for entry in managed.as_array().unwrap() {
        let manager = entry["manager"].as_str().unwrap();
        if !manager.starts_with("numaplane") {
            continue;
        }
        println!("{manager} {}: {}", entry["operation"], entry["fieldsV1"]["f:metadata"]);
        assert!(!entry["fieldsV1"].to_string().contains("pause-timestamp"), "{entry}");
        if manager == "numaplane-lifecycle" {
            let fields = entry["fieldsV1"]["f:spec"].as_object().cloned().unwrap_or_default();
            assert!(fields.keys().all(|field| field == "f:lifecycle"), "{entry}");
            let steered = fields.get("f:lifecycle").and_then(Value::as_object).cloned().unwrap_or_default();
            let ours = ["f:desiredPhase", "f:pauseGracePeriodSeconds", "."];
            assert!(steered.keys().all(|field| ours.contains(&field.as_str())), "{entry}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trap15_the_time_at_which_a_pause_began_may_be_in_any_zone() {
    let (stage, _operator) = Stage::at_work("trap15").await;
    let team = stage.team();
    team.pipeline("my", json!({"drains-after": "6s"})).await;
    team.pipeline_runs("my").await;
    team.set_image("my", "cat:2").await;
    let pausing = until(team, "Pipeline", "my-0", "pauses", |p| phase(p) == "Pausing").await;
    let began: jiff::Timestamp = pausing.annotations()[PTS].parse().unwrap();
    let there = began.to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(9)));
    let text = there.strftime("%Y-%m-%dT%H:%M:%S+09:00").to_string();
    edit(team, "Pipeline", "my-0", json!({"metadata": {"annotations": {PTS: text}}})).await;
    assert_eq!(image(&team.pipeline_runs("my").await), "cat:2");
    let status = team.pipeline_status("my").await;
    assert_eq!(status.last_pause.unwrap().drained, Some(true));
    println!("{}", stage.recorder.history("my-0"));
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 2);
    assert_eq!(numaflow::api(team, "Pipeline").list(&Default::default()).await.unwrap().items.len(), 1);
}

told_for_both! {
    trap07_a_pipeline_that_fails_on_its_way_into_a_pause_is_not_paused,
}
