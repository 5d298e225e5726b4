//! Who wants a pipeline paused, and for whom it is not: users, requesters, a change of its own; force, and what excuses it. Pure.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    change::Pending,
    decide::Turn,
    desired::{Desired, grace_of},
    snapshot::Request,
};
use crate::{
    api::{ANNOTATION_ALLOW_DATA_LOSS, ANNOTATION_FORCE, LastForce, PipelinePause, answer, pausing},
    numaflow::{GRACE, LivePipeline},
    plan::Step,
    time::elapsed,
    words::{duration, list},
    wrapped::{NoPhase, phase_of},
};

/// Time after which a pipeline that failed is not waited for.
const FAILED: Duration = Duration::from_mins(1);

/// Whether a pipeline should be paused, and why.
#[allow(clippy::struct_excessive_bools)] // independent of each other
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
    /// Whether the pipeline had all the time that there was.
    pub late: bool,
    /// Whether what is lost by that is on record already.
    pub on_record: bool,
    /// Why the pipeline is not paused for others.
    pub excused: Option<String>,
    /// Whether the time for draining is up.
    pub cut: bool,
    /// The grace period that it should have, in seconds; absent where nobody says one.
    pub grace: Option<i64>,
    /// What has to be known first.
    pub ask_first: Option<Step>,
}

/// Who asks for a pause that the user's spec asks for.
pub(super) const BY_SPEC: &str = "spec";

impl Turn<'_> {
    /// Requests for a pause that mean a pipeline of this instance on this ISB service.
    pub(super) fn requests_of<'r>(&'r self, instance: &'r str, isb: &'r str) -> impl Iterator<Item = &'r Request> {
        self.s.requests.iter().filter(move |request| request.scope.means(instance, isb))
    }

    pub(super) fn allows_data_loss(&self) -> bool {
        self.annotation(ANNOTATION_ALLOW_DATA_LOSS) == Some("true")
    }

    /// Who wants the pipeline paused now.
    pub(super) fn want(&mut self, child: &LivePipeline, pending: &Pending) -> Want {
        let requests: Vec<Request> = self.requests_of(child.instance(), child.isb()).cloned().collect();
        let desired = self.desired.clone().ok();
        let hash = desired.as_ref().map(|d| d.wanted.hash.clone()).unwrap_or_default();
        let needed = pending.needs_pause().is_some();
        let attempted = needed && desired.as_ref().is_some_and(|d| self.given_up(d).is_none());
        self.bind_force(&requests, attempted.then_some(&hash));
        let mut want = Want { excused: self.excused(child), ..Want::default() };
        if needed && let Some(desired) = &desired {
            if let Some(at_once) = self.moved_at_once(child, desired, pending) {
                (want.bypass, want.late, want.on_record) = (Some(at_once.why), true, at_once.on_record);
            } else {
                want.bypass = self.bypass(child, desired, &want);
            }
            if want.bypass.is_none() {
                want.bypass = self.cut_short(desired);
                want.late = want.bypass.is_some();
            }
            want.own = want.bypass.is_none() && self.may_attempt(desired);
            let begun = self.stored.pause.as_ref().is_some_and(|p| p.own_since.is_some());
            if want.own && !begun && self.s.unknown.is_empty() {
                want.ask_first = self.ask(child, desired, pending);
                if self.refusal().is_some() {
                    (want.own, want.ask_first) = (false, None);
                }
            }
        }
        // Whatever else is wrong with the spec. Where this cannot be read, what it said last still stands.
        let by_user = phase_of(&self.s.rollout.spec.pipeline.spec.0).map_or_else(
            |NoPhase| {
                let said =
                    |p: &PipelinePause| p.state != pausing::RESUMING && p.asked_by.iter().any(|by| by == BY_SPEC);
                child.wants_paused() && self.stored.pause.as_ref().is_some_and(said)
            },
            |phase| phase == Some("Paused"),
        );
        let counting: Vec<&Request> = requests.iter().filter(|r| self.counts(r, &want)).collect();
        let mut reasons = Vec::new();
        if by_user {
            want.asked_by.push(BY_SPEC.to_owned());
            reasons.push("its spec asks for it".to_owned());
        }
        if want.own {
            want.asked_by.push(format!("PipelineRollout/{}", self.name()));
            reasons.push(format!("a change of {}", list(pending.needs_pause().unwrap_or_default(), 3)));
        }
        for request in &counting {
            want.asked_by.push(request.by.clone());
            reasons.push(format!("{} asks for it", request.by));
        }
        want.paused = !want.asked_by.is_empty();
        want.reason = reasons.join("; ");
        let own_cut = want.own && self.own_cut();
        want.cut = own_cut || counting.iter().any(|r| r.cut);
        want.grace = self.grace(self.readable(), &want, &counting);
        want
    }

    /// The grace period for a pause: what the user says, else as long as the longest time-out.
    fn grace(&self, desired: Option<&Desired>, want: &Want, counting: &[&Request]) -> Option<i64> {
        let users = desired.map_or_else(|| grace_of(&self.s.rollout), |desired| desired.grace);
        if !want.paused {
            return users;
        }
        if want.cut {
            return Some(0);
        }
        let own = if want.own { self.own_timeout() } else { None };
        let longest = counting.iter().filter_map(|r| r.timeout).chain(own).max();
        let seconds = longest.map(|t| i64::try_from(t.as_secs()).unwrap_or(i64::MAX));
        users.or(seconds.filter(|s| *s > GRACE))
    }

    /// Whether a request holds for this pipeline.
    fn counts(&self, request: &Request, want: &Want) -> bool {
        let settled = self.next.pause.as_ref().is_some_and(|p| p.state == pausing::PAUSED);
        !self.is_forced(&key_of(request))
            && request.timeout != Some(Duration::ZERO)
            && (settled || (want.excused.is_none() && !self.was_excused(request)))
    }

    /// Whether a pipeline that is made now is to be paused for a request.
    pub(super) fn holds_when_made(&self, request: &Request) -> bool {
        request.timeout != Some(Duration::ZERO) && !self.is_forced(&key_of(request))
    }

    fn was_excused(&self, request: &Request) -> bool {
        self.stored
            .pause_requests
            .iter()
            .any(|a| a.by == request.by && a.attempt == request.attempt && a.answer == answer::EXCUSED)
    }

    /// Why this pipeline is not paused for anybody: it would never be.
    fn excused(&mut self, child: &LivePipeline) -> Option<String> {
        if child.is_misconfigured() {
            return Some(format!("its spec is not valid: {}", child.message));
        }
        if self.is_gone(child) && !child.wants_paused() {
            return Some("no pod of its controller is available, so nobody can pause it".to_owned());
        }
        // While what it depends on is changed it may fail for that. Of one that failed before, nobody waits for the change.
        let changing = self.requests_of(child.instance(), child.isb()).any(|r| r.changing);
        if child.phase != "Failed" || changing {
            return None;
        }
        let failed = elapsed(self.next.failed_since.as_ref(), self.now);
        if failed < FAILED {
            self.again(FAILED.saturating_sub(failed));
            return None;
        }
        Some(format!("it has been Failed for {}: {}", duration(FAILED), child.message))
    }

    /// Whether it is certain that no controller acts for a pipeline.
    pub(super) fn is_gone(&self, child: &LivePipeline) -> bool {
        self.s.controllers.get(child.instance()).is_some_and(|c| c.gone)
    }

    // ---- force --------------------------------------------------------------------------------------------------

    pub(super) fn is_forced(&self, key: &str) -> bool {
        self.allows_data_loss() || self.next.forced.iter().any(|known| known == key)
    }

    /// Binds a force annotation that was not honoured yet to what asks for a pause now.
    fn bind_force(&mut self, requests: &[Request], change: Option<&String>) {
        let mut keys: Vec<String> = requests.iter().map(key_of).collect();
        keys.extend(change.map(|hash| key_of_change(hash)));
        self.next.forced.retain(|known| keys.contains(known));
        let Some(text) = self.annotation(ANNOTATION_FORCE).map(str::to_owned) else { return };
        if keys.is_empty() || self.stored.last_force.as_ref().is_some_and(|last| last.text == text) {
            return;
        }
        let ended = format!("the drain for {}", list(&keys, 5));
        self.next.last_force = Some(LastForce { text, ended, at: Some(Time(self.now)) });
        self.next.forced = keys;
    }
}

/// What a request is remembered by.
pub(super) fn key_of(request: &Request) -> String {
    format!("{} {}", request.by, request.attempt)
}

/// What a change is remembered by.
pub(super) fn key_of_change(hash: &str) -> String {
    format!("change {hash}")
}
