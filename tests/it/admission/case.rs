//! One line of the table of what users write: an object, or a change of one that is stored, and what they are told.

use std::{fs, path::Path};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::support::asking::api_version;

/// Files with what users write, by what it is about.
const TABLES: [&str; 8] =
    ["controllers", "definitions", "pipelines", "vertices", "services", "mono_vertices", "config_maps", "updates"];

/// What is said of a version that is not defined. What is there: see `world` in table.rs.
const DEFINED: &str = "Defined versions: 1.3.3, 1.4.0, 1.8.2, 1.8.3, 1.9.0, 2.0.0, 2.0.1, 2.0.2, 2.0.3, 2.0.4, 3.0.0, 3.0.1 \
                       (looked in @system@/broken, @system@/definitions, @system@/more). Set one of them, or add this version \
                       to a definitions ConfigMap";
/// What the API server says besides of an object that is so wrong that it does not look at the rest.
const UNCHECKED: &str = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
                         correct the existing errors to complete validation";

/// An object that somebody writes, and what comes of it. In all texts `@team@` and `@system@` stand for the namespaces of
/// the team and of the operator, `@name@` for the name of the object, and `@a*64@` for 64 times the letter a; `@defined@` is
/// the list of what is defined, and `@unchecked@` what the API server says where it gives up.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Case {
    /// What it is about; with the name of its table, it names the case.
    pub case: String,
    kind: String,
    /// Made up unless given.
    #[serde(default)]
    name: Option<String>,
    /// Labels, annotations and finalizers.
    #[serde(default)]
    metadata: Value,
    /// What a ConfigMap is labelled as.
    #[serde(default)]
    config: Option<String>,
    /// Whose namespace it is in: the team's, and for ConfigMaps the operator's, unless given.
    #[serde(default)]
    place: Option<Place>,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    data: Value,
    /// A merge patch of the object, which is stored already: the verdict is about that.
    #[serde(default)]
    pub change: Option<Value>,
    /// Whether it is being deleted when the change comes.
    #[serde(default)]
    pub deleting: bool,
    /// Whether it is deleted: the verdict is about that.
    #[serde(default)]
    pub deleted: bool,
    /// Objects that are stored before.
    #[serde(default)]
    given: Vec<Given>,
    /// Why the webhook refuses it: `field: message` of each violation.
    #[serde(default)]
    pub refused: Vec<String>,
    /// Why the API server itself refuses it: `field: message` of each, in any order, or one text that is about no field.
    #[serde(default)]
    pub schema: Vec<String>,
    /// What the user is told besides.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What the reconciler says of it, where it says other words than the webhook.
    #[serde(default)]
    pub reconciled: Option<Reconciled>,
}

/// An object that is there before.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Given {
    kind: String,
    name: String,
    #[serde(default)]
    metadata: Value,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    status: Value,
}

/// What the reconciler says of an object that was stored unseen by the webhook.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub enum Reconciled {
    /// It is Failed with this message.
    Failed(String),
    /// It knows more than the webhook, or less; why that is no contradiction.
    Otherwise(#[expect(dead_code, reason = "for who reads the table")] String),
}

/// Whose namespace it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Place {
    Team,
    System,
}

/// The namespaces that a case is about.
#[derive(Clone, Debug)]
pub struct Places {
    pub team: String,
    pub system: String,
}

impl Case {
    /// All of them, in order; each with the name of its table in front of what it is about.
    pub fn all() -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for table in TABLES {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/admission/table");
            let text = fs::read_to_string(folder.join(format!("{table}.yaml"))).expect("the table can be read");
            let cases: Vec<Self> =
                serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{table}.yaml: {error}"));
            all.extend(cases.into_iter().map(|case| Self { case: format!("{table}: {}", case.case), ..case }));
        }
        for (n, case) in all.iter_mut().enumerate() {
            case.name.get_or_insert_with(|| format!("case-{n}"));
        }
        all
    }

    /// With the names of these namespaces filled in.
    #[must_use]
    pub fn at(mut self, places: &Places) -> Self {
        let name = fill(self.name.as_deref().unwrap_or_default(), places, "");
        let text = |text: &mut String| *text = fill(text, places, &name);
        self.refused.iter_mut().chain(&mut self.warnings).chain(&mut self.schema).for_each(text);
        self.schema.sort();
        if let Some(Reconciled::Failed(words)) = &mut self.reconciled {
            text(words);
        }
        let mut values = vec![&mut self.metadata, &mut self.spec, &mut self.data];
        values.extend(&mut self.change);
        for given in &mut self.given {
            values.extend([&mut given.metadata, &mut given.spec, &mut given.data, &mut given.status]);
        }
        for value in values {
            fill_value(value, places, &name);
        }
        self.name = Some(name);
        self
    }

    /// Its kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The name of the object.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Whether it is a ConfigMap of the platform team, and not an object of a team.
    pub fn is_config_map(&self) -> bool {
        self.kind == "ConfigMap"
    }

    /// Whose namespace it is in.
    pub fn place(&self) -> Place {
        self.place.unwrap_or(if self.is_config_map() { Place::System } else { Place::Team })
    }

    /// The object as it is written first.
    pub fn object(&self) -> Value {
        let mut object = object(&self.kind, self.name(), &self.metadata, &self.spec, &self.data);
        if let Some(config) = &self.config {
            object["metadata"]["labels"] = json!({"numaplane.numaproj.io/config": config});
        }
        object
    }

    /// What is stored before it, each with its status.
    pub fn given(&self) -> Vec<(Value, Value)> {
        let of = |g: &Given| (object(&g.kind, &g.name, &g.metadata, &g.spec, &g.data), g.status.clone());
        self.given.iter().map(of).collect()
    }

    /// Whether it is refused, by whomever.
    pub fn is_refused(&self) -> bool {
        !self.refused.is_empty() || !self.schema.is_empty()
    }
}

fn object(kind: &str, name: &str, metadata: &Value, spec: &Value, data: &Value) -> Value {
    let mut object = json!({"apiVersion": api_version(kind), "kind": kind, "metadata": {"name": name}});
    for (key, value) in metadata.as_object().into_iter().flatten() {
        object["metadata"][key] = value.clone();
    }
    for (key, value) in [("spec", spec), ("data", data)] {
        if !value.is_null() {
            object[key] = value.clone();
        }
    }
    object
}

fn fill_value(value: &mut Value, places: &Places, name: &str) {
    match value {
        Value::String(text) => *text = fill(text, places, name),
        Value::Array(items) => items.iter_mut().for_each(|item| fill_value(item, places, name)),
        Value::Object(map) => map.values_mut().for_each(|item| fill_value(item, places, name)),
        _ => {}
    }
}

/// Fills in what stands between two `@`.
fn fill(text: &str, places: &Places, name: &str) -> String {
    let mut filled = String::new();
    for (n, part) in text.split('@').enumerate() {
        match (n % 2, part, part.split_once('*')) {
            (0, ..) => filled.push_str(part),
            (_, "team", _) => filled.push_str(&places.team),
            (_, "system", _) => filled.push_str(&places.system),
            (_, "name", _) => filled.push_str(name),
            (_, "defined", _) => filled.push_str(&fill(DEFINED, places, name)),
            (_, "unchecked", _) => filled.push_str(UNCHECKED),
            (_, _, Some((letters, times))) => filled.push_str(&letters.repeat(times.parse().expect("a number"))),
            _ => panic!("nobody knows what @{part}@ is, in {text:?}"),
        }
    }
    filled
}

#[test]
fn the_table_has_a_case_for_each_thing_that_can_be_wrong_and_each_has_its_own_name() {
    let all = Case::all();
    assert!(all.len() >= 60, "{}", all.len());
    let names: std::collections::BTreeSet<&str> = all.iter().map(|case| case.case.as_str()).collect();
    assert_eq!(names.len(), all.len(), "two cases have one name");
    for case in &all {
        assert!(case.schema.is_empty() || case.refused.is_empty(), "{}: refused by both", case.case);
    }
}
