//! Pauses that end in another way than they were meant to: given up, cut short, taken back, deleted, held.

use std::time::{Duration, Instant};

use k8s_openapi::{api::apps::v1::Deployment, apimachinery::pkg::apis::meta::v1::Time};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams},
};
use numaplane::api::{PipelineRollout, PipelineRolloutStatus};
use serde_json::{Value, json};

use crate::support::{
    Team,
    drains::ROLLOUT,
    eventually,
    faults::Faults,
    numaflow,
    pauses::State,
    pipelines,
    requesters::{By, View, told_for_both},
    rollouts::{Stage, pipeline_spec},
    stays,
};

fn never_pauses() -> Value {
    json!({"never-pauses": "true"})
}

/// A pipeline that never pauses, with this `spec.strategy.ppnd` of its own; it runs.
async fn stuck(stage: &Stage, ppnd: Value) {
    let team = stage.team();
    team.pipeline_with("stuck", pipeline_spec(), never_pauses(), json!({"ppnd": ppnd})).await;
    stage.all_run(&["stuck"]).await;
}

/// Waits until the pipeline says that it pauses for a change of its own.
async fn waits(team: &Team) -> PipelineRolloutStatus {
    team.pipeline_until("stuck", "waits for a pause", |s| {
        let own = s.pause.as_ref().is_some_and(|p| p.asked_by == ["PipelineRollout/stuck"]);
        own && s.phase.as_str() == "Pending" && s.upgrade_in_progress == "PipelinePauseAndDrain"
    })
    .await
}

/// Waits until the pipeline runs with this image.
async fn runs_with(stage: &Stage, image: &str) {
    eventually(&format!("stuck runs with {image}"), async || {
        let now = image_of(&stage.team().live_pipeline("stuck").await);
        if now == image { Ok(()) } else { Err(now) }
    })
    .await;
    stage.all_run(&["stuck"]).await;
}

fn seconds(from: Option<&Time>, to: Option<&Time>) -> i64 {
    let at = |time: Option<&Time>| time.expect("it is on record").0;
    at(to).duration_since(at(from)).as_secs()
}

fn image_of(pipeline: &DynamicObject) -> String {
    let image = &pipeline.data["spec"]["vertices"][1]["udf"]["container"]["image"];
    image.as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a09_a_change_goes_in_when_its_pipeline_does_not_pause_within_the_timeout_and_a_last_chance() {
    let (stage, _operator) = Stage::running("own-proceed", &[]).await;
    let team = stage.team();
    stuck(&stage, json!({"drainTimeout": "4s"})).await;
    let began = Instant::now();
    team.set_image("stuck", "cat:2").await;
    let status = waits(team).await;
    assert!(status.message.contains("Pipeline/stuck-0 is pausing since "), "{}", status.message);
    runs_with(&stage, "cat:2").await;
    println!("applied after {:?}", began.elapsed());
    let time = began.elapsed();
    assert!(time > Duration::from_secs(38) && time < Duration::from_secs(65), "{time:?}");
    let pause = team.pipeline_status("stuck").await.last_pause.unwrap();
    println!("{pause:?}");
    let cut = seconds(pause.since.as_ref(), pause.cut_at.as_ref());
    assert!((4..10).contains(&cut), "cut after {cut} s");
    assert_eq!(pause.drained, Some(false));
    assert_eq!(pause.not_drained, "applied without a pause: it did not pause within 4s and 35s more");
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a09_a_change_goes_in_soon_after_the_timeout_when_messages_stay_in_its_pipeline() {
    let (stage, _operator) = Stage::running("own-undrained", &[]).await;
    let team = stage.team();
    let mut spec = pipeline_spec();
    spec["lifecycle"] = json!({"pauseGracePeriodSeconds": 600});
    let strategy = json!({"ppnd": {"drainTimeout": "5s"}});
    team.pipeline_with("stuck", spec, json!({"pending": "7"}), strategy).await;
    stage.all_run(&["stuck"]).await;
    let began = Instant::now();
    team.set_image("stuck", "cat:2").await;
    waits(team).await;
    runs_with(&stage, "cat:2").await;
    println!("applied after {:?}", began.elapsed());
    let pause = team.pipeline_status("stuck").await.last_pause.unwrap();
    let (cut, settled) = (
        seconds(pause.since.as_ref(), pause.cut_at.as_ref()),
        seconds(pause.since.as_ref(), pause.settled_at.as_ref()),
    );
    println!("cut after {cut} s, settled after {settled} s");
    assert!((5..11).contains(&cut) && (5..20).contains(&settled), "{cut} {settled}");
    assert_eq!(pause.not_drained, "its time was up before everything was processed");
    stage.at_rest().await;
    assert_eq!(team.live_pipeline("stuck").await.data["spec"]["lifecycle"]["pauseGracePeriodSeconds"], 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a09_a_change_without_a_timeout_waits_and_says_so_until_it_is_forced() {
    let (stage, _operator) = Stage::running("own-force", &[]).await;
    let team = stage.team();
    stuck(&stage, json!({})).await;
    let pending = async |image: &str, time: u64| {
        waits(team).await;
        team.pipeline_until("stuck", "has seen it Pausing", |s| s.message.contains("it says Pausing")).await;
        stays(&format!("{image} waits"), Duration::from_secs(time), async || {
            let status = team.pipeline_status("stuck").await;
            assert_ne!(image_of(&team.live_pipeline("stuck").await), image);
            let says = ["Pipeline/stuck-0 is pausing since ", "image", "it says Pausing"];
            let said = says.iter().all(|words| status.message.contains(words));
            if said && status.phase.as_str() == "Pending" { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .await;
    };
    team.set_image("stuck", "cat:2").await;
    pending("cat:2", 8).await;
    let began = Instant::now();
    team.annotate_pipeline("stuck", "force", "enough is enough").await;
    eventually("it goes in", async || {
        let now = image_of(&team.live_pipeline("stuck").await);
        if now == "cat:2" { Ok(()) } else { Err(now) }
    })
    .await;
    println!("applied {:?} after it was forced", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    runs_with(&stage, "cat:2").await;
    let status = team.pipeline_status("stuck").await;
    assert_eq!(status.last_force.unwrap().text, "enough is enough");
    let pause = status.last_pause.unwrap();
    assert!(pause.not_drained.contains("numaplane.numaproj.io/force is set"), "{pause:?}");

    // It was meant for that change; another one needs another text.
    team.set_image("stuck", "cat:3").await;
    pending("cat:3", 4).await;
    team.annotate_pipeline("stuck", "force", "and once more").await;
    runs_with(&stage, "cat:3").await;
    assert_eq!(team.pipeline_status("stuck").await.last_force.unwrap().text, "and once more");
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a09_a_change_is_given_up_when_that_is_asked_for_and_its_pipeline_runs_as_before() {
    let (stage, _operator) = Stage::running("own-abort", &[]).await;
    let team = stage.team();
    stuck(&stage, json!({"drainTimeout": "4s", "onDrainTimeout": "Abort"})).await;
    team.set_image("stuck", "cat:2").await;
    waits(team).await;
    let status = team
        .pipeline_until("stuck", "is given up", |s| {
            s.phase.as_str() == "Failed" && s.last_attempt.as_ref().is_some_and(|a| a.reason == "DrainTimeout")
        })
        .await;
    println!("{}", status.message);
    assert!(status.message.contains("was not paused within 4s"), "{}", status.message);
    eventually("it runs as before", async || {
        let states = stage.recorder.states("stuck-0");
        if states.last().is_some_and(|s| !s.wants_pause() && s.settled()) { Ok(()) } else { Err(format!("{states:?}")) }
    })
    .await;
    stays("the change is not tried again", Duration::from_secs(4), async || {
        let state = stage.recorder.states("stuck-0").pop().unwrap();
        if state.wants_pause() { Err(state.to_string()) } else { Ok(()) }
    })
    .await;
    assert_eq!(image_of(&team.live_pipeline("stuck").await), "cat:1");

    let mut spec = pipeline_spec();
    spec["vertices"][1]["udf"]["container"]["image"] = json!("cat:3");
    let knob = json!({"metadata": {"annotations": {"stand-in.numaflow/never-pauses": null}}, "spec": spec});
    pipelines::turn(team, "Pipeline", "stuck-0", "never-pauses", Value::Null).await;
    team.edit::<PipelineRollout>("stuck", json!({"spec": {"pipeline": knob}})).await;
    runs_with(&stage, "cat:3").await;
    stage.at_rest().await;
}

async fn a_change_of_a_pipeline_whose_user_allows_data_loss_waits_for_nothing(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "data-loss", &[]).await;
    let team = stage.team();
    stuck(&stage, json!({})).await;
    // In the middle of a pause …
    team.set_image("stuck", "cat:2").await;
    waits(team).await;
    team.pausing("stuck-0").await;
    team.annotate_pipeline("stuck", "allow-data-loss", "true").await;
    runs_with(&stage, "cat:2").await;
    let flips = stage.recorder.flips("stuck-0").len();
    // … and before there is one.
    team.set_image("stuck", "cat:3").await;
    runs_with(&stage, "cat:3").await;
    let pause = team.pipeline_status("stuck").await.last_pause.unwrap();
    assert_eq!(pause.not_drained, "applied without a pause: numaplane.numaproj.io/allow-data-loss is set");
    // Nor does an upgrade wait for it.
    requester.change(1).await;
    let drain = requester.done(1).await;
    assert_eq!(drain.not_drained, ["stuck-0: numaplane.numaproj.io/allow-data-loss is set"]);
    stage.all_run(&["stuck"]).await;
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("stuck-0").len(), flips, "{}", stage.recorder.history("stuck-0"));
}

async fn b10_a_controller_rollout_that_is_deleted_in_mid_drain_lets_pipelines_run_and_goes_after_them(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "b10a", &[("a", never_pauses()), ("b", never_pauses())]).await;
    let team = stage.team();
    requester.change(1).await;
    requester.draining(1, &["a-0", "b-0"]).await;
    team.pausing("a-0").await;
    team.pausing("b-0").await;
    requester.delete().await;
    stage.all_run(&["a", "b"]).await;
    let awaits = |v: &View| ["Pipeline/a-0", "Pipeline/b-0"].iter().all(|name| v.deleting().contains(name));
    let view = requester.until("waits for its pipelines", awaits).await;
    assert!(!view.asks(), "{:?}", view.pause_request);
    assert_eq!(view.has, Some(0));
    for name in ["a", "b"] {
        team.delete::<PipelineRollout>(name).await;
    }
    let all_of = async |kind: &str| {
        let all = numaflow::api(team, kind).list(&Default::default()).await.unwrap().items;
        all.into_iter().map(|o| o.metadata.name.unwrap_or_default()).collect::<Vec<_>>()
    };
    eventually("the pipelines are gone", async || {
        let left = team.pipelines().list(&Default::default()).await.unwrap().items;
        if left.is_empty() { Ok(()) } else { Err(format!("{:?}", left.iter().map(|r| &r.status).collect::<Vec<_>>())) }
    })
    .await;
    if by == By::Controller {
        assert!(team.find::<Deployment>(ROLLOUT).await.is_some(), "the ISB service is there still");
        numaflow::delete(team, "InterStepBufferService", "default").await;
    }
    eventually("the rollout is gone, and what it made went after everything that needs it", async || {
        let gone = match by {
            By::Controller => team.find::<Deployment>(ROLLOUT).await.is_none(),
            By::Isb => all_of("InterStepBufferService").await.is_empty(),
        };
        if gone {
            assert_eq!(all_of("Pipeline").await, Vec::<String>::new());
            assert_eq!(all_of("InterStepBufferService").await, Vec::<String>::new());
        }
        requester.found().await.map_or(Ok(()), |view| Err(view.deleting().to_owned()))
    })
    .await;
    assert_eq!(all_of("InterStepBufferService").await, Vec::<String>::new());
    assert_eq!(team.find::<Deployment>(ROLLOUT).await.is_none(), by == By::Controller);
    stage.at_rest().await;
}

async fn b10_an_upgrade_goes_on_without_a_pipeline_that_is_deleted_in_mid_drain(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "b10b", &[("a", json!({})), ("b", never_pauses())]).await;
    let team = stage.team();
    requester.change(1).await;
    requester.draining(1, &["b-0"]).await;
    team.delete::<PipelineRollout>("b").await;
    let drain = requester.done(1).await;
    assert_eq!((drain.drained, drain.not_drained), (vec!["a-0".to_owned()], vec![]));
    team.gone::<PipelineRollout>("b").await;
    stage.all_run(&["a"]).await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_an_upgrade_ends_as_it_began_when_the_strategy_changes_in_mid_drain() {
    let slow = json!({"drains-after": "12s"});
    let (stage, requester, _operator) = Stage::asked(By::Controller, "b10c", &[("a", slow)]).await;
    let set = async |strategy: &str| requester.edit(json!({"spec": {"strategy": {"type": strategy}}})).await;
    for (n, strategy) in [(1, "no-strategy"), (2, "progressive")] {
        requester.change(n).await;
        requester.draining(n, &["a-0"]).await;
        set(strategy).await;
        assert_eq!(requester.until("has seen the strategy", |v| v.current).await.stage_of(n), "Drain");
        assert_eq!(requester.done(n).await.drained, ["a-0"]);
        stage.all_run(&["a"]).await;
        stage.at_rest().await;
        set("pause-and-drain").await;
    }
    assert_eq!(stage.recorder.flips("a-0").len(), 4, "{}", stage.recorder.history("a-0"));
}

async fn b10_somebody_else_who_turns_pipelines_in_mid_drain_and_after_it_changes_nothing_in_the_end(by: By) {
    let slow = || json!({"drains-after": "6s"});
    let (stage, requester, _operator) = Stage::asked(by, "b10d", &[("a", slow()), ("b", slow())]).await;
    let team = stage.team();
    requester.change(1).await;
    requester.draining(1, &["a-0", "b-0"]).await;
    team.pausing("a-0").await;
    pipelines::want(team, "a-0", "Running").await;
    let drain = requester.done(1).await;
    assert_eq!(drain.drained, ["a-0", "b-0"]);
    stage.all_run(&["a", "b"]).await;
    pipelines::want(team, "b-0", "Paused").await;
    stage.saw("b-0", "paused by somebody else", State::wants_pause).await;
    stage.at_rest().await;
    stage.all_run(&["a", "b"]).await;
    stage.at_rest().await;
}

async fn b10_somebody_else_who_edits_pipelines_between_two_writes_of_a_resume_changes_nothing_in_the_end(by: By) {
    let stage = Stage::bare(&format!("b10d-between-{by}")).await;
    let team = stage.team();
    let faults = Faults::default();
    let _operator = stage.scene.operator_behind(&faults).await;
    let requester = stage.furnish_for(by).await;
    stage.with(&[("a", json!({})), ("b", json!({})), ("c", json!({"drains-after": "12s"}))]).await;
    requester.set_ppnd(json!({"drainTimeout": "50s"})).await;
    requester.change(1).await;
    requester.draining(1, &["c-0"]).await;
    for name in ["a-0", "b-0", "c-0"] {
        stage.saw(name, "paused", |s| s.wants_pause() && s.settled()).await;
    }
    // From here on there is one write to each, which has it run again. Before the operator hears of it somebody sets the grace
    // period, and a field of no one's, of the first; has the second pause again, as soon as that is safe; and asks for another
    // kind of resume of the third.
    let [a, b, c] =
        ["a-0", "b-0", "c-0"].map(|name| faults.hold(move |w| w.path.ends_with(&format!("/pipelines/{name}"))));
    let first = async {
        let _held = a.carried_out().await;
        let theirs = json!({"lifecycle": {"pauseGracePeriodSeconds": 77}, "limits": {"readBatchSize": 7}});
        team.meddle("a-0", json!({"spec": theirs})).await;
    };
    let second = async {
        let _held = b.carried_out().await;
        pipelines::settled(team, "b-0", "Running").await;
        team.meddle("b-0", json!({"spec": {"lifecycle": {"desiredPhase": "Paused"}}})).await;
    };
    let third = async {
        let _held = c.carried_out().await;
        let theirs = json!({"numaflow.numaproj.io/resume-strategy": "fast"});
        team.meddle("c-0", json!({"metadata": {"annotations": theirs}})).await;
    };
    tokio::join!(first, second, third);
    assert_eq!(requester.done(1).await.drained, ["a-0", "b-0", "c-0"]);
    stage.saw("a-0", "with another grace period", |s| s.grace == Some(77)).await;
    eventually("the other one is paused, and runs again", async || {
        let flips = stage.recorder.flips("b-0").len();
        if flips == 4 { Ok(()) } else { Err(stage.recorder.history("b-0")) }
    })
    .await;
    stage.all_run(&["a", "b", "c"]).await;
    eventually("nothing of the edits is left", async || {
        let pipeline = team.live_pipeline("a").await;
        let left = [&pipeline.data["spec"]["limits"], &pipeline.data["spec"]["lifecycle"]["pauseGracePeriodSeconds"]];
        if left.iter().all(|field| field.is_null()) { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    stage.at_rest().await;
    assert!(!requester.view().await.asks());
    for name in ["a-0", "c-0"] {
        assert_eq!(stage.recorder.flips(name).len(), 2, "{}", stage.recorder.history(name));
    }
}

async fn another_version_in_mid_drain_and_then_the_old_one_leave_nothing_paused(by: By) {
    let (stage, requester, _operator) =
        Stage::asked(by, "superseded", &[("good", json!({})), ("stuck", never_pauses())]).await;
    let team = stage.team();
    requester.change(1).await;
    requester.draining(1, &["stuck-0"]).await;
    team.pausing("stuck-0").await;
    requester.change(2).await;
    requester.draining(2, &["stuck-0"]).await;
    let began = Instant::now();
    requester.change(0).await;
    requester.deployed(0).await;
    println!("back after {:?}", began.elapsed());
    assert!(!requester.view().await.asks());
    stage.all_run(&["good", "stuck"]).await;
    stage.at_rest().await;

    requester.change(1).await;
    requester.draining(1, &["stuck-0"]).await;
    requester.change(2).await;
    team.turn_at_once("stuck", json!({"never-pauses": null})).await;
    assert_eq!(requester.done(2).await.drained, ["good-0", "stuck-0"]);
    stage.all_run(&["good", "stuck"]).await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_is_held_in_mid_drain_lets_pipelines_run_and_asks_anew_when_it_is_let_go() {
    let (stage, requester, _operator) =
        Stage::asked(By::Controller, "held", &[("good", json!({})), ("stuck", never_pauses())]).await;
    let team = stage.team();
    requester.change(1).await;
    let first = requester.draining(1, &["stuck-0"]).await.pause_request.unwrap().since;
    team.pausing("stuck-0").await;
    requester.edit(json!({"spec": {"paused": true}})).await;
    let holds = |v: &View| !v.asks() && v.message.starts_with("paused by spec.paused");
    requester.until("holds", holds).await;
    stage.all_run(&["good", "stuck"]).await;
    stage.at_rest().await;
    let flips = |name: &str| stage.recorder.flips(name).len();
    assert_eq!((flips("good-0"), flips("stuck-0")), (2, 2));
    stays("held", Duration::from_secs(3), async || {
        let view = requester.view().await;
        let drains = holds(&view) && view.stage_of(1) == "Drain" && flips("good-0") == 2;
        if drains { Ok(()) } else { Err(format!("{view:?}")) }
    })
    .await;
    requester.edit(json!({"spec": {"paused": null}})).await;
    let again = requester.draining(1, &["stuck-0"]).await.pause_request.unwrap().since;
    assert!(again > first, "{again:?} {first:?}");
    team.turn_at_once("stuck", json!({"never-pauses": null})).await;
    assert_eq!(requester.done(1).await.drained, ["good-0", "stuck-0"]);
    stage.all_run(&["good", "stuck"]).await;
    stage.at_rest().await;
    assert_eq!((flips("good-0"), flips("stuck-0")), (4, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_is_made_anew_in_mid_drain_is_paused_as_well_and_runs_when_all_do() {
    let (stage, requester, _operator) =
        Stage::asked(By::Controller, "anew", &[("a", json!({})), ("stuck", never_pauses())]).await;
    let team = stage.team();
    pipelines::service(team, "other", "").await;
    requester.change(1).await;
    requester.draining(1, &["stuck-0"]).await;
    team.edit_pipeline("a", json!({"interStepBufferServiceName": "other"})).await;
    stage.saw("a-1", "paused", |s| s.wants_pause() && s.settled()).await;
    requester.draining(1, &["stuck-0"]).await;
    team.turn_at_once("stuck", json!({"never-pauses": null})).await;
    assert_eq!(requester.done(1).await.drained, ["a-1", "stuck-0"]);
    stage.all_run(&["a", "stuck"]).await;
    stage.at_rest().await;
    assert!(stage.recorder.states("a-1")[0].wants_pause(), "{}", stage.recorder.history("a-1"));
    assert_eq!(numaflow::api(team, "Pipeline").list(&Default::default()).await.unwrap().items.len(), 2);
}

/// Whoever has no buffer in an ISB service has nothing to lose when that is changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_goes_to_another_isb_service_in_mid_drain_runs_there_and_is_not_waited_for() {
    let (stage, requester, _operator) =
        Stage::asked(By::Isb, "leaves", &[("a", json!({})), ("stuck", never_pauses())]).await;
    let team = stage.team();
    pipelines::service(team, "other", "").await;
    requester.change(1).await;
    requester.draining(1, &["stuck-0"]).await;
    team.edit_pipeline("a", json!({"interStepBufferServiceName": "other"})).await;
    stage.saw("a-1", "running", |s| !s.wants_pause() && s.settled()).await;
    let drain = requester.draining(1, &["stuck-0"]).await.drain.unwrap_or_default();
    assert_eq!((drain.drained.len(), drain.not_drained.len()), (0, 0), "{drain:?}");
    team.turn_at_once("stuck", json!({"never-pauses": null})).await;
    assert_eq!(requester.done(1).await.drained, ["stuck-0"]);
    stage.all_run(&["a", "stuck"]).await;
    stage.at_rest().await;
    stage.never_flipped("a-1");
}

async fn a_spec_that_cannot_be_read_in_mid_drain_keeps_no_pipeline_paused(by: By) {
    let (stage, requester, _operator) =
        Stage::asked(by, "unread", &[("a", json!({})), ("slow", json!({"drains-after": "12s"}))]).await;
    let team = stage.team();
    requester.change(1).await;
    requester.draining(1, &["slow-0"]).await;
    for name in ["a", "slow"] {
        team.edit_pipeline(name, json!({"lifecycle": {"desiredPhase": 7}})).await;
        team.pipeline_until(name, "says what is wrong", |s| s.message.contains("desiredPhase: 7")).await;
    }
    assert_eq!(requester.done(1).await.drained, ["a-0", "slow-0"]);
    for name in ["a-0", "slow-0"] {
        pipelines::settled(team, name, "Running").await;
    }
    for name in ["a", "slow"] {
        let status = team.pipeline_status(name).await;
        assert_eq!(status.phase.as_str(), "Failed", "{status:?}");
        team.edit_pipeline(name, json!({"lifecycle": null})).await;
    }
    stage.all_run(&["a", "slow"]).await;
    stage.at_rest().await;
    for name in ["a-0", "slow-0"] {
        assert_eq!(stage.recorder.flips(name).len(), 2, "{}", stage.recorder.history(name));
    }
}

async fn a_change_that_the_server_refuses_in_mid_drain_keeps_no_pipeline_paused(by: By) {
    let (stage, requester, _operator) =
        Stage::asked(by, "refused-change", &[("a", json!({})), ("slow", json!({"drains-after": "12s"}))]).await;
    let team = stage.team();
    refuse_image(&stage, "cat:bad").await;
    requester.change(1).await;
    requester.draining(1, &["slow-0"]).await;
    team.set_image("a", "cat:bad").await;
    team.set_image("slow", "cat:bad").await;
    assert_eq!(requester.done(1).await.drained, ["a-0", "slow-0"]);
    for name in ["a", "slow"] {
        pipelines::settled(team, &format!("{name}-0"), "Running").await;
        let status = team
            .pipeline_until(name, "says that it is refused", |s| {
                s.phase.as_str() == "Failed" && s.message.contains("this image is not to be had")
            })
            .await;
        println!("{}", status.message);
        assert_eq!(stage.recorder.flips(&format!("{name}-0")).len(), 2);
        team.set_image(name, "cat:2").await;
    }
    stage.all_run(&["a", "slow"]).await;
    stage.at_rest().await;
    assert_eq!(image_of(&team.live_pipeline("a").await), "cat:2");
}

/// Has the server refuse pipelines of this stage with this image.
async fn refuse_image(stage: &Stage, image: &str) {
    let (team, name) = (stage.team(), stage.scene.unique("image"));
    let rule = json!({
        "apiGroups": ["numaflow.numaproj.io"], "apiVersions": ["v1alpha1"], "operations": ["CREATE", "UPDATE"],
        "resources": ["pipelines"],
    });
    let good = format!("object.spec.vertices.all(v, !has(v.udf) || v.udf.container.image != '{image}')");
    let here = json!({"matchLabels": {"scene": team.namespace}});
    let objects = [
        (
            "ValidatingAdmissionPolicy",
            json!({
                "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": good, "message": "this image is not to be had"}],
            }),
        ),
        (
            "ValidatingAdmissionPolicyBinding",
            json!({
                "policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": here},
            }),
        ),
    ];
    for (kind, spec) in objects {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
        let body = json!({
            "apiVersion": resource.api_version, "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        let api: Api<DynamicObject> = Api::all_with(team.client.clone(), &resource);
        api.patch(&name, &PatchParams::apply("tests").force(), &Patch::Apply(&body)).await.unwrap();
    }
    eventually("the policy is in force", async || {
        let mut spec = pipeline_spec();
        spec["vertices"][1]["udf"]["container"]["image"] = json!(image);
        let probe: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "numaflow.numaproj.io/v1alpha1", "kind": "Pipeline", "metadata": {"name": "probe"}, "spec": spec,
        }))
        .unwrap();
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        let answer = numaflow::api(team, "Pipeline").create(&dry_run, &probe).await;
        answer.map_or(Ok(()), |_| Err("it is not refused".to_owned()))
    })
    .await;
}

told_for_both! {
    a_change_of_a_pipeline_whose_user_allows_data_loss_waits_for_nothing,
    b10_a_controller_rollout_that_is_deleted_in_mid_drain_lets_pipelines_run_and_goes_after_them as b10_an_isb_service_rollout_that_is_deleted_in_mid_drain_lets_pipelines_run_and_goes_after_them,
    b10_an_upgrade_goes_on_without_a_pipeline_that_is_deleted_in_mid_drain,
    b10_somebody_else_who_turns_pipelines_in_mid_drain_and_after_it_changes_nothing_in_the_end,
    b10_somebody_else_who_edits_pipelines_between_two_writes_of_a_resume_changes_nothing_in_the_end,
    another_version_in_mid_drain_and_then_the_old_one_leave_nothing_paused,
    a_spec_that_cannot_be_read_in_mid_drain_keeps_no_pipeline_paused,
    a_change_that_the_server_refuses_in_mid_drain_keeps_no_pipeline_paused,
}
