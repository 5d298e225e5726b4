//! What the platform team sets for the whole operator: read once at the start, passed down, never global.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use crate::{
    api::{OnDrainTimeout, Strategy},
    definitions::PermittedKinds,
};

/// Settings of one operator process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the operator: its definitions are for everyone.
    pub operator_namespace: String,
    /// Namespaces that the operator serves; empty: all of them.
    pub namespaces: BTreeSet<String>,
    /// Whether definitions in other namespaces count for the rollouts there.
    pub definitions_anywhere: bool,
    /// Kinds that definitions may hold.
    pub permitted: PermittedKinds,
    /// What is built in for rollouts about which nobody else says anything.
    pub defaults: Defaults,
    /// The operator's config file, which comes over what is built in.
    pub config: Option<PathBuf>,
    /// Time after which everything is looked at again although nothing has changed.
    pub resync: Duration,
    /// How many rollouts are worked on at once.
    pub workers: usize,
}

/// What rollouts that say nothing use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Strategy.
    pub strategy: Strategy,
    /// Time to become ready.
    pub deadline: Duration,
    /// Time to stay healthy.
    pub window: Duration,
    /// Time between two looks.
    pub interval: Duration,
    /// Longest time for a drain; `None`: as long as each pipeline's own grace period.
    pub drain_timeout: Option<Duration>,
    /// What happens then.
    pub on_drain_timeout: OnDrainTimeout,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            strategy: Strategy::Progressive,
            deadline: Duration::from_mins(10),
            window: Duration::from_secs(30),
            interval: Duration::from_secs(5),
            drain_timeout: None,
            on_drain_timeout: OnDrainTimeout::Proceed,
        }
    }
}

impl Settings {
    /// Whether the operator serves this namespace.
    #[must_use]
    pub fn serves(&self, namespace: &str) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(namespace)
    }

    /// Namespaces whose definitions count for the rollouts of a namespace; the first that says anything about a version
    /// decides.
    #[must_use]
    pub fn definers<'a>(&'a self, namespace: &'a str) -> Vec<&'a str> {
        let mut order = vec![self.operator_namespace.as_str()];
        if self.definitions_anywhere && namespace != self.operator_namespace {
            order.insert(0, namespace);
        }
        order
    }
}
