//! Stories of services that take the place of another: made beside it first, and then moved to.

use serde_json::json;

use super::{model::State, *};
use crate::api::IsbStage;

#[test]
fn another_service_is_made_beside_first_then_pipelines_are_drained_and_move_and_the_old_one_goes() {
    let mut m = Model::deployed(&[Rule::Drains(1), Rule::Undrained(0)]);
    m.set_volume("2Gi");
    m.turn();
    assert_eq!((m.stage().as_str(), m.asks(), m.names()), ("Beside", false, vec!["isb-0", "isb-1"]));
    assert_eq!((m.service("isb-1").state(), m.child().as_str()), ("upgrading", "isb-0"));
    m.until("Drain");
    assert!(m.is_healthy("isb-1") && m.asks());
    m.settle();
    m.assert_good();
    assert_eq!((m.child().as_str(), m.service("isb-1").state()), ("isb-1", "promoted"));
    assert!(m.writes.contains(&"delete isb-0".to_owned()), "{:?}", m.writes);
    assert!(m.status().last_drain.unwrap().not_drained[0].contains("p1"));
}

#[test]
fn a_service_that_does_not_get_healthy_is_removed_and_nobody_noticed() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.edit(|spec| {
        spec["jetstream"]["version"] = json!("sick");
        spec["jetstream"]["persistence"]["volumeSize"] = json!("2Gi");
    });
    m.until("Beside");
    for _ in 0..1000 {
        m.turn();
        m.others();
        m.pass(1);
        assert!(!m.asks() && m.state("p0") == State::Running && m.child() == "isb-0");
        if m.phase() == "Failed" {
            break;
        }
    }
    m.settle();
    assert_eq!((m.phase().as_str(), m.names()), ("Failed", vec!["isb-0"]), "{}", m.message());
    assert!(m.message().contains("isb-1 was not healthy within 10m"), "{}", m.message());
    m.set_version("2.12");
    m.settle();
    m.assert_good();
}

#[test]
fn the_old_service_is_kept_and_named_while_a_pipeline_without_a_rollout_uses_it() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.pipe("mine", Rule::Mute).managed = false;
    m.set_volume("2Gi");
    m.wait(2);
    assert_eq!((m.phase().as_str(), m.names()), ("Deployed", vec!["isb-0", "isb-1"]), "{}", m.message());
    assert!(m.message().contains("isb-0 (Pipeline/mine)"), "{}", m.message());
    assert_eq!(m.service("isb-0").state(), "recyclable");
    m.pipes.remove("mine");
    m.settle();
    m.assert_good();
}

#[test]
fn while_pipelines_have_not_moved_yet_it_is_not_deployed_and_says_who() {
    let mut m = Model::deployed(&[Rule::Drains(0), Rule::Drains(0)]);
    m.pipes.get_mut("p1").unwrap().moves = false;
    m.set_volume("2Gi");
    m.wait(2);
    assert_eq!((m.phase().as_str(), m.asks()), ("Pending", false));
    assert!(m.message().contains("Pipeline/p1") && !m.message().contains("p0"), "{}", m.message());
    m.pipes.get_mut("p1").unwrap().moves = true;
    m.settle();
    m.assert_good();
}

#[test]
fn a_leftover_that_waits_for_a_pipeline_is_nudged_when_that_is_gone() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.pipe("mine", Rule::Mute).managed = false;
    m.set_volume("2Gi");
    m.wait(1);
    m.delete_service("isb-0");
    m.settle();
    assert_eq!(m.names(), ["isb-0", "isb-1"]);
    m.pipes.remove("mine");
    m.settle();
    assert!(m.writes.iter().any(|w| w.contains("no pipeline refers to it")), "{:?}", m.writes);
    m.assert_good();
}

#[test]
fn another_spec_in_each_stage_gets_out_of_it_and_leaves_nothing() {
    for stage in ["Beside", "Drain"] {
        for (version, volume) in [("2.10", "1Gi"), ("2.12", "1Gi"), ("2.10", "3Gi")] {
            let mut m = Model::deployed(&[Rule::Mute]);
            m.set_volume("2Gi");
            m.until(stage);
            m.pipes.get_mut("p0").unwrap().rule = Rule::Drains(0);
            m.set_version(version);
            m.set_volume(volume);
            m.settle();
            m.assert_good();
        }
    }
}

#[test]
fn many_specs_in_a_row_do_not_pile_up_services() {
    let mut m = Model::deployed(&[Rule::Mute]);
    for n in 2..9 {
        m.set_volume(&format!("{n}Gi"));
        m.until("Beside");
        for _ in 0..3 {
            m.turn();
            m.others();
        }
        assert!(m.services.len() <= 3, "{:?}", m.names());
    }
}

#[test]
fn a_service_that_got_sick_while_pipelines_drained_is_not_moved_to() {
    let mut m = Model::deployed(&[Rule::Drains(5)]);
    m.set_volume("2Gi");
    m.until("Drain");
    m.services.get_mut("isb-1").unwrap().set.as_mut().unwrap().replicas = 4;
    m.settle();
    assert_eq!((m.phase().as_str(), m.asks(), m.names()), ("Failed", false, vec!["isb-0"]), "{}", m.message());
    assert!(m.message().contains("was healthy, and is no longer"), "{}", m.message());
    assert_eq!(m.state("p0"), State::Running);
    m.annotate("retry", "1");
    m.settle();
    m.assert_good();
}

#[test]
fn a_service_that_cannot_be_read_any_more_after_the_drain_is_what_it_was_before() {
    let mut m = Model::deployed(&[Rule::Drains(5)]);
    m.set_volume("2Gi");
    m.until("Drain");
    m.unreadable = true;
    m.settle();
    assert_eq!((m.child().as_str(), m.asks()), ("isb-1", false), "{}", m.message());
    m.unreadable = false;
    m.settle();
    m.assert_good();
}

#[test]
fn a_name_that_somebody_else_took_meanwhile_is_left_to_them() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.set_volume("2Gi");
    m.turn_of(1);
    assert_eq!((m.stage().as_str(), m.status().change.unwrap().to.as_str()), ("Beside", "isb-1"));
    m.foreign.insert("isb-1".to_owned());
    m.wait(1);
    m.assert_good();
    assert_eq!(m.child(), "isb-2");
}

#[test]
fn a_service_of_a_change_before_whose_making_was_not_answered_is_not_taken_for_the_one_asked_for() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.set_volume("2Gi");
    m.turn_of(2);
    let made = m.decide().steps;
    m.set_volume("3Gi");
    m.turn_of(2);
    assert_eq!(m.status().change.unwrap().to, "isb-1");
    // Only now the server does what it was asked for by the change before.
    m.carry_out(&made[0]);
    for _ in 0..20 {
        m.turn();
        m.others();
        assert_ne!(m.child(), "isb-1", "nobody moves to what is not asked for");
    }
    m.wait(1);
    m.assert_good();
    assert_eq!(m.child(), "isb-2");
}

#[test]
fn a_rule_that_asks_for_another_service_by_now_ends_the_drain_in_place() {
    let mut m = Model::deployed(&[Rule::Mute]);
    m.set_version("2.12");
    m.until("Drain");
    let mut rules = (*m.rules).clone();
    rules.recreate.push(crate::changes::Rule { path: "spec.jetstream.version".into(), include_subfields: true });
    m.rules = std::sync::Arc::new(rules);
    m.turn();
    assert_eq!((m.stage().as_str(), m.asks()), (IsbStage::Beside.as_str(), false), "{}", m.message());
    m.pipes.get_mut("p0").unwrap().rule = Rule::Drains(0);
    m.settle();
    m.assert_good();
    assert_eq!(m.child(), "isb-1");
}

#[test]
fn where_the_strategy_is_no_strategy_another_service_is_drained_for_all_the_same() {
    let mut m = Model::deployed(&[Rule::Drains(1)]);
    m.strategy = crate::api::Strategy::NoStrategy;
    m.set_volume("2Gi");
    m.until("Drain");
    assert!(m.asks());
    m.settle();
    m.assert_good();
}

#[test]
fn c16_a_service_that_would_get_too_long_a_name_with_its_next_number_stays_as_it_is_and_that_is_said() {
    let mut m = Model::new();
    let name = "a".repeat(40);
    m.rollout.metadata.name = Some(name.clone());
    m.settle();
    assert!(m.message().contains("(with room for a number of four digits)"), "{}", m.message());
    let mut status = m.status();
    status.name_count = Some(9);
    m.rollout.status = Some(status);
    m.settle();
    assert_eq!((m.phase().as_str(), m.child()), ("Deployed", format!("{name}-9")), "{}", m.message());
    m.writes.clear();
    m.set_volume("2Gi");
    m.settle();
    assert_eq!((m.phase().as_str(), m.writes.len()), ("Failed", 0), "{:?}", m.writes);
    assert!(m.message().contains(&format!("StatefulSet \"isbsvc-{name}-10-js\" has 64 characters")), "{}", m.message());
    m.set_volume("1Gi");
    m.settle();
    assert_eq!(m.phase(), "Deployed", "{}", m.message());
}
