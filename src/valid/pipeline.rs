//! What the spec of a PipelineRollout must be like.

use super::{
    Findings, edges, names,
    names::Called,
    place::Place,
    side_inputs,
    slips::{self, OF_PIPELINE},
    strategy, template,
    vertex::REFUSED,
    vertices,
};
use crate::{api::PipelineRollout, names::is_subdomain, words::quoted, wrapped::PIPELINE};

/// Looks at a spec, for the pipeline that there is by the status, or for one that is to be made.
#[must_use]
pub fn pipeline(rollout: &PipelineRollout) -> Findings {
    let status = rollout.status.as_ref();
    let (child, count) = (status.map(|s| s.child.as_str()), status.and_then(|s| s.name_count));
    look(rollout, &Called::by_status(&rollout.metadata, child, count))
}

/// Looks at a spec, for a pipeline of this name.
#[must_use]
pub fn pipeline_called(rollout: &PipelineRollout, name: &str) -> Findings {
    look(rollout, &Called::now(name))
}

fn look(rollout: &PipelineRollout, called: &Called) -> Findings {
    let mut found = Findings::default();
    let too_long = names::pipeline(&mut found, &rollout.metadata, called);
    let written = &rollout.spec.pipeline;
    template::metadata(&mut found, PIPELINE, &rollout.metadata, written.metadata.as_ref(), &called.name);
    if let Some(filled) = template::filled(&mut found, PIPELINE, &rollout.metadata, &written.spec, &called.name) {
        spec(&mut found, &Place::new(template::path_of(PIPELINE), &filled), called, too_long);
    }
    strategy::riders(&mut found, &rollout.spec.riders);
    let Some(spec) = &rollout.spec.strategy else { return found };
    if let Some(ppnd) = &spec.ppnd {
        strategy::ppnd(&mut found, ppnd.drain_timeout.as_ref(), ppnd.on_drain_timeout.as_deref());
    }
    let (progressive, analysis, recycling) = (&spec.progressive, &spec.analysis, &spec.recycle_strategy);
    let others = [("progressive", progressive), ("analysis", analysis), ("recycleStrategy", recycling)];
    strategy::without_effect(&mut found, &others.map(|(name, value)| (name, value.as_ref())));
    found
}

fn spec(found: &mut Findings, spec: &Place<'_>, called: &Called, too_long: usize) {
    slips::fields(found, spec, &OF_PIPELINE);
    if let Some(name) = spec.text(found, "interStepBufferServiceName").filter(|name| !is_subdomain(name)) {
        let words = "is no name that an ISB service can have: use lower-case letters, digits and '-'";
        found.violation(spec.path_of("interStepBufferServiceName"), format!("{} {words}", quoted(name)));
    }
    if let Some(lifecycle) = template::lifecycle(found, spec) {
        let fields = [
            ("pauseGracePeriodSeconds", 0),
            ("deletionGracePeriodSeconds", i64::MIN),
            ("deleteGracePeriodSeconds", i64::MIN),
        ];
        for (field, least) in fields {
            let seconds = lifecycle.get(field);
            if !seconds.is_null() && seconds.as_i64().is_none_or(|seconds| seconds < least) {
                let words = format!("{} is not a number of seconds", super::place::kind_of(seconds));
                found.violation(lifecycle.path_of(field), words);
            }
        }
        if lifecycle.get("pauseGracePeriodSeconds") == 0 {
            let words =
                "0: a pause waits for nothing to be processed; what is in its buffers stays there until it is resumed";
            found.warning(lifecycle.path_of("pauseGracePeriodSeconds"), words);
        }
        if lifecycle.has("deletionGracePeriodSeconds") && lifecycle.has("deleteGracePeriodSeconds") {
            let words =
                "has no effect: it is the old name of deletionGracePeriodSeconds, which is there too; remove it";
            found.warning(lifecycle.path_of("deleteGracePeriodSeconds"), words);
        }
    }
    if let Some(idle) = spec.object(found, "watermark").and_then(|watermark| watermark.object(found, "idleSource")) {
        for field in ["threshold", "incrementBy"].into_iter().filter(|field| !idle.has(field)) {
            found.warning(idle.path_of(field), format!("is missing; {REFUSED}"));
        }
    }
    let vertices = vertices::vertices(found, spec, called, too_long);
    edges::edges(found, spec, &vertices);
    side_inputs::side_inputs(found, spec, &vertices, called, too_long);
}
