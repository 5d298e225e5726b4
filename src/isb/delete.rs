//! An ISBServiceRollout that is being deleted: its ISB services go after the pipelines that use them. Pure.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::decide::Turn;
use crate::{
    api::{ANNOTATION_FORCE, LastForce},
    finalizer::release,
    numaflow::LiveIsb,
    plan::{Plan, Step},
    summary::deleting,
    words::{held_by, list},
    wrapped::ISB_SERVICE,
};

/// What a force annotation ends here.
const DELETION: &str = "the deletion";

/// Waits for pipelines, deletes the ISB services, waits until they are gone, then lets go.
pub(super) fn decide(mut turn: Turn<'_>) -> Plan {
    let s = turn.s;
    let refused = turn.refusal().cloned();
    let forced = turn.s.rollout.metadata.annotations.as_ref().and_then(|a| a.get(ANNOTATION_FORCE)).cloned();
    let forced = forced.filter(|text| !text.is_empty());
    // A text that was honoured before has done its work, unless that was this deletion.
    let used = turn.stored.last_force.clone();
    let forced = forced.filter(|text| used.as_ref().is_none_or(|last| last.text != *text || last.ended == DELETION));
    let staying: Vec<&Arc<LiveIsb>> = s.children.values().filter(|c| !c.deleting).collect();
    let delete = |services: &[&Arc<LiveIsb>]| {
        let step = |c: &&Arc<LiveIsb>| Step::DeleteNumaflow { kind: ISB_SERVICE.kind, object: c.version.clone() };
        Plan::of(services.iter().map(step).collect())
    };
    if let Some(text) = forced {
        if used.is_none_or(|last| last.text != text) {
            turn.next.last_force = Some(LastForce { text, ended: DELETION.to_owned(), at: Some(Time(turn.now)) });
            return write(turn, "being deleted by force");
        }
        if !staying.is_empty() && refused.is_none() {
            return delete(&staying);
        }
        return Plan::of(vec![release(&s.rollout.metadata)]);
    }
    if !s.served {
        return write(
            turn,
            "being deleted, waiting for the API server to serve InterStepBufferServices, to see whether one is left",
        );
    }
    if !s.unknown.is_empty() {
        let mut unknown = s.unknown.clone();
        if unknown.is_empty() {
            unknown.push("Pipelines".to_owned());
        }
        let words = format!("being deleted, waiting for {} to be listed", list(&unknown, 5));
        return write(turn, &words);
    }
    let mut users: Vec<String> = Vec::new();
    for service in s.children.keys() {
        users.extend(turn.users_of(service).iter().map(|p| format!("Pipeline/{}", p.name)));
    }
    if !users.is_empty() {
        let words = format!("being deleted, waiting for what uses it to be gone: {}", list(&users, 5));
        return write(turn, &words);
    }
    if !staying.is_empty() && refused.is_none() {
        return delete(&staying);
    }
    if s.children.is_empty() {
        return Plan::of(vec![release(&s.rollout.metadata)]);
    }
    let name = |c: &Arc<LiveIsb>| format!("InterStepBufferService/{}{}", c.version.name, held_by(&c.finalizers));
    let names: Vec<String> = s.children.values().map(name).collect();
    let mut words = format!("being deleted, waiting for {} to be gone", list(&names, 5));
    if turn.gone(turn.instance()).is_some() {
        words = format!("{words}; no pod of its controller is available, and without one it does not go");
    }
    if let Some(refusal) = refused {
        words = format!("{words}; the server says: {}", refusal.message);
        return write(turn, &words);
    }
    let going: Vec<&Arc<LiveIsb>> = s.children.values().collect();
    let steps: Vec<Step> = going.into_iter().filter_map(|service| turn.nudge(service)).collect();
    let again = turn.again_after;
    let mut plan = write(turn, &words);
    if plan.steps.is_empty() {
        plan.steps = steps;
    }
    plan.again_after = again;
    plan
}

fn write(mut turn: Turn<'_>, message: &str) -> Plan {
    turn.in_status().withdraw();
    turn.next.change = None;
    deleting(&mut turn.next, message, turn.now);
    let mut plan = Plan::default();
    if Some(&turn.next) != turn.s.rollout.status.as_ref() {
        plan.steps.push(Step::WriteIsbServiceStatus { status: Box::new(turn.next), events: Vec::new() });
    }
    plan
}
