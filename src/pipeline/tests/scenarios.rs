//! Changes and pauses, and who asks for them.

use serde_json::json;

use super::model::Model;

#[test]
fn a_pipeline_is_made_with_its_number_labels_and_names_filled_in() {
    let mut m = Model::new();
    m.edit(|spec| spec["vertices"][0]["env"] = json!("{{.pipeline-name}} {{ .other }}"));
    m.settle();
    let live = m.live();
    assert_eq!(live.version.name, "p-0");
    assert_eq!(live.spec["vertices"][0]["env"], "p-0 {{ .other }}");
    assert_eq!(live.labels["numaplane.numaproj.io/parent-rollout-name"], "p");
    assert_eq!(live.spec["lifecycle"], json!({"deletionGracePeriodSeconds": 30}));
    assert_eq!((m.status().phase.as_str(), m.status().child.as_str()), ("Deployed", "p-0"));
    assert_eq!(m.condition("Ready").0, "True");
}

#[test]
fn a_change_that_loses_nothing_is_applied_at_once() {
    let mut m = Model::running();
    m.edit(|spec| spec["limits"] = json!({"readBatchSize": 7}));
    m.settle();
    assert_eq!(m.writes, ["apply"]);
    assert_eq!(m.status().phase.as_str(), "Deployed");
    assert_eq!(m.status().last_pause, None);
}

#[test]
fn the_same_in_another_order_is_no_change() {
    let mut m = Model::running();
    m.edit(|spec| {
        for list in ["vertices", "edges"] {
            spec[list].as_array_mut().into_iter().for_each(|list| list.reverse());
        }
    });
    m.settle();
    assert!(m.writes.is_empty(), "{:?}", m.writes);
    assert_eq!(m.status().phase.as_str(), "Deployed");
}

#[test]
fn a_change_that_could_lose_data_waits_until_the_pipeline_is_drained_and_then_it_runs_again() {
    let mut m = Model::running();
    m.numaflow.pending = true;
    m.image("cat:2");
    m.settle();
    assert_eq!(m.phase(), "Pausing");
    assert_eq!(
        (m.status().phase.as_str(), m.status().upgrade_in_progress.as_str()),
        ("Pending", "PipelinePauseAndDrain")
    );
    assert!(m.status().message.contains("cat"), "{}", m.status().message);
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:1");
    m.numaflow.pending = false;
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2");
    assert_eq!(m.writes.len(), 3, "paused, changed, resumed: {:?}", m.writes);
    let last = m.status().last_pause.unwrap();
    assert_eq!((last.drained, last.not_drained.as_str()), (Some(true), ""));
    assert_eq!(m.live().spec["lifecycle"].get("desiredPhase"), None);
}

#[test]
fn what_was_not_drained_is_on_record_when_the_grace_period_ends() {
    let mut m = Model::running();
    m.numaflow.pending = true;
    m.image("cat:2");
    m.settle();
    m.pass_time(31);
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"));
    let last = m.status().last_pause.unwrap();
    assert_eq!(last.drained, Some(false));
    assert!(last.not_drained.contains("30 s"), "{}", last.not_drained);
    assert!(m.events.iter().any(|e| e.starts_with("NotDrained")), "{:?}", m.events);
}

#[test]
fn a_drain_timeout_raises_the_grace_period_and_cuts_it_when_the_time_is_up() {
    let mut m = Model::running();
    m.ppnd(&json!({"drainTimeout": "60s"}));
    m.numaflow.pending = true;
    m.image("cat:2");
    m.settle();
    assert_eq!(m.live().grace(), Some(60));
    m.pass_time(45);
    m.settle();
    assert_eq!(m.phase(), "Pausing", "Numaflow's own 30 s do not count");
    m.pass_time(16);
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
    assert!(m.status().last_pause.unwrap().not_drained.contains("time was up"));
    assert_eq!(m.live().grace(), None, "nothing of ours stays");
}

#[test]
fn a_users_own_grace_period_is_not_touched_until_the_time_is_up_and_comes_back() {
    let mut m = Model::new();
    m.edit(|spec| spec["lifecycle"] = json!({"pauseGracePeriodSeconds": 3600}));
    m.settle();
    m.ppnd(&json!({"drainTimeout": "60s"}));
    m.numaflow.pending = true;
    m.image("cat:2");
    m.settle();
    assert_eq!(m.live().grace(), Some(3600));
    m.pass_time(62);
    m.turn();
    assert_eq!(m.live().grace(), Some(0));
    m.settle();
    assert_eq!((m.phase(), m.live().grace()), ("Running", Some(3600)));
}

#[test]
fn with_abort_the_change_is_given_up_and_the_pipeline_runs_on() {
    let mut m = Model::running();
    m.ppnd(&json!({"drainTimeout": "60s", "onDrainTimeout": "Abort"}));
    m.numaflow.pending = true;
    m.image("cat:2");
    m.settle();
    m.pass_time(62);
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Failed"));
    assert_eq!(m.condition("Stalled"), ("True".into(), "DrainTimeout".into()));
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:1");
    m.pass_time(600);
    m.settle();
    assert_eq!(m.writes.len(), 2, "not tried again: {:?}", m.writes);
    m.numaflow.pending = false;
    m.annotate("retry", "again");
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"));
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2");
}

#[test]
fn a_change_that_was_given_up_is_tried_again_when_its_user_comes_back_to_it() {
    let mut m = Model::running();
    m.ppnd(&json!({"drainTimeout": "60s", "onDrainTimeout": "Abort"}));
    m.numaflow.pending = true;
    m.image("cat:2");
    m.settle();
    m.pass_time(62);
    m.settle();
    assert_eq!(m.status().phase.as_str(), "Failed");
    m.image("cat:1");
    m.settle();
    assert_eq!(m.status().phase.as_str(), "Deployed");
    m.numaflow.pending = false;
    m.image("cat:2");
    m.settle();
    assert_eq!(m.status().phase.as_str(), "Deployed");
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2");
}

#[test]
fn going_back_while_it_drains_ends_the_pause_and_changes_nothing() {
    let mut m = Model::running();
    m.numaflow.pending = true;
    m.image("cat:2");
    m.settle();
    m.image("cat:1");
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"));
    assert!(!m.writes.iter().any(|w| w == "apply"), "{:?}", m.writes);
}

#[test]
fn another_isb_service_means_another_pipeline_and_the_old_one_is_drained_first() {
    let mut m = Model::running();
    m.edit(|spec| spec["interStepBufferServiceName"] = json!("other"));
    m.settle();
    assert_eq!(m.live().version.name, "p-1");
    assert_eq!(m.writes.len(), 3, "{:?}", m.writes);
    assert!(m.writes[0].contains("Paused") && m.writes[1] == "delete" && m.writes[2] == "create p-1");
    assert_eq!(m.status().last_pause.unwrap().drained, Some(true));
    assert_eq!(m.status().child, "p-1");
}

#[test]
fn a_pause_that_the_spec_asks_for_stays_and_edits_meanwhile_go_in_once_without_starting_anything() {
    let mut m = Model::running();
    m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": "Paused"}));
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Paused", "Deployed"));
    assert!(m.status().message.contains("paused by its spec"));
    assert_eq!(m.condition("PipelinePausingOrPaused"), ("True".into(), "PipelinePaused".into()));
    for image in ["cat:2", "cat:3", "cat:3"] {
        m.image(image);
        m.settle();
        assert!(m.pods.is_empty());
    }
    m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": "Running"}));
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"));
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:3");
}

#[test]
fn pausing_and_changing_in_one_edit_is_done_one_after_the_other() {
    let mut m = Model::running();
    m.numaflow.pending = true;
    m.edit(|spec| {
        spec["lifecycle"] = json!({"desiredPhase": "Paused"});
        spec["limits"] = json!({"readBatchSize": 7});
    });
    m.settle();
    assert_eq!(m.phase(), "Pausing");
    assert_eq!(m.live().spec.get("limits"), None);
    m.numaflow.pending = false;
    m.settle();
    assert_eq!(m.phase(), "Paused");
    assert!(m.live().spec.get("limits").is_some());
}

#[test]
fn it_comes_back_slowly_unless_told_otherwise() {
    for (strategy, wanted) in [(json!({}), "slow"), (json!({"pauseResume": {"fastResume": true}}), "fast")] {
        let mut m = Model::running();
        m.rollout.spec.strategy = Some(serde_json::from_value(strategy).unwrap());
        m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": "Paused"}));
        m.settle();
        m.edit(|spec| spec["lifecycle"] = json!({}));
        m.settle();
        assert_eq!(m.live().annotations["numaflow.numaproj.io/resume-strategy"], wanted);
        assert_eq!(m.writes.iter().filter(|w| w.starts_with("patch")).count(), 2);
    }
}

#[test]
fn the_pause_that_a_requester_asks_for_begins_and_ends_with_its_request() {
    let mut m = Model::running();
    m.request(Some(300));
    m.settle();
    assert_eq!((m.phase(), m.answer().0.as_str(), m.answer().1), ("Paused", "Paused", Some(true)));
    assert_eq!(m.status().phase.as_str(), "Pending");
    m.requests.clear();
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"));
    assert_eq!(m.writes.len(), 2, "one write for each change of phase: {:?}", m.writes);
    assert!(m.status().pause_requests.is_empty());
}

#[test]
fn two_requesters_and_a_change_of_its_own_share_one_pause_in_any_order() {
    let mut m = Model::running();
    m.request(None);
    m.image("cat:2");
    m.settle();
    assert_eq!(
        (m.phase(), m.live().spec["vertices"][1]["udf"]["container"]["image"].as_str()),
        ("Paused", Some("cat:2"))
    );
    let mut second = m.requests[0].clone();
    second.by = "ISBServiceRollout/default".into();
    second.scope = crate::drain::Scope::Isb(vec!["default".into()]);
    m.requests.push(second);
    m.settle();
    assert_eq!(m.status().pause_requests.len(), 2);
    assert!(m.status().pause_requests.iter().all(|a| a.answer == "Paused"));
    m.requests.remove(0);
    m.settle();
    assert_eq!(m.phase(), "Paused", "the other one still asks");
    m.requests.clear();
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"));
}

#[test]
fn a_request_on_a_pipeline_that_its_user_paused_counts_at_once_and_leaves_it_paused() {
    let mut m = Model::running();
    m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": "Paused"}));
    m.settle();
    let writes = m.writes.len();
    m.request(None);
    m.turn();
    assert_eq!(m.answer().0, "Paused");
    m.requests.clear();
    m.settle();
    assert_eq!((m.phase(), m.writes.len()), ("Paused", writes));
}

#[test]
fn a_pipeline_made_while_a_request_is_active_is_born_paused_and_runs_afterwards() {
    let mut m = Model::new();
    m.request(None);
    m.turn();
    assert!(m.wants_paused());
    m.settle();
    assert_eq!(m.answer().0, "Paused");
    m.requests.clear();
    m.settle();
    assert_eq!(m.phase(), "Running");
}

#[test]
fn a_change_that_the_server_refuses_pauses_nothing() {
    let mut m = Model::running();
    m.refuses = Some("cat:2".into());
    m.image("cat:2");
    m.settle();
    assert!(m.writes.is_empty(), "{:?}", m.writes);
    assert_eq!((m.status().phase.as_str(), m.condition("Reconciling").0.as_str()), ("Failed", "True"));
    assert!(m.status().message.contains("not allowed"), "{}", m.status().message);
    m.refuses = None;
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"));
}

#[test]
fn what_is_refused_again_is_not_said_to_be_under_way_in_between() {
    let mut m = Model::running();
    m.refuses = Some("nope".into());
    m.edit(|spec| spec["limits"] = json!({"nope": 1}));
    m.settle();
    let before = m.status();
    assert_eq!(before.phase.as_str(), "Failed");
    m.step();
    assert_eq!(m.status(), before, "tried again without a word");
    m.settle();
    assert_eq!(m.status(), before);
    m.refuses = None;
    m.settle();
    assert_eq!(m.status().phase.as_str(), "Deployed", "{}", m.status().message);
}

#[test]
fn a_phase_that_is_none_is_refused_before_anything_is_paused_for_it() {
    let mut m = Model::running();
    m.edit(|spec| {
        spec["lifecycle"] = json!({"desiredPhase": "paused"});
        spec["vertices"][1]["udf"]["container"]["image"] = json!("cat:2");
    });
    m.settle();
    assert!(m.writes.is_empty(), "{:?}", m.writes);
    assert!(m.status().message.contains("Paused or Running"), "{}", m.status().message);
}

#[test]
fn one_whose_owner_somebody_took_is_given_it_back() {
    let mut m = Model::running();
    m.child.as_mut().unwrap().owner = None;
    m.settle();
    assert!(m.live().owner.is_some());
    assert_eq!(m.writes, ["apply"]);
}

#[test]
fn a_change_refused_in_the_middle_does_not_leave_the_pipeline_paused() {
    let mut m = Model::running();
    (m.refuses, m.lies) = (Some("cat:2".into()), true);
    m.image("cat:2");
    m.settle();
    assert_eq!((m.phase(), m.wants_paused()), ("Running", false), "{}", m.status().message);
    assert_eq!(m.status().phase.as_str(), "Failed");
    m.image("cat:3");
    m.settle();
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"));
}

#[test]
fn a_spec_that_cannot_be_read_does_not_keep_a_pipeline_from_being_resumed() {
    let mut m = Model::running();
    m.request(None);
    m.settle();
    m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": 7}));
    m.requests.clear();
    m.settle();
    assert_eq!((m.phase(), m.wants_paused()), ("Running", false));
    assert_eq!(m.condition("Stalled"), ("True".into(), "InvalidSpec".into()));
    assert!(m.status().message.contains("desiredPhase"));
}

#[test]
fn direct_edits_are_healed_without_a_pause_and_defaults_of_the_server_stay() {
    let mut m = Model::running();
    m.foreign = vec![vec!["watermark".into(), "disabled".into()]];
    let child = m.child.as_mut().unwrap();
    let mut spec = (*child.spec).clone();
    spec["watermark"] = json!({"disabled": true});
    spec["defaulted"] = json!(1);
    child.spec = spec.into();
    child.generation += 1;
    child.ownership = crate::numaflow::Ownership { foreign: m.foreign.clone(), ..(*child.ownership).clone() }.into();
    m.settle();
    assert_eq!(m.live().spec["watermark"].get("disabled"), None);
    assert_eq!(m.writes.len(), 1, "{:?}", m.writes);
    assert_eq!(m.status().phase.as_str(), "Deployed");
}

#[test]
fn a_phase_that_means_running_is_as_the_spec_of_the_rollout_has_it() {
    let phase = |m: &Model| m.live().written_phase().cloned();
    let patches = |m: &Model| m.writes.iter().filter(|w| w.contains("desiredPhase")).count();
    let mut m = Model::running();
    for meddled in [json!("Running"), json!("")] {
        m.meddle(meddled);
        m.settle();
        assert_eq!((phase(&m), m.status().phase.as_str()), (None, "Deployed"), "nobody asks for it");
    }
    m.writes.clear();
    let user = |m: &mut Model, phase: &serde_json::Value| {
        m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": phase}));
        m.settle();
    };
    user(&mut m, &json!("Running"));
    assert_eq!((phase(&m), patches(&m)), (Some(json!("Running")), 1), "asked for, and written once: {:?}", m.writes);
    m.meddle(serde_json::Value::Null);
    m.settle();
    assert_eq!((phase(&m), patches(&m)), (Some(json!("Running")), 2), "{:?}", m.writes);
    user(&mut m, &json!(null));
    assert_eq!((phase(&m), patches(&m)), (None, 3), "not asked for any more: {:?}", m.writes);
    assert!(m.writes.iter().all(|w| w.starts_with("patch")), "{:?}", m.writes);
    // A server that fills it in is no reason to write.
    m.meddle(json!("Running"));
    let child = m.child.as_mut().unwrap();
    child.ownership = crate::numaflow::Ownership { phase: false, ..(*child.ownership).clone() }.into();
    m.settle();
    assert_eq!((phase(&m), patches(&m)), (Some(json!("Running")), 3), "{:?}", m.writes);
}

#[test]
fn a_spec_that_cannot_be_read_drains_as_long_as_its_user_says_and_keeps_nothing_of_the_pause() {
    for users in [Some(120), None] {
        let mut m = Model::new();
        m.edit(|spec| spec["lifecycle"] = json!({"pauseGracePeriodSeconds": users}));
        m.settle();
        m.numaflow.pending = true;
        m.edit(|spec| spec["lifecycle"]["desiredPhase"] = json!("Pasued"));
        m.request(Some(300));
        m.settle();
        assert_eq!((m.phase(), m.live().grace()), ("Pausing", users.or(Some(300))));
        m.requests[0].cut = true;
        m.settle();
        assert_eq!((m.phase(), m.live().grace()), ("Paused", Some(0)));
        m.requests.clear();
        m.settle();
        assert_eq!((m.phase(), m.live().grace()), ("Running", users), "{}", m.status().message);
    }
}
