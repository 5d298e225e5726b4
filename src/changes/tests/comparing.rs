//! Where specs differ, and which rules are about that.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::changes::{Change, Kind, List, Rule, Rules, classify};

fn rules(list: List, rules: &[(&str, bool)]) -> Rules {
    let rules: Vec<Rule> = rules.iter().map(|(path, all)| Rule::new(Kind::Pipeline, path, *all).unwrap()).collect();
    let mut none = none();
    match list {
        List::Recreate => none.recreate = rules,
        List::DataLoss => none.data_loss = rules,
        List::Progressive => none.progressive = rules,
    }
    none
}

fn none() -> Rules {
    Rules { recreate: Vec::new(), data_loss: Vec::new(), progressive: Vec::new() }
}

/// The change, in one line.
fn said(old: &Value, new: &Value, rules: &Rules) -> String {
    let change = classify(old, new, rules);
    let name = match change {
        Change::None => return "None".to_owned(),
        Change::Direct(_) => "Direct",
        Change::Pause(_) => "Pause",
        Change::Recreate(_) => "Recreate",
    };
    let fields: Vec<String> = change.fields().iter().map(ToString::to_string).collect();
    format!("{name} {}", fields.join(", "))
}

fn vertex(name: &str, image: &str) -> Value {
    json!({"name": name, "udf": {"container": {"image": image, "env": [{"name": "A", "value": "1"}]}}})
}

fn pipeline(vertices: &[Value]) -> Value {
    json!({"vertices": vertices, "edges": [{"from": "in", "to": "cat"}, {"from": "cat", "to": "out"}]})
}

#[test]
fn what_differs_is_named_by_key_and_not_by_position() {
    let old = pipeline(&[vertex("in", "a"), vertex("cat", "b")]);
    for (new, expected) in [
        (pipeline(&[vertex("cat", "b"), vertex("in", "a")]), "None"),
        (pipeline(&[vertex("cat", "c"), vertex("in", "a")]), "Direct spec.vertices[cat].udf.container.image"),
        (pipeline(&[vertex("cat", "b")]), "Direct spec.vertices[in]"),
        (pipeline(&[vertex("new", "a"), vertex("cat", "b"), vertex("in", "a")]), "Direct spec.vertices[new]"),
        (
            pipeline(&[vertex("cat", "a"), vertex("in", "b")]),
            "Direct spec.vertices[in].udf.container.image, spec.vertices[cat].udf.container.image",
        ),
    ] {
        assert_eq!(said(&old, &new, &none()), expected, "{new}");
    }
}

#[test]
fn edges_are_told_apart_by_both_their_ends() {
    let edges = |edges: Value| json!({"edges": edges});
    let old =
        edges(json!([{"from": "in", "to": "a"}, {"from": "in", "to": "b", "conditions": {"tags": {"values": ["x"]}}}]));
    for (new, expected) in [
        (
            json!([{"from": "in", "to": "b", "conditions": {"tags": {"values": ["x"]}}}, {"from": "in", "to": "a"}]),
            "None",
        ),
        (
            json!([{"from": "in", "to": "a"}, {"from": "in", "to": "b", "conditions": {"tags": {"values": ["y"]}}}]),
            "Direct spec.edges[in->b].conditions.tags.values",
        ),
        (json!([{"from": "in", "to": "a"}]), "Direct spec.edges[in->b]"),
        (
            json!([{"from": "in", "to": "a"}, {"from": "in", "to": "b"}, {"from": "a", "to": "b"}]),
            "Direct spec.edges[in->b].conditions, spec.edges[a->b]",
        ),
    ] {
        assert_eq!(said(&old, &edges(new), &none()), expected);
    }
}

#[test]
fn what_says_the_same_is_no_change() {
    for (old, new) in [
        (json!({"a": 1}), json!({"a": 1.0})),
        (json!({"a": null}), json!({})),
        (json!({"a": {"b": null}}), json!({"a": {}})),
        (json!({"env": []}), json!({})),
        (json!({"args": ["a", 1]}), json!({"args": ["a", 1.0]})),
        (json!({"lifecycle": {"desiredPhase": "Paused"}}), json!({})),
        (
            json!({"lifecycle": {"desiredPhase": "Paused", "pauseGracePeriodSeconds": 30}}),
            json!({"lifecycle": {"desiredPhase": "Running", "pauseGracePeriodSeconds": 600}}),
        ),
        (json!(null), json!({})),
    ] {
        assert_eq!(said(&old, &new, &none()), "None", "{old} {new}");
        assert_eq!(said(&new, &old, &none()), "None", "{new} {old}");
    }
}

#[test]
fn what_does_not_say_the_same_is_a_change() {
    for (old, new, expected) in [
        (json!({"a": 9_007_199_254_740_993_i64}), json!({"a": 9_007_199_254_740_992_i64}), "spec.a"),
        (json!({"a": "1"}), json!({"a": 1}), "spec.a"),
        (json!({"sink": {"log": {}}}), json!({"sink": {}}), "spec.sink.log"),
        (json!({"args": ["a", "b"]}), json!({"args": ["b", "a"]}), "spec.args"),
        (
            json!({"tolerations": [{"key": "a"}, {"key": "b"}]}),
            json!({"tolerations": [{"key": "a"}, {"key": "c"}]}),
            "spec.tolerations[1].key",
        ),
        (json!({"tolerations": [{"key": "a"}]}), json!({"tolerations": []}), "spec.tolerations"),
        (
            json!({"lifecycle": {"deletionGracePeriodSeconds": 1}}),
            json!({}),
            "spec.lifecycle.deletionGracePeriodSeconds",
        ),
        // Removed is changed, too.
        (json!({"limits": {"readBatchSize": 1}}), json!({}), "spec.limits"),
        // Two with the same key: by position, as there is nothing better.
        (
            json!({"vertices": [{"name": "a", "x": 1}, {"name": "a", "x": 2}]}),
            json!({"vertices": [{"name": "a", "x": 2}, {"name": "a", "x": 2}]}),
            "spec.vertices[0].x",
        ),
        // One runs after the other.
        (
            json!({"initContainers": [{"name": "a"}, {"name": "b"}]}),
            json!({"initContainers": [{"name": "b"}, {"name": "a"}]}),
            "spec.initContainers",
        ),
        // B is what A was before it; the other way round it is the text "$(A)".
        (
            json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}]}),
            json!({"env": [{"name": "B", "value": "$(A)"}, {"name": "A", "value": "1"}]}),
            "spec.env",
        ),
    ] {
        assert_eq!(said(&old, &new, &none()), format!("Direct {expected}"), "{old} {new}");
    }
}

#[test]
fn rules_go_through_lists_and_below_fields_as_they_say() {
    let old = pipeline(&[vertex("in", "a"), vertex("cat", "b")]);
    let image = pipeline(&[vertex("in", "a"), vertex("cat", "c")]);
    let removed = pipeline(&[vertex("in", "a")]);
    let mut env = old.clone();
    env["vertices"][0]["udf"]["container"]["env"][0]["value"] = json!("2");
    let mut no_udf = old.clone();
    no_udf["vertices"][1]["udf"].take();
    let at = "Pause spec.vertices[cat]";
    for (new, rule, all, expected) in [
        (&image, "spec.vertices.udf.container.image", false, Some(format!("{at}.udf.container.image"))),
        (&image, "spec.VERTICES.udf.container.Image", false, Some(format!("{at}.udf.container.image"))),
        (&image, "spec.vertices.udf.container.args", true, None),
        (&image, "spec.vertices.udf.container", false, None),
        (&image, "spec.vertices.udf.container", true, Some(format!("{at}.udf.container.image"))),
        (&image, "spec.vertices", false, None),
        (&image, "spec.vertices", true, Some(format!("{at}.udf.container.image"))),
        (&image, "spec", false, None),
        (&image, "spec", true, Some(format!("{at}.udf.container.image"))),
        (&image, "spec.vertices.udf.container.image.name", true, None),
        // A list of values is a value.
        (
            &env,
            "spec.vertices.udf.container.env",
            false,
            Some("Pause spec.vertices[in].udf.container.env[A].value".into()),
        ),
        (
            &env,
            "spec.vertices.udf.container.env.value",
            false,
            Some("Pause spec.vertices[in].udf.container.env[A].value".into()),
        ),
        (&env, "spec.vertices.udf.container", false, None),
        // What goes takes with it what it holds.
        (&removed, "spec.vertices", false, Some(at.to_owned())),
        (&removed, "spec.vertices.udf.container.image", false, Some(at.to_owned())),
        (&removed, "spec.vertices.source", true, None),
        (&no_udf, "spec.vertices", false, None),
        (&no_udf, "spec.vertices.udf", false, Some(format!("{at}.udf"))),
        (&no_udf, "spec.vertices.udf.container.env.name", false, Some(format!("{at}.udf"))),
        (&no_udf, "spec.vertices.udf.container.args", false, None),
    ] {
        let expected = expected.map(|expected| format!("{expected} (dataLoss: {rule})"));
        let found = said(&old, new, &rules(List::DataLoss, &[(rule, all)]));
        match expected {
            Some(expected) => assert_eq!(found, expected, "{rule}"),
            None => assert!(found.starts_with("Direct "), "{rule}: {found}"),
        }
        // There and back again are the same change.
        assert_eq!(said(new, &old, &rules(List::DataLoss, &[(rule, all)])), found, "{rule}");
    }
}

#[test]
fn the_strongest_list_wins_and_a_new_entry_is_judged_by_the_rules_about_its_list() {
    let old = pipeline(&[vertex("in", "a")]);
    let image = pipeline(&[vertex("in", "b")]);
    let added = pipeline(&[vertex("in", "a"), vertex("cat", "b")]);
    let mut all = rules(List::Recreate, &[("spec.vertices.udf", true)]);
    all.data_loss =
        rules(List::DataLoss, &[("spec.vertices.udf.container.image", false), ("spec.vertices", false)]).data_loss;
    assert_eq!(
        said(&old, &image, &all),
        "Recreate spec.vertices[in].udf.container.image (recreate: spec.vertices.udf)"
    );
    assert_eq!(said(&old, &added, &all), "Pause spec.vertices[cat] (dataLoss: spec.vertices)");
    all.data_loss.pop();
    assert_eq!(said(&old, &added, &all), "Recreate spec.vertices[cat] (recreate: spec.vertices.udf)");
    // Only the fields that need the most are told.
    let mut two = pipeline(&[vertex("in", "b")]);
    two["limits"] = json!({"readBatchSize": 1});
    assert_eq!(said(&old, &two, &all), "Recreate spec.vertices[in].udf.container.image (recreate: spec.vertices.udf)");
}

#[test]
fn progressive_is_a_pause_and_says_so() {
    let progressive = rules(List::Progressive, &[("spec.vertices.udf.container.image", false)]);
    assert_eq!(
        said(&pipeline(&[vertex("in", "a")]), &pipeline(&[vertex("in", "b")]), &progressive),
        "Pause spec.vertices[in].udf.container.image (progressive: spec.vertices.udf.container.image)"
    );
}

fn any_env() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::btree_map("[A-C]", "[a-z$]{0,3}", 0..4)
        .prop_map(|env| env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect())
}

fn any_pipeline() -> impl Strategy<Value = Value> {
    let vertex =
        ("[a-d]", any_env(), prop::option::of("[xy]"), prop::option::of(0..3), prop::collection::vec("[a-b]", 0..3));
    let vertex = vertex.prop_map(|(name, env, image, max, args)| {
        json!({"name": name, "udf": {"container": {"env": env, "image": image, "args": args}}, "scale": {"max": max}})
    });
    let vertices = prop::collection::vec(vertex, 0..5).prop_map(|mut all| {
        all.sort_by_key(|v| v["name"].to_string());
        all.dedup_by_key(|v| v["name"].to_string());
        all
    });
    let edges = prop::collection::btree_set(("[a-c]", "[a-c]"), 0..5)
        .prop_map(|all| all.iter().map(|(from, to)| json!({"from": from, "to": to})).collect::<Vec<_>>());
    (vertices, edges, prop::option::of("[st]")).prop_map(|(vertices, edges, service)| {
        json!({"vertices": vertices, "edges": edges, "interStepBufferServiceName": service})
    })
}

/// The same pipeline, with its vertices, edges and variables in another order.
fn shuffled(pipeline: &Value) -> impl Strategy<Value = Value> + use<> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let vertices: Vec<_> = list(&pipeline["vertices"])
        .into_iter()
        .map(|vertex| {
            let env = list(&vertex["udf"]["container"]["env"]);
            Just(env).prop_shuffle().prop_map(move |env| {
                let mut vertex = vertex.clone();
                vertex["udf"]["container"]["env"] = json!(env);
                vertex
            })
        })
        .collect();
    let pipeline = pipeline.clone();
    (vertices.prop_shuffle(), Just(list(&pipeline["edges"])).prop_shuffle()).prop_map(move |(vertices, edges)| {
        let mut pipeline = pipeline.clone();
        pipeline["vertices"] = json!(vertices);
        pipeline["edges"] = json!(edges);
        pipeline
    })
}

proptest! {
    #[test]
    fn the_order_of_vertices_edges_and_variables_is_no_change(
        (pipeline, other) in any_pipeline().prop_flat_map(|p| (Just(p.clone()), shuffled(&p)))
    ) {
        for rules in [Rules::built_in(Kind::Pipeline), none()] {
            prop_assert_eq!(classify(&pipeline, &other, &rules), Change::None);
        }
    }

    #[test]
    fn a_change_is_direct_without_rules_and_never_less_with_them(old in any_pipeline(), new in any_pipeline()) {
        let found = classify(&old, &new, &none());
        let back = classify(&new, &old, &none());
        prop_assert_eq!(found.fields().len(), back.fields().len());
        prop_assert_eq!(classify(&old, &old, &none()), Change::None);
        let everything = classify(&old, &new, &rules(List::Recreate, &[("spec", true)]));
        let built_in = classify(&old, &new, &Rules::built_in(Kind::Pipeline));
        if found == Change::None {
            prop_assert_eq!((everything, built_in), (Change::None, Change::None));
        } else {
            prop_assert!(matches!(found, Change::Direct(_)));
            prop_assert!(matches!(&everything, Change::Recreate(fields) if fields.len() == found.fields().len()));
            prop_assert!(built_in != Change::None);
        }
    }

    #[test]
    fn old_and_new_agree_with_a_change_whatever_they_are(old in any_pipeline(), new in any_pipeline()) {
        // What the first of two specs is told to need is what the other way needs: a pause is a pause both ways.
        let rules = Rules::built_in(Kind::Pipeline);
        let (there, back) = (classify(&old, &new, &rules), classify(&new, &old, &rules));
        prop_assert_eq!(std::mem::discriminant(&there), std::mem::discriminant(&back));
    }
}
