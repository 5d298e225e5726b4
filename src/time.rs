//! Times in a status: how they are written, counted from, and said. Pure; what time it is comes from [`crate::clock`].

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Times in a status are whole seconds, and clocks differ a little.
const AHEAD: SignedDuration = SignedDuration::from_secs(5);

/// How long since `then`, zero if it lies ahead (clocks differ).
#[must_use]
pub fn elapsed(then: Option<&Time>, now: Timestamp) -> Duration {
    then.and_then(|t| Duration::try_from(now.duration_since(t.0)).ok()).unwrap_or_default()
}

/// A time in whole seconds, as it is stored, never before it: a wait that counts from it is never cut short.
#[must_use]
pub fn not_before(now: Timestamp) -> Time {
    let up = SignedDuration::from_nanos(999_999_999);
    Time(now.checked_add(up).unwrap_or(now))
}

/// Whether a time that was stored lies ahead: the clock that it came from was fast. What counts from it would stand still until
/// it comes.
#[must_use]
pub fn is_ahead(then: &Time, now: Timestamp) -> bool {
    then.0.duration_since(now) > AHEAD
}

/// The time of day, as messages say it.
#[must_use]
pub fn of_day(then: Timestamp) -> String {
    then.strftime("%H:%M:%S UTC").to_string()
}
