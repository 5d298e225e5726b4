//! Versions of every shape: nothing depends on how a Deployment, a container or an image is called, or on how many
//! Deployments there are.

use std::time::Duration;

use serde_json::json;

use crate::support::{Scene, stays, team::describe, version, workload};

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_may_have_any_name() {
    let scene = Scene::new("name").await;
    let team = &scene.team;
    let other = version("1.4.0").controller(|w| w.named("what.ever-9"));
    scene.define(&[version("1.3.3"), other]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;
    assert_eq!(team.deployments().await, ["what.ever-9"]);
    team.set_version("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    assert_eq!(team.deployments().await, ["numaflow-controller"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a16_nothing_reads_a_version_out_of_an_image() {
    let scene = Scene::new("images").await;
    let team = &scene.team;
    let digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
    let images = [
        "registry.example.com:5000/a/b:v1".to_owned(),
        "registry.example.com:5000/a/b".to_owned(),
        format!("a/b@{digest}"),
        format!("a/b:v1@{digest}"),
        "b".to_owned(),
        "a/b:1.4.0-rc1".to_owned(),
    ];
    let versions: Vec<_> = images
        .iter()
        .enumerate()
        // Versions that say something else than the image, and in every spelling.
        .map(|(n, image)| {
            version(["1.4.0", "v1.4.0", "1.4.0-rc1", "1.4.0-rc1.x", "latest", "main"][n]).controller(|w| w.image(image))
        })
        .collect();
    scene.define(&versions).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;
    for version in ["v1.4.0", "1.4.0-rc1", "1.4.0-rc1.x", "latest", "main"] {
        team.set_version("numaflow", version).await;
        team.deployed("numaflow", version).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_deployments_are_deployed_only_when_all_three_are_available() {
    let scene = Scene::new("three").await;
    let team = &scene.team;
    let three = version("1.4.0").and(workload("server")).and(workload("late").ready_after(6));
    scene.define(&[three]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.4.0").await;
    let waiting = |message: &str| message.contains("Deployment/late: 0 of 1");
    team.until("numaflow", "waits for the late one alone", |r| {
        r.status.as_ref().is_some_and(|s| {
            s.phase.as_str() == "Pending" && waiting(&s.message) && !s.message.contains("Deployment/server")
        })
    })
    .await;
    stays("Pending while one of three is late", Duration::from_secs(2), async || {
        let rollout = team.rollout("numaflow").await;
        let pending = rollout.status.as_ref().is_some_and(|s| s.phase.as_str() == "Pending");
        if pending { Ok(()) } else { Err(describe(&rollout)) }
    })
    .await;
    team.deployed("numaflow", "1.4.0").await;
    team.is_true("numaflow", "ChildResourcesHealthy").await;
    assert_eq!(team.deployments().await, ["late", "numaflow-controller", "server"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a06_one_of_three_deployments_that_never_gets_ready_is_named_and_the_old_version_comes_back() {
    let scene = Scene::new("sibling").await;
    let team = &scene.team;
    let bad = version("1.4.0").not_isolated().and(workload("server")).and(workload("webhook").behaviour("never-ready"));
    let crashing = workload("webhook").behaviour("crash-loop").crash_after(1).restart_after(60);
    let crashes = version("1.5.0").not_isolated().and(workload("server")).and(crashing);
    scene.define(&[version("1.3.3"), bad, crashes]).await;
    let _operator = scene.operator().await;
    let assessment = json!({"deadline": "6s", "window": "3s"});
    let spec = json!({"controller": {"version": "1.3.3"}, "strategy": {"assessment": assessment}});
    team.install_with("numaflow", spec).await;
    team.deployed("numaflow", "1.3.3").await;
    for version in ["1.4.0", "1.5.0"] {
        team.set_version("numaflow", version).await;
        let rollout =
            team.failed("numaflow", &["Deployment/webhook", version, "rolled back to version \"1.3.3\""]).await;
        let status = rollout.status.clone().unwrap();
        assert!(!status.message.contains("Deployment/server"), "{}", status.message);
        let attempt = status.last_attempt.unwrap();
        assert_eq!((attempt.result.as_str(), attempt.stage.as_str()), ("Failed", "Confirm"));
        assert_eq!(status.promoted.unwrap().version, "1.3.3");
        team.is_true("numaflow", "ChildResourcesHealthy").await;
        assert_eq!(team.deployments().await, ["numaflow-controller"]);
        assert_eq!(team.one_child("numaflow").await.spec.version, "1.3.3");
        team.event("NumaflowControllerRollout", "numaflow", &["RolledBack", "Deployment/webhook"]).await;
    }
}
