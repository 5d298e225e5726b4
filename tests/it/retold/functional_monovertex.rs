//! functional-monovertex: a MonoVertex is made, changed, paused and resumed.

use kube::ResourceExt;
use numaplane::api::{MonoVertexRollout, MonoVertexRolloutStatus};
use serde_json::{Value, json};

use super::{begin, with_each_strategy};
use crate::support::{Team, eventually, mono_vertices, numaflow, pipelines::edit};

const MONO_VERTEX: &str = "test-monovertex-rollout";

with_each_strategy!(a_mono_vertex_is_changed_paused_and_resumed);

/// Waits until the rollout is as it should be, about its newest spec.
async fn until(team: &Team, what: &str, is: impl Fn(&MonoVertexRolloutStatus) -> bool) -> MonoVertexRolloutStatus {
    eventually(&format!("MonoVertexRollout/{MONO_VERTEX}: {what}"), async || {
        let rollout = team.get::<MonoVertexRollout>(MONO_VERTEX).await;
        let status = rollout.status.unwrap_or_default();
        let current = Some(status.observed_generation) == rollout.metadata.generation;
        if current && is(&status) { Ok(status) } else { Err(format!("{status:?}")) }
    })
    .await
}

/// Re-tells functional-monovertex: "update child MonoVertex" (templated env and labels, one child left) and "pause … and resume"
/// (slow: no replicas; fast: five).
async fn a_mono_vertex_is_changed_paused_and_resumed(strategy: &str) {
    let (stage, _operator) = begin("fmv", strategy).await;
    let team = stage.team();
    team.create::<MonoVertexRollout>(json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "MonoVertexRollout", "metadata": {"name": MONO_VERTEX},
        "spec": {"monoVertex": {"spec": mono_vertices::spec(json!({}))}},
    }))
    .await;
    let child = format!("{MONO_VERTEX}-0");
    until(team, "deployed", |s| s.phase.as_str() == "Deployed").await;
    mono_vertices::ready(team, &child).await;

    let spec = mono_vertices::spec(json!({"udf": {"container": {"image": "f:2", "env": [
        {"name": "SELF", "value": "{{.monovertex-name}}"}]}}}));
    let changed = json!({"metadata": {"labels": {"my-label": "{{.monovertex-namespace}}"}}, "spec": spec});
    team.edit::<MonoVertexRollout>(MONO_VERTEX, json!({"spec": {"monoVertex": changed}})).await;
    until(team, "changed", |s| s.phase.as_str() == "Deployed" && s.upgrade_in_progress.is_empty()).await;
    let now = mono_vertices::ready(team, &child).await;
    assert_eq!(now.data["spec"]["udf"]["container"]["env"][0]["value"], json!(child));
    assert_eq!(now.labels()["my-label"], team.namespace);
    let all = numaflow::api(team, "MonoVertex").list(&Default::default()).await.unwrap().items;
    assert_eq!(all.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), [child.as_str()]);

    for fast in [false, true] {
        edit(team, "MonoVertex", &child, json!({"spec": {"replicas": 5}})).await;
        let manner = json!({"spec": {"strategy": {"pauseResume": {"fastResume": fast}}}});
        team.edit::<MonoVertexRollout>(MONO_VERTEX, manner).await;
        let phase = |phase: Value| json!({"spec": {"monoVertex": {"spec": {"lifecycle": {"desiredPhase": phase}}}}});
        team.edit::<MonoVertexRollout>(MONO_VERTEX, phase(json!("Paused"))).await;
        until(team, "paused", |s| s.pause.as_ref().is_some_and(|p| p.state == "Paused")).await;
        assert!(mono_vertices::pods_now(team, &child).await.is_empty(), "paused, and a pod is there");
        team.edit::<MonoVertexRollout>(MONO_VERTEX, phase(Value::Null)).await;
        until(team, "runs", |s| s.pause.is_none() && s.phase.as_str() == "Deployed").await;
        let replicas = numaflow::api(team, "MonoVertex").get(&child).await.unwrap().data["spec"]["replicas"].clone();
        assert_eq!(replicas, if fast { json!(5) } else { Value::Null });
    }
    team.delete::<MonoVertexRollout>(MONO_VERTEX).await;
    team.gone::<MonoVertexRollout>(MONO_VERTEX).await;
    stage.at_rest().await;
}
