//! Pauses: by the user, for a change, and changes that do not wait for one.

use serde_json::{Value, json};

use super::model::Model;
use crate::numaflow::VertexPod;

#[test]
fn paused_is_not_said_while_a_pod_is_left() {
    let mut m = Model::running();
    m.want("Paused");
    m.turn();
    m.numaflow();
    let plan = m.turn();
    assert_eq!((m.phase(), m.pods.len(), m.pause().as_str()), ("Paused", 1, "Pausing"));
    assert!(plan.again_after.is_some(), "nobody tells when they are gone");
    assert_eq!(m.condition("MonoVertexPausingOrPaused"), ("True".into(), "MonoVertexPausing".into()));
    assert_eq!(m.status().phase.as_str(), "Pending");
    m.pass_time(5);
    m.turn();
    assert!(m.status().message.contains("waiting for its pods to be gone"), "{}", m.status().message);
    m.blind = true;
    m.pods_go();
    m.turn();
    assert_eq!(m.pause(), "Pausing", "no answer is no yes: {}", m.status().message);
    m.blind = false;
    m.turn();
    assert_eq!((m.pause().as_str(), m.status().phase.as_str()), ("Paused", "Deployed"));
    assert_eq!(m.status().message, "Deployed, and paused by its spec");
    assert_eq!(m.condition("MonoVertexPausingOrPaused"), ("True".into(), "MonoVertexPaused".into()));
    assert_eq!(m.condition("ChildResourcesHealthy").0, "Unknown");
    assert_eq!(m.condition("Ready").0, "True");
}

#[test]
fn a_pod_that_does_not_go_is_named_and_not_waited_for() {
    let mut m = Model::running();
    m.want("Paused");
    m.turn();
    m.numaflow();
    m.pass_time(61);
    m.turn();
    assert_eq!(m.pause(), "Paused");
    assert_eq!(m.status().pause.unwrap().pods_left, ["f:1"]);
    assert!(m.events.iter().any(|e| e.starts_with("PodsLeft") && e.contains("f:1")), "{:?}", m.events);
}

#[test]
fn it_comes_back_with_few_replicas_unless_its_user_wants_it_fast() {
    for (fast, kept) in [(None, None), (Some(false), None), (Some(true), Some(5))] {
        let mut m = Model::running();
        if let Some(fast) = fast {
            m.fast_resume(fast);
        }
        m.want("Paused");
        m.settle();
        // As an autoscaler does, or a test that plays one.
        m.meddle(&json!({"replicas": 5}));
        m.settle();
        assert_eq!((m.replicas(), m.pause().as_str()), (Some(5), "Paused"));
        m.want("Running");
        m.settle();
        assert_eq!((m.replicas(), m.stands()), (kept, ("Running".into(), "Deployed".into())), "{fast:?}");
        assert_eq!(m.live().spec["lifecycle"]["desiredPhase"], "Running", "as its user writes it");
        assert_eq!(m.writes.len(), 2, "one write each: {:?}", m.writes);
        assert_eq!(m.condition("MonoVertexPausingOrPaused"), ("False".into(), "Unpaused".into()));
    }
}

#[test]
fn edits_while_it_is_paused_start_no_pod_and_the_last_one_runs_in_the_end() {
    let mut m = Model::with_lists();
    m.want("Paused");
    m.settle();
    for n in [6, 7] {
        m.image(&format!("f:{n}"));
        m.source(n);
        for _ in 0..6 {
            m.step();
            m.numaflow();
            assert!(m.pods.is_empty(), "{:?}", m.writes);
        }
        m.settle();
        assert_eq!((m.live().spec["source"]["generator"]["rpu"].as_i64(), m.pause().as_str()), (Some(n), "Paused"));
        assert_eq!(m.status().message, "Deployed, and paused by its spec");
    }
    // Resumed and changed in one edit: the old one does not begin.
    m.edit(|spec| {
        spec["lifecycle"] = json!({});
        spec["udf"]["container"]["image"] = json!("f:8");
    });
    for _ in 0..8 {
        m.step();
        m.numaflow();
    }
    m.turn();
    assert!(m.pods.iter().all(|pod| pod.name == "f:8") && m.pods.len() == 1, "{:?}", m.pods);
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()));
    assert_eq!(m.live().written_phase(), None);
}

#[test]
fn pausing_and_changing_in_one_edit_starts_no_pod_either() {
    let mut m = Model::running();
    m.edit(|spec| {
        spec["lifecycle"] = json!({"desiredPhase": "Paused"});
        spec["udf"]["container"]["image"] = json!("f:2");
    });
    for _ in 0..6 {
        m.step();
        m.numaflow();
        assert!(m.pods.iter().all(|pod| pod.name == "f:1"), "{:?}", m.writes);
    }
    m.settle();
    assert_eq!((m.phase(), m.live().spec["udf"]["container"]["image"].as_str()), ("Paused", Some("f:2")));
}

#[test]
fn one_that_is_made_paused_never_runs() {
    let mut m = Model::new();
    m.want("Paused");
    m.settle();
    assert_eq!((m.phase(), m.pause().as_str(), m.pods.len()), ("Paused", "Paused", 0));
    assert_eq!(m.writes, ["create m-0"]);
}

#[test]
fn nothing_that_is_wrong_with_a_spec_keeps_it_paused_or_has_it_run() {
    let mut m = Model::with_lists();
    m.source(7);
    m.turn();
    m.numaflow();
    m.turn();
    assert!(m.live().wants_paused());
    m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": 7}));
    m.settle();
    assert_eq!((m.phase(), m.live().wants_paused()), ("Running", false), "{:?}", m.writes);
    assert_eq!(m.condition("Stalled"), ("True".into(), "InvalidSpec".into()));
    // What its user said last still stands.
    m.want("Paused");
    m.settle();
    m.edit(|spec| spec["lifecycle"]["desiredPhase"] = json!("Pasued"));
    m.settle();
    assert_eq!((m.phase(), m.pause().as_str()), ("Paused", "Paused"));
}

#[test]
fn going_back_while_it_pauses_ends_the_pause_and_changes_nothing() {
    let mut m = Model::with_lists();
    m.source(7);
    m.turn();
    m.numaflow();
    m.source(5);
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()));
    assert!(!m.writes.iter().any(|w| w == "apply"), "{:?}", m.writes);
}

#[test]
fn no_phase_is_turned_while_something_is_not_known() {
    let mut m = Model::with_lists();
    m.unknown = vec!["usde-config ConfigMaps".into()];
    m.source(7);
    m.want("Paused");
    m.settle();
    assert!(m.writes.is_empty(), "{:?}", m.writes);
    assert!(m.status().message.contains("usde-config"), "{}", m.status().message);
    m.unknown.clear();
    m.settle();
    m.unknown = vec!["usde-config ConfigMaps".into()];
    m.want("Running");
    m.settle();
    assert_eq!(m.phase(), "Paused");
    m.unknown.clear();
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()));
}

#[test]
fn a_phase_that_somebody_else_sets_is_set_right() {
    let mut m = Model::running();
    m.meddle(&json!({"lifecycle": {"desiredPhase": "Paused"}}));
    m.numaflow();
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()));
    m.want("Paused");
    m.settle();
    m.meddle(&json!({"lifecycle": {"desiredPhase": "Running"}}));
    m.numaflow();
    m.turn();
    assert_eq!(m.pause(), "Pausing", "not paused any more");
    m.settle();
    assert_eq!((m.phase(), m.pause().as_str(), m.pods.len()), ("Paused", "Paused", 0));
}

#[test]
fn a_server_that_lets_nobody_turn_the_phase_is_quoted_and_asked_again() {
    let mut m = Model::running();
    m.refuses_phase = true;
    m.want("Paused");
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Failed"));
    assert!(m.status().message.contains("another phase is not allowed"), "{}", m.status().message);
    m.refuses_phase = false;
    m.settle();
    assert_eq!((m.phase(), m.pause().as_str()), ("Paused", "Paused"));
}

/// Whether the change went in at once, and why that is said.
fn applied_at_once(m: &Model) -> String {
    assert_eq!(m.writes, ["apply"]);
    assert_eq!(m.live().spec["source"]["generator"]["rpu"], 7);
    let last = m.status().last_pause.unwrap().reason;
    assert_eq!(m.events.iter().filter(|e| e.starts_with("NotPaused")).count(), 1, "{:?}", m.events);
    last
}

#[test]
fn a_change_does_not_wait_for_a_pause_that_nobody_wants_or_that_nobody_can_give() {
    let mut m = Model::with_lists();
    m.annotate("allow-data-loss", "true");
    m.source(7);
    m.settle();
    assert!(applied_at_once(&m).contains("allow-data-loss"));

    let mut m = Model::with_lists();
    (m.alive, m.gone) = (false, true);
    m.source(7);
    m.settle();
    assert!(applied_at_once(&m).contains("ControllerUnavailable"));
    assert!(m.status().message.contains("no pod of one is available"), "{}", m.status().message);

    let mut m = Model::new();
    (m.rules, m.alive) = (super::lists(), false);
    m.settle();
    m.writes.clear();
    m.source(7);
    m.settle();
    assert_eq!((m.writes.as_slice(), m.events.len()), (["apply".to_owned()].as_slice(), 0), "nothing to tell");
}

#[test]
fn force_ends_the_waiting_of_this_change_and_of_no_other() {
    let mut m = Model::with_lists();
    m.alive = false;
    m.source(7);
    m.settle();
    assert!(m.live().wants_paused() && m.live().spec["source"]["generator"]["rpu"] == 5);
    m.annotate("force", "now");
    m.settle();
    assert_eq!((m.live().spec["source"]["generator"]["rpu"].as_i64(), m.live().wants_paused()), (Some(7), false));
    assert_eq!(m.status().last_force.unwrap().text, "now");
    m.alive = true;
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()));
    m.writes.clear();
    m.source(8);
    m.turn();
    assert!(m.writes[0].contains("Paused"), "the same text is not honoured again: {:?}", m.writes);
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()));
    m.annotate("force", "next time");
    m.settle();
    assert_eq!(m.status().last_force.unwrap().text, "now", "it waits for a change that would wait");
    m.writes.clear();
    m.source(9);
    m.settle();
    assert_eq!(m.writes, ["apply"]);
    assert_eq!(m.status().last_force.unwrap().text, "next time");
}

#[test]
fn a_controller_that_dies_in_the_middle_of_a_pause_leaves_nothing_paused() {
    let mut m = Model::with_lists();
    m.alive = false;
    m.source(7);
    m.settle();
    assert!(m.live().wants_paused());
    m.gone = true;
    m.settle();
    assert_eq!((m.live().wants_paused(), m.live().spec["source"]["generator"]["rpu"].as_i64()), (false, Some(7)));
}

#[test]
fn a_pause_for_a_change_goes_on_where_an_operator_left_it() {
    let mut m = Model::with_lists();
    m.source(7);
    for _ in 0..20 {
        m.step();
        m.numaflow();
        m.pods_go();
    }
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()));
    assert_eq!(m.writes.len(), 3, "nothing twice: {:?}", m.writes);
}

#[test]
fn a_user_who_pauses_during_a_change_has_it_changed_and_paused() {
    let mut m = Model::with_lists();
    m.source(7);
    m.turn();
    m.want("Paused");
    m.settle();
    assert_eq!((m.phase(), m.pause().as_str()), ("Paused", "Paused"));
    assert_eq!(m.live().spec["source"]["generator"]["rpu"], 7);
    assert_eq!(m.writes.len(), 2, "paused once, changed once: {:?}", m.writes);
    let after: Vec<Value> = m.status().pause.unwrap().asked_by.iter().map(|by| json!(by)).collect();
    assert_eq!(after, ["spec"]);
}

#[test]
fn a_pod_that_ended_by_itself_is_not_waited_for() {
    let mut m = Model::running();
    m.want("Paused");
    m.turn();
    m.numaflow();
    m.pods = vec![VertexPod { name: "evicted".into(), phase: "Failed".into(), goes_at: None }];
    m.turn();
    assert_eq!((m.pause().as_str(), m.status().pause.unwrap().pods_left), ("Paused", vec!["evicted".to_owned()]));
}

#[test]
fn pods_that_cannot_be_read_keep_no_change_waiting_for_ever_and_are_never_said_to_be_gone() {
    let mut m = Model::with_lists();
    m.blind = true;
    m.source(7);
    m.settle();
    assert_eq!(m.pause(), "Pausing", "{}", m.status().message);
    m.pass_time(36);
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()), "{}", m.status().message);
    assert_eq!(m.live().spec["source"]["generator"]["rpu"], 7);
    let left = m.status().last_pause.unwrap().pods_left;
    assert!(left[0].contains("cannot be read"), "{left:?}");
    // Its user's pause is another matter: nobody is told what is not known.
    m.want("Paused");
    m.settle();
    m.pass_time(36);
    m.settle();
    assert_eq!(m.pause(), "Pausing", "{}", m.status().message);
    m.blind = false;
    m.settle();
    assert_eq!(m.pause(), "Paused");
}
