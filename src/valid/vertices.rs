//! The vertices of a pipeline, each by itself.

use std::collections::HashMap;

use super::{
    Findings,
    names::{self, Called},
    place::Place,
    slips::{self, OF_VERTEX},
    vertex::{self, REFUSED},
};
use crate::{
    names::{LONGEST_LABEL, is_dns_1035},
    words::quoted,
};

/// The parts of which a vertex has one.
const ROLES: [&str; 3] = ["source", "udf", "sink"];

/// What a vertex is in its pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Where messages come from.
    Source,
    /// What makes others of them.
    Function {
        /// Whether it reduces many to one.
        reduces: bool,
    },
    /// Where they go.
    Sink,
    /// None of these, or several.
    Unclear,
}

/// A vertex.
#[derive(Debug)]
pub(super) struct Vertex<'v> {
    pub place: Place<'v>,
    /// Its name, if it has one.
    pub name: Option<&'v str>,
    pub role: Role,
}

/// Looks at the vertices of a pipeline; answers them. `reported` is by how many characters the name of the pipeline is too long.
pub(super) fn vertices<'v>(
    found: &mut Findings,
    spec: &Place<'v>,
    called: &Called,
    reported: usize,
) -> Vec<Vertex<'v>> {
    let written = spec.objects(found, "vertices");
    if spec.lacks("vertices") {
        found
            .violation(spec.path_of("vertices"), "is empty; a pipeline needs a source, a sink, and edges between them");
    }
    if written.is_empty() {
        return Vec::new();
    }
    let mut names: HashMap<&str, String> = HashMap::new();
    let mut vertices = Vec::new();
    for place in written {
        slips::fields(found, &place, &OF_VERTEX);
        let name = place.text(found, "name");
        if let Some(name) = name {
            self::name(found, &place, name, &mut names);
            names::vertex(found, called, &place, name, reported);
        } else if place.lacks("name") {
            found.violation(place.path_of("name"), "is missing; every vertex needs a name");
        }
        let role = role(found, &place, name);
        limits(found, &place, role);
        vertices.push(Vertex { place, name, role });
    }
    for (role, word) in [(Role::Source, "source"), (Role::Sink, "sink")] {
        if !vertices.iter().any(|v| v.role == role || (v.role == Role::Unclear && v.place.has(word))) {
            found.violation(
                spec.path_of("vertices"),
                format!("none of them is a {word}, and a pipeline needs one at least"),
            );
        }
    }
    vertices
}

fn name<'v>(found: &mut Findings, place: &Place<'v>, name: &'v str, names: &mut HashMap<&'v str, String>) {
    if name.len() > LONGEST_LABEL || !is_dns_1035(name) {
        found.violation(
            place.path_of("name"),
            format!(
                "{} is no DNS label: use at most 63 lower-case letters, digits and '-', beginning with a letter and ending with a \
                 letter or digit",
                quoted(name)
            ),
        );
    }
    if let Some(first) = names.get(name) {
        found.violation(
            place.path_of("name"),
            format!("{} is the name of {first} too; every vertex needs one of its own", quoted(name)),
        );
    } else {
        names.insert(name, place.path.clone());
    }
}

fn role(found: &mut Findings, place: &Place<'_>, name: Option<&str>) -> Role {
    let called = name.map_or("the vertex".to_owned(), |name| format!("vertex {}", quoted(name)));
    let written: Vec<&str> = ROLES.into_iter().filter(|role| place.has(role)).collect();
    let mut role = Role::Unclear;
    for part in &written {
        let Some(what) = place.object(found, part) else { continue };
        match *part {
            "source" => {
                vertex::source(found, &what);
                role = Role::Source;
            }
            "udf" => role = Role::Function { reduces: function(found, place, &what) },
            _ => {
                vertex::sink(found, &what);
                if what.has("serve") {
                    let words = format!("only ServingPipelines have this sink; {REFUSED}");
                    found.warning(what.path_of("serve"), words);
                }
                role = Role::Sink;
            }
        }
    }
    match written.as_slice() {
        [_] => role,
        [] => {
            let words = format!("{called} is no source, no udf and no sink; make it one of them");
            found.violation(place.path.clone(), words);
            Role::Unclear
        }
        several => {
            let words = format!("{called} has {}; it can be one of them only", several.join(" and "));
            found.violation(place.path.clone(), words);
            Role::Unclear
        }
    }
}

/// Whether a function reduces; only one with keys can be in several partitions.
fn function(found: &mut Findings, place: &Place<'_>, udf: &Place<'_>) -> bool {
    let Some(keyed) = vertex::udf(found, udf) else { return udf.get("groupBy").is_object() };
    if !keyed && place.get("partitions").as_i64().is_some_and(|partitions| partitions > 1) {
        found.violation(
            place.path_of("partitions"),
            "a reduce vertex without keys has one partition; set udf.groupBy.keyed, or remove this",
        );
    }
    true
}

fn limits(found: &mut Findings, place: &Place<'_>, role: Role) {
    if let Some(scale) = place.object(found, "scale") {
        let wrong = vertex::scale(found, &scale);
        found.violations.extend(wrong);
        if scale.has("cron") && role != Role::Source {
            found.warning(scale.path_of("cron"), format!("only a source or a MonoVertex has this; {REFUSED}"));
        }
    }
    if let Some(partitions) = place.number(found, "partitions") {
        if partitions < 0 {
            found.violation(place.path_of("partitions"), format!("{partitions} is less than 0"));
        } else if partitions > 1 && role == Role::Source {
            found.violation(place.path_of("partitions"), "a source has one partition; remove this");
        }
    }
    for field in ["initContainers", "sidecars"] {
        vertex::containers(found, place, field);
    }
    if role == Role::Source && place.get("sidecars").as_array().is_some_and(|sidecars| !sidecars.is_empty()) {
        found.violation(place.path_of("sidecars"), "a source can have no sidecars; remove them");
    }
}
