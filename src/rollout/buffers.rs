//! The ISB services of an instance: a version that leaves one of them broken is not a good one. Pure.

use std::time::Duration;

use crate::{
    api::Upgrade,
    evidence::{Evidence, Look},
    manifest::Manifest,
    plan::Step,
    rollout::{decide::Turn, judge::Health},
    words::list,
};

impl Turn<'_> {
    /// ISB services of an instance.
    fn isb_of(&self, instance: &str) -> Vec<String> {
        let of_it = self.s.isb_services.iter().filter(|(_, of)| of == instance);
        of_it.map(|(name, _)| name.clone()).collect()
    }

    /// Those that are not healthy, as long as nothing has changed; or why that cannot be told.
    ///
    /// # Errors
    /// Only this look can tell.
    pub(super) fn isb_unhealthy(&self, instance: &str) -> Result<Result<Vec<String>, String>, Step> {
        let Some(look) = look_at(self.isb_of(instance)) else { return Ok(Ok(Vec::new())) };
        let promoted = self.stored.promoted.as_ref();
        let running = promoted.and_then(|p| self.s.manifest(&p.revision, &p.instance_id).ok());
        let settings = running.as_ref().and_then(|m| m.isbsvc.as_deref());
        match self.s.learned.looks.get(&look) {
            None => Err(Step::Look(look)),
            Some(Evidence { unreadable: Some(why), .. }) => Ok(Err(unreadable(why))),
            Some(seen) => {
                let lacking = seen.isb.iter().filter(|(_, isb)| !isb.lacks(settings).is_empty());
                Ok(Ok(lacking.map(|(name, _)| name.clone()).collect()))
            }
        }
    }

    /// The health of the ISB services that were there, and healthy, before the attempt; `None` where nothing is wrong. Nobody
    /// asks after an attempt that had no Drain.
    ///
    /// # Errors
    /// Only this look can tell.
    pub(super) fn isb_health(
        &self,
        upgrade: &Upgrade,
        manifest: &Manifest,
        instance: &str,
    ) -> Result<Option<Health>, Step> {
        if upgrade.drain.is_none() {
            return Ok(None);
        }
        if self.s.dependants.unlisted.iter().any(|kind| kind == "InterStepBufferService") {
            return Ok(Some(Health::Unknown("InterStepBufferServices to be listed".to_owned())));
        }
        let judged = self.isb_of(instance).into_iter().filter(|name| !upgrade.isb_unhealthy.contains(name));
        let Some(look) = look_at(judged.collect()) else { return Ok(None) };
        let Some(seen) = self.s.learned.looks.get(&look) else { return Err(Step::Look(look)) };
        if let Some(why) = &seen.unreadable {
            return Ok(Some(Health::Unknown(unreadable(why))));
        }
        let drain = upgrade.drain.as_ref().and_then(|d| d.since.as_ref());
        let began = drain.or(upgrade.started_at.as_ref()).map(|t| t.0);
        let lacking: Vec<String> = seen
            .isb
            .iter()
            // One that somebody has made since, or deletes, says nothing about the version.
            .filter(|(_, isb)| !isb.deleting && (began.is_none() || isb.created < began))
            .map(|(name, isb)| (name, isb.lacks(manifest.isbsvc.as_deref())))
            .filter(|(_, lacks)| !lacks.is_empty())
            .map(|(name, lacks)| format!("InterStepBufferService/{name}: {lacks}"))
            .collect();
        Ok((!lacking.is_empty()).then(|| Health::Bad(list(&lacking, 3))))
    }

    /// For how long all must be healthy: for a whole window where the version has not proved itself yet, or where the
    /// controller that takes over is told other things about ISB services than the one before, and so may roll them a moment
    /// later; once otherwise: a paused pipeline costs more than a second look.
    pub(super) fn window(&self, upgrade: &Upgrade, from: Option<&Manifest>, to: &Manifest, instance: &str) -> Duration {
        let rolls = upgrade.drain.is_some()
            && from.is_none_or(|from| from.isbsvc != to.isbsvc)
            && self.isb_of(instance).iter().any(|name| !upgrade.isb_unhealthy.contains(name));
        if rolls { self.manner.window } else { Duration::ZERO }
    }
}

/// The look at these; `None` where there are none.
fn look_at(mut names: Vec<String>) -> Option<Look> {
    names.sort();
    (!names.is_empty()).then(|| Look { isb: names, ..Look::default() })
}

fn unreadable(why: &str) -> String {
    format!("ISB services to be read: {why}")
}
