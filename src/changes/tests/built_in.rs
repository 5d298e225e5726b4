//! What is built in, on specs that have every field it names.

use serde_json::{Map, Value, json};

use crate::changes::{Change, Kind, List, Rules, classify};

fn container() -> Value {
    json!({
        "image": "x/f:1", "command": ["f"], "args": ["-v"], "env": [{"name": "A", "value": "1"}],
        "envFrom": [{"configMapRef": {"name": "c"}}], "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "resources": {"limits": {"memory": "1Gi"}}, "imagePullPolicy": "Always", "securityContext": {"runAsUser": 1},
        "livenessProbe": {"periodSeconds": 1}, "readinessProbe": {"periodSeconds": 1},
    })
}

/// What a pod has beside what it computes.
fn pod() -> Map<String, Value> {
    let template =
        json!({"resources": {"limits": {"memory": "1Gi"}}, "env": [{"name": "NUMAFLOW_DEBUG", "value": "true"}]});
    let pod = json!({
        "metadata": {"labels": {"a": "b"}}, "nodeSelector": {"a": "b"}, "tolerations": [{"key": "a"}],
        "affinity": {"nodeAffinity": {}}, "priorityClassName": "p", "serviceAccountName": "s",
        "imagePullSecrets": [{"name": "s"}], "containerTemplate": template,
        "volumes": [{"name": "v", "configMap": {"name": "c"}}],
        "initContainers": [{"name": "i", "image": "x/i:1"}], "sidecars": [{"name": "s", "image": "x/s:1"}],
        "scale": {"min": 1, "max": 5, "disabled": false}, "replicas": 1, "limits": {"readBatchSize": 500},
        "updateStrategy": {"type": "RollingUpdate"},
    });
    let mut pod = pod.as_object().unwrap().clone();
    for name in ["initContainers", "sidecars"] {
        let mut full = container();
        full["name"] = json!(name);
        pod.insert(name.to_owned(), json!([full]));
    }
    pod
}

fn with(mut map: Map<String, Value>, more: &Value) -> Value {
    map.extend(more.as_object().unwrap().clone());
    Value::Object(map)
}

/// Every source at once; a real one has one of them.
fn source() -> Value {
    json!({
        "generator": {"rpu": 5}, "kafka": {"topic": "t", "brokers": ["b"]}, "http": {"service": true}, "nats": {"url": "u"},
        "jetstream": {"url": "u"}, "pulsar": {"topic": "t"}, "sqs": {"queueName": "q"}, "serving": {"service": true},
        "redisStreams": {"url": "u"}, "udsource": {"container": container()},
        "transformer": {"container": container(), "builtin": {"name": "filter"}},
    })
}

fn sink() -> Value {
    let one = json!({
        "log": {}, "kafka": {"topic": "t"}, "blackhole": {}, "pulsar": {"topic": "t"}, "sqs": {"queueName": "q"},
        "serve": {}, "retryStrategy": {"onFailure": "retry"}, "udsink": {"container": container()},
    });
    let mut sink = one.clone();
    sink["fallback"] = one.clone();
    sink["onSuccess"] = one;
    sink
}

fn udf() -> Value {
    json!({
        "container": container(), "builtin": {"name": "cat"},
        "groupBy": {
            "window": {"fixed": {"length": "60s"}}, "keyed": true, "allowedLateness": "10s",
            "storage": {"persistentVolumeClaim": {"volumeSize": "10Gi"}},
        },
    })
}

fn sample(kind: Kind) -> Value {
    match kind {
        Kind::Pipeline => json!({
            "interStepBufferServiceName": "default",
            "lifecycle": {"pauseGracePeriodSeconds": 60, "deletionGracePeriodSeconds": 60, "desiredPhase": "Running"},
            "limits": {"readBatchSize": 500, "bufferMaxLength": 30000, "bufferUsageLimit": 80, "readTimeout": "1s"},
            "watermark": {"disabled": false, "maxDelay": "10s", "idleSource": {"threshold": "10s"}},
            "templates": {"daemon": {"replicas": 1}, "vertex": {"metadata": {"labels": {"a": "b"}}}},
            "interStepBuffer": {"compression": {"type": "LZ4"}},
            "ordered": {"enabled": true},
            "sideInputs": [{
                "name": "s", "container": container(), "trigger": {"schedule": "@hourly"},
                "volumes": [{"name": "v", "emptyDir": {}}],
            }],
            "vertices": [
                with(pod(), &json!({"name": "in", "source": source()})),
                with(pod(), &json!({
                    "name": "cat", "udf": udf(), "partitions": 2, "sideInputs": ["s"], "ordered": {"enabled": true},
                })),
                with(pod(), &json!({"name": "out", "sink": sink()})),
            ],
            "edges": [
                {"from": "in", "to": "cat", "onFull": "retryUntilSuccess"},
                {"from": "cat", "to": "out", "conditions": {"tags": {"operator": "or", "values": ["x"]}}},
            ],
        }),
        Kind::MonoVertex => with(
            pod(),
            &json!({
                "source": source(), "udf": udf(), "sink": sink(), "lifecycle": {"desiredPhase": "Running"},
                "daemonTemplate": {"replicas": 1}, "bypass": {"sink": {"tags": {"values": ["x"]}}},
            }),
        ),
        Kind::InterStepBufferService => json!({
            "jetstream": with(pod(), &json!({
                "version": "2.10.17", "replicas": 3, "persistence": {
                    "storageClassName": "standard", "accessMode": "ReadWriteOnce", "volumeSize": "20Gi",
                },
                "settings": "max_file_store: 10GB", "startArgs": ["-D"], "bufferConfig": "stream: {maxMsgs: 1}",
                "encryption": true, "tls": true, "securityContext": {"fsGroup": 1},
                "containerTemplate": {
                    "resources": {"limits": {"memory": "1Gi"}}, "env": [{"name": "A", "value": "1"}],
                    "envFrom": [{"configMapRef": {"name": "c"}}], "securityContext": {"runAsUser": 1},
                },
                "metricsContainerTemplate": {"resources": {"limits": {"memory": "1Gi"}}},
                "reloaderContainerTemplate": {"resources": {"limits": {"memory": "1Gi"}}},
            })),
            "redis": {
                "native": {
                    "version": "7.0.11", "replicas": 3, "persistence": {"volumeSize": "20Gi"},
                    "settings": {"redis": "maxmemory 1gb"},
                },
                "external": {"url": "u", "sentinelUrl": "s", "masterName": "m"},
            },
        }),
        Kind::NumaflowController => json!({"version": "1.8.1", "instanceID": "a"}),
    }
}

/// The spec without a field, wherever the path leads; `false` if there is none.
fn remove(value: &mut Value, path: &[&str]) -> bool {
    match (value, path) {
        (Value::Array(entries), _) => entries.iter_mut().fold(false, |found, entry| remove(entry, path) | found),
        (Value::Object(map), [last]) => map.remove(*last).is_some(),
        (Value::Object(map), [first, rest @ ..]) => map.get_mut(*first).is_some_and(|value| remove(value, rest)),
        _ => false,
    }
}

fn list_of(change: &Change) -> Option<List> {
    match change {
        Change::None | Change::Direct(_) => None,
        Change::Pause(_) => Some(List::DataLoss),
        Change::Recreate(_) => Some(List::Recreate),
    }
}

#[test]
fn every_path_that_is_built_in_is_a_field_and_does_what_its_list_says() {
    for kind in Kind::ALL {
        let rules = Rules::built_in(kind);
        for list in List::ALL {
            for rule in rules.list(list) {
                assert_eq!(crate::changes::Rule::new(kind, &rule.path, rule.include_subfields).as_ref(), Ok(rule));
                let path: Vec<&str> = rule.path.split('.').skip(1).collect();
                let old = sample(kind);
                let mut new = old.clone();
                assert!(remove(&mut new, &path), "{kind}: there is no {}", rule.path);
                let mut alone = Rules { recreate: Vec::new(), data_loss: Vec::new(), progressive: Vec::new() };
                match list {
                    List::Recreate => alone.recreate.push(rule.clone()),
                    _ => alone.data_loss.push(rule.clone()),
                }
                assert_eq!(list_of(&classify(&old, &new, &alone)), Some(list), "{kind}: {}", rule.path);
                // Together with the others it is that, or more.
                assert!(list_of(&classify(&old, &new, &rules)) >= Some(list), "{kind}: {}", rule.path);
            }
        }
    }
}

/// The spec with another value at a JSON pointer.
fn set(spec: &Value, pointer: &str, value: Value) -> Value {
    let mut spec = spec.clone();
    *spec.pointer_mut(pointer).unwrap_or_else(|| panic!("there is no {pointer}")) = value;
    spec
}

const N: Option<List> = None;
const P: Option<List> = Some(List::DataLoss);
const R: Option<List> = Some(List::Recreate);

#[test]
fn what_users_change_in_a_pipeline() {
    let old = sample(Kind::Pipeline);
    for (pointer, value, expected) in [
        ("/interStepBufferServiceName", json!("other"), R),
        ("/vertices/1/udf/container/image", json!("x/f:2"), P),
        ("/vertices/1/udf/container/args", json!(["-w"]), P),
        ("/vertices/1/udf/container/env/0/value", json!("2"), P),
        ("/vertices/1/udf/container/envFrom/0/configMapRef/name", json!("d"), P),
        ("/vertices/1/udf/container/volumeMounts/0/mountPath", json!("/w"), P),
        ("/vertices/1/udf/container/resources/limits/memory", json!("2Gi"), N),
        ("/vertices/1/udf/container/livenessProbe/periodSeconds", json!(2), N),
        ("/vertices/1/udf/container/imagePullPolicy", json!("Never"), N),
        ("/vertices/1/udf/groupBy/window/fixed/length", json!("30s"), P),
        ("/vertices/1/udf/groupBy/keyed", json!(false), P),
        ("/vertices/1/udf/groupBy/storage/persistentVolumeClaim/volumeSize", json!("20Gi"), R),
        ("/vertices/1/udf/groupBy", json!(null), R),
        ("/vertices/1/udf", json!(null), R),
        ("/vertices/1/partitions", json!(3), P),
        ("/vertices/1/sideInputs", json!(["s", "t"]), P),
        ("/vertices/1/name", json!("dog"), P),
        ("/vertices/0/source/kafka/topic", json!("u"), P),
        ("/vertices/0/source/kafka", json!(null), P),
        ("/vertices/0/source/udsource/container/image", json!("x/f:2"), P),
        ("/vertices/0/source/transformer/container/image", json!("x/f:2"), P),
        ("/vertices/2/sink/fallback", json!(null), P),
        ("/vertices/2/sink/onSuccess/udsink/container/image", json!("x/f:2"), P),
        ("/vertices/2/sink/retryStrategy/onFailure", json!("drop"), P),
        ("/vertices/2/sink/udsink/container/resources", json!({}), N),
        ("/vertices/2/scale/max", json!(9), N),
        ("/vertices/2/scale", json!(null), N),
        ("/vertices/2/replicas", json!(9), N),
        ("/vertices/2/limits/readBatchSize", json!(1), N),
        ("/vertices/2/nodeSelector", json!({"c": "d"}), N),
        ("/vertices/2/tolerations", json!([]), N),
        ("/vertices/2/metadata/labels/a", json!("c"), N),
        ("/vertices/2/containerTemplate/resources/limits/memory", json!("2Gi"), N),
        ("/vertices/2/updateStrategy/type", json!("x"), N),
        ("/vertices/2/sidecars/0/image", json!("x/s:2"), P),
        ("/vertices/2/sidecars/0/resources", json!({}), N),
        ("/vertices/2/sidecars", json!([]), P),
        ("/vertices/2/initContainers/0/args", json!([]), P),
        ("/vertices/2/volumes/0/configMap/name", json!("d"), P),
        ("/edges/0/to", json!("out"), P),
        ("/edges/0/onFull", json!("discardLatest"), P),
        ("/edges/1/conditions/tags/values", json!(["x", "y"]), P),
        ("/limits/bufferMaxLength", json!(1), N),
        ("/templates/daemon/replicas", json!(2), N),
        ("/watermark/maxDelay", json!("20s"), P),
        ("/interStepBuffer/compression/type", json!("ZSTD"), P),
        ("/ordered/enabled", json!(false), P),
        ("/sideInputs/0/container/image", json!("x/f:2"), P),
        ("/sideInputs/0/trigger/schedule", json!("@daily"), N),
        ("/sideInputs", json!([]), P),
        ("/lifecycle/deletionGracePeriodSeconds", json!(1), N),
    ] {
        let new = set(&old, pointer, value);
        let change = classify(&old, &new, &Rules::built_in(Kind::Pipeline));
        assert!(change != Change::None, "{pointer}");
        assert_eq!(list_of(&change), expected, "{pointer}: {change:?}");
    }
    // A vertex that comes with everything needs a pause, and not another pipeline.
    let mut more = old.clone();
    let mut vertex = old["vertices"][1].clone();
    vertex["name"] = json!("dog");
    more["vertices"].as_array_mut().unwrap().push(vertex);
    more["edges"].as_array_mut().unwrap().push(json!({"from": "in", "to": "dog"}));
    let change = classify(&old, &more, &Rules::built_in(Kind::Pipeline));
    let said: Vec<String> = change.fields().iter().map(ToString::to_string).collect();
    assert_eq!(list_of(&change), P);
    assert_eq!(said, ["spec.edges[in->dog] (dataLoss: spec.edges)", "spec.vertices[dog] (dataLoss: spec.vertices)"]);
}

#[test]
fn no_change_of_a_mono_vertex_pauses_it() {
    let old = sample(Kind::MonoVertex);
    for (pointer, value) in [
        ("/source/udsource/container/image", json!("x/f:2")),
        ("/source/kafka/topic", json!("u")),
        ("/source/kafka", json!(null)),
        ("/udf/container/image", json!("x/f:2")),
        ("/udf", json!(null)),
        ("/sink/udsink/container/image", json!("x/f:2")),
        ("/sink/log", json!(null)),
        ("/bypass/sink/tags/values", json!(["y"])),
        ("/sidecars/0/image", json!("x/s:2")),
        ("/scale/max", json!(9)),
        ("/replicas", json!(9)),
        ("/metadata/labels/a", json!("c")),
        ("/daemonTemplate/replicas", json!(2)),
    ] {
        let change = classify(&old, &set(&old, pointer, value), &Rules::built_in(Kind::MonoVertex));
        assert!(matches!(change, Change::Direct(_)), "{pointer}: {change:?}");
    }
    let paused = set(&old, "/lifecycle/desiredPhase", json!("Paused"));
    assert_eq!(classify(&old, &paused, &Rules::built_in(Kind::MonoVertex)), Change::None);
}

#[test]
fn what_users_change_in_an_isb_service() {
    let old = sample(Kind::InterStepBufferService);
    for (pointer, value, expected) in [
        ("/jetstream/version", json!("2.10.11"), P),
        ("/jetstream/settings", json!("max_file_store: 20GB"), P),
        ("/jetstream/startArgs", json!(["-DV"]), P),
        ("/jetstream/securityContext/fsGroup", json!(2), P),
        ("/jetstream/persistence/volumeSize", json!("30Gi"), R),
        ("/jetstream/persistence/storageClassName", json!("fast"), R),
        ("/jetstream/persistence", json!(null), R),
        ("/jetstream/replicas", json!(5), R),
        ("/jetstream/bufferConfig", json!("stream: {maxMsgs: 2}"), R),
        ("/jetstream/encryption", json!(false), R),
        ("/jetstream/tls", json!(null), R),
        ("/jetstream", json!(null), R),
        ("/redis/external/url", json!("v"), R),
        ("/redis/native/version", json!("7.0.15"), P),
        ("/jetstream/containerTemplate/resources/limits/memory", json!("2Gi"), N),
        ("/jetstream/containerTemplate/resources", json!(null), N),
        ("/jetstream/metricsContainerTemplate/resources/limits/memory", json!("2Gi"), N),
        ("/jetstream/metadata/labels/a", json!("c"), N),
        ("/jetstream/nodeSelector", json!({"c": "d"}), N),
        ("/jetstream/affinity", json!(null), N),
    ] {
        let change = classify(&old, &set(&old, pointer, value), &Rules::built_in(Kind::InterStepBufferService));
        assert!(change != Change::None, "{pointer}");
        assert_eq!(list_of(&change), expected, "{pointer}: {change:?}");
    }
}
