//! Times in a status that nobody can count from.

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::model::Model;

fn tomorrow(m: &Model) -> Time {
    Time(m.now.checked_add(SignedDuration::from_hours(24)).unwrap())
}

#[test]
fn a_change_that_was_refused_at_a_time_that_cannot_be_read_is_tried_again() {
    for unreadable in [false, true] {
        let mut m = Model::with_lists();
        (m.refuses, m.lies) = (Some("\"rpu\":7".into()), true);
        m.source(7);
        m.settle();
        assert_eq!(m.status().phase.as_str(), "Failed", "{}", m.status().message);
        let tomorrow = tomorrow(&m);
        let last = m.rollout.status.as_mut().unwrap().last_attempt.as_mut().unwrap();
        last.finished_at = (!unreadable).then_some(tomorrow);
        m.refuses = None;
        m.settle();
        m.pass_time(61);
        m.settle();
        assert_eq!(m.stands(), ("Running".into(), "Deployed".into()), "{}", m.status().message);
    }
}

#[test]
fn a_pause_that_began_or_settled_at_such_a_time_goes_on() {
    for unreadable in [false, true] {
        let mut m = Model::with_lists();
        m.want("Paused");
        m.turn();
        m.numaflow();
        let time = (!unreadable).then_some(tomorrow(&m));
        m.rollout.status.as_mut().unwrap().pause.as_mut().unwrap().since.clone_from(&time);
        m.turn();
        m.pass_time(4);
        m.turn();
        assert!(
            m.status().message.contains("pods to be gone"),
            "counted from when it was noticed: {}",
            m.status().message
        );
        m.settle();
        assert_eq!(m.pause(), "Paused");
        m.rollout.status.as_mut().unwrap().pause.as_mut().unwrap().settled_at = time;
        m.source(7);
        m.settle();
        assert_eq!(m.live().spec["source"]["generator"]["rpu"], 7, "{}", m.status().message);
        let settled = m.status().pause.unwrap().settled_at.unwrap();
        assert!(settled.0.duration_since(m.now) < SignedDuration::from_secs(5), "{settled:?}");
    }
}
