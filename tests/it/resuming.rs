//! That pipelines run again: after a version that failed, after a crash, without a controller, though one of them cannot.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use numaplane::api::{NumaflowControllerRollout, PipelineRollout};
use serde_json::{Value, json};

use crate::support::{
    Version,
    drains::ROLLOUT,
    eventually,
    faults::{Faults, Write},
    pauses::State,
    pipelines::{self, controller},
    program::Program,
    requesters::{BAD, By, SLOW, View, told_for_both},
    rollouts::{Stage, spec_of, versions},
    stays, within,
};

/// Defines these besides the versions of the stage.
async fn define(stage: &Stage, more: Version) {
    stage.scene.define(&[versions(), vec![more]].concat()).await;
}

async fn pipelines_run_again_when_the_version_they_were_drained_for_is_rolled_back(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "roll-back", &[("a", json!({})), ("b", json!({}))]).await;
    requester.set_deadline(15).await;
    requester.change(BAD).await;
    requester.reaches(BAD, "Confirm").await;
    for name in ["a-0", "b-0"] {
        let last = stage.recorder.states(name).pop().unwrap();
        assert!(last.wants_pause() && last.settled(), "{last}");
    }
    requester.mend().await;
    requester.reaches(BAD, "RollBack").await;
    let named = if by == By::Controller { by.version(BAD) } else { "default-0" };
    let view = requester.failed(&[named]).await;
    println!("{}", view.message);
    assert_eq!((view.wanted, view.has, view.asks()), (Some(BAD), Some(0), false));
    assert_eq!(view.last_attempt.map(|a| a.result).as_deref(), Some("Failed"));
    assert_eq!(view.last_drain.unwrap().drained, ["a-0", "b-0"]);
    stage.all_run(&["a", "b"]).await;
    stage.at_rest().await;
    for name in ["a-0", "b-0"] {
        assert_eq!(stage.recorder.flips(name).len(), 2, "{}", stage.recorder.history(name));
    }
    requester.change(1).await;
    requester.done(1).await;
    stage.all_run(&["a", "b"]).await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a02_a_first_controller_that_the_server_rejects_asks_for_no_pause_and_a_good_one_follows() {
    let stage = Stage::bare("a02").await;
    let team = stage.team();
    let selector = json!({"spec": {"selector": {"matchLabels": {"no-pod": "has-this"}}}});
    define(&stage, controller("1.7.0").controller(|w| w.with(selector))).await;
    let _operator = stage.scene.operator().await;
    team.install_with(ROLLOUT, spec_of("1.7.0")).await;
    let rejected = |r: &NumaflowControllerRollout| r.status.as_ref().is_some_and(|s| s.phase.as_str() == "Failed");
    let status = team.controller_until("is Failed", rejected).await.status.unwrap();
    println!("{}", status.message);
    assert!(status.message.contains("selector"), "{}", status.message);
    assert_eq!((status.pause_request, status.promoted), (None, None));
    pipelines::create(team, "InterStepBufferService", "default", "", json!({"jetstream": {"version": "2.10"}})).await;
    team.pipeline("a", json!({})).await;
    stage.saw("a-0", "made", |s| s.generation == 1).await;
    stays("nothing asks for a pause", Duration::from_secs(3), async || {
        let request = team.status(ROLLOUT).await.pause_request;
        let state = stage.recorder.states("a-0").pop().unwrap();
        if request.is_none() && !state.wants_pause() { Ok(()) } else { Err(format!("{request:?} {state}")) }
    })
    .await;
    team.set_version(ROLLOUT, "1.8.0").await;
    team.deployed(ROLLOUT, "1.8.0").await;
    stage.all_run(&["a"]).await;
    stage.at_rest().await;
    stage.never_flipped("a-0");
    assert!(!stage.recorder.states("a-0")[0].wants_pause());
}

async fn a_status_that_a_script_broke_in_the_middle_of_a_drain_leaves_no_pipeline_paused(by: By) {
    let knobs = json!({"never-pauses": "true"});
    let (stage, requester, _operator) = Stage::asked(by, "broken-status", &[("a", knobs.clone()), ("b", knobs)]).await;
    let team = stage.team();
    requester.change(1).await;
    requester.draining(1, &["a-0", "b-0"]).await;
    team.break_status::<PipelineRollout>("a").await;
    requester.break_status().await;
    requester.draining(1, &["a-0", "b-0"]).await;
    requester.change(0).await;
    stage.all_run(&["a", "b"]).await;
    stage.at_rest().await;
}

/// A write to one of these pipelines.
fn to(names: &'static [&'static str]) -> impl Fn(&Write) -> bool {
    |write| names.iter().any(|name| write.path.ends_with(&format!("/pipelines/{name}")))
}

async fn d01_a_crash_between_two_resumes_and_a_pipeline_that_failed_leave_no_other_one_paused(by: By) {
    let stage = Stage::bare(&format!("d01-{by}")).await;
    let team = stage.team();
    let faults = Faults::default();
    let first = Program::start(&stage.scene, &faults).await;
    let requester = stage.furnish_for(by).await;
    stage.with(&[("a", json!({})), ("b", json!({})), ("c", json!({"drains-after": "12s"}))]).await;
    requester.change(1).await;
    requester.draining(1, &["c-0"]).await;
    pipelines::turn(team, "Pipeline", "b-0", "fails", json!("its image is gone")).await;
    pipelines::poke(team, "Pipeline", "b-0").await;
    stage.saw("b-0", "failed", |s| s.phase == "Failed").await;
    stage.saw("c-0", "paused", |s| s.wants_pause() && s.settled()).await;
    faults.crash_on(to(&["a-0", "c-0"]));
    faults.crashed().await;
    first.kill();
    // What it was told before its end has been carried out, and nothing comes after that.
    stage.recorder.caught_up().await;
    let paused = ["a-0", "b-0", "c-0"].map(|name| stage.recorder.states(name).pop().unwrap().wants_pause());
    println!("paused when the program was killed: {paused:?}");
    assert_ne!(paused[0], paused[2], "one of them was resumed, and the other one was not: {paused:?}");

    let began = Instant::now();
    let _second = Program::start(&stage.scene, &Faults::default()).await;
    assert_eq!(requester.done(1).await.drained.len(), 3);
    stage.all_run(&["a", "c"]).await;
    println!("the others run {:?} after the next program was started", began.elapsed());
    stage.at_rest().await;
    assert_eq!(stage.recorder.states("b-0").pop().unwrap().phase, "Failed");
    pipelines::turn(team, "Pipeline", "b-0", "fails", Value::Null).await;
    pipelines::poke(team, "Pipeline", "b-0").await;
    stage.all_run(&["b"]).await;

    // The next one, and another one while that goes on.
    requester.change(2).await;
    requester.draining(2, &["c-0"]).await;
    requester.change(0).await;
    assert_eq!(requester.done(0).await.drained, ["a-0", "b-0", "c-0"]);
    stage.all_run(&["a", "b", "c"]).await;
    stage.at_rest().await;
}

async fn a_pipeline_that_cannot_be_resumed_keeps_no_other_one_paused_and_runs_when_it_can(by: By) {
    let stage = Stage::bare(&format!("refused-{by}")).await;
    let team = stage.team();
    let (faults, refuses) = (Faults::default(), Arc::new(AtomicBool::new(false)));
    let on = refuses.clone();
    faults.answer(500, usize::MAX, move |write| on.load(Ordering::Relaxed) && to(&["b-0"])(write));
    let _operator = stage.scene.operator_behind(&faults).await;
    let requester = stage.furnish_for(by).await;
    stage.with(&[("a", json!({})), ("b", json!({})), ("c", json!({"drains-after": "15s"}))]).await;
    requester.change(1).await;
    requester.draining(1, &["c-0"]).await;
    refuses.store(true, Ordering::Relaxed);
    assert_eq!(requester.done(1).await.drained, ["a-0", "b-0", "c-0"]);
    let began = Instant::now();
    stage.all_run(&["a", "c"]).await;
    println!("the others run {:?} after the upgrade", began.elapsed());
    let status = team.pipeline_until("b", "says why", |s| s.message.contains("refused by the server")).await;
    println!("{}", status.message);
    assert!(stage.recorder.states("b-0").pop().unwrap().wants_pause());
    assert!(faults.left() < usize::MAX);
    refuses.store(false, Ordering::Relaxed);
    let began = Instant::now();
    stage.all_run(&["b"]).await;
    println!("it runs {:?} after the server is well", began.elapsed());
    stage.at_rest().await;
}

/// Takes two minutes: no controller is taken for gone before it was away for one and a half.
#[tokio::test(flavor = "multi_thread")]
async fn slow_a_good_version_follows_a_controller_that_is_dead_and_pipelines_run() {
    let (stage, requester, _operator) =
        Stage::asked(By::Controller, "dead", &[("a", json!({})), ("b", json!({}))]).await;
    let team = stage.team();
    kill_controller(&stage).await;
    let began = Instant::now();
    requester.change(1).await;
    requester.draining(1, &["a-0", "b-0"]).await;
    within(Duration::from_mins(3), "the drain ends", async || {
        let view = requester.view().await;
        if view.stage_of(1) == "Drain" { Err(view.message) } else { Ok(()) }
    })
    .await;
    println!("the drain ended after {:?}", began.elapsed());
    let drain = requester.done(1).await;
    println!("{drain:?}");
    assert!(drain.ended.starts_with("ControllerUnavailable"), "{}", drain.ended);
    assert_eq!(drain.not_drained.len(), 2, "{drain:?}");
    stage.all_run(&["a", "b"]).await;
    eventually("it is available", async || {
        let known = team.status(ROLLOUT).await.controller_unavailable;
        if known.is_none() { Ok(()) } else { Err(format!("{known:?}")) }
    })
    .await;
    stage.at_rest().await;
}

async fn d01_another_version_while_one_is_judged_with_pipelines_paused_ends_with_all_of_them_running(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "judged", &[("a", json!({})), ("b", json!({}))]).await;
    requester.change(SLOW).await;
    requester.reaches(SLOW, "Confirm").await;
    requester.change(1).await;
    requester.until("is taken back", |v| v.stage_of(SLOW) != "Confirm").await;
    assert_eq!(requester.done(1).await.drained, ["a-0", "b-0"]);
    stage.all_run(&["a", "b"]).await;
    stage.at_rest().await;
}

async fn a_pipeline_that_its_controller_does_not_look_at_is_resumed_once_it_does(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "silent", &[("a", json!({})), ("b", json!({}))]).await;
    let team = stage.team();
    pipelines::turn(team, "Pipeline", "b-0", "silent", json!("true")).await;
    requester.set_ppnd(json!({"drainTimeout": "10s"})).await;
    requester.change(1).await;
    requester.until("drains", |v| v.stage_of(1) == "Drain").await;
    requester.until("has drained", |v| v.stage_of(1) != "Drain").await;
    let drain = requester.done(1).await;
    println!("{drain:?}");
    assert_eq!(drain.drained, ["a-0"]);
    assert_eq!(drain.not_drained, ["b-0: did not pause within 10s, nor within 55s more"]);
    stage.all_run(&["a"]).await;
    let waits = "waiting for Numaflow's controller to look at Pipeline/b-0";
    team.pipeline_until("b", "says what it waits for", |s| s.message.contains(waits)).await;
    stays("it is not turned unseen", Duration::from_secs(3), async || {
        let state = stage.recorder.states("b-0").pop().unwrap();
        if state.wants_pause() { Ok(()) } else { Err(state.to_string()) }
    })
    .await;
    pipelines::turn(team, "Pipeline", "b-0", "silent", Value::Null).await;
    pipelines::poke(team, "Pipeline", "b-0").await;
    stage.all_run(&["b"]).await;
    stage.at_rest().await;
}

async fn the_time_to_drain_goes_on_while_there_is_no_operator(by: By) {
    let (stage, requester, first) =
        Stage::asked(by, "time", &[("a", json!({})), ("full", json!({"pending": "7"}))]).await;
    requester.set_ppnd(json!({"drainTimeout": "25s"})).await;
    requester.change(1).await;
    let since = requester.draining(1, &["full-0"]).await.pause_request.unwrap().since.unwrap().0;
    first.kill().await;
    eventually("most of the time has passed", async || {
        let passed = jiff::Timestamp::now().duration_since(since).as_secs();
        if passed >= 20 { Ok(()) } else { Err(format!("{passed} s")) }
    })
    .await;
    let _second = stage.scene.operator().await;
    requester.until("has drained", |v| v.stage_of(1) != "Drain").await;
    let took = jiff::Timestamp::now().duration_since(since).as_secs();
    println!("the drain took {took} s");
    assert!((25..35).contains(&took), "{took} s");
    let drain = requester.done(1).await;
    assert_eq!((drain.drained.len(), drain.not_drained.len()), (1, 1), "{drain:?}");
    stage.all_run(&["a", "full"]).await;
    stage.at_rest().await;
}

async fn b10_a_rollout_that_is_deleted_while_a_version_is_judged_lets_pipelines_run_in_the_end(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "delete-late", &[("a", json!({})), ("b", json!({}))]).await;
    requester.change(SLOW).await;
    requester.reaches(SLOW, "Confirm").await;
    requester.delete().await;
    stage.all_run(&["a", "b"]).await;
    let awaits = |v: &View| ["Pipeline/a-0", "Pipeline/b-0"].iter().all(|name| v.deleting().contains(name));
    let view = requester.until("waits for its pipelines", awaits).await;
    println!("{:?} {}", view.has, view.message);
    assert!(!view.asks());
    stage.at_rest().await;
}

/// Takes two minutes, as above.
#[tokio::test(flavor = "multi_thread")]
async fn slow_an_upgrade_that_is_taken_back_while_the_controller_is_dead_leaves_no_pipeline_that_will_pause() {
    let (stage, requester, _operator) = Stage::asked(By::Controller, "dead-back", &[("a", json!({}))]).await;
    let team = stage.team();
    kill_controller(&stage).await;
    requester.change(1).await;
    requester.draining(1, &["a-0"]).await;
    stage.saw("a-0", "asked to pause", State::wants_pause).await;
    requester.change(0).await;
    within(Duration::from_mins(3), "the pause is taken back unseen", async || {
        let state = stage.recorder.states("a-0").pop().unwrap();
        if state.wants_pause() { Err(state.to_string()) } else { Ok(()) }
    })
    .await;
    for pod in team.all::<Pod>().await {
        if pod.name_any().starts_with(ROLLOUT) {
            team.delete::<Pod>(&pod.name_any()).await;
        }
    }
    requester.deployed(0).await;
    stage.all_run(&["a"]).await;
    stage.nothing_left().await;
    // Two flips that nobody has seen, which is safe only because nobody was there: so the rules are told, too.
    let broken = stage.recorder.broken().await;
    assert!(broken.len() == 1 && broken[0].contains("flip at 3/1") && broken[0].contains("safe: 2/1"), "{broken:?}");
    assert!(stage.recorder.states("a-0").iter().all(|s| s.phase != "Pausing" && s.phase != "Paused"));
}

/// The pods of the controller are not ready any more, and never again.
async fn kill_controller(stage: &Stage) {
    let team = stage.team();
    for pod in team.all::<Pod>().await {
        if pod.name_any().starts_with(ROLLOUT) {
            let broken = json!({"metadata": {"labels": {"numaplane.test/behaviour": "never-ready"}}});
            team.edit::<Pod>(&pod.name_any(), broken).await;
        }
    }
    team.controller_until("notices", |r| r.status.as_ref().is_some_and(|s| s.controller_unavailable.is_some())).await;
}

told_for_both! {
    pipelines_run_again_when_the_version_they_were_drained_for_is_rolled_back,
    a_status_that_a_script_broke_in_the_middle_of_a_drain_leaves_no_pipeline_paused,
    d01_a_crash_between_two_resumes_and_a_pipeline_that_failed_leave_no_other_one_paused,
    a_pipeline_that_cannot_be_resumed_keeps_no_other_one_paused_and_runs_when_it_can,
    d01_another_version_while_one_is_judged_with_pipelines_paused_ends_with_all_of_them_running,
    a_pipeline_that_its_controller_does_not_look_at_is_resumed_once_it_does,
    the_time_to_drain_goes_on_while_there_is_no_operator,
    b10_a_rollout_that_is_deleted_while_a_version_is_judged_lets_pipelines_run_in_the_end,
}
