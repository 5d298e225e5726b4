use super::*;

const CONTROLLER: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata:
  name: numaflow-controller{{ .InstanceSuffix }}
spec:
  selector: {matchLabels: {app: controller, instance: '{{ .InstanceID }}'}}
  template:
    metadata: {labels: {app: controller, instance: '{{ .InstanceID }}'}}
    spec:
      serviceAccountName: numaflow-sa{{ .InstanceSuffix }}
      containers:
      - name: main
        image: numaflow:v1.8.3
      volumes:
      - name: config
        configMap: {name: 'config{{ .InstanceSuffix }}', defaultMode: 0644}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: binding{{ .InstanceSuffix }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: role}
subjects: [{kind: ServiceAccount, name: 'numaflow-sa{{ .InstanceSuffix }}'}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: role}
---
# the configuration
apiVersion: v1
kind: ConfigMap
metadata: {name: 'config{{ .InstanceSuffix }}'}
data:
  controller-config.yaml: |
    instance: "{{ .InstanceID }}"
    # {{ $labels.pod }} is not for us
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: numaflow-sa{{ .InstanceSuffix }}}
"#;

fn definition(full_spec: &str) -> Definition {
    Definition { version: "1".into(), full_spec: full_spec.into(), isolated: None, leader_election: None }
}

fn try_render(full_spec: &str) -> Result<Rendered, RenderError> {
    render(&definition(full_spec), &Instance::production(""), &PermittedKinds::default())
}

fn rendered(full_spec: &str) -> Rendered {
    try_render(full_spec).expect(full_spec)
}

fn refusal(full_spec: &str) -> (&'static str, String) {
    let error = try_render(full_spec).expect_err(full_spec);
    (error.reason(), error.to_string())
}

/// A ConfigMap with `more` in its metadata.
fn config_map(more: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a{more}}}\n")
}

fn keys(rendered: &Rendered) -> Vec<String> {
    rendered.objects.iter().map(|object| object.key.to_string()).collect()
}

#[test]
fn objects_come_in_the_order_in_which_they_are_applied() {
    let rendered = render(&definition(CONTROLLER), &Instance::production("prod"), &PermittedKinds::default()).unwrap();
    assert_eq!(
        keys(&rendered),
        [
            "ServiceAccount \"numaflow-sa-prod\"",
            "ConfigMap \"config-prod\"",
            "Role \"role\"",
            "RoleBinding \"binding-prod\"",
            "Deployment \"numaflow-controller-prod\"",
        ]
    );
    for object in &rendered.objects {
        assert_eq!(object.body["metadata"].get("namespace"), None, "it comes when the object is applied");
        assert_eq!(object.body["apiVersion"], object.key.api_version());
    }
    assert_eq!(
        rendered.objects[1].body["data"]["controller-config.yaml"],
        "instance: \"prod\"\n# {{ $labels.pod }} is not for us\n"
    );
    let deployment = &rendered.objects[4].body;
    assert_eq!(deployment["spec"]["strategy"], json!({"type": "RollingUpdate", "rollingUpdate": {}}));
    assert_eq!(deployment["spec"]["template"]["spec"]["volumes"][0]["configMap"]["defaultMode"], 420);
}

#[test]
fn comments_order_and_quotes_change_no_hash() {
    let hash =
        rendered("a: 1\napiVersion: e.com/v1\nkind: ConfigMap\nmetadata: {name: x}\n".replace("e.com/", "").as_str())
            .hash;
    assert_eq!(hash.len(), 3 + 64);
    assert!(hash.starts_with("v1:"));
    for same in [
        "# why\napiVersion: v1\nkind: ConfigMap # this\nmetadata:\n  name: 'x'\na: 1.0\n",
        "---\nmetadata: {\"name\": \"x\"}\na: 0x1\nkind: ConfigMap\napiVersion: \"v1\"\n---\n",
        "{\"kind\": \"ConfigMap\", \"apiVersion\": \"v1\", \"a\": 1, \"metadata\": {\"name\": \"x\"}}",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, namespace: team-a, uid: u, creationTimestamp: null}\na: 1\nstatus: {}\n",
        "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, a: 1}]\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x{{ .InstanceSuffix }}}\na: 1\n",
    ] {
        assert_eq!(rendered(same).hash, hash, "{same}");
    }
    for other in [
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\na: '1'\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\na: [1]\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: z}\na: 1\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, labels: {a: b}}\na: 1\n",
    ] {
        assert_ne!(rendered(other).hash, hash, "{other}");
    }
    let (first, rest) = CONTROLLER.split_once("---\n").unwrap();
    assert_eq!(rendered(&format!("{rest}---\n{first}")).hash, rendered(CONTROLLER).hash);
}

#[test]
fn the_hash_is_that_of_what_was_written() {
    let plain = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: 1}\n";
    let explicit = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\nspec: {replicas: 1, strategy: {type: RollingUpdate, rollingUpdate: {}}}\n";
    assert_ne!(rendered(plain).hash, rendered(explicit).hash, "before it is made fit for the server");
    assert_eq!(rendered(plain).objects, rendered(explicit).objects);
    let mut hashed = rendered(CONTROLLER);
    hashed.add_config_hashes();
    assert_eq!(hashed.hash, rendered(CONTROLLER).hash);
}

#[test]
fn a_stored_hash_is_still_right_after_an_upgrade_of_the_operator() {
    assert_eq!(rendered(CONTROLLER).hash, "v1:eb4911830c01eb3f1315e8fd4e0331791dd0a312bc83757148db907fcebebcd5");
}

#[test]
fn a_kind_that_is_not_permitted_is_refused_with_who_can_permit_it() {
    let secret = config_map("") + "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\n";
    let (reason, text) = refusal(&secret);
    assert_eq!(reason, "KindNotPermitted");
    assert!(text.starts_with("Secret \"s\" (document 2) is of a kind"), "{text}");
    assert!(text.contains("ConfigMap, DaemonSet.apps") && text.ends_with("(--permit-kind=Secret)"), "{text}");
    let cluster = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r}\n";
    assert!(refusal(cluster).1.ends_with("(--permit-kind=ClusterRole.rbac.authorization.k8s.io)"));

    let more = PermittedKinds::default().and("Secret,ClusterRole.rbac.authorization.k8s.io".parse().unwrap());
    let render = |text| render(&definition(text), &Instance::production(""), &more).unwrap();
    assert_eq!(keys(&render(&secret)), ["ConfigMap \"a\"", "Secret \"s\""]);
    assert_eq!(render(cluster).objects[0].body["metadata"], json!({"name": "r"}));
}

#[test]
fn a_namespace_in_a_definition_is_told_and_changes_no_hash() {
    let plain = rendered(&config_map(""));
    for (written, told) in [
        (", namespace: kube-system", Some("kube-system")),
        (", namespace: ''", None),
        (", namespace: null", None),
        (", namespace: 5", Some("5")),
    ] {
        let object = rendered(&config_map(written)).objects.remove(0);
        assert_eq!(object.namespace.as_deref(), told, "{written}");
        assert_eq!(rendered(&config_map(written)).hash, plain.hash);
    }
}

#[test]
fn names_that_do_not_fit_are_refused_before_anything_is_applied() {
    let service =
        format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {}{{{{ .InstanceSuffix }}}}}}\n", "s".repeat(60));
    assert_eq!(rendered(&service).objects.len(), 1);
    let error = render(&definition(&service), &Instance::production("prod"), &PermittedKinds::default()).unwrap_err();
    assert_eq!(error.reason(), "NameTooLong");
    assert!(error.to_string().contains("(document 1) has 65 characters and may have 63: shorten it"), "{error}");
    let (reason, text) = refusal("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Upper_Case}\n");
    assert_eq!(reason, "InvalidName");
    assert!(text.contains("ConfigMap \"Upper_Case\" (document 1) is not valid: only lower-case"), "{text}");
}

#[test]
fn fields_that_would_take_an_object_out_of_our_hands_are_refused() {
    for (field, value) in [
        ("generateName", "a-"),
        ("ownerReferences", "[{apiVersion: v1, kind: ConfigMap, name: x, uid: u}]"),
        ("finalizers", "[e.com/x]"),
    ] {
        let (reason, text) = refusal(&config_map(&format!(", {field}: {value}")));
        assert_eq!(reason, "ForbiddenField");
        assert!(text.starts_with(&format!("ConfigMap \"a\" (document 1) has metadata.{field}: ")), "{text}");
        assert!(text.ends_with("remove the field"), "{text}");
    }
    rendered(&config_map(", ownerReferences: [], finalizers: null, generateName: ''"));
}

#[test]
fn an_object_that_is_defined_twice_is_refused() {
    let text = config_map("") + "---\n" + &config_map(", labels: {a: b}");
    let (reason, text) = refusal(&text);
    assert_eq!(reason, "DuplicateObject");
    assert!(text.starts_with("ConfigMap \"a\" is defined twice (document 1 and document 2)"), "{text}");
    let versions = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n---\napiVersion: apps/v2\nkind: Deployment\nmetadata: {name: a}\n";
    assert_eq!(refusal(versions).0, "DuplicateObject");
}

#[test]
fn a_definition_that_holds_nothing_is_an_error() {
    assert_eq!(refusal("# later\n"), ("DefinitionMalformed", "fullSpec holds no object".to_owned()));
    let (reason, text) = refusal("a: [\n");
    assert_eq!(reason, "DefinitionMalformed");
    assert!(text.starts_with("fullSpec, document 1: this is not YAML") && text.ends_with(", line 1"), "{text}");
}

#[test]
fn a_change_of_configuration_is_a_change_of_the_pods_that_use_it() {
    let hashes = |text: &str| rendered(text).config_hashes();
    let before = hashes(CONTROLLER);
    let key = before.keys().next().unwrap().clone();
    assert_eq!((before.len(), key.kind.as_str(), before[&key].len()), (1, "Deployment", 16));
    assert_eq!(hashes(&CONTROLLER.replace("# the configuration", "labels: x\n# a")), before, "its data alone counts");
    assert_ne!(hashes(&CONTROLLER.replace("is not for us", "is")), before);
    assert_eq!(
        hashes(&CONTROLLER.replace("config{{", "other{{").replacen("other{{", "config{{", 1)).len(),
        0,
        "not ours"
    );

    let mut rendered = rendered(CONTROLLER);
    rendered.add_config_hashes();
    let annotations = &rendered.objects[4].body["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations, &json!({ ANNOTATION_CONFIG_HASH: before[&key] }));
    let once = rendered.clone();
    rendered.add_config_hashes();
    assert_eq!(rendered, once);
}

#[test]
fn configuration_is_found_wherever_a_pod_can_refer_to_it() {
    let with = |pod: &str| {
        format!(
            "{}data: {{k: v}}\n---\napiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: w}}\nspec: {{template: {{spec: {pod}}}}}\n",
            config_map("")
        )
    };
    for pod in [
        "{volumes: [{configMap: {name: a}}]}",
        "{volumes: [{projected: {sources: [{secret: {name: x}}, {configMap: {name: a}}]}}]}",
        "{containers: [{env: [{name: X, value: x}, {valueFrom: {configMapKeyRef: {name: a, key: k}}}]}]}",
        "{containers: [{}, {envFrom: [{configMapRef: {name: a}}]}]}",
        "{initContainers: [{envFrom: [{configMapRef: {name: a}}]}]}",
    ] {
        let mut rendered = rendered(&with(pod));
        assert_eq!(rendered.config_hashes().len(), 1, "{pod}");
        rendered.add_config_hashes();
        let annotation = rendered.objects[1].body.pointer("/spec/template/metadata/annotations").unwrap();
        assert_eq!(annotation.as_object().unwrap().len(), 1, "{pod}");
    }
    for pod in
        ["{}", "null", "{volumes: [{secret: {secretName: a}}]}", "{volumes: [{configMap: {name: b}}], containers: 5}"]
    {
        let mut rendered = rendered(&with(pod));
        let before = rendered.clone();
        rendered.add_config_hashes();
        assert_eq!(rendered, before, "{pod}");
    }
    let secrets: PermittedKinds = "Secret,StatefulSet.apps".parse().unwrap();
    for pod in [
        "{volumes: [{secret: {secretName: a}}]}",
        "{volumes: [{projected: {sources: [{secret: {name: a}}]}}]}",
        "{containers: [{env: [{valueFrom: {secretKeyRef: {name: a, key: k}}}]}]}",
        "{containers: [{envFrom: [{secretRef: {name: a}}]}]}",
    ] {
        let text = with(pod).replacen("ConfigMap", "Secret", 1);
        let rendered = render(&definition(&text), &Instance::production(""), &secrets).unwrap();
        assert_eq!(rendered.config_hashes().len(), 1, "{pod}");
    }
}

#[test]
fn the_manifests_that_numaflow_publishes_are_rendered() {
    let Some(folder) = std::env::var_os("NUMAFLOW_MANIFESTS") else {
        println!("skipped: NUMAFLOW_MANIFESTS is not set to a folder with controller-*.yaml");
        return;
    };
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("controller-") {
            continue;
        }
        seen += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let mut rendered = rendered(&text);
        let kinds: Vec<_> = rendered.objects.iter().map(|object| object.key.kind.as_str()).collect();
        assert_eq!(kinds, ["ServiceAccount", "ConfigMap", "ConfigMap", "Role", "RoleBinding", "Deployment"], "{name}");
        assert_eq!(rendered.config_hashes().len(), 1, "{name}");
        rendered.add_config_hashes();

        let indented = text.replace('\n', "\n    ");
        let value = format!("controllerDefinitions:\n- version: {name:?}\n  fullSpec: |\n    {indented}\n");
        let data = BTreeMap::from([("x".to_owned(), value)]);
        let parsed = crate::definitions::parse_config_map("n", "c", &data);
        assert_eq!((parsed.definitions.len(), parsed.errors), (1, Vec::new()), "{name}");
    }
    assert!(seen > 0, "no controller-*.yaml in the folder");
}
