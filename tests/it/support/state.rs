//! What there is at the end of a story, without what differs from run to run; so that two runs can be compared.

use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use numaplane::api::LABEL_TRACKING;
use serde_json::{Value, json};

use super::team::Team;

const KINDS: [(&str, &str, &str); 8] = [
    ("", "ServiceAccount", "serviceaccounts"),
    ("", "ConfigMap", "configmaps"),
    ("", "Service", "services"),
    ("rbac.authorization.k8s.io", "Role", "roles"),
    ("rbac.authorization.k8s.io", "RoleBinding", "rolebindings"),
    ("networking.k8s.io", "NetworkPolicy", "networkpolicies"),
    ("apps", "Deployment", "deployments"),
    ("apps", "ReplicaSet", "replicasets"),
];

/// Production objects in a namespace: kind and name, and the object without its status.
pub async fn objects(team: &Team) -> Value {
    let mut all = json!({});
    for (group, kind, plural) in KINDS {
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
        let api: Api<DynamicObject> = Api::namespaced_with(team.client.clone(), &team.namespace, &resource);
        let ours = ListParams::default().labels(LABEL_TRACKING);
        for object in api.list(&ours).await.expect("the kind can be listed") {
            if kind == "ReplicaSet" && !object.owner_references().is_empty() {
                // Back with its Deployment, whose business it is.
                continue;
            }
            let mut body = object.data.clone();
            if let Some(fields) = body.as_object_mut() {
                fields.remove("status");
            }
            body["labels"] = json!(object.labels());
            let own = |key: &str| !key.starts_with("deployment.kubernetes.io/");
            body["annotations"] =
                object.annotations().iter().filter(|(k, _)| own(k)).map(|(k, v)| (k.clone(), json!(v))).collect();
            body["owners"] = json!(object.owner_references().iter().map(|o| &o.name).collect::<Vec<_>>());
            all[format!("{kind}/{}", object.name_any())] = body;
        }
    }
    all
}

/// Everything about a rollout: what it says, its children, its production objects.
pub async fn of(team: &Team, rollout: &str) -> String {
    let found = team.rollout(rollout).await;
    let status = found.status.clone().unwrap_or_default();
    let mut children = json!({});
    for child in team.children(rollout).await {
        let (name, labels) = (child.name_any(), child.labels().clone());
        let status = child.status.unwrap_or_default();
        children[name] = json!({
            "spec": child.spec,
            "labels": labels,
            "phase": status.phase,
            "objects": status.inventory.iter().map(|o| format!("{}/{}", o.kind, o.name)).collect::<Vec<_>>(),
        });
    }
    let leases = team.all::<k8s_openapi::api::coordination::v1::Lease>().await;
    let copies = leases.iter().filter(|l| l.name_any().contains("-x-")).count();
    let state = json!({
        "phase": status.phase,
        "lastAttempt": status.last_attempt.map(|a| (a.version, a.result, a.stage, a.reason)),
        "promoted": status.promoted,
        "upgrade": status.upgrade,
        "history": status.history,
        "nameCount": status.name_count,
        "finalizers": found.finalizers(),
        "children": children,
        "leases of copies": copies,
        "objects": objects(team).await,
    });
    let short_uid: String = found.uid().unwrap_or_default().chars().filter(char::is_ascii_hexdigit).take(8).collect();
    let text = serde_json::to_string_pretty(&state).expect("a state is JSON");
    text.replace(&short_uid, "<uid>").replace(&team.namespace, "<namespace>")
}
