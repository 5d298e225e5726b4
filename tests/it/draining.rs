//! Upgrades of a controller whose pipelines are paused and drained for it.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, Deployment},
    core::v1::ConfigMap,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use numaplane::api::{NumaflowController, PipelineRollout};
use serde_json::{Value, json};

use crate::support::{
    changes::{Change, Changes, OF_PIPELINES, first},
    control_plane::control_plane,
    drains::{ROLLOUT, names_those_it_waits_for, stage_of},
    eventually,
    leases::LEASE,
    numaflow, pipelines,
    rollouts::{Stage, pipeline_spec},
    stays, within,
};

/// How long a pipeline may take to pause once its time is up, if it is the only one.
const CUT: Duration = Duration::from_secs(35);

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_is_upgraded_while_its_pipelines_are_drained_and_they_run_again_afterwards() {
    let stage = Stage::bare("drain").await;
    let team = stage.team();
    let _operator = stage.scene.operator().await;
    stage.furnish().await;
    team.pipeline("a", json!({})).await;
    team.pipeline("b", json!({})).await;
    team.pipeline_runs("a").await;
    team.pipeline_runs("b").await;

    team.set_version("numaflow-controller", "1.8.1").await;
    team.deployed("numaflow-controller", "1.8.1").await;
    team.pipeline_runs("a").await;
    team.pipeline_runs("b").await;
    stage.at_rest().await;
    let drain = team.status("numaflow-controller").await.last_drain.unwrap();
    assert_eq!((drain.drained.len(), drain.not_drained.len()), (2, 0), "{drain:?}");
    for name in ["a-0", "b-0"] {
        assert_eq!(stage.recorder.flips(name).len(), 2, "{}", stage.recorder.history(name));
    }
}

fn never_pauses() -> Value {
    json!({"never-pauses": "true"})
}

fn between(least: Duration, time: Duration, most: Duration) {
    assert!(time >= least && time <= most, "{time:?} is not between {least:?} and {most:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a09_a_pipeline_that_never_pauses_holds_up_an_upgrade_for_the_timeout_and_a_last_chance() {
    let (stage, _operator) = Stage::running("a09-never", &[("stuck", never_pauses())]).await;
    let team = stage.team();
    team.set_ppnd(json!({"drainTimeout": "4s"})).await;
    team.set_version(ROLLOUT, "1.8.1").await;
    let took = team.drains("1.8.1", &["stuck-0"]).await;
    println!("the drain took {took:?}");
    // Since it was first looked at, which is a moment after it began.
    between(Duration::from_secs(2) + CUT, took, Duration::from_secs(14) + CUT);
    let drain = team.upgraded("1.8.1").await;
    println!("{drain:?}");
    assert_eq!(drain.not_drained, ["stuck-0: did not pause within 4s, nor within 35s more"]);
    assert!(drain.ended.contains("drainTimeout 4s"), "{}", drain.ended);
    stage.all_run(&["stuck"]).await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a09_a_pipeline_that_does_not_drain_is_paused_as_it_is_when_its_time_is_up() {
    let stage = Stage::bare("a09-undrained").await;
    let team = stage.team();
    let _operator = stage.scene.operator().await;
    stage.furnish().await;
    stage.with(&[("good", json!({}))]).await;
    let mut spec = pipeline_spec();
    spec["lifecycle"] = json!({"pauseGracePeriodSeconds": 600});
    team.pipeline_with("full", spec, json!({"pending": "7"}), json!({})).await;
    team.pipeline("own-grace", json!({"pending": "7"})).await;
    stage.all_run(&["full", "own-grace"]).await;
    team.set_ppnd(json!({"drainTimeout": "10s"})).await;
    team.set_version(ROLLOUT, "1.8.1").await;
    let status = team.draining("1.8.1", &["full-0", "own-grace-0"]).await;
    team.drains("1.8.1", &[]).await;
    let since = status.pause_request.unwrap().since.unwrap().0;
    let took = Duration::try_from(jiff::Timestamp::now().duration_since(since)).unwrap();
    println!("the drain took {took:?}");
    between(Duration::from_secs(10), took, Duration::from_secs(22));
    let drain = team.upgraded("1.8.1").await;
    println!("{drain:?}");
    assert_eq!(drain.drained, ["good-0"]);
    let why = "its time was up before everything was processed";
    assert_eq!(drain.not_drained, [format!("full-0: {why}"), format!("own-grace-0: {why}")]);
    stage.all_run(&["good", "full", "own-grace"]).await;
    stage.at_rest().await;
    let pause = team.pipeline_status("full").await.last_pause.unwrap();
    assert_eq!((pause.drained, pause.not_drained.as_str()), (Some(false), why));
    assert_eq!(team.live_pipeline("full").await.data["spec"]["lifecycle"]["pauseGracePeriodSeconds"], 600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a09_without_a_timeout_an_upgrade_waits_and_says_for_what_until_it_is_forced() {
    let (stage, _operator) = Stage::running("a09-force", &[("good", json!({})), ("stuck", never_pauses())]).await;
    let team = stage.team();
    let waits = async |version: &str, time: u64| {
        team.draining(version, &["stuck-0"]).await;
        stays(&format!("version {version:?} waits for stuck"), Duration::from_secs(time), async || {
            let rollout = team.rollout(ROLLOUT).await;
            names_those_it_waits_for(&rollout, &["stuck-0"]);
            let message = rollout.status.unwrap_or_default().message;
            let says = ["waiting since ", " UTC for 1 of 2 pipelines to drain", "no drainTimeout is set"];
            if says.iter().all(|words| message.contains(words)) { Ok(()) } else { Err(message) }
        })
        .await;
    };
    team.set_version(ROLLOUT, "1.8.1").await;
    waits("1.8.1", 8).await;
    team.force("enough is enough").await;
    let began = std::time::Instant::now();
    team.controller_until("goes on", |r| stage_of(r, "1.8.1") != "Drain").await;
    println!("the drain ended {:?} after it was forced", began.elapsed());
    between(Duration::ZERO, began.elapsed(), Duration::from_secs(10));
    let drain = team.upgraded("1.8.1").await;
    assert_eq!((drain.drained.len(), drain.not_drained), (1, vec!["stuck-0: ended by force".to_owned()]));
    let forced = team.status(ROLLOUT).await.last_force.unwrap();
    println!("{forced:?}");
    assert_eq!(forced.text, "enough is enough");
    assert!(forced.ended.contains("1.8.1"), "{}", forced.ended);
    stage.all_run(&["good", "stuck"]).await;

    // It was meant for that attempt; another one needs another text.
    team.set_version(ROLLOUT, "1.8.2").await;
    waits("1.8.2", 4).await;
    team.force("and once more").await;
    team.upgraded("1.8.2").await;
    assert_eq!(team.status(ROLLOUT).await.last_force.unwrap().text, "and once more");
    stage.all_run(&["good", "stuck"]).await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a09_an_upgrade_may_be_given_up_when_pipelines_do_not_drain_and_nothing_has_changed_then() {
    let (stage, _operator) = Stage::running("a09-abort", &[("good", json!({})), ("stuck", never_pauses())]).await;
    let team = stage.team();
    let generation = team.get::<Deployment>(ROLLOUT).await.metadata.generation;
    team.set_ppnd(json!({"drainTimeout": "4s", "onDrainTimeout": "Abort"})).await;
    team.set_version(ROLLOUT, "1.8.1").await;
    let took = team.drains("1.8.1", &["stuck-0"]).await;
    println!("the drain took {took:?}");
    between(Duration::from_secs(2), took, Duration::from_secs(15));
    let status = team.failed(ROLLOUT, &["did not drain within 4s", "Pipeline/stuck-0"]).await.status.unwrap();
    println!("{}", status.message);
    let attempt = status.last_attempt.unwrap();
    assert_eq!((attempt.result.as_str(), attempt.reason.as_str()), ("Failed", "DrainTimeout"));
    assert_eq!((attempt.version.as_str(), attempt.stage.as_str()), ("1.8.1", "Drain"));
    assert_eq!(status.promoted.unwrap().version, "1.8.0");
    stage.all_run(&["good", "stuck"]).await;
    assert_eq!(team.get::<Deployment>(ROLLOUT).await.metadata.generation, generation);

    team.turn_knobs("stuck", json!({"never-pauses": null})).await;
    eventually("the knob is turned", async || {
        let pipeline = team.live_pipeline("stuck").await;
        let there = pipeline.annotations().contains_key("stand-in.numaflow/never-pauses");
        if there { Err("still there".to_owned()) } else { Ok(()) }
    })
    .await;
    team.set_ppnd(json!({"drainTimeout": "30s"})).await;
    team.set_version(ROLLOUT, "1.8.2").await;
    let drain = team.upgraded("1.8.2").await;
    assert_eq!(drain.drained, ["good-0", "stuck-0"]);
    stage.all_run(&["good", "stuck"]).await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_timeout_of_nothing_no_pipeline_is_paused_and_that_is_on_record() {
    let (stage, _operator) = Stage::running("zero", &[("a", json!({})), ("b", never_pauses())]).await;
    let team = stage.team();
    team.set_ppnd(json!({"drainTimeout": "0s"})).await;
    team.set_version(ROLLOUT, "1.8.1").await;
    let drain = team.upgraded("1.8.1").await;
    println!("{drain:?}");
    assert_eq!(drain.not_drained, ["a-0: nothing was paused", "b-0: nothing was paused"]);
    assert_eq!(drain.ended, "spec.strategy.ppnd.drainTimeout is 0s: nothing was paused");
    stage.all_run(&["a", "b"]).await;
    stage.at_rest().await;
    stage.never_flipped("a-0");
    stage.never_flipped("b-0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_without_a_rollout_is_left_alone_and_named() {
    let (stage, _operator) = Stage::running("unmanaged", &[("ours", json!({"drains-after": "12s"}))]).await;
    let team = stage.team();
    pipelines::running(team, "theirs", json!({})).await;
    team.set_version(ROLLOUT, "1.8.1").await;
    let status = team.draining("1.8.1", &["ours-0"]).await;
    assert_eq!(status.upgrade.unwrap().drain.unwrap().unmanaged, ["theirs"]);
    assert!(status.message.contains("left alone, without a PipelineRollout: Pipeline/theirs"), "{}", status.message);
    let drain = team.upgraded("1.8.1").await;
    assert_eq!((drain.drained, drain.unmanaged), (vec!["ours-0".to_owned()], vec!["theirs".to_owned()]));
    stage.all_run(&["ours"]).await;
    stage.at_rest().await;
    stage.never_flipped("theirs");
    let generations: Vec<i64> = stage.recorder.states("theirs").iter().map(|s| s.generation).collect();
    assert!(generations.iter().all(|g| *g == 1), "{generations:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_its_user_has_paused_counts_at_once_and_stays_paused() {
    let (stage, _operator) = Stage::running("user-paused", &[("good", json!({}))]).await;
    let team = stage.team();
    team.pipeline("resting", json!({})).await;
    stage.all_run(&["resting"]).await;
    team.edit_pipeline("resting", json!({"lifecycle": {"desiredPhase": "Paused"}})).await;
    let paused = "Deployed, and paused by its spec";
    team.pipeline_until("resting", "paused by its spec", |s| s.message == paused).await;
    team.set_version(ROLLOUT, "1.8.1").await;
    let drain = team.upgraded("1.8.1").await;
    assert_eq!(drain.drained, ["good-0", "resting-0"]);
    stage.all_run(&["good"]).await;
    team.pipeline_until("resting", "paused by its spec", |s| s.message == paused).await;
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("resting-0").len(), 1, "{}", stage.recorder.history("resting-0"));
    team.edit_pipeline("resting", json!({"lifecycle": null})).await;
    stage.all_run(&["resting"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a08_a_failed_pipeline_does_not_hold_up_an_upgrade() {
    let (stage, _operator) = Stage::running("a08", &[("good", json!({}))]).await;
    let team = stage.team();
    let mut spec = pipeline_spec();
    spec["edges"][1]["to"] = json!("nowhere");
    team.pipeline_with("broken", spec, json!({}), json!({})).await;
    eventually("the pipeline fails", async || {
        let states = stage.recorder.states("broken-0");
        if states.last().is_some_and(|s| s.phase == "Failed") { Ok(()) } else { Err(format!("{states:?}")) }
    })
    .await;
    team.set_version(ROLLOUT, "1.8.1").await;
    let drain = team.upgraded("1.8.1").await;
    println!("{drain:?}");
    assert_eq!((drain.drained, drain.not_drained), (vec!["good-0".to_owned()], vec![]));
    let [why] = &drain.excused[..] else { panic!("{:?}", drain.excused) };
    assert!(why.starts_with("broken-0: its spec is not valid") && why.contains("nowhere"), "{why}");
    stage.all_run(&["good"]).await;
    team.edit_pipeline("broken", pipeline_spec()).await;
    stage.all_run(&["broken"]).await;
    stage.at_rest().await;
    stage.never_flipped("broken-0");
    assert_eq!(team.pipeline_status("broken").await.upgrade_in_progress, "");
}

/// Takes a minute and a half, because the real Numaflow would.
#[tokio::test(flavor = "multi_thread")]
async fn slow_a_drain_is_cut_where_numaflow_takes_its_time() {
    const TIMEOUT: u32 = 15;
    let stage = Stage::bare("real-time").await;
    let team = stage.team();
    let _real = control_plane().real_time(&team.namespace);
    let _operator = stage.scene.operator().await;
    stage.furnish().await;
    // One that would drain for ever; one whose daemon keeps the one worker for twenty seconds at each look, the time at which the
    // drain is cut among them; and one that is drained soon, and is not looked at then.
    let hung = json!({"daemon": "hung"});
    let pipelines = [("full", json!({"pending": "7"})), ("good", json!({"drains-after": "3s"})), ("hung", hung)];
    stage.with(&pipelines).await;
    team.set_ppnd(json!({"drainTimeout": format!("{TIMEOUT}s")})).await;
    let changes = Changes::watch(team, &OF_PIPELINES).await;
    let after = changes.all().last().map_or(0, |c| c.at);
    let lease = team.lease(LEASE).await.unwrap();
    team.set_version(ROLLOUT, "1.8.1").await;
    let status = within(Duration::from_mins(4), "version 1.8.1 is deployed", async || {
        let status = team.status(ROLLOUT).await;
        let promoted = status.promoted.as_ref().is_some_and(|p| p.version == "1.8.1");
        if promoted && status.upgrade.is_none() { Ok(status) } else { Err(status.message) }
    })
    .await;
    let drain = status.last_drain.unwrap();
    println!("{drain:?}");
    assert_eq!(drain.drained, ["good-0"]);
    let [full, hung] = &drain.not_drained[..] else { panic!("{:?}", drain.not_drained) };
    assert!(full.starts_with("full-0: its time was up"), "{full}");
    assert!(hung.starts_with("hung-0: its time was up"), "{hung}");
    stage.all_run(&["full", "good", "hung"]).await;
    stage.at_rest().await;
    let held = team.lease(LEASE).await.unwrap();
    assert_ne!(held.holder, lease.holder);

    // As the server saw it, from the first pipeline that was asked.
    let all = changes.all();
    let pipeline = |c: &Change, name: &str| c.kind == "Pipeline" && c.name() == name;
    let wants = |c: &Change| c.text("/spec/lifecycle/desiredPhase") == "Paused";
    let asked = first(&all, after, "it is asked to pause", |c| pipeline(c, "full-0") && wants(c));
    let since = |c: &Change| c.seen.duration_since(asked.seen).as_secs_f64();
    let paused = |name: &'static str| {
        let says = |c: &Change| pipeline(c, name) && wants(c) && c.text("/status/phase") == "Paused";
        since(first(&all, asked.at, "it is paused", says))
    };
    let cut = first(&all, asked.at, "the drain is cut", |c| {
        !c.text("/status/pauseRequest/cutAt").is_empty() && c.kind == "NumaflowControllerRollout"
    });
    let ended =
        first(&all, asked.at, "the drain ends", |c| c.kind == "NumaflowControllerRollout" && c.stage() == "CutOver");
    let (cut, ended) = (since(cut), since(ended));
    let last = ["full-0", "good-0", "hung-0"].map(paused).into_iter().fold(0.0, f64::max);
    println!("cut after {cut:.1} s, all paused after {last:.1} s, the drain ended after {ended:.1} s");
    let timeout = f64::from(TIMEOUT);
    assert!((timeout - 1.0..timeout + 3.0).contains(&cut), "{cut}");
    // Longer than a pipeline gets that has its controller for itself, and not as long as all three may take.
    assert!((15.0..15.0 + 3.0 * 20.0).contains(&(last - cut)), "{last}");
    assert!((last..last + 5.0).contains(&ended), "{ended}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_is_made_while_others_drain_is_born_paused_and_runs_when_they_do() {
    let (stage, _operator) = Stage::running("born", &[("old", never_pauses())]).await;
    let team = stage.team();
    team.set_version(ROLLOUT, "1.8.1").await;
    team.draining("1.8.1", &["old-0"]).await;
    team.pausing("old-0").await;
    team.pipeline("young", json!({})).await;
    stage.saw("young-0", "settled and paused", |s| s.wants_pause() && s.settled()).await;
    eventually("it counts", async || {
        let drain = team.status(ROLLOUT).await.upgrade.and_then(|u| u.drain).unwrap_or_default();
        if drain.drained == ["young-0"] { Ok(()) } else { Err(format!("{drain:?}")) }
    })
    .await;
    team.turn_at_once("old", json!({"never-pauses": null})).await;
    assert_eq!(team.upgraded("1.8.1").await.drained, ["old-0", "young-0"]);
    stage.all_run(&["old", "young"]).await;
    stage.at_rest().await;
    let states = stage.recorder.states("young-0");
    assert!(states.first().is_some_and(|s| s.wants_pause() && s.generation == 1), "{states:?}");
    assert_eq!(stage.recorder.flips("young-0").len(), 1, "{}", stage.recorder.history("young-0"));
}

/// What of a rollout is its user's.
fn users_part(object: &Value) -> [Value; 3] {
    ["/spec", "/metadata/labels", "/metadata/annotations"]
        .map(|place| object.pointer(place).cloned().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn c20_what_a_user_has_written_is_as_it_was_after_a_drain_and_a_force_and_nothing_of_it_is_on_children() {
    const MARKS: [&str; 3] = [
        "kubectl.kubernetes.io/last-applied-configuration",
        "argocd.argoproj.io/tracking-id",
        "argocd.argoproj.io/instance",
    ];
    let (stage, _operator) = Stage::running("c20", &[("stuck", never_pauses())]).await;
    let team = stage.team();
    let changes = Changes::watch(team, &OF_PIPELINES).await;
    let marks = json!({
        "labels": {MARKS[2]: "app"}, "annotations": {MARKS[0]: "{}", MARKS[1]: "app:group/kind:ns/name"},
    });
    // One that has them from the beginning, as what a tool delivers.
    let mut delivered = json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "PipelineRollout", "metadata": marks,
        "spec": {"pipeline": {"spec": pipeline_spec()}},
    });
    delivered["metadata"]["name"] = json!("a");
    let made: DynamicObject = serde_json::from_value(delivered).unwrap();
    // What users write, as the server answers to it: that is all that these objects ever are.
    let api = |kind: &str| -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("numaplane.numaproj.io", "v1alpha1", kind);
        let plural = format!("{}s", kind.to_lowercase());
        Api::namespaced_with(team.client.clone(), &team.namespace, &ApiResource::from_gvk_with_plural(&gvk, &plural))
    };
    let (controllers, pipelines) = (api("NumaflowControllerRollout"), api("PipelineRollout"));
    let part = |object: DynamicObject| users_part(&serde_json::to_value(object).unwrap());
    let edit = async |api: &Api<DynamicObject>, name: &str, patch: Value| {
        part(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap())
    };
    let mut of_controller = vec![part(controllers.get(ROLLOUT).await.unwrap())];
    let mut of_pipeline = vec![part(pipelines.get("stuck").await.unwrap())];
    let of_other = vec![part(pipelines.create(&Default::default(), &made).await.unwrap())];
    of_controller.push(edit(&controllers, ROLLOUT, json!({"metadata": marks})).await);
    of_pipeline.push(edit(&pipelines, "stuck", json!({"metadata": marks})).await);
    stage.all_run(&["a"]).await;
    let version = json!({"spec": {"controller": {"version": "1.8.1"}}});
    of_controller.push(edit(&controllers, ROLLOUT, version).await);
    team.draining("1.8.1", &["stuck-0"]).await;
    let force = json!({"metadata": {"annotations": {"numaplane.numaproj.io/force": "now"}}});
    of_controller.push(edit(&controllers, ROLLOUT, force).await);
    team.upgraded("1.8.1").await;
    stage.all_run(&["a", "stuck"]).await;
    stage.at_rest().await;
    // From the beginning to the end, and not in the end only.
    let all = changes.all();
    for (name, written) in [(ROLLOUT, of_controller), ("stuck", of_pipeline), ("a", of_other)] {
        let of_it =
            |c: &&Change| c.name() == name && ["NumaflowControllerRollout", "PipelineRollout"].contains(&c.kind);
        let mut seen: Vec<[Value; 3]> = all.iter().filter(of_it).map(|c| users_part(&c.object)).collect();
        seen.dedup();
        assert_eq!(seen, written, "{name}");
    }
    let rollout = team.rollout(ROLLOUT).await;
    assert_eq!(rollout.finalizers().len(), 1, "{:?}", rollout.finalizers());
    let mut children = Vec::new();
    for kind in ["Pipeline", "Vertex"] {
        let all = numaflow::api(team, kind).list(&Default::default()).await.unwrap().items;
        children.extend(all.into_iter().map(|o| (kind, o.metadata)));
    }
    children.extend(team.all::<NumaflowController>().await.into_iter().map(|o| ("NumaflowController", o.metadata)));
    children.extend(team.all::<Deployment>().await.into_iter().map(|o| ("Deployment", o.metadata)));
    children.extend(team.all::<ConfigMap>().await.into_iter().map(|o| ("ConfigMap", o.metadata)));
    children.extend(team.all::<ControllerRevision>().await.into_iter().map(|o| ("ControllerRevision", o.metadata)));
    assert!(children.len() > 8, "{}", children.len());
    for (kind, metadata) in children {
        let (labels, annotations) = (metadata.labels.unwrap_or_default(), metadata.annotations.unwrap_or_default());
        let copied = MARKS.iter().find(|mark| labels.contains_key(**mark) || annotations.contains_key(**mark));
        assert_eq!(copied, None, "on {kind}/{}", metadata.name.unwrap_or_default());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_that_is_set_in_mid_drain_counts_from_the_beginning_of_the_drain() {
    let (stage, _operator) = Stage::running("live", &[("full", json!({"pending": "7"}))]).await;
    let team = stage.team();
    team.edit_pipeline("full", json!({"lifecycle": {"pauseGracePeriodSeconds": 600}})).await;
    eventually("the grace period is there", async || {
        let grace = team.live_pipeline("full").await.data["spec"]["lifecycle"]["pauseGracePeriodSeconds"].clone();
        if grace == 600 { Ok(()) } else { Err(grace.to_string()) }
    })
    .await;
    stage.all_run(&["full"]).await;
    team.set_version(ROLLOUT, "1.8.1").await;
    team.draining("1.8.1", &["full-0"]).await;
    team.pausing("full-0").await;
    team.set_ppnd(json!({"drainTimeout": "1h"})).await;
    team.controller_until("says when it times out", |r| {
        r.status.as_ref().is_some_and(|s| s.message.contains("(drainTimeout 1h), and goes on then"))
    })
    .await;
    team.set_ppnd(json!({"drainTimeout": "1s"})).await;
    let began = std::time::Instant::now();
    team.drains("1.8.1", &[]).await;
    println!("the drain ended {:?} after its timeout was set to one that is over", began.elapsed());
    between(Duration::ZERO, began.elapsed(), Duration::from_secs(10));
    assert_eq!(team.upgraded("1.8.1").await.not_drained.len(), 1);
    stage.all_run(&["full"]).await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_pipeline_in_mid_drain_goes_in_while_it_is_paused_and_needs_no_pause_of_its_own() {
    let (stage, _operator) = Stage::running("both", &[("a", json!({"drains-after": "12s"})), ("b", json!({}))]).await;
    let team = stage.team();
    team.set_version(ROLLOUT, "1.8.1").await;
    team.draining("1.8.1", &["a-0"]).await;
    // One that is on its way into the pause, and one that is there.
    team.set_image("a", "cat:2").await;
    team.set_image("b", "cat:2").await;
    assert_eq!(team.upgraded("1.8.1").await.drained, ["a-0", "b-0"]);
    stage.all_run(&["a", "b"]).await;
    stage.at_rest().await;
    for name in ["a", "b"] {
        let pipeline = team.live_pipeline(name).await;
        assert_eq!(pipeline.data["spec"]["vertices"][1]["udf"]["container"]["image"], "cat:2");
        let name = pipeline.name_any();
        assert_eq!(stage.recorder.flips(&name).len(), 2, "{}", stage.recorder.history(&name));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelines_of_another_instance_run_on_while_those_of_one_are_drained() {
    let (stage, _operator) = Stage::running("instances", &[("ours", json!({}))]).await;
    let team = stage.team();
    let blue =
        json!({"controller": {"version": "1.8.0", "instanceID": "blue"}, "strategy": {"type": "pause-and-drain"}});
    team.install_with("blue", blue).await;
    team.deployed("blue", "1.8.0").await;
    pipelines::service(team, "blue", "blue").await;
    let mut spec = pipeline_spec();
    spec["interStepBufferServiceName"] = json!("blue");
    let metadata = json!({"annotations": {"numaflow.numaproj.io/instance": "blue"}});
    team.create::<PipelineRollout>(json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "PipelineRollout", "metadata": {"name": "theirs"},
        "spec": {"pipeline": {"metadata": metadata, "spec": spec}},
    }))
    .await;
    stage.all_run(&["theirs"]).await;
    team.set_version(ROLLOUT, "1.8.1").await;
    let drain = team.upgraded("1.8.1").await;
    assert_eq!((drain.drained, drain.unmanaged), (vec!["ours-0".to_owned()], vec![]));
    stage.all_run(&["ours", "theirs"]).await;
    stage.never_flipped("theirs-0");
    team.set_version("blue", "1.8.1").await;
    team.deployed("blue", "1.8.1").await;
    stage.all_run(&["ours", "theirs"]).await;
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("theirs-0").len(), 2, "{}", stage.recorder.history("theirs-0"));
    assert_eq!(stage.recorder.flips("ours-0").len(), 2, "{}", stage.recorder.history("ours-0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_force_that_is_there_before_an_upgrade_is_for_the_next_one_and_nothing_is_paused() {
    let (stage, _operator) = Stage::running("before", &[("a", json!({})), ("stuck", never_pauses())]).await;
    let team = stage.team();
    team.force("do not wait").await;
    team.set_version(ROLLOUT, "1.8.1").await;
    let drain = team.upgraded("1.8.1").await;
    assert_eq!(drain.ended, "ended by force: do not wait");
    assert_eq!(drain.not_drained, ["a-0: ended by force", "stuck-0: ended by force"]);
    let forced = team.status(ROLLOUT).await.last_force.unwrap();
    assert_eq!((forced.text.as_str(), forced.ended.contains("before it began")), ("do not wait", true), "{forced:?}");
    stage.all_run(&["a", "stuck"]).await;
    stage.never_flipped("a-0");
    stage.never_flipped("stuck-0");
    stage.at_rest().await;
}
