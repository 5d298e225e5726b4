//! Which watches there are, and what is kept of what they bring.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{ConfigMap, Namespace},
};
use kube::{
    Api, Resource, ResourceExt,
    api::DynamicObject,
    core::{ApiResource, DeserializeGuard},
    runtime::watcher::{self, watcher},
};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use super::Operator;
use crate::{
    api::{LABEL_PARENT, LABEL_TRACKING, NumaflowController, NumaflowControllerRollout, definitions_selector},
    kinds,
    live::Live,
    settings::Settings,
    store::{Change, News, Store},
    watch::{Scope, follow, names},
    world::{Decoded, DefinitionsMap, GroupKind, NamespaceState},
};

impl Operator {
    pub(super) fn watch(self: &Arc<Self>, tasks: &mut JoinSet<()>, scopes: &[Scope], definitions: &[Scope]) {
        let parent = watcher::Config::default().labels(LABEL_PARENT);
        for scope in scopes {
            let this = self.clone();
            self.spawn(
                tasks,
                scope,
                "NumaflowControllerRollouts",
                &self.world.rollouts,
                scope.api::<DeserializeGuard<NumaflowControllerRollout>>(&self.client),
                watcher::Config::default(),
                Decoded::read,
                move |c| this.rollout_changed(c),
            );
            let this = self.clone();
            self.spawn(
                tasks,
                scope,
                "NumaflowControllers",
                &self.world.controllers,
                scope.api::<DeserializeGuard<NumaflowController>>(&self.client),
                watcher::Config::default(),
                Decoded::read,
                move |c| this.controller_changed(c),
            );
            let this = self.clone();
            self.spawn(
                tasks,
                scope,
                "ControllerRevisions",
                &self.world.revisions,
                scope.api::<ControllerRevision>(&self.client),
                parent.clone(),
                {
                    let this = self.clone();
                    move |revision: &ControllerRevision| this.world.read_revision(revision)
                },
                move |c| {
                    this.owner_of_revision_changed(c);
                },
            );
            self.watch_namespace_configs(tasks, scope);
            self.watch_pipelines(tasks, scope);
            self.watch_isb_services(tasks, scope);
            self.watch_mono_vertices(tasks, scope);
            for ((group, kind), store) in self.world.all_produced() {
                if let Some(found) = kinds::usual(&group, &kind) {
                    self.watch_produced(tasks, scope, &found.resource, &store);
                }
            }
        }
        for scope in definitions {
            let config = watcher::Config::default().labels(&definitions_selector());
            let this = self.clone();
            self.spawn(
                tasks,
                scope,
                "definitions ConfigMaps",
                &self.world.config_maps,
                scope.api::<ConfigMap>(&self.client),
                config,
                DefinitionsMap::read,
                move |c| this.definitions_changed(c),
            );
        }
        let this = self.clone();
        self.spawn(
            tasks,
            &Scope::everywhere(),
            "Namespaces",
            &self.world.namespaces,
            Api::<Namespace>::all(self.client.clone()),
            watcher::Config::default(),
            read_namespace,
            move |c| this.namespace_changed(c),
        );
        for (group, kind) in group_kinds(&self.settings) {
            if kinds::usual(&group, &kind).is_none() {
                tasks.spawn(self.clone().watch_when_served(group, kind, scopes.to_vec()));
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // the parts of one watch, each of its own type
    pub(super) fn spawn<K, T>(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
        scope: &Scope,
        what: &str,
        store: &Arc<Store<T>>,
        api: Api<K>,
        config: watcher::Config,
        read: impl Fn(&K) -> T + Send + 'static,
        changed: impl Fn(&Change<T>) + Send + 'static,
    ) where
        K: Resource + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
        T: Send + Sync + 'static,
    {
        let (scope, what, store) = (scope.clone(), what.to_owned(), store.clone());
        let this = self.clone();
        let news = move |scope: &Scope, news: News| match (news, &scope.namespace) {
            // What is decided without a list (that something is in use, say) is decided again with it.
            (News::FirstList, Some(namespace)) => this.enqueue_namespace(namespace),
            (News::FirstList, None) => this.enqueue_all(),
            // The data plane asks whether it is served, and whether what is known is old; nobody else does.
            (News::Otherwise, Some(namespace)) => this.enqueue_data_plane(namespace),
            (News::Otherwise, None) => this.enqueue_whole_data_plane(),
        };
        let watch = move || watcher(api.clone(), config.clone());
        tasks.spawn(async move { follow(scope, what, watch, store, read, changed, news).await });
    }

    pub(super) fn watch_produced(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
        scope: &Scope,
        resource: &ApiResource,
        store: &Arc<Store<Live>>,
    ) {
        let (group, kind) = (resource.group.clone(), resource.kind.clone());
        let this = self.clone();
        let config = watcher::Config::default().labels(LABEL_TRACKING);
        self.spawn(
            tasks,
            scope,
            &resource.kind,
            store,
            scope.dynamic(&self.client, resource),
            config,
            move |object: &DynamicObject| Live::read(&group, &kind, &object.metadata, &object.data),
            move |change| this.object_changed(change),
        );
    }

    /// Watches a kind that is not served by every cluster, from when it is served.
    pub(super) async fn watch_when_served(self: Arc<Self>, group: String, kind: String, scopes: Vec<Scope>) {
        let mut tick = tokio::time::interval(Duration::from_secs(30));
        let resource = loop {
            tick.tick().await;
            if let Ok(found) = kube::discovery::group(&self.client, &group).await
                && let Some((resource, capabilities)) = found.recommended_kind(&kind)
            {
                if capabilities.scope != kube::discovery::Scope::Namespaced {
                    // Applied, but not watched; a watch that ends would end the process.
                    return std::future::pending().await;
                }
                break resource;
            }
        };
        let store = Arc::new(Store::new(names(&scopes)));
        self.world.add_produced((group, kind), store.clone());
        let mut tasks = JoinSet::new();
        for scope in &scopes {
            self.watch_produced(&mut tasks, scope, &resource, &store);
        }
        while tasks.join_next().await.is_some() {}
    }
}

/// The permitted kinds as (group, kind).
pub(super) fn group_kinds(settings: &Settings) -> impl Iterator<Item = GroupKind> {
    settings.permitted.iter().map(|text| {
        let (kind, group) = text.split_once('.').unwrap_or((text, ""));
        (group.to_owned(), kind.to_owned())
    })
}

/// Kinds whose objects are watched: those that definitions may hold and every cluster serves, and the ReplicaSets that a
/// recreated Deployment leaves behind. Secrets are never watched.
pub(super) fn watched_kinds(settings: &Settings) -> Vec<GroupKind> {
    let mut all: Vec<GroupKind> =
        group_kinds(settings).filter(|(group, kind)| kinds::usual(group, kind).is_some() && kind != "Secret").collect();
    all.push(("apps".to_owned(), "ReplicaSet".to_owned()));
    all.sort();
    all.dedup();
    all
}

pub(super) fn read_namespace(namespace: &Namespace) -> NamespaceState {
    let conditions = namespace.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let remaining = conditions
        .iter()
        .find(|c| c.type_ == "NamespaceFinalizersRemaining" && c.status == "True")
        .and_then(|c| c.message.clone());
    NamespaceState {
        uid: namespace.uid().unwrap_or_default(),
        terminating: namespace.metadata.deletion_timestamp.is_some(),
        remaining,
    }
}
