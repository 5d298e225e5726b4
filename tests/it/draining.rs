//! Changes of a controller or an ISB service whose pipelines are paused and drained for it.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, Deployment, StatefulSet},
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
    eventually, numaflow, pipelines,
    requesters::{By, Requester, View, told_for_both},
    rollouts::{Stage, pipeline_spec, unfit_spec},
    stays, within,
};

/// How long a pipeline may take to pause once its time is up, if it is the only one.
const CUT: Duration = Duration::from_secs(35);

async fn a_controller_is_upgraded_while_its_pipelines_are_drained_and_they_run_again_afterwards(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "drain", &[("a", json!({})), ("b", json!({}))]).await;
    requester.change(1).await;
    let drain = requester.done(1).await;
    stage.all_run(&["a", "b"]).await;
    stage.at_rest().await;
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

async fn a09_a_pipeline_that_never_pauses_holds_up_an_upgrade_for_the_timeout_and_a_last_chance(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "a09-never", &[("stuck", never_pauses())]).await;
    requester.set_ppnd(json!({"drainTimeout": "4s"})).await;
    requester.change(1).await;
    let took = requester.drains(1, &["stuck-0"]).await;
    println!("the drain took {took:?}");
    // Since it was first looked at, which is a moment after it began.
    between(Duration::from_secs(2) + CUT, took, Duration::from_secs(14) + CUT);
    let drain = requester.done(1).await;
    println!("{drain:?}");
    assert_eq!(drain.not_drained, ["stuck-0: did not pause within 4s, nor within 35s more"]);
    assert!(drain.ended.contains("drainTimeout 4s"), "{}", drain.ended);
    stage.all_run(&["stuck"]).await;
    stage.at_rest().await;
}

async fn a09_a_pipeline_that_does_not_drain_is_paused_as_it_is_when_its_time_is_up(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "a09-undrained", &[("good", json!({}))]).await;
    let team = stage.team();
    let mut spec = pipeline_spec();
    spec["lifecycle"] = json!({"pauseGracePeriodSeconds": 600});
    team.pipeline_with("full", spec, json!({"pending": "7"}), json!({})).await;
    team.pipeline("own-grace", json!({"pending": "7"})).await;
    stage.all_run(&["full", "own-grace"]).await;
    requester.set_ppnd(json!({"drainTimeout": "10s"})).await;
    requester.change(1).await;
    let asked = requester.draining(1, &["full-0", "own-grace-0"]).await;
    requester.drains(1, &[]).await;
    let since = asked.pause_request.unwrap().since.unwrap().0;
    let took = Duration::try_from(jiff::Timestamp::now().duration_since(since)).unwrap();
    println!("the drain took {took:?}");
    between(Duration::from_secs(10), took, Duration::from_secs(22));
    let drain = requester.done(1).await;
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

async fn a09_without_a_timeout_an_upgrade_waits_and_says_for_what_until_it_is_forced(by: By) {
    let (stage, requester, _operator) =
        Stage::asked(by, "a09-force", &[("good", json!({})), ("stuck", never_pauses())]).await;
    let waits = async |n: usize, time: u64| {
        requester.draining(n, &["stuck-0"]).await;
        stays(&format!("change {n} waits for stuck"), Duration::from_secs(time), async || {
            let view = requester.view().await;
            view.names_those_it_waits_for(&["stuck-0"]);
            let says = ["waiting since ", " UTC for 1 of 2 pipelines to drain", "no drainTimeout is set"];
            if says.iter().all(|words| view.message.contains(words)) { Ok(()) } else { Err(view.message) }
        })
        .await;
    };
    requester.change(1).await;
    waits(1, 8).await;
    requester.force("enough is enough").await;
    let began = std::time::Instant::now();
    requester.until("goes on", |v| v.stage_of(1) != "Drain").await;
    println!("the drain ended {:?} after it was forced", began.elapsed());
    between(Duration::ZERO, began.elapsed(), Duration::from_secs(10));
    let drain = requester.done(1).await;
    assert_eq!((drain.drained.len(), drain.not_drained), (1, vec!["stuck-0: ended by force".to_owned()]));
    let forced = requester.view().await.last_force.unwrap();
    println!("{forced:?}");
    assert_eq!(forced.text, "enough is enough");
    // Which change it was: of a controller, to which version.
    let named = if by == By::Controller { by.version(1) } else { "drain" };
    assert!(forced.ended.contains(named), "{}", forced.ended);
    stage.all_run(&["good", "stuck"]).await;

    // It was meant for that attempt; another one needs another text.
    requester.change(2).await;
    waits(2, 4).await;
    requester.force("and once more").await;
    requester.done(2).await;
    assert_eq!(requester.view().await.last_force.unwrap().text, "and once more");
    stage.all_run(&["good", "stuck"]).await;
    stage.at_rest().await;
}

async fn a09_an_upgrade_may_be_given_up_when_pipelines_do_not_drain_and_nothing_has_changed_then(by: By) {
    let (stage, requester, _operator) =
        Stage::asked(by, "a09-abort", &[("good", json!({})), ("stuck", never_pauses())]).await;
    let team = stage.team();
    let production = requester.production().await;
    requester.set_ppnd(json!({"drainTimeout": "4s", "onDrainTimeout": "Abort"})).await;
    requester.change(1).await;
    let took = requester.drains(1, &["stuck-0"]).await;
    println!("the drain took {took:?}");
    between(Duration::from_secs(2), took, Duration::from_secs(15));
    let view = requester.failed(&["did not drain within 4s", "Pipeline/stuck-0"]).await;
    println!("{}", view.message);
    let attempt = view.last_attempt.unwrap();
    assert_eq!((attempt.result.as_str(), attempt.reason.as_str()), ("Failed", "DrainTimeout"));
    assert_eq!((view.wanted, view.has), (Some(1), Some(0)));
    stage.all_run(&["good", "stuck"]).await;
    assert_eq!(requester.production().await, production);

    team.turn_knobs("stuck", json!({"never-pauses": null})).await;
    eventually("the knob is turned", async || {
        let pipeline = team.live_pipeline("stuck").await;
        let there = pipeline.annotations().contains_key("stand-in.numaflow/never-pauses");
        if there { Err("still there".to_owned()) } else { Ok(()) }
    })
    .await;
    requester.set_ppnd(json!({"drainTimeout": "30s"})).await;
    requester.change(2).await;
    let drain = requester.done(2).await;
    assert_eq!(drain.drained, ["good-0", "stuck-0"]);
    stage.all_run(&["good", "stuck"]).await;
    stage.at_rest().await;
}

async fn with_a_timeout_of_nothing_no_pipeline_is_paused_and_that_is_on_record(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "zero", &[("a", json!({})), ("b", never_pauses())]).await;
    requester.set_ppnd(json!({"drainTimeout": "0s"})).await;
    requester.change(1).await;
    let drain = requester.done(1).await;
    println!("{drain:?}");
    assert_eq!(drain.not_drained, ["a-0: nothing was paused", "b-0: nothing was paused"]);
    assert_eq!(drain.ended, "spec.strategy.ppnd.drainTimeout is 0s: nothing was paused");
    stage.all_run(&["a", "b"]).await;
    stage.at_rest().await;
    stage.never_flipped("a-0");
    stage.never_flipped("b-0");
}

async fn a_pipeline_without_a_rollout_is_left_alone_and_named(by: By) {
    let (stage, requester, _operator) =
        Stage::asked(by, "unmanaged", &[("ours", json!({"drains-after": "12s"}))]).await;
    let team = stage.team();
    pipelines::running_on(team, "theirs", &requester.service_name().await).await;
    requester.change(1).await;
    let view = requester.draining(1, &["ours-0"]).await;
    assert_eq!(view.drain.unwrap().unmanaged, ["theirs"]);
    assert!(view.message.contains("left alone, without a PipelineRollout: Pipeline/theirs"), "{}", view.message);
    let drain = requester.done(1).await;
    assert_eq!((drain.drained, drain.unmanaged), (vec!["ours-0".to_owned()], vec!["theirs".to_owned()]));
    stage.all_run(&["ours"]).await;
    stage.at_rest().await;
    stage.never_flipped("theirs");
    let generations: Vec<i64> = stage.recorder.states("theirs").iter().map(|s| s.generation).collect();
    assert!(generations.iter().all(|g| *g == 1), "{generations:?}");
}

async fn a_pipeline_that_its_user_has_paused_counts_at_once_and_stays_paused(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "user-paused", &[("good", json!({}))]).await;
    let team = stage.team();
    team.pipeline("resting", json!({})).await;
    stage.all_run(&["resting"]).await;
    team.edit_pipeline("resting", json!({"lifecycle": {"desiredPhase": "Paused"}})).await;
    let paused = "Deployed, and paused by its spec";
    team.pipeline_until("resting", "paused by its spec", |s| s.message == paused).await;
    requester.change(1).await;
    let drain = requester.done(1).await;
    assert_eq!(drain.drained, ["good-0", "resting-0"]);
    stage.all_run(&["good"]).await;
    team.pipeline_until("resting", "paused by its spec", |s| s.message == paused).await;
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("resting-0").len(), 1, "{}", stage.recorder.history("resting-0"));
    team.edit_pipeline("resting", json!({"lifecycle": null})).await;
    stage.all_run(&["resting"]).await;
}

async fn a08_a_failed_pipeline_does_not_hold_up_an_upgrade(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "a08", &[("good", json!({}))]).await;
    let team = stage.team();
    team.pipeline_with("broken", unfit_spec(), json!({}), json!({})).await;
    eventually("the pipeline fails", async || {
        let states = stage.recorder.states("broken-0");
        if states.last().is_some_and(|s| s.phase == "Failed") { Ok(()) } else { Err(format!("{states:?}")) }
    })
    .await;
    requester.change(1).await;
    let drain = requester.done(1).await;
    println!("{drain:?}");
    assert_eq!((drain.drained, drain.not_drained), (vec!["good-0".to_owned()], vec![]));
    let [why] = &drain.excused[..] else { panic!("{:?}", drain.excused) };
    assert!(
        why.starts_with("broken-0: its spec is not valid") && why.contains("fallback sink is not provided"),
        "{why}"
    );
    stage.all_run(&["good"]).await;
    team.edit_pipeline("broken", pipeline_spec()).await;
    stage.all_run(&["broken"]).await;
    stage.at_rest().await;
    stage.never_flipped("broken-0");
    assert_eq!(team.pipeline_status("broken").await.upgrade_in_progress, "");
}

/// Takes a minute and a half, because the real Numaflow would.
async fn slow_a_drain_is_cut_where_numaflow_takes_its_time(by: By) {
    const TIMEOUT: u32 = 15;
    let stage = Stage::bare(&format!("real-time-{by}")).await;
    let team = stage.team();
    let _real = control_plane().real_time(&team.namespace);
    let _operator = stage.scene.operator().await;
    let requester = stage.furnish_for(by).await;
    // One that would drain for ever; one whose daemon keeps the one worker for twenty seconds at each look, the time at which the
    // drain is cut among them; and one that is drained soon, and is not looked at then.
    let hung = json!({"daemon": "hung"});
    let pipelines = [("full", json!({"pending": "7"})), ("good", json!({"drains-after": "3s"})), ("hung", hung)];
    stage.with(&pipelines).await;
    requester.set_ppnd(json!({"drainTimeout": format!("{TIMEOUT}s")})).await;
    let changes = Changes::watch(team, &OF_PIPELINES).await;
    let after = changes.all().last().map_or(0, |c| c.at);
    requester.change(1).await;
    let view = within(Duration::from_mins(4), "the change is deployed", async || {
        let view = requester.view().await;
        if view.has == Some(1) && view.under_way.is_none() { Ok(view) } else { Err(view.message) }
    })
    .await;
    let drain = view.last_drain.unwrap();
    println!("{drain:?}");
    assert_eq!(drain.drained, ["good-0"]);
    let [full, hung] = &drain.not_drained[..] else { panic!("{:?}", drain.not_drained) };
    assert!(full.starts_with("full-0: its time was up"), "{full}");
    assert!(hung.starts_with("hung-0: its time was up"), "{hung}");
    stage.all_run(&["full", "good", "hung"]).await;
    stage.at_rest().await;

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
        !c.text("/status/pauseRequest/cutAt").is_empty() && c.kind == by.kind()
    });
    let ended = first(&all, asked.at, "the drain ends", |c| c.kind == by.kind() && c.stage() == by.applying());
    let (cut, ended) = (since(cut), since(ended));
    let last = ["full-0", "good-0", "hung-0"].map(paused).into_iter().fold(0.0, f64::max);
    println!("cut after {cut:.1} s, all paused after {last:.1} s, the drain ended after {ended:.1} s");
    let timeout = f64::from(TIMEOUT);
    assert!((timeout - 1.0..timeout + 3.0).contains(&cut), "{cut}");
    // Longer than a pipeline gets that has its controller for itself, and not as long as all three may take.
    assert!((15.0..15.0 + 3.0 * 20.0).contains(&(last - cut)), "{last}");
    assert!((last..last + 5.0).contains(&ended), "{ended}");
}

async fn a_pipeline_that_is_made_while_others_drain_is_born_paused_and_runs_when_they_do(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "born", &[("old", never_pauses())]).await;
    let team = stage.team();
    requester.change(1).await;
    requester.draining(1, &["old-0"]).await;
    team.pausing("old-0").await;
    team.pipeline("young", json!({})).await;
    stage.saw("young-0", "settled and paused", |s| s.wants_pause() && s.settled()).await;
    eventually("it counts", async || {
        let drain = requester.view().await.drain.unwrap_or_default();
        if drain.drained == ["young-0"] { Ok(()) } else { Err(format!("{drain:?}")) }
    })
    .await;
    team.turn_at_once("old", json!({"never-pauses": null})).await;
    assert_eq!(requester.done(1).await.drained, ["old-0", "young-0"]);
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

async fn c20_what_a_user_has_written_is_as_it_was_after_a_drain_and_a_force_and_nothing_of_it_is_on_children(by: By) {
    const MARKS: [&str; 3] = [
        "kubectl.kubernetes.io/last-applied-configuration",
        "argocd.argoproj.io/tracking-id",
        "argocd.argoproj.io/instance",
    ];
    let (stage, requester, _operator) = Stage::asked(by, "c20", &[("stuck", never_pauses())]).await;
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
    let gvk = GroupVersionKind::gvk("numaplane.numaproj.io", "v1alpha1", "PipelineRollout");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "pipelinerollouts");
    let pipelines: Api<DynamicObject> = Api::namespaced_with(team.client.clone(), &team.namespace, &resource);
    let (requesters, name) = (requester.objects(), requester.name.as_str());
    let part = |object: DynamicObject| users_part(&serde_json::to_value(object).unwrap());
    let edit = async |api: &Api<DynamicObject>, name: &str, patch: Value| {
        part(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap())
    };
    let mut of_requester = vec![part(requesters.get(name).await.unwrap())];
    let mut of_pipeline = vec![part(pipelines.get("stuck").await.unwrap())];
    let of_other = vec![part(pipelines.create(&Default::default(), &made).await.unwrap())];
    of_requester.push(edit(&requesters, name, json!({"metadata": marks})).await);
    of_pipeline.push(edit(&pipelines, "stuck", json!({"metadata": marks})).await);
    stage.all_run(&["a"]).await;
    requester.change(1).await;
    of_requester.push(part(requesters.get(name).await.unwrap()));
    requester.draining(1, &["stuck-0"]).await;
    let force = json!({"metadata": {"annotations": {"numaplane.numaproj.io/force": "now"}}});
    of_requester.push(edit(&requesters, name, force).await);
    requester.done(1).await;
    stage.all_run(&["a", "stuck"]).await;
    stage.at_rest().await;
    // From the beginning to the end, and not in the end only.
    let all = changes.all();
    for (name, written) in [(name, of_requester), ("stuck", of_pipeline), ("a", of_other)] {
        let of_it = |c: &&Change| c.name() == name && [by.kind(), "PipelineRollout"].contains(&c.kind);
        let mut seen: Vec<[Value; 3]> = all.iter().filter(of_it).map(|c| users_part(&c.object)).collect();
        seen.dedup();
        assert_eq!(seen, written, "{name}");
    }
    let rollout = requesters.get(name).await.unwrap();
    assert_eq!(rollout.finalizers().len(), 1, "{:?}", rollout.finalizers());
    let mut children = Vec::new();
    for kind in ["Pipeline", "Vertex", "InterStepBufferService"] {
        let all = numaflow::api(team, kind).list(&Default::default()).await.unwrap().items;
        children.extend(all.into_iter().map(|o| (kind, o.metadata)));
    }
    children.extend(team.all::<NumaflowController>().await.into_iter().map(|o| ("NumaflowController", o.metadata)));
    children.extend(team.all::<Deployment>().await.into_iter().map(|o| ("Deployment", o.metadata)));
    children.extend(team.all::<StatefulSet>().await.into_iter().map(|o| ("StatefulSet", o.metadata)));
    children.extend(team.all::<ConfigMap>().await.into_iter().map(|o| ("ConfigMap", o.metadata)));
    children.extend(team.all::<ControllerRevision>().await.into_iter().map(|o| ("ControllerRevision", o.metadata)));
    assert!(children.len() > 8, "{}", children.len());
    for (kind, metadata) in children {
        let (labels, annotations) = (metadata.labels.unwrap_or_default(), metadata.annotations.unwrap_or_default());
        let copied = MARKS.iter().find(|mark| labels.contains_key(**mark) || annotations.contains_key(**mark));
        assert_eq!(copied, None, "on {kind}/{}", metadata.name.unwrap_or_default());
    }
}

async fn a_timeout_that_is_set_in_mid_drain_counts_from_the_beginning_of_the_drain(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "live", &[("full", json!({"pending": "7"}))]).await;
    let team = stage.team();
    team.edit_pipeline("full", json!({"lifecycle": {"pauseGracePeriodSeconds": 600}})).await;
    eventually("the grace period is there", async || {
        let grace = team.live_pipeline("full").await.data["spec"]["lifecycle"]["pauseGracePeriodSeconds"].clone();
        if grace == 600 { Ok(()) } else { Err(grace.to_string()) }
    })
    .await;
    stage.all_run(&["full"]).await;
    requester.change(1).await;
    requester.draining(1, &["full-0"]).await;
    team.pausing("full-0").await;
    requester.set_ppnd(json!({"drainTimeout": "1h"})).await;
    let says = |v: &View| v.message.contains("(drainTimeout 1h), and goes on then");
    requester.until("says when it times out", says).await;
    requester.set_ppnd(json!({"drainTimeout": "1s"})).await;
    let began = std::time::Instant::now();
    requester.drains(1, &[]).await;
    println!("the drain ended {:?} after its timeout was set to one that is over", began.elapsed());
    between(Duration::ZERO, began.elapsed(), Duration::from_secs(10));
    assert_eq!(requester.done(1).await.not_drained.len(), 1);
    stage.all_run(&["full"]).await;
    stage.at_rest().await;
}

async fn a_change_of_a_pipeline_in_mid_drain_goes_in_while_it_is_paused_and_needs_no_pause_of_its_own(by: By) {
    let (stage, requester, _operator) =
        Stage::asked(by, "both", &[("a", json!({"drains-after": "12s"})), ("b", json!({}))]).await;
    let team = stage.team();
    requester.change(1).await;
    requester.draining(1, &["a-0"]).await;
    // One that is on its way into the pause, and one that is there.
    team.set_image("a", "cat:2").await;
    team.set_image("b", "cat:2").await;
    assert_eq!(requester.done(1).await.drained, ["a-0", "b-0"]);
    stage.all_run(&["a", "b"]).await;
    stage.at_rest().await;
    for name in ["a", "b"] {
        let pipeline = team.live_pipeline(name).await;
        assert_eq!(pipeline.data["spec"]["vertices"][1]["udf"]["container"]["image"], "cat:2");
        let name = pipeline.name_any();
        assert_eq!(stage.recorder.flips(&name).len(), 2, "{}", stage.recorder.history(&name));
    }
}

async fn pipelines_of_another_instance_run_on_while_those_of_one_are_drained(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "others", &[("ours", json!({}))]).await;
    let team = stage.team();
    let other = Requester::named(&stage, by, "blue");
    let metadata = match by {
        By::Controller => {
            let controller = json!({"version": by.version(0), "instanceID": "blue"});
            let spec = json!({"controller": controller, "strategy": {"type": "pause-and-drain"}});
            team.install_with("blue", spec).await;
            other.deployed(0).await;
            pipelines::service(team, "blue", "blue").await;
            json!({"annotations": {"numaflow.numaproj.io/instance": "blue"}})
        }
        By::Isb => {
            other.install().await;
            json!({})
        }
    };
    let mut spec = pipeline_spec();
    spec["interStepBufferServiceName"] = json!("blue");
    team.create::<PipelineRollout>(json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "PipelineRollout", "metadata": {"name": "theirs"},
        "spec": {"pipeline": {"metadata": metadata, "spec": spec}},
    }))
    .await;
    stage.all_run(&["theirs"]).await;
    requester.change(1).await;
    let drain = requester.done(1).await;
    assert_eq!((drain.drained, drain.unmanaged), (vec!["ours-0".to_owned()], vec![]));
    stage.all_run(&["ours", "theirs"]).await;
    stage.never_flipped("theirs-0");
    other.change(1).await;
    assert_eq!(other.done(1).await.drained, ["theirs-0"]);
    stage.all_run(&["ours", "theirs"]).await;
    stage.at_rest().await;
    for name in ["theirs-0", "ours-0"] {
        assert_eq!(stage.recorder.flips(name).len(), 2, "{}", stage.recorder.history(name));
    }
}

async fn a_force_that_is_there_before_an_upgrade_is_for_the_next_one_and_nothing_is_paused(by: By) {
    let (stage, requester, _operator) =
        Stage::asked(by, "before", &[("a", json!({})), ("stuck", never_pauses())]).await;
    requester.force("do not wait").await;
    requester.change(1).await;
    let drain = requester.done(1).await;
    assert_eq!(drain.ended, "ended by force: do not wait");
    assert_eq!(drain.not_drained, ["a-0: ended by force", "stuck-0: ended by force"]);
    let forced = requester.view().await.last_force.unwrap();
    assert_eq!((forced.text.as_str(), forced.ended.contains("before it began")), ("do not wait", true), "{forced:?}");
    stage.all_run(&["a", "stuck"]).await;
    stage.never_flipped("a-0");
    stage.never_flipped("stuck-0");
    stage.at_rest().await;
}

told_for_both! {
    a_controller_is_upgraded_while_its_pipelines_are_drained_and_they_run_again_afterwards as an_isb_service_is_changed_while_its_pipelines_are_drained_and_they_run_again_afterwards,
    a09_a_pipeline_that_never_pauses_holds_up_an_upgrade_for_the_timeout_and_a_last_chance,
    a09_a_pipeline_that_does_not_drain_is_paused_as_it_is_when_its_time_is_up,
    a09_without_a_timeout_an_upgrade_waits_and_says_for_what_until_it_is_forced,
    a09_an_upgrade_may_be_given_up_when_pipelines_do_not_drain_and_nothing_has_changed_then,
    with_a_timeout_of_nothing_no_pipeline_is_paused_and_that_is_on_record,
    a_pipeline_without_a_rollout_is_left_alone_and_named,
    a_pipeline_that_its_user_has_paused_counts_at_once_and_stays_paused,
    a08_a_failed_pipeline_does_not_hold_up_an_upgrade,
    slow_a_drain_is_cut_where_numaflow_takes_its_time,
    a_pipeline_that_is_made_while_others_drain_is_born_paused_and_runs_when_they_do,
    c20_what_a_user_has_written_is_as_it_was_after_a_drain_and_a_force_and_nothing_of_it_is_on_children,
    a_timeout_that_is_set_in_mid_drain_counts_from_the_beginning_of_the_drain,
    a_change_of_a_pipeline_in_mid_drain_goes_in_while_it_is_paused_and_needs_no_pause_of_its_own,
    pipelines_of_another_instance_run_on_while_those_of_one_are_drained as pipelines_of_another_isb_service_run_on_while_those_of_one_are_drained,
    a_force_that_is_there_before_an_upgrade_is_for_the_next_one_and_nothing_is_paused,
}
