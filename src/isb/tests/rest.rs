//! Stories at rest: a service is made, kept as it should be, and changed where that needs nobody to pause.

use serde_json::json;

use super::*;
use crate::{api::Strategy, live::ANNOTATION_APPLIED};

#[test]
fn the_first_service_is_made_and_deployed_when_it_is_healthy() {
    let mut m = Model::new();
    m.turn();
    assert_eq!(m.names(), ["isb-0"]);
    assert_eq!((m.phase().as_str(), m.asks()), ("Pending", false), "{}", m.message());
    m.settle();
    m.assert_good();
    let writes = m.writes.len();
    m.wait(3);
    assert_eq!(m.writes.len(), writes, "at rest nothing is written: {:?}", m.writes);
}

#[test]
fn a_first_service_that_never_gets_ready_pauses_nobody_and_is_replaced_by_a_good_spec() {
    let mut m = Model::new();
    m.set_version("sick");
    m.wait(15);
    assert_eq!((m.phase().as_str(), m.asks()), ("Pending", false), "{}", m.message());
    assert!(m.message().contains("isb-0"), "{}", m.message());
    m.set_version("2.12");
    m.wait(2);
    m.assert_good();
}

#[test]
fn a_version_that_the_controller_does_not_know_is_not_even_made() {
    let mut m = Model::new();
    m.set_version("9.9.9");
    m.settle();
    assert!(m.services.is_empty());
    assert_eq!(m.phase(), "Failed");
    assert!(m.message().contains("9.9.9") && m.message().contains("2.12"), "{}", m.message());
    m.set_version("2.12");
    m.settle();
    m.assert_good();
}

#[test]
fn what_somebody_changes_by_hand_is_put_back_and_what_they_add_is_removed() {
    let mut m = Model::deployed(&[Rule::Drains(1)]);
    let service = m.services.get_mut("isb-0").unwrap();
    service.meddle(|spec| {
        spec["jetstream"]["settings"] = json!("max_payload: 2");
        spec["jetstream"]["nodeSelector"] = json!({"disk": "ssd"});
    });
    service.labels.remove("numaplane.numaproj.io/upgrade-state");
    service.owned = false;
    m.settle();
    m.assert_good();
    let service = m.service("isb-0");
    assert_eq!((service.state(), service.owned), ("promoted", true));
    assert!(!m.writes.is_empty());
}

#[test]
fn a_change_that_loses_nothing_pauses_nobody() {
    let mut m = Model::deployed(&[Rule::Stuck]);
    m.set_cpu("2");
    m.turn();
    assert_eq!((m.writes.as_slice(), m.asks()), (["apply isb-0".to_owned()].as_slice(), false));
    m.settle();
    m.assert_good();
}

#[test]
fn where_the_strategy_is_no_strategy_a_change_in_place_pauses_nobody() {
    let mut m = Model::deployed(&[Rule::Stuck]);
    m.strategy = Strategy::NoStrategy;
    m.set_version("2.12");
    m.turn();
    assert_eq!((m.version().as_str(), m.asks()), ("2.12", false));
    m.settle();
    m.assert_good();
}

#[test]
fn what_others_add_and_nobody_lets_us_remove_is_said_and_holds_up_no_change() {
    let mut m = Model::deployed(&[Rule::Drains(1)]);
    m.server.rigid = true;
    m.services.get_mut("isb-0").unwrap().meddle(|spec| spec["jetstream"]["nodeSelector"] = json!({"disk": "ssd"}));
    m.settle();
    assert_eq!(m.phase(), "Failed");
    assert!(m.message().contains("must not be changed"), "{}", m.message());
    m.set_version("2.12");
    m.settle();
    assert_eq!((m.version().as_str(), m.asks()), ("2.12", false), "{}", m.message());
    m.server.rigid = false;
    m.settle();
    m.assert_good();
}

#[test]
fn a_service_that_lost_the_mark_of_what_was_applied_is_only_marked() {
    let mut m = Model::deployed(&[Rule::Stuck]);
    m.services.get_mut("isb-0").unwrap().annotations.remove(ANNOTATION_APPLIED);
    m.settle();
    m.assert_good();
}

#[test]
fn a_service_deleted_by_hand_while_nothing_uses_it_is_made_anew() {
    let mut m = Model::deployed(&[]);
    m.services.clear();
    m.settle();
    m.assert_good();
    assert_eq!(m.names(), ["isb-1"]);
}

#[test]
fn a_leftover_whose_removal_is_refused_holds_up_no_change() {
    let mut m = Model::deployed(&[Rule::Drains(1)]);
    m.pipe("mine", Rule::Mute).managed = false;
    m.set_volume("2Gi");
    m.wait(1);
    m.server.keeps = true;
    m.pipes.remove("mine");
    m.settle();
    assert_eq!(m.names(), ["isb-0", "isb-1"]);
    assert!(m.message().contains("must not be deleted"), "{}", m.message());
    m.set_version("2.12");
    m.wait(1);
    assert_eq!((m.version().as_str(), m.asks()), ("2.12", false), "{}", m.message());
    m.set_volume("3Gi");
    m.wait(2);
    assert_eq!((m.child().as_str(), m.asks()), ("isb-2", false), "{}", m.message());
    m.server.keeps = false;
    m.wait(1);
    m.assert_good();
}
