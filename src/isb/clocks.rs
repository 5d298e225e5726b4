//! The clocks of an ISB service's status. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::IsbServiceRolloutStatus,
    time::{is_ahead, not_before},
};

/// The status with clocks that run: one that lies ahead (the clock of the last operator was fast) or that cannot be read would
/// stand still, and whoever waits for it with it. It begins now.
pub(super) fn running(mut status: IsbServiceRolloutStatus, now: Timestamp) -> IsbServiceRolloutStatus {
    let ahead = |time: &Time| is_ahead(time, now);
    if let Some(change) = status.change.as_mut() {
        if change.stage_started_at.as_ref().is_none_or(ahead) {
            change.stage_started_at = Some(not_before(now));
        }
        change.healthy_since = change.healthy_since.take().filter(|time| !ahead(time));
    }
    if let Some(last) = status.last_attempt.as_mut()
        && last.finished_at.as_ref().is_none_or(ahead)
    {
        last.finished_at = Some(not_before(now));
    }
    status
}
