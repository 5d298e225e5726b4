//! How the pipeline differs from what its rollout asks for, and when the difference may be applied. Pure.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    decide::{PIPELINE, Turn},
    desired::Desired,
    want::Want,
};
use crate::{
    api::{ANNOTATION_INSTANCE, AttemptResult, PipelineAttempt, Strategy, short_hash},
    changes::{self, Change, Field},
    numaflow::{LivePipeline, covers},
    plan::{NOT_KEPT, Step},
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
        if child.applied() == Some(&desired.hash) {
            return if drifted(child, desired, &self.next.left_alone) { Pending::Drift } else { Pending::None };
        }
        if child.instance() != desired.instance() {
            // Numaflow never hands an object from one controller to another.
            return Pending::Recreate(vec![format!("metadata.annotations[{ANNOTATION_INSTANCE}]")]);
        }
        let old = child.ownership.ours.as_ref().unwrap_or(&child.spec);
        match changes::classify(old, &desired.spec, &self.s.rules) {
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
        if let (Some(why), false, Some(paths)) = (&want.bypass, settled, pending.needs_pause()) {
            self.record_without_pause(&desired, paths, why);
        }
        if let Pending::Recreate(_) = pending {
            return Applying::Now(vec![Step::DeleteNumaflow { kind: PIPELINE, object: child.version.clone() }]);
        }
        if let Some((patch, hash)) = removal(child, &desired).filter(|(_, hash)| *hash != self.next.left_alone) {
            if self.s.learned.refusals.iter().any(|r| r.reason == NOT_KEPT) {
                // They come back: the server fills them in.
                self.next.left_alone = hash;
                return Applying::Later;
            }
            let (object, patch) = (child.version.clone(), Arc::new(patch));
            let why = "fields that nobody asked for are removed";
            return Applying::Now(vec![Step::PatchNumaflow { kind: PIPELINE, object, patch, why }]);
        }
        if settled && let Some(pause) = self.next.pause.as_mut() {
            for vertex in desired.added_unscaled(&child.spec) {
                if !pause.added.contains(&vertex) {
                    pause.added.push(vertex);
                }
            }
        }
        let (body, expect) = (body(child, &desired), Some(child.version.clone()));
        Applying::Now(vec![Step::ApplyNumaflow { kind: PIPELINE, body, expect }])
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
        let checked = self.s.learned.planned.contains(&(child.version.name.clone(), desired.hash.clone()));
        if checked || matches!(pending, Pending::Recreate(_)) {
            return None;
        }
        // Its resourceVersion would only make it fail when Numaflow is busy with it.
        let expect = child.version.clone().of_any_state();
        Some(Step::CheckNumaflow { kind: PIPELINE, body: body(child, desired), expect })
    }

    /// Why this very change is not attempted now.
    pub(super) fn given_up(&self, desired: &Desired) -> Option<&PipelineAttempt> {
        let last = self.next.last_attempt.as_ref()?;
        (self.is_of_now(last, desired) && last.result == AttemptResult::Failed.as_str()).then_some(last)
    }

    /// Whether an attempt was at this very change, as the user asks for it now.
    pub(super) fn is_of_now(&self, last: &PipelineAttempt, desired: &Desired) -> bool {
        last.hash == desired.hash && last.retry == self.retry() && last.generation == self.next.observed_generation
    }

    /// Notes that the server refused a change for which the pipeline is paused: it does not stay so for that.
    fn blocked(&mut self, desired: &Desired) {
        let Some(refusal) = self.refusal().filter(|_| self.next.pause.as_ref().is_some_and(|p| p.own_since.is_some()))
        else {
            return;
        };
        let tries = self.next.last_attempt.as_ref().filter(|last| self.is_of_now(last, desired)).map_or(0, |l| l.tries);
        self.next.last_attempt = Some(PipelineAttempt {
            tries: tries.saturating_add(1),
            generation: self.next.observed_generation,
            hash: desired.hash.clone(),
            retry: self.retry(),
            result: AttemptResult::Blocked.as_str().to_owned(),
            reason: refusal.reason,
            message: refusal.message,
            finished_at: Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(self.now)),
        });
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
    format!("change {} of its own spec", desired.hash)
}

/// Whether somebody changed what we applied, or added to it.
fn drifted(child: &LivePipeline, desired: &Desired, left_alone: &str) -> bool {
    let ours = child.ownership.ours.as_ref().unwrap_or(&Value::Null);
    let has = |there: &std::collections::BTreeMap<String, String>,
               wanted: &std::collections::BTreeMap<String, String>| {
        wanted.iter().all(|(key, value)| there.get(key) == Some(value))
    };
    child.owner.is_none()
        || !covers(ours, &desired.spec)
        || !has(&child.labels, &desired.labels)
        || !has(&child.annotations, &desired.annotations)
        || removal(child, desired).is_some_and(|(_, hash)| hash != left_alone)
}

/// The merge patch that removes what others added to the spec, and a wanted phase that stands for none, and its hash.
fn removal(child: &LivePipeline, desired: &Desired) -> Option<(Value, String)> {
    let steered = |path: &[String]| {
        matches!(path, [lifecycle, field] if lifecycle == "lifecycle"
            && (field == "desiredPhase" || field == "pauseGracePeriodSeconds"))
    };
    let wanted = |path: &[String]| path.iter().try_fold(&desired.spec, |value, key| value.get(key)).is_some();
    let mut patch = json!({});
    let mut any = false;
    for path in child.ownership.foreign.iter().filter(|path| !steered(path) && !wanted(path)) {
        let mut at = &mut patch["spec"];
        for key in path {
            at = &mut at[key.as_str()];
        }
        *at = Value::Null;
        any = true;
    }
    // A phase that means Running is as good as none; but nobody asks for it.
    if desired.phase.is_none() && !child.wants_paused() && child.written_phase().is_some() && child.ownership.phase {
        patch["spec"]["lifecycle"]["desiredPhase"] = Value::Null;
        any = true;
    }
    any.then(|| {
        let hash = short_hash(patch.to_string().as_bytes());
        (patch, hash)
    })
}
