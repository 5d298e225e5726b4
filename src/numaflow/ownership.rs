//! Whose fields the fields of a spec are, read from its managed fields: what we applied, what others added, and what nobody
//! owns (the server's defaults). Pure.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value};

use crate::api::{MANAGER_LIFECYCLE, MANAGER_NUMAFLOW};

/// Field manager of Numaflow's controllers.
const NUMAFLOW: &str = "numaflow";

/// Fields of a spec by owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ownership {
    /// What is left of the spec that we applied last: the fields that are still ours, with their values. `None` where
    /// we never applied any.
    pub ours: Option<Value>,
    /// Fields that others set and we did not, as paths below `spec`.
    pub foreign: Vec<Vec<String>>,
    /// Whether somebody, be it us, has set the wanted phase; nobody has where the server fills it in.
    pub phase: bool,
    /// Keys of the labels that we applied last and that are still ours.
    pub labels: BTreeSet<String>,
    /// The same of annotations.
    pub annotations: BTreeSet<String>,
}

impl Ownership {
    /// Reads the managed fields of an object with this spec.
    #[must_use]
    pub fn read(managed: &[ManagedFieldsEntry], spec: &Value) -> Self {
        let of_object = || managed.iter().filter(|e| e.subresource.as_deref().unwrap_or_default().is_empty());
        let fields = |entry: &ManagedFieldsEntry| entry.fields_v1.as_ref().and_then(|f| f.0.get("f:spec").cloned());
        let applied = of_object()
            .find(|e| e.manager.as_deref() == Some(MANAGER_NUMAFLOW) && e.operation.as_deref() == Some("Apply"));
        let ours = applied.and_then(fields);
        let keys = |of: &str| {
            let set = applied.and_then(|e| e.fields_v1.as_ref()).map(|f| &f.0["f:metadata"][of]);
            set.map(|set| below(set).into_iter().map(|(key, _)| key.to_owned()).collect()).unwrap_or_default()
        };
        let (labels, annotations) = (keys("f:labels"), keys("f:annotations"));
        let phase = of_object().filter_map(fields).any(|set| !set["f:lifecycle"]["f:desiredPhase"].is_null());
        let mut foreign = Vec::new();
        let others = of_object()
            .filter(|e| !matches!(e.manager.as_deref(), Some(MANAGER_NUMAFLOW | MANAGER_LIFECYCLE | NUMAFLOW)));
        for set in others.filter_map(fields) {
            leaves(&set, &mut Vec::new(), &mut |path| {
                if !owns(ours.as_ref(), path) && at(spec, path).is_some() && !foreign.iter().any(|p| p == path) {
                    foreign.push(path.to_vec());
                }
            });
        }
        Self { ours: ours.map(|set| project(&set, spec)), foreign, phase, labels, annotations }
    }
}

/// The value at a path.
fn at<'v>(value: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// Calls `with` for every field of a set that has no fields below it. A list is one field: those of a spec without a schema
/// have one owner as a whole.
fn leaves(set: &Value, path: &mut Vec<String>, with: &mut impl FnMut(&[String])) {
    let below = below(set);
    if below.is_empty() {
        if !path.is_empty() {
            with(path);
        }
        return;
    }
    for (key, inner) in below {
        path.push(key.to_owned());
        leaves(inner, path, with);
        path.pop();
    }
}

/// The named fields of a set; none for a leaf, and for a list whose items have owners of their own.
fn below(set: &Value) -> Vec<(&str, &Value)> {
    let Some(map) = set.as_object() else { return Vec::new() };
    if map.keys().any(|key| key.starts_with("k:") || key.starts_with("v:") || key.starts_with("i:")) {
        return Vec::new();
    }
    map.iter().filter_map(|(key, inner)| Some((key.strip_prefix("f:")?, inner))).collect()
}

fn owns(set: Option<&Value>, path: &[String]) -> bool {
    let Some(mut set) = set else { return false };
    for key in path {
        match set.get(format!("f:{key}")) {
            Some(inner) => set = inner,
            // What is below a field that is ours as a whole is ours.
            None => return below(set).is_empty(),
        }
    }
    true
}

/// The fields of a spec that are in a set.
fn project(set: &Value, spec: &Value) -> Value {
    let below = below(set);
    let Some(map) = spec.as_object().filter(|_| !below.is_empty()) else { return spec.clone() };
    let kept = below.into_iter().filter_map(|(key, inner)| Some((key.to_owned(), project(inner, map.get(key)?))));
    Value::Object(kept.collect::<Map<_, _>>())
}

/// Whether everything that is wanted is there with the same value. Numbers are compared by value; what is there besides does
/// not count (the server fills in defaults), but a list has as many items.
#[must_use]
pub fn covers(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (_, Value::Null) => true,
        (Value::Object(there), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| value.is_null() || there.get(key).is_some_and(|found| covers(found, value))),
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len() && there.iter().zip(wanted).all(|(there, wanted)| covers(there, wanted))
        }
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => there == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, fields: &Value) -> ManagedFieldsEntry {
        serde_json::from_value(json!({
            "manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": {
                "f:spec": fields, "f:metadata": {"f:labels": {".": {}, "f:of-the-manager": {}}},
            },
        }))
        .unwrap()
    }

    #[test]
    fn what_somebody_else_changed_is_not_ours_any_more_and_what_they_added_is_known_by_its_path() {
        let spec = json!({"vertices": [{"name": "in"}], "watermark": {"disabled": true, "maxDelay": "1s"}, "limits": {"bufferMaxLength": 1}});
        let managed = [
            entry("numaplane-dataplane", "Apply", &json!({"f:vertices": {}, "f:watermark": {"f:maxDelay": {}}})),
            entry("kubectl-edit", "Update", &json!({"f:watermark": {"f:disabled": {}}})),
            entry("numaflow", "Update", &json!({"f:limits": {"f:bufferMaxLength": {}}})),
        ];
        let seen = Ownership::read(&managed, &spec);
        assert_eq!(seen.ours, Some(json!({"vertices": [{"name": "in"}], "watermark": {"maxDelay": "1s"}})));
        assert_eq!(seen.foreign, vec![vec!["watermark".to_owned(), "disabled".to_owned()]]);
        assert_eq!(seen.labels, BTreeSet::from(["of-the-manager".to_owned()]));
        assert!(seen.annotations.is_empty());
    }

    #[test]
    fn a_phase_that_the_server_fills_in_was_set_by_nobody() {
        let spec = json!({"lifecycle": {"desiredPhase": "Running", "deletionGracePeriodSeconds": 30}});
        let other =
            entry("numaplane-dataplane", "Apply", &json!({"f:lifecycle": {"f:deletionGracePeriodSeconds": {}}}));
        let phase = entry("kubectl-edit", "Update", &json!({"f:lifecycle": {"f:desiredPhase": {}}}));
        assert!(!Ownership::read(std::slice::from_ref(&other), &spec).phase);
        assert!(Ownership::read(&[other, phase], &spec).phase);
    }

    #[test]
    fn defaults_and_the_spelling_of_numbers_are_no_difference() {
        let there = json!({"scale": {"min": 1, "max": 50}, "vertices": [{"name": "a", "scale": {}}]});
        assert!(covers(&there, &json!({"scale": {"min": 1.0}, "vertices": [{"name": "a"}], "gone": null})));
        assert!(!covers(&there, &json!({"vertices": []})));
        assert!(!covers(&there, &json!({"scale": {"min": 2}})));
    }
}
