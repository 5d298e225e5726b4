//! Names of the copy's objects, and names in free text.

use super::*;

/// A Service without selector; what it is called is all that matters.
fn service(name: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n")
}

#[test]
fn a_long_name_is_cut_to_what_its_kind_allows() {
    let set = format!("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: {}}}\n", "s".repeat(50));
    let rendered = isolated(&with(&format!("{}---\n{set}", service(&"a".repeat(60)))));
    let name = the(&rendered, "Service")["metadata"]["name"].as_str().expect("a name").to_owned();
    assert!(name.len() == 63 && name.starts_with("aaaa") && name != "a".repeat(63), "{name}");
    let name = the(&rendered, "StatefulSet")["metadata"]["name"].as_str().expect("a name").to_owned();
    assert!(name.len() <= 52 && name.starts_with("ssss"), "{name}");
}

#[test]
fn a_name_of_another_production_set_is_not_taken_either() {
    let rendered = beside(&definition(CONTROLLER), &[&service("svc")]).expect("isolated");
    assert!(keys(&rendered).iter().all(|key| key.ends_with("-x-0a1b2c3d\"")));
    // Only the names count: what nobody has stays as it is.
    let mut production = Footprint::default();
    production.add("", "ConfigMap", "config", &Value::Null);
    let rendered = isolate(&definition(CONTROLLER), ID, &permitted(), &production).expect("isolated");
    assert_eq!(
        keys(&rendered),
        [
            "ServiceAccount \"sa\"",
            "ConfigMap \"config-x-0a1b2c3d\"",
            "Role \"role\"",
            "RoleBinding \"binding\"",
            "Deployment \"controller\""
        ]
    );
}

#[test]
fn a_name_that_stays_productions_is_refused() {
    // Somebody has the very name that the copy would get.
    let mut production = Footprint::default();
    production.add("", "ServiceAccount", "sa", &Value::Null);
    production.add("", "ServiceAccount", "sa-x-0a1b2c3d", &Value::Null);
    let error = isolate(&definition(CONTROLLER), ID, &permitted(), &production).expect_err("taken").to_string();
    assert!(
        error.starts_with("ServiceAccount \"sa-x-0a1b2c3d\" would still have the name of an object of production"),
        "{error}"
    );
    assert!(error.ends_with("write {{ .InstanceSuffix }} into its name"), "{error}");
}

#[test]
fn two_objects_that_would_get_one_name_are_refused() {
    let twice = format!("{}---\n{}", service("svc"), service("'svc{{ .InstanceSuffix }}x'").replace("}}x", "}}"));
    let definition = definition(&with(&twice));
    let mut production = Footprint::default();
    add(&mut production, &definition, "prod");
    let error = isolate(&definition, ID, &permitted(), &production).expect_err("twice").to_string();
    assert!(error.starts_with("two objects of the definition would be Service \"svc-x-0a1b2c3d\""), "{error}");
}

#[test]
fn a_renamed_service_that_is_called_by_its_old_name_is_refused() {
    let spec = |container: &str, config: &str| {
        with(&service("svc")).replace("image: \"numaflow:v1.8.3\"", container).replace("defaults: {}", config)
    };
    isolated(&spec("args: [svcs, my-svc, svc-2]", "a: my-svc"));
    isolated(&spec("ports: [{name: svc, containerPort: 1}]", "a: b"));
    for (container, config, place) in [
        ("image: x", "url: http://svc.team-a:80/", "ConfigMap \"config-x-0a1b2c3d\": data[\"controller-config.yaml\"]"),
        ("args: [--to=svc]", "", "Deployment \"controller-x-0a1b2c3d\": args of container \"main\""),
        ("command: [sh, '-c', 'curl svc']", "", "Deployment \"controller-x-0a1b2c3d\": command of container"),
        ("env: [{name: TO, value: svc}]", "", "Deployment \"controller-x-0a1b2c3d\": value of container"),
        ("livenessProbe: {exec: {command: [nc, svc]}}", "", "Deployment \"controller-x-0a1b2c3d\": command of"),
        ("livenessProbe: {httpGet: {host: svc}}", "", "Deployment \"controller-x-0a1b2c3d\": host of container"),
    ] {
        let error = refusal(&spec(container, config));
        assert!(error.starts_with(place), "{error}");
        assert!(error.contains("names Service \"svc\", which is production's; write {{ .InstanceSuffix }}"), "{error}");
    }
    let secret = |field: &str| {
        with(&format!("{}---\napiVersion: v1\nkind: Secret\nmetadata: {{name: x}}\n{field}\n", service("svc")))
    };
    // "nats://svc:4222"
    for field in ["data: {url: bmF0czovL3N2Yzo0MjIy}", "stringData: {url: 'nats://svc:4222'}"] {
        let error = refusal(&secret(field));
        assert!(error.starts_with("Secret \"x-x-0a1b2c3d\": ") && error.contains("[\"url\"] names Service"), "{error}");
    }
    let alias =
        format!("{}---\n{}spec: {{type: ExternalName, externalName: svc.n.svc}}\n", service("svc"), service("alias"));
    assert!(refusal(&with(&alias)).starts_with("Service \"alias-x-0a1b2c3d\": spec.externalName names Service"));
}

#[test]
fn a_service_whose_suffix_was_forgotten_where_it_is_called_is_found_as_well() {
    let spec = with(&service("'svc{{ .InstanceSuffix }}'"));
    isolated(&spec.replace("defaults: {}", "url: http://svc{{ .InstanceSuffix }}:80/"));
    let error = refusal(&spec.replace("defaults: {}", "url: http://svc:80/"));
    assert!(error.contains("names Service \"svc\", which is production's"), "{error}");
}

#[test]
fn an_object_of_an_unknown_kind_is_not_renamed_and_must_not_lead_to_one_that_is() {
    let widget =
        "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w, labels: {app: sa}}\nspec: {x: [{y: z}]}\n";
    let error = beside(&trusted(&with(widget)), &[]).expect_err("renamed");
    assert!(error.starts_with("Widget \"w\" has the name of an object of production"), "{error}");
    let suffixed = with(&widget.replace("name: w", "name: 'w{{ .InstanceSuffix }}'"));
    beside(&trusted(&suffixed), &[]).expect("labels lead nowhere");
    let error = beside(&trusted(&suffixed.replace("y: z", "y: sa")), &[]).expect_err("leads to production");
    assert!(
        error.starts_with("Widget \"w-x-0a1b2c3d\" may refer to ServiceAccount \"sa\", which is production's"),
        "{error}"
    );
}

#[test]
fn a_job_that_the_platform_team_vouches_for_is_renamed_with_all_it_refers_to() {
    let pod = "template: {metadata: {labels: {app: controller}}, spec: {serviceAccountName: sa, containers: [{name: c, \
               ports: [{hostPort: 1, containerPort: 1}], envFrom: [{configMapRef: {name: config}}]}]}}";
    for (kind, spec, at) in [
        ("Job", format!("{{{pod}}}"), "/spec/template"),
        ("CronJob", format!("{{jobTemplate: {{spec: {{{pod}}}}}}}"), "/spec/jobTemplate/spec/template"),
    ] {
        let text = format!("apiVersion: batch/v1\nkind: {kind}\nmetadata: {{name: j}}\nspec: {spec}\n");
        let rendered = beside(&trusted(&with(&text)), &[]).expect("trusted");
        let job = the(&rendered, kind);
        assert_eq!(job["metadata"]["name"], "j-x-0a1b2c3d");
        let template = job.pointer(at).expect(at);
        assert_eq!(template["metadata"]["labels"], json!({"app": "controller-x-0a1b2c3d", LABEL_ISOLATED: ID}));
        assert_eq!(template["spec"]["serviceAccountName"], "sa-x-0a1b2c3d");
        let container = &template["spec"]["containers"][0];
        assert_eq!(container["envFrom"][0]["configMapRef"]["name"], "config-x-0a1b2c3d");
        assert_eq!(container["ports"], json!([{"containerPort": 1}]));
    }
}
