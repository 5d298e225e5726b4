//! The stand-in for Numaflow's leader election itself, against a real API server and without an operator: what other
//! tests believe of it has to be so.

use std::time::Duration;

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::ResourceExt;
use serde_json::json;

use crate::support::{
    Scene, Team, eventually,
    leases::{LEASE, TIMINGS},
    stays, version, workload,
};

fn ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Waits until there are this many pods, all with this label, ready or not; their names.
async fn pods(team: &Team, count: usize, label: (&str, &str), are_ready: bool) -> Vec<String> {
    eventually(&format!("{count} pods with {label:?}, ready: {are_ready}"), async || {
        let pods = team.all::<Pod>().await;
        let is = |pod: &Pod| {
            let going = pod.metadata.deletion_timestamp.is_some();
            !going && pod.labels().get(label.0).is_some_and(|v| v == label.1) && ready(pod) == are_ready
        };
        let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        let running = pods.iter().all(|pod| pod.status.as_ref().is_some_and(|s| s.phase.as_deref() == Some("Running")));
        if pods.len() == count && running && pods.iter().all(is) { Ok(names) } else { Err(format!("{names:?}")) }
    })
    .await
}

const CONTROLLER: (&str, &str) = ("app.kubernetes.io/part-of", "numaflow");

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_of_a_controller_takes_the_lease_of_its_instance_and_renews_it() {
    let scene = Scene::new("lease").await;
    let team = &scene.team;
    team.apply(&version("1.3.3"), "").await;
    team.apply(&version("1.3.3"), "blue").await;
    let names = pods(team, 2, CONTROLLER, true).await;
    for (lease, prefix) in
        [(LEASE, "numaflow-controller-"), ("numaflow-controller-lock-blue", "numaflow-controller-blue-")]
    {
        let pod = names.iter().find(|n| n.starts_with("numaflow-controller-blue-") == (lease != LEASE)).unwrap();
        assert!(pod.starts_with(prefix), "{names:?}");
        let held = team.leads(lease, "held", |held| held.by(pod)).await;
        assert_eq!((held.transitions, held.acquired <= held.renewed), (0, true), "{held:?}");
        let renewed = team.leads(lease, "renewed", |now| now.renewed > held.renewed).await;
        assert_eq!((&renewed.holder, renewed.acquired), (&held.holder, held.acquired));
    }
    let seconds = team.get::<Lease>(LEASE).await.spec.unwrap().lease_duration_seconds;
    assert_eq!(seconds.map(i64::from), Some(TIMINGS.lease_duration.as_secs() as i64));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_process_keeps_the_lease_for_a_while_and_the_new_pod_takes_it_when_it_has_run_out() {
    let scene = Scene::new("linger").await;
    let team = &scene.team;
    // Long enough that a busy machine still sees it.
    let old = version("1.3.3").controller(|w| w.lingers(8).pod_label("is", "old"));
    team.apply(&old, "").await;
    let first = pods(team, 1, ("is", "old"), true).await.remove(0);
    let before = team.leads(LEASE, "held by the old pod", |held| held.by(&first)).await;

    team.apply(&version("1.4.0").controller(|w| w.pod_label("is", "new")), "").await;
    let second = pods(team, 1, ("is", "new"), true).await.remove(0);
    let alone = jiff::Timestamp::now();
    let mut last = team
        .leads(LEASE, "renewed by a process whose pod is gone", |held| {
            assert!(!held.by(&second), "the new pod did not wait for the old process: {held:?}");
            held.renewed > alone
        })
        .await;
    assert_eq!((&last.holder, last.acquired, last.transitions), (&before.holder, before.acquired, 0));
    let taken = eventually("the new pod leads", async || {
        let held = team.lease(LEASE).await.expect("nobody deletes it");
        if held.by(&second) {
            return Ok(held);
        }
        last = held;
        Err(format!("{last:?}"))
    })
    .await;
    assert_eq!(taken.transitions, 1);
    assert!(taken.acquired >= last.renewed + TIMINGS.lease_duration, "too early: {last:?}, {taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_leads_and_another_one_does_when_it_crashes_or_the_lease_is_deleted() {
    let scene = Scene::new("standby").await;
    let team = &scene.team;
    let two = version("1.3.3").controller(|w| w.with(json!({"spec": {"replicas": 2}})));
    team.apply(&two, "").await;
    let names = pods(team, 2, CONTROLLER, true).await;
    let held = team.leads(LEASE, "held", |held| names.iter().any(|name| held.by(name))).await;
    let leader = names.iter().find(|name| held.by(name)).unwrap();
    let other = names.iter().find(|name| !held.by(name)).unwrap();

    team.edit::<Pod>(leader, json!({"metadata": {"labels": {"numaplane.test/behaviour": "never-ready"}}})).await;
    let next = team.leads(LEASE, "held by the other one", |held| held.by(other)).await;
    assert_eq!(next.transitions, 1);
    assert!(next.acquired > held.renewed + TIMINGS.lease_duration, "too early: {held:?}, {next:?}");

    team.delete::<Lease>(LEASE).await;
    let made = team.leads(LEASE, "made anew", |held| held.transitions == 0).await;
    assert!(made.by(other), "{made:?}");

    // As a process that hangs, and is well again. It is another process then.
    team.edit::<Pod>(leader, json!({"metadata": {"labels": {"numaplane.test/behaviour": null}}})).await;
    pods(team, 2, CONTROLLER, true).await;
    team.edit::<Pod>(other, json!({"metadata": {"labels": {"numaplane.test/lease": "none"}}})).await;
    let again = team.leads(LEASE, "held by the first again", |held| held.by(leader)).await;
    assert_eq!(again.transitions, 1);
    assert_ne!(again.holder, held.holder);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_ready_or_is_no_controller_or_elects_nobody_takes_no_lease() {
    let scene = Scene::new("no-lease").await;
    let team = &scene.team;
    let key = json!({"name": "parameters", "key": "disabled"});
    let from = json!([{"name": "NUMAFLOW_LEADER_ELECTION_DISABLED", "valueFrom": {"configMapKeyRef": key}}]);
    let parameters = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "parameters"}, "data": {"disabled": "true"},
    });
    let silent = [
        ("none", version("1.3.3").controller(super::support::Workload::takes_no_lease)),
        ("off", version("1.3.3").controller(|w| w.env("NUMAFLOW_LEADER_ELECTION_DISABLED", "true"))),
        ("off-by-map", version("1.3.3").object(parameters).controller(|w| w.container_with(json!({"env": from})))),
        // Another Deployment of a version whose controller is not there.
        ("server", version("1.3.3").controller(|_| workload("server"))),
    ];
    for (instance, version) in &silent {
        team.apply(version, instance).await;
    }
    let unready = scene.another("unready").await;
    unready.apply(&version("1.3.3").controller(|w| w.behaviour("never-ready")), "").await;
    pods(team, silent.len(), CONTROLLER, true).await;
    pods(&unready, 1, CONTROLLER, false).await;

    let late = scene.another("late").await;
    let began = jiff::Timestamp::now();
    late.apply(&version("1.3.3").controller(|w| w.leads_after(2)), "").await;
    let held = late.leads(LEASE, "held", |_| true).await;
    assert!(held.acquired >= began + Duration::from_secs(2), "too early: {began}, {held:?}");

    stays("nobody takes a lease", Duration::from_secs(2), async || {
        let mut leases = team.all::<Lease>().await;
        leases.extend(unready.all::<Lease>().await);
        if leases.is_empty() { Ok(()) } else { Err(format!("{leases:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_on_the_network_of_its_node_has_the_name_of_the_node() {
    let scene = Scene::new("host").await;
    let team = &scene.team;
    let on_host = |w: crate::support::Workload| w.with(json!({"spec": {"template": {"spec": {"hostNetwork": true}}}}));
    team.apply(&version("1.3.3").controller(on_host), "").await;
    let name = pods(team, 1, CONTROLLER, true).await.remove(0);
    let node = team.get::<Pod>(&name).await.spec.unwrap().node_name.unwrap();
    team.leads(LEASE, "held in the name of the node", |held| held.by(&node)).await;
}
