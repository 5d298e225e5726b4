//! NumaflowControllers without a rollout: edited in place by their users.

use k8s_openapi::api::{apps::v1::Deployment, core::v1::ServiceAccount};
use kube::ResourceExt;
use numaplane::api::NumaflowController;
use serde_json::{Value, json};

use crate::support::{Scene, Team, eventually, numaflow, version, workload};

fn controller(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "NumaflowController",
        "metadata": {"name": name}, "spec": spec,
    })
}

/// Waits for a phase and words, said about the current spec.
async fn until(team: &Team, name: &str, phase: &str, words: &[&str]) -> NumaflowController {
    eventually(&format!("{name} is {phase} and says {words:?}"), async || {
        let found = team.get::<NumaflowController>(name).await;
        let status = found.status.clone().unwrap_or_default();
        let seen = Some(status.observed_generation) == found.metadata.generation;
        if seen && status.phase.as_str() == phase && words.iter().all(|w| status.message.contains(w)) {
            Ok(found)
        } else {
            Err(format!("{} {:?}, current {seen}", status.phase.as_str(), status.message))
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_without_a_rollout_is_rendered_edited_in_place_and_removed() {
    let scene = Scene::new("alone").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3").and(workload("server")), version("1.4.0")]).await;
    let _operator = scene.operator().await;
    team.create::<NumaflowController>(controller("numaflow", json!({"version": "1.3.3"}))).await;
    let made = until(team, "numaflow", "Deployed", &[]).await;
    let status = made.status.unwrap();
    assert!(status.definition_hash.is_some_and(|h| h.starts_with("v1:")));
    assert_eq!(team.deployments().await, ["numaflow-controller", "server"]);
    let uid = team.deployment("numaflow-controller").await.metadata.uid;

    team.edit::<NumaflowController>("numaflow", json!({"spec": {"version": "1.4.0"}})).await;
    until(team, "numaflow", "Deployed", &[]).await;
    let deployment = team.deployment("numaflow-controller").await;
    assert_eq!(deployment.metadata.uid, uid);
    assert!(format!("{:?}", deployment.spec).contains("numaflow:v1.4.0"));
    team.gone::<Deployment>("server").await;

    eventually("its pod is gone too", async || {
        let pods = team.pods().await;
        if pods.len() == 1 { Ok(()) } else { Err(format!("{pods:?}")) }
    })
    .await;

    // A version that there is not: said, and what runs stays.
    let (before, pods) = (team.deployment("numaflow-controller").await.metadata.generation, team.pods().await);
    team.edit::<NumaflowController>("numaflow", json!({"spec": {"version": "9.9.9"}})).await;
    until(team, "numaflow", "Failed", &["\"9.9.9\" is not defined", "1.3.3, 1.4.0"]).await;
    let after = team.deployment("numaflow-controller").await.metadata.generation;
    assert_eq!((after, team.pods().await), (before, pods));
    scene.define(&[version("1.3.3"), version("1.4.0"), version("9.9.9")]).await;
    until(team, "numaflow", "Deployed", &[]).await;
    assert!(format!("{:?}", team.deployment("numaflow-controller").await.spec).contains("numaflow:v9.9.9"));

    // Drift comes back, its own trouble is told.
    team.edit::<Deployment>("numaflow-controller", json!({"spec": {"replicas": 2}})).await;
    eventually("replicas are restored", async || {
        let replicas = team.deployment("numaflow-controller").await.spec.and_then(|s| s.replicas);
        if replicas == Some(1) { Ok(()) } else { Err(format!("{replicas:?}")) }
    })
    .await;
    team.delete::<NumaflowController>("numaflow").await;
    team.gone::<NumaflowController>("numaflow").await;
    eventually("its objects are gone", async || {
        let accounts: Vec<_> = team.all::<ServiceAccount>().await.iter().map(ResourceExt::name_any).collect();
        let left = (team.deployments().await, accounts);
        if left.0.is_empty() && left.1 == ["default"] { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_without_a_rollout_that_does_not_come_up_says_why_and_is_deployed_later() {
    let scene = Scene::new("alone-late").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3").and(workload("late").ready_after(4))]).await;
    let _operator = scene.operator().await;
    team.create::<NumaflowController>(controller("numaflow", json!({"version": "1.3.3", "instanceID": "blue"}))).await;
    until(team, "numaflow", "Pending", &["Deployment/late-blue: 0 of 1"]).await;
    let ready = until(team, "numaflow", "Deployed", &[]).await;
    let conditions = ready.status.unwrap().conditions;
    assert!(conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"), "{conditions:?}");
    assert_eq!(team.deployments().await, ["late-blue", "numaflow-controller-blue"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_without_a_rollout_gives_way_to_a_rollout_of_its_instance() {
    let scene = Scene::new("alone-rival").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let _operator = scene.operator().await;
    team.install("rollout", "1.3.3").await;
    team.deployed("rollout", "1.3.3").await;
    let before = team.deployment("numaflow-controller").await.metadata.generation;
    team.create::<NumaflowController>(controller("alone", json!({"version": "1.4.0"}))).await;
    until(team, "alone", "Failed", &["belongs to NumaflowControllerRollout/rollout"]).await;
    team.create::<NumaflowController>(controller("rollout", json!({"version": "1.4.0"}))).await;
    until(team, "rollout", "Failed", &["belongs to NumaflowControllerRollout/rollout"]).await;
    assert_eq!(team.deployment("numaflow-controller").await.metadata.generation, before);
    // Neither of them takes anything of the rollout's along.
    for name in ["alone", "rollout"] {
        team.delete::<NumaflowController>(name).await;
        team.gone::<NumaflowController>(name).await;
    }
    team.deployed("rollout", "1.3.3").await;
    assert_eq!(team.deployment("numaflow-controller").await.metadata.generation, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_without_a_rollout_is_not_removed_while_pipelines_need_it() {
    let scene = Scene::new("alone-needed").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    scene.define(&[version("1.3.3")]).await;
    let _operator = scene.operator().await;
    numaflow::create(team, "Pipeline", "simple", "").await;
    team.create::<NumaflowController>(controller("numaflow", json!({"version": "1.3.3"}))).await;
    until(team, "numaflow", "Deployed", &[]).await;
    team.delete::<NumaflowController>("numaflow").await;
    until(team, "numaflow", "Pending", &["being deleted", "Pipeline/simple"]).await;
    assert_eq!(team.deployments().await, ["numaflow-controller"]);
    numaflow::delete(team, "Pipeline", "simple").await;
    team.gone::<NumaflowController>("numaflow").await;
    eventually("its Deployment is gone", async || {
        let left = team.deployments().await;
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    })
    .await;
}
