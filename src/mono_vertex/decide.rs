//! What to do next for one MonoVertexRollout. Pure: a snapshot and the time; it cannot fail.

use jiff::Timestamp;

use super::snapshot::Snapshot;
use crate::{
    finalizer::{Hold, release},
    plan::Plan,
};

/// Decides the next steps.
#[must_use]
pub fn decide(snapshot: &Snapshot, _now: Timestamp) -> Plan {
    match Hold::of(&snapshot.rollout.metadata, snapshot.namespace_terminating) {
        Hold::First(plan) => plan,
        Hold::Deleting => Plan::of(vec![release(&snapshot.rollout.metadata)]),
        Hold::Held => Plan::default(),
    }
}
