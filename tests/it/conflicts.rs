//! Requests that fail for no reason of their own, and namespaces that go away.

use std::time::{Duration, Instant};

use http::Method;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use numaplane::api::NumaflowControllerRollout;
use serde_json::json;

use crate::support::{Invariant, Scene, audit, eventually, faults::Faults, version, wait::within, workload};

#[tokio::test(flavor = "multi_thread")]
async fn b07_conflicts_and_busy_servers_are_no_failures() {
    let scene = Scene::new("conflict").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let faults = Faults::default();
    let operator = scene.operator_behind(&faults).await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let never_failed = Invariant::watch("never Failed", team.api::<NumaflowControllerRollout>(), |rollouts| {
        let failed = rollouts.values().filter_map(|r| r.status.as_ref()).find(|s| s.phase.as_str() == "Failed");
        failed.map_or(Ok(()), |s| Err(s.message.clone()))
    })
    .await;
    faults.answer(429, 1, |write| write.about("/controllerrevisions/"));
    faults.answer(500, 1, |write| write.method == Method::POST && write.about("/numaflowcontrollers"));
    for path in ["/numaflowcontrollers/", "/deployments/", "/numaflowcontrollerrollouts/numaflow/status"] {
        faults.answer(409, 5, move |write| write.about(path));
    }
    let (start, turns) = (Instant::now(), operator.metrics.turns());
    team.set_version("numaflow", "1.4.0").await;
    within(Duration::from_mins(2), "deployed in spite of it all", async || {
        let rollout = team.rollout("numaflow").await;
        let status = rollout.status.clone().unwrap_or_default();
        let done = status.phase.as_str() == "Deployed" && status.promoted.is_some_and(|p| p.version == "1.4.0");
        if done { Ok(()) } else { Err(crate::support::team::describe(&rollout)) }
    })
    .await;
    let turns = operator.metrics.turns() - turns;
    println!("17 requests failed: deployed after {:?} and {turns} reconciles", start.elapsed());
    assert_eq!(faults.left(), 0, "every fault was met");
    assert!(turns < 100, "{turns} reconciles");
    never_failed.held();
}

#[tokio::test(flavor = "multi_thread")]
async fn b07_conflicts_during_an_installation_and_a_roll_back_are_no_failures_either() {
    let scene = Scene::new("conflict-back").await;
    let team = &scene.team;
    let bad = version("2.0.0").not_isolated().controller(|w| w.behaviour("never-ready"));
    scene.define(&[version("1.3.3"), bad]).await;
    let faults = Faults::default();
    // Every kind of object is refused once.
    for path in
        ["/serviceaccounts/", "/configmaps/", "/roles/", "/rolebindings/", "/deployments/", "/numaflowcontrollers"]
    {
        faults.answer(409, 1, move |write| write.about(path));
    }
    let _operator = scene.operator_behind(&faults).await;
    let strategy = json!({"assessment": {"deadline": "3s"}});
    team.install_with("numaflow", json!({"controller": {"version": "1.3.3"}, "strategy": strategy})).await;
    team.deployed("numaflow", "1.3.3").await;
    assert_eq!(faults.left(), 0);
    team.set_version("numaflow", "2.0.0").await;
    team.until("numaflow", "is being judged", |r| {
        r.status.as_ref().and_then(|s| s.upgrade.as_ref()).is_some_and(|u| u.stage == "Confirm")
    })
    .await;
    for (code, path) in [(409, "/numaflowcontrollers/"), (500, "/deployments/"), (429, "/status"), (409, "/status")] {
        faults.answer(code, 2, move |write| write.about(path));
    }
    team.failed("numaflow", &["2.0.0", "rolled back to version \"1.3.3\""]).await;
    assert_eq!(faults.left(), 0);
    team.set_version("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_a_namespace_that_goes_in_the_middle_of_an_upgrade_is_let_go_at_once() {
    let scene = Scene::new("going").await;
    let (team, other) = (&scene.team, scene.another("other").await);
    let waiting = version("1.4.0").not_isolated().controller(|w| w.ready_after(600));
    let slow = version("1.5.0").and(workload("slow").ready_after(4));
    scene.define(&[version("1.3.3"), waiting, slow]).await;
    let _operator = scene.operator().await;
    for team in [team, &other] {
        team.install("numaflow", "1.3.3").await;
        team.deployed("numaflow", "1.3.3").await;
    }
    team.set_version("numaflow", "1.4.0").await;
    team.until("numaflow", "is being judged", |r| {
        r.status.as_ref().and_then(|s| s.upgrade.as_ref()).is_some_and(|u| u.stage == "Confirm")
    })
    .await;
    // One that has only just been asked for, as well.
    let young = json!({"controller": {"version": "1.3.3", "instanceID": "young"}});
    team.install_with("young", young).await;
    other.set_version("numaflow", "1.5.0").await;
    let namespaces: Api<Namespace> = Api::all(team.client.clone());
    namespaces.delete(&team.namespace, &DeleteParams::default()).await.unwrap();
    let (mark, start) = (audit::mark(), Instant::now());
    other.deployed("numaflow", "1.5.0").await;
    within(Duration::from_mins(1), "the namespace is gone", async || {
        match namespaces.get_opt(&team.namespace).await.map_err(|error| error.to_string())? {
            None => Ok(()),
            Some(left) => Err(format!("{:?}", left.status.and_then(|s| s.conditions))),
        }
    })
    .await;
    println!("the namespace was gone after {:?}", start.elapsed());
    // What was on its way when the namespace went may still have arrived; nothing is begun after that.
    let made: Vec<_> = audit::since(mark, &team.namespace)
        .into_iter()
        .filter(|r| r.write() && (matches!(r.code(), 201 | 403) || r.verb == "create"))
        .map(|r| r.describe())
        .collect();
    assert!(made.len() <= 1, "{made:?}");
    // A namespace of that name can be used again.
    let mut again = Namespace::default();
    again.metadata.name = Some(team.namespace.clone());
    namespaces.create(&PostParams::default(), &again).await.unwrap();
    team.install("numaflow", "1.3.3").await;
    eventually("installed again", async || {
        let status = team.status("numaflow").await;
        if status.phase.as_str() == "Deployed" { Ok(()) } else { Err(status.message) }
    })
    .await;
}
