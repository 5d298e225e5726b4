//! Specs that something is wrong with: what is left alone for that, and what goes on.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::model::Model;
use crate::valid;

fn is_refused(m: &Model, words: &str) {
    assert_eq!(m.condition("Stalled"), ("True".into(), "InvalidSpec".into()), "{}", m.status().message);
    assert!(m.status().message.contains(words), "{}", m.status().message);
}

#[test]
fn a_pause_that_a_spec_asks_for_begins_and_ends_whatever_else_is_wrong_with_it() {
    let mut m = Model::running();
    m.edit(|spec| {
        spec["edges"][1]["to"] = json!("nowhere");
        spec["lifecycle"] = json!({"desiredPhase": "Paused"});
    });
    m.settle();
    assert_eq!((m.phase(), m.wants_paused()), ("Paused", true));
    is_refused(&m, "spec.pipeline.spec.edges[1].to: no vertex is called \"nowhere\"");
    m.edit(|spec| spec["lifecycle"] = json!({}));
    m.settle();
    assert_eq!((m.phase(), m.wants_paused()), ("Running", false));
    is_refused(&m, "nowhere");
    assert_eq!(m.live().spec["edges"][1]["to"], "out", "nothing of it is applied");
}

#[test]
fn what_was_paused_for_a_change_runs_on_when_another_one_is_wrong() {
    let mut m = Model::running();
    m.numaflow.pending = true;
    m.image("cat:2");
    m.turn();
    m.numaflow();
    m.turn();
    assert!(m.wants_paused(), "{:?}", m.writes);
    m.edit(|spec| spec["vertices"][2]["name"] = json!("cat"));
    m.settle();
    m.settle();
    assert_eq!((m.phase(), m.wants_paused()), ("Running", false), "{:?}", m.writes);
    is_refused(&m, "spec.pipeline.spec.vertices[2].name: \"cat\" is the name of spec.pipeline.spec.vertices[1] too");
}

#[test]
fn c16_one_that_would_get_too_long_a_name_with_its_next_number_stays_as_it_is_and_that_is_said() {
    let mut m = Model::new();
    let name = "a".repeat(48);
    m.rollout.metadata.name = Some(name.clone());
    m.settle();
    is_refused(&m, "(with room for a number of four digits)");
    assert!(m.child.is_none() && m.writes.is_empty(), "{:?}", m.writes);
    // One that there was before anybody kept room.
    let mut status = m.status();
    status.name_count = Some(9);
    m.rollout.status = Some(status);
    m.settle();
    assert_eq!((m.phase(), m.live().version.name.clone()), ("Running", format!("{name}-9")), "{}", m.status().message);
    m.image("cat:2");
    m.settle();
    assert_eq!(m.status().phase.as_str(), "Deployed", "{}", m.status().message);
    m.writes.clear();
    let annotations = [("numaflow.numaproj.io/instance".to_owned(), "b".to_owned())].into();
    m.rollout.spec.pipeline.metadata = Some(crate::api::TemplateMetadata { annotations, ..Default::default() });
    m.edit(|_| {});
    m.settle();
    is_refused(&m, &format!("Pipeline/{name}-10 cannot take the place of Pipeline/{name}-9, which stays as it is: "));
    is_refused(
        &m,
        &format!("spec.pipeline.spec.vertices[1].name: the name of Service \"{name}-10-cat-headless\" has 64"),
    );
    assert_eq!((m.phase(), m.writes.len()), ("Running", 0), "{:?}", m.writes);
    m.rollout.spec.pipeline.metadata = None;
    m.edit(|_| {});
    m.settle();
    assert_eq!(m.status().phase.as_str(), "Deployed", "{}", m.status().message);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_spec_is_refused_in_the_end_exactly_if_it_was_to_begin_with(
        edits in proptest::collection::vec((proptest::sample::select(&PLACES[..]), values()), 0..4),
        there in any::<bool>(),
    ) {
        let mut m = if there { Model::running() } else { Model::new() };
        m.edit(|spec| {
            for (pointer, value) in &edits {
                if let Some(place) = spec.pointer_mut(pointer) {
                    place.clone_from(value);
                }
            }
        });
        let good = valid::pipeline(&m.rollout).check();
        m.settle();
        let refused = m.condition("Stalled").1 == "InvalidSpec";
        prop_assert_eq!(refused, good.is_err(), "{:?}: {}", good, m.status().message);
        prop_assert!(!refused || m.status().message == good.unwrap_err());
    }
}

/// Places in the spec of the model.
const PLACES: [&str; 14] = [
    "",
    "/vertices",
    "/vertices/0",
    "/vertices/1/name",
    "/vertices/2/name",
    "/vertices/1/udf",
    "/vertices/1/udf/container",
    "/vertices/2/sink",
    "/edges",
    "/edges/0",
    "/edges/1/from",
    "/edges/1/to",
    "/interStepBufferServiceName",
    "/vertices/0/source",
];

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        Just(json!({})),
        Just(json!([])),
        Just(json!({"desiredPhase": "Paused"})),
        Just(json!({"container": {"image": "x"}})),
        Just(json!({"name": "in", "source": {}})),
        Just(json!(7)),
        prop_oneof![Just("in"), Just("cat"), Just("out"), Just("default"), Just("{{.pipeline-name}}"), Just("Bad one")]
            .prop_map(|text| json!(text)),
    ]
}
