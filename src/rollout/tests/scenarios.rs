//! Named scenarios: what users do and what they expect.

use std::time::Duration;

use super::model::{Model, text};
use crate::{
    api::{ANNOTATION_RETRY, Wait},
    rollout::resolve::Rival,
};

/// A rollout at 1.0, confirmed.
pub fn deployed() -> Model {
    let mut model = Model::new();
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("1.0")));
    model
}

#[test]
fn a_first_version_is_installed_judged_and_deployed() {
    let model = deployed();
    assert_eq!(model.result(), ("Succeeded", "Confirm", "Confirmed"));
    assert_eq!(model.condition("Ready"), Some(("True", "Deployed")));
    assert_eq!(model.condition("Reconciling"), None);
    assert_eq!(model.condition("Stalled"), None);
    assert_eq!(model.children.len(), 1);
    assert!(model.children.contains_key("numaflow-controller-0"));
}

#[test]
fn an_upgrade_changes_objects_in_place_and_prunes_what_the_new_version_lacks() {
    let mut model = deployed();
    model.set_version("2.0");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
    let (controller, server) =
        (model.uid_of("numaflow-controller").unwrap().to_owned(), model.uid_of("numaflow-server").is_some());
    assert!(server);
    model.set_version("1.0");
    model.run();
    assert_eq!(model.uid_of("numaflow-controller"), Some(controller.as_str()));
    assert_eq!(model.uid_of("numaflow-server"), None);
    assert_eq!(model.children.len(), 1);
}

#[test]
fn a_version_is_not_promoted_before_it_has_been_healthy_for_the_window() {
    let mut model = Model::new();
    model.settle();
    model.play_workloads();
    model.settle();
    model.pass(Duration::from_secs(59));
    model.settle();
    assert_eq!((model.phase(), model.promoted()), ("Pending", None));
    model.pass(Duration::from_secs(2));
    model.settle();
    assert_eq!(model.phase(), "Deployed");
}

#[test]
fn flapping_restarts_the_window_but_not_the_deadline() {
    let mut model = deployed();
    model.set_version("2.0");
    for _ in 0..30 {
        model.play_workloads();
        model.settle();
        model.pass(Duration::from_secs(30));
        for live in model.live.values_mut() {
            live.workload.iter_mut().for_each(|w| w.available = 0);
        }
        model.settle();
    }
    assert_eq!((model.phase(), model.promoted()), ("Failed", Some("1.0")));
    assert_eq!(model.result(), ("Failed", "Confirm", "DeadlineExceeded"));
}

#[test]
fn a01_a_broken_version_is_rolled_back_and_the_old_one_is_deployed_when_it_is_set_again() {
    let mut model = deployed();
    let before = model.production();
    model.set_version("3.0-broken");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Failed", Some("1.0")));
    assert_eq!(model.result(), ("Failed", "Confirm", "DeadlineExceeded"));
    assert!(model.message().contains("rolled back to version \"1.0\""), "{}", model.message());
    assert_eq!(model.production(), before);
    assert_eq!(model.condition("Stalled").map(|c| c.0), Some("True"));
    model.set_version("1.0");
    model.run();
    assert_eq!(model.phase(), "Deployed");
    assert_eq!(model.condition("Stalled"), None);
}

#[test]
fn a_judged_attempt_is_not_repeated_until_something_about_it_changes() {
    let mut model = deployed();
    model.set_version("3.0-broken");
    model.run();
    let steps = model.log.len();
    for _ in 0..20 {
        model.pass(Duration::from_mins(10));
        model.settle();
    }
    assert_eq!(model.log.len(), steps, "a failed attempt is left alone");
    model.rollout.metadata.annotations = Some([(ANNOTATION_RETRY.to_owned(), "once more".to_owned())].into());
    model.settle();
    assert!(model.rollout.status.as_ref().unwrap().upgrade.is_some(), "another retry text is another attempt");
    model.run();
    assert_eq!(model.phase(), "Failed");
    model.define("3.0-broken", &["numaflow-controller", "helper"]);
    model.settle();
    assert!(model.rollout.status.as_ref().unwrap().upgrade.is_some(), "an edited definition is another attempt");
}

#[test]
fn going_back_and_forth_makes_a_fresh_attempt_each_time() {
    let mut model = deployed();
    for _ in 0..3 {
        model.set_version("3.0-broken");
        model.run();
        assert_eq!(model.phase(), "Failed");
        model.set_version("1.0");
        model.run();
        assert_eq!(model.phase(), "Deployed");
    }
}

#[test]
fn an_undefined_version_fails_with_the_defined_ones_and_touches_nothing() {
    let mut model = deployed();
    let before = model.production();
    model.set_version("9.9");
    model.run();
    assert_eq!(model.phase(), "Failed");
    assert!(model.message().contains("1.0, 2.0, 3.0-broken"), "{}", model.message());
    assert_eq!(model.result(), ("Failed", "Resolve", "DefinitionNotFound"));
    assert_eq!(model.production(), before);
    model.define("9.9", &["numaflow-controller"]);
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("9.9")));
}

#[test]
fn a02_a_first_version_that_never_comes_up_is_reported_and_any_other_replaces_it() {
    let mut model = Model::new();
    model.set_version("3.0-broken");
    model.settle();
    model.play_workloads();
    model.pass(Duration::from_secs(601));
    model.settle();
    assert_eq!((model.phase(), model.promoted()), ("Failed", None));
    assert_eq!(model.rollout.status.as_ref().unwrap().pause_request, None);
    model.set_version("1.0");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("1.0")));
    assert_eq!(model.children.len(), 1);
}

#[test]
fn a_first_version_whose_cause_heals_is_deployed_by_itself() {
    let mut model = Model::new();
    model.set_version("3.0-broken");
    model.settle();
    model.play_workloads();
    model.pass(Duration::from_secs(601));
    model.settle();
    assert_eq!(model.phase(), "Failed");
    model.broken.clear();
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("3.0-broken")));
}

#[test]
fn a05_an_edited_definition_of_the_running_version_is_a_new_attempt() {
    let mut model = deployed();
    model.define_text("1.0", &text("1.0", &["numaflow-controller"]).replace("image:", "args: [a], image:"));
    model.run();
    assert_eq!(model.phase(), "Deployed");
    assert!(model.children.contains_key("numaflow-controller-1"));
}

#[test]
fn a05_a_removed_definition_of_the_running_version_changes_a_condition_and_nothing_else() {
    let mut model = deployed();
    let (before, definition) = (model.production(), model.definitions.remove("1.0").unwrap());
    model.run();
    assert_eq!(model.phase(), "Deployed");
    assert_eq!(model.condition("DefinitionMissing"), Some(("True", "DefinitionNotFound")));
    assert_eq!(model.production(), before);
    model.live.clear();
    model.run();
    assert_eq!(model.live.len(), before.len(), "what runs is repaired from its pinned revision");
    model.definitions.insert("1.0".into(), definition);
    model.run();
    assert_eq!(model.condition("DefinitionMissing"), None);
}

#[test]
fn a05_going_back_needs_nothing_from_the_config_map() {
    let mut model = deployed();
    model.set_version("2.0");
    model.run();
    model.definitions.remove("1.0");
    model.set_version("1.0");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("1.0")));
}

#[test]
fn a_definition_removed_in_the_middle_of_an_attempt_supersedes_nothing() {
    let mut model = deployed();
    model.set_version("2.0");
    model.settle();
    model.definitions.remove("2.0");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
}

#[test]
fn a06_one_unavailable_workload_of_three_keeps_the_version_from_being_promoted() {
    let mut model = deployed();
    model.define("4.0", &["numaflow-controller", "one", "two"]);
    model.set_version("4.0");
    model.settle();
    model.play_workloads();
    model.live.values_mut().filter(|l| l.id.name == "two").for_each(|l| {
        l.workload.iter_mut().for_each(|w| w.available = 0);
    });
    model.settle();
    assert!(model.message().contains("Deployment/two: 0 of 1"), "{}", model.message());
    model.pass(Duration::from_secs(601));
    model.settle();
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Failed", Some("1.0")));
    assert!(model.message().contains("Deployment/two"), "{}", model.message());
}

#[test]
fn a_refusal_of_the_dry_run_is_blocked_and_heals_by_itself() {
    let mut model = deployed();
    let before = model.production();
    model.refused.insert("numaflow-server".into());
    model.set_version("2.0");
    model.run();
    assert_eq!(model.phase(), "Failed");
    assert_eq!(model.result(), ("Blocked", "Resolve", "Forbidden"));
    assert!(model.message().contains("exceeded quota"), "{}", model.message());
    assert_eq!(model.condition("Reconciling").map(|c| c.0), Some("True"));
    assert_eq!(model.condition("Stalled"), None);
    assert_eq!(model.production(), before);
    model.refused.clear();
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
}

#[test]
fn a_refusal_after_the_first_write_rolls_back() {
    let mut model = deployed();
    let before = model.production();
    model.set_version("2.0");
    // Up to the first production object; then the quota is gone.
    let mut model = (1..50)
        .map(|steps| {
            let mut model = model.clone();
            model.turn(steps);
            model
        })
        .find(|model| model.log.last().is_some_and(|step| step.starts_with("Apply")))
        .unwrap();
    model.refused.insert("numaflow-server".into());
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Failed", Some("1.0")));
    assert_eq!(model.result(), ("Failed", "CutOver", "Forbidden"));
    assert_eq!(model.production(), before);
}

#[test]
fn a_bad_version_whose_deployment_has_another_name_takes_the_running_one_away_at_no_time() {
    let mut model = deployed();
    model.define("3.0-broken", &["another-controller"]);
    model.set_version("3.0-broken");
    model.settle();
    model.play_workloads();
    model.settle();
    assert!(model.uid_of("numaflow-controller").is_some(), "the old one runs until the new one is available");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Failed", Some("1.0")));
    assert_eq!((model.uid_of("another-controller"), model.uid_of("numaflow-controller").is_some()), (None, true));
    model.define("6.0", &["another-controller"]);
    model.set_version("6.0");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("6.0")));
    assert_eq!(model.uid_of("numaflow-controller"), None);
}

#[test]
fn a_definition_that_cannot_be_read_for_a_while_does_not_make_a_judged_attempt_untried() {
    let mut model = deployed();
    model.set_version("3.0-broken");
    model.run();
    let definition = model.definitions.remove("3.0-broken").unwrap();
    model.revisions.retain(|r| r.version != "3.0-broken");
    model.settle();
    assert!(model.message().contains("not defined"), "{}", model.message());
    model.definitions.insert("3.0-broken".into(), definition);
    model.settle();
    assert!(model.rollout.status.as_ref().unwrap().upgrade.is_none(), "it was judged already");
}

#[test]
fn another_version_in_the_middle_rolls_back_first_and_then_starts_afresh() {
    let mut model = deployed();
    model.define("4.0", &["numaflow-controller"]);
    model.set_version("3.0-broken");
    model.settle();
    model.set_version("4.0");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("4.0")));
}

#[test]
fn going_back_in_the_middle_of_an_attempt_ends_deployed_without_a_failure() {
    let mut model = deployed();
    let before = model.production();
    model.set_version("3.0-broken");
    model.settle();
    model.set_version("1.0");
    model.run();
    assert_eq!(model.phase(), "Deployed");
    assert_eq!(model.result().0, "Superseded");
    assert_eq!(model.production(), before);
}

#[test]
fn pausing_starts_no_attempt_and_says_so() {
    let mut model = deployed();
    model.edit(|spec| spec.paused = Some(true));
    model.set_version("2.0");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Pending", Some("1.0")));
    assert!(model.message().contains("spec.paused"), "{}", model.message());
    model.edit(|spec| spec.paused = None);
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
}

#[test]
fn a15_the_younger_of_two_rollouts_of_one_instance_fails_and_says_whose_it_is() {
    let mut model = Model::new();
    model.rivals.push(Rival {
        name: "x".into(),
        instances: vec![String::new()],
        promoted: Some(String::new()),
        created: 5,
    });
    model.run();
    assert_eq!(model.phase(), "Failed");
    assert_eq!(model.result(), ("Failed", "Resolve", "InstanceConflict"));
    assert!(model.message().contains("NumaflowControllerRollout/x"), "{}", model.message());
    assert!(model.live.is_empty());
    model.rivals.clear();
    model.run();
    assert_eq!(model.phase(), "Deployed");
}

#[test]
fn an_instance_cannot_change_while_a_pipeline_uses_the_old_one() {
    let mut model = deployed();
    model.add_pipeline("p", "");
    model.edit(|spec| spec.controller.instance_id = Some("blue".into()));
    model.run();
    assert_eq!(model.phase(), "Failed");
    assert_eq!(model.result(), ("Failed", "Resolve", "InstanceInUse"));
    assert!(model.message().contains("Pipeline/p"), "{}", model.message());
    model.dependants.objects.clear();
    model.run();
    assert_eq!(model.phase(), "Deployed");
    assert!(model.uid_of("numaflow-controller-blue").is_some());
    assert!(model.uid_of("numaflow-controller").is_none());
}

#[test]
fn drift_is_repaired_without_an_attempt() {
    let mut model = deployed();
    let children = model.children.len();
    model.live.values_mut().for_each(|l| l.fields = "taken by somebody".into());
    model.run();
    assert_eq!(model.children.len(), children);
    assert!(model.live.values().all(|l| l.fields.starts_with("fields of")));
}

#[test]
fn workload_trouble_after_deployed_changes_conditions_and_not_the_phase() {
    let mut model = deployed();
    model.live.values_mut().for_each(|l| l.workload.iter_mut().for_each(|w| w.available = 0));
    model.settle();
    assert_eq!(model.phase(), "Deployed");
    assert_eq!(model.condition("Ready"), Some(("False", "Unhealthy")));
    assert_eq!(model.condition("ChildResourcesHealthy").map(|c| c.0), Some("False"));
    assert!(model.rollout.status.as_ref().unwrap().upgrade.is_none());
}

#[test]
fn an_object_that_cannot_be_changed_in_place_is_made_anew_and_only_that_one() {
    let mut model = deployed();
    let config = model.uid_of("config").unwrap().to_owned();
    let controller = model.uid_of("numaflow-controller").unwrap().to_owned();
    model.immutable.insert("numaflow-controller".into());
    model.set_version("2.0");
    model.run();
    assert_eq!(model.phase(), "Deployed");
    assert_eq!(model.uid_of("config"), Some(config.as_str()));
    assert_ne!(model.uid_of("numaflow-controller"), Some(controller.as_str()));
    assert_eq!(model.log.iter().filter(|step| step.starts_with("Recreate")).count(), 1);
}

#[test]
fn an_object_of_somebody_else_is_not_taken_over() {
    let mut model = deployed();
    let other = model.live.values().find(|l| l.id.name == "numaflow-controller").cloned().unwrap();
    let mut foreign = other;
    foreign.id.name = "numaflow-server".into();
    foreign.tracking = Some("somebody".into());
    model.live.insert(foreign.id.clone(), foreign.clone());
    model.set_version("2.0");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Failed", Some("1.0")));
    assert_eq!(model.result(), ("Blocked", "Resolve", "ObjectExists"));
    assert_eq!(model.live[&foreign.id], foreign);
    model.live.remove(&foreign.id);
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
}

#[test]
fn a_malformed_duration_is_answered_with_the_field_and_an_example() {
    let mut model = deployed();
    model.edit(|spec| {
        spec.strategy.as_mut().unwrap().assessment.as_mut().unwrap().deadline = Some(Wait::from("soon"));
        spec.controller.version = "2.0".into();
    });
    model.run();
    assert_eq!(model.phase(), "Failed");
    assert!(model.message().starts_with("spec.strategy.assessment.deadline: \"soon\""), "{}", model.message());
}

#[test]
fn a_good_spec_is_not_kept_waiting_by_a_last_version_that_cannot_start_any_more() {
    let mut model = deployed();
    model.set_version("3.0-broken");
    model.settle();
    // Nothing becomes available from here on but what comes next.
    model.set_version("2.0");
    model.settle();
    let upgrade = model.rollout.status.as_ref().unwrap().upgrade.as_ref().unwrap();
    assert_eq!((upgrade.version.as_str(), upgrade.stage.as_str()), ("2.0", "Confirm"));
}
