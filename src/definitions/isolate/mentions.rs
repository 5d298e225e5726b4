//! Names in free text. There nobody can have them follow, so that a renamed object must not be named.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{
    NotIsolated,
    allowed::{self, Treatment},
};
use crate::definitions::{
    objects::Object,
    pods,
    references::{self, CONFIG_MAP, SECRET, SERVICE},
};

/// Checks that no text of `objects` names one of `services`, which are production's: the isolated copy would talk to
/// them.
pub(super) fn no_service(objects: &[Object], services: &BTreeSet<String>) -> Result<(), NotIsolated> {
    for object in objects {
        for (place, text) in texts(object) {
            if let Some(service) = services.iter().find(|service| has_word(&text, service)) {
                return Err(NotIsolated(format!(
                    "{}: {place} names Service {service:?}, which is production's; write {{{{ .InstanceSuffix }}}} \
                     behind the name, there and in the Service",
                    object.key
                )));
            }
        }
    }
    Ok(())
}

/// Checks that `object`, if the operator does not know where its kind has references, has none to a renamed object.
pub(super) fn no_renamed(
    object: &Object,
    renames: &BTreeMap<(String, String, String), String>,
) -> Result<(), NotIsolated> {
    if allowed::treatment(&object.key) != Treatment::Unknown || references::known_for(&object.key) {
        return Ok(());
    }
    let words = content(object);
    if let Some((_, kind, name)) = renames.keys().find(|(_, _, name)| words.contains(&name.as_str())) {
        return Err(NotIsolated(format!(
            "{} may refer to {kind} {name:?}, which is production's; write {{{{ .InstanceSuffix }}}} behind the name, \
             there and in the {kind}",
            object.key
        )));
    }
    Ok(())
}

/// The texts in `object` that its pods read or run, each with its place.
fn texts(object: &Object) -> Vec<(String, String)> {
    let key = &object.key;
    let mut found = Vec::new();
    let mut field = |name: &str, encoded: bool| {
        for (entry, value) in object.body.get(name).and_then(Value::as_object).into_iter().flatten() {
            let Some(text) = value.as_str() else { continue };
            found.push((format!("{name}[{entry:?}]"), if encoded { decoded(text) } else { text.to_owned() }));
        }
    };
    if key.is_of(CONFIG_MAP) {
        field("data", false);
        field("binaryData", true);
    } else if key.is_of(SECRET) {
        field("data", true);
        field("stringData", false);
    }
    for container in pods::spec(object).into_iter().flat_map(pods::containers) {
        let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
        run_by(container, &format!("container {name:?}"), &mut found);
    }
    if key.is_of(SERVICE)
        && let Some(name) = object.body.pointer("/spec/externalName").and_then(Value::as_str)
    {
        found.push(("spec.externalName".to_owned(), name.to_owned()));
    }
    if allowed::treatment(key) == Treatment::Unknown && !references::known_for(key) {
        let words = content(object).into_iter();
        found.extend(words.map(|word| ("its content".to_owned(), word.to_owned())));
    }
    found
}

/// All text in `object` but its metadata.
fn content(object: &Object) -> Vec<&str> {
    let mut found = Vec::new();
    for (field, value) in object.body.as_object().into_iter().flatten() {
        if !matches!(field.as_str(), "apiVersion" | "kind" | "metadata") {
            strings(value, &mut found);
        }
    }
    found
}

/// Text below the fields of a container that hold commands, values of variables or hosts; its name and that of a port
/// are words as well, but lead nowhere.
fn run_by(value: &Value, place: &str, found: &mut Vec<(String, String)>) {
    for (field, value) in value.as_object().into_iter().flatten() {
        if matches!(field.as_str(), "command" | "args" | "value" | "host") {
            let mut words = Vec::new();
            strings(value, &mut words);
            found.extend(words.into_iter().map(|word| (format!("{field} of {place}"), word.to_owned())));
        } else {
            run_by(value, place, found);
        }
    }
    for item in value.as_array().into_iter().flatten() {
        run_by(item, place, found);
    }
}

fn strings<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::String(text) => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| strings(item, found)),
        Value::Object(map) => map.values().for_each(|value| strings(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The text behind base64. What is none stays as it is; the server says so.
fn decoded(text: &str) -> String {
    match serde_json::from_value::<ByteString>(json!(text)) {
        Ok(ByteString(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => text.to_owned(),
    }
}

/// Whether `word` stands in `text` and is not a part of a longer name. A dot ends a name, as in a host with its domain.
fn has_word(text: &str, word: &str) -> bool {
    let in_name = |character: char| character.is_alphanumeric() || matches!(character, '-' | '_');
    text.match_indices(word).any(|(at, _)| {
        !text[..at].chars().next_back().is_some_and(in_name)
            && !text[at + word.len()..].chars().next().is_some_and(in_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_where_it_is_a_word_of_its_own() {
        for text in ["svc", "http://svc:80/x", "svc.team-a.svc.cluster.local", "a=svc", "x.svc", "\"svc\"", "svcs svc"]
        {
            assert!(has_word(text, "svc"), "{text}");
        }
        for text in ["", "svcs", "my-svc", "svc-x", "SVC", "svc_x", "asvc", "ésvc"] {
            assert!(!has_word(text, "svc"), "{text}");
        }
    }
}
