//! Pipelines of the modelled cluster: each answers to what stands in `status.pauseRequest`, by a rule, and knows nothing
//! else. ISB services too.

use super::*;
use crate::{
    api::{DrainProgress, PauseAnswer, PauseRequest, answer},
    drain::PipelineSeen,
    numaflow::{IsbEvidence, StatefulSetSeen},
    time::is_ahead,
};

/// How a pipeline answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It is drained after so many looks.
    Drains(usize),
    /// It pauses after so many looks, with messages left.
    Undrained(usize),
    /// It does not drain, and pauses when the time is up.
    Slow,
    /// It does not pause at all.
    Stuck,
    /// It is not paused.
    Excused,
    /// Its user does not want to wait.
    Forced,
}

/// A pipeline.
#[derive(Clone, Debug)]
pub struct Pipe {
    pub seen: PipelineSeen,
    pub rule: Rule,
    looks: usize,
}

impl Model {
    /// Adds a pipeline that a PipelineRollout manages.
    pub fn pipeline(&mut self, name: &str, rule: Rule) {
        let seen = PipelineSeen { name: name.into(), rollout: Some(name.into()), ..PipelineSeen::default() };
        self.pipes.retain(|p| p.seen.name != name);
        self.pipes.push(Pipe { seen, rule, looks: 0 });
    }

    pub fn pipe(&mut self, name: &str) -> &mut Pipe {
        self.pipes.iter_mut().find(|p| p.seen.name == name).unwrap()
    }

    /// Each pipeline's own reconciler looks at who asks, once.
    pub fn play_pipelines(&mut self) {
        let status = self.rollout.status.clone().unwrap_or_default();
        let leaving = self.rollout.metadata.deletion_timestamp.is_some();
        let request = status.pause_request.filter(|r| r.active && !leaving);
        let instance = status.promoted.map(|p| p.instance_id).unwrap_or_default();
        for pipe in self.pipes.iter_mut().filter(|p| p.seen.rollout.is_some() && !p.seen.deleting) {
            match request.as_ref().filter(|_| pipe.seen.instance == instance) {
                None => {
                    pipe.seen.answers.clear();
                    pipe.looks = 0;
                }
                Some(request) => {
                    pipe.looks += 1;
                    let (answer, drained, why) = says(pipe, request);
                    pipe.seen.answers = vec![PauseAnswer {
                        by: "NumaflowControllerRollout/numaflow-controller".into(),
                        attempt: request.attempt.clone(),
                        answer: answer.into(),
                        drained,
                        why: why.into(),
                    }];
                }
            }
        }
    }

    pub fn request(&self) -> Option<PauseRequest> {
        self.rollout.status.as_ref()?.pause_request.clone()
    }

    pub fn asks(&self) -> bool {
        self.request().is_some_and(|r| r.active)
    }

    /// The drain that goes on.
    pub fn drain(&self) -> DrainProgress {
        self.rollout.status.as_ref().unwrap().upgrade.as_ref().unwrap().drain.clone().unwrap()
    }

    pub fn last_drain(&self) -> DrainProgress {
        self.rollout.status.as_ref().unwrap().last_drain.clone().unwrap()
    }

    pub fn annotate(&mut self, key: &str, text: &str) {
        self.rollout.metadata.annotations.get_or_insert_default().insert(key.into(), text.into());
    }

    pub fn last_force(&self) -> Option<(String, String)> {
        let force = self.rollout.status.as_ref()?.last_force.clone()?;
        Some((force.text, force.ended))
    }

    /// Adds an ISB service.
    pub fn isb(&mut self, name: &str, healthy: bool) {
        let stateful_set = StatefulSetSeen { replicas: 3, ready: 3, same_revision: true, ..StatefulSetSeen::default() };
        let phase = if healthy { "Running" } else { "Failed" };
        let isb = IsbEvidence {
            created: Some(Timestamp::from_second(1_700_000_000).unwrap()),
            version: "2.10".into(),
            phase: phase.into(),
            stateful_set: Some(stateful_set),
            ..IsbEvidence::default()
        };
        self.isbs.insert(name.into(), isb);
    }

    /// What holds of a request for a pause whenever a status is written.
    pub(super) fn check_request(&self, before: Option<&PauseRequest>) {
        let status = self.rollout.status.clone().unwrap_or_default();
        let Some(request) = status.pause_request.filter(|r| r.active) else { return };
        let upgrade = status.upgrade.expect("a request without an attempt");
        assert_eq!(request.attempt, upgrade.name);
        assert!(matches!(upgrade.stage.as_str(), "Drain" | "CutOver" | "Confirm" | "RollBack"), "{}", upgrade.stage);
        assert!(upgrade.verified || !upgrade.verify_skipped.is_empty(), "paused before it has proved itself");
        assert!(status.promoted.is_some(), "paused for a first version");
        let counts = |r: &&PauseRequest| r.since.as_ref().is_some_and(|since| !is_ahead(since, self.now));
        if let Some(before) = before.filter(|r| r.active).filter(counts) {
            assert_eq!((&before.attempt, &before.since), (&request.attempt, &request.since), "the clock was reset");
        }
    }
}

fn says(pipe: &Pipe, request: &PauseRequest) -> (&'static str, Option<bool>, &'static str) {
    let cut = request.cut_at.is_some();
    match pipe.rule {
        Rule::Drains(looks) if pipe.looks > looks => (answer::PAUSED, Some(true), ""),
        Rule::Undrained(looks) if pipe.looks > looks => (answer::PAUSED, Some(false), "its grace period was over"),
        Rule::Excused => (answer::EXCUSED, None, "its spec is not valid"),
        Rule::Forced => (answer::FORCED, None, "its user allows loss of data"),
        Rule::Drains(_) | Rule::Undrained(_) | Rule::Slow if cut => {
            (answer::PAUSED, Some(false), "the time to drain was up")
        }
        Rule::Drains(_) | Rule::Undrained(_) | Rule::Slow | Rule::Stuck => (answer::PAUSING, None, ""),
    }
}
