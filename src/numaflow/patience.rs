//! How long Numaflow may take for a pause. Pure.

use std::time::Duration;

/// Seconds that Numaflow takes for the grace period of a pause where nobody says one.
pub const GRACE: i64 = 30;
/// Time between two looks of Numaflow at a pipeline that drains.
const TICK: Duration = Duration::from_secs(10);
/// What each pipeline may cost the controller that all of an instance share.
const EACH: Duration = Duration::from_secs(20);
/// Time that pipelines get to pause as they are, when the time for draining is up.
const CUT: Duration = Duration::from_secs(15);

/// How long a pause may take before its controller is taken for one that does not respond: the grace period in seconds, the time
/// between two looks, and what each pipeline of the same controller may cost it.
#[must_use]
pub fn budget(grace: i64, pipelines: usize) -> Duration {
    Duration::from_secs(grace.max(0).unsigned_abs()) + TICK + all(pipelines)
}

/// How long pipelines may take to pause when they do not drain any further.
#[must_use]
pub fn last_wait(pipelines: usize) -> Duration {
    CUT + all(pipelines)
}

fn all(pipelines: usize) -> Duration {
    EACH.saturating_mul(u32::try_from(pipelines).unwrap_or(u32::MAX))
}
