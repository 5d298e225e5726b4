//! The kinds of Numaflow, as far as the operator sees them: any spec, any status.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PostParams},
};
use serde_json::json;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{control_plane::install_crd, rest::unrest_in, stand_in, team::Team, wait::eventually};

const KINDS: [(&str, &str); 4] = [
    ("Pipeline", "pipelines"),
    ("Vertex", "vertices"),
    ("InterStepBufferService", "interstepbufferservices"),
    ("MonoVertex", "monovertices"),
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
    let guard = alone(client).await;
    remove(client).await;
    guard
}

/// Waits until no other test needs the kinds, and looks over the whole cluster what those before have left behind.
///
/// # Panics
/// A pipeline is asked to pause, or has a grace, and its rollout does not ask for it.
pub async fn alone(client: &Client) -> RwLockWriteGuard<'static, ()> {
    let guard = KINDS_IN_USE.write().await;
    let left = unrest_in(client, None).await.expect("pipelines can be listed");
    assert!(left.is_empty(), "left behind by stories before this one:\n{}", left.join("\n"));
    guard
}

/// Removes the kinds, with all their objects: also those that wait for a controller that is no more.
pub async fn remove(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    // The server takes its time for each, and for all at once no longer.
    for (_, plural) in KINDS {
        // Not there is what is wanted.
        let _ = api.delete(&format!("{plural}.numaflow.numaproj.io"), &DeleteParams::default()).await;
    }
    for (kind, plural) in KINDS {
        let name = format!("{plural}.numaflow.numaproj.io");
        eventually(&format!("CRD {name} is gone"), async || {
            let found = api.get_opt(&name).await.map_err(|error| error.to_string())?;
            if found.is_none() {
                return Ok(());
            }
            release(client, kind).await;
            Err("still there".to_owned())
        })
        .await;
    }
}

/// Takes the finalizers off all objects of a kind that are being deleted.
async fn release(client: &Client, kind: &str) {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource(kind));
    for object in all.list(&Default::default()).await.map(|list| list.items).unwrap_or_default() {
        if object.metadata.deletion_timestamp.is_some() && !object.finalizers().is_empty() {
            let namespace = object.namespace().unwrap_or_default();
            let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &resource(kind));
            let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            // Somebody else may have been faster.
            let _ = api.patch(&object.name_any(), &Default::default(), &patch).await;
        }
    }
}

/// Installs the kinds.
pub async fn install(client: &Client) {
    for definition in stand_in::definitions() {
        install_crd(client, &definition).await;
    }
}

/// How the API server calls one of the kinds.
pub fn resource(kind: &str) -> ApiResource {
    let gvk = GroupVersionKind::gvk("numaflow.numaproj.io", "v1alpha1", kind);
    let plural = KINDS.iter().find(|(known, _)| *known == kind).map_or("", |(_, plural)| plural);
    ApiResource::from_gvk_with_plural(&gvk, plural)
}

/// The API of one of the kinds in a namespace.
pub fn api(team: &Team, kind: &str) -> Api<DynamicObject> {
    Api::namespaced_with(team.client.clone(), &team.namespace, &resource(kind))
}

/// Creates an object that a controller instance manages; an empty one is the instance without a name. A MonoVertex is one
/// that runs, of the others nothing becomes.
pub async fn create(team: &Team, kind: &str, name: &str, instance: &str) {
    let mut object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "numaflow.numaproj.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"vertices": []},
    }))
    .expect("an object");
    if kind == "MonoVertex" {
        object.data["spec"] = super::mono_vertices::spec(json!({}));
    }
    if !instance.is_empty() {
        let annotation = ("numaflow.numaproj.io/instance".to_owned(), instance.to_owned());
        object.metadata.annotations = Some([annotation].into());
        // Of its own: the one of another instance could not go as long as this pipeline is there.
        if kind == "Pipeline" {
            object.data["spec"]["interStepBufferServiceName"] = instance.into();
        }
    }
    api(team, kind).create(&PostParams::default(), &object).await.expect("the object can be created");
}

/// Deletes it.
pub async fn delete(team: &Team, kind: &str, name: &str) {
    api(team, kind).delete(name, &DeleteParams::default()).await.expect("the object can be deleted");
}
