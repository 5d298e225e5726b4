//! Scenarios of the isolated copy: what proves itself, what does not, and what comes in between.

use std::time::Duration;

use super::model::Model;
use crate::api::LABEL_UPGRADE_STATE;

/// A rollout at 1.0, confirmed; all versions can be isolated.
pub fn deployed() -> Model {
    let mut model = Model::isolatable();
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("1.0")));
    model
}

pub fn stage(model: &Model) -> &str {
    model.stage().unwrap_or_default()
}

/// An upgrade to 2.0 whose copy is up and in its window.
pub fn in_window() -> Model {
    let mut model = deployed();
    model.set_version("2.0");
    model.settle();
    model.play_workloads();
    model.settle();
    assert_eq!(stage(&model), "Verify");
    model
}

#[test]
fn a_good_version_proves_itself_beside_production_and_takes_over_once() {
    let mut model = deployed();
    let before = model.production();
    model.set_version("2.0");
    model.settle();
    assert_eq!((stage(&model), model.phase()), ("Verify", "Pending"));
    assert_eq!(model.copies().len(), 3, "{:?}", model.copies());
    assert_eq!(model.production(), before);
    model.play_workloads();
    model.settle();
    model.pass(Duration::from_secs(59));
    model.settle();
    assert_eq!((stage(&model), model.production()), ("Verify", before));
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
    assert_eq!(model.copies(), Vec::<String>::new());
    assert_eq!(model.leases.keys().collect::<Vec<_>>(), ["numaflow-controller-lock"], "the lease of the copy is gone");
    assert_eq!(model.children.len(), 1);
    assert!(model.children["numaflow-controller-1"].status.as_ref().unwrap().isolated.is_none());
}

#[test]
fn b02_a_version_that_never_comes_up_fails_at_the_deadline_and_production_is_not_touched() {
    let mut model = deployed();
    let (before, steps) = (model.production(), model.log.len());
    model.set_version("3.0-broken");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Failed", Some("1.0")));
    assert_eq!(model.result(), ("Failed", "Verify", "DeadlineExceeded"));
    assert!(model.message().contains("container main CrashLoopBackOff"), "{}", model.message());
    assert_eq!(model.production(), before);
    assert_eq!((model.copies().len(), model.children.len()), (0, 1));
    let touched: Vec<_> = model.log[steps..].iter().filter(|s| s.starts_with("Apply") && !s.contains("-x-")).collect();
    assert!(touched.is_empty(), "{touched:?}");
}

#[test]
fn b02_flapping_does_not_reset_the_deadline() {
    let mut model = deployed();
    model.set_version("2.0");
    model.settle();
    let start = model.now;
    // Healthy for forty seconds of a window of sixty, and then not for twenty; again and again.
    for round in 0..20 {
        for (healthy, seconds) in [(true, 40), (false, 20)] {
            model.play_workloads();
            if !healthy {
                let copies = model.live.values_mut().filter(|l| l.id.name.contains("-x-"));
                copies.for_each(|l| l.workload.iter_mut().for_each(|w| w.available = 0));
            }
            model.settle();
            model.pass(Duration::from_secs(seconds));
            model.settle();
        }
        if model.phase() == "Failed" {
            assert!(round >= 9, "not before the deadline");
            break;
        }
    }
    assert_eq!((model.phase(), model.promoted()), ("Failed", Some("1.0")));
    assert!(model.message().contains("healthy"), "{}", model.message());
    assert!(model.now.duration_since(start).as_secs() <= 10 * 60 + 60, "at the deadline, and one look");
}

#[test]
fn a14_success_comes_only_at_the_end_of_a_window_without_a_failure_in_it() {
    let mut model = in_window();
    model.pass(Duration::from_secs(50));
    let copies = model.live.values_mut().filter(|l| l.id.name.contains("-x-"));
    copies.for_each(|l| l.workload.iter_mut().for_each(|w| w.available = 0));
    model.settle();
    model.play_workloads();
    model.settle();
    model.pass(Duration::from_secs(50));
    model.settle();
    assert_eq!((stage(&model), model.promoted()), ("Verify", Some("1.0")), "100 s of health, but not in a row");
    model.pass(Duration::from_secs(15));
    model.run();
    assert_eq!(model.promoted(), Some("2.0"));
}

#[test]
fn a14_a_second_upgrade_inherits_no_times_and_a_first_installation_is_judged_in_place() {
    let mut model = in_window();
    model.pass(Duration::from_secs(50));
    model.settle();
    model.define("4.0", &["numaflow-controller"]);
    model.set_version("4.0");
    model.settle();
    model.play_workloads();
    model.settle();
    model.pass(Duration::from_secs(30));
    model.settle();
    assert_eq!((stage(&model), model.promoted()), ("Verify", Some("1.0")));
    let mut first = Model::isolatable();
    first.settle();
    assert_eq!(
        (stage(&first), first.copies().len()),
        ("Confirm", 0),
        "there is nothing beside which it could prove itself"
    );
}

#[test]
fn b01_a_running_version_that_is_broken_does_not_hold_back_a_good_one() {
    let mut model = deployed();
    let stuck: Vec<String> = model.live.values().filter_map(|l| l.applied.clone()).collect();
    model.broken.extend(stuck);
    model.play_workloads();
    model.settle();
    model.set_version("2.0");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
    // And both bad: an end, with one child, and no going to and fro.
    let stuck: Vec<String> = model.live.values().filter_map(|l| l.applied.clone()).collect();
    model.broken.extend(stuck);
    model.set_version("3.0-broken");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Failed", Some("2.0")));
    let steps = model.log.len();
    model.pass(Duration::from_hours(1));
    model.settle();
    assert_eq!((model.log.len(), model.children.len()), (steps, 1));
}

#[test]
fn b03_every_change_after_a_failure_is_a_fresh_attempt() {
    let mut model = deployed();
    model.set_version("3.0-broken");
    model.run();
    assert_eq!(model.phase(), "Failed");
    let count = |model: &Model| model.rollout.status.as_ref().unwrap().name_count;
    assert_eq!(count(&model), Some(1));
    model.set_version("1.0");
    model.run();
    assert_eq!((model.phase(), count(&model)), ("Deployed", Some(1)), "nothing had to be attempted");
    model.set_version("3.0-broken");
    model.run();
    assert_eq!((model.phase(), count(&model)), ("Failed", Some(2)));
    model.broken.clear();
    model.define_text("3.0-broken", &super::model::text("3.0-mended", &["numaflow-controller"]));
    model.run();
    assert_eq!((model.phase(), model.promoted(), count(&model)), ("Deployed", Some("3.0-broken"), Some(3)));
}

#[test]
fn b04_going_back_during_the_assessment_is_quiet_and_at_once() {
    let mut model = in_window();
    let before = model.production();
    let steps = model.log.len();
    model.set_version("1.0");
    model.settle();
    assert_eq!((model.phase(), stage(&model)), ("Deployed", ""));
    assert_eq!(model.production(), before);
    assert_eq!((model.copies().len(), model.children.len()), (0, 1));
    assert!(!model.log[steps..].iter().any(|s| s.starts_with("Apply") || s.starts_with("CreateChild")));
    assert_eq!(model.result().0, "Superseded");
    assert_eq!(model.condition("Stalled"), None);
    assert_eq!(model.condition("Ready"), Some(("True", "Deployed")));
}

#[test]
fn b05_only_the_last_of_several_changes_is_assessed_and_from_zero() {
    let mut model = in_window();
    for version in ["4.0", "5.0"] {
        model.define(version, &["numaflow-controller"]);
    }
    model.pass(Duration::from_secs(30));
    model.set_version("4.0");
    // The process dies in the middle of it.
    model.turn(5);
    model.set_version("5.0");
    model.settle();
    let states = model.children.values().map(|c| c.metadata.labels.as_ref().unwrap()[LABEL_UPGRADE_STATE].as_str());
    assert_eq!(states.filter(|s| *s == "upgrading").count(), 1);
    model.play_workloads();
    model.settle();
    model.pass(Duration::from_secs(55));
    model.settle();
    assert_eq!((stage(&model), model.promoted()), ("Verify", Some("1.0")));
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("5.0")));
    assert_eq!((model.copies().len(), model.children.len()), (0, 1));
}

#[test]
fn a_version_whose_pods_never_lead_is_not_promoted() {
    let mut model = deployed();
    model.leaderless.insert("2.0".into());
    model.set_version("2.0");
    model.run();
    assert_eq!(model.result(), ("Failed", "Verify", "DeadlineExceeded"));
    assert!(model.message().contains("lease numaflow-controller-lock-x-"), "{}", model.message());
}

#[test]
fn production_is_confirmed_only_when_a_new_pod_leads_and_an_old_process_may_keep_the_lease_for_a_while() {
    let mut model = in_window();
    model.pass(Duration::from_secs(61));
    model.settle();
    assert_eq!(stage(&model), "Confirm");
    model.lease_from = model.now + jiff::SignedDuration::from_secs(90);
    model.play_workloads();
    model.settle();
    assert_eq!(stage(&model), "Confirm");
    assert!(model.message().contains("numaflow-controller-lock"), "{}", model.message());
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
    assert!(model.now >= model.lease_from);
    // For ever is too long: the last version comes back.
    let mut model = in_window();
    model.pass(Duration::from_secs(61));
    model.settle();
    model.lease_from = jiff::Timestamp::MAX;
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Failed", Some("1.0")));
    assert_eq!(model.result().1, "Confirm");
}

#[test]
fn pausing_stops_the_clocks_of_an_assessment() {
    let mut model = deployed();
    model.set_version("3.0-broken");
    model.settle();
    model.pass(Duration::from_mins(5));
    model.edit(|spec| spec.paused = Some(true));
    model.settle();
    assert!(model.message().contains("spec.paused"), "{}", model.message());
    model.pass(Duration::from_hours(5));
    model.settle();
    assert_eq!((stage(&model), model.phase()), ("Verify", "Pending"));
    model.edit(|spec| spec.paused = None);
    model.settle();
    model.pass(Duration::from_mins(4));
    model.settle();
    assert_eq!(stage(&model), "Verify");
    model.pass(Duration::from_mins(2));
    model.settle();
    assert_eq!(
        (model.phase(), model.result().1),
        ("Failed", "Verify"),
        "{:?}",
        model.rollout.status.as_ref().unwrap().upgrade
    );
    // Going back needs no resumption.
    model.edit(|spec| spec.paused = Some(true));
    model.set_version("1.0");
    model.settle();
    assert_eq!(model.phase(), "Deployed");
}

#[test]
fn a13_children_deleted_during_the_assessment_come_back() {
    for victims in [
        vec!["numaflow-controller-0"],
        vec!["numaflow-controller-1"],
        vec!["numaflow-controller-0", "numaflow-controller-1"],
    ] {
        for version in ["2.0", "3.0-broken"] {
            let mut model = deployed();
            let before = model.production();
            model.set_version(version);
            model.settle();
            model.play_workloads();
            model.settle();
            for victim in &victims {
                model.children.remove(*victim);
            }
            if victims.contains(&"numaflow-controller-1") {
                // Its copy goes with it.
                model.live.retain(|id, _| !id.name.contains("-x-"));
            }
            model.settle();
            assert_eq!(model.production(), before, "{victims:?}");
            model.run();
            let expected = if version == "2.0" { ("Deployed", Some("2.0")) } else { ("Failed", Some("1.0")) };
            assert_eq!((model.phase(), model.promoted()), expected, "{victims:?}");
            assert_eq!((model.children.len(), model.copies().len()), (1, 0), "{victims:?} {version}");
            assert_eq!(model.leases.len(), 1, "{:?}", model.leases);
        }
    }
}

#[test]
fn a13_a_child_deleted_in_the_moment_in_which_its_copy_is_made_leaves_no_lease_behind() {
    // After every step of the turn in which the copy is made: its pods may lead by then.
    for steps in 0..16 {
        let mut model = deployed();
        model.set_version("2.0");
        model.turn(steps);
        let Some(child) = model.children.get("numaflow-controller-1") else { continue };
        let instance = crate::api::isolated_instance(child.metadata.uid.as_deref().unwrap());
        if model.copies().is_empty() {
            continue;
        }
        model.leases.insert(format!("numaflow-controller-lock-{instance}"), "a pod".into());
        for gone_as_well in [None, Some("numaflow-controller-0")] {
            let mut model = model.clone();
            model.children.remove("numaflow-controller-1");
            gone_as_well.and_then(|name| model.children.remove(name));
            model.live.retain(|id, _| !id.name.contains("-x-"));
            model.run();
            assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
            assert_eq!(model.leases.keys().collect::<Vec<_>>(), ["numaflow-controller-lock"], "after {steps}");
        }
    }
}

#[test]
fn a_deleted_rollout_drops_what_proves_itself_and_keeps_production_for_its_pipelines() {
    let mut model = in_window();
    let before = model.production();
    model.add_pipeline("p", "");
    model.delete();
    model.settle();
    assert!(!model.gone);
    assert_eq!((model.production(), model.copies().len(), model.children.len()), (before, 0, 1));
    model.dependants.objects.clear();
    model.settle();
    assert!(model.gone && model.live.is_empty());
}

#[test]
fn a05_an_edit_of_the_running_version_is_an_upgrade_like_any_other() {
    let mut model = deployed();
    model.define("1.0", &["numaflow-controller", "helper"]);
    model.settle();
    assert_eq!(stage(&model), "Verify");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("1.0")));
    assert!(model.uid_of("helper").is_some());
}

#[test]
fn what_the_server_refuses_of_the_running_version_says_nothing_about_the_one_that_comes() {
    let mut model = deployed();
    model.live.values_mut().for_each(|l| l.fields = "taken by somebody".into());
    model.refused.insert("numaflow:1.0".into());
    model.set_version("2.0");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")), "{}", model.message());
}

#[test]
fn b07_what_cannot_be_read_is_neither_a_yes_nor_a_no() {
    let mut model = in_window();
    model.unreadable = true;
    model.pass(Duration::from_secs(30));
    model.settle();
    model.unreadable = false;
    model.settle();
    let assessment = model.rollout.status.as_ref().unwrap().upgrade.as_ref().unwrap().assessment.clone().unwrap();
    assert_eq!((assessment.relapses, assessment.healthy_since.is_some()), (0, true), "no relapse");
    // For ever, in Verify: told, and not judged.
    model.unreadable = true;
    for _ in 0..20 {
        model.pass(Duration::from_mins(1));
        model.settle();
    }
    assert_eq!((stage(&model), model.phase()), ("Verify", "Failed"));
    assert_eq!(model.condition("Reconciling"), Some(("True", "NoAnswer")));
    model.unreadable = false;
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
    // And in Confirm: production that is healthy is not taken back for it.
    let mut model = in_window();
    model.pass(Duration::from_secs(61));
    model.settle();
    assert_eq!(stage(&model), "Confirm");
    model.unreadable = true;
    for _ in 0..20 {
        model.play_workloads();
        model.pass(Duration::from_mins(1));
        model.settle();
    }
    assert_eq!((stage(&model), model.promoted()), ("Confirm", Some("1.0")));
    model.unreadable = false;
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
}

#[test]
fn a14_a_window_in_which_nobody_looked_begins_anew() {
    let mut model = in_window();
    model.pass(Duration::from_secs(50));
    model.turn(0);
    model.pass(Duration::from_secs(50));
    model.settle();
    assert_eq!(
        (stage(&model), model.promoted()),
        ("Verify", Some("1.0")),
        "one look before and one after are no window"
    );
    model.pass(Duration::from_secs(61));
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
}

#[test]
fn an_instance_that_came_into_use_meanwhile_is_not_left() {
    let mut model = deployed();
    model.edit(|spec| spec.controller.instance_id = Some("blue".into()));
    model.settle();
    model.play_workloads();
    model.settle();
    assert_eq!(stage(&model), "Verify");
    model.add_pipeline("p", "");
    model.pass(Duration::from_secs(61));
    model.run();
    assert_eq!((model.phase(), model.result().2), ("Failed", "InstanceInUse"));
    assert!(model.uid_of("numaflow-controller").is_some());
}

#[test]
fn b03_an_edit_of_what_the_entry_says_is_a_fresh_attempt_too() {
    let mut model = deployed();
    model.leaderless.insert("2.0".into());
    model.set_version("2.0");
    model.run();
    assert_eq!((model.phase(), model.result().1), ("Failed", "Verify"));
    let definition = model.definitions.get_mut("2.0").unwrap();
    std::sync::Arc::make_mut(definition).leader_election = Some(false);
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")), "{}", model.message());
}

#[test]
fn an_edit_of_what_the_entry_says_counts_in_the_middle_of_an_assessment() {
    let mut model = deployed();
    model.leaderless.insert("2.0".into());
    model.set_version("2.0");
    model.settle();
    model.play_workloads();
    model.settle();
    assert!(model.message().contains("nobody holds it"), "{}", model.message());
    let definition = model.definitions.get_mut("2.0").unwrap();
    std::sync::Arc::make_mut(definition).leader_election = Some(false);
    let began = model.now;
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")), "{}", model.message());
    assert!(model.now.duration_since(began).as_secs() < 300, "it did not wait for the deadline");
}

#[test]
fn a_clock_that_was_set_back_makes_nobody_wait_for_it() {
    let mut model = deployed();
    model.set_version("3.0-broken");
    model.settle();
    model.now -= jiff::SignedDuration::from_hours(24);
    model.settle();
    for _ in 0..12 {
        model.pass(Duration::from_mins(1));
        model.settle();
    }
    assert_eq!((model.phase(), model.result().1), ("Failed", "Verify"));
}

#[test]
fn a_child_that_a_finalizer_holds_keeps_neither_its_copy_nor_another_child_from_taking_its_place() {
    let mut model = in_window();
    let now = model.now;
    let child = model.children.get_mut("numaflow-controller-1").unwrap();
    child.metadata.finalizers = Some(vec!["somebody/s".into()]);
    child.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
    model.settle();
    assert_eq!(stage(&model), "Verify");
    assert_eq!(model.rollout.status.as_ref().unwrap().name_count, Some(2));
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
    assert_eq!(model.copies(), Vec::<String>::new());
    assert_eq!(model.leases.len(), 1, "{:?}", model.leases);
}

#[test]
fn flapping_that_is_healthy_at_the_deadline_still_says_what_was_wrong() {
    let mut model = deployed();
    model.set_version("2.0");
    model.settle();
    for _ in 0..9 {
        model.play_workloads();
        model.settle();
        model.pass(Duration::from_secs(40));
        let copies = model.live.values_mut().filter(|l| l.id.name.contains("-x-"));
        copies.for_each(|l| l.workload.iter_mut().for_each(|w| w.available = 0));
        model.settle();
        model.pass(Duration::from_secs(20));
    }
    model.pass(Duration::from_secs(20));
    model.play_workloads();
    model.settle();
    model.pass(Duration::from_secs(45));
    model.settle();
    assert_eq!(model.phase(), "Failed");
    assert!(
        model.message().contains("relapses") && model.message().contains("CrashLoopBackOff"),
        "{}",
        model.message()
    );
    assert!(model.message().contains("version \"1.0\" runs on"), "{}", model.message());
}

#[test]
fn a14_times_that_are_absent_from_a_status_mean_that_nothing_has_begun() {
    let mut model = in_window();
    let upgrade = model.rollout.status.as_mut().unwrap().upgrade.as_mut().unwrap();
    (upgrade.stage_started_at, upgrade.started_at, upgrade.assessment) = (None, None, None);
    model.pass(Duration::from_hours(5));
    model.settle();
    assert_eq!((stage(&model), model.promoted()), ("Verify", Some("1.0")), "neither too late nor long enough");
    model.pass(Duration::from_secs(30));
    model.settle();
    assert_eq!(stage(&model), "Verify");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
}
