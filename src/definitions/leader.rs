//! Which lease the controller of a definition takes, so that it can be seen whether the new one leads.

use serde_json::Value;

use super::{
    controller_config::{self, config_map, instance_settings},
    definition::Definition,
    objects::{Object, ObjectKey},
    pods::{self, items},
};

/// What Numaflow calls the lease of the instance without a name.
const LEASE: &str = "numaflow-controller-lock";
/// The variable by which Numaflow is told to elect no leader.
const DISABLED: &str = "NUMAFLOW_LEADER_ELECTION_DISABLED";

/// The leader election of a rendered definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Name of the lease, in the namespace of the objects.
    pub lease: String,
    /// Workloads of whose pods one holds it, in the order of the objects. Those that want no pod are left out.
    pub workloads: Vec<ObjectKey>,
    /// Whether pods of one of them use the network of their node; then they have its name, not their own, and so does
    /// the holder of the lease.
    pub host_network: bool,
}

impl Leader {
    /// Whether this is one of the workloads whose pods may lead.
    #[must_use]
    pub fn is_of(&self, id: &crate::live::ObjectId) -> bool {
        self.workloads.iter().any(|w| w.group == id.group && w.kind == id.kind && w.name == id.name)
    }

    /// Whether a pod that replaces another may have its hostname, so that the name of the holder does not tell them apart.
    #[must_use]
    pub fn hostnames_stay(&self) -> bool {
        self.host_network || self.workloads.iter().any(|w| w.kind == "StatefulSet")
    }
}

/// The leader election of `definition`, rendered as `objects`; `None` where no leader is elected.
///
/// The controller is the workloads whose pods use a ConfigMap of `objects` with a value that has the key `instance`;
/// where none does, all workloads. It elects a leader unless the definition says otherwise or, where the definition says
/// nothing, `NUMAFLOW_LEADER_ELECTION_DISABLED` is true in one of its containers, as far as `objects` tell.
#[must_use]
pub fn leader(definition: &Definition, objects: &[Object]) -> Option<Leader> {
    if definition.leader_election == Some(false) {
        return None;
    }
    let settings = instance_settings(objects);
    let is_controller =
        |workload: &&Object| settings.is_empty() || settings.iter().any(|setting| setting.workload.key == workload.key);
    let workloads: Vec<&Object> =
        controller_config::workloads(objects).filter(is_controller).filter(|workload| wants_pods(workload)).collect();
    let specs: Vec<&Value> = workloads.iter().filter_map(|workload| pods::spec(workload)).collect();
    let disabled = specs.iter().flat_map(|spec| pods::containers(spec)).any(|container| disabled(container, objects));
    if workloads.is_empty() || (disabled && definition.leader_election.is_none()) {
        return None;
    }
    let setting = settings.iter().find(|setting| workloads.iter().any(|workload| workload.key == setting.workload.key));
    let instance = match setting.map(|setting| &setting.instance) {
        Some(Value::String(text)) => text.clone(),
        Some(number_or_switch @ (Value::Number(_) | Value::Bool(_))) => number_or_switch.to_string(),
        _ => String::new(),
    };
    let lease = lease_of_instance(&instance);
    let host_network = specs.iter().any(|spec| spec.get("hostNetwork") == Some(&Value::Bool(true)));
    Some(Leader {
        lease,
        workloads: workloads.into_iter().map(|workload| workload.key.clone()).collect(),
        host_network,
    })
}

/// Name of the lease that a controller with this instance in its configuration takes.
#[must_use]
pub fn lease_of_instance(instance: &str) -> String {
    if instance.is_empty() { LEASE.to_owned() } else { format!("{LEASE}-{}", dns1035(instance)) }
}

/// Whether there are to be pods.
fn wants_pods(workload: &Object) -> bool {
    workload.key.kind == "DaemonSet" || workload.body.pointer("/spec/replicas").and_then(Value::as_i64) != Some(0)
}

/// Whether `container` is told to elect no leader. What `objects` do not tell (a ConfigMap or a key that is not among
/// them, a Secret) does not count.
fn disabled(container: &Value, objects: &[Object]) -> bool {
    let data = |config_map_name: &Value, key: &str| -> Option<&str> {
        config_map(objects, config_map_name.as_str()?)?.body.get("data")?.get(key)?.as_str()
    };
    let mut value = None;
    for source in items(container, "envFrom") {
        let prefix = source.get("prefix").and_then(Value::as_str).unwrap_or_default();
        let Some(key) = DISABLED.strip_prefix(prefix) else { continue };
        if let Some(found) = source.pointer("/configMapRef/name").and_then(|name| data(name, key)) {
            value = Some(found);
        }
    }
    for variable in items(container, "env") {
        if variable.get("name").and_then(Value::as_str) != Some(DISABLED) {
            continue;
        }
        match (variable.get("valueFrom"), variable.pointer("/valueFrom/configMapKeyRef")) {
            (_, Some(source)) => {
                let key = source.get("key").and_then(Value::as_str).unwrap_or_default();
                let found = source.get("name").and_then(|name| data(name, key));
                // A container is not given a variable whose optional key is missing; one of the same name stays.
                if found.is_some() || source.get("optional") != Some(&Value::Bool(true)) {
                    value = found;
                }
            }
            (None | Some(Value::Null), None) => value = variable.get("value").and_then(Value::as_str),
            (Some(_), None) => value = None,
        }
    }
    value.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

/// An instance as Numaflow writes it into the name of its lease: lower case, everything but letters, digits and "-"
/// becomes "-", once for several in a row.
fn dns1035(instance: &str) -> String {
    let mut name = String::with_capacity(instance.len());
    let mut in_run = false;
    for character in instance.to_lowercase().chars() {
        let plain = matches!(character, 'a'..='z' | '0'..='9' | '-');
        if plain {
            name.push(character);
        } else if !in_run {
            name.push('-');
        }
        in_run = !plain;
    }
    name
}

#[cfg(test)]
mod tests;
