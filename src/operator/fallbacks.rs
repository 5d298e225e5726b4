//! Configuration that changes while the operator runs: what is installed, who is told, and whose turn it calls for.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, PoisonError},
};

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::{ResourceExt, runtime::watcher};
use tokio::task::JoinSet;

use super::Operator;
use crate::{
    api::{CONFIG_CHANGES, CONFIG_NAMESPACE, LABEL_CONFIG},
    changes,
    config_file::ConfigFile,
    fallback::{Notice, Said, parse_config_map},
    plan::Event,
    store::Change,
    watch::Scope,
    world::{ChangesConfig, NamespaceConfig, World},
};

/// Reads the config file for the first time, and installs what it says.
///
/// # Errors
/// It cannot be used, and there is nothing before it that could hold instead.
pub(super) async fn open(path: &Path, world: &World) -> Result<ConfigFile, String> {
    let (file, said) = ConfigFile::open(path).await?;
    install(&file, &said, world);
    Ok(file)
}

/// Answers whether the file says something else than before.
fn install(file: &ConfigFile, said: &Said, world: &World) -> bool {
    let path = file.path().display();
    tracing::info!(file = %path, says = %said.fallback, "config file read");
    if !said.ignored.is_empty() {
        tracing::info!(file = %path, keys = said.ignored.join(", "), "these keys mean nothing here, and are ignored");
    }
    world.fallbacks.write().unwrap_or_else(PoisonError::into_inner).set_file(said)
}

impl Operator {
    /// Follows the config file for ever (until the task is dropped).
    pub(super) async fn follow_file(&self, mut file: ConfigFile) {
        let mut told: BTreeSet<String> = BTreeSet::new();
        loop {
            match file.changed().await {
                Ok(said) => {
                    told.clear();
                    if install(&file, &said, &self.world) {
                        self.enqueue_all();
                    }
                }
                Err(faults) => {
                    self.world.fallbacks.write().unwrap_or_else(PoisonError::into_inner).break_file();
                    for fault in faults.iter().filter(|fault| !told.contains(*fault)) {
                        tracing::warn!("{fault} (what it said before stays in use)");
                    }
                    told = faults.into_iter().collect();
                }
            }
        }
    }

    pub(super) fn watch_namespace_configs(self: &Arc<Self>, tasks: &mut JoinSet<()>, scope: &Scope) {
        let this = self.clone();
        let config = watcher::Config::default().labels(&format!("{LABEL_CONFIG}={CONFIG_NAMESPACE}"));
        self.spawn(
            tasks,
            scope,
            "namespace-level ConfigMaps",
            &self.world.namespace_configs,
            scope.api::<ConfigMap>(&self.client),
            config,
            |object| NamespaceConfig {
                uid: object.uid().unwrap_or_default(),
                read: parse_config_map(object.data.as_ref().unwrap_or(&BTreeMap::new())),
            },
            move |change| this.namespace_config_changed(change),
        );
    }

    fn namespace_config_changed(&self, change: &Change<NamespaceConfig>) {
        let (namespace, name) = &change.key;
        let configmap = format!("{namespace}/{name}");
        if *namespace == self.settings.operator_namespace {
            // Its rollouts have the config file, which is the operator's own too.
            if change.old.is_none() {
                tracing::warn!(configmap, "ignored: a namespace-level configuration in the operator's own namespace");
            }
            return;
        }
        let difference = {
            let mut fallbacks = self.world.fallbacks.write().unwrap_or_else(PoisonError::into_inner);
            match &change.new {
                Some(config) => fallbacks.set(namespace, name, &config.uid, &config.read),
                None => fallbacks.remove(namespace, name),
            }
        };
        let ignored = |config: &Option<Arc<NamespaceConfig>>| {
            config.as_ref().and_then(|config| config.read.as_ref().ok()).map(|said| said.ignored.join(", "))
        };
        if let Some(keys) = ignored(&change.new).filter(|keys| !keys.is_empty())
            && ignored(&change.old).as_ref() != Some(&keys)
        {
            tracing::info!(configmap, keys, "these keys mean nothing here, and are ignored");
        }
        self.tell(namespace, difference.notices);
        if let Some(says) = difference.says {
            tracing::info!(namespace, %says, "what the rollouts of the namespace fall back to has changed");
            self.enqueue_namespace(namespace);
        }
    }

    /// Watches what says which changes need what; it counts only in the operator's own namespace.
    pub(super) fn watch_changes_configs(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        let scope = Scope::of(&self.settings.operator_namespace);
        let this = self.clone();
        let config = watcher::Config::default().labels(&format!("{LABEL_CONFIG}={CONFIG_CHANGES}"));
        self.spawn(
            tasks,
            &scope,
            "usde-config ConfigMaps",
            &self.world.changes_configs,
            scope.api::<ConfigMap>(&self.client),
            config,
            |object| ChangesConfig {
                uid: object.uid().unwrap_or_default(),
                written: changes::parse(object.data.as_ref().unwrap_or(&BTreeMap::new())),
            },
            move |change| this.changes_config_changed(change),
        );
    }

    fn changes_config_changed(&self, change: &Change<ChangesConfig>) {
        let (namespace, name) = &change.key;
        let difference = {
            let mut rulebook = self.world.rulebook.write().unwrap_or_else(PoisonError::into_inner);
            match &change.new {
                Some(config) => rulebook.set(namespace, name, &config.uid, &config.written),
                None => rulebook.remove(namespace, name),
            }
        };
        self.tell(namespace, difference.notices);
        if !difference.kinds.is_empty() {
            let kinds: Vec<&str> = difference.kinds.iter().map(|kind| kind.name()).collect();
            tracing::info!(kinds = kinds.join(", "), "which changes of these kinds need what is now said otherwise");
            self.enqueue_all();
        }
    }

    /// Tells what is wrong with ConfigMaps of a namespace, in the log and on them.
    fn tell(&self, namespace: &str, notices: Vec<Notice>) {
        for notice in notices {
            tracing::warn!("{}", notice.text);
            let about = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("ConfigMap".to_owned()),
                namespace: Some(namespace.to_owned()),
                name: Some(notice.name),
                // Without it `kubectl describe` does not show the event.
                uid: Some(notice.uid),
                ..ObjectReference::default()
            };
            // The receiver lives as long as the operator; without one there is nobody to tell.
            let _ = self.news.send((about, Event { warning: true, reason: "ConfigInvalid", note: notice.text }));
        }
    }
}
