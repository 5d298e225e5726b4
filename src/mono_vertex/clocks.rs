//! The clocks of a MonoVertex's status. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{MonoVertexRolloutStatus, pausing},
    time::{is_ahead, not_before},
};

/// The status with clocks that run: one that lies ahead (the clock of the last operator was fast) or that cannot be read would
/// stand still, and whoever waits for it with it. It begins now.
pub(super) fn running(mut status: MonoVertexRolloutStatus, now: Timestamp) -> MonoVertexRolloutStatus {
    let restart = |time: &mut Option<Time>| {
        if time.as_ref().is_none_or(|time| is_ahead(time, now)) {
            *time = Some(not_before(now));
        }
    };
    if let Some(pause) = status.pause.as_mut() {
        restart(&mut pause.since);
        if pause.state == pausing::PAUSED {
            restart(&mut pause.settled_at);
        }
    }
    if let Some(last) = status.last_attempt.as_mut() {
        restart(&mut last.finished_at);
    }
    status
}
