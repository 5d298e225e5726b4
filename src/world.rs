//! Everything the operator knows: one store per kind, the catalogue of definitions, what was rendered from them, and what
//! rollouts fall back to.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak},
};

use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::ControllerRevision, core::v1::ConfigMap};
use kube::{Resource, core::DeserializeGuard};
use serde::Deserialize as _;

use crate::{
    api::{
        IsbServiceRollout, MonoVertexRollout, NumaflowController, NumaflowControllerRollout, PipelineRollout,
        short_hash,
    },
    changes::{self, Rulebook, Rules, Written},
    definitions::{Catalogue, Definition, Parsed, cluster_scoped, parse_config_map},
    fallback::{Fallbacks, Fault, Said},
    live::{Live, ObjectId},
    manifest::Manifest,
    numaflow::{Dependant, Dependants, LiveIsb, LiveMonoVertex, LivePipeline},
    settings::Defaults,
    store::{Key, Store},
};

/// (group, kind).
pub type GroupKind = (String, String);

/// An object of our own kinds as the API gave it: decoded, or what is wrong with it. One that cannot be decoded still
/// exists: its children stay and its name is taken.
#[derive(Clone, Debug)]
pub enum Decoded<T> {
    /// Decoded.
    Good(Arc<T>),
    /// Not decodable: why.
    Bad(String),
}

impl<T> Decoded<T> {
    /// Takes in what the API gave, without what nothing is decided from.
    #[must_use]
    pub fn read(guarded: &DeserializeGuard<T>) -> Self
    where
        T: Clone + Resource,
    {
        match &guarded.0 {
            Ok(object) => {
                let mut object = object.clone();
                object.meta_mut().managed_fields = None;
                Self::Good(Arc::new(object))
            }
            Err(error) => Self::Bad(error.error.clone()),
        }
    }

    /// The object, if it could be decoded.
    #[must_use]
    pub fn good(&self) -> Option<&Arc<T>> {
        match self {
            Self::Good(object) => Some(object),
            Self::Bad(_) => None,
        }
    }
}

/// A ControllerRevision of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Pinned {
    /// Uid of the revision.
    pub uid: String,
    /// Uid of the rollout that owns it.
    pub owner: String,
    /// Its number.
    pub number: i64,
    /// Version pinned.
    pub version: String,
    /// The definition, or the Secret that keeps it.
    pub content: PinnedContent,
}

/// Where a pinned definition is.
#[derive(Clone, Debug, PartialEq)]
pub enum PinnedContent {
    /// In the revision itself.
    Here(Arc<Definition>),
    /// In a Secret of this name.
    Secret(String),
    /// The revision cannot be read: why.
    Unreadable(String),
}

impl Pinned {
    #[must_use]
    fn read(revision: &ControllerRevision) -> Self {
        let data = revision.data.as_ref().map_or(&serde_json::Value::Null, |d| &d.0);
        let owners = revision.metadata.owner_references.as_deref().unwrap_or_default();
        let content = match data["secret"].as_str() {
            // Always of the same name: what the revision says may have been written by somebody else.
            Some(_) => PinnedContent::Secret(revision.metadata.name.clone().unwrap_or_default()),
            None => match Definition::deserialize(&data["definition"]) {
                Ok(definition) => PinnedContent::Here(Arc::new(definition)),
                Err(error) => PinnedContent::Unreadable(error.to_string()),
            },
        };
        Self {
            uid: revision.metadata.uid.clone().unwrap_or_default(),
            owner: owners.iter().find(|o| o.controller == Some(true)).map(|o| o.uid.clone()).unwrap_or_default(),
            number: revision.revision,
            version: data["version"].as_str().unwrap_or_default().to_owned(),
            content,
        }
    }
}

/// A namespace, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceState {
    /// Its uid.
    pub uid: String,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// What its deletion still waits for, in the words of its conditions.
    pub remaining: Option<String>,
}

/// A definitions ConfigMap.
#[derive(Debug)]
pub struct DefinitionsMap {
    /// Its uid.
    pub uid: String,
    /// What it says.
    pub parsed: Parsed,
}

impl DefinitionsMap {
    /// Reads a ConfigMap.
    #[must_use]
    pub fn read(object: &ConfigMap) -> Self {
        let parsed = parse_config_map(
            object.metadata.namespace.as_deref().unwrap_or_default(),
            object.metadata.name.as_deref().unwrap_or_default(),
            object.data.as_ref().unwrap_or(&BTreeMap::new()),
        );
        Self { uid: object.metadata.uid.clone().unwrap_or_default(), parsed }
    }
}

/// A namespace-level ConfigMap.
#[derive(Debug)]
pub struct NamespaceConfig {
    /// Its uid.
    pub uid: String,
    /// What it says, or all that is wrong with it.
    pub read: Result<Said, Vec<Fault>>,
}

/// A ConfigMap that says which changes need what.
#[derive(Debug)]
pub struct ChangesConfig {
    /// Its uid.
    pub uid: String,
    /// What it says.
    pub written: Written,
}

/// All stores.
#[derive(Debug)]
pub struct World {
    /// NumaflowControllerRollouts.
    pub rollouts: Arc<Store<Decoded<NumaflowControllerRollout>>>,
    /// NumaflowControllers.
    pub controllers: Arc<Store<Decoded<NumaflowController>>>,
    /// ControllerRevisions of ours.
    pub revisions: Arc<Store<Pinned>>,
    /// Namespaces.
    pub namespaces: Arc<Store<NamespaceState>>,
    /// PipelineRollouts.
    pub pipeline_rollouts: Arc<Store<Decoded<PipelineRollout>>>,
    /// ISBServiceRollouts.
    pub isb_rollouts: Arc<Store<Decoded<IsbServiceRollout>>>,
    /// MonoVertexRollouts.
    pub mono_vertex_rollouts: Arc<Store<Decoded<MonoVertexRollout>>>,
    /// Numaflow's Pipelines.
    pub pipelines: Arc<Store<LivePipeline>>,
    /// Numaflow's ISB services.
    pub isb_services: Arc<Store<LiveIsb>>,
    /// Numaflow's MonoVertices.
    pub mono_vertices: Arc<Store<LiveMonoVertex>>,
    /// Definitions ConfigMaps; the catalogue holds what they say.
    pub config_maps: Arc<Store<DefinitionsMap>>,
    /// What the ConfigMaps say.
    pub catalogue: RwLock<Catalogue>,
    /// Namespace-level ConfigMaps; the fall-backs hold what they say.
    pub namespace_configs: Arc<Store<NamespaceConfig>>,
    /// What rollouts that say nothing use.
    pub fallbacks: RwLock<Fallbacks>,
    /// ConfigMaps that say which changes need what; the rulebook holds what they say.
    pub changes_configs: Arc<Store<ChangesConfig>>,
    /// Which changes need what.
    pub rulebook: RwLock<Rulebook>,
    /// The definitions ConfigMaps as the catalogue has them.
    followed: Mutex<BTreeMap<Key, Arc<DefinitionsMap>>>,
    /// Whether only some namespaces are served.
    scoped: bool,
    produced: RwLock<BTreeMap<GroupKind, Arc<Store<Live>>>>,
    known: Mutex<HashMap<String, Weak<Definition>>>,
    rendered: Mutex<Renderings>,
    copies: Mutex<Copies>,
    since: OnceLock<Timestamp>,
    pins: Mutex<HashMap<(String, String), Arc<Definition>>>,
    /// Namespaces that are being deleted and had rollouts.
    left: Mutex<BTreeSet<String>>,
}

/// By address of the definition and instance; the definition is kept, so that its address stays its own.
type Renderings = HashMap<(usize, String), (Arc<Definition>, Rendering)>;

/// Isolated copies, by the child that each belongs to: what it was made from, in words, and the definition itself.
type Copies = HashMap<String, (String, Arc<Definition>, Rendering)>;

/// A rendered manifest, or the error.
type Rendering = Result<Arc<Manifest>, String>;

/// Name of the watch that sees the whole cluster.
pub const CLUSTER: &str = "cluster";

/// Isolated copies kept: for some time after their attempts, and for as many as may run at once.
const COPIES: usize = 1024;
/// Renderings kept; each is shared by all rollouts that use the version.
const RENDERINGS: usize = 64;

impl World {
    /// Empty stores that wait for these watches, and what is built in. `own` is the watch of the operator's namespace.
    #[must_use]
    pub fn new(
        scopes: &[String],
        definitions: &[String],
        own: &str,
        kinds: impl IntoIterator<Item = GroupKind>,
        built_in: Defaults,
    ) -> Self {
        let names = || scopes.iter().cloned();
        Self {
            rollouts: Arc::new(Store::new(names())),
            controllers: Arc::new(Store::new(names())),
            revisions: Arc::new(Store::new(names())),
            namespaces: Arc::new(Store::new([CLUSTER.to_owned()])),
            pipeline_rollouts: Arc::new(Store::new(names())),
            isb_rollouts: Arc::new(Store::new(names())),
            mono_vertex_rollouts: Arc::new(Store::new(names())),
            pipelines: Arc::new(Store::new(names())),
            isb_services: Arc::new(Store::new(names())),
            mono_vertices: Arc::new(Store::new(names())),
            config_maps: Arc::new(Store::new(definitions.iter().cloned())),
            catalogue: RwLock::new(Catalogue::new()),
            followed: Mutex::default(),
            namespace_configs: Arc::new(Store::new(names())),
            fallbacks: RwLock::new(Fallbacks::new(built_in)),
            changes_configs: Arc::new(Store::new([own.to_owned()])),
            rulebook: RwLock::default(),
            scoped: !scopes.iter().any(|s| s == CLUSTER),
            produced: RwLock::new(kinds.into_iter().map(|kind| (kind, Arc::new(Store::new(names())))).collect()),
            known: Mutex::default(),
            rendered: Mutex::default(),
            copies: Mutex::default(),
            since: OnceLock::new(),
            pins: Mutex::default(),
            left: Mutex::default(),
        }
    }

    /// The store of a kind that definitions produce, if it is watched.
    #[must_use]
    pub fn produced(&self, group: &str, kind: &str) -> Option<Arc<Store<Live>>> {
        let stores = self.produced.read().unwrap_or_else(PoisonError::into_inner);
        stores.get(&(group.to_owned(), kind.to_owned())).cloned()
    }

    /// Adds the store of a kind that the server turned out to serve.
    pub fn add_produced(&self, kind: GroupKind, store: Arc<Store<Live>>) {
        self.produced.write().unwrap_or_else(PoisonError::into_inner).insert(kind, store);
    }

    /// The stores of everything produced.
    #[must_use]
    pub fn all_produced(&self) -> Vec<(GroupKind, Arc<Store<Live>>)> {
        let stores = self.produced.read().unwrap_or_else(PoisonError::into_inner);
        stores.iter().map(|(kind, store)| (kind.clone(), store.clone())).collect()
    }

    /// Production objects seen in a namespace.
    #[must_use]
    pub fn live(&self, namespace: &str) -> BTreeMap<ObjectId, Live> {
        self.all_produced()
            .into_iter()
            .flat_map(|(_, store)| store.in_namespace(namespace))
            .map(|(_, live)| (live.id.clone(), (*live).clone()))
            .collect()
    }

    /// Kinds of these manifests and inventories that are not watched.
    #[must_use]
    pub fn unwatched<'a>(&self, kinds: impl Iterator<Item = (&'a str, &'a str)>) -> BTreeSet<GroupKind> {
        kinds
            .filter(|(group, kind)| self.produced(group, kind).is_none_or(|store| !store.synced()))
            .map(|(group, kind)| (group.to_owned(), kind.to_owned()))
            .collect()
    }

    /// Cluster-scoped objects that children of other owners have in their inventories, those of rollouts that are being
    /// deleted left out.
    #[must_use]
    pub fn used_elsewhere(&self, namespace: &str, owner: &str) -> BTreeSet<ObjectId> {
        let mut used = BTreeSet::new();
        for (ns, name) in self.controllers.keys() {
            let Some(decoded) = self.controllers.get(&ns, &name) else { continue };
            let Some(child) = decoded.good() else { continue };
            let parent = child.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true));
            let parent = parent.map_or(name.as_str(), |o| o.name.as_str());
            let leaving = child.metadata.deletion_timestamp.is_some()
                || self
                    .rollouts
                    .get(&ns, parent)
                    .is_some_and(|r| r.good().is_some_and(|r| r.metadata.deletion_timestamp.is_some()));
            if leaving || (ns == namespace && parent == owner) {
                continue;
            }
            let entries = child.status.iter().flat_map(|s| &s.inventory);
            used.extend(
                entries
                    .filter(|e| cluster_scoped(&e.group, &e.kind))
                    .map(|e| ObjectId::new(&e.group, &e.kind, &e.name)),
            );
        }
        used
    }

    /// What the rollouts of a namespace use where they say nothing.
    #[must_use]
    pub fn defaults(&self, namespace: &str) -> Defaults {
        self.fallbacks.read().unwrap_or_else(PoisonError::into_inner).defaults(namespace)
    }

    /// What the changes of a kind need.
    #[must_use]
    pub fn rules(&self, kind: changes::Kind) -> Arc<Rules> {
        self.rulebook.read().unwrap_or_else(PoisonError::into_inner).rules(kind)
    }

    /// Has the catalogue say what a definitions ConfigMap says now. Whoever comes last has seen what is stored last, so that
    /// those who feed the store need not wait for each other.
    pub fn catalogue_follows(&self, key: &Key) {
        self.follow(key, &mut self.followed.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Has the catalogue say what all definitions ConfigMaps of a namespace say now: who else feeds the store may have brought
    /// one there, and not yet here.
    pub fn catalogue_catches_up(&self, namespace: &str) {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let stored = self.config_maps.in_namespace(namespace).into_iter().map(|(name, _)| (namespace.to_owned(), name));
        let gone = followed.keys().filter(|key| key.0 == namespace).cloned();
        for key in stored.chain(gone).collect::<BTreeSet<Key>>() {
            self.follow(&key, &mut followed);
        }
    }

    fn follow(&self, key: &Key, followed: &mut BTreeMap<Key, Arc<DefinitionsMap>>) {
        let (namespace, name) = key;
        let stored = self.config_maps.get(namespace, name);
        if stored.as_ref().map(Arc::as_ptr) == followed.get(key).map(Arc::as_ptr) {
            return;
        }
        let mut catalogue = self.catalogue.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(map) = stored {
            catalogue.set(namespace, name, map.parsed.clone());
            followed.insert(key.clone(), map);
        } else {
            catalogue.remove(namespace, name);
            followed.remove(key);
        }
    }

    /// Notes that a namespace which is being deleted had rollouts in it.
    pub fn leaves(&self, namespace: &str) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).insert(namespace.to_owned());
    }

    /// Whether a namespace that is being deleted had rollouts in it, as far as this process has seen.
    #[must_use]
    pub fn was_ours(&self, namespace: &str) -> bool {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).contains(namespace)
    }

    /// Forgets a namespace that is gone.
    pub fn forget_namespace(&self, namespace: &str) {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).remove(namespace);
    }

    /// Whether a namespace is being deleted.
    #[must_use]
    pub fn terminating(&self, namespace: &str) -> bool {
        self.namespaces.get("", namespace).is_some_and(|n| n.terminating)
    }

    /// Says that from now on this process looks. The first time counts.
    pub fn begin(&self, now: Timestamp) {
        // Later ones change nothing.
        let _ = self.since.set(now);
    }

    /// Since when this process looks.
    #[must_use]
    pub fn since(&self) -> Timestamp {
        // Nobody asks before: of what was until now, it knows nothing.
        self.since.get().copied().unwrap_or(Timestamp::MAX)
    }

    /// Numaflow objects in a namespace.
    #[must_use]
    pub fn dependants(&self, namespace: &str) -> Dependants {
        let mut dependants = Dependants::default();
        // A namespace that cannot be watched says nothing about the others.
        let watch = self.watch_of(namespace);
        let mut add = |kind: &str, synced: bool, found: Vec<(String, String)>| {
            if !synced {
                dependants.unlisted.push(kind.to_owned());
            }
            let object = |(name, instance)| Dependant { kind: kind.to_owned(), name, instance };
            dependants.objects.extend(found.into_iter().map(object));
        };
        let isb =
            self.isb_services.in_namespace(namespace).into_iter().map(|(name, i)| (name, i.instance().to_owned()));
        add("InterStepBufferService", self.isb_services.has_listed(watch), isb.collect());
        let mono =
            self.mono_vertices.in_namespace(namespace).into_iter().map(|(name, m)| (name, m.instance().to_owned()));
        add("MonoVertex", self.mono_vertices.has_listed(watch), mono.collect());
        let pipelines = self.pipelines.in_namespace(namespace).into_iter();
        add(
            "Pipeline",
            self.pipelines.has_listed(watch),
            pipelines.map(|(name, p)| (name, p.instance().to_owned())).collect(),
        );
        dependants
    }

    /// Name of the watch that sees a namespace.
    fn watch_of<'n>(&self, namespace: &'n str) -> &'n str {
        if self.scoped { namespace } else { CLUSTER }
    }

    /// Whether the server serves Pipelines, as far as those who watch a namespace know.
    #[must_use]
    pub fn serves_pipelines(&self, namespace: &str) -> bool {
        self.pipelines.serves(self.watch_of(namespace))
    }

    /// What is not known, or may have changed unseen, of what decisions about pipelines and ISB services are made from; empty
    /// when everything is known.
    #[must_use]
    pub fn unknown_for_pipelines(&self, namespace: &str) -> Vec<String> {
        // A namespace that cannot be watched says nothing about the others.
        let watch = self.watch_of(namespace);
        Self::troubles([
            ("NumaflowControllerRollouts", self.rollouts.trouble_of(watch)),
            ("PipelineRollouts", self.pipeline_rollouts.trouble_of(watch)),
            ("ISBServiceRollouts", self.isb_rollouts.trouble_of(watch)),
            ("Pipelines", self.pipelines.trouble_of(watch)),
            ("InterStepBufferServices", self.isb_services.trouble_of(watch)),
            ("namespace-level ConfigMaps", self.namespace_configs.trouble_of(watch)),
            ("usde-config ConfigMaps", self.trouble_of_changes()),
        ])
    }

    /// The same for decisions about MonoVertices.
    #[must_use]
    pub fn unknown_for_mono_vertices(&self, namespace: &str) -> Vec<String> {
        let watch = self.watch_of(namespace);
        Self::troubles([
            ("MonoVertexRollouts", self.mono_vertex_rollouts.trouble_of(watch)),
            ("MonoVertices", self.mono_vertices.trouble_of(watch)),
            ("NumaflowControllerRollouts", self.rollouts.trouble_of(watch)),
            ("namespace-level ConfigMaps", self.namespace_configs.trouble_of(watch)),
            ("usde-config ConfigMaps", self.trouble_of_changes()),
        ])
    }

    fn trouble_of_changes(&self) -> Option<&'static str> {
        let configs = &self.changes_configs;
        if configs.synced() { configs.stale().then_some("the watch fails") } else { Some("not listed yet") }
    }

    fn troubles<const N: usize>(all: [(&str, Option<&'static str>); N]) -> Vec<String> {
        all.into_iter().filter_map(|(what, trouble)| Some(format!("{what} ({})", trouble?))).collect()
    }

    /// Whether the server serves ISB services, as far as those who watch a namespace know.
    #[must_use]
    pub fn serves_isb_services(&self, namespace: &str) -> bool {
        self.isb_services.serves(self.watch_of(namespace))
    }

    /// Whether the server serves MonoVertices, as far as those who watch a namespace know.
    #[must_use]
    pub fn serves_mono_vertices(&self, namespace: &str) -> bool {
        self.mono_vertices.serves(self.watch_of(namespace))
    }

    /// One copy of every definition: hundreds of rollouts pin the same ones.
    #[must_use]
    pub fn intern(&self, definition: Arc<Definition>) -> Arc<Definition> {
        let key = short_hash(&serde_json::to_vec(&*definition).unwrap_or_default());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = known.get(&key).and_then(Weak::upgrade).filter(|same| *same == definition) {
            return same;
        }
        known.retain(|_, weak| weak.strong_count() > 0);
        known.insert(key, Arc::downgrade(&definition));
        definition
    }

    /// Reads a ControllerRevision of ours.
    #[must_use]
    pub fn read_revision(&self, revision: &ControllerRevision) -> Pinned {
        let mut pinned = Pinned::read(revision);
        if let PinnedContent::Here(definition) = pinned.content {
            pinned.content = PinnedContent::Here(self.intern(definition));
        }
        pinned
    }

    /// Renders a definition for an instance, once.
    ///
    /// # Errors
    /// The sentence that says why it cannot be rendered.
    pub fn render(
        &self,
        definition: &Arc<Definition>,
        instance: &str,
        make: impl FnOnce(&Definition, &str) -> Rendering,
    ) -> Rendering {
        let key = (Arc::as_ptr(definition).addr(), instance.to_owned());
        let lock = || self.rendered.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&key).map(|(_, rendering)| rendering.clone());
        if let Some(known) = known {
            return known;
        }
        let made = make(definition, instance);
        let mut cache = lock();
        if cache.len() >= RENDERINGS {
            cache.clear();
        }
        cache.insert(key, (definition.clone(), made.clone()));
        made
    }

    /// Renders the isolated copy of a child, once as long as it is made from the same.
    ///
    /// # Errors
    /// The sentence that says why there can be none.
    pub fn copy(
        &self,
        definition: &Arc<Definition>,
        child: &str,
        from: &str,
        make: impl FnOnce(&Definition) -> Rendering,
    ) -> Rendering {
        let lock = || self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known_from, known, rendering)) = lock().get(child)
            && known_from == from
            && Arc::ptr_eq(known, definition)
        {
            return rendering.clone();
        }
        let made = make(definition);
        let mut copies = lock();
        if copies.len() >= COPIES {
            copies.clear();
        }
        copies.insert(child.to_owned(), (from.to_owned(), definition.clone(), made.clone()));
        made
    }

    /// A definition read from a Secret.
    #[must_use]
    pub fn pin(&self, namespace: &str, secret: &str) -> Option<Arc<Definition>> {
        let pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.get(&(namespace.to_owned(), secret.to_owned())).cloned()
    }

    /// Forgets what was read from a Secret.
    pub fn forget_pin(&self, namespace: &str, secret: &str) {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.remove(&(namespace.to_owned(), secret.to_owned()));
    }

    /// Keeps a definition that was read from a Secret: such Secrets are immutable.
    pub fn keep_pin(&self, namespace: &str, secret: &str, definition: Arc<Definition>) {
        let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
        pins.insert((namespace.to_owned(), secret.to_owned()), self.intern(definition));
    }

    /// Names of what has not listed yet; empty when everything is known.
    #[must_use]
    pub fn unsynced(&self) -> Vec<String> {
        let mut waiting: Vec<String> = Vec::new();
        let mut look = |synced: bool, what: &str| {
            if !synced {
                waiting.push(what.to_owned());
            }
        };
        look(self.rollouts.synced(), "NumaflowControllerRollouts");
        look(self.controllers.synced(), "NumaflowControllers");
        look(self.pipeline_rollouts.synced(), "PipelineRollouts");
        look(self.isb_rollouts.synced(), "ISBServiceRollouts");
        look(self.mono_vertex_rollouts.synced(), "MonoVertexRollouts");
        look(self.revisions.synced(), "ControllerRevisions");
        // An operator for some namespaces may not be allowed to list them all; the answers to its writes tell as well.
        look(self.namespaces.synced() || self.scoped, "Namespaces");
        look(self.config_maps.synced(), "definitions ConfigMaps");
        look(self.namespace_configs.synced(), "namespace-level ConfigMaps");
        look(self.changes_configs.synced(), "usde-config ConfigMaps");
        for ((_, kind), store) in self.all_produced() {
            look(store.synced(), &kind);
        }
        waiting
    }
}
