//! Stories of changes in place: applied while pipelines are paused, and taken back where they do not come to anything.

use serde_json::json;

use super::{model::State, *};

#[test]
fn a_change_in_place_waits_for_the_answers_and_lets_go_when_every_replica_is_of_the_wanted_image_and_ready() {
    let mut m = Model::deployed(&[Rule::Drains(2), Rule::Undrained(1), Rule::Excused]);
    m.set_version("2.12");
    m.turn();
    assert_eq!((m.stage().as_str(), m.asks(), m.version().as_str()), ("Drain", true, "2.10"));
    m.until("Confirm");
    assert_eq!((m.state("p0"), m.state("p1"), m.state("p2")), (State::Paused, State::Paused, State::Running));
    let mut let_go_at = None;
    for _ in 0..30 {
        m.turn();
        if !m.asks() {
            let_go_at = m.service("isb-0").set.clone();
            break;
        }
        m.numaflow();
        m.pass(1);
    }
    let set = let_go_at.expect("they are let go");
    assert_eq!((set.updated, set.ready, set.image.as_str()), (Some(3), 3, "nats:2.12"));
    m.settle();
    m.assert_good();
    let drain = m.status().last_drain.expect("a record of the drain");
    assert_eq!((drain.drained.as_slice(), drain.excused.len()), (["p0".to_owned()].as_slice(), 1));
    assert!(m.events.iter().any(|e| e.starts_with("NotDrained") && e.contains("p1")), "{:?}", m.events);
}

/// What it says right after the change is about what was before.
fn stale(m: &mut Model) {
    m.until("Confirm");
    m.turn();
    m.numaflow();
    assert!(m.service("isb-0").stale && m.service("isb-0").lacks.is_empty());
}

#[test]
fn stale_health_is_not_believed_although_its_spec_was_seen_to_be_unseen_before() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.versions = None;
    m.edit(|spec| spec["jetstream"]["settings"] = json!("max_payload: 2"));
    stale(&mut m);
    m.turn();
    assert_eq!((m.stage().as_str(), m.asks()), ("Confirm", true), "{}", m.message());
    m.numaflow();
    m.pass(3);
    m.turn();
    assert!(m.asks(), "the roll has only begun: {}", m.message());
    m.settle();
    m.assert_good();
}

#[test]
fn one_that_was_never_seen_to_roll_is_looked_at_twice() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.set_version("2.12");
    m.until("Confirm");
    for _ in 0..20 {
        m.numaflow();
    }
    assert!(m.is_healthy("isb-0"));
    let plan = m.turn();
    assert!(m.asks(), "{}", m.message());
    m.pass(i64::try_from(plan.again_after.expect("another look").as_secs()).unwrap() + 1);
    m.turn();
    assert!(!m.asks(), "{}", m.message());
}

#[test]
fn a_version_that_the_controller_does_not_know_pauses_nobody() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.set_version("9.9.9");
    m.settle();
    assert_eq!((m.phase().as_str(), m.asks(), m.writes.len()), ("Failed", false, 0), "{}", m.message());
    m.set_version("2.10");
    m.settle();
    m.assert_good();
}

#[test]
fn a_version_that_turns_out_to_be_unknown_is_taken_back_as_soon_as_numaflow_says_so_for_a_while() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.versions = None;
    m.set_version("9.9.9");
    m.wait(1);
    assert_eq!((m.phase().as_str(), m.asks(), m.version().as_str()), ("Failed", false, "2.10"), "{}", m.message());
    assert!(m.is_healthy("isb-0"));
    assert_eq!(m.state("p0"), State::Running);
    assert!(m.message().contains("no jetstream configuration"), "{}", m.message());
    m.set_version("2.12");
    m.settle();
    m.assert_good();
}

#[test]
fn a_version_that_never_gets_healthy_is_taken_back_by_the_deadline_and_not_tried_again_before_it_is_asked_for() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.manner(&json!({}), "2m");
    m.set_version("sick");
    m.until("Confirm");
    m.pass(119);
    m.settle();
    m.wait(2);
    assert_eq!((m.phase().as_str(), m.asks(), m.version().as_str()), ("Failed", false, "2.10"), "{}", m.message());
    assert!(m.message().contains("not healthy within 2m") && m.message().contains("retry"), "{}", m.message());
    assert_eq!(m.status().last_attempt.unwrap().reason, "NotHealthy");
    let writes = m.writes.len();
    m.wait(30);
    assert_eq!(m.writes.len(), writes);
    m.annotate("retry", "1");
    m.turn();
    assert!(m.asks(), "{}", m.message());
    m.wait(5);
    assert_eq!((m.phase().as_str(), m.asks()), ("Failed", false));
    m.set_version("2.10");
    m.settle();
    m.assert_good();
}

#[test]
fn what_is_edited_while_it_is_taken_back_makes_another_attempt_and_what_was_edited_before_does_not() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.set_version("sick");
    m.until("Confirm");
    m.manner(&json!({}), "1m");
    m.until("RollBack");
    m.settle();
    assert_eq!((m.phase().as_str(), m.version().as_str()), ("Failed", "2.10"), "it was judged by that deadline");
    m.annotate("retry", "1");
    m.until("Confirm");
    m.until("RollBack");
    m.manner(&json!({}), "5m");
    // Another attempt.
    m.until("Confirm");
    m.set_version("2.12");
    m.wait(1);
    m.assert_good();
    assert_eq!(m.version(), "2.12");
}

#[test]
fn where_taking_it_back_does_not_get_it_healthy_either_pipelines_are_let_go() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.set_version("sick");
    m.until("RollBack");
    // As if the version from before could not run any more.
    m.services.get_mut("isb-0").unwrap().set.as_mut().unwrap().replicas = 4;
    m.wait(12);
    assert_eq!((m.phase().as_str(), m.asks()), ("Failed", false), "{}", m.message());
    assert!(m.message().contains("not healthy with that either"), "{}", m.message());
    assert_eq!(m.state("p0"), State::Running);
    m.services.get_mut("isb-0").unwrap().set.as_mut().unwrap().replicas = 3;
    m.set_version("2.12");
    m.settle();
    m.assert_good();
}

#[test]
fn another_spec_in_each_stage_gets_out_of_it() {
    for stage in ["Drain", "Apply", "Confirm", "RollBack"] {
        for (other, child) in [("2.10", "isb-0"), ("2.14", "isb-0"), ("volume", "isb-1"), ("cpu", "isb-0")] {
            let mut m = Model::deployed(&[if stage == "Drain" { Rule::Stuck } else { Rule::Drains(0) }]);
            m.set_version("sick");
            in_stage(&mut m, stage);
            m.pipes.get_mut("p0").unwrap().rule = Rule::Drains(0);
            m.set_version(if other.starts_with('2') { other } else { "2.10" });
            match other {
                "volume" => m.set_volume("2Gi"),
                "cpu" => m.set_cpu("2"),
                _ => {}
            }
            m.wait(2);
            m.assert_good();
            assert_eq!(m.child(), child, "{stage} {other}");
            assert!(m.status().last_attempt.is_none());
        }
    }
}

/// Brings it there; Apply lasts for a moment only.
pub fn in_stage(m: &mut Model, stage: &str) {
    if stage != "Apply" {
        m.until(stage);
        return;
    }
    for _ in 0..200 {
        m.turn_of(1);
        if m.stage() == stage {
            return;
        }
        if m.decide().steps.is_empty() {
            m.others();
            m.pass(3);
        }
    }
    panic!("not in {stage}: {}", m.message());
}

#[test]
fn in_mid_roll_nobody_is_let_go_for_another_service_to_be_made() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.set_version("2.12");
    m.until("Confirm");
    m.numaflow();
    m.set_volume("2Gi");
    for _ in 0..40 {
        m.turn();
        if !m.asks() {
            break;
        }
        m.numaflow();
        m.pass(1);
    }
    assert!(!m.asks() && m.is_healthy("isb-0"), "{}", m.message());
    m.settle();
    m.assert_good();
    assert_eq!(m.child(), "isb-1");
}

#[test]
fn a_roll_that_is_taken_back_for_another_service_was_not_judged_and_may_be_asked_for_again() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.set_version("2.12");
    m.until("Confirm");
    m.set_volume("2Gi");
    m.until("RollBack");
    m.set_volume("1Gi");
    m.wait(1);
    m.assert_good();
    assert_eq!((m.child().as_str(), m.version().as_str()), ("isb-0", "2.12"));
}

#[test]
fn two_changes_one_after_the_other_are_two_drains() {
    let mut m = Model::deployed(&[Rule::Drains(1)]);
    m.set_version("2.12");
    m.settle();
    let first = m.status().pause_request.unwrap().attempt;
    m.set_version("2.14");
    m.settle();
    m.assert_good();
    assert_ne!(m.status().pause_request.unwrap().attempt, first);
    m.set_version("2.12");
    m.settle();
    m.assert_good();
}

#[test]
fn a_retry_while_pipelines_drain_is_another_request_in_the_same_second() {
    let mut m = Model::deployed(&[Rule::Stuck]);
    m.set_version("2.12");
    m.turn();
    let first = m.status().pause_request.unwrap().attempt;
    m.annotate("retry", "1");
    m.turn();
    assert!(m.asks());
    assert_ne!(m.status().pause_request.unwrap().attempt, first, "answers to the first would count for the second");
}
