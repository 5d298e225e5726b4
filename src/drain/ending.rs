//! When a drain is over: everybody has answered, force, a controller that is gone, or the time is up. Pure.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Answers, Asking, InStatus};
use crate::{
    api::{DrainProgress, OnDrainTimeout},
    numaflow::last_wait,
    time::{elapsed, is_ahead},
    words::duration,
};

/// Shortest wait until the next look.
const SHORTEST: Duration = Duration::from_millis(100);

/// What comes of a drain now.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// It is over: its record. The request stands until it is withdrawn.
    Over(DrainProgress),
    /// The attempt is given up: its record, and why.
    Abort(DrainProgress, String),
    /// It goes on.
    Waiting {
        /// Its record so far.
        drain: DrainProgress,
        /// What is waited for.
        words: String,
        /// When to look again, if nothing changes before; `None`: not before something does.
        again_after: Option<Duration>,
    },
}

impl Asking<'_> {
    /// What comes of a drain whose request stands, in a stage that began at `stage_started_at`. What changes about the request
    /// (the clock, the time-out, the cut) is written into the status.
    #[must_use]
    pub fn ending(&self, stage_started_at: Option<&Time>, status: &mut InStatus<'_>) -> Ending {
        status.count_from(stage_started_at);
        let seen = self.answers();
        let since = status.since();
        let waited = elapsed(since.as_ref(), status.now).max(elapsed(stage_started_at, status.now));
        let over = |ended: String, why: &str| Ending::Over(seen.record(since.clone(), Some((ended, why))));
        if seen.settled() {
            status.note_paused();
            return Ending::Over(seen.record(since, None));
        }
        if let Some(text) = &self.force {
            status.use_force(text, &self.what);
            return over(format!("ended by force: {text}"), "ended by force");
        }
        if let Some(words) = &self.gone {
            return over(words.clone(), "its controller is gone");
        }
        let late = self.timeout.is_some_and(|timeout| waited >= timeout);
        if late && self.on_timeout == OnDrainTimeout::Abort {
            let time = self.timeout.map(duration).unwrap_or_default();
            let ended = format!("drainTimeout {time} had passed, and onDrainTimeout is Abort");
            let why = format!("did not drain within {time}");
            let words = format!("{} did not drain within {time}: {}", seen.count(), seen.names(None));
            return Ending::Abort(seen.record(since, Some((ended, &why))), words);
        }
        let at_most = last_wait(seen.managed);
        let again_after = match (status.cut_at(), late) {
            (Some(cut), _) if !is_ahead(&cut, status.now) => {
                let left = at_most.saturating_sub(elapsed(Some(&cut), status.now));
                if left.is_zero() {
                    let time = self.taken(since.as_ref(), &cut);
                    let ended = format!("drainTimeout {time} had passed, and {} more", duration(at_most));
                    return over(ended, &format!("did not pause within {time}, nor within {} more", duration(at_most)));
                }
                Some(left)
            }
            // The time is up now; or it was, and the clock has been set back since.
            (Some(_), _) | (None, true) => {
                status.cut();
                Some(at_most)
            }
            (None, false) => {
                status.renew_timeout(self.timeout);
                self.left_to_drain(&seen, waited)
            }
        };
        let words = self.words(&seen, waited, status.request.as_ref(), status.now);
        let again_after = again_after.map(|left| left.max(SHORTEST));
        Ending::Waiting { drain: seen.record(since, None), words, again_after }
    }

    /// How long until the time is up, or the next pipeline has taken so long that it is said; `None` where neither comes.
    fn left_to_drain(&self, seen: &Answers, waited: Duration) -> Option<Duration> {
        let left = self.timeout.map(|timeout| timeout.saturating_sub(waited));
        let slow = seen.waiting.iter().filter(|p| p.budget > waited).map(|p| p.budget.saturating_sub(waited));
        slow.chain(left).min()
    }

    /// The time-out that was up when pipelines were cut off, in words: that of the spec may be another one by now.
    fn taken(&self, since: Option<&Time>, cut: &Time) -> String {
        let taken = elapsed(since, cut.0);
        duration(self.timeout.filter(|timeout| *timeout <= taken).unwrap_or(taken))
    }
}

/// The record of a drain whose attempt ended, because of `why`: nobody is waited for any more.
#[must_use]
pub fn closed(mut drain: DrainProgress, why: &str) -> DrainProgress {
    if !drain.waiting_for.is_empty() && drain.ended.is_empty() {
        drain.ended = format!("the attempt ended: {why}");
    }
    drain.waiting_for.clear();
    drain
}
