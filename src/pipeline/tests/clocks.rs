//! Times in a status that nobody can count from.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::model::Model;
use crate::api::PipelineRolloutStatus;

fn status(m: &mut Model) -> &mut PipelineRolloutStatus {
    m.rollout.status.as_mut().unwrap()
}

fn tomorrow(m: &Model) -> Time {
    Time(m.now.checked_add(SignedDuration::from_hours(24)).unwrap())
}

#[test]
fn a_drain_that_an_operator_with_a_fast_clock_began_is_given_up_in_its_time_for_all_that() {
    let mut m = Model::running();
    m.ppnd(&json!({"drainTimeout": "60s", "onDrainTimeout": "Abort"}));
    m.numaflow.never_pauses = true;
    m.image("cat:2");
    m.settle();
    let tomorrow = tomorrow(&m);
    let pause = status(&mut m).pause.as_mut().unwrap();
    (pause.since, pause.own_since) = (Some(tomorrow.clone()), Some(tomorrow));
    m.settle();
    m.pass_time(50);
    m.settle();
    assert_eq!(m.phase(), "Pausing", "counted from when it was noticed");
    m.pass_time(11);
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Failed"), "{}", m.status().message);
}

#[test]
fn a_change_that_was_refused_at_a_time_that_cannot_be_read_is_tried_again() {
    for unreadable in [false, true] {
        let mut m = Model::running();
        (m.refuses, m.lies) = (Some("cat:2".into()), true);
        m.image("cat:2");
        m.settle();
        assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Failed"), "{}", m.status().message);
        let tomorrow = tomorrow(&m);
        let last = status(&mut m).last_attempt.as_mut().unwrap();
        last.finished_at = (!unreadable).then_some(tomorrow);
        m.refuses = None;
        m.learned = crate::plan::Learned::default();
        m.settle();
        m.pass_time(61);
        m.settle();
        assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
    }
}

#[test]
fn a_pause_whose_end_cannot_be_read_does_not_keep_a_change_waiting() {
    let mut m = Model::running();
    m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": "Paused"}));
    m.settle();
    assert_eq!(m.phase(), "Paused");
    status(&mut m).pause.as_mut().unwrap().settled_at = None;
    m.image("cat:2");
    m.settle();
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2", "{}", m.status().message);
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Paused", "Deployed"), "{}", m.status().message);
}

#[test]
fn a_wedge_that_was_seen_at_a_time_that_lies_ahead_is_healed_for_all_that() {
    for unreadable in [false, true] {
        let mut m = Model::running();
        m.child.as_mut().unwrap().annotations.insert(crate::api::ANNOTATION_PAUSE_TIMESTAMP.into(), m.now.to_string());
        m.vertices[0].paused = true;
        m.turn();
        let tomorrow = tomorrow(&m);
        status(&mut m).wedge.as_mut().unwrap().since = (!unreadable).then_some(tomorrow);
        m.turn();
        m.pass_time(6);
        m.settle();
        assert_eq!((m.phase(), m.status().wedge), ("Running", None), "{}", m.status().message);
        assert!(m.vertices.iter().all(|v| !v.paused), "{:?}", m.writes);
    }
}

#[test]
fn one_that_failed_at_a_time_that_lies_ahead_is_excused_a_minute_later() {
    let mut m = Model::running();
    m.numaflow.fails = Some("its image is gone".into());
    m.numaflow();
    m.turn();
    let tomorrow = tomorrow(&m);
    status(&mut m).failed_since = Some(tomorrow);
    m.request(None);
    m.turn();
    assert_eq!(m.answer().0, "Pausing");
    m.pass_time(61);
    m.turn();
    assert_eq!(m.answer().0, "Excused");
}

#[test]
fn a_nudge_that_was_given_at_a_time_that_lies_ahead_is_given_again() {
    let mut m = Model::running();
    m.numaflow.fails = Some("isbsvc not healthy".into());
    m.numaflow();
    let ahead = tomorrow(&m).0.as_second().to_string();
    m.child.as_mut().unwrap().labels.insert(crate::api::LABEL_POKE.into(), ahead);
    m.turn();
    m.pass_time(3);
    m.turn();
    assert!(m.writes.iter().any(|w| w.contains("poked")), "{:?}", m.writes);
}
