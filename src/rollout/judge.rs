//! How a version is judged: healthy or not at this moment, and what follows from that for its assessment. Pure.

use std::time::Duration;

use crate::{
    api::{Assessment, Upgrade},
    controller::standing::Standing,
    definitions::Leader,
    evidence::Look,
    live::ObjectId,
    manifest::Manifest,
    plan::Step,
    rollout::{decide::Turn, snapshot::elapsed},
    words::duration,
};

/// Shortest wait until the next look.
const SHORTEST: Duration = Duration::from_millis(100);

/// Whether a version is healthy now.
pub(super) enum Health {
    /// Only a look at its pods and its lease can tell.
    Look(Step),
    /// Every workload is available and, where that is asked for, one of its pods leads.
    Good,
    /// The words for what is waited for.
    Bad(String),
}

/// What follows.
pub(super) enum Verdict {
    /// It was ready in time and then healthy for the whole window.
    Passed,
    /// It was not, and there is no time left: why.
    Failed(String),
    /// The assessment has changed, which is to be written down.
    Changed(Assessment, String),
    /// Nothing has changed: what is waited for, and for how long at the most.
    Waiting(String, Duration),
}

impl Turn<'_> {
    /// Looks at everything that health is made of. `leader` is set where a pod must lead.
    pub(super) fn health(
        &self,
        upgrade: &Upgrade,
        manifest: &Manifest,
        standing: &Standing,
        leader: Option<&Leader>,
    ) -> Health {
        let late = self.is_late(upgrade);
        if !standing.healthy() {
            let waiting = self.waiting(standing);
            // Most pods are ready before anybody asks why they are not.
            if !standing.applied() || self.in_stage(upgrade) < self.manner.interval.min(self.manner.deadline) {
                return Health::Bad(waiting);
            }
            let unready =
                |id: &ObjectId| standing.health.iter().any(|w| !w.healthy && w.kind == id.kind && w.name == id.name);
            let workloads = manifest.pod_selectors().filter(|(id, _)| unready(id));
            let look = Look {
                lease: None,
                workloads: workloads.map(|(id, selector)| (id.clone(), selector)).collect(),
                events: late,
            };
            let Some(seen) = self.s.learned.looks.get(&look) else { return Health::Look(Step::Look(look)) };
            let troubles = seen.troubles();
            return Health::Bad(if troubles.is_empty() { waiting } else { format!("{waiting}; {troubles}") });
        }
        let Some(leader) = leader else { return Health::Good };
        let of_leader = |id: &ObjectId| {
            leader.workloads.iter().any(|w| w.group == id.group && w.kind == id.kind && w.name == id.name)
        };
        let workloads = manifest.pod_selectors().filter(|(id, _)| of_leader(id));
        let look = Look {
            lease: Some(leader.lease.clone()),
            workloads: workloads.map(|(id, selector)| (id.clone(), selector)).collect(),
            events: false,
        };
        match self.s.learned.looks.get(&look).map(|seen| seen.leads(leader, &upgrade.holder_before)) {
            None => Health::Look(Step::Look(look)),
            Some(Ok(())) => Health::Good,
            Some(Err(words)) => Health::Bad(words),
        }
    }

    /// Judges an attempt: ready before the deadline of the stage, then healthy for the whole window. A version that was
    /// healthy and then was not gets no new deadline: its window must have ended before.
    pub(super) fn verdict(&self, upgrade: &Upgrade, health: Result<(), String>, window: Duration) -> Verdict {
        let late = self.is_late(upgrade);
        let stored = upgrade.assessment.clone().unwrap_or_default();
        let left = self.manner.deadline.saturating_sub(self.in_stage(upgrade));
        let told = |words: &str| {
            let deadline = duration(self.manner.deadline);
            format!("version {:?} was not healthy within {deadline}: {words}", upgrade.version)
        };
        match (health, &stored.healthy_since) {
            (Ok(()), _) if window.is_zero() => Verdict::Passed,
            (Ok(()), Some(since)) if elapsed(Some(since), self.now) >= window => Verdict::Passed,
            (Ok(()), _) if late && stored.relapses > 0 => {
                let (times, window) = (stored.relapses, duration(window));
                Verdict::Failed(told(&format!(
                    "it did not stay healthy for {window} in a row ({times} {})",
                    if times == 1 { "relapse" } else { "relapses" }
                )))
            }
            (Ok(()), None) => {
                let next = Assessment { healthy_since: Some(self.not_before_now()), ..stored };
                Verdict::Changed(next, in_window(window))
            }
            (Ok(()), Some(since)) => {
                let left = window.saturating_sub(elapsed(Some(since), self.now));
                Verdict::Waiting(in_window(window), left.min(self.manner.interval).max(SHORTEST))
            }
            (Err(words), _) if late => Verdict::Failed(told(&words)),
            (Err(words), Some(_)) => {
                let next = Assessment { healthy_since: None, relapses: stored.relapses.saturating_add(1) };
                Verdict::Changed(next, words)
            }
            (Err(words), None) => Verdict::Waiting(words, left.min(self.manner.interval).max(SHORTEST)),
        }
    }

    /// Whether the deadline of the running stage has passed.
    pub(super) fn is_late(&self, upgrade: &Upgrade) -> bool {
        self.in_stage(upgrade) >= self.manner.deadline
    }

    /// What is waited for, with what the server said to it.
    pub(super) fn waiting(&self, standing: &Standing) -> String {
        let learned = &self.s.learned;
        let said = learned.refusals.first().or_else(|| learned.silence_of(standing));
        let said = said.map(|r| format!("; the server says: {}", r.message)).unwrap_or_default();
        format!("{}{said}", standing.waiting_for())
    }
}

fn in_window(window: Duration) -> String {
    format!("healthy; it has to stay so for {}", duration(window))
}
