//! What the spec of an ISBServiceRollout must be like.

use super::{
    Findings, names,
    names::Called,
    place::Place,
    slips::{self, OF_ISB_SERVICE, OF_JETSTREAM},
    strategy, template,
};
use crate::{api::IsbServiceRollout, wrapped::ISB_SERVICE};

/// Looks at a spec, for the ISB service that there is by the status, or for one that is to be made.
#[must_use]
pub fn isb_service(rollout: &IsbServiceRollout) -> Findings {
    let status = rollout.status.as_ref();
    let (child, count) = (status.map(|s| s.child.as_str()), status.and_then(|s| s.name_count));
    look(rollout, &Called::by_status(&rollout.metadata, child, count))
}

/// Looks at a spec, for an ISB service of this name.
#[must_use]
pub fn isb_service_called(rollout: &IsbServiceRollout, name: &str) -> Findings {
    look(rollout, &Called::now(name))
}

fn look(rollout: &IsbServiceRollout, called: &Called) -> Findings {
    let mut found = Findings::default();
    names::isb_service(&mut found, &rollout.metadata, called);
    let written = &rollout.spec.inter_step_buffer_service;
    template::metadata(&mut found, ISB_SERVICE, &rollout.metadata, written.metadata.as_ref(), &called.name);
    if let Some(filled) = template::filled(&mut found, ISB_SERVICE, &rollout.metadata, &written.spec, &called.name) {
        spec(&mut found, &Place::new(template::path_of(ISB_SERVICE), &filled));
    }
    strategy::riders(&mut found, &rollout.spec.riders);
    let Some(spec) = &rollout.spec.strategy else { return found };
    strategy::assessment(&mut found, spec.assessment.as_ref(), false);
    if let Some(ppnd) = &spec.ppnd {
        strategy::ppnd(&mut found, ppnd.drain_timeout.as_ref(), ppnd.on_drain_timeout.as_deref());
    }
    strategy::without_effect(&mut found, &[("progressive", spec.progressive.as_ref())]);
    found
}

fn spec(found: &mut Findings, spec: &Place<'_>) {
    slips::fields(found, spec, &OF_ISB_SERVICE);
    if spec.has("redis") {
        found.warning(spec.path_of("redis"), "Numaflow has no redis since 1.7; use jetstream");
    }
    let Some(jetstream) = spec.object(found, "jetstream") else {
        // Versions of Numaflow before 1.7 have redis as well.
        if !spec.has("jetstream") && spec.object(found, "redis").is_none() && !spec.has("redis") {
            found.violation(spec.path_of("jetstream"), "is missing; an ISB service needs jetstream with a version");
        }
        return;
    };
    slips::fields(found, &jetstream, &OF_JETSTREAM);
    if jetstream.text(found, "version").is_none() && jetstream.lacks("version") {
        found.violation(jetstream.path_of("version"), "is missing; choose one that your Numaflow controller has");
    }
    if let Some(replicas) = jetstream.number(found, "replicas").filter(|n| *n == 2 || *n < 1) {
        let words = format!("{replicas} replicas cannot agree; use 3 or 5, or 1 where nothing has to last");
        found.violation(jetstream.path_of("replicas"), words);
    }
    for field in ["settings", "bufferConfig"] {
        jetstream.text(found, field);
    }
}
