//! What is left of pauses at the end of a story.

use std::time::Duration;

use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::Value;

use super::{numaflow, team::Team, wait::within};

const PARENT: &str = "numaplane.numaproj.io/parent-rollout-name";

/// Longest wait until what was paused for a while is as its rollout asks for.
const REST: Duration = Duration::from_mins(1);

/// Waits until no pipeline of a rollout is asked to pause, or given a grace, that its rollout does not ask for.
pub async fn assert_at_rest(team: &Team) {
    within(REST, "every pipeline is at rest", async || {
        let left = unrest_in(&team.client, Some(&team.namespace)).await?;
        if left.is_empty() { Ok(()) } else { Err(left.join("\n")) }
    })
    .await;
}

/// The pipelines of a namespace, or of all, that are asked to pause, or have a grace, and their rollouts do not ask for it.
///
/// # Errors
/// They cannot be listed.
pub async fn unrest_in(client: &Client, namespace: Option<&str>) -> Result<Vec<String>, String> {
    let list = async |resource: &ApiResource| {
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
            None => Api::all_with(client.clone(), resource),
        };
        match api.list(&ListParams::default()).await {
            Ok(list) => Ok(list.items),
            // Where there is no such kind there is none of it.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(other) => Err(other.to_string()),
        }
    };
    let gvk = GroupVersionKind::gvk("numaplane.numaproj.io", "v1alpha1", "PipelineRollout");
    let pipelines = list(&numaflow::resource("Pipeline")).await?;
    let rollouts = list(&ApiResource::from_gvk_with_plural(&gvk, "pipelinerollouts")).await?;
    Ok(pipelines.iter().filter_map(|pipeline| unrest(pipeline, &rollouts)).collect())
}

/// What a pipeline has in its lifecycle that its rollout does not ask for. One without a rollout is its user's.
fn unrest(pipeline: &DynamicObject, rollouts: &[DynamicObject]) -> Option<String> {
    let parent = pipeline.labels().get(PARENT)?;
    let namespace = pipeline.namespace();
    let rollout = rollouts.iter().find(|r| r.name_any() == *parent && r.namespace() == namespace);
    let asked = |field: &str| {
        let lifecycle = rollout.and_then(|r| r.data.pointer("/spec/pipeline/spec/lifecycle"));
        lifecycle.and_then(|lifecycle| lifecycle.get(field)).cloned().unwrap_or_default()
    };
    let has = |field: &str| pipeline.data["spec"]["lifecycle"][field].clone();
    let (desired, grace) = (has("desiredPhase"), has("pauseGracePeriodSeconds"));
    let runs = |value: &Value| matches!(value.as_str(), None | Some("" | "Running"));
    let as_asked = runs(&desired) || desired == asked("desiredPhase");
    let grace_as_asked = grace.is_null() || grace == asked("pauseGracePeriodSeconds");
    if as_asked && grace_as_asked {
        return None;
    }
    let name = pipeline.name_any();
    let namespace = namespace.unwrap_or_default();
    Some(format!(
        "{namespace}: Pipeline/{name} of PipelineRollout/{parent}: desiredPhase {desired}, pauseGracePeriodSeconds {grace}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pause_that_its_rollout_does_not_ask_for_is_unrest() {
        let object = |value| serde_json::from_value::<DynamicObject>(value).unwrap();
        let pipeline = |lifecycle| {
            object(json!({"metadata": {"name": "p-0", "labels": {PARENT: "p"}}, "spec": {"lifecycle": lifecycle}}))
        };
        let rollout = |lifecycle| {
            let spec = json!({"pipeline": {"spec": {"lifecycle": lifecycle}}});
            [object(json!({"metadata": {"name": "p"}, "spec": spec}))]
        };
        let paused = json!({"desiredPhase": "Paused", "pauseGracePeriodSeconds": 30});
        assert!(unrest(&pipeline(json!({})), &rollout(json!({}))).is_none());
        assert!(unrest(&pipeline(json!({"desiredPhase": "Running"})), &rollout(paused.clone())).is_none());
        assert!(unrest(&pipeline(paused.clone()), &rollout(paused.clone())).is_none());
        assert!(unrest(&pipeline(paused.clone()), &rollout(json!({"desiredPhase": "Paused"}))).is_some());
        assert!(unrest(&pipeline(paused.clone()), &rollout(json!({"pauseGracePeriodSeconds": 30}))).is_some());
        assert!(unrest(&pipeline(paused), &[]).is_some());
    }
}
