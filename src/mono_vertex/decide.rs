//! What to do next for one MonoVertexRollout. Pure: a snapshot and the time; it cannot fail.
//!
//! The wanted phase comes first and on its own: nothing that can go wrong with a spec keeps a MonoVertex from being resumed.
//! Each call gives the next few steps, and everything that a step needs is in the API by then.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::json;

use super::{
    change::{Applying, Pending},
    clocks, delete,
    desired::Desired,
    report::Report,
    snapshot::Snapshot,
    steer::Steering,
};
use crate::{
    api::{ANNOTATION_RETRY, MonoVertexRolloutStatus, child_number},
    finalizer::Hold,
    numaflow::{LiveMonoVertex, pods_of_mono_vertex},
    plan::{Event, Plan, Refusal, Step},
    summary::Summary,
    valid,
    words::held_by,
    wrapped::{MONO_VERTEX, current, next_name, no_next},
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
    /// The MonoVertex, if there is one.
    pub(super) child: Option<&'a Arc<LiveMonoVertex>>,
    /// What it should be like, or why that cannot be told.
    pub(super) desired: Result<Desired, String>,
    /// The status as stored, with clocks that run.
    pub(super) stored: MonoVertexRolloutStatus,
    /// The status in the making.
    pub(super) next: MonoVertexRolloutStatus,
    pub(super) events: Vec<Event>,
    pub(super) again_after: Option<Duration>,
}

impl<'a> Turn<'a> {
    fn new(snapshot: &'a Snapshot, now: Timestamp) -> Self {
        let stored = clocks::running(snapshot.rollout.status.clone().unwrap_or_default(), now);
        let mut next = stored.clone();
        next.observed_generation = snapshot.rollout.metadata.generation.unwrap_or_default();
        let name = snapshot.rollout.metadata.name.as_deref().unwrap_or_default();
        let child = current(name, &snapshot.children, &stored.child);
        let mut turn = Self {
            s: snapshot,
            now,
            child,
            desired: Err(String::new()),
            stored,
            next,
            events: Vec::new(),
            again_after: None,
        };
        let name = child.map_or_else(|| turn.next_name(), |c| c.version.name.clone());
        let named = || valid::mono_vertex_called(&snapshot.rollout, &name).check();
        let valid = match child {
            Some(_) => named(),
            // As it was admitted, and with the number that it gets.
            None => valid::mono_vertex(&snapshot.rollout).check().and_then(|()| named()),
        };
        turn.desired = valid.map(|()| Desired::of(&snapshot.rollout, &name));
        turn
    }

    /// Name of the rollout.
    pub(super) fn name(&self) -> &str {
        self.s.rollout.metadata.name.as_deref().unwrap_or_default()
    }

    /// The rollout, as it is named where it asks for a pause.
    pub(super) fn by_itself(&self) -> String {
        format!("MonoVertexRollout/{}", self.name())
    }

    fn decide(mut self) -> Plan {
        if !self.s.served {
            let words =
                "the API server does not serve Numaflow's MonoVertices yet; install its CustomResourceDefinitions";
            return self.finish(Vec::new(), Summary::pending("KindNotServed", words));
        }
        if self.child.is_none() && !self.s.unknown.is_empty() {
            // What is not listed is not gone: nothing that is on record about it is touched.
            let words = format!("waiting for {} to be listed", self.s.unknown.join(", "));
            return self.finish(Vec::new(), Summary::pending("Starting", &words));
        }
        let Some(child) = self.child else { return self.make() };
        child.version.name.clone_into(&mut self.next.child);
        self.next.promoted_pod_selector = pods_of_mono_vertex(&child.version.name);
        if child.deleting {
            let held = held_by(&child.finalizers);
            let words = format!(
                "MonoVertex/{} is being deleted{held}; another one is made when it is gone",
                child.version.name
            );
            return self.finish(Vec::new(), Summary::pending("Deleting", &words));
        }
        let pending = self.pending(child);
        let pending = self.with_a_name(child, pending);
        let want = self.want(child, &pending);
        if let Some(step) = want.ask_first.clone() {
            return Plan::of(vec![step]);
        }
        let steering = self.steer(child, &pending, &want);
        if let Steering::Steps(steps) = &steering
            && steps.iter().all(Step::is_look_at_plane)
        {
            // Something has to be known first: nothing is said before that.
            return Plan::of(steps.clone());
        }
        let applying = self.applying(child, &pending, &want);
        let report = self.report(child, &pending, &want, &steering, &applying);
        let mut steps = match (steering, applying) {
            (Steering::Steps(steps), _) | (_, Applying::Now(steps)) => steps,
            _ => self.drop_others(child),
        };
        if steps.is_empty() {
            steps = self.drop_others(child);
        }
        self.finish(steps, report)
    }

    /// Makes a MonoVertex: paused from the start where its spec asks for it, so that it never reads a message.
    fn make(mut self) -> Plan {
        if let Some(pause) = self.next.pause.take() {
            self.ended(pause);
        }
        let desired = match &self.desired {
            Ok(desired) => desired.clone(),
            Err(words) => {
                let words = words.clone();
                return self.finish(Vec::new(), Summary::failed("InvalidSpec", &words));
            }
        };
        if let Some(refusal) = self.refusal() {
            let report = Summary::blocked(&refusal.reason, &refusal.message);
            return self.finish(Vec::new(), report);
        }
        let name = self.next_name();
        self.next.name_count = child_number(self.name(), &name);
        let phase = desired.phase.as_ref().map(|phase| json!(phase));
        let body = Arc::new(desired.body(&name, phase.as_ref(), desired.replicas.as_ref()));
        let report = Summary::pending("Creating", &format!("MonoVertex/{name} is being made"));
        self.finish(vec![Step::ApplyNumaflow { kind: MONO_VERTEX.kind, body, expect: None }], report)
    }

    /// The name of the next MonoVertex.
    fn next_name(&self) -> String {
        let used = self.s.children.keys().chain(&self.s.foreign_children).map(String::as_str).collect();
        next_name(self.name(), &used, self.stored.name_count, &self.stored.child)
    }

    /// One that is made anew gets the next number. Where a name gets too long with that, the one that is there stays as it is.
    fn with_a_name(&mut self, child: &LiveMonoVertex, pending: Pending) -> Pending {
        if !matches!(pending, Pending::Recreate(_)) {
            return pending;
        }
        let next = self.next_name();
        match valid::mono_vertex_called(&self.s.rollout, &next).check() {
            Ok(()) => pending,
            Err(words) => {
                self.desired = Err(no_next(MONO_VERTEX, &next, &child.version.name, &words));
                Pending::Unknown
            }
        }
    }

    /// MonoVertices of this rollout besides the one that counts (an earlier operator left them) go.
    fn drop_others(&self, child: &LiveMonoVertex) -> Vec<Step> {
        if self.refusal().is_some() {
            return Vec::new();
        }
        let others = self.s.children.values().filter(|c| c.version.name != child.version.name && !c.deleting);
        others.map(|c| Step::DeleteNumaflow { kind: MONO_VERTEX.kind, object: c.version.clone() }).collect()
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
    fn finish(mut self, mut steps: Vec<Step>, report: impl Into<Report>) -> Plan {
        let report = report.into();
        // What was refused and is tried again says so until it is known what came of it.
        let again = report.is_another_try(&self.stored, self.next.observed_generation) && !steps.is_empty();
        if !again {
            report.write(&mut self);
        }
        let resumes = steps.iter().any(Step::is_resume);
        if self.s.rollout.status.as_ref() != Some(&self.next) && !resumes {
            let status = Box::new(self.next);
            steps = vec![Step::WriteMonoVertexStatus { status, events: self.events }];
        }
        Plan { steps, again_after: self.again_after }
    }
}
