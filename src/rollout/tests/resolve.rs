//! What is said of a version that is not there, or cannot be used.

use serde_json::json;

use crate::{
    api::NumaflowControllerRollout,
    definitions::{ConfigMapName, EntryError, EntryPlace, Lookup, parse_config_map},
    rollout::resolve::{Question, resolve},
};

fn said(lookup: Lookup, field: &'static str) -> (&'static str, String) {
    let rollout: NumaflowControllerRollout = serde_json::from_value(
        json!({"metadata": {"name": "c", "namespace": "team"}, "spec": {"controller": {"version": "1.8.4"}}}),
    )
    .unwrap();
    let render = &|_: &_, _: &_| Err("is not rendered here".to_owned());
    let question = Question { rollout: &rollout, field, lookup, revisions: &[], rivals: &[], render };
    let unresolved = resolve(&question).unwrap_err();
    (unresolved.reason.as_str(), unresolved.message())
}

fn missing(defined: &[String], looked_at: &[&str], nearest: Option<&str>) -> Lookup {
    let looked_at = looked_at.iter().map(|&name| name.to_owned()).collect();
    Lookup::Missing { defined: defined.to_vec(), looked_at, nearest: nearest.map(str::to_owned) }
}

#[test]
fn who_sets_a_version_that_is_not_defined_learns_which_are_and_where_that_stands() {
    let versions: Vec<String> = (0..31).map(|n| format!("1.{n}.0")).collect();
    let cases = [
        (
            missing(&versions[7..9], &["system/one", "team/two"], Some("1.8.0")),
            "spec.controller.version: version \"1.8.4\" is not defined (did you mean \"1.8.0\"?). Defined versions: 1.7.0, 1.8.0 \
             (looked in system/one, team/two). Set one of them, or add this version to a definitions ConfigMap",
        ),
        (
            missing(&versions[..1], &["system/one"], None),
            "spec.controller.version: version \"1.8.4\" is not defined. Defined versions: 1.0.0 (looked in system/one). Set one of \
             them, or add this version to a definitions ConfigMap",
        ),
        (
            missing(&[], &[], None),
            "spec.controller.version: version \"1.8.4\" is not defined. No version is defined (no ConfigMap is labelled \
             numaplane.numaproj.io/config=numaflow-controller-definitions). Add it to a definitions ConfigMap",
        ),
        (
            missing(&[], &["system/empty"], None),
            "spec.controller.version: version \"1.8.4\" is not defined. No version is defined (looked in system/empty). Add it to a \
             definitions ConfigMap",
        ),
    ];
    for (lookup, message) in cases {
        assert_eq!(said(lookup, "spec.controller"), ("DefinitionNotFound", message.to_owned()));
    }
    let (_, many) = said(missing(&versions, &["system/many"], None), "spec");
    assert!(many.starts_with("spec.version: version \"1.8.4\" is not defined. Defined versions: 1.1.0, "), "{many}");
    assert!(many.contains("1.30.0 and 1 more (looked in system/many)"), "the newest are told: {many}");
}

#[test]
fn who_sets_a_version_that_cannot_be_used_learns_why() {
    let places = [("a", 1, 2), ("b", 2, 8)].map(|(name, entry, line)| {
        let configmap = ConfigMapName { namespace: "n".to_owned(), name: name.to_owned() };
        EntryPlace { configmap, key: "k".to_owned(), entry, line }
    });
    assert_eq!(
        said(Lookup::Ambiguous { places: places.to_vec() }, "spec.controller"),
        (
            "DefinitionAmbiguous",
            "spec.controller.version: version \"1.8.4\" is defined more than once with different content, in ConfigMap n/a, key \
             \"k\", entry 1, line 2 and ConfigMap n/b, key \"k\", entry 2, line 8; remove all but one"
                .to_owned()
        )
    );
    let data = [("defs.yaml".to_owned(), "- version: 1.8.4\n  fullSpec: '['\n".to_owned())].into();
    let error: EntryError = parse_config_map("n", "a", &data).errors.remove(0);
    let (reason, message) = said(Lookup::Malformed(error.clone()), "spec.controller");
    assert_eq!(reason, "DefinitionMalformed");
    assert_eq!(
        message,
        format!(
            "spec.controller.version: version \"1.8.4\" is defined, but its definition is malformed: {error}. Mend it there, or set \
             another version"
        )
    );
}
