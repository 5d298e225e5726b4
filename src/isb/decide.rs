//! What to do next for one ISBServiceRollout. Pure: a snapshot and the time; it cannot fail.
//!
//! As for the other kinds, each call gives the next few steps, the status goes before the step that it is about, and everything
//! that a step needs is in the API by then.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{change::Pending, clocks, delete, manner::Manner, snapshot::Snapshot, upkeep::in_use};
use crate::{
    api::{ANNOTATION_RETRY, IsbChange, IsbServiceRollout, IsbServiceRolloutStatus, IsbStage, child_number},
    drain::InStatus,
    finalizer::Hold,
    numaflow::LiveIsb,
    plan::{Event, NOT_KEPT, Plan, Refusal, Step},
    settings::Defaults,
    summary::Summary,
    time::not_before,
    valid,
    wrapped::{ISB_SERVICE, Now, Wanted, next_name, no_next},
};

/// Decides the next steps.
#[must_use]
pub fn decide(snapshot: &Snapshot, defaults: &Defaults, now: Timestamp) -> Plan {
    match Hold::of(&snapshot.rollout.metadata, snapshot.namespace_terminating) {
        Hold::First(plan) => plan,
        Hold::Deleting => delete::decide(Turn::new(snapshot, defaults, now)),
        Hold::Held => Turn::new(snapshot, defaults, now).decide(),
    }
}

/// One decision in the making.
pub(super) struct Turn<'a> {
    pub(super) s: &'a Snapshot,
    pub(super) now: Timestamp,
    pub(super) manner: Manner,
    /// The ISB service that pipelines use, if there is one.
    pub(super) child: Option<&'a Arc<LiveIsb>>,
    /// What is wanted, whatever its name: by its hash changes are told from each other. Or why that cannot be told.
    pub(super) wanted: Result<Wanted, String>,
    /// Text of the retry annotation.
    pub(super) retry: String,
    /// The status as stored, with clocks that run.
    pub(super) stored: IsbServiceRolloutStatus,
    /// The status in the making.
    pub(super) next: IsbServiceRolloutStatus,
    pub(super) events: Vec<Event>,
    pub(super) again_after: Option<Duration>,
    /// Whether a change is applied without anybody being paused for it.
    pub(super) applies_directly: bool,
}

impl<'a> Turn<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, defaults: &Defaults, now: Timestamp) -> Self {
        let metadata = &snapshot.rollout.metadata;
        let stored = clocks::running(snapshot.rollout.status.clone().unwrap_or_default(), now);
        let mut next = stored.clone();
        next.observed_generation = metadata.generation.unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let manner = Manner::of(&snapshot.rollout, defaults);
        let child = in_use(name, &snapshot.children, &stored.child);
        let found = match child {
            Some(child) => valid::isb_service_called(&snapshot.rollout, &child.version.name),
            None => valid::isb_service(&snapshot.rollout),
        };
        let retry = metadata.annotations.as_ref().and_then(|a| a.get(ANNOTATION_RETRY)).cloned().unwrap_or_default();
        Self {
            s: snapshot,
            now,
            child,
            wanted: found.check().map(|()| wanted_for(&snapshot.rollout, "")),
            manner,
            retry,
            stored,
            next,
            events: Vec::new(),
            again_after: None,
            applies_directly: false,
        }
    }

    /// Name of the rollout.
    pub(super) fn name(&self) -> &str {
        self.s.rollout.metadata.name.as_deref().unwrap_or_default()
    }

    /// What is wanted, for an ISB service of this name.
    pub(super) fn wanted_for(&self, name: &str) -> Wanted {
        wanted_for(&self.s.rollout, name)
    }

    fn decide(mut self) -> Plan {
        if let Some(plan) = self.withdraw_stray() {
            return plan;
        }
        if !self.s.served {
            if let Some(change) = self.stored.change.clone() {
                // With the kind, all services are gone; nobody waits for it to come back.
                return self.drop_change(&change, "the API server does not serve InterStepBufferServices any more");
            }
            let words = "the API server does not serve Numaflow's InterStepBufferServices yet; install its \
                 CustomResourceDefinitions";
            return self.finish(Vec::new(), Summary::pending("KindNotServed", words));
        }
        if !self.s.unknown.is_empty() {
            // What is not listed is not gone, and nobody is paused unseen.
            let words = format!("waiting for {} to be listed", self.s.unknown.join(", "));
            return self.finish(Vec::new(), Summary::pending("Starting", &words));
        }
        if let Some(child) = self.child {
            child.version.name.clone_into(&mut self.next.child);
        }
        match self.stored.change.clone() {
            Some(change) => self.go_on(change),
            None => self.at_rest(),
        }
    }

    fn at_rest(mut self) -> Plan {
        let wanted = match &self.wanted {
            Ok(wanted) => wanted.clone(),
            Err(words) => {
                let words = words.clone();
                let steps = self.tidy();
                return self.finish(steps, Summary::failed("InvalidSpec", &words));
            }
        };
        if let Some(words) = self.unknown_version(&wanted) {
            let steps = self.tidy();
            if self.s.upgrading.contains(wanted.instance()) {
                let words = format!("waiting for the upgrade of its controller: {words}");
                return self.finish(steps, Summary::pending("VersionUnknown", &words));
            }
            let words = format!("{words}; choose one of these, or upgrade the controller first");
            return self.finish(steps, Summary::failed("VersionUnknown", &words));
        }
        let Some(child) = self.child else { return self.make() };
        let pending = self.pending(child);
        match pending {
            Pending::None | Pending::Drift | Pending::Direct(_) => self.keep(child, &pending),
            Pending::Pause(_) => self.consider(child, &pending),
            // The one beside it gets the next number. Where a name gets too long with that, the one that is there stays.
            Pending::Recreate(_) => {
                let next = self.next_name();
                match valid::isb_service_called(&self.s.rollout, &next).check() {
                    Ok(()) => self.consider(child, &pending),
                    Err(words) => {
                        let words = no_next(ISB_SERVICE, &next, &child.version.name, &words);
                        self.finish(Vec::new(), Summary::failed("InvalidSpec", &words))
                    }
                }
            }
        }
    }

    /// Makes the first ISB service, or one in place of one that is gone.
    fn make(mut self) -> Plan {
        if let Some(refusal) = self.refusal().cloned() {
            return self.finish(Vec::new(), Summary::blocked(&refusal.reason, &refusal.message));
        }
        let name = self.next_name();
        if let Err(words) = valid::isb_service_called(&self.s.rollout, &name).check() {
            return self.finish(Vec::new(), Summary::failed("InvalidSpec", &words));
        }
        let wanted = self.wanted_for(&name);
        self.next.name_count = child_number(self.name(), &name);
        let body = Arc::new(wanted.body(&name));
        let report = Summary::pending("Creating", &format!("InterStepBufferService/{name} is being made"));
        self.finish(vec![Step::ApplyNumaflow { kind: ISB_SERVICE.kind, body, expect: None }], report)
    }

    /// The ISB service stays, and is kept as it should be.
    fn keep(mut self, child: &'a LiveIsb, pending: &Pending) -> Plan {
        if let Some(refusal) = self.refusal().cloned() {
            return self.finish(Vec::new(), Summary::blocked(&refusal.reason, &refusal.message));
        }
        if *pending == Pending::None {
            // What was given up is not asked for any more.
            self.next.last_attempt = None;
            let steps = self.tidy();
            return match self.standing(child) {
                Ok(report) => self.finish(steps, report),
                Err(look) => Plan::of(vec![look]),
            };
        }
        if let Some(refusal) = self.steering_refusal().cloned().filter(|_| *pending == Pending::Drift) {
            return self.finish(Vec::new(), Summary::blocked(&refusal.reason, &refusal.message));
        }
        self.applies_directly = matches!(pending, Pending::Direct(_));
        let steps = self.applying(child, &self.wanted_for(&child.version.name));
        let words = format!("InterStepBufferService/{} is being changed", child.version.name);
        self.finish(steps, Summary::pending("Progressing", &words))
    }

    /// Another service's name.
    pub(super) fn next_name(&self) -> String {
        let used = self.s.children.keys().chain(&self.s.foreign_children).map(String::as_str).collect();
        next_name(self.name(), &used, self.stored.name_count, &self.stored.child)
    }

    /// Looks again after this time at the latest.
    pub(super) fn again(&mut self, after: Duration) {
        self.again_after = Some(self.again_after.map_or(after, |known| known.min(after)));
    }

    /// What the server said to a write of this turn.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.s.learned.own_trouble()
    }

    /// What the server said to a change of single fields, other than that it came to nothing.
    pub(super) fn steering_refusal(&self) -> Option<&Refusal> {
        self.s.learned.steering_refusal().filter(|refusal| refusal.reason != NOT_KEPT)
    }

    /// The change that the spec asks for, as its user asks for it now.
    pub(super) fn as_asked<'n>(&'n self, wanted: &'n Wanted) -> Now<'n> {
        Now { generation: self.next.observed_generation, hash: &wanted.hash, retry: &self.retry }
    }

    /// The part of the status that a drain writes.
    pub(super) fn in_status(&mut self) -> InStatus<'_> {
        InStatus {
            request: &mut self.next.pause_request,
            times: &mut self.next.pause_request_status,
            last_force: &mut self.next.last_force,
            now: self.now,
        }
    }

    /// A time as it is stored.
    pub(super) fn stamp(&self) -> Time {
        not_before(self.now)
    }

    /// The write that ends a request whose change does not run: nothing else comes before it.
    fn withdraw_stray(&mut self) -> Option<Plan> {
        let request = self.stored.pause_request.as_ref().filter(|r| r.active)?;
        let asks = |c: &IsbChange| c.attempt == request.attempt && IsbStage::parse(&c.stage) != Some(IsbStage::Beside);
        if self.stored.change.as_ref().is_some_and(asks) || self.s.learned.own_refusal().is_some() {
            return None;
        }
        self.in_status().withdraw();
        let mut status = self.stored.clone();
        status.pause_request.clone_from(&self.next.pause_request);
        status.pause_request_status.clone_from(&self.next.pause_request_status);
        Some(Plan::of(vec![Step::WriteIsbServiceStatus { status: Box::new(status), events: Vec::new() }]))
    }

    /// The end of a decision. The status goes first, so that what a step is taken for is on record.
    pub(super) fn finish(mut self, mut steps: Vec<Step>, summary: Summary) -> Plan {
        let again = self.is_another_try(&summary) && !steps.is_empty();
        if again {
            // What was refused and is tried again says so until it is known what came of it.
            self.next.phase.clone_from(&self.stored.phase);
            self.next.message.clone_from(&self.stored.message);
        } else {
            self.report(summary);
        }
        if self.s.rollout.status.as_ref() != Some(&self.next) {
            let status = Box::new(self.next);
            steps = vec![Step::WriteIsbServiceStatus { status, events: self.events }];
        }
        Plan { steps, again_after: self.again_after }
    }
}

/// What a rollout asks for, for an ISB service of this name.
fn wanted_for(rollout: &IsbServiceRollout, name: &str) -> Wanted {
    let template = &rollout.spec.inter_step_buffer_service;
    Wanted::of(ISB_SERVICE, &rollout.metadata, template.metadata.as_ref(), &template.spec, name)
}
