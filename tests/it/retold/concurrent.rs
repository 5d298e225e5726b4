//! concurrent: everything is changed at once.

use numaplane::api::{MonoVertexRollout, PipelineRollout};
use serde_json::{Value, json};

use super::{CONTROLLER, PIPELINE, begin, spec, with_each_strategy};
use crate::support::{mono_vertices, numaflow};

const MONO_VERTEX: &str = "test-monovertex-rollout";

with_each_strategy!(
    all_four_are_changed_at_once_and_the_isb_service_in_place,
    all_four_are_changed_at_once_and_the_isb_service_is_replaced,
    all_four_are_changed_at_once_and_the_isb_service_directly,
);

/// Re-tells concurrent (1): data-loss Pipeline, ISB service and controller.
async fn all_four_are_changed_at_once_and_the_isb_service_in_place(strategy: &str) {
    all_four("in-place", strategy, json!({"version": "latest"}), "nats:latest").await;
}

/// Re-tells concurrent (2): data-loss Pipeline and controller, recreated ISB service.
async fn all_four_are_changed_at_once_and_the_isb_service_is_replaced(strategy: &str) {
    all_four("replaced", strategy, json!({"persistence": {"volumeSize": "2Gi"}}), "nats:2.10.29").await;
}

/// Re-tells concurrent (3): data-loss Pipeline and controller, directly applied ISB service.
async fn all_four_are_changed_at_once_and_the_isb_service_directly(strategy: &str) {
    let memory = json!({"containerTemplate": {"resources": {"limits": {"memory": "3Gi"}}}});
    all_four("direct", strategy, memory, "nats:2.10.29").await;
}

async fn all_four(case: &str, strategy: &str, jetstream: Value, image: &str) {
    let (stage, _operator) = begin(&format!("concurrent-{case}"), strategy).await;
    let team = stage.team();
    if strategy == "no-strategy" {
        stage.recorder.changes_may_lose_data();
    }
    stage.with_pipeline(json!({})).await;
    team.create::<MonoVertexRollout>(json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "MonoVertexRollout", "metadata": {"name": MONO_VERTEX},
        "spec": {"monoVertex": {"spec": mono_vertices::spec(json!({"scale": {"min": 2}}))}},
    }))
    .await;
    mono_vertices::ready(team, &format!("{MONO_VERTEX}-0")).await;

    let mut other = spec();
    other["vertices"][1]["udf"]["container"]["image"] = json!("cat:2");
    let pipeline = json!({"spec": {"pipeline": {"spec": other}}});
    let mono = json!({"spec": {"monoVertex": {"spec": {"udf": {"container": {"image": "f:2"}}}}}});
    tokio::join!(
        team.set_version(CONTROLLER, "1.8.1"),
        team.edit_service(jetstream),
        team.edit::<PipelineRollout>(PIPELINE, pipeline),
        team.edit::<MonoVertexRollout>(MONO_VERTEX, mono),
    );

    let pipeline = team.all_well("1.8.1").await;
    assert_eq!(pipeline.data["spec"]["vertices"][1]["udf"]["container"]["image"], "cat:2");
    let (service, runs) = team.service_runs().await;
    assert_eq!(runs, image);
    assert_eq!(pipeline.data["spec"]["interStepBufferServiceName"], json!(service));
    mono_vertices::ready(team, &format!("{MONO_VERTEX}-0")).await;
    let mono = numaflow::api(team, "MonoVertex").get(&format!("{MONO_VERTEX}-0")).await.unwrap();
    assert_eq!(mono.data["spec"]["udf"]["container"]["image"], "f:2");
    team.only_one_child_each().await;
    stage.at_rest().await;
}
