//! A MonoVertexRollout that is being deleted: its MonoVertex goes first. Pure.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::decide::Turn;
use crate::{
    api::{ANNOTATION_FORCE, LastForce},
    finalizer::release,
    numaflow::LiveMonoVertex,
    plan::{Plan, Step},
    summary::deleting,
    words::{held_by, list},
    wrapped::MONO_VERTEX,
};

/// What a force annotation ends here.
const DELETION: &str = "the deletion";

/// Deletes the MonoVertex, waits until it is gone, then lets go. Nothing of Numaflow's holds it.
pub(super) fn decide(mut turn: Turn<'_>) -> Plan {
    let s = turn.s;
    let forced = turn.annotation(ANNOTATION_FORCE).map(str::to_owned);
    let refusal = turn.refusal();
    let staying: Vec<_> = s.children.values().filter(|c| !c.deleting).collect();
    if !staying.is_empty() && refusal.is_none() {
        let delete =
            |c: &&Arc<LiveMonoVertex>| Step::DeleteNumaflow { kind: MONO_VERTEX.kind, object: c.version.clone() };
        return Plan::of(staying.iter().map(delete).collect());
    }
    if s.children.is_empty() && s.served && s.unknown.is_empty() {
        return Plan::of(vec![release(&s.rollout.metadata)]);
    }
    // A text that was honoured before has done its work, unless that was this deletion.
    let used = turn.stored.last_force.clone();
    match forced.filter(|text| used.as_ref().is_none_or(|last| last.text != *text || last.ended == DELETION)) {
        Some(text) if used.is_none_or(|last| last.text != text) => {
            turn.next.last_force = Some(LastForce { text, ended: DELETION.to_owned(), at: Some(Time(turn.now)) });
            return write(turn, "being deleted by force");
        }
        Some(_) => return Plan::of(vec![release(&s.rollout.metadata)]),
        None => {}
    }
    let name = |c: &Arc<LiveMonoVertex>| format!("MonoVertex/{}{}", c.version.name, held_by(&c.finalizers));
    let names: Vec<String> = s.children.values().map(name).collect();
    let mut words = if !s.served {
        "being deleted, waiting for the API server to serve MonoVertices, to see whether one is left".to_owned()
    } else if names.is_empty() {
        format!("being deleted, waiting for {} to be listed", s.unknown.join(", "))
    } else {
        format!("being deleted, waiting for {} to be gone", list(&names, 5))
    };
    if let Some(refusal) = refusal {
        words = format!("{words}; the server says: {}", refusal.message);
    }
    write(turn, &words)
}

fn write(mut turn: Turn<'_>, message: &str) -> Plan {
    deleting(&mut turn.next, message, turn.now);
    let mut plan = Plan::default();
    if turn.next != turn.stored {
        plan.steps.push(Step::WriteMonoVertexStatus { status: Box::new(turn.next), events: Vec::new() });
    }
    plan
}
