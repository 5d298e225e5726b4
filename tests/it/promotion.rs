//! Promotion: what proves itself beside production takes over, what does not never touches it.

use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod, discovery::v1::EndpointSlice};
use kube::ResourceExt;
use numaplane::api::{LABEL_ISOLATED, NumaflowController};
use serde_json::{Value, json};

use crate::support::{Invariant, Scene, Team, Version, Workload, eventually, stays, version, workload};

/// A spec with times that a test can wait for.
pub fn quick(version: &str) -> Value {
    json!({
        "controller": {"version": version},
        "strategy": {"assessment": {"deadline": "8s", "window": "3s", "interval": "1s"}},
    })
}

/// Uid and generation of the production Deployment, and its pods.
pub async fn what_runs(team: &Team) -> (String, i64, Vec<(String, String)>) {
    let metadata = team.deployment("numaflow-controller").await.metadata;
    let pods = team.all::<Pod>().await.into_iter().filter(|p| !p.labels().contains_key(LABEL_ISOLATED));
    let alive = pods.filter(|p| p.metadata.deletion_timestamp.is_none());
    let pods = alive.map(|p| (p.name_any(), p.uid().unwrap_or_default())).collect();
    (metadata.uid.unwrap_or_default(), metadata.generation.unwrap_or_default(), pods)
}

/// Waits until nothing is left of any isolated copy, its lease included.
pub async fn no_copies(team: &Team) {
    eventually("nothing of an isolated copy is left", async || {
        let deployments = team.deployments().await;
        let leases: Vec<String> = team.all::<Lease>().await.iter().map(ResourceExt::name_any).collect();
        let left: Vec<&String> = deployments.iter().chain(&leases).filter(|n| n.contains("-x-")).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

type Change = fn(Workload) -> Workload;

/// Bad versions: what is wrong with each, and what has to be said about it.
fn bad() -> Vec<(&'static str, Change, &'static [&'static str])> {
    vec![
        ("late", |w| w.ready_after(60), &["container controller-manager", "running but not ready"]),
        (
            "crash-loop",
            |w| w.behaviour("crash-loop").crash_after(2).restart_after(60),
            &["container controller-manager CrashLoopBackOff", "exit code 1"],
        ),
        // Healthy for two seconds of a window of three, again and again.
        ("flapping", |w| w.behaviour("crash-loop").crash_after(2).restart_after(1), &["in a row within 8s", "relapse"]),
        (
            "unpullable",
            |w| w.image("registry.invalid/numaflow:v2"),
            &["container controller-manager ImagePullBackOff", "registry.invalid/numaflow:v2"],
        ),
        ("unschedulable", Workload::unschedulable, &["cannot be scheduled", "event: FailedScheduling"]),
        ("leaderless", Workload::takes_no_lease, &["lease numaflow-controller-lock-x-", "nobody holds it"]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn b02_every_kind_of_bad_version_fails_at_the_deadline_and_production_never_notices() {
    join_all(bad().into_iter().map(|(name, change, words)| async move {
        let scene = Scene::new(name).await;
        let team = &scene.team;
        scene.define(&[version("1.4.0"), version("2.0.0").controller(change), version("2.1.0")]).await;
        let _operator = scene.operator().await;
        team.install_with("numaflow", quick("1.4.0")).await;
        team.deployed("numaflow", "1.4.0").await;
        let before = what_runs(team).await;

        team.set_version("numaflow", "2.0.0").await;
        let rollout = team.failed("numaflow", words).await;
        let last = rollout.status.and_then(|s| s.last_attempt).unwrap();
        assert_eq!((last.result.as_str(), last.stage.as_str()), ("Failed", "Verify"), "{name}");
        let took = last.finished_at.unwrap().0.duration_since(last.started_at.unwrap().0);
        println!("{name}: Failed after {took:?}: {}", last.message);
        // Deadline and one interval; and the second up to which times are stored.
        assert!(took.as_secs() <= 8 + 1 + 1, "{name}: {took:?}");
        assert_eq!(what_runs(team).await, before, "{name}");
        assert_eq!(team.one_child("numaflow").await.spec.version, "1.4.0", "{name}");
        no_copies(team).await;

        team.set_version("numaflow", "2.1.0").await;
        team.deployed("numaflow", "2.1.0").await;
        assert_eq!(what_runs(team).await.0, before.0, "{name}: changed in place");
        no_copies(team).await;
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a06_one_of_three_deployments_that_crashes_keeps_the_version_from_being_promoted() {
    let scene = Scene::new("sibling").await;
    let team = &scene.team;
    let next = version("2.0.0")
        .and(workload("server"))
        .and(workload("dex").behaviour("crash-loop").crash_after(1).restart_after(60));
    scene.define(&[version("1.4.0"), next]).await;
    let _operator = scene.operator().await;
    team.install_with("numaflow", quick("1.4.0")).await;
    team.deployed("numaflow", "1.4.0").await;
    let before = what_runs(team).await;
    team.set_version("numaflow", "2.0.0").await;
    let rollout = team.failed("numaflow", &["Deployment/dex-x-"]).await;
    let message = rollout.status.unwrap().message;
    assert!(!message.contains("Deployment/server"), "{message}");
    assert_eq!(what_runs(team).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_of_production_never_lists_a_pod_of_the_copy() {
    let scene = Scene::new("service").await;
    let team = &scene.team;
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "numaflow{{ .InstanceSuffix }}"},
        "spec": {"ports": [{"port": 9090}], "selector": {"app.kubernetes.io/part-of": "numaflow"}},
    });
    let with = |name: &str| version(name).object(service.clone());
    scene.define(&[with("1.4.0"), with("1.5.0").controller(|w| w.ready_after(2))]).await;
    let _operator = scene.operator().await;
    // And one that the users made themselves.
    team.create::<k8s_openapi::api::core::v1::Service>(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "by-hand"},
        "spec": {"ports": [{"port": 9090}], "selector": {"app.kubernetes.io/part-of": "numaflow"}},
    }))
    .await;
    team.install_with("numaflow", quick("1.4.0")).await;
    team.deployed("numaflow", "1.4.0").await;
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = seen.clone();
    let never = Invariant::watch("no pod of a copy behind a Service", team.api::<EndpointSlice>(), move |all| {
        for (name, slice) in all {
            let of_copy = slice.labels().get("kubernetes.io/service-name").is_some_and(|n| n.contains("-x-"));
            for target in slice.endpoints.iter().flatten().filter_map(|e| e.target_ref.as_ref()) {
                let isolated = target.name.as_ref().is_some_and(|n| n.contains("-x-"));
                if isolated && of_copy {
                    count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
                if isolated != of_copy {
                    return Err(format!("{name} lists {:?}", target.name));
                }
            }
        }
        Ok(())
    })
    .await;
    team.set_version("numaflow", "1.5.0").await;
    team.deployed("numaflow", "1.5.0").await;
    never.held();
    assert!(seen.load(std::sync::atomic::Ordering::Relaxed) > 0, "the copy's own Service lists the copy's own pod");
}

#[tokio::test(flavor = "multi_thread")]
async fn production_is_confirmed_when_a_new_pod_leads_however_long_the_old_process_keeps_the_lease() {
    let scene = Scene::new("lease").await;
    let team = &scene.team;
    scene.define(&[version("1.4.0").controller(|w| w.lingers(6)), version("1.5.0")]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;
    team.set_version("numaflow", "1.5.0").await;
    let held =
        "lease numaflow-controller-lock to be held by a new pod of Deployment/numaflow-controller (still held by";
    team.until("numaflow", "waits for the lease, and says who holds it", |r| {
        r.status.as_ref().is_some_and(|s| s.message.contains(held))
    })
    .await;
    let (_, _, pods) = what_runs(team).await;
    let rollout = team.deployed("numaflow", "1.5.0").await;
    let last = rollout.status.and_then(|s| s.last_attempt).unwrap();
    let took = last.finished_at.unwrap().0.duration_since(last.started_at.unwrap().0);
    assert!(took.as_secs() >= 6, "{took:?}");
    let lease = team.get::<Lease>("numaflow-controller-lock").await.spec.unwrap();
    assert!(lease.holder_identity.unwrap().starts_with(&pods[0].0));
    no_copies(team).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_whose_new_pods_never_lead_in_production_is_rolled_back() {
    let scene = Scene::new("no-leader").await;
    let team = &scene.team;
    let next = version("1.5.0").not_isolated().controller(Workload::takes_no_lease);
    scene.define(&[version("1.4.0"), next]).await;
    let _operator = scene.operator().await;
    team.install_with("numaflow", quick("1.4.0")).await;
    team.deployed("numaflow", "1.4.0").await;
    team.set_version("numaflow", "1.5.0").await;
    let rollout =
        team.failed("numaflow", &["lease numaflow-controller-lock", "rolled back to version \"1.4.0\""]).await;
    let last = rollout.status.and_then(|s| s.last_attempt).unwrap();
    assert_eq!((last.result.as_str(), last.stage.as_str()), ("Failed", "Confirm"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_that_says_so_is_not_asked_for_a_lease() {
    let scene = Scene::new("leaderless").await;
    let team = &scene.team;
    let disabled =
        |name: &str| version(name).controller(|w| w.takes_no_lease().env("NUMAFLOW_LEADER_ELECTION_DISABLED", "true"));
    let said = version("1.6.0").controller(Workload::takes_no_lease).without_leader();
    scene.define(&[disabled("1.4.0"), disabled("1.5.0"), said]).await;
    let _operator = scene.operator().await;
    team.install_with("numaflow", quick("1.4.0")).await;
    for version in ["1.4.0", "1.5.0", "1.6.0"] {
        team.set_version("numaflow", version).await;
        team.deployed("numaflow", version).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_costs_nothing_when_it_is_over_and_stands_apart_while_it_lasts() {
    let scene = Scene::new("apart").await;
    let team = &scene.team;
    scene.define(&[version("1.4.0").whole(), version("1.5.0").whole().controller(|w| w.ready_after(3))]).await;
    let _operator = scene.operator().await;
    team.install_with("numaflow", quick("1.4.0")).await;
    team.deployed("numaflow", "1.4.0").await;
    team.set_version("numaflow", "1.5.0").await;
    let copy = eventually("the copy is there", async || {
        let all = team.all::<k8s_openapi::api::apps::v1::Deployment>().await;
        all.into_iter().find(|d| d.labels().contains_key(LABEL_ISOLATED)).ok_or_else(|| "none".to_owned())
    })
    .await;
    let child = team.get::<NumaflowController>("numaflow-1").await;
    let instance = format!("x-{}", &child.uid().unwrap()[..8]);
    assert_eq!(copy.name_any(), format!("numaflow-controller-{instance}"));
    let owner = &copy.owner_references()[0];
    assert_eq!((owner.name.as_str(), owner.block_owner_deletion), ("numaflow-1", None));
    assert_eq!(copy.managed_fields()[0].manager.as_deref(), Some("numaplane-isolated"));
    let config =
        team.get::<k8s_openapi::api::core::v1::ConfigMap>(&format!("numaflow-controller-config-{instance}")).await;
    assert!(config.data.unwrap().values().any(|v| v.contains(&format!("instance: \"{instance}\""))));
    let production = team.deployment("numaflow-controller").await;
    assert_eq!(production.managed_fields()[0].manager.as_deref(), Some("numaplane"));
    assert!(production.owner_references().is_empty());
    team.deployed("numaflow", "1.5.0").await;
    no_copies(team).await;
    stays("it does not come back", Duration::from_secs(2), async || {
        let left: Vec<_> = team.deployments().await.into_iter().filter(|n| n.contains("-x-")).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
}

/// A version that cannot be isolated says so, and is judged in production.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_copy_the_window_is_spent_in_production_and_the_status_says_why() {
    let scene = Scene::new("in-place").await;
    let team = &scene.team;
    let old: Version = version("1.3.3");
    scene.define(&[version("1.4.0"), old, version("1.5.0").not_isolated()]).await;
    let _operator = scene.operator().await;
    team.install_with("numaflow", quick("1.4.0")).await;
    team.deployed("numaflow", "1.4.0").await;
    for (version, why) in [("1.3.3", "1.4.0"), ("1.5.0", "isolated: false")] {
        team.set_version("numaflow", version).await;
        team.until("numaflow", "says why there is no Verify", |r| {
            let status = r.status.clone().unwrap_or_default();
            let stage = status.upgrade.map(|u| u.stage).unwrap_or_default();
            stage == "Confirm" && status.message.contains("without Verify: ") && status.message.contains(why)
        })
        .await;
        let rollout = team.deployed("numaflow", version).await;
        let last = rollout.status.and_then(|s| s.last_attempt).unwrap();
        let took = last.finished_at.unwrap().0.duration_since(last.started_at.unwrap().0);
        assert!(took.as_secs() >= 3, "{version}: the window was spent: {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_with_a_secret_proves_itself_with_a_secret_of_its_own() {
    let scene = Scene::new("secret-copy").await;
    let team = &scene.team;
    let with = |name: &str| {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token{{ .InstanceSuffix }}"},
            "stringData": {"token": name},
        });
        version(name).object(secret).controller(|w| w.ready_after(2))
    };
    scene.define(&[with("1.4.0"), with("1.5.0")]).await;
    let permit =
        |s: &mut numaplane::settings::Settings| s.permitted = s.permitted.clone().and("Secret".parse().unwrap());
    let _operator = scene.operator_with(permit).await;
    team.install_with("numaflow", quick("1.4.0")).await;
    team.deployed("numaflow", "1.4.0").await;
    let of_copy = async || -> Vec<String> {
        let all = team.all::<k8s_openapi::api::core::v1::Secret>().await;
        all.iter().map(ResourceExt::name_any).filter(|n| n.starts_with("token-x-")).collect()
    };
    team.set_version("numaflow", "1.5.0").await;
    eventually("the copy is ready", async || {
        let all = team.all::<k8s_openapi::api::apps::v1::Deployment>().await;
        let ready = |d: &&k8s_openapi::api::apps::v1::Deployment| {
            d.name_any().contains("-x-") && d.status.as_ref().is_some_and(|s| s.available_replicas == Some(1))
        };
        all.iter().find(ready).map(drop).ok_or_else(|| format!("{} Deployments", all.len()))
    })
    .await;
    assert_eq!(of_copy().await.len(), 1, "it is there as long as the copy is");
    team.deployed("numaflow", "1.5.0").await;
    no_copies(team).await;
    eventually("the secret of the copy is gone", async || {
        let left = of_copy().await;
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    let secret = team.get::<k8s_openapi::api::core::v1::Secret>("token").await.data.unwrap();
    assert_eq!(secret["token"].0, b"1.5.0");
}
