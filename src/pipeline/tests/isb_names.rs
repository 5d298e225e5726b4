//! What a pipeline's spec calls its ISB service, and which one it gets.

use serde_json::json;

use super::model::Model;

/// One on the first ISB service of the ISBServiceRollout `i`.
pub fn on_a_rollout() -> Model {
    let mut m = Model::new();
    m.isb_rollout("i", "i-0");
    m.name_isb("i");
    m.settle();
    assert_eq!((m.phase(), m.isb(), m.status().phase.as_str()), ("Running", "i-0", "Deployed"));
    m.writes.clear();
    m
}

#[test]
fn a_pipeline_that_names_a_rollout_uses_the_isb_service_of_that() {
    let m = on_a_rollout();
    assert_eq!((m.label("isbsvc-name"), m.label("isbsvc-child-name")), ("i", "i-0"));
}

#[test]
fn a_pipeline_that_names_an_isb_service_uses_that_as_before() {
    let mut m = Model::new();
    m.name_isb("other");
    m.settle();
    assert_eq!((m.isb(), m.label("isbsvc-name"), m.label("isbsvc-child-name")), ("other", "other", "other"));
    let mut m = Model::new();
    m.edit(|spec| spec["interStepBufferServiceName"] = json!(null));
    m.settle();
    assert_eq!((m.isb(), m.label("isbsvc-child-name")), ("default", "default"));
    assert!(m.live().spec["interStepBufferServiceName"].is_null(), "what its user leaves out is left out");
}

#[test]
fn a_rollout_comes_before_an_isb_service_of_the_same_name_and_the_default_one_may_be_a_rollout() {
    let mut m = Model::new();
    m.edit(|spec| spec["interStepBufferServiceName"] = json!(null));
    m.isb_rollout("default", "default-0");
    m.settle();
    assert_eq!((m.isb(), m.label("isbsvc-name")), ("default-0", "default"));
}

#[test]
fn a_new_pipeline_waits_for_its_isb_service_and_says_for_which() {
    let mut m = Model::new();
    m.name_isb("i");
    m.settle();
    let said = |m: &Model| (m.status().phase.as_str().to_owned(), m.condition("Ready").1, m.status().message);
    let waits = |m: &Model, words: &str| {
        assert!(m.child.is_none());
        assert_eq!(said(m), ("Pending".to_owned(), "IsbServiceMissing".to_owned(), words.to_owned()));
    };
    waits(&m, "waiting for ISBServiceRollout/i, or an InterStepBufferService of that name");
    m.isb_rollout("i", "").unreadable = true;
    m.settle();
    waits(&m, "waiting for ISBServiceRollout/i, which cannot be read");
    m.isb_rollout("i", "").unreadable = false;
    m.settle();
    waits(&m, "waiting for ISBServiceRollout/i to have an ISB service");
    m.isb_rollout("i", "i-0").deleting = true;
    m.settle();
    waits(&m, "waiting for an ISB service: ISBServiceRollout/i is being deleted");
    m.isb_rollout("i", "i-0").deleting = false;
    m.settle();
    assert_eq!((m.isb(), m.phase(), said(&m).0.as_str()), ("i-0", "Running", "Deployed"));
}

#[test]
fn a_pipeline_runs_on_where_it_is_while_its_isb_service_cannot_be_told_and_takes_other_changes() {
    type Trouble = fn(&mut Model);
    let troubles: [Trouble; 5] = [
        |m| m.isb_rollout("i", "").children.clear(),
        |m| m.isb_rollout("i", "i-1").deleting = true,
        |m| m.isb_rollout("i", "").unreadable = true,
        |m| m.isb_rollouts.clear(),
        |m| {
            m.isb_rollouts.clear();
            m.services.clear();
        },
    ];
    for trouble in troubles {
        let mut m = on_a_rollout();
        trouble(&mut m);
        m.settle();
        assert!(m.writes.is_empty(), "{:?}", m.writes);
        assert_eq!(m.status().phase.as_str(), "Deployed", "{}", m.status().message);
        m.edit(|spec| spec["limits"] = json!({"readBatchSize": 7}));
        m.settle();
        assert_eq!((m.writes.as_slice(), m.isb()), (["apply".to_owned()].as_slice(), "i-0"));
    }
}

#[test]
fn a_pipeline_whose_next_isb_service_is_missing_stays_as_it_is_and_is_paused_and_resumed_for_others() {
    let mut m = Model::running();
    m.name_isb("missing");
    m.image("cat:2");
    m.settle();
    assert!(m.writes.is_empty(), "{:?}", m.writes);
    let words = m.status().message;
    assert!(words.contains("ISBServiceRollout/missing") && words.contains("Pipeline/p-0 stays as it is"), "{words}");
    assert_eq!(m.status().phase.as_str(), "Pending");
    for asked in [true, false] {
        if asked {
            m.request(Some(90));
        } else {
            m.requests.clear();
        }
        m.settle();
        assert_eq!(m.phase(), if asked { "Paused" } else { "Running" });
    }
    for phase in ["Paused", "Running"] {
        m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": phase}));
        m.settle();
        assert_eq!((m.phase(), m.live().written_phase()), (phase, Some(&json!(phase))));
    }
    m.edit(|spec| spec["lifecycle"] = json!({"pauseGracePeriodSeconds": 77}));
    m.settle();
    assert_eq!(m.live().grace(), Some(77));
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:1", "changed as a whole, or not");
    m.isb_rollout("missing", "missing-0");
    m.settle();
    m.settle();
    assert_eq!((m.live().version.name.as_str(), m.isb()), ("p-1", "missing-0"));
    assert_eq!(m.live().spec["vertices"][1]["udf"]["container"]["image"], "cat:2");
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
}

#[test]
fn an_isb_service_that_is_not_listed_is_not_missing() {
    let mut m = on_a_rollout();
    m.name_isb("unlisted");
    m.unknown = vec!["InterStepBufferServices (not listed yet)".into()];
    m.settle();
    assert!(m.writes.is_empty(), "{:?}", m.writes);
    assert!(m.status().message.contains("to be listed"), "{}", m.status().message);
    assert_eq!(m.isb(), "i-0");
}

#[test]
fn a_pipeline_from_before_there_were_rollouts_gets_its_label_without_a_pause() {
    let mut m = Model::running();
    let child = m.child.as_mut().unwrap();
    child.labels.remove("numaplane.numaproj.io/isbsvc-child-name");
    child.annotations.insert(crate::live::ANNOTATION_APPLIED.into(), "of another operator".into());
    m.settle();
    assert_eq!((m.writes.as_slice(), m.label("isbsvc-child-name")), (["apply".to_owned()].as_slice(), "default"));
    assert_eq!((m.phase(), m.status().last_pause), ("Running", None));
}

#[test]
fn whoever_tampers_with_the_name_or_its_labels_makes_no_other_pipeline_of_it() {
    for rollout_knows in [true, false] {
        let mut m = on_a_rollout();
        if !rollout_knows {
            m.isb_rollout("i", "");
        }
        m.tamper(|spec| spec["interStepBufferServiceName"] = json!("elsewhere"));
        m.settle();
        assert_eq!((m.isb(), m.writes.as_slice()), ("i-0", ["apply".to_owned()].as_slice()), "{rollout_knows}");
        for key in ["isbsvc-name", "isbsvc-child-name"] {
            m.child.as_mut().unwrap().labels.remove(&format!("numaplane.numaproj.io/{key}"));
            m.settle();
            assert_eq!((m.label("isbsvc-name"), m.label("isbsvc-child-name")), ("i", "i-0"), "{rollout_knows} {key}");
        }
        assert!(m.writes.iter().all(|w| w == "apply") && m.live().version.name == "p-0", "{:?}", m.writes);
    }
}

#[test]
fn a_name_too_long_for_a_label_is_known_again() {
    let long = "i".repeat(70);
    let mut m = Model::new();
    let child = format!("{long}-0");
    m.isb_rollout(&long, &child);
    m.name_isb(&long);
    m.settle();
    assert_eq!((m.isb(), m.label("isbsvc-name").len()), (child.as_str(), 63));
    m.isb_rollout(&long, "");
    m.writes.clear();
    m.settle();
    assert!(m.writes.is_empty() && m.isb() == child, "{:?}", m.writes);
}
