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
    let found = values(objects).into_iter().filter_map(|(workload, config_map, key, value)| {
        let instance = top_level(value, "instance")?;
        Some(InstanceSetting { workload, config_map: &config_map.key, key, instance })
    });
    found.collect()
}

/// What the controllers among `objects` are told about ISB services: `isbsvc` at the top level of a value in a ConfigMap
/// that pods use. `None` where nothing is said, or different things are.
pub(crate) fn isbsvc(objects: &[Object]) -> Option<Value> {
    let mut said = values(objects).into_iter().filter_map(|(.., value)| top_level(value, "isbsvc"));
    let first = said.next()?;
    said.all(|other| other == first).then_some(first)
}

/// Values in ConfigMaps that pods use: workload, ConfigMap, key, value.
fn values(objects: &[Object]) -> Vec<(&Object, &Object, &str, &str)> {
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
            let texts = data.into_iter().flatten().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
            found.extend(texts.map(|(key, value)| (workload, config_map, key, value)));
        }
    }
    found
}

/// A key at the top level of `text`, if it is YAML that has it.
fn top_level(text: &str, key: &str) -> Option<Value> {
    // Most values are a word; reading them all as YAML is not needed.
    if !text.contains(key) {
        return None;
    }
    yaml::parse(text).ok()?.as_object_mut()?.remove(key)
}
