//! Everything that a decision about one MonoVertexRollout is made from, as plain data.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    api::{MonoVertexRollout, Strategy},
    changes::Rules,
    numaflow::LiveMonoVertex,
    pipeline::snapshot::Controller,
    plan::Learned,
};

/// One look at the world of one MonoVertexRollout.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The rollout.
    pub rollout: Arc<MonoVertexRollout>,
    /// Whether its namespace is being deleted.
    pub namespace_terminating: bool,
    /// Its MonoVertices, by name.
    pub children: BTreeMap<String, Arc<LiveMonoVertex>>,
    /// Names that look like its MonoVertices' but belong to somebody else.
    pub foreign_children: BTreeSet<String>,
    /// Whether the API server serves MonoVertices.
    pub served: bool,
    /// What is not known: while anything is, no wanted phase is newly set or removed.
    pub unknown: Vec<String>,
    /// How the controllers of the namespace are, by instance; absent where no rollout manages one: then it is assumed alive.
    pub controllers: BTreeMap<String, Controller>,
    /// Strategy of the namespace.
    pub strategy: Strategy,
    /// Which changes of MonoVertices need what.
    pub rules: Arc<Rules>,
    /// What this turn has learned from the server.
    pub learned: Learned,
}
