//! Stories of an API server that refuses, does not answer, or has seen somebody else's write first.

use super::{in_place::in_stage, model::State, *};

#[test]
fn a_change_that_the_server_refuses_pauses_nobody_and_is_tried_again() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.server.refuses = Some("2.12".to_owned());
    m.set_version("2.12");
    m.settle();
    assert_eq!((m.phase().as_str(), m.asks(), m.writes.len()), ("Failed", false, 0));
    assert!(m.message().contains("2.12 is not allowed"), "{}", m.message());
    assert_eq!(m.condition("Reconciling").0, "True");
    m.server.refuses = None;
    m.wait(3);
    m.assert_good();
}

#[test]
fn another_service_that_the_server_refuses_pauses_nobody_and_is_tried_again() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.server.refuses = Some("2Gi".to_owned());
    m.set_volume("2Gi");
    m.wait(2);
    assert_eq!((m.phase().as_str(), m.asks(), m.names()), ("Failed", false, vec!["isb-0"]), "{}", m.message());
    m.server.refuses = None;
    m.wait(9);
    m.assert_good();
}

#[test]
fn a_refusal_after_pipelines_have_paused_lets_them_go_and_is_no_judgement() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    (m.server.refuses, m.server.lies) = (Some("2.12".to_owned()), true);
    m.set_version("2.12");
    m.settle();
    assert_eq!((m.phase().as_str(), m.asks(), m.version().as_str()), ("Failed", false, "2.10"), "{}", m.message());
    assert_eq!((m.state("p0"), m.condition("Reconciling").0.as_str()), (State::Running, "True"));
    assert!(m.writes.is_empty(), "{:?}", m.writes);
    m.server.refuses = None;
    m.wait(3);
    m.assert_good();
}

#[test]
fn a_second_spec_that_is_refused_in_mid_roll_has_the_first_taken_back() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.set_version("sick");
    m.until("Confirm");
    (m.server.refuses, m.server.lies) = (Some("2.14".to_owned()), true);
    m.set_version("2.14");
    m.wait(2);
    assert_eq!((m.phase().as_str(), m.asks(), m.version().as_str()), ("Failed", false, "2.10"), "{}", m.message());
    assert!(m.is_healthy("isb-0"));
    m.server.refuses = None;
    m.annotate("retry", "1");
    m.settle();
    m.assert_good();
}

#[test]
fn where_taking_it_back_is_refused_pipelines_are_let_go_when_its_time_is_up() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.manner(&serde_json::json!({}), "1m");
    m.set_version("sick");
    m.until("Confirm");
    m.server.refuses = Some("isb-0".to_owned());
    m.wait(3);
    assert_eq!((m.asks(), m.state("p0")), (false, State::Running), "{}", m.message());
    assert!(m.events.iter().any(|e| e.contains("cannot be put back") && e.contains("not allowed")), "{:?}", m.events);
    m.server.refuses = None;
    m.set_version("2.12");
    m.settle();
    m.assert_good();
}

#[test]
fn what_was_not_answered_may_have_been_done_and_nobody_is_let_go_while_it_rolls() {
    for done in [true, false] {
        let mut m = Model::deployed(&[Rule::Drains(0)]);
        m.set_version("2.12");
        in_stage(&mut m, "Apply");
        m.server.silent = Some(done);
        for _ in 0..8 {
            m.turn();
            m.pass(5);
            assert!(m.asks(), "{}", m.message());
        }
        m.server.silent = None;
        m.settle();
        m.assert_good();
    }
}

#[test]
fn a_server_that_never_answers_again_keeps_nobody_paused_for_ever() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.set_version("2.12");
    in_stage(&mut m, "Apply");
    m.server.silent = Some(false);
    m.wait(25);
    assert_eq!((m.asks(), m.version().as_str(), m.state("p0")), (false, "2.10", State::Running), "{}", m.message());
    m.server.silent = None;
    m.annotate("retry", "1");
    m.wait(1);
    m.assert_good();
}

#[test]
fn writes_of_others_in_between_are_decided_about_again() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.server.conflicts = 5;
    m.set_version("2.12");
    m.set_volume("2Gi");
    m.wait(2);
    m.assert_good();
}

#[test]
fn a_server_that_refuses_everything_in_any_stage_keeps_nobody_paused() {
    for stage in ["Beside", "Drain", "Apply", "Confirm", "RollBack"] {
        let mut m = Model::deployed(&[Rule::Drains(2)]);
        match stage {
            "Beside" => m.set_volume("2Gi"),
            "RollBack" => m.set_version("sick"),
            _ => m.set_version("2.12"),
        }
        in_stage(&mut m, stage);
        (m.server.refuses, m.server.keeps, m.server.rigid) = (Some("isb".to_owned()), true, true);
        m.wait(25);
        assert_eq!((m.asks(), m.state("p0")), (false, State::Running), "{stage}: {}", m.message());
        m.server = Default::default();
        m.set_version("2.14");
        m.wait(2);
        m.assert_good();
    }
}
