//! What is legal and likely not meant.

use serde_json::{Value, json};

use super::{isb_service, mono_vertex, pipeline, rollout, three, with};
use crate::valid::{self, Findings};

/// Asserts that nothing is refused, and what is said; in the sentences `$` stands for `root`.
fn warns(found: &Findings, root: &str, sentences: &[&str]) {
    assert_eq!(found.violations, []);
    let said: Vec<String> = found.warnings.iter().map(ToString::to_string).collect();
    let wanted: Vec<String> = sentences.iter().map(|sentence| sentence.replace('$', root)).collect();
    assert_eq!(said, wanted);
}

fn controller(strategy: &Value, sentences: &[&str]) {
    let object = json!({"metadata": {"name": "c"}, "spec": {"controller": {"version": "1"}, "strategy": strategy}});
    warns(&valid::controller(&rollout(object), "spec.controller"), "spec.strategy", sentences);
}

#[test]
fn a_strategy_that_does_less_than_it_says_is_pointed_out() {
    controller(&json!({"type": "pause-and-drain", "ppnd": {"drainTimeout": "5m"}}), &[]);
    controller(&json!({"ppnd": {"drainTimeout": "5m"}, "forcePromote": false}), &[]);
    controller(&json!({"assessment": {"deadline": "10m", "window": "0s", "interval": "10m"}}), &[]);
    controller(
        &json!({"type": "progressive", "ppnd": {"drainTimeout": "0s"}, "forcePromote": true}),
        &[
            "$.ppnd.drainTimeout: 0s: nothing is paused, and what is not processed by then may be lost",
            "$.ppnd: has no effect: progressive pauses no pipelines; use pause-and-drain, or remove this",
            "$.forcePromote: is honoured for one attempt, which then proves nothing before it is promoted; set it back to false \
             after that",
        ],
    );
    controller(
        &json!({"assessment": {"deadline": "0s", "window": "30s", "interval": "1m"}}),
        &[
            "$.assessment.deadline: 0s: what is not healthy at once is given up",
            "$.assessment.interval: 1m is longer than the window, 30s: that is over before the second look",
        ],
    );
    controller(
        &json!({"assessment": {"deadline": "1m", "interval": "90s"}}),
        &["$.assessment.interval: 1m30s is longer than the deadline, 1m: that is over before the second look"],
    );
}

#[test]
fn what_is_without_effect_in_this_release_is_named() {
    let no_effect = "has no effect in this release";
    let mut plr = pipeline("my", &three());
    plr.spec.riders = serde_json::from_value(json!([{"definition": {}}])).unwrap();
    plr.spec.strategy = serde_json::from_value(json!({
        "progressive": {"assessmentSchedule": "10,200,60,10"}, "analysis": {}, "recycleStrategy": {"scaleFactor": 50},
        "pauseResume": {"fastResume": true},
    }))
    .unwrap();
    warns(
        &valid::pipeline(&plr),
        "spec.strategy",
        &[
            "spec.riders: has no effect in this release: none of these objects is made",
            &format!("$.progressive: {no_effect}"),
            &format!("$.analysis: {no_effect}"),
            &format!("$.recycleStrategy: {no_effect}"),
        ],
    );
    let mut mvr = mono_vertex("my", &json!({"source": {"http": {}}, "sink": {"log": {}}}));
    for (schedule, shown) in [(json!("10,200,60"), "\"10,200,60\""), (json!("a,b,c,d"), "\"a,b,c,d\""), (json!(7), "7")]
    {
        mvr.spec.strategy = serde_json::from_value(json!({"progressive": {"assessmentSchedule": schedule}})).unwrap();
        warns(
            &valid::mono_vertex(&mvr),
            "spec.strategy.progressive",
            &[
                &format!("$: {no_effect}"),
                &format!(
                    "$.assessmentSchedule: {shown} is no schedule: write four numbers of seconds, delay, end, period and interval, like \
                 \"120,300,60,10\""
                ),
            ],
        );
    }
    let mut isbr = isb_service("my", &json!({"jetstream": {"version": "latest"}}));
    isbr.spec.strategy = serde_json::from_value(json!({"assessment": {"window": "1s", "interval": "5s"}})).unwrap();
    warns(
        &valid::isb_service(&isbr),
        "spec.strategy",
        &[
            "$.assessment.window: has no effect in this release: an ISB service is believed once all of its pods bear it out",
        ],
    );
}

fn warns_of(changes: &[(&str, Value)], sentences: &[&str]) {
    warns(&valid::pipeline(&pipeline("my", &with(three(), changes))), "spec.pipeline.spec", sentences);
}

#[test]
fn slips_of_the_pen_that_nobody_refuses_are_pointed_out() {
    warns_of(&[], &[]);
    warns_of(
        &[
            ("/sideInput", json!([])),
            ("/anything", json!(1)),
            ("/vertices/1/scales", json!({})),
            ("/vertices/1/toleration", json!([])),
            ("/edges/0/onfull", json!("discardLatest")),
        ],
        &[
            "$.sideInput: Numaflow knows no such field (did you mean \"sideInputs\"?)",
            "$.vertices[1].scales: Numaflow knows no such field (did you mean \"scale\"?)",
            "$.vertices[1].toleration: Numaflow knows no such field (did you mean \"tolerations\"?)",
            "$.edges[0].onfull: Numaflow knows no such field (did you mean \"onFull\"?)",
        ],
    );
    let env = |value: &str| json!([{"name": "A", "value": value}]);
    warns_of(&[("/vertices/1/udf/container/env", env("{{ .pipeline-name }} {{.vertex-name}} {{x}}"))], &[]);
    warns_of(
        &[("/vertices/1/udf/container/env", env("{{.pipeline-nam}} {{ .isbsvc-name }}"))],
        &[
            "$.vertices[1].udf.container.env[0].value: \"{{.pipeline-nam}}\" is left as it is written (did you mean \
             \"{{.pipeline-name}}\"?)",
            "$.vertices[1].udf.container.env[0].value: \"{{.isbsvc-name}}\" is left as it is written; there are \
             {{.pipeline-name}} and {{.pipeline-namespace}}",
        ],
    );
    // What is missing for that is told with it.
    let mut spec = three();
    spec["verticies"] = spec["vertices"].take();
    let found = valid::pipeline(&pipeline("my", &spec));
    assert!(found.violations[0].to_string().contains("spec.vertices: is empty"), "{found:?}");
    assert!(found.warnings[0].to_string().contains("(did you mean \"vertices\"?)"), "{found:?}");
}

#[test]
fn what_loses_data_or_goes_nowhere_is_pointed_out() {
    warns_of(
        &[(
            "/lifecycle",
            json!({"pauseGracePeriodSeconds": 0, "deletionGracePeriodSeconds": 5, "deleteGracePeriodSeconds": 5}),
        )],
        &[
            "$.lifecycle.pauseGracePeriodSeconds: 0: a pause waits for nothing to be processed; what is in its buffers stays there \
             until it is resumed",
            "$.lifecycle.deleteGracePeriodSeconds: has no effect: it is the old name of deletionGracePeriodSeconds, which is there \
             too; remove it",
        ],
    );
    let window = json!({"session": {"timeout": "1m"}, "fixed": {"length": "1m"}});
    warns_of(
        &[
            ("/vertices/0/source", json!({})),
            ("/vertices/1/udf", json!({"groupBy": {"window": window, "storage": {"emptyDir": {}}}})),
            ("/vertices/2/sink", json!({})),
        ],
        &[
            "$.vertices[0].source: says no kind of source; no message will ever come from it",
            "$.vertices[1].udf.groupBy.window: has session and another kind; recent versions of Numaflow refuse that",
            "$.vertices[1].udf.groupBy.storage: without a persistentVolumeClaim, what is being reduced is lost whenever its pod \
             goes, for a pause too",
            "$.vertices[2].sink: says no kind of sink; no message will ever go into it",
        ],
    );
}

#[test]
fn what_only_some_versions_of_numaflow_refuse_is_no_reason_to_refuse_it() {
    let side = json!([{"name": "s", "container": {"image": "s"}, "trigger": {"schedule": "hourly"}}]);
    warns_of(
        &[
            ("/watermark", json!({"idleSource": {"threshold": "5s"}})),
            ("/vertices/1/scale", json!({"cron": {}})),
            ("/vertices/2/sink", json!({"serve": {}, "retryStrategy": {"onFailure": "fallback"}})),
            ("/edges/0/conditions", json!({"tags": {"values": []}})),
            ("/sideInputs", side),
        ],
        &[
            "$.watermark.idleSource.incrementBy: is missing; recent versions of Numaflow refuse that",
            "$.vertices[1].scale.cron: only a source or a MonoVertex has this; recent versions of Numaflow refuse that",
            "$.vertices[2].sink.retryStrategy.onFailure: is fallback, and there is no $.vertices[2].sink.fallback; recent versions \
             of Numaflow refuse that",
            "$.vertices[2].sink.serve: only ServingPipelines have this sink; recent versions of Numaflow refuse that",
            "$.edges[0].conditions.tags: names no tag values, and nothing goes this way; recent versions of Numaflow refuse that",
            "$.sideInputs[0].trigger.schedule: \"hourly\" is no cron expression, and nothing like \"@every 5m\"",
        ],
    );
    let spec = json!({"source": {"http": {}}, "sink": {"log": {}}, "udf": {"groupBy": {}}, "scale": {"min": 60}});
    warns(
        &valid::mono_vertex(&mono_vertex("my", &spec)),
        "spec.monoVertex.spec",
        &[
            "$.udf.groupBy: a MonoVertex reduces nothing; recent versions of Numaflow refuse that",
            "$.scale.min: 60 is more than the 50 that Numaflow allows where max is not set; recent versions of Numaflow refuse that",
        ],
    );
    let spec = json!({"redis": {"native": {"version": "7.0.11"}}});
    warns(
        &valid::isb_service(&isb_service("my", &spec)),
        "spec.interStepBufferService.spec",
        &["$.redis: Numaflow has no redis since 1.7; use jetstream"],
    );
}

#[test]
fn a_pipeline_for_a_copy_that_is_tried_out_is_pointed_out() {
    let mut plr = pipeline("my", &three());
    plr.spec.pipeline.metadata =
        serde_json::from_value(json!({"annotations": {"numaflow.numaproj.io/instance": "x-0a1b2c3d"}})).unwrap();
    warns(
        &valid::pipeline(&plr),
        "spec.pipeline.metadata",
        &[
            "$.annotations[numaflow.numaproj.io/instance]: instances that begin with \"x-\" are isolated copies, in which versions of \
         the controller are tried out; choose another",
        ],
    );
}

#[test]
fn labels_and_annotations_are_such_as_the_server_takes() {
    let mut plr = pipeline("my", &three());
    let metadata = json!({
        "labels": {"team": "a", "of": "{{.pipeline-name}}", "example.com/x": "", "a b": "x", "long": "a".repeat(64), "bad": "-"},
        "annotations": {"any": "thing at all\n", "EXAMPLE.com/X": "y", "": "z"},
    });
    plr.spec.pipeline.metadata = serde_json::from_value(metadata).unwrap();
    let said: Vec<String> = valid::pipeline(&plr).violations.iter().map(ToString::to_string).collect();
    let key = "at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends, after an optional 'prefix/'";
    let value =
        "is no value of a label: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends";
    assert_eq!(
        said,
        [
            format!("spec.pipeline.metadata.labels[a b]: is no name of a label: {key}"),
            format!("spec.pipeline.metadata.labels[bad]: \"-\" {value}"),
            format!("spec.pipeline.metadata.labels[long]: {:?} {value}", "a".repeat(64)),
            format!("spec.pipeline.metadata.annotations[]: is no name of an annotation: {key}"),
        ]
    );
}
