//! How the pipeline differs from what its rollout asks for, and when the difference may be applied. Pure.

use std::sync::Arc;

use serde_json::Value;

use super::{decide::Turn, desired::Desired, isb_name::FIELD, want::Want};
use crate::{
    api::{ANNOTATION_INSTANCE, LastChange, Strategy},
    changes::{self, Change, Field},
    numaflow::LivePipeline,
    plan::{NOT_KEPT, Step},
    wrapped::{Now, PIPELINE, drifted, removal},
};

/// How a pipeline differs from what is asked for; with the changed fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pending {
    /// It does not.
    None,
    /// What is asked for cannot be told.
    Unknown,
    /// Somebody changed it directly.
    Drift,
    /// It can be changed at once.
    Direct(Vec<String>),
    /// It has to be paused first.
    Pause(Vec<String>),
    /// It has to be made anew, and be paused first.
    Recreate(Vec<String>),
}

/// Whether the difference is applied now.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Applying {
    /// There is none.
    Done,
    /// With these steps.
    Now(Vec<Step>),
    /// Not yet.
    Later,
}

impl Pending {
    /// The changed fields that a pause is needed for.
    pub(super) fn needs_pause(&self) -> Option<&[String]> {
        match self {
            Self::Pause(paths) | Self::Recreate(paths) => Some(paths),
            _ => None,
        }
    }
}

impl Turn<'_> {
    /// How the pipeline differs from what is asked for.
    pub(super) fn pending(&self, child: &LivePipeline) -> Pending {
        let Ok(desired) = &self.desired else { return Pending::Unknown };
        if child.applied() == Some(&desired.wanted.hash) {
            return if drifted(child, &desired.wanted, desired.phase.is_some(), &self.next.left_alone) {
                Pending::Drift
            } else {
                Pending::None
            };
        }
        if child.instance() != desired.instance() {
            // Numaflow never hands an object from one controller to another.
            return Pending::Recreate(vec![format!("metadata.annotations[{ANNOTATION_INSTANCE}]")]);
        }
        let old = child.ownership.ours.as_ref().unwrap_or(&child.spec);
        match changes::classify(old, &desired.wanted.spec, &self.s.rules) {
            // What is in the old one would be lost: it is never changed in place, whatever the rules say.
            change if child.isb() != desired.isb() && !matches!(change, Change::Recreate(_)) => {
                Pending::Recreate(vec![FIELD.to_owned()])
            }
            Change::None => Pending::Direct(vec!["metadata".to_owned()]),
            Change::Direct(fields) => Pending::Direct(paths(&fields)),
            Change::Pause(fields) if self.s.strategy == Strategy::NoStrategy => Pending::Direct(paths(&fields)),
            Change::Pause(fields) => Pending::Pause(paths(&fields)),
            Change::Recreate(fields) => Pending::Recreate(paths(&fields)),
        }
    }

    /// Applies the difference where that is safe now: never while the pipeline is on its way into a pause.
    pub(super) fn applying(&mut self, child: &LivePipeline, pending: &Pending, want: &Want) -> Applying {
        let Ok(desired) = self.desired.clone() else { return Applying::Done };
        if *pending == Pending::None {
            return Applying::Done;
        }
        if !self.s.unknown.is_empty() || self.given_up(&desired).is_some() {
            return Applying::Later;
        }
        let settled = self.stands_still(child);
        let running = !want.paused && !child.wants_paused();
        // Numaflow does nothing with it before it is mended.
        let stuck = child.phase == "Failed" && child.is_observed();
        // A pause that Numaflow has not seen has begun nothing yet. One that others ask for stays, though: seen together with
        // the change, the changed vertex would stop at once, with messages before it.
        let unseen = !child.is_observed() && child.paused_at().is_none() && (!want.paused || self.is_gone(child));
        let allowed = match pending {
            Pending::None | Pending::Unknown => false,
            // While it fails in mid-pause, a changed vertex would stop undrained as soon as it does not.
            Pending::Drift | Pending::Direct(_) => {
                settled || running || (stuck && (child.is_misconfigured() || !child.wants_paused()))
            }
            Pending::Pause(_) | Pending::Recreate(_) => {
                let stuck = stuck && (child.is_misconfigured() || !want.paused);
                settled || (want.bypass.is_some() && (running || stuck || unseen || want.late))
            }
        };
        if !allowed {
            return Applying::Later;
        }
        if self.refusal().is_some() {
            self.blocked(&desired);
            return Applying::Later;
        }
        if let (Some(why), false, Some(paths)) = (&want.bypass, settled || want.on_record, pending.needs_pause()) {
            self.record_without_pause(&desired, paths, why);
        }
        if let Pending::Recreate(_) = pending {
            return Applying::Now(vec![Step::DeleteNumaflow { kind: PIPELINE.kind, object: child.version.clone() }]);
        }
        if let Some((patch, hash)) =
            removal(child, &desired.wanted, desired.phase.is_some()).filter(|(_, hash)| *hash != self.next.left_alone)
        {
            if self.s.learned.refusals.iter().any(|r| r.reason == NOT_KEPT) {
                // They come back: the server fills them in.
                self.next.left_alone = hash;
                return Applying::Later;
            }
            let (object, patch) = (child.version.clone(), Arc::new(patch));
            let why = "fields that nobody asked for are removed";
            return Applying::Now(vec![Step::PatchNumaflow { kind: PIPELINE.kind, object, patch, why }]);
        }
        if settled && let Some(pause) = self.next.pause.as_mut() {
            for vertex in desired.added_unscaled(&child.spec) {
                if !pause.added.contains(&vertex) {
                    pause.added.push(vertex);
                }
            }
        }
        let (body, expect) = (body(child, &desired), Some(child.version.clone()));
        Applying::Now(vec![Step::ApplyNumaflow { kind: PIPELINE.kind, body, expect }])
    }

    /// Whether its pause was settled and nothing has begun since: it stands still although it fails by now, or has lost its time
    /// stamp.
    fn stands_still(&self, child: &LivePipeline) -> bool {
        let settled = self.next.pause.as_ref().is_some_and(|p| p.settled_at.is_some());
        let still = child.is_observed() && child.wants_paused() && matches!(child.phase.as_str(), "Paused" | "Failed");
        settled && still && self.next.wedge.is_none()
    }

    /// Asks the server about a change before anything is paused for it.
    pub(super) fn ask(&self, child: &LivePipeline, desired: &Desired, pending: &Pending) -> Option<Step> {
        let checked = self.s.learned.planned.contains(&(child.version.name.clone(), desired.wanted.hash.clone()));
        if checked || matches!(pending, Pending::Recreate(_)) {
            return None;
        }
        // Its resourceVersion would only make it fail when Numaflow is busy with it.
        let expect = child.version.clone().of_any_state();
        Some(Step::CheckNumaflow { kind: PIPELINE.kind, body: body(child, desired), expect })
    }

    /// Why this very change is not attempted now.
    pub(super) fn given_up(&self, desired: &Desired) -> Option<&LastChange> {
        let last = self.next.last_attempt.as_ref();
        last.filter(|last| self.as_asked(desired, &self.retry()).was_given_up(Some(last)))
    }

    /// This change, as the user asks for it now.
    pub(super) fn as_asked<'n>(&self, desired: &'n Desired, retry: &'n str) -> Now<'n> {
        Now { generation: self.next.observed_generation, hash: &desired.wanted.hash, retry }
    }

    /// Whether an attempt was at this very change, as the user asks for it now.
    pub(super) fn is_of_now(&self, last: &LastChange, desired: &Desired) -> bool {
        self.as_asked(desired, &self.retry()).is(last)
    }

    /// Notes that the server refused a change for which the pipeline is paused: it does not stay so for that.
    fn blocked(&mut self, desired: &Desired) {
        let Some(refusal) = self.refusal().filter(|_| self.next.pause.as_ref().is_some_and(|p| p.own_since.is_some()))
        else {
            return;
        };
        let record = self.as_asked(desired, &self.retry()).blocked(&refusal, self.next.last_attempt.as_ref(), self.now);
        self.next.last_attempt = Some(record);
        if let Some(pause) = self.next.pause.as_mut() {
            (pause.own_since, pause.cut_at) = (None, None);
        }
    }
}

fn paths(fields: &[Field]) -> Vec<String> {
    fields.iter().map(|field| field.path.clone()).collect()
}

/// The pipeline as it is asked for, with the wanted phase and grace period that it has now: these are steered.
fn body(child: &LivePipeline, desired: &Desired) -> Arc<Value> {
    let lifecycle = &child.spec["lifecycle"];
    let (phase, grace) = (lifecycle.get("desiredPhase"), lifecycle.get("pauseGracePeriodSeconds"));
    Arc::new(desired.body(&child.version.name, phase, grace))
}

/// Reason of the record of a change that was applied without a pause.
pub(super) fn without_pause(desired: &Desired) -> String {
    format!("change {} of its own spec", desired.wanted.hash)
}
