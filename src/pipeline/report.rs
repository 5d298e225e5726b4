//! What is said about a pipeline: phase, message, conditions. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{
    change::{Applying, Pending},
    decide::Turn,
    steer::Steering,
    want::{BY_SPEC, Want},
};
use crate::{
    api::{Condition, ConditionType, Conditions, Phase, PipelineRolloutStatus, Strategy, pausing},
    numaflow::LivePipeline,
    time::of_day,
    words::list,
};

/// What is to be said, before it is written into conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    phase: Phase,
    reason: String,
    message: String,
    /// Failed, but the server is asked again and again.
    retried: bool,
    /// Whether the pipeline is being paused and drained for a change, its own or one of what it depends on.
    draining: bool,
}

impl Report {
    fn new(phase: Phase, reason: &str, message: &str) -> Self {
        Self { phase, reason: reason.to_owned(), message: message.to_owned(), retried: false, draining: false }
    }

    /// Something is waited for.
    pub(super) fn pending(reason: &str, message: &str) -> Self {
        Self::new(Phase::pending(), reason, message)
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

    /// The pipeline is in a state that Numaflow does not leave.
    pub(super) fn wedged(child: &LivePipeline) -> Self {
        let words = format!(
            "healing Pipeline/{}: what it says ({}) is not what it does, and Numaflow never leaves that state by itself",
            child.version.name, child.phase
        );
        Self::pending("Wedged", &words)
    }

    /// Whether this is about something that the server refused before, and that is about to be tried again.
    pub(super) fn is_another_try(&self, stored: &PipelineRolloutStatus, generation: i64) -> bool {
        let retried = |c: &Condition| c.type_ == ConditionType::Reconciling.as_str() && c.status == "True";
        self.phase == Phase::pending()
            && stored.phase == Phase::failed()
            && stored.observed_generation == generation
            && stored.conditions.iter().any(retried)
    }

    /// Writes phase, message and conditions into the status in the making.
    pub(super) fn write(self, turn: &mut Turn<'_>) {
        let (generation, now) = (turn.next.observed_generation, turn.now);
        let mut conditions = Conditions::from_stored(&turn.stored.conditions);
        let mut set = |kind, status, reason: &str, message: &str| {
            conditions.set(kind, status, reason, message, generation, now);
        };
        let state = turn.next.pause.as_ref().map(|p| p.state.clone()).unwrap_or_default();
        let health = turn.child.map(|child| health(child, &state));
        if let Some((healthy, reason, message)) = &health {
            set(ConditionType::ChildResourcesHealthy, *healthy, reason, message);
        }
        let phase = turn.child.map(|c| c.phase.as_str()).unwrap_or_default();
        match (state.as_str(), phase) {
            (pausing::PAUSING, _) | ("", "Pausing") => {
                set(ConditionType::PipelinePausingOrPaused, Some(true), "PipelinePausing", "");
            }
            (pausing::PAUSED, _) | ("", "Paused") => {
                set(ConditionType::PipelinePausingOrPaused, Some(true), "PipelinePaused", "");
            }
            _ => set(ConditionType::PipelinePausingOrPaused, Some(false), "Unpaused", ""),
        }
        let deployed = self.phase == Phase::deployed();
        let reason = if deployed { "Successful" } else { self.reason.as_str() };
        set(ConditionType::ChildResourceDeployed, Some(deployed), reason, &self.message);
        match (&health, deployed) {
            (Some((Some(false), reason, message)), true) => set(ConditionType::Ready, Some(false), reason, message),
            _ => set(ConditionType::Ready, Some(deployed), &self.reason, &self.message),
        }
        let pending = self.phase == Phase::pending();
        let failed = self.phase == Phase::failed();
        if pending || self.retried {
            set(ConditionType::Reconciling, Some(true), &self.reason, &self.message);
        }
        if failed && !self.retried {
            set(ConditionType::Stalled, Some(true), &self.reason, &self.message);
        }
        if !pending && !self.retried {
            conditions.remove(ConditionType::Reconciling);
        }
        if !failed || self.retried {
            conditions.remove(ConditionType::Stalled);
        }
        let next = &mut turn.next;
        if failed && turn.stored.phase != Phase::failed() {
            next.last_failure_time = Some(Time(now));
        }
        next.phase = self.phase;
        next.message = self.message;
        next.conditions = conditions.into_vec();
        if self.draining { "PipelinePauseAndDrain" } else { "" }.clone_into(&mut next.upgrade_in_progress);
    }
}

impl Turn<'_> {
    /// What is to be said about a pipeline that is there.
    pub(super) fn report(
        &self,
        child: &LivePipeline,
        pending: &Pending,
        want: &Want,
        steering: &Steering,
        applying: &Applying,
    ) -> Report {
        let by_user_only = self.next.pause.as_ref().is_none_or(|p| p.asked_by.iter().all(|by| by == BY_SPEC));
        let draining = self.next.pause.is_some() && !by_user_only;
        Report { draining, ..self.plain_report(child, pending, want, steering, applying) }
    }

    fn plain_report(
        &self,
        child: &LivePipeline,
        pending: &Pending,
        want: &Want,
        steering: &Steering,
        applying: &Applying,
    ) -> Report {
        let waiting = waiting(steering);
        let after = |words: String| if waiting.is_empty() { words } else { format!("{words}, waiting for {waiting}") };
        let name = &child.version.name;
        if let Err(words) = &self.desired {
            return Report::failed("InvalidSpec", words);
        }
        if let Some(refusal) = self.s.learned.steering_refusal().cloned().or_else(|| self.refusal()) {
            return Report::blocked(&refusal.reason, &refusal.message);
        }
        let pausing = self.next.pause.as_ref();
        let state = pausing.map(|p| p.state.as_str()).unwrap_or_default();
        if !self.s.unknown.is_empty() && (*pending != Pending::None || want.paused != child.wants_paused()) {
            return Report::pending("Starting", &format!("waiting for {} to be listed", self.s.unknown.join(", ")));
        }
        if let Some(last) = self.desired.as_ref().ok().and_then(|d| self.given_up(d)) {
            if state == pausing::RESUMING {
                return Report::pending("Resuming", &after(last.message.clone()));
            }
            return Report::failed(&last.reason, &last.message);
        }
        let blocked =
            self.next.last_attempt.as_ref().filter(|last| {
                *pending != Pending::None && self.desired.as_ref().is_ok_and(|d| self.is_of_now(last, d))
            });
        if let Some(last) = blocked.filter(|_| !want.own) {
            return Report::blocked(&last.reason, &last.message);
        }
        let changes = pending.needs_pause().map(|paths| {
            let how = if matches!(pending, Pending::Recreate(_)) { "is made anew" } else { "is changed" };
            let mut words = format!("; then it {how} ({})", list(paths, 3));
            if self.s.strategy == Strategy::Progressive {
                words.push_str("; in this release such a change pauses and drains under strategy progressive too");
            }
            words
        });
        if want.paused {
            let (doing, reason) = if state == pausing::PAUSED { ("paused", "Paused") } else { ("pausing", "Pausing") };
            let since = pausing.and_then(|p| p.since.as_ref()).map(|t| of_day(t.0));
            let since = since.unwrap_or_default();
            let words = format!("Pipeline/{name} is {doing} since {since} ({})", want.reason);
            let by_user = want.asked_by.iter().all(|by| by == BY_SPEC);
            if by_user && state == pausing::PAUSED && *applying == Applying::Done && waiting.is_empty() {
                return Report::new(Phase::deployed(), "Deployed", "Deployed, and paused by its spec");
            }
            return Report::pending(reason, &format!("{}{}", after(words), changes.unwrap_or_default()));
        }
        if state == pausing::RESUMING {
            return Report::pending("Resuming", &after(format!("Pipeline/{name} is resumed")));
        }
        if *applying != Applying::Done {
            return Report::pending("Progressing", &after(format!("Pipeline/{name} is being changed")));
        }
        if let Some(wedge) = &self.next.wedge {
            let words = format!("Pipeline/{name} says {}, and that is being looked into", wedge.says);
            return Report::pending("Progressing", &words);
        }
        if !child.is_observed() {
            return Report::pending("NotObserved", &format!("waiting for {}", self.to_look(child)));
        }
        if !waiting.is_empty() {
            return Report::pending("Progressing", &format!("waiting for {waiting}"));
        }
        Report::new(Phase::deployed(), "Deployed", "Deployed")
    }
}

fn waiting(steering: &Steering) -> String {
    match steering {
        Steering::Settled | Steering::Steps(_) => String::new(),
        Steering::Waiting(words) => words.join(" and "),
        Steering::Unsafe(words) => words.clone(),
    }
}

/// How the pipeline is, as existing users read it: (healthy, reason, message).
fn health(child: &LivePipeline, pausing: &str) -> (Option<bool>, &'static str, String) {
    const PARTS: [&str; 3] = ["VerticesHealthy", "SideInputsManagersHealthy", "DaemonServiceHealthy"];
    let name = &child.version.name;
    let part = |wanted: &str| {
        PARTS.iter().find_map(|kind| child.conditions.get(*kind).filter(|(status, ..)| status == wanted))
    };
    let progressing = child.conditions.values().any(|(status, reason, _)| status == "False" && reason == "Progressing");
    match child.phase.as_str() {
        // What it says meanwhile changes several times in a moment.
        phase if !pausing.is_empty() && phase != "Failed" => {
            (None, "PipelineUnknown", format!("Pipeline/{name} is {}", pausing.to_lowercase()))
        }
        _ if !child.is_observed() => (Some(false), "Progressing", format!("Pipeline/{name} was not looked at yet")),
        "Failed" => (Some(false), "PipelineFailed", format!("Pipeline/{name}: {}", child.message)),
        "Paused" | "Pausing" => (None, "PipelineUnknown", format!("Pipeline/{name} is {}", child.phase)),
        "Deleting" => (Some(false), "PipelineDeleting", format!("Pipeline/{name} is being deleted")),
        "" => (None, "PipelineUnknown", format!("Pipeline/{name} says nothing")),
        _ if progressing => (Some(false), "Progressing", format!("Pipeline/{name}: {}", child.message)),
        _ => match (part("False"), part("Unknown")) {
            (Some((_, _, message)), _) => (Some(false), "PipelineFailed", format!("Pipeline/{name}: {message}")),
            (None, Some((_, _, message))) => (None, "PipelineUnknown", format!("Pipeline/{name}: {message}")),
            (None, None) => (Some(true), "Successful", String::new()),
        },
    }
}
