//! Specs that nobody thought of: nothing is refused that Numaflow runs, nothing is passed that it never does, and nothing panics.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{prelude::*, strategy::ValueTree};
use serde_json::{Value, json};

use super::{isb_service, mono_vertex, pipeline};
use crate::valid;

/// What is done to a pipeline that is good.
#[derive(Clone, Debug)]
enum Change {
    /// One more edge, from and to vertices by their numbers; there may be none of that number.
    Add(usize, usize),
    /// An edge goes.
    Cut(usize),
    /// A vertex gets another role, or none, or two.
    Role(usize, usize),
    /// A vertex gets the name of another, or one that is no name.
    Name(usize, usize),
    /// A vertex goes, and its edges stay.
    Drop(usize),
}

/// Pipelines, and such as are nearly some.
fn graphs() -> impl Strategy<Value = Value> {
    const NAMES: [&str; 6] = ["in", "out", "cat", "sum", "more", "Bad"];
    let storage = json!({"emptyDir": {}});
    let reduce = json!({"groupBy": {"window": {"fixed": {"length": "1s"}}, "storage": storage}});
    let roles = [
        json!({"source": {"http": {}}}),
        json!({"sink": {"log": {}}}),
        json!({"udf": {"container": {"image": "f"}}}),
        json!({"udf": reduce}),
        json!({"udf": {"container": {"image": "g"}}}),
        json!({}),
        json!({"source": {}, "sink": {}}),
    ];
    let change = prop_oneof![
        5 => (0..6usize, 0..6usize).prop_map(|(from, to)| Change::Add(from, to)),
        2 => (0..6usize).prop_map(Change::Cut),
        2 => (0..6usize, 0..roles.len()).prop_map(|(vertex, role)| Change::Role(vertex, role)),
        1 => (0..6usize, 0..NAMES.len()).prop_map(|(vertex, name)| Change::Name(vertex, name)),
        1 => (0..6usize).prop_map(Change::Drop),
    ];
    let between = proptest::sample::subsequence(vec![2, 3, 4], 0..=3).prop_shuffle();
    (between, proptest::collection::vec(change, 0..4)).prop_map(move |(between, changes)| {
        let all: Vec<usize> = [0].into_iter().chain(between).chain([1]).collect();
        let vertex = |n: usize| {
            let mut vertex = roles[n].clone();
            vertex["name"] = json!(NAMES[n]);
            vertex
        };
        let mut vertices: Vec<Value> = all.iter().map(|n| vertex(*n)).collect();
        let edge = |from: &str, to: &str| json!({"from": from, "to": to});
        let mut edges: Vec<Value> = all.windows(2).map(|pair| edge(NAMES[pair[0]], NAMES[pair[1]])).collect();
        for change in changes {
            let count = vertices.len().max(1);
            match change {
                Change::Add(from, to) => {
                    // Mostly between two that there are.
                    let name = |n: usize| {
                        if n == 5 { "Bad".to_owned() } else { vertices[n % count]["name"].as_str().unwrap().to_owned() }
                    };
                    edges.push(edge(&name(from), &name(to)));
                }
                Change::Cut(n) if n < edges.len() => drop(edges.remove(n)),
                Change::Role(n, role) => {
                    let name = vertices[n % count]["name"].clone();
                    vertices[n % count] = roles[role].clone();
                    vertices[n % count]["name"] = name;
                }
                Change::Name(n, name) => vertices[n % count]["name"] = json!(NAMES[name]),
                Change::Drop(n) if vertices.len() > 1 => drop(vertices.remove(n % count)),
                Change::Cut(_) | Change::Drop(_) => {}
            }
        }
        json!({"vertices": vertices, "edges": edges})
    })
}

/// Whether Numaflow runs a graph: its own rules, in their own order, for what [`graphs`] makes.
fn numaflow_runs(spec: &Value) -> bool {
    let list = |field: &str| spec[field].as_array().unwrap().clone();
    let (vertices, edges) = (list("vertices"), list("edges"));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    if vertices.is_empty() || edges.is_empty() {
        return false;
    }
    let (mut names, mut sources, mut sinks) = (BTreeSet::new(), 0, 0);
    let leads = |end: &str, name: &str| edges.iter().any(|edge| edge[end] == name);
    for vertex in &vertices {
        let name = text(&vertex["name"]);
        if !names.insert(name.clone()) {
            return false;
        }
        let (to, from) = (leads("from", &name), leads("to", &name));
        match ["source", "udf", "sink"].map(|role| !vertex[role].is_null()) {
            [true, false, false] if to && !from => sources += 1,
            [false, false, true] if from && !to => sinks += 1,
            [false, true, false] if to && from => {}
            _ => return false,
        }
    }
    let mut pairs = BTreeSet::new();
    for edge in &edges {
        let (from, to) = (text(&edge["from"]), text(&edge["to"]));
        if !names.contains(&from) || !names.contains(&to) || !pairs.insert((from, to)) {
            return false;
        }
    }
    let next: BTreeMap<String, Vec<String>> = names
        .iter()
        .map(|name| (name.clone(), pairs.iter().filter(|(from, _)| from == name).map(|(_, to)| to.clone()).collect()))
        .collect();
    let reduces = |name: &str| vertices.iter().any(|v| v["name"] == name && !v["udf"]["groupBy"].is_null());
    // From each source along every path: a name that is met again is a cycle, and nothing after it reduces.
    let mut cycles = BTreeSet::new();
    let mut paths: Vec<Vec<String>> =
        vertices.iter().filter(|v| !v["source"].is_null()).map(|v| vec![text(&v["name"])]).collect();
    while let Some(path) = paths.pop() {
        for to in &next[path.last().unwrap()] {
            if path.contains(to) {
                cycles.insert(to.clone());
            } else {
                paths.push(path.iter().cloned().chain([to.clone()]).collect());
            }
        }
    }
    let reached = |from: String, both: bool| {
        let (mut seen, mut ahead) = (BTreeSet::new(), vec![from]);
        while let Some(name) = ahead.pop() {
            if seen.insert(name.clone()) {
                ahead.extend(next[&name].clone());
                ahead.extend(next.iter().filter(|(_, to)| both && to.contains(&name)).map(|(from, _)| from.clone()));
            }
        }
        seen
    };
    let well_named = names.iter().all(|name| name != "Bad");
    sources > 0
        && sinks > 0
        && well_named
        && reached(text(&vertices[0]["name"]), true).len() == names.len()
        && !cycles.into_iter().any(|cycle| reached(cycle, false).iter().any(|name| reduces(name)))
}

/// Anything that can stand in a spec.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(|yes| json!(yes)),
        any::<i64>().prop_map(|n| json!(n)),
        (-2i64..60).prop_map(|n| json!(n)),
        any::<f64>().prop_map(|n| json!(n)),
        prop_oneof![
            "[a-zA-Z{}.-]{0,9}",
            Just("in".to_owned()),
            Just("Paused".to_owned()),
            Just("{{.pipeline-name}}".to_owned())
        ]
        .prop_map(|text| json!(text)),
    ];
    let fields = prop_oneof![
        3 => proptest::sample::select(FIELDS.to_vec()).prop_map(str::to_owned),
        1 => "[a-z]{0,6}",
    ];
    leaf.prop_recursive(5, 60, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::btree_map(fields.clone(), inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Fields that are looked at.
const FIELDS: [&str; 38] = [
    "vertices",
    "edges",
    "sideInputs",
    "lifecycle",
    "desiredPhase",
    "pauseGracePeriodSeconds",
    "watermark",
    "idleSource",
    "name",
    "source",
    "udf",
    "sink",
    "from",
    "to",
    "conditions",
    "tags",
    "values",
    "container",
    "image",
    "builtin",
    "groupBy",
    "window",
    "fixed",
    "storage",
    "keyed",
    "scale",
    "min",
    "max",
    "partitions",
    "sidecars",
    "initContainers",
    "transformer",
    "udsource",
    "retryStrategy",
    "trigger",
    "schedule",
    "jetstream",
    "replicas",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_graph_is_refused_exactly_if_numaflow_does_not_run_it(spec in graphs()) {
        let found = valid::pipeline(&pipeline("my", &spec));
        prop_assert_eq!(found.violations.is_empty(), numaflow_runs(&spec), "{}\n{:#?}", spec, found.violations);
    }

    #[test]
    fn whatever_stands_in_a_spec_is_looked_at_without_a_panic(
        fields in proptest::collection::btree_map(proptest::sample::select(FIELDS.to_vec()), anything(), 0..8),
        name in "[a-zA-Z0-9.-]{0,70}",
    ) {
        let spec: Value = fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect();
        for found in [
            valid::pipeline(&pipeline(&name, &spec)),
            valid::isb_service(&isb_service(&name, &spec)),
            valid::mono_vertex(&mono_vertex(&name, &spec)),
        ] {
            prop_assert!(found.check().map_or_else(|words| words.len() < 20_000, |()| true));
            for finding in found.violations.iter().chain(&found.warnings) {
                prop_assert!(finding.field.starts_with("spec.") || finding.field == "metadata.name", "{}", finding);
            }
        }
    }
}

#[test]
fn the_graphs_of_these_tests_are_of_both_kinds() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let made: Vec<bool> =
        (0..2000).map(|_| numaflow_runs(&graphs().new_tree(&mut runner).unwrap().current())).collect();
    let good = made.iter().filter(|runs| **runs).count();
    assert!((400..1600).contains(&good), "{good} of 2000 are run");
}

#[test]
fn a_spec_as_large_as_can_be_stored_is_looked_at_in_no_time() {
    let vertices: Vec<Value> =
        (0..9_000).map(|n| json!({"name": format!("{}-{n}", "v".repeat(50)), "udff": {}})).collect();
    let edges: Vec<Value> = (0..9_000).map(|n| json!({"from": format!("{}-{n}", "w".repeat(50)), "to": "v"})).collect();
    let same: Vec<Value> =
        (0..20_000).map(|n| json!({"name": "same", "udf": {}, "sideInputs": ["a"], "n": n})).collect();
    let ring: Vec<Value> =
        (0..20_000).map(|n| json!({"name": format!("n{n}"), "udf": {"container": {"image": "f"}}})).collect();
    let around: Vec<Value> =
        (0..20_000).map(|n| json!({"from": format!("n{n}"), "to": format!("n{}", (n + 1) % 20_000)})).collect();
    for spec in [
        json!({"vertices": vertices, "edges": edges}),
        json!({"vertices": same, "edges": edges}),
        json!({"vertices": ring, "edges": around}),
        json!({"vertices": (0..60_000).map(|_| json!("{{.pipeline-nam}}")).collect::<Vec<_>>()}),
        json!({"vertices": [(0..60_000).map(|n| (format!("sourc{n}"), json!(n))).collect::<Value>()]}),
        json!({"k".repeat(500_000): (0..40_000).map(|_| json!("{{.isbsvc-name}}")).collect::<Vec<_>>()}),
    ] {
        let rollout = pipeline("my", &spec);
        let begun = std::time::Instant::now();
        drop(valid::pipeline(&rollout));
        // Many times what it takes with optimisations, on a machine that has other things to do.
        assert!(begun.elapsed().as_secs() < 5, "{:?} for {}", begun.elapsed(), &spec.to_string()[..100]);
    }
}
