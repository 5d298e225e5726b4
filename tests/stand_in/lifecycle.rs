//! How a pipeline pauses, runs again and goes: the part of a pass that comes last.

use std::time::Duration;

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    kinds::Kind,
    knobs::{Daemon, PREFIX, Wedge},
    pipeline::{Look, Memory, finish, note, old, write},
    vertices::{desired, set_desired},
    view::{
        After, Draft, PAUSE_TIMESTAMP, Pass, Step, VERTEX_NAME, asked, finalizer, generation, in_group, list, number,
        text, written,
    },
};

/// What is done about pausing or running, writing the status included, and when to look again.
///
/// A pipeline whose phase is the one that is wanted is left alone, whatever else is to be seen of it.
pub fn step(
    look: &Look,
    mut draft: Draft,
    vertices: &[DynamicObject],
    lifecycle_change: bool,
    memory: &mut Memory,
) -> (Vec<Step>, After) {
    let wanted = desired(look.pipeline);
    if let Some((_, wedge)) = memory.wedged.filter(|(at, _)| *at == generation(look.pipeline)) {
        // As if this were seen already: what is still seen may be from before.
        draft.set("phase", wanted);
        draft.set("drainedOnPause", wedge == Wedge::Paused);
        return (vec![write(look, finish(draft, look))], After::Rest);
    }
    if !lifecycle_change || text(look.pipeline, "/status/phase") == wanted {
        return (vec![write(look, finish(draft, look))], After::Rest);
    }
    let asked_for = asked(look.pipeline).wedge;
    memory.wedged = None;
    match (wanted, asked_for) {
        ("Paused", Some(Wedge::Paused)) => {
            let mut steps = set_desired(vertices, |_| true, "Running", false);
            steps.push(used_up(look));
            steps.extend(pause_time(look).is_some().then(|| note(look, None)));
            draft.phase("Paused", "");
            draft.set("drainedOnPause", true);
            memory.wedged = Some((generation(look.pipeline), Wedge::Paused));
            steps.push(write(look, finish(draft, look)));
            (steps, After::Rest)
        }
        ("Running", Some(Wedge::Running)) => {
            let mut steps = set_desired(vertices, |v| is_source(look, v), "Paused", false);
            steps.extend(set_desired(vertices, |v| !is_source(look, v), "Running", false));
            steps.push(used_up(look));
            steps.extend(pause_time(look).is_none().then(|| note(look, Some(look.now))));
            draft.phase("Running", "");
            draft.set("drainedOnPause", false);
            memory.wedged = Some((generation(look.pipeline), Wedge::Running));
            steps.push(write(look, finish(draft, look)));
            (steps, After::Rest)
        }
        ("Paused", _) => pause(look, draft, vertices, memory),
        _ => {
            memory.paused_at = None;
            resume(look, draft, vertices)
        }
    }
}

fn pause(look: &Look, mut draft: Draft, vertices: &[DynamicObject], memory: &mut Memory) -> (Vec<Step>, After) {
    let tick = After::At(look.now + look.pace.tick);
    let Some(began) = pause_time(look) else {
        let mut steps = set_desired(vertices, |v| is_source(look, v), "Paused", false);
        steps.push(note(look, Some(look.now)));
        memory.paused_at = Some(look.now);
        // The object is read back when the annotation is written, so that phase and generation are the old ones.
        steps.push(again(look, json!({})));
        return (steps, tick);
    };
    draft.phase("Pausing", "Pausing in progress");
    let grace = number(look.pipeline, "/spec/lifecycle/pauseGracePeriodSeconds").unwrap_or(30);
    let over = look.now > began + seconds(grace);
    let source_pods = look.pods.iter().any(|pod| {
        let vertex = pod.labels().get(VERTEX_NAME).map(String::as_str).unwrap_or_default();
        sources(look).any(|name| name == vertex)
    });
    let mut steps = Vec::new();
    let drained = !source_pods && {
        let (answer, busy) = ask(look, memory);
        steps.extend(busy.map(Step::Wait));
        answer == Some(true)
    };
    if asked(look.pipeline).never_pauses || !(drained || over) {
        steps.push(write(look, finish(draft, look)));
        return (steps, tick);
    }
    steps.extend(set_desired(vertices, |_| true, "Paused", false));
    if drained {
        draft.set("drainedOnPause", true);
    }
    draft.phase("Paused", "Pipeline paused");
    steps.push(write(look, finish(draft, look)));
    (steps, After::Rest)
}

fn resume(look: &Look, mut draft: Draft, vertices: &[DynamicObject]) -> (Vec<Step>, After) {
    let noted = pause_time(look).is_some() || look.pipeline.annotations().contains_key(PAUSE_TIMESTAMP);
    let mut steps = Vec::new();
    steps.extend(noted.then(|| note(look, None)));
    let slow = look.pipeline.annotations().get(&in_group("resume-strategy")).is_some_and(|value| value == "slow");
    steps.extend(set_desired(vertices, |_| true, "Running", slow));
    if noted {
        // Read back, as when a pause begins. The vertices that were changed are the reason for the next pass.
        steps.push(again(look, json!({"phase": "Running", "message": "", "drainedOnPause": null})));
        return (steps, After::Rest);
    }
    draft.phase("Running", "");
    draft.set("drainedOnPause", false);
    steps.push(write(look, finish(draft, look)));
    (steps, After::Rest)
}

/// A pass over a pipeline that is being deleted.
pub fn delete(look: &Look) -> Pass {
    let pipeline = look.pipeline;
    let name = in_group("pipeline-controller");
    let Some(release) = finalizer(Kind::Pipeline, pipeline, &name, false) else { return Pass::NOTHING };
    let since = pipeline.metadata.deletion_timestamp.as_ref().map_or(look.now, |time| time.0);
    let grace = number(pipeline, "/spec/lifecycle/deletionGracePeriodSeconds")
        .or_else(|| number(pipeline, "/spec/lifecycle/deleteGracePeriodSeconds"))
        .or(pipeline.metadata.deletion_grace_period_seconds)
        .unwrap_or(30);
    if look.now < since + seconds(grace) {
        let mut status = old(look);
        status.insert("phase".to_owned(), "Deleting".into());
        status.insert("message".to_owned(), "Deleting in progress".into());
        let all: Vec<DynamicObject> = look.vertices.iter().map(|v| v.as_ref().clone()).collect();
        let mut steps = set_desired(&all, |v| is_source(look, v), "Paused", false);
        let tick = After::At(look.now + look.pace.tick);
        if !steps.is_empty() {
            steps.push(write(look, status));
            return Pass { steps, after: tick };
        }
        let (answer, busy) = ask(look, look.memory);
        steps.extend(busy.map(Step::Wait));
        match answer {
            Some(true) => {}
            Some(false) => {
                steps.push(write(look, status));
                return Pass { steps, after: tick };
            }
            None => {
                steps.push(write(look, status));
                return Pass { steps, after: After::Retry };
            }
        }
    }
    let mut steps = vec![release];
    // What garbage collection does, which may take half a minute to notice a kind that is new.
    steps.extend(look.vertices.iter().map(|v| Step::Delete(Kind::Vertex, v.name_any())));
    steps.extend(look.pods.iter().map(|p| Step::Delete(Kind::Pod, p.name_any())));
    Pass { steps, after: After::Rest }
}

/// Whether the buffers are empty, as the daemon says; nothing if it does not answer. And how long that takes.
fn ask(look: &Look, memory: &Memory) -> (Option<bool>, Option<Duration>) {
    let knobs = asked(look.pipeline);
    match knobs.daemon {
        Some(Daemon::Refused) => return (None, None),
        Some(Daemon::Hung) => return (None, Some(look.pace.hung)),
        None => {}
    }
    if memory.daemon.as_ref().is_some_and(|(_, ready)| *ready > look.now) {
        return (None, None);
    }
    let since = memory.paused_at.or_else(|| pause_time(look)).or_else(|| {
        let deleted = look.pipeline.metadata.deletion_timestamp.as_ref();
        deleted.map(|time| time.0)
    });
    let drained = match (knobs.drains_after, since) {
        (Some(time), Some(since)) => look.now >= since + time,
        _ => knobs.pending == 0,
    };
    (Some(drained), None)
}

/// The step that writes the status as it was read back.
fn again(look: &Look, fields: Value) -> Step {
    let Value::Object(mut fields) = fields else { return Step::Wait(Duration::ZERO) };
    fields.insert("lastUpdated".to_owned(), written(look.now).into());
    Step::StatusAgain(Kind::Pipeline, look.pipeline.name_any(), fields)
}

/// When the pause began, in whole seconds.
fn pause_time(look: &Look) -> Option<Timestamp> {
    look.pipeline.annotations().get(PAUSE_TIMESTAMP)?.parse().ok()
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or_default())
}

fn sources<'a>(look: &Look<'a>) -> impl Iterator<Item = &'a str> {
    let pipeline = look.pipeline;
    list(pipeline, "/spec/vertices").iter().filter(|v| v["source"].is_object()).filter_map(|v| v["name"].as_str())
}

fn is_source(look: &Look, vertex: &DynamicObject) -> bool {
    let name = text(vertex, "/spec/name");
    sources(look).any(|source| source == name)
}

/// The step that takes the knob of a wedge away: it is for one flip.
fn used_up(look: &Look) -> Step {
    let patch = json!({"metadata": {"annotations": {format!("{PREFIX}wedge"): null}}});
    Step::Merge(Kind::Pipeline, look.pipeline.name_any(), patch)
}
