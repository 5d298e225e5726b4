//! Pipelines whose ISBServiceRollout has another ISB service for them, and what they do while it is being changed.

use serde_json::json;

use super::{isb_names::on_a_rollout, model::Model};
use crate::changes::Rules;

/// Its ISB service is not the first one any more; `asked` says whether the rollout has waited for this pipeline in vain.
fn move_on(m: &mut Model, asked: bool) {
    let asked = asked.then(|| m.live().version.name.clone());
    m.isb_rollout("i", "i-1").asked = asked.into_iter().collect();
}

fn is_moved(m: &Model) {
    assert_eq!((m.live().version.name.as_str(), m.isb()), ("p-1", "i-1"), "{:?}", m.writes);
    assert_eq!((m.label("isbsvc-name"), m.label("isbsvc-child-name")), ("i", "i-1"));
    assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
    assert_eq!((m.live().grace(), m.live().written_phase()), (None, None));
}

#[test]
fn one_that_nobody_has_waited_for_is_drained_before_it_is_moved() {
    let mut m = on_a_rollout();
    m.numaflow.pending = true;
    move_on(&mut m, false);
    m.settle();
    assert_eq!((m.phase(), m.isb()), ("Pausing", "i-0"));
    assert!(m.status().message.contains("made anew (spec.interStepBufferServiceName)"), "{}", m.status().message);
    m.numaflow.pending = false;
    m.settle();
    m.settle();
    is_moved(&m);
    let last = m.status().last_pause.unwrap();
    assert_eq!((last.drained, last.asked_by), (Some(true), vec!["PipelineRollout/p".to_owned()]));
}

#[test]
fn one_that_was_paused_for_the_change_is_moved_before_it_is_resumed() {
    for with_the_request in [true, false] {
        let mut m = on_a_rollout();
        m.isb_request("i", &["i-0"], false);
        m.settle();
        assert_eq!((m.phase(), m.answer().0.as_str(), m.answer().1), ("Paused", "Paused", Some(true)));
        m.writes.clear();
        move_on(&mut m, false);
        if with_the_request {
            m.requests.clear();
        }
        m.settle();
        m.settle();
        assert_eq!(m.writes, ["delete", "create p-1"], "it never ran on the old one again");
        is_moved(&m);
        m.requests.clear();
        m.settle();
        let last = m.status().last_pause.unwrap();
        assert_eq!((last.drained, last.not_drained.as_str()), (Some(true), ""));
        assert!(!m.events.iter().any(|e| e.starts_with("NotDrained")), "{:?}", m.events);
    }
}

#[test]
fn one_that_was_drained_and_that_somebody_woke_is_drained_again_before_it_is_moved() {
    let mut m = on_a_rollout();
    m.isb_request("i", &["i-0"], false);
    m.settle();
    assert_eq!(m.answer().0, "Paused");
    m.meddle(json!(null));
    m.numaflow();
    m.numaflow();
    m.numaflow();
    assert_eq!((m.phase(), m.pods.len()), ("Running", 3));
    m.requests.clear();
    move_on(&mut m, false);
    m.settle();
    m.settle();
    is_moved(&m);
    assert!(!m.events.iter().any(|e| e.starts_with("NotDrained")), "{:?}", m.events);
    assert_eq!(m.status().last_pause.unwrap().drained, Some(true));
}

#[test]
fn one_that_never_pauses_is_moved_when_its_rollout_has_waited_long_enough_and_that_is_one_loss_not_two() {
    for with_the_request in [true, false] {
        let mut m = on_a_rollout();
        m.numaflow.never_pauses = true;
        m.numaflow.pending = true;
        m.isb_request("i", &["i-0"], false);
        m.settle();
        assert_eq!((m.phase(), m.answer().0.as_str()), ("Pausing", "Pausing"));
        m.pass_time(600);
        m.writes.clear();
        move_on(&mut m, true);
        if with_the_request {
            m.requests.clear();
        }
        m.settle();
        m.settle();
        assert_eq!(m.writes, ["delete", "create p-1"], "nor does it run again before it goes");
        is_moved(&m);
        assert!(!m.events.iter().any(|e| e.starts_with("NotDrained")), "{:?}", m.events);
        assert_eq!(m.status().last_pause.unwrap().not_drained, "");
    }
}

#[test]
fn one_that_was_excused_and_runs_is_moved_without_a_pause_of_its_own() {
    let mut m = on_a_rollout();
    m.numaflow.fails = Some("its image is gone".into());
    m.numaflow();
    m.turn();
    m.pass_time(61);
    m.isb_request("i", &["i-0"], false);
    m.settle();
    assert_eq!(m.answer().0, "Excused");
    m.writes.clear();
    move_on(&mut m, true);
    m.settle();
    m.numaflow.fails = None;
    m.settle();
    assert_eq!(m.writes, ["delete", "create p-1"]);
    is_moved(&m);
    assert_eq!(m.status().last_pause, None);
}

#[test]
fn what_its_rollout_has_waited_for_is_no_reason_to_skip_the_drain_of_another_change() {
    type Change = fn(&mut Model);
    let changes: [Change; 2] = [
        // To another rollout, which never asked it.
        |m| {
            m.isb_rollout("j", "j-0").asked = ["p-0".to_owned()].into();
            m.name_isb("j");
        },
        |m| {
            let annotations = [("numaflow.numaproj.io/instance".to_owned(), "blue".to_owned())];
            m.rollout.spec.pipeline.metadata =
                Some(crate::api::TemplateMetadata { annotations: annotations.into(), ..Default::default() });
        },
    ];
    for change in changes {
        let mut m = on_a_rollout();
        m.numaflow.pending = true;
        move_on(&mut m, true);
        change(&mut m);
        m.settle();
        assert_eq!((m.phase(), m.isb()), ("Pausing", "i-0"), "{:?}", m.writes);
    }
    // A change in place that was waited for is no move.
    let mut m = on_a_rollout();
    m.numaflow.pending = true;
    m.isb_rollout("i", "i-0").asked = ["p-0".to_owned()].into();
    m.image("cat:2");
    m.settle();
    assert_eq!(m.phase(), "Pausing", "{:?}", m.writes);
}

#[test]
fn one_whose_isb_service_is_gone_has_nothing_to_drain_into_and_that_is_on_record() {
    for paused in [false, true] {
        let mut m = on_a_rollout();
        m.numaflow.pending = true;
        if paused {
            // On its way into a pause that ends never, because its daemon has nobody to ask.
            m.numaflow.never_pauses = true;
            m.image("cat:2");
            m.settle();
            assert_eq!(m.phase(), "Pausing");
        }
        m.writes.clear();
        m.services.clear();
        m.settle();
        assert!(m.writes.is_empty(), "another may come under the same name: {:?}", m.writes);
        move_on(&mut m, false);
        m.settle();
        m.settle();
        assert_eq!(m.writes, ["delete", "create p-1"]);
        is_moved(&m);
        let last = m.status().last_pause.unwrap();
        assert_eq!(last.drained, Some(false));
        let why = "InterStepBufferService/i-0, which it uses, does not exist any more";
        assert!(last.not_drained.contains(why), "{last:?}");
        assert!(m.events.iter().any(|e| e.starts_with("NotDrained") && e.contains(why)), "{:?}", m.events);
    }
}

#[test]
fn one_on_a_plain_isb_service_is_drained_before_it_goes_to_the_rollout_that_takes_its_name() {
    let mut m = Model::running();
    m.isb_rollout("default", "");
    m.settle();
    assert!(m.writes.is_empty(), "{:?}", m.writes);
    m.isb_rollout("default", "default-0");
    m.settle();
    m.settle();
    assert_eq!((m.live().version.name.as_str(), m.isb()), ("p-1", "default-0"));
    assert_eq!(m.status().last_pause.unwrap().drained, Some(true));
}

#[test]
fn one_that_its_user_paused_is_moved_and_stays_paused() {
    let mut m = on_a_rollout();
    m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": "Paused"}));
    m.settle();
    move_on(&mut m, true);
    m.settle();
    m.settle();
    assert_eq!((m.phase(), m.isb(), m.wants_paused()), ("Paused", "i-1", true));
    assert!(m.pods.is_empty(), "it never ran");
}

#[test]
fn rules_that_say_otherwise_do_not_change_the_isb_service_of_a_pipeline_in_place() {
    for strategy in [crate::api::Strategy::NoStrategy, crate::api::Strategy::PauseAndDrain] {
        let mut m = on_a_rollout();
        m.strategy = strategy;
        m.rules = Rules { progressive: Vec::new(), data_loss: Vec::new(), recreate: Vec::new() }.into();
        move_on(&mut m, false);
        m.settle();
        m.settle();
        is_moved(&m);
        assert_eq!(m.status().last_pause.unwrap().drained, Some(true));
    }
}

#[test]
fn one_made_while_its_isb_service_asks_for_a_pause_is_born_paused() {
    let mut m = Model::new();
    m.isb_rollout("i", "i-0");
    m.name_isb("i");
    m.isb_request("i", &["i-0"], true);
    m.turn();
    assert!(m.wants_paused());
    m.settle();
    assert_eq!((m.phase(), m.answer().0.as_str(), m.pods.len()), ("Paused", "Paused", 0));
    m.requests.clear();
    m.settle();
    assert_eq!(m.phase(), "Running");
}

/// One whose ISB service is about to be changed in place: it is paused for that, or still on its way.
fn about_to_roll(on_its_way: bool) -> Model {
    let mut m = on_a_rollout();
    m.numaflow.never_pauses = on_its_way;
    m.isb_request("i", &["i-0"], false);
    m.settle();
    assert_eq!(m.answer().0, if on_its_way { "Pausing" } else { "Paused" });
    m.isb_request("i", &["i-0"], true);
    m.writes.clear();
    m
}

#[test]
fn a_pipeline_stays_paused_through_the_whole_roll_of_its_isb_service() {
    for on_its_way in [false, true] {
        let mut m = about_to_roll(on_its_way);
        let answer = m.answer().0;
        m.numaflow.fails = Some("isbsvc not healthy".into());
        (m.isb_healthy, m.isb_rolled) = (false, false);
        // For longer than one that fails for another reason would be waited for.
        for _ in 0..20 {
            m.settle();
            m.pass_time(30);
            assert!(m.wants_paused(), "{:?}", m.writes);
            assert_eq!(m.answer().0, answer, "{on_its_way}");
        }
        assert!(m.writes.is_empty(), "nothing would wake it: {:?}", m.writes);
        m.isb_healthy = true;
        m.settle();
        assert!(m.writes.is_empty(), "its pods are not of the new kind yet: {:?}", m.writes);
        m.pass_time(30);
        m.isb_rolled = true;
        m.turn();
        assert!(m.writes.len() == 1 && m.writes[0].contains("poked"), "{:?}", m.writes);
        assert_eq!(m.answer().0, answer, "it is not paused again by that alone");
        (m.numaflow.fails, m.numaflow.never_pauses) = (None, false);
        m.settle();
        assert_eq!((m.phase(), m.answer().0.as_str()), ("Paused", "Paused"), "{}", m.status().message);
        m.pass_time(600);
        m.settle();
        assert!(m.wants_paused(), "as long as it is asked for");
        m.requests.clear();
        m.settle();
        assert_eq!((m.phase(), m.status().phase.as_str()), ("Running", "Deployed"), "{}", m.status().message);
        assert_eq!(m.writes.len(), 2, "poked, resumed: {:?}", m.writes);
    }
}

#[test]
fn an_isb_service_with_an_old_image_is_not_healthy_where_its_controller_is_told_of_another() {
    let mut m = about_to_roll(false);
    m.numaflow.fails = Some("isbsvc not healthy".into());
    m.isb_image = "nats:2.10".to_owned();
    m.settings(&json!({"jetstream": {"versions": [{"version": "2.10", "natsImage": "nats:2.10.1"}]}}));
    m.settle();
    m.pass_time(30);
    m.settle();
    assert!(m.writes.is_empty(), "{:?}", m.writes);
    m.isb_image = "nats:2.10.1".to_owned();
    m.pass_time(30);
    m.settle();
    assert!(m.writes.iter().any(|w| w.contains("poked")), "{:?}", m.writes);
}
