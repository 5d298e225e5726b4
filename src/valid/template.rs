//! Templates of Numaflow's objects: what all three kinds have in common.

use kube::core::ObjectMeta;
use serde_json::Value;

use super::{
    Findings,
    place::{Place, shortened},
    slips,
};
use crate::{
    api::{ANNOTATION_INSTANCE, RESERVED_INSTANCE_PREFIX, Raw, TemplateMetadata},
    names::{is_label_value, not_a_key},
    nesting::{self, too_deep},
    words::quoted,
    wrapped::{Names, Wrapped, phase_of},
};

/// A spec as the object gets it: with the names filled in. `None` where it is no spec at all.
pub(super) fn filled(
    found: &mut Findings,
    wrapped: Wrapped,
    rollout: &ObjectMeta,
    spec: &Raw,
    name: &str,
) -> Option<Value> {
    let namespace = rollout.namespace.as_deref().unwrap_or_default();
    if !spec.0.is_object() {
        found.violation(path_of(wrapped), format!("must be the spec of a Numaflow {}", wrapped.kind));
        return None;
    }
    if let Some(field) = too_deep(&spec.0) {
        found.violation(
            format!("{}.{field}", path_of(wrapped)),
            format!(
                "is nested more than {} levels deep, which no field of Numaflow is; remove what does not belong there",
                nesting::MOST
            ),
        );
        return None;
    }
    let names = Names { word: wrapped.word, name, namespace };
    slips::templates(found, &names, &path_of(wrapped), &spec.0);
    Some(names.fill_value(&spec.0))
}

/// Where the spec of the object stands.
pub(super) fn path_of(wrapped: Wrapped) -> String {
    format!("{}.spec", wrapped.field)
}

/// Labels and annotations: what the API server takes.
pub(super) fn metadata(
    found: &mut Findings,
    wrapped: Wrapped,
    rollout: &ObjectMeta,
    metadata: Option<&TemplateMetadata>,
    name: &str,
) {
    let Some(metadata) = metadata else { return };
    let namespace = rollout.namespace.as_deref().unwrap_or_default();
    let names = Names { word: wrapped.word, name, namespace };
    for (key, value) in &metadata.labels {
        let field = format!("{}.metadata.labels[{}]", wrapped.field, shortened(key));
        slips::template(found, &names, &field, value);
        let value = names.fill(value);
        if let Some(rule) = not_a_key(key) {
            found.violation(field, format!("is no name of a label: {rule}"));
        } else if !is_label_value(&value) {
            found.violation(
                field,
                format!(
                    "{} is no value of a label: at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both \
                     ends",
                    quoted(&value)
                ),
            );
        }
    }
    if metadata.annotations.get(ANNOTATION_INSTANCE).is_some_and(|i| i.starts_with(RESERVED_INSTANCE_PREFIX)) {
        let words = format!(
            "instances that begin with {RESERVED_INSTANCE_PREFIX:?} are isolated copies, in which versions of the controller are tried \
             out; choose another"
        );
        found.warning(format!("{}.metadata.annotations[{ANNOTATION_INSTANCE}]", wrapped.field), words);
    }
    for (key, value) in &metadata.annotations {
        let field = format!("{}.metadata.annotations[{}]", wrapped.field, shortened(key));
        slips::template(found, &names, &field, value);
        // The server reads it in small letters.
        if let Some(rule) = not_a_key(&key.to_ascii_lowercase()) {
            found.violation(field, format!("is no name of an annotation: {rule}"));
        }
    }
}

/// The phase that the user wants; answers its `lifecycle`, if there is one.
pub(super) fn lifecycle<'v>(found: &mut Findings, spec: &Place<'v>) -> Option<Place<'v>> {
    let lifecycle = spec.object(found, "lifecycle")?;
    if phase_of(spec.value).is_err() {
        found.violation(
            lifecycle.path_of("desiredPhase"),
            format!("{} is not a phase; use Paused or Running", super::place::kind_of(lifecycle.get("desiredPhase"))),
        );
    }
    Some(lifecycle)
}
