//! Scenarios of the drain: who is asked, who is waited for, and that every end of an attempt lets pipelines go.

use std::time::Duration;

use super::model::{Model, Rule};
use crate::api::{AssessmentSpec, PpndSpec, Wait};

/// A rollout at 1.0, confirmed, that pauses and drains; all versions can be isolated.
pub fn deployed() -> Model {
    let mut model = Model::isolatable();
    model.edit(|spec| {
        let strategy = spec.strategy.get_or_insert_default();
        strategy.kind = Some("pause-and-drain".into());
        strategy.assessment = Some(AssessmentSpec {
            deadline: Some(Wait::from("10m")),
            window: Some(Wait::from("1m")),
            interval: Some(Wait::from("5s")),
        });
    });
    model.pipeline("a-0", Rule::Drains(0));
    model.run();
    assert_eq!((model.phase(), model.promoted(), model.request()), ("Deployed", Some("1.0"), None));
    model
}

fn timeout(model: &mut Model, timeout: &str, action: &str) {
    model.edit(|spec| {
        let ppnd = PpndSpec { drain_timeout: Some(Wait::from(timeout)), on_drain_timeout: Some(action.into()) };
        spec.strategy.get_or_insert_default().ppnd = Some(ppnd);
    });
}

/// Lets 2.0 prove itself; nothing is asked before it has.
pub fn proven(model: &mut Model) {
    model.set_version("2.0");
    model.settle();
    model.play_workloads();
    model.settle();
    model.play_pipelines();
    model.pass(Duration::from_secs(59));
    model.settle();
    assert_eq!((model.stage(), model.asks()), (Some("Verify"), false), "{}", model.message());
    model.pass(Duration::from_secs(2));
    model.settle();
}

/// A drain that waits for one pipeline by this rule, and for a second that drains.
pub fn draining(rule: Rule) -> Model {
    let mut model = deployed();
    model.pipeline("b-0", rule);
    proven(&mut model);
    assert_eq!((model.stage(), model.asks()), (Some("Drain"), true), "{}", model.message());
    model
}

/// Pipelines look, and then the rollout does.
pub fn look(model: &mut Model) {
    model.play_pipelines();
    model.settle();
}

pub fn status(model: &Model) -> crate::api::NumaflowControllerRolloutStatus {
    model.rollout.status.clone().unwrap()
}

#[test]
fn pipelines_pause_after_the_version_has_proved_itself_and_run_again_once_it_is_confirmed() {
    let mut model = draining(Rule::Drains(2));
    let (request, before) = (model.request().unwrap(), model.production());
    assert_eq!(
        (request.attempt.as_str(), request.drain_timeout, request.cut_at),
        ("numaflow-controller-1", None, None)
    );
    assert_eq!(model.drain().since, request.since);
    assert_eq!(model.drain().waiting_for, ["a-0", "b-0"]);
    assert_eq!(model.condition("PausingPipelines"), Some(("True", "Pause")));
    assert_eq!(model.phase(), "Pending");
    assert_eq!(status(&model).upgrade_in_progress, "PipelinePauseAndDrain");
    look(&mut model);
    assert_eq!((model.drain().waiting_for, model.drain().drained), (vec!["b-0".to_owned()], vec!["a-0".to_owned()]));
    assert!(model.message().contains("for 1 of 2 pipelines to drain: Pipeline/b-0 (Pausing)"), "{}", model.message());
    let (words, written) = (model.message().to_owned(), model.log.len());
    for _ in 0..5 {
        model.pass(Duration::from_secs(3));
        model.settle();
    }
    assert_eq!((model.message(), model.log.len()), (words.as_str(), written), "time alone writes nothing");
    assert_eq!(model.production(), before);
    look(&mut model);
    look(&mut model);
    assert_eq!((model.stage(), model.asks()), (Some("Confirm"), true), "{}", model.message());
    model.run();
    assert_eq!((model.phase(), model.promoted(), model.asks()), ("Deployed", Some("2.0"), false));
    assert_eq!(model.condition("PausingPipelines"), Some(("False", "NoPause")));
    assert_eq!(model.last_drain().drained, ["a-0", "b-0"]);
    let times = status(&model).pause_request_status.unwrap();
    assert!(times.last_pause_begin_time < times.last_pause_phase_change_time);
    assert!(times.last_pause_phase_change_time <= times.last_pause_end_time);
    assert_eq!(status(&model).last_attempt.unwrap().message, "");
    assert!(!model.events.contains(&"NotDrained"));
}

#[test]
fn a_version_that_cannot_start_a_first_one_and_another_strategy_pause_nothing() {
    let mut model = deployed();
    model.set_version("3.0-broken");
    model.run();
    assert_eq!((model.phase(), model.request()), ("Failed", None));
    model.edit(|spec| spec.strategy.as_mut().unwrap().kind = Some("progressive".into()));
    model.set_version("2.0");
    model.run();
    assert_eq!((model.phase(), model.promoted(), model.request()), ("Deployed", Some("2.0"), None));
}

#[test]
fn without_pipelines_there_is_no_drain_and_those_that_nobody_manages_are_named() {
    let mut model = deployed();
    model.pipe("a-0").seen.rollout = None;
    proven(&mut model);
    assert_eq!((model.stage(), model.request()), (Some("Confirm"), None));
    assert_eq!(model.drain().unmanaged, ["a-0"]);
    let mut model = deployed();
    model.pipeline("b-0", Rule::Slow);
    model.pipe("a-0").seen.rollout = None;
    model.pipeline("c-0", Rule::Slow);
    model.pipe("c-0").seen.instance = "blue".into();
    proven(&mut model);
    assert!(model.message().contains("1 of 1 pipeline "), "{}", model.message());
    assert!(model.message().contains("1 left alone, without a PipelineRollout: Pipeline/a-0"), "{}", model.message());
}

#[test]
fn a_drain_timeout_of_zero_pauses_nothing_and_says_so() {
    let mut model = deployed();
    timeout(&mut model, "0s", "Abort");
    proven(&mut model);
    assert_eq!((model.stage(), model.request()), (Some("Confirm"), None));
    model.run();
    let drain = model.last_drain();
    assert_eq!(drain.ended, "spec.strategy.ppnd.drainTimeout is 0s: nothing was paused");
    assert_eq!(drain.not_drained, ["a-0: nothing was paused"]);
    assert_eq!(status(&model).last_attempt.unwrap().message, "promoted; not drained: a-0: nothing was paused");
    assert_eq!((model.phase(), model.message()), ("Deployed", "Deployed"));
}

#[test]
fn excused_forced_and_deleted_pipelines_are_not_waited_for() {
    let mut model = deployed();
    model.pipeline("b-0", Rule::Excused);
    model.pipeline("c-0", Rule::Forced);
    model.pipeline("d-0", Rule::Stuck);
    model.pipeline("e-0", Rule::Stuck);
    proven(&mut model);
    look(&mut model);
    assert_eq!(model.drain().waiting_for, ["d-0", "e-0"]);
    model.pipe("d-0").seen.deleting = true;
    model.pipe("e-0").seen.rollout = None;
    look(&mut model);
    assert_eq!(model.stage(), Some("Confirm"), "{}", model.message());
    let drain = model.drain();
    assert_eq!(drain.excused, ["b-0: its spec is not valid"]);
    assert_eq!(drain.not_drained, ["c-0: its user allows loss of data"]);
    assert_eq!(drain.unmanaged, ["e-0"]);
    model.run();
    assert!(status(&model).last_attempt.unwrap().message.contains("not drained: c-0"));
}

#[test]
fn an_answer_to_another_attempt_or_to_somebody_else_is_none() {
    let mut model = draining(Rule::Stuck);
    model.play_pipelines();
    for (by, attempt) in [
        ("NumaflowControllerRollout/numaflow-controller", "numaflow-controller-0"),
        ("ISBServiceRollout/numaflow-controller", "numaflow-controller-1"),
    ] {
        let answer = &mut model.pipe("b-0").seen.answers[0];
        (answer.by, answer.attempt, answer.answer, answer.drained) =
            (by.into(), attempt.into(), "Paused".into(), Some(true));
        model.settle();
        assert_eq!((model.stage(), model.drain().waiting_for), (Some("Drain"), vec!["b-0".to_owned()]));
    }
}

#[test]
fn with_no_timeout_it_is_waited_for_ever_and_a_controller_that_may_not_respond_is_named() {
    let mut model = draining(Rule::Stuck);
    look(&mut model);
    assert!(model.message().contains("no drainTimeout is set"), "{}", model.message());
    // Two pipelines: 30 s of grace, 10 s between looks, 20 s for each.
    let again = model.turn(usize::MAX).1.unwrap();
    assert!(again > Duration::from_secs(75) && again <= Duration::from_secs(81), "{again:?}");
    model.pass(again);
    model.settle();
    assert!(model.message().contains("its controller may not be responding"), "{}", model.message());
    model.pass(Duration::from_hours(24));
    look(&mut model);
    assert_eq!((model.stage(), model.phase(), model.asks()), (Some("Drain"), "Pending", true));
    model.pipe("b-0").rule = Rule::Drains(0);
    look(&mut model);
    model.run();
    assert_eq!(model.promoted(), Some("2.0"));
}

#[test]
fn at_the_timeout_pipelines_pause_as_they_are_and_what_was_not_drained_is_named() {
    let mut model = deployed();
    timeout(&mut model, "5m", "Proceed");
    model.pipeline("b-0", Rule::Slow);
    proven(&mut model);
    look(&mut model);
    let since = model.request().unwrap().since;
    assert_eq!(model.request().unwrap().drain_timeout, Some(Wait::from("5m")));
    assert!(model.message().contains("(drainTimeout 5m), and goes on then"), "{}", model.message());
    model.pass(Duration::from_secs(299));
    look(&mut model);
    assert_eq!(model.request().unwrap().cut_at, None);
    let again = model.turn(usize::MAX).1.unwrap();
    assert!(again <= Duration::from_secs(2), "{again:?}");
    model.pass(again);
    model.settle();
    assert!(model.request().unwrap().cut_at.is_some());
    assert_eq!((model.stage(), model.request().unwrap().since), (Some("Drain"), since));
    look(&mut model);
    assert_eq!(model.stage(), Some("Confirm"), "{}", model.message());
    assert_eq!(model.drain().not_drained, ["b-0: the time to drain was up"]);
    model.run();
    assert_eq!((model.phase(), model.asks()), ("Deployed", false));
    assert_eq!(model.events.iter().filter(|e| **e == "NotDrained").count(), 1);
    let message = status(&model).last_attempt.unwrap().message;
    assert_eq!(message, "promoted; not drained: b-0: the time to drain was up");
}

#[test]
fn one_that_does_not_even_pause_holds_nothing_up_for_long_after_the_timeout() {
    let mut model = deployed();
    timeout(&mut model, "5m", "Proceed");
    model.pipeline("b-0", Rule::Stuck);
    proven(&mut model);
    look(&mut model);
    model.pass(Duration::from_secs(301));
    look(&mut model);
    // 15 s, and 20 s for each of two.
    model.pass(Duration::from_secs(53));
    look(&mut model);
    assert_eq!((model.stage(), model.drain().waiting_for), (Some("Drain"), vec!["b-0".to_owned()]));
    model.pass(Duration::from_secs(3));
    look(&mut model);
    assert_eq!(model.stage(), Some("Confirm"));
    assert_eq!(model.drain().not_drained, ["b-0: did not pause within 5m, nor within 55s more"]);
    assert!(model.drain().ended.contains("drainTimeout 5m had passed"), "{}", model.drain().ended);
    model.run();
    assert_eq!((model.phase(), model.promoted(), model.asks()), ("Deployed", Some("2.0"), false));
}

#[test]
fn a_timeout_that_is_changed_after_it_was_up_does_not_falsify_the_record() {
    for changed in [None, Some("1h")] {
        let mut model = deployed();
        timeout(&mut model, "5m", "Proceed");
        model.pipeline("b-0", Rule::Stuck);
        proven(&mut model);
        look(&mut model);
        model.pass(Duration::from_secs(301));
        look(&mut model);
        let ppnd = PpndSpec { drain_timeout: changed.map(Wait::from), on_drain_timeout: None };
        model.edit(|spec| spec.strategy.get_or_insert_default().ppnd = Some(ppnd));
        model.pass(Duration::from_mins(1));
        look(&mut model);
        assert_eq!(model.stage(), Some("Confirm"), "{}", model.message());
        let drain = model.drain();
        assert!(drain.not_drained[0].starts_with("b-0: did not pause within 5m"), "{drain:?}");
        assert!(drain.ended.starts_with("drainTimeout 5m"), "{drain:?}");
    }
}

#[test]
fn a_clock_that_is_set_back_after_the_timeout_does_not_hold_up_the_last_chance() {
    let mut model = deployed();
    timeout(&mut model, "5m", "Proceed");
    model.pipeline("b-0", Rule::Stuck);
    proven(&mut model);
    look(&mut model);
    model.pass(Duration::from_secs(301));
    look(&mut model);
    assert!(model.request().unwrap().cut_at.is_some());
    model.now -= jiff::SignedDuration::from_hours(10);
    look(&mut model);
    model.pass(Duration::from_secs(57));
    look(&mut model);
    assert_eq!(model.stage(), Some("Confirm"), "{}", model.message());
}

#[test]
fn abort_gives_up_the_attempt_and_touches_nothing() {
    let mut model = deployed();
    timeout(&mut model, "5m", "Abort");
    model.pipeline("b-0", Rule::Slow);
    let before = model.production();
    proven(&mut model);
    look(&mut model);
    model.pass(Duration::from_secs(301));
    model.settle();
    assert_eq!((model.phase(), model.promoted(), model.asks()), ("Failed", Some("1.0"), false));
    assert_eq!(model.result(), ("Failed", "Drain", "DrainTimeout"));
    assert!(
        model.message().contains("1 of 2 pipelines did not drain within 5m: Pipeline/b-0 (Pausing)"),
        "{}",
        model.message()
    );
    assert!(model.message().contains("version \"1.0\" runs on"), "{}", model.message());
    assert_eq!(model.last_drain().not_drained, ["b-0: did not drain within 5m"]);
    assert_eq!((model.production(), model.children.len(), model.copies().len()), (before, 1, 0));
    model.run();
    assert_eq!((model.phase(), model.stage()), ("Failed", None), "judged, and not repeated");
}

#[test]
fn the_timeout_is_read_live_and_the_clock_goes_on_through_a_restart() {
    let mut model = draining(Rule::Slow);
    look(&mut model);
    let since = model.request().unwrap().since;
    model.pass(Duration::from_secs(200));
    timeout(&mut model, "5m", "Proceed");
    model.turn(1);
    model.settle();
    assert_eq!(model.request().unwrap().drain_timeout, Some(Wait::from("5m")));
    assert_eq!(model.request().unwrap().since, since);
    model.pass(Duration::from_secs(101));
    model.settle();
    assert!(model.request().unwrap().cut_at.is_some(), "300 s since the request");
    // A clock that was set back does not hold it up: it counts from now.
    let mut model = draining(Rule::Slow);
    timeout(&mut model, "5m", "Proceed");
    let since = model.request().unwrap().since;
    model.now -= jiff::SignedDuration::from_hours(10);
    model.settle();
    model.pass(Duration::from_secs(301));
    model.settle();
    assert!(model.request().unwrap().since < since);
    assert!(model.request().unwrap().cut_at.is_some());
}

#[test]
fn spec_paused_lets_pipelines_run_and_a_fresh_request_follows() {
    let mut model = draining(Rule::Slow);
    timeout(&mut model, "5m", "Proceed");
    look(&mut model);
    let first = model.request().unwrap();
    model.edit(|spec| spec.paused = Some(true));
    model.settle();
    assert_eq!((model.stage(), model.asks(), model.phase()), (Some("Drain"), false, "Pending"));
    assert!(model.message().contains("paused by spec.paused"), "{}", model.message());
    assert_eq!(model.condition("PausingPipelines"), Some(("False", "NoPause")));
    model.pass(Duration::from_hours(1));
    look(&mut model);
    assert_eq!((model.stage(), model.asks()), (Some("Drain"), false), "it holds");
    // Let go so soon that the pipelines have not seen the withdrawal: their answers are to the first request.
    model.edit(|spec| spec.paused = None);
    model.settle();
    let second = model.request().unwrap();
    assert!(second.active && second.since > first.since, "{second:?}");
    look(&mut model);
    model.pass(Duration::from_secs(302));
    look(&mut model);
    look(&mut model);
    model.run();
    assert_eq!((model.phase(), model.asks()), ("Deployed", false));
}

#[test]
fn an_answer_to_a_request_that_was_withdrawn_does_not_count_for_the_next_one() {
    let mut model = draining(Rule::Stuck);
    look(&mut model);
    model.edit(|spec| spec.paused = Some(true));
    model.settle();
    model.edit(|spec| spec.paused = None);
    model.settle();
    assert!(!model.asks(), "{}", model.message());
    assert!(model.message().contains("Pipeline/a-0, Pipeline/b-0 to have seen"), "{}", model.message());
    look(&mut model);
    assert!(model.asks());
    assert_eq!(model.drain().waiting_for, ["a-0", "b-0"]);
}

#[test]
fn another_spec_during_the_drain_lets_pipelines_go_and_rolls_nothing_back() {
    let mut model = draining(Rule::Stuck);
    let before = model.production();
    model.set_version("1.0");
    model.turn(1);
    assert!(!model.asks());
    model.settle();
    assert_eq!((model.phase(), model.stage(), model.production()), ("Deployed", None, before));
    assert_eq!(model.result(), ("Superseded", "Drain", "Superseded"));
    assert!(model.last_drain().ended.contains("superseded"), "{}", model.last_drain().ended);
    assert!(!model.log.iter().any(|s| s.contains("RollBack")));
}

#[test]
fn an_instance_in_use_and_an_unusable_revision_are_seen_before_anything_is_paused_and_after() {
    let mut model = deployed();
    model.set_version("2.0");
    model.edit(|spec| spec.controller.instance_id = Some("blue".into()));
    model.pipes.clear();
    model.settle();
    model.play_workloads();
    model.settle();
    model.add_pipeline("late", "");
    model.pipeline("late", Rule::Drains(0));
    model.pass(Duration::from_secs(61));
    model.settle();
    assert_eq!((model.phase(), model.result().2, model.request()), ("Failed", "InstanceInUse", None));
    let mut model = draining(Rule::Stuck);
    let pinned = status(&model).upgrade.unwrap().revision;
    model.revisions.retain(|r| r.name != pinned);
    model.definitions.remove("2.0");
    model.pipe("b-0").rule = Rule::Drains(0);
    look(&mut model);
    assert_eq!((model.phase(), model.asks(), model.promoted()), ("Failed", false, Some("1.0")), "{}", model.message());
    assert_eq!(model.result(), ("Failed", "Drain", "RevisionUnusable"));
}
