//! What is left of Numaflow in a namespace that is being deleted: the finalizers of a controller that is gone with it would hold
//! the namespace for ever. What they protect goes with the namespace anyway. Pure.

use std::time::Duration;

use jiff::Timestamp;

use crate::{
    numaflow::Held,
    plan::{Plan, Step},
};

/// Time that a controller which is being ended itself may take for what it holds.
const PATIENCE: Duration = Duration::from_secs(40);

/// Kinds of Numaflow with the finalizers of its controllers: pipelines first, because the others wait for them.
const FINALIZERS: [(&str, &str); 2] = [
    ("Pipeline", "numaflow.numaproj.io/pipeline-controller"),
    ("InterStepBufferService", "numaflow.numaproj.io/isbsvc-controller"),
];

/// A namespace that is being deleted.
#[derive(Clone, Debug, Default)]
pub struct Leaving {
    /// Objects of Numaflow in it whose controller was ours: (kind, what holds it).
    pub objects: Vec<(&'static str, Held)>,
    /// Whether any controller of ours has pods in it.
    pub controllers: bool,
}

/// Releases what nobody is left to release.
#[must_use]
pub fn leave(leaving: &Leaving, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    for (kind, finalizer) in FINALIZERS {
        for (_, held) in leaving.objects.iter().filter(|(of, held)| of == &kind && is_held(held, finalizer)) {
            let waited = held.deleted_at.and_then(|at| Duration::try_from(now.duration_since(at)).ok());
            let left = PATIENCE.saturating_sub(waited.unwrap_or_default());
            if leaving.controllers || !left.is_zero() {
                let left = left.max(Duration::from_secs(1));
                plan.again_after = Some(plan.again_after.map_or(left, |known: Duration| known.min(left)));
            } else {
                plan.steps.push(Step::ReleaseNumaflow { kind, object: held.object.clone(), finalizer });
            }
        }
    }
    plan
}

fn is_held(held: &Held, finalizer: &str) -> bool {
    held.deleted_at.is_some() && held.finalizers.iter().any(|known| known == finalizer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaving(controllers: bool, finalizer: &str) -> Leaving {
        let held = Held {
            finalizers: vec![finalizer.to_owned()],
            deleted_at: Timestamp::from_second(100).ok(),
            ..Held::default()
        };
        Leaving { objects: vec![("Pipeline", held)], controllers }
    }

    #[test]
    fn a_namespace_is_not_held_by_the_finalizer_of_a_controller_that_went_with_it() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let ours = "numaflow.numaproj.io/pipeline-controller";
        assert_eq!(leave(&leaving(false, ours), at(200)).steps.len(), 1);
        let early = leave(&leaving(false, ours), at(110));
        assert_eq!((early.steps.len(), early.again_after), (0, Some(Duration::from_secs(30))));
        let alive = leave(&leaving(true, ours), at(200));
        assert_eq!((alive.steps.len(), alive.again_after), (0, Some(Duration::from_secs(1))), "it may do it itself");
        assert!(leave(&leaving(false, "somebody/else"), at(200)).steps.is_empty(), "not ours to remove");
    }
}
