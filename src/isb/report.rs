//! What is said about an ISB service: phase, message, conditions. Pure.

use std::time::Duration;

use super::{
    decide::Turn,
    judge::{Health, SURE},
};
use crate::{
    api::{Condition, ConditionType, Conditions, Phase},
    drain,
    numaflow::LiveIsb,
    plan::Step,
    summary::{Summary, Unready},
    time::{elapsed, is_ahead},
    words::list,
};

impl Turn<'_> {
    /// What the one comes to that is as it should be.
    ///
    /// # Errors
    /// Only this look can tell.
    pub(super) fn standing(&mut self, child: &LiveIsb) -> Result<Summary, Step> {
        let name = &child.version.name;
        let moving: Vec<String> = self
            .others()
            .iter()
            .flat_map(|other| self.users_of(&other.version.name))
            .filter(|p| p.rollout.is_some())
            .map(|p| format!("Pipeline/{}", p.name))
            .collect();
        if !moving.is_empty() {
            let words = format!("waiting for {} to be made anew on InterStepBufferService/{name}", list(&moving, 5));
            return Ok(Summary::pending("Moving", &words));
        }
        let kept: Vec<String> = self
            .others()
            .iter()
            .flat_map(|other| {
                let users = self.users_of(&other.version.name);
                users
                    .into_iter()
                    .map(|p| format!("InterStepBufferService/{} (Pipeline/{})", other.version.name, p.name))
            })
            .collect();
        let deployed = if kept.is_empty() {
            Summary::deployed("Deployed")
        } else {
            Summary::deployed(&format!("Deployed; kept for pipelines without a PipelineRollout: {}", list(&kept, 5)))
        };
        let (healthy, _, message) = health(child);
        let was = self.stored.phase == Phase::deployed()
            && self.s.rollout.status.as_ref().map(|s| s.observed_generation) == Some(self.next.observed_generation);
        Ok(match healthy {
            // Trouble of one that was deployed is said in conditions.
            _ if was => deployed,
            Some(true) => return self.proven(child, deployed),
            _ if child.is_observed() && child.phase == "Failed" => Summary::failed("ISBSvcFailed", &message),
            _ => Summary::pending("Progressing", &format!("waiting for {message}")),
        })
    }

    /// What it says right after a change may be about what was before: its StatefulSet is asked, and once more a little later.
    fn proven(&mut self, child: &LiveIsb, deployed: Summary) -> Result<Summary, Step> {
        let name = format!("InterStepBufferService/{}", child.version.name);
        Ok(match self.health(&child.version.name, child.instance())? {
            Health::Good => {
                let begun = |c: &&Condition| c.type_ == ConditionType::Reconciling.as_str() && c.status == "True";
                let begun = self.stored.conditions.iter().find(begun).map(|c| c.last_transition_time.clone());
                let begun = begun.filter(|at| !is_ahead(at, self.now));
                let sure = begun.map_or(Duration::ZERO, |at| SURE.saturating_sub(elapsed(Some(&at), self.now)));
                if sure.is_zero() {
                    return Ok(deployed);
                }
                self.again(sure);
                Summary::pending("Progressing", &format!("{name} says that it is healthy; looking once more"))
            }
            Health::Bad { lacks, .. } => {
                self.look_again(SURE);
                Summary::pending("Progressing", &format!("waiting for {name}: {lacks}"))
            }
            Health::Unknown(words) => {
                self.again(self.manner.interval);
                Summary::blocked("NoAnswer", &format!("{name}: {words}"))
            }
        })
    }

    /// Whether this is about something that the server refused before, and that is about to be tried again.
    pub(super) fn is_another_try(&self, summary: &Summary) -> bool {
        let same = self.stored.observed_generation == self.next.observed_generation && self.next.change.is_none();
        same && summary.is_another_try(&self.stored.phase, &self.stored.conditions)
    }

    /// Writes phase, message and conditions into the status in the making.
    pub(super) fn report(&mut self, summary: Summary) {
        let (generation, now) = (self.next.observed_generation, self.now);
        let mut conditions = Conditions::from_stored(&self.stored.conditions);
        let mut unready = None;
        if let Some(child) = self.child {
            let (healthy, reason, message) = health(child);
            conditions.set(ConditionType::ChildResourcesHealthy, healthy, reason, &message, generation, now);
            if healthy != Some(true) {
                unready = Some(Unready { reason: reason.to_owned(), message, drifted: false });
            }
        } else {
            conditions.remove(ConditionType::ChildResourcesHealthy);
        }
        let (asks, reason, message) = drain::condition(self.next.pause_request.as_ref(), |_| "a change".to_owned());
        conditions.set(ConditionType::PausingPipelines, Some(asks), reason, &message, generation, now);
        conditions.remove(ConditionType::Deleting);
        let strategy = match (&self.next.change, self.applies_directly) {
            (Some(_), _) => "PipelinePauseAndDrain",
            (None, true) => "DirectApply",
            (None, false) => "",
        };
        strategy.clone_into(&mut self.next.upgrade_in_progress);
        summary.write(&mut self.next, conditions, unready.as_ref(), now);
    }
}

/// How an ISB service is, as existing users read it: (healthy, reason, message).
pub(super) fn health(child: &LiveIsb) -> (Option<bool>, &'static str, String) {
    let name = format!("InterStepBufferService/{}", child.version.name);
    let first = |wanted: &str| {
        let mut conditions = child.conditions.iter();
        conditions
            .find(|(_, (status, ..))| status == wanted)
            .map(|(kind, (_, reason, message))| (kind, reason, message))
    };
    let progressing = child.conditions.values().any(|(status, reason, _)| status == "False" && reason == "Progressing");
    let says = |(kind, reason, message): (&String, &String, &String)| {
        let words = if message.is_empty() { reason } else { message };
        format!("{name}: {kind}: {words}")
    };
    match child.phase.as_str() {
        _ if child.deleting => (Some(false), "ISBSvcDeleting", format!("{name} is being deleted")),
        _ if !child.is_observed() => (Some(false), "Progressing", format!("{name} was not looked at yet")),
        "Failed" => {
            let words = if child.message.is_empty() { "Failed" } else { &child.message };
            (Some(false), "ISBSvcFailed", format!("{name}: {words}"))
        }
        "" => (None, "ISBSvcUnknown", format!("{name} says nothing")),
        _ if progressing => {
            let words = first("False").map_or_else(|| name.clone(), says);
            (Some(false), "Progressing", words)
        }
        phase => match (first("False"), first("Unknown")) {
            (Some(condition), _) => (Some(false), "ISBSvcFailed", says(condition)),
            (None, Some(condition)) => (Some(false), "ISBSvcPending", says(condition)),
            (None, None) if phase == "Pending" => (Some(false), "ISBSvcPending", format!("{name} is Pending")),
            (None, None) => (Some(true), "Successful", String::new()),
        },
    }
}
