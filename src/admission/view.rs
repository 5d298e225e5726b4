//! What is known of the cluster, for one review: what the watches have brought, and what was read for it. Pure: nothing is read
//! here, and it is asked only for what a verdict hangs on.

use std::sync::{Arc, PoisonError};

use kube::ResourceExt as _;

use crate::{
    api::NumaflowControllerRollout,
    controller::target::{Target, Unresolved},
    definitions::Catalogue,
    numaflow::Dependants,
    observe,
    rollout::resolve::Rival,
    settings::Settings,
    world::{Decoded, Pinned, PinnedContent, World},
};

/// What was read for one review, and is kept for none other.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// ControllerRevisions in which the rollout has pinned definitions, by name.
    pub revisions: Vec<(String, Arc<Pinned>)>,
    /// Numaflow's objects in the namespace of the object; `None` as long as they were not read.
    pub dependants: Option<Dependants>,
}

/// What is known, for one review.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    world: &'a World,
    settings: &'a Settings,
    looked: &'a Looked,
}

/// A NumaflowControllerRollout, as far as it uses versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The version that it asks for.
    pub wanted: String,
    /// The version that it has in production; empty where there is none.
    pub promoted: String,
}

impl<'a> View<'a> {
    /// Of a world with rollouts and definitions, and of what was read for this review.
    #[must_use]
    pub fn new(world: &'a World, settings: &'a Settings, looked: &'a Looked) -> Self {
        Self { world, settings, looked }
    }

    /// What the platform team has set.
    #[must_use]
    pub fn settings(&self) -> &'a Settings {
        self.settings
    }

    /// The definition that a rollout asks for, rendered; whatever else is wrong with its spec.
    ///
    /// # Errors
    /// The version is not defined, defined twice, malformed, or cannot be rendered for this namespace.
    pub fn find(&self, rollout: &NumaflowControllerRollout) -> Result<Target, Unresolved> {
        observe::defined(self.world, self.settings, rollout, &self.looked.revisions)
    }

    /// Whether the rollout has pinned the version that it asks for in a place that is not read here (a Secret).
    #[must_use]
    pub fn pins_unseen(&self, rollout: &NumaflowControllerRollout) -> bool {
        self.looked.revisions.iter().any(|(_, pinned)| {
            rollout.metadata.uid.as_ref() == Some(&pinned.owner)
                && pinned.version == rollout.spec.controller.version
                && matches!(pinned.content, PinnedContent::Secret(_))
        })
    }

    /// The NumaflowControllerRollouts in a namespace, but for one.
    #[must_use]
    pub fn rivals(&self, namespace: &str, name: &str) -> Vec<Rival> {
        observe::rivals(self.world, namespace, name)
    }

    /// Numaflow's objects in the namespace of the object; `None` as long as they were not read.
    #[must_use]
    pub fn dependants(&self) -> Option<&'a Dependants> {
        self.looked.dependants.as_ref()
    }

    /// Whether what the watches have brought may be old: they were cut off for a while.
    #[must_use]
    pub fn stale(&self) -> bool {
        self.world.config_maps.stale() || self.world.rollouts.stale()
    }

    /// What the definitions ConfigMaps say.
    #[must_use]
    pub fn catalogue(&self) -> Catalogue {
        self.world.catalogue.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The NumaflowControllerRollouts in a namespace, or all of them.
    #[must_use]
    pub fn users(&self, namespace: Option<&str>) -> Vec<User> {
        let rollouts = &self.world.rollouts;
        let all = match namespace {
            Some(namespace) => rollouts.in_namespace(namespace).into_iter().map(|(_, rollout)| rollout).collect(),
            None => rollouts.all(),
        };
        let user = |rollout: &Arc<Decoded<NumaflowControllerRollout>>| {
            let rollout = rollout.good()?;
            let promoted = rollout.status.as_ref().and_then(|s| s.promoted.as_ref());
            Some(User {
                namespace: rollout.namespace().unwrap_or_default(),
                name: rollout.name_any(),
                wanted: rollout.spec.controller.version.clone(),
                promoted: promoted.map(|p| p.version.clone()).unwrap_or_default(),
            })
        };
        all.iter().filter_map(user).collect()
    }
}
