//! Production objects: what a version no longer wants goes, what cannot be changed in place is made anew, what others
//! change comes back, and nothing else is touched.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{
    apps::v1::{Deployment, ReplicaSet},
    core::v1::{Pod, Service, ServiceAccount},
};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::support::{Invariant, Scene, Team, audit, eventually, stays, version, workload};

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
        "spec": {"ports": [{"port": 8443}], "selector": {"app.kubernetes.io/name": name}},
    })
}

/// A Deployment that looks like one of ours and is not.
async fn look_alike(team: &Team) -> Option<String> {
    let labels = json!({"app.kubernetes.io/part-of": "numaflow", "app.kubernetes.io/name": "server"});
    let container = json!({"name": "main", "image": "b"});
    let made: Deployment = team
        .create(json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "server-of-somebody", "labels": labels},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}},
            },
        }))
        .await;
    made.metadata.uid
}

#[tokio::test(flavor = "multi_thread")]
async fn a03_objects_that_the_new_version_drops_are_removed_and_no_others() {
    let scene = Scene::new("drop").await;
    let team = &scene.team;
    let whole = version("1.3.3")
        .and(workload("server"))
        .object(service("server"))
        .object(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "server"}}));
    scene.define(&[whole, version("1.4.0")]).await;
    let foreign = look_alike(team).await;
    let operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let uids = async || {
        let account = team.get::<ServiceAccount>("numaflow-sa").await.metadata.uid;
        (team.deployment("numaflow-controller").await.metadata.uid, account)
    };
    let before = uids().await;
    team.set_version("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;
    team.gone::<Deployment>("server").await;
    team.gone::<Service>("server").await;
    team.gone::<ServiceAccount>("server").await;
    assert_eq!(uids().await, before);
    assert_eq!(team.deployment("server-of-somebody").await.metadata.uid, foreign);

    // What an older release left behind was applied by us, carries our mark and is in no version. A copy that somebody made
    // carries the mark too, and is theirs.
    operator.stop().await;
    let spec = team.deployment("server-of-somebody").await.spec.unwrap();
    for (name, manager) in [("server", "numaplane"), ("copy", "kubectl")] {
        let body = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "labels": {"numaplane.numaproj.io/tracking-id": "numaflow"}},
            "spec": {"selector": spec.selector, "template": spec.template},
        });
        team.api::<Deployment>().patch(name, &PatchParams::apply(manager), &Patch::Apply(&body)).await.unwrap();
    }
    let _operator = scene.operator().await;
    team.gone::<Deployment>("server").await;
    assert!(team.find::<Deployment>("copy").await.is_some());
    assert_eq!(uids().await, before);
    assert_eq!(team.deployment("server-of-somebody").await.metadata.uid, foreign);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_somebody_else_is_not_taken_over_unless_annotated() {
    let scene = Scene::new("exists").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0").object(service("server"))]).await;
    let theirs: Service = team.create(service("server")).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    team.set_version("numaflow", "1.4.0").await;
    team.failed("numaflow", &["Service/server exists", "numaplane.numaproj.io/adopt"]).await;
    let unchanged = team.get::<Service>("server").await;
    assert_eq!(unchanged.metadata.resource_version, theirs.metadata.resource_version);
    assert_eq!(team.status("numaflow").await.promoted.unwrap().version, "1.3.3");
    team.edit::<Service>("server", json!({"metadata": {"annotations": {"numaplane.numaproj.io/adopt": "yes"}}})).await;
    team.deployed("numaflow", "1.4.0").await;
    let ours = team.get::<Service>("server").await;
    assert_eq!(ours.metadata.uid, theirs.metadata.uid);
    assert_eq!(ours.labels().get("numaplane.numaproj.io/tracking-id").map(String::as_str), Some("numaflow"));
}

fn ready_pods(pods: &BTreeMap<String, Pod>, of: &str) -> usize {
    let ready = |pod: &&Pod| {
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
        pod.name_any().starts_with(of) && conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
    };
    pods.values().filter(ready).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a04_a_changed_selector_has_that_deployment_alone_made_anew_without_a_gap() {
    let scene = Scene::new("selector").await;
    let team = &scene.team;
    let old = version("1.3.3").and(workload("server"));
    let new =
        version("1.4.0").controller(|w| w.selected_by("generation", "two").ready_after(2)).and(workload("server"));
    scene.define(&[old, new]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let uid = async |name: &str| team.deployment(name).await.metadata.uid;
    let (controller, server) = (uid("numaflow-controller").await, uid("server").await);
    let account = team.get::<ServiceAccount>("numaflow-sa").await.metadata.uid;
    let no_gap = Invariant::watch("a ready pod of the controller at any time", team.api(), |pods| {
        match ready_pods(pods, "numaflow-controller") {
            0 => Err(format!("none among {:?}", pods.keys())),
            _ => Ok(()),
        }
    })
    .await;
    let mark = audit::mark();

    team.set_version("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;
    assert_ne!(uid("numaflow-controller").await, controller);
    assert_eq!(uid("server").await, server);
    assert_eq!(team.get::<ServiceAccount>("numaflow-sa").await.metadata.uid, account);
    team.event("NumaflowControllerRollout", "numaflow", &["Recreated", "Deployment/numaflow-controller"]).await;
    eventually("the old ReplicaSet is gone", async || {
        let sets = team.all::<ReplicaSet>().await;
        let orphans: Vec<_> =
            sets.iter().filter(|s| s.owner_references().is_empty()).map(ResourceExt::name_any).collect();
        if orphans.is_empty() { Ok(()) } else { Err(format!("{orphans:?}")) }
    })
    .await;
    no_gap.held();
    let refused: Vec<_> =
        audit::since(mark, &team.namespace).into_iter().filter(|r| r.code() == 422).map(|r| r.describe()).collect();
    assert!(refused.len() <= 1, "one object, refused once: {refused:?}");
    let deletions: Vec<_> = audit::since(mark, &team.namespace)
        .into_iter()
        .filter(|r| r.verb == "delete" && r.resource() == "deployments" && !r.name().contains("-x-"))
        .map(|r| r.describe())
        .collect();
    assert_eq!(deletions.len(), 1, "made anew once: {deletions:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a04_a_version_that_is_rolled_back_takes_the_changed_selector_back() {
    let scene = Scene::new("selector-back").await;
    let team = &scene.team;
    let new =
        version("1.4.0").not_isolated().controller(|w| w.selected_by("generation", "two").behaviour("never-ready"));
    scene.define(&[version("1.3.3"), new]).await;
    let _operator = scene.operator().await;
    let strategy = json!({"assessment": {"deadline": "4s"}});
    team.install_with("numaflow", json!({"controller": {"version": "1.3.3"}, "strategy": strategy})).await;
    team.deployed("numaflow", "1.3.3").await;
    let no_gap = Invariant::watch("a ready pod of the controller at any time", team.api(), |pods| {
        match ready_pods(pods, "numaflow-controller") {
            0 => Err(format!("none among {:?}", pods.keys())),
            _ => Ok(()),
        }
    })
    .await;
    team.set_version("numaflow", "1.4.0").await;
    team.failed("numaflow", &["1.4.0", "rolled back to version \"1.3.3\""]).await;
    // On a busy machine the way back may take longer than its deadline; it is gone to its end all the same.
    eventually("the Deployment is back with its old selector", async || {
        let found = team.find::<Deployment>("numaflow-controller").await;
        let labels = found.and_then(|d| d.spec).and_then(|s| s.selector.match_labels);
        match labels {
            Some(labels) if !labels.contains_key("generation") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    eventually("one ReplicaSet, with an owner", async || {
        let sets = team.all::<ReplicaSet>().await;
        let with_pods: Vec<_> = sets.iter().filter(|s| s.spec.as_ref().and_then(|s| s.replicas) != Some(0)).collect();
        let said = format!("{:?}", sets.iter().map(|s| (s.name_any(), s.owner_references().len())).collect::<Vec<_>>());
        let fine = with_pods.len() == 1 && sets.iter().all(|s| !s.owner_references().is_empty());
        if fine { Ok(()) } else { Err(said) }
    })
    .await;
    no_gap.held();
}

#[tokio::test(flavor = "multi_thread")]
async fn c11_what_somebody_edits_by_hand_comes_back_once_and_what_is_theirs_stays() {
    let scene = Scene::new("drift").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3")]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let mark = audit::mark();
    let edit = json!({
        "metadata": {"annotations": {"team": "theirs"}, "labels": {"team": "theirs"}},
        "spec": {"replicas": 3, "template": {"spec": {"containers": [{"name": "controller-manager", "image": "theirs"}]}}},
    });
    let kubectl = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
    let api = team.api::<Deployment>();
    api.patch("numaflow-controller", &kubectl, &Patch::Strategic(edit)).await.unwrap();
    let restored = async || {
        let deployment = team.deployment("numaflow-controller").await;
        let spec = deployment.spec.clone().unwrap();
        let image = spec.template.spec.unwrap().containers[0].image.clone().unwrap_or_default();
        if spec.replicas == Some(1) && image.ends_with("numaflow:v1.3.3") {
            Ok(deployment)
        } else {
            Err(format!("{:?} replicas of {image}", spec.replicas))
        }
    };
    let deployment = eventually("image and replicas are restored", &restored).await;
    assert_eq!(deployment.annotations().get("team").map(String::as_str), Some("theirs"));
    assert_eq!(deployment.labels().get("team").map(String::as_str), Some("theirs"));

    let scale = json!({"spec": {"replicas": 2}});
    api.patch_scale("numaflow-controller", &kubectl, &Patch::Merge(scale)).await.unwrap();
    eventually("a scaled Deployment is restored", &restored).await;

    // The mark and the configuration come back too.
    let config = json!({"data": {"controller-config.yaml": "instance: theirs\n", "theirs": "kept"}});
    team.edit::<k8s_openapi::api::core::v1::ConfigMap>("numaflow-controller-config", config).await;
    let config = eventually("the configuration is restored", async || {
        let map = team.get::<k8s_openapi::api::core::v1::ConfigMap>("numaflow-controller-config").await;
        let data = map.data.unwrap_or_default();
        if data["controller-config.yaml"] == "instance: \"\"\n" { Ok(data) } else { Err(format!("{data:?}")) }
    })
    .await;
    assert_eq!(config.get("theirs").map(String::as_str), Some("kept"));

    team.deployed("numaflow", "1.3.3").await;
    let applied = |resource: &str| {
        audit::since(mark, &team.namespace).iter().filter(|r| r.write() && r.resource() == resource).count()
    };
    stays("once per edit", Duration::from_secs(5), async || match (applied("deployments"), applied("configmaps")) {
        (2, 1) => Ok(()),
        other => Err(format!("(Deployment, ConfigMap) applied {other:?} times")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c11_a_deleted_object_comes_back() {
    let scene = Scene::new("deleted").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3")]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    let generation = team.deployed("numaflow", "1.3.3").await.status.unwrap().name_count;
    let old = team.deployment("numaflow-controller").await.metadata.uid;
    team.delete::<Deployment>("numaflow-controller").await;
    team.delete::<ServiceAccount>("numaflow-sa").await;
    eventually("both are there again", async || {
        let there = team.find::<Deployment>("numaflow-controller").await.filter(|d| d.metadata.uid != old);
        let account = team.find::<ServiceAccount>("numaflow-sa").await;
        if there.is_some() && account.is_some() { Ok(()) } else { Err(format!("{:?}", team.deployments().await)) }
    })
    .await;
    let rollout = team.is_true("numaflow", "Ready").await;
    assert_eq!(rollout.status.unwrap().name_count, generation, "drift is no attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn c12_from_rolling_update_to_recreate_and_back_nothing_is_refused() {
    let scene = Scene::new("strategy").await;
    let team = &scene.team;
    let strategy =
        |name: &str, strategy: Value| version(name).controller(|w| w.with(json!({"spec": {"strategy": strategy}})));
    scene
        .define(&[
            version("1.0.0"),
            strategy("2.0.0", json!({"type": "Recreate"})),
            strategy("3.0.0", json!({"type": "RollingUpdate"})),
            strategy("4.0.0", json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})),
        ])
        .await;
    let _operator = scene.operator().await;
    let mark = audit::mark();
    team.install("numaflow", "1.0.0").await;
    team.deployed("numaflow", "1.0.0").await;
    let uid = team.deployment("numaflow-controller").await.metadata.uid;
    for (version, kind) in [
        ("2.0.0", "Recreate"),
        ("1.0.0", "RollingUpdate"),
        ("2.0.0", "Recreate"),
        ("3.0.0", "RollingUpdate"),
        ("2.0.0", "Recreate"),
        ("4.0.0", "RollingUpdate"),
        ("2.0.0", "Recreate"),
    ] {
        team.set_version("numaflow", version).await;
        team.deployed("numaflow", version).await;
        let deployment = team.deployment("numaflow-controller").await;
        assert_eq!(deployment.spec.unwrap().strategy.unwrap().type_.as_deref(), Some(kind), "{version}");
        assert_eq!(deployment.metadata.uid, uid);
    }
    let refused: Vec<_> =
        audit::since(mark, &team.namespace).into_iter().filter(|r| r.code() == 422).map(|r| r.describe()).collect();
    assert!(refused.is_empty(), "{refused:?}");
}
