//! The kinds of Numaflow, as far as the operator sees them: any spec, any status.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{control_plane::install_crd, team::Team, wait::eventually};

const KINDS: [(&str, &str); 4] = [
    ("Pipeline", "pipelines"),
    ("InterStepBufferService", "interstepbufferservices"),
    ("MonoVertex", "monovertices"),
    ("Vertex", "vertices"),
];

/// Held by tests that need the kinds to be there, or need them not to be there.
static KINDS_IN_USE: RwLock<()> = RwLock::const_new(());

/// Sees to it that the kinds are served for as long as the answer is held.
pub async fn installed(client: &Client) -> RwLockReadGuard<'static, ()> {
    let guard = KINDS_IN_USE.read().await;
    install(client).await;
    guard
}

/// Sees to it that the kinds are not served, and that no other test needs them for as long as the answer is held.
pub async fn absent(client: &Client) -> RwLockWriteGuard<'static, ()> {
    let guard = KINDS_IN_USE.write().await;
    remove(client).await;
    guard
}

/// Removes the kinds, with all their objects.
pub async fn remove(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (_, plural) in KINDS {
        let name = format!("{plural}.numaflow.numaproj.io");
        // Not there is what is wanted.
        let _ = api.delete(&name, &DeleteParams::default()).await;
        eventually(&format!("CRD {name} is gone"), async || {
            let found = api.get_opt(&name).await.map_err(|error| error.to_string())?;
            if found.is_none() { Ok(()) } else { Err("still there".to_owned()) }
        })
        .await;
    }
}

/// Installs the kinds.
pub async fn install(client: &Client) {
    for (kind, plural) in KINDS {
        install_crd(client, &crd(kind, plural)).await;
    }
}

fn crd(kind: &str, plural: &str) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.numaflow.numaproj.io")},
        "spec": {
            "group": "numaflow.numaproj.io",
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
            }],
        },
    })
}

/// The API of one of the kinds in a namespace.
pub fn api(team: &Team, kind: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("numaflow.numaproj.io", "v1alpha1", kind);
    let plural = KINDS.iter().find(|(known, _)| *known == kind).map_or("", |(_, plural)| plural);
    let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
    Api::namespaced_with(team.client.clone(), &team.namespace, &resource)
}

/// Creates an object that a controller instance manages; an empty one is the instance without a name.
pub async fn create(team: &Team, kind: &str, name: &str, instance: &str) {
    let mut object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "numaflow.numaproj.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"vertices": []},
    }))
    .expect("an object");
    if !instance.is_empty() {
        let annotation = ("numaflow.numaproj.io/instance".to_owned(), instance.to_owned());
        object.metadata.annotations = Some([annotation].into());
    }
    api(team, kind).create(&PostParams::default(), &object).await.expect("the object can be created");
}

/// Deletes it.
pub async fn delete(team: &Team, kind: &str, name: &str) {
    api(team, kind).delete(name, &DeleteParams::default()).await.expect("the object can be deleted");
}
