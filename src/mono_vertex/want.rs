//! Who wants a MonoVertex paused: its user, or a change of its own; and why such a change does not wait. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{change::Pending, decide::Turn, desired::Desired};
use crate::{
    api::{ANNOTATION_ALLOW_DATA_LOSS, ANNOTATION_FORCE, LastForce, MonoVertexPause, pausing},
    numaflow::LiveMonoVertex,
    plan::{Event, Step},
    words::list,
    wrapped::{NoPhase, Tries, phase_of},
};

/// Whether a MonoVertex should be paused, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Want {
    /// Whether it should be paused.
    pub paused: bool,
    /// Who asks for it.
    pub asked_by: Vec<String>,
    /// Why: a sentence.
    pub reason: String,
    /// Whether a change of its own waits for the pause.
    pub own: bool,
    /// Why such a change does not wait for one.
    pub bypass: Option<String>,
    /// What has to be known first.
    pub ask_first: Option<Step>,
}

/// Who asks for a pause that the user's spec asks for.
pub(super) const BY_SPEC: &str = "spec";

impl Turn<'_> {
    /// Who wants the MonoVertex paused now.
    pub(super) fn want(&mut self, child: &LiveMonoVertex, pending: &Pending) -> Want {
        let desired = self.desired.clone().ok();
        let (needed, given_up) = (pending.needs_pause(), self.given_up().is_some());
        let hash = desired.as_ref().filter(|_| needed.is_some() && !given_up).map(|d| d.wanted.hash.clone());
        self.bind_force(hash.as_deref());
        let mut want = Want::default();
        if let (Some(paths), Some(desired)) = (needed, &desired) {
            want.bypass = self.bypass(child, desired);
            want.own = want.bypass.is_none() && self.may_attempt(desired);
            let own = self.by_itself();
            let waits = |p: &MonoVertexPause| p.state != pausing::RESUMING && p.asked_by.contains(&own);
            let begun = self.stored.pause.as_ref().is_some_and(waits);
            if want.own && !begun && self.s.unknown.is_empty() {
                want.ask_first = self.ask(child, desired, pending);
                if self.refusal().is_some() {
                    (want.own, want.ask_first) = (false, None);
                }
            }
            if want.own {
                want.asked_by.push(own);
                want.reason = format!("a change of {}", list(paths, 3));
            }
        }
        // Whatever else is wrong with the spec. Where this cannot be read, what it said last still stands.
        let by_user = phase_of(&self.s.rollout.spec.mono_vertex.spec.0).map_or_else(
            |NoPhase| {
                let said =
                    |p: &MonoVertexPause| p.state != pausing::RESUMING && p.asked_by.iter().any(|by| by == BY_SPEC);
                child.wants_paused() && self.stored.pause.as_ref().is_some_and(said)
            },
            |phase| phase == Some("Paused"),
        );
        if by_user {
            want.asked_by.insert(0, BY_SPEC.to_owned());
            let more = if want.reason.is_empty() { String::new() } else { format!("; {}", want.reason) };
            want.reason = format!("its spec asks for it{more}");
        }
        want.paused = !want.asked_by.is_empty();
        want
    }

    /// Whether this change is to be attempted now: it was not given up, nor refused a moment ago.
    fn may_attempt(&mut self, desired: &Desired) -> bool {
        let retry = self.retry();
        match self.as_asked(desired, &retry).tries(self.next.last_attempt.as_ref(), self.now) {
            Tries::Now => true,
            Tries::Never => false,
            Tries::After(wait) => {
                self.again(wait);
                false
            }
        }
    }

    /// Why a change does not wait for a pause.
    fn bypass(&self, child: &LiveMonoVertex, desired: &Desired) -> Option<String> {
        if self.annotation(ANNOTATION_ALLOW_DATA_LOSS) == Some("true") {
            return Some(format!("{ANNOTATION_ALLOW_DATA_LOSS} is set"));
        }
        if self.next.forced == desired.wanted.hash {
            return Some(format!("{ANNOTATION_FORCE} is set"));
        }
        if self.stored.pause.as_ref().is_some_and(|p| p.state == pausing::PAUSED) {
            return None;
        }
        if child.never_ran() {
            return Some("Numaflow has not begun with it yet".to_owned());
        }
        if child.has_failed() {
            return Some(format!("it is Failed, and Numaflow pauses nothing then: {}", child.message));
        }
        self.is_gone(child).then(|| "ControllerUnavailable: no pod of its controller is available".to_owned())
    }

    /// Whether it is certain that no controller acts for a MonoVertex.
    pub(super) fn is_gone(&self, child: &LiveMonoVertex) -> bool {
        self.s.controllers.get(child.instance()).is_some_and(|c| c.gone)
    }

    /// Binds a force annotation that was not honoured yet to the change that needs a pause now.
    fn bind_force(&mut self, change: Option<&str>) {
        if change != Some(self.next.forced.as_str()) {
            self.next.forced.clear();
        }
        let (Some(text), Some(hash)) = (self.annotation(ANNOTATION_FORCE).map(str::to_owned), change) else { return };
        if self.stored.last_force.as_ref().is_some_and(|last| last.text == text) {
            return;
        }
        let ended = format!("the pause for change {hash}");
        self.next.last_force = Some(LastForce { text, ended, at: Some(Time(self.now)) });
        hash.clone_into(&mut self.next.forced);
    }

    /// Writes down that a change is applied without a pause, and says so once.
    pub(super) fn record_without_pause(&mut self, paths: &[String], why: &str) {
        let reason = format!("a change of {} is applied without a pause: {why}", list(paths, 3));
        if self.stored.last_pause.as_ref().is_some_and(|last| last.reason == reason) {
            return;
        }
        self.events.push(Event { warning: true, reason: "NotPaused", note: reason.clone() });
        let now = Some(Time(self.now));
        let (since, ended_at) = (now.clone(), now);
        let asked_by = vec![self.by_itself()];
        self.next.last_pause =
            Some(MonoVertexPause { reason, asked_by, since, ended_at, ..MonoVertexPause::default() });
    }
}
