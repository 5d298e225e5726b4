//! The side inputs of a pipeline, and the vertices that read them.

use std::collections::{BTreeMap, HashSet};

use super::{
    Findings,
    names::{self, Called, nearest},
    place::Place,
    vertex::image,
    vertices::Vertex,
};
use crate::{
    names::is_subdomain,
    words::{meant, quoted},
};

/// Looks at the side inputs of a pipeline. `reported` is by how many characters the name of the pipeline is too long.
pub(super) fn side_inputs(
    found: &mut Findings,
    spec: &Place<'_>,
    vertices: &[Vertex<'_>],
    called: &Called,
    reported: usize,
) {
    let mut defined: BTreeMap<&str, String> = BTreeMap::new();
    for place in spec.objects(found, "sideInputs") {
        if let Some(name) = place.text(found, "name") {
            let field = place.path_of("name");
            if !is_subdomain(name) {
                let words = "is no DNS name, and Deployments have one: use lower-case letters, digits and '-'";
                found.violation(field.as_str(), format!("{} {words}", quoted(name)));
            }
            names::side_input(found, called, &place, name, reported);
            if let Some(first) = defined.get(name) {
                let words =
                    format!("{} is the name of {first} too; every side input needs one of its own", quoted(name));
                found.violation(field, words);
            } else {
                defined.insert(name, place.path.clone());
            }
        } else if place.lacks("name") {
            found.violation(place.path_of("name"), "is missing; every side input needs a name");
        }
        if image(found, &place).is_none() {
            found.violation(place.path_of("container.image"), "is missing; a side input needs an image");
        }
        if let Some(trigger) = place.object(found, "trigger") {
            if let Some(schedule) = trigger.text(found, "schedule").filter(|schedule| !is_schedule(schedule)) {
                let words = format!("{} is no cron expression, and nothing like \"@every 5m\"", quoted(schedule));
                found.warning(trigger.path_of("schedule"), words);
            }
            if trigger.lacks("schedule") {
                found.violation(trigger.path_of("schedule"), "is missing; say when it is read, like \"@every 5m\"");
            }
        } else if place.lacks("trigger") {
            let words = "is missing; say when it is read, like {schedule: \"@every 5m\"}";
            found.violation(place.path_of("trigger"), words);
        }
    }
    for vertex in vertices {
        let mut read = HashSet::new();
        for place in vertex.place.list(found, "sideInputs") {
            let Some(name) = place.value.as_str() else {
                found.violation(place.path.clone(), "must be the name of a side input");
                continue;
            };
            if !defined.contains_key(name) {
                let hint = meant(nearest(found, name, defined.keys().copied()));
                found.violation(place.path, format!("no side input is called {}{hint}", quoted(name)));
            } else if !read.insert(name) {
                found.violation(place.path, format!("{} is here twice; remove one of them", quoted(name)));
            }
        }
    }
}

/// Whether a text may be a schedule: versions of Numaflow read cron expressions with other numbers of fields.
fn is_schedule(text: &str) -> bool {
    text.starts_with('@') || (5..=7).contains(&text.split_whitespace().count())
}
