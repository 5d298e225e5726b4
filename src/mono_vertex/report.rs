//! What is said about a MonoVertex: phase, message, conditions. Pure.

use super::{
    change::{Applying, Pending},
    decide::Turn,
    steer::Steering,
    want::{BY_SPEC, Want},
};
use crate::{
    api::{ConditionType, Conditions, MonoVertexRolloutStatus, pausing},
    numaflow::LiveMonoVertex,
    summary::{Summary, Unready},
    time::of_day,
    words::list,
};

/// What is to be said, before it is written into conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    summary: Summary,
    /// What kind of change is under way; empty where none is.
    under_way: &'static str,
}

impl From<Summary> for Report {
    fn from(summary: Summary) -> Self {
        Self { summary, under_way: "" }
    }
}

impl Report {
    /// Whether this is about something that the server refused before, and that is about to be tried again.
    pub(super) fn is_another_try(&self, stored: &MonoVertexRolloutStatus, generation: i64) -> bool {
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
        let (paused, reason) = match state.as_str() {
            pausing::PAUSING => (true, "MonoVertexPausing"),
            pausing::PAUSED => (true, "MonoVertexPaused"),
            _ => (false, "Unpaused"),
        };
        set(ConditionType::MonoVertexPausingOrPaused, Some(paused), reason, "");
        let unready = health.filter(|(healthy, ..)| *healthy == Some(false));
        let unready =
            unready.map(|(_, reason, message)| Unready { reason: reason.to_owned(), message, drifted: false });
        self.under_way.clone_into(&mut turn.next.upgrade_in_progress);
        self.summary.write(&mut turn.next, conditions, unready.as_ref(), now);
    }
}

impl Turn<'_> {
    /// What is to be said about a MonoVertex that is there.
    pub(super) fn report(
        &self,
        child: &LiveMonoVertex,
        pending: &Pending,
        want: &Want,
        steering: &Steering,
        applying: &Applying,
    ) -> Report {
        let own = self.by_itself();
        let paused_for_change = self.next.pause.as_ref().is_some_and(|p| p.asked_by.contains(&own));
        let direct = *pending == Pending::Direct || (want.bypass.is_some() && pending.needs_pause().is_some());
        let under_way = match (paused_for_change, direct) {
            (true, _) => "PipelinePauseAndDrain",
            (false, true) => "DirectApply",
            (false, false) => "",
        };
        Report { under_way, summary: self.summary(child, pending, want, steering, applying) }
    }

    fn summary(
        &self,
        child: &LiveMonoVertex,
        pending: &Pending,
        want: &Want,
        steering: &Steering,
        applying: &Applying,
    ) -> Summary {
        let waiting = match steering {
            Steering::Waiting(words) => words.as_str(),
            Steering::Settled | Steering::Steps(_) => "",
        };
        let after = |words: String| if waiting.is_empty() { words } else { format!("{words}, waiting for {waiting}") };
        let name = &child.version.name;
        if let Err(words) = &self.desired {
            return Summary::failed("InvalidSpec", words);
        }
        if let Some(refusal) = self.s.learned.steering_refusal().cloned().or_else(|| self.refusal()) {
            return Summary::blocked(&refusal.reason, &refusal.message);
        }
        let turns = want.paused != child.wants_paused();
        if !self.s.unknown.is_empty() && (*pending != Pending::None || turns) {
            return Summary::pending("Starting", &format!("waiting for {} to be listed", self.s.unknown.join(", ")));
        }
        let pause = self.next.pause.as_ref();
        let state = pause.map(|p| p.state.as_str()).unwrap_or_default();
        if let Some(last) = self.given_up() {
            return Summary::failed(&last.reason, &last.message);
        }
        if let Some(last) = self.refused_before().filter(|_| pending.needs_pause().is_some() && !want.own) {
            return Summary::blocked(&last.reason, &last.message);
        }
        if want.paused {
            let settled = state == pausing::PAUSED;
            let by_user = want.asked_by.iter().all(|by| by == BY_SPEC);
            if by_user && settled && *applying == Applying::Done && waiting.is_empty() {
                return Summary::deployed("Deployed, and paused by its spec");
            }
            let (doing, reason) = if settled { ("paused", "Paused") } else { ("pausing", "Pausing") };
            let since = pause.and_then(|p| p.since.as_ref()).map(|t| of_day(t.0)).unwrap_or_default();
            let mut words = after(format!("MonoVertex/{name} is {doing} since {since} ({})", want.reason));
            if let Some(paths) = pending.needs_pause() {
                let how = if matches!(pending, Pending::Recreate(_)) { "is made anew" } else { "is changed" };
                words = format!("{words}; then it {how} ({})", list(paths, 3));
            }
            return Summary::pending(reason, &words);
        }
        if child.wants_paused() || state == pausing::RESUMING {
            return Summary::pending("Resuming", &after(format!("MonoVertex/{name} is resumed")));
        }
        if *applying != Applying::Done {
            return Summary::pending("Progressing", &after(format!("MonoVertex/{name} is being changed")));
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

/// How the MonoVertex is, as existing users read it: (healthy, reason, message).
fn health(child: &LiveMonoVertex, pausing: &str) -> (Option<bool>, &'static str, String) {
    const PARTS: [&str; 2] = ["DaemonHealthy", "PodsHealthy"];
    let name = &child.version.name;
    let ill = PARTS.iter().filter_map(|kind| child.conditions.get(*kind)).find(|(status, ..)| status != "True");
    match (child.phase.as_str(), ill) {
        // What it says meanwhile changes from one moment to the next.
        (phase, _) if !pausing.is_empty() && phase != "Failed" => {
            (None, "MonoVertexUnknown", format!("MonoVertex/{name} is {}", pausing.to_lowercase()))
        }
        _ if !child.is_observed() => (Some(false), "Progressing", format!("MonoVertex/{name} was not looked at yet")),
        ("Failed", _) => (Some(false), "MonoVertexFailed", format!("MonoVertex/{name}: {}", child.message)),
        ("Paused" | "", _) => (None, "MonoVertexUnknown", format!("MonoVertex/{name} says {:?}", child.phase)),
        (_, Some((_, reason, message))) if reason == "Progressing" => {
            (Some(false), "Progressing", format!("MonoVertex/{name}: {message}"))
        }
        (_, Some((status, _, message))) if status == "False" => {
            (Some(false), "MonoVertexFailed", format!("MonoVertex/{name}: {message}"))
        }
        (_, Some((_, _, message))) => (None, "MonoVertexUnknown", format!("MonoVertex/{name}: {message}")),
        (_, None) if child.rolling => {
            (Some(false), "Progressing", format!("MonoVertex/{name}: its pods are being replaced"))
        }
        (_, None) => (Some(true), "Successful", String::new()),
    }
}
