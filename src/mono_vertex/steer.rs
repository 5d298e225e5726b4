//! Towards the wanted phase of a MonoVertex, and when a pause is settled. Pure.
//!
//! Numaflow has nothing against a phase that changes quickly: a pause is one pass, and so is its end. But it says Paused while
//! pods still work; they are looked at.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{
    change::Pending,
    decide::Turn,
    desired::is_unscaled,
    want::{BY_SPEC, Want},
};
use crate::{
    api::{MonoVertexPause, pausing},
    numaflow::LiveMonoVertex,
    plan::{Event, Step},
    time::{elapsed, not_before},
    words::list,
    wrapped::MONO_VERTEX,
};

/// Shortest and longest time between two looks at the pods of a MonoVertex that is pausing.
const LOOK: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// Time in which nothing is said about what a pause waits for.
const FRESH: Duration = Duration::from_secs(3);
/// Time after which pods that cannot be read are not waited for.
const UNREADABLE: Duration = Duration::from_secs(35);

/// How the wanted phase stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Steering {
    /// It is as it should be, and settled.
    Settled,
    /// It is changed now, or looked at.
    Steps(Vec<Step>),
    /// It is as it should be and not settled, or cannot be changed: what is waited for.
    Waiting(String),
}

impl Turn<'_> {
    /// Brings the wanted phase to what it should be, and keeps record of the pause.
    pub(super) fn steer(&mut self, child: &LiveMonoVertex, pending: &Pending, want: &Want) -> Steering {
        match (want.paused, child.wants_paused()) {
            (true, false) => {
                self.begin(want);
                if let Some(pause) = self.next.pause.as_mut() {
                    // Settled no longer, if it was: somebody else had it run.
                    pause.unsettle();
                }
                self.change(child, json!({"spec": {"lifecycle": {"desiredPhase": "Paused"}}}), "asked to pause")
            }
            (true, true) => {
                self.begin(want);
                self.pausing(child)
            }
            (false, true) => {
                self.resuming();
                if self.change_goes_first(pending, want) {
                    return Steering::Settled;
                }
                let mut patch = json!({"spec": {"lifecycle": {"desiredPhase": self.phase_of_user()}}});
                if self.begins_small(child) {
                    patch["spec"]["replicas"] = Value::Null;
                }
                self.change(child, patch, "resumed")
            }
            (false, false) => self.running(child),
        }
    }

    /// The record of a pause that begins or goes on.
    fn begin(&mut self, want: &Want) {
        let state = pausing::PAUSING.to_owned();
        let since = Some(not_before(self.now));
        let begun = self.next.pause.take().filter(|p| p.state != pausing::RESUMING);
        let mut pause = begun.unwrap_or_else(|| MonoVertexPause { state, since, ..MonoVertexPause::default() });
        pause.asked_by.clone_from(&want.asked_by);
        pause.reason.clone_from(&want.reason);
        self.next.pause = Some(pause);
    }

    /// The pause is wanted and asked for: are its pods gone?
    fn pausing(&mut self, child: &LiveMonoVertex) -> Steering {
        let Some(mut pause) = self.next.pause.clone() else { return Steering::Settled };
        let name = &child.version.name;
        if pause.state == pausing::PAUSED {
            // It may fail meanwhile, by a spec that is not valid; it is paused for all that.
            return if child.is_observed() { Steering::Settled } else { Steering::Waiting(self.to_look(child)) };
        }
        let waited = elapsed(pause.since.as_ref(), self.now);
        let waiting = if child.says_paused() {
            let Some(plane) = self.s.learned.planes.get(name) else {
                return Steering::Steps(vec![Step::LookAtMonoVertex { name: name.clone() }]);
            };
            let (waiting, lost) = plane.not_paused(self.now);
            if waiting.is_empty() {
                self.settle(child, &mut pause, lost);
                return Steering::Settled;
            }
            let by_user = pause.asked_by.iter().any(|by| by == BY_SPEC);
            if let Some(why) = plane.unreadable.clone().filter(|_| waited >= UNREADABLE && !by_user) {
                // Nothing is lost by a change that meets a pod; by one that is waited for for ever something is.
                self.settle(child, &mut pause, vec![format!("they cannot be read: {why}")]);
                return Steering::Settled;
            }
            // Pods are not watched.
            self.again((waited / 8).clamp(LOOK.0, LOOK.1));
            waiting.join(" and ")
        } else if child.is_observed() {
            let says = match (child.phase.as_str(), child.message.as_str()) {
                ("Failed", message) => format!("Failed: {message}"),
                (phase, _) => phase.to_owned(),
            };
            format!("MonoVertex/{name} to pause; it says {says}")
        } else {
            self.to_look(child)
        };
        let fresh = FRESH.saturating_sub(waited);
        if !fresh.is_zero() {
            // What takes a moment is not worth a word.
            self.again(fresh);
            return Steering::Waiting(String::new());
        }
        Steering::Waiting(waiting)
    }

    /// Writes down that its pods are gone.
    fn settle(&mut self, child: &LiveMonoVertex, pause: &mut MonoVertexPause, lost: Vec<String>) {
        pausing::PAUSED.clone_into(&mut pause.state);
        pause.settled_at = Some(not_before(self.now));
        if !lost.is_empty() {
            let name = &child.version.name;
            let note = format!("MonoVertex/{name} is paused; pods that do not go: {}", list(&lost, 3));
            self.events.push(Event { warning: true, reason: "PodsLeft", note });
        }
        pause.pods_left = lost;
        self.next.pause = Some(pause.clone());
    }

    fn resuming(&mut self) {
        if let Some(pause) = self.next.pause.as_mut() {
            pausing::RESUMING.clone_into(&mut pause.state);
        }
    }

    /// It should run, and is told so.
    fn running(&mut self, child: &LiveMonoVertex) -> Steering {
        let Some(pause) = self.next.pause.clone() else { return self.at_rest(child) };
        self.resuming();
        // What it waits for when it is Failed is no pause of ours.
        if !child.says_running() && !child.has_failed() {
            return Steering::Waiting(self.to_look(child));
        }
        self.ended(pause);
        Steering::Settled
    }

    /// Nothing of ours is left on a MonoVertex that runs. A phase that nobody asks for is removed with what else somebody added.
    fn at_rest(&mut self, child: &LiveMonoVertex) -> Steering {
        let phase = self.phase_of_user();
        if phase.is_null() || Some(&phase) == child.written_phase() {
            return Steering::Settled;
        }
        let patch = json!({"spec": {"lifecycle": {"desiredPhase": phase}}});
        self.change(child, patch, "wanted phase as its spec has it")
    }

    /// A pause is over; its record stays.
    pub(super) fn ended(&mut self, pause: MonoVertexPause) {
        self.next.pause = None;
        let ended_at = Some(Time(self.now));
        self.next.last_pause = Some(MonoVertexPause { state: String::new(), ended_at, ..pause });
    }

    pub(super) fn to_look(&self, child: &LiveMonoVertex) -> String {
        let name = &child.version.name;
        if self.is_gone(child) {
            return format!("a controller to look at MonoVertex/{name}; no pod of one is available");
        }
        let instance = child.instance();
        let whose = if instance.is_empty() { String::new() } else { format!(" of instance {instance:?}") };
        format!("Numaflow's controller{whose} to look at MonoVertex/{name}")
    }

    /// The wanted phase that the user's spec asks for, as it is patched.
    fn phase_of_user(&self) -> Value {
        self.desired.as_ref().ok().and_then(|d| d.phase.clone()).map_or(Value::Null, |phase| json!(phase))
    }

    /// Whether it comes back with as few replicas as its scale allows: unless its user wants those that there were, or says
    /// how many there are.
    fn begins_small(&self, child: &LiveMonoVertex) -> bool {
        let strategy = self.s.rollout.spec.strategy.as_ref();
        let fast = strategy.and_then(|s| s.pause_resume.as_ref()).and_then(|r| r.fast_resume) == Some(true);
        let fixed = match &self.desired {
            Ok(desired) => desired.fixes_replicas(),
            Err(_) => is_unscaled(&child.spec),
        };
        !fast && !fixed
    }

    fn change(&self, child: &LiveMonoVertex, patch: Value, why: &'static str) -> Steering {
        if !self.s.unknown.is_empty() {
            return Steering::Waiting(format!("{} to be listed", self.s.unknown.join(", ")));
        }
        if let Some(refusal) = self.s.learned.steering_refusal() {
            return Steering::Waiting(format!("the server, which says: {}", refusal.message));
        }
        let object = child.version.clone().of_any_state();
        Steering::Steps(vec![Step::PatchNumaflow { kind: MONO_VERTEX.kind, object, patch: Arc::new(patch), why }])
    }
}
