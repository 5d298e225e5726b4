//! The clocks of a pipeline's status. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{PipelineRolloutStatus, pausing},
    time::{is_ahead, not_before},
};

/// The status with clocks that run: one that lies ahead (the clock of the last operator was fast) or that cannot be read would
/// stand still, and whoever waits for it with it. It begins now.
pub(super) fn running(mut status: PipelineRolloutStatus, now: Timestamp) -> PipelineRolloutStatus {
    let stands = |time: &Time| is_ahead(time, now);
    let restart = |time: &mut Option<Time>| {
        if time.as_ref().is_none_or(stands) {
            *time = Some(not_before(now));
        }
    };
    // Where no time says that nothing has begun.
    let correct = |time: &mut Option<Time>| {
        if time.as_ref().is_some_and(stands) {
            *time = Some(not_before(now));
        }
    };
    if let Some(pause) = status.pause.as_mut() {
        restart(&mut pause.since);
        correct(&mut pause.own_since);
        correct(&mut pause.cut_at);
        if pause.state == pausing::PAUSED {
            restart(&mut pause.settled_at);
        }
    }
    if let Some(wedge) = status.wedge.as_mut() {
        restart(&mut wedge.since);
    }
    if let Some(last) = status.last_attempt.as_mut() {
        restart(&mut last.finished_at);
    }
    correct(&mut status.failed_since);
    status
}
