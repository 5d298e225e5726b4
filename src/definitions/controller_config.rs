//! The controller's own configuration: ConfigMap values with a key `instance`, which says whose objects it cares for.

use serde_json::Value;

use super::{
    objects::{Object, ObjectKey},
    pods,
    references::{self, CONFIG_MAP},
    yaml,
};

/// A value of a ConfigMap that pods use and that has `instance` at its top level.
#[derive(Clone, Debug)]
pub(super) struct InstanceSetting<'o> {
    /// The workload whose pods use it.
    pub workload: &'o Object,
    /// The ConfigMap.
    pub config_map: &'o ObjectKey,
    /// The key in its `data`.
    pub key: &'o str,
    /// What `instance` is.
    pub instance: Value,
}

/// The workloads among `objects`.
pub(super) fn workloads(objects: &[Object]) -> impl Iterator<Item = &Object> {
    objects.iter().filter(|object| pods::is_workload(&object.key))
}

/// The ConfigMap `name` among `objects`.
pub(super) fn config_map<'o>(objects: &'o [Object], name: &str) -> Option<&'o Object> {
    objects.iter().find(|object| object.key.is_of(CONFIG_MAP) && object.key.name == name)
}

/// All such values in ConfigMaps among `objects`, in the order of the workloads that use them.
pub(super) fn instance_settings(objects: &[Object]) -> Vec<InstanceSetting<'_>> {
    let mut found = Vec::new();
    for workload in workloads(objects) {
        let mut names: Vec<String> = Vec::new();
        for reference in references::configuration(workload) {
            if reference.to == CONFIG_MAP && !names.contains(&reference.name) {
                names.push(reference.name);
            }
        }
        for config_map in names.iter().filter_map(|name| config_map(objects, name)) {
            let data = config_map.body.get("data").and_then(Value::as_object);
            for (key, value) in data.into_iter().flatten() {
                if let Some(instance) = value.as_str().and_then(instance) {
                    found.push(InstanceSetting { workload, config_map: &config_map.key, key, instance });
                }
            }
        }
    }
    found
}

/// The key `instance` at the top level of `text`, if it is YAML that has one.
fn instance(text: &str) -> Option<Value> {
    // Most values are a word; reading them all as YAML is not needed.
    if !text.contains("instance") {
        return None;
    }
    yaml::parse(text).ok()?.as_object_mut()?.remove("instance")
}
