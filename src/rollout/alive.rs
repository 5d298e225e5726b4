//! Whether the controller of a rollout is there at all: one that is not can neither pause nor resume anything, and nobody
//! waits for it. Pure.

use std::time::Duration;

use crate::{
    api::{ControllerUnavailable, Stage},
    evidence::{Evidence, Look},
    manifest::Manifest,
    plan::Step,
    rollout::decide::Turn,
    time::{elapsed, is_ahead, of_day},
};

/// Time without an available pod after which a controller whose lease has run out is gone.
const PATIENCE: Duration = Duration::from_secs(90);
/// Time between two looks at the lease after that.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

impl Turn<'_> {
    /// Keeps `status.controllerUnavailable` in the making true to what is seen. Gives the look that is needed to know more.
    pub(super) fn watch_controller(&mut self) -> Option<Step> {
        let Some(promoted) = &self.stored.promoted else {
            self.next.controller_unavailable = None;
            return None;
        };
        // Whose definition cannot be read is not judged.
        let Ok(manifest) = self.s.manifest(&promoted.revision, &promoted.instance_id) else { return None };
        let upgrade = self.stored.upgrade.as_ref().filter(|u| in_production(&u.stage));
        let attempted = upgrade.and_then(|u| self.s.manifest(&u.revision, &u.instance_id).ok());
        if self.has_available_pod(&manifest) || attempted.is_some_and(|m| self.has_available_pod(&m)) {
            self.next.controller_unavailable = None;
            return None;
        }
        match self.stored.controller_unavailable.clone() {
            // Its pods are being replaced: whoever waits for that has a deadline.
            None if upgrade.is_some() => None,
            Some(known) if known.gone => None,
            Some(known) if known.since.as_ref().is_some_and(|t| !is_ahead(t, self.now)) => {
                if elapsed(known.since.as_ref(), self.now) < PATIENCE {
                    return None;
                }
                match self.lease_has_run_out(&manifest) {
                    Ok(gone) => self.next.controller_unavailable = Some(ControllerUnavailable { gone, ..known }),
                    Err(step) => return Some(step),
                }
                None
            }
            _ => {
                let since = Some(self.not_before_now());
                self.next.controller_unavailable = Some(ControllerUnavailable { since, gone: false });
                None
            }
        }
    }

    /// Whether any of the pods that act for pipelines is available: those that elect the leader, or all where none is elected.
    fn has_available_pod(&self, manifest: &Manifest) -> bool {
        let acts = |id: &_| manifest.leader.as_ref().is_none_or(|l| l.is_of(id));
        let mut workloads = manifest.objects.iter().filter(|o| o.is_workload() && acts(&o.id)).peekable();
        // What is not seen is not taken for dead.
        let unseen = |group: &str, kind: &str| self.s.unwatched.contains(&(group.to_owned(), kind.to_owned()));
        workloads.peek().is_none()
            || workloads.any(|o| {
                let seen = self.s.live.get(&o.id).and_then(|l| l.workload.as_ref());
                unseen(&o.id.group, &o.id.kind) || seen.is_some_and(|w| w.available > 0)
            })
    }

    /// Whether nobody holds the lease any more; what cannot be read is held.
    ///
    /// # Errors
    /// Only this look can tell.
    fn lease_has_run_out(&self, manifest: &Manifest) -> Result<bool, Step> {
        let Some(leader) = &manifest.leader else { return Ok(true) };
        let look = Look { lease: Some(leader.lease.clone()), ..Look::default() };
        match self.s.learned.looks.get(&look) {
            None => Err(Step::Look(look)),
            Some(Evidence { unreadable: Some(_), .. }) => Ok(false),
            Some(seen) => {
                Ok(seen.lease.as_ref().is_none_or(|lease| lease.holder.is_empty() || lease.has_run_out(self.now)))
            }
        }
    }

    /// The words for a controller that is gone; `None` for one that is there, or may be.
    pub(super) fn gone(&self) -> Option<String> {
        let known = self.next.controller_unavailable.as_ref().filter(|c| c.gone)?;
        let since = known.since.as_ref().map(|t| of_day(t.0)).unwrap_or_default();
        Some(format!(
            "ControllerUnavailable: no pod of the controller has been available since {since}, and its lease has run out"
        ))
    }

    /// When to look at the controller again: nothing else tells that it has been away for long enough.
    pub(super) fn look_for_controller(&self) -> Option<Duration> {
        let known = self.next.controller_unavailable.as_ref().filter(|c| !c.gone)?;
        let left = PATIENCE.saturating_sub(elapsed(known.since.as_ref(), self.now));
        Some(if left.is_zero() { LOOK_AGAIN } else { left })
    }
}

/// Whether production changes hands, or has, in this stage.
pub(super) fn in_production(stage: &str) -> bool {
    !matches!(Stage::parse(stage), Some(Stage::Resolve | Stage::Verify | Stage::Drain))
}
