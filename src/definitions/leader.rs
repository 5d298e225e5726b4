//! Whether the controller of a definition elects a leader, and by which lease.

use super::{definition::Definition, objects::{Object, ObjectKey}};

/// The lease that a controller takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Name of the lease.
    pub lease: String,
    /// The workloads whose pods may hold it.
    pub workloads: Vec<ObjectKey>,
    /// Whether their pods use the host's network, and so its name.
    pub host_network: bool,
}

/// Stub.
#[must_use]
pub fn leader(definition: &Definition, objects: &[Object]) -> Option<Leader> {
    if definition.leader_election == Some(false) { return None; }
    let workloads: Vec<_> = objects.iter().map(|o| o.key.clone()).filter(|k| k.group == "apps").collect();
    let id = objects.iter().find(|o| o.key.kind == "ConfigMap").and_then(|o| o.body["data"]["instance"].as_str()).unwrap_or_default().to_owned();
    (!workloads.is_empty()).then_some(Leader { lease: lease_of_instance(&id), workloads, host_network: false })
}

/// Name of the lease of an instance.
#[must_use]
pub fn lease_of_instance(id: &str) -> String {
    if id.is_empty() { "numaflow-controller-lock".to_owned() } else { format!("numaflow-controller-lock-{id}") }
}
