//! CustomResourceDefinitions, generated from the types and finished by hand where the derive cannot say it.

use kube::CustomResourceExt;
use serde_json::{Value, json};

use super::{IsbServiceRollout, MonoVertexRollout, NumaflowController, NumaflowControllerRollout, PipelineRollout};

/// One generated file.
#[derive(Clone, Debug, PartialEq)]
pub struct CrdFile {
    /// File name, `<group>_<plural>.yaml`.
    pub name: String,
    /// The CustomResourceDefinition as JSON.
    pub body: Value,
}

/// Every CustomResourceDefinition of the operator, in a fixed order.
#[must_use]
pub fn crds() -> Vec<CrdFile> {
    let all = [
        json!(IsbServiceRollout::crd()),
        json!(MonoVertexRollout::crd()),
        json!(NumaflowController::crd()),
        json!(NumaflowControllerRollout::crd()),
        json!(PipelineRollout::crd()),
    ];
    let file = |mut body: Value| {
        finish(&mut body);
        let plural = body["spec"]["names"]["plural"].as_str().unwrap_or_default();
        let group = body["spec"]["group"].as_str().unwrap_or_default();
        CrdFile { name: format!("{group}_{plural}.yaml"), body }
    };
    all.into_iter().map(file).collect()
}

fn finish(crd: &mut Value) {
    let schema = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    // A tool that waits takes an object without status for finished; this says that nobody has looked yet.
    schema["properties"]["status"]["default"] = json!({"observedGeneration": -1});
    let conditions = &mut schema["properties"]["status"]["properties"]["conditions"];
    conditions["x-kubernetes-list-type"] = json!("map");
    conditions["x-kubernetes-list-map-keys"] = json!(["type"]);
}
