//! Webhook and reconcilers judge alike: whatever one of them says of an object, the other says too.

use std::sync::Arc;

use jiff::Timestamp;
use proptest::{collection::vec, prelude::*, sample::select};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::fake::Fake;
use crate::{
    api::{FINALIZER, GROUP, IsbServiceRollout, MonoVertexRollout, NumaflowControllerRollout, PipelineRollout},
    isb, mono_vertex, observe, pipeline,
    plan::{Learned, Plan},
    rollout,
    settings::Defaults,
    world::{CLUSTER, World},
};

/// What somebody makes of an object: at which of its values, what.
#[derive(Clone, Debug)]
enum Slip {
    /// It is left out.
    Lost,
    /// Something else stands there.
    Other(Value),
    /// It is there twice.
    Twice,
}

fn slip() -> impl Strategy<Value = Slip> {
    let others = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(2),
        json!(1.5),
        json!(10_000_000_000_i64),
        json!(""),
        json!(" "),
        json!("a"),
        json!("Not A Name"),
        json!("x-1"),
        json!("a".repeat(70)),
        json!("{{.pipeline-name}}"),
        json!("{{ .nothing }"),
        json!("0s"),
        json!("5"),
        json!("-5s"),
        json!("1h30m"),
        json!("9999999999h"),
        json!("Paused"),
        json!("1.9.0"),
        json!([]),
        json!(["a"]),
        json!({}),
        json!({"a": {"b": []}}),
    ];
    prop_oneof![2 => Just(Slip::Lost), 4 => select(others.to_vec()).prop_map(Slip::Other), 1 => Just(Slip::Twice)]
}

/// The paths of all values in it.
fn paths(value: &Value, path: &str, all: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(k, v)| (k.replace('~', "~0").replace('/', "~1"), v)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(n, v)| (n.to_string(), v)).collect(),
        _ => Vec::new(),
    };
    for (key, child) in children {
        let path = format!("{path}/{key}");
        paths(child, &path, all);
        all.push(path);
    }
}

/// The object with these slips in its spec and its name.
fn with(good: &Value, slips: &[(usize, Slip)], name: &str) -> Value {
    let mut object = good.clone();
    for (at, slip) in slips {
        let mut all = Vec::new();
        paths(&object["spec"], "/spec", &mut all);
        let Some(path) = all.get(at % all.len().max(1)) else { continue };
        let (parent, key) = path.rsplit_once('/').unwrap();
        match (object.pointer_mut(parent).unwrap(), slip) {
            (Value::Object(fields), Slip::Lost) => drop(fields.remove(&key.replace("~1", "/").replace("~0", "~"))),
            (Value::Array(items), Slip::Lost) => drop(items.remove(key.parse().unwrap())),
            (Value::Array(items), Slip::Twice) => items.push(items[key.parse::<usize>().unwrap()].clone()),
            (_, Slip::Lost | Slip::Twice) => {}
            (_, Slip::Other(other)) => *object.pointer_mut(path).unwrap() = other.clone(),
        }
    }
    object["metadata"] = json!({
        "name": name, "namespace": "team-a", "uid": "0badcafe-0000", "generation": 1, "finalizers": [FINALIZER],
        "creationTimestamp": "2026-01-01T00:00:00Z",
    });
    object
}

fn good(kind: &str) -> Value {
    let ppnd = json!({"ppnd": {"drainTimeout": "5m", "onDrainTimeout": "Abort"}});
    let metadata = json!({"labels": {"a": "b"}, "annotations": {"numaflow.numaproj.io/instance": ""}});
    let source = json!({"generator": {"rpu": 5, "duration": "1s"}});
    let spec = match kind {
        "NumaflowControllerRollout" => json!({
            "controller": {"version": "1.8.3", "instanceID": "a"},
            "strategy": {"type": "pause-and-drain", "assessment": {"deadline": "10m", "window": "30s", "interval": "5s"},
                "ppnd": ppnd["ppnd"], "forcePromote": false},
            "paused": false, "revisionHistoryLimit": 3,
        }),
        "PipelineRollout" => json!({
            "pipeline": {"metadata": metadata, "spec": {
                "interStepBufferServiceName": "default",
                "lifecycle": {"desiredPhase": "Running", "pauseGracePeriodSeconds": 30},
                "vertices": [
                    {"name": "in", "source": source},
                    {"name": "cat", "udf": {"container": {"image": "x"}}, "scale": {"min": 1, "max": 3}},
                    {"name": "out", "sink": {"log": {}}},
                ],
                "edges": [{"from": "in", "to": "cat"}, {"from": "cat", "to": "out"}],
                "watermark": {"disabled": false},
            }},
            "strategy": ppnd,
        }),
        "ISBServiceRollout" => json!({
            "interStepBufferService": {"metadata": metadata, "spec": {
                "jetstream": {"version": "2.10", "replicas": 3, "persistence": {"volumeSize": "1Gi"}},
            }},
            "strategy": {"ppnd": ppnd["ppnd"], "assessment": {"deadline": "10m", "interval": "5s"}},
        }),
        _ => json!({
            "monoVertex": {"metadata": metadata, "spec": {
                "replicas": 1, "source": source, "sink": {"log": {}}, "lifecycle": {"desiredPhase": "Paused"},
            }},
        }),
    };
    json!({"apiVersion": format!("{GROUP}/v1alpha1"), "kind": kind, "spec": spec})
}

/// The world of the fake, in which all is known: that there is nothing but definitions.
fn world(fake: &Fake) -> &World {
    let (world, own) = (&fake.world, &fake.settings.operator_namespace);
    world.rollouts.listed(CLUSTER);
    world.controllers.listed(CLUSTER);
    world.revisions.listed(CLUSTER);
    world.namespaces.listed(CLUSTER);
    world.pipeline_rollouts.listed(CLUSTER);
    world.isb_rollouts.listed(CLUSTER);
    world.mono_vertex_rollouts.listed(CLUSTER);
    world.pipelines.listed(CLUSTER);
    world.isb_services.listed(CLUSTER);
    world.mono_vertices.listed(CLUSTER);
    world.namespace_configs.listed(CLUSTER);
    world.config_maps.listed(own);
    world.changes_configs.listed(own);
    assert_eq!(world.unsynced(), Vec::<String>::new());
    world
}

/// What the reconciler makes of an object; `None` where it cannot read it.
fn decided(kind: &str, object: &Value, fake: &Fake) -> Option<Plan> {
    fn read<K: DeserializeOwned>(object: &Value) -> Option<Arc<K>> {
        serde_json::from_value(object.clone()).ok().map(Arc::new)
    }
    let (world, settings, learned) = (world(fake), &fake.settings, Learned::default());
    let (defaults, now) = (Defaults::default(), Timestamp::from_second(1_800_000_000).unwrap());
    Some(match kind {
        "NumaflowControllerRollout" => {
            let rollout = read::<NumaflowControllerRollout>(object)?;
            rollout::decide(&observe::rollout(world, settings, &rollout, &learned), &defaults, now)
        }
        "PipelineRollout" => {
            let rollout = read::<PipelineRollout>(object)?;
            pipeline::decide(&observe::pipeline(world, settings, &rollout, &learned), now)
        }
        "ISBServiceRollout" => {
            let rollout = read::<IsbServiceRollout>(object)?;
            isb::decide(&observe::isb_service(world, settings, &rollout, &learned), &defaults, now)
        }
        _ => {
            let rollout = read::<MonoVertexRollout>(object)?;
            mono_vertex::decide(&observe::mono_vertex(world, &rollout, &learned), now)
        }
    })
}

fn asked(kind: &str, object: &Value) -> Value {
    json!({
        "uid": "u", "kind": {"group": GROUP, "version": "v1alpha1", "kind": kind},
        "resource": {"group": GROUP, "version": "v1alpha1", "resource": "x"},
        "name": object["metadata"]["name"], "namespace": "team-a", "operation": "CREATE", "object": object,
    })
}

fn fake() -> Fake {
    Fake::default().defining("ops", &[("1.8.3", "a"), ("1.9.0", "b")])
}

/// Reasons of a phase Failed that are about the spec, or about what it asks for.
const REASONS: [&str; 5] =
    ["InvalidSpec", "DefinitionNotFound", "DefinitionAmbiguous", "DefinitionMalformed", "DefinitionUnusable"];

fn agree(kind: &str, object: &Value) -> Result<bool, TestCaseError> {
    let fake = fake();
    let refused = fake.verdict(&asked(kind, object)).violations;
    let Some(plan) = decided(kind, object, &fake) else {
        prop_assert!(!refused.is_empty(), "what the reconciler cannot read is admitted");
        return Ok(true);
    };
    let plan = format!("{plan:?}");
    let failed = REASONS.iter().any(|reason| plan.contains(&format!("{reason:?}")));
    prop_assert_eq!(failed, !refused.is_empty(), "webhook: {:?}\nreconciler: {}", refused, plan);
    Ok(failed)
}

const KINDS: [&str; 4] = ["NumaflowControllerRollout", "PipelineRollout", "ISBServiceRollout", "MonoVertexRollout"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn what_is_admitted_never_fails_for_its_spec_and_what_fails_for_its_spec_is_refused(
        kind in select(KINDS.to_vec()),
        slips in vec((any::<usize>(), slip()), 0..4),
        name in select(vec!["a", "a-rather-long-name-of-a-rollout-that-does-not-fit-into-a-label-of-the-pods"]),
    ) {
        agree(kind, &with(&good(kind), &slips, name))?;
    }
}

#[test]
fn the_objects_that_slips_are_made_in_are_good_and_some_slips_are_noticed() {
    for kind in KINDS {
        assert!(!agree(kind, &with(&good(kind), &[], "a")).unwrap(), "{kind}");
        let mut paths_of_kind = Vec::new();
        paths(&good(kind)["spec"], "/spec", &mut paths_of_kind);
        let noticed = |n: usize| agree(kind, &with(&good(kind), &[(n, Slip::Other(json!("?")))], "a")).unwrap();
        let count = (0..paths_of_kind.len()).filter(|n| noticed(*n)).count();
        assert!(count * 2 > paths_of_kind.len(), "{kind}: {count} of {}", paths_of_kind.len());
    }
}
