//! Stories of rollouts that are deleted.

use super::{in_place::in_stage, model::State, *};

fn pipelines_go(m: &mut Model) {
    m.pipes.values_mut().for_each(|p| p.deleting = true);
    m.settle();
}

fn assert_gone(m: &Model) {
    assert!(m.released && m.services.is_empty(), "{}: {:?}", m.message(), m.services);
}

#[test]
fn a_rollout_that_nothing_uses_goes_with_its_service() {
    let mut m = Model::deployed(&[]);
    m.delete();
    m.settle();
    assert_gone(&m);
}

#[test]
fn in_each_stage_it_withdraws_its_request_and_waits_for_the_pipelines() {
    for stage in ["Beside", "Drain", "Apply", "Confirm", "RollBack"] {
        let mut m = Model::deployed(&[if stage == "Drain" { Rule::Stuck } else { Rule::Drains(0) }]);
        m.pipe("mine", Rule::Mute).managed = false;
        match stage {
            "Beside" => m.set_volume("2Gi"),
            "RollBack" => m.set_version("sick"),
            _ => m.set_version("2.12"),
        }
        in_stage(&mut m, stage);
        m.delete();
        m.turn();
        assert!(!m.asks() && m.stage().is_empty(), "{stage}: {}", m.message());
        m.wait(30);
        assert_eq!((m.released, m.state("p0"), m.phase().as_str()), (false, State::Running, "Pending"), "{stage}");
        assert!(m.message().contains("p0") && m.message().contains("mine"), "{}", m.message());
        assert!(!m.writes.iter().any(|w| w.starts_with("delete")), "{:?}", m.writes);
        pipelines_go(&mut m);
        assert_gone(&m);
    }
}

#[test]
fn a_service_that_waits_for_its_pipelines_is_nudged_when_they_are_gone() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.delete_service("isb-0");
    m.numaflow();
    m.delete();
    m.wait(2);
    assert!(!m.released && m.services.contains_key("isb-0"));
    pipelines_go(&mut m);
    assert!(m.writes.iter().any(|w| w.contains("no pipeline refers to it")), "{:?}", m.writes);
    assert_gone(&m);
}

#[test]
fn force_ends_the_waiting() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.delete();
    m.annotate("force", "");
    m.wait(5);
    assert!(!m.released, "an empty text is none");
    m.annotate("force", "away");
    m.settle();
    assert!(m.released && m.service("isb-0").deleting);
    assert_eq!(m.status().last_force.unwrap().ended, "the deletion");
}

#[test]
fn force_that_has_ended_a_drain_ends_no_deletion() {
    let mut m = Model::deployed(&[Rule::Stuck]);
    m.annotate("force", "go");
    m.set_version("2.12");
    m.settle();
    m.delete();
    m.wait(5);
    assert!(!m.released);
}

#[test]
fn while_pipelines_are_not_known_it_waits_and_says_for_what() {
    let mut m = Model::deployed(&[]);
    m.unknown = vec!["Pipelines (not listed yet)".to_owned()];
    m.delete();
    m.settle();
    assert!(!m.released && m.message().contains("waiting for Pipelines (not listed yet)"), "{}", m.message());
    m.unknown.clear();
    m.settle();
    assert_gone(&m);
}

#[test]
fn without_a_controller_it_says_why_it_does_not_go_and_goes_when_there_is_one() {
    let mut m = Model::deployed(&[]);
    m.gone.insert(String::new());
    m.delete();
    m.wait(2);
    assert!(!m.released && m.message().contains("no pod of its controller"), "{}", m.message());
    m.gone.clear();
    m.settle();
    assert_gone(&m);
}

#[test]
fn a_server_that_refuses_the_deletion_is_quoted_and_asked_again() {
    let mut m = Model::deployed(&[]);
    m.server.keeps = true;
    m.delete();
    m.settle();
    assert!(!m.released && m.message().contains("must not be deleted"), "{}", m.message());
    m.server.keeps = false;
    m.settle();
    assert_gone(&m);
}
