//! Everything that a decision about one ISBServiceRollout is made from, as plain data.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    api::IsbServiceRollout, changes::Rules, drain::PipelineSeen, numaflow::LiveIsb, pipeline::snapshot::Controller,
    plan::Learned,
};

/// One look at the world of one ISBServiceRollout.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The rollout.
    pub rollout: Arc<IsbServiceRollout>,
    /// Whether its namespace is being deleted.
    pub namespace_terminating: bool,
    /// Its ISB services, by name.
    pub children: BTreeMap<String, Arc<LiveIsb>>,
    /// Names that look like its ISB services' but belong to somebody else.
    pub foreign_children: BTreeSet<String>,
    /// Whether the API server serves InterStepBufferServices.
    pub served: bool,
    /// What is not known: while anything is, nobody is asked to pause and nothing is changed.
    pub unknown: Vec<String>,
    /// How the controllers of the namespace are, by instance; absent where no rollout manages one: then it is assumed alive.
    pub controllers: BTreeMap<String, Controller>,
    /// What the controllers are told about ISB services, by instance, where that can be read.
    pub settings: BTreeMap<String, Arc<Value>>,
    /// Instances whose controllers are about to be other ones: what they are told may be something else soon.
    pub upgrading: BTreeSet<String>,
    /// Pipelines in the namespace, on any ISB service.
    pub pipelines: Vec<PipelineSeen>,
    /// Which changes of ISB services need what.
    pub rules: Arc<Rules>,
    /// What this turn has learned from the server.
    pub learned: Learned,
}
