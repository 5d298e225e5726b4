//! Writes that the server refuses: its words are in the status, what runs stays, and it heals once the cause is gone,
//! without a touch of the rollout.

use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    apps::v1::Deployment,
    core::v1::{ResourceQuota, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding},
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use numaplane::api::NumaflowControllerRollout;
use serde_json::{Value, json};

use crate::support::{Scene, Team, eventually, faults::Faults, operator::Running, team::condition, version};

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"},
        "spec": {"ports": [{"port": 8443}], "selector": {"a": "b"}},
    })
}

/// What a refused attempt looks like: the server's words, Failed but not given up, and what runs untouched.
async fn refused(team: &Team, words: &[&str]) -> NumaflowControllerRollout {
    let rollout = team.failed("numaflow", words).await;
    let status = rollout.status.clone().unwrap();
    let attempt = status.last_attempt.unwrap();
    assert_eq!((attempt.result.as_str(), attempt.stage.as_str()), ("Blocked", "Resolve"), "{}", attempt.message);
    assert_eq!(condition(&rollout, "Reconciling").map(|c| c.status).as_deref(), Some("True"), "it is being retried");
    assert!(condition(&rollout, "Stalled").is_none());
    assert_eq!(status.promoted.map(|p| p.version).as_deref(), Some("1.3.3"));
    team.event("NumaflowControllerRollout", "numaflow", &["UpgradeBlocked", words[0]]).await;
    rollout
}

/// Uid and generation of what runs, and its pods.
async fn what_runs(team: &Team) -> (Option<String>, Option<i64>, Vec<(String, String)>) {
    let metadata = team.deployment("numaflow-controller").await.metadata;
    (metadata.uid, metadata.generation, team.pods().await)
}

async fn apply<K>(api: &Api<K>, name: &str, body: Value)
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    api.patch(name, &PatchParams::apply("tests").force(), &Patch::Apply(&body)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_the_operator_lacks_are_named_and_granting_them_is_enough() {
    let scene = Scene::new("rights").await;
    let team = &scene.team;
    let policy = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "guard"},
        "spec": {"podSelector": {}},
    });
    let grants = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "more"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["deletecollection"]}],
    });
    scene.define(&[version("1.3.3"), version("1.4.0").object(policy), version("1.5.0").object(grants)]).await;
    let role = scene.unique("operator");
    let roles: Api<ClusterRole> = Api::all(team.client.clone());
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let all = ["create", "patch", "delete"].as_slice();
    let mut rules = vec![
        rule("*", &["*"], &["get", "list", "watch"]),
        rule("numaplane.numaproj.io", &["*"], all),
        rule("", &["serviceaccounts", "configmaps", "services"], all),
        rule("apps", &["deployments", "replicasets", "controllerrevisions"], all),
        rule("rbac.authorization.k8s.io", &["roles", "rolebindings"], all),
        rule("events.k8s.io", &["events"], all),
        rule("coordination.k8s.io", &["leases"], &["create", "update"]),
    ];
    let body = |rules: &[Value]| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": role}, "rules": rules});
    apply(&roles, &role, body(&rules)).await;
    let namespace = scene.system.namespace.clone();
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "numaplane"}});
    scene.system.create::<ServiceAccount>(account).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": role},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "numaplane", "namespace": namespace}],
    });
    apply(&Api::<ClusterRoleBinding>::all(team.client.clone()), &role, binding).await;
    let user = format!("system:serviceaccount:{namespace}:numaplane");
    let _operator = Running::start(scene.settings(), Faults::default(), Some(&user)).await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let before = what_runs(team).await;

    team.set_version("numaflow", "1.4.0").await;
    let words = ["NetworkPolicy/guard", "cannot patch resource \"networkpolicies\"", &user];
    let asked = refused(team, &words).await.metadata.generation;
    assert_eq!(what_runs(team).await, before);
    rules.push(rule("networking.k8s.io", &["networkpolicies"], all));
    apply(&roles, &role, body(&rules)).await;
    assert_eq!(team.deployed("numaflow", "1.4.0").await.metadata.generation, asked);

    team.set_version("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let before = what_runs(team).await;
    team.set_version("numaflow", "1.5.0").await;
    let words = ["Role/more", "attempting to grant RBAC permissions not currently held", "deletecollection"];
    let asked = refused(team, &words).await.metadata.generation;
    assert_eq!(what_runs(team).await, before);
    rules.push(rule("", &["secrets"], &["deletecollection"]));
    apply(&roles, &role, body(&rules)).await;
    assert_eq!(team.deployed("numaflow", "1.5.0").await.metadata.generation, asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_quoted_and_lifting_it_is_enough() {
    let scene = Scene::new("quota").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0").object(service())]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let before = what_runs(team).await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "no-services"},
        "spec": {"hard": {"count/services": "0"}}});
    team.create::<ResourceQuota>(quota).await;
    eventually("the quota is in force", async || {
        let quota = team.get::<ResourceQuota>("no-services").await;
        quota.status.and_then(|s| s.used).map(|_| ()).ok_or_else(|| "not counted yet".to_owned())
    })
    .await;
    team.set_version("numaflow", "1.4.0").await;
    let asked = refused(team, &["Service/server", "exceeded quota: no-services"]).await.metadata.generation;
    assert_eq!(what_runs(team).await, before);
    team.delete::<ResourceQuota>("no-services").await;
    assert_eq!(team.deployed("numaflow", "1.4.0").await.metadata.generation, asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_on_pods_is_quoted_too_and_the_old_pods_stay() {
    let scene = Scene::new("pods").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0").not_isolated()]).await;
    let _operator = scene.operator().await;
    let strategy = json!({"assessment": {"deadline": "5s"}});
    team.install_with("numaflow", json!({"controller": {"version": "1.3.3"}, "strategy": strategy})).await;
    team.deployed("numaflow", "1.3.3").await;
    let pods = team.pods().await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one-pod"},
        "spec": {"hard": {"count/pods": "1"}}});
    team.create::<ResourceQuota>(quota).await;
    eventually("the quota is in force", async || {
        let quota = team.get::<ResourceQuota>("one-pod").await;
        quota.status.and_then(|s| s.used).map(|_| ()).ok_or_else(|| "not counted yet".to_owned())
    })
    .await;
    team.set_version("numaflow", "1.4.0").await;
    team.failed("numaflow", &["exceeded quota: one-pod", "rolled back to version \"1.3.3\""]).await;
    assert_eq!(team.pods().await, pods);
}

/// A policy for Deployments in the namespaces of this test; returns once it is in force.
async fn policy(scene: &Scene, expression: &str, message: &str) -> String {
    let (name, client) = (scene.unique("policy"), scene.team.client.clone());
    let rule = json!({"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"]});
    let body = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": format!("object.metadata.name == 'probe' ? false : ({expression})"), "message": message}],
        },
    });
    apply(&Api::<ValidatingAdmissionPolicy>::all(client.clone()), &name, body).await;
    let here = json!({"matchLabels": {"scene": scene.team.namespace}});
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": here}},
    });
    apply(&Api::<ValidatingAdmissionPolicyBinding>::all(client), &name, binding).await;
    eventually("the policy is in force", async || policy_is(scene, true).await).await;
    name
}

async fn policy_is(scene: &Scene, wanted: bool) -> Result<(), String> {
    let probe = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "probe"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}},
        },
    });
    let dry = PatchParams { dry_run: true, ..PatchParams::apply("tests").force() };
    let in_force = scene.team.api::<Deployment>().patch("probe", &dry, &Patch::Apply(&probe)).await.is_err();
    if in_force == wanted { Ok(()) } else { Err(format!("in force: {in_force}")) }
}

/// A policy takes a moment until it is in force, and another one until it is no longer.
async fn lift(scene: &Scene, policy: &str) {
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(scene.team.client.clone());
    bindings.delete(policy, &DeleteParams::default()).await.unwrap();
    eventually("the policy is no longer in force", async || policy_is(scene, false).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_admission_hook_is_quoted_and_lifting_it_is_enough() {
    let scene = Scene::new("hook").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let before = what_runs(team).await;
    let images = "object.spec.template.spec.containers.all(c, !c.image.contains('v1.4'))";
    let policy = policy(&scene, images, "images of 1.4 are not to be used yet").await;
    team.set_version("numaflow", "1.4.0").await;
    let words = ["Deployment/numaflow-controller", "images of 1.4 are not to be used yet"];
    let asked = refused(team, &words).await.metadata.generation;
    assert_eq!(what_runs(team).await, before);
    lift(&scene, &policy).await;
    assert_eq!(team.deployed("numaflow", "1.4.0").await.metadata.generation, asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_in_the_middle_of_the_switch_brings_the_old_version_back() {
    let scene = Scene::new("late-hook").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0").not_isolated().object(service())]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let before = what_runs(team).await;
    // Says yes to the dry run, and no when it counts.
    let images = "request.dryRun || object.spec.template.spec.containers.all(c, !c.image.contains('v1.4'))";
    let policy = policy(&scene, images, "images of 1.4 are not to be used yet").await;
    team.set_version("numaflow", "1.4.0").await;
    let words = ["images of 1.4 are not to be used yet", "rolled back to version \"1.3.3\""];
    let rollout = team.failed("numaflow", &words).await;
    assert_eq!(rollout.status.and_then(|s| s.promoted).map(|p| p.version).as_deref(), Some("1.3.3"));
    assert_eq!(team.one_child("numaflow").await.spec.version, "1.3.3");
    assert_eq!(what_runs(team).await, before);
    team.gone::<k8s_openapi::api::core::v1::Service>("server").await;
    lift(&scene, &policy).await;
    team.edit::<NumaflowControllerRollout>(
        "numaflow",
        json!({"metadata": {"annotations": {"numaplane.numaproj.io/retry": "the policy is lifted"}}}),
    )
    .await;
    team.deployed("numaflow", "1.4.0").await;
}
