//! Restarts, clocks that are set back, and what is not known for a while.

use serde_json::json;

use super::model::Model;

#[test]
fn nothing_is_paused_or_resumed_while_it_is_not_known_who_asks() {
    let mut m = Model::running();
    m.request(None);
    m.settle();
    m.requests.clear();
    m.unknown = vec!["NumaflowControllerRollouts".into()];
    m.settle();
    assert!(m.wants_paused(), "who asks is not known");
    m.unknown.clear();
    m.settle();
    assert_eq!(m.phase(), "Running");
    m.unknown = vec!["PipelineRollouts".into()];
    m.request(None);
    m.image("cat:2");
    m.settle();
    assert!(!m.wants_paused());
}

#[test]
fn a_restart_at_any_step_of_a_drain_keeps_the_clock_and_changes_nothing_about_its_end() {
    let mut begun = 0;
    for steps in 0..14 {
        let mut m = Model::running();
        m.ppnd(&json!({"drainTimeout": "60s"}));
        m.numaflow.pending = true;
        m.image("cat:2");
        for _ in 0..steps {
            // What was learned in a turn is lost with the process.
            m.step();
            m.numaflow();
        }
        let since = m.status().pause.and_then(|p| p.own_since);
        begun += usize::from(since.is_some());
        m.pass_time(20);
        m.settle();
        assert_eq!(m.phase(), "Pausing", "after {steps} steps");
        let now = m.status().pause.and_then(|p| p.own_since);
        assert!(now.is_some() && (since.is_none() || now == since), "after {steps} steps: {since:?} {now:?}");
        m.pass_time(50);
        m.settle();
        m.pass_time(60);
        m.settle();
        assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "after {steps} steps");
    }
    assert!(begun > 10, "{begun}");
}

#[test]
fn a_restart_before_pipelines_are_listed_keeps_the_clock_and_lets_go_of_nothing() {
    let mut m = Model::running();
    m.numaflow.pending = true;
    m.request(None);
    m.settle();
    let before = m.status().pause;
    let child = m.child.take();
    m.unknown = vec!["Pipelines (not listed yet)".into()];
    m.pass_time(10);
    m.turn();
    assert_eq!(m.status().pause, before);
    m.rollout.metadata.deletion_timestamp = Some(m.stamp());
    m.turn();
    assert!(m.rollout.metadata.finalizers.as_ref().is_some_and(|f| !f.is_empty()), "what is not listed is not gone");
    m.rollout.metadata.deletion_timestamp = None;
    (m.child, m.unknown) = (child, Vec::new());
    m.settle();
    assert_eq!(m.status().pause.map(|p| p.since), before.map(|p| p.since));
}

#[test]
fn a_clock_that_is_set_back_holds_up_no_change_and_nobody_else() {
    let mut m = Model::running();
    m.numaflow.never_pauses = true;
    m.ppnd(&json!({"drainTimeout": "50s"}));
    m.image("cat:2");
    m.settle();
    m.pass_time(-36_000);
    m.settle();
    m.pass_time(51);
    m.settle();
    assert!(m.status().pause.unwrap().cut_at.is_some(), "{}", m.status().message);
    m.pass_time(-36_000);
    m.settle();
    m.pass_time(51);
    m.settle();
    m.pass_time(36);
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2");
    m.numaflow.fails = Some("isbsvc not healthy".into());
    m.numaflow();
    m.turn();
    m.pass_time(-36_000);
    m.request(None);
    m.turn();
    assert_eq!(m.answer().0, "Pausing");
    m.pass_time(61);
    m.turn();
    assert_eq!(m.answer().0, "Excused");
}
