//! The request for a pause as it stands in the status of its requester: made, renewed, cut, withdrawn; and the force that ends
//! the wait for it. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use crate::{
    api::{ANNOTATION_FORCE, LastForce, PauseRequest, PauseStatus, Wait},
    time::{is_ahead, not_before},
    words,
};

/// What a drain writes into a status in the making, and the time at which it does.
#[derive(Debug)]
pub struct InStatus<'a> {
    /// `status.pauseRequest`.
    pub request: &'a mut Option<PauseRequest>,
    /// `status.pauseRequestStatus`.
    pub times: &'a mut Option<PauseStatus>,
    /// `status.lastForce`.
    pub last_force: &'a mut Option<LastForce>,
    /// What time it is.
    pub now: Timestamp,
}

impl InStatus<'_> {
    /// Asks pipelines to pause, for this attempt; they may take so long to drain.
    pub fn ask(&mut self, attempt: &str, timeout: Option<Duration>) {
        *self.request = Some(PauseRequest {
            active: true,
            attempt: attempt.to_owned(),
            since: Some(not_before(self.now)),
            drain_timeout: timeout.map(wait),
            cut_at: None,
        });
        *self.times = Some(PauseStatus { last_pause_begin_time: Some(Time(self.now)), ..PauseStatus::default() });
    }

    /// Writes the time-out of the spec as it is now into the request: pipelines have their grace periods by it.
    pub fn renew_timeout(&mut self, timeout: Option<Duration>) {
        if let Some(request) = self.request {
            request.drain_timeout = timeout.map(wait);
        }
    }

    /// Ends the request, whosever it is.
    pub fn withdraw(&mut self) {
        if let Some(request) = self.request.as_mut().filter(|r| r.active) {
            request.active = false;
            self.times.get_or_insert_default().last_pause_end_time = Some(Time(self.now));
        }
    }

    /// Notes what a force annotation has ended: it is not honoured again.
    pub fn use_force(&mut self, text: &str, ended: &str) {
        let at = Some(Time(self.now));
        *self.last_force = Some(LastForce { text: text.to_owned(), ended: ended.to_owned(), at });
    }

    /// Where the clock was set back, or since when is asked cannot be read: it counts from when the stage was stamped anew.
    pub(super) fn count_from(&mut self, stage_started_at: Option<&Time>) {
        if let Some(request) = self.request
            && request.since.as_ref().is_none_or(|since| is_ahead(since, self.now))
        {
            request.since = stage_started_at.cloned();
        }
    }

    /// Tells pipelines to pause without draining any further, from now on.
    pub(super) fn cut(&mut self) {
        if let Some(request) = self.request {
            request.cut_at = Some(not_before(self.now));
        }
    }

    /// Notes that pausing became paused.
    pub(super) fn note_paused(&mut self) {
        self.times.get_or_insert_default().last_pause_phase_change_time = Some(Time(self.now));
    }

    pub(super) fn since(&self) -> Option<Time> {
        self.request.as_ref()?.since.clone()
    }

    pub(super) fn cut_at(&self) -> Option<Time> {
        self.request.as_ref()?.cut_at.clone()
    }
}

/// The request of an attempt, while it stands.
#[must_use]
pub fn standing<'r>(request: Option<&'r PauseRequest>, attempt: &str) -> Option<&'r PauseRequest> {
    request.filter(|r| r.active && r.attempt == attempt)
}

/// The text of a force annotation that has not been honoured yet.
#[must_use]
pub fn force(metadata: &ObjectMeta, last: Option<&LastForce>) -> Option<String> {
    let text = metadata.annotations.as_ref()?.get(ANNOTATION_FORCE)?;
    let honoured = last.is_some_and(|last| last.text == *text);
    (!honoured && !text.is_empty()).then(|| text.clone())
}

/// A duration as it is written in the API.
pub(super) fn wait(duration: Duration) -> Wait {
    match duration.subsec_millis() {
        0 => Wait(words::duration(duration)),
        millis if duration.as_secs() == 0 => Wait(format!("{millis}ms")),
        millis => Wait(format!("{}{millis}ms", words::duration(duration))),
    }
}
