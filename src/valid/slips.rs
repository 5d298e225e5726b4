//! Slips of the pen that nobody refuses: fields and templates that nearly are some that there are.

use serde_json::Value;

use super::{
    Findings,
    names::nearest,
    place::{LONGEST, Place, shortened},
};
use crate::{
    words::{meant, quoted},
    wrapped::{ISB_SERVICE, MONO_VERTEX, Names, PIPELINE},
};

/// Fields of pods, which Numaflow takes wherever it makes some.
pub(super) const POD: [&str; 15] = [
    "metadata",
    "nodeSelector",
    "tolerations",
    "securityContext",
    "imagePullSecrets",
    "priorityClassName",
    "priority",
    "affinity",
    "serviceAccountName",
    "runtimeClassName",
    "automountServiceAccountToken",
    "dnsPolicy",
    "dnsConfig",
    "resourceClaims",
    "hostAliases",
];
/// Fields of the spec of a pipeline.
pub(super) const OF_PIPELINE: [&str; 10] = [
    "interStepBufferServiceName",
    "interStepBuffer",
    "vertices",
    "edges",
    "lifecycle",
    "limits",
    "watermark",
    "templates",
    "sideInputs",
    "ordered",
];
/// Fields of a vertex, but for those of its pods.
pub(super) const OF_VERTEX: [&str; 17] = [
    "name",
    "source",
    "sink",
    "udf",
    "containerTemplate",
    "initContainerTemplate",
    "sideInputsContainerTemplate",
    "volumes",
    "limits",
    "scale",
    "initContainers",
    "sidecars",
    "partitions",
    "sideInputs",
    "updateStrategy",
    "ordered",
    "streaming",
];
/// Fields of an edge.
pub(super) const OF_EDGE: [&str; 4] = ["from", "to", "conditions", "onFull"];
/// Fields of the spec of a MonoVertex, but for those of its pods.
pub(super) const OF_MONO_VERTEX: [&str; 15] = [
    "replicas",
    "source",
    "sink",
    "udf",
    "containerTemplate",
    "volumes",
    "limits",
    "scale",
    "initContainers",
    "sidecars",
    "daemonTemplate",
    "updateStrategy",
    "lifecycle",
    "streaming",
    "bypass",
];
/// Fields of the spec of an ISB service.
pub(super) const OF_ISB_SERVICE: [&str; 2] = ["jetstream", "redis"];
/// Fields of its `jetstream`, but for those of its pods.
pub(super) const OF_JETSTREAM: [&str; 11] = [
    "version",
    "replicas",
    "containerTemplate",
    "reloaderContainerTemplate",
    "metricsContainerTemplate",
    "persistence",
    "settings",
    "startArgs",
    "bufferConfig",
    "encryption",
    "tls",
];

/// Fields that there are not, and that nearly are some of `known`, or of those of pods.
pub(super) fn fields(found: &mut Findings, place: &Place<'_>, known: &[&str]) {
    let all = || known.iter().chain(&POD).copied();
    for field in place.value.as_object().into_iter().flatten().map(|(field, _)| field) {
        if all().any(|known| known == field) {
            continue;
        }
        if let Some(nearest) = nearest(found, field, all()) {
            found.warning(place.path_of(field), format!("Numaflow knows no such field{}", meant(Some(nearest))));
        }
    }
}

/// Texts that ask for a name that is not filled in, and was perhaps thought to be; at any depth of what stands at `path`.
pub(super) fn templates(found: &mut Findings, names: &Names<'_>, path: &str, value: &Value) {
    walk(value, &mut Vec::new(), &mut |steps, text| {
        if !names.not_filled(text).is_empty() {
            template(found, names, &path_to(path, steps), text);
        }
    });
}

/// The path of what lies these steps below a path. Where that is longer than anybody reads, it ends after the step in which it gets
/// so: names of fields can be as long as a spec, and there may be many texts below each.
fn path_to(path: &str, steps: &[Step<'_>]) -> String {
    let mut path = path.to_owned();
    for step in steps {
        if path.len() > LONGEST {
            return path + "…";
        }
        path += &match step {
            Step::Field(field) => format!(".{}", shortened(field)),
            Step::Entry(number) => format!("[{number}]"),
        };
    }
    path
}

/// One step into a value.
enum Step<'v> {
    Field(&'v str),
    Entry(usize),
}

fn walk<'v>(value: &'v Value, steps: &mut Vec<Step<'v>>, text: &mut impl FnMut(&[Step<'v>], &str)) {
    match value {
        Value::String(written) if written.contains("{{") => text(steps, written),
        Value::Array(entries) => {
            for (number, entry) in entries.iter().enumerate() {
                steps.push(Step::Entry(number));
                walk(entry, steps, text);
                steps.pop();
            }
        }
        Value::Object(fields) => {
            for (field, entry) in fields {
                steps.push(Step::Field(field));
                walk(entry, steps, text);
                steps.pop();
            }
        }
        _ => {}
    }
}

/// One text.
pub(super) fn template(found: &mut Findings, names: &Names<'_>, path: &str, text: &str) {
    let of = |word: &str| [format!(".{word}-name"), format!(".{word}-namespace")];
    let ours = of(names.word);
    for asked in names.not_filled(text) {
        let hint = nearest(found, asked, ours.iter().map(String::as_str)).map(|ours| format!("{{{{{ours}}}}}"));
        let others =
            [PIPELINE, ISB_SERVICE, MONO_VERTEX].into_iter().any(|kind| of(kind.word).iter().any(|o| o == asked));
        if hint.is_some() || others {
            let shown = quoted(&format!("{{{{{asked}}}}}"));
            let there_are = format!("; there are {{{{{}}}}} and {{{{{}}}}}", ours[0], ours[1]);
            let hint = if hint.is_some() { meant(hint.as_deref()) } else { there_are };
            found.warning(path, format!("{shown} is left as it is written{hint}"));
        }
    }
}
