//! How pipelines answer to a request, and the record that is made of it. Pure.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Asking;
use crate::{
    api::{DrainProgress, answer},
    numaflow::{GRACE, budget},
};

/// How the pipelines that a requester means stand towards its request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// Those waited for.
    pub(super) waiting: Vec<Awaited>,
    /// Those that paused with everything processed.
    drained: Vec<String>,
    /// Those that paused with messages left, or whose user does not want to wait, with the reason.
    not_drained: Vec<String>,
    /// Those that are not paused for this request, with the reason.
    excused: Vec<String>,
    /// Those that nothing manages.
    pub(super) unmanaged: Vec<String>,
    /// How many there are that something manages.
    pub managed: usize,
    /// Pipelines cannot be listed: there may be others.
    pub unlisted: bool,
}

/// A pipeline that is waited for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Awaited {
    /// Its name.
    pub name: String,
    /// What it answers.
    pub says: String,
    /// How long its pause may take before its controller is taken for one that does not respond.
    pub budget: Duration,
}

impl Asking<'_> {
    /// How the pipelines that are meant answer.
    #[must_use]
    pub fn answers(&self) -> Answers {
        let all = self.meant();
        let managed = all.iter().filter(|p| p.rollout.is_some()).count();
        let mut answers = Answers { managed, unlisted: self.unlisted, ..Answers::default() };
        for pipeline in all {
            let name = pipeline.name.clone();
            if pipeline.rollout.is_none() {
                answers.unmanaged.push(name);
                continue;
            }
            let said = pipeline.answers.iter().find(|a| a.by == self.by && a.attempt == self.attempt);
            let why = |otherwise: &str| {
                let why = said.map(|a| a.why.as_str()).filter(|w| !w.is_empty()).unwrap_or(otherwise);
                format!("{name}: {why}")
            };
            match said.map(|a| (a.answer.as_str(), a.drained)) {
                Some((answer::PAUSED, Some(true))) => answers.drained.push(name),
                Some((answer::PAUSED, _)) => answers.not_drained.push(why("it paused with messages left")),
                Some((answer::FORCED, _)) => answers.not_drained.push(why("its user does not want to wait")),
                Some((answer::EXCUSED, _)) => answers.excused.push(why("it is not paused")),
                other => {
                    let raised = self.timeout.and_then(|t| i64::try_from(t.as_secs()).ok());
                    let grace = pipeline.grace.unwrap_or_else(|| raised.unwrap_or(GRACE).max(GRACE));
                    let says = other.map_or_else(|| "no answer yet".to_owned(), |(answer, _)| answer.to_owned());
                    answers.waiting.push(Awaited { name, says, budget: budget(grace, managed) });
                }
            }
        }
        answers
    }
}

impl Answers {
    /// Whether nobody is waited for any more.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.waiting.is_empty() && !self.unlisted
    }

    /// The record of a drain that goes on or has come to its end; or that ends because of `ended`, with each that is not settled
    /// left undrained for the reason beside it.
    pub(super) fn record(&self, since: Option<Time>, ended: Option<(String, &str)>) -> DrainProgress {
        let mut drain = DrainProgress {
            since,
            drained: self.drained.clone(),
            not_drained: self.not_drained.clone(),
            excused: self.excused.clone(),
            unmanaged: self.unmanaged.clone(),
            ..DrainProgress::default()
        };
        match ended {
            None => drain.waiting_for = self.waiting.iter().map(|p| p.name.clone()).collect(),
            Some((ended, why)) => {
                drain.not_drained.extend(self.waiting.iter().map(|p| format!("{}: {why}", p.name)));
                drain.ended = ended;
            }
        }
        drain
    }
}
