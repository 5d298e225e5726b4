//! An upgrade as the API server saw it: every change of every object, in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use futures::StreamExt;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::support::{Scene, Team, eventually, version};

const KINDS: [(&str, &str, &str, &str); 7] = [
    ("numaplane.numaproj.io", "v1alpha1", "NumaflowControllerRollout", "numaflowcontrollerrollouts"),
    ("numaplane.numaproj.io", "v1alpha1", "NumaflowController", "numaflowcontrollers"),
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    ("apps", "v1", "Deployment", "deployments"),
];

/// One change.
#[derive(Clone, Debug)]
struct Change {
    /// resourceVersion: one counter for all kinds, as all are kept in one etcd.
    at: u64,
    kind: &'static str,
    object: Value,
    deleted: bool,
}

impl Change {
    fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Whether it is about an object of an isolated copy.
    fn is_isolated(&self) -> bool {
        !self.object["metadata"]["labels"]["numaplane.numaproj.io/isolated"].is_null()
    }

    /// Whether it is about a production object.
    fn is_production(&self) -> bool {
        self.object["metadata"]["labels"]["numaplane.numaproj.io/tracking-id"] == "numaflow"
    }

    fn stage(&self) -> &str {
        self.object["status"]["upgrade"]["stage"].as_str().unwrap_or_default()
    }

    fn state(&self) -> &str {
        self.object["metadata"]["labels"]["numaplane.numaproj.io/upgrade-state"].as_str().unwrap_or_default()
    }
}

/// Watches everything in a namespace.
struct Recorder {
    changes: Arc<Mutex<Vec<Change>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Recorder {
    async fn start(team: &Team) -> Self {
        let changes: Arc<Mutex<Vec<Change>>> = Arc::default();
        let listed: Arc<Mutex<BTreeSet<&str>>> = Arc::default();
        let mut tasks = Vec::new();
        for (group, version, kind, plural) in KINDS {
            let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
            let api: Api<DynamicObject> = Api::namespaced_with(team.client.clone(), &team.namespace, &resource);
            let (changes, listed) = (changes.clone(), listed.clone());
            tasks.push(tokio::spawn(async move {
                let mut events = watcher(api, watcher::Config::default()).boxed();
                while let Some(event) = events.next().await {
                    let (object, deleted) = match event {
                        Ok(Event::Apply(object) | Event::InitApply(object)) => (object, false),
                        Ok(Event::Delete(object)) => (object, true),
                        Ok(Event::InitDone) => {
                            lock(&listed).insert(kind);
                            continue;
                        }
                        Ok(Event::Init) | Err(_) => continue,
                    };
                    let at = object.resource_version().and_then(|v| v.parse().ok()).unwrap_or_default();
                    let object = serde_json::to_value(&object).unwrap_or_default();
                    lock(&changes).push(Change { at, kind, object, deleted });
                }
            }));
        }
        let this = Self { changes, tasks };
        eventually("all kinds are listed", async || {
            let known = lock(&listed).clone();
            if known.len() == KINDS.len() { Ok(()) } else { Err(format!("{known:?}")) }
        })
        .await;
        this
    }

    /// All changes, in the order in which they were made.
    fn changes(&self) -> Vec<Change> {
        let mut all = lock(&self.changes).clone();
        all.sort_by_key(|c| c.at);
        all
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn seconds(value: &Value) -> i64 {
    let text = value.as_str().unwrap_or_default();
    text.parse::<jiff::Timestamp>().unwrap_or_else(|error| panic!("{value}: {error}")).as_second()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_touches_production_once_and_leaves_nothing_of_the_copy() {
    let scene = Scene::new("timeline").await;
    let team = &scene.team;
    scene.define(&[version("1.4.0").whole(), version("1.5.0").whole()]).await;
    let _operator = scene.operator_with(|s| s.defaults.window = std::time::Duration::from_secs(3)).await;
    team.install("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;

    let recorder = Recorder::start(team).await;
    team.set_version("numaflow", "1.5.0").await;
    team.deployed("numaflow", "1.5.0").await;
    let copies_gone = |all: &[Change]| {
        let mut alive: BTreeMap<(&str, String), bool> = BTreeMap::new();
        for change in all.iter().filter(|c| c.is_isolated()) {
            alive.insert((change.kind, change.name().to_owned()), !change.deleted);
        }
        (alive.len(), alive.into_iter().filter(|(_, alive)| *alive).map(|(key, _)| key.1).collect::<Vec<_>>())
    };
    eventually("six isolated objects came and went", async || match copies_gone(&recorder.changes()) {
        (6, left) if left.is_empty() => Ok(()),
        seen => Err(format!("{seen:?}")),
    })
    .await;
    team.one_child("numaflow").await;
    let all = recorder.changes();
    let first = |what: &str, is: &dyn Fn(&Change) -> bool| -> Change {
        all.iter().find(|c| is(c)).unwrap_or_else(|| panic!("never seen: {what}")).clone()
    };
    let stage = |name: &str| first(name, &|c| c.kind == "NumaflowControllerRollout" && c.stage() == name);

    // Isolated objects appear, and all of them before production changes.
    let verify = stage("Verify");
    let cut_over = stage("CutOver");
    let came: BTreeMap<&str, u64> = all.iter().filter(|c| c.is_isolated()).rev().map(|c| (c.name(), c.at)).collect();
    assert!(came.values().all(|at| (verify.at..cut_over.at).contains(at)), "{came:?}");
    // The window passes.
    let healthy =
        first("the window begins", &|c| !c.object["status"]["upgrade"]["assessment"]["healthySince"].is_null());
    assert_eq!(healthy.stage(), "Verify");
    let since = seconds(&healthy.object["status"]["upgrade"]["assessment"]["healthySince"]);
    let ended = seconds(&cut_over.object["status"]["upgrade"]["stageStartedAt"]);
    assert!(ended - since >= 3, "the window was {} s", ended - since);
    // Labels are swapped: first the old one loses it, then the new one gets it.
    let label = |name: &str, state: &str| {
        first(&format!("{name} is {state}"), &|c| {
            c.kind == "NumaflowController" && c.name() == name && c.state() == state
        })
    };
    let (old, new) = (label("numaflow-0", "recyclable"), label("numaflow-1", "promoted"));
    assert!(cut_over.at < old.at && old.at < new.at);
    assert!(label("numaflow-1", "upgrading").at < cut_over.at);
    let mut states: BTreeMap<&str, &str> = BTreeMap::new();
    for change in all.iter().filter(|c| c.kind == "NumaflowController") {
        states.insert(change.name(), if change.deleted { "" } else { change.state() });
        let promoted = states.values().filter(|s| **s == "promoted").count();
        assert!(promoted <= 1, "two promoted at {}: {states:?}", change.at);
        assert!(states.values().filter(|s| **s == "upgrading").count() <= 1, "{states:?}");
    }
    // Production: the Deployment is updated once, and no object of it is ever away.
    let mut generations: Vec<i64> = Vec::new();
    for change in all.iter().filter(|c| c.is_production()) {
        assert!(!change.deleted, "{}/{} was away", change.kind, change.name());
        if change.kind == "Deployment" {
            generations.extend(change.object["metadata"]["generation"].as_i64());
        }
    }
    generations.dedup();
    assert_eq!(generations, [1, 2]);
    let updated =
        first("production is updated", &|c| c.is_production() && c.object["metadata"]["generation"] == json!(2));
    assert!(new.at < updated.at);
    // … and then the copy goes.
    let went = all.iter().filter(|c| c.is_isolated() && c.deleted).map(|c| c.at).min().unwrap_or_default();
    assert!(updated.at < went, "the copy went at {went}, production changed at {}", updated.at);
    for line in [("Verify", verify.at), ("window", healthy.at), ("CutOver", cut_over.at), ("recyclable", old.at)] {
        println!("{:>8}  {}", line.1, line.0);
    }
    println!(
        "{:>8}  promoted\n{:>8}  production updated\n{went:>8}  the first isolated object goes",
        new.at, updated.at
    );
}
