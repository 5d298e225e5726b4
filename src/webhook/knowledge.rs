//! What the webhook knows of the cluster: rollouts and definitions from watches, and, before anything is refused because of
//! what they do not show, from a read of its own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::ControllerRevision, core::v1::ConfigMap},
};
use kube::{Client, Resource, ResourceExt, api::ListParams, core::DeserializeGuard};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::WebhookMetrics;
use crate::{
    admission::{About, Judgement, Looked, View, review::Review},
    api::{
        ANNOTATION_INSTANCE, CONFIG_DEFINITIONS, LABEL_CONFIG, LABEL_PARENT, NumaflowControllerRollout,
        definitions_selector, label_value,
    },
    kinds,
    numaflow::{Dependant, Dependants},
    settings::{Defaults, Settings},
    store::{Key, Seen, Store},
    watch::{Scope, definition_scopes, key, names, scopes},
    world::{Decoded, DefinitionsMap, Pinned, World},
};

/// Longest time that a review waits for what is read for it. The API server gives an answer a few seconds, and a user less.
const PATIENCE: Duration = Duration::from_secs(2);
/// Objects that are read at once.
const AT_ONCE: usize = 8;
/// Reads that are remembered; one per namespace, and forgetting them costs a read.
const REMEMBERED: usize = 1000;

/// What the webhook knows of the cluster.
pub struct Knowledge {
    client: Client,
    settings: Settings,
    world: Arc<World>,
    metrics: Arc<WebhookMetrics>,
    reads: Mutex<HashMap<(About, String), Arc<Shared>>>,
}

impl Knowledge {
    /// Knows what its world is given, and what it reads itself.
    #[must_use]
    pub fn new(client: Client, settings: Settings, metrics: Arc<WebhookMetrics>) -> Self {
        let (scopes, definitions) = (names(&scopes(&settings)), names(&definition_scopes(&settings)));
        let world = World::new(&scopes, &definitions, &settings.operator_namespace, [], Defaults::default());
        let world = Arc::new(world);
        metrics.process().observe(&world);
        Self { client, settings, world, metrics, reads: Mutex::default() }
    }

    /// What it knows.
    #[must_use]
    pub fn world(&self) -> &Arc<World> {
        &self.world
    }

    /// What is known, for one review.
    pub(super) fn view<'a>(&'a self, looked: &'a Looked) -> View<'a> {
        View::new(&self.world, &self.settings, looked)
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    // ---- reads --------------------------------------------------------------------------------------------------

    /// Reads what a judgement hangs on. A read that began after `asked`, when the review came in, serves all who wait for it.
    ///
    /// # Errors
    /// It could not be read in time: why.
    pub(super) async fn look(&self, review: &Review, judgement: &Judgement, asked: Instant) -> Result<Looked, String> {
        let deadline = Instant::now() + PATIENCE;
        // Four reads at once are a large future, and most reviews need none.
        let looked = timeout_at(deadline, Box::pin(self.look_at_all(review, judgement, asked))).await;
        let late = || format!("no answer from the API server within {PATIENCE:?}");
        let (why, told) = match looked {
            Ok(Ok(looked)) => {
                self.metrics.live_read("read");
                return Ok(looked);
            }
            Err(_) => (late(), late()),
            // What the API server says is for who runs the webhook: whoever asks may have no right to read it.
            Ok(Err(why)) => (why, "the API server did not let it be read; the webhook's log says why".to_owned()),
        };
        self.metrics.live_read("failed");
        let (kind, namespace, name) = (&review.kind.kind, &review.namespace, &review.name);
        tracing::warn!(kind, namespace, name, why, "not checked");
        Err(told)
    }

    async fn look_at_all(&self, review: &Review, judgement: &Judgement, asked: Instant) -> Result<Looked, String> {
        let namespace = review.namespace.as_str();
        let definitions = async {
            let wanted = judgement.doubts(About::Definitions);
            for namespace in self.settings.definers(namespace).into_iter().filter(|_| wanted) {
                self.once(About::Definitions, namespace, asked, self.read_definitions(namespace)).await?;
            }
            Ok(())
        };
        let rollouts = async {
            if judgement.doubts(About::Rollouts) {
                self.once(About::Rollouts, namespace, asked, self.read_rollouts(&Scope::of(namespace))).await?;
            }
            if judgement.doubts(About::AllRollouts) {
                self.once(About::AllRollouts, "", asked, self.read_all_rollouts()).await?;
            }
            Ok(())
        };
        let revisions = async {
            let wanted = judgement.doubts(About::Revisions);
            if wanted { self.revisions(namespace, &review.name).await } else { Ok(Vec::new()) }
        };
        let dependants = async {
            let wanted = judgement.doubts(About::Dependants);
            if wanted { self.dependants(namespace).await.map(Some) } else { Ok(None) }
        };
        let ((), (), revisions, dependants) = futures::try_join!(definitions, rollouts, revisions, dependants)?;
        Ok(Looked { revisions, dependants })
    }

    async fn once(
        &self,
        about: About,
        namespace: &str,
        asked: Instant,
        read: impl Future<Output = Result<(), kube::Error>>,
    ) -> Result<(), String> {
        let shared = {
            let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
            if reads.len() >= REMEMBERED {
                reads.clear();
            }
            reads.entry((about, namespace.to_owned())).or_default().clone()
        };
        shared.read(asked, read).await
    }

    async fn read_definitions(&self, namespace: &str) -> Result<(), kube::Error> {
        let selected = ListParams::default().labels(&definitions_selector());
        let labelled =
            |map: &ConfigMap| map.labels().get(LABEL_CONFIG).is_some_and(|value| value == CONFIG_DEFINITIONS);
        let read = |map: &ConfigMap| labelled(map).then(|| DefinitionsMap::read(map));
        self.refresh(&self.world.config_maps, &Scope::of(namespace), &selected, read).await?;
        // Not only of what was new to this read: a watch may have been faster, and not be through with it.
        self.world.catalogue_catches_up(namespace);
        Ok(())
    }

    async fn read_rollouts(&self, scope: &Scope) -> Result<(), kube::Error> {
        let read = |rollout: &DeserializeGuard<NumaflowControllerRollout>| Some(Decoded::read(rollout));
        self.refresh(&self.world.rollouts, scope, &ListParams::default(), read).await
    }

    async fn read_all_rollouts(&self) -> Result<(), kube::Error> {
        for scope in scopes(&self.settings) {
            self.read_rollouts(&scope).await?;
        }
        Ok(())
    }

    /// Brings a store up to date: lists what there is, and reads what is newer than what is known. What `read` makes nothing of
    /// is not taken in.
    async fn refresh<K, T>(
        &self,
        store: &Store<T>,
        scope: &Scope,
        selected: &ListParams,
        read: impl Fn(&K) -> Option<T>,
    ) -> Result<(), kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug + DeserializeOwned,
        K::DynamicType: Default,
    {
        let list = scope.api::<K>(&self.client).list_metadata(selected).await?;
        let at = list.metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or_default();
        let listed: Vec<(Key, Seen)> =
            list.items.iter().map(|object| (key(object), Seen::of(&object.metadata))).collect();
        let newer = stream::iter(store.newer_of(&listed)).map(|(namespace, name)| {
            let api = Scope::of(&namespace).api::<K>(&self.client);
            async move { api.get_opt(&name).await }
        });
        let read_anew: Vec<K> =
            newer.buffer_unordered(AT_ONCE).try_filter_map(async |found| Ok(found)).try_collect().await?;
        store.retain(scope.namespace.as_deref(), at, &listed);
        for object in &read_anew {
            if let Some(value) = read(object) {
                store.offer(key(object), Seen::of(object.meta()), value);
            }
        }
        Ok(())
    }

    /// What a rollout has pinned.
    async fn revisions(&self, namespace: &str, rollout: &str) -> Result<Vec<(String, Arc<Pinned>)>, String> {
        let selected = ListParams::default().labels(&format!("{LABEL_PARENT}={}", label_value(rollout)));
        let list = Scope::of(namespace).api::<ControllerRevision>(&self.client).list(&selected).await;
        let read = |revision: &ControllerRevision| (revision.name_any(), Arc::new(self.world.read_revision(revision)));
        list.map(|list| list.items.iter().map(read).collect()).map_err(|error| error.to_string())
    }

    /// Numaflow's objects in a namespace. A kind that nobody serves has none.
    async fn dependants(&self, namespace: &str) -> Result<Dependants, String> {
        let mut dependants = Dependants::default();
        for resource in kinds::NUMAFLOW.iter().filter_map(|(kind, _)| kinds::numaflow(kind)) {
            let api = Scope::of(namespace).dynamic(&self.client, &resource);
            let list = match api.list_metadata(&ListParams::default()).await {
                Ok(list) => list.items,
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                Err(error) => return Err(error.to_string()),
            };
            dependants.objects.extend(list.into_iter().map(|object| Dependant {
                kind: resource.kind.clone(),
                instance: object.annotations().get(ANNOTATION_INSTANCE).cloned().unwrap_or_default(),
                name: object.name_any(),
            }));
        }
        Ok(dependants)
    }
}

/// A read that serves all who ask before it begins.
#[derive(Debug, Default)]
struct Shared {
    /// When the last one began, and what came of it.
    last: tokio::sync::Mutex<Option<(Instant, Result<(), String>)>>,
}

impl Shared {
    async fn read(&self, asked: Instant, read: impl Future<Output = Result<(), kube::Error>>) -> Result<(), String> {
        // Whoever comes while one is under way waits: that one may have missed what they ask for. The first of them reads
        // again, for all of them.
        let mut last = self.last.lock().await;
        if let Some((_, result)) = last.as_ref().filter(|(began, _)| *began >= asked) {
            return result.clone();
        }
        let began = Instant::now();
        let result = read.await.map_err(|error| error.to_string());
        *last = Some((began, result.clone()));
        result
    }
}
