//! The fields that slips are told from, beside those of Numaflow's own schemas, if there are any.

use std::{collections::BTreeSet, fs, path::PathBuf};

use serde_json::Value;

use crate::{
    definitions::{order, yaml},
    valid::slips,
};

/// What is compared: a list, whether the fields of pods come to it, the CRD, and where in its schema the fields are.
const LISTS: [(&str, &[&str], bool, &str, &str); 6] = [
    ("OF_PIPELINE", &slips::OF_PIPELINE, false, "Pipeline", ""),
    ("OF_VERTEX", &slips::OF_VERTEX, true, "Pipeline", "/vertices/items/properties"),
    ("OF_EDGE", &slips::OF_EDGE, false, "Pipeline", "/edges/items/properties"),
    ("OF_MONO_VERTEX", &slips::OF_MONO_VERTEX, true, "MonoVertex", ""),
    ("OF_ISB_SERVICE", &slips::OF_ISB_SERVICE, false, "InterStepBufferService", ""),
    ("OF_JETSTREAM", &slips::OF_JETSTREAM, true, "InterStepBufferService", "/jetstream/properties"),
];

/// The fields of a spec by the CRDs of one file; nothing for those that leave them open, with which Numaflow is installed by default.
fn schemas(text: &str) -> Vec<(String, Value)> {
    let documents = yaml::documents(text);
    let crds = documents.iter().filter(|document| document.text.contains("CustomResourceDefinition"));
    crds.map(|document| serde_saphyr::from_str::<Value>(document.text).unwrap())
        .filter(|crd| crd["kind"] == "CustomResourceDefinition")
        .filter_map(|crd| {
            let spec = crd.pointer("/spec/versions/0/schema/openAPIV3Schema/properties/spec")?;
            let open = spec["x-kubernetes-preserve-unknown-fields"] == true;
            let fields = spec.get("properties").filter(|_| !open)?.clone();
            Some((crd["spec"]["names"]["kind"].as_str()?.to_owned(), fields))
        })
        .collect()
}

/// From a name like `install-1.8.3.yaml`, the version.
fn version(file: &str) -> &str {
    file.trim_end_matches(".yaml").trim_start_matches(|c: char| !c.is_ascii_digit())
}

#[test]
fn the_fields_that_slips_are_told_from_are_those_that_numaflow_has() {
    let Some(folder) = std::env::var_os("NUMAFLOW_MANIFESTS").filter(|folder| !folder.is_empty()).map(PathBuf::from)
    else {
        println!("skipped: NUMAFLOW_MANIFESTS is not set to a folder with CRDs of Numaflow's, like install-1.8.3.yaml");
        return;
    };
    let mut files: Vec<(String, String)> = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap())
        .map(|file| (file.file_name().to_string_lossy().into_owned(), file.path()))
        .filter(|(_, path)| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|(name, path)| (name, fs::read_to_string(path).unwrap()))
        .collect();
    files.sort_by(|(a, _), (b, _)| order(version(a), version(b)));
    let all: Vec<(String, Value)> = files.iter().flat_map(|(_, text)| schemas(text)).collect();
    if all.is_empty() {
        println!("skipped: no CRD in the folder NUMAFLOW_MANIFESTS says which fields a spec has");
        return;
    }
    let mut pods = BTreeSet::new();
    for (list, known, of_pods, kind, at) in LISTS {
        let fields = |schema: &Value| -> BTreeSet<String> {
            schema
                .pointer(at)
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .map(|(field, _)| field.clone())
                .collect()
        };
        let versions: Vec<BTreeSet<String>> =
            all.iter().filter(|(of, _)| of == kind).map(|(_, schema)| fields(schema)).collect();
        let Some(newest) = versions.last() else {
            println!("skipped: {list}, as there is no schema of a {kind}");
            continue;
        };
        let ever: BTreeSet<&String> = versions.iter().flatten().collect();
        let gone: Vec<_> = known.iter().filter(|field| !ever.contains(&(**field).to_owned())).collect();
        assert!(gone.is_empty(), "{list} has fields that no version has: {gone:?}");
        let is_of_pods = |field: &String| of_pods && slips::POD.contains(&field.as_str());
        let new: Vec<_> = newest.iter().filter(|f| !known.contains(&f.as_str()) && !is_of_pods(f)).collect();
        assert!(new.is_empty(), "{list} lacks fields of the newest version: {new:?}");
        pods.extend(ever.into_iter().filter(|field| is_of_pods(field)).cloned());
    }
    let gone: Vec<_> = slips::POD.iter().filter(|field| !pods.contains(**field)).collect();
    assert!(pods.is_empty() || gone.is_empty(), "POD has fields that no version has: {gone:?}");
}
