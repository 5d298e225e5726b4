//! The ISB services of a rollout besides the one that counts: each goes when no pipeline refers to it. Pure.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::decide::Turn;
use crate::{
    api::{LABEL_POKE, LABEL_UPGRADE_STATE, UpgradeState},
    drain::PipelineSeen,
    numaflow::LiveIsb,
    plan::Step,
    time::{elapsed, is_ahead},
    wrapped::{ISB_SERVICE, current},
};

/// Time between two nudges of one that is to go.
const NUDGE: Duration = Duration::from_secs(10);

/// The ISB service that pipelines use: the one on record. Where that is gone another one takes its place, but none that is to go.
pub(super) fn in_use<'a>(
    rollout: &str,
    services: &'a BTreeMap<String, Arc<LiveIsb>>,
    recorded: &str,
) -> Option<&'a Arc<LiveIsb>> {
    current(rollout, services, recorded).filter(|c| c.version.name == recorded || !is_recyclable(c))
}

fn is_recyclable(service: &LiveIsb) -> bool {
    service.labels.get(LABEL_UPGRADE_STATE).is_some_and(|state| state == UpgradeState::Recyclable.as_str())
}

impl<'a> Turn<'a> {
    /// ISB services of this rollout that nobody is to use: not the one that counts, and not one that is being made ready.
    pub(super) fn others(&self) -> Vec<&'a Arc<LiveIsb>> {
        let to = self.next.change.as_ref().map(|c| c.to.as_str()).unwrap_or_default();
        let counts = self.child.map(|c| c.version.name.as_str());
        let other = |c: &&Arc<LiveIsb>| Some(c.version.name.as_str()) != counts && c.version.name != to;
        self.s.children.values().filter(other).collect()
    }

    /// Pipelines that refer to an ISB service.
    pub(super) fn users_of(&self, service: &str) -> Vec<&'a PipelineSeen> {
        self.s.pipelines.iter().filter(|p| p.isb == service).collect()
    }

    /// Removes what nobody uses any more.
    pub(super) fn tidy(&mut self) -> Vec<Step> {
        if self.refusal().is_some() {
            return Vec::new();
        }
        let mut steps = Vec::new();
        for other in self.others() {
            let used = !self.users_of(&other.version.name).is_empty();
            if other.deleting {
                if !used {
                    steps.extend(self.nudge(other));
                }
            } else if !used {
                steps.push(Step::DeleteNumaflow { kind: ISB_SERVICE.kind, object: other.version.clone() });
            } else if !is_recyclable(other) && self.s.learned.steering_refusal().is_none() {
                let state = UpgradeState::Recyclable.as_str();
                let patch = Arc::new(json!({"metadata": {"labels": {LABEL_UPGRADE_STATE: state}}}));
                let (object, why) = (other.version.clone().of_any_state(), "its pipelines move to another one");
                steps.push(Step::PatchNumaflow { kind: ISB_SERVICE.kind, object, patch, why });
            }
        }
        steps
    }

    /// Nothing else wakes Numaflow about an ISB service that is to go and had to wait for a pipeline that is gone.
    pub(super) fn nudge(&mut self, service: &LiveIsb) -> Option<Step> {
        if self.s.learned.steering_refusal().is_some() {
            return None;
        }
        let at = service.labels.get(LABEL_POKE).and_then(|at| at.parse().ok());
        let at = at.and_then(|second| Timestamp::from_second(second).ok()).map(Time);
        let nudged = at.filter(|at| !is_ahead(at, self.now));
        let wait = nudged.map_or(Duration::ZERO, |at| NUDGE.saturating_sub(elapsed(Some(&at), self.now)));
        if !wait.is_zero() {
            self.again(wait);
            return None;
        }
        self.again(NUDGE);
        let patch = Arc::new(json!({"metadata": {"labels": {LABEL_POKE: self.now.as_second().to_string()}}}));
        let (object, why) = (service.version.clone().of_any_state(), "no pipeline refers to it any more");
        Some(Step::PatchNumaflow { kind: ISB_SERVICE.kind, object, patch, why })
    }
}
