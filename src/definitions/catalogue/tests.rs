use std::collections::BTreeMap;

use super::*;
use crate::definitions::parse_config_map;

/// An entry whose one object is `name`; `comment` changes nothing.
fn entry(version: &str, name: &str, comment: &str) -> String {
    format!(
        "- version: \"{version}\"\n  fullSpec: |\n    # {comment}\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: \
         {{name: {name}}}\n"
    )
}

fn parsed(namespace: &str, name: &str, entries: &[String]) -> Parsed {
    let value = format!("controllerDefinitions:\n{}", entries.concat());
    parse_config_map(namespace, name, &BTreeMap::from([("defs.yaml".to_owned(), value)]))
}

/// A catalogue of ConfigMaps `(namespace, name, entries)`.
fn catalogue(config_maps: &[(&str, &str, &[String])]) -> Catalogue {
    let mut catalogue = Catalogue::new();
    for (namespace, name, entries) in config_maps {
        catalogue.set(namespace, name, parsed(namespace, name, entries));
    }
    catalogue
}

fn names(versions: &BTreeSet<String>) -> Vec<&str> {
    versions.iter().map(String::as_str).collect()
}

#[test]
fn a_version_is_found_in_the_first_namespace_that_defines_it() {
    let catalogue = catalogue(&[
        ("team-a", "own", &[entry("1.8.3", "own", "")]),
        ("numaplane-system", "all", &[entry("1.8.3", "all", ""), entry("1.7.5", "all", "")]),
    ]);
    let found = |namespaces: &[&str], version: &str| match catalogue.lookup(namespaces, version) {
        Lookup::Found(definition) => definition.full_spec.contains("name: own"),
        other => panic!("{other:?}"),
    };
    assert!(found(&["team-a", "numaplane-system"], "1.8.3"));
    assert!(!found(&["numaplane-system", "team-a"], "1.8.3"));
    assert!(!found(&["team-b", "numaplane-system"], "1.8.3"));
    assert!(!found(&["team-a", "numaplane-system"], "1.7.5"));
    assert_eq!(catalogue.counts(), Counts { good: 3, malformed: 0, ambiguous: 0 });
}

#[test]
fn who_asks_for_a_version_that_is_not_there_learns_which_are() {
    let catalogue = catalogue(&[
        ("numaplane-system", "new", &[entry("1.10.0", "a", ""), entry("1.8.3", "a", "")]),
        ("numaplane-system", "old", &[entry("1.7.5", "a", "")]),
        ("team-b", "own", &[entry("9", "a", "")]),
    ]);
    let lookup = catalogue.lookup(&["team-a", "numaplane-system"], "v1.8.3");
    assert_eq!(
        lookup,
        Lookup::Missing {
            defined: ["1.7.5", "1.8.3", "1.10.0"].map(str::to_owned).to_vec(),
            looked_at: ["numaplane-system/new", "numaplane-system/old"].map(str::to_owned).to_vec(),
            nearest: Some("1.8.3".to_owned()),
        }
    );
    let nothing = Lookup::Missing { defined: Vec::new(), looked_at: Vec::new(), nearest: None };
    assert_eq!(Catalogue::new().lookup(&["a"], "1"), nothing);
}

#[test]
fn a_version_defined_twice_with_different_content_is_refused_by_name() {
    let catalogue = catalogue(&[
        ("n", "a", &[entry("1", "x", ""), entry("2", "x", "")]),
        ("n", "b", &[entry("3", "x", ""), entry("1", "z", "")]),
    ]);
    let places =
        ["ConfigMap n/a, key \"defs.yaml\", entry 1, line 2", "ConfigMap n/b, key \"defs.yaml\", entry 2, line 8"];
    let Lookup::Ambiguous { places: told } = catalogue.lookup(&["n"], "1") else { panic!("it is used") };
    assert_eq!(told.iter().map(ToString::to_string).collect::<Vec<_>>(), places);
    assert!(matches!(catalogue.lookup(&["n"], "2"), Lookup::Found(_)));
    assert!(matches!(catalogue.lookup(&["n"], "3"), Lookup::Found(_)));
    assert_eq!(catalogue.counts(), Counts { good: 4, malformed: 0, ambiguous: 1 });
}

#[test]
fn two_entries_of_one_config_map_can_contradict_each_other_as_well() {
    let catalogue = catalogue(&[("n", "a", &[entry("1", "x", ""), entry("1", "z", "")])]);
    assert!(matches!(catalogue.lookup(&["n"], "1"), Lookup::Ambiguous { places } if places.len() == 2));
}

#[test]
fn settings_that_differ_contradict_each_other() {
    let isolated = entry("1", "x", "") + "  isolated: true\n";
    let catalogue = catalogue(&[("n", "a", &[entry("1", "x", ""), isolated])]);
    assert!(matches!(catalogue.lookup(&["n"], "1"), Lookup::Ambiguous { .. }));
}

#[test]
fn the_same_said_twice_is_no_contradiction_however_it_is_written() {
    let reordered = "- fullSpec: \"metadata: {name: 'x'}\\nkind: ConfigMap\\napiVersion: v1\\n---\\n\"\n  version: 1\n";
    let catalogue = catalogue(&[
        ("n", "a", &[entry("1", "x", "one")]),
        ("n", "b", &[entry("1", "x", "two"), reordered.to_owned()]),
    ]);
    let Lookup::Found(definition) = catalogue.lookup(&["n"], "1") else { panic!("not found") };
    assert!(definition.full_spec.starts_with("# one"), "the first place stands for all");
}

#[test]
fn the_answer_does_not_depend_on_the_order_in_which_config_maps_came() {
    let maps = [
        ("n", "a", vec![entry("1", "x", "one"), entry("2", "x", "")]),
        ("n", "b", vec![entry("1", "x", "two"), entry("2", "z", "")]),
        ("n", "c", vec!["- version: 3\n".to_owned(), "- version: 2\n".to_owned()]),
    ];
    let build = |order: [usize; 3]| {
        let mut catalogue = Catalogue::new();
        for n in order {
            let (namespace, name, entries) = &maps[n];
            catalogue.set(namespace, name, parsed(namespace, name, entries));
        }
        ["1", "2", "3", "4"].map(|version| catalogue.lookup(&["n"], version))
    };
    for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        assert_eq!(build(order), build([0, 1, 2]));
    }
}

#[test]
fn a_malformed_entry_is_told_to_who_asks_for_it_and_to_nobody_else() {
    let bad = "- version: 2\n  fullSpec: '['\n".to_owned();
    let catalogue = catalogue(&[("n", "a", &[entry("1", "x", ""), bad]), ("m", "a", &[entry("2", "x", "")])]);
    assert!(matches!(catalogue.lookup(&["n"], "1"), Lookup::Found(_)));
    let Lookup::Malformed(error) = catalogue.lookup(&["n", "m"], "2") else { panic!("it is not told") };
    let problem = error.to_string();
    assert!(problem.starts_with("ConfigMap n/a, key"), "{problem}");
    assert!(problem.contains("entry 2 (version \"2\"), line 9: fullSpec, document 1: this is not YAML"), "{problem}");
    assert_eq!(catalogue.errors().count(), 1);
    assert_eq!(catalogue.counts(), Counts { good: 2, malformed: 1, ambiguous: 0 });
    assert_eq!(catalogue.versions(&["n"]), ["1", "2"]);
}

#[test]
fn a_malformed_entry_takes_nothing_from_a_good_one_of_its_version() {
    let catalogue = catalogue(&[("n", "a", &["- version: 1\n".to_owned()]), ("n", "b", &[entry("1", "x", "")])]);
    assert!(matches!(catalogue.lookup(&["n"], "1"), Lookup::Found(_)));
}

#[test]
fn a_change_names_the_versions_that_it_is_about() {
    let mut catalogue = Catalogue::new();
    let mut set = |entries: &[String]| catalogue.set("n", "a", parsed("n", "a", entries));
    assert_eq!(names(&set(&[entry("1", "x", ""), entry("2", "x", "")])), ["1", "2"]);
    assert_eq!(names(&set(&[entry("1", "x", ""), entry("2", "x", "")])), [""; 0]);
    assert_eq!(names(&set(&[entry("1", "z", ""), entry("3", "x", "")])), ["1", "2", "3"]);
    assert_eq!(names(&set(&[entry("1", "z", ""), "- version: 3\n".to_owned()])), ["3"]);
    assert_eq!(names(&catalogue.set("n", "b", parsed("n", "b", &[entry("1", "x", "")]))), ["1"]);
    assert!(matches!(catalogue.lookup(&["n"], "1"), Lookup::Ambiguous { .. }));
    assert_eq!(names(&catalogue.remove("n", "b")), ["1"]);
    assert!(matches!(catalogue.lookup(&["n"], "1"), Lookup::Found(_)));
    assert_eq!(names(&catalogue.remove("n", "a")), ["1", "3"]);
    assert_eq!(names(&catalogue.remove("n", "a")), [""; 0]);
    assert_eq!(catalogue.config_maps(&["n"]), [""; 0]);
    assert!(matches!(catalogue.lookup(&["n"], "1"), Lookup::Missing { .. }));
}
