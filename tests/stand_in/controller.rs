//! Runs the controllers: watches what they see, and carries out what the passes come to. One controller runs for each
//! process that leads, and ends with its lead, wherever it is then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use jiff::Timestamp;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::{Value, json};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinHandle,
    time::Instant,
};

use super::{
    cache::{Cache, Change, waits},
    configuration::Configuration,
    kinds::Kind,
    mono_vertex,
    pipeline::{self, Memory},
    processes::Lease as Key,
    queue::Queue,
    service, vertices,
    view::{After, Pace, Pass, Step, asked},
};

/// Longest time for a request.
const LIMIT: Duration = Duration::from_secs(10);

/// Time until a watch that failed is begun again: the kind may not be there yet, or not any more.
const AGAIN: Duration = Duration::from_millis(500);

/// Who leads: a process, and what it has read when it started.
#[derive(Clone, Debug, PartialEq)]
pub struct Leader {
    /// What it writes into the lease.
    pub identity: String,
    /// What it has read.
    pub configuration: Arc<Configuration>,
    /// Its image.
    pub image: String,
}

/// The controllers that run.
pub struct Controllers {
    hub: Arc<Hub>,
    running: BTreeMap<Key, (String, Vec<Task>)>,
    /// They end with the controllers.
    _watches: [Task; Kind::ALL.len()],
}

/// The queues of those who work, by namespace and kind.
type Queues = BTreeMap<(String, Kind), Vec<Arc<Work>>>;

/// A task that ends when nobody wants it any more.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What all controllers share.
struct Hub {
    client: Client,
    pace: Pace,
    cache: Mutex<Cache>,
    queues: Mutex<Queues>,
}

/// What a worker has to do.
#[derive(Default)]
struct Work {
    queue: Mutex<Queue>,
    wake: Notify,
}

impl Controllers {
    /// None yet; watches are begun.
    pub fn new(client: Client, pace: Pace) -> Self {
        let hub = Arc::new(Hub { client, pace, cache: Mutex::default(), queues: Mutex::default() });
        let watch = |kind| Task(tokio::spawn(watch(hub.clone(), kind)));
        Self { _watches: Kind::ALL.map(watch), hub, running: BTreeMap::new() }
    }

    /// Lets those work who lead now, and nobody else.
    pub fn lead(&mut self, leaders: &BTreeMap<Key, Leader>) {
        self.running.retain(|key, (identity, _)| leaders.get(key).is_some_and(|l| l.identity == *identity));
        for (key, leader) in leaders {
            if self.running.contains_key(key) {
                continue;
            }
            let workers = Kind::LOOKED_AT.map(|kind| {
                let worker = Worker {
                    hub: self.hub.clone(),
                    namespace: key.0.clone(),
                    kind,
                    configuration: leader.configuration.clone(),
                    image: leader.image.clone(),
                    work: Arc::default(),
                    memory: BTreeMap::new(),
                };
                Task(tokio::spawn(worker.run()))
            });
            self.running.insert(key.clone(), (leader.identity.clone(), workers.into()));
        }
    }
}

impl Hub {
    /// Takes in a change that was seen.
    fn take_in(&self, kind: Kind, change: Change) {
        let reasons = lock(&self.cache).take_in(kind, change);
        let queues = lock(&self.queues);
        for (namespace, (kind, name)) in reasons {
            for work in queues.get(&(namespace, kind)).into_iter().flatten() {
                work.add(&name);
            }
        }
    }

    fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
    }
}

impl Work {
    fn add(&self, name: &str) {
        lock(&self.queue).add(name);
        self.wake.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Watches a kind everywhere, for as long as somebody wants it.
async fn watch(hub: Arc<Hub>, kind: Kind) {
    let (send, mut receive) = mpsc::unbounded_channel::<(Instant, Change)>();
    let late = {
        let hub = hub.clone();
        Task(tokio::spawn(async move {
            while let Some((at, change)) = receive.recv().await {
                tokio::time::sleep_until(at + hub.pace.lag).await;
                if let Change::Is(pod) = &change
                    && let Some(until) = waits(pod)
                {
                    tokio::spawn(let_go(hub.clone(), pod.clone(), until));
                }
                hub.take_in(kind, change);
            }
        }))
    };
    let label_selector = kind.selector().map(str::to_owned);
    let config = watcher::Config { label_selector, ..watcher::Config::default() };
    let api: Api<DynamicObject> = Api::all_with(hub.client.clone(), &kind.resource());
    let mut events = watcher(api, config).boxed();
    let mut listed = BTreeSet::new();
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed.insert((object.namespace().unwrap_or_default(), object.name_any()));
                Change::Is(object)
            }
            Ok(Event::InitDone) => Change::Only(std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => Change::Is(object),
            Ok(Event::Delete(object)) => Change::Gone(object),
            Err(error) => {
                tokio::time::sleep(AGAIN).await;
                if !absent(&error) {
                    continue;
                }
                Change::Only(BTreeSet::new())
            }
        };
        if send.send((Instant::now(), change)).is_err() {
            break;
        }
    }
    drop(late);
}

/// Whether the kind is not served.
fn absent(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Lets a pod go that was to take its time.
async fn let_go(hub: Arc<Hub>, pod: DynamicObject, until: Timestamp) {
    tokio::time::sleep(until_then(until)).await;
    let api = hub.api(Kind::Pod, &pod.namespace().unwrap_or_default());
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    // It may have gone in another way; and whoever is asked twice says no.
    let _ = tokio::time::timeout(LIMIT, api.patch(&pod.name_any(), &PatchParams::default(), &patch)).await;
}

fn until_then(at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default()
}

/// One worker of a controller: it looks at the objects of one kind, one after the other.
struct Worker {
    hub: Arc<Hub>,
    namespace: String,
    kind: Kind,
    configuration: Arc<Configuration>,
    image: String,
    work: Arc<Work>,
    memory: BTreeMap<String, Memory>,
}

impl Worker {
    async fn run(mut self) {
        let key = (self.namespace.clone(), self.kind);
        let _listed = Listed { hub: self.hub.clone(), key: key.clone(), work: self.work.clone() };
        lock(&self.hub.queues).entry(key).or_default().push(self.work.clone());
        for object in lock(&self.hub.cache).all(self.kind, &self.namespace) {
            self.work.add(&object.name_any());
        }
        loop {
            let (name, next) = {
                let mut queue = lock(&self.work.queue);
                (queue.take(Timestamp::now()), queue.next())
            };
            let Some(name) = name else {
                let sleep = next.map_or(Duration::from_hours(1), until_then);
                // Whichever comes first: both are a reason to look.
                let _ = tokio::time::timeout(sleep, self.work.wake.notified()).await;
                continue;
            };
            let after = self.look_at(&name).await;
            let pace = &self.hub.pace;
            lock(&self.work.queue).done(after, Timestamp::now(), pace.retry, pace.retry_limit);
        }
    }

    /// One pass over an object, as it is known to be.
    async fn look_at(&mut self, name: &str) -> After {
        let knobs = lock(&self.hub.cache).one(self.kind, &self.namespace, name).map(|object| asked(&object));
        let knobs = knobs.unwrap_or_default();
        if !knobs.pass_delay.is_zero() {
            tokio::time::sleep(knobs.pass_delay).await;
        }
        let Some(pass) = self.pass(name) else { return After::Rest };
        // What it was when it was changed last in this pass.
        let mut read_back = None;
        for step in pass.steps {
            match self.carry_out(step, read_back.as_ref()).await {
                Ok(Some(object)) if object.name_any() == name => read_back = Some(object),
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!("stand-in: {}/{name}: {error}", self.namespace);
                    return After::Retry;
                }
            }
        }
        // Requests that failed are another matter: those are tried again.
        if knobs.no_retries && pass.after == After::Retry { After::Rest } else { pass.after }
    }

    /// What a pass over an object comes to; nothing if it is not there.
    fn pass(&mut self, name: &str) -> Option<Pass> {
        let cache = lock(&self.hub.cache);
        let (namespace, instance, now) = (&self.namespace, &self.configuration.instance, Timestamp::now());
        let Some(object) = cache.one(self.kind, namespace, name) else {
            let gone = self.kind == Kind::MonoVertex && cache.knows_all(self.kind);
            return gone.then(|| mono_vertex::left(&cache.of_mono_vertex(namespace, name)));
        };
        Some(match self.kind {
            Kind::Pipeline => {
                // What was remembered of another one of that name is not about this one.
                let uid = object.uid().unwrap_or_default();
                let memory = self.memory.remove(&uid).unwrap_or_default();
                let service = cache.one(Kind::Service, namespace, pipeline::service_name(&object));
                let (pass, memory) = pipeline::pass(&pipeline::Look {
                    pipeline: &object,
                    service: service.as_deref(),
                    vertices: &cache.of_pipeline(Kind::Vertex, namespace, name),
                    pods: &cache.of_pipeline(Kind::Pod, namespace, name),
                    instance,
                    memory: &memory,
                    now,
                    pace: &self.hub.pace,
                });
                self.memory.insert(uid, memory);
                pass
            }
            Kind::Vertex => {
                let pipeline = vertices::pipeline_of(&object);
                let mut pods = cache.of_pipeline(Kind::Pod, namespace, pipeline);
                pods.retain(|pod| vertices::name_of(pod) == vertices::name_of(&object));
                let knobs = cache.one(Kind::Pipeline, namespace, pipeline).map(|p| asked(&p)).unwrap_or_default();
                vertices::pass(&vertices::Look {
                    vertex: &object,
                    pods: &pods,
                    knobs: &knobs,
                    instance,
                    image: &self.image,
                    now,
                })
            }
            Kind::MonoVertex => {
                let uid = object.uid().unwrap_or_default();
                let memory = self.memory.remove(&uid).unwrap_or_default();
                let (pass, memory) = mono_vertex::pass(&mono_vertex::Look {
                    mono_vertex: &object,
                    pods: &cache.of_mono_vertex(namespace, name),
                    instance,
                    image: &self.image,
                    memory: &memory,
                    now,
                    pace: &self.hub.pace,
                });
                self.memory.insert(uid, memory);
                pass
            }
            _ => {
                let uses = |p: &&super::view::Seen| pipeline::service_name(p) == name;
                service::pass(&service::Look {
                    service: &object,
                    set: cache.one(Kind::StatefulSet, namespace, &service::set_name(name)).as_deref(),
                    pipelines: cache.all(Kind::Pipeline, namespace).filter(uses).count(),
                    images: &self.configuration.nats,
                    instance,
                    now,
                })
            }
        })
    }

    /// Carries out a step; what became of the object if it was changed.
    async fn carry_out(&self, step: Step, read_back: Option<&DynamicObject>) -> Result<Option<DynamicObject>, String> {
        let api = |kind| self.hub.api(kind, &self.namespace);
        let written = PatchParams { field_manager: Some("numaflow".to_owned()), ..PatchParams::default() };
        let applied = PatchParams::apply("numaflow").force();
        let identified = |kind: Kind, name: &str, mut body: Value| {
            let resource = kind.resource();
            body["apiVersion"] = resource.api_version.into();
            body["kind"] = resource.kind.into();
            body["metadata"]["name"] = name.into();
            body
        };
        if let Step::Wait(time) = step {
            tokio::time::sleep(time).await;
            return Ok(None);
        }
        let request = async {
            match step {
                Step::Wait(_) => Ok(None),
                Step::Create(kind, body) => {
                    let object = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
                    api(kind).create(&PostParams::default(), &object).await.map(|_| None)
                }
                Step::Merge(kind, name, body) => api(kind).patch(&name, &written, &Patch::Merge(body)).await.map(Some),
                Step::Json(kind, name, body) => {
                    let patch = serde_json::from_value(body).map_err(kube::Error::SerdeError)?;
                    api(kind).patch(&name, &written, &Patch::<()>::Json(patch)).await.map(|_| None)
                }
                Step::Apply(kind, name, body) => {
                    api(kind).patch(&name, &applied, &Patch::Apply(body)).await.map(|_| None)
                }
                Step::StatusAgain(kind, name, fields) => {
                    let mut status = read_back.map(super::view::status).unwrap_or_default();
                    status.extend(fields);
                    status.retain(|_, value| !value.is_null());
                    let body = identified(kind, &name, json!({"status": status}));
                    api(kind).patch_status(&name, &applied, &Patch::Apply(body)).await.map(|_| None)
                }
                Step::Status(kind, name, status) => {
                    let body = identified(kind, &name, json!({"status": status}));
                    api(kind).patch_status(&name, &applied, &Patch::Apply(body)).await.map(|_| None)
                }
                Step::Delete(kind, name) => api(kind).delete(&name, &DeleteParams::background()).await.map(|_| None),
            }
        };
        match tokio::time::timeout(LIMIT, request).await {
            Ok(Ok(changed)) => Ok(changed),
            // Gone meanwhile, or there already: what was seen was old.
            Ok(Err(kube::Error::Api(status))) if status.code == 404 || status.reason == "AlreadyExists" => Ok(None),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {LIMIT:?}")),
        }
    }
}

/// A queue that gets to know what happens, until its worker ends.
struct Listed {
    hub: Arc<Hub>,
    key: (String, Kind),
    work: Arc<Work>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        if let Some(all) = lock(&self.hub.queues).get_mut(&self.key) {
            all.retain(|work| !Arc::ptr_eq(work, &self.work));
        }
    }
}
