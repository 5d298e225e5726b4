//! What the cluster looks like from outside while a phase runs: rollouts as their users see them, Deployments as their
//! pods' users do.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Api, Client, ResourceExt,
    api::DynamicObject,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::{
    Result, sample, say,
    shared::{definition::image, kinds::resource},
};

/// How often the goals of a phase are looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How often progress is said.
const SAY: Duration = Duration::from_secs(5);

/// One rollout.
#[derive(Clone, Debug, Default)]
pub struct Rollout {
    phase: String,
    message: String,
    promoted: String,
    current: bool,
    healthy: bool,
}

/// One Deployment.
#[derive(Clone, Debug, Default)]
pub struct Deployment {
    uid: String,
    image: String,
    rolled: bool,
    available: i64,
}

#[derive(Debug, Default)]
struct State {
    /// By namespace; there is one in each.
    rollouts: BTreeMap<String, Rollout>,
    deployments: BTreeMap<String, Deployment>,
    /// Since when there has been no available pod in a namespace that had one.
    down: BTreeMap<String, Instant>,
    outages: BTreeMap<String, Duration>,
    /// Counts changes.
    changes: u64,
}

/// What was seen so far; shared by the watches and the phases.
#[derive(Debug, Default)]
pub struct Seen(Mutex<State>);

/// The watches; they end when this goes.
pub struct Watches {
    /// What they have seen.
    pub seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

/// Something that a phase waits for, of a version and in every namespace.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// The Deployment has the image of the version and is rolled out.
    Rolled(&'static str),
    /// The rollout says that the version is deployed and healthy, about its current spec; and it is true.
    Deployed(&'static str),
}

impl Goal {
    fn words(self) -> &'static str {
        match self {
            Self::Rolled(_) => "Deployments available",
            Self::Deployed(_) => "rollouts Deployed",
        }
    }

    fn reached(self, state: &State, namespace: &str) -> bool {
        match self {
            Self::Rolled(version) => {
                state.deployments.get(namespace).is_some_and(|d| d.rolled && d.image == image(version))
            }
            Self::Deployed(version) => {
                let says = |r: &Rollout| r.phase == "Deployed" && r.current && r.healthy && r.promoted == version;
                state.rollouts.get(namespace).is_some_and(says) && Self::Rolled(version).reached(state, namespace)
            }
        }
    }
}

impl Seen {
    /// Watches rollouts and Deployments.
    pub fn watch(client: &Client) -> Watches {
        let mut tasks = JoinSet::new();
        let seen = Arc::new(Self::default());
        let rollouts = Api::<DynamicObject>::all_with(client.clone(), &sample::rollouts());
        let this = seen.clone();
        tasks.spawn(follow(rollouts, watcher::Config::default(), move |namespace, object| {
            let mut state = this.lock();
            match object {
                Some(object) => state.rollouts.insert(namespace, Rollout::read(object)),
                None => state.rollouts.remove(&namespace),
            };
        }));
        let deployments = resource("apps", "v1", "Deployment", "deployments");
        let deployments = Api::<DynamicObject>::all_with(client.clone(), &deployments);
        let named = watcher::Config::default().fields(&format!("metadata.name={}", sample::DEPLOYMENT));
        let this = seen.clone();
        tasks.spawn(follow(deployments, named, move |namespace, object| {
            this.lock().deployment(namespace, object.map(Deployment::read));
        }));
        Watches { seen, _tasks: tasks }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.changes += 1;
        state
    }

    /// Waits until every namespace has reached every goal. Returns when each was met, from `began`.
    pub async fn wait(
        &self,
        namespaces: &[String],
        goals: &[Goal],
        began: Instant,
        timeout: Duration,
        mut alive: impl FnMut() -> Result<()>,
    ) -> Result<Vec<Duration>> {
        let mut met: Vec<Option<Duration>> = vec![None; goals.len()];
        let (mut looked_at, mut said) = (0, Instant::now());
        loop {
            let counts: Vec<usize> = {
                let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                let changed = state.changes != looked_at || looked_at == 0;
                looked_at = state.changes;
                let count = |goal: &Goal| namespaces.iter().filter(|n| goal.reached(&state, n)).count();
                if changed { goals.iter().map(count).collect() } else { Vec::new() }
            };
            for (count, met) in counts.iter().zip(&mut met) {
                // One that is not met any more counts from when it is met for good.
                *met = if *count == namespaces.len() { met.or_else(|| Some(began.elapsed())) } else { None };
            }
            if !counts.is_empty() && counts.iter().all(|count| *count == namespaces.len()) {
                return Ok(met.into_iter().flatten().collect());
            }
            alive()?;
            if said.elapsed() >= SAY && !counts.is_empty() {
                said = Instant::now();
                let words: Vec<String> = goals.iter().zip(&counts).map(|(g, n)| format!("{n} {}", g.words())).collect();
                say(&format!("{:6.1} s: {}", began.elapsed().as_secs_f64(), words.join(", ")));
            }
            if began.elapsed() > timeout {
                return Err(format!("not done within {timeout:?}; seen last:\n{}", self.describe(namespaces)).into());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Uids of the Deployments, by namespace.
    pub fn uids(&self, namespaces: &[String]) -> BTreeMap<String, String> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = |n: &String| Some((n.clone(), state.deployments.get(n)?.uid.clone()));
        namespaces.iter().filter_map(uid).collect()
    }

    /// Forgets the outages so far.
    pub fn forget_outages(&self) {
        self.lock().outages.clear();
    }

    /// How many of the namespaces were without an available pod for a time, and the longest such time.
    pub fn outages(&self, namespaces: &[String]) -> (usize, Duration) {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of_these: Vec<Duration> = namespaces.iter().filter_map(|n| state.outages.get(n).copied()).collect();
        (of_these.len(), of_these.into_iter().max().unwrap_or_default())
    }

    /// Rollouts and Deployments by what they look like, with one example of each.
    fn describe(&self, namespaces: &[String]) -> String {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kinds: BTreeMap<String, (usize, String)> = BTreeMap::new();
        for namespace in namespaces {
            let (rollout, deployment) = (state.rollouts.get(namespace), state.deployments.get(namespace));
            let rollout_words = rollout.map_or("no rollout".to_owned(), |r| {
                format!("phase {:?}, promoted {:?}, current {}, healthy {}", r.phase, r.promoted, r.current, r.healthy)
            });
            let deployment_words = deployment
                .map_or("no Deployment".to_owned(), |d| format!("image {:?}, rolled out {}", d.image, d.rolled));
            let example = format!("{namespace}: {}", rollout.map(|r| r.message.as_str()).unwrap_or_default());
            kinds.entry(format!("{rollout_words}; {deployment_words}")).or_insert((0, example)).0 += 1;
        }
        let lines = kinds.iter().map(|(words, (count, example))| format!("  {count} with {words} (as {example})"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl State {
    fn deployment(&mut self, namespace: String, new: Option<Deployment>) {
        let available = |d: Option<&Deployment>| d.is_some_and(|d| d.available > 0);
        match (available(self.deployments.get(&namespace)), available(new.as_ref())) {
            (true, false) => {
                self.down.insert(namespace.clone(), Instant::now());
            }
            (false, true) => {
                if let Some(since) = self.down.remove(&namespace) {
                    let all = self.outages.entry(namespace.clone()).or_default();
                    *all = (*all).max(since.elapsed());
                }
            }
            _ => {}
        }
        match new {
            Some(new) => self.deployments.insert(namespace, new),
            None => self.deployments.remove(&namespace),
        };
    }
}

impl Rollout {
    fn read(object: &DynamicObject) -> Self {
        let status = &object.data["status"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let healthy = status["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|c| c["type"] == "ChildResourcesHealthy" && c["status"] == "True");
        Self {
            phase: text(&status["phase"]),
            message: text(&status["message"]),
            promoted: text(&status["promoted"]["version"]),
            current: status["observedGeneration"].as_i64() == object.metadata.generation,
            healthy,
        }
    }
}

impl Deployment {
    fn read(object: &DynamicObject) -> Self {
        let (spec, status) = (&object.data["spec"], &object.data["status"]);
        let number = |key: &str| status[key].as_i64().unwrap_or_default();
        let wanted = spec["replicas"].as_i64().unwrap_or(1);
        let observed = status["observedGeneration"].as_i64() == object.metadata.generation;
        let all = ["replicas", "updatedReplicas", "availableReplicas"];
        Self {
            uid: object.uid().unwrap_or_default(),
            image: spec["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned(),
            rolled: observed && all.iter().all(|key| number(key) == wanted),
            available: number("availableReplicas"),
        }
    }
}

async fn follow(
    api: Api<DynamicObject>,
    config: watcher::Config,
    mut changed: impl FnMut(String, Option<&DynamicObject>) + Send,
) {
    let mut events = watcher(api, config).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object)) => {
                changed(object.namespace().unwrap_or_default(), Some(&object));
            }
            Ok(Event::Delete(object)) => changed(object.namespace().unwrap_or_default(), None),
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) => say(&format!("a watch of this program has trouble: {error}")),
        }
    }
}
