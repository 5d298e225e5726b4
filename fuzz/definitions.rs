//! The value of a key of a definitions ConfigMap, from text to what is applied for it: parsed, looked up, rendered for
//! two instances and in isolation, with the lease of its controller.
#![no_main]
// A panic is how a finding is told.
#![allow(clippy::expect_used)]

mod limit;
mod mutate;

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target};
use numaplane::{
    definitions::{
        Catalogue, Definition, Footprint, Instance, Lookup, PermittedKinds, isolate, leader, parse_config_map, render,
    },
    manifest::Manifest,
};

const NAMESPACE: &str = "numaplane-system";

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(value) = std::str::from_utf8(data) else { return Corpus::Reject };
    defined(value);
    Corpus::Keep
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::bytes(data, size, max_size, seed, mutate::lines)
});

fn defined(value: &str) {
    let data = BTreeMap::from([("definitions.yaml".to_owned(), value.to_owned())]);
    let parsed = limit::within(value.len(), || parse_config_map(NAMESPACE, "definitions", &data));
    let lines = value.matches(['\n', '\r']).count() as u64 + 1;
    for error in &parsed.errors {
        let line = error.line.expect("every error of a value has a line");
        assert!((1..=lines).contains(&line) && error.entry != Some(0), "{error}: the value has {lines} lines");
        assert!(!error.message.is_empty());
    }
    let permitted = PermittedKinds::default().and("Secret".parse().expect("a kind"));
    let definitions: Vec<_> = parsed.definitions.iter().map(|located| located.definition.clone()).collect();
    let mut catalogue = Catalogue::new();
    catalogue.set(NAMESPACE, "definitions", parsed);
    for definition in &definitions {
        let found = catalogue.lookup(&[NAMESPACE], &definition.version);
        assert!(!matches!(found, Lookup::Missing { .. }), "{:?} is defined", definition.version);
        applied(definition, value.len(), &permitted);
    }
    if let Lookup::Missing { nearest: Some(nearest), defined, .. } = catalogue.lookup(&[NAMESPACE], "1.8.O") {
        assert!(defined.contains(&nearest));
    }
}

/// Everything that is made of a definition. Each is a piece of work of its own: a rollout needs them at different times.
fn applied(definition: &Definition, bytes: usize, permitted: &PermittedKinds) {
    for id in ["", "prod"] {
        let produced = || {
            let mut rendered = render(definition, &Instance::production(id), permitted).ok()?;
            let lease = leader(definition, &rendered.objects);
            let objects = rendered.objects.clone();
            rendered.add_config_hashes();
            Some((objects, Manifest::new(rendered, lease)))
        };
        let Some((production, manifest)) = limit::within(bytes, produced) else { continue };
        limit::within(bytes, || placed(&manifest));
        let isolated = || {
            let mut footprint = Footprint::default();
            for object in &production {
                footprint.add(&object.key.group, &object.key.kind, &object.key.name, &object.body);
            }
            let mut copy = isolate(definition, "x-0a1b2c3d", permitted, &footprint).ok()?;
            let lease = leader(definition, &copy.objects);
            copy.add_config_hashes();
            Some(Manifest::isolated(copy, lease, "prod-4", "0a1b2c3d-0000-4000-8000-000000000000"))
        };
        let Some(copy) = limit::within(bytes, isolated) else { continue };
        let names: BTreeSet<_> = manifest.objects.iter().map(|object| &object.id).collect();
        for object in &copy.objects {
            assert!(!names.contains(&object.id), "{} of the isolated copy is one of production", object.id);
        }
        limit::within(bytes, || placed(&copy));
    }
}

fn placed(manifest: &Manifest) {
    for object in &manifest.objects {
        let body = object.placed("team-a", "team-a/prod", None);
        assert_eq!(body["metadata"]["name"].as_str(), Some(object.id.name.as_str()));
    }
    assert_eq!(manifest.pod_selectors().count(), manifest.objects.iter().filter(|o| o.is_workload()).count());
}
