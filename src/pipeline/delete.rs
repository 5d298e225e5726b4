//! A PipelineRollout that is being deleted: its pipeline goes first, drained by Numaflow. Pure.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::{
    api::{ANNOTATION_FORCE, LABEL_POKE, LastForce},
    finalizer::release,
    numaflow::LivePipeline,
    pipeline::decide::Turn,
    plan::{Plan, Step},
    summary::deleting,
    words::{held_by, list},
    wrapped::PIPELINE,
};

/// What a force annotation ends here.
const DELETION: &str = "the deletion";

/// Deletes the pipeline, waits until it is gone, then lets go.
pub(super) fn decide(mut turn: Turn<'_>) -> Plan {
    let s = turn.s;
    let forced = turn.annotation(ANNOTATION_FORCE).map(str::to_owned);
    let staying: Vec<_> = s.children.values().filter(|c| !c.deleting).collect();
    let refusal = turn.refusal();
    if !staying.is_empty() && refusal.is_none() {
        let delete = |c: &&Arc<LivePipeline>| Step::DeleteNumaflow { kind: PIPELINE.kind, object: c.version.clone() };
        return Plan::of(staying.iter().map(delete).collect());
    }
    if s.children.is_empty() && s.served && s.unknown.is_empty() {
        let mut steps = turn.wake_isb_services();
        let refused = turn.s.learned.steering_refusal().filter(|r| r.reason != "Forbidden");
        if let (Some(refusal), false, None) = (refused, steps.is_empty(), &forced) {
            // It is asked for again: one that was refused once would leave the service there for a quarter of an hour.
            let words = "being deleted, waiting for the server to let an ISB service know that its pipeline is gone";
            let words = format!("{words}; it says: {}", refusal.message);
            return write(turn, &words);
        }
        steps.retain(|_| turn.s.learned.steering_refusal().is_none());
        steps.push(release(&s.rollout.metadata));
        return Plan::of(steps);
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
    let name = |c: &Arc<LivePipeline>| format!("Pipeline/{}{}", c.version.name, held_by(&c.finalizers));
    let names: Vec<String> = s.children.values().map(name).collect();
    let mut words = format!("being deleted, waiting for {} to be drained and gone", list(&names, 5));
    if s.children.values().any(|child| turn.is_gone(child)) {
        words = format!("{words}; no pod of its controller is available, and without one it does not go");
    }
    if !s.served {
        "being deleted, waiting for the API server to serve Pipelines, to see whether one is left"
            .clone_into(&mut words);
    }
    if let Some(refusal) = refusal {
        words = format!("{words}; the server says: {}", refusal.message);
    }
    write(turn, &words)
}

impl Turn<'_> {
    /// Nothing else wakes Numaflow about an ISB service that was to go and had to wait for a pipeline that is gone.
    pub(super) fn wake_isb_services(&self) -> Vec<Step> {
        let poke = Arc::new(json!({"metadata": {"labels": {LABEL_POKE: self.now.as_second().to_string()}}}));
        let leaving = self.s.isb.values().filter(|isb| isb.deleting);
        leaving
            .map(|isb| Step::PatchNumaflow {
                kind: "InterStepBufferService",
                object: isb.version.clone().of_any_state(),
                patch: poke.clone(),
                why: "a pipeline that it had to wait for is gone",
            })
            .collect()
    }
}

fn write(mut turn: Turn<'_>, message: &str) -> Plan {
    deleting(&mut turn.next, message, turn.now);
    turn.next.pause_requests = Vec::new();
    let mut plan = Plan::default();
    if turn.next != turn.stored {
        plan.steps.push(Step::WritePipelineStatus { status: Box::new(turn.next), events: Vec::new() });
    }
    plan
}
