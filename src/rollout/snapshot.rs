//! Everything that a decision about one rollout is made from, as plain data.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;

use crate::{
    api::{AppliedObject, NumaflowController, NumaflowControllerRollout, UpgradeState},
    controller::target::{Target, Unresolved},
    definitions::Definition,
    drain::PipelineSeen,
    live::{Live, ObjectId},
    manifest::Manifest,
    numaflow::Dependants,
    plan::Learned,
};

/// One look at the world of one rollout.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The rollout.
    pub rollout: Arc<NumaflowControllerRollout>,
    /// Whether its namespace is being deleted.
    pub namespace_terminating: bool,
    /// Its children.
    pub children: Vec<Arc<NumaflowController>>,
    /// Names that look like its children's but belong to somebody else.
    pub foreign_children: BTreeSet<String>,
    /// The version that the spec asks for.
    pub desired: Result<Target, Unresolved>,
    /// Definitions pinned by this rollout, newest first.
    pub revisions: Vec<Revision>,
    /// Pinned definitions that production uses or is about to use, rendered, by (revision, instance); an error says why
    /// one cannot be.
    pub manifests: BTreeMap<(String, String), Result<Arc<Manifest>, String>>,
    /// The isolated copy of the child that proves itself; while no attempt runs, what one of the desired version would
    /// be like. An error says why there can be none; `None` where none is asked for.
    pub copy: Option<Result<Arc<Manifest>, String>>,
    /// Objects in the namespace: production of this owner and of others, and isolated copies.
    pub live: BTreeMap<ObjectId, Live>,
    /// Kinds that are applied but not watched, as (group, kind).
    pub unwatched: BTreeSet<(String, String)>,
    /// Cluster-scoped objects that others use too.
    pub elsewhere: BTreeSet<ObjectId>,
    /// Pipelines, ISB services and MonoVertices in the namespace.
    pub dependants: Dependants,
    /// Pipelines in the namespace, of any instance.
    pub pipelines: Vec<PipelineSeen>,
    /// ISB services in the namespace: (name, instance).
    pub isb_services: Vec<(String, String)>,
    /// Since when this operator looks at what happens: of what was before it knows what is written down.
    pub watching_since: Timestamp,
    /// What this turn has learned from the server.
    pub learned: Learned,
}

/// A pinned definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Revision {
    /// Name of the ControllerRevision.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its number: newer ones are higher.
    pub number: i64,
    /// Version pinned.
    pub version: String,
    /// The definition; absent where it is kept in a Secret that has not been read yet.
    pub definition: Option<Arc<Definition>>,
    /// Secret that keeps the definition, if one does.
    pub secret: Option<String>,
}

impl Snapshot {
    /// Name of the rollout.
    #[must_use]
    pub fn name(&self) -> &str {
        self.rollout.metadata.name.as_deref().unwrap_or_default()
    }

    /// Generation of its spec.
    #[must_use]
    pub fn generation(&self) -> i64 {
        self.rollout.metadata.generation.unwrap_or_default()
    }

    /// The child of this name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Arc<NumaflowController>> {
        self.children.iter().find(|c| c.metadata.name.as_deref() == Some(name))
    }

    /// The pinned revision of this name.
    #[must_use]
    pub fn revision(&self, name: &str) -> Option<&Revision> {
        self.revisions.iter().find(|r| r.name == name)
    }

    /// A pinned definition rendered for an instance; an error says why there is none.
    ///
    /// # Errors
    /// The revision is gone, cannot be read, or does not render.
    pub fn manifest(&self, revision: &str, instance: &str) -> Result<Arc<Manifest>, String> {
        self.manifests
            .get(&(revision.to_owned(), instance.to_owned()))
            .cloned()
            .unwrap_or_else(|| Err(format!("ControllerRevision/{revision} is missing")))
    }

    /// What was applied before, by any child, and in this turn.
    #[must_use]
    pub fn inventory(&self) -> Vec<AppliedObject> {
        let mut all: Vec<AppliedObject> = self.learned.applied.clone();
        for child in &self.children {
            all.extend(child.status.iter().flat_map(|s| s.inventory.iter().cloned()));
        }
        all
    }
}

/// What a child's label says.
#[must_use]
pub fn state_of(child: &NumaflowController) -> Option<UpgradeState> {
    let labels = child.metadata.labels.as_ref()?;
    UpgradeState::parse(labels.get(crate::api::LABEL_UPGRADE_STATE)?)
}
