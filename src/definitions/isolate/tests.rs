//! A copy beside production as a whole; the rules one by one are below.

use serde_json::{Value, json};

use super::*;
use crate::{api::LABEL_ISOLATED, definitions::Definition};

mod allowed;
mod naming;
mod properties;
mod published;
mod references;
mod separate;
mod withdraw;

const ID: &str = "x-0a1b2c3d";

/// A controller as Numaflow publishes it: no name has a suffix, only its configuration gets the instance.
const CONTROLLER: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: sa}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: role}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: binding}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: role}
subjects: [{kind: ServiceAccount, name: sa}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data:
  controller-config.yaml: |
    instance: "{{ .InstanceID }}"
    defaults: {}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: controller, labels: {app: controller}}
spec:
  selector: {matchLabels: {app: controller}}
  template:
    metadata: {labels: {app: controller, part-of: numaflow}}
    spec:
      serviceAccountName: sa
      containers:
      - {name: main, image: "numaflow:v1.8.3"}
      volumes:
      - {name: settings, configMap: {name: config}}
"#;

fn definition(full_spec: &str) -> Definition {
    Definition { version: "1.8.3".into(), full_spec: full_spec.into(), isolated: None, leader_election: None }
}

/// Everything but what nobody permits.
fn permitted() -> PermittedKinds {
    let more = "Secret,PersistentVolume,ClusterRole.rbac.authorization.k8s.io,\
                ClusterRoleBinding.rbac.authorization.k8s.io,PriorityClass.scheduling.k8s.io,Job.batch,\
                CronJob.batch,Widget.example.com";
    PermittedKinds::default().and(more.parse().expect("kinds"))
}

fn add(production: &mut Footprint, definition: &Definition, instance: &str) {
    let rendered = render(definition, &Instance::production(instance), &permitted()).expect("production");
    for object in &rendered.objects {
        production.add(&object.key.group, &object.key.kind, &object.key.name, &object.body);
    }
}

/// Isolates beside the production instance without a name, and `others` as well.
fn beside(definition: &Definition, others: &[&str]) -> Result<Rendered, String> {
    let mut production = Footprint::default();
    add(&mut production, definition, "");
    for other in others {
        add(&mut production, &self::definition(other), "");
    }
    isolate(definition, ID, &permitted(), &production).map_err(|error| error.to_string())
}

fn isolated(full_spec: &str) -> Rendered {
    beside(&definition(full_spec), &[]).expect(full_spec)
}

fn refusal(full_spec: &str) -> String {
    beside(&definition(full_spec), &[]).expect_err(full_spec)
}

fn trusted(full_spec: &str) -> Definition {
    Definition { isolated: Some(true), ..definition(full_spec) }
}

/// [`CONTROLLER`] with more documents.
fn with(more: &str) -> String {
    format!("{CONTROLLER}---\n{more}\n")
}

/// [`CONTROLLER`] with other text in place of some.
fn instead(of: &str, text: &str) -> String {
    assert!(CONTROLLER.contains(of), "{of}");
    CONTROLLER.replace(of, text)
}

/// The one object of this kind.
fn the<'r>(rendered: &'r Rendered, kind: &str) -> &'r Value {
    let mut found = rendered.objects.iter().filter(|object| object.key.kind == kind);
    let object = found.next().expect(kind);
    assert!(found.next().is_none(), "more than one {kind}");
    &object.body
}

fn keys(rendered: &Rendered) -> Vec<String> {
    rendered.objects.iter().map(|object| object.key.to_string()).collect()
}

#[test]
fn a_controller_stands_beside_production_under_names_of_its_own() {
    let mut rendered = isolated(CONTROLLER);
    assert_eq!(
        keys(&rendered),
        [
            "ServiceAccount \"sa-x-0a1b2c3d\"",
            "ConfigMap \"config-x-0a1b2c3d\"",
            "Role \"role-x-0a1b2c3d\"",
            "RoleBinding \"binding-x-0a1b2c3d\"",
            "Deployment \"controller-x-0a1b2c3d\"",
        ],
        "in the order of application"
    );
    for object in &rendered.objects {
        assert_eq!(object.body["metadata"]["name"], object.key.name);
        assert_eq!(object.body["metadata"]["labels"][LABEL_ISOLATED], ID, "{}", object.key);
    }
    let binding = the(&rendered, "RoleBinding");
    assert_eq!(binding["roleRef"]["name"], "role-x-0a1b2c3d");
    assert_eq!(binding["subjects"][0]["name"], "sa-x-0a1b2c3d");
    let spec = &the(&rendered, "Deployment")["spec"];
    assert_eq!(
        spec["selector"]["matchLabels"],
        json!({"app": "controller-x-0a1b2c3d", "numaplane.numaproj.io/isolated": ID})
    );
    assert_eq!(
        spec["template"]["metadata"]["labels"],
        json!({"app": "controller-x-0a1b2c3d", "part-of": "numaflow", "numaplane.numaproj.io/isolated": ID})
    );
    let pod = &spec["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "sa-x-0a1b2c3d");
    assert_eq!(pod["volumes"][0]["configMap"]["name"], "config-x-0a1b2c3d");
    assert!(
        the(&rendered, "ConfigMap")["data"]["controller-config.yaml"]
            .as_str()
            .expect("text")
            .starts_with("instance: \"x-0a1b2c3d\"\n")
    );

    let plain = render(&definition(CONTROLLER), &Instance::production(ID), &permitted()).expect("renders");
    assert_eq!(rendered.hash, plain.hash, "the hash is that of the definition");
    rendered.add_config_hashes();
    assert_eq!(rendered.config_hashes().len(), 1, "the configuration is found under its new name");
    let annotations = &the(&rendered, "Deployment")["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations.as_object().expect("annotations").len(), 1);
}

#[test]
fn names_that_have_the_suffix_already_stay_as_they_are_written() {
    let mut spec = CONTROLLER.to_owned();
    for name in ["sa", "role", "binding", "config", "controller"] {
        spec = spec.replace(&format!("name: {name}}}"), &format!("name: '{name}{{{{ .InstanceSuffix }}}}'}}"));
        spec = spec.replace(&format!("name: {name},"), &format!("name: '{name}{{{{ .InstanceSuffix }}}}',"));
    }
    let spec = spec.replace("serviceAccountName: sa", "serviceAccountName: 'sa{{ .InstanceSuffix }}'");
    assert!(spec.matches("InstanceSuffix").count() >= 9, "{spec}");
    let (suffixed, renamed) = (isolated(&spec), isolated(CONTROLLER));
    assert_eq!(suffixed.objects, renamed.objects);
}

#[test]
fn the_footprint_tells_contents_apart_and_knows_no_order() {
    let deployment = |label: &str| json!({"spec": {"selector": {"matchLabels": {"app": label}}}});
    let footprint = |objects: &[(&str, &str, &Value)]| {
        let mut footprint = Footprint::default();
        for (kind, name, body) in objects {
            footprint.add("apps", kind, name, body);
        }
        footprint.fingerprint()
    };
    let (a, b, none) = (&deployment("a"), &deployment("b"), &Value::Null);
    let both = footprint(&[("Deployment", "x", a), ("DaemonSet", "y", b)]);
    assert_eq!(both, footprint(&[("DaemonSet", "y", b), ("Deployment", "x", a), ("Deployment", "x", a)]));
    assert!(both.len() <= 63, "{both}");
    let others = [
        footprint(&[]),
        footprint(&[("Deployment", "x", a)]),
        footprint(&[("Deployment", "x", none), ("DaemonSet", "y", b)]),
        footprint(&[("Deployment", "x", b), ("DaemonSet", "y", b)]),
        footprint(&[("Deployment", "x", b), ("DaemonSet", "y", a)]),
        footprint(&[("Deployment", "y", a), ("DaemonSet", "y", b)]),
        footprint(&[("DaemonSet", "x", a), ("DaemonSet", "y", b)]),
        // One object in two versions, as during an upgrade.
        footprint(&[("Deployment", "x", a), ("Deployment", "x", b), ("DaemonSet", "y", b)]),
    ];
    for (n, other) in others.iter().enumerate() {
        assert_ne!(*other, both, "{n}");
        assert!(!others[..n].contains(other), "{n}");
    }
    let exists = json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}});
    let odd = json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b,c"]}]}}});
    let two =
        json!({"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b", "c"]}]}}});
    assert_ne!(footprint(&[("Deployment", "x", &odd)]), footprint(&[("Deployment", "x", &two)]));
    assert_ne!(footprint(&[("Deployment", "x", &exists)]), footprint(&[("Deployment", "x", none)]));
}
