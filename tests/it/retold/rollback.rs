//! rollback: what was changed is changed back while it is on its way. Without trials beside what runs, which come later.

use kube::ResourceExt;
use numaplane::api::{IsbServiceRollout, IsbServiceRolloutStatus, PipelineRollout};
use serde_json::{Value, json};

use super::{CONTROLLER, PIPELINE, SERVICE, begin, spec, with_each_strategy};
use crate::support::pipelines::turn;

with_each_strategy!(
    everything_that_is_changed_and_changed_back_at_once_ends_as_it_was,
    a_pipeline_that_is_changed_back_while_its_isb_service_is_not_keeps_the_new_service,
);

/// Another topology.
fn other() -> Value {
    let mut other = spec();
    other["vertices"].as_array_mut().unwrap().remove(1);
    other["edges"] = json!([{"from": "in", "to": "out"}]);
    other
}

/// Re-tells rollback: "Update Rollouts and then immediately Roll them back".
async fn everything_that_is_changed_and_changed_back_at_once_ends_as_it_was(strategy: &str) {
    let (stage, _operator) = begin("rollback-all", strategy).await;
    let team = stage.team();
    if strategy == "no-strategy" {
        stage.recorder.changes_may_lose_data();
    }
    let made = stage.with_pipeline(json!({"drains-after": "1s"})).await;
    let (_, image) = team.service_runs().await;
    let change = async |version: &str, service: &str, pipeline: Value| {
        tokio::join!(
            team.set_version(CONTROLLER, version),
            team.edit_service(json!({"version": service})),
            team.edit::<PipelineRollout>(PIPELINE, json!({"spec": {"pipeline": {"spec": pipeline}}})),
        );
    };
    // At once, and in mid-roll.
    for mid_roll in [false, true] {
        let asked = team.get::<IsbServiceRollout>(SERVICE).await.metadata.generation.unwrap_or_default();
        if mid_roll {
            let (service, _) = team.service_runs().await;
            turn(team, "InterStepBufferService", &service, "pod-takes", json!("1s")).await;
        }
        change("1.8.1", "latest", other()).await;
        if mid_roll && strategy != "no-strategy" {
            let rolls = |s: &IsbServiceRolloutStatus| s.change.as_ref().is_some_and(|c| c.stage == "Confirm");
            team.service_until("is being rolled", rolls).await;
        } else {
            team.service_until("has heard of it", |s| s.observed_generation > asked).await;
        }
        change("1.8.0", "2.10", spec()).await;
        team.all_well("1.8.0").await;
    }

    let pipeline = team.all_well("1.8.0").await;
    assert_eq!(pipeline.data["spec"]["vertices"].as_array().unwrap().len(), 3);
    assert_eq!(team.service_runs().await.1, image);
    assert_eq!(pipeline.name_any(), made.name_any());
    team.only_one_child_each().await;
    stage.at_rest().await;
}

/// Re-tells rollback: "update ISBR and PipelineRollout and rollback just PipelineRollout".
async fn a_pipeline_that_is_changed_back_while_its_isb_service_is_not_keeps_the_new_service(strategy: &str) {
    let (stage, _operator) = begin("rollback-one", strategy).await;
    let team = stage.team();
    if strategy == "no-strategy" {
        stage.recorder.changes_may_lose_data();
    }
    stage.with_pipeline(json!({"drains-after": "1s"})).await;
    let (before, _) = team.service_runs().await;
    tokio::join!(
        team.edit_service(json!({"persistence": {"volumeSize": "2Gi"}})),
        team.edit::<PipelineRollout>(PIPELINE, json!({"spec": {"pipeline": {"spec": other()}}})),
    );
    team.service_until("has heard of it", |s| s.observed_generation > 1).await;
    team.edit::<PipelineRollout>(PIPELINE, json!({"spec": {"pipeline": {"spec": spec()}}})).await;

    team.service_until("another service counts", |s| s.child != before && s.phase.as_str() == "Deployed").await;
    let pipeline = team.all_well("1.8.0").await;
    assert_eq!(pipeline.data["spec"]["vertices"].as_array().unwrap().len(), 3);
    let (service, _) = team.service_runs().await;
    assert_eq!(pipeline.data["spec"]["interStepBufferServiceName"], json!(service));
    team.only_one_child_each().await;
    stage.at_rest().await;
}
