//! Watches pods and does for their processes what these would do: reads what they read, takes and renews their leases.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Client, ResourceExt,
    api::PostParams,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};

use super::{
    configuration::{ConfigMaps, Configuration, configuration},
    controller::{Controllers, Leader},
    election::{Holder, Known, Step, Timings, holder, runs_out, step},
    pod::see,
    processes::{Lease as Key, Process, Processes, Start, State},
    view::Pace,
};

/// Longest time for a request. None is waited for by anything but its own lease or process.
const LIMIT: Duration = Duration::from_secs(10);

/// Longest time until everything is looked at again.
const IDLE: Duration = Duration::from_hours(1);

/// Plays the leader election of all pods in the namespaces where it is to be played, tells what becomes of each lease,
/// and lets whoever leads do the work of a controller at this pace. Never ends by itself. A request that fails is made again after the time between two renewals: a lease is not
/// worth more trouble, and whoever needs one will see that it is not held.
pub async fn run(
    client: Client,
    timings: Timings,
    pace: Pace,
    plays_in: impl Fn(&str) -> bool,
    mut tell: impl FnMut(&str),
) {
    let mut pods = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default()).default_backoff().boxed();
    let mut stage = Stage {
        timings,
        controllers: Controllers::new(client.clone(), pace),
        leaders: BTreeMap::new(),
        client,
        processes: Processes::new(timings.linger),
        leases: BTreeMap::new(),
        requests: FuturesUnordered::new(),
        listed: BTreeSet::new(),
    };
    loop {
        let wake = stage.act(Timestamp::now(), &plays_in, &mut tell);
        let sleep = wake.map_or(IDLE, |at| {
            // What is due already is not waited for.
            Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default().min(IDLE)
        });
        let something = async {
            tokio::select! {
                event = pods.next() => Some(Happened::Pod(Box::new(event?))),
                Some(answer) = stage.requests.next() => Some(Happened::Answer(answer)),
            }
        };
        match tokio::time::timeout(sleep, something).await {
            Ok(Some(Happened::Pod(event))) => {
                let mut next = Some(*event);
                // With all that have come meanwhile: where hundreds come at once, a look at all leases after each of them
                // would let leases run out.
                while let Some(event) = next {
                    match event {
                        Ok(event) => stage.pod(event, Timestamp::now(), &plays_in),
                        Err(error) => tell(&format!("pods cannot be watched, trying again: {error}")),
                    }
                    next = pods.next().now_or_never().flatten();
                }
            }
            Ok(Some(Happened::Answer(answer))) => {
                let mut next = Some(answer);
                while let Some(answer) = next {
                    stage.answered(answer, Timestamp::now(), &mut tell);
                    next = stage.requests.next().now_or_never().flatten();
                }
            }
            // A watch has no end.
            Ok(None) => return,
            Err(_) => {}
        }
    }
}

enum Happened {
    Pod(Box<watcher::Result<Event<Pod>>>),
    Answer(Answer),
}

/// What came of a request.
enum Answer {
    Start(Box<Start>, Result<Configuration, String>),
    Lease(Key, Option<Known>),
}

type Request = Pin<Box<dyn Future<Output = Answer>>>;

struct Stage {
    client: Client,
    timings: Timings,
    processes: Processes,
    leases: BTreeMap<Key, Slot>,
    leaders: BTreeMap<Key, Leader>,
    controllers: Controllers,
    requests: FuturesUnordered<Request>,
    /// Pods of a list that is still coming in.
    listed: BTreeSet<String>,
}

/// A lease for which there are processes.
struct Slot {
    known: Known,
    /// A request about it is under way: there is never more than one.
    busy: bool,
    /// After a failure.
    not_before: Timestamp,
    /// What was told about it last.
    told: String,
}

impl Default for Slot {
    fn default() -> Self {
        Self { known: Known::Nothing, busy: false, not_before: Timestamp::MIN, told: String::new() }
    }
}

impl Stage {
    /// Takes in what happened to a pod.
    fn pod(&mut self, event: Event<Pod>, now: Timestamp, plays_in: impl Fn(&str) -> bool) {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitDone => self.processes.only(&std::mem::take(&mut self.listed), now),
            Event::Delete(pod) => self.processes.gone(&pod.uid().unwrap_or_default(), now),
            Event::InitApply(pod) => {
                self.listed.insert(pod.uid().unwrap_or_default());
                self.seen(&pod, now, plays_in);
            }
            Event::Apply(pod) => self.seen(&pod, now, plays_in),
        }
    }

    fn seen(&mut self, pod: &Pod, now: Timestamp, plays_in: impl Fn(&str) -> bool) {
        match see(pod) {
            Some(seen) if plays_in(&seen.namespace) => self.processes.seen(seen, now),
            Some(_) => {}
            None => self.processes.dropped(&pod.uid().unwrap_or_default()),
        }
    }

    /// Makes the requests that are due, and says when the next ones are.
    fn act(
        &mut self,
        now: Timestamp,
        plays_in: impl Fn(&str) -> bool,
        mut tell: impl FnMut(&str),
    ) -> Option<Timestamp> {
        self.processes.prune(now, plays_in);
        for start in self.processes.starting(now) {
            self.requests.push(Box::pin(read(self.client.clone(), start)));
        }
        let mut wake = self.processes.next();
        let mut by_lease = self.processes.by_lease();
        let told = |key: &Key, words: &str| format!("{}/{}: {words}", key.0, key.1);
        // What nobody competes for any more is told of once, and forgotten.
        self.leases.retain(|key, slot| {
            let kept = by_lease.contains_key(key);
            if !kept && !slot.told.is_empty() {
                let Known::Is(lease, _) = &slot.known else { return false };
                tell(&told(key, &format!("left alone, runs out at {}", runs_out(lease, &self.timings))));
            }
            kept
        });
        let mut leaders = BTreeMap::new();
        let read_by = self.processes.read();
        while let Some((key, processes)) = by_lease.pop_first() {
            let slot = self.leases.entry(key.clone()).or_default();
            let leader = match holder(&slot.known, &processes, now) {
                Holder::Process(Process { identity, state: State::Running { .. }, .. }) => {
                    let read = read_by.get(identity).cloned();
                    read.map(|(configuration, image)| Leader { identity: identity.clone(), configuration, image })
                }
                // For as long as nothing is known it goes on, if it still runs.
                Holder::Unknown => self.leaders.remove(&key).filter(|old| read_by.contains_key(&old.identity)),
                _ => None,
            };
            leaders.extend(leader.map(|leader| (key.clone(), leader)));
            let words = words(&slot.known, &processes, now);
            if let Some(words) = words.filter(|words| *words != slot.told) {
                tell(&told(&key, &words));
                slot.told = words;
            }
            if slot.busy {
                continue;
            }
            if now < slot.not_before {
                wake = earlier(wake, Some(slot.not_before));
                continue;
            }
            match step(&slot.known, &processes, now, &self.timings) {
                Step::Wait(until) => wake = earlier(wake, until),
                next => {
                    slot.busy = true;
                    self.requests.push(Box::pin(carry_out(self.client.clone(), key, next)));
                }
            }
        }
        self.controllers.lead(&leaders);
        self.leaders = leaders;
        wake
    }

    /// Takes in an answer.
    fn answered(&mut self, answer: Answer, now: Timestamp, mut tell: impl FnMut(&str)) {
        let later = now + self.timings.renew;
        match answer {
            Answer::Start(start, Ok(configuration)) => self.processes.started(&start, &configuration, now),
            Answer::Start(start, Err(error)) => {
                tell(&format!("{}/{}: cannot start, trying again: {error}", start.pod.namespace, start.pod.name));
                self.processes.failed(&start, later);
            }
            Answer::Lease(key, known) => {
                // Nobody may care about it any more.
                let Some(slot) = self.leases.get_mut(&key) else { return };
                slot.busy = false;
                if known.is_none() {
                    slot.not_before = later;
                }
                slot.known = known.unwrap_or(Known::Nothing);
            }
        }
    }
}

fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// Who has the lease, for those who read along.
fn words(known: &Known, processes: &[Process], now: Timestamp) -> Option<String> {
    match (holder(known, processes, now), known) {
        (Holder::Process(Process { identity, state: State::Running { .. }, .. }), Known::Is(lease, _)) => {
            let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
            Some(format!("taken by {identity}, transitions {transitions}"))
        }
        (Holder::Process(Process { pod, state: State::Ending { until }, .. }), _) => {
            Some(format!("kept by the old process of {pod}, whose pod is gone, until {until:.3}"))
        }
        (Holder::Other(holder), _) => Some(format!("lost: {holder} does not run here any more, or never did")),
        _ => None,
    }
}

/// Reads what a process reads when it starts.
async fn read(client: Client, start: Start) -> Answer {
    let api: Api<ConfigMap> = Api::namespaced(client, &start.pod.namespace);
    let found = async {
        let mut maps = ConfigMaps::new();
        for (name, needed) in &start.pod.config_maps {
            match limited(api.get_opt(name)).await? {
                Some(map) => {
                    maps.insert(name.clone(), map.data.unwrap_or_default());
                }
                None if *needed => return Err(format!("ConfigMap {name} is not there")),
                None => {}
            }
        }
        Ok(configuration(&start.pod, &maps))
    };
    let found = found.await;
    Answer::Start(Box::new(start), found)
}

/// Carries out a step, and says what is known of the lease then; nothing if it was not to be.
async fn carry_out(client: Client, key: Key, step: Step) -> Answer {
    let api: Api<Lease> = Api::namespaced(client, &key.0);
    let is = |lease: Lease| Known::Is(Box::new(lease), Timestamp::now());
    let known = match step {
        Step::Wait(_) => None,
        Step::Read => limited(api.get_opt(&key.1)).await.ok().map(|lease| lease.map_or(Known::Absent, is)),
        Step::Write(mut lease) if lease.metadata.resource_version.is_none() => {
            lease.metadata.name = Some(key.1.clone());
            limited(api.create(&PostParams::default(), &lease)).await.ok().map(is)
        }
        Step::Write(lease) => {
            let answer = tokio::time::timeout(LIMIT, api.replace(&key.1, &PostParams::default(), &lease)).await;
            match answer {
                Ok(Ok(lease)) => Some(is(lease)),
                // Somebody has deleted it: it is made again at once.
                Ok(Err(kube::Error::Api(status))) if status.code == 404 => Some(Known::Absent),
                _ => None,
            }
        }
    };
    Answer::Lease(key, known)
}

async fn limited<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(LIMIT, request).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {LIMIT:?}")),
    }
}
