//! The way back from versions that fail, each in its own manner: setting a good version always works.

use serde_json::{Value, json};

use crate::support::{Invariant, Scene, Version, numaflow, team::condition, version, workload};

/// A spec with a short deadline.
fn impatient(version: &str) -> Value {
    json!({"controller": {"version": version}, "strategy": {"assessment": {"deadline": "4s"}}})
}

/// A version whose Deployment the API server refuses.
fn rejected(name: &str) -> Version {
    let template = json!({"spec": {"template": {"spec": {"containers": [{"name": "No Name", "image": "x"}]}}}});
    version(name).controller(|w| w.with(template))
}

#[tokio::test(flavor = "multi_thread")]
async fn a01_the_old_version_comes_back_after_any_failure() {
    let scene = Scene::new("back").await;
    let team = &scene.team;
    let controller =
        |name: &str, how: fn(crate::support::Workload) -> crate::support::Workload| version(name).controller(how);
    let failing = [
        ("2.0.0", controller("2.0.0", |w| w.behaviour("never-ready")), "Deployment/numaflow-controller-x-"),
        (
            "2.0.1",
            controller("2.0.1", |w| w.image("registry.invalid/numaflow:v2")),
            "Deployment/numaflow-controller-x-",
        ),
        (
            "2.0.2",
            controller("2.0.2", super::support::definitions::Workload::unschedulable),
            "Deployment/numaflow-controller-x-",
        ),
        ("2.0.3", rejected("2.0.3"), "refused by the server"),
    ];
    let all = [version("1.3.3")].into_iter().chain(failing.iter().map(|(_, version, _)| version.clone()));
    scene.define(&all.collect::<Vec<_>>()).await;
    let _operator = scene.operator().await;
    team.install_with("numaflow", impatient("1.3.3")).await;
    team.deployed("numaflow", "1.3.3").await;
    let uid = team.deployment("numaflow-controller").await.metadata.uid;
    for (version, _, words) in &failing {
        team.set_version("numaflow", version).await;
        let rollout = team.failed("numaflow", &[words]).await;
        let status = rollout.status.clone().unwrap();
        assert!(status.pause_request.is_none_or(|r| !r.active), "nobody is asked to pause");
        assert_eq!(status.promoted.map(|p| p.version).as_deref(), Some("1.3.3"));
        team.set_version("numaflow", "1.3.3").await;
        team.deployed("numaflow", "1.3.3").await;
        let rollout = team.is_true("numaflow", "Ready").await;
        assert!(condition(&rollout, "Stalled").is_none());
        assert_eq!(team.deployment("numaflow-controller").await.metadata.uid, uid);
        team.one_child("numaflow").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a01_setting_the_old_version_does_not_wait_for_the_bad_one_to_fail() {
    let scene = Scene::new("early").await;
    let team = &scene.team;
    let stuck = version("2.0.0").not_isolated().controller(|w| w.behaviour("never-ready"));
    scene.define(&[version("1.3.3"), stuck]).await;
    let _operator = scene.operator_with(|s| s.defaults.deadline = std::time::Duration::from_mins(10)).await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    team.set_version("numaflow", "2.0.0").await;
    team.until("numaflow", "is being judged", |r| {
        r.status.as_ref().and_then(|s| s.upgrade.as_ref()).is_some_and(|u| u.stage == "Confirm")
    })
    .await;
    team.set_version("numaflow", "1.3.3").await;
    let rollout = team.deployed("numaflow", "1.3.3").await;
    assert_eq!(rollout.status.and_then(|s| s.last_attempt).map(|a| a.result).as_deref(), Some("Superseded"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a01_a_failed_version_is_tried_again_when_asked_for_again_or_by_annotation_and_not_by_itself() {
    let scene = Scene::new("again").await;
    let team = &scene.team;
    let bad = version("2.0.0").not_isolated().controller(|w| w.behaviour("never-ready"));
    scene.define(&[version("1.3.3"), bad]).await;
    let operator = scene.operator().await;
    team.install_with("numaflow", impatient("1.3.3")).await;
    team.deployed("numaflow", "1.3.3").await;
    let attempts = async || team.status("numaflow").await.name_count;
    team.set_version("numaflow", "2.0.0").await;
    team.failed("numaflow", &["2.0.0"]).await;
    assert_eq!(attempts().await, Some(1));
    // A new process has no other opinion.
    operator.stop().await;
    let _operator = scene.operator().await;
    team.failed("numaflow", &["2.0.0"]).await;
    assert_eq!(attempts().await, Some(1));
    team.edit::<numaplane::api::NumaflowControllerRollout>(
        "numaflow",
        json!({"metadata": {"annotations": {"numaplane.numaproj.io/retry": "once more"}}}),
    )
    .await;
    team.until("numaflow", "is attempted again", |r| r.status.as_ref().is_some_and(|s| s.name_count == Some(2))).await;
    team.failed("numaflow", &["2.0.0"]).await;
    for version in ["1.3.3", "2.0.0"] {
        team.set_version("numaflow", version).await;
        match version {
            "1.3.3" => team.deployed("numaflow", version).await,
            _ => team.failed("numaflow", &["2.0.0", "rolled back"]).await,
        };
    }
    assert_eq!(attempts().await, Some(3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a02_a_first_version_that_fails_is_reported_and_replaced_by_any_good_one() {
    let scene = Scene::new("first").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    scene
        .define(&[rejected("1.0.0"), version("1.1.0").controller(|w| w.behaviour("never-ready")), version("1.3.3")])
        .await;
    let _operator = scene.operator().await;
    team.install_with("numaflow", impatient("1.0.0")).await;
    let rollout = team.failed("numaflow", &["refused by the server", "Deployment", "No Name"]).await;
    let status = rollout.status.unwrap();
    assert!(status.promoted.is_none() && status.pause_request.is_none_or(|r| !r.active));
    assert_eq!(status.last_attempt.map(|a| a.result).as_deref(), Some("Blocked"));
    // A pipeline that is made now is nobody's business.
    numaflow::create(team, "Pipeline", "simple", "").await;

    team.set_version("numaflow", "1.1.0").await;
    team.until("numaflow", "says that it does not come up", |r| {
        r.status
            .as_ref()
            .is_some_and(|s| s.phase.as_str() == "Failed" && s.message.contains("was not healthy within 4s"))
    })
    .await;
    team.set_version("numaflow", "1.3.3").await;
    let rollout = team.deployed("numaflow", "1.3.3").await;
    assert!(rollout.status.and_then(|s| s.pause_request).is_none_or(|r| !r.active));
    team.one_child("numaflow").await;
    let pipeline = numaflow::api(team, "Pipeline").get("simple").await.unwrap();
    assert_eq!(pipeline.metadata.generation, Some(1), "the pipeline was not touched");
}

#[tokio::test(flavor = "multi_thread")]
async fn a02_a_first_version_that_comes_up_late_is_deployed_after_all() {
    let scene = Scene::new("slow").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3").and(workload("slow").ready_after(8))]).await;
    let _operator = scene.operator().await;
    team.install_with("numaflow", impatient("1.3.3")).await;
    team.until("numaflow", "is Failed at first", |r| r.status.as_ref().is_some_and(|s| s.phase.as_str() == "Failed"))
        .await;
    team.deployed("numaflow", "1.3.3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_mind_end_at_the_last_one_and_there_are_never_two_promoted_children() {
    let scene = Scene::new("mind").await;
    let team = &scene.team;
    let slow = version("2.0.0").controller(|w| w.ready_after(3));
    scene.define(&[version("1.3.3"), slow, version("3.0.0"), version("4.0.0")]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let never_two = Invariant::watch("never two promoted children", team.api(), one_promoted).await;
    for version in ["2.0.0", "3.0.0", "2.0.0", "9.9.9", "1.3.3", "4.0.0", "2.0.0", "3.0.0"] {
        let asked = team.set_version("numaflow", version).await;
        team.until("numaflow", "has looked", |r| {
            r.status.as_ref().map(|s| s.observed_generation) >= asked.metadata.generation
        })
        .await;
    }
    team.deployed("numaflow", "3.0.0").await;
    assert_eq!(team.one_child("numaflow").await.spec.version, "3.0.0");
    never_two.held();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_rollout_starts_nothing_and_finishes_what_it_began() {
    let scene = Scene::new("paused").await;
    let team = &scene.team;
    scene
        .define(&[version("1.3.3"), version("1.4.0").not_isolated().controller(|w| w.ready_after(3)), version("1.5.0")])
        .await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    team.set_version("numaflow", "1.4.0").await;
    team.until("numaflow", "is being judged", |r| {
        r.status.as_ref().and_then(|s| s.upgrade.as_ref()).is_some_and(|u| u.stage == "Confirm")
    })
    .await;
    let pause = async |paused: bool| {
        team.edit::<numaplane::api::NumaflowControllerRollout>("numaflow", json!({"spec": {"paused": paused}})).await
    };
    pause(true).await;
    team.deployed("numaflow", "1.4.0").await;
    team.set_version("numaflow", "1.5.0").await;
    team.until("numaflow", "says that it is paused", |r| {
        r.status.as_ref().is_some_and(|s| s.phase.as_str() == "Pending" && s.message.contains("spec.paused"))
    })
    .await;
    assert_eq!(team.one_child("numaflow").await.spec.version, "1.4.0");
    pause(false).await;
    team.deployed("numaflow", "1.5.0").await;
}

/// At most one child is promoted.
pub fn one_promoted(
    children: &std::collections::BTreeMap<String, numaplane::api::NumaflowController>,
) -> Result<(), String> {
    let promoted: Vec<_> =
        children.iter().filter(|(_, c)| crate::support::team::state(c) == "promoted").map(|(name, _)| name).collect();
    if promoted.len() > 1 { Err(format!("{promoted:?}")) } else { Ok(()) }
}
