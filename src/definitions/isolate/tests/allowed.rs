//! Which definitions may be isolated, and what is left out of the copy.

use super::*;

#[test]
fn a_definition_that_says_it_cannot_be_isolated_is_not() {
    let definition = Definition { isolated: Some(false), ..definition(CONTROLLER) };
    assert_eq!(beside(&definition, &[]).expect_err("not"), "the definition says isolated: false");
}

#[test]
fn a_controller_that_would_act_on_the_running_ones_pipelines_is_not_isolated() {
    for (instance, said) in [
        ("instance: \"\"", "instance is \"\", not the instance ID"),
        ("instance: blue", "instance is \"blue\", not the instance ID"),
        ("instance:", "instance is null, not the instance ID"),
        ("instance: 5", "instance is 5, not the instance ID"),
        ("instance: \"{{ .InstanceID }}-b\"", "instance is \"x-0a1b2c3d-b\", not the instance ID"),
        ("instance: [\"{{ .InstanceID }}\"]", "not the instance ID"),
    ] {
        let error = refusal(&instead("instance: \"{{ .InstanceID }}\"", instance));
        assert!(error.starts_with("ConfigMap \"config\", data[\"controller-config.yaml\"]: "), "{error}");
        assert!(error.contains(said) && error.contains("write instance: \"{{ .InstanceID }}\""), "{error}");
        assert!(error.contains("say isolated: true"), "{error}");
    }
    for without in [
        "# instance: \"{{ .InstanceID }}\"",
        "other: {instance: \"{{ .InstanceID }}\"}",
        "Instances: 1",
        "- instance: {",
    ] {
        let error = refusal(&instead("instance: \"{{ .InstanceID }}\"", without));
        assert!(error.starts_with("no ConfigMap of the definition that its pods use has the key instance"), "{error}");
        assert!(error.contains("write instance: \"{{ .InstanceID }}\"") && error.contains("isolated: true"), "{error}");
    }
    isolated(&instead("instance: \"{{ .InstanceID }}\"", "instance: {{ .InstanceID }}"));
}

#[test]
fn only_configuration_that_pods_use_counts() {
    for (volumes, used) in [
        ("volumes: [{name: c, configMap: {name: config}}]", true),
        ("volumes: [{name: c, projected: {sources: [{configMap: {name: config}}]}}]", true),
        ("volumes: [{name: c, secret: {secretName: config}}]", false),
        ("volumes: []", false),
    ] {
        let spec = instead("volumes:\n      - {name: settings, configMap: {name: config}}", volumes);
        assert_eq!(beside(&definition(&spec), &[]).is_ok(), used, "{volumes}");
    }
    for source in [
        "envFrom: [{configMapRef: {name: config}}]",
        "env: [{name: A, valueFrom: {configMapKeyRef: {name: config, key: k}}}]",
    ] {
        let spec = instead("volumes:\n      - {name: settings, configMap: {name: config}}", "")
            .replace("image: \"numaflow:v1.8.3\"", source);
        isolated(&spec);
    }
    // A second value that says something else is in the way, and one that nobody uses is not.
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {x: 'instance: blue'}\n";
    isolated(&with(other));
    let used = with(other).replace(
        "- {name: settings, configMap: {name: config}}",
        "- {configMap: {name: config}}\n      - {configMap: {name: other}}",
    );
    assert!(refusal(&used).starts_with("ConfigMap \"other\", data[\"x\"]: instance is \"blue\""));
}

#[test]
fn a_version_that_knows_no_instances_is_not_isolated() {
    let versioned = |version: &str| beside(&Definition { version: version.into(), ..definition(CONTROLLER) }, &[]);
    for version in ["1.4.0", "v1.4.0", "V1.4.0", "1.4.0+build.5", "1.8.3", "1.10.0", "2.0.0-rc1", "10.0.0"] {
        assert_eq!(versioned(version).map(|_| ()), Ok(()), "{version}");
    }
    for version in ["1.3.3", "v1.3.9", "0.11.0", "1.4.0-rc1", "v1.4.0-alpha"] {
        let error = versioned(version).expect_err(version);
        assert!(error.starts_with(&format!("version {version:?} is older than 1.4.0")), "{error}");
        assert!(error.ends_with("or say isolated: true in the entry if it does"), "{error}");
    }
    for version in ["latest", "1.8", "vv1.8.3", "1.8.3.1", "01.8.3", "nightly-20250101", "1.4.x"] {
        let error = versioned(version).expect_err(version);
        assert!(error.starts_with(&format!("version {version:?} is not one by semantic versioning")), "{error}");
        assert!(error.contains("say isolated: true"), "{error}");
    }
}

#[test]
fn who_says_isolated_true_is_trusted_with_version_and_configuration_but_not_with_names_and_selectors() {
    let plain = instead("instance: \"{{ .InstanceID }}\"", "instance: ''");
    let definition = Definition { version: "nightly".into(), ..trusted(&plain) };
    let rendered = beside(&definition, &[]).expect("trusted");
    assert_eq!(keys(&rendered), keys(&isolated(CONTROLLER)));
    let error = beside(
        &trusted(&with("apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a}\nspec: {selector: {}}")),
        &[],
    )
    .expect_err("acts on every pod");
    assert!(error.contains("PodDisruptionBudget \"a\" of production would act on the isolated pods"), "{error}");
}

#[test]
fn what_reaches_out_of_the_namespace_or_acts_on_others_is_left_out() {
    let more = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\n---\n\
                apiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: a}\nspec: {scaleTargetRef: \
                {kind: Deployment, name: controller}}\n---\n\
                apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a}\nspec: {selector: {matchLabels: \
                {app: controller}}}\n---\n\
                apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: a}\n---\n\
                apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\n---\n\
                apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: a}\nroleRef: \
                {kind: ClusterRole, name: a}\nsubjects: [{kind: ServiceAccount, name: another, namespace: n}]\n";
    assert_eq!(keys(&isolated(&with(more))), keys(&isolated(CONTROLLER)));
}

#[test]
fn what_was_left_out_and_is_needed_is_named() {
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: 'wide{{ .InstanceSuffix \
                }}'}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: more}\n\
                roleRef: {kind: ClusterRole, name: 'wide{{ .InstanceSuffix }}'}\n";
    for spec in [definition(&with(role)), trusted(&with(role))] {
        let error = beside(&spec, &[]).expect_err("no ClusterRole");
        assert!(
            error.starts_with(
                "RoleBinding \"more\": roleRef.name leads to ClusterRole \"wide-x-0a1b2c3d\" of this definition, \
                 which an isolated copy does not have; "
            ),
            "{error}"
        );
    }
    let class = with("apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: urgent}\n");
    let error = refusal(&class.replace("serviceAccountName: sa", "priorityClassName: urgent"));
    assert!(
        error.starts_with("Deployment \"controller\": spec.template.spec.priorityClassName leads to PriorityClass"),
        "{error}"
    );
    isolated(&instead("serviceAccountName: sa", "priorityClassName: system-cluster-critical"));
    let existing = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: more}\nroleRef: \
                    {kind: ClusterRole, name: view}\nsubjects: [{kind: ServiceAccount, name: sa}]\n";
    let rendered = isolated(&with(existing));
    assert!(rendered.objects.iter().any(|object| object.body["roleRef"]["name"] == "view"), "it stays");
}

#[test]
fn a_controller_that_lives_on_rights_in_the_cluster_is_not_judged_without_them() {
    let wide = with(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: wide}\nroleRef: {kind: \
         ClusterRole, name: admin}\nsubjects: [{kind: ServiceAccount, name: sa, namespace: n}]\n",
    );
    let error = refusal(&wide);
    assert!(
        error.starts_with("ClusterRoleBinding \"wide\" gives ServiceAccount \"sa\" rights in the whole cluster"),
        "{error}"
    );
    assert_eq!(keys(&beside(&trusted(&wide), &[]).expect("trusted")), keys(&isolated(CONTROLLER)));
}

#[test]
fn a_kind_that_nobody_knows_here_is_isolated_only_on_the_platform_teams_word() {
    for (kind, object) in [
        (
            "Widget.example.com",
            "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: 'w{{ .InstanceSuffix }}'}\n",
        ),
        ("Job.batch", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: 'w{{ .InstanceSuffix }}'}\n"),
    ] {
        let error = refusal(&with(object));
        assert!(error.contains(kind) && error.contains("say isolated: true"), "{error}");
        let rendered = beside(&trusted(&with(object)), &[]).expect("trusted");
        assert_eq!(rendered.objects.len(), 6);
        assert!(rendered.objects.iter().all(|object| object.body["metadata"]["labels"][LABEL_ISOLATED] == ID));
    }
}

#[test]
fn what_cannot_be_rendered_for_the_copy_says_so_in_the_words_of_rendering() {
    let long = "a".repeat(60);
    let error = refusal(&with(&format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: '{long}{{{{ .InstanceSuffix }}}}'}}\n"
    )));
    assert!(error.contains("has 71 characters and may have 63"), "{error}");
}

#[test]
fn pods_on_the_network_of_their_node_would_be_in_each_others_way() {
    let on_node = instead("serviceAccountName: sa", "hostNetwork: true\n      serviceAccountName: sa");
    let words = refusal(&on_node);
    assert!(words.contains("hostNetwork") && words.contains("isolated: true"), "{words}");
    assert!(beside(&trusted(&on_node), &[]).is_ok());
}
