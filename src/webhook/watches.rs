//! The watches that feed what the webhook knows: rollouts, and definitions.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    core::DeserializeGuard,
    runtime::watcher::{self, watcher},
};
use tokio::{sync::Notify, task::JoinSet};

use super::Knowledge;
use crate::{
    api::{NumaflowControllerRollout, definitions_selector},
    store::Change,
    watch::{definition_scopes, follow, scopes},
    world::{Decoded, DefinitionsMap, World},
};

/// Watches at work, until this is dropped.
#[derive(Debug)]
pub struct Watches {
    world: Arc<World>,
    tasks: JoinSet<()>,
    /// Told whenever one of them has listed.
    listed: Arc<Notify>,
}

impl Watches {
    /// Begins to watch.
    #[must_use]
    pub fn start(knowledge: &Knowledge) -> Self {
        let (world, listed) = (knowledge.world().clone(), Arc::new(Notify::new()));
        let mut tasks = JoinSet::new();
        for scope in scopes(knowledge.settings()) {
            let api: Api<DeserializeGuard<NumaflowControllerRollout>> = scope.api(knowledge.client());
            let watch = move || watcher(api.clone(), watcher::Config::default());
            let what = "NumaflowControllerRollouts".to_owned();
            let (store, listed) = (world.rollouts.clone(), listed.clone());
            tasks.spawn(follow(scope, what, watch, store, Decoded::read, |_| (), move |_, _| listed.notify_one()));
        }
        for scope in definition_scopes(knowledge.settings()) {
            let api: Api<ConfigMap> = scope.api(knowledge.client());
            let watch = move || watcher(api.clone(), watcher::Config::default().labels(&definitions_selector()));
            let what = "definitions ConfigMaps".to_owned();
            let (store, listed) = (world.config_maps.clone(), listed.clone());
            let catalogue = world.clone();
            let changed = move |change: &Change<DefinitionsMap>| catalogue.catalogue_follows(&change.key);
            tasks.spawn(follow(scope, what, watch, store, DefinitionsMap::read, changed, move |_, _| {
                listed.notify_one();
            }));
        }
        Self { world, tasks, listed }
    }

    /// Waits until all there is was listed.
    ///
    /// # Errors
    /// A watch ended before.
    pub async fn synced(&mut self) -> Result<(), String> {
        while !(self.world.rollouts.synced() && self.world.config_maps.synced()) {
            tokio::select! {
                // One that came since the stores were looked at is kept.
                () = self.listed.notified() => {}
                ended = end_of(&mut self.tasks) => return Err(ended),
            }
        }
        Ok(())
    }

    /// Waits until a watch ends, which none does by itself: what it fed would be stale for ever. Answers with words for the log.
    pub async fn ended(&mut self) -> String {
        end_of(&mut self.tasks).await
    }
}

async fn end_of(tasks: &mut JoinSet<()>) -> String {
    match tasks.join_next().await {
        Some(Err(error)) => format!("a watch ended: {error}"),
        Some(Ok(())) | None => "a watch ended".to_owned(),
    }
}
