//! Numaflow's own manifests, if there are any.

use std::{collections::BTreeMap, ffi::OsString, path::PathBuf};

use super::*;
use crate::definitions::{Leader, leader, parse_config_map, yaml};

/// Files of the folder that `variable` names whose names begin with `prefix`: (the rest of the name, text).
fn files(variable: &str, prefix: &str) -> Option<BTreeMap<String, String>> {
    let Some(folder) = std::env::var_os(variable).filter(|folder| *folder != OsString::new()) else {
        println!("skipped: {variable} is not set to a folder with {prefix}*.yaml");
        return None;
    };
    let entries = std::fs::read_dir(PathBuf::from(folder)).expect("a folder").map(|entry| entry.expect("an entry"));
    let file = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let version = name.strip_prefix(prefix)?.strip_suffix(".yaml")?.to_owned();
        Some((version, std::fs::read_to_string(entry.path()).expect("text")))
    };
    let found: BTreeMap<_, _> = entries.filter_map(file).collect();
    assert!(!found.is_empty(), "no {prefix}*.yaml in the folder");
    Some(found)
}

fn published(version: &str, text: &str) -> Definition {
    Definition { version: version.into(), full_spec: text.into(), isolated: None, leader_election: None }
}

/// Beside the production instance without a name of every definition, all at once.
fn beside_all(definition: &Definition, all: &[Definition]) -> Result<Rendered, String> {
    let mut production = Footprint::default();
    for other in all {
        add(&mut production, other, "");
    }
    isolate(definition, ID, &permitted(), &production).map_err(|error| error.to_string())
}

#[test]
fn the_versions_that_numaflow_publishes_stand_beside_each_other() {
    let Some(files) = files("NUMAFLOW_MANIFESTS", "controller-") else { return };
    let templated = |(version, text): (&String, &String)| {
        published(version, &text.replace("instance: \"\"", "instance: \"{{ .InstanceID }}\""))
    };
    let all: Vec<Definition> = files.iter().map(templated).collect();
    for definition in &all {
        let version = &definition.version;
        let old = version.starts_with("1.3.");
        for (n, running) in all.iter().enumerate() {
            let beside = beside_all(definition, &[running.clone(), definition.clone()]);
            assert_eq!(beside.is_ok(), !old, "{version} beside {}: {:?}", running.version, beside.err());
            assert!(n < all.len());
        }
        let isolated = match beside_all(definition, &all) {
            Ok(isolated) => isolated,
            Err(error) => {
                assert!(old && error.contains("is older than 1.4.0"), "{version}: {error}");
                continue;
            }
        };
        assert_eq!(isolated.objects.len(), 6, "{version}");
        assert_eq!(isolated.config_hashes().len(), 1, "{version}");
        assert!(isolated.objects.iter().all(|object| object.key.name.ends_with(ID)), "{version}");
        let Leader { lease, workloads, host_network } = leader(definition, &isolated.objects).expect("elects");
        assert_eq!((lease.as_str(), workloads.len(), host_network), ("numaflow-controller-lock-x-0a1b2c3d", 1, false));
    }
    for (version, text) in &files {
        let definition = published(version, text);
        let error = beside_all(&definition, &all).expect_err(version);
        if version.starts_with("1.3.") {
            assert!(error.contains("is older than 1.4.0"), "{version}: {error}");
        } else {
            assert!(
                error.starts_with(
                    "ConfigMap \"numaflow-controller-config\", data[\"controller-config.yaml\"]: instance is \"\""
                ),
                "{version}: {error}"
            );
        }
        let production = render(&definition, &Instance::production(""), &permitted()).expect("renders");
        let leader = leader(&definition, &production.objects).expect("elects");
        assert_eq!(leader.lease, "numaflow-controller-lock", "{version}");
    }
}

#[test]
fn definitions_that_users_of_numaplane_have_are_isolated() {
    let Some(files) = files("NUMAPLANE_OBJECTS", "definitions-") else { return };
    let mut definitions = Vec::new();
    for (version, text) in &files {
        for document in yaml::documents(text) {
            let config_map = yaml::parse(document.text).expect("YAML");
            let data = serde_json::from_value(config_map["data"].clone()).expect("data");
            let parsed = parse_config_map("n", "c", &data);
            assert_eq!(parsed.errors, [], "{version}");
            definitions.extend(parsed.definitions.into_iter().map(|located| (*located.definition).clone()));
        }
    }
    assert!(!definitions.is_empty());
    for definition in &definitions {
        for instance in ["", "prod"] {
            let mut production = Footprint::default();
            for other in &definitions {
                add(&mut production, other, instance);
            }
            let isolated = isolate(definition, ID, &permitted(), &production).expect(&definition.version);
            assert!(isolated.objects.iter().all(|object| object.key.name.ends_with(ID)), "{}", definition.version);
            let leader = leader(definition, &isolated.objects).expect("elects");
            assert_eq!(leader.lease, "numaflow-controller-lock-x-0a1b2c3d");
        }
    }
}
