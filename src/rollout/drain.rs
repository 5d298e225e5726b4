//! Drain: the pipelines of the instance pause before production changes hands. Pure.
//!
//! The rollout only asks, in `status.pauseRequest`. Each pipeline is paused by its own reconciler, which answers in the
//! status of its PipelineRollout.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{DrainProgress, OnDrainTimeout, PauseRequest, Stage, Upgrade, answer},
    controller::standing::Standing,
    numaflow::{GRACE, budget, last_wait},
    plan::Plan,
    rollout::{decide::Turn, report, snapshot::PipelineSeen, upkeep::Upkeep},
    summary::Summary,
    time::{elapsed, is_ahead, of_day},
    words::{duration, list},
};

/// Shortest wait until the next look.
const SHORTEST: Duration = Duration::from_millis(100);

/// How the pipelines of the instance stand towards the request of an attempt.
#[derive(Default)]
pub(super) struct Answers {
    /// Those waited for: name, and what they answer.
    waiting: Vec<Awaited>,
    /// Those that paused with everything processed.
    drained: Vec<String>,
    /// Those that paused with messages left, or whose user does not want to wait, with the reason.
    not_drained: Vec<String>,
    /// Those that are not paused for this request, with the reason.
    excused: Vec<String>,
    /// Those that nothing manages.
    pub(super) unmanaged: Vec<String>,
    /// How many there are that something manages.
    pub(super) managed: usize,
    /// Pipelines cannot be listed: there may be others.
    pub(super) unlisted: bool,
}

/// A pipeline that is waited for.
struct Awaited {
    name: String,
    says: String,
    /// How long its pause may take before its controller is taken for one that does not respond.
    budget: Duration,
}

impl Answers {
    /// Names of all that something manages and that are not settled, each with this reason.
    pub(super) fn unsettled(&self, why: &str) -> Vec<String> {
        self.waiting.iter().map(|p| format!("{}: {why}", p.name)).collect()
    }

    /// The record of a drain that goes on, or that ends because of `ended` with what is not settled left undrained.
    fn record(&self, since: Option<Time>, ended: Option<(String, &str)>) -> DrainProgress {
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
                drain.not_drained.extend(self.unsettled(why));
                drain.ended = ended;
            }
        }
        drain
    }

    /// The pipelines waited for, in words.
    fn names(&self, waited: Option<Duration>) -> String {
        let of = |p: &Awaited| {
            let slow = waited.is_some_and(|waited| waited >= p.budget);
            let slow = if slow {
                format!("; not paused within {}: its controller may not be responding", duration(p.budget))
            } else {
                String::new()
            };
            format!("Pipeline/{} ({}{slow})", p.name, p.says)
        };
        let mut names: Vec<String> = self.waiting.iter().map(of).collect();
        if self.unlisted {
            names.push("Pipelines, which cannot be listed".to_owned());
        }
        list(&names, 10)
    }

    /// How many of how many.
    fn count(&self) -> String {
        let many = if self.managed == 1 { "pipeline" } else { "pipelines" };
        format!("{} of {} {many}", self.waiting.len(), self.managed)
    }
}

impl Turn<'_> {
    /// How the pipelines of the running instance answer to the request of an attempt.
    pub(super) fn answers(&self, attempt: &str) -> Answers {
        let instance = self.stored.promoted.as_ref().map(|p| p.instance_id.as_str()).unwrap_or_default();
        let mut all: Vec<&PipelineSeen> =
            self.s.pipelines.iter().filter(|p| p.instance == instance && !p.deleting).collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        let managed = all.iter().filter(|p| p.rollout.is_some()).count();
        let unlisted = self.s.dependants.unlisted.iter().any(|kind| kind == "Pipeline");
        let mut answers = Answers { managed, unlisted, ..Answers::default() };
        let by = self.requester();
        for pipeline in all {
            let name = pipeline.name.clone();
            if pipeline.rollout.is_none() {
                answers.unmanaged.push(name);
                continue;
            }
            let said = pipeline.answers.iter().find(|a| a.by == by && a.attempt == attempt);
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
                    let raised = self.manner.drain_timeout.and_then(|t| i64::try_from(t.as_secs()).ok());
                    let grace = pipeline.grace.unwrap_or_else(|| raised.unwrap_or(GRACE).max(GRACE));
                    let says = other.map_or_else(|| "no answer yet".to_owned(), |(answer, _)| answer.to_owned());
                    answers.waiting.push(Awaited { name, says, budget: budget(grace, managed) });
                }
            }
        }
        answers
    }

    /// Pipelines that have an answer to a request of this attempt.
    fn still_answered(&self, attempt: &str) -> Vec<String> {
        let by = self.requester();
        let answered = |p: &&PipelineSeen| {
            p.rollout.is_some() && !p.deleting && p.answers.iter().any(|a| a.by == by && a.attempt == attempt)
        };
        self.s.pipelines.iter().filter(answered).map(|p| format!("Pipeline/{}", p.name)).collect()
    }

    /// Waits until every pipeline is settled, excused, or not waited for any longer.
    pub(super) fn drain(mut self, upgrade: Upgrade) -> Plan {
        if let Some(step) = self.stale_lease(&upgrade) {
            return Plan::of(vec![step]);
        }
        if self.superseded(&upgrade) {
            return self.supersede(&upgrade);
        }
        let paused = self.s.rollout.spec.paused == Some(true);
        if paused && self.requested(&upgrade.name).is_some() {
            return self.hold(upgrade, None);
        }
        let production = match self.stored.promoted.clone().map(|promoted| self.upkeep(&promoted)) {
            Some(Upkeep::Steps(steps)) => return Plan::of(steps),
            Some(Upkeep::Kept(standing)) => Some(standing),
            _ => None,
        };
        let production = production.as_ref();
        if self.s.child(&upgrade.name).is_some_and(|c| c.metadata.deletion_timestamp.is_some()) {
            return self.give_way(&upgrade, production);
        }
        if paused {
            return self.hold(upgrade, production);
        }
        let Some(mut request) = self.requested(&upgrade.name).cloned() else {
            // Held before, or the status was written by somebody else: from the beginning. What a pipeline has answered to the
            // request that was withdrawn says nothing about the next one.
            let behind = self.still_answered(&upgrade.name);
            if !behind.is_empty() {
                let words =
                    format!("waiting for {} to have seen that the last request was withdrawn", list(&behind, 10));
                let tidy = self.tidy_around(&upgrade);
                return self.finish(tidy, production, report::draining(&upgrade.version, &words));
            }
            return self.go_on(Upgrade { drain: None, ..upgrade }, production);
        };
        let seen = self.answers(&upgrade.name);
        if request.since.as_ref().is_none_or(|since| is_ahead(since, self.now)) {
            // The clock was set back, or it cannot be read: it counts from when the stage was stamped anew.
            request.since.clone_from(&upgrade.stage_started_at);
            self.next.pause_request.iter_mut().for_each(|r| r.since.clone_from(&request.since));
        }
        let waited = elapsed(request.since.as_ref(), self.now).max(self.in_stage(&upgrade));
        match self.ending(&upgrade, &request, &seen, waited) {
            Ending::Over(drain) => self.go_on(Upgrade { drain: Some(drain), ..upgrade }, production),
            Ending::Abort(drain, words) => {
                let upgrade = Upgrade { drain: Some(drain), ..upgrade };
                self.fail_untouched(&upgrade, "DrainTimeout", &words, production)
            }
            Ending::Waiting(at_most) => {
                self.again_after = at_most.map(|left| left.max(SHORTEST));
                let drain = seen.record(request.since.clone(), None);
                let words = self.drain_words(&seen, waited);
                let tidy = self.tidy_around(&upgrade);
                let report = report::draining(&upgrade.version, &words);
                self.next.upgrade = Some(Upgrade { drain: Some(drain), ..upgrade });
                self.finish(tidy, production, report)
            }
        }
    }

    /// Whether a drain is over, and what is written down when it is; what else changes is noted in the status in the making.
    fn ending(&mut self, upgrade: &Upgrade, request: &PauseRequest, seen: &Answers, waited: Duration) -> Ending {
        let since = request.since.clone();
        if seen.waiting.is_empty() && !seen.unlisted {
            let times = self.next.pause_request_status.get_or_insert_default();
            times.last_pause_phase_change_time = Some(Time(self.now));
            return Ending::Over(seen.record(since, None));
        }
        if let Some(text) = self.force() {
            let ended = format!("ended by force: {text}");
            self.use_force(text, &format!("the drain of version {:?}", upgrade.version));
            return Ending::Over(seen.record(since, Some((ended, "ended by force"))));
        }
        if let Some(words) = self.gone() {
            return Ending::Over(seen.record(since, Some((words, "its controller is gone"))));
        }
        let timeout = self.manner.drain_timeout;
        let over = timeout.is_some_and(|timeout| waited >= timeout);
        let time = timeout.map(duration).unwrap_or_default();
        if over && self.manner.on_drain_timeout == OnDrainTimeout::Abort {
            let ended = format!("drainTimeout {time} had passed, and onDrainTimeout is Abort");
            let why = format!("did not drain within {time}");
            let words = format!("{} did not drain within {time}: {}", seen.count(), seen.names(None));
            return Ending::Abort(seen.record(since, Some((ended, &why))), words);
        }
        let at_most = last_wait(seen.managed);
        match (&request.cut_at, over) {
            (Some(cut), _) => {
                if is_ahead(cut, self.now) {
                    let cut = self.not_before_now();
                    self.next.pause_request.as_mut().into_iter().for_each(|r| r.cut_at = Some(cut.clone()));
                    return Ending::Waiting(Some(at_most));
                }
                let left = at_most.saturating_sub(elapsed(Some(cut), self.now));
                if left.is_zero() {
                    // The time-out of the spec may be another one by now.
                    let taken = elapsed(request.since.as_ref(), cut.0);
                    let time = duration(timeout.filter(|timeout| *timeout <= taken).unwrap_or(taken));
                    let ended = format!("drainTimeout {time} had passed, and {} more", duration(at_most));
                    let why = format!("did not pause within {time}, nor within {} more", duration(at_most));
                    return Ending::Over(seen.record(since, Some((ended, &why))));
                }
                Ending::Waiting(Some(left))
            }
            (None, true) => {
                let cut = self.not_before_now();
                if let Some(request) = &mut self.next.pause_request {
                    request.cut_at = Some(cut);
                }
                Ending::Waiting(Some(at_most))
            }
            (None, false) => {
                self.renew_timeout();
                let left = timeout.map(|timeout| timeout.saturating_sub(waited));
                let slow = seen.waiting.iter().filter(|p| p.budget > waited).map(|p| p.budget.saturating_sub(waited));
                Ending::Waiting(slow.chain(left).min())
            }
        }
    }

    /// What is waited for, and until when: times as they are on a clock, so that the words stay the same while they pass.
    fn drain_words(&self, seen: &Answers, waited: Duration) -> String {
        let at = |time: Option<&Time>, later: Duration| {
            let then = time.and_then(|t| t.0.checked_add(later).ok()).unwrap_or(self.now);
            of_day(then)
        };
        let request = self.next.pause_request.as_ref();
        let since = request.and_then(|r| r.since.as_ref());
        let mut words = match request.and_then(|r| r.cut_at.as_ref()) {
            Some(cut) => format!(
                "the time to drain was up at {}; waiting until {} for {} to pause as they are: {}",
                at(Some(cut), Duration::ZERO),
                at(Some(cut), last_wait(seen.managed)),
                seen.count(),
                seen.names(None),
            ),
            None => format!(
                "waiting since {} for {} to drain: {}",
                at(since, Duration::ZERO),
                seen.count(),
                seen.names(Some(waited))
            ),
        };
        if request.is_some_and(|r| r.cut_at.is_none()) {
            words += &match (self.manner.drain_timeout, self.manner.on_drain_timeout) {
                (None, _) => "; no drainTimeout is set".to_owned(),
                (Some(timeout), action) => format!(
                    "; times out at {} (drainTimeout {}), and {} then",
                    at(since, timeout),
                    duration(timeout),
                    if action == OnDrainTimeout::Abort { "gives up" } else { "goes on" }
                ),
            };
        }
        if !seen.unmanaged.is_empty() {
            let names: Vec<String> = seen.unmanaged.iter().map(|name| format!("Pipeline/{name}")).collect();
            words += &format!("; {} left alone, without a PipelineRollout: {}", names.len(), list(&names, 5));
        }
        words
    }

    /// The user holds the rollout: pipelines run on until it is let go.
    fn hold(mut self, upgrade: Upgrade, production: Option<&Standing>) -> Plan {
        self.withdraw();
        let report = held(&upgrade.version);
        let tidy = if production.is_some() { self.tidy_around(&upgrade) } else { Vec::new() };
        self.next.upgrade = Some(Upgrade { drain: None, ..upgrade });
        self.finish(tidy, production, report)
    }

    /// Production's turn is next: pipelines pause first, where the strategy asks for it and there are any.
    pub(super) fn enter_drain(mut self, upgrade: Upgrade, rolls: bool, production: Option<&Standing>) -> Plan {
        let seen = self.answers(&upgrade.name);
        let nothing = "nothing was paused";
        let left_out = if self.manner.drain_timeout == Some(Duration::ZERO) {
            Some((format!("spec.strategy.ppnd.drainTimeout is 0s: {nothing}"), nothing))
        } else if seen.managed == 0 && !seen.unlisted {
            Some((String::new(), nothing))
        } else if let Some(words) = self.gone() {
            Some((format!("{words}: {nothing}"), "its controller is gone"))
        } else if self.s.rollout.spec.paused == Some(true) {
            None
        } else if let Some(text) = self.force() {
            let ended = format!("ended by force: {text}");
            self.use_force(text, &format!("the drain of version {:?}, before it began", upgrade.version));
            Some((ended, "ended by force"))
        } else {
            None
        };
        if let Some((ended, why)) = left_out {
            // Nobody was asked: whatever a pipeline has answered, it was not for this.
            let mut drain = seen.record(None, Some((ended, why)));
            drain.drained.clear();
            return self.enter_cut_over(Upgrade { drain: Some(drain), ..upgrade }, rolls, production);
        }
        let stage_started_at = Some(self.not_before_now());
        let upgrade = Upgrade {
            stage: Stage::Drain.as_str().to_owned(),
            stage_started_at,
            assessment: None,
            held_since: None,
            ..upgrade
        };
        if self.s.rollout.spec.paused == Some(true) {
            let report = held(&upgrade.version);
            self.next.upgrade = Some(upgrade);
            return self.save(production, report);
        }
        self.request_pause(&upgrade.name);
        let since = self.requested(&upgrade.name).and_then(|r| r.since.clone());
        let report = report::draining(&upgrade.version, &self.drain_words(&seen, Duration::ZERO));
        self.next.upgrade = Some(Upgrade { drain: Some(seen.record(since, None)), ..upgrade });
        self.save(production, report)
    }
}

/// What comes of a drain now.
enum Ending {
    /// It is over: its record.
    Over(DrainProgress),
    /// The attempt is given up: its record, and why.
    Abort(DrainProgress, String),
    /// It goes on; for so long at the most until something changes without anybody telling.
    Waiting(Option<Duration>),
}

fn held(version: &str) -> Summary {
    Summary::pending(
        "Paused",
        &format!(
            "paused by spec.paused: no pipeline is paused for version {version:?}, and nothing changes, until it is unset"
        ),
    )
}
