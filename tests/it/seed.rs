//! The story that started this: a version that cannot be had, and the way back.

use std::time::{Duration, Instant};

use numaplane::api::{NumaflowControllerRollout, Phase};

use crate::support::{
    Scene, Team,
    definitions::Version,
    eventually,
    team::{condition, describe, looked_at},
    version,
};

/// Longest time until the first sign of a reaction, on a machine that runs other tests at the same time.
const REACTION: Duration = Duration::from_secs(10);

/// Waits for the first sign that the operator has noticed something, and tells how long that took.
async fn reaction(team: &Team, what: &str, noticed: impl Fn(&NumaflowControllerRollout) -> bool) {
    let start = Instant::now();
    eventually(what, async || {
        let rollout = team.rollout("numaflow").await;
        if noticed(&rollout) { Ok(()) } else { Err(describe(&rollout)) }
    })
    .await;
    let took = start.elapsed();
    println!("{what}: noticed after {} ms", took.as_millis());
    assert!(took < REACTION, "{what}: noticed after {took:?}");
}

/// Uid and generation of the Deployment, and the pods: what must not change while nothing is attempted.
async fn what_runs(team: &Team) -> (String, i64, Vec<(String, String)>) {
    let metadata = team.deployment("numaflow-controller").await.metadata;
    (metadata.uid.unwrap_or_default(), metadata.generation.unwrap_or_default(), team.pods().await)
}

fn defined() -> [Version; 2] {
    [version("1.3.3"), version("1.4.6").controller(|w| w.container_named("main"))]
}

#[tokio::test(flavor = "multi_thread")]
async fn a01_a_version_whose_container_has_another_name_is_deployed_and_so_is_the_way_back() {
    let scene = Scene::new("seed").await;
    let team = &scene.team;
    scene.define(&defined()).await;
    let _operator = scene.operator().await;

    team.install("numaflow", "1.3.3").await;
    reaction(team, "an installation", looked_at).await;
    team.deployed("numaflow", "1.3.3").await;
    let (uid, ..) = what_runs(team).await;

    team.set_version("numaflow", "1.4.6").await;
    reaction(team, "another version", looked_at).await;
    team.deployed("numaflow", "1.4.6").await;
    let containers = team.deployment("numaflow-controller").await.spec.unwrap().template.spec.unwrap().containers;
    assert_eq!(containers.iter().map(|c| c.name.as_str()).collect::<Vec<_>>(), ["main"]);

    team.set_version("numaflow", "1.3.3").await;
    reaction(team, "the way back", looked_at).await;
    let rollout = team.deployed("numaflow", "1.3.3").await;
    let status = rollout.status.unwrap();
    assert_eq!(status.last_attempt.map(|a| a.result).as_deref(), Some("Succeeded"));
    assert_eq!(what_runs(team).await.0, uid, "the Deployment was changed in place");
    let child = team.one_child("numaflow").await;
    assert_eq!((child.metadata.name.as_deref(), child.spec.version.as_str()), (Some("numaflow-2"), "1.3.3"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a01_an_undefined_version_is_refused_with_those_there_are_and_nothing_that_runs_is_touched() {
    let scene = Scene::new("undefined").await;
    let team = &scene.team;
    scene.define(&defined()).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let before = what_runs(team).await;

    team.set_version("numaflow", "9.9.9").await;
    reaction(team, "an undefined version", looked_at).await;
    let rollout = team.failed("numaflow", &["\"9.9.9\" is not defined", "1.3.3, 1.4.6"]).await;
    let attempt = rollout.status.clone().and_then(|s| s.last_attempt).unwrap();
    assert_eq!(
        (attempt.version.as_str(), attempt.result.as_str(), attempt.stage.as_str(), attempt.reason.as_str()),
        ("9.9.9", "Failed", "Resolve", "DefinitionNotFound")
    );
    assert_eq!(condition(&rollout, "Stalled").map(|c| c.status).as_deref(), Some("True"));
    assert_eq!(condition(&rollout, "Ready").map(|c| c.status).as_deref(), Some("False"));
    assert!(condition(&rollout, "Reconciling").is_none());
    team.event("NumaflowControllerRollout", "numaflow", &["UpgradeFailed", "9.9.9"]).await;
    assert_eq!(what_runs(team).await, before);

    team.set_version("numaflow", "1.3.3").await;
    reaction(team, "the way back from an undefined version", looked_at).await;
    team.deployed("numaflow", "1.3.3").await;
    let rollout = team.is_true("numaflow", "Ready").await;
    assert!(condition(&rollout, "Stalled").is_none());
    assert_eq!(what_runs(team).await, before, "nothing was ever wrong with what runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a05d_a_version_is_deployed_as_soon_as_it_is_defined_without_a_touch_of_the_rollout() {
    let scene = Scene::new("late").await;
    let team = &scene.team;
    let _operator = scene.operator().await;
    // Not even a ConfigMap is there.
    team.install("numaflow", "1.3.3").await;
    let rollout = team.failed("numaflow", &["\"1.3.3\" is not defined", "no ConfigMap is labelled"]).await;
    assert!(rollout.status.is_some_and(|s| s.promoted.is_none() && s.pause_request.is_none()));

    let fine =
        |rollout: &NumaflowControllerRollout| rollout.status.as_ref().is_some_and(|s| s.phase != Phase::failed());
    scene.define(&[version("1.3.3")]).await;
    reaction(team, "the first definition", fine).await;
    let first = team.deployed("numaflow", "1.3.3").await;

    team.set_version("numaflow", "1.4.6").await;
    let asked = team.failed("numaflow", &["\"1.4.6\" is not defined"]).await;
    scene.define(&defined()).await;
    reaction(team, "the missing definition", fine).await;
    let rollout = team.deployed("numaflow", "1.4.6").await;
    assert_eq!(rollout.metadata.generation, asked.metadata.generation);
    assert_eq!(rollout.metadata.uid, first.metadata.uid);
}
