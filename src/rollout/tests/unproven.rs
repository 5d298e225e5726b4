//! Scenarios of versions that do not prove themselves in a copy: where that cannot be, and where users do not want to wait.

use std::time::Duration;

use super::{
    model::Model,
    verify::{deployed, in_window, stage},
};
use crate::api::LABEL_FORCE_PROMOTE;

#[test]
fn b06_force_promote_ends_the_waiting_of_one_attempt_and_a_revert_wins_over_it() {
    let force = |model: &mut Model, on: bool| {
        model.edit(|spec| spec.strategy.as_mut().unwrap().force_promote = Some(on));
    };
    // With nothing to promote it changes nothing.
    let mut model = deployed();
    force(&mut model, true);
    let steps = model.log.len();
    model.settle();
    assert!(model.log[steps..].iter().all(|s| s.starts_with("WriteStatus")));
    // It is honoured in the next attempt, and in that alone.
    model.set_version("2.0");
    model.settle();
    assert_eq!(stage(&model), "Confirm");
    assert!(model.message().contains("forcePromote"), "{}", model.message());
    model.run();
    assert_eq!(model.promoted(), Some("2.0"));
    model.set_version("1.0");
    model.settle();
    assert_eq!(stage(&model), "Verify");
    assert!(model.message().contains("honoured for version \"2.0\""), "{}", model.message());
    model.run();
    assert_eq!(model.promoted(), Some("1.0"));
    // Set in the middle of an assessment, of a version that never gets ready; then the user thinks better of it.
    force(&mut model, false);
    model.set_version("3.0-broken");
    model.settle();
    assert_eq!(stage(&model), "Verify");
    force(&mut model, true);
    model.settle();
    assert_eq!(stage(&model), "Confirm");
    model.set_version("1.0");
    model.run();
    assert_eq!((model.phase(), model.promoted(), model.children.len()), ("Deployed", Some("1.0"), 1));
}

#[test]
fn force_promote_that_is_set_when_there_is_nothing_to_skip_any_more_is_not_spent_on_the_next_attempt() {
    let mut model = in_window();
    model.pass(Duration::from_secs(61));
    model.settle();
    assert_eq!(stage(&model), "Confirm");
    model.edit(|spec| spec.strategy.as_mut().unwrap().force_promote = Some(true));
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
    model.set_version("3.0-broken");
    model.settle();
    assert_eq!(stage(&model), "Verify");
}

#[test]
fn the_label_on_the_child_ends_its_assessment() {
    let mut model = deployed();
    model.set_version("2.0");
    model.settle();
    let child = model.children.get_mut("numaflow-controller-1").unwrap();
    child.metadata.labels.as_mut().unwrap().insert(LABEL_FORCE_PROMOTE.to_owned(), "true".to_owned());
    model.settle();
    assert_eq!(stage(&model), "Confirm");
    model.run();
    assert_eq!(model.promoted(), Some("2.0"));
}

#[test]
fn a_version_that_cannot_be_isolated_is_judged_in_production_and_the_status_says_why() {
    let mut model = deployed();
    model.isolatable = false;
    model.define("2.0", &["numaflow-controller"]);
    model.set_version("2.0");
    model.settle();
    assert_eq!(stage(&model), "Confirm");
    assert!(model.message().contains("without Verify: "), "{}", model.message());
    model.play_workloads();
    model.settle();
    model.pass(Duration::from_secs(30));
    model.settle();
    assert_eq!(model.phase(), "Pending", "its window is in production then");
    model.run();
    assert_eq!(model.promoted(), Some("2.0"));
    let last = model.rollout.status.as_ref().unwrap().last_attempt.as_ref().unwrap();
    assert!(last.message.contains("without Verify"), "{}", last.message);
}

#[test]
fn a_copy_that_the_server_refuses_is_blocked_before_anything_is_made_and_heals() {
    let mut model = deployed();
    model.refused.insert("numaflow-server-x-".into());
    model.refused.insert("x-0".into());
    model.set_version("2.0");
    model.settle();
    assert_eq!((model.phase(), model.result().0), ("Failed", "Blocked"));
    assert_eq!((model.children.len(), model.copies().len()), (1, 0));
    model.refused.clear();
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
}

#[test]
fn a_version_that_cannot_be_isolated_any_more_is_not_put_in_place_unproven() {
    let mut model = deployed();
    model.set_version("3.0-broken");
    model.settle();
    let before = model.production();
    model.revisions.retain(|r| r.version != "3.0-broken");
    model.definitions.remove("3.0-broken");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Failed", Some("1.0")));
    assert_eq!((model.result().1, model.production()), ("Verify", before));
}

#[test]
fn a_copy_that_is_refused_is_asked_for_again_and_again_by_the_same_child() {
    let mut model = deployed();
    // The dry run, of another name, is not refused; each real one is.
    model.refused.insert("numaflow-server-x-d".into());
    model.set_version("2.0");
    for _ in 0..40 {
        model.settle();
        model.pass(Duration::from_mins(1));
    }
    assert_eq!((stage(&model), model.phase()), ("Verify", "Failed"));
    assert_eq!(model.condition("Reconciling").map(|c| c.1), Some("Forbidden"));
    assert_eq!(model.rollout.status.as_ref().unwrap().name_count, Some(1), "one child");
    model.refused.clear();
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
}

#[test]
fn b09_zero_means_do_not_wait_and_unset_means_the_fall_back() {
    let times = |model: &mut Model, deadline: Option<&str>, window: Option<&str>| {
        model.edit(|spec| {
            let assessment = spec.strategy.as_mut().unwrap().assessment.as_mut().unwrap();
            assessment.deadline = deadline.map(crate::api::Wait::from);
            assessment.window = window.map(crate::api::Wait::from);
        });
    };
    // A window of zero is over when it begins.
    let mut model = deployed();
    times(&mut model, Some("10m"), Some("0s"));
    model.set_version("2.0");
    model.settle();
    model.play_workloads();
    model.settle();
    assert_eq!(stage(&model), "Confirm");
    // A deadline of zero waits for nobody.
    let mut model = deployed();
    times(&mut model, Some("0s"), Some("1m"));
    model.set_version("2.0");
    model.settle();
    assert_eq!((model.phase(), model.result().1), ("Failed", "Verify"));
    // Unset is neither: thirty seconds after ten minutes, unless the configuration says otherwise.
    let mut model = deployed();
    times(&mut model, None, None);
    model.set_version("2.0");
    model.settle();
    model.pass(Duration::from_mins(9));
    model.settle();
    model.play_workloads();
    model.settle();
    model.pass(Duration::from_secs(25));
    model.settle();
    assert_eq!(stage(&model), "Verify");
    model.pass(Duration::from_secs(10));
    model.settle();
    assert_eq!(stage(&model), "Confirm");
    // The longest one overflows nothing.
    let mut model = deployed();
    times(&mut model, Some("87600h"), Some("87600h"));
    model.set_version("3.0-broken");
    model.settle();
    model.pass(Duration::from_hours(24 * 365));
    model.settle();
    assert_eq!(stage(&model), "Verify");
}
