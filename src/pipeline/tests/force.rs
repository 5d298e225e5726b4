//! Changes that do not wait for a pause: force, data loss that is allowed, and no time for it.

use serde_json::json;

use super::model::Model;

#[test]
fn force_ends_the_waiting_of_this_change_and_of_no_other() {
    let mut m = Model::running();
    m.numaflow.pending = true;
    m.image("cat:2");
    m.settle();
    m.annotate("force", "now");
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2");
    assert_eq!(m.status().last_force.unwrap().text, "now");
    assert_eq!(m.status().last_pause.unwrap().drained, Some(false));
    m.image("cat:3");
    m.settle();
    assert_eq!(m.phase(), "Pausing", "the same text is not honoured again");
}

#[test]
fn force_set_beforehand_holds_for_the_next_change() {
    let mut m = Model::running();
    m.annotate("force", "next time");
    m.settle();
    assert_eq!(m.status().last_force, None);
    m.numaflow.pending = true;
    m.image("cat:2");
    m.settle();
    assert_eq!(m.writes, ["apply"]);
    assert_eq!(m.status().last_force.unwrap().text, "next time");
}

#[test]
fn whoever_allows_data_loss_never_waits() {
    let mut m = Model::running();
    m.annotate("allow-data-loss", "true");
    m.numaflow.pending = true;
    m.image("cat:2");
    m.settle();
    m.request(None);
    m.settle();
    assert_eq!(m.writes, ["apply"]);
    assert_eq!(m.answer().0, "Forced");
}

#[test]
fn a_drain_timeout_of_nothing_means_no_pause_and_is_on_record() {
    let mut m = Model::running();
    m.ppnd(&json!({"drainTimeout": "0s"}));
    m.numaflow.pending = true;
    m.image("cat:2");
    m.settle();
    assert_eq!(m.writes, ["apply"]);
    assert!(m.status().last_pause.unwrap().not_drained.contains("0s"));
}

#[test]
fn force_is_not_spent_on_a_change_that_was_given_up_nor_honoured_again_by_a_deletion() {
    let mut m = Model::running();
    m.ppnd(&json!({"drainTimeout": "60s", "onDrainTimeout": "Abort"}));
    m.numaflow.pending = true;
    m.image("cat:2");
    m.settle();
    m.pass_time(62);
    m.settle();
    m.request(None);
    m.annotate("force", "let the controller go on");
    m.settle();
    assert_eq!(m.answer().0, "Forced");
    assert_eq!(m.status().forced, ["NumaflowControllerRollout/c c-4"]);
    m.requests.clear();
    m.settle();
    m.rollout.metadata.deletion_timestamp = Some(m.stamp());
    m.numaflow.alive = false;
    m.turn();
    m.turn();
    assert!(m.rollout.metadata.finalizers.as_ref().is_some_and(|f| !f.is_empty()), "it waits for its pipeline");
    m.annotate("force", "and now this");
    m.turn();
    m.turn();
    assert_eq!(m.rollout.metadata.finalizers, Some(Vec::new()));
}

#[test]
fn force_is_honoured_by_a_change_whose_pause_nobody_has_seen() {
    let mut m = Model::running();
    m.numaflow.alive = false;
    m.image("cat:2");
    m.settle();
    assert!(m.wants_paused());
    m.annotate("force", "now");
    m.settle();
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2");
    m.numaflow.alive = true;
    m.settle();
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
}

#[test]
fn a_change_that_waits_for_nothing_does_not_go_in_together_with_the_pause_of_an_upgrade() {
    let mut m = Model::running();
    m.ppnd(&json!({"drainTimeout": "0s"}));
    m.numaflow.pending = true;
    m.request(None);
    m.turn();
    assert!(m.wants_paused() && !m.live().is_observed(), "{:?}", m.writes);
    m.image("cat:2");
    m.turn();
    assert!(!m.writes.contains(&"apply".to_owned()), "the upgrade's drain would end undrained: {:?}", m.writes);
    m.numaflow.fails = Some("isbsvc not healthy".to_owned());
    m.numaflow();
    m.turn();
    assert!(!m.writes.contains(&"apply".to_owned()), "nor when it fails for a moment: {:?}", m.writes);
    m.numaflow.fails = None;
    m.settle();
    assert_eq!(m.phase(), "Pausing");
    m.numaflow.pending = false;
    m.settle();
    assert_eq!((m.answer().0.as_str(), m.answer().1), ("Paused", Some(true)));
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2", "while it is paused");
    m.requests.clear();
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
}
