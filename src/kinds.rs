//! Where each kind lives in the API: its path and whether it has a namespace. Known for the usual kinds, asked of the
//! server for the rest.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use kube::{
    Client,
    core::{ApiResource, GroupVersionKind},
    discovery::{self, Scope},
};

/// A kind in the API.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Group, version, kind and plural.
    pub resource: ApiResource,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
}

/// Kinds that a definition may hold and that every cluster serves: (group, version, kind, plural).
const USUAL: &[(&str, &str, &str, &str)] = &[
    ("", "v1", "ServiceAccount", "serviceaccounts"),
    ("", "v1", "ConfigMap", "configmaps"),
    ("", "v1", "Secret", "secrets"),
    ("", "v1", "Service", "services"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    ("apps", "v1", "Deployment", "deployments"),
    ("apps", "v1", "StatefulSet", "statefulsets"),
    ("apps", "v1", "DaemonSet", "daemonsets"),
    ("apps", "v1", "ReplicaSet", "replicasets"),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
    ("networking.k8s.io", "v1", "Ingress", "ingresses"),
];

/// Numaflow's kinds that depend on a running controller: (kind, plural).
pub const NUMAFLOW: [(&str, &str); 3] =
    [("Pipeline", "pipelines"), ("InterStepBufferService", "interstepbufferservices"), ("MonoVertex", "monovertices")];

/// What Numaflow makes of a pipeline: goes with it, and so depends on no controller by itself.
const VERTEX: (&str, &str) = ("Vertex", "vertices");

/// One of Numaflow's kinds.
#[must_use]
pub fn numaflow(kind: &str) -> Option<ApiResource> {
    let (kind, plural) = NUMAFLOW.iter().chain([&VERTEX]).find(|(k, _)| *k == kind)?;
    let gvk = GroupVersionKind::gvk("numaflow.numaproj.io", "v1alpha1", kind);
    Some(ApiResource::from_gvk_with_plural(&gvk, plural))
}

/// The kinds met so far.
#[derive(Debug, Default)]
pub struct Kinds {
    asked: Mutex<HashMap<GroupVersionKind, Kind>>,
}

/// A usual kind by group and kind, in the version that is watched.
#[must_use]
pub fn usual(group: &str, kind: &str) -> Option<Kind> {
    let (group, version, kind, plural) = USUAL.iter().find(|(g, _, k, _)| *g == group && *k == kind)?;
    let gvk = GroupVersionKind::gvk(group, version, kind);
    Some(Kind { resource: ApiResource::from_gvk_with_plural(&gvk, plural), namespaced: true })
}

impl Kinds {
    /// Where a kind lives.
    ///
    /// # Errors
    /// The server does not serve it, or cannot be asked.
    pub async fn find(&self, client: &Client, group: &str, version: &str, kind: &str) -> Result<Kind, kube::Error> {
        if let Some(known) = usual(group, kind)
            && (known.resource.version == version || version.is_empty())
        {
            return Ok(known);
        }
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let lock = || self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&gvk).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let (resource, capabilities) = discovery::pinned_kind(client, &gvk).await?;
        let found = Kind { resource, namespaced: capabilities.scope == Scope::Namespaced };
        lock().insert(gvk, found.clone());
        Ok(found)
    }
}
