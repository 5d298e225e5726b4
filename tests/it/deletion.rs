//! Rollouts that are deleted: not while anything needs the controller, and then with everything that was made for them
//! and nothing else.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, Deployment},
    core::v1::{ConfigMap, Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, Role},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, PostParams},
};
use numaplane::{
    api::{NumaflowController, NumaflowControllerRollout},
    definitions::PermittedKinds,
};
use serde_json::{Value, json};

use crate::support::{
    Scene, Team, audit, eventually, numaflow, stays,
    team::{condition, describe},
    version,
    wait::within,
};

/// Nothing of the controller is left.
async fn nothing_left(team: &Team) {
    eventually("nothing is left", async || {
        let mut left: Vec<String> = team.deployments().await;
        left.extend(team.all::<NumaflowController>().await.iter().map(ResourceExt::name_any));
        left.extend(team.all::<ControllerRevision>().await.iter().map(ResourceExt::name_any));
        left.extend(team.all::<Role>().await.iter().map(ResourceExt::name_any));
        left.extend(team.all::<ServiceAccount>().await.iter().map(ResourceExt::name_any).filter(|n| n != "default"));
        left.extend(
            team.all::<ConfigMap>().await.iter().map(ResourceExt::name_any).filter(|n| n != "kube-root-ca.crt"),
        );
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_rollout_takes_everything_of_its_own_along_and_nothing_else() {
    let scene = Scene::new("delete").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    scene.define(&[version("1.3.3"), version("1.4.0").whole()]).await;
    let _operator = scene.operator().await;
    for policy in [DeleteParams::background(), DeleteParams::foreground()] {
        team.install("numaflow", "1.3.3").await;
        team.deployed("numaflow", "1.3.3").await;
        team.set_version("numaflow", "1.4.0").await;
        team.deployed("numaflow", "1.4.0").await;
        let theirs =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "theirs"}, "data": {"a": "b"}});
        let theirs: ConfigMap = team.create(theirs).await;
        team.api::<NumaflowControllerRollout>().delete("numaflow", &policy).await.unwrap();
        team.gone::<NumaflowControllerRollout>("numaflow").await;
        let still = team.get::<ConfigMap>("theirs").await;
        assert_eq!(still.metadata.resource_version, theirs.metadata.resource_version);
        team.delete::<ConfigMap>("theirs").await;
        nothing_left(team).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_deleted_in_the_middle_of_an_upgrade_or_after_a_failure_goes_as_well() {
    let scene = Scene::new("delete-mid").await;
    let team = &scene.team;
    let bad = version("2.0.0").not_isolated().controller(|w| w.behaviour("never-ready"));
    scene.define(&[version("1.3.3"), bad]).await;
    let _operator = scene.operator().await;
    for first in ["1.3.3", "2.0.0", "9.9.9"] {
        team.install("numaflow", first).await;
        if first == "1.3.3" {
            team.deployed("numaflow", first).await;
            team.set_version("numaflow", "2.0.0").await;
        }
        let stage = |r: &NumaflowControllerRollout| r.status.as_ref().and_then(|s| s.upgrade.clone()).map(|u| u.stage);
        if first == "9.9.9" {
            team.failed("numaflow", &["is not defined"]).await;
        } else {
            team.until("numaflow", "is being judged", |r| stage(r).as_deref() == Some("Confirm")).await;
        }
        team.delete::<NumaflowControllerRollout>("numaflow").await;
        team.gone::<NumaflowControllerRollout>("numaflow").await;
        nothing_left(team).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_waits_for_pipelines_and_says_so_and_keeps_the_controller_running() {
    let scene = Scene::new("needed").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    numaflow::create(team, "Pipeline", "simple", "").await;
    numaflow::create(team, "InterStepBufferService", "default", "").await;
    numaflow::create(team, "Pipeline", "of-another-instance", "blue").await;
    eventually("the operator has seen the pipeline", async || {
        // Nothing says so; a change that it stands in the way of does.
        let set = json!({"spec": {"controller": {"instanceID": "green"}}});
        team.edit::<NumaflowControllerRollout>("numaflow", set).await;
        let status = team.status("numaflow").await;
        if status.message.contains("Pipeline/simple") { Ok(()) } else { Err(status.message) }
    })
    .await;
    team.edit::<NumaflowControllerRollout>("numaflow", json!({"spec": {"controller": {"instanceID": ""}}})).await;
    team.deployed("numaflow", "1.3.3").await;
    let before = team.deployment("numaflow-controller").await.metadata.uid;

    team.delete::<NumaflowControllerRollout>("numaflow").await;
    let says = |words: &'static [&'static str]| {
        move |r: &NumaflowControllerRollout| {
            condition(r, "Deleting").is_some_and(|c| c.status == "True" && words.iter().all(|w| c.message.contains(w)))
        }
    };
    let rollout = team
        .until("numaflow", "says what it waits for", says(&["Pipeline/simple", "InterStepBufferService/default"]))
        .await;
    assert!(!describe(&rollout).contains("of-another-instance"));
    // The controller is kept as it should be, and no other version is attempted.
    team.set_version("numaflow", "1.4.0").await;
    team.delete::<ConfigMap>("numaflow-controller-config").await;
    eventually("what belongs to it is kept", async || {
        team.find::<ConfigMap>("numaflow-controller-config").await.map(|_| ()).ok_or_else(|| "gone".to_owned())
    })
    .await;
    stays("the controller runs on", Duration::from_secs(3), async || {
        let deployment = team.find::<Deployment>("numaflow-controller").await.map(|d| d.metadata.uid);
        if deployment == Some(before.clone()) { Ok(()) } else { Err(format!("{deployment:?}")) }
    })
    .await;
    assert_eq!(team.one_child("numaflow").await.spec.version, "1.3.3");
    numaflow::delete(team, "Pipeline", "simple").await;
    team.until("numaflow", "waits for the other one", |r| {
        condition(r, "Deleting").is_some_and(|c| !c.message.contains("Pipeline/simple"))
    })
    .await;
    assert!(team.find::<Deployment>("numaflow-controller").await.is_some());
    numaflow::delete(team, "InterStepBufferService", "default").await;
    team.gone::<NumaflowControllerRollout>("numaflow").await;
    nothing_left(team).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_deletion_leaves_production_running_and_a_rollout_made_again_takes_it_over() {
    let scene = Scene::new("forced").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    numaflow::create(team, "Pipeline", "simple", "").await;
    let before = (team.deployment("numaflow-controller").await.metadata, team.pods().await);
    team.delete::<NumaflowControllerRollout>("numaflow").await;
    team.until("numaflow", "waits", |r| {
        condition(r, "Deleting").is_some_and(|c| c.message.contains("Pipeline/simple"))
    })
    .await;
    let force = json!({"metadata": {"annotations": {"numaplane.numaproj.io/force": "I know"}}});
    team.edit::<NumaflowControllerRollout>("numaflow", force).await;
    team.gone::<NumaflowControllerRollout>("numaflow").await;
    eventually("its children are gone", async || {
        let children = team.all::<NumaflowController>().await;
        if children.is_empty() { Ok(()) } else { Err(format!("{}", children.len())) }
    })
    .await;
    let same = async || {
        let now = (team.deployment("numaflow-controller").await.metadata, team.pods().await);
        (now.0.uid, now.0.generation, now.1) == (before.0.uid.clone(), before.0.generation, before.1.clone())
    };
    stays("production runs on", Duration::from_secs(3), async || {
        same().await.then_some(()).ok_or_else(|| "changed".to_owned())
    })
    .await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    assert!(same().await, "taken over without a roll");
    team.set_version("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;
    numaflow::delete(team, "Pipeline", "simple").await;
    team.delete::<NumaflowControllerRollout>("numaflow").await;
    team.gone::<NumaflowControllerRollout>("numaflow").await;
    nothing_left(team).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_whose_status_was_lost_takes_its_production_over() {
    let scene = Scene::new("lost").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3")]).await;
    let operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let before = (team.deployment("numaflow-controller").await.metadata, team.pods().await);
    let child = team.one_child("numaflow").await.uid();
    operator.stop().await;
    let nothing = kube::api::Patch::Merge(json!({"status": null}));
    team.api::<NumaflowControllerRollout>().patch_status("numaflow", &Default::default(), &nothing).await.unwrap();
    let _operator = scene.operator().await;
    team.deployed("numaflow", "1.3.3").await;
    let after = (team.deployment("numaflow-controller").await.metadata, team.pods().await);
    assert_eq!((after.0.uid, after.0.generation, after.1), (before.0.uid, before.0.generation, before.1));
    assert_eq!(team.one_child("numaflow").await.uid(), child);
}

fn cluster_role(name: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn c15_a_cluster_scoped_object_is_shared_belongs_to_no_namespace_and_goes_with_its_last_user() {
    let scene = Scene::new("shared").await;
    let (team, other) = (&scene.team, scene.another("other").await);
    let name = scene.unique("reads-nodes");
    let roles: Api<ClusterRole> = Api::all(team.client.clone());
    scene.define(&[version("1.3.3"), version("1.4.0").object(cluster_role(&name))]).await;
    let operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    team.set_version("numaflow", "1.4.0").await;
    let words = ["ClusterRole", "definitions may not hold", "--permit-kind=ClusterRole.rbac.authorization.k8s.io"];
    team.failed("numaflow", &words).await;
    assert!(roles.get_opt(&name).await.unwrap().is_none());
    operator.stop().await;

    let permit = |permitted: PermittedKinds| permitted.and("ClusterRole.rbac.authorization.k8s.io".parse().unwrap());
    let _operator = scene.operator_with(|s| s.permitted = permit(s.permitted.clone())).await;
    team.deployed("numaflow", "1.4.0").await;
    other.install("elsewhere", "1.4.0").await;
    other.deployed("elsewhere", "1.4.0").await;
    let role = roles.get(&name).await.unwrap();
    assert!(role.owner_references().is_empty());
    let there = async || match roles.get_opt(&name).await.unwrap() {
        Some(found) if found.uid() == role.uid() => Ok(()),
        found => Err(format!("{:?}", found.and_then(|f| f.uid()))),
    };
    // One of the two no longer wants it, then wants it again, then goes.
    team.set_version("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    stays("the other one still uses it", Duration::from_secs(3), &there).await;
    team.set_version("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;
    other.delete::<NumaflowControllerRollout>("elsewhere").await;
    other.gone::<NumaflowControllerRollout>("elsewhere").await;
    stays("the first one still uses it", Duration::from_secs(3), &there).await;
    team.delete::<NumaflowControllerRollout>("numaflow").await;
    team.gone::<NumaflowControllerRollout>("numaflow").await;
    eventually("it went with its last user", async || match roles.get_opt(&name).await.unwrap() {
        None => Ok(()),
        Some(_) => Err("still there".to_owned()),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c15_a_cluster_scoped_object_of_somebody_else_is_not_taken_over() {
    let scene = Scene::new("cluster").await;
    let team = &scene.team;
    let name = scene.unique("theirs");
    let roles: Api<ClusterRole> = Api::all(team.client.clone());
    let mut role: ClusterRole = serde_json::from_value(cluster_role(&name)).unwrap();
    role.rules = None;
    let theirs = roles.create(&PostParams::default(), &role).await.unwrap();
    scene.define(&[version("1.3.3"), version("1.4.0").object(cluster_role(&name))]).await;
    let permit = |permitted: PermittedKinds| permitted.and("ClusterRole.rbac.authorization.k8s.io".parse().unwrap());
    let _operator = scene.operator_with(|s| s.permitted = permit(s.permitted.clone())).await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    team.set_version("numaflow", "1.4.0").await;
    team.failed("numaflow", &["ClusterRole", "exists"]).await;
    team.delete::<NumaflowControllerRollout>("numaflow").await;
    team.gone::<NumaflowControllerRollout>("numaflow").await;
    let still = roles.get(&name).await.unwrap();
    assert_eq!(still.metadata.resource_version, theirs.metadata.resource_version);
    roles.delete(&name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c22_the_kinds_of_numaflow_may_come_later_and_go_again() {
    let scene = Scene::new("later").await;
    let team = &scene.team;
    let _none = numaflow::absent(&team.client).await;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    // Nothing depends on a controller where nothing of Numaflow is served.
    team.install_with("brief", json!({"controller": {"version": "1.3.3", "instanceID": "brief"}})).await;
    team.deployed("brief", "1.3.3").await;
    team.delete::<NumaflowControllerRollout>("brief").await;
    team.gone::<NumaflowControllerRollout>("brief").await;
    for round in 0..2 {
        let mark = audit::mark();
        numaflow::install(&team.client).await;
        within(Duration::from_mins(1), "pipelines are watched", async || {
            let listed = |r: &audit::Request| r.resource() == "pipelines" && r.verb == "list" && r.code() == 200;
            let seen = audit::since(mark, &team.namespace);
            if seen.iter().any(listed) { Ok(()) } else { Err(format!("{} requests", seen.len())) }
        })
        .await;
        numaflow::create(team, "Pipeline", "simple", "").await;
        eventually("a pipeline stands in the way of another instance", async || {
            let set = json!({"spec": {"controller": {"instanceID": "green"}}});
            team.edit::<NumaflowControllerRollout>("numaflow", set).await;
            let status = team.status("numaflow").await;
            if status.message.contains("Pipeline/simple") { Ok(()) } else { Err(status.message) }
        })
        .await;
        team.edit::<NumaflowControllerRollout>("numaflow", json!({"spec": {"controller": {"instanceID": ""}}})).await;
        let version = ["1.4.0", "1.3.3"][round];
        team.set_version("numaflow", version).await;
        team.deployed("numaflow", version).await;
        if round == 0 {
            numaflow::remove(&team.client).await;
            team.set_version("numaflow", "1.3.3").await;
            team.deployed("numaflow", "1.3.3").await;
        }
    }
    team.delete::<NumaflowControllerRollout>("numaflow").await;
    team.until("numaflow", "waits", |r| {
        condition(r, "Deleting").is_some_and(|c| c.message.contains("Pipeline/simple"))
    })
    .await;
    assert!(operator.metrics.ready());
    numaflow::delete(team, "Pipeline", "simple").await;
    team.gone::<NumaflowControllerRollout>("numaflow").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_not_held_for_ever_by_a_pipeline_whose_controller_went_with_it() {
    let stage = crate::support::rollouts::Stage::bare("leaving").await;
    let _operator = stage.scene.operator().await;
    stage.furnish().await;
    let team = stage.team();
    team.pipeline("a", json!({})).await;
    team.pipeline_runs("a").await;
    // From here on its controller does nothing about it, as one that is being ended.
    team.turn_knobs("a", json!({"silent": "true"})).await;
    team.pipeline_runs("a").await;
    let namespaces: Api<Namespace> = Api::all(team.client.clone());
    namespaces.delete(&team.namespace, &DeleteParams::default()).await.unwrap();
    within(Duration::from_mins(3), "the namespace is gone", async || {
        let found = namespaces.get_opt(&team.namespace).await.map_err(|error| error.to_string())?;
        found.map_or(Ok(()), |found| Err(format!("{:?}", found.status)))
    })
    .await;
    stage.nothing_left().await;
}
