//! The process at work: watches feed the stores, changes fill the queue, workers take turns.
//!
//! A turn is: look (stores only), decide (pure), carry out, and again, until nothing is left to do. Turns of one rollout
//! never overlap, so that the writes to its production objects are in one line.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{ConfigMap, Namespace, ObjectReference},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::DynamicObject,
    core::{ApiResource, DeserializeGuard, NamespaceResourceScope, PartialObjectMeta},
    runtime::watcher::{self, watcher},
};
use serde::de::DeserializeOwned;
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{
        ANNOTATION_INSTANCE, CONFIG_DEFINITIONS, GROUP, LABEL_CONFIG, LABEL_PARENT, LABEL_TRACKING, NumaflowController,
        NumaflowControllerRollout, label_value,
    },
    cluster::{Cluster, Failure, Lesson, Subject},
    controller::alone,
    definitions::parse_config_map,
    kinds,
    live::Live,
    metrics::{Metrics, Outcome},
    observe,
    plan::{Event, Learned, Plan, Step},
    queue::Queue,
    rollout,
    settings::Settings,
    store::{Change, Store},
    watch::{Scope, follow},
    world::{CLUSTER, Decoded, DefinitionsMap, GroupKind, NamespaceState, NumaflowObject, Pinned, World},
};

/// What a turn is about: namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// A rollout.
    Rollout(String, String),
    /// A NumaflowController without a rollout.
    Controller(String, String),
}

/// Steps after which a turn gives way to others; far more than any attempt takes.
const LONGEST_TURN: usize = 200;
/// First and longest wait before a failed turn is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// The operator.
pub struct Operator {
    client: Client,
    settings: Settings,
    world: Arc<World>,
    queue: Arc<Queue<Task>>,
    cluster: Cluster,
    metrics: Arc<Metrics>,
    /// Failed turns in a row.
    failures: Mutex<HashMap<Task, u32>>,
    /// News for users that no turn brings: (about, event).
    news: mpsc::UnboundedSender<(ObjectReference, Event)>,
}

impl Operator {
    /// Serves until `shutdown`, then finishes what is in flight.
    pub async fn run(client: Client, settings: Settings, metrics: Arc<Metrics>, shutdown: CancellationToken) {
        let scopes = scopes(&settings);
        let definitions = definition_scopes(&settings);
        let names = |scopes: &[(String, Option<String>)]| scopes.iter().map(|(n, _)| n.clone()).collect::<Vec<_>>();
        let world = Arc::new(World::new(&names(&scopes), &names(&definitions), watched_kinds(&settings)));
        metrics.observe(&world);
        let (news, mut incoming) = mpsc::unbounded_channel();
        let operator = Arc::new(Self {
            cluster: Cluster::new(client.clone(), world.clone()),
            queue: Arc::default(),
            failures: Mutex::default(),
            client,
            settings,
            world,
            metrics,
            news,
        });
        let mut watches = JoinSet::new();
        operator.watch(&mut watches, &scopes, &definitions);
        let reporter = operator.clone();
        watches.spawn(async move {
            while let Some((about, event)) = incoming.recv().await {
                reporter.cluster.publish(&about, &event).await;
            }
        });
        let mut workers = JoinSet::new();
        if operator.synced(&shutdown).await {
            operator.metrics.set_ready(true);
            tracing::info!("all caches are synced, at work");
            for _ in 0..operator.settings.workers.max(1) {
                workers.spawn(operator.clone().work());
            }
            shutdown.cancelled().await;
        }
        operator.metrics.set_ready(false);
        operator.queue.close();
        while workers.join_next().await.is_some() {}
        watches.shutdown().await;
    }

    /// Waits until every store has listed; `false` if the process is to end before.
    async fn synced(&self, shutdown: &CancellationToken) -> bool {
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        let mut said = Instant::now();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return false,
                _ = tick.tick() => {}
            }
            let waiting = self.world.unsynced();
            if waiting.is_empty() {
                return true;
            }
            if said.elapsed() > Duration::from_secs(10) {
                said = Instant::now();
                tracing::info!(waiting = waiting.join(", "), "waiting for the first lists");
            }
        }
    }

    // ---- watches ------------------------------------------------------------------------------------------------

    fn watch(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
        scopes: &[(String, Option<String>)],
        definitions: &[(String, Option<String>)],
    ) {
        let parent = watcher::Config::default().labels(LABEL_PARENT);
        for scope in scopes {
            let this = self.clone();
            Self::spawn(
                tasks,
                scope,
                "NumaflowControllerRollouts",
                &self.world.rollouts,
                watcher(self.api::<DeserializeGuard<NumaflowControllerRollout>>(scope), watcher::Config::default()),
                decode,
                move |c| this.rollout_changed(c),
            );
            let this = self.clone();
            Self::spawn(
                tasks,
                scope,
                "NumaflowControllers",
                &self.world.controllers,
                watcher(self.api::<DeserializeGuard<NumaflowController>>(scope), watcher::Config::default()),
                decode,
                move |c| this.controller_changed(c),
            );
            let this = self.clone();
            Self::spawn(
                tasks,
                scope,
                "ControllerRevisions",
                &self.world.revisions,
                watcher(self.api::<ControllerRevision>(scope), parent.clone()),
                Pinned::read,
                move |c| {
                    this.owner_of_revision_changed(c);
                },
            );
            for (kind, store) in &self.world.numaflow {
                let Some(resource) = kinds::numaflow(kind) else { continue };
                let this = self.clone();
                Self::spawn(
                    tasks,
                    scope,
                    kind,
                    store,
                    watcher(self.metadata(scope, &resource), watcher::Config::default()),
                    |object| {
                        let instance =
                            object.metadata.annotations.as_ref().and_then(|a| a.get(ANNOTATION_INSTANCE)).cloned();
                        NumaflowObject { instance: instance.unwrap_or_default() }
                    },
                    move |change| {
                        if change.old.is_some() && change.old != change.new {
                            this.enqueue_namespace(&change.key.0);
                        }
                    },
                );
            }
            for ((group, kind), store) in self.world.all_produced() {
                if let Some(found) = kinds::usual(&group, &kind) {
                    self.watch_produced(tasks, scope, &found.resource, &store);
                }
            }
        }
        for scope in definitions {
            let config = watcher::Config::default().labels(&format!("{LABEL_CONFIG}={CONFIG_DEFINITIONS}"));
            let this = self.clone();
            Self::spawn(
                tasks,
                scope,
                "definitions ConfigMaps",
                &self.world.config_maps,
                watcher(self.api::<ConfigMap>(scope), config),
                |object| {
                    let data = object.data.clone().unwrap_or_default();
                    DefinitionsMap {
                        uid: object.uid().unwrap_or_default(),
                        parsed: parse_config_map(&object.namespace().unwrap_or_default(), &object.name_any(), &data),
                    }
                },
                move |c| this.definitions_changed(c),
            );
        }
        let cluster = (CLUSTER.to_owned(), None);
        let this = self.clone();
        Self::spawn(
            tasks,
            &cluster,
            "Namespaces",
            &self.world.namespaces,
            watcher(Api::<Namespace>::all(self.client.clone()), watcher::Config::default()),
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
    fn spawn<K, T>(
        tasks: &mut JoinSet<()>,
        scope: &(String, Option<String>),
        what: &str,
        store: &Arc<Store<T>>,
        events: impl futures::Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
        read: impl Fn(&K) -> T + Send + 'static,
        changed: impl Fn(&Change<T>) + Send + 'static,
    ) where
        K: Resource + Clone + std::fmt::Debug + Send + 'static,
        T: Send + Sync + 'static,
    {
        let scope = Scope { name: scope.0.clone(), namespace: scope.1.clone(), what: what.to_owned() };
        let store = store.clone();
        tasks.spawn(async move { follow(scope, events, store, read, changed).await });
    }

    fn watch_produced(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
        scope: &(String, Option<String>),
        resource: &ApiResource,
        store: &Arc<Store<Live>>,
    ) {
        let (group, kind) = (resource.group.clone(), resource.kind.clone());
        let this = self.clone();
        let config = watcher::Config::default().labels(LABEL_TRACKING);
        Self::spawn(
            tasks,
            scope,
            &resource.kind,
            store,
            watcher(self.dynamic(scope, resource), config),
            move |object: &DynamicObject| Live::read(&group, &kind, &object.metadata, &object.data),
            move |change| this.object_changed(change),
        );
    }

    /// Watches a kind that is not served by every cluster, from when it is served.
    async fn watch_when_served(self: Arc<Self>, group: String, kind: String, scopes: Vec<(String, Option<String>)>) {
        let mut tick = tokio::time::interval(Duration::from_secs(30));
        let resource = loop {
            tick.tick().await;
            if let Ok(found) = kube::discovery::group(&self.client, &group).await
                && let Some((resource, capabilities)) = found.recommended_kind(&kind)
            {
                if capabilities.scope != kube::discovery::Scope::Namespaced {
                    return;
                }
                break resource;
            }
        };
        let store = Arc::new(Store::new(scopes.iter().map(|(name, _)| name.clone())));
        self.world.add_produced((group, kind), store.clone());
        let mut tasks = JoinSet::new();
        for scope in &scopes {
            self.watch_produced(&mut tasks, scope, &resource, &store);
        }
        while tasks.join_next().await.is_some() {}
    }

    fn api<K>(&self, scope: &(String, Option<String>)) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope> + DeserializeOwned + Clone + std::fmt::Debug,
        K::DynamicType: Default,
    {
        match &scope.1 {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    fn dynamic(&self, scope: &(String, Option<String>), resource: &ApiResource) -> Api<DynamicObject> {
        match &scope.1 {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    fn metadata(
        &self,
        scope: &(String, Option<String>),
        resource: &ApiResource,
    ) -> Api<PartialObjectMeta<DynamicObject>> {
        match &scope.1 {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, resource),
            None => Api::all_with(self.client.clone(), resource),
        }
    }

    // ---- from a change to turns ---------------------------------------------------------------------------------

    fn rollout_changed(&self, change: &Change<Decoded<NumaflowControllerRollout>>) {
        let (namespace, name) = change.key.clone();
        self.queue.add(Task::Rollout(namespace.clone(), name.clone()));
        // What it holds may have kept others of its namespace waiting.
        let claims = |decoded: &Option<Arc<Decoded<NumaflowControllerRollout>>>| {
            let rollout = decoded.as_ref().and_then(|d| d.good().cloned())?;
            let promoted = rollout.status.as_ref().and_then(|s| s.promoted.clone()).map(|p| p.instance_id);
            Some((rollout.spec.controller.clone(), promoted))
        };
        if claims(&change.old) != claims(&change.new) {
            for (other, _) in self.world.rollouts.in_namespace(&namespace) {
                if other != name {
                    self.queue.add(Task::Rollout(namespace.clone(), other));
                }
            }
            self.enqueue_controllers(&namespace);
        }
    }

    fn controller_changed(&self, change: &Change<Decoded<NumaflowController>>) {
        let (namespace, name) = &change.key;
        for controller in [&change.old, &change.new].into_iter().flatten() {
            match controller.good() {
                Some(controller) if !observe::is_child(controller) => {
                    self.queue.add(Task::Controller(namespace.clone(), name.clone()));
                }
                Some(controller) => self.enqueue_owner(namespace, controller.owner_references()),
                None => self.enqueue_namespace(namespace),
            }
        }
    }

    fn owner_of_revision_changed(&self, change: &Change<Pinned>) {
        let namespace = &change.key.0;
        for pinned in [&change.old, &change.new].into_iter().flatten() {
            for (name, decoded) in self.world.rollouts.in_namespace(namespace) {
                if decoded.good().is_some_and(|r| r.metadata.uid.as_deref() == Some(pinned.owner.as_str())) {
                    self.queue.add(Task::Rollout(namespace.clone(), name));
                }
            }
        }
    }

    fn enqueue_owner(
        &self,
        namespace: &str,
        owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference],
    ) {
        for owner in owners.iter().filter(|o| o.kind == "NumaflowControllerRollout" && o.api_version.starts_with(GROUP))
        {
            self.queue.add(Task::Rollout(namespace.to_owned(), owner.name.clone()));
        }
    }

    fn object_changed(&self, change: &Change<Live>) {
        let same = match (&change.old, &change.new) {
            (Some(old), Some(new)) => {
                **old == Live { resource_version: old.resource_version.clone(), ..(**new).clone() }
            }
            _ => false,
        };
        if same {
            return;
        }
        let namespace = &change.key.0;
        for live in [&change.old, &change.new].into_iter().flatten() {
            let Some(mark) = &live.tracking else { continue };
            for (name, _) in self.world.rollouts.in_namespace(namespace) {
                if label_value(&name) == *mark {
                    self.queue.add(Task::Rollout(namespace.clone(), name));
                }
            }
            if let Some(controller) = self.world.controllers.get(namespace, mark)
                && controller.good().is_some_and(|c| !observe::is_child(c))
            {
                self.queue.add(Task::Controller(namespace.clone(), mark.clone()));
            }
        }
    }

    fn definitions_changed(&self, change: &Change<DefinitionsMap>) {
        let (namespace, name) = &change.key;
        {
            let mut catalogue = self.world.catalogue.write().unwrap_or_else(PoisonError::into_inner);
            match &change.new {
                Some(map) => catalogue.set(namespace, name, map.parsed.clone()),
                None => catalogue.remove(namespace, name),
            };
        }
        let known: Vec<String> =
            change.old.iter().flat_map(|map| &map.parsed.errors).map(ToString::to_string).collect();
        for error in change.new.iter().flat_map(|map| &map.parsed.errors) {
            let note = error.to_string();
            if known.contains(&note) {
                continue;
            }
            tracing::warn!(configmap = format!("{namespace}/{name}"), error = note, "a definition is not usable");
            let about = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("ConfigMap".to_owned()),
                namespace: Some(namespace.clone()),
                name: Some(name.clone()),
                // Without it `kubectl describe` does not show the event.
                uid: change.new.as_ref().map(|map| map.uid.clone()),
                ..ObjectReference::default()
            };
            // The receiver lives as long as the operator; without one there is nobody to tell.
            let _ = self.news.send((about, Event { warning: true, reason: "DefinitionMalformed", note }));
        }
        if *namespace == self.settings.operator_namespace {
            self.enqueue_all();
        } else {
            self.enqueue_namespace(namespace);
        }
    }

    fn namespace_changed(&self, change: &Change<NamespaceState>) {
        let terminating = |state: &Option<Arc<NamespaceState>>| state.as_ref().is_some_and(|s| s.terminating);
        if terminating(&change.old) != terminating(&change.new) {
            self.enqueue_namespace(&change.key.1);
        }
    }

    fn enqueue_namespace(&self, namespace: &str) {
        for (name, _) in self.world.rollouts.in_namespace(namespace) {
            self.queue.add(Task::Rollout(namespace.to_owned(), name));
        }
        self.enqueue_controllers(namespace);
    }

    fn enqueue_controllers(&self, namespace: &str) {
        for (name, controller) in self.world.controllers.in_namespace(namespace) {
            if controller.good().is_some_and(|c| !observe::is_child(c)) {
                self.queue.add(Task::Controller(namespace.to_owned(), name));
            }
        }
    }

    fn enqueue_all(&self) {
        for (namespace, name) in self.world.rollouts.keys() {
            self.queue.add(Task::Rollout(namespace, name));
        }
        for (namespace, name) in self.world.controllers.keys() {
            if self
                .world
                .controllers
                .get(&namespace, &name)
                .is_some_and(|c| c.good().is_some_and(|c| !observe::is_child(c)))
            {
                self.queue.add(Task::Controller(namespace, name));
            }
        }
    }

    // ---- turns --------------------------------------------------------------------------------------------------

    async fn work(self: Arc<Self>) {
        while let Some(task) = self.queue.next().await {
            let started = Instant::now();
            let after = self.turn(&task).await;
            self.metrics.turn(&task, &after, started.elapsed());
            let wait = self.wait(&task, &after);
            self.queue.done(&task);
            if let Some(wait) = wait {
                self.queue.add_after(task, wait);
            }
        }
    }

    /// When a task is due again; `None` for one that is about nothing any more.
    fn wait(&self, task: &Task, after: &Outcome) -> Option<Duration> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match after {
            Outcome::Gone => {
                failures.remove(task);
                None
            }
            Outcome::Settled(again) => {
                failures.remove(task);
                Some(again.unwrap_or(self.settings.resync).min(self.settings.resync))
            }
            Outcome::Conflict | Outcome::Refused | Outcome::Failed(_) | Outcome::Long => {
                let count = failures.entry(task.clone()).or_default();
                *count = count.saturating_add(1);
                Some(backoff(*count))
            }
        }
    }

    async fn turn(&self, task: &Task) -> Outcome {
        let mut learned = Learned::default();
        let mut refused: Vec<Step> = Vec::new();
        for _ in 0..LONGEST_TURN {
            let Some((subject, plan)) = self.decide(task, &learned) else { return Outcome::Gone };
            if plan.steps.is_empty() {
                return if refused.is_empty() { Outcome::Settled(plan.again_after) } else { Outcome::Refused };
            }
            for step in &plan.steps {
                if refused.contains(step) {
                    return Outcome::Refused;
                }
                tracing::debug!(?task, ?step, "step");
                match self.cluster.carry_out(&subject, step).await {
                    Ok(lessons) => lessons.into_iter().for_each(|lesson| learn(&mut learned, lesson)),
                    Err(Failure::Conflict) => return Outcome::Conflict,
                    Err(Failure::Terminating) => {
                        if learned.terminating {
                            return Outcome::Refused;
                        }
                        learned.terminating = true;
                        break;
                    }
                    Err(Failure::Refused(refusal)) => {
                        tracing::warn!(?task, reason = refusal.reason, says = refusal.message, "refused by the server");
                        learned.refusals.push(*refusal);
                        refused.push(step.clone());
                        break;
                    }
                    Err(Failure::Transient(message)) => {
                        tracing::warn!(?task, says = message, "no usable answer, trying again");
                        return Outcome::Failed(message);
                    }
                }
                Self::log(task, step);
                // Each of these changes what was decided from.
                if matches!(step, Step::WriteStatus { .. } | Step::WriteChildStatus { .. } | Step::SetFinalizers(_)) {
                    break;
                }
            }
        }
        Outcome::Long
    }

    fn decide(&self, task: &Task, learned: &Learned) -> Option<(Subject, Plan)> {
        let now = Timestamp::now();
        match task {
            Task::Rollout(namespace, name) => {
                let decoded = self.world.rollouts.get(namespace, name)?;
                let found = match &*decoded {
                    Decoded::Good(found) => found,
                    Decoded::Bad(error) => {
                        tracing::warn!(?task, error, "cannot be decoded; left as it is");
                        return None;
                    }
                };
                let snapshot = observe::rollout(&self.world, &self.settings, found, learned);
                let plan = rollout::decide(&snapshot, &self.settings.defaults, now);
                Some((Subject::Rollout(found.clone()), plan))
            }
            Task::Controller(namespace, name) => {
                let decoded = self.world.controllers.get(namespace, name)?;
                let found = decoded.good().filter(|c| !observe::is_child(c))?;
                let snapshot = observe::alone(&self.world, &self.settings, found, learned);
                Some((Subject::Controller(found.clone()), alone::decide(&snapshot, now)))
            }
        }
    }

    /// One line per decision that changed something.
    fn log(task: &Task, step: &Step) {
        let (kind, namespace, name) = match task {
            Task::Rollout(namespace, name) => ("NumaflowControllerRollout", namespace, name),
            Task::Controller(namespace, name) => ("NumaflowController", namespace, name),
        };
        match step {
            Step::WriteStatus { status, .. } => {
                let stage = status.upgrade.as_ref().map(|u| u.stage.as_str()).unwrap_or_default();
                tracing::info!(
                    kind,
                    namespace,
                    name,
                    phase = status.phase.as_str(),
                    stage,
                    says = status.message,
                    "status"
                );
            }
            Step::CreateChild { name: child, state, .. } => {
                tracing::info!(kind, namespace, name, child, %state, "child created");
            }
            Step::LabelChild { child, state } => {
                tracing::info!(kind, namespace, name, child = child.name, %state, "child relabelled");
            }
            Step::DeleteChild { child } => tracing::info!(kind, namespace, name, child = child.name, "child deleted"),
            Step::Apply { object, .. } => tracing::info!(kind, namespace, name, object = %object.id, "applied"),
            Step::Recreate { object, .. } => {
                tracing::info!(kind, namespace, name, object = %object.id, "taken away to be made anew");
            }
            Step::Prune { id, .. } => tracing::info!(kind, namespace, name, object = %id, "removed"),
            Step::Pin(pin) => tracing::info!(kind, namespace, name, revision = pin.name, "definition pinned"),
            Step::SetFinalizers(_)
            | Step::ReadPin { .. }
            | Step::Check(_)
            | Step::WriteChildStatus { .. }
            | Step::DeleteRevision { .. } => {}
        }
    }
}

fn learn(learned: &mut Learned, lesson: Lesson) {
    match lesson {
        Lesson::Checked(id, hash) => {
            learned.checked.insert((id, hash));
        }
        Lesson::Immutable(id) => {
            learned.immutable.insert(id);
        }
        Lesson::Applied(entry) => learned.applied.push(entry),
        Lesson::Pruned(id) => {
            learned.pruned.insert(id);
        }
        Lesson::AbsentPin(secret) => {
            learned.absent_pins.insert(secret);
        }
    }
}

/// The wait after so many failures in a row: doubling, with a spread that keeps many from coming back at once.
fn backoff(count: u32) -> Duration {
    let wait = BACKOFF.0.saturating_mul(1 << count.saturating_sub(1).min(16)).min(BACKOFF.1);
    let spread = f64::from(Timestamp::now().subsec_nanosecond().unsigned_abs() % 1000) / 5000.0;
    wait.mul_f64(0.9 + spread)
}

fn scopes(settings: &Settings) -> Vec<(String, Option<String>)> {
    if settings.namespaces.is_empty() {
        return vec![(CLUSTER.to_owned(), None)];
    }
    settings.namespaces.iter().map(|n| (n.clone(), Some(n.clone()))).collect()
}

fn definition_scopes(settings: &Settings) -> Vec<(String, Option<String>)> {
    let own = settings.operator_namespace.clone();
    if !settings.definitions_anywhere {
        return vec![(own.clone(), Some(own))];
    }
    let mut all = scopes(settings);
    if all.iter().all(|(_, namespace)| namespace.as_ref().is_some_and(|n| *n != own)) {
        all.push((own.clone(), Some(own)));
    }
    all
}

/// The permitted kinds as (group, kind).
fn group_kinds(settings: &Settings) -> impl Iterator<Item = GroupKind> {
    settings.permitted.iter().map(|text| {
        let (kind, group) = text.split_once('.').unwrap_or((text, ""));
        (group.to_owned(), kind.to_owned())
    })
}

/// Kinds whose objects are watched: those that definitions may hold and every cluster serves, and the ReplicaSets that a
/// recreated Deployment leaves behind. Secrets are never watched.
fn watched_kinds(settings: &Settings) -> Vec<GroupKind> {
    let mut all: Vec<GroupKind> =
        group_kinds(settings).filter(|(group, kind)| kinds::usual(group, kind).is_some() && kind != "Secret").collect();
    all.push(("apps".to_owned(), "ReplicaSet".to_owned()));
    all.sort();
    all.dedup();
    all
}

fn decode<K: Clone>(guarded: &DeserializeGuard<K>) -> Decoded<K> {
    match &guarded.0 {
        Ok(object) => Decoded::Good(Arc::new(object.clone())),
        Err(error) => Decoded::Bad(error.error.clone()),
    }
}

fn read_namespace(namespace: &Namespace) -> NamespaceState {
    let conditions = namespace.status.as_ref().and_then(|s| s.conditions.as_deref()).unwrap_or_default();
    let remaining = conditions
        .iter()
        .find(|c| c.type_ == "NamespaceFinalizersRemaining" && c.status == "True")
        .and_then(|c| c.message.clone());
    NamespaceState { terminating: namespace.metadata.deletion_timestamp.is_some(), remaining }
}
