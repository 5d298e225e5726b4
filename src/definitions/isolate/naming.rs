//! Names of isolated objects, and the references that follow them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    Footprint, NotIsolated,
    allowed::{self, Treatment},
    mentions,
};
use crate::{
    api::fit,
    definitions::{
        objects::Object,
        pods::items,
        references::{self, Kind, Reference, SERVICE},
    },
    names,
};

/// New names by (group, kind, old name).
type Renames = BTreeMap<(String, String, String), String>;

/// Gives a name of their own to the `objects` that have one of production, has every reference follow, and checks that
/// nothing leads to production any more.
pub(super) fn rename(objects: &mut [Object], id: &str, production: &Footprint) -> Result<(), NotIsolated> {
    let services = services_of_production(objects, id, production);
    let renames = renames(objects, id, production)?;
    for object in &mut *objects {
        if object.key.is_of(("rbac.authorization.k8s.io", "Role")) {
            split_rules(&mut object.body, &renames);
        }
        for reference in references::references(object) {
            let (group, kind) = reference.to;
            let renamed = renames.get(&(group.to_owned(), kind.to_owned(), reference.name));
            if let (Some(name), Some(field)) = (renamed, object.body.pointer_mut(&reference.pointer)) {
                *field = json!(name);
            }
        }
    }
    for object in &*objects {
        if production.holds(&object.key.group, &object.key.kind, &object.key.name) {
            return Err(NotIsolated(format!(
                "{} would still have the name of an object of production; write {{{{ .InstanceSuffix }}}} into its name",
                object.key
            )));
        }
    }
    for object in &*objects {
        for reference in references::references(object) {
            leads_nowhere_else(object, &reference, objects, id, production)?;
        }
        mentions::no_renamed(object, &renames)?;
    }
    mentions::no_service(objects, &services)
}

/// Renames `objects` where production has one of that name.
fn renames(objects: &mut [Object], id: &str, production: &Footprint) -> Result<Renames, NotIsolated> {
    let mut renames = Renames::new();
    for object in &mut *objects {
        let key = &mut object.key;
        if !production.holds(&key.group, &key.kind, &key.name) {
            continue;
        }
        if allowed::treatment(key) == Treatment::Unknown && !references::known_for(key) {
            return Err(NotIsolated(format!(
                "{key} has the name of an object of production, and the operator does not know what refers to a {}; \
                 write {{{{ .InstanceSuffix }}}} into its name and wherever it is named",
                key.group_kind()
            )));
        }
        let old = std::mem::take(&mut key.name);
        let suffixed = format!("{old}-{id}");
        key.name = fit(&suffixed, names::limit(key));
        if names::check(key).is_err() {
            return Err(NotIsolated(format!(
                "{} {old:?} cannot be given a name of its own; write {{{{ .InstanceSuffix }}}} into its name",
                key.kind
            )));
        }
        object.body["metadata"]["name"] = json!(key.name);
        // Whoever wrote the suffix behind a name that has none means this object all the same.
        for old in [old, suffixed] {
            renames.insert((key.group.clone(), key.kind.clone(), old), key.name.clone());
        }
    }
    let mut seen = BTreeSet::new();
    for Object { key, .. } in &*objects {
        renames.remove(&(key.group.clone(), key.kind.clone(), key.name.clone()));
        if !seen.insert((&key.group, &key.kind, &key.name)) {
            return Err(NotIsolated(format!(
                "two objects of the definition would be {key}; write {{{{ .InstanceSuffix }}}} into the names of both"
            )));
        }
    }
    Ok(renames)
}

/// Names that Services of `objects` have in production.
fn services_of_production(objects: &[Object], id: &str, production: &Footprint) -> BTreeSet<String> {
    let services = objects.iter().filter(|object| object.key.is_of(SERVICE));
    // With a suffix in its name, a Service may be that of the production instance without a name.
    let names = services.flat_map(|object| [object.key.name.clone(), object.key.name.replace(&format!("-{id}"), "")]);
    names.filter(|name| production.holds(SERVICE.0, SERVICE.1, name)).collect()
}

/// Checks that `reference` leads to one of `objects`, or to something that belongs to nobody.
fn leads_nowhere_else(
    object: &Object,
    reference: &Reference,
    objects: &[Object],
    id: &str,
    production: &Footprint,
) -> Result<(), NotIsolated> {
    let (group, kind) = reference.to;
    if objects.iter().any(|other| other.key.is_of(reference.to) && other.key.name == reference.name) {
        return Ok(());
    }
    let (field, target) = (reference.field(), reference.target());
    if production.holds(group, kind, &reference.name) {
        return Err(NotIsolated(format!(
            "{}: {field} leads to {target} of production, which is not among the objects of the isolated copy; put \
             such an object into the definition and refer to it as it is named there, or say isolated: false",
            object.key
        )));
    }
    // Nobody but this rendering makes an object with this ID in its name.
    if reference.needed && reference.name.contains(id) {
        return Err(NotIsolated(format!(
            "{}: {field} leads to {target}, and the definition has no {kind} of that name; put it into the \
             definition, or refer to one that every instance uses",
            object.key
        )));
    }
    Ok(())
}

/// Gives resources of a rule rules of their own where the names in it do not become the same for all of them.
fn split_rules(role: &mut Value, renames: &Renames) {
    let Some(rules) = role.get_mut("rules").and_then(Value::as_array_mut) else { return };
    *rules = std::mem::take(rules).into_iter().flat_map(|rule| split(rule, renames)).collect();
}

fn split(rule: Value, renames: &Renames) -> Vec<Value> {
    let resources = items(&rule, "resources");
    let becomes = |resource: &Value, name: &str| -> Option<&String> {
        let kinds = references::kinds_of_resource(items(&rule, "apiGroups"), resource.as_str()?);
        let renamed = |(group, kind): Kind| renames.get(&(group.to_owned(), kind.to_owned(), name.to_owned()));
        kinds.into_iter().find_map(renamed)
    };
    let alike = items(&rule, "resourceNames").iter().filter_map(Value::as_str).all(|name| {
        let mut names = resources.iter().map(|resource| becomes(resource, name));
        names.next().is_none_or(|first| names.all(|other| other == first))
    });
    if alike {
        return vec![rule];
    }
    let alone = |resource: &Value| {
        let mut rule = rule.clone();
        rule["resources"] = json!([resource]);
        rule
    };
    resources.iter().map(alone).collect()
}
