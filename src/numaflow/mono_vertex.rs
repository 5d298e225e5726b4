//! A MonoVertex as last seen, and what its state means. That it says Paused, without a replica, says nothing about its pods.
//! Pure.

use std::ops::{Deref, DerefMut};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::LiveObject;

/// A MonoVertex as last seen. It is an object of Numaflow's like any other, and says more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveMonoVertex {
    /// What it has like all others.
    pub object: LiveObject,
    /// Whether its pods are being replaced by those of another spec.
    pub rolling: bool,
}

impl Deref for LiveMonoVertex {
    type Target = LiveObject;

    fn deref(&self) -> &LiveObject {
        &self.object
    }
}

impl DerefMut for LiveMonoVertex {
    fn deref_mut(&mut self) -> &mut LiveObject {
        &mut self.object
    }
}

impl LiveMonoVertex {
    /// Reads a MonoVertex as the API server gives it.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, data: &Value) -> Self {
        let status = &data["status"];
        Self { object: LiveObject::read(metadata, data), rolling: status["updateHash"] != status["currentHash"] }
    }

    /// The number of replicas that is written: by an autoscaler, say.
    #[must_use]
    pub fn replicas(&self) -> Option<&Value> {
        self.spec.get("replicas").filter(|replicas| !replicas.is_null())
    }

    /// Whether Numaflow has not begun with it.
    #[must_use]
    pub fn never_ran(&self) -> bool {
        self.observed_generation == 0 && self.phase.is_empty()
    }

    /// Whether Numaflow does nothing with it before it is mended: a pause would not come.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.is_observed() && self.phase == "Failed"
    }

    /// Whether it says that it is paused, and its pods are all that is left to look at: they may be there for a while.
    #[must_use]
    pub fn says_paused(&self) -> bool {
        self.is_observed() && self.wants_paused() && self.phase == "Paused"
    }

    /// Whether it says that it runs.
    #[must_use]
    pub fn says_running(&self) -> bool {
        self.is_observed() && !self.wants_paused() && self.phase == "Running"
    }

    /// Whether two looks at it differ in nothing that anything is decided from.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.rolling == other.rolling && self.object.is_same(&other.object)
    }
}

/// Selects the pods of the MonoVertex of this name.
#[must_use]
pub fn pods_of_mono_vertex(name: &str) -> String {
    format!("app.kubernetes.io/component=mono-vertex,numaflow.numaproj.io/mono-vertex-name={name}")
}
