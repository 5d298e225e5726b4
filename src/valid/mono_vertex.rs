//! What the spec of a MonoVertexRollout must be like.

use super::{
    Finding, Findings, names,
    names::Called,
    place::Place,
    slips::{self, OF_MONO_VERTEX},
    strategy, template,
    vertex::{self, REFUSED},
};
use crate::{api::MonoVertexRollout, wrapped::MONO_VERTEX};

/// Looks at a spec, for the MonoVertex that there is by the status, or for one that is to be made.
#[must_use]
pub fn mono_vertex(rollout: &MonoVertexRollout) -> Findings {
    let status = rollout.status.as_ref();
    let (child, count) = (status.map(|s| s.child.as_str()), status.and_then(|s| s.name_count));
    look(rollout, &Called::by_status(&rollout.metadata, child, count))
}

/// Looks at a spec, for a MonoVertex of this name.
#[must_use]
pub fn mono_vertex_called(rollout: &MonoVertexRollout, name: &str) -> Findings {
    look(rollout, &Called::now(name))
}

fn look(rollout: &MonoVertexRollout, called: &Called) -> Findings {
    let mut found = Findings::default();
    names::mono_vertex(&mut found, &rollout.metadata, called);
    let written = &rollout.spec.mono_vertex;
    template::metadata(&mut found, MONO_VERTEX, &rollout.metadata, written.metadata.as_ref(), &called.name);
    if let Some(filled) = template::filled(&mut found, MONO_VERTEX, &rollout.metadata, &written.spec, &called.name) {
        spec(&mut found, &Place::new(template::path_of(MONO_VERTEX), &filled));
    }
    strategy::riders(&mut found, &rollout.spec.riders);
    if let Some(spec) = &rollout.spec.strategy {
        let others = [("progressive", spec.progressive.as_ref()), ("analysis", spec.analysis.as_ref())];
        strategy::without_effect(&mut found, &others);
    }
    found
}

fn spec(found: &mut Findings, spec: &Place<'_>) {
    slips::fields(found, spec, &OF_MONO_VERTEX);
    template::lifecycle(found, spec);
    let replicas = spec.get("replicas");
    if !replicas.is_null() && replicas.as_u64().is_none_or(|n| i32::try_from(n).is_err()) {
        let words = format!("{} is not a number of replicas", super::place::kind_of(replicas));
        found.violation(spec.path_of("replicas"), words);
    }
    if let Some(source) = spec.object(found, "source") {
        vertex::source(found, &source);
        if source.has("serving") {
            found.violation(source.path_of("serving"), "a MonoVertex cannot have this source; choose another");
        }
    } else if !spec.has("source") {
        found.violation(spec.path_of("source"), "is missing; a MonoVertex needs a source and a sink");
    }
    if let Some(sink) = spec.object(found, "sink") {
        vertex::sink(found, &sink);
    } else if !spec.has("sink") {
        found.violation(spec.path_of("sink"), "is missing; a MonoVertex needs a source and a sink");
    }
    // What only some versions of Numaflow refuse.
    if let Some(udf) = spec.object(found, "udf") {
        if udf.has("groupBy") {
            found.warning(udf.path_of("groupBy"), format!("a MonoVertex reduces nothing; {REFUSED}"));
        } else if vertex::image(found, &udf).is_none() {
            found.warning(udf.path_of("container.image"), format!("is missing; {REFUSED}"));
        }
    }
    if let Some(scale) = spec.object(found, "scale") {
        let wrong = vertex::scale(found, &scale);
        found.warnings.extend(wrong.map(|wrong| Finding { message: format!("{}; {REFUSED}", wrong.message), ..wrong }));
    }
}
