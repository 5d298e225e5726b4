//! What to do next for one PipelineRollout. Pure: a snapshot and the time; it cannot fail.
//!
//! The wanted phase comes first and on its own: nothing that can go wrong with a spec keeps a pipeline from being resumed.
//! As for controllers, each call gives the next few steps, and everything that a step needs is in the API by then.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::json;

use super::{
    change::{Applying, Pending},
    clocks, delete,
    desired::{Desired, Unclear},
    report::{self, ISB_MISSING, Report},
    snapshot::Snapshot,
    steer::Steering,
    want::Want,
};
use crate::{
    api::{ANNOTATION_RETRY, PipelineRolloutStatus, child_number},
    finalizer::Hold,
    numaflow::LivePipeline,
    plan::{Event, Plan, Refusal, Step},
    summary::Summary,
    time::not_before,
    valid,
    words::held_by,
    wrapped::{PIPELINE, current, next_name, no_next},
};

/// Decides the next steps.
#[must_use]
pub fn decide(snapshot: &Snapshot, now: Timestamp) -> Plan {
    match Hold::of(&snapshot.rollout.metadata, snapshot.namespace_terminating) {
        Hold::First(plan) => plan,
        Hold::Deleting => delete::decide(Turn::new(snapshot, now)),
        Hold::Held => Turn::new(snapshot, now).decide(),
    }
}

/// One decision in the making.
pub(super) struct Turn<'a> {
    pub(super) s: &'a Snapshot,
    pub(super) now: Timestamp,
    /// The pipeline, if there is one.
    pub(super) child: Option<&'a Arc<LivePipeline>>,
    /// What it should be like, or why that cannot be told.
    pub(super) desired: Result<Desired, Unclear>,
    /// The status as stored, with clocks that run.
    pub(super) stored: PipelineRolloutStatus,
    /// The status in the making.
    pub(super) next: PipelineRolloutStatus,
    pub(super) events: Vec<Event>,
    pub(super) again_after: Option<Duration>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, now: Timestamp) -> Self {
        let stored = clocks::running(snapshot.rollout.status.clone().unwrap_or_default(), now);
        let mut next = stored.clone();
        next.observed_generation = snapshot.rollout.metadata.generation.unwrap_or_default();
        let name = snapshot.rollout.metadata.name.as_deref().unwrap_or_default();
        let child = current(name, &snapshot.children, &stored.child);
        let mut turn = Self {
            s: snapshot,
            now,
            child,
            desired: Err(Unclear::Invalid(String::new())),
            stored,
            next,
            events: Vec::new(),
            again_after: None,
        };
        let name = child.map_or_else(|| turn.next_name(), |c| c.version.name.clone());
        let named = || valid::pipeline_called(&snapshot.rollout, &name).check();
        let valid = match child {
            Some(_) => named(),
            // As it was admitted, and with the number that it gets.
            None => valid::pipeline(&snapshot.rollout).check().and_then(|()| named()),
        };
        let desired = valid.map_err(Unclear::Invalid).map(|()| Desired::of(&snapshot.rollout, &name));
        let desired = desired.map(|desired| match child {
            Some(child) => desired.arranged_like(&child.spec),
            None => desired,
        });
        turn.desired = desired.and_then(|desired| turn.on_its_isb_service(desired));
        turn
    }

    /// What the pipeline should be like, but perhaps for its ISB service; `None` where the rollout cannot be read.
    pub(super) fn readable(&self) -> Option<&Desired> {
        match &self.desired {
            Ok(desired) => Some(desired),
            Err(Unclear::Waiting(desired, _)) => Some(desired),
            Err(Unclear::Invalid(_)) => None,
        }
    }

    /// Name of the rollout.
    pub(super) fn name(&self) -> &str {
        self.s.rollout.metadata.name.as_deref().unwrap_or_default()
    }

    fn decide(mut self) -> Plan {
        if !self.s.served {
            let words = "the API server does not serve Numaflow's Pipelines yet; install its CustomResourceDefinitions";
            return self.finish(Vec::new(), Summary::pending("KindNotServed", words));
        }
        if self.child.is_none() && !self.s.unknown.is_empty() {
            // What is not listed is not gone: nothing that is on record about it is touched.
            let words = format!("waiting for {} to be listed", self.s.unknown.join(", "));
            return self.finish(Vec::new(), Summary::pending("Starting", &words));
        }
        let Some(child) = self.child else { return self.make() };
        child.version.name.clone_into(&mut self.next.child);
        if child.deleting {
            let held = held_by(&child.finalizers);
            let words =
                format!("Pipeline/{} is being deleted{held}; another one is made when it is gone", child.version.name);
            return self.finish(Vec::new(), Summary::pending("Deleting", &words));
        }
        self.next.failed_since =
            (child.phase == "Failed").then(|| self.stored.failed_since.clone().unwrap_or(not_before(self.now)));
        if let Some(steps) = self.heal(child) {
            if only_looks(&steps) {
                return Plan::of(steps);
            }
            self.answer(child, &Want::default());
            return self.finish(steps, report::wedged(child));
        }
        let pending = self.pending(child);
        let pending = self.with_a_name(child, pending);
        let want = self.want(child, &pending);
        if let Some(step) = want.ask_first.clone() {
            return Plan::of(vec![step]);
        }
        // A change goes in while the pipeline is paused, before it is resumed; one that cannot be applied holds up no resume.
        let steering = self.steer(child, &want);
        if let Steering::Steps(steps) = &steering
            && only_looks(steps)
        {
            return Plan::of(steps.clone());
        }
        let applying = self.applying(child, &pending, &want);
        self.answer(child, &want);
        let report = self.report(child, &pending, &want, &steering, &applying);
        let anew = matches!(pending, Pending::Recreate(_));
        let mut steps = match (steering, applying) {
            // One that goes now is not told to run before, nor to pause.
            (_, Applying::Now(steps)) if anew => steps,
            (Steering::Steps(steps), _) | (_, Applying::Now(steps)) if !steps.is_empty() => steps,
            _ => Vec::new(),
        };
        if steps.is_empty() {
            steps = self.drop_others(child);
        }
        if steps.is_empty() {
            steps.extend(self.nudge(child));
        }
        self.finish(steps, report)
    }

    /// Makes a pipeline: paused from the start where a pause is asked for, so that it never reads a message.
    fn make(mut self) -> Plan {
        if let Some(pause) = self.next.pause.take() {
            self.ended(pause);
        }
        self.next.failed_since = None;
        self.next.wedge = None;
        self.next.pause_requests = Vec::new();
        let desired = match &self.desired {
            Ok(desired) => desired.clone(),
            Err(Unclear::Invalid(words)) => {
                let words = words.clone();
                return self.finish(Vec::new(), Summary::failed("InvalidSpec", &words));
            }
            Err(Unclear::Waiting(_, words)) => {
                let words = words.clone();
                return self.finish(Vec::new(), Summary::pending(ISB_MISSING, &words));
            }
        };
        if let Some(refusal) = self.refusal() {
            let report = Summary::blocked(&refusal.reason, &refusal.message);
            return self.finish(Vec::new(), report);
        }
        let name = self.next_name();
        let asked = self.requests_of(desired.instance(), desired.isb()).any(|r| self.holds_when_made(r));
        let paused = desired.wants_paused() || (asked && !self.allows_data_loss());
        let phase = if paused { Some(json!("Paused")) } else { desired.phase.as_ref().map(|p| json!(p)) };
        let grace = desired.grace.map(|g| json!(g));
        self.next.name_count = child_number(self.name(), &name);
        let body = Arc::new(desired.body(&name, phase.as_ref(), grace.as_ref()));
        let report = Summary::pending("Creating", &format!("Pipeline/{name} is being made"));
        let mut steps = Vec::new();
        if !self.stored.child.is_empty() && self.s.learned.steering_refusal().is_none() {
            // It takes the place of one that is gone. Whoever refuses this does not hold up the pipeline.
            steps = self.wake_isb_services();
        }
        steps.push(Step::ApplyNumaflow { kind: PIPELINE.kind, body, expect: None });
        self.finish(steps, report)
    }

    /// The name of the next pipeline.
    fn next_name(&self) -> String {
        let used = self.s.children.keys().chain(&self.s.foreign_children).map(String::as_str).collect();
        next_name(self.name(), &used, self.stored.name_count, &self.stored.child)
    }

    /// One that is made anew gets the next number. Where a name gets too long with that, the one that is there stays as it is.
    fn with_a_name(&mut self, child: &LivePipeline, pending: Pending) -> Pending {
        if !matches!(pending, Pending::Recreate(_)) {
            return pending;
        }
        let next = self.next_name();
        match valid::pipeline_called(&self.s.rollout, &next).check() {
            Ok(()) => pending,
            Err(words) => {
                self.desired = Err(Unclear::Invalid(no_next(PIPELINE, &next, &child.version.name, &words)));
                Pending::Unknown
            }
        }
    }

    /// Pipelines of this rollout besides the one that counts (an earlier operator left them) go.
    fn drop_others(&self, child: &LivePipeline) -> Vec<Step> {
        if self.refusal().is_some() {
            return Vec::new();
        }
        let others = self.s.children.values().filter(|c| c.version.name != child.version.name && !c.deleting);
        others.map(|c| Step::DeleteNumaflow { kind: PIPELINE.kind, object: c.version.clone() }).collect()
    }

    /// Looks again after this time at the latest.
    pub(super) fn again(&mut self, after: Duration) {
        self.again_after = Some(self.again_after.map_or(after, |known| known.min(after)));
    }

    /// What the server said to a write of this turn.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        self.s.learned.own_trouble().cloned()
    }

    /// Text of the retry annotation.
    pub(super) fn retry(&self) -> String {
        self.annotation(ANNOTATION_RETRY).unwrap_or_default().to_owned()
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.s.rollout.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The end of a decision. The status goes first, so that what a step is taken for is on record; but no status stands in the
    /// way of a resume.
    pub(super) fn finish(mut self, mut steps: Vec<Step>, report: impl Into<Report>) -> Plan {
        let report = report.into();
        // What was refused and is tried again says so until it is known what came of it.
        let again = report.is_another_try(&self.stored, self.next.observed_generation) && !steps.is_empty();
        if again {
            self.next.phase.clone_from(&self.stored.phase);
            self.next.message.clone_from(&self.stored.message);
        } else {
            report.write(&mut self);
        }
        let resumes = steps.iter().any(Step::is_resume);
        if self.s.rollout.status.as_ref() != Some(&self.next) && !resumes {
            let status = Box::new(self.next);
            steps = vec![Step::WritePipelineStatus { status, events: self.events }];
        }
        Plan { steps, again_after: self.again_after }
    }
}

/// Whether something has to be known first: nothing is said before that.
fn only_looks(steps: &[Step]) -> bool {
    !steps.is_empty() && steps.iter().all(Step::is_look_at_plane)
}
