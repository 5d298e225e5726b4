//! What Numaflow's status says although it is not so, and what it never gets out of by itself.

use jiff::SignedDuration;
use serde_json::json;

use super::model::{Model, unfit};
use crate::{
    api::ANNOTATION_PAUSE_TIMESTAMP,
    numaflow::VertexPod,
    pipeline::decide,
    plan::{Learned, Step},
};

#[test]
fn paused_is_not_believed_before_the_vertices_are_told_and_their_pods_are_gone() {
    let mut m = Model::running();
    m.request(None);
    m.turn();
    m.numaflow();
    m.numaflow();
    assert_eq!(m.phase(), "Paused");
    let plan = m.turn();
    assert_eq!(m.answer().0, "Pausing", "pods are there: {:?}", m.pods);
    assert!(plan.again_after.is_some_and(|a| a.as_millis() <= 250), "pods are not watched");
    m.vertices[1].paused = false;
    m.pods.clear();
    m.turn();
    assert_eq!(m.answer().0, "Pausing", "a vertex runs");
    m.vertices[1].paused = true;
    m.turn();
    assert_eq!(m.answer().0, "Paused");
}

#[test]
fn a_pod_that_never_goes_is_named_and_not_waited_for() {
    let mut m = Model::running();
    m.request(None);
    m.turn();
    m.numaflow.pending = true;
    m.numaflow();
    m.pass_time(31);
    m.numaflow();
    m.numaflow();
    let goes_at = m.now.checked_sub(SignedDuration::from_secs(61)).ok();
    m.pods = vec![VertexPod { name: "lost".into(), phase: "Running".into(), goes_at }];
    m.turn();
    assert_eq!((m.answer().0.as_str(), m.answer().1), ("Paused", Some(false)));
    assert!(m.answer().2.contains("lost"), "{}", m.answer().2);
}

#[test]
fn a_pod_that_never_goes_is_named_even_if_everything_was_processed() {
    let mut m = Model::running();
    m.request(None);
    m.turn();
    m.numaflow();
    m.numaflow();
    let goes_at = m.now.checked_sub(SignedDuration::from_secs(61)).ok();
    m.pods = vec![VertexPod { name: "lost".into(), phase: "Running".into(), goes_at }];
    m.turn();
    assert_eq!((m.answer().0.as_str(), m.answer().1), ("Paused", Some(true)));
    assert_eq!(m.status().pause.unwrap().pods_left, ["lost"], "its node may be cut off, and it may run still");
    assert!(m.events.iter().any(|e| e.starts_with("PodsLeft") && e.contains("lost")), "{:?}", m.events);
    m.requests.clear();
    m.settle();
    assert_eq!(m.status().last_pause.unwrap().pods_left, ["lost"]);
}

#[test]
fn an_old_status_counts_for_nothing() {
    let mut m = Model::running();
    m.request(None);
    m.turn();
    let child = m.child.as_mut().unwrap();
    // As after an earlier pause: everything but the generation.
    child.phase = "Paused".into();
    child.annotations.insert(ANNOTATION_PAUSE_TIMESTAMP.into(), m.now.to_string());
    m.vertices.iter_mut().for_each(|v| v.paused = true);
    m.pods.clear();
    m.turn();
    assert_eq!(m.answer().0, "Pausing");
}

#[test]
fn the_wanted_phase_is_not_changed_again_before_the_last_change_is_seen() {
    let mut m = Model::running();
    m.request(None);
    m.turn();
    m.requests.clear();
    m.turn();
    assert!(m.wants_paused(), "not yet: {:?}", m.writes);
    m.numaflow();
    m.turn();
    assert!(m.wants_paused(), "the first pass writes the old generation");
    m.numaflow.pending = true;
    m.numaflow();
    m.turn();
    assert!(!m.wants_paused(), "{} is seen", m.phase());
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"));
    assert_eq!(m.writes.len(), 2);
}

#[test]
fn one_that_says_running_with_its_sources_paused_is_found_reported_and_healed() {
    let mut m = Model::running();
    m.child.as_mut().unwrap().annotations.insert(ANNOTATION_PAUSE_TIMESTAMP.into(), m.now.to_string());
    m.vertices[0].paused = true;
    m.turn();
    assert!(m.writes.is_empty(), "a healthy one may look so for a moment");
    m.pass_time(6);
    m.settle();
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
    assert_eq!(m.live().paused_at(), None);
    assert!(m.vertices.iter().all(|v| !v.paused));
    let reasons: Vec<_> = m.events.iter().map(|e| e.split(':').next().unwrap()).collect();
    assert!(reasons.contains(&"PipelineWedged") && reasons.contains(&"PipelineHealed"), "{reasons:?}");
}

#[test]
fn one_that_says_paused_with_its_vertices_running_is_not_believed_and_is_paused_in_truth() {
    let mut m = Model::running();
    m.request(None);
    m.settle();
    let child = m.child.as_mut().unwrap();
    child.annotations.remove(ANNOTATION_PAUSE_TIMESTAMP);
    child.drained = true;
    m.vertices.iter_mut().for_each(|v| v.paused = false);
    m.turn();
    m.pass_time(6);
    m.turn();
    assert_eq!(m.answer().0, "Pausing");
    m.settle();
    m.settle();
    assert_eq!(
        (m.phase(), m.answer().0.as_str(), m.answer().1),
        ("Paused", "Paused", Some(true)),
        "{}",
        m.status().message
    );
    assert!(m.live().paused_at().is_some());
    m.requests.clear();
    m.settle();
    assert_eq!(m.phase(), "Running");
}

#[test]
fn one_that_carries_an_old_time_stamp_is_resumed_properly_before_it_is_paused() {
    let mut m = Model::running();
    m.child.as_mut().unwrap().annotations.insert(ANNOTATION_PAUSE_TIMESTAMP.into(), "2026-01-01T00:00:00Z".into());
    m.vertices[0].paused = true;
    m.numaflow.pending = true;
    m.request(None);
    m.turn();
    assert!(!m.wants_paused(), "the grace would count from the old one");
    m.pass_time(6);
    m.settle();
    m.settle();
    assert_eq!(m.phase(), "Pausing");
    assert!(m.live().paused_at().unwrap() > "2026-06", "{:?}", m.live().paused_at());
}

#[test]
fn an_invalid_pipeline_is_excused_takes_its_new_spec_directly_and_keeps_nothing_of_a_pause() {
    let mut m = Model::running();
    m.edit(|spec| unfit(spec, true));
    m.ppnd(&json!({"drainTimeout": "0s"}));
    m.settle();
    assert_eq!(m.phase(), "Failed");
    assert_eq!(m.condition("ChildResourcesHealthy"), ("False".into(), "PipelineFailed".into()));
    m.ppnd(&json!({}));
    m.request(None);
    m.settle();
    assert_eq!(m.answer().0, "Excused");
    assert!(!m.wants_paused());
    m.edit(|spec| unfit(spec, false));
    m.settle();
    assert_eq!(m.phase(), "Running");
    assert_eq!(m.answer().0, "Excused", "it was said, and stays so for this request");
    m.requests.clear();
    m.settle();
    assert_eq!((m.status().phase.as_str(), m.live().spec["lifecycle"].get("desiredPhase")), ("Deployed", None));
}

#[test]
fn one_that_fails_for_a_minute_is_excused_and_one_that_recovers_before_is_paused() {
    for (seconds, answer) in [(61, "Excused"), (20, "Paused")] {
        let mut m = Model::running();
        m.numaflow.fails = Some("isbsvc not healthy".into());
        m.numaflow();
        m.request(None);
        m.settle();
        assert_eq!(m.answer().0, "Pausing");
        m.pass_time(seconds);
        m.turn();
        m.numaflow.fails = None;
        m.settle();
        assert_eq!(m.answer().0, answer);
        m.requests.clear();
        m.settle();
        assert_eq!(m.phase(), "Running", "{answer}");
        assert!(!m.wants_paused());
    }
}

#[test]
fn one_that_fails_after_it_was_paused_counts_as_paused_and_is_nudged_when_its_isb_service_is_back() {
    let mut m = Model::running();
    m.request(None);
    m.settle();
    m.numaflow.fails = Some("isbsvc not healthy".into());
    m.isb_healthy = false;
    m.numaflow();
    m.turn();
    m.pass_time(100);
    m.settle();
    assert_eq!((m.phase(), m.answer().0.as_str()), ("Failed", "Paused"));
    assert!(m.wants_paused());
    let writes = m.writes.len();
    m.numaflow.fails = None;
    m.isb_healthy = true;
    m.turn();
    assert_eq!(m.writes.len(), writes + 1);
    assert!(m.writes[writes].contains("poked"), "{:?}", m.writes);
    m.turn();
    assert_eq!(m.writes.len(), writes + 1, "once");
    m.settle();
    assert_eq!(m.phase(), "Paused");
    m.requests.clear();
    m.settle();
    assert_eq!(m.phase(), "Running");
}

/// One that failed while it was paused and without a time stamp, because somebody took that; and nobody wants it paused any more.
/// Numaflow does not know of the pause then.
fn failed_without_its_time_stamp() -> Model {
    let mut m = Model::running();
    m.request(None);
    m.settle();
    m.child.as_mut().unwrap().annotations.remove(crate::api::ANNOTATION_PAUSE_TIMESTAMP);
    m.numaflow.fails = Some("its image is gone".into());
    m.numaflow();
    m.requests.clear();
    m.turn();
    m.numaflow();
    m.turn();
    m
}

#[test]
fn one_that_says_running_while_its_vertices_stay_paused_is_brought_back() {
    for late in [false, true] {
        let mut m = failed_without_its_time_stamp();
        if late {
            m.pass_time(3600);
            m.settle();
        }
        m.numaflow.fails = None;
        m.settle();
        assert_eq!(m.phase(), "Running");
        assert!(m.vertices.iter().all(|v| v.paused), "it only says so");
        assert_eq!(m.status().phase.as_str(), "Pending", "{}", m.status().message);
        m.pass_time(6);
        m.settle();
        assert!(m.vertices.iter().all(|v| !v.paused), "{:?} {}", m.writes, m.status().message);
        assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
        assert_eq!((m.status().pause, m.status().wedge), (None, None));
        assert!(m.events.iter().any(|e| e.starts_with("PipelineHealed")), "{:?}", m.events);
    }
}

#[test]
fn a_healing_that_is_broken_off_after_any_write_goes_on_with_what_is_on_record() {
    let mut healing = 0;
    for steps in 0..14 {
        let mut m = failed_without_its_time_stamp();
        m.numaflow.fails = None;
        m.settle();
        m.pass_time(6);
        for _ in 0..steps {
            m.step();
        }
        healing += usize::from(m.status().wedge.is_some_and(|w| w.healing));
        m.settle();
        m.pass_time(6);
        m.settle();
        assert!(m.vertices.iter().all(|v| !v.paused), "after {steps} steps: {:?} {}", m.writes, m.status().message);
        assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
    }
    assert!(healing > 3, "{healing}");
}

/// One that failed after it had paused, because its ISB service is being changed; nobody wants it paused any more.
fn failed_while_paused() -> Model {
    let mut m = Model::running();
    m.request(None);
    m.settle();
    m.numaflow.fails = Some("isbsvc not healthy".into());
    m.numaflow();
    m.turn();
    m.requests.clear();
    m.writes.clear();
    m
}

#[test]
fn one_that_failed_while_its_isb_service_was_changed_is_paused_again_before_it_is_resumed() {
    let mut m = failed_while_paused();
    m.isb_healthy = false;
    m.settle();
    m.pass_time(60);
    m.settle();
    assert!(m.writes.is_empty(), "it would fail on: {:?}", m.writes);
    (m.isb_healthy, m.isb_rolled) = (true, false);
    m.settle();
    assert!(m.writes.is_empty(), "its service says so, but its pods are not: {:?}", m.writes);
    m.isb_rolled = true;
    m.turn();
    assert!(m.writes.len() == 1 && m.writes[0].contains("poked"), "{:?}", m.writes);
    m.pass_time(14);
    let plan = m.turn();
    assert!(m.wants_paused() && plan.again_after.is_some_and(|a| a.as_secs() <= 1), "{plan:?}");
    m.numaflow.fails = None;
    m.numaflow();
    assert_eq!((m.phase(), m.wants_paused()), ("Paused", true));
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
    assert_eq!(m.writes.len(), 2, "{:?}", m.writes);
}

#[test]
fn a_resume_does_not_wait_for_what_a_broken_pipeline_never_reaches() {
    // The service is healthy, and it fails all the same; or the service never is.
    for (healthy, seconds) in [(true, 16), (false, 601)] {
        let mut m = failed_while_paused();
        m.isb_healthy = healthy;
        m.pass_time(3);
        m.settle();
        assert!(m.wants_paused());
        m.pass_time(seconds);
        m.settle();
        assert!(!m.wants_paused(), "{healthy}");
        assert_eq!(m.status().pause, None);
    }
    // One that was nudged long ago is nudged once more before that.
    let mut m = failed_while_paused();
    m.request(None);
    m.pass_time(3);
    m.settle();
    m.pass_time(100);
    m.requests.clear();
    m.turn();
    assert!(m.wants_paused() && m.writes.iter().all(|w| w.contains("poked")), "{:?}", m.writes);
    m.pass_time(16);
    m.turn();
    assert!(!m.wants_paused());
}

#[test]
fn what_a_dead_controller_has_not_seen_is_taken_back_and_a_change_does_not_wait_for_it() {
    let mut m = Model::running();
    m.numaflow.alive = false;
    m.request(None);
    m.turn();
    assert!(m.wants_paused());
    m.requests.clear();
    m.turn();
    assert!(m.wants_paused(), "it may only be slow");
    m.gone = true;
    m.turn();
    assert!(!m.wants_paused());
    m.image("cat:2");
    m.settle();
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2");
    assert!(m.status().pause.unwrap().not_drained.contains("ControllerUnavailable"));
    m.request(None);
    m.turn();
    assert_eq!(m.answer().0, "Excused");
    m.numaflow.alive = true;
    m.gone = false;
    m.requests.clear();
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"));
}

#[test]
fn a_pause_that_takes_longer_than_it_can_is_said_to_have_no_controller_that_responds() {
    let mut m = Model::running();
    m.numaflow.never_pauses = true;
    m.request(None);
    m.settle();
    assert!(!m.status().message.contains("does not seem to respond"), "{}", m.status().message);
    m.pass_time(30 + 10 + 20 + 2);
    m.settle();
    assert!(m.status().message.contains("does not seem to respond"), "{}", m.status().message);
}

#[test]
fn a_pipeline_that_never_pauses_holds_a_change_no_longer_than_its_time() {
    let mut m = Model::running();
    m.ppnd(&json!({"drainTimeout": "60s"}));
    m.numaflow.never_pauses = true;
    m.image("cat:2");
    m.settle();
    m.pass_time(62);
    m.settle();
    assert_eq!(m.live().grace(), Some(0));
    m.pass_time(15 + 20 + 2);
    m.settle();
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2");
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
    assert!(m.status().last_pause.unwrap().not_drained.contains("did not pause"));
}

#[test]
fn a_change_whose_time_is_up_goes_in_even_if_the_pipeline_runs_again_before_it_does() {
    for fails in [None, Some("no image".to_owned())] {
        let mut m = Model::running();
        m.ppnd(&json!({"drainTimeout": "60s"}));
        m.numaflow.never_pauses = true;
        m.image("cat:2");
        m.settle();
        m.pass_time(62);
        m.settle();
        m.pass_time(15 + 20 + 2);
        m.writes.clear();
        m.numaflow.fails = fails;
        // Numaflow is done with each write before there is another one.
        for _ in 0..30 {
            m.learned = Learned::default();
            while let Some(step) = decide(&m.snapshot(), m.now).steps.first().cloned() {
                m.carry_out(&step);
                if !matches!(step, Step::LookAtPipeline { .. } | Step::CheckNumaflow { .. }) {
                    break;
                }
            }
            m.numaflow();
        }
        assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2", "{:?}", m.writes);
        assert!(!m.wants_paused() && m.status().pause.is_none(), "{:?}", m.status());
        assert!(!m.writes.iter().any(|w| w.contains("\"Paused\"")), "{:?}", m.writes);
    }
}

#[test]
fn a_vertex_added_while_paused_with_scaling_disabled_gets_its_replicas() {
    let mut m = Model::running();
    m.edit(|spec| {
        let vertex =
            json!({"name": "extra", "scale": {"disabled": true, "min": 2}, "udf": {"container": {"image": "x"}}});
        spec["vertices"].as_array_mut().unwrap().push(vertex);
        spec["edges"][1] = json!({"from": "cat", "to": "extra"});
        spec["edges"].as_array_mut().unwrap().push(json!({"from": "extra", "to": "out"}));
    });
    m.settle();
    assert_eq!(m.phase(), "Running");
    let extra = m.vertices.iter().find(|v| v.name == "extra").unwrap();
    assert_eq!((extra.replicas, extra.paused), (Some(2), false));
}

#[test]
fn a_phase_that_somebody_else_changed_is_put_right_when_that_is_safe() {
    let mut m = Model::running();
    m.meddle(json!("Paused"));
    m.turn();
    assert!(m.wants_paused(), "not yet seen");
    m.settle();
    assert_eq!((m.phase(), m.wants_paused()), ("Running", false));
    m.request(None);
    m.settle();
    m.meddle(serde_json::Value::Null);
    m.turn();
    assert_eq!(m.answer().0, "Pausing");
    m.settle();
    m.settle();
    assert_eq!((m.phase(), m.answer().0.as_str()), ("Paused", "Paused"));
}

#[test]
fn time_stamps_with_an_offset_and_patches_of_two_fields_only() {
    let mut m = Model::running();
    m.request(Some(90));
    m.turn();
    m.numaflow();
    // Numaflow's own clock, in its own zone.
    m.child.as_mut().unwrap().annotations.insert(ANNOTATION_PAUSE_TIMESTAMP.into(), "2027-01-15T10:00:00+02:00".into());
    m.settle();
    assert_eq!(m.answer().0, "Paused");
    let patches: Vec<_> = m.writes.iter().filter(|w| w.starts_with("patch")).collect();
    assert_eq!(patches, [r#"patch {"spec":{"lifecycle":{"desiredPhase":"Paused","pauseGracePeriodSeconds":90}}}"#]);
}

#[test]
fn one_that_fails_while_it_is_healed_takes_its_new_spec_and_is_not_waited_for() {
    let mut m = Model::running();
    m.child.as_mut().unwrap().annotations.insert(ANNOTATION_PAUSE_TIMESTAMP.into(), m.now.to_string());
    m.vertices[0].paused = true;
    m.turn();
    m.pass_time(6);
    m.turn();
    assert!(m.status().wedge.is_some_and(|w| w.healing));
    m.numaflow.fails = Some("isbsvc not healthy".into());
    m.isb_healthy = false;
    m.settle();
    m.pass_time(61);
    m.image("cat:2");
    m.settle();
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2");
    assert!(!m.wants_paused());
    m.numaflow.fails = None;
    m.isb_healthy = true;
    m.settle();
    m.pass_time(6);
    m.settle();
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
}

#[test]
fn one_whose_time_stamp_somebody_took_stays_paused_for_its_request_and_is_resumed_afterwards() {
    let mut m = Model::running();
    m.request(None);
    m.settle();
    m.child.as_mut().unwrap().annotations.remove(ANNOTATION_PAUSE_TIMESTAMP);
    m.turn();
    m.pass_time(6);
    m.turn();
    assert!(m.wants_paused(), "its vertices are paused in truth");
    assert_eq!(m.answer().0, "Paused");
    m.requests.clear();
    m.settle();
    assert_eq!((m.phase(), m.wants_paused()), ("Running", false), "{}", m.status().message);
}

#[test]
fn a_vertex_is_not_changed_while_its_pipeline_fails_in_mid_pause() {
    let mut m = Model::running();
    m.numaflow.pending = true;
    m.request(None);
    m.settle();
    m.numaflow.fails = Some("isbsvc not healthy".into());
    m.numaflow();
    m.edit(|spec| spec["vertices"][1]["scale"] = json!({"max": 3}));
    m.turn();
    assert_eq!(m.live().spec["vertices"][1].get("scale"), None, "it would stop undrained");
}

#[test]
fn annotations_copied_from_another_pipeline_claim_nothing_about_this_one() {
    let mut m = Model::new();
    let annotations = [
        (ANNOTATION_PAUSE_TIMESTAMP, "2026-01-01T00:00:00Z"),
        ("numaplane.numaproj.io/applied", "1"),
        ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
        ("mine", "1"),
    ];
    let all = annotations.map(|(k, v)| (k.to_owned(), v.to_owned()));
    m.rollout.spec.pipeline.metadata =
        Some(crate::api::TemplateMetadata { annotations: all.into(), ..Default::default() });
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
    assert_eq!((m.live().paused_at(), m.writes.len()), (None, 1), "{:?}", m.writes);
    assert_eq!(m.live().annotations["mine"], "1");
}

#[test]
fn a_mistake_in_the_spec_of_a_paused_pipeline_is_mended_by_a_good_one() {
    for by_user in [true, false] {
        let mut m = Model::running();
        if by_user {
            m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": "Paused"}));
        } else {
            m.request(None);
        }
        m.settle();
        assert_eq!(m.phase(), "Paused");
        m.edit(|spec| unfit(spec, true));
        m.settle();
        assert_eq!(m.phase(), "Failed");
        m.edit(|spec| unfit(spec, false));
        m.pass_time(70);
        m.settle();
        assert_eq!(m.phase(), "Paused", "{}", m.status().message);
        m.requests.clear();
        m.edit(|spec| spec["lifecycle"] = json!({}));
        m.settle();
        m.pass_time(70);
        m.settle();
        assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
    }
}

#[test]
fn a_paused_pipeline_whose_isb_service_is_bad_for_good_takes_another_one() {
    let mut m = Model::running();
    m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": "Paused"}));
    m.settle();
    m.numaflow.fails = Some("isbsvc not healthy".into());
    m.isb_healthy = false;
    m.numaflow();
    m.turn();
    m.edit(|spec| spec["lifecycle"] = json!({}));
    m.edit(|spec| spec["interStepBufferServiceName"] = json!("other"));
    m.pass_time(70);
    m.turn();
    m.turn();
    assert!(m.live().deleting, "{}", m.status().message);
}

#[test]
fn a_paused_pipeline_without_its_time_stamp_takes_a_change_and_nothing_is_written_at_rest() {
    let mut m = Model::running();
    m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": "Paused"}));
    m.settle();
    m.child.as_mut().unwrap().annotations.remove(ANNOTATION_PAUSE_TIMESTAMP);
    m.turn();
    m.pass_time(6);
    m.turn();
    let status = m.status();
    for _ in 0..4 {
        m.pass_time(6);
        m.turn();
        assert_eq!(m.status(), status, "at rest");
    }
    m.edit(|spec| spec["lifecycle"] = json!({}));
    m.image("cat:2");
    for _ in 0..3 {
        m.settle();
        m.pass_time(70);
    }
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
}
