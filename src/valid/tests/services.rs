//! ISB services and MonoVertices that Numaflow would refuse, and such as it would not.

use serde_json::{Value, json};

use super::{isb_service, mono_vertex, violations};
use crate::valid;

#[test]
fn an_isb_service_has_a_version_and_replicas_that_can_agree() {
    let missing = "$.jetstream: is missing; an ISB service needs jetstream with a version";
    let cases: [(Value, &[&str]); 12] = [
        (json!({"jetstream": {"version": "latest"}}), &[]),
        (json!({"jetstream": {"version": "2.10.29", "replicas": 1, "settings": "max_payload: 1"}}), &[]),
        // Versions of Numaflow before 1.7 run it.
        (json!({"redis": {"native": {"version": "7.0.11"}}}), &[]),
        (json!([]), &["$: must be the spec of a Numaflow InterStepBufferService"]),
        (json!({}), &[missing]),
        (json!({"jetstream": null}), &[missing]),
        (json!({"jetstream": "2.10"}), &["$.jetstream: must be an object, not \"2.10\""]),
        (json!({"jetstream": {}}), &["$.jetstream.version: is missing; choose one that your Numaflow controller has"]),
        (json!({"jetstream": {"version": 2.1}}), &["$.jetstream.version: must be a text, not 2.1"]),
        (
            json!({"jetstream": {"version": "latest", "replicas": 2}}),
            &["$.jetstream.replicas: 2 replicas cannot agree; use 3 or 5, or 1 where nothing has to last"],
        ),
        (
            json!({"jetstream": {"version": "latest", "replicas": 0}}),
            &["$.jetstream.replicas: 0 replicas cannot agree; use 3 or 5, or 1 where nothing has to last"],
        ),
        (
            json!({"jetstream": {"version": "latest", "replicas": "3", "settings": {"max_payload": 1}}}),
            &[
                "$.jetstream.replicas: must be a whole number, not \"3\"",
                "$.jetstream.settings: must be a text, not an object",
            ],
        ),
    ];
    for (spec, sentences) in cases {
        let said = violations(&valid::isb_service(&isb_service("my", &spec)));
        let wanted: Vec<String> =
            sentences.iter().map(|s| s.replace('$', "spec.interStepBufferService.spec")).collect();
        assert_eq!(said, wanted, "{spec}");
    }
}

#[test]
fn a_mono_vertex_has_a_source_and_a_sink() {
    let cases: [(Value, &[&str]); 9] = [
        (json!({"source": {"generator": {}}, "sink": {"log": {}}, "replicas": 3}), &[]),
        (json!({"source": {}, "sink": {}, "udf": {"container": {"image": "f"}}, "scale": {"min": 3, "max": 2}}), &[]),
        (json!(7), &["$: must be the spec of a Numaflow MonoVertex"]),
        (
            json!({}),
            &[
                "$.source: is missing; a MonoVertex needs a source and a sink",
                "$.sink: is missing; a MonoVertex needs a source and a sink",
            ],
        ),
        (
            json!({"source": "http", "sink": []}),
            &["$.source: must be an object, not \"http\"", "$.sink: must be an object, not a list"],
        ),
        (
            json!({"source": {"serving": {}}, "sink": {}}),
            &["$.source.serving: a MonoVertex cannot have this source; choose another"],
        ),
        (
            json!({"source": {"udsource": {"container": {}}}, "sink": {}, "lifecycle": {"desiredPhase": "Pausing"}}),
            &[
                "$.lifecycle.desiredPhase: \"Pausing\" is not a phase; use Paused or Running",
                "$.source.udsource.container.image: is missing; a user-defined source needs an image",
            ],
        ),
        (json!({"source": {}, "sink": {}, "replicas": -1}), &["$.replicas: -1 is not a number of replicas"]),
        (
            json!({"source": {}, "sink": {}, "replicas": "many", "udf": 1}),
            &["$.replicas: \"many\" is not a number of replicas", "$.udf: must be an object, not 1"],
        ),
    ];
    for (spec, sentences) in cases {
        let said = violations(&valid::mono_vertex(&mono_vertex("my", &spec)));
        let wanted: Vec<String> = sentences.iter().map(|s| s.replace('$', "spec.monoVertex.spec")).collect();
        assert_eq!(said, wanted, "{spec}");
    }
}
