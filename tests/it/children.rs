//! Children that somebody deletes, and names and instances of rollouts.

use std::time::Duration;

use kube::{ResourceExt, api::DeleteParams};
use numaplane::api::{NumaflowController, NumaflowControllerRollout};
use serde_json::{Value, json};

use crate::{
    recovery::one_promoted,
    support::{Invariant, Scene, Team, eventually, numaflow, team::state, version},
};

async fn uids(team: &Team) -> Vec<(String, Option<String>)> {
    let deployments = team.all::<k8s_openapi::api::apps::v1::Deployment>().await;
    deployments.into_iter().map(|d| (d.name_any(), d.metadata.uid)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_a_deleted_child_comes_back_and_production_never_notices() {
    let scene = Scene::new("child").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let (before, pods) = (uids(team).await, team.pods().await);
    let child = team.one_child("numaflow").await;
    for policy in [DeleteParams::background(), DeleteParams::foreground()] {
        let old = team.get::<NumaflowController>(&child.name_any()).await.uid();
        team.api::<NumaflowController>().delete(&child.name_any(), &policy).await.unwrap();
        eventually("another child of that name is promoted", async || {
            match team.find::<NumaflowController>(&child.name_any()).await {
                Some(new) if new.uid() != old && state(&new) == "promoted" && new.spec == child.spec => Ok(()),
                other => Err(format!("{:?}", other.map(|c| (c.uid(), state(&c))))),
            }
        })
        .await;
        team.deployed("numaflow", "1.3.3").await;
    }
    team.one_child("numaflow").await;
    assert_eq!((uids(team).await, team.pods().await), (before, pods));
    // A label that somebody changes is set right, too.
    for wrong in [json!("recyclable"), json!("whatever"), Value::Null] {
        let labels = json!({"metadata": {"labels": {"numaplane.numaproj.io/upgrade-state": wrong}}});
        team.edit::<NumaflowController>(&child.name_any(), labels).await;
        team.one_child("numaflow").await;
    }
    team.set_version("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;
    team.one_child("numaflow").await;
}

/// Which child is deleted while the new version is being judged.
#[derive(Clone, Copy, Debug)]
enum Which {
    Old,
    New,
    Both,
}

async fn deleted_in_the_middle(name: &str, which: Which) {
    let scene = Scene::new(name).await;
    let team = &scene.team;
    let bad = version("2.0.0").not_isolated().controller(|w| w.behaviour("never-ready"));
    scene.define(&[version("1.3.3"), bad, version("3.0.0")]).await;
    let _operator = scene.operator().await;
    let strategy = json!({"assessment": {"deadline": "8s"}});
    team.install_with("numaflow", json!({"controller": {"version": "1.3.3"}, "strategy": strategy})).await;
    team.deployed("numaflow", "1.3.3").await;
    let never_two = Invariant::watch("never two promoted children", team.api(), one_promoted).await;
    team.set_version("numaflow", "2.0.0").await;
    let rollout = team
        .until("numaflow", "is being judged", |r| {
            r.status.as_ref().and_then(|s| s.upgrade.as_ref()).is_some_and(|u| u.stage == "Confirm")
        })
        .await;
    let upgrade = rollout.status.and_then(|s| s.upgrade).unwrap();
    let names = match which {
        Which::Old => vec![upgrade.from],
        Which::New => vec![upgrade.to],
        Which::Both => vec![upgrade.from, upgrade.to],
    };
    for name in &names {
        team.api::<NumaflowController>().delete(name, &DeleteParams::default()).await.unwrap();
    }
    let rollout = team.failed("numaflow", &["2.0.0", "rolled back to version \"1.3.3\""]).await;
    assert_eq!(rollout.status.map(|s| s.upgrade_in_progress).as_deref(), Some(""));
    assert_eq!(team.one_child("numaflow").await.spec.version, "1.3.3");
    for name in &names {
        // After the failure, as well as during the upgrade.
        if team.find::<NumaflowController>(name).await.is_some() {
            team.delete::<NumaflowController>(name).await;
        }
    }
    assert_eq!(team.one_child("numaflow").await.spec.version, "1.3.3");
    let good = json!({"controller": {"version": "3.0.0"}, "strategy": null});
    team.edit::<NumaflowControllerRollout>("numaflow", json!({"spec": good})).await;
    team.deployed("numaflow", "3.0.0").await;
    assert_eq!(team.one_child("numaflow").await.spec.version, "3.0.0");
    never_two.held();
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_the_old_child_is_deleted_in_the_middle_of_an_upgrade() {
    deleted_in_the_middle("child-old", Which::Old).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_the_new_child_is_deleted_in_the_middle_of_an_upgrade() {
    deleted_in_the_middle("child-new", Which::New).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_both_children_are_deleted_in_the_middle_of_an_upgrade() {
    deleted_in_the_middle("child-both", Which::Both).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_name_that_somebody_took_is_waited_out_or_passed_by_and_never_adopted() {
    let scene = Scene::new("taken").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let foreign = json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "NumaflowController",
        "metadata": {"name": "numaflow-4"},
        // Only children have a revision, so nobody renders it.
        "spec": {"version": "1.3.3", "revision": "of-somebody-else"},
    });
    let theirs: NumaflowController = team.create(foreign).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    assert_eq!(team.one_child("numaflow").await.name_any(), "numaflow-5", "above every number there is");
    let unchanged = team.get::<NumaflowController>("numaflow-4").await;
    assert_eq!(unchanged.metadata.resource_version, theirs.metadata.resource_version);
}

#[tokio::test(flavor = "multi_thread")]
async fn a15_the_younger_of_two_rollouts_of_one_instance_is_refused_and_the_older_untouched() {
    let scene = Scene::new("rival").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let _operator = scene.operator().await;
    team.install("x", "1.3.3").await;
    team.deployed("x", "1.3.3").await;
    let promoted = async || team.status("x").await.promoted;
    let before = (uids(team).await, team.pods().await, promoted().await);
    team.install("y", "1.4.0").await;
    let refused = team.failed("y", &["belongs to NumaflowControllerRollout/x", "instanceID"]).await;
    let attempt = refused.status.and_then(|s| s.last_attempt).unwrap();
    assert_eq!(attempt.reason, "InstanceConflict");
    let after = (uids(team).await, team.pods().await, promoted().await);
    assert_eq!(after, before);
    assert!(team.children("y").await.is_empty());
    // Once the other is gone there is no conflict.
    team.delete::<NumaflowControllerRollout>("x").await;
    team.gone::<NumaflowControllerRollout>("x").await;
    team.deployed("y", "1.4.0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a15_rollouts_of_different_instances_share_nothing() {
    let scene = Scene::new("instances").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let _operator = scene.operator().await;
    // Any name is accepted, with a prefix too.
    for (name, version, instance) in [("dev-numaflow-controller", "1.3.3", ""), ("y", "1.4.0", "blue")] {
        team.install_with(name, json!({"controller": {"version": version, "instanceID": instance}})).await;
        team.deployed(name, version).await;
    }
    assert_eq!(team.deployments().await, ["numaflow-controller", "numaflow-controller-blue"]);
    let instance = async |map: &str| {
        let map = team.get::<k8s_openapi::api::core::v1::ConfigMap>(map).await;
        map.data.unwrap_or_default().remove("controller-config.yaml").unwrap_or_default()
    };
    assert_eq!(instance("numaflow-controller-config").await, "instance: \"\"\n");
    assert_eq!(instance("numaflow-controller-config-blue").await, "instance: \"blue\"\n");
    let objects = |child: NumaflowController| {
        let inventory = child.status.unwrap_or_default().inventory;
        inventory.into_iter().map(|o| format!("{}/{}", o.kind, o.name)).collect::<std::collections::BTreeSet<_>>()
    };
    let first = objects(team.one_child("dev-numaflow-controller").await);
    let second = objects(team.one_child("y").await);
    assert!(!first.is_empty() && first.is_disjoint(&second), "{first:?} {second:?}");
    // One goes, the other stays.
    team.delete::<NumaflowControllerRollout>("y").await;
    team.gone::<NumaflowControllerRollout>("y").await;
    assert_eq!(team.deployments().await, ["numaflow-controller"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_instance_of_a_rollout_changes_only_when_nothing_depends_on_the_old_one() {
    let scene = Scene::new("in-use").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    scene.define(&[version("1.3.3")]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    for kind in ["Pipeline", "InterStepBufferService", "MonoVertex"] {
        numaflow::create(team, kind, "simple", "").await;
        numaflow::create(team, kind, "other", "another").await;
    }
    let set = async |instance: &str| {
        team.edit::<NumaflowControllerRollout>("numaflow", json!({"spec": {"controller": {"instanceID": instance}}}))
            .await
    };
    set("blue").await;
    for kind in ["Pipeline", "InterStepBufferService", "MonoVertex"] {
        let named = format!("{kind}/simple");
        let refused = team.failed("numaflow", &["cannot change from \"\" to \"blue\"", &named]).await;
        assert!(!refused.status.as_ref().unwrap().message.contains("/other"));
        assert_eq!(refused.status.and_then(|s| s.last_attempt).unwrap().reason, "InstanceInUse");
        assert_eq!(team.deployments().await, ["numaflow-controller"]);
        numaflow::delete(team, kind, "simple").await;
    }
    team.deployed("numaflow", "1.3.3").await;
    assert_eq!(team.deployments().await, ["numaflow-controller-blue"]);
    set("").await;
    team.until("numaflow", "is back at the instance without a name", |r| {
        let status = r.status.clone().unwrap_or_default();
        status.phase.as_str() == "Deployed" && status.promoted.is_some_and(|p| p.instance_id.is_empty())
    })
    .await;
    assert_eq!(team.deployments().await, ["numaflow-controller"]);
}

/// Names that are too long somewhere: for labels, for names of children, for names of events.
fn long_names() -> Vec<String> {
    let mut names: Vec<String> = [40, 52, 62, 63, 64].into_iter().map(|length| "n".repeat(length)).collect();
    // Alike in their first 60 characters.
    names.extend(["x", "y"].map(|end| format!("{}{end}{}", "m".repeat(60), "-and-more-of-it")));
    names.push(format!("{}.{}.{}", "a".repeat(100), "b".repeat(100), "c".repeat(51)));
    names.push("with.dots.in-it".to_owned());
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn c16_names_of_any_length_work_and_stay_apart() {
    let scene = Scene::new("names").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let _operator = scene.operator_with(|s| s.workers = 16).await;
    let names = long_names();
    assert_eq!(names.iter().map(String::len).max(), Some(253));
    for (n, name) in names.iter().enumerate() {
        team.install_with(name, json!({"controller": {"version": "1.3.3", "instanceID": format!("i{n}")}})).await;
    }
    for version in ["1.3.3", "1.4.0", "1.3.3"] {
        for name in &names {
            team.set_version(name, version).await;
        }
        for name in &names {
            team.deployed(name, version).await;
        }
    }
    let mut children = std::collections::BTreeSet::new();
    for name in &names {
        let child = team.one_child(name).await;
        assert!(child.labels().values().all(|value| value.len() <= 63), "{:?}", child.labels());
        assert!(child.name_any().len() <= 253 && child.name_any().ends_with("-2"));
        assert!(children.insert(child.name_any()));
        // What is said about it is heard.
        team.set_version(name, "9.9.9").await;
        team.failed(name, &["\"9.9.9\" is not defined"]).await;
        team.event("NumaflowControllerRollout", name, &["9.9.9"]).await;
    }
    assert_eq!(team.deployments().await.len(), names.len());
    // Nothing of one is taken for the other's when that goes.
    let (gone, stays) = (&names[5], &names[6]);
    team.delete::<NumaflowControllerRollout>(gone).await;
    team.gone::<NumaflowControllerRollout>(gone).await;
    assert_eq!(team.deployments().await.len(), names.len() - 1);
    team.one_child(stays).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c16_numbers_of_children_may_have_two_digits() {
    let scene = Scene::new("digits").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let _operator = scene.operator().await;
    let name = "n".repeat(63);
    team.install(&name, "1.3.3").await;
    team.deployed(&name, "1.3.3").await;
    for n in 1..=12 {
        let version = ["1.3.3", "1.4.0"][n % 2];
        team.set_version(&name, version).await;
        team.deployed(&name, version).await;
    }
    assert_eq!(team.one_child(&name).await.name_any(), format!("{name}-12"));
    eventually("two revisions are enough for two versions", async || {
        let revisions = team.revisions().await;
        if revisions.len() == 2 { Ok(()) } else { Err(format!("{revisions:?}")) }
    })
    .await;
    // Not one object more than needed is kept, whatever the limit.
    team.edit::<NumaflowControllerRollout>(&name, json!({"spec": {"revisionHistoryLimit": 0}})).await;
    crate::support::wait::within(Duration::from_secs(30), "one revision is kept", async || {
        let revisions = team.revisions().await;
        if revisions.len() == 1 { Ok(()) } else { Err(format!("{revisions:?}")) }
    })
    .await;
}
