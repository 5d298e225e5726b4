//! The wanted phase of a pipeline: who asks for a pause, whether it is safe to change it now, and when it is settled. Pure.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{
    change::{Pending, without_pause},
    decide::{PIPELINE, Turn},
    desired::Desired,
    snapshot::{Request, Scope},
};
use crate::{
    api::{
        ANNOTATION_ALLOW_DATA_LOSS, ANNOTATION_FORCE, ANNOTATION_RESUME, AttemptResult, LastForce, OnDrainTimeout,
        PauseAnswer, PipelineAttempt, PipelinePause, Wait, answer, pausing,
    },
    numaflow::{LivePipeline, budget},
    plan::{Event, Step, Version},
    rollout::snapshot::{elapsed, not_before},
    words::{duration, list},
};

/// Time after which a pipeline that failed is not waited for.
const FAILED: Duration = Duration::from_secs(60);
/// Time after which a change that the server refused is tried again.
const BLOCKED: Duration = Duration::from_mins(1);
/// Time in which nothing is said about what a pause waits for.
const FRESH: Duration = Duration::from_secs(3);
/// Seconds that Numaflow takes for a grace period where nobody says one.
const GRACE: i64 = 30;
/// How long a pipeline whose time is up may take to say that it is paused, besides what each pipeline may cost.
const CUT: Duration = Duration::from_secs(15);

/// Whether a pipeline should be paused, and why.
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
    /// Why the pipeline is not paused for others.
    pub excused: Option<String>,
    /// Whether the time for draining is up.
    pub cut: bool,
    /// The grace period that it should have, in seconds; absent where nobody says one.
    pub grace: Option<i64>,
    /// What has to be known first.
    pub ask_first: Option<Step>,
}

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
    /// Requests for a pause that mean a pipeline of this instance on this ISB service.
    pub(super) fn requests_of<'r>(&'r self, instance: &'r str, isb: &'r str) -> impl Iterator<Item = &'r Request> {
        self.s.requests.iter().filter(move |request| match &request.scope {
            Scope::Instance(wanted) => wanted == instance,
            Scope::Isb(wanted) => wanted == isb,
        })
    }

    pub(super) fn allows_data_loss(&self) -> bool {
        self.annotation(ANNOTATION_ALLOW_DATA_LOSS) == Some("true")
    }

    /// Who wants the pipeline paused now.
    pub(super) fn want(&mut self, child: &LivePipeline, pending: &Pending) -> Want {
        let requests: Vec<Request> = self.requests_of(child.instance(), child.isb()).cloned().collect();
        let desired = self.desired.clone().ok();
        let hash = desired.as_ref().map(|d| d.hash.clone()).unwrap_or_default();
        let needed = pending.needs_pause().is_some();
        self.bind_force(&requests, needed.then_some(&hash));
        let mut want = Want { excused: self.excused(child), ..Want::default() };
        if needed && let Some(desired) = &desired {
            want.bypass = self.bypass(child, desired, &want);
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
        // Where the spec cannot be read, what it said last still stands.
        let by_user = match &desired {
            Some(desired) => desired.wants_paused(),
            None => self.stored.pause.as_ref().is_some_and(|p| p.asked_by.iter().any(|by| by == BY_SPEC)),
        };
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
        want.grace = self.grace(desired.as_ref(), &want, &counting);
        want
    }

    /// The grace period for a pause: what the user says, else as long as the longest time-out.
    fn grace(&self, desired: Option<&Desired>, want: &Want, counting: &[&Request]) -> Option<i64> {
        let users = match desired {
            Some(desired) => desired.grace,
            None => return self.child.and_then(|c| c.grace()).filter(|_| !want.paused),
        };
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
        let isb_changes = self.s.requests.iter().any(|r| r.scope == Scope::Isb(child.isb().to_owned()));
        if child.phase != "Failed" || isb_changes {
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

    fn is_forced(&self, key: &str) -> bool {
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

    // ---- a change of its own ------------------------------------------------------------------------------------

    fn own_timeout(&self) -> Option<Duration> {
        let ppnd = self.s.rollout.spec.strategy.as_ref()?.ppnd.as_ref()?;
        ppnd.drain_timeout.as_ref().map(Wait::get)?.ok()
    }

    fn on_drain_timeout(&self) -> OnDrainTimeout {
        let ppnd = self.s.rollout.spec.strategy.as_ref().and_then(|s| s.ppnd.as_ref());
        match ppnd.and_then(|p| p.on_drain_timeout.as_deref()) {
            Some("Abort") => OnDrainTimeout::Abort,
            _ => OnDrainTimeout::Proceed,
        }
    }

    /// Whether this change is to be attempted now: it was not given up, nor refused a moment ago.
    fn may_attempt(&mut self, desired: &Desired) -> bool {
        let Some(last) = self.next.last_attempt.clone().filter(|last| self.is_of_now(last, desired)) else {
            return true;
        };
        if last.result == AttemptResult::Failed.as_str() {
            return false;
        }
        let wait = BLOCKED.saturating_sub(elapsed(last.finished_at.as_ref(), self.now));
        if !wait.is_zero() {
            self.again(wait);
        }
        wait.is_zero()
    }

    /// Why a change does not wait for a pause.
    fn bypass(&mut self, child: &LivePipeline, desired: &Desired, want: &Want) -> Option<String> {
        if child.observed_generation == 0 && child.phase.is_empty() && !child.wants_paused() {
            return Some("Numaflow has not begun with it yet".to_owned());
        }
        if self.allows_data_loss() {
            return Some(format!("{ANNOTATION_ALLOW_DATA_LOSS} is set"));
        }
        if self.is_forced(&key_of_change(&desired.hash)) {
            return Some(format!("{ANNOTATION_FORCE} is set"));
        }
        let settled = self.stored.pause.as_ref().is_some_and(|p| p.state == pausing::PAUSED);
        if settled {
            return None;
        }
        if self.is_gone(child) {
            return Some("ControllerUnavailable: no pod of its controller is available".to_owned());
        }
        if let Some(why) = &want.excused {
            return Some(why.clone());
        }
        if self.own_timeout() == Some(Duration::ZERO) {
            return Some("spec.strategy.ppnd.drainTimeout is 0s".to_owned());
        }
        None
    }

    /// What becomes of a change whose time is up: given up, or applied once the pipeline had a last chance to pause.
    fn cut_short(&mut self, desired: &Desired) -> Option<String> {
        let (now, timeout) = (self.now, self.own_timeout()?);
        if self.stored.pause.as_ref()?.state == pausing::PAUSED {
            return None;
        }
        let since = self.stored.pause.as_ref()?.own_since.clone()?;
        let left = timeout.saturating_sub(elapsed(Some(&since), now));
        if !left.is_zero() {
            self.again(left);
            return None;
        }
        if self.on_drain_timeout() == OnDrainTimeout::Abort {
            if self.given_up(desired).is_none() {
                let words = format!(
                    "the change was given up, because the pipeline was not paused within {}; change the spec, or the \
                     annotation numaplane.numaproj.io/retry, to try again",
                    duration(timeout)
                );
                self.events.push(Event { warning: true, reason: "ChangeAborted", note: words.clone() });
                self.next.last_attempt = Some(PipelineAttempt {
                    generation: self.next.observed_generation,
                    hash: desired.hash.clone(),
                    retry: self.retry(),
                    result: AttemptResult::Failed.as_str().to_owned(),
                    reason: "DrainTimeout".to_owned(),
                    message: words,
                    finished_at: Some(Time(now)),
                });
            }
            return None;
        }
        let pipelines = self.s.pipelines;
        let cut_at = self.next.pause.as_mut()?.cut_at.get_or_insert_with(|| not_before(now)).clone();
        let most = CUT + Duration::from_secs(20).saturating_mul(u32::try_from(pipelines).unwrap_or(u32::MAX));
        let left = most.saturating_sub(elapsed(Some(&cut_at), now));
        if !left.is_zero() {
            self.again(left);
            return None;
        }
        Some(format!("it did not pause within {} and {} more", duration(timeout), duration(most)))
    }

    fn own_cut(&self) -> bool {
        self.next.pause.as_ref().is_some_and(|p| p.cut_at.is_some())
    }

    /// Writes down that a change is applied without a pause.
    pub(super) fn record_without_pause(&mut self, desired: &Desired, paths: &[String], why: &str) {
        let (now, words) = (Some(Time(self.now)), format!("applied without a pause: {why}"));
        let reason = without_pause(desired);
        if self.stored.last_pause.as_ref().is_some_and(|last| last.reason == reason)
            || self.stored.pause.as_ref().is_some_and(|pause| pause.not_drained == words)
        {
            return;
        }
        let note = format!("a change of {} is {words}", list(paths, 3));
        self.events.push(Event { warning: true, reason: "NotDrained", note });
        if let Some(pause) = self.next.pause.as_mut() {
            (pause.drained, pause.not_drained) = (Some(false), words);
            return;
        }
        self.next.last_pause = Some(PipelinePause {
            reason,
            asked_by: vec![format!("PipelineRollout/{}", self.name())],
            since: now.clone(),
            drained: Some(false),
            not_drained: words,
            ended_at: now,
            ..PipelinePause::default()
        });
    }

    // ---- towards the wanted phase -------------------------------------------------------------------------------

    /// Brings the wanted phase to what it should be, as far as that is safe, and keeps record of the pause.
    pub(super) fn steer(&mut self, child: &LivePipeline, want: &Want) -> Steering {
        match (want.paused, child.wants_paused()) {
            (true, false) => {
                self.begin(want);
                if let Some(pause) = self.next.pause.as_mut() {
                    // Settled no longer, if it was: somebody else had it run.
                    pausing::PAUSING.clone_into(&mut pause.state);
                    (pause.settled_at, pause.drained) = (None, None);
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
                if !self.may_turn(child, false) {
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
            && child.applied() != Some(desired.hash.as_str())
            && self.refusal().is_none()
            && self.next.last_attempt.as_ref().is_none_or(|last| !self.is_of_now(last, desired))
    }

    /// The record of a pause that begins or goes on.
    fn begin(&mut self, want: &Want) {
        let now = not_before(self.now);
        let state = pausing::PAUSING.to_owned();
        let fresh = || PipelinePause { state, since: Some(now.clone()), ..PipelinePause::default() };
        let begun = self.next.pause.clone().filter(|p| p.state != pausing::RESUMING);
        if begun.is_none() {
            let times = self.next.pause_status.get_or_insert_default();
            times.last_pause_begin_time = Some(now.clone());
        }
        let mut pause = begun.unwrap_or_else(fresh);
        pause.asked_by.clone_from(&want.asked_by);
        pause.reason.clone_from(&want.reason);
        if want.own {
            pause.own_since.get_or_insert(now);
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
            return if child.is_observed() { Steering::Settled } else { Steering::Waiting(Vec::new()) };
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
        let now = Time(self.now);
        pausing::PAUSED.clone_into(&mut pause.state);
        pause.settled_at = Some(now.clone());
        pause.drained = Some(child.drained);
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
        if child.is_observed() && child.phase == "Failed" {
            // What it waits for now is no pause of ours.
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
        let desired = self.desired.clone().ok();
        let steps: Vec<Step> = plane
            .vertices
            .iter()
            .filter(left_alone)
            .filter_map(|vertex| {
                let replicas = desired.as_ref().map(|d| d.least_replicas(&vertex.name));
                let replicas = replicas.filter(|n| *n > vertex.replicas.unwrap_or(1))?;
                Some(Step::PatchNumaflow {
                    kind: "Vertex",
                    object: Version {
                        name: vertex.object.clone(),
                        uid: vertex.uid.clone(),
                        resource_version: String::new(),
                    },
                    patch: Arc::new(json!({"spec": {"replicas": replicas}})),
                    why: "added while paused, and not scaled by Numaflow",
                })
            })
            .collect();
        if !steps.is_empty() && self.s.learned.steering_refusal().is_none() {
            return Steering::Steps(steps);
        }
        // Done once: whoever scales it to nothing afterwards means it.
        self.ended(pause);
        Steering::Settled
    }

    /// Nothing of ours is left on a pipeline that runs.
    fn at_rest(&mut self, child: &LivePipeline, want: &Want) -> Steering {
        if has_other_grace(child, want.grace) && self.desired.is_ok() {
            return self.change(child, grace_patch(want.grace), "grace period as its spec has it");
        }
        Steering::Settled
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
        settled || child.may_turn_back() || (self.is_gone(child) && !child.is_observed())
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
        let users = self.desired.as_ref().ok().and_then(|d| d.phase.clone());
        let phase = if paused { json!("Paused") } else { users.map_or(Value::Null, |p| json!(p)) };
        let mut patch = json!({"spec": {"lifecycle": {"desiredPhase": phase}}});
        if has_other_grace(child, want.grace) {
            patch["spec"]["lifecycle"]["pauseGracePeriodSeconds"] = json!(want.grace);
        }
        if !paused && let Some(manner) = self.manner_of_resume() {
            patch["metadata"]["annotations"][ANNOTATION_RESUME] = json!(manner);
        }
        self.change(child, patch, why)
    }

    fn change(&self, child: &LivePipeline, patch: Value, why: &'static str) -> Steering {
        if !self.s.unknown.is_empty() {
            return Steering::Unsafe(format!("{} to be listed", self.s.unknown.join(", ")));
        }
        if let Some(refusal) = self.s.learned.steering_refusal() {
            return Steering::Unsafe(format!("the server, which says: {}", refusal.message));
        }
        let object = Version { resource_version: String::new(), ..child.version.clone() };
        Steering::Steps(vec![Step::PatchNumaflow { kind: PIPELINE, object, patch: Arc::new(patch), why }])
    }

    /// How the pipeline comes back, unless its user says so with Numaflow's own annotation.
    fn manner_of_resume(&self) -> Option<&'static str> {
        let desired = self.desired.as_ref().ok()?;
        if desired.annotations.contains_key(ANNOTATION_RESUME) {
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
        let wait = if waited < Duration::from_secs(60) { Duration::from_millis(250) } else { Duration::from_secs(2) };
        self.again(wait);
    }

    // ---- answers ------------------------------------------------------------------------------------------------

    /// Says to everyone who asks for a pause how it stands.
    pub(super) fn answer(&mut self, child: &LivePipeline, want: &Want) {
        let pause = self.next.pause.clone().filter(|p| p.state == pausing::PAUSED);
        let requests: Vec<Request> = self.requests_of(child.instance(), child.isb()).cloned().collect();
        let of = |request: &Request| {
            let said = PauseAnswer { by: request.by.clone(), attempt: request.attempt.clone(), ..Default::default() };
            let say = |answer: &str, why: String| PauseAnswer { answer: answer.to_owned(), why, ..said.clone() };
            let before = self.stored.pause_requests.iter().find(|a| a.by == said.by && a.attempt == said.attempt);
            if self.allows_data_loss() {
                return say(answer::FORCED, format!("{ANNOTATION_ALLOW_DATA_LOSS} is set"));
            }
            if self.is_forced(&key_of(request)) {
                return say(answer::FORCED, format!("{ANNOTATION_FORCE} is set"));
            }
            if let Some(pause) = &pause {
                let drained = pause.drained;
                return PauseAnswer { drained, ..say(answer::PAUSED, pause.not_drained.clone()) };
            }
            if let Some(before) = before.filter(|a| a.answer == answer::EXCUSED) {
                return before.clone();
            }
            if let Some(why) = &want.excused {
                return say(answer::EXCUSED, why.clone());
            }
            if request.timeout == Some(Duration::ZERO) {
                return say(answer::EXCUSED, "its time for draining is 0s".to_owned());
            }
            let trouble = if child.phase == "Failed" { child.message.clone() } else { String::new() };
            say(answer::PAUSING, trouble)
        };
        self.next.pause_requests = requests.iter().map(of).collect();
    }
}

/// Who asks for a pause that the user's spec asks for.
pub(super) const BY_SPEC: &str = "spec";

/// Whether a pipeline has another grace period than it should; where nobody says one, a server that fills in Numaflow's own is
/// as good.
fn has_other_grace(child: &LivePipeline, wanted: Option<i64>) -> bool {
    child.grace() != wanted && (wanted.is_some() || child.grace() != Some(GRACE))
}

fn grace_patch(grace: Option<i64>) -> Value {
    json!({"spec": {"lifecycle": {"pauseGracePeriodSeconds": grace}}})
}

/// What a request is remembered by.
fn key_of(request: &Request) -> String {
    format!("{} {}", request.by, request.attempt)
}

/// What a change is remembered by.
fn key_of_change(hash: &str) -> String {
    format!("change {hash}")
}

fn phase_of(child: &LivePipeline) -> String {
    match (child.phase.as_str(), child.message.as_str()) {
        ("", _) => "nothing".to_owned(),
        ("Failed", message) => format!("Failed: {message}"),
        (phase, _) => phase.to_owned(),
    }
}
