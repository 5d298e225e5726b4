//! From the name that a pipeline's spec has for its ISB service to the service that it uses: that of the ISBServiceRollout of
//! that name, else the service itself; and what a move from one to the next waits for. Pure.

use super::{
    change::Pending,
    decide::Turn,
    desired::{Desired, Unclear},
    snapshot::IsbRollout,
};
use crate::{
    api::{LABEL_ISB, LABEL_ISB_CHILD, child_number, label_value, pausing},
    numaflow::LivePipeline,
};

/// The field that names it, as people write it.
pub(super) const FIELD: &str = "spec.interStepBufferServiceName";

/// Why a pipeline that is made anew on another ISB service does not wait for a pause of its own.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AtOnce {
    /// A sentence.
    pub why: String,
    /// Whether what is lost by that is on record already, with those who waited for it.
    pub on_record: bool,
}

impl Turn<'_> {
    /// What the pipeline should be like, on the ISB service that its spec means. One that is there keeps what it has where that
    /// cannot be told: what is made next may be the same again.
    pub(super) fn on_its_isb_service(&self, desired: Desired) -> Result<Desired, Unclear> {
        let name = desired.isb().to_owned();
        let kept = self.child.filter(|child| belongs_to(child, &name)).map(|child| service_of(child));
        let rollout = self.s.isb_rollouts.get(&name);
        if let Some(known) = rollout.filter(|r| !r.child.is_empty() && !r.deleting) {
            return Ok(Desired { isb_rollout: Some(name), ..desired.on(&known.child) });
        }
        let as_written = rollout.is_none() && self.s.isb.contains_key(&name);
        if as_written {
            return Ok(desired);
        }
        if let Some(kept) = kept {
            return Ok(desired.on(&kept));
        }
        if rollout.is_none() && !self.s.unknown.is_empty() {
            // What is not listed is not missing. Nothing is changed before it is.
            return Ok(desired);
        }
        let words = waits_for(&name, rollout);
        Err(Unclear::Waiting(Box::new(desired), words))
    }

    /// Why the pipeline is moved to another ISB service without a pause of its own, where that is so.
    pub(super) fn moved_at_once(&self, child: &LivePipeline, desired: &Desired, pending: &Pending) -> Option<AtOnce> {
        let Pending::Recreate(paths) = pending else { return None };
        let settled = self.stored.pause.as_ref().is_some_and(|p| p.state == pausing::PAUSED);
        if settled || child.isb() == desired.isb() {
            // One that is paused is moved before it is resumed, as with any change.
            return None;
        }
        if self.s.unknown.is_empty() && !self.s.isb.contains_key(child.isb()) {
            let why = format!("InterStepBufferService/{}, which it uses, does not exist any more", child.isb());
            return Some(AtOnce { why, on_record: false });
        }
        let moved_by = desired.isb_rollout.as_deref().filter(|by| paths == &[FIELD] && belongs_to(child, by));
        let asked = |by: &&str| self.s.isb_rollouts.get(*by).is_some_and(|r| r.asked.contains(&child.version.name));
        let by = moved_by.filter(asked)?;
        Some(AtOnce { why: format!("ISBServiceRollout/{by} has waited for it"), on_record: true })
    }
}

/// Whether a pipeline was made for this name of an ISB service.
fn belongs_to(child: &LivePipeline, name: &str) -> bool {
    match child.labels.get(LABEL_ISB) {
        Some(label) => *label == label_value(name),
        // Somebody took it away, or it was made before there were labels.
        None => child.isb() == name || child_number(name, child.isb()).is_some(),
    }
}

/// The ISB service that a pipeline was made on, whatever somebody has written into its spec since.
fn service_of(child: &LivePipeline) -> String {
    let made_on = child.labels.get(LABEL_ISB_CHILD).filter(|label| **label != label_value(child.isb()));
    made_on.cloned().unwrap_or_else(|| child.isb().to_owned())
}

/// What a pipeline waits for whose ISB service is not there.
fn waits_for(name: &str, rollout: Option<&IsbRollout>) -> String {
    match rollout {
        None => format!("waiting for ISBServiceRollout/{name}, or an InterStepBufferService of that name"),
        Some(r) if r.unreadable => format!("waiting for ISBServiceRollout/{name}, which cannot be read"),
        Some(r) if r.deleting => format!("waiting for an ISB service: ISBServiceRollout/{name} is being deleted"),
        Some(_) => format!("waiting for ISBServiceRollout/{name} to have an ISB service"),
    }
}
