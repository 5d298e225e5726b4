//! The request for a pause of a rollout: whom it asks, which attempts may have one, and when it ends at the latest. Pure.

use crate::{
    api::{ConditionType, Conditions, Upgrade},
    drain::{self, Asking, InStatus, Scope},
    plan::{Plan, Step},
    rollout::{alive::in_production, decide::Turn},
};

impl<'a> Turn<'a> {
    /// This rollout, as it asks the pipelines of the running instance to pause for an attempt.
    pub(super) fn asking(&self, upgrade: &Upgrade) -> Asking<'a> {
        Asking {
            by: format!("NumaflowControllerRollout/{}", self.s.name()),
            attempt: upgrade.name.clone(),
            what: format!("the drain of version {:?}", upgrade.version),
            scope: Scope::Instance(self.stored.promoted.as_ref().map(|p| p.instance_id.clone()).unwrap_or_default()),
            pipelines: &self.s.pipelines,
            unlisted: self.s.dependants.unlisted.iter().any(|kind| kind == "Pipeline"),
            timeout: self.manner.drain_timeout,
            on_timeout: self.manner.on_drain_timeout,
            force: self.force(),
            gone: self.gone(),
        }
    }

    /// What a drain writes into the status in the making.
    pub(super) fn in_status(&mut self) -> InStatus<'_> {
        InStatus {
            request: &mut self.next.pause_request,
            times: &mut self.next.pause_request_status,
            last_force: &mut self.next.last_force,
            now: self.now,
        }
    }

    /// Whether the request of an attempt stands.
    pub(super) fn asks(&self, attempt: &str) -> bool {
        drain::standing(self.next.pause_request.as_ref(), attempt).is_some()
    }

    /// Ends the request, whosever it is.
    pub(super) fn withdraw(&mut self) {
        self.in_status().withdraw();
    }

    /// The write that ends a request whose attempt does not run: nothing else comes before it.
    pub(super) fn withdraw_stray(&mut self) -> Option<Plan> {
        let request = self.stored.pause_request.as_ref().filter(|r| r.active)?;
        let leaving = self.s.rollout.metadata.deletion_timestamp.is_some();
        let of_it = |u: &Upgrade| u.name == request.attempt && (u.stage == "Drain" || in_production(&u.stage));
        if !leaving && self.stored.upgrade.as_ref().is_some_and(of_it) {
            return None;
        }
        if self.s.learned.own_refusal().is_some() {
            // It was tried, and is tried again in the next turn.
            return None;
        }
        self.withdraw();
        let mut conditions = Conditions::from_stored(&self.stored.conditions);
        let generation = self.s.generation();
        conditions.set(ConditionType::PausingPipelines, Some(false), "NoPause", "", generation, self.now);
        let mut status = self.stored.clone();
        status.pause_request.clone_from(&self.next.pause_request);
        status.pause_request_status.clone_from(&self.next.pause_request_status);
        status.conditions = conditions.into_vec();
        Some(Plan::of(vec![Step::WriteStatus { status: Box::new(status), events: Vec::new() }]))
    }

    /// Puts the drain of an attempt that ends on record, and lets pipelines go.
    pub(super) fn end_drain(&mut self, upgrade: &Upgrade, why: &str) {
        self.withdraw();
        if let Some(drain) = upgrade.drain.clone() {
            self.next.last_drain = Some(drain::closed(drain, why));
        }
    }

    /// The text of a force annotation that has not been honoured yet.
    pub(super) fn force(&self) -> Option<String> {
        drain::force(&self.s.rollout.metadata, self.next.last_force.as_ref())
    }

    /// Notes what a force annotation has ended: it is not honoured again.
    pub(super) fn use_force(&mut self, text: &str, ended: &str) {
        self.in_status().use_force(text, ended);
    }
}
