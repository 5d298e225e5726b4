//! Where a test takes place: namespaces of its own, one for the operator's definitions and one or more for teams.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Namespace, Pod},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use numaplane::{
    api::{NumaflowController, NumaflowControllerRollout},
    settings::Settings,
};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{
    control_plane::control_plane,
    definitions::{Version, config_map_value},
    faults::Faults,
    operator::{Running, settings},
    team::Team,
};

/// Namespaces of one test; when it fails, what is in them is printed. They go with the control plane: removing hundreds of
/// them one by one would cost more than the tests themselves.
pub struct Scene {
    /// The team of most tests.
    pub team: Team,
    /// The operator's namespace.
    pub system: Team,
    name: String,
    teams: Mutex<Vec<Team>>,
    began: Instant,
}

impl Scene {
    /// New namespaces.
    pub async fn new(name: &str) -> Self {
        let client = control_plane().administrator().await;
        let name = format!("t-{name}-{}", random());
        let team = make_namespace(&client, &name).await;
        let system = make_namespace(&client, &format!("{name}-system")).await;
        Self { teams: Mutex::new(vec![team.clone()]), team, system, name, began: Instant::now() }
    }

    /// One more team.
    pub async fn another(&self, name: &str) -> Team {
        let team = make_namespace(&self.team.client, &format!("{}-{name}", self.name)).await;
        self.teams.lock().unwrap_or_else(PoisonError::into_inner).push(team.clone());
        team
    }

    /// A name for a cluster-scoped object of this test.
    pub fn unique(&self, name: &str) -> String {
        format!("{}-{name}", self.name)
    }

    fn teams(&self) -> Vec<Team> {
        self.teams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Settings of an operator for all teams.
    pub fn settings(&self) -> Settings {
        settings(&self.system.namespace, self.teams().into_iter().map(|t| t.namespace))
    }

    /// Starts an operator for all teams.
    pub async fn operator(&self) -> Running {
        self.operator_with(|_| {}).await
    }

    /// Starts an operator for all teams, with other settings.
    pub async fn operator_with(&self, change: impl FnOnce(&mut Settings)) -> Running {
        let mut settings = self.settings();
        change(&mut settings);
        Running::start(settings, Faults::default(), None).await
    }

    /// Starts an operator whose requests have faults.
    pub async fn operator_behind(&self, faults: &Faults) -> Running {
        Running::start(self.settings(), faults.clone(), None).await
    }

    /// Defines these versions and no others, in the operator's namespace.
    pub async fn define(&self, versions: impl IntoIterator<Item = &Version>) {
        self.define_in("definitions", &config_map_value(versions)).await;
    }

    /// Sets the value of the one key of a definitions ConfigMap.
    pub async fn define_in(&self, config_map: &str, value: &str) {
        self.system.define(config_map, value).await;
    }
}

impl Team {
    /// Sets the value of the one key of a definitions ConfigMap in this namespace.
    pub async fn define(&self, config_map: &str, value: &str) {
        let api: Api<ConfigMap> = self.api();
        let body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": config_map, "labels": {"numaplane.numaproj.io/config": "numaflow-controller-definitions"}},
            "data": {"controller_definitions.yaml": value},
        });
        let written = api.patch(config_map, &PatchParams::apply("platform").force(), &Patch::Apply(&body)).await;
        written.unwrap_or_else(|error| panic!("ConfigMap {config_map}: {error}"));
    }
}

async fn make_namespace(client: &Client, name: &str) -> Team {
    let api: Api<Namespace> = Api::all(client.clone());
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    // So that policies of a test can be bound to its own namespaces.
    namespace.metadata.labels = Some([("scene".to_owned(), name.to_owned())].into());
    api.create(&PostParams::default(), &namespace).await.unwrap_or_else(|error| panic!("Namespace {name}: {error}"));
    Team { client: client.clone(), namespace: name.to_owned() }
}

/// Differs from namespace to namespace and from run to run.
fn random() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = jiff::Timestamp::now().subsec_nanosecond();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    numaplane::api::short_hash(format!("{now} {count} {}", std::process::id()).as_bytes())[..6].to_owned()
}

impl Drop for Scene {
    fn drop(&mut self) {
        println!("{} took {:.1} s", self.name, self.began.elapsed().as_secs_f32());
        let mut namespaces: Vec<String> = self.teams().into_iter().map(|t| t.namespace).collect();
        namespaces.push(self.system.namespace.clone());
        control_plane().leases.over(&namespaces);
        if !std::thread::panicking() {
            return;
        }
        // The runtime of the test is on its way out; on a thread, because a thread may hold one runtime at a time.
        let shown = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                let client = control_plane().administrator().await;
                for namespace in &namespaces {
                    dump(&client, namespace).await;
                }
            });
        });
        if shown.join().is_err() {
            eprintln!("{}: what there is could not be shown", self.name);
        }
    }
}

async fn list<K>(client: &Client, namespace: &str) -> Vec<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let listed = tokio::time::timeout(Duration::from_secs(10), api.list(&Default::default())).await;
    listed.ok().and_then(Result::ok).map(|list| list.items).unwrap_or_default()
}

async fn dump(client: &Client, namespace: &str) {
    println!("---- {namespace}");
    for rollout in list::<NumaflowControllerRollout>(client, namespace).await {
        let (name, generation) = (rollout.name_any(), rollout.metadata.generation.unwrap_or_default());
        let version = &rollout.spec.controller.version;
        let deleting = if rollout.metadata.deletion_timestamp.is_some() { ", being deleted" } else { "" };
        println!("NumaflowControllerRollout/{name}: version {version:?}, generation {generation}{deleting}");
        println!("{}", serde_json::to_string_pretty(&rollout.status).unwrap_or_default());
    }
    for child in list::<NumaflowController>(client, namespace).await {
        let status = child.status.clone().unwrap_or_default();
        let labels = child.labels();
        println!(
            "NumaflowController/{}: {:?}, labels {labels:?}, {} {}, deleting {}",
            child.name_any(),
            child.spec,
            status.phase.as_str(),
            status.message,
            child.metadata.deletion_timestamp.is_some(),
        );
    }
    for deployment in list::<Deployment>(client, namespace).await {
        let (name, status) = (deployment.name_any(), deployment.status.unwrap_or_default());
        let numbers = (status.replicas, status.updated_replicas, status.available_replicas, status.observed_generation);
        println!("Deployment/{name}: (replicas, updated, available, observed generation) {numbers:?}");
    }
    for pod in list::<Pod>(client, namespace).await {
        let conditions = pod.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
        let ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
        println!("Pod/{}: ready {ready}", pod.name_any());
    }
    for lease in list::<Lease>(client, namespace).await {
        let (name, spec) = (lease.name_any(), lease.spec.unwrap_or_default());
        let renewed = spec.renew_time.map(|time| time.0.to_string());
        println!("Lease/{name}: held by {:?}, renewed {renewed:?}", spec.holder_identity.unwrap_or_default());
    }
    for map in list::<ConfigMap>(client, namespace).await {
        println!("ConfigMap/{}", map.name_any());
    }
    for event in list::<Event>(client, namespace).await {
        let about = event.involved_object;
        let (kind, name) = (about.kind.unwrap_or_default(), about.name.unwrap_or_default());
        let (reason, note) = (event.reason.unwrap_or_default(), event.message.unwrap_or_default());
        // What Kubernetes does every time is of no interest.
        if event.type_.as_deref() == Some("Normal") && matches!(kind.as_str(), "Pod" | "ReplicaSet" | "Deployment") {
            continue;
        }
        println!("Event {reason} on {kind}/{name}: {note}");
    }
}
