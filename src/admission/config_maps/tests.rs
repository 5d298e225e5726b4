use serde_json::json;

use super::*;
use crate::{
    admission::fake::{Fake, definitions},
    definitions::Definition,
};

/// A ConfigMap of this meaning, with one key.
fn map(meaning: &str, text: &str) -> Value {
    json!({"metadata": {"name": "defs", "labels": {LABEL_CONFIG: meaning}}, "data": {"d.yaml": text}})
}

fn defs(versions: &[(&str, &str)]) -> Value {
    map(CONFIG_DEFINITIONS, &definitions(versions))
}

/// A review of ConfigMap `defs` in a namespace.
fn asked(namespace: &str, object: Option<&Value>, old: Option<&Value>) -> Value {
    let operation = match (object, old) {
        (Some(_), None) => "CREATE",
        (Some(_), Some(_)) => "UPDATE",
        _ => "DELETE",
    };
    json!({
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "defs", "namespace": namespace, "operation": operation, "object": object, "oldObject": old,
    })
}

const NOTHING: (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());

fn refused(words: &[&str]) -> (Vec<String>, Vec<String>) {
    (words.iter().map(|&w| w.to_owned()).collect(), Vec::new())
}

fn warned(words: &[&str]) -> (Vec<String>, Vec<String>) {
    (Vec::new(), words.iter().map(|&w| w.to_owned()).collect())
}

/// Good, then one with no fullSpec, then one whose fullSpec is no YAML.
const BROKEN: &str = "controllerDefinitions:\n- version: \"1\"\n  fullSpec: |\n    apiVersion: v1\n    kind: ConfigMap\n    \
                      metadata: {name: c}\n- version: \"2\"\n- version: \"3\"\n  fullSpec: |\n    kind: [\n";
const MISSING: &str = "entry 2 (version \"2\"), line 7: the entry has no fullSpec (its fields are: version); add it";

#[test]
fn c18_every_malformed_entry_is_refused_with_its_place_and_the_good_ones_with_them() {
    let (violations, warnings) = Fake::default().said(&asked("ops", Some(&map(CONFIG_DEFINITIONS, BROKEN)), None));
    assert_eq!(violations[0], format!("data[d.yaml]: {MISSING}"));
    assert!(
        violations[1].starts_with("data[d.yaml]: entry 3 (version \"3\"), line 10: fullSpec, document 1: "),
        "{violations:?}"
    );
    assert_eq!((violations.len(), warnings.len()), (2, 0));
    assert_eq!(Fake::default().said(&asked("ops", Some(&defs(&[("1", "a"), ("2", "b")])), None)), NOTHING);
}

#[test]
fn c18_an_update_that_mends_one_of_two_passes_and_one_that_breaks_another_does_not() {
    let broken = map(CONFIG_DEFINITIONS, BROKEN);
    let mended = map(
        CONFIG_DEFINITIONS,
        &BROKEN.replace("kind: [", "apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: d}"),
    );
    let fake = Fake::default();
    let still = format!("not usable, as before: data[d.yaml]: {MISSING}");
    assert_eq!(fake.said(&asked("ops", Some(&mended), Some(&broken))), warned(&[&still]));
    // It moves, because a comment is put before it; and is written twice then.
    let moved = map(CONFIG_DEFINITIONS, &format!("# a comment\n{}", mended["data"]["d.yaml"].as_str().unwrap()));
    let still = still.replace("line 7", "line 8");
    assert_eq!(fake.said(&asked("ops", Some(&moved), Some(&mended))), warned(&[&still]));
    let twice = map(CONFIG_DEFINITIONS, &format!("{}- version: \"2\"\n", mended["data"]["d.yaml"].as_str().unwrap()));
    let (violations, warnings) = fake.said(&asked("ops", Some(&twice), Some(&mended)));
    assert_eq!((violations.len(), warnings.len()), (1, 1), "{violations:?}");
    assert_eq!(fake.said(&asked("ops", Some(&broken), Some(&mended))).0.len(), 1);
    // What it did not mean before was nobody's trouble.
    let unlabelled = json!({"metadata": {"name": "defs"}, "data": broken["data"]});
    assert_eq!(fake.said(&asked("ops", Some(&broken), Some(&unlabelled))).0.len(), 2);
}

#[test]
fn what_was_broken_stays_so_wherever_its_lines_go() {
    let quoted = |text: &str| {
        let value = format!("controllerDefinitions:\n- version: \"1\"\n  fullSpec: {text:?}\n");
        map(CONFIG_DEFINITIONS, &value)
    };
    let (before, after) = (quoted("a: b\nc: ["), quoted("# a comment\na: b\nc: ["));
    let (violations, warnings) = Fake::default().said(&asked("ops", Some(&after), Some(&before)));
    assert_eq!(violations, Vec::<String>::new());
    assert!(warnings[0].starts_with("not usable, as before: ") && warnings[0].ends_with("(line 3 of fullSpec)"));
}

#[test]
fn c18_labels_and_annotations_of_a_broken_one_can_be_changed_and_it_can_be_deleted() {
    let broken = map(CONFIG_DEFINITIONS, BROKEN);
    let mut annotated = broken.clone();
    annotated["metadata"]["annotations"] = json!({"a": "b"});
    annotated["metadata"]["labels"]["team"] = json!("x");
    assert_eq!(Fake::default().said(&asked("ops", Some(&annotated), Some(&broken))), NOTHING);
    assert_eq!(Fake::default().said(&asked("ops", None, Some(&broken))), NOTHING);
    let mut leaving = map(CONFIG_DEFINITIONS, "[");
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(Fake::default().said(&asked("ops", Some(&leaving), Some(&broken))), NOTHING);
}

#[test]
fn a_version_that_one_config_map_defines_twice_differently_is_refused_and_twice_the_same_is_not() {
    let fake = Fake::default();
    let twice = defs(&[("1", "a"), ("2", "x"), ("1", "b")]);
    let words = "data[d.yaml]: entry 3 (version \"1\"), line 14: entry 1, line 2 defines the same version with different \
                 content; remove one of the two";
    assert_eq!(fake.said(&asked("ops", Some(&twice), None)), refused(&[words]));
    let old = fake.said(&asked("ops", Some(&defs(&[("1", "a"), ("1", "b")])), Some(&twice)));
    assert_eq!((old.0.len(), old.1.len()), (0, 1), "{old:?}");
    assert_eq!(fake.said(&asked("ops", Some(&defs(&[("1", "a"), ("1", "a")])), None)), NOTHING);
}

#[test]
fn who_uses_a_version_that_goes_or_changes_is_named_with_what_becomes_of_it() {
    let fake = Fake::default().defining("ops", &[("1", "a"), ("2", "b")]);
    fake.uses("a", "wants", "1", "");
    fake.uses("b", "runs", "2", "1");
    fake.uses("c", "both", "1", "1");
    fake.uses("d", "other", "3", "3");
    let old = defs(&[("1", "a"), ("2", "b")]);
    let removed = "version \"1\" is not defined any more; what runs it keeps its pinned copy, nobody else gets it. Used by 3 \
                   NumaflowControllerRollouts: a/wants, b/runs, c/both";
    assert_eq!(fake.said(&asked("ops", Some(&defs(&[("2", "b")])), Some(&old))), warned(&[removed]));
    let changed = "version \"1\" is defined otherwise now; this begins an upgrade to the changed definition of 2 \
                   NumaflowControllerRollouts: a/wants, c/both";
    assert_eq!(fake.said(&asked("ops", Some(&defs(&[("1", "A"), ("2", "b")])), Some(&old))), warned(&[changed]));
    let gone = "version \"2\" is not defined any more; what runs it keeps its pinned copy, nobody else gets it. Used by 1 \
                NumaflowControllerRollout: b/runs";
    assert_eq!(fake.said(&asked("ops", None, Some(&old))), warned(&[removed, gone]));
    let mut unlabelled = old.clone();
    unlabelled["metadata"]["labels"] = json!({});
    assert_eq!(fake.said(&asked("ops", Some(&unlabelled), Some(&old))), warned(&[removed, gone]));
    // A comment changes nothing.
    let commented = map(CONFIG_DEFINITIONS, &format!("# x\n{}", old["data"]["d.yaml"].as_str().unwrap()));
    assert_eq!(fake.said(&asked("ops", Some(&commented), Some(&old))), NOTHING);
}

#[test]
fn a_thousand_users_are_counted_and_ten_named() {
    let fake = Fake::default().defining("ops", &[("1", "a")]);
    (0..1000).for_each(|n| fake.uses("a", &format!("r{n:03}"), "1", "1"));
    let (_, warnings) = fake.said(&asked("ops", None, Some(&defs(&[("1", "a")]))));
    assert!(
        warnings[0].contains("Used by 1000 NumaflowControllerRollouts: a/r000, ")
            && warnings[0].ends_with("a/r009 and 990 more")
    );
}

#[test]
fn a_version_that_stays_defined_elsewhere_is_not_missed() {
    let mut fake = Fake::default().defining("ops", &[("1", "a")]).defining("team", &[("1", "own")]);
    fake.settings.definitions_anywhere = true;
    fake.uses("team", "x", "1", "1");
    fake.uses("other", "y", "1", "1");
    // The same words in another ConfigMap of the operator's namespace.
    fake.define("ops", "more", "k", &definitions(&[("1", "a")]));
    assert_eq!(fake.said(&asked("ops", None, Some(&defs(&[("1", "a")])))), NOTHING);
    fake.undefine("ops", "more");
    // The namespace's own comes first: without it that of the operator counts.
    let (_, warnings) = fake.said(&asked("ops", None, Some(&defs(&[("1", "a")]))));
    assert!(warnings[0].ends_with("1 NumaflowControllerRollout: other/y"), "{warnings:?}");
    let (_, warnings) = fake.said(&asked("team", None, Some(&defs(&[("1", "own")]))));
    assert!(warnings[0].contains("is defined otherwise now") && warnings[0].ends_with("team/x"), "{warnings:?}");
}

#[test]
fn a_version_that_another_config_map_defines_differently_is_a_warning() {
    let fake = Fake::default();
    fake.define("ops", "more", "k", &definitions(&[("1", "a")]));
    fake.uses("a", "x", "1", "1");
    let words = "version \"1\" is defined differently in ConfigMap ops/more, key \"k\", entry 1, line 2: nobody can be \
                 upgraded to it until one of the two is removed";
    let used = "version \"1\" is ambiguous now; what runs it keeps its pinned copy, nobody else gets it. Used by 1 \
                NumaflowControllerRollout: a/x";
    assert_eq!(fake.said(&asked("ops", Some(&defs(&[("1", "b")])), None)), warned(&[words, used]));
    assert_eq!(fake.said(&asked("ops", Some(&defs(&[("1", "a")])), None)), NOTHING, "it says the same");
}

#[test]
fn a_config_map_whose_versions_nobody_seems_to_use_is_looked_at_once_more() {
    let fake = Fake::default().defining("ops", &[("1", "a")]);
    let judgement = fake.judge(&asked("ops", None, Some(&defs(&[("1", "a")]))));
    assert!(judgement.doubts(About::AllRollouts));
    assert_eq!(
        judgement.unchecked("timeout").warnings,
        ["whether any NumaflowControllerRollout uses what is removed or changed could not be checked (timeout)"]
    );
    // What is new was used by nobody.
    assert!(
        fake.judge(&asked("ops", Some(&defs(&[("1", "a"), ("2", "b")])), Some(&defs(&[("1", "a")])))).doubts.is_empty()
    );
}

#[test]
fn what_is_not_read_is_said_to_be_and_not_judged() {
    let fake = Fake::default();
    let said = |namespace: &str, meaning: &str| fake.said(&asked(namespace, Some(&map(meaning, "[")), None));
    assert_eq!(
        said("team", CONFIG_DEFINITIONS),
        warned(&[
            "nothing of this is read: definitions count in the operator's own namespace \"ops\" only, as long as the \
                  operator runs without --allow-namespace-definitions"
        ])
    );
    assert_eq!(
        said("team", CONFIG_CHANGES),
        warned(&["nothing of this is read: usde-config counts in the operator's own namespace \"ops\" only"])
    );
    assert_eq!(
        said("ops", CONFIG_NAMESPACE),
        warned(&[
            "nothing of this is read: a namespace-level configuration does not count in the operator's own namespace, \
                  whose rollouts have the operator's config file"
        ])
    );
    assert_eq!(
        said("ops", "numaflow-controller-definition"),
        warned(&[
            "label numaplane.numaproj.io/config: \"numaflow-controller-definition\" means nothing here; did you mean \
                  \"numaflow-controller-definitions\"? It may be numaflow-controller-definitions, usde-config, \
                  namespace-level-config"
        ])
    );
    assert_eq!(
        said("ops", "x"),
        warned(&[
            "label numaplane.numaproj.io/config: \"x\" means nothing here. It may be numaflow-controller-definitions, \
                  usde-config, namespace-level-config"
        ])
    );
    let mut scoped = Fake::default();
    scoped.settings.namespaces = ["served".to_owned()].into();
    scoped.settings.definitions_anywhere = true;
    for meaning in [CONFIG_DEFINITIONS, CONFIG_NAMESPACE] {
        assert_eq!(
            scoped.said(&asked("team", Some(&map(meaning, "[")), None)),
            warned(&["nothing of this is read: the operator does not serve namespace \"team\" (--watch-namespace)"])
        );
    }
    let binary = json!({"metadata": {"labels": {LABEL_CONFIG: CONFIG_DEFINITIONS}}, "binaryData": {"a": "YQ=="}});
    assert_eq!(
        fake.said(&asked("ops", Some(&binary), None)),
        warned(&["binaryData: is not read; put the text in data"])
    );
}

#[test]
fn other_platform_config_maps_are_read_with_their_own_eyes() {
    let fake = Fake::default();
    let map = |meaning: &str, key: &str, text: &str| json!({"metadata": {"labels": {LABEL_CONFIG: meaning}}, "data": {key: text}});
    let rules = map(CONFIG_CHANGES, "pipeline", "dataLoss:\n- path: vertices\n");
    assert_eq!(
        fake.said(&asked("ops", Some(&rules), None)),
        refused(&["data[pipeline]: line 2: path \"vertices\" does not begin with spec; write it from there, like \
                   spec.vertices.udf.container.image"])
    );
    let unknown = map(CONFIG_CHANGES, "pipelin", "");
    assert_eq!(
        fake.said(&asked("ops", Some(&unknown), None)),
        refused(&[
            "data[pipelin]: this is not a kind; those there may be are pipeline, interstepbufferservice, monovertex and \
                   numaflowcontroller; correct or remove it"
        ])
    );
    let strategy = map(CONFIG_NAMESPACE, "upgradeStrategy", "fast");
    assert_eq!(
        fake.said(&asked("team", Some(&strategy), None)),
        refused(&[
            "data[upgradeStrategy]: \"fast\" is not a strategy; use progressive, pause-and-drain or no-strategy"
        ])
    );
    let ignored = map(CONFIG_NAMESPACE, "color", "red");
    assert_eq!(
        fake.said(&asked("team", Some(&ignored), None)),
        warned(&["data: these keys mean nothing here, and are ignored: color"])
    );
}

#[test]
fn config_maps_that_cannot_be_read_are_refused_by_path_and_others_are_let_through() {
    let odd = json!({"metadata": {"labels": {LABEL_CONFIG: CONFIG_DEFINITIONS}}, "data": {"a": 5}});
    let (violations, _) = Fake::default().said(&asked("ops", Some(&odd), None));
    assert_eq!(violations, ["data.a: invalid type: integer `5`, expected a string"]);
    let plain = json!({"metadata": {"name": "x"}, "data": {"a": "["}});
    assert_eq!(Fake::default().said(&asked("ops", Some(&plain), None)), NOTHING);
    assert_eq!(Fake::default().said(&asked("ops", None, Some(&odd))), NOTHING);
}

#[test]
fn a_config_map_full_of_definitions_is_judged_in_no_time() {
    const MANY: usize = 100_000;
    let begun = std::time::Instant::now();
    let one = parse_config_map("ops", "defs", &[("d.yaml".to_owned(), definitions(&[("1", "a"), ("1", "b")]))].into());
    let [same, other] = [0, 1].map(|n| one.definitions[n].clone());
    let mut all = Parsed::default();
    for n in 0..MANY {
        let mut located = if n == MANY - 1 { other.clone() } else { same.clone() };
        let version = if n < MANY - 2 { format!("{n}") } else { "last".to_owned() };
        located.definition = std::sync::Arc::new(Definition { version, ..(*located.definition).clone() });
        all.definitions.push(located);
    }
    let found = contradictions(&all).count();
    assert_eq!(found, 1);
    let faults = || {
        (0..MANY).map(|n| {
            (
                Finding { field: "data".into(), message: "m".into() },
                Mark { key: String::new(), version: None, wrong: Wrong::Malformed(format!("{n}")) },
            )
        })
    };
    let mut judgement = Judgement::default();
    judgement.ratchet(faults(), faults().rev().skip(1).map(|(_, mark)| mark));
    assert_eq!((judgement.violations.len(), judgement.warnings.len()), (1, MANY - 1));
    // In the square of their number it takes minutes; this is many times what it takes without optimisations.
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}

#[test]
fn definitions_that_nobody_could_ever_use_are_stored_with_a_warning() {
    let text = |kind: &str| {
        format!(
            "controllerDefinitions:\n- version: '1.0'\n  fullSpec: |\n    apiVersion: v1\n    kind: {kind}\n    metadata: {{name: a}}\n"
        )
    };
    let ask = |text: &str, old: Option<&str>| {
        let (new, old) = (map(CONFIG_DEFINITIONS, text), old.map(|old| map(CONFIG_DEFINITIONS, old)));
        Fake::default().said(&asked("ops", Some(&new), old.as_ref()))
    };
    let (violations, warnings) = ask(&text("Secret"), None);
    assert_eq!(violations, [""; 0]);
    let words = "data[d.yaml]: entry 1 (version \"1.0\"), line 2: nobody can use it: ";
    assert!(warnings.len() == 1 && warnings[0].starts_with(words) && warnings[0].contains("Secret"), "{warnings:?}");
    assert_eq!(ask(&text("ConfigMap"), None).1, [""; 0]);
    // Once is enough.
    assert_eq!(ask(&format!("# the same\n{}", text("Secret")), Some(&text("Secret"))).1, [""; 0]);
}
