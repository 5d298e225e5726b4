//! Stories of drains before an ISB service is changed: time-outs, force, and who is not waited for.

use serde_json::json;

use super::{model::State, *};

#[test]
fn a_pipeline_that_never_pauses_is_waited_for_and_named_and_going_back_lets_everybody_go() {
    let mut m = Model::deployed(&[Rule::Stuck, Rule::Drains(0), Rule::Mute]);
    m.set_version("2.12");
    m.wait(60);
    assert_eq!((m.stage().as_str(), m.phase().as_str()), ("Drain", "Pending"));
    assert!(m.message().contains("Pipeline/p0") && m.message().contains("Pipeline/p2"), "{}", m.message());
    assert_eq!((m.condition("PausingPipelines").0.as_str(), m.version().as_str()), ("True", "2.10"));
    m.set_version("2.10");
    m.settle();
    m.assert_good();
    assert!(m.writes.is_empty(), "{:?}", m.writes);
}

#[test]
fn when_the_time_is_up_pipelines_are_cut_off_and_the_change_goes_on() {
    let mut m = Model::deployed(&[Rule::Slow, Rule::Mute]);
    m.manner(&json!({"drainTimeout": "30s"}), "10m");
    m.set_version("2.12");
    m.until("Drain");
    m.pass(29);
    m.turn();
    assert!(m.status().pause_request.unwrap().cut_at.is_none());
    m.pass(2);
    m.turn();
    assert!(m.status().pause_request.unwrap().cut_at.is_some());
    m.others();
    m.pass(10);
    m.turn();
    assert_eq!(m.version(), "2.10", "those that do not answer have a little longer");
    m.wait(2);
    m.assert_good();
    let drain = m.status().last_drain.unwrap();
    assert_eq!((drain.not_drained.len(), drain.drained.len()), (2, 0), "{drain:?}");
    assert!(drain.ended.contains("30s"), "{}", drain.ended);
}

#[test]
fn where_the_time_out_aborts_nothing_is_changed_and_everybody_runs() {
    let mut m = Model::deployed(&[Rule::Slow]);
    m.manner(&json!({"drainTimeout": "30s", "onDrainTimeout": "Abort"}), "10m");
    m.set_version("2.12");
    m.wait(2);
    assert_eq!((m.phase().as_str(), m.asks(), m.version().as_str()), ("Failed", false, "2.10"), "{}", m.message());
    assert_eq!((m.state("p0"), m.status().last_attempt.unwrap().reason.as_str()), (State::Running, "DrainTimeout"));
    m.pipes.get_mut("p0").unwrap().rule = Rule::Drains(0);
    m.annotate("retry", "now");
    m.settle();
    m.assert_good();
}

#[test]
fn without_time_to_drain_nobody_is_paused_and_that_is_on_record() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.manner(&json!({"drainTimeout": "0s"}), "10m");
    m.set_version("2.12");
    m.turn();
    assert_eq!((m.stage().as_str(), m.asks(), m.version().as_str()), ("Confirm", false, "2.12"), "{}", m.message());
    assert!(m.events.iter().any(|e| e.contains("p0")), "{:?}", m.events);
    m.settle();
    m.assert_good();
    assert!(m.status().last_drain.unwrap().ended.contains("0s"));
}

#[test]
fn force_ends_the_drain_that_runs_and_not_the_one_after_it() {
    let mut m = Model::deployed(&[Rule::Stuck]);
    m.set_version("2.12");
    m.until("Drain");
    m.annotate("force", "we lose it");
    m.turn();
    assert_eq!((m.stage().as_str(), m.version().as_str()), ("Confirm", "2.12"), "{}", m.message());
    m.settle();
    m.assert_good();
    assert!(m.status().last_drain.unwrap().ended.contains("we lose it"));
    m.set_version("2.14");
    m.settle();
    assert_eq!((m.stage().as_str(), m.version().as_str()), ("Drain", "2.12"), "a text is honoured once");
    m.annotate("force", "that too");
    m.settle();
    m.assert_good();
}

#[test]
fn force_before_a_change_is_for_the_next_one_and_pauses_nobody() {
    let mut m = Model::deployed(&[Rule::Stuck]);
    m.annotate("force", "go");
    m.settle();
    m.set_version("2.12");
    m.turn();
    assert_eq!((m.stage().as_str(), m.asks(), m.version().as_str()), ("Confirm", false, "2.12"));
    m.settle();
    m.assert_good();
}

#[test]
fn force_for_a_change_that_has_no_drain_to_end_is_not_left_over_for_the_next() {
    for stage in ["Confirm", "Beside"] {
        let mut m = Model::deployed(&[]);
        if stage == "Beside" {
            m.set_volume("2Gi");
        } else {
            m.set_version("2.12");
        }
        m.until(stage);
        m.annotate("force", "go");
        m.settle();
        m.assert_good();
        m.pipe("p0", Rule::Stuck);
        m.set_version("2.14");
        m.settle();
        assert_eq!(m.stage(), "Drain", "{stage}");
    }
}

#[test]
fn pipelines_without_a_rollout_are_left_alone_and_named() {
    let mut m = Model::deployed(&[Rule::Stuck]);
    m.pipe("mine", Rule::Mute).managed = false;
    m.set_version("2.12");
    m.settle();
    assert!(m.message().contains("Pipeline/mine"), "{}", m.message());
    m.pipes.remove("p0");
    m.settle();
    m.assert_good();
    assert_eq!(m.status().last_drain.unwrap().unmanaged, ["mine"]);
}

#[test]
fn a_pipeline_that_came_after_the_drain_was_over_is_waited_for_too() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.set_version("2.12");
    super::in_place::in_stage(&mut m, "Apply");
    m.pipe("late", Rule::Drains(1));
    m.turn();
    assert_eq!((m.stage().as_str(), m.version().as_str()), ("Drain", "2.10"), "{}", m.message());
    m.settle();
    m.assert_good();
}

#[test]
fn a_pipeline_that_came_when_there_was_nobody_to_ask_is_asked() {
    let mut m = Model::deployed(&[]);
    m.set_version("2.12");
    super::in_place::in_stage(&mut m, "Apply");
    m.pipe("late", Rule::Drains(1));
    m.turn();
    assert_eq!((m.stage().as_str(), m.asks(), m.version().as_str()), ("Drain", true, "2.10"), "{}", m.message());
    m.settle();
    m.assert_good();
}

#[test]
fn while_anything_is_unknown_nobody_is_asked_and_nothing_is_changed() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.unknown = vec!["Pipelines (not listed yet)".to_owned()];
    m.set_version("2.12");
    m.settle();
    assert_eq!((m.asks(), m.version().as_str()), (false, "2.10"));
    assert!(m.message().contains("waiting for Pipelines"), "{}", m.message());
    m.unknown.clear();
    m.settle();
    m.assert_good();
}

#[test]
fn when_the_clock_is_set_back_the_time_to_drain_is_up_all_the_same() {
    let mut m = Model::deployed(&[Rule::Slow]);
    m.manner(&json!({"drainTimeout": "1m"}), "2m");
    m.now = at(10_000_000);
    m.set_version("2.12");
    m.until("Drain");
    m.now = at(1000);
    m.wait(3);
    m.assert_good();
}

#[test]
fn a_sick_service_whose_pipelines_failed_is_repaired_in_place() {
    let mut m = Model::new();
    m.set_version("sick");
    m.settle();
    m.pipe("p0", Rule::Excused);
    m.set_version("2.12");
    m.settle();
    m.assert_good();
}
