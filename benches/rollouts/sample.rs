//! What is installed: definitions of six objects in two versions, and the kinds that the API server has to know.

use kube::core::ApiResource;
use serde_json::{Value, json};

use crate::shared::{
    OPERATOR_NAMESPACE, Result,
    definition::{entries, text},
    kinds::resource,
};

/// The two versions.
pub const VERSIONS: [&str; 2] = ["1.8.0", "1.8.1"];
/// Name of the Deployment of a definition.
pub const DEPLOYMENT: &str = "numaflow-controller";

/// Size of a definition in bytes.
pub fn size() -> usize {
    text(VERSIONS[0]).len()
}

/// The ConfigMap that defines a version.
pub fn definitions(version: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": format!("numaflow-controller-definitions-{version}"),
            "namespace": OPERATOR_NAMESPACE,
            "labels": {"numaplane.numaproj.io/config": "numaflow-controller-definitions"},
        },
        "data": {"controller_definitions.yaml": entries(&[version.to_owned()])},
    })
}

/// The objects of a version, rendered for the instance without a name, in the order in which they are applied.
pub fn objects(version: &str) -> Result<Vec<Value>> {
    let rendered = text(version).replace("{{ .InstanceSuffix }}", "").replace("{{ .InstanceID }}", "");
    rendered.split("\n---\n").map(|document| Ok(serde_saphyr::from_str(document)?)).collect()
}

/// A rollout.
pub fn rollout(namespace: &str, version: &str, strategy: Option<&str>) -> Value {
    let mut rollout = json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1",
        "kind": "NumaflowControllerRollout",
        "metadata": {"name": "numaflow-controller", "namespace": namespace},
        "spec": {
            "controller": {"version": version},
            "strategy": {"assessment": {"window": "0s", "deadline": "5m"}},
        },
    });
    if let Some(strategy) = strategy {
        rollout["spec"]["strategy"]["type"] = json!(strategy);
    }
    rollout
}

/// Numaflow's kinds with schemas that take anything: the operator lists and watches them.
pub fn numaflow_kinds() -> Vec<Value> {
    [
        ("Pipeline", "pipelines", "pipeline"),
        ("InterStepBufferService", "interstepbufferservices", "interstepbufferservice"),
        ("MonoVertex", "monovertices", "monovertex"),
    ]
    .map(|(kind, plural, singular)| {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.numaflow.numaproj.io")},
            "spec": {
                "group": "numaflow.numaproj.io",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": singular},
                "versions": [{
                    "name": "v1alpha1",
                    "served": true,
                    "storage": true,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": true,
                    }},
                }],
            },
        })
    })
    .to_vec()
}

/// Where the rollouts live in the API.
pub fn rollouts() -> ApiResource {
    resource("numaplane.numaproj.io", "v1alpha1", "NumaflowControllerRollout", "numaflowcontrollerrollouts")
}

/// Where the children of rollouts live.
pub fn controllers() -> ApiResource {
    resource("numaplane.numaproj.io", "v1alpha1", "NumaflowController", "numaflowcontrollers")
}

/// Where the kind of one of the sample's objects lives.
pub fn resource_of(object: &Value) -> ApiResource {
    let (version, kind) =
        (object["apiVersion"].as_str().unwrap_or_default(), object["kind"].as_str().unwrap_or_default());
    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
    resource(group, version, kind, &format!("{}s", kind.to_lowercase()))
}
