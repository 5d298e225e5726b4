//! The life of a PipelineRollout: its pipeline is made, kept, and changed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{ResourceExt, api::DynamicObject};
use numaplane::api::{PipelineRollout, PipelineRolloutStatus};
use serde_json::{Value, json};

use crate::support::{
    audit, eventually, numaflow,
    pipelines::until,
    rollouts::{Stage, pipeline_spec},
};

/// Status and reason of a condition of a PipelineRollout.
pub fn said<'a>(status: &'a PipelineRolloutStatus, kind: &str) -> (&'a str, &'a str) {
    let found = status.conditions.iter().find(|c: &&Condition| c.type_ == kind);
    found.map_or(("", ""), |c| (c.status.as_str(), c.reason.as_str()))
}

/// Labels and annotations of a pipeline that name it.
fn metadata() -> Value {
    json!({
        "labels": {"of": "{{.pipeline-name}}"},
        "annotations": {"note": "{{ .pipeline-namespace }} {{.other}}"},
    })
}

/// The pipeline of the tests, with names in the environment of a container.
fn named_spec() -> Value {
    let mut spec = pipeline_spec();
    spec["vertices"][1]["udf"]["container"]["env"] = json!([
        {"name": "SELF", "value": "{{.pipeline-name}}"},
        {"name": "OTHER", "value": "{{.vertex-name}} {{ $labels.pod }}"},
    ]);
    spec
}

fn environment(pipeline: &DynamicObject, index: usize) -> &Value {
    &pipeline.data["spec"]["vertices"][1]["udf"]["container"]["env"][index]["value"]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_is_made_as_its_rollout_describes_it() {
    let (stage, _operator) = Stage::at_work("pl-made").await;
    let team = stage.team();
    let rollout: PipelineRollout = team
        .create(json!({
            "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "PipelineRollout", "metadata": {"name": "my"},
            "spec": {"pipeline": {"metadata": metadata(), "spec": named_spec()}},
        }))
        .await;
    let pipeline = team.pipeline_runs("my").await;
    assert_eq!(pipeline.name_any(), "my-0");
    assert_eq!(environment(&pipeline, 0), "my-0");
    assert_eq!(environment(&pipeline, 1), "{{.vertex-name}} {{ $labels.pod }}");
    let (labels, note) = (pipeline.labels(), &pipeline.annotations()["note"]);
    assert_eq!((labels["of"].as_str(), note), ("my-0", &format!("{} {{{{.other}}}}", team.namespace)));
    for (key, value) in [("parent-rollout-name", "my"), ("upgrade-state", "promoted"), ("isbsvc-name", "default")] {
        assert_eq!(labels[&format!("numaplane.numaproj.io/{key}")], value);
    }
    let owner = &pipeline.owner_references()[0];
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("PipelineRollout", rollout.uid().as_ref()));
    assert_eq!(owner.controller, Some(true));

    let status =
        team.pipeline_until("my", "healthy", |s| said(s, "ChildResourcesHealthy") == ("True", "Successful")).await;
    assert_eq!((status.phase.as_str(), status.child.as_str(), status.name_count), ("Deployed", "my-0", Some(0)));
    for kind in ["Ready", "ChildResourceDeployed"] {
        assert_eq!(said(&status, kind).0, "True", "{status:?}");
    }
    assert_eq!(said(&status, "PipelinePausingOrPaused"), ("False", "Unpaused"));
    assert_eq!((said(&status, "Reconciling").0, said(&status, "Stalled").0), ("", ""), "{status:?}");
    assert!(status.pause.is_none() && status.upgrade_in_progress.is_empty());
    println!("{}", columns(&stage).await);
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 0, "{}", stage.recorder.history("my-0"));
}

/// What `kubectl get` shows of the rollouts of pipelines.
async fn columns(stage: &Stage) -> String {
    let team = stage.team();
    let path = format!("/apis/numaplane.numaproj.io/v1alpha1/namespaces/{}/pipelinerollouts", team.namespace);
    let request = http::Request::get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = team.client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let names: Vec<_> = table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
    assert_eq!(json!(names), json!(["Name", "Pipeline", "Phase", "Upgrade In Progress", "Pause", "Message", "Age"]));
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(json!(cells[..3]), json!(["my", "my-0", "Deployed"]));
    json!(cells).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_somebody_changes_directly_is_healed_without_a_pause() {
    let (stage, _operator) = Stage::at_work("pl-heal").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    let made = team.pipeline_runs("my").await;

    team.meddle("my-0", json!({"spec": {"watermark": {"disabled": true}}})).await;
    until(team, "Pipeline", "my-0", "watermark healed", |p| p.data["spec"]["watermark"]["disabled"].is_null()).await;
    let mut vertices = made.data["spec"]["vertices"].clone();
    vertices[1]["limits"] = json!({"readBatchSize": 7});
    vertices[1]["udf"]["container"]["image"] = json!("cat:elsewhere");
    team.meddle("my-0", json!({"spec": {"vertices": vertices}})).await;
    let same = |p: &DynamicObject| p.data["spec"]["vertices"] == made.data["spec"]["vertices"];
    until(team, "Pipeline", "my-0", "vertices healed", same).await;
    let label = "numaplane.numaproj.io/parent-rollout-name";
    team.meddle("my-0", json!({"metadata": {"labels": {label: null}}})).await;
    until(team, "Pipeline", "my-0", "label healed", |p| p.labels().get(label).is_some_and(|l| l == "my")).await;
    let healed = team.pipeline_runs("my").await;
    assert_eq!(healed.uid(), made.uid());
    assert_eq!(stage.recorder.flips("my-0").len(), 0, "{}", stage.recorder.history("my-0"));

    let all = numaflow::api(team, "Pipeline");
    all.delete("my-0", &Default::default()).await.unwrap();
    eventually("another one is made", async || {
        let status = team.pipeline_status("my").await;
        if status.child == "my-1" { Ok(()) } else { Err(status.message) }
    })
    .await;
    let anew = team.pipeline_runs("my").await;
    assert_eq!((anew.name_any().as_str(), team.pipeline_status("my").await.name_count), ("my-1", Some(1)));
    assert!(all.get_opt("my-0").await.unwrap().is_none());
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_annotations_and_fields_come_and_go_in_place() {
    let (stage, _operator) = Stage::at_work("pl-fields").await;
    let team = stage.team();
    let mut spec = pipeline_spec();
    spec["templates"] = json!({"job": {"ttlSecondsAfterFinished": 30}});
    team.pipeline_with("my", spec, json!({}), json!({})).await;
    let made = team.pipeline_runs("my").await;
    assert_eq!(made.data["spec"]["templates"]["job"]["ttlSecondsAfterFinished"], 30);
    team.edit::<PipelineRollout>("my", json!({"spec": {"pipeline": {"metadata": metadata()}}})).await;
    let has = |p: &DynamicObject| p.labels().get("of").is_some_and(|l| l == "my-0");
    let labelled = until(team, "Pipeline", "my-0", "labelled", has).await;
    assert_eq!(labelled.annotations()["note"], format!("{} {{{{.other}}}}", team.namespace));
    let none = json!({"spec": {"pipeline": {"metadata": {"labels": null, "annotations": null}}}});
    team.edit::<PipelineRollout>("my", none).await;
    let gone = |p: &DynamicObject| !p.labels().contains_key("of") && !p.annotations().contains_key("note");
    until(team, "Pipeline", "my-0", "labelled no more", gone).await;
    team.edit_pipeline("my", json!({"templates": null})).await;
    until(team, "Pipeline", "my-0", "without the field", |p| p.data["spec"]["templates"].is_null()).await;
    assert_eq!(team.pipeline_runs("my").await.uid(), made.uid());
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 0, "{}", stage.recorder.history("my-0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_topology_is_applied_while_the_pipeline_is_paused_and_drained() {
    let (stage, _operator) = Stage::at_work("pl-topology").await;
    let team = stage.team();
    team.pipeline_with("my", named_spec(), json!({"drains-after": "2s"}), json!({})).await;
    team.pipeline_runs("my").await;
    let mut spec = named_spec();
    let more = json!({"name": "more", "scale": {"min": 1}, "udf": {"container": {"image": "cat:2", "env": [
        {"name": "SELF", "value": "{{.pipeline-name}}"},
    ]}}});
    spec["vertices"].as_array_mut().unwrap().insert(2, more);
    spec["edges"] = json!([{"from": "in", "to": "cat"}, {"from": "cat", "to": "more"}, {"from": "more", "to": "out"}]);
    team.edit_pipeline("my", spec.clone()).await;
    let status = team
        .pipeline_until("my", "drains", |s| {
            s.upgrade_in_progress == "PipelinePauseAndDrain" && s.message.contains("spec.")
        })
        .await;
    println!("{}", status.message);
    let changed = team.pipeline_runs("my").await;
    assert_eq!(changed.name_any(), "my-0");
    assert_eq!(changed.data["spec"]["vertices"][2]["udf"]["container"]["env"][0]["value"], "my-0");
    let status = team.pipeline_status("my").await;
    let last = status.last_pause.unwrap();
    assert_eq!((last.drained, status.upgrade_in_progress.as_str()), (Some(true), ""), "{last:?}");
    assert_eq!(last.asked_by, ["PipelineRollout/my"]);
    let history = stage.recorder.history("my-0");
    println!("{history}");
    assert_eq!(stage.recorder.flips("my-0").len(), 2, "{history}");
    let states = stage.recorder.states("my-0");
    let new = states.iter().position(|s| s.spec != states[0].spec).unwrap();
    assert!(states[new].phase == "Paused" && states[new].drained && states[new].wants_pause(), "{history}");

    // The same in another order.
    stage.at_rest().await;
    let mark = audit::settled(team, std::time::Duration::from_secs(1)).await;
    spec["vertices"].as_array_mut().unwrap().reverse();
    spec["edges"].as_array_mut().unwrap().reverse();
    team.edit_pipeline("my", spec).await;
    team.pipeline_until("my", "deployed", |s| s.phase.as_str() == "Deployed").await;
    audit::settled(team, std::time::Duration::from_secs(1)).await;
    let writes: Vec<String> = audit::since(mark, &team.namespace)
        .iter()
        .filter(|r| r.write() && r.resource().starts_with("pipelines"))
        .map(audit::Request::describe)
        .collect();
    assert!(writes.is_empty(), "{writes:?}");
    assert_eq!(team.live_pipeline("my").await.metadata.generation, changed.metadata.generation);
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_limit_is_applied_at_once_and_nothing_is_paused_for_it() {
    let (stage, _operator) = Stage::at_work("pl-direct").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    let made = team.pipeline_runs("my").await;
    let mut vertices = pipeline_spec()["vertices"].clone();
    vertices[1]["udf"]["container"]["resources"] = json!({"limits": {"memory": "64Mi"}});
    team.edit_pipeline("my", json!({"limits": {"readBatchSize": 9}, "vertices": vertices})).await;
    let limit = |p: &DynamicObject| {
        let container = &p.data["spec"]["vertices"][1]["udf"]["container"];
        container["resources"]["limits"]["memory"] == "64Mi" && p.data["spec"]["limits"]["readBatchSize"] == 9
    };
    until(team, "Pipeline", "my-0", "has the limits", limit).await;
    assert_eq!(team.pipeline_runs("my").await.uid(), made.uid());
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 0, "{}", stage.recorder.history("my-0"));
}
