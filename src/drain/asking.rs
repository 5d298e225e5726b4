//! Who asks whom for a pause, how long it is waited for, and how the asking begins. Pure.

use std::time::Duration;

use super::{Answers, InStatus, PipelineSeen, Scope, standing};
use crate::api::{DrainProgress, OnDrainTimeout};

/// A requester that wants pipelines paused for one attempt.
#[derive(Clone, Debug)]
pub struct Asking<'a> {
    /// Who asks, as pipelines call it in their answers: `Kind/name`.
    pub by: String,
    /// For which attempt: answers to another one do not count.
    pub attempt: String,
    /// What the drain is called where a record says that force has ended it: `the drain of version "2.0"`.
    pub what: String,
    /// Whose pipelines are meant.
    pub scope: Scope,
    /// All pipelines of the namespace.
    pub pipelines: &'a [PipelineSeen],
    /// Whether pipelines cannot be listed: there may be others, and no drain is over before they can be.
    pub unlisted: bool,
    /// Longest time for the drain; `None`: as long as each pipeline's own grace period.
    pub timeout: Option<Duration>,
    /// What happens then.
    pub on_timeout: OnDrainTimeout,
    /// Text of a force annotation that has not been honoured yet: it ends the drain.
    pub force: Option<String>,
    /// The words for a controller that is gone: nobody would pause anything.
    pub gone: Option<String>,
}

/// How a drain begins.
#[derive(Clone, Debug, PartialEq)]
pub enum Beginning {
    /// It does not: its record, which says why.
    LeftOut(DrainProgress),
    /// The requester's user holds it back: nobody is asked before it is let go, and nothing is on record yet.
    Held,
    /// Pipelines are asked: the record, and what is waited for in words.
    Asked(DrainProgress, String),
}

impl Asking<'_> {
    /// Pipelines of the scope that are there to stay, by name.
    pub(super) fn meant(&self) -> Vec<&PipelineSeen> {
        let meant = |p: &&PipelineSeen| !p.deleting && self.scope.means(&p.instance, &p.isb);
        let mut all: Vec<&PipelineSeen> = self.pipelines.iter().filter(meant).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Pipelines that have an answer to a request of this attempt, as `Pipeline/name`. While there are any, the same attempt
    /// must not ask again: their answers are to a request that was withdrawn, and say nothing about the next one.
    #[must_use]
    pub fn still_answered(&self) -> Vec<String> {
        let answered = |p: &&PipelineSeen| {
            let by_it = p.answers.iter().any(|a| a.by == self.by && a.attempt == self.attempt);
            p.rollout.is_some() && !p.deleting && by_it
        };
        self.pipelines.iter().filter(answered).map(|p| format!("Pipeline/{}", p.name)).collect()
    }

    /// Asks pipelines to pause, unless there is a reason not to; `held` says that the requester's user holds it back.
    #[must_use]
    pub fn begin(&self, held: bool, status: &mut InStatus<'_>) -> Beginning {
        let seen = self.answers();
        if let Some((ended, why)) = self.left_out(&seen, held, status) {
            // Nobody was asked: whatever a pipeline has answered, it was not for this.
            let drain = seen.record(None, Some((ended, why)));
            return Beginning::LeftOut(DrainProgress { drained: Vec::new(), ..drain });
        }
        if held {
            return Beginning::Held;
        }
        status.ask(&self.attempt, self.timeout);
        let request = standing(status.request.as_ref(), &self.attempt);
        let drain = seen.record(request.and_then(|r| r.since.clone()), None);
        Beginning::Asked(drain, self.words(&seen, Duration::ZERO, request, status.now))
    }

    /// Why nobody is asked, in words, and what that means for each pipeline; `None` where they are.
    fn left_out(&self, seen: &Answers, held: bool, status: &mut InStatus<'_>) -> Option<(String, &'static str)> {
        let nothing = "nothing was paused";
        if self.timeout == Some(Duration::ZERO) {
            return Some((format!("spec.strategy.ppnd.drainTimeout is 0s: {nothing}"), nothing));
        }
        if seen.managed == 0 && !seen.unlisted {
            return Some((String::new(), nothing));
        }
        if let Some(words) = &self.gone {
            return Some((format!("{words}: {nothing}"), "its controller is gone"));
        }
        // What is held back is not forced either: that is for when it is let go.
        let text = self.force.as_ref().filter(|_| !held)?;
        status.use_force(text, &format!("{}, before it began", self.what));
        Some((format!("ended by force: {text}"), "ended by force"))
    }
}
