//! Everything that a decision about one PipelineRollout is made from, as plain data.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    api::{PipelineRollout, Strategy},
    drain::Scope,
    numaflow::{LiveIsb, LivePipeline},
    plan::Learned,
};

/// One look at the world of one PipelineRollout.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The rollout.
    pub rollout: Arc<PipelineRollout>,
    /// Whether its namespace is being deleted.
    pub namespace_terminating: bool,
    /// Its pipelines, by name.
    pub children: BTreeMap<String, Arc<LivePipeline>>,
    /// Names that look like its pipelines' but belong to somebody else.
    pub foreign_children: BTreeSet<String>,
    /// Whether the API server serves Pipelines.
    pub served: bool,
    /// Who asks for a pause, by instance: all active requests in the namespace.
    pub requests: Vec<Request>,
    /// What is not known: while anything is, no wanted phase is newly set or removed.
    pub unknown: Vec<String>,
    /// How the controllers of the namespace are, by instance; absent where no rollout manages one: then it is assumed alive.
    pub controllers: BTreeMap<String, Controller>,
    /// ISB services in the namespace, by name.
    pub isb: BTreeMap<String, Arc<LiveIsb>>,
    /// The ISBServiceRollouts of the namespace, by name.
    pub isb_rollouts: BTreeMap<String, IsbRollout>,
    /// What the controllers are told about ISB services, by instance, where that can be read.
    pub settings: BTreeMap<String, Arc<Value>>,
    /// Pipelines in the namespace: what one controller has to do.
    pub pipelines: usize,
    /// Strategy of the namespace.
    pub strategy: Strategy,
    /// Which changes of pipelines need what.
    pub rules: Arc<crate::changes::Rules>,
    /// What this turn has learned from the server.
    pub learned: Learned,
}

/// An active request for a pause.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Who asks: `Kind/name`.
    pub by: String,
    /// For which attempt.
    pub attempt: String,
    /// Whose pipelines are meant.
    pub scope: Scope,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Longest time for the drain.
    pub timeout: Option<Duration>,
    /// Whether the time is up: pipelines are to pause without draining any further.
    pub cut: bool,
    /// Whether what asks is being changed right now: its pipelines may fail for that, and are paused for all that.
    pub changing: bool,
}

/// The rollout of an ISB service, as its pipelines see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IsbRollout {
    /// The ISB service that its pipelines are to use; empty while there is none, or where that is not known.
    pub child: String,
    /// Whether it cannot be decoded: what it wants is not known, and nothing changes for its pipelines.
    pub unreadable: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Its ISB services that exist.
    pub children: BTreeSet<String>,
    /// Pipelines that were not drained in its last drain, or were excused from it: it has waited for them, and does not any
    /// longer. One that was drained is not among them: it is paused still or, woken by somebody, has to be drained again.
    pub asked: BTreeSet<String>,
}

/// How the controller of an instance is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controller {
    /// Whether it is certain that nobody acts for its pipelines.
    pub gone: bool,
}
