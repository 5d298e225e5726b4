//! What is done to an object between the text of a definition and the API server.

use serde_json::{Map, Value, json};

use super::objects::ObjectKey;

/// Fields of metadata that the server owns; manifests exported from a cluster carry them.
const SERVER_OWNED: [&str; 7] =
    ["uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink"];

/// Annotations that other writers own; applying an exported value would fight with them for ever.
const OTHERS_ANNOTATIONS: [&str; 2] =
    ["kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"];

/// Takes away what the server owns and what holds nothing: `status`, fields of metadata, empty labels.
pub(super) fn drop_server_owned(body: &mut Value) {
    let Some(object) = body.as_object_mut() else { return };
    object.remove("status");
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    for field in SERVER_OWNED {
        metadata.remove(field);
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        for name in OTHERS_ANNOTATIONS {
            annotations.remove(name);
        }
    }
    for field in ["labels", "annotations", "ownerReferences", "finalizers", "generateName", "namespace"] {
        if metadata.get(field).is_some_and(is_nothing) {
            metadata.remove(field);
        }
    }
    // `kubectl create --dry-run` writes these; the server drops them.
    if let Some(template) = body.pointer_mut("/spec/template/metadata").and_then(Value::as_object_mut)
        && template.get("creationTimestamp").is_some_and(Value::is_null)
    {
        template.remove("creationTimestamp");
    }
}

/// Whether a value says no more than its absence would.
pub(super) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Makes `body` what server-side apply needs.
pub(super) fn for_apply(key: &ObjectKey, body: &mut Value) {
    match (key.group.as_str(), key.kind.as_str()) {
        ("apps", "Deployment") => strategy(body, "strategy"),
        ("apps", "StatefulSet") => strategy(body, "updateStrategy"),
        _ => {}
    }
}

/// Says `rollingUpdate: {}` where a rolling update is meant but not described.
///
/// The server fills in the details and nobody owns them, so that a later change to `Recreate` (or `OnDelete`) is
/// refused:
/// `rollingUpdate: Forbidden`. Owning the empty map is enough to have them go with it, in both directions.
fn strategy(body: &mut Value, field: &str) {
    let Some(spec) = body.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match spec.get_mut(field) {
        Some(Value::Object(strategy)) => complete(strategy),
        None | Some(Value::Null) => {
            spec.insert(field.to_owned(), json!({"type": "RollingUpdate", "rollingUpdate": {}}));
        }
        // The server says what is wrong with it.
        Some(_) => {}
    }
}

fn complete(strategy: &mut Map<String, Value>) {
    let details = strategy.get("rollingUpdate").is_some_and(|details| !details.is_null());
    if !matches!(strategy.get("type"), None | Some(Value::Null)) && strategy["type"] != "RollingUpdate" {
        if !details {
            strategy.remove("rollingUpdate");
        }
        return;
    }
    strategy.insert("type".to_owned(), json!("RollingUpdate"));
    if !details {
        strategy.insert("rollingUpdate".to_owned(), json!({}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: &str, kind: &str) -> ObjectKey {
        ObjectKey { group: group.into(), version: "v1".into(), kind: kind.into(), name: "x".into() }
    }

    fn applied(group: &str, kind: &str, mut body: Value) -> Value {
        for_apply(&key(group, kind), &mut body);
        body
    }

    #[test]
    fn a_rolling_update_can_become_recreate_and_back() {
        let full = json!({"type": "RollingUpdate", "rollingUpdate": {}});
        for (kind, field, other) in
            [("Deployment", "strategy", "Recreate"), ("StatefulSet", "updateStrategy", "OnDelete")]
        {
            for (written, expected) in [
                (json!({}), full.clone()),
                (json!({ field: null }), full.clone()),
                (json!({ field: {} }), full.clone()),
                (json!({ field: {"type": "RollingUpdate"} }), full.clone()),
                (json!({ field: {"type": "RollingUpdate", "rollingUpdate": null} }), full.clone()),
                (
                    json!({ field: {"rollingUpdate": {"maxSurge": 1}} }),
                    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}),
                ),
                (json!({ field: {"type": other} }), json!({"type": other})),
                (json!({ field: {"type": other, "rollingUpdate": null} }), json!({"type": other})),
            ] {
                let body = applied("apps", kind, json!({"metadata": {}, "spec": written}));
                assert_eq!(body["spec"][field], expected, "{kind} {written}");
            }
        }
        assert_eq!(applied("apps", "DaemonSet", json!({"spec": {}})), json!({"spec": {}}));
        assert_eq!(applied("example.com", "Deployment", json!({"spec": {}})), json!({"spec": {}}));
    }

    #[test]
    fn what_an_export_from_a_cluster_carries_is_dropped() {
        let mut body = json!({
            "metadata": {
                "name": "x", "uid": "u", "resourceVersion": "1", "generation": 3, "creationTimestamp": null,
                "managedFields": [], "ownerReferences": [], "labels": null, "namespace": "",
                "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "deployment.kubernetes.io/revision": "4"},
            },
            "spec": {"template": {"metadata": {"creationTimestamp": null, "labels": {"a": "b"}}}},
            "status": {"replicas": 1},
        });
        drop_server_owned(&mut body);
        assert_eq!(
            body,
            json!({"metadata": {"name": "x"}, "spec": {"template": {"metadata": {"labels": {"a": "b"}}}}})
        );
    }
}
