//! Several controllers in one namespace: whose instance it is, and when that may change.

use std::collections::BTreeSet;

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Service, ServiceAccount},
};
use kube::ResourceExt;
use numaplane::api::NumaflowControllerRollout;
use serde_json::{Value, json};

use crate::support::{
    Scene, Team,
    asking::User,
    eventually, numaflow,
    team::condition,
    version,
    webhook::{Webhook, refusal},
};

/// A rollout of version 1.3.3.
fn rollout(name: &str, instance: Option<&str>) -> Value {
    let mut controller = json!({"version": "1.3.3"});
    if let Some(instance) = instance {
        controller["instanceID"] = json!(instance);
    }
    json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "NumaflowControllerRollout",
        "metadata": {"name": name}, "spec": {"controller": controller},
    })
}

fn taken(instance: &str, by: &str) -> String {
    format!(
        "spec.controller.instanceID: instance {instance:?} in this namespace belongs to NumaflowControllerRollout/{by}; \
         choose another instanceID or delete one of the two"
    )
}

/// What runs, and the rollout that has it run: a touch of either shows.
async fn untouched(team: &Team, name: &str) -> (Option<String>, Option<i64>, Vec<(String, String)>, Option<String>) {
    let rollout = team.rollout(name).await;
    let deployment = team.deployment("numaflow-controller").await.metadata;
    (deployment.uid, deployment.generation, team.pods().await, rollout.metadata.resource_version)
}

/// Names of what a rollout's controller is made of.
async fn objects(team: &Team, tracking: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let ours = |labels: &std::collections::BTreeMap<String, String>| {
        labels.get("numaplane.numaproj.io/tracking-id").is_some_and(|value| value == tracking)
    };
    for deployment in team.all::<Deployment>().await.iter().filter(|o| ours(o.labels())) {
        names.insert(format!("Deployment/{}", deployment.name_any()));
    }
    for map in team.all::<ConfigMap>().await.iter().filter(|o| ours(o.labels())) {
        names.insert(format!("ConfigMap/{}", map.name_any()));
    }
    for account in team.all::<ServiceAccount>().await.iter().filter(|o| ours(o.labels())) {
        names.insert(format!("ServiceAccount/{}", account.name_any()));
    }
    for service in team.all::<Service>().await.iter().filter(|o| ours(o.labels())) {
        names.insert(format!("Service/{}", service.name_any()));
    }
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn a15_a_second_rollout_of_one_instance_is_refused_and_one_of_another_instance_runs_beside_the_first() {
    let scene = Scene::new("a15").await;
    let (team, kustomized) = (&scene.team, scene.another("kustomized").await);
    scene.define(&[version("1.3.3")]).await;
    let _webhook = Webhook::start(&scene).await;
    let _operator = scene.operator().await;
    team.install("x", "1.3.3").await;
    team.deployed("x", "1.3.3").await;
    let before = untouched(team, "x").await;
    let user = User::of(team).await;

    for instance in [None, Some("")] {
        let answer = user.told(&rollout("y", instance)).await;
        assert_eq!((answer.code, answer.message.as_str()), (422, refusal("rollouts", &[&taken("", "x")]).as_str()));
        assert_eq!(answer.causes, [taken("", "x")]);
    }
    // Past the webhook: whoever came later gets nothing, and says why.
    let unseen = user.clone().acting_as(&Webhook::exempt(&scene));
    assert!(unseen.create(&rollout("y", None)).await.is_ok());
    let failed = team.failed("y", &[]).await;
    assert_eq!(failed.status.as_ref().map(|s| s.message.clone()), Some(taken("", "x")));
    assert_eq!(condition(&failed, "Ready").map(|c| c.reason).as_deref(), Some("InstanceConflict"));
    assert_eq!(untouched(team, "x").await, before);
    team.delete::<NumaflowControllerRollout>("y").await;
    team.gone::<NumaflowControllerRollout>("y").await;

    let blue = user.create(&rollout("y", Some("blue"))).await;
    assert!(blue.is_ok(), "{}", blue.describe());
    team.deployed("y", "1.3.3").await;
    assert_eq!(untouched(team, "x").await.0, before.0);
    let (of_x, of_y) = (objects(team, "x").await, objects(team, "y").await);
    assert!(of_x.len() >= 3 && of_x.len() == of_y.len() && of_x.is_disjoint(&of_y), "{of_x:?} {of_y:?}");
    for (name, instance) in [("numaflow-controller-config", ""), ("numaflow-controller-config-blue", "blue")] {
        let data = team.get::<ConfigMap>(name).await.data.unwrap_or_default();
        assert_eq!(data["controller-config.yaml"], format!("instance: \"{instance}\"\n"));
    }
    // Neither can take what the other has.
    let patch = |instance: &str| json!({"spec": {"controller": {"instanceID": instance}}});
    for (name, instance, by) in [("x", "blue", "y"), ("y", "", "x")] {
        let answer = user.told_of_edit("NumaflowControllerRollout", name, &patch(instance)).await;
        assert_eq!(answer.causes, [taken(instance, by)], "{}", answer.describe());
    }

    // A name is only a name, as kustomize and Helm make them.
    let answer = User::of(&kustomized).await.create(&rollout("dev-numaflow-controller", None)).await;
    assert!(answer.is_ok() && answer.warnings.is_empty(), "{}", answer.describe());
    kustomized.deployed("dev-numaflow-controller", "1.3.3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_id_is_not_changed_under_the_objects_that_carry_it_and_these_are_named() {
    let scene = Scene::new("in-use").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    scene.define(&[version("1.3.3")]).await;
    let _webhook = Webhook::start(&scene).await;
    let user = User::of(team).await;
    let made = user.create(&rollout("x", Some("blue"))).await;
    assert!(made.is_ok(), "{}", made.describe());
    let promoted = json!({"promoted": {"name": "x-0", "version": "1.3.3", "instanceID": "blue"}});
    let stands = user.edit("NumaflowControllerRollout", "x/status", &json!({"status": promoted})).await;
    assert!(stands.is_ok(), "{}", stands.describe());
    numaflow::create(team, "Pipeline", "unmanaged", "blue").await;
    numaflow::create(team, "MonoVertex", "other", "green").await;
    let patch = json!({"spec": {"controller": {"instanceID": "red"}}});
    let answer = user.told_of_edit("NumaflowControllerRollout", "x", &patch).await;
    let said = "spec.controller.instanceID: cannot change from \"blue\" to \"red\" while Pipeline/unmanaged uses the old one; \
                move or delete it first";
    assert_eq!(
        (answer.message.as_str(), answer.causes),
        (refusal("rollouts", &[said]).as_str(), vec![said.to_owned()])
    );
    // What is in nobody's way: another version, or what carries another instance.
    numaflow::delete(team, "Pipeline", "unmanaged").await;
    eventually("nothing carries it any more", async || {
        let answer = user.told_of_edit("NumaflowControllerRollout", "x", &patch).await;
        if answer.is_ok() { Ok(()) } else { Err(answer.describe()) }
    })
    .await;
}
