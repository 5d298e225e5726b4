//! Pipelines that Numaflow would refuse, and such as it would not.

use serde_json::{Value, json};

use super::{pipeline, three, violations, with};
use crate::valid;

/// Asserts what is said about a spec; in the sentences `$` stands for `spec.pipeline.spec`.
fn says(spec: &Value, sentences: &[&str]) {
    let said = violations(&valid::pipeline(&pipeline("my", spec)));
    let wanted: Vec<String> = sentences.iter().map(|sentence| sentence.replace('$', "spec.pipeline.spec")).collect();
    assert_eq!(said, wanted, "{spec}");
}

/// Changes of a good spec, and what is said of it then.
type Case<'c> = (&'c [(&'c str, Value)], &'c [&'c str]);

fn table(cases: &[Case<'_>]) {
    for (changes, sentences) in cases {
        says(&with(three(), changes), sentences);
    }
}

#[test]
fn pipelines_that_numaflow_runs_are_taken() {
    let reduce = json!({"groupBy": {"window": {"fixed": {"length": "1m"}}, "keyed": true,
        "storage": {"persistentVolumeClaim": {"volumeSize": "1Gi"}}}});
    let fan = json!({
        "vertices": [
            {"name": "in", "source": {"http": {}}}, {"name": "other-in", "source": {"udsource": {"container": {"image": "s"}}}},
            {"name": "sum", "udf": reduce, "partitions": 2}, {"name": "out", "sink": {}}, {"name": "log", "sink": {"log": {}}},
        ],
        "edges": [
            {"from": "in", "to": "sum"}, {"from": "other-in", "to": "sum"}, {"from": "sum", "to": "out"},
            {"from": "sum", "to": "log", "conditions": {"tags": {"values": ["a"]}}},
        ],
    });
    says(&fan, &[]);
    table(&[
        (&[], &[]),
        (&[("/vertices/1/udf", json!({"builtin": {"name": "cat"}}))], &[]),
        (&[("/edges/2", json!({"from": "cat", "to": "cat"}))], &[]),
        (&[("/interStepBufferServiceName", json!("{{.pipeline-name}}"))], &[]),
        (&[("/vertices/1/sink", Value::Null), ("/unheard-of", json!([1]))], &[]),
        (&[("/vertices/0/scale", json!({"min": 50})), ("/vertices/1/scale", json!({"min": 60, "max": 60}))], &[]),
        (&[("/lifecycle", json!({"desiredPhase": "", "deletionGracePeriodSeconds": -1}))], &[]),
        (&[("/vertices/1/partitions", json!(3)), ("/vertices/2/partitions", json!(0))], &[]),
        (&[("/vertices/1/sidecars", json!([{"name": "mine"}, {}]))], &[]),
    ]);
}

#[test]
fn c18_a_spec_of_the_wrong_kind_is_told_and_is_no_panic() {
    for spec in [json!([]), json!(7), json!(null), json!("spec")] {
        says(&spec, &["$: must be the spec of a Numaflow Pipeline"]);
    }
    table(&[
        (&[("/vertices", json!({"in": {}}))], &["$.vertices: must be a list, not an object"]),
        (
            &[("/vertices/1", json!("cat"))],
            &[
                "$.vertices[1]: must be an object, not \"cat\"",
                "$.edges[0].to: no vertex is called \"cat\"",
                "$.edges[1].from: no vertex is called \"cat\"",
            ],
        ),
        (&[("/edges", json!({"from": "in"}))], &["$.edges: must be a list, not an object"]),
        (&[("/edges/2", json!([]))], &["$.edges[2]: must be an object, not a list"]),
        (&[("/vertices/1/udf", json!(true))], &["$.vertices[1].udf: must be an object, not true"]),
        (&[("/vertices/1/udf/container", json!([]))], &["$.vertices[1].udf.container: must be an object, not a list"]),
        (
            &[("/vertices/0/scale", json!({"min": "1"}))],
            &["$.vertices[0].scale.min: must be a whole number, not \"1\""],
        ),
        (
            &[("/vertices/0/scale", json!({"max": 5_000_000_000u64}))],
            &["$.vertices[0].scale.max: must be a whole number, not 5000000000"],
        ),
        (&[("/interStepBufferServiceName", json!(7))], &["$.interStepBufferServiceName: must be a text, not 7"]),
        (
            &[("/interStepBufferServiceName", json!("My ISB"))],
            &[
                "$.interStepBufferServiceName: \"My ISB\" is no name that an ISB service can have: use lower-case letters, digits \
               and '-'",
            ],
        ),
        (&[("/lifecycle", json!(7))], &["$.lifecycle: must be an object, not 7"]),
        (
            &[("/lifecycle", json!({"desiredPhase": 7}))],
            &["$.lifecycle.desiredPhase: 7 is not a phase; use Paused or Running"],
        ),
        (
            &[("/lifecycle", json!({"desiredPhase": "paused", "pauseGracePeriodSeconds": -1}))],
            &[
                "$.lifecycle.desiredPhase: \"paused\" is not a phase; use Paused or Running",
                "$.lifecycle.pauseGracePeriodSeconds: -1 is not a number of seconds",
            ],
        ),
        (
            &[("/lifecycle", json!({"deletionGracePeriodSeconds": "30s"}))],
            &["$.lifecycle.deletionGracePeriodSeconds: \"30s\" is not a number of seconds"],
        ),
    ]);
}

#[test]
fn every_vertex_has_one_name_and_one_role() {
    table(&[
        (
            &[("/vertices", json!([]))],
            &["$.vertices: is empty; a pipeline needs a source, a sink, and edges between them"],
        ),
        (
            &[("/vertices/2", json!({"name": "cat", "sink": {}})), ("/edges", json!([{"from": "in", "to": "cat"}]))],
            &[
                "$.vertices[2].name: \"cat\" is the name of $.vertices[1] too; every vertex needs one of its own",
                "$.vertices[1]: vertex \"cat\": no edge leads from it",
            ],
        ),
        (
            &[("/vertices/1/name", json!("")), ("/edges", json!([{"from": "in", "to": "out"}]))],
            &["$.vertices[1].name: is missing; every vertex needs a name"],
        ),
        (
            &[
                ("/vertices/1/name", json!("My_Cat")),
                ("/edges/0/to", json!("My_Cat")),
                ("/edges/1/from", json!("My_Cat")),
            ],
            &[
                "$.vertices[1].name: \"My_Cat\" is no DNS label: use at most 63 lower-case letters, digits and '-', beginning with \
               a letter and ending with a letter or digit",
            ],
        ),
        (
            &[("/vertices/1/udf", Value::Null)],
            &["$.vertices[1]: vertex \"cat\" is no source, no udf and no sink; make it one of them"],
        ),
        (
            &[("/vertices/2/udf", json!({}))],
            &[
                "$.vertices[2].udf.container.image: is missing; Numaflow needs an image to run",
                "$.vertices[2]: vertex \"out\" has udf and sink; it can be one of them only",
            ],
        ),
        (
            &[("/vertices/0", Value::Null), ("/edges/0", Value::Null)],
            &[
                "$.vertices: none of them is a source, and a pipeline needs one at least",
                "$.vertices[0]: vertex \"cat\": no edge leads to it",
            ],
        ),
        (
            &[("/vertices/2", Value::Null), ("/edges/1", Value::Null)],
            &[
                "$.vertices: none of them is a sink, and a pipeline needs one at least",
                "$.vertices[1]: vertex \"cat\": no edge leads from it",
            ],
        ),
    ]);
}

#[test]
fn edges_lead_from_sources_to_sinks_and_nowhere_else() {
    table(&[
        (&[("/edges", json!([]))], &["$.edges: is empty; edges lead from the source of a pipeline to its sink"]),
        (&[("/edges/1/to", json!("ouut"))], &["$.edges[1].to: no vertex is called \"ouut\" (did you mean \"out\"?)"]),
        (
            &[("/edges/1/to", json!("elsewhere"))],
            &["$.edges[1].to: no vertex is called \"elsewhere\"", "$.vertices[2]: vertex \"out\": no edge leads to it"],
        ),
        (
            &[("/edges/2", json!({"from": "in"}))],
            &["$.edges[2].to: is missing; an edge leads from one vertex to another"],
        ),
        (
            &[("/edges/2", json!({"from": "out", "to": "in"}))],
            &[
                "$.edges[2].from: \"out\" is a sink, and no edge leads out of a sink",
                "$.edges[2].to: \"in\" is a source, and no edge leads into a source",
            ],
        ),
        (
            &[("/edges/2", json!({"from": "in", "to": "cat"}))],
            &["$.edges[2]: leads from and to the same as $.edges[0]; remove one of them"],
        ),
        (
            &[("/vertices/3", json!({"name": "alone", "udf": {"container": {"image": "a"}}}))],
            &["$.vertices[3]: vertex \"alone\": no edge leads to it or from it"],
        ),
        (
            &[
                ("/vertices/3", json!({"name": "in2", "source": {}})),
                ("/vertices/4", json!({"name": "out2", "sink": {}})),
                ("/edges/2", json!({"from": "in2", "to": "out2"})),
            ],
            &[
                "$.edges: no edges connect \"in\" with \"in2\": Numaflow runs one pipeline, not several; make a PipelineRollout for \
               each",
            ],
        ),
    ]);
}

#[test]
fn nothing_is_reduced_in_a_cycle_or_after_one() {
    let reduce = json!({"groupBy": {"window": {"session": {"timeout": "1m"}}, "storage": {"emptyDir": {}}}});
    let spec = with(
        three(),
        &[
            ("/vertices/3", json!({"name": "sum", "udf": reduce})),
            ("/edges/1", json!({"from": "cat", "to": "sum"})),
            ("/edges/2", json!({"from": "sum", "to": "out"})),
        ],
    );
    says(&spec, &[]);
    let sentence = "$.vertices[3].udf.groupBy: is in a cycle of edges, or comes after one; data comes late then, and Numaflow \
        reduces none: remove the edge that leads back";
    for back in
        [json!({"from": "cat", "to": "cat"}), json!({"from": "sum", "to": "cat"}), json!({"from": "sum", "to": "sum"})]
    {
        says(&with(spec.clone(), &[("/edges/3", back)]), &[sentence]);
    }
    // Before the cycle there is no harm in it.
    let after = with(
        spec,
        &[
            ("/vertices/4", json!({"name": "late", "udf": {"container": {"image": "l"}}})),
            ("/edges/3", json!({"from": "sum", "to": "late"})),
            ("/edges/4", json!({"from": "late", "to": "late"})),
            ("/edges/5", json!({"from": "late", "to": "out"})),
        ],
    );
    says(&after, &[]);
}

#[test]
fn what_a_vertex_is_made_of_is_looked_at() {
    let storage = json!({"emptyDir": {}});
    let fixed = json!({"fixed": {"length": "1m"}});
    let udf = |window: &Value, storage: &Value| json!({"groupBy": {"window": window, "storage": storage}});
    let no_window = "says no kind of window; choose fixed, sliding, session or accumulator";
    let no_storage = "says no kind of storage; choose persistentVolumeClaim, emptyDir or no_store";
    table(&[
        (
            &[("/vertices/1/udf", json!({"container": {"image": ""}}))],
            &["$.vertices[1].udf.container.image: is missing; Numaflow needs an image to run"],
        ),
        (
            &[("/vertices/1/udf", json!({"groupBy": {}, "container": {}}))],
            &[
                "$.vertices[1].udf.container.image: is missing; a reduce vertex with a container needs an image",
                "$.vertices[1].udf.groupBy.window: is missing; choose fixed, sliding, session or accumulator",
                "$.vertices[1].udf.groupBy.storage: is missing; choose persistentVolumeClaim, emptyDir or no_store",
            ],
        ),
        (
            &[("/vertices/1/udf", udf(&json!({}), &json!({})))],
            &[
                &format!("$.vertices[1].udf.groupBy.window: {no_window}"),
                &format!("$.vertices[1].udf.groupBy.storage: {no_storage}"),
            ],
        ),
        (
            &[("/vertices/1/udf", udf(&json!({"fixed": {}, "sliding": {"length": "1m"}}), &storage))],
            &[
                "$.vertices[1].udf.groupBy.window: has fixed and sliding; choose one of them",
                "$.vertices[1].udf.groupBy.window.fixed.length: is missing",
                "$.vertices[1].udf.groupBy.window.sliding.slide: is missing",
            ],
        ),
        (
            &[("/vertices/1/udf", udf(&fixed, &json!({"emptyDir": {}, "persistentVolumeClaim": {}})))],
            &["$.vertices[1].udf.groupBy.storage: has persistentVolumeClaim and emptyDir; choose one of them"],
        ),
        (
            &[("/vertices/1/udf", udf(&fixed, &storage)), ("/vertices/1/partitions", json!(2))],
            &[
                "$.vertices[1].partitions: a reduce vertex without keys has one partition; set udf.groupBy.keyed, or remove this",
            ],
        ),
        (
            &[("/vertices/0/partitions", json!(2)), ("/vertices/1/partitions", json!(-1))],
            &[
                "$.vertices[0].partitions: a source has one partition; remove this",
                "$.vertices[1].partitions: -1 is less than 0",
            ],
        ),
        (
            &[("/vertices/0/source", json!({"udsource": {}, "http": {}, "transformer": {"container": {}}}))],
            &[
                "$.vertices[0].source.transformer.container.image: is missing; Numaflow needs an image to run",
                "$.vertices[0].source.udsource.container.image: is missing; a user-defined source needs an image",
                "$.vertices[0].source: has udsource and http; it can be one of them only",
            ],
        ),
        (
            &[
                ("/vertices/0/sidecars", json!([{"name": "mine"}])),
                ("/vertices/1/initContainers", json!([{"name": "numa"}])),
            ],
            &[
                "$.vertices[0].sidecars: a source can have no sidecars; remove them",
                "$.vertices[1].initContainers[0].name: \"numa\" is the name of a container of Numaflow's own; choose another",
            ],
        ),
        (
            &[("/vertices/0/scale", json!({"min": -1})), ("/vertices/1/scale", json!({"min": 3, "max": 2}))],
            &["$.vertices[0].scale.min: -1 is less than 0", "$.vertices[1].scale.min: 3 is more than max, 2"],
        ),
        (
            &[("/vertices/0/scale", json!({"min": 51}))],
            &["$.vertices[0].scale.min: 51 is more than the 50 that Numaflow allows where max is not set"],
        ),
    ]);
}

#[test]
fn side_inputs_are_defined_once_and_read_by_their_names() {
    let good = json!({"name": "rates", "container": {"image": "r"}, "trigger": {"schedule": "@every 5m"}});
    table(&[
        (&[("/sideInputs", json!([good])), ("/vertices/1/sideInputs", json!(["rates"]))], &[]),
        (
            &[("/sideInputs", json!([good, good, {"name": "Rates"}, {"trigger": {}, "container": {"image": "x"}}]))],
            &[
                "$.sideInputs[1].name: \"rates\" is the name of $.sideInputs[0] too; every side input needs one of its own",
                "$.sideInputs[2].name: \"Rates\" is no DNS name, and Deployments have one: use lower-case letters, digits and '-'",
                "$.sideInputs[2].container.image: is missing; a side input needs an image",
                "$.sideInputs[2].trigger: is missing; say when it is read, like {schedule: \"@every 5m\"}",
                "$.sideInputs[3].name: is missing; every side input needs a name",
                "$.sideInputs[3].trigger.schedule: is missing; say when it is read, like \"@every 5m\"",
            ],
        ),
        (
            &[("/sideInputs", json!([good])), ("/vertices/1/sideInputs", json!(["rate", "rates", "rates", 7]))],
            &[
                "$.vertices[1].sideInputs[0]: no side input is called \"rate\" (did you mean \"rates\"?)",
                "$.vertices[1].sideInputs[2]: \"rates\" is here twice; remove one of them",
                "$.vertices[1].sideInputs[3]: must be the name of a side input",
            ],
        ),
    ]);
}

#[test]
fn what_is_wrong_many_times_is_told_as_far_as_anybody_reads() {
    let edges: Vec<Value> = (0..30).map(|n| json!({"from": "in", "to": format!("nowhere-{n}")})).collect();
    let found = valid::pipeline(&pipeline("my", &with(three(), &[("/edges", json!(edges))])));
    let said = found.check().unwrap_err();
    assert!(found.violations.len() > 30 && said.ends_with(" more"), "{said}");
    assert_eq!(said.matches("no vertex is called").count(), 20, "{said}");
}
