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
