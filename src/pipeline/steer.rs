//! Towards the wanted phase of a pipeline: whether it is safe to change it now, and when a change is settled. Pure.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{
    decide::Turn,
    want::{BY_SPEC, Want},
};
use crate::{
    api::{ANNOTATION_RESUME, PipelinePause, pausing},
    live::Version,
    numaflow::{GRACE, LivePipeline, Wedged, budget},
    plan::{Event, Step},
    time::{elapsed, not_before},
    words::list,
    wrapped::PIPELINE,
};

/// Time between two looks at the pods of a pipeline that is pausing, and what each pipeline of its namespace adds to that.
const LOOK: Duration = Duration::from_millis(100);
const EACH: Duration = Duration::from_millis(5);
/// Time between two looks at the vertices of a pipeline that is Failed.
const LOOK_AT_FAILED: Duration = Duration::from_secs(10);
/// Time in which nothing is said about what a pause waits for.
const FRESH: Duration = Duration::from_secs(3);

/// How the wanted phase stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Steering {
    /// It is as it should be, and settled.
    Settled,
    /// It is changed now, or looked at.
    Steps(Vec<Step>),
    /// It is as it should be, and not settled: what is waited for.
    Waiting(Vec<String>),
    /// It should be changed, and that is not safe now: what is waited for.
    Unsafe(String),
}

impl Turn<'_> {
    /// Brings the wanted phase to what it should be, as far as that is safe, and keeps record of the pause.
    pub(super) fn steer(&mut self, child: &LivePipeline, want: &Want) -> Steering {
        match (want.paused, child.wants_paused()) {
            (true, false) => {
                self.begin(want);
                if let Some(pause) = self.next.pause.as_mut() {
                    // Settled no longer, if it was: somebody else had it run.
                    pause.unsettle();
                }
                if !self.may_turn(child, true) {
                    return Steering::Unsafe(self.not_safe(child, "running"));
                }
                self.turn_to(child, true, want, "asked to pause")
            }
            (true, true) => {
                self.begin(want);
                self.pausing(child, want)
            }
            (false, true) => {
                self.resuming(want);
                // A change that waited for the pause goes in first; see `applying`.
                if !self.may_turn(child, false) || self.waits_to_be_back(child) {
                    return Steering::Unsafe(self.not_safe(child, "paused"));
                }
                if self.change_goes_first(child, want) {
                    return Steering::Settled;
                }
                self.turn_to(child, false, want, "resumed")
            }
            (false, false) => self.running(child, want),
        }
    }

    /// Whether a change is applied before the pipeline is resumed: it is paused now, and the server has nothing against it.
    fn change_goes_first(&self, child: &LivePipeline, want: &Want) -> bool {
        let Ok(desired) = &self.desired else { return false };
        let settled = child.says_paused() && self.stored.pause.as_ref().is_some_and(|p| p.settled_at.is_some());
        settled
            && want.bypass.is_none()
            && child.applied() != Some(desired.wanted.hash.as_str())
            && self.refusal().is_none()
            && self.next.last_attempt.as_ref().is_none_or(|last| !self.is_of_now(last, desired))
    }

    /// The record of a pause that begins or goes on.
    fn begin(&mut self, want: &Want) {
        let now = not_before(self.now);
        let state = pausing::PAUSING.to_owned();
        // Of a pause that was on its way back, what is still to be done for it goes on.
        let added = self.next.pause.as_ref().map(|p| p.added.clone()).unwrap_or_default();
        let fresh = || PipelinePause { state, since: Some(now.clone()), added, ..PipelinePause::default() };
        let begun = self.next.pause.clone().filter(|p| p.state != pausing::RESUMING);
        if begun.is_none() {
            let times = self.next.pause_status.get_or_insert_default();
            times.last_pause_begin_time = Some(now.clone());
        }
        let mut pause = begun.unwrap_or_else(fresh);
        pause.asked_by.clone_from(&want.asked_by);
        pause.reason.clone_from(&want.reason);
        if want.own {
            if pause.own_since.is_none() {
                // The time of another change was another.
                (pause.own_since, pause.cut_at) = (Some(now), None);
            }
        } else if want.bypass.is_none() {
            pause.own_since = None;
        }
        self.next.pause = Some(pause);
    }

    /// The pause is wanted and asked for: is it settled?
    fn pausing(&mut self, child: &LivePipeline, want: &Want) -> Steering {
        let Some(mut pause) = self.next.pause.clone() else { return Steering::Settled };
        let strays = has_other_grace(child, want.grace);
        if pause.state == pausing::PAUSED {
            if strays && want.asked_by.iter().all(|by| by == BY_SPEC) && child.is_observed() {
                return self.change(child, grace_patch(want.grace), "grace period as its spec has it");
            }
            // It may fail while its ISB service is changed; it is paused for all that.
            return if child.is_observed() { Steering::Settled } else { Steering::Waiting(vec![self.to_look(child)]) };
        }
        if child.says_paused() {
            let Some(plane) = self.s.learned.planes.get(&child.version.name) else {
                return Steering::Steps(vec![Step::LookAtPipeline { name: child.version.name.clone() }]);
            };
            let (waiting, lost) = plane.not_paused(self.now);
            if waiting.is_empty() {
                self.settle(child, want, &mut pause, &lost);
                return Steering::Settled;
            }
            self.look_again(&pause);
            return Steering::Waiting(if self.is_fresh(&pause) { Vec::new() } else { waiting });
        }
        if strays {
            return self.change(child, grace_patch(want.grace), "grace period of its pause");
        }
        let grace = want.grace.unwrap_or(GRACE);
        let patience = budget(grace, self.s.pipelines);
        let waited = elapsed(pause.since.as_ref(), self.now);
        if waited < patience {
            self.again(patience.saturating_sub(waited));
        }
        if self.is_fresh(&pause) {
            return Steering::Waiting(Vec::new());
        }
        let mut words = if child.is_observed() {
            format!("Pipeline/{} to pause; it says {}", child.version.name, phase_of(child))
        } else {
            self.to_look(child)
        };
        if waited >= patience {
            words = format!("{words}; its controller does not seem to respond");
        }
        Steering::Waiting(vec![words])
    }

    /// Writes down that the pause is settled, and whether everything was processed.
    fn settle(&mut self, child: &LivePipeline, want: &Want, pause: &mut PipelinePause, lost: &[String]) {
        // As the beginning, in whole seconds.
        let now = not_before(self.now);
        pausing::PAUSED.clone_into(&mut pause.state);
        pause.settled_at = Some(now.clone());
        pause.drained = Some(child.drained);
        pause.not_drained.clear();
        pause.pods_left = lost.to_vec();
        if child.drained && !lost.is_empty() {
            let note = format!(
                "Pipeline/{} is paused and drained; pods that do not go: {}",
                child.version.name,
                list(lost, 3)
            );
            self.events.push(Event { warning: true, reason: "PodsLeft", note });
        }
        if !child.drained {
            let grace = child.grace().unwrap_or(GRACE);
            let mut why = if want.cut {
                "its time was up before everything was processed".to_owned()
            } else {
                format!(
                    "its grace period of {grace} s ended before everything was processed, or its daemon did not answer"
                )
            };
            if !lost.is_empty() {
                why = format!("{why}; pods that do not go: {}", list(lost, 3));
            }
            let note = format!("Pipeline/{} is paused, but not drained: {why}", child.version.name);
            self.events.push(Event { warning: true, reason: "NotDrained", note });
            pause.not_drained = why;
        }
        self.next.pause = Some(pause.clone());
        self.next.pause_status.get_or_insert_default().last_pause_phase_change_time = Some(now);
    }

    fn resuming(&mut self, want: &Want) {
        if let Some(pause) = self.next.pause.as_mut() {
            pausing::RESUMING.clone_into(&mut pause.state);
            if want.bypass.is_none() {
                pause.own_since = None;
            }
        }
    }

    /// It should run, and is told so.
    fn running(&mut self, child: &LivePipeline, want: &Want) -> Steering {
        let Some(pause) = self.next.pause.clone() else { return self.at_rest(child, want) };
        self.resuming(want);
        if child.is_observed() && child.phase == "Failed" && !want.late && pause.added.is_empty() {
            // What it waits for now is no pause of ours; but without a time stamp it would not know that its vertices are
            // still to be told to run.
            if child.paused_at().is_none() {
                let Some(plane) = self.s.learned.planes.get(&child.version.name) else {
                    return Steering::Steps(vec![Step::LookAtPipeline { name: child.version.name.clone() }]);
                };
                if !plane.not_running().is_empty() {
                    self.again(LOOK_AT_FAILED);
                    return Steering::Waiting(vec![format!(
                        "Pipeline/{}, which is Failed: {}",
                        child.version.name, child.message
                    )]);
                }
            }
            self.ended(pause);
            return Steering::Settled;
        }
        if !child.says_running() {
            return Steering::Waiting(vec![self.to_look(child)]);
        }
        let Some(plane) = self.s.learned.planes.get(&child.version.name) else {
            return Steering::Steps(vec![Step::LookAtPipeline { name: child.version.name.clone() }]);
        };
        let waiting = plane.not_running();
        if !waiting.is_empty() {
            self.look_again(&pause);
            return Steering::Waiting(vec![self.to_look(child)]);
        }
        // A slow resume takes the number away, which is as good as one.
        let left_alone =
            |v: &&crate::numaflow::VertexSeen| pause.added.contains(&v.name) && matches!(v.replicas, None | Some(0));
        let desired = self.readable().cloned();
        let steps: Vec<Step> = plane
            .vertices
            .iter()
            .filter(left_alone)
            .filter_map(|vertex| {
                let replicas = desired.as_ref().map(|d| d.least_replicas(&vertex.name));
                let replicas = replicas.filter(|n| *n > vertex.replicas.unwrap_or(1))?;
                Some(Step::PatchNumaflow {
                    kind: "Vertex",
                    object: Version { name: vertex.object.clone(), uid: vertex.uid.clone(), ..Version::default() },
                    patch: Arc::new(json!({"spec": {"replicas": replicas}})),
                    why: "added while paused, and not scaled by Numaflow",
                })
            })
            .collect();
        if !steps.is_empty() && self.s.learned.steering_refusal().is_none() {
            return Steering::Steps(steps);
        }
        if want.late {
            // The record says since when the change has waited: without it, it would wait for another pause.
            return Steering::Settled;
        }
        // Done once: whoever scales it to nothing afterwards means it.
        self.ended(pause);
        Steering::Settled
    }

    /// Nothing of ours is left on a pipeline that runs.
    fn at_rest(&mut self, child: &LivePipeline, want: &Want) -> Steering {
        let Some(desired) = self.readable() else { return Steering::Settled };
        // One that is written although nobody asks for it is removed with what else somebody added.
        let phase = desired.phase.as_ref().map(|phase| json!(phase)).filter(|p| Some(p) != child.written_phase());
        let grace = has_other_grace(child, want.grace);
        let why = match (&phase, grace) {
            (None, false) => return Steering::Settled,
            (None, true) => "grace period as its spec has it",
            (Some(_), _) => "wanted phase as its spec has it",
        };
        let mut patch = if grace { grace_patch(want.grace) } else { json!({}) };
        if let Some(phase) = phase {
            patch["spec"]["lifecycle"]["desiredPhase"] = phase;
        }
        self.change(child, patch, why)
    }

    /// A pause is over; its record stays.
    pub(super) fn ended(&mut self, pause: PipelinePause) {
        let now = Some(Time(self.now));
        self.next.pause = None;
        self.next.pause_status.get_or_insert_default().last_pause_end_time.clone_from(&now);
        self.next.last_pause = Some(PipelinePause { state: String::new(), ended_at: now, ..pause });
    }

    // ---- safety -------------------------------------------------------------------------------------------------

    /// Whether the wanted phase may be changed now. Two changes in quick succession wedge Numaflow for good.
    fn may_turn(&self, child: &LivePipeline, to_paused: bool) -> bool {
        let settled = if to_paused { child.says_running() } else { child.says_paused() };
        // The grace period of a pause that begins now must not count from an old time stamp.
        let back = child.may_turn_back() && !(to_paused && child.paused_at().is_some());
        // Without a time stamp it is the documented way out.
        let stripped = !to_paused && child.looks_wedged() == Some(Wedged::Paused);
        settled || back || stripped || (self.is_gone(child) && !child.is_observed())
    }

    fn not_safe(&self, child: &LivePipeline, from: &str) -> String {
        if child.is_observed() {
            format!("Pipeline/{} to be {from}, before that is changed; it says {}", child.version.name, phase_of(child))
        } else {
            self.to_look(child)
        }
    }

    pub(super) fn to_look(&self, child: &LivePipeline) -> String {
        let name = &child.version.name;
        if self.is_gone(child) {
            return format!("a controller to look at Pipeline/{name}; no pod of one is available");
        }
        let instance = child.instance();
        let whose = if instance.is_empty() { String::new() } else { format!(" of instance {instance:?}") };
        format!("Numaflow's controller{whose} to look at Pipeline/{name}")
    }

    /// The patch by which the wanted phase changes: that and the grace period, and nothing else.
    fn turn_to(&self, child: &LivePipeline, paused: bool, want: &Want, why: &'static str) -> Steering {
        let phase = if paused { json!("Paused") } else { self.phase_of_user() };
        let mut patch = json!({"spec": {"lifecycle": {"desiredPhase": phase}}});
        if has_other_grace(child, want.grace) {
            patch["spec"]["lifecycle"]["pauseGracePeriodSeconds"] = json!(want.grace);
        }
        if !paused && let Some(manner) = self.manner_of_resume() {
            patch["metadata"]["annotations"][ANNOTATION_RESUME] = json!(manner);
        }
        self.change(child, patch, why)
    }

    /// The wanted phase that the user's spec asks for, as it is patched.
    pub(super) fn phase_of_user(&self) -> Value {
        self.readable().and_then(|d| d.phase.clone()).map_or(Value::Null, |phase| json!(phase))
    }

    fn change(&self, child: &LivePipeline, patch: Value, why: &'static str) -> Steering {
        if !self.s.unknown.is_empty() {
            return Steering::Unsafe(format!("{} to be listed", self.s.unknown.join(", ")));
        }
        if let Some(refusal) = self.s.learned.steering_refusal() {
            return Steering::Unsafe(format!("the server, which says: {}", refusal.message));
        }
        let object = child.version.clone().of_any_state();
        Steering::Steps(vec![Step::PatchNumaflow { kind: PIPELINE.kind, object, patch: Arc::new(patch), why }])
    }

    /// How the pipeline comes back, unless its user says so with Numaflow's own annotation.
    fn manner_of_resume(&self) -> Option<&'static str> {
        let desired = self.readable()?;
        if desired.wanted.annotations.contains_key(ANNOTATION_RESUME) {
            return None;
        }
        let strategy = self.s.rollout.spec.strategy.clone().unwrap_or_default();
        let asked_by = self.stored.pause.as_ref().map(|p| p.asked_by.as_slice()).unwrap_or_default();
        let fast = if asked_by.iter().all(|by| by == BY_SPEC) {
            strategy.pause_resume.and_then(|r| r.fast_resume)
        } else {
            strategy.ppnd.and_then(|p| p.fast_resume)
        };
        Some(if fast == Some(true) { "fast" } else { "slow" })
    }

    /// Whether a pause has only just begun: what takes a moment is not worth a word.
    fn is_fresh(&mut self, pause: &PipelinePause) -> bool {
        let left = FRESH.saturating_sub(elapsed(pause.since.as_ref(), self.now));
        if !left.is_zero() {
            self.again(left);
        }
        !left.is_zero()
    }

    /// Pods and vertices are not watched.
    fn look_again(&mut self, pause: &PipelinePause) {
        let waited = elapsed(pause.since.as_ref(), self.now);
        // A look costs two lists; where many pause together, each is looked at less often.
        let many = u32::try_from(self.s.pipelines).unwrap_or(u32::MAX);
        let soon = LOOK.saturating_add(EACH.saturating_mul(many));
        let wait = if waited < Duration::from_mins(1) { soon } else { soon.max(Duration::from_secs(2)) };
        self.again(wait);
    }
}

/// Whether a pipeline has another grace period than it should; where nobody says one, a server that fills in Numaflow's own is
/// as good.
fn has_other_grace(child: &LivePipeline, wanted: Option<i64>) -> bool {
    child.grace() != wanted && (wanted.is_some() || child.grace() != Some(GRACE))
}

fn grace_patch(grace: Option<i64>) -> Value {
    json!({"spec": {"lifecycle": {"pauseGracePeriodSeconds": grace}}})
}

fn phase_of(child: &LivePipeline) -> String {
    match (child.phase.as_str(), child.message.as_str()) {
        ("", _) => "nothing".to_owned(),
        ("Failed", message) => format!("Failed: {message}"),
        (phase, _) => phase.to_owned(),
    }
}
