//! Pipelines that Numaflow would never bring back by itself: told the other phase once, and then the right one. Pure.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::decide::Turn;
use crate::{
    api::{Wedge, pausing},
    numaflow::{LivePipeline, Wedged},
    plan::{Event, Step},
    time::{elapsed, not_before},
    wrapped::PIPELINE,
};

/// Time after which a pipeline that looks wedged is one: a healthy one may look so for a moment.
const SURE: Duration = Duration::from_secs(5);

impl Turn<'_> {
    /// Finds a wedged pipeline, and heals it: `Some` while that goes on, with the steps to be taken.
    pub(super) fn heal(&mut self, child: &LivePipeline) -> Option<Vec<Step>> {
        let plane = self.s.learned.planes.get(&child.version.name);
        let says_running = self.stored.wedge.as_ref().is_some_and(|w| w.says == Wedged::Running.says());
        if says_running && child.says_running() && plane.is_none() {
            // Its vertices tell whether it is; what was learned of them went with the last turn.
            return Some(vec![Step::LookAtPipeline { name: child.version.name.clone() }]);
        }
        let looks = child.looks_wedged().or_else(|| self.stays_paused(child));
        let healing = self.next.wedge.clone().filter(|w| w.healing);
        let Some(wedge) = healing else {
            if let Some(look) = self.watch(child, looks) {
                return Some(look);
            }
            return self.next.wedge.as_ref().is_some_and(|w| w.healing).then(Vec::new);
        };
        if child.is_observed() && child.phase == "Failed" {
            // Numaflow begins anew with it when its cause is gone.
            self.next.wedge = None;
            return None;
        }
        if let Some(pause) = self.next.pause.as_mut() {
            // What it said of its pause was not true.
            pause.unsettle();
        }
        let turned = child.wants_paused() != (wedge.says == Wedged::Paused.says());
        if child.says_running() {
            let Some(plane) = plane else {
                return Some(vec![Step::LookAtPipeline { name: child.version.name.clone() }]);
            };
            if plane.unreadable.is_some() {
                self.again(Duration::from_millis(250));
                return Some(Vec::new());
            }
            if plane.not_running().is_empty() {
                self.next.wedge = None;
                self.events.push(Event {
                    warning: false,
                    reason: "PipelineHealed",
                    note: format!("Pipeline/{} runs again", child.version.name),
                });
                return Some(Vec::new());
            }
            if wedge.generation != Some(child.generation) {
                // Not yet, or in vain: it is watched as before.
                self.next.wedge = Some(Wedge { since: Some(not_before(self.now)), healing: false, ..wedge });
                self.again(SURE);
                return Some(Vec::new());
            }
        }
        let step = match (child.wants_paused(), looks) {
            // Told the other phase.
            (false, Some(Wedged::Running)) => Some("Paused"),
            (true, Some(Wedged::Paused)) => Some(RUN),
            // … and, once that is seen, to run.
            (true, _) if turned && (child.says_paused() || child.may_turn_back()) => Some(RUN),
            // It is paused in truth by now.
            (true, None) if !turned && child.says_paused() => {
                self.next.wedge = None;
                return Some(Vec::new());
            }
            _ => None,
        };
        let Some(phase) = step.filter(|_| self.s.unknown.is_empty() && self.s.learned.steering_refusal().is_none())
        else {
            return Some(Vec::new());
        };
        // Where the user wants it paused, it is paused afterwards, in truth.
        let users = self.phase_of_user();
        let running = if users == "Paused" { Value::Null } else { users };
        let phase = if phase == RUN { running } else { json!(phase) };
        Some(vec![Step::PatchNumaflow {
            kind: PIPELINE.kind,
            object: child.version.clone().of_any_state(),
            patch: Arc::new(json!({"spec": {"lifecycle": {"desiredPhase": phase}}})),
            why: "healing: it is told the other phase, and then the right one",
        }])
    }

    /// One that is told to run, and says so, and whose vertices are still told to pause: it failed, and somebody took its time
    /// stamp away, so that Numaflow does not know of the pause any more. Only after a pause is that looked at.
    fn stays_paused(&self, child: &LivePipeline) -> Option<Wedged> {
        let resumed = self.stored.pause.as_ref().is_some_and(|p| p.state == pausing::RESUMING);
        let known = self.stored.wedge.as_ref().is_some_and(|w| w.says == Wedged::Running.says());
        let plane = self.s.learned.planes.get(&child.version.name)?;
        let paused = plane.unreadable.is_none() && plane.vertices.iter().any(|v| v.paused);
        (child.says_running() && (resumed || known) && paused).then_some(Wedged::Running)
    }

    /// Whether its pause was seen to be settled.
    fn was_settled(&self) -> bool {
        self.stored.pause.as_ref().is_some_and(|p| p.state == pausing::PAUSED)
    }

    /// Keeps an eye on one that looks wedged.
    fn watch(&mut self, child: &LivePipeline, looks: Option<Wedged>) -> Option<Vec<Step>> {
        let Some(wedged) = looks else {
            self.next.wedge = None;
            return None;
        };
        if wedged == Wedged::Paused && self.was_settled() {
            // Paused in truth as far as was seen; somebody took the time stamp away, or its vertices run by now. What cannot be
            // read is no reason to turn it.
            match self.s.learned.planes.get(&child.version.name) {
                None => return Some(vec![Step::LookAtPipeline { name: child.version.name.clone() }]),
                Some(plane) if plane.unreadable.is_some() || plane.not_paused(self.now).0.is_empty() => {
                    self.next.wedge = None;
                    return None;
                }
                Some(_) => {}
            }
        }
        let known = self.next.wedge.clone().filter(|w| w.says == wedged.says());
        let mut wedge = known.unwrap_or_else(|| Wedge {
            says: wedged.says().to_owned(),
            since: Some(not_before(self.now)),
            ..Wedge::default()
        });
        let left = SURE.saturating_sub(elapsed(wedge.since.as_ref(), self.now));
        if left.is_zero() {
            (wedge.healing, wedge.generation) = (true, Some(child.generation));
            let note = match wedged {
                Wedged::Running => "says that it runs, but its sources are paused, and Numaflow will not resume them",
                Wedged::Paused => "says that it is paused, but its vertices run, and Numaflow will not pause them",
            };
            let note =
                format!("Pipeline/{} {note}; it is told the other phase and then the right one", child.version.name);
            self.events.push(Event { warning: true, reason: "PipelineWedged", note });
        } else {
            self.again(left);
        }
        self.next.wedge = Some(wedge);
        None
    }
}

/// Stands for the user's phase, or none: nothing else than Paused means anything to Numaflow.
const RUN: &str = "";
