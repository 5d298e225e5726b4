//! Every change of every object of some kinds in a namespace, in the order in which the API server made them, and when
//! they were seen.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt;
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::{
    team::Team,
    wait::{AGAIN, eventually},
};

/// Group, version, kind and plural.
pub type Kind = (&'static str, &'static str, &'static str, &'static str);

/// What there is of controllers.
pub const OF_CONTROLLERS: [Kind; 7] = [
    ("numaplane.numaproj.io", "v1alpha1", "NumaflowControllerRollout", "numaflowcontrollerrollouts"),
    ("numaplane.numaproj.io", "v1alpha1", "NumaflowController", "numaflowcontrollers"),
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    ("apps", "v1", "Deployment", "deployments"),
];

/// What tells how pipelines, and the controller and the ISB services in production are.
pub const OF_PIPELINES: [Kind; 10] = [
    ("numaplane.numaproj.io", "v1alpha1", "NumaflowControllerRollout", "numaflowcontrollerrollouts"),
    ("numaplane.numaproj.io", "v1alpha1", "ISBServiceRollout", "isbservicerollouts"),
    ("numaflow.numaproj.io", "v1alpha1", "InterStepBufferService", "interstepbufferservices"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("numaplane.numaproj.io", "v1alpha1", "PipelineRollout", "pipelinerollouts"),
    ("numaflow.numaproj.io", "v1alpha1", "Pipeline", "pipelines"),
    ("numaflow.numaproj.io", "v1alpha1", "Vertex", "vertices"),
    ("apps", "v1", "Deployment", "deployments"),
    ("coordination.k8s.io", "v1", "Lease", "leases"),
    ("", "v1", "Pod", "pods"),
];

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    /// resourceVersion: one counter for all kinds, as all are kept in one etcd.
    pub at: u64,
    /// When it was seen.
    pub seen: Timestamp,
    /// Kind of the object.
    pub kind: &'static str,
    /// The object after it.
    pub object: Value,
    /// Whether the object is gone.
    pub deleted: bool,
}

impl Change {
    /// Name of the object.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Text at a place in the object; empty if there is none.
    pub fn text(&self, place: &str) -> &str {
        self.object.pointer(place).and_then(Value::as_str).unwrap_or_default()
    }

    /// A label of the object; empty if it has none.
    pub fn label(&self, label: &str) -> &str {
        self.object["metadata"]["labels"][label].as_str().unwrap_or_default()
    }

    /// Whether it is about an object of an isolated copy.
    pub fn is_isolated(&self) -> bool {
        !self.label("numaplane.numaproj.io/isolated").is_empty()
    }

    /// Whether it is about a production object of this rollout.
    pub fn is_production(&self, rollout: &str) -> bool {
        self.label("numaplane.numaproj.io/tracking-id") == rollout
    }

    /// The stage that the rollout of a controller, or of an ISB service, is in.
    pub fn stage(&self) -> &str {
        let of_controller = self.text("/status/upgrade/stage");
        if of_controller.is_empty() { self.text("/status/change/stage") } else { of_controller }
    }

    /// What a child renders, by its label.
    pub fn state(&self) -> &str {
        self.label("numaplane.numaproj.io/upgrade-state")
    }
}

/// Watches everything in a namespace, until it is dropped.
pub struct Changes {
    changes: Arc<Mutex<Vec<Change>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Changes {
    /// Begins; returns once it has seen what there is.
    pub async fn watch(team: &Team, kinds: &[Kind]) -> Self {
        let changes: Arc<Mutex<Vec<Change>>> = Arc::default();
        let listed: Arc<Mutex<BTreeSet<&str>>> = Arc::default();
        let mut tasks = Vec::new();
        for (group, version, kind, plural) in kinds.iter().copied() {
            let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
            let api: Api<DynamicObject> = Api::namespaced_with(team.client.clone(), &team.namespace, &resource);
            let (changes, listed) = (changes.clone(), listed.clone());
            tasks.push(tokio::spawn(async move {
                let mut events = watcher(api, watcher::Config::default()).boxed();
                while let Some(event) = events.next().await {
                    let seen = Timestamp::now();
                    let (object, deleted) = match event {
                        Ok(Event::Apply(object) | Event::InitApply(object)) => (object, false),
                        Ok(Event::Delete(object)) => (object, true),
                        Ok(Event::InitDone) => {
                            lock(&listed).insert(kind);
                            continue;
                        }
                        Ok(Event::Init) => continue,
                        Err(_) => {
                            // Where the client has ended nothing else would ever let go of the thread.
                            tokio::time::sleep(AGAIN).await;
                            continue;
                        }
                    };
                    let at = object.resource_version().and_then(|v| v.parse().ok()).unwrap_or_default();
                    let object = serde_json::to_value(&object).unwrap_or_default();
                    lock(&changes).push(Change { at, seen, kind, object, deleted });
                }
            }));
        }
        let this = Self { changes, tasks };
        eventually("all kinds are listed", async || {
            let known = lock(&listed).clone();
            if known.len() == kinds.len() { Ok(()) } else { Err(format!("{known:?}")) }
        })
        .await;
        this
    }

    /// All changes so far, in the order in which they were made.
    pub fn all(&self) -> Vec<Change> {
        let mut all = lock(&self.changes).clone();
        all.sort_by_key(|c| c.at);
        all
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The first change after `after` that is as it should be.
///
/// # Panics
/// There is none.
pub fn first<'a>(all: &'a [Change], after: u64, what: &str, is: impl Fn(&Change) -> bool) -> &'a Change {
    all.iter().find(|c| c.at > after && is(c)).unwrap_or_else(|| panic!("never seen after {after}: {what}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
