//! What is said about specs, word by word.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod names;
mod pipelines;
mod properties;
mod schemas;
mod services;
mod warnings;

use serde_json::{Value, json};

use super::Findings;
use crate::{
    api::{IsbServiceRollout, MonoVertexRollout, PipelineRollout},
    valid,
};

/// A good spec of a pipeline: in, cat, out.
fn three() -> Value {
    json!({
        "vertices": [
            {"name": "in", "source": {"generator": {"rpu": 5}}},
            {"name": "cat", "udf": {"container": {"image": "cat:1"}}},
            {"name": "out", "sink": {"log": {}}},
        ],
        "edges": [{"from": "in", "to": "cat"}, {"from": "cat", "to": "out"}],
    })
}

/// A spec with changes: JSON pointers and what comes there. What is null goes; a number one beyond the last entry adds one.
fn with(mut spec: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        match spec.pointer_mut(parent).unwrap() {
            Value::Array(entries) => match key.parse::<usize>().unwrap() {
                at if value.is_null() => drop(entries.remove(at)),
                at if at == entries.len() => entries.push(value.clone()),
                at => entries[at] = value.clone(),
            },
            Value::Object(fields) if value.is_null() => drop(fields.remove(key)),
            other => other[key] = value.clone(),
        }
    }
    spec
}

fn pipeline(name: &str, spec: &Value) -> PipelineRollout {
    rollout(json!({"metadata": {"name": name, "namespace": "team"}, "spec": {"pipeline": {"spec": spec}}}))
}

fn isb_service(name: &str, spec: &Value) -> IsbServiceRollout {
    rollout(
        json!({"metadata": {"name": name, "namespace": "team"}, "spec": {"interStepBufferService": {"spec": spec}}}),
    )
}

fn mono_vertex(name: &str, spec: &Value) -> MonoVertexRollout {
    rollout(json!({"metadata": {"name": name, "namespace": "team"}, "spec": {"monoVertex": {"spec": spec}}}))
}

fn rollout<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// What has to be changed, each as it is said.
fn violations(found: &Findings) -> Vec<String> {
    found.violations.iter().map(ToString::to_string).collect()
}

#[test]
fn nothing_is_to_be_said_of_the_examples() {
    let documents = [
        include_str!("../../examples/pipeline.yaml"),
        include_str!("../../examples/pipelines-of-the-demo.yaml"),
        include_str!("../../examples/isbsvc.yaml"),
        include_str!("../../examples/monovertex.yaml"),
        include_str!("../../examples/rollout.yaml"),
    ];
    let mut looked_at = 0;
    for document in documents.iter().flat_map(|text| crate::definitions::yaml::documents(text)) {
        let object: Value = serde_saphyr::from_str(document.text).unwrap();
        let found = match object["kind"].as_str().unwrap_or_default() {
            "PipelineRollout" => valid::pipeline(&rollout(object)),
            "ISBServiceRollout" => valid::isb_service(&rollout(object)),
            "MonoVertexRollout" => valid::mono_vertex(&rollout(object)),
            "NumaflowControllerRollout" => valid::controller(&rollout(object), "spec.controller"),
            _ => continue,
        };
        looked_at += 1;
        assert_eq!(found, Findings::default(), "{}", document.text);
    }
    assert!(looked_at >= 6, "{looked_at}");
}
