//! ISB services and what their users ran into: pipelines that ran too early, old words taken for new ones, edits in mid-change,
//! deletions that never ended, changes that never got healthy.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{ResourceExt, api::DynamicObject};
use numaplane::api::{IsbServiceRollout, PipelineRollout};
use serde_json::{Value, json};

use crate::{
    pipelines_gone::let_go,
    support::{
        eventually,
        faults::Faults,
        numaflow,
        pipelines::{poke, turn},
        production::{image, image_of, is_rolled},
        requesters::{BAD, By, Requester, SLOW},
        rollouts::Stage,
        stays,
    },
};

async fn begin(name: &str, pipelines: &[(&str, Value)]) -> (Stage, Requester, crate::support::operator::Running) {
    Stage::asked(By::Isb, name, pipelines).await
}

fn is_paused(pipeline: &DynamicObject) -> Result<(), String> {
    if pipeline.data["spec"]["lifecycle"]["desiredPhase"] == "Paused" {
        Ok(())
    } else {
        Err(pipeline.data["spec"]["lifecycle"].to_string())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a07_pipelines_stay_paused_while_a_single_broker_of_the_old_version_is_left() {
    let (stage, requester, _operator) = begin("a07", &[("my", json!({}))]).await;
    let team = stage.team();
    let service = requester.service_name().await;
    // One broker after the other gets ready so late that there is a while with one of three updated.
    requester.change(SLOW).await;
    let set = format!("isbsvc-{service}-js");
    let new = image_of(By::Isb.version(SLOW));
    let is_done = |set: &Value| image(set) == new && is_rolled(set);
    let mut seen = Vec::new();
    eventually("all brokers are rolled", async || {
        let now = serde_json::to_value(team.get::<StatefulSet>(&set).await).unwrap();
        if image(&now) != new {
            return Err("not changed yet".to_owned());
        }
        let pipeline = team.live_pipeline("my").await;
        let updated = now["status"]["updatedReplicas"].as_i64();
        // Read after the pipeline: what is not rolled now was not rolled when the pipeline was read either.
        if is_done(&serde_json::to_value(team.get::<StatefulSet>(&set).await).unwrap()) {
            return Ok(());
        }
        seen.push(updated);
        is_paused(&pipeline).unwrap_or_else(|why| panic!("{updated:?} are updated, and it is to run: {why}"));
        Err(format!("{updated:?} updated"))
    })
    .await;
    println!("updated, at each look: {seen:?}");
    assert!(seen.contains(&Some(1)) || seen.contains(&Some(2)), "{seen:?}");
    requester.deployed(SLOW).await;
    team.pipeline_runs("my").await;
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_a_service_that_its_controller_has_not_looked_at_is_not_taken_for_healthy() {
    let (stage, requester, _operator) = begin("a10-isb", &[("my", json!({}))]).await;
    let team = stage.team();
    let service = requester.service_name().await;
    turn(team, "InterStepBufferService", &service, "silent", json!("true")).await;
    requester.change(1).await;
    requester.reaches(1, "Confirm").await;
    stays(
        "it says Running and Healthy about the spec before, and nobody believes it",
        Duration::from_secs(4),
        async || {
            let view = requester.view().await;
            let pipeline = team.live_pipeline("my").await;
            is_paused(&pipeline)?;
            if view.stage_of(1) == "Confirm" { Ok(()) } else { Err(format!("{view:?}")) }
        },
    )
    .await;
    assert!(requester.view().await.message.contains("has not seen its spec"), "{}", requester.view().await.message);
    turn(team, "InterStepBufferService", &service, "silent", Value::Null).await;
    poke(team, "InterStepBufferService", &service).await;
    requester.deployed(1).await;
    team.pipeline_runs("my").await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a10_a_change_that_pauses_nobody_is_deployed_when_the_brokers_have_it_and_not_when_the_service_says_so() {
    let (stage, requester, _operator) = begin("a10-direct", &[("my", json!({}))]).await;
    let team = stage.team();
    let service = requester.service_name().await;
    for (knob, value) in [("stale-health", "1s"), ("pod-takes", "2s")] {
        turn(team, "InterStepBufferService", &service, knob, json!(value)).await;
    }
    let limit = json!({"containerTemplate": {"resources": {"limits": {"memory": "3Gi"}}}});
    requester.edit(json!({"spec": {"interStepBufferService": {"spec": {"jetstream": limit}}}})).await;
    let set = format!("isbsvc-{service}-js");
    let before = team.get::<StatefulSet>(&set).await.metadata.generation;
    let deployed = eventually("deployed", async || {
        let rollout = team.get::<IsbServiceRollout>("default").await;
        let status = rollout.status.unwrap_or_default();
        let current = Some(status.observed_generation) == rollout.metadata.generation;
        let now = serde_json::to_value(team.get::<StatefulSet>(&set).await).unwrap();
        if current && status.phase.as_str() == "Deployed" { Ok(now) } else { Err(status.message) }
    })
    .await;
    assert!(deployed["metadata"]["generation"].as_i64() > before && is_rolled(&deployed), "{}", deployed["status"]);
    team.pipeline_runs("my").await;
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 0, "nobody is paused for a limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_another_strategy_in_mid_drain_ends_the_drain_or_goes_on_with_it_and_leaves_nothing_paused() {
    let (stage, requester, _operator) = begin("b10-isb", &[("slow", json!({"drains-after": "5s"}))]).await;
    let team = stage.team();
    requester.change(1).await;
    requester.draining(1, &["slow-0"]).await;
    team.configure("strategy", json!({"upgradeStrategy": "progressive"})).await;
    requester.deployed(1).await;
    team.pipeline_runs("slow").await;
    stage.at_rest().await;
    requester.change(2).await;
    requester.draining(2, &["slow-0"]).await;
    stage.recorder.changes_may_lose_data();
    team.configure("strategy", json!({"upgradeStrategy": "no-strategy"})).await;
    requester.deployed(2).await;
    team.pipeline_runs("slow").await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d02_edits_of_a_service_while_pipelines_drain_for_it_end_in_one_roll_to_the_last_one() {
    let (stage, requester, _operator) = begin("d02-isb", &[("slow", json!({"drains-after": "4s"}))]).await;
    let team = stage.team();
    let set = format!("isbsvc-{}-js", requester.service_name().await);
    let revision = async || team.get::<StatefulSet>(&set).await.metadata.generation;
    let before = revision().await;
    requester.change(1).await;
    requester.draining(1, &["slow-0"]).await;
    for n in [2, 1, 2] {
        requester.change(n).await;
    }
    requester.draining(2, &["slow-0"]).await;
    assert_eq!(revision().await, before, "nothing rolls while pipelines drain");
    requester.deployed(2).await;
    team.pipeline_runs("slow").await;
    assert_eq!(revision().await, before.map(|g| g + 1), "one roll, to the last one");
    let now = serde_json::to_value(team.get::<StatefulSet>(&set).await).unwrap();
    assert_eq!(image(&now), image_of(By::Isb.version(2)));
    stage.at_rest().await;

    // Back to what it is, in mid-drain: nothing rolls at all.
    requester.change(1).await;
    requester.draining(1, &["slow-0"]).await;
    requester.change(2).await;
    requester.deployed(2).await;
    team.pipeline_runs("slow").await;
    assert_eq!(revision().await, before.map(|g| g + 1));
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a11_conflicts_and_other_finalizers_do_not_keep_an_isb_service_rollout_that_is_deleted() {
    let stage = Stage::bare("a11-isb").await;
    let team = stage.team();
    let faults = Faults::default();
    let _operator = stage.scene.operator_behind(&faults).await;
    stage.furnish_for(By::Isb).await;
    team.pipeline("slow", json!({"drains-after": "3s"})).await;
    team.pipeline_runs("slow").await;
    // One whose ISB service cannot be made, and one whose pipeline is slow to go.
    team.create::<IsbServiceRollout>(json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "ISBServiceRollout", "metadata": {"name": "none"},
        "spec": {"interStepBufferService": {"spec": {"jetstream": {"version": "0.0.1"}}}},
    }))
    .await;
    eventually("it says that it cannot be made", async || {
        let status = team.get::<IsbServiceRollout>("none").await.status.unwrap_or_default();
        if status.phase.as_str() == "Failed" { Ok(()) } else { Err(status.message) }
    })
    .await;
    let_go::<IsbServiceRollout>(team, &faults, "isbservicerollouts", "none").await;
    team.delete::<PipelineRollout>("slow").await;
    let_go::<IsbServiceRollout>(team, &faults, "isbservicerollouts", "default").await;
    let left = numaflow::api(team, "InterStepBufferService").list(&Default::default()).await.unwrap().items;
    assert!(left.is_empty(), "{:?}", left.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_beside_that_never_gets_healthy_pauses_nobody_and_is_removed() {
    let (stage, requester, _operator) = begin("isb-beside-bad", &[("my", json!({}))]).await;
    let team = stage.team();
    let before = requester.service_name().await;
    requester.set_deadline(6).await;
    let never = json!({"metadata": {"annotations": {"stand-in.numaflow/never-ready": "true"}}});
    let larger = json!({"spec": {"jetstream": {"persistence": {"volumeSize": "2Gi"}}}});
    let mut template = never;
    template["spec"] = larger["spec"].clone();
    requester.edit(json!({"spec": {"interStepBufferService": template}})).await;
    let view =
        requester.failed(&["was not healthy within 6s", "it is removed, and pipelines run on as they were"]).await;
    println!("{}", view.message);
    eventually("the bad one is gone, the good one is not", async || {
        let all = numaflow::api(team, "InterStepBufferService").list(&Default::default()).await.unwrap().items;
        let names: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
        if names == [before.clone()] { Ok(()) } else { Err(format!("{names:?}")) }
    })
    .await;
    assert_eq!(stage.recorder.flips("my-0").len(), 0, "nobody was paused");
    // A good one gets out of it.
    requester.edit(json!({"spec": {"interStepBufferService": {"metadata": null}}})).await;
    team.pipeline_until("my", "made anew", |s| s.child == "my-1").await;
    team.pipeline_runs("my").await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_its_controller_does_not_know_pauses_nobody_and_says_which_ones_there_are() {
    let (stage, requester, _operator) = begin("isb-unknown", &[("my", json!({}))]).await;
    let team = stage.team();
    let version =
        |version: &str| json!({"spec": {"interStepBufferService": {"spec": {"jetstream": {"version": version}}}}});
    requester.edit(version("9.9.9")).await;
    let view = requester.failed(&["has no JetStream \"9.9.9\"", "2.10, 2.11", "No pipeline is paused for that"]).await;
    println!("{}", view.message);
    requester.edit(version("2.11")).await;
    requester.deployed(1).await;
    team.pipeline_runs("my").await;
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 2, "for the good one alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_that_never_ends_is_taken_back_and_pipelines_run_on_what_there_was() {
    let (stage, requester, _operator) = begin("isb-back", &[("my", json!({}))]).await;
    let team = stage.team();
    requester.set_deadline(5).await;
    requester.change(BAD).await;
    requester.reaches(BAD, "Confirm").await;
    requester.mend().await;
    let view = requester.failed(&["not healthy within 5s", "the spec before is back"]).await;
    println!("{}", view.message);
    team.pipeline_runs("my").await;
    let set = format!("isbsvc-{}-js", requester.service_name().await);
    let now = serde_json::to_value(team.get::<StatefulSet>(&set).await).unwrap();
    assert_eq!(image(&now), image_of(By::Isb.version(0)));
    requester.change(1).await;
    requester.deployed(1).await;
    team.pipeline_runs("my").await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_who_is_faster_at_every_write_of_a_service_keeps_no_pipeline_paused() {
    let stage = Stage::bare("isb-conflicts").await;
    let team = stage.team();
    let faults = Faults::default();
    let _operator = stage.scene.operator_behind(&faults).await;
    let requester = stage.furnish_for(By::Isb).await;
    stage.with(&[("my", json!({"drains-after": "3s"}))]).await;
    requester.set_deadline(20).await;
    let service = format!("/interstepbufferservices/{}", requester.service_name().await);
    requester.change(1).await;
    requester.draining(1, &["my-0"]).await;
    // When it was asked, the server had nothing against it.
    faults.answer(409, 10_000, move |write| write.path.ends_with(&service));
    requester.reaches(1, "Apply").await;
    let pauses = team.live_pipeline("my").await;
    is_paused(&pauses).unwrap();
    let view = requester.failed(&["somebody else has just changed it"]).await;
    println!("{}", view.message);
    team.pipeline_runs("my").await;
    stage.at_rest().await;
}
