//! What is said about a rollout: phase, message, conditions. Pure.

use crate::{
    api::{AttemptResult, ConditionType, Conditions, HistoryEntry, Phase, Stage, Strategy},
    controller::{standing::Standing, target::Unresolved},
    rollout::{decide::Turn, snapshot::Revision},
    time::of_day,
};

/// What is to be said, before it is written into conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    phase: Phase,
    reason: String,
    message: String,
    /// Failed, but the server is asked again and again: it may heal by itself.
    retried: bool,
    /// What became of the definition of the promoted version.
    missing: Option<Unresolved>,
    /// Why production cannot be kept as it should be: (reason, message).
    trouble: Option<(String, String)>,
}

impl Report {
    fn new(phase: Phase, reason: &str, message: &str) -> Self {
        Self {
            phase,
            reason: reason.to_owned(),
            message: message.to_owned(),
            retried: false,
            missing: None,
            trouble: None,
        }
    }

    /// Something is waited for.
    pub(super) fn pending(reason: &str, message: &str) -> Self {
        Self::new(Phase::pending(), reason, message)
    }

    /// The desired spec is promoted and confirmed; `missing` says what became of its definition.
    pub(super) fn deployed(missing: Option<Unresolved>) -> Self {
        Self { missing, ..Self::new(Phase::deployed(), "Deployed", "Deployed") }
    }

    /// Only a change will help.
    pub(super) fn failed(reason: &str, message: &str) -> Self {
        Self::new(Phase::failed(), reason, message)
    }

    /// The server refuses; it is asked again.
    pub(super) fn blocked(reason: &str, message: &str) -> Self {
        let words = format!("refused by the server, retrying: {message}");
        Self { retried: true, ..Self::new(Phase::failed(), reason, &words) }
    }

    /// The new version proves itself.
    pub(super) fn verifying(version: &str, waiting: &str) -> Self {
        let waiting = if waiting.is_empty() { String::new() } else { format!(": {waiting}") };
        Self::pending("Verify", &format!("version {version:?} proves itself beside the running one{waiting}"))
    }

    /// Pipelines pause.
    pub(super) fn draining(version: &str, waiting: &str) -> Self {
        Self::pending("Drain", &format!("pipelines pause before version {version:?} is put in place: {waiting}"))
    }

    /// Production changes hands.
    pub(super) fn cutting_over(version: &str, waiting: &str) -> Self {
        let waiting = if waiting.is_empty() { String::new() } else { format!(", waiting for {waiting}") };
        Self::pending("CutOver", &format!("putting version {version:?} in place{waiting}"))
    }

    /// The new version is judged.
    pub(super) fn confirming(version: &str, waiting: &str) -> Self {
        let waiting = if waiting.is_empty() { String::new() } else { format!(": {waiting}") };
        Self::pending("Confirm", &format!("version {version:?} is in place and being judged{waiting}"))
    }

    /// The last confirmed version comes back.
    pub(super) fn rolling_back(version: &str, why: &str, waiting: &str) -> Self {
        let waiting = if waiting.is_empty() { String::new() } else { format!("; waiting for {waiting}") };
        Self::pending("RollBack", &format!("rolling back to version {version:?}, because {why}{waiting}"))
    }

    /// Whether the server is asked again and again.
    pub(super) fn is_retried(&self) -> bool {
        self.retried
    }

    /// Adds why production cannot be kept as it should be.
    pub(super) fn with_trouble(mut self, reason: &str, message: &str) -> Self {
        self.trouble = Some((reason.to_owned(), message.to_owned()));
        self
    }

    /// Writes phase, message and conditions into the status in the making.
    pub(super) fn write(mut self, turn: &mut Turn<'_>, standing: Option<&Standing>) {
        if let Some(words) = skipped(turn)
            && self.phase == Phase::pending()
        {
            self.message = format!("{} ({words})", self.message);
        }
        let generation = turn.s.generation();
        let now = turn.now;
        let mut conditions = Conditions::from_stored(&turn.stored.conditions);
        let mut set = |kind, status, reason: &str, message: &str| {
            conditions.set(kind, status, reason, message, generation, now);
        };
        let trouble = self.trouble.take().or_else(|| {
            let refusal = standing.and_then(|s| turn.s.learned.refusal_of(s))?;
            Some((refusal.reason.clone(), refusal.message.clone()))
        });
        match standing.map(|s| (s.healthy(), s.waiting_for())) {
            Some((true, _)) => set(ConditionType::ChildResourcesHealthy, Some(true), "Successful", ""),
            Some((false, waiting)) => {
                set(ConditionType::ChildResourcesHealthy, Some(false), "Progressing", &waiting);
            }
            None => {}
        }
        let healthy = standing.is_none_or(Standing::healthy) && trouble.is_none();
        let deployed = self.phase == Phase::deployed();
        match &trouble {
            Some((reason, message)) => set(ConditionType::ChildResourceDeployed, Some(false), reason, message),
            None => set(
                ConditionType::ChildResourceDeployed,
                Some(deployed),
                if deployed { "Successful" } else { &self.reason },
                &self.message,
            ),
        }
        match (deployed, healthy, &trouble) {
            (true, true, _) => set(ConditionType::Ready, Some(true), &self.reason, &self.message),
            (true, false, Some((reason, message))) => set(ConditionType::Ready, Some(false), reason, message),
            (true, false, None) => {
                let waiting = standing.map(Standing::waiting_for).unwrap_or_default();
                set(ConditionType::Ready, Some(false), "Unhealthy", &waiting);
            }
            (false, ..) => set(ConditionType::Ready, Some(false), &self.reason, &self.message),
        }
        if let Some(last) = &turn.next.last_attempt {
            let done = last.result == AttemptResult::Succeeded.as_str();
            if done || last.result == AttemptResult::Failed.as_str() {
                let reason = if done { "Succeeded" } else { "Failed" };
                set(ConditionType::ProgressiveUpgradeSucceeded, Some(done), reason, &last.message);
            }
        }
        match turn.next.pause_request.as_ref().filter(|r| r.active) {
            None => set(ConditionType::PausingPipelines, Some(false), "NoPause", ""),
            Some(request) => {
                let since = request.since.as_ref().map(|t| of_day(t.0)).unwrap_or_default();
                let words =
                    format!("pipelines are asked to pause since {since}, for NumaflowController/{}", request.attempt);
                set(ConditionType::PausingPipelines, Some(true), "Pause", &words);
            }
        }
        let pending = self.phase == Phase::pending();
        let failed = self.phase == Phase::failed();
        if pending || self.retried {
            set(ConditionType::Reconciling, Some(true), &self.reason, &self.message);
        }
        if failed && !self.retried {
            set(ConditionType::Stalled, Some(true), &self.reason, &self.message);
        }
        if let Some(missing) = &self.missing {
            set(ConditionType::DefinitionMissing, Some(true), missing.reason, &missing.message);
        }
        if !pending && !self.retried {
            conditions.remove(ConditionType::Reconciling);
        }
        if !failed || self.retried {
            conditions.remove(ConditionType::Stalled);
        }
        if self.missing.is_none() {
            conditions.remove(ConditionType::DefinitionMissing);
        }
        let entry = |r: &Revision| HistoryEntry { revision: r.name.clone(), version: r.version.clone() };
        let history = turn.kept_revisions().into_iter().map(entry).collect();
        let next = &mut turn.next;
        next.history = history;
        if failed && turn.stored.phase != Phase::failed() {
            next.last_failure_time = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now));
        }
        next.phase = self.phase;
        next.message = self.message;
        next.conditions = conditions.into_vec();
        let in_progress = match next.upgrade.as_ref().map(Turn::strategy) {
            None => "",
            Some(Strategy::Progressive) => "Progressive",
            Some(Strategy::PauseAndDrain) => "PipelinePauseAndDrain",
            Some(Strategy::NoStrategy) => "DirectApply",
        };
        in_progress.clone_into(&mut next.upgrade_in_progress);
    }
}

/// What of the strategy is left out in this attempt, and why; said in the message, so that nobody relies on it.
fn skipped(turn: &Turn<'_>) -> Option<String> {
    let upgrade = turn.next.upgrade.as_ref()?;
    if Stage::parse(&upgrade.stage) == Some(Stage::RollBack) {
        return None;
    }
    let mut words = Vec::new();
    if !upgrade.verify_skipped.is_empty() {
        words.push(format!("without Verify: {}", upgrade.verify_skipped));
    }
    let used = turn.next.force_promoted.as_ref().filter(|_| Stage::parse(&upgrade.stage) == Some(Stage::Verify));
    if let Some(used) = used {
        words.push(format!(
            "spec.strategy.forcePromote was honoured for version {:?}; set it to false first to use it again",
            used.version
        ));
    }
    let ended = upgrade.drain.as_ref().map(|d| d.ended.as_str()).unwrap_or_default();
    if !ended.is_empty() {
        words.push(format!("without a whole drain: {ended}"));
    }
    (!words.is_empty()).then(|| words.join("; "))
}
