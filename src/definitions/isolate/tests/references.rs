//! References: they follow, they stay, or they are refused.

use super::*;

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
const SECRET: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n";
const CLAIM: &str = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\n";
const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n";
const ACCOUNT: &str = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n";

/// A pod with these fields; the first `a` in them is the reference.
fn pod(fields: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: pod}}\nspec: {{template: {{spec: {{{fields}}}}}}}\n"
    )
}

fn object(group: &str, kind: &str, fields: &str) -> String {
    format!("apiVersion: {group}\nkind: {kind}\nmetadata: {{name: refers}}\n{fields}\n")
}

/// Every field that refers to an object, with an object that is called `a`.
fn cases() -> Vec<(&'static str, String)> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let mut cases = vec![
        (ACCOUNT, pod("serviceAccountName: a")),
        (ACCOUNT, pod("serviceAccount: a")),
        (CLAIM, pod("volumes: [{persistentVolumeClaim: {claimName: a}}]")),
        (SECRET, pod("imagePullSecrets: [{name: other}, {name: a}]")),
        (SECRET, pod("volumes: [{csi: {nodePublishSecretRef: {name: a}}}]")),
        (SECRET, pod("volumes: [{azureFile: {secretName: a}}]")),
        (SERVICE, pod("subdomain: a")),
        (SERVICE, object("apps/v1", "StatefulSet", "spec: {serviceName: a}")),
        (
            CLAIM,
            object(
                "apps/v1",
                "StatefulSet",
                "spec: {volumeClaimTemplates: [{spec: {dataSource: {kind: PersistentVolumeClaim, name: a}}}]}",
            ),
        ),
        (CLAIM, object("v1", "PersistentVolumeClaim", "spec: {dataSourceRef: {kind: PersistentVolumeClaim, name: a}}")),
        (
            ACCOUNT,
            "apiVersion: v1\nkind: Secret\ntype: kubernetes.io/service-account-token\nmetadata: {name: token, \
             annotations: {kubernetes.io/service-account.name: a}}\n"
                .to_owned(),
        ),
        (SECRET, object("v1", "ServiceAccount", "secrets: [{name: a}]")),
        (SECRET, object("v1", "ServiceAccount", "imagePullSecrets: [{name: a}]")),
        (
            ACCOUNT,
            object(
                rbac,
                "RoleBinding",
                "roleRef: {kind: Role, name: role}\nsubjects: [{kind: User, name: b}, {kind: ServiceAccount, name: a}]",
            ),
        ),
        (
            ACCOUNT,
            object(
                rbac,
                "RoleBinding",
                "roleRef: {kind: Role, name: role}\nsubjects: [{kind: ServiceAccount, name: a, namespace: team-a}]",
            ),
        ),
        (
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a}\n",
            object(rbac, "RoleBinding", "roleRef: {kind: Role, name: a}"),
        ),
    ];
    for (object, source, key) in [(CONFIG_MAP, "configMap", "configMapKeyRef"), (SECRET, "secret", "secretKeyRef")] {
        let name = if source == "secret" { "secretName" } else { "name" };
        cases.push((object, pod(&format!("volumes: [{{name: x}}, {{{source}: {{{name}: a}}}}]"))));
        cases.push((object, pod(&format!("volumes: [{{projected: {{sources: [{{{source}: {{name: a}}}}]}}}}]"))));
        for containers in ["containers", "initContainers", "ephemeralContainers"] {
            let (from_key, from_all) =
                (format!("valueFrom: {{{key}: {{name: a, key: k}}}}"), format!("{source}Ref: {{name: a}}"));
            cases.push((object, pod(&format!("{containers}: [{{}}, {{env: [{{value: x}}, {{{from_key}}}]}}]"))));
            cases.push((object, pod(&format!("{containers}: [{{}}, {{envFrom: [{{{from_all}}}]}}]"))));
        }
    }
    for (object, group, resource) in [
        (CONFIG_MAP, "''", "configmaps"),
        (SECRET, "''", "secrets"),
        (SERVICE, "''", "services/proxy"),
        (ACCOUNT, "''", "serviceaccounts"),
        (CLAIM, "'*'", "persistentvolumeclaims"),
        (CONFIG_MAP, "'*'", "'*'"),
        (
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a}\n",
            "rbac.authorization.k8s.io",
            "roles",
        ),
        ("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\n", "apps", "deployments/scale"),
        ("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: a}\n", "apps", "statefulsets"),
        ("apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}\n", "apps", "daemonsets"),
    ] {
        let rule = format!(
            "rules: [{{verbs: [get]}}, {{apiGroups: [{group}], resources: [{resource}], resourceNames: [z, a]}}]"
        );
        cases.push((object, self::object(rbac, "Role", &rule)));
    }
    cases
}

/// How often `name` is the value of a field that is not the object's own.
fn named(body: &Value, name: &str) -> usize {
    match body {
        Value::String(text) => usize::from(text == name),
        Value::Array(items) => items.iter().map(|item| named(item, name)).sum(),
        Value::Object(map) => {
            let others = map.iter().filter(|(field, value)| *field != "metadata" || value.get("annotations").is_some());
            others.map(|(_, value)| named(value, name)).sum()
        }
        _ => 0,
    }
}

#[test]
fn every_reference_follows_an_object_that_gets_a_name_of_its_own() {
    for (target, refers) in cases() {
        let rendered = isolated(&with(&format!("{target}---\n{refers}")));
        let count = |name: &str| rendered.objects.iter().map(|object| named(&object.body, name)).sum::<usize>();
        assert_eq!((count("a-x-0a1b2c3d"), count("a")), (1, 0), "{refers}\n{:#?}", keys(&rendered));
    }
}

#[test]
fn a_reference_to_what_belongs_to_nobody_stays() {
    for (_, refers) in cases() {
        // The object is not part of the definition: a pull secret of the namespace, say.
        let rendered = isolated(&with(&refers));
        assert_eq!(rendered.objects.iter().map(|object| named(&object.body, "a")).sum::<usize>(), 1, "{refers}");
    }
}

#[test]
fn a_reference_that_leads_to_production_is_refused() {
    for (target, refers) in cases() {
        let error = beside(&definition(&with(&refers)), &[target]).expect_err(&refers);
        assert!(error.contains(" leads to ") && error.contains(" \"a\" of production"), "{error}");
        assert!(error.contains("is not among the objects of the isolated copy; "), "{error}");
    }
    let error = beside(&definition(&with(&pod("volumes: [{}, {configMap: {name: a}}]"))), &[CONFIG_MAP]);
    assert!(
        error.clone().expect_err("leads to production").starts_with(
            "DaemonSet \"pod-x-0a1b2c3d\": spec.template.spec.volumes[1].configMap.name leads to ConfigMap \"a\" of \
             production"
        ),
        "{error:?}"
    );
}

#[test]
fn a_reference_with_a_suffix_to_an_object_without_one_follows_as_well() {
    // In the instance without a name they are the same. Cut to 63, the new name is not old name and suffix.
    let name = "a".repeat(60);
    let service = SERVICE.replace("name: a", &format!("name: {name}"));
    let set = object("apps/v1", "StatefulSet", &format!("spec: {{serviceName: '{name}{{{{ .InstanceSuffix }}}}'}}"));
    let rendered = isolated(&with(&format!("{service}---\n{set}")));
    assert_eq!(the(&rendered, "StatefulSet")["spec"]["serviceName"], the(&rendered, "Service")["metadata"]["name"]);
}

#[test]
fn pods_that_could_never_start_are_told_before_they_are_made() {
    for (field, refers) in [
        ("serviceAccountName", "serviceAccountName: 'a{{ .InstanceSuffix }}'"),
        ("volumes[0].configMap.name", "volumes: [{configMap: {name: 'a{{ .InstanceSuffix }}'}}]"),
        (
            "containers[0].envFrom[0].secretRef.name",
            "containers: [{envFrom: [{secretRef: {name: 'a{{ .InstanceSuffix }}'}}]}]",
        ),
    ] {
        let error = refusal(&with(&pod(refers)));
        assert!(error.contains(&format!("spec.template.spec.{field} leads to ")), "{error}");
        assert!(error.contains(" \"a-x-0a1b2c3d\", and the definition has no "), "{error}");
    }
    for optional in [
        "volumes: [{configMap: {name: 'a{{ .InstanceSuffix }}', optional: true}}]",
        "containers: [{envFrom: [{secretRef: {name: 'a{{ .InstanceSuffix }}', optional: true}}]}]",
        "subdomain: 'a{{ .InstanceSuffix }}'",
    ] {
        isolated(&with(&pod(optional)));
    }
}

#[test]
fn a_rule_for_several_kinds_is_split_where_only_some_of_them_are_renamed() {
    let role = |resources: &str| {
        let fields =
            format!("rules: [{{apiGroups: ['', apps], resources: [{resources}], resourceNames: [a], verbs: [get]}}]");
        let rendered =
            isolated(&with(&format!("{CONFIG_MAP}---\n{}", object("rbac.authorization.k8s.io/v1", "Role", &fields))));
        let role = rendered.objects.iter().find(|object| object.key.name.starts_with("refers"));
        role.expect("the role").body["rules"].clone()
    };
    let rule = |resources: &[&str], name: &str| json!({"apiGroups": ["", "apps"], "resources": resources, "resourceNames": [name], "verbs": ["get"]});
    assert_eq!(
        role("configmaps, secrets, pods"),
        json!([rule(&["configmaps"], "a-x-0a1b2c3d"), rule(&["secrets"], "a"), rule(&["pods"], "a")])
    );
    assert_eq!(
        role("configmaps, configmaps/status"),
        json!([rule(&["configmaps", "configmaps/status"], "a-x-0a1b2c3d")]),
        "they stay together where they can"
    );
    assert_eq!(role("secrets, pods"), json!([rule(&["secrets", "pods"], "a")]));
}

#[test]
fn a_rule_names_an_object_only_in_its_own_group() {
    let fields = "rules: [{apiGroups: [example.com], resources: [configmaps], resourceNames: [a], verbs: [get]}]";
    let role = object("rbac.authorization.k8s.io/v1", "Role", fields);
    let rendered = isolated(&with(&format!("{CONFIG_MAP}---\n{role}")));
    assert_eq!(rendered.objects.iter().map(|object| named(&object.body, "a")).sum::<usize>(), 1);
}
