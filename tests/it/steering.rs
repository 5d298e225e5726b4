//! How users step in: forcePromote, the label, a pause, another mind, at every stage.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use kube::ResourceExt;
use numaplane::api::{NumaflowController, NumaflowControllerRollout};
use serde_json::{Value, json};

use crate::{
    promotion::{no_copies, quick, what_runs},
    recovery::one_promoted,
    support::{
        Invariant, Scene, Team, eventually,
        faults::Faults,
        stays,
        team::{condition, state},
        version,
    },
};

/// A spec whose deadline no test waits for.
fn patient(version: &str) -> Value {
    json!({
        "controller": {"version": version},
        "strategy": {"assessment": {"deadline": "10m", "window": "1s", "interval": "1s"}},
    })
}

/// Waits until an attempt at this version is in this stage.
async fn stage(team: &Team, version: &str, stage: &str) -> NumaflowControllerRollout {
    team.until("numaflow", &format!("version {version:?} is in {stage}"), |r| {
        let upgrade = r.status.as_ref().and_then(|s| s.upgrade.as_ref());
        upgrade.is_some_and(|u| u.version == version && u.stage == stage)
    })
    .await
}

/// Waits until the copy of the version that proves itself is there.
async fn copy_is_there(team: &Team) {
    eventually("the copy is there", async || {
        let all = team.deployments().await;
        if all.iter().any(|n| n.contains("-x-")) { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
}

/// One good version that runs, others that are good, and one that never gets ready.
async fn scene(name: &str) -> (Scene, crate::support::operator::Running) {
    let scene = Scene::new(name).await;
    let stuck = version("2.0.0").controller(|w| w.behaviour("never-ready"));
    scene.define(&[version("1.4.0"), version("1.5.0"), version("1.6.0"), stuck]).await;
    let operator = scene.operator().await;
    scene.team.install_with("numaflow", patient("1.4.0")).await;
    scene.team.deployed("numaflow", "1.4.0").await;
    (scene, operator)
}

#[tokio::test(flavor = "multi_thread")]
async fn b04_going_back_during_the_assessment_is_quiet_and_at_once() {
    let (scene, _operator) = scene("quiet").await;
    let team = &scene.team;
    let before = what_runs(team).await;
    team.set_version("numaflow", "2.0.0").await;
    stage(team, "2.0.0", "Verify").await;
    copy_is_there(team).await;
    let began = std::time::Instant::now();
    team.set_version("numaflow", "1.4.0").await;
    let rollout = team.deployed("numaflow", "1.4.0").await;
    println!("back after {:?}", began.elapsed());
    assert_eq!(rollout.status.as_ref().and_then(|s| s.name_count), Some(1), "no new child");
    assert!(condition(&rollout, "Stalled").is_none());
    assert_eq!(what_runs(team).await, before);
    assert_eq!(team.one_child("numaflow").await.name_any(), "numaflow-0");
    no_copies(team).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b04_going_back_after_a_failure_clears_it_and_touches_nothing() {
    let (scene, _operator) = scene("cleared").await;
    let team = &scene.team;
    let before = what_runs(team).await;
    let deadline = json!({"spec": {"strategy": {"assessment": {"deadline": "2s"}}}});
    team.edit::<NumaflowControllerRollout>("numaflow", deadline).await;
    team.set_version("numaflow", "2.0.0").await;
    team.failed("numaflow", &["was not healthy within 2s"]).await;
    team.set_version("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;
    let rollout = team.is_true("numaflow", "Ready").await;
    assert!(condition(&rollout, "Stalled").is_none());
    assert_eq!(rollout.status.and_then(|s| s.name_count), Some(1), "no new child");
    assert_eq!(what_runs(team).await, before);
    team.one_child("numaflow").await;
    no_copies(team).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b05_of_several_changes_the_last_is_assessed_from_zero_and_one_child_at_a_time_proves_itself() {
    let scene = Scene::new("changes").await;
    let team = &scene.team;
    scene.define(&[version("1.4.0"), version("1.5.0"), version("1.6.0"), version("1.7.0")]).await;
    let _operator = scene.operator().await;
    let mut spec = patient("1.4.0");
    spec["strategy"]["assessment"]["window"] = json!("6s");
    team.install_with("numaflow", spec).await;
    team.deployed("numaflow", "1.4.0").await;
    let never_two = Invariant::watch("never two promoted children", team.api(), one_promoted).await;
    let one_at_a_time = Invariant::watch("one child at a time proves itself", team.api(), |children| {
        let upgrading: Vec<_> =
            children.iter().filter(|(_, c): &(_, &NumaflowController)| state(c) == "upgrading").collect();
        if upgrading.len() > 1 { Err(format!("{upgrading:?}")) } else { Ok(()) }
    })
    .await;
    team.set_version("numaflow", "1.5.0").await;
    team.until("numaflow", "1.5.0 is in its window", |r| {
        let upgrade = r.status.as_ref().and_then(|s| s.upgrade.as_ref());
        upgrade.and_then(|u| u.assessment.as_ref()).is_some_and(|a| a.healthy_since.is_some())
    })
    .await;
    team.set_version("numaflow", "1.6.0").await;
    stage(team, "1.6.0", "Verify").await;
    team.set_version("numaflow", "1.7.0").await;
    let rollout = team.deployed("numaflow", "1.7.0").await;
    let last = rollout.status.and_then(|s| s.last_attempt).unwrap();
    let took = last.finished_at.unwrap().0.duration_since(last.started_at.unwrap().0);
    assert!(took.as_secs() >= 6, "a whole window of its own: {took:?}");
    assert_eq!(team.one_child("numaflow").await.name_any(), "numaflow-3");
    no_copies(team).await;
    never_two.held();
    one_at_a_time.held();
}

#[tokio::test(flavor = "multi_thread")]
async fn b06_forced_versions_skip_the_assessment_once_and_a_revert_wins() {
    let (scene, _operator) = scene("forced").await;
    let team = &scene.team;
    let force = async |on: bool| {
        let edit = json!({"spec": {"strategy": {"forcePromote": on}}});
        team.edit::<NumaflowControllerRollout>("numaflow", edit).await
    };
    // On a rollout at rest it does nothing.
    let before = what_runs(team).await;
    force(true).await;
    team.deployed("numaflow", "1.4.0").await;
    assert_eq!(what_runs(team).await, before);
    // The next attempt goes without Verify and says so, in the end too.
    team.set_version("numaflow", "1.5.0").await;
    let rollout = team.deployed("numaflow", "1.5.0").await;
    let last = rollout.status.and_then(|s| s.last_attempt).unwrap();
    assert!(last.message.contains("without Verify: spec.strategy.forcePromote"), "{}", last.message);
    // Left as it is, it counts for no other.
    team.set_version("numaflow", "1.6.0").await;
    stage(team, "1.6.0", "Verify").await;
    team.deployed("numaflow", "1.6.0").await;
    // In the middle of an assessment, of a version that never gets ready.
    force(false).await;
    team.set_version("numaflow", "2.0.0").await;
    stage(team, "2.0.0", "Verify").await;
    force(true).await;
    stage(team, "2.0.0", "Confirm").await;
    team.set_version("numaflow", "1.6.0").await;
    team.deployed("numaflow", "1.6.0").await;
    team.one_child("numaflow").await;
    no_copies(team).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_force_promote_label_on_the_child_ends_its_assessment() {
    let scene = Scene::new("label").await;
    let team = &scene.team;
    scene.define(&[version("1.4.0"), version("1.5.0")]).await;
    let _operator = scene.operator().await;
    let mut spec = patient("1.4.0");
    spec["strategy"]["assessment"]["window"] = json!("0s");
    team.install_with("numaflow", spec).await;
    team.deployed("numaflow", "1.4.0").await;
    let window = json!({"spec": {"strategy": {"assessment": {"window": "1h"}}}});
    team.edit::<NumaflowControllerRollout>("numaflow", window).await;
    team.set_version("numaflow", "1.5.0").await;
    stage(team, "1.5.0", "Verify").await;
    eventually("the child is there", async || {
        let child = team.find::<NumaflowController>("numaflow-1").await;
        child.map(drop).ok_or_else(|| "no".to_owned())
    })
    .await;
    let label = json!({"metadata": {"labels": {"numaplane.numaproj.io/force-promote": "true"}}});
    team.edit::<NumaflowController>("numaflow-1", label).await;
    stage(team, "1.5.0", "Confirm").await;
    // Confirm is not skipped: without Verify the window is spent there.
    let window = json!({"spec": {"strategy": {"assessment": {"window": "1s"}}}});
    team.edit::<NumaflowControllerRollout>("numaflow", window).await;
    team.deployed("numaflow", "1.5.0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b06_a_pause_stops_the_clocks_of_an_assessment_and_not_the_way_back() {
    let scene = Scene::new("clocks").await;
    let team = &scene.team;
    scene.define(&[version("1.4.0"), version("2.0.0").controller(|w| w.behaviour("never-ready"))]).await;
    let _operator = scene.operator().await;
    team.install_with("numaflow", quick("1.4.0")).await;
    team.deployed("numaflow", "1.4.0").await;
    let pause = async |paused: bool| {
        team.edit::<NumaflowControllerRollout>("numaflow", json!({"spec": {"paused": paused}})).await
    };
    team.set_version("numaflow", "2.0.0").await;
    stage(team, "2.0.0", "Verify").await;
    pause(true).await;
    team.until("numaflow", "says that it stands still", |r| {
        r.status.as_ref().is_some_and(|s| s.message.contains("stands still"))
    })
    .await;
    // Longer than the deadline of eight seconds.
    stays("it stands still", Duration::from_secs(10), async || {
        let status = team.status("numaflow").await;
        let stage = status.upgrade.map(|u| u.stage).unwrap_or_default();
        if status.phase.as_str() == "Pending" && stage == "Verify" { Ok(()) } else { Err(status.message) }
    })
    .await;
    pause(false).await;
    let rollout = team.failed("numaflow", &["was not healthy within 8s"]).await;
    let attempts = rollout.status.and_then(|s| s.name_count);
    // Pausing and resuming made no other attempt of it.
    stays("no other attempt", Duration::from_secs(2), async || {
        let status = team.status("numaflow").await;
        if status.name_count == attempts && status.upgrade.is_none() { Ok(()) } else { Err(status.message) }
    })
    .await;
    pause(true).await;
    team.set_version("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_spec_is_followed_from_every_stage() {
    // Where the attempt is when the user thinks again, and what it was then.
    for (at, forced) in [("Verify", false), ("Confirm", true)] {
        for next in ["1.4.0", "1.6.0"] {
            let (scene, _operator) = scene(&format!("from-{}", at.to_lowercase())).await;
            let team = &scene.team;
            let never_two = Invariant::watch("never two promoted children", team.api(), one_promoted).await;
            let edit = json!({"spec": {
                "controller": {"version": "2.0.0"}, "strategy": {"forcePromote": forced},
            }});
            team.edit::<NumaflowControllerRollout>("numaflow", edit).await;
            stage(team, "2.0.0", at).await;
            team.set_version("numaflow", next).await;
            team.deployed("numaflow", next).await;
            team.one_child("numaflow").await;
            no_copies(team).await;
            never_two.held();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_spec_is_followed_while_the_last_version_is_coming_back() {
    let (scene, _operator) = scene("from-roll-back").await;
    let team = &scene.team;
    let edit = json!({"spec": {
        "controller": {"version": "2.0.0"},
        "strategy": {"forcePromote": true, "assessment": {"deadline": "3s"}},
    }});
    team.edit::<NumaflowControllerRollout>("numaflow", edit).await;
    stage(team, "2.0.0", "RollBack").await;
    team.set_version("numaflow", "1.6.0").await;
    team.deployed("numaflow", "1.6.0").await;
    team.one_child("numaflow").await;
    no_copies(team).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a13_children_deleted_during_the_assessment_come_back_and_it_goes_on() {
    for victims in [vec!["numaflow-0"], vec!["numaflow-1"], vec!["numaflow-0", "numaflow-1"]] {
        let (scene, _operator) = scene("victims").await;
        let team = &scene.team;
        let before = what_runs(team).await;
        let edit = json!({"spec": {
            "controller": {"version": "1.5.0"}, "strategy": {"assessment": {"window": "5s"}},
        }});
        team.edit::<NumaflowControllerRollout>("numaflow", edit).await;
        stage(team, "1.5.0", "Verify").await;
        copy_is_there(team).await;
        for victim in &victims {
            team.delete::<NumaflowController>(victim).await;
        }
        eventually("both children are there again", async || {
            let names: Vec<_> = team.children("numaflow").await.iter().map(|c| (c.name_any(), state(c))).collect();
            let expected = [("numaflow-0".into(), "promoted".into()), ("numaflow-1".into(), "upgrading".into())];
            if names == expected { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await;
        assert_eq!(what_runs(team).await, before, "{victims:?}");
        team.deployed("numaflow", "1.5.0").await;
        team.one_child("numaflow").await;
        no_copies(team).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b01_a_running_version_that_broke_by_itself_does_not_hold_back_a_good_one() {
    let (scene, _operator) = scene("broken").await;
    let team = &scene.team;
    // Its pods are replaced by some that never get ready, as when a secret is gone.
    let pods = team.all::<k8s_openapi::api::core::v1::Pod>().await;
    for pod in pods {
        let broken = json!({"metadata": {"labels": {"numaplane.test/behaviour": "never-ready"}}});
        team.edit::<k8s_openapi::api::core::v1::Pod>(&pod.name_any(), broken).await;
    }
    team.until("numaflow", "notices", |r| condition(r, "Ready").is_some_and(|c| c.reason == "Unhealthy")).await;
    team.set_version("numaflow", "1.5.0").await;
    team.deployed("numaflow", "1.5.0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_cleaned_up_holds_up_no_version_and_goes_when_it_can() {
    let scene = Scene::new("clean-up").await;
    let team = &scene.team;
    let stuck = version("2.0.0").controller(|w| w.behaviour("never-ready"));
    scene.define(&[version("1.4.0"), version("1.5.0"), version("1.6.0"), stuck]).await;
    let refuses = Arc::new(AtomicBool::new(true));
    let faults = Faults::default();
    let on = refuses.clone();
    // As an admission policy does: nothing of a copy may be deleted, its lease neither, and no child.
    faults.answer(422, usize::MAX, move |write| {
        let ours = write.about("-x-") || write.about("/numaflowcontrollers/");
        on.load(Ordering::Relaxed) && write.method == http::Method::DELETE && ours
    });
    let _operator = scene.operator_behind(&faults).await;
    team.install_with("numaflow", quick("1.4.0")).await;
    team.deployed("numaflow", "1.4.0").await;
    team.set_version("numaflow", "1.5.0").await;
    team.deployed("numaflow", "1.5.0").await;
    let before = what_runs(team).await;
    team.set_version("numaflow", "2.0.0").await;
    let rollout = team.failed("numaflow", &["version \"2.0.0\" was not healthy within 8s"]).await;
    assert_eq!(rollout.status.and_then(|s| s.last_attempt).map(|a| a.result).as_deref(), Some("Failed"));
    assert_eq!(what_runs(team).await, before);
    team.set_version("numaflow", "1.6.0").await;
    team.deployed("numaflow", "1.6.0").await;
    assert!(team.children("numaflow").await.len() > 1, "they could not be deleted");
    refuses.store(false, Ordering::Relaxed);
    team.one_child("numaflow").await;
    no_copies(team).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_cannot_be_written_is_told_and_holds_up_no_other_spec() {
    let scene = Scene::new("no-status").await;
    let team = &scene.team;
    scene.define(&[version("1.4.0"), version("1.5.0")]).await;
    let refuses = Arc::new(AtomicBool::new(false));
    let faults = Faults::default();
    let on = refuses.clone();
    faults.answer(422, usize::MAX, move |write| {
        on.load(Ordering::Relaxed) && write.about("/numaflowcontrollers/") && write.about("/status")
    });
    let _operator = scene.operator_behind(&faults).await;
    team.install_with("numaflow", quick("1.4.0")).await;
    team.deployed("numaflow", "1.4.0").await;
    let before = what_runs(team).await;
    refuses.store(true, Ordering::Relaxed);
    team.set_version("numaflow", "1.5.0").await;
    team.until("numaflow", "says what is refused", |r| {
        let status = r.status.clone().unwrap_or_default();
        status.phase.as_str() == "Failed"
            && status.message.contains("refused by the server, retrying: NumaflowController")
    })
    .await;
    assert_eq!(what_runs(team).await, before);
    refuses.store(false, Ordering::Relaxed);
    team.deployed("numaflow", "1.5.0").await;
    no_copies(team).await;
}
