//! From the text of a definition to the objects in it: the half of rendering that needs no cluster's settings, and so
//! can be done as soon as a ConfigMap is seen.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    template::{Instance, Rendering},
    yaml,
};

/// What identifies an object within a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectKey {
    /// API group, empty for the core group.
    pub group: String,
    /// API version, without the group.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

impl ObjectKey {
    /// The `apiVersion`: `apps/v1`, or `v1` for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The kind with its group: `Deployment.apps`, or `ConfigMap` for the core group.
    #[must_use]
    pub fn group_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Whether it is of this kind: (group, kind).
    pub(super) fn is_of(&self, (group, kind): (&str, &str)) -> bool {
        self.group == group && self.kind == kind
    }

    /// Whether `other` is the same object, be it in another version of the API.
    #[must_use]
    pub fn is_same_object(&self, other: &Self) -> bool {
        (&self.group, &self.kind, &self.name) == (&other.group, &other.kind, &other.name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind, self.name)
    }
}

/// One object of a rendered definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// What identifies it.
    pub key: ObjectKey,
    /// Namespace that the definition writes into it, if any. It is not in the body: a rendering serves every namespace.
    pub namespace: Option<String>,
    /// The object, as JSON.
    pub body: Value,
}

/// Where in the text of a definition something stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// 1-based number of the document, empty ones not counted.
    pub document: usize,
    /// 1-based number of the item, in a document of kind `List`.
    pub item: Option<usize>,
    /// 1-based line of `fullSpec` on which the trouble is, or else the document begins.
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "document {}", self.document)?;
        if let Some(item) = self.item {
            write!(f, ", item {item}")?;
        }
        Ok(())
    }
}

/// A document that is no object of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fullSpec, {place}: {problem}")]
pub struct DocumentError {
    /// Where.
    pub place: Place,
    /// What is wrong with it, as the end of a sentence.
    pub problem: String,
}

/// An object and where it came from.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub place: Place,
    pub object: Object,
}

/// Renders `full_spec` for `instance` and reads the objects in it; items of a `List` stand for themselves.
///
/// # Errors
/// The first document that is not YAML or has no `apiVersion`, `kind` or `metadata.name`, and maps of text in which a
/// value is not text.
pub(super) fn read(full_spec: &str, instance: &Instance) -> Result<Vec<Found>, DocumentError> {
    let rendering = Rendering::new(full_spec, instance);
    let mut found = Vec::new();
    for document in yaml::documents(&rendering.text) {
        let place = |line| Place { document: document.number, item: None, line: rendering.template_line(line) };
        let value = yaml::parse(document.text).map_err(|error| DocumentError {
            place: place(document.lines_before + error.line),
            problem: format!("this is not YAML: {}", error.message),
        })?;
        let place = place(document.first_line);
        match value {
            // `--- ~` and the like; there is nothing to apply.
            Value::Null => {}
            Value::Object(mut list) if is_list(&list) => {
                let items = match list.remove("items") {
                    Some(Value::Array(items)) => items,
                    None | Some(Value::Null) => Vec::new(),
                    Some(_) => return Err(DocumentError { place, problem: "items of a List is not a list".into() }),
                };
                for (n, item) in items.into_iter().enumerate() {
                    let place = Place { item: Some(n + 1), ..place };
                    found.push(identify(item, place).map_err(|problem| DocumentError { place, problem })?);
                }
            }
            value => found.push(identify(value, place).map_err(|problem| DocumentError { place, problem })?),
        }
    }
    Ok(found)
}

fn is_list(object: &Map<String, Value>) -> bool {
    object.get("kind").and_then(Value::as_str) == Some("List")
        && object.get("apiVersion").and_then(Value::as_str) == Some("v1")
}

/// What makes `body` an object: the key, or the problem.
fn identify(body: Value, place: Place) -> Result<Found, String> {
    let Value::Object(fields) = &body else {
        return Err(format!("this is {}, not an object; perhaps its indentation or a \"---\" is missing", what(&body)));
    };
    let api_version = word(fields, "apiVersion")?;
    let kind = word(fields, "kind")?;
    let metadata = match fields.get("metadata") {
        Some(Value::Object(metadata)) => metadata,
        None | Some(Value::Null) => return Err(format!("the {kind} has no metadata.name")),
        Some(other) => return Err(format!("metadata of the {kind} is {}, not a map", what(other))),
    };
    let name = match metadata.get("name") {
        Some(Value::String(name)) if !name.is_empty() => name,
        None | Some(Value::Null | Value::String(_)) => return Err(format!("the {kind} has no metadata.name")),
        Some(other) => return Err(format!("metadata.name of the {kind} is {}: put it in quotes", what(other))),
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    if version.is_empty() || version.contains('/') || (group.is_empty() && api_version.contains('/')) {
        return Err(format!("apiVersion {api_version:?} of the {kind} is not one: it is like \"v1\" or \"apps/v1\""));
    }
    let key =
        ObjectKey { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned(), name: name.clone() };
    maps_of_text(&key, &body)?;
    Ok(Found { place, object: Object { key, namespace: None, body } })
}

fn word<'v>(fields: &'v Map<String, Value>, field: &str) -> Result<&'v str, String> {
    match fields.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        None | Some(Value::Null | Value::String(_)) => Err(format!("the object has no {field}")),
        Some(other) => Err(format!("{field} is {}, not text", what(other))),
    }
}

/// Where every value must be text. The server's own answer to an unquoted `true` or `1.10` names neither object nor
/// field.
const MAPS_OF_TEXT: [&str; 6] = [
    "/metadata/labels",
    "/metadata/annotations",
    "/spec/selector/matchLabels",
    "/spec/template/metadata/labels",
    "/spec/template/metadata/annotations",
    "/data",
];

fn maps_of_text(key: &ObjectKey, body: &Value) -> Result<(), String> {
    for path in MAPS_OF_TEXT {
        // Other kinds may keep anything under `data`.
        if path == "/data" && !(key.group.is_empty() && matches!(key.kind.as_str(), "ConfigMap" | "Secret")) {
            continue;
        }
        let Some(Value::Object(map)) = body.pointer(path) else { continue };
        if let Some((name, value)) = map.iter().find(|(_, value)| !matches!(value, Value::String(_) | Value::Null)) {
            let path = path[1..].replace('/', ".");
            return Err(format!("{path}[{name:?}] of {key} is {} and must be text: put it in quotes", what(value)));
        }
    }
    Ok(())
}

/// What a value is, with its article.
pub(super) fn what(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn objects(text: &str) -> Vec<String> {
        let found = read(text, &Instance::production("i")).expect(text);
        found.iter().map(|found| format!("{} {}", found.place.line, found.object.key)).collect()
    }

    fn error(text: &str) -> (u64, String) {
        let error = read(text, &Instance::production("i")).expect_err(text);
        (error.place.line, error.to_string())
    }

    const A: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n";

    #[test]
    fn objects_are_found_with_the_line_they_begin_on() {
        assert_eq!(
            objects(&format!("# head\n---\n{A}---\n---\n# nothing\n---\n{A}---\n")),
            ["3 ConfigMap \"a\"", "11 ConfigMap \"a\""]
        );
        assert_eq!(objects(""), [""; 0]);
    }

    #[test]
    fn items_of_a_list_stand_for_themselves() {
        let list = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Service, metadata: {name: s}}\n- ";
        assert_eq!(
            objects(&format!("{list}{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d}}}}\n")),
            ["1 Service \"s\"", "1 Deployment \"d\""]
        );
        assert_eq!(
            error(&format!("{list}{{kind: X}}\n")).1,
            "fullSpec, document 1, item 2: the object has no apiVersion"
        );
        assert_eq!(objects("apiVersion: v1\nkind: List\n"), [""; 0]);
    }

    #[test]
    fn the_document_and_line_of_every_problem_are_named() {
        for (bad, line, message) in [
            ("a: [\n", 6, "this is not YAML: unclosed bracket"),
            ("kind: X\nx: *y\n", 7, "this is not YAML"),
            ("just text\n", 6, "this is text, not an object"),
            ("- a\n", 6, "this is a list, not an object"),
            ("\n\nkind: X\n", 8, "the object has no apiVersion"),
            ("apiVersion: v1\n", 6, "the object has no kind"),
            ("apiVersion: 1\nkind: X\n", 6, "apiVersion is a number, not text"),
            ("apiVersion: a/b/c\nkind: X\nmetadata: {name: x}\n", 6, "apiVersion \"a/b/c\" of the X is not one"),
            ("apiVersion: v1\nkind: X\n", 6, "the X has no metadata.name"),
            ("apiVersion: v1\nkind: X\nmetadata: {name: ''}\n", 6, "the X has no metadata.name"),
            (
                "apiVersion: v1\nkind: X\nmetadata: {name: 5}\n",
                6,
                "metadata.name of the X is a number: put it in quotes",
            ),
            ("apiVersion: v1\nkind: X\nmetadata: []\n", 6, "metadata of the X is a list, not a map"),
        ] {
            let (found_line, text) = error(&format!("{A}---\n{bad}"));
            assert_eq!(found_line, line, "{bad:?}: {text}");
            assert!(text.starts_with("fullSpec, document 2: ") && text.contains(message), "{bad:?}: {text}");
        }
    }

    #[test]
    fn a_number_where_text_belongs_is_named_before_the_server_sees_it() {
        let (_, text) = error(&format!("{A}data:\n  fine: \"1\"\n  namespaced: true\n"));
        assert!(text.contains("data[\"namespaced\"] of ConfigMap \"a\" is a boolean and must be text"), "{text}");
        let (_, text) = error("apiVersion: v1\nkind: X\nmetadata: {name: x, labels: {version: 1.8}}\n");
        assert!(text.contains("metadata.labels[\"version\"] of X \"x\" is a number"), "{text}");
        assert_eq!(objects("apiVersion: e.com/v1\nkind: X\nmetadata: {name: x}\ndata: {n: 1}\n").len(), 1);
    }

    #[test]
    fn lines_are_those_of_the_template() {
        // The trim marker pulls `kind` into the comment, as Go would have it; what is left begins on line 6.
        let (line, _) = error("# {{ .InstanceID -}}\n\n\nkind: X\n---\na: {{\n.InstanceID }} [\n");
        assert_eq!(line, 6);
        let (line, _) = error(&format!("{A}data:\n  a: {{{{- \n .InstanceID }}}}\n---\nb: c: d\n"));
        assert_eq!(line, 9);
    }
}
