//! What the spec of a NumaflowControllerRollout, or of a NumaflowController without one, must be like. What its version is
//! defined as is not asked here.

use super::{Findings, strategy};
use crate::{
    api::{NumaflowControllerRollout, RESERVED_INSTANCE_PREFIX, Strategy},
    names::is_label,
    words::quoted,
};

/// Looks at a spec; `field` is where version and instanceID stand in it: `spec.controller`, or `spec`.
#[must_use]
pub fn controller(rollout: &NumaflowControllerRollout, field: &str) -> Findings {
    let mut found = Findings::default();
    let controller = &rollout.spec.controller;
    let instance = controller.instance();
    if controller.version.trim().is_empty() {
        found.violation(format!("{field}.version"), "is empty; set one of the defined versions");
    }
    if !instance.is_empty() && (instance.len() > 20 || !is_label(instance)) {
        found.violation(
            format!("{field}.instanceID"),
            format!(
                "{} is not a DNS label of at most 20 characters (lower-case letters, digits and '-')",
                quoted(instance)
            ),
        );
    } else if instance.starts_with(RESERVED_INSTANCE_PREFIX) {
        found.violation(
            format!("{field}.instanceID"),
            format!(
                "{instance:?} begins with {RESERVED_INSTANCE_PREFIX:?}, which is kept for isolated copies; choose another"
            ),
        );
    }
    let Some(spec) = &rollout.spec.strategy else { return found };
    let kind = spec.kind.as_deref().map(Strategy::read);
    if let Some(Err(words)) = &kind {
        found.violation("spec.strategy.type", words.as_str());
    }
    strategy::assessment(&mut found, spec.assessment.as_ref(), true);
    if let Some(ppnd) = &spec.ppnd {
        strategy::ppnd(&mut found, ppnd.drain_timeout.as_ref(), ppnd.on_drain_timeout.as_deref());
        if let Some(kind) = kind.and_then(Result::ok).filter(|kind| *kind != Strategy::PauseAndDrain) {
            let words =
                format!("has no effect: {} pauses no pipelines; use pause-and-drain, or remove this", kind.as_str());
            found.warning("spec.strategy.ppnd", words);
        }
    }
    if spec.force_promote == Some(true) {
        let words = "is honoured for one attempt, which then proves nothing before it is promoted; set it back to false after that";
        found.warning("spec.strategy.forcePromote", words);
    }
    found
}
