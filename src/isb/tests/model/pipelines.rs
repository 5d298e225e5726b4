//! Pipelines of the modelled cluster: each answers to what stands in `status.pauseRequest`, by a rule, and moves to the service
//! that is on record.

use super::*;
use crate::{
    api::{PauseAnswer, PauseRequest, answer},
    drain::PipelineSeen,
};

/// How a pipeline answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// It is drained after so many looks.
    Drains(u32),
    /// It pauses after so many looks, with messages left.
    Undrained(u32),
    /// It does not drain, and pauses when the time is up.
    Slow,
    /// It is on its way for ever.
    Stuck,
    /// It says nothing.
    Mute,
    /// It is not paused.
    Excused,
    /// Its user does not want to wait.
    Forced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Pausing,
    Paused,
}

/// A pipeline.
#[derive(Clone, Debug, PartialEq)]
pub struct Pipe {
    /// Service that it refers to.
    pub isb: String,
    /// Whether a PipelineRollout manages it.
    pub managed: bool,
    pub rule: Rule,
    pub state: State,
    pub answers: Vec<PauseAnswer>,
    pub deleting: bool,
    /// Whether it moves to another service.
    pub moves: bool,
    looks: u32,
}

impl Model {
    /// A pipeline that a PipelineRollout manages, on the service in use.
    pub fn pipe(&mut self, name: &str, rule: Rule) -> &mut Pipe {
        let pipe = Pipe {
            isb: self.child(),
            managed: true,
            rule,
            state: State::Running,
            answers: Vec::new(),
            deleting: false,
            moves: true,
            looks: 0,
        };
        self.pipes.insert(name.to_owned(), pipe);
        self.pipes.get_mut(name).unwrap()
    }

    pub fn state(&self, name: &str) -> State {
        self.pipes[name].state
    }

    /// The services whose pipelines a request means, by the names that the status and the cluster have.
    pub fn meant(&self) -> Vec<String> {
        let status = self.status();
        let to = status.change.map(|c| c.to).unwrap_or_default();
        self.services.keys().cloned().chain([status.child]).filter(|name| *name != to && !name.is_empty()).collect()
    }

    /// The request, as far as it counts.
    pub fn request(&self) -> Option<PauseRequest> {
        let leaving = self.rollout.metadata.deletion_timestamp.is_some() || self.released;
        self.status().pause_request.filter(|r| r.active && !leaving && !self.undecodable)
    }

    /// Each pipeline's own reconciler looks at who asks, once.
    pub fn play_pipelines(&mut self) {
        let (request, meant, child) = (self.request(), self.meant(), self.child());
        let (gone, unknown) = (self.gone.clone(), !self.unknown.is_empty());
        let services = self.services.clone();
        for pipe in self.pipes.values_mut().filter(|p| p.managed && !p.deleting && !unknown) {
            let instance = services.get(&pipe.isb).map_or("", |s| s.instance());
            let gone = gone.contains(instance);
            if let Some(request) = request.as_ref().filter(|_| meant.contains(&pipe.isb)) {
                pipe.asked(request, gone);
                continue;
            }
            (pipe.answers, pipe.looks) = (Vec::new(), 0);
            if pipe.moves && !child.is_empty() && pipe.isb != child {
                pipe.isb.clone_from(&child);
            }
            if !gone {
                pipe.state = State::Running;
            }
        }
        self.pipes.retain(|_, p| !p.deleting);
    }

    pub(super) fn pipelines_seen(&self) -> Vec<PipelineSeen> {
        let seen = |(name, pipe): (&String, &Pipe)| PipelineSeen {
            name: name.clone(),
            instance: String::new(),
            isb: pipe.isb.clone(),
            rollout: pipe.managed.then(|| name.clone()),
            deleting: pipe.deleting,
            answers: pipe.answers.clone(),
            grace: None,
        };
        self.pipes.iter().map(seen).collect()
    }
}

impl Pipe {
    fn asked(&mut self, request: &PauseRequest, gone: bool) {
        self.looks = (self.looks + 1).min(10);
        let cut = request.cut_at.is_some();
        let (state, answer, drained, why) = match self.rule {
            _ if gone && self.state == State::Running => {
                (State::Running, answer::EXCUSED, None, "no pod of its controller is available")
            }
            Rule::Mute => return,
            Rule::Excused => (State::Running, answer::EXCUSED, None, "its spec is not valid"),
            Rule::Forced => (State::Running, answer::FORCED, None, "allow-data-loss is set"),
            Rule::Drains(n) if !gone && (self.looks > n || cut) => (State::Paused, answer::PAUSED, Some(true), ""),
            Rule::Undrained(n) if !gone && (self.looks > n || cut) => {
                (State::Paused, answer::PAUSED, Some(false), "messages were left")
            }
            Rule::Slow if cut && !gone => (State::Paused, answer::PAUSED, Some(false), "its time was up"),
            _ if self.state == State::Paused => return,
            _ => (State::Pausing, answer::PAUSING, None, ""),
        };
        self.state = state;
        self.answers = vec![PauseAnswer {
            by: "ISBServiceRollout/isb".into(),
            attempt: request.attempt.clone(),
            answer: answer.into(),
            drained,
            why: why.into(),
        }];
    }
}
