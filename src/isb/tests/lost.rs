//! Stories of what is lost or edited in the middle of a change: the status, the service itself, the spec.

use serde_json::json;

use super::{in_place::in_stage, model::State, *};

/// Each stage, with the change that leads there.
fn each(then: impl Fn(&mut Model, &str)) {
    for stage in ["Beside", "Drain", "Drain to another", "Apply", "Confirm", "RollBack"] {
        let drains = if stage.starts_with("Drain") { Rule::Drains(9) } else { Rule::Drains(0) };
        let mut m = Model::deployed(&[drains]);
        m.manner(&json!({}), "1m");
        match stage {
            "Beside" | "Drain to another" => m.set_volume("2Gi"),
            "RollBack" => m.set_version("sick"),
            _ => m.set_version("2.12"),
        }
        in_stage(&mut m, stage.split(' ').next().unwrap());
        then(&mut m, stage);
    }
}

/// It ends well; after a version that never gets ready, with another one.
fn ends_well(m: &mut Model, stage: &str) {
    m.wait(if stage == "RollBack" { 5 } else { 2 });
    if stage == "RollBack" {
        assert!(!m.asks(), "{}", m.message());
        m.set_version("2.14");
        m.wait(2);
    }
    m.assert_good();
}

#[test]
fn a_status_that_is_lost_in_any_stage_leaves_nobody_paused() {
    each(|m, stage| {
        m.rollout.status = None;
        m.turn();
        ends_well(m, stage);
    });
}

#[test]
fn a_request_that_somebody_edits_in_any_stage_is_made_again_or_not_needed_any_more() {
    each(|m, stage| {
        m.meddle(|status| status.pause_request = None);
        m.others();
        ends_well(m, stage);
    });
    each(|m, stage| {
        m.meddle(|status| {
            if let Some(request) = &mut status.pause_request {
                (request.active, request.attempt) = (true, "another".into());
            }
        });
        ends_well(m, stage);
    });
}

#[test]
fn a_change_that_somebody_edits_in_any_stage_never_costs_the_service() {
    each(|m, stage| {
        m.meddle(|status| {
            let change = status.change.as_mut().unwrap();
            (change.before, change.drain) = (None, None);
        });
        ends_well(m, stage);
    });
    each(|m, stage| {
        m.meddle(|status| {
            let change = status.change.as_mut().unwrap();
            change.before = Some(crate::api::Raw(json!({"nothing": 1})));
            change.stage_started_at = None;
        });
        ends_well(m, stage);
    });
    each(|m, stage| {
        m.meddle(|status| status.change.as_mut().unwrap().stage = "FromTheFuture".into());
        ends_well(m, stage);
    });
    each(|m, stage| {
        m.meddle(|status| status.change = None);
        ends_well(m, stage);
    });
    for other in ["Beside", "Drain", "Apply", "Confirm", "RollBack"] {
        each(|m, stage| {
            m.meddle(|status| status.change.as_mut().unwrap().stage = other.into());
            m.wait(3);
            assert!(!m.asks(), "{stage} {other}: {}", m.message());
            m.annotate("retry", other);
            ends_well(m, stage);
        });
    }
}

#[test]
fn a_service_on_record_that_somebody_edits_is_found_again() {
    for name in ["", "nothing", "isb-7"] {
        each(|m, stage| {
            m.meddle(|status| name.clone_into(&mut status.child));
            ends_well(m, stage);
        });
    }
}

#[test]
fn a_service_deleted_by_hand_in_any_stage_is_replaced_and_pipelines_move() {
    each(|m, stage| {
        m.delete_service("isb-0");
        m.settle();
        ends_well(m, stage);
        assert_ne!(m.child(), "isb-0", "{stage}");
    });
}

#[test]
fn a_service_that_is_gone_in_any_stage_is_replaced_and_nobody_stays_paused() {
    each(|m, stage| {
        m.services.remove("isb-0");
        m.turn();
        assert!(!m.asks() || stage == "Drain to another", "{stage}: {}", m.message());
        ends_well(m, stage);
    });
}

#[test]
fn the_other_service_that_is_gone_or_deleted_before_it_is_used_costs_nobody_a_pause() {
    for (stage, gone) in [("Beside", true), ("Beside", false), ("Drain", true), ("Drain", false)] {
        let mut m = Model::deployed(&[Rule::Mute]);
        m.set_volume("2Gi");
        m.until(stage);
        if gone {
            m.services.remove("isb-1");
        } else {
            m.delete_service("isb-1");
        }
        m.turn();
        assert!(!m.asks(), "{stage}: {}", m.message());
        m.pipes.get_mut("p0").unwrap().rule = Rule::Drains(0);
        m.annotate("retry", "1");
        m.wait(2);
        m.assert_good();
    }
}

#[test]
fn the_one_that_was_to_go_does_not_come_back_when_the_one_in_use_is_gone() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.pipe("mine", Rule::Mute).managed = false;
    m.set_volume("2Gi");
    m.wait(2);
    assert_eq!(m.names(), ["isb-0", "isb-1"]);
    m.services.remove("isb-1");
    m.turn();
    assert_eq!((m.child().as_str(), m.stage().as_str()), ("isb-2", ""), "nobody is sent back: {}", m.message());
    m.settle();
    assert_eq!((m.child().as_str(), m.pipes["p0"].isb.as_str()), ("isb-2", "isb-2"), "{}", m.message());
    m.pipes.remove("mine");
    m.settle();
    m.assert_good();
}

#[test]
fn a_spec_that_cannot_be_read_in_any_stage_leaves_nobody_paused_and_a_good_one_gets_out() {
    each(|m, stage| {
        let good = m.rollout.spec.inter_step_buffer_service.spec.0.clone();
        m.edit(|spec| *spec = json!("nonsense"));
        m.wait(4);
        assert_eq!((m.phase().as_str(), m.asks(), m.state("p0")), ("Failed", false, State::Running), "{stage}");
        assert!(m.message().contains("spec.interStepBufferService.spec"), "{stage}: {}", m.message());
        m.edit(|spec| *spec = good);
        if stage == "RollBack" {
            m.set_version("2.14");
        }
        m.wait(2);
        m.assert_good();
    });
}

#[test]
fn a_strategy_that_cannot_be_read_is_said_before_anything_begins_and_stops_nothing_that_runs() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.manner(&json!({"drainTimeout": "soon"}), "10m");
    m.set_version("2.12");
    m.settle();
    assert_eq!((m.phase().as_str(), m.asks()), ("Failed", false));
    assert!(m.message().contains("drainTimeout"), "{}", m.message());
    m.manner(&json!({}), "10m");
    m.until("Confirm");
    m.manner(&json!({"drainTimeout": "soon"}), "soon");
    m.settle();
    assert_eq!((m.asks(), m.version().as_str(), m.state("p0")), (false, "2.12", State::Running), "{}", m.message());
    m.manner(&json!({}), "10m");
    m.settle();
    m.assert_good();
}

#[test]
fn a_rollout_that_cannot_be_decoded_for_a_while_changes_nothing_under_pipelines_that_ran_meanwhile() {
    each(|m, stage| {
        m.undecodable = true;
        m.wait(1);
        m.undecodable = false;
        ends_well(m, stage);
    });
}

#[test]
fn where_the_kind_is_not_served_any_more_no_request_stays() {
    each(|m, stage| {
        m.served = false;
        m.services.clear();
        m.settle();
        assert_eq!((m.asks(), m.phase().as_str()), (false, "Pending"), "{stage}: {}", m.message());
        m.served = true;
        ends_well(m, stage);
    });
}

#[test]
fn what_cannot_be_read_is_not_taken_for_healthy_and_keeps_nobody_paused_for_ever() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.set_version("2.12");
    m.until("Confirm");
    m.unreadable = true;
    m.settle();
    assert!(m.asks() && m.message().contains("forbidden"), "{}", m.message());
    m.wait(25);
    assert_eq!((m.asks(), m.state("p0")), (false, State::Running), "{}", m.message());
    assert!(m.status().last_attempt.is_none(), "it was not judged");
    m.unreadable = false;
    m.settle();
    m.assert_good();
}

#[test]
fn what_could_not_be_judged_afterwards_pauses_nobody() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.unreadable = true;
    m.set_version("2.12");
    m.settle();
    assert_eq!((m.asks(), m.phase().as_str(), m.state("p0")), (false, "Failed", State::Running), "{}", m.message());
    assert!(m.message().contains("forbidden"), "{}", m.message());
    m.unreadable = false;
    m.settle();
    m.assert_good();
}
