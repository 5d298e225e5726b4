//! What became of the Pipelines of a namespace, state by state, and whether anybody flipped or changed one in a way that loses
//! data or wedges it. What follows on what between objects is looked at in `order`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::Pod};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::{
    happened::{Happened, Kind, What},
    numaflow, order, services,
    team::Team,
    wait::{AGAIN, eventually},
};

const PAUSE_TIMESTAMP: &str = "numaflow.numaproj.io/pause-timestamp";

/// A Pipeline as it was at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// When it was seen.
    pub at: Timestamp,
    /// Its resourceVersion.
    pub version: u64,
    /// Which object of this name.
    pub uid: String,
    /// Of its spec.
    pub generation: i64,
    /// The generation that the controller has seen.
    pub observed: Option<i64>,
    /// `spec.lifecycle.desiredPhase`; empty if it is not there.
    pub desired: String,
    /// `spec.lifecycle.pauseGracePeriodSeconds`.
    pub grace: Option<i64>,
    /// `status.phase`.
    pub phase: String,
    /// The annotation in which the controller notes a pause.
    pub pause_timestamp: Option<String>,
    /// `status.drainedOnPause`.
    pub drained: bool,
    /// What tells specs apart, lifecycle aside.
    pub spec: String,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl State {
    /// What an object says.
    pub fn of(pipeline: &DynamicObject) -> Self {
        let text = |place: &str| pipeline.data.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = |place: &str| pipeline.data.pointer(place).and_then(Value::as_i64);
        let mut spec = pipeline.data["spec"].clone();
        spec.as_object_mut().map(|fields| fields.remove("lifecycle"));
        Self {
            at: Timestamp::now(),
            version: pipeline.resource_version().and_then(|v| v.parse().ok()).unwrap_or_default(),
            uid: pipeline.uid().unwrap_or_default(),
            generation: pipeline.metadata.generation.unwrap_or_default(),
            observed: number("/status/observedGeneration"),
            desired: text("/spec/lifecycle/desiredPhase"),
            grace: number("/spec/lifecycle/pauseGracePeriodSeconds"),
            phase: text("/status/phase"),
            pause_timestamp: pipeline.annotations().get(PAUSE_TIMESTAMP).cloned(),
            drained: pipeline.data["status"]["drainedOnPause"] == true,
            spec: numaplane::api::short_hash(spec.to_string().as_bytes()),
            deleting: pipeline.metadata.deletion_timestamp.is_some(),
        }
    }

    /// Whether it is to be paused: everything else means that it is to run.
    pub fn wants_pause(&self) -> bool {
        self.desired == "Paused"
    }

    /// Whether the controller has seen the spec and the pipeline is where it is to be.
    pub fn settled(&self) -> bool {
        let there = if self.wants_pause() { "Paused" } else { "Running" };
        self.current() && self.phase == there && self.pause_timestamp.is_some() == self.wants_pause()
    }

    /// Whether the wanted phase may be changed once more without a wedge.
    pub fn safe(&self) -> bool {
        let pausing = self.phase == "Pausing" && self.pause_timestamp.is_some();
        self.settled() || (self.current() && (pausing || self.phase == "Failed"))
    }

    /// Whether it says that it is where it is to be, and is not: out of that there is no way but another flip.
    fn wedged(&self) -> bool {
        let there = if self.wants_pause() { "Paused" } else { "Running" };
        self.current() && self.phase == there && self.pause_timestamp.is_some() != self.wants_pause()
    }

    fn current(&self) -> bool {
        self.observed == Some(self.generation)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let observed = self.observed.map_or("-".to_owned(), |n| n.to_string());
        write!(f, "{}/{observed} wants {:?}", self.generation, self.desired)?;
        if let Some(grace) = self.grace {
            write!(f, " (grace {grace} s)")?;
        }
        write!(f, ", is {:?}, spec {}", self.phase, self.spec)?;
        if let Some(time) = &self.pause_timestamp {
            write!(f, ", paused at {time}")?;
        }
        if self.drained {
            f.write_str(", drained")?;
        }
        if self.deleting {
            f.write_str(", being deleted")?;
        }
        Ok(())
    }
}

/// A change of the wanted phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flip {
    /// To Paused, or away from it.
    pub to_paused: bool,
    /// Changes of the spec from this one on, itself included, until the next flip.
    pub edits: usize,
    /// All changes from this one on, the controller's included, until the next flip.
    pub writes: usize,
    /// How long it took until it was settled, if it ever was.
    pub settled_after: Option<Duration>,
}

#[derive(Default)]
struct Seen {
    pipelines: BTreeMap<String, Vec<State>>,
    /// Everything, in the order in which it came in.
    all: Vec<Happened>,
    /// What there is, as far as is known: the last that was heard of each object.
    there: BTreeMap<(Kind, String), Happened>,
    listed: BTreeMap<Kind, BTreeSet<String>>,
    lists: usize,
}

/// Sees everything that becomes of the Pipelines in a namespace, from a task that ends with it.
pub struct Recorder {
    seen: Arc<Mutex<Seen>>,
    team: Team,
    lossy: AtomicBool,
    by_hand: Mutex<Vec<String>>,
    tasks: [JoinHandle<()>; 8],
}

/// The kinds that are watched, and which objects of them.
fn watched() -> [(Kind, ApiResource, Option<&'static str>); 8] {
    let ours = |kind: &str, plural: &str| {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("numaplane.numaproj.io", "v1alpha1", kind), plural)
    };
    [
        (Kind::Pipeline, numaflow::resource("Pipeline"), None),
        (Kind::Vertex, numaflow::resource("Vertex"), None),
        (
            Kind::Pod,
            ApiResource::erase::<Pod>(&()),
            Some("numaflow.numaproj.io/pipeline-name,app.kubernetes.io/component=vertex"),
        ),
        (Kind::Service, numaflow::resource("InterStepBufferService"), None),
        (Kind::Set, ApiResource::erase::<StatefulSet>(&()), Some("app.kubernetes.io/component=isbsvc")),
        (Kind::ControllerRollout, ours("NumaflowControllerRollout", "numaflowcontrollerrollouts"), None),
        (Kind::IsbRollout, ours("ISBServiceRollout", "isbservicerollouts"), None),
        (Kind::PipelineRollout, ours("PipelineRollout", "pipelinerollouts"), None),
    ]
}

impl Recorder {
    /// Begins; returns once it has seen what there is. The kinds have to be served.
    pub async fn watch(team: &Team) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let tasks = watched().map(|(kind, resource, selector)| {
            let api: Api<DynamicObject> = Api::namespaced_with(team.client.clone(), &team.namespace, &resource);
            let seen = seen.clone();
            tokio::spawn(async move {
                let label_selector = selector.map(str::to_owned);
                let mut events = watcher(api, watcher::Config { label_selector, ..watcher::Config::default() }).boxed();
                while let Some(event) = events.next().await {
                    let Ok(event) = event else {
                        tokio::time::sleep(AGAIN).await;
                        continue;
                    };
                    lock(&seen).take_in(kind, event);
                }
            })
        });
        let this = Self { seen, team: team.clone(), lossy: AtomicBool::new(false), by_hand: Mutex::default(), tasks };
        eventually("pipelines and all around them are recorded", async || {
            let lists = lock(&this.seen).lists;
            if lists >= this.tasks.len() { Ok(()) } else { Err(format!("{lists} kinds are listed")) }
        })
        .await;
        this
    }

    /// From the beginning to the end of this story, changes may go in without a pause: its user has said so.
    pub fn changes_may_lose_data(&self) {
        self.lossy.store(true, Ordering::Relaxed);
    }

    /// That a pipeline is deleted by somebody, whatever becomes of its data.
    pub fn deleted_by_hand(&self, pipeline: &str) {
        lock(&self.by_hand).push(pipeline.to_owned());
    }

    /// Waits until everything that has happened by now has come in.
    pub async fn caught_up(&self) {
        for (kind, resource, selector) in watched() {
            let api: Api<DynamicObject> =
                Api::namespaced_with(self.team.client.clone(), &self.team.namespace, &resource);
            let parameters = ListParams { label_selector: selector.map(str::to_owned), ..ListParams::default() };
            eventually(&format!("the watch of {kind:?} has caught up"), async || {
                let list = match api.list(&parameters).await {
                    Ok(list) => list.items,
                    Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
                    Err(other) => return Err(other.to_string()),
                };
                lock(&self.seen).lacks(kind, &list)
            })
            .await;
        }
    }

    /// All states of a pipeline so far, in their order.
    pub fn states(&self, pipeline: &str) -> Vec<State> {
        lock(&self.seen).pipelines.get(pipeline).cloned().unwrap_or_default()
    }

    /// The names of all pipelines that were seen.
    pub fn names(&self) -> Vec<String> {
        lock(&self.seen).pipelines.keys().cloned().collect()
    }

    /// The flips of a pipeline so far, in their order.
    pub fn flips(&self, pipeline: &str) -> Vec<Flip> {
        flips(&self.states(pipeline))
    }

    /// Everything that became of a pipeline, to be printed.
    pub fn history(&self, pipeline: &str) -> String {
        let seen = lock(&self.seen);
        let states = seen.pipelines.get(pipeline).map_or(&[][..], Vec::as_slice);
        let mut lines: Vec<(u64, Timestamp, String)> =
            states.iter().map(|s| (s.version, s.at, s.to_string())).collect();
        let (mut told, mut pods) = (BTreeMap::new(), BTreeMap::new());
        for happened in &seen.all {
            let (name, uid) = (&happened.name, &happened.uid);
            let line = match &happened.what {
                What::Vertex(vertex) if vertex.pipeline == pipeline => {
                    let news =
                        told.insert(name, (&vertex.desired, &vertex.work)) != Some((&vertex.desired, &vertex.work));
                    news.then(|| format!("    vertex {name} is to be {}, spec {}", vertex.desired, vertex.work))
                }
                What::Pod(pod) if pod.pipeline == pipeline => {
                    pods.insert(uid, name).is_none().then(|| format!("    pod {name} is there"))
                }
                What::Gone(Kind::Pod) if pods.contains_key(uid) => Some(format!("    pod {name} is gone")),
                What::Gone(Kind::Vertex) if told.contains_key(name) => Some(format!("    vertex {name} is gone")),
                _ => None,
            };
            lines.extend(line.map(|line| (happened.at, happened.seen, line)));
        }
        lines.sort_by_key(|(version, ..)| *version);
        let begin = lines.first().map_or(Timestamp::UNIX_EPOCH, |(_, at, _)| *at);
        let mut text = format!("Pipeline/{pipeline}, {} states, flips {:?}", states.len(), flips(states));
        for (version, at, line) in lines {
            let _ = write!(text, "\n{:8.3} {version} {line}", at.duration_since(begin).as_secs_f64());
        }
        text
    }

    /// What was done that must not be done, over the whole time.
    pub async fn broken(&self) -> Vec<String> {
        self.broken_but(false).await
    }

    async fn broken_but(&self, cures: bool) -> Vec<String> {
        self.caught_up().await;
        let seen = lock(&self.seen);
        let mut broken: Vec<String> =
            seen.pipelines.iter().flat_map(|(name, states)| early_flips(name, states, cures)).collect();
        let mut all: Vec<&Happened> = seen.all.iter().collect();
        all.sort_by_key(|happened| happened.at);
        broken.extend(order::all_broken(&all, self.lossy.load(Ordering::Relaxed), &lock(&self.by_hand)));
        broken
    }

    /// Pipelines that were resumed while somebody asked for their pause.
    pub async fn resumed_while_asked(&self) -> Vec<String> {
        self.caught_up().await;
        let seen = lock(&self.seen);
        let mut all: Vec<&Happened> = seen.all.iter().collect();
        all.sort_by_key(|happened| happened.at);
        services::resumed_while_asked(&all)
    }

    /// As [`Self::rules`], but a flip out of a wedge is none that is too early.
    pub async fn rules_but_cures(&self) {
        self.panic_if(self.broken_but(true).await);
    }

    /// Panics if, at any time so far, one of these was so:
    /// - a wanted phase was changed again before the controller had come to terms with the last change;
    /// - a pipeline or a vertex of it was changed between the wish to pause and the pause, which is settled once the pipeline
    ///   says so, all vertices are told to pause and no pod is left;
    /// - a change that can lose data went in without such a pause, and nothing on record says why;
    /// - a controller's rollout asked for a pause for a version that had not proved itself, or that of an ISB service for none
    ///   that was under way;
    /// - an ISB service of a rollout was changed while a pipeline on it was not paused, and that is not on record; or a pipeline
    ///   was resumed before the change was carried out in every replica;
    /// - a pipeline went to another ISB service in place, or its ISB service was deleted before it.
    pub async fn rules(&self) {
        self.panic_if(self.broken().await);
    }

    fn panic_if(&self, broken: Vec<String>) {
        if broken.is_empty() {
            return;
        }
        let histories = self.names().iter().map(|name| self.history(name)).collect::<Vec<_>>().join("\n");
        panic!("{}\n{histories}", broken.join("\n"));
    }
}

impl Seen {
    fn take_in(&mut self, kind: Kind, event: Event<DynamicObject>) {
        match event {
            Event::Init => {
                self.listed.insert(kind, BTreeSet::new());
            }
            Event::InitApply(object) => {
                self.listed.entry(kind).or_default().insert(object.uid().unwrap_or_default());
                self.is(kind, &object);
            }
            Event::InitDone => {
                self.lists += 1;
                let listed = self.listed.remove(&kind).unwrap_or_default();
                let gone = self.there.values().filter(|h| h.kind() == kind && !listed.contains(&h.uid));
                for last in gone.cloned().collect::<Vec<_>>() {
                    self.push(Happened { what: What::Gone(kind), ..last });
                }
            }
            Event::Apply(object) => self.is(kind, &object),
            Event::Delete(object) => self.push(Happened::gone(kind, &object)),
        }
    }

    fn is(&mut self, kind: Kind, object: &DynamicObject) {
        let happened = Happened::of(kind, object);
        if let What::Pipeline(_, state) = &happened.what {
            let states = self.pipelines.entry(object.name_any()).or_default();
            // Conditions and times change with every pass; a list says what was known already.
            if states
                .last()
                .is_none_or(|last| State { at: state.at, version: state.version, ..last.clone() } != **state)
            {
                states.push((**state).clone());
            }
        }
        self.push(happened);
    }

    fn push(&mut self, happened: Happened) {
        let key = (happened.kind(), happened.uid.clone());
        if matches!(happened.what, What::Gone(_)) {
            self.there.remove(&key);
        } else if self.there.insert(key, happened.clone()).is_some_and(|last| last.what == happened.what) {
            // News of something else.
            return;
        }
        self.all.push(happened);
    }

    /// What of a list has not come in yet.
    fn lacks(&self, kind: Kind, list: &[DynamicObject]) -> Result<(), String> {
        let mut left: BTreeSet<&str> =
            self.there.values().filter(|h| h.kind() == kind).map(|h| h.uid.as_str()).collect();
        for object in list {
            let (uid, version) = (object.uid().unwrap_or_default(), object.resource_version().unwrap_or_default());
            let known = self.there.get(&(kind, uid.clone())).map_or(0, |h| h.at);
            if known < version.parse().unwrap_or_default() {
                return Err(format!("{} is known as of {known}, and is at {version}", object.name_any()));
            }
            left.remove(uid.as_str());
        }
        if left.is_empty() { Ok(()) } else { Err(format!("{} are gone", left.len())) }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        if std::thread::panicking() {
            self.names().iter().for_each(|name| println!("{}", self.history(name)));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Pairs of states that follow each other, of the same object.
fn steps(states: &[State]) -> impl Iterator<Item = (&State, &State)> {
    states.iter().zip(states.iter().skip(1)).filter(|(before, after)| before.uid == after.uid)
}

fn flips(states: &[State]) -> Vec<Flip> {
    let mut all: Vec<(Flip, Timestamp)> = Vec::new();
    for (before, after) in steps(states) {
        let flipped = before.wants_pause() != after.wants_pause();
        if flipped {
            let flip = Flip { to_paused: after.wants_pause(), edits: 0, writes: 0, settled_after: None };
            all.push((flip, after.at));
        }
        if let Some((flip, at)) = all.last_mut() {
            flip.writes += 1;
            flip.edits += usize::from(before.generation != after.generation);
            if flip.settled_after.is_none() && after.settled() {
                flip.settled_after = after.at.duration_since(*at).try_into().ok();
            }
        }
    }
    all.into_iter().map(|(flip, _)| flip).collect()
}

fn early_flips(name: &str, states: &[State], cures: bool) -> Vec<String> {
    let mut broken = Vec::new();
    // Since the last flip: whether the controller has come to terms with it.
    let mut unsafe_flip: Option<&State> = None;
    let mut uid = "";
    for (before, after) in steps(states) {
        if after.uid != uid {
            (unsafe_flip, uid) = (None, &after.uid);
        }
        if before.wants_pause() != after.wants_pause() {
            if let Some(first) = unsafe_flip.filter(|_| !(cures && before.wedged())) {
                broken.push(format!("Pipeline/{name}: flip at {after} while the one before was not safe: {first}"));
            }
            unsafe_flip = Some(after);
        }
        if after.safe() {
            unsafe_flip = None;
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(text: &str) -> State {
        // generation/observed desired phase [pts] spec
        let mut words = text.split(' ');
        let (generation, observed) = words.next().unwrap().split_once('/').unwrap();
        let mut next = || words.next().unwrap().to_owned();
        State {
            at: Timestamp::UNIX_EPOCH,
            version: 0,
            uid: "1".to_owned(),
            generation: generation.parse().unwrap(),
            observed: observed.parse().ok(),
            desired: next(),
            grace: None,
            phase: next(),
            pause_timestamp: (next() == "pts").then(|| "then".to_owned()),
            drained: false,
            spec: next(),
            deleting: false,
        }
    }

    fn count(texts: &[&str]) -> usize {
        early_flips("p", &texts.iter().map(|text| state(text)).collect::<Vec<_>>(), false).len()
    }

    #[test]
    fn flips_that_wait_for_the_last_one_break_no_rule() {
        let states = [
            "1/1 Running Running - a",
            "2/1 Paused Running - a",
            "2/1 Paused Running pts a",
            "2/2 Paused Pausing pts a",
            "2/2 Paused Paused pts a",
            "3/2 Paused Paused pts b",
            "3/3 Paused Paused pts b",
            "4/3 Running Paused pts b",
            "4/3 Running Running - b",
            "4/4 Running Running - b",
            "5/4 Paused Running - b",
        ];
        assert_eq!(count(&states), 0);
        let flips = flips(&states.map(state));
        assert_eq!(flips.iter().map(|f| (f.edits, f.writes)).collect::<Vec<_>>(), [(2, 6), (1, 3), (1, 1)]);
        assert!(flips[1].settled_after.is_some() && flips[2].settled_after.is_none());
    }

    #[test]
    fn a_flip_before_the_last_one_was_safe_breaks_a_rule() {
        let begin = ["1/1 Running Running - a", "2/1 Paused Running - a"];
        let then = |state| [&begin[..], &[state, "3/2 Running Running - a"]].concat();
        assert_eq!(count(&then("2/1 Paused Running pts a")), 1);
        assert_eq!(count(&then("2/1 Paused Failed - a")), 1);
        // The wedge: paused as it says, and nobody has noted when.
        assert_eq!(count(&then("2/2 Paused Paused - a")), 1);
        for safe in ["2/2 Paused Paused pts a", "2/2 Paused Pausing pts a", "2/2 Paused Failed - a"] {
            assert_eq!(count(&then(safe)), 0, "{safe}");
        }
        let wedged =
            [&begin[..], &["2/2 Paused Paused pts a", "3/3 Running Running pts a", "4/3 Paused Running pts a"]];
        assert_eq!(count(&wedged.concat()), 1);
        // Out of a wedge there is no other way, and a cure excuses nothing else.
        let cured =
            |texts: &[&str]| early_flips("p", &texts.iter().map(|text| state(text)).collect::<Vec<_>>(), true).len();
        assert_eq!(cured(&wedged.concat()), 0);
        assert_eq!(cured(&then("2/2 Paused Paused - a")), 0);
        assert_eq!(cured(&then("2/1 Paused Running pts a")), 1);
    }
}
