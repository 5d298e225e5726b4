//! An object of Numaflow's that is being deleted, and what keeps it. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::live::Version;

/// What holds an object of Numaflow's that is being deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Name and uid; the resourceVersion does not matter.
    pub object: Version,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Since when it is being deleted.
    pub deleted_at: Option<Timestamp>,
}

impl Held {
    /// Reads metadata.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            object: Version::of(metadata).of_any_state(),
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            deleted_at: metadata.deletion_timestamp.as_ref().map(|t| t.0),
        }
    }
}
