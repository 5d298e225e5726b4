//! How a version is judged: healthy or not at this moment, and what follows from that for its assessment. Pure.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{
    api::{Assessment, Upgrade},
    controller::standing::Standing,
    definitions::Leader,
    evidence::{Leads, LeaseSeen, Look},
    live::ObjectId,
    manifest::Manifest,
    plan::Step,
    rollout::decide::Turn,
    time::{elapsed, of_day},
    words::duration,
};

/// Times in a status are rounded up to whole seconds.
const ROUNDED: Duration = Duration::from_secs(1);
/// Shortest wait until the next look.
const SHORTEST: Duration = Duration::from_millis(100);

/// Whether a version is healthy now.
pub(super) enum Health {
    /// Every workload is available and, where that is asked for, one of its pods leads, by this lease.
    Good(Option<LeaseSeen>),
    /// The words for what is waited for.
    Bad(String),
    /// That cannot be told now: why. It is neither a yes nor a no.
    Unknown(String),
}

/// What follows.
pub(super) enum Verdict {
    /// It was ready in time and then healthy for the whole window.
    Passed,
    /// It was not, and there is no time left: why.
    Failed(String),
    /// There is no time left, and it cannot be told: why.
    Unknown(String),
    /// The assessment has changed, which is to be written down.
    Changed(Assessment, String),
    /// Nothing has changed: what is waited for, and for how long at the most.
    Waiting(String, Duration),
}

impl Turn<'_> {
    /// Looks at everything that health is made of. `leader` is set where a pod must lead.
    ///
    /// # Errors
    /// Only this look at its pods or its lease can tell.
    pub(super) fn health(
        &self,
        upgrade: &Upgrade,
        manifest: &Manifest,
        standing: &Standing,
        leader: Option<&Leader>,
    ) -> Result<Health, Step> {
        if !standing.healthy() {
            return self.why_unhealthy(upgrade, manifest, standing);
        }
        let Some(leader) = leader else { return Ok(Health::Good(None)) };
        let lease = Some(leader.lease.clone());
        let known = upgrade.assessment.as_ref().filter(|a| a.healthy_since.is_some() && !a.holder.is_empty());
        if let Some(known) = known {
            // The same holder is the same pod.
            let look = Look { lease: lease.clone(), ..Look::default() };
            match self.s.learned.looks.get(&look) {
                None => return Err(Step::Look(look)),
                Some(seen) => {
                    if let Some(lease) = seen.still_led_by(&known.holder, self.now) {
                        return Ok(self.renewed(upgrade, leader, lease));
                    }
                }
            }
        }
        let workloads = manifest.pod_selectors().filter(|(id, _)| leader.is_of(id));
        let workloads = workloads.map(|(id, selector)| (id.clone(), selector)).collect();
        let look = Look { lease, workloads, ..Look::default() };
        match self.s.learned.looks.get(&look).map(|seen| seen.leads(leader, &upgrade.holder_before, self.now)) {
            None => Err(Step::Look(look)),
            Some(Leads::Yes(lease)) => Ok(Health::Good(Some(lease))),
            Some(Leads::No(words)) => Ok(Health::Bad(words)),
            Some(Leads::Unknown(words)) => Ok(Health::Unknown(words)),
        }
    }

    /// Whether a leader is alive: at the end of a window it must have renewed its lease since the beginning, if that is longer
    /// than the lease holds. Both times are of one clock, its own.
    fn renewed(&self, upgrade: &Upgrade, leader: &Leader, lease: &LeaseSeen) -> Health {
        let assessment = upgrade.assessment.clone().unwrap_or_default();
        let passed = elapsed(assessment.healthy_since.as_ref(), self.now);
        let over = passed >= self.manner.window && passed > lease.holds();
        let before = assessment.renewed.map(|t| t.0.as_second());
        if over && lease.renewed.map(jiff::Timestamp::as_second) <= before {
            return Health::Bad(format!(
                "lease {} to be renewed ({} has not done so since the window began)",
                leader.lease, lease.holder
            ));
        }
        Health::Good(Some(lease.clone()))
    }

    /// The words for what a version lacks, with what its pods say.
    fn why_unhealthy(&self, upgrade: &Upgrade, manifest: &Manifest, standing: &Standing) -> Result<Health, Step> {
        let waiting = self.waiting(standing);
        // Most pods are ready before anybody asks why they are not.
        let early = self.manner.interval.saturating_sub(ROUNDED).min(self.manner.deadline);
        if !standing.applied() || self.in_stage(upgrade) < early {
            return Ok(Health::Bad(waiting));
        }
        let unready =
            |id: &ObjectId| standing.health.iter().any(|w| !w.healthy && w.kind == id.kind && w.name == id.name);
        let workloads = manifest.pod_selectors().filter(|(id, _)| unready(id));
        let look = Look {
            workloads: workloads.map(|(id, selector)| (id.clone(), selector)).collect(),
            events: self.is_late(upgrade),
            ..Look::default()
        };
        let Some(seen) = self.s.learned.looks.get(&look) else { return Err(Step::Look(look)) };
        let troubles = seen.troubles();
        Ok(Health::Bad(if troubles.is_empty() { waiting } else { format!("{waiting}; {troubles}") }))
    }

    /// Judges an attempt: ready before the deadline of the stage, then healthy for the whole window. A version that was
    /// healthy and then was not gets no new deadline: its window must have ended before. A window counts only while this
    /// operator was there to look. `pace` is the longest time until the next look while it is not healthy.
    pub(super) fn verdict(&self, upgrade: &Upgrade, health: Health, window: Duration, pace: Duration) -> Verdict {
        let late = self.is_late(upgrade);
        let stored = upgrade.assessment.clone().unwrap_or_default();
        let since = stored.healthy_since.as_ref().filter(|t| t.0 >= self.s.watching_since);
        let left = self.manner.deadline.saturating_sub(self.in_stage(upgrade));
        let next_look = |at_most: Duration, pace: Duration| at_most.min(pace).max(SHORTEST);
        let told = |words: &str| {
            let (version, deadline) = (&upgrade.version, duration(self.manner.deadline));
            match stored.relapses {
                0 => format!("version {version:?} was not healthy within {deadline}: {words}"),
                n => {
                    // At this very moment its pods may have nothing to say.
                    let before = if stored.last_relapse == *words || stored.last_relapse.is_empty() {
                        String::new()
                    } else {
                        format!("; the last time: {}", stored.last_relapse)
                    };
                    format!(
                        "version {version:?} was not healthy for {} in a row within {deadline} ({n} {}): {words}{before}",
                        duration(window),
                        if n == 1 { "relapse" } else { "relapses" }
                    )
                }
            }
        };
        match (health, since) {
            (Health::Good(_), _) if window.is_zero() => Verdict::Passed,
            (Health::Good(_), Some(since)) if elapsed(Some(since), self.now) >= window => Verdict::Passed,
            (Health::Good(_), _) if late && stored.relapses > 0 => Verdict::Failed(told(&stored.last_relapse)),
            (Health::Good(lease), None) => {
                let now = self.not_before_now();
                let words = in_window(&now, window);
                let next = Assessment {
                    healthy_since: Some(now),
                    holder: lease.as_ref().map(|l| l.holder.clone()).unwrap_or_default(),
                    renewed: lease.and_then(|l| l.renewed).map(Time),
                    ..stored
                };
                Verdict::Changed(next, words)
            }
            (Health::Good(_), Some(since)) => Verdict::Waiting(
                in_window(since, window),
                next_look(window.saturating_sub(elapsed(Some(since), self.now)), self.manner.interval),
            ),
            (Health::Unknown(words), _) if late => Verdict::Unknown(words),
            (Health::Bad(words), _) if late => Verdict::Failed(told(&words)),
            (Health::Bad(words), _) if stored.healthy_since.is_some() => {
                let next = Assessment {
                    healthy_since: None,
                    holder: String::new(),
                    renewed: None,
                    relapses: stored.relapses.saturating_add(1),
                    last_relapse: words.clone(),
                };
                Verdict::Changed(next, words)
            }
            (Health::Bad(words), _) => Verdict::Waiting(words, next_look(left, pace)),
            // A server that does not answer is not asked more often for that.
            (Health::Unknown(words), _) => Verdict::Waiting(words, next_look(left, self.manner.interval)),
        }
    }

    /// Whether the deadline of the running stage has passed.
    pub(super) fn is_late(&self, upgrade: &Upgrade) -> bool {
        self.in_stage(upgrade) >= self.manner.deadline
    }

    /// What is waited for, with what the server said to it.
    pub(super) fn waiting(&self, standing: &Standing) -> String {
        let learned = &self.s.learned;
        let said = learned.refusal_of(standing).or_else(|| learned.silence_of(standing)).or(learned.own_refusal());
        let said = said.map(|r| format!("; the server says: {}", r.message)).unwrap_or_default();
        format!("{}{said}", standing.waiting_for())
    }
}

/// The words for a window that has begun.
pub(super) fn in_window(since: &Time, window: Duration) -> String {
    format!("healthy since {}; it has to stay so for {}", of_day(since.0), duration(window))
}
