//! How the MonoVertex differs from what its rollout asks for, and when the difference may be applied. Pure.

use std::sync::Arc;

use serde_json::Value;

use super::{decide::Turn, desired::Desired, want::Want};
use crate::{
    api::{ANNOTATION_INSTANCE, LastChange, Strategy, pausing},
    changes::{self, Change, Field},
    numaflow::LiveMonoVertex,
    plan::{NOT_KEPT, Step},
    wrapped::{MONO_VERTEX, Now, drifted, removal},
};

/// How a MonoVertex differs from what is asked for; with the changed fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pending {
    /// It does not.
    None,
    /// What is asked for cannot be told.
    Unknown,
    /// Somebody changed it directly.
    Drift,
    /// It can be changed at once: Numaflow rolls that out pod by pod.
    Direct,
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
    /// How the MonoVertex differs from what is asked for.
    pub(super) fn pending(&self, child: &LiveMonoVertex) -> Pending {
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
        let mut old = child.ownership.ours.as_ref().unwrap_or(&child.spec).clone();
        if let Some(old) = old.as_object_mut().filter(|_| !desired.fixes_replicas()) {
            old.remove("replicas");
        }
        match changes::classify(&old, &desired.wanted.spec, &self.s.rules) {
            Change::None | Change::Direct(_) => Pending::Direct,
            Change::Pause(_) if self.s.strategy == Strategy::NoStrategy => Pending::Direct,
            Change::Pause(fields) => Pending::Pause(paths(&fields)),
            Change::Recreate(fields) => Pending::Recreate(paths(&fields)),
        }
    }

    /// Whether the difference may be applied as things stand with the MonoVertex. What a rule asks a pause for waits until its
    /// pods are gone; nothing else ever waits: no change loses a message.
    fn may_be_applied(&self, pending: &Pending, want: &Want) -> bool {
        let settled = self.next.pause.as_ref().is_some_and(|p| p.state == pausing::PAUSED);
        let allowed = match pending {
            Pending::None | Pending::Unknown => false,
            Pending::Drift | Pending::Direct => true,
            Pending::Pause(_) | Pending::Recreate(_) => settled || want.bypass.is_some(),
        };
        allowed && self.s.unknown.is_empty() && self.given_up().is_none()
    }

    /// Whether a change is applied before the MonoVertex is resumed, so that no pod of the old spec is started in between: it
    /// waits for no pause, and the server has nothing against it. One that waited for the pause goes in while that is wanted.
    pub(super) fn change_goes_first(&self, pending: &Pending, want: &Want) -> bool {
        let free = *pending == Pending::Direct || (pending.needs_pause().is_some() && want.bypass.is_some());
        let silent = self.refusal().is_none() && self.s.learned.steering_refusal().is_none();
        free && silent && self.may_be_applied(pending, want)
    }

    /// Applies the difference where that may be.
    pub(super) fn applying(&mut self, child: &LiveMonoVertex, pending: &Pending, want: &Want) -> Applying {
        let Ok(desired) = self.desired.clone() else { return Applying::Done };
        if *pending == Pending::None {
            return Applying::Done;
        }
        let resuming = !want.paused && child.wants_paused();
        if !self.may_be_applied(pending, want) || (resuming && !self.change_goes_first(pending, want)) {
            return Applying::Later;
        }
        if self.refusal().is_some() {
            self.blocked(&desired);
            return Applying::Later;
        }
        // Of one that never ran nothing could be paused.
        if let (Some(why), Some(paths), false) = (&want.bypass, pending.needs_pause(), child.never_ran()) {
            self.record_without_pause(paths, why);
        }
        if let Pending::Recreate(_) = pending {
            return Applying::Now(vec![Step::DeleteNumaflow { kind: MONO_VERTEX.kind, object: child.version.clone() }]);
        }
        let strays = removal(child, &desired.wanted, desired.phase.is_some());
        // What somebody added goes first, lest it makes the change invalid; but it does not hold up a resume.
        if let Some((patch, hash)) = strays.filter(|(_, hash)| *hash != self.next.left_alone && !resuming) {
            if self.s.learned.refusals.iter().any(|r| r.reason == NOT_KEPT) {
                // They come back: the server fills them in.
                self.next.left_alone = hash;
                return Applying::Later;
            }
            let (object, patch) = (child.version.clone(), Arc::new(patch));
            let why = "fields that nobody asked for are removed";
            return Applying::Now(vec![Step::PatchNumaflow { kind: MONO_VERTEX.kind, object, patch, why }]);
        }
        let (body, expect) = (body(child, &desired), Some(child.version.clone()));
        Applying::Now(vec![Step::ApplyNumaflow { kind: MONO_VERTEX.kind, body, expect }])
    }

    /// Asks the server about a change before anything is paused for it.
    pub(super) fn ask(&self, child: &LiveMonoVertex, desired: &Desired, pending: &Pending) -> Option<Step> {
        let checked = self.s.learned.planned.contains(&(child.version.name.clone(), desired.wanted.hash.clone()));
        if checked || matches!(pending, Pending::Recreate(_)) {
            return None;
        }
        // Its resourceVersion would only make it fail when Numaflow is busy with it.
        let expect = child.version.clone().of_any_state();
        Some(Step::CheckNumaflow { kind: MONO_VERTEX.kind, body: body(child, desired), expect })
    }

    /// Why this very change is not attempted any more.
    pub(super) fn given_up(&self) -> Option<&LastChange> {
        let (desired, last) = (self.desired.as_ref().ok()?, self.next.last_attempt.as_ref());
        last.filter(|last| self.as_asked(desired, &self.retry()).was_given_up(Some(last)))
    }

    /// This change, as the user asks for it now.
    pub(super) fn as_asked<'n>(&self, desired: &'n Desired, retry: &'n str) -> Now<'n> {
        Now { generation: self.next.observed_generation, hash: &desired.wanted.hash, retry }
    }

    /// What the server said last to this very change, for which the MonoVertex was paused.
    pub(super) fn refused_before(&self) -> Option<&LastChange> {
        let (desired, last) = (self.desired.as_ref().ok()?, self.next.last_attempt.as_ref()?);
        self.as_asked(desired, &self.retry()).is(last).then_some(last)
    }

    /// Notes that the server refused a change for which the MonoVertex is paused: it does not stay so for that.
    fn blocked(&mut self, desired: &Desired) {
        let own = self.by_itself();
        let Some(refusal) =
            self.refusal().filter(|_| self.next.pause.as_ref().is_some_and(|p| p.asked_by.contains(&own)))
        else {
            return;
        };
        let record = self.as_asked(desired, &self.retry()).blocked(&refusal, self.next.last_attempt.as_ref(), self.now);
        self.next.last_attempt = Some(record);
        if let Some(pause) = self.next.pause.as_mut() {
            pause.asked_by.retain(|by| *by != own);
        }
    }
}

fn paths(fields: &[Field]) -> Vec<String> {
    fields.iter().map(|field| field.path.clone()).collect()
}

/// The MonoVertex as it is asked for, with the wanted phase that it has now: that is steered. Of the number of replicas only one
/// that we have written stays with us: left out, it would be taken away.
fn body(child: &LiveMonoVertex, desired: &Desired) -> Arc<Value> {
    let ours = child.ownership.ours.as_ref().is_some_and(|ours| ours.get("replicas").is_some());
    Arc::new(desired.body(&child.version.name, child.written_phase(), child.replicas().filter(|_| ours)))
}
