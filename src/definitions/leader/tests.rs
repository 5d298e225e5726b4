//! Which lease is taken, by whose pods, and when none is.

use super::*;
use crate::definitions::{Instance, PermittedKinds, render};

/// A controller with `pod` in the spec of its pods and `spec` in its own.
fn controller(spec: &str, pod: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: config}}\ndata: {{c.yaml: 'instance: \"{{{{ .InstanceID \
         }}}}\"'}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: params}}\ndata: {{disabled: ' True ', \
         enabled: 'false', NUMAFLOW_LEADER_ELECTION_DISABLED: 'true', ELECTION_DISABLED: 'true'}}\n---\n\
         apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: controller}}\nspec: {{{spec}template: {{spec: \
         {{volumes: [{{configMap: {{name: config}}}}], {pod}}}}}}}\n"
    )
}

fn led_as(definition: &Definition, instance: &str) -> Option<Leader> {
    let rendered = render(definition, &Instance::production(instance), &PermittedKinds::default()).expect("renders");
    leader(definition, &rendered.objects)
}

fn definition(full_spec: &str) -> Definition {
    Definition { version: "1.8.3".into(), full_spec: full_spec.into(), isolated: None, leader_election: None }
}

fn led(full_spec: &str) -> Option<Leader> {
    led_as(&definition(full_spec), "")
}

fn names(leader: &Leader) -> Vec<&str> {
    leader.workloads.iter().map(|workload| workload.name.as_str()).collect()
}

#[test]
fn the_lease_of_an_instance_has_its_name() {
    let definition = definition(&controller("", ""));
    for (instance, lease) in [
        ("", "numaflow-controller-lock"),
        ("blue", "numaflow-controller-lock-blue"),
        ("x-0a1b2c3d", "numaflow-controller-lock-x-0a1b2c3d"),
        ("Team_A..b", "numaflow-controller-lock-team-a-b"),
        ("a-_-b", "numaflow-controller-lock-a---b"),
        (".a.", "numaflow-controller-lock--a-"),
    ] {
        let leader = led_as(&definition, instance).expect("elects");
        assert_eq!(leader.lease, lease, "{instance:?}");
        assert_eq!(names(&leader), ["controller"]);
        assert!(!leader.host_network);
    }
    for (written, lease) in [("5", "numaflow-controller-lock-5"), ("", "numaflow-controller-lock")] {
        let text = controller("", "").replace("\"{{ .InstanceID }}\"", written);
        assert_eq!(led(&text).expect("elects").lease, lease, "{written:?}");
    }
}

#[test]
fn only_the_workloads_that_use_the_controllers_configuration_hold_the_lease() {
    let other = "---\napiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: other}\nspec: {template: {spec: {hostNetwork: \
                 true, containers: [{env: [{name: NUMAFLOW_LEADER_ELECTION_DISABLED, value: 'true'}]}]}}}\n";
    let leader = led(&(controller("", "") + other)).expect("elects");
    assert_eq!((names(&leader), leader.host_network), (vec!["controller"], false));
    // Before 1.4.0 there is no key `instance`; then any of them may be the controller.
    let old = controller("", "").replace("instance:", "other:");
    let text = old + &other.replace("'true'", "'false'");
    let leader = led(&text).expect("elects");
    assert_eq!(names(&leader), ["controller", "other"]);
    assert_eq!((leader.lease.as_str(), leader.host_network), ("numaflow-controller-lock", true));
}

#[test]
fn the_holder_has_the_name_of_the_node_where_the_pods_use_its_network() {
    assert!(led(&controller("", "hostNetwork: true")).expect("elects").host_network);
    assert!(!led(&controller("", "hostNetwork: false")).expect("elects").host_network);
}

#[test]
fn a_definition_that_says_so_elects_a_leader_or_does_not() {
    let disabled = controller("", "containers: [{env: [{name: NUMAFLOW_LEADER_ELECTION_DISABLED, value: 'true'}]}]");
    let said = |text: &str, leader_election| led_as(&Definition { leader_election, ..definition(text) }, "");
    assert_eq!(said(&controller("", ""), Some(false)), None);
    assert!(said(&controller("", ""), Some(true)).is_some());
    assert_eq!(said(&disabled, None), None);
    assert!(said(&disabled, Some(true)).is_some(), "the platform team knows better");
    assert_eq!(said(&controller("replicas: 0, ", ""), Some(true)), None, "nobody is there to lead");
}

#[test]
fn without_pods_there_is_no_leader() {
    assert_eq!(led("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"), None);
    assert_eq!(led(&controller("replicas: 0, ", "")), None);
    for spec in ["replicas: 1, ", "replicas: null, ", ""] {
        assert!(led(&controller(spec, "")).is_some(), "{spec}");
    }
    assert!(led(&controller("replicas: 0, ", "").replace("Deployment", "DaemonSet")).is_some(), "it has no replicas");
    let second = controller("replicas: 0, ", "").replace("name: controller", "name: second");
    let (_, second) = second.rsplit_once("---\n").expect("documents");
    assert_eq!(names(&led(&format!("{}---\n{second}", controller("", ""))).expect("elects")), ["controller"]);
}

#[test]
fn a_disabled_election_is_seen_wherever_the_variable_comes_from() {
    const NAME: &str = "name: NUMAFLOW_LEADER_ELECTION_DISABLED";
    let key = |key: &str| format!("valueFrom: {{configMapKeyRef: {{name: params, key: {key}, optional: true}}}}");
    let all = "envFrom: [{configMapRef: {name: params}}]";
    for (container, disabled) in [
        (format!("env: [{{{NAME}, value: 'true'}}]"), true),
        (format!("env: [{{{NAME}, value: ' TRUE '}}]"), true),
        (format!("env: [{{{NAME}, value: 'false'}}]"), false),
        (format!("env: [{{{NAME}, value: '1'}}]"), false),
        (format!("env: [{{{NAME}, value: ''}}]"), false),
        (format!("env: [{{{NAME}}}]"), false),
        ("env: [{name: OTHER, value: 'true'}]".to_owned(), false),
        (format!("env: [{{{NAME}, value: 'true'}}, {{{NAME}, value: 'false'}}]"), false),
        (format!("env: [{{{NAME}, value: 'false'}}, {{{NAME}, value: 'true'}}]"), true),
        (format!("env: [{{{NAME}, {}}}]", key("disabled")), true),
        (format!("env: [{{{NAME}, {}}}]", key("enabled")), false),
        (format!("env: [{{{NAME}, {}}}]", key("missing")), false),
        (format!("env: [{{{NAME}, {}}}]", key("disabled").replace("params", "elsewhere")), false),
        (format!("env: [{{{NAME}, valueFrom: {{secretKeyRef: {{name: params, key: disabled}}}}}}]"), false),
        (all.to_owned(), true),
        ("envFrom: [{configMapRef: {name: elsewhere}}, {secretRef: {name: params}}]".to_owned(), false),
        ("envFrom: [{prefix: NUMAFLOW_LEADER_, configMapRef: {name: params}}]".to_owned(), true),
        ("envFrom: [{prefix: OTHER_, configMapRef: {name: params}}]".to_owned(), false),
        (format!("{all}, env: [{{{NAME}, value: 'false'}}]"), false),
        (format!("{all}, env: [{{{NAME}, {}}}]", key("enabled")), false),
        // A missing optional key gives no variable, so the one from the whole ConfigMap stays.
        (format!("{all}, env: [{{{NAME}, {}}}]", key("missing")), true),
        (format!("{all}, env: [{{{NAME}, {}}}]", key("missing").replace("true", "false")), false),
        (format!("{all}, env: [{{{NAME}, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}]"), false),
    ] {
        for containers in ["containers", "initContainers"] {
            let text = controller("", &format!("{containers}: [{{}}, {{{container}}}]"));
            assert_eq!(led(&text).is_none(), disabled, "{container}");
        }
    }
}
