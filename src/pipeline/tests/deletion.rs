//! Rollouts that are deleted, and who waits for a pipeline to be gone.

use serde_json::json;

use super::model::Model;

#[test]
fn a_deleted_rollout_waits_for_its_pipeline_and_a_finalizer_of_others_stays() {
    let mut m = Model::running();
    m.rollout.metadata.finalizers.as_mut().unwrap().push("others/keep".into());
    m.rollout.metadata.deletion_timestamp = Some(m.stamp());
    m.numaflow.alive = false;
    m.turn();
    assert!(m.live().deleting);
    assert!(m.status().message.contains("waiting for Pipeline/p-0 to be drained"), "{}", m.status().message);
    m.child.as_mut().unwrap().finalizers = vec!["numaflow.numaproj.io/pipeline-controller".into(), "team/audit".into()];
    m.turn();
    let named = "Pipeline/p-0 (held by finalizer team/audit) to be drained and gone";
    assert!(m.status().message.contains(named), "who holds it is named: {}", m.status().message);
    m.numaflow.alive = true;
    m.numaflow();
    m.turn();
    assert_eq!(m.rollout.metadata.finalizers, Some(vec!["others/keep".to_owned()]));
}

#[test]
fn an_isb_service_that_waited_for_a_pipeline_is_woken_when_that_is_gone_or_made_anew() {
    let wakes = |m: &Model| m.writes.iter().filter(|w| *w == "wake the ISB service").count();
    for (refused, reason, waits) in [(0, "", false), (1, "InternalError", true), (1, "Forbidden", false)] {
        let mut m = Model::running();
        m.isb_deleting = true;
        m.rollout.metadata.deletion_timestamp = Some(m.stamp());
        m.turn();
        m.numaflow();
        m.isb_refused = (refused, reason);
        m.turn();
        let held = |m: &Model| m.rollout.metadata.finalizers.as_ref().is_some_and(|f| !f.is_empty());
        assert_eq!((held(&m), wakes(&m)), (waits, usize::from(refused == 0)), "{reason}");
        if waits {
            assert!(m.status().message.contains("not now"), "{}", m.status().message);
            m.turn();
            assert_eq!((held(&m), wakes(&m)), (false, 1), "it was not lost");
        }
    }
    let mut m = Model::running();
    m.isb_deleting = true;
    m.edit(|spec| spec["interStepBufferServiceName"] = json!("other"));
    m.settle();
    m.settle();
    assert_eq!((m.live().version.name.as_str(), wakes(&m)), ("p-1", 1), "{:?}", m.writes);
}
