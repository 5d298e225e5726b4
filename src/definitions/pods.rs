//! Which objects bring pods, and where in them the pods are described.

use serde_json::Value;

use super::objects::{Object, ObjectKey};

/// The lists of containers in the spec of a pod.
pub(super) const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Whether this is a workload: what is watched until its pods are there.
pub(super) fn is_workload(object: &ObjectKey) -> bool {
    object.group == "apps" && matches!(object.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet")
}

/// Where an object of this kind has the `metadata` and `spec` of its pods: the fields on the way there. A Pod has them
/// itself.
pub(super) fn template_fields(group: &str, kind: &str) -> Option<&'static [&'static str]> {
    match (group, kind) {
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch", "Job")
        | ("", "ReplicationController") => Some(&["spec", "template"]),
        ("batch", "CronJob") => Some(&["spec", "jobTemplate", "spec", "template"]),
        ("", "PodTemplate") => Some(&["template"]),
        ("", "Pod") => Some(&[]),
        _ => None,
    }
}

/// The pod template of `body`, an object of this kind.
pub(super) fn template<'b>(group: &str, kind: &str, body: &'b Value) -> Option<&'b Value> {
    template_fields(group, kind)?
        .iter()
        .try_fold(body, |value, field| value.get(field))
        .filter(|value| value.is_object())
}

/// The spec of the pods of `object`.
pub(super) fn spec(object: &Object) -> Option<&Value> {
    template(&object.key.group, &object.key.kind, &object.body)?.get("spec")
}

/// The items of a list in `value`; none where there is no list.
pub(super) fn items<'v>(value: &'v Value, field: &str) -> &'v [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// All containers in the spec of a pod.
pub(super) fn containers(spec: &Value) -> impl Iterator<Item = &Value> {
    CONTAINERS.iter().flat_map(|list| items(spec, list))
}
