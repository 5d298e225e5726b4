//! Where kinds live in the API, and how they come there.

use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;

use super::{Result, until};

/// A kind in the API.
pub fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// Applies an object.
pub async fn apply(api: &Api<DynamicObject>, object: &Value) -> Result<()> {
    let name = object["metadata"]["name"].as_str().ok_or("an object without a name")?;
    api.patch(name, &PatchParams::apply("bench").force(), &Patch::Apply(object)).await?;
    Ok(())
}

/// Installs the kinds of this project and others, and waits until they are served.
pub async fn install(client: &Client, others: Vec<Value>) -> Result<()> {
    let crds = resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
    let crds = Api::<DynamicObject>::all_with(client.clone(), &crds);
    let all: Vec<Value> = numaplane::api::crds().into_iter().map(|crd| crd.body).chain(others).collect();
    for crd in &all {
        apply(&crds, crd).await?;
    }
    for crd in &all {
        let text = |path: &str| crd.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = (text("/spec/group"), text("/spec/versions/0/name"));
        let (kind, plural) = (text("/spec/names/kind"), text("/spec/names/plural"));
        let objects = Api::<DynamicObject>::all_with(client.clone(), &resource(group, version, kind, plural));
        let one = ListParams::default().limit(1);
        until(&format!("kind {kind}"), async || Ok(objects.list_metadata(&one).await.is_ok())).await?;
    }
    Ok(())
}
