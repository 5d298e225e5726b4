//! Which configuration the pods of a workload use, as a hash: pods do not notice a changed ConfigMap, a changed pod
//! template they do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{hash, objects::Object};

/// Hexadecimal digits of the hash: enough to tell configurations apart, short enough to read.
const DIGITS: usize = 16;

/// A ConfigMap or Secret: (kind, name).
type Source = (&'static str, String);

/// The content of every ConfigMap and Secret among `objects`.
pub(super) struct Contents(BTreeMap<Source, Value>);

impl Contents {
    pub(super) fn of(objects: &[Object]) -> Self {
        let content = |object: &Object| {
            let kind = match (object.key.group.as_str(), object.key.kind.as_str()) {
                ("", "ConfigMap") => "ConfigMap",
                ("", "Secret") => "Secret",
                _ => return None,
            };
            let field = |name| object.body.get(name).cloned().unwrap_or(Value::Null);
            let content = json!([kind, object.key.name, field("data"), field("binaryData"), field("stringData")]);
            Some(((kind, object.key.name.clone()), content))
        };
        Self(objects.iter().filter_map(content).collect())
    }

    /// Hash of what the pods of `workload` use of these. `None` where it is no workload or uses none of them.
    pub(super) fn hash_for(&self, workload: &Object) -> Option<String> {
        if workload.key.group != "apps"
            || !matches!(workload.key.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet")
        {
            return None;
        }
        let mut used = BTreeSet::new();
        pod(workload.body.pointer("/spec/template/spec")?, &mut used);
        let mut contents = used.iter().filter_map(|source| self.0.get(source)).peekable();
        contents.peek()?;
        let mut hash = hash::sha256(contents);
        hash.truncate(DIGITS);
        Some(hash)
    }
}

/// What a pod's spec refers to: volumes, and the environment of all its containers.
fn pod(spec: &Value, used: &mut BTreeSet<Source>) {
    for volume in items(spec, "volumes") {
        volume_source(volume, used);
        if let Some(projected) = volume.get("projected") {
            for source in items(projected, "sources") {
                name("ConfigMap", source.pointer("/configMap/name"), used);
                name("Secret", source.pointer("/secret/name"), used);
            }
        }
    }
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for container in items(spec, containers) {
            for variable in items(container, "env") {
                name("ConfigMap", variable.pointer("/valueFrom/configMapKeyRef/name"), used);
                name("Secret", variable.pointer("/valueFrom/secretKeyRef/name"), used);
            }
            for source in items(container, "envFrom") {
                name("ConfigMap", source.pointer("/configMapRef/name"), used);
                name("Secret", source.pointer("/secretRef/name"), used);
            }
        }
    }
}

fn volume_source(volume: &Value, used: &mut BTreeSet<Source>) {
    name("ConfigMap", volume.pointer("/configMap/name"), used);
    name("Secret", volume.pointer("/secret/secretName"), used);
}

fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn name(kind: &'static str, value: Option<&Value>, used: &mut BTreeSet<Source>) {
    if let Some(name) = value.and_then(Value::as_str) {
        used.insert((kind, name.to_owned()));
    }
}
