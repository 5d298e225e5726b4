//! Whatever a definition holds: if it is isolated, it shares nothing with production and finds everything of its own.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use proptest::{prelude::*, test_runner::TestRunner};

use super::*;
use crate::{
    definitions::{
        objects::Object,
        references::{Reference, references},
    },
    names,
};

type Map = BTreeMap<String, String>;

/// A name, with or without the suffix variable.
fn name() -> impl Strategy<Value = String> {
    // The long one has to be cut for some kinds.
    let long = "very-long-name-that-has-to-be-cut-for-some".to_owned();
    let name = prop_oneof![6 => "[a-d]", 1 => Just(long)];
    (name, any::<bool>()).prop_map(
        |(name, suffixed)| {
            if suffixed { format!("{name}{{{{ .InstanceSuffix }}}}") } else { name }
        },
    )
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just("app"), 2 => Just("tier"), 1 => Just("z")].prop_map(str::to_owned)
}

fn value() -> impl Strategy<Value = String> {
    // No empty one: whether it is the instance ID would depend on the instance.
    let long = "v".repeat(60);
    prop_oneof![4 => "[a-c]", 2 => Just("{{ .InstanceID }}".to_owned()), 1 => Just(long)]
}

fn labels() -> impl Strategy<Value = Map> {
    prop::collection::btree_map(key(), value(), 1..3)
}

fn expression() -> impl Strategy<Value = Value> {
    let values = prop::collection::vec(value(), 1..3);
    let of_values = (key(), prop_oneof![4 => Just("In"), 1 => Just("NotIn")], values);
    prop_oneof![
        4 => of_values.prop_map(|(key, operator, values)| json!({"key": key, "operator": operator, "values": values})),
        1 => (key(), prop_oneof![Just("Exists"), Just("DoesNotExist")])
            .prop_map(|(key, operator)| json!({"key": key, "operator": operator})),
    ]
}

/// Any selector; seldom one that takes many.
fn selector() -> impl Strategy<Value = Value> {
    prop_oneof![
        8 => labels().prop_map(|labels| json!({"matchLabels": labels})),
        3 => (labels(), expression())
            .prop_map(|(labels, expression)| json!({"matchLabels": labels, "matchExpressions": [expression]})),
        1 => expression().prop_map(|expression| json!({"matchExpressions": [expression]})),
        1 => Just(json!({})),
    ]
}

/// Labels of pods, and a selector that mostly finds them.
fn labels_and_selector() -> impl Strategy<Value = (Map, Value)> {
    let follow = labels().prop_flat_map(|labels| {
        let (any_of, all) = (labels.clone(), json!({"matchLabels": labels}));
        let some = any_of.into_iter().map(
            |(key, value)| json!({"matchExpressions": [{"key": key, "operator": "In", "values": [value, "other"]}]}),
        );
        let choice = prop_oneof![4 => Just(all), 1 => prop::sample::select(some.collect::<Vec<_>>())];
        (Just(labels), choice)
    });
    prop_oneof![8 => follow, 1 => (labels(), selector())]
}

fn pod(labels: &Map, names: &[String], selector: &Value) -> Value {
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "serviceAccountName": names[0],
            "imagePullSecrets": [{"name": names[1]}],
            "volumes": [
                {"configMap": {"name": names[2]}},
                {"secret": {"secretName": names[3]}},
                {"persistentVolumeClaim": {"claimName": names[4]}},
            ],
            "containers": [{"envFrom": [{"configMapRef": {"name": names[5], "optional": true}}]}],
            "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector}]}},
        },
    })
}

fn object() -> impl Strategy<Value = Value> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let plain = |kind: &'static str| {
        name().prop_map(move |name| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}))
    };
    let names = || prop::collection::vec(name(), 6);
    let workload = (
        prop::sample::select(vec!["Deployment", "StatefulSet", "DaemonSet"]),
        name(),
        labels_and_selector(),
        names(),
        selector(),
    )
        .prop_map(|(kind, name, (labels, selector), names, other)| {
            json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "labels": labels},
                   "spec": {"selector": selector, "serviceName": names[0], "template": pod(&labels, &names, &other)}})
        });
    let service = (name(), labels(), any::<bool>()).prop_map(|(name, labels, none)| {
        let spec = if none { json!({}) } else { json!({"selector": labels}) };
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec})
    });
    let policy = (name(), selector(), selector()).prop_map(|(name, selector, peer)| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name},
               "spec": {"podSelector": selector, "ingress": [{"from": [{"podSelector": peer}]}]}})
    });
    let budget = (name(), selector()).prop_map(|(name, selector)| {
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": {"selector": selector}})
    });
    let role = (name(), names()).prop_map(move |(name, names)| {
        json!({"apiVersion": rbac, "kind": "Role", "metadata": {"name": name}, "rules": [
            {"apiGroups": ["", "apps"], "resources": ["configmaps", "services", "statefulsets"], "resourceNames": names[..2]}]})
    });
    let binding = (name(), names()).prop_map(move |(name, names)| {
        json!({"apiVersion": rbac, "kind": "RoleBinding", "metadata": {"name": name},
               "roleRef": {"kind": "Role", "name": names[0]}, "subjects": [{"kind": "ServiceAccount", "name": names[1]}]})
    });
    prop_oneof![
        3 => plain("ServiceAccount"),
        3 => plain("ConfigMap"),
        3 => plain("Secret"),
        3 => plain("PersistentVolumeClaim"),
        3 => service,
        1 => policy,
        1 => budget,
        2 => role,
        2 => binding,
        4 => workload,
    ]
}

/// A definition in which no name is given twice, with or without its suffix.
fn definitions() -> impl Strategy<Value = Definition> {
    prop::collection::vec(object(), 1..12).prop_map(|objects| {
        let mut seen = BTreeSet::new();
        let kept = objects.into_iter().filter(|object| {
            let name = object["metadata"]["name"].to_string().replace("{{ .InstanceSuffix }}", "");
            seen.insert((object["kind"].to_string(), name))
        });
        let text: Vec<String> = kept.map(|object| object.to_string()).collect();
        trusted(&text.join("\n---\n"))
    })
}

fn instance() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just(""), Just("prod")]
}

/// The acting selector of an object, read by other code than that under test.
fn acting(object: &Object) -> Option<Selector> {
    let spec = &object.body["spec"];
    let of_labels = |labels: &Value| Some(serde_json::from_value::<Map>(labels.clone()).ok()?.into_iter().collect());
    match object.key.kind.as_str() {
        "Service" => of_labels(&spec["selector"]),
        "NetworkPolicy" => Some(label_selector(&spec["podSelector"])),
        "Deployment" | "StatefulSet" | "DaemonSet" | "PodDisruptionBudget" => Some(label_selector(&spec["selector"])),
        _ => None,
    }
}

fn label_selector(value: &Value) -> Selector {
    let selector: LabelSelector = serde_json::from_value(value.clone()).expect("a selector");
    Selector::try_from(selector).expect("a selector")
}

/// The labels of the pods of an object.
fn pods(object: &Object) -> Option<Map> {
    let labels = object.body.pointer("/spec/template/metadata/labels")?;
    Some(serde_json::from_value(labels.clone()).expect("labels"))
}

fn holds(objects: &[Object], reference: &Reference) -> Option<usize> {
    objects.iter().position(|object| object.key.is_of(reference.to) && object.key.name == reference.name)
}

/// What has to hold of `isolated` beside `own` (the same definition in production) and all of `production`.
fn holds_beside(isolated: &[Object], own: &[Object], production: &[Object]) -> Result<(), TestCaseError> {
    for object in isolated {
        let shared = production.iter().any(|other| other.key.is_same_object(&object.key));
        prop_assert!(!shared, "{} is production's", object.key);
        prop_assert_eq!(names::check(&object.key), Ok(()), "{}", object.key);
        prop_assert_eq!(&object.body["metadata"]["labels"][LABEL_ISOLATED], ID);
        for other in production {
            if let (Some(selector), Some(pods)) = (acting(other), pods(object)) {
                prop_assert!(!selector.matches(&pods), "{} of production acts on {}", other.key, object.key);
            }
            if let (Some(selector), Some(pods)) = (acting(object), pods(other)) {
                prop_assert!(!selector.matches(&pods), "{} acts on {} of production", object.key, other.key);
            }
        }
    }
    let kept: Vec<Object> = own.iter().filter(|object| object.key.kind != "PodDisruptionBudget").cloned().collect();
    prop_assert_eq!(kept.len(), isolated.len());
    for (before, now) in kept.iter().zip(isolated) {
        prop_assert_eq!(&before.key.kind, &now.key.kind);
        for (pods_before, pods_now) in kept.iter().zip(isolated) {
            if let (Some(labels_before), Some(labels)) = (pods(pods_before), pods(pods_now)) {
                let found = (
                    acting(before).map(|selector| selector.matches(&labels_before)),
                    acting(now).map(|selector| selector.matches(&labels)),
                );
                prop_assert_eq!(found.0, found.1, "{} and the pods of {}", now.key, pods_now.key);
            }
        }
        let now_refers = references(now);
        for reference in references(before) {
            if let Some(to) = holds(&kept, &reference) {
                let follows = now_refers.iter().any(|other| holds(isolated, other) == Some(to));
                prop_assert!(follows, "{} lost its reference to {}", now.key, isolated[to].key);
            }
        }
        for reference in now_refers {
            let leads = holds(production, &reference);
            prop_assert!(leads.is_none(), "{} leads to {} of production", now.key, reference.target());
        }
    }
    Ok(())
}

#[test]
fn an_isolated_copy_shares_nothing_with_production_and_finds_all_of_its_own() {
    let (tried, succeeded) = (Cell::new(0), Cell::new(0));
    let mut runner =
        TestRunner::new(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() });
    runner
        .run(&(definitions(), definitions(), instance(), instance()), |(definition, other, instance, others)| {
            let render = |definition: &Definition, instance: &str| {
                super::render(definition, &Instance::production(instance), &permitted()).map(|it| it.objects)
            };
            let (Ok(own), Ok(other)) = (render(&definition, instance), render(&other, others)) else { return Ok(()) };
            let production: Vec<Object> = own.iter().chain(&other).cloned().collect();
            let mut footprint = Footprint::default();
            for object in &production {
                footprint.add(&object.key.group, &object.key.kind, &object.key.name, &object.body);
            }
            tried.set(tried.get() + 1);
            let Ok(isolated) = isolate(&definition, ID, &permitted(), &footprint) else { return Ok(()) };
            succeeded.set(succeeded.get() + 1);
            holds_beside(&isolated.objects, &own, &production)
        })
        .expect("holds");
    let (tried, succeeded) = (tried.get(), succeeded.get());
    println!("{succeeded} of {tried} were isolated");
    assert!(succeeded * 10 > tried, "only {succeeded} of {tried} were isolated: the property says little");
}
