//! Names, and what is made of them.

use serde_json::{Value, json};

use super::{isb_service, mono_vertex, pipeline, three, violations};
use crate::valid;

const DNS: &str =
    "cannot be the beginning of the names of Services: use lower-case letters, digits and '-', beginning with a letter";

fn name(length: usize) -> String {
    "a".repeat(length)
}

#[test]
fn c16_a_name_is_refused_before_anything_made_of_it_gets_too_long() {
    // The longest that fit, each with room for a number of four digits.
    for (longest, kind) in [(44, "MonoVertex"), (37, "ISBService"), (47, "Pipeline")] {
        for length in [1, longest] {
            assert_eq!(said(kind, &name(length)), Vec::<String>::new(), "{kind} {length}");
        }
        for length in [longest + 1, 52, 62, 63, 64, 253] {
            let said = said(kind, &name(length));
            let excess = format!("shorter by {}", length - longest);
            assert!(said.len() == 1 && said[0].ends_with(&excess), "{kind} {length}: {said:?}");
            assert!(said[0].starts_with("metadata.name: "), "{said:?}");
        }
    }
    let wanted = format!(
        "metadata.name: the name of Service \"{}-0000-mv-daemon-svc\" (with room for a number of four digits) has 64 characters, and \
         63 are the limit; make it shorter by 1",
        name(45)
    );
    assert_eq!(said("MonoVertex", &name(45)), [wanted]);
    let wanted = format!(
        "metadata.name: the label controller-revision-hash of the pods of StatefulSet \"isbsvc-{}-0000-js\" (with room for a number \
         of four digits) has 65 characters, and 63 are the limit; make it shorter by 2",
        name(39)
    );
    assert_eq!(said("ISBService", &name(39)), [wanted]);
}

/// What is said of the shortest spec, by the name of its rollout. The vertex of the pipeline has three characters.
fn said(kind: &str, name: &str) -> Vec<String> {
    violations(&match kind {
        "MonoVertex" => valid::mono_vertex(&mono_vertex(name, &json!({"source": {}, "sink": {}}))),
        "ISBService" => valid::isb_service(&isb_service(name, &json!({"jetstream": {"version": "latest"}}))),
        _ => valid::pipeline(&pipeline(
            name,
            &json!({
                "vertices": [{"name": "a", "source": {}}, {"name": "b", "sink": {}}], "edges": [{"from": "a", "to": "b"}],
            }),
        )),
    })
}

#[test]
fn c16_a_vertex_and_a_side_input_count_with_the_pipeline_that_they_are_in() {
    let mut spec = three();
    spec["vertices"][1]["name"] = json!("categorise");
    spec["edges"] = json!([{"from": "in", "to": "categorise"}, {"from": "categorise", "to": "out"}]);
    let side = json!([{"name": name(14), "container": {"image": "s"}, "trigger": {"schedule": "@hourly"}}]);
    let said = |length: usize, spec: &Value| violations(&valid::pipeline(&pipeline(&name(length), spec)));
    assert_eq!(said(38, &spec), Vec::<String>::new());
    let wanted = format!(
        "spec.pipeline.spec.vertices[1].name: the name of Service \"{}-0000-categorise-headless\" (with room for a number of four \
         digits) has 65 characters, and 63 are the limit; make this name, or metadata.name, shorter by 2",
        name(40)
    );
    assert_eq!(said(40, &spec), [wanted]);
    spec["sideInputs"] = side;
    assert_eq!(said(38, &spec).len(), 0);
    let wanted = format!(
        "spec.pipeline.spec.sideInputs[0].name: the label app.kubernetes.io/name of Deployment \"{}-0000-si-{}\" (with room for a \
         number of four digits) has 64 characters, and 63 are the limit; make this name, or metadata.name, shorter by 1",
        name(41),
        name(14)
    );
    let said = said(41, &spec);
    assert!(said.contains(&wanted), "{said:#?}");
    // Of a rollout whose own name is too long, its vertices are told where they are longer still.
    let said = violations(&valid::pipeline(&pipeline(&name(50), &spec)));
    assert!(said[0].starts_with("metadata.name") && said[0].ends_with("shorter by 3"), "{said:#?}");
    let longer: Vec<&str> = said[1..].iter().map(|words| words.rsplit_once(' ').unwrap().1).collect();
    assert_eq!(longer, ["4", "12", "5", "10"], "{said:#?}");
}

#[test]
fn c16_the_number_that_there_is_counts_and_the_next_one_when_it_comes() {
    let mut rollout = pipeline(
        &name(49),
        &json!({
            "vertices": [{"name": "a", "source": {}}, {"name": "b", "sink": {}}], "edges": [{"from": "a", "to": "b"}],
        }),
    );
    assert_eq!(violations(&valid::pipeline(&rollout)).len(), 1);
    let status = |value: Value| serde_json::from_value(value).unwrap();
    rollout.status = status(json!({"child": format!("{}-9", name(49))}));
    assert_eq!(violations(&valid::pipeline(&rollout)), Vec::<String>::new(), "it runs");
    rollout.status = status(json!({"nameCount": 9}));
    assert_eq!(violations(&valid::pipeline(&rollout)), Vec::<String>::new(), "it was there");
    let wanted = format!(
        "metadata.name: the name of Service \"{}-1000-daemon-svc\" has 65 characters, and 63 are the limit; make it shorter by 2",
        name(49)
    );
    let found = valid::pipeline_called(&rollout, &format!("{}-1000", name(49)));
    assert!(violations(&found).contains(&wanted), "{found:#?}");
}

#[test]
fn c16_names_that_services_cannot_have_are_refused_for_what_services_are_made_of() {
    for kind in ["MonoVertex", "ISBService", "Pipeline"] {
        for bad in ["my.pipe", "1st", "Mine"] {
            assert_eq!(said(kind, bad), [format!("metadata.name: {bad:?} {DNS}")], "{kind}");
        }
    }
}

#[test]
fn c16_a_controller_rollout_may_have_any_name() {
    for name in ["numaflow-controller", "dev-numaflow-controller", "a.b.c", &name(253)] {
        let rollout =
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"controller": {"version": "1.8.3"}}}));
        assert_eq!(violations(&valid::controller(&rollout.unwrap(), "spec.controller")), Vec::<String>::new());
    }
}
