//! The request for a pause, as it stands in the status of a rollout: who may make one, and when it ends. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{
        ANNOTATION_FORCE, ConditionType, Conditions, DrainProgress, LastForce, PauseRequest, PauseStatus, Upgrade, Wait,
    },
    plan::{Plan, Step},
    rollout::{alive::in_production, decide::Turn},
    words,
};

impl Turn<'_> {
    /// Asks the pipelines of the instance to pause, for this attempt.
    pub(super) fn request_pause(&mut self, attempt: &str) {
        self.next.pause_request = Some(PauseRequest {
            active: true,
            attempt: attempt.to_owned(),
            since: Some(self.not_before_now()),
            drain_timeout: self.manner.drain_timeout.map(wait),
            cut_at: None,
        });
        self.next.pause_request_status =
            Some(PauseStatus { last_pause_begin_time: Some(Time(self.now)), ..PauseStatus::default() });
    }

    /// This rollout, as those who answer to it call it.
    pub(super) fn requester(&self) -> String {
        format!("NumaflowControllerRollout/{}", self.s.name())
    }

    /// Writes the time-out of the spec as it is now into the request: pipelines have their grace periods by it.
    pub(super) fn renew_timeout(&mut self) {
        let timeout = self.manner.drain_timeout.map(wait);
        if let Some(request) = &mut self.next.pause_request {
            request.drain_timeout = timeout;
        }
    }

    /// The request of an attempt, while it stands.
    pub(super) fn requested(&self, attempt: &str) -> Option<&PauseRequest> {
        self.next.pause_request.as_ref().filter(|r| r.active && r.attempt == attempt)
    }

    /// Ends the request, whosever it is.
    pub(super) fn withdraw(&mut self) {
        if let Some(request) = self.next.pause_request.as_mut().filter(|r| r.active) {
            request.active = false;
            let times = self.next.pause_request_status.get_or_insert_default();
            times.last_pause_end_time = Some(Time(self.now));
        }
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
        if let Some(mut drain) = upgrade.drain.clone() {
            if !drain.waiting_for.is_empty() && drain.ended.is_empty() {
                drain.ended = format!("the attempt ended: {why}");
            }
            drain.waiting_for.clear();
            self.next.last_drain = Some(drain);
        }
    }

    /// The text of a force annotation that has not been honoured yet.
    pub(super) fn force(&self) -> Option<String> {
        let text = self.s.rollout.metadata.annotations.as_ref()?.get(ANNOTATION_FORCE)?;
        let honoured = self.next.last_force.as_ref().is_some_and(|f| f.text == *text);
        (!honoured && !text.is_empty()).then(|| text.clone())
    }

    /// Notes what a force annotation has ended: it is not honoured again.
    pub(super) fn use_force(&mut self, text: String, ended: &str) {
        self.next.last_force = Some(LastForce { text, ended: ended.to_owned(), at: Some(Time(self.now)) });
    }
}

/// The words for what an attempt did not drain; empty where all was.
pub(super) fn not_drained(upgrade: &Upgrade) -> String {
    let none = DrainProgress::default();
    let names = &upgrade.drain.as_ref().unwrap_or(&none).not_drained;
    if names.is_empty() { String::new() } else { format!("not drained: {}", words::list(names, 10)) }
}

/// A duration as it is written in the API.
fn wait(duration: std::time::Duration) -> Wait {
    match duration.subsec_millis() {
        0 => Wait(words::duration(duration)),
        millis if duration.as_secs() == 0 => Wait(format!("{millis}ms")),
        millis => Wait(format!("{}{millis}ms", words::duration(duration))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::wait;

    #[test]
    fn what_is_written_reads_as_the_same_duration() {
        for millis in [0, 1, 250, 1500, 300_000, 5_400_250, 315_360_000_000] {
            let duration = Duration::from_millis(millis);
            assert_eq!(wait(duration).get(), Ok(duration), "{}", wait(duration));
        }
    }
}
