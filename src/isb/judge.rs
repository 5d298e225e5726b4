//! Whether an ISB service is as it should be: it says so, and all pods of its StatefulSet are of the wanted image and ready.
//! Pure.

use std::time::Duration;

use super::decide::Turn;
use crate::{
    api::IsbChange,
    evidence::Look,
    plan::Step,
    time::{elapsed, of_day},
    words::duration,
};

/// Time for which one must say that it is healthy, where it was not seen to be on its way: it says so for a moment when it is
/// about to be changed, too.
pub(super) const SURE: Duration = Duration::from_secs(2);
/// Time after which Numaflow's saying that it cannot be deployed is believed.
const BELIEVED: Duration = Duration::from_secs(10);

/// What is known of the health of a service.
pub(super) enum Health {
    /// It is as it should be.
    Good,
    /// It is not, yet.
    Bad {
        /// What it lacks.
        lacks: String,
        /// Whether its controller has seen its spec: what it says before that is about another one.
        seen: bool,
        /// Whether Numaflow says that it cannot be deployed.
        failed: bool,
    },
    /// That cannot be told now: why.
    Unknown(String),
}

/// What a look comes to.
pub(super) enum Verdict {
    /// It is as it should be, for sure.
    Good,
    /// It has time yet: what is waited for.
    Wait(String),
    /// It is not what it should be: why.
    Bad(String),
    /// Its time is over, and whether it is as it should be cannot be told: why.
    Unproven(String),
}

impl Turn<'_> {
    /// How a service is, with its StatefulSet.
    ///
    /// # Errors
    /// Only this look can tell.
    pub(super) fn health(&self, name: &str, instance: &str) -> Result<Health, Step> {
        let look = Look { isb: vec![name.to_owned()], ..Look::default() };
        let Some(seen) = self.s.learned.looks.get(&look) else { return Err(Step::Look(look)) };
        if let Some(why) = &seen.unreadable {
            return Ok(Health::Unknown(format!("it cannot be read: {why}")));
        }
        let Some(evidence) = seen.isb.get(name) else {
            return Ok(Health::Bad { lacks: "it does not exist".to_owned(), seen: false, failed: false });
        };
        let lacks = evidence.lacks(self.settings(instance));
        let seen = evidence.observed_generation == evidence.generation;
        let failed = seen && evidence.phase == "Failed";
        Ok(if lacks.is_empty() { Health::Good } else { Health::Bad { lacks, seen, failed } })
    }

    /// Judges the health of a service that was changed.
    pub(super) fn judge(&mut self, change: &mut IsbChange, health: Health) -> Verdict {
        let left = self.left(change);
        let (words, failed) = match health {
            Health::Good => {
                if change.rolled {
                    return Verdict::Good;
                }
                let since = change.healthy_since.clone().or_else(|| Some(self.stamp()));
                change.healthy_since.clone_from(&since);
                let sure = SURE.saturating_sub(elapsed(since.as_ref(), self.now));
                if sure.is_zero() {
                    return Verdict::Good;
                }
                self.again(sure);
                return Verdict::Wait("it says that it is healthy; looking once more".to_owned());
            }
            // What cannot be read is no fault of the change. But pipelines are paused, and do not stay so for that.
            Health::Unknown(words) if left.is_zero() => return Verdict::Unproven(words),
            Health::Unknown(words) => (words, false),
            Health::Bad { lacks, seen, failed } => {
                // Before its controller has looked it lacks just that, and may well say next what was true before.
                (change.rolled, change.healthy_since) = (change.rolled || seen, None);
                (lacks, failed)
            }
        };
        if let Some(gone) = self.gone(self.instance()) {
            // Its clock stands still.
            change.stage_started_at = None;
            return Verdict::Wait(gone);
        }
        let believed = failed && elapsed(change.stage_started_at.as_ref(), self.now) >= BELIEVED;
        if believed || left.is_zero() {
            let time = duration(self.manner.deadline);
            return Verdict::Bad(if believed { words } else { format!("not healthy within {time}: {words}") });
        }
        self.look_again(left);
        Verdict::Wait(format!("{words}; it has until {}", self.until(left)))
    }

    /// Time that is left of a stage.
    pub(super) fn left(&self, change: &IsbChange) -> Duration {
        self.manner.deadline.saturating_sub(elapsed(change.stage_started_at.as_ref(), self.now))
    }

    pub(super) fn until(&self, left: Duration) -> String {
        self.now.checked_add(left).map(of_day).unwrap_or_default()
    }

    /// A StatefulSet is not watched; a paused pipeline costs more than a look.
    pub(super) fn look_again(&mut self, left: Duration) {
        self.again(self.manner.interval.min(Duration::from_secs(1)).min(left));
    }
}
