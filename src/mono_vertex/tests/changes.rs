//! Changes: what is made, applied in place, healed, refused and made anew.

use serde_json::json;

use super::model::Model;
use crate::api::Strategy;

#[test]
fn a_mono_vertex_is_made_with_its_number_labels_and_names_filled_in() {
    let mut m = Model::new();
    m.edit(|spec| {
        spec["udf"]["container"]["env"] = json!("{{.monovertex-name}} {{.monovertex-namespace}} {{ .other }}");
    });
    m.settle();
    let (live, status) = (m.live(), m.status());
    assert_eq!(live.version.name, "m-0");
    assert_eq!(live.spec["udf"]["container"]["env"], "m-0 team {{ .other }}");
    assert_eq!(live.labels["numaplane.numaproj.io/parent-rollout-name"], "m");
    assert_eq!(live.spec.get("lifecycle"), None);
    assert_eq!((status.phase.as_str(), status.child.as_str(), status.name_count), ("Deployed", "m-0", Some(0)));
    let selector = "app.kubernetes.io/component=mono-vertex,numaflow.numaproj.io/mono-vertex-name=m-0";
    assert_eq!(status.promoted_pod_selector, selector);
    assert_eq!(m.condition("Ready").0, "True");
    assert_eq!(m.condition("ChildResourcesHealthy"), ("True".into(), "Successful".into()));
    assert_eq!(m.condition("MonoVertexPausingOrPaused"), ("False".into(), "Unpaused".into()));
}

#[test]
fn no_change_pauses_it_where_nobody_says_so() {
    let mut m = Model::running();
    m.edit(|spec| {
        spec["source"] = json!({"kafka": {"topic": "t"}});
        spec["udf"]["container"]["image"] = json!("f:2");
        spec["sink"] = json!({"blackhole": {}});
    });
    m.step();
    assert_eq!(m.status().upgrade_in_progress, "DirectApply");
    m.settle();
    assert_eq!(m.writes, ["apply"]);
    let status = m.status();
    assert_eq!((status.phase.as_str(), status.upgrade_in_progress.as_str()), ("Deployed", ""));
    assert_eq!(status.last_pause, None);
}

#[test]
fn a_change_that_a_list_names_waits_until_its_pods_are_gone_and_then_it_runs_again() {
    let mut m = Model::with_lists();
    m.source(7);
    m.turn();
    m.numaflow();
    m.turn();
    assert_eq!((m.phase(), m.pods.len()), ("Paused", 1), "its pods still work");
    assert_eq!(m.live().spec["source"]["generator"]["rpu"], 5);
    let status = m.status();
    assert_eq!((status.upgrade_in_progress.as_str(), m.pause()), ("PipelinePauseAndDrain", "Pausing".into()));
    assert!(status.message.contains("spec.source.generator.rpu"), "{}", status.message);
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()), "{}", m.status().message);
    assert_eq!(m.live().spec["source"]["generator"]["rpu"], 7);
    assert_eq!(m.writes.len(), 3, "paused, changed, resumed: {:?}", m.writes);
    let last = m.status().last_pause.unwrap();
    assert_eq!((last.asked_by, last.state.as_str()), (vec!["MonoVertexRollout/m".to_owned()], ""));
    assert!(last.settled_at.is_some() && last.ended_at.is_some());
    assert_eq!(m.live().spec["lifecycle"].get("desiredPhase"), None);
}

#[test]
fn with_no_strategy_everything_is_applied_at_once_but_what_needs_another_one() {
    let mut m = Model::with_lists();
    m.strategy = Strategy::NoStrategy;
    m.source(7);
    m.settle();
    assert_eq!(m.writes, ["apply"]);
    m.edit(|spec| spec["sink"] = json!({"blackhole": {}}));
    m.settle();
    assert_eq!(m.writes.len(), 4, "{:?}", m.writes);
    assert!(m.writes[1].contains("Paused") && m.writes[2] == "delete" && m.writes[3] == "create m-1");
}

#[test]
fn another_instance_means_another_mono_vertex_and_the_old_one_has_no_pod_left_when_it_goes() {
    let mut m = Model::running();
    let annotations = json!({"annotations": {"numaflow.numaproj.io/instance": "b"}});
    m.rollout.spec.mono_vertex.metadata = Some(serde_json::from_value(annotations).unwrap());
    m.edit(|_| {});
    m.settle();
    assert_eq!((m.live().version.name.as_str(), m.status().child.as_str()), ("m-1", "m-1"));
    assert!(m.writes[0].contains("Paused") && m.writes[1..] == ["delete", "create m-1"], "{:?}", m.writes);
    assert!(m.status().last_pause.unwrap().settled_at.is_some());
    assert_eq!((m.phase(), m.pause()), ("Running", String::new()));
}

#[test]
fn direct_edits_are_healed_and_the_number_of_an_autoscaler_is_not_one() {
    let mut m = Model::running();
    m.meddle(&json!({"udf": {"container": {"image": "elsewhere:1"}}, "limits": {"readBatchSize": 7}}));
    m.settle();
    assert_eq!(m.live().spec["udf"]["container"]["image"], "f:1");
    assert_eq!((m.live().spec.get("limits"), m.writes.len()), (None, 2), "{:?}", m.writes);
    m.meddle(&json!({"replicas": 5}));
    m.settle();
    assert_eq!((m.replicas(), m.writes.len()), (Some(5), 2), "{:?}", m.writes);
    m.image("f:2");
    m.settle();
    assert_eq!((m.replicas(), m.writes.len()), (Some(5), 3), "{:?}", m.writes);
    m.child.as_mut().unwrap().owner = None;
    m.settle();
    assert!(m.live().owner.is_some());
    for phase in ["Running", ""] {
        m.meddle(&json!({"lifecycle": {"desiredPhase": phase}}));
        m.settle();
        assert_eq!(m.live().written_phase(), None, "nobody asks for it");
    }
}

#[test]
fn what_a_webhook_fills_in_again_and_again_is_left_alone() {
    let mut m = Model::running();
    m.fills_in = true;
    m.meddle(&json!({"filled": 1}));
    m.settle();
    assert_eq!((m.live().spec["filled"].as_i64(), m.status().phase.as_str()), (Some(1), "Deployed"));
    assert_eq!(m.writes.len(), 1, "tried once: {:?}", m.writes);
    m.image("f:2");
    m.want("Paused");
    m.settle();
    m.want("Running");
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()), "{}", m.status().message);
    assert_eq!(m.writes.len(), 4, "{:?}", m.writes);
}

#[test]
fn replicas_are_a_beginning_where_numaflow_scales_and_the_users_where_it_does_not() {
    let mut m = Model::running_with(|spec| spec["replicas"] = json!(3));
    assert_eq!(m.replicas(), Some(3), "to begin with");
    m.image("f:2");
    m.settle();
    assert_eq!(m.replicas(), Some(3), "not taken away by the next change");
    m.meddle(&json!({"replicas": 8}));
    m.edit(|spec| spec["replicas"] = json!(4));
    m.image("f:3");
    m.settle();
    assert_eq!((m.replicas(), m.status().phase.as_str()), (Some(8), "Deployed"));

    m.edit(|spec| spec["scale"] = json!({"disabled": true}));
    m.settle();
    assert_eq!(m.replicas(), Some(4));
    m.meddle(&json!({"replicas": 1}));
    m.settle();
    assert_eq!(m.replicas(), Some(4), "healed");
    m.want("Paused");
    m.settle();
    m.want("Running");
    m.settle();
    assert_eq!(m.replicas(), Some(4), "a slow resume does not take it away");
    m.edit(|spec| spec["scale"] = json!({"min": 1}));
    m.settle();
    assert_eq!((m.replicas(), m.status().phase.as_str()), (Some(4), "Deployed"), "and the autoscaler begins with it");
}

#[test]
fn a_spec_that_cannot_be_is_named_with_its_field_and_mended_by_a_good_one() {
    for (field, value, words) in [
        ("lifecycle", json!({"desiredPhase": "paused"}), "spec.monoVertex.spec.lifecycle.desiredPhase"),
        ("lifecycle", json!(7), "spec.monoVertex.spec.lifecycle"),
        ("replicas", json!("many"), "spec.monoVertex.spec.replicas"),
        ("replicas", json!(-1), "spec.monoVertex.spec.replicas"),
    ] {
        for mut m in [Model::new(), Model::running()] {
            m.edit(|spec| spec[field] = value.clone());
            m.settle();
            assert_eq!(m.condition("Stalled"), ("True".into(), "InvalidSpec".into()));
            assert!(m.status().message.contains(words), "{}", m.status().message);
            assert!(m.writes.is_empty(), "{:?}", m.writes);
            m.edit(|spec| spec[field] = json!(null));
            m.settle();
            assert_eq!(m.stands(), ("Running".into(), "Deployed".into()));
        }
    }
    let mut m = Model::running();
    m.edit(|spec| *spec = json!([]));
    m.settle();
    assert!(m.status().message.contains("spec.monoVertex.spec: must be"), "{}", m.status().message);
}

#[test]
fn one_that_numaflow_says_is_failed_is_deployed_and_not_ready_and_takes_the_next_spec_at_once() {
    let mut m = Model::with_lists();
    m.strategy = Strategy::NoStrategy;
    m.edit(|spec| spec["source"] = json!({}));
    m.settle();
    m.strategy = Strategy::PauseAndDrain;
    assert_eq!(m.stands(), ("Failed".into(), "Deployed".into()));
    assert_eq!(m.condition("Ready"), ("False".into(), "MonoVertexFailed".into()));
    assert_eq!(m.condition("ChildResourcesHealthy"), ("False".into(), "MonoVertexFailed".into()));
    m.writes.clear();
    m.edit(|spec| *spec = super::model::spec());
    m.settle();
    assert_eq!(m.writes, ["apply"], "no pause would come");
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()));
    assert_eq!(m.condition("Ready").0, "True");
}

#[test]
fn health_is_what_its_parts_say_and_phase_and_spec_stay_out_of_it() {
    let mut m = Model::running();
    let mut says = |kind: &str, status: &str, reason: &str, rolling: bool| {
        let child = m.child.as_mut().unwrap();
        child.conditions.insert(kind.into(), (status.into(), reason.into(), "why".into()));
        child.rolling = rolling;
        m.turn();
        assert_eq!(m.status().phase.as_str(), "Deployed");
        (m.condition("ChildResourcesHealthy"), m.condition("Ready").0)
    };
    let is = |status: &str, reason: &str, ready: &str| ((status.to_owned(), reason.to_owned()), ready.to_owned());
    assert_eq!(says("DaemonHealthy", "False", "Progressing", false), is("False", "Progressing", "False"));
    assert_eq!(says("DaemonHealthy", "True", "Successful", false), is("True", "Successful", "True"));
    assert_eq!(says("PodsHealthy", "False", "PodCrashLoopBackOff", true), is("False", "MonoVertexFailed", "False"));
    assert_eq!(says("PodsHealthy", "Unknown", "x", false), is("Unknown", "MonoVertexUnknown", "True"));
    assert_eq!(says("PodsHealthy", "True", "Running", true), is("False", "Progressing", "False"), "it rolls");
    assert_eq!(says("PodsHealthy", "True", "Running", false), is("True", "Successful", "True"));
}

#[test]
fn what_the_server_refuses_is_said_and_tried_again_and_pauses_nothing() {
    let mut m = Model::with_lists();
    m.refuses = Some("\"rpu\":7".into());
    m.source(7);
    m.settle();
    assert!(m.writes.is_empty(), "asked before anything is paused: {:?}", m.writes);
    let before = m.status();
    assert_eq!((before.phase.as_str(), m.condition("Reconciling").0.as_str()), ("Failed", "True"));
    assert!(before.message.contains("not allowed") && before.last_failure_time.is_some(), "{}", before.message);
    m.step();
    assert_eq!(m.status(), before, "tried again without a word");
    m.refuses = None;
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()));
    m.refuses = Some("f:2".into());
    m.image("f:2");
    m.settle();
    assert_eq!((m.status().phase.as_str(), m.condition("Reconciling").0.as_str()), ("Failed", "True"));
    m.image("f:3");
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()), "a good spec gets you out");
}

#[test]
fn a_change_refused_in_the_middle_does_not_leave_it_paused_and_is_tried_again_later() {
    let mut m = Model::with_lists();
    (m.refuses, m.lies) = (Some("\"rpu\":7".into()), true);
    m.source(7);
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Failed".into()), "{}", m.status().message);
    assert_eq!((m.live().wants_paused(), m.status().last_attempt.unwrap().tries), (false, 1));
    let writes = m.writes.len();
    m.pass_time(30);
    m.settle();
    assert_eq!(m.writes.len(), writes, "not at once: {:?}", m.writes);
    m.refuses = None;
    m.pass_time(31);
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()), "{}", m.status().message);
    assert_eq!(m.live().spec["source"]["generator"]["rpu"], 7);
}

#[test]
fn a_change_that_was_given_up_is_not_repeated_until_its_user_asks_again() {
    let mut m = Model::with_lists();
    (m.refuses, m.lies) = (Some("\"rpu\":7".into()), true);
    m.source(7);
    m.settle();
    m.refuses = None;
    // As an operator of another version may have judged.
    m.rollout.status.as_mut().unwrap().last_attempt.as_mut().unwrap().result = "Failed".into();
    m.pass_time(3600);
    m.settle();
    assert_eq!(m.live().spec["source"]["generator"]["rpu"], 5);
    assert_eq!((m.status().phase.as_str(), m.condition("Stalled").0.as_str()), ("Failed", "True"));
    m.annotate("retry", "again");
    m.settle();
    assert_eq!(m.live().spec["source"]["generator"]["rpu"], 7);
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()));
}

#[test]
fn one_that_somebody_deletes_is_made_anew_with_the_next_number() {
    let mut m = Model::running();
    m.child = None;
    m.pods.clear();
    m.settle();
    assert_eq!((m.live().version.name.as_str(), m.status().name_count), ("m-1", Some(1)));
    assert_eq!(m.status().phase.as_str(), "Deployed");
}

#[test]
fn nothing_is_made_while_it_is_not_known_what_there_is() {
    let mut m = Model::new();
    m.unknown = vec!["MonoVertices (not listed yet)".into()];
    m.settle();
    assert!(m.child.is_none() && m.status().message.contains("MonoVertices"), "{}", m.status().message);
    (m.unknown, m.served) = (Vec::new(), false);
    m.settle();
    assert!(m.child.is_none() && m.status().message.contains("CustomResourceDefinitions"), "{}", m.status().message);
    m.served = true;
    m.settle();
    assert_eq!(m.status().phase.as_str(), "Deployed");
}

#[test]
fn c16_one_that_would_get_too_long_a_name_with_its_next_number_stays_as_it_is_and_that_is_said() {
    let mut m = Model::new();
    let name = "a".repeat(47);
    m.rollout.metadata.name = Some(name.clone());
    m.settle();
    assert!(m.status().message.contains("(with room for a number of four digits)"), "{}", m.status().message);
    let mut status = m.status();
    status.name_count = Some(9);
    m.rollout.status = Some(status);
    m.settle();
    assert_eq!(m.stands(), ("Running".into(), "Deployed".into()), "{}", m.status().message);
    m.writes.clear();
    let annotations = json!({"annotations": {"numaflow.numaproj.io/instance": "b"}});
    m.rollout.spec.mono_vertex.metadata = Some(serde_json::from_value(annotations).unwrap());
    m.edit(|_| {});
    m.settle();
    assert_eq!(m.condition("Stalled"), ("True".into(), "InvalidSpec".into()));
    assert!(m.status().message.contains(&format!("Service \"{name}-10-mv-daemon-svc\" has 64")), "{:?}", m.status());
    assert!(m.writes.is_empty() && m.phase() == "Running", "{:?}", m.writes);
}
