//! A MonoVertex as last seen, and what its state means. That it says Paused, without a replica, says nothing about its pods.
//! Pure.

use std::ops::Deref;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::LiveObject;

/// A MonoVertex as last seen. It is an object of Numaflow's like any other, and says more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveMonoVertex {
    /// What it has like all others.
    pub object: LiveObject,
}

impl Deref for LiveMonoVertex {
    type Target = LiveObject;

    fn deref(&self) -> &LiveObject {
        &self.object
    }
}

impl LiveMonoVertex {
    /// Reads a MonoVertex as the API server gives it.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, data: &Value) -> Self {
        Self { object: LiveObject::read(metadata, data) }
    }
}
