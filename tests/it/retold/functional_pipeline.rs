//! functional-pipeline: a controller, an ISB service and a pipeline are made, changed in every way, paused and deleted.

use kube::ResourceExt;
use numaplane::api::PipelineRollout;
use serde_json::{Value, json};

use super::{PIPELINE, begin, spec, with_each_strategy};
use crate::support::{eventually, numaflow, pipelines};

with_each_strategy!(
    a_pipeline_is_made_labelled_changed_paused_and_resumed,
    the_isb_service_under_a_pipeline_is_changed_in_every_way_and_all_is_deleted,
);

/// Re-tells functional-pipeline: "automatically heal a Pipeline if it is updated directly", "add labels and annotations",
/// "update the child Pipeline", "pause … and resume" (slow, and fast).
async fn a_pipeline_is_made_labelled_changed_paused_and_resumed(strategy: &str) {
    let (stage, _operator) = begin("fp-pipeline", strategy).await;
    let team = stage.team();
    let made = stage.with_pipeline(json!({})).await;
    assert_eq!(made.name_any(), format!("{PIPELINE}-0"));
    if strategy == "no-strategy" {
        stage.recorder.changes_may_lose_data();
    }

    // Healed, and not paused on the way.
    team.meddle(&made.name_any(), json!({"spec": {"watermark": {"disabled": true}}})).await;
    eventually("what somebody changed is as it was", async || {
        let now = team.live_pipeline(PIPELINE).await.data["spec"]["watermark"]["disabled"].clone();
        if now == Value::Null { Ok(()) } else { Err(now.to_string()) }
    })
    .await;
    team.pipeline_runs(PIPELINE).await;
    assert_eq!(stage.recorder.flips(&made.name_any()).len(), 0);

    // Labels and annotations appear in place.
    let metadata =
        json!({"labels": {"my-label": "{{.pipeline-name}}"}, "annotations": {"my-note": "{{.pipeline-namespace}}"}});
    team.edit::<PipelineRollout>(PIPELINE, json!({"spec": {"pipeline": {"metadata": metadata}}})).await;
    eventually("labels and annotations are there", async || {
        let now = team.live_pipeline(PIPELINE).await;
        let label = now.labels().get("my-label").cloned().unwrap_or_default();
        let note = now.annotations().get("my-note").cloned().unwrap_or_default();
        let wanted = (now.name_any(), format!("{PIPELINE}-0"));
        let fine = label == wanted.0 && now.name_any() == wanted.1 && note == team.namespace;
        if fine { Ok(()) } else { Err(format!("{label:?} {note:?} on {}", now.name_any())) }
    })
    .await;

    // Another topology, with names in it.
    let mut other = spec();
    other["vertices"].as_array_mut().unwrap().insert(
        2,
        json!({"name": "cat-2", "scale": {"min": 1}, "udf": {"container": {"image": "cat:2", "env": [
            {"name": "SELF", "value": "{{.pipeline-name}}"}]}}}),
    );
    other["edges"] = json!([
        {"from": "in", "to": "cat"}, {"from": "cat", "to": "cat-2"}, {"from": "cat-2", "to": "out"}]);
    team.edit_pipeline(PIPELINE, other).await;
    let changed = team.pipeline_runs(PIPELINE).await;
    assert_eq!(changed.data["spec"]["vertices"][2]["udf"]["container"]["env"][0]["value"], json!(changed.name_any()));
    let flips = stage.recorder.flips(&changed.name_any()).len();
    assert_eq!(flips, if strategy == "no-strategy" { 0 } else { 2 }, "{}", stage.recorder.history(&changed.name_any()));

    // Paused and resumed, slow and fast.
    for fast in [false, true] {
        let vertex = format!("{}-cat", changed.name_any());
        let replicas = json!({"spec": {"replicas": 3}});
        pipelines::edit(team, "Vertex", &vertex, replicas).await;
        team.edit::<PipelineRollout>(PIPELINE, json!({"spec": {"strategy": {"pauseResume": {"fastResume": fast}}}}))
            .await;
        team.edit_pipeline(PIPELINE, json!({"lifecycle": {"desiredPhase": "Paused"}})).await;
        team.pipeline_rests_with(PIPELINE, 4).await;
        pipelines::pods(team, &changed.name_any(), 0).await;
        team.edit_pipeline(PIPELINE, json!({"lifecycle": {"desiredPhase": null}})).await;
        team.pipeline_runs(PIPELINE).await;
        let vertex = numaflow::api(team, "Vertex").get(&vertex).await.unwrap();
        let replicas = vertex.data["spec"]["replicas"].as_i64();
        assert!(if fast { replicas == Some(3) } else { replicas.is_none_or(|n| n < 3) }, "{fast} {replicas:?}");
    }
    stage.at_rest().await;
}

/// Re-tells functional-pipeline: "update the child ISBService", "updating a no-data-loss/no recreate field", "updating a recreate
/// field", "only be one child per Rollout", and the deletions.
async fn the_isb_service_under_a_pipeline_is_changed_in_every_way_and_all_is_deleted(strategy: &str) {
    let (stage, _operator) = begin("fp-service", strategy).await;
    let team = stage.team();
    stage.with_pipeline(json!({})).await;
    if strategy == "no-strategy" {
        stage.recorder.changes_may_lose_data();
    }
    let (service, image) = team.service_runs().await;
    let pipeline = team.live_pipeline(PIPELINE).await;
    assert_eq!(pipeline.data["spec"]["interStepBufferServiceName"], json!(service));
    assert_eq!(image, "nats:2.10.29");

    // Another version, in place.
    team.edit_service(json!({"version": "latest"})).await;
    team.all_well("1.8.0").await;
    assert_eq!(team.service_runs().await, (service.clone(), "nats:latest".to_owned()));
    let flips = stage.recorder.flips(&pipeline.name_any()).len();
    assert_eq!(
        flips,
        if strategy == "no-strategy" { 0 } else { 2 },
        "{}",
        stage.recorder.history(&pipeline.name_any())
    );

    // A limit, in place and at once.
    let memory = json!({"containerTemplate": {"resources": {"limits": {"memory": "3Gi"}}}});
    team.edit_service(memory).await;
    eventually("the limit is there", async || {
        let now = numaflow::api(team, "InterStepBufferService").get(&service).await.unwrap();
        let limit = &now.data["spec"]["jetstream"]["containerTemplate"]["resources"]["limits"]["memory"];
        if limit == "3Gi" { Ok(()) } else { Err(limit.to_string()) }
    })
    .await;
    team.all_well("1.8.0").await;
    assert_eq!(stage.recorder.flips(&pipeline.name_any()).len(), flips, "nobody is paused for a limit");

    // The size of its volumes: another service beside it, and another pipeline on that.
    team.edit_service(json!({"persistence": {"volumeSize": "2Gi"}})).await;
    team.service_until("another service counts", |s| s.child != service && s.phase.as_str() == "Deployed").await;
    let moved = team.all_well("1.8.0").await;
    assert_ne!(moved.name_any(), pipeline.name_any(), "a pipeline never changes its ISB service in place");
    let (service, _) = team.service_runs().await;
    assert_eq!(moved.data["spec"]["interStepBufferServiceName"], json!(service));
    team.only_one_child_each().await;
    stage.at_rest().await;
    team.delete_all().await;
}
