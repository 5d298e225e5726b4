//! What decides how a pipeline is changed: the strategy of its namespace, the lists of fields, the server, and how it is.

use std::time::Duration;

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::ConfigMap,
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    pipelines::said,
    support::{
        Team, audit, eventually, numaflow,
        pipelines::{edit, pods, until, vertices},
        rollouts::{Stage, pipeline_spec, unfit_spec},
    },
};

fn image(pipeline: &DynamicObject) -> &Value {
    &pipeline.data["spec"]["vertices"][1]["udf"]["container"]["image"]
}

#[tokio::test(flavor = "multi_thread")]
async fn where_progressive_is_asked_for_pipelines_are_drained_and_it_is_said() {
    let (stage, _operator) = Stage::at_work("pl-prog").await;
    let team = stage.team();
    team.configure("config", json!({"upgradeStrategy": "progressive"})).await;
    team.pipeline("my", json!({"drains-after": "3s"})).await;
    team.pipeline_runs("my").await;
    team.set_image("my", "cat:2").await;
    let status = team.pipeline_says("my", &["pauses and drains under strategy progressive too"]).await;
    println!("{}", status.message);
    assert_eq!(status.upgrade_in_progress, "PipelinePauseAndDrain");
    assert_eq!(image(&team.pipeline_runs("my").await), "cat:2");
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 2, "{}", stage.recorder.history("my-0"));
    assert_eq!(numaflow::api(team, "Pipeline").list(&Default::default()).await.unwrap().items.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_strategy_is_asked_for_any_change_is_applied_at_once() {
    let (stage, operator) = Stage::at_work("pl-no-strategy").await;
    let team = stage.team();
    stage.recorder.changes_may_lose_data();
    team.configure("config", json!({"upgradeStrategy": "no-strategy"})).await;
    operator.stop().await;
    // This one has seen the configuration before it does anything.
    let _operator = stage.scene.operator().await;
    team.pipeline("my", json!({"pending": "7"})).await;
    team.pipeline_runs("my").await;
    team.set_image("my", "cat:2").await;
    until(team, "Pipeline", "my-0", "changed", |p| image(p) == "cat:2").await;
    team.pipeline_runs("my").await;
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 0, "{}", stage.recorder.history("my-0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_fields_says_which_changes_pause_and_without_it_the_built_in_one_does() {
    let (stage, operator) = Stage::at_work("pl-usde").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    team.pipeline_runs("my").await;
    let limit = async |n: i64, flips: usize| {
        team.edit_pipeline("my", json!({"limits": {"readBatchSize": n}})).await;
        let has = |p: &DynamicObject| p.data["spec"]["limits"]["readBatchSize"] == n;
        until(team, "Pipeline", "my-0", &format!("has {n}"), has).await;
        team.pipeline_runs("my").await;
        assert_eq!(stage.recorder.flips("my-0").len(), flips, "{n}: {}", stage.recorder.history("my-0"));
    };
    limit(1, 0).await;
    // What is wrong with the other kind is told, and that tells that this one was seen.
    let lists = json!({
        "pipeline": "dataLoss:\n- path: spec.limits\n  includeSubfields: true\n",
        "monovertex": "dataLoss:\n- path: spec.vertices\n",
    });
    stage.scene.system.say("usde-config", "changes", lists).await;
    stage.scene.system.event("ConfigMap", "changes", &["ConfigInvalid", "spec.vertices"]).await;
    limit(2, 2).await;
    stage.scene.system.delete::<ConfigMap>("changes").await;
    operator.stop().await;
    let _operator = stage.scene.operator().await;
    limit(3, 2).await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a08_a_pipeline_that_fails_takes_its_new_spec_at_once_and_nothing_is_left_of_it() {
    let (stage, _operator) = Stage::at_work("pl-failed").await;
    let team = stage.team();
    team.pipeline_with("my", unfit_spec(), json!({}), json!({})).await;
    let failed = until(team, "Pipeline", "my-0", "failed", |p| p.data["status"]["phase"] == "Failed").await;
    println!("{}", failed.data["status"]["message"]);
    let status =
        team.pipeline_until("my", "says so", |s| said(s, "ChildResourcesHealthy") == ("False", "PipelineFailed")).await;
    assert_eq!(said(&status, "Ready").0, "False", "{status:?}");
    // With a sink that is right, and another image as well.
    let mut spec = pipeline_spec();
    spec["vertices"][1]["udf"]["container"]["image"] = json!("cat:2");
    team.edit_pipeline("my", spec).await;
    let runs = team.pipeline_runs("my").await;
    assert_eq!(image(&runs), "cat:2");
    assert!(runs.data["spec"]["lifecycle"]["desiredPhase"].is_null(), "{}", runs.data["spec"]);
    let status = team.pipeline_status("my").await;
    println!("{:?}", status.last_pause);
    assert_eq!((status.upgrade_in_progress.as_str(), status.pause), ("", None));
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 0, "{}", stage.recorder.history("my-0"));
}

/// Refuses pipelines with a certain image; returns the name of the policy once it is in force.
async fn refuse(stage: &Stage, image: &str, words: &str) -> String {
    let (name, client) = (stage.scene.unique("pipelines"), stage.team().client.clone());
    let rule = json!({
        "apiGroups": ["numaflow.numaproj.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
        "resources": ["pipelines"],
    });
    let refused = format!("object.spec.vertices.all(v, !has(v.udf) || v.udf.container.image != '{image}')");
    let body = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": refused, "message": words}],
        },
    });
    let apply = PatchParams::apply("tests").force();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    policies.patch(&name, &apply, &Patch::Apply(&body)).await.unwrap();
    let here = json!({"matchLabels": {"scene": stage.team().namespace}});
    let body = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": here}},
    });
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
    bindings.patch(&name, &apply, &Patch::Apply(&body)).await.unwrap();
    eventually("the policy is in force", async || refuses(stage.team(), image, true).await).await;
    name
}

async fn refuses(team: &Team, image: &str, wanted: bool) -> Result<(), String> {
    let mut spec = pipeline_spec();
    spec["vertices"][1]["udf"]["container"]["image"] = json!(image);
    let probe = json!({
        "apiVersion": "numaflow.numaproj.io/v1alpha1", "kind": "Pipeline", "metadata": {"name": "probe"}, "spec": spec,
    });
    let dry = PatchParams { dry_run: true, ..PatchParams::apply("tests").force() };
    let answer = numaflow::api(team, "Pipeline").patch("probe", &dry, &Patch::Apply(&probe)).await;
    if answer.is_err() == wanted { Ok(()) } else { Err(format!("{answer:?}")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_the_server_refuses_pauses_nothing_and_heals_when_it_may_be() {
    let (stage, _operator) = Stage::at_work("pl-refused").await;
    let team = stage.team();
    team.pipeline("my", json!({})).await;
    team.pipeline_runs("my").await;
    let policy = refuse(&stage, "cat:bad", "nobody may use this cat").await;
    team.set_image("my", "cat:bad").await;
    let status = team
        .pipeline_until("my", "is refused", |s| {
            s.phase.as_str() == "Failed"
                && ["Pipeline/my-0", "nobody may use this cat"].iter().all(|w| s.message.contains(w))
        })
        .await;
    println!("{}", status.message);
    assert_eq!((said(&status, "Reconciling").0, said(&status, "Stalled").0), ("True", ""), "it is being retried");
    assert!(status.pause.is_none() && status.upgrade_in_progress.is_empty(), "{status:?}");
    assert_eq!(stage.recorder.flips("my-0").len(), 0, "{}", stage.recorder.history("my-0"));
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(team.client.clone());
    bindings.delete(&policy, &DeleteParams::default()).await.unwrap();
    eventually("the policy is no longer in force", async || refuses(team, "cat:bad", false).await).await;
    assert_eq!(image(&team.pipeline_runs("my").await), "cat:bad");
    stage.at_rest().await;
    assert_eq!(stage.recorder.flips("my-0").len(), 2, "{}", stage.recorder.history("my-0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn b08_who_scales_a_vertex_while_it_drains_is_not_fought_with() {
    let (stage, _operator) = Stage::at_work("pl-scaled").await;
    let team = stage.team();
    let fast = json!({"ppnd": {"fastResume": true}});
    team.pipeline_with("my", pipeline_spec(), json!({"drains-after": "3s"}), fast).await;
    team.pipeline_runs("my").await;
    let mark = audit::settled(team, Duration::from_secs(1)).await;
    team.set_image("my", "cat:2").await;
    until(team, "Pipeline", "my-0", "pauses", |p| p.data["status"]["phase"] == "Pausing").await;
    for replicas in [2, 4, 2] {
        edit(team, "Vertex", "my-0-cat", json!({"spec": {"replicas": replicas}})).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(image(&team.pipeline_runs("my").await), "cat:2");
    assert_eq!(vertices(team, "my-0").await[1].data["spec"]["replicas"], 2);
    pods(team, "my-0", 4).await;
    stage.at_rest().await;
    let writes: Vec<String> = audit::since(mark, &team.namespace)
        .iter()
        .filter(|r| r.write() && r.resource().starts_with("vertices"))
        .map(audit::Request::describe)
        .collect();
    assert!(writes.is_empty(), "{writes:?}");
}
