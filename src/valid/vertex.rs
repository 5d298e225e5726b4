//! What a vertex of a pipeline, or a MonoVertex, must be like: sources, functions, sinks, containers, scaling.
//!
//! Refused is only what every version of Numaflow refuses. What some of them run is a warning at most.

use super::{Finding, Findings, place::Place};
use crate::words::quoted;

/// Most replicas of a vertex that does not say how many, as Numaflow has it.
const MOST_REPLICAS: i32 = 50;
/// Names of containers that Numaflow makes itself, in every version.
const RESERVED: [&str; 8] = ["init", "numa", "udf", "udsink", "udsource", "transformer", "udsi", "init-side-inputs"];

/// What a warning says of what only some versions refuse.
pub(super) const REFUSED: &str = "recent versions of Numaflow refuse that";

/// What a source says.
pub(super) fn source(found: &mut Findings, source: &Place<'_>) {
    if source.value.as_object().is_some_and(serde_json::Map::is_empty) {
        found.warning(source.path.clone(), "says no kind of source; no message will ever come from it");
    }
    if let Some(transformer) = source.object(found, "transformer") {
        image_or_builtin(found, &transformer);
    }
    let Some(own) = source.object(found, "udsource") else { return };
    if image(found, &own).is_none() {
        found.violation(own.path_of("container.image"), "is missing; a user-defined source needs an image");
    }
    let others: Vec<&str> =
        ["http", "kafka", "nats", "generator"].into_iter().filter(|kind| source.has(kind)).collect();
    if !others.is_empty() {
        found.violation(
            source.path.clone(),
            format!("has udsource and {}; it can be one of them only", others.join(" and ")),
        );
    }
}

/// What a function says; answers whether it reduces.
pub(super) fn udf(found: &mut Findings, udf: &Place<'_>) -> Option<bool> {
    let Some(group) = udf.object(found, "groupBy") else {
        if !udf.has("groupBy") {
            image_or_builtin(found, udf);
        }
        return None;
    };
    if udf.has("container") && image(found, udf).is_none() {
        found.violation(udf.path_of("container.image"), "is missing; a reduce vertex with a container needs an image");
    }
    if let Some(window) = group.object(found, "window") {
        self::window(found, &window);
    } else if !group.has("window") {
        found.violation(group.path_of("window"), "is missing; choose fixed, sliding, session or accumulator");
    }
    if let Some(storage) = group.object(found, "storage") {
        self::storage(found, &storage);
    } else if !group.has("storage") {
        found.violation(group.path_of("storage"), "is missing; choose persistentVolumeClaim, emptyDir or no_store");
    }
    Some(group.flag(found, "keyed").unwrap_or_default())
}

fn window(found: &mut Findings, window: &Place<'_>) {
    let kinds = [("fixed", &["length"][..]), ("sliding", &["length", "slide"]), ("session", &["timeout"])];
    let all = ["fixed", "sliding", "session", "accumulator"];
    if !all.iter().any(|kind| window.has(kind)) {
        found.violation(window.path.clone(), "says no kind of window; choose fixed, sliding, session or accumulator");
    }
    if window.has("fixed") && window.has("sliding") {
        found.violation(window.path.clone(), "has fixed and sliding; choose one of them");
    } else if window.has("session") && (window.has("fixed") || window.has("sliding")) {
        found.warning(window.path.clone(), format!("has session and another kind; {REFUSED}"));
    }
    for (kind, fields) in kinds {
        let Some(window) = window.object(found, kind) else { continue };
        for field in fields {
            if !window.has(field) {
                found.violation(window.path_of(field), "is missing");
            }
        }
    }
}

fn storage(found: &mut Findings, storage: &Place<'_>) {
    let all = ["persistentVolumeClaim", "emptyDir", "no_store"];
    if !all.iter().any(|kind| storage.has(kind)) {
        found.violation(
            storage.path.clone(),
            "says no kind of storage; choose persistentVolumeClaim, emptyDir or no_store",
        );
    }
    if storage.has("persistentVolumeClaim") && storage.has("emptyDir") {
        found.violation(storage.path.clone(), "has persistentVolumeClaim and emptyDir; choose one of them");
    } else if !storage.has("persistentVolumeClaim") {
        let words =
            "without a persistentVolumeClaim, what is being reduced is lost whenever its pod goes, for a pause too";
        found.warning(storage.path.clone(), words);
    }
}

/// What a sink says.
pub(super) fn sink(found: &mut Findings, sink: &Place<'_>) {
    if sink.value.as_object().is_some_and(serde_json::Map::is_empty) {
        found.warning(sink.path.clone(), "says no kind of sink; no message will ever go into it");
    }
    if let Some(own) = sink.object(found, "udsink") {
        image(found, &own);
    }
    let retries = sink.object(found, "retryStrategy");
    if retries.is_some_and(|retries| retries.get("onFailure") == "fallback") && !sink.has("fallback") {
        let words = format!("is fallback, and there is no {}; {REFUSED}", sink.path_of("fallback"));
        found.warning(sink.path_of("retryStrategy.onFailure"), words);
    }
}

/// Something that a container of the user's is run for, or a function that came with versions of Numaflow before 1.5.
pub(super) fn image_or_builtin(found: &mut Findings, place: &Place<'_>) {
    if image(found, place).is_none() && !place.has("builtin") {
        found.violation(place.path_of("container.image"), "is missing; Numaflow needs an image to run");
    }
}

/// The image of a container of the user's.
pub(super) fn image<'v>(found: &mut Findings, place: &Place<'v>) -> Option<&'v str> {
    let wrong = found.violations.len();
    let image = place.object(found, "container").and_then(|container| container.text(found, "image"));
    // Of another kind, that was said.
    if found.violations.len() > wrong { Some("") } else { image }
}

/// Containers that run beside those of Numaflow.
pub(super) fn containers(found: &mut Findings, place: &Place<'_>, field: &str) {
    for container in place.objects(found, field) {
        let Some(name) = container.text(found, "name") else { continue };
        if RESERVED.contains(&name) {
            found.violation(
                container.path_of("name"),
                format!("{} is the name of a container of Numaflow's own; choose another", quoted(name)),
            );
        }
    }
}

/// What is wrong with the number of replicas, where there can be none.
pub(super) fn scale(found: &mut Findings, scale: &Place<'_>) -> Option<Finding> {
    let (least, most) = (scale.number(found, "min").unwrap_or(0), scale.number(found, "max"));
    let message = if least < 0 {
        format!("{least} is less than 0")
    } else if let Some(most) = most.filter(|most| *most < least) {
        format!("{least} is more than max, {most}")
    } else if most.is_none() && least > MOST_REPLICAS {
        format!("{least} is more than the {MOST_REPLICAS} that Numaflow allows where max is not set")
    } else {
        return None;
    };
    Some(Finding { field: scale.path_of("min"), message })
}
