//! Stories of controllers that are gone, and of clocks.

use std::collections::BTreeSet;

use serde_json::json;

use super::{in_place::in_stage, model::State, *};

fn gone(m: &mut Model, yes: bool) {
    if yes {
        m.gone.insert(String::new())
    } else {
        m.gone.remove("")
    };
}

#[test]
fn without_its_controller_no_change_is_begun_and_nobody_is_asked() {
    for other in ["version", "volume"] {
        let mut m = Model::deployed(&[Rule::Drains(0)]);
        gone(&mut m, true);
        if other == "version" {
            m.set_version("2.12");
        } else {
            m.set_volume("2Gi");
        }
        m.wait(20);
        assert_eq!((m.phase().as_str(), m.asks(), m.services.len()), ("Pending", false, 1), "{}", m.message());
        assert!(m.message().contains("ControllerUnavailable"), "{}", m.message());
        assert!(m.writes.is_empty());
        gone(&mut m, false);
        m.settle();
        m.assert_good();
    }
}

#[test]
fn a_controller_that_goes_while_pipelines_drain_lets_them_go_and_nothing_is_changed_without_it() {
    for other in ["version", "volume"] {
        let mut m = Model::deployed(&[Rule::Drains(3)]);
        if other == "version" {
            m.set_version("2.12");
        } else {
            m.set_volume("2Gi");
        }
        m.until("Drain");
        let services = m.services.len();
        gone(&mut m, true);
        m.wait(20);
        assert_eq!((m.asks(), m.child().as_str(), m.version().as_str()), (false, "isb-0", "2.10"), "{}", m.message());
        assert!(m.message().contains("ControllerUnavailable"), "{}", m.message());
        assert_eq!(m.services.len(), services, "what is ready is kept");
        gone(&mut m, false);
        m.settle();
        m.assert_good();
    }
}

#[test]
fn while_the_controller_is_gone_the_clocks_of_all_stages_stand_still() {
    for stage in ["Beside", "Apply", "Confirm", "RollBack"] {
        let mut m = Model::deployed(&[Rule::Drains(0)]);
        match stage {
            "Beside" => m.set_volume("2Gi"),
            "RollBack" => m.set_version("sick"),
            _ => m.set_version("2.12"),
        }
        in_stage(&mut m, stage);
        gone(&mut m, true);
        m.wait(30);
        let waits = if stage == "Apply" { "Confirm" } else { stage };
        assert_eq!(m.stage(), waits, "{stage}: {}", m.message());
        assert!(m.message().contains("ControllerUnavailable"), "{}", m.message());
        gone(&mut m, false);
        m.wait(2);
        if stage == "RollBack" {
            assert_eq!((m.phase().as_str(), m.asks(), m.version().as_str()), ("Failed", false, "2.10"));
            m.set_version("2.12");
            m.settle();
        }
        m.assert_good();
    }
}

#[test]
fn a_service_leaves_a_controller_that_is_gone_for_good() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    gone(&mut m, true);
    m.set_instance("blue");
    // Those on the old one cannot be paused, and are not waited for.
    m.settle();
    assert_eq!(
        (m.child().as_str(), m.service("isb-1").instance(), m.asks()),
        ("isb-1", "blue", false),
        "{}",
        m.message()
    );
    gone(&mut m, false);
    m.settle();
    m.assert_good();
}

#[test]
fn a_service_moves_to_another_instance_only_when_that_has_a_controller() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.gone.insert("blue".to_owned());
    m.set_instance("blue");
    m.wait(20);
    assert_eq!((m.asks(), m.names()), (false, vec!["isb-0"]), "{}", m.message());
    m.gone.clear();
    m.until("Beside");
    m.gone.insert("blue".to_owned());
    m.wait(20);
    assert_eq!((m.stage().as_str(), m.asks()), ("Beside", false), "its clock stands still: {}", m.message());
    m.gone.clear();
    m.settle();
    m.assert_good();
}

#[test]
fn force_goes_on_although_the_controller_is_gone() {
    let mut m = Model::deployed(&[Rule::Mute]);
    m.set_version("2.12");
    m.until("Drain");
    gone(&mut m, true);
    m.annotate("force", "now");
    m.turn();
    assert_eq!(m.version(), "2.12", "{}", m.message());
    gone(&mut m, false);
    m.settle();
    m.assert_good();
}

#[test]
fn a_clock_that_was_fast_holds_up_no_stage() {
    for stage in ["Beside", "Drain", "Apply", "Confirm", "RollBack"] {
        let mut m = Model::deployed(&[if stage == "Drain" { Rule::Slow } else { Rule::Drains(0) }]);
        m.manner(&json!({"drainTimeout": "1m"}), "2m");
        m.now = at(40_000_000);
        if stage == "Beside" {
            m.edit(|spec| spec["jetstream"] = json!({"version": "sick", "persistence": {"volumeSize": "9Gi"}}));
        } else {
            m.set_version("sick");
        }
        in_stage(&mut m, stage);
        m.now = at(1000);
        m.wait(8);
        assert_eq!((m.phase().as_str(), m.asks(), m.state("p0")), ("Failed", false, State::Running), "{stage}");
        m.edit(|spec| *spec = super::model::spec("2.14"));
        m.wait(2);
        m.assert_good();
    }
}

#[test]
fn a_clock_that_was_fast_does_not_hold_up_what_the_server_had_refused() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.now = at(40_000_000);
    m.server.refuses = Some("2.12".to_owned());
    m.set_version("2.12");
    m.settle();
    m.now = at(1000);
    m.server.refuses = None;
    m.wait(3);
    m.assert_good();
}

#[test]
fn a_version_that_only_the_coming_controller_knows_waits_for_it_and_is_no_failure() {
    let mut m = Model::deployed(&[Rule::Drains(0)]);
    m.versions = Some(vec!["2.10"]);
    m.upgrading = BTreeSet::from([String::new()]);
    m.set_version("2.12");
    m.settle();
    assert_eq!((m.asks(), m.phase().as_str()), (false, "Pending"), "{}", m.message());
    assert!(m.message().contains("waiting for the upgrade of its controller"), "{}", m.message());
    m.upgrading.clear();
    m.settle();
    assert_eq!((m.asks(), m.phase().as_str()), (false, "Failed"), "{}", m.message());
    m.versions = Some(vec!["2.10", "2.12"]);
    m.settle();
    m.assert_good();
}
