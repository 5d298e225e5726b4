//! What is said about a pipeline: phase, message, conditions. Pure.

use super::{
    change::{Applying, Pending},
    decide::Turn,
    desired::Unclear,
    steer::Steering,
    want::{BY_SPEC, Want},
};
use crate::{
    api::{ConditionType, Conditions, PipelineRolloutStatus, Strategy, pausing},
    numaflow::LivePipeline,
    summary::{Summary, Unready},
    time::of_day,
    words::list,
};

/// Reason of one whose ISB service is not there.
pub(super) const ISB_MISSING: &str = "IsbServiceMissing";

/// What is to be said, before it is written into conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    summary: Summary,
    /// Whether the pipeline is being paused and drained for a change, its own or one of what it depends on.
    draining: bool,
}

impl From<Summary> for Report {
    fn from(summary: Summary) -> Self {
        Self { summary, draining: false }
    }
}

/// The pipeline is in a state that Numaflow does not leave.
pub(super) fn wedged(child: &LivePipeline) -> Summary {
    let words = format!(
        "healing Pipeline/{}: what it says ({}) is not what it does, and Numaflow never leaves that state by itself",
        child.version.name, child.phase
    );
    Summary::pending("Wedged", &words)
}

impl Report {
    /// Whether this is about something that the server refused before, and that is about to be tried again.
    pub(super) fn is_another_try(&self, stored: &PipelineRolloutStatus, generation: i64) -> bool {
        stored.observed_generation == generation && self.summary.is_another_try(&stored.phase, &stored.conditions)
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
        let unready = health.filter(|(healthy, ..)| *healthy == Some(false));
        let unready =
            unready.map(|(_, reason, message)| Unready { reason: reason.to_owned(), message, drifted: false });
        if self.draining { "PipelinePauseAndDrain" } else { "" }.clone_into(&mut turn.next.upgrade_in_progress);
        self.summary.write(&mut turn.next, conditions, unready.as_ref(), now);
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
        Report { draining, summary: self.summary(child, pending, want, steering, applying) }
    }

    fn summary(
        &self,
        child: &LivePipeline,
        pending: &Pending,
        want: &Want,
        steering: &Steering,
        applying: &Applying,
    ) -> Summary {
        let waiting = waiting(steering);
        let after = |words: String| if waiting.is_empty() { words } else { format!("{words}, waiting for {waiting}") };
        let name = &child.version.name;
        if let Err(Unclear::Invalid(words)) = &self.desired {
            return Summary::failed("InvalidSpec", words);
        }
        if let Some(refusal) = self.s.learned.steering_refusal().cloned().or_else(|| self.refusal()) {
            return Summary::blocked(&refusal.reason, &refusal.message);
        }
        if let Err(Unclear::Waiting(_, words)) = &self.desired {
            let words = format!("{words}; Pipeline/{name} stays as it is meanwhile");
            return Summary::pending(ISB_MISSING, &after(words));
        }
        let pausing = self.next.pause.as_ref();
        let state = pausing.map(|p| p.state.as_str()).unwrap_or_default();
        if !self.s.unknown.is_empty() && (*pending != Pending::None || want.paused != child.wants_paused()) {
            return Summary::pending("Starting", &format!("waiting for {} to be listed", self.s.unknown.join(", ")));
        }
        if let Some(last) = self.desired.as_ref().ok().and_then(|d| self.given_up(d)) {
            if state == pausing::RESUMING {
                return Summary::pending("Resuming", &after(last.message.clone()));
            }
            return Summary::failed(&last.reason, &last.message);
        }
        let blocked =
            self.next.last_attempt.as_ref().filter(|last| {
                *pending != Pending::None && self.desired.as_ref().is_ok_and(|d| self.is_of_now(last, d))
            });
        if let Some(last) = blocked.filter(|_| !want.own) {
            return Summary::blocked(&last.reason, &last.message);
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
                return Summary::deployed("Deployed, and paused by its spec");
            }
            return Summary::pending(reason, &format!("{}{}", after(words), changes.unwrap_or_default()));
        }
        if state == pausing::RESUMING {
            return Summary::pending("Resuming", &after(format!("Pipeline/{name} is resumed")));
        }
        if *applying != Applying::Done {
            return Summary::pending("Progressing", &after(format!("Pipeline/{name} is being changed")));
        }
        if let Some(wedge) = &self.next.wedge {
            let words = format!("Pipeline/{name} says {}, and that is being looked into", wedge.says);
            return Summary::pending("Progressing", &words);
        }
        if !child.is_observed() {
            return Summary::pending("NotObserved", &format!("waiting for {}", self.to_look(child)));
        }
        if !waiting.is_empty() {
            return Summary::pending("Progressing", &format!("waiting for {waiting}"));
        }
        Summary::deployed("Deployed")
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
