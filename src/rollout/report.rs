//! What is said about a rollout: phase, message, conditions. Pure.

use crate::{
    api::{AttemptResult, ConditionType, Conditions, HistoryEntry, Stage, Strategy},
    controller::{standing::Standing, target::Unresolved},
    drain,
    rollout::{decide::Turn, snapshot::Revision},
    summary::{Summary, Unready},
};

/// What is to be said, before it is written into conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    summary: Summary,
    /// What became of the definition of the promoted version.
    missing: Option<Unresolved>,
    /// Why production cannot be kept as it should be: (reason, message).
    trouble: Option<(String, String)>,
}

impl From<Summary> for Report {
    fn from(summary: Summary) -> Self {
        Self { summary, missing: None, trouble: None }
    }
}

/// The desired spec is promoted and confirmed.
pub(super) fn deployed() -> Summary {
    Summary::deployed("Deployed")
}

/// The new version proves itself.
pub(super) fn verifying(version: &str, waiting: &str) -> Summary {
    let waiting = if waiting.is_empty() { String::new() } else { format!(": {waiting}") };
    Summary::pending("Verify", &format!("version {version:?} proves itself beside the running one{waiting}"))
}

/// Pipelines pause.
pub(super) fn draining(version: &str, waiting: &str) -> Summary {
    Summary::pending("Drain", &format!("pipelines pause before version {version:?} is put in place: {waiting}"))
}

/// Production changes hands.
pub(super) fn cutting_over(version: &str, waiting: &str) -> Summary {
    let waiting = if waiting.is_empty() { String::new() } else { format!(", waiting for {waiting}") };
    Summary::pending("CutOver", &format!("putting version {version:?} in place{waiting}"))
}

/// The new version is judged.
pub(super) fn confirming(version: &str, waiting: &str) -> Summary {
    let waiting = if waiting.is_empty() { String::new() } else { format!(": {waiting}") };
    Summary::pending("Confirm", &format!("version {version:?} is in place and being judged{waiting}"))
}

/// The last confirmed version comes back.
pub(super) fn rolling_back(version: &str, why: &str, waiting: &str) -> Summary {
    let waiting = if waiting.is_empty() { String::new() } else { format!("; waiting for {waiting}") };
    Summary::pending("RollBack", &format!("rolling back to version {version:?}, because {why}{waiting}"))
}

impl Report {
    /// What is promoted and confirmed is not defined any more.
    pub(super) fn missing(why: &Unresolved) -> Self {
        Self { missing: Some(why.clone()), ..deployed().into() }
    }

    /// Adds why production cannot be kept as it should be.
    pub(super) fn with_trouble(mut self, reason: &str, message: &str) -> Self {
        self.trouble = Some((reason.to_owned(), message.to_owned()));
        self
    }

    /// Writes phase, message and conditions into the status in the making.
    pub(super) fn write(self, turn: &mut Turn<'_>, standing: Option<&Standing>) {
        let (generation, now) = (turn.s.generation(), turn.now);
        let mut conditions = Conditions::from_stored(&turn.stored.conditions);
        let mut set = |kind, status, reason: &str, message: &str| {
            conditions.set(kind, Some(status), reason, message, generation, now);
        };
        match standing.map(|s| (s.healthy(), s.waiting_for())) {
            Some((true, _)) => set(ConditionType::ChildResourcesHealthy, true, "Successful", ""),
            Some((false, waiting)) => set(ConditionType::ChildResourcesHealthy, false, "Progressing", &waiting),
            None => {}
        }
        if let Some(last) = &turn.next.last_attempt {
            let done = last.result == AttemptResult::Succeeded.as_str();
            if done || last.result == AttemptResult::Failed.as_str() {
                let reason = if done { "Succeeded" } else { "Failed" };
                set(ConditionType::ProgressiveUpgradeSucceeded, done, reason, &last.message);
            }
        }
        let attempted = |attempt: &str| format!("NumaflowController/{attempt}");
        let (asked, reason, words) = drain::condition(turn.next.pause_request.as_ref(), attempted);
        set(ConditionType::PausingPipelines, asked, reason, &words);
        match &self.missing {
            Some(missing) => set(ConditionType::DefinitionMissing, true, missing.reason.as_str(), &missing.message()),
            None => conditions.remove(ConditionType::DefinitionMissing),
        }
        let unready = self.unready(turn, standing);
        let entry = |r: &Revision| HistoryEntry { revision: r.name.clone(), version: r.version.clone() };
        turn.next.history = turn.kept_revisions().into_iter().map(entry).collect();
        let in_progress = match turn.next.upgrade.as_ref().map(Turn::strategy) {
            None => "",
            Some(Strategy::Progressive) => "Progressive",
            Some(Strategy::PauseAndDrain) => "PipelinePauseAndDrain",
            Some(Strategy::NoStrategy) => "DirectApply",
        };
        in_progress.clone_into(&mut turn.next.upgrade_in_progress);
        self.summary.while_pending(skipped(turn)).write(&mut turn.next, conditions, unready.as_ref(), now);
    }

    /// Why production is not as it should be.
    fn unready(&self, turn: &Turn<'_>, standing: Option<&Standing>) -> Option<Unready> {
        let refusal = || {
            let refusal = turn.s.learned.refusal_of(standing?)?;
            Some((refusal.reason.clone(), refusal.message.clone()))
        };
        if let Some((reason, message)) = self.trouble.clone().or_else(refusal) {
            return Some(Unready { reason, message, drifted: true });
        }
        let standing = standing.filter(|s| !s.healthy())?;
        Some(Unready { reason: "Unhealthy".to_owned(), message: standing.waiting_for(), drifted: false })
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
