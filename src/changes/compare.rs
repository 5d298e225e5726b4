//! Where two specs differ: entries by their keys, so that their order is no difference.

use std::{borrow::Cow, collections::BTreeSet};

use serde_json::{Map, Value};

/// Steered by whoever pauses and resumes, and so never a change.
pub(super) const IGNORED: [&str; 2] = ["spec.lifecycle.desiredPhase", "spec.lifecycle.pauseGracePeriodSeconds"];

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Into a field.
    Field(String),
    /// Into an entry of a list, by its key or number. `own`: the entry is a thing of its own, like a vertex, and not
    /// part of one value.
    Entry { key: String, own: bool },
}

/// The uppermost place at which two specs differ. A side that is `None` does not have the place.
#[derive(Clone, Debug)]
pub(super) struct Difference<'v> {
    pub steps: Vec<Step>,
    pub old: Option<&'v Value>,
    pub new: Option<&'v Value>,
}

impl Difference<'_> {
    /// The place as people write it: `spec.vertices[cat].udf.container.env[A].value`.
    pub fn path(&self) -> String {
        path(&self.steps)
    }

    /// Whether a whole entry of a list came or went.
    pub fn is_entry(&self) -> bool {
        matches!(self.steps.last(), Some(Step::Entry { .. })) && (self.old.is_none() || self.new.is_none())
    }
}

fn path(steps: &[Step]) -> String {
    let mut path = String::new();
    for step in steps {
        match step {
            Step::Field(name) if path.is_empty() => path.push_str(name),
            Step::Field(name) => path.push_str(&format!(".{name}")),
            Step::Entry { key, .. } => path.push_str(&format!("[{key}]")),
        }
    }
    path
}

/// Everything in which two specs differ, in the order of their fields.
pub(super) fn differences<'v>(old: &'v Value, new: &'v Value) -> Vec<Difference<'v>> {
    let mut walk = Walk { steps: vec![Step::Field("spec".to_owned())], found: Vec::new() };
    walk.values(Some(old), Some(new));
    walk.found
}

struct Walk<'v> {
    steps: Vec<Step>,
    found: Vec<Difference<'v>>,
}

impl<'v> Walk<'v> {
    fn values(&mut self, old: Option<&'v Value>, new: Option<&'v Value>) {
        let (old, new) = (old.filter(|v| is_something(v)), new.filter(|v| is_something(v)));
        let place = path(&self.steps);
        if IGNORED.contains(&place.as_str()) {
            return;
        }
        // Looked into also where one side has none of it: parts of it do not count, or each is worth a word.
        let opened = place == "spec" || place == "spec.lifecycle";
        match (old, new) {
            (None, None) => {}
            (Some(Value::Object(old)), Some(Value::Object(new))) => self.maps(Some(old), Some(new)),
            (Some(Value::Object(one)), None) if opened => self.maps(Some(one), None),
            (None, Some(Value::Object(one))) if opened => self.maps(None, Some(one)),
            (Some(Value::Array(olds)), Some(Value::Array(news))) => self.lists(olds, news, old, new),
            (Some(Value::Number(old)), Some(Value::Number(new))) if old.as_f64() == new.as_f64() && fits(old, new) => {}
            (Some(a), Some(b)) if a == b => {}
            _ => self.found.push(Difference { steps: self.steps.clone(), old, new }),
        }
    }

    fn maps(&mut self, old: Option<&'v Map<String, Value>>, new: Option<&'v Map<String, Value>>) {
        let names: BTreeSet<&String> = old.into_iter().chain(new).flat_map(Map::keys).collect();
        for name in names {
            self.steps.push(Step::Field(name.clone()));
            self.values(old.and_then(|map| map.get(name)), new.and_then(|map| map.get(name)));
            self.steps.pop();
        }
    }

    fn entry(&mut self, key: &str, own: bool, old: Option<&'v Value>, new: Option<&'v Value>) {
        self.steps.push(Step::Entry { key: key.to_owned(), own });
        self.values(old, new);
        self.steps.pop();
    }

    fn lists(&mut self, olds: &'v [Value], news: &'v [Value], old: Option<&'v Value>, new: Option<&'v Value>) {
        let name = match self.steps.last() {
            Some(Step::Field(name)) => name.as_str(),
            _ => "",
        };
        let keyed = Keyed::named(name);
        if let Some(keyed) = &keyed
            && let (Some(old_keys), Some(new_keys)) = (keyed.keys(olds), keyed.keys(news))
        {
            if keyed.order_counts(olds, news) && !same_order(&old_keys, &new_keys) {
                self.found.push(Difference { steps: self.steps.clone(), old, new });
            }
            let find = |keys: &[Cow<'_, str>], values: &'v [Value], key: &str| {
                keys.iter().position(|k| k == key).and_then(|at| values.get(at))
            };
            let added = new_keys.iter().filter(|key| !old_keys.contains(key));
            for key in old_keys.iter().chain(added) {
                self.entry(key, keyed.own, find(&old_keys, olds, key), find(&new_keys, news, key));
            }
        } else if olds.iter().chain(news).all(Value::is_object) {
            let own = keyed.is_some_and(|keyed| keyed.own);
            for at in 0..olds.len().max(news.len()) {
                self.entry(&at.to_string(), own, olds.get(at), news.get(at));
            }
        } else if olds.len() != news.len() || !olds.iter().zip(news).all(|(old, new)| same(old, new)) {
            self.found.push(Difference { steps: self.steps.clone(), old, new });
        }
    }
}

/// Whether there is no difference between two values.
fn same(old: &Value, new: &Value) -> bool {
    let mut walk = Walk { steps: Vec::new(), found: Vec::new() };
    walk.values(Some(old), Some(new));
    walk.found.is_empty()
}

/// `null` and an empty list say as much as nothing at all. An empty map does not: `sink: {log: {}}`.
fn is_something(value: &Value) -> bool {
    !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
}

/// Whether two numbers that are the same as floats are the same: large integers are not told apart by floats.
fn fits(old: &serde_json::Number, new: &serde_json::Number) -> bool {
    old.is_f64() || new.is_f64() || old == new
}

/// A list whose entries have keys.
struct Keyed {
    keys: &'static [&'static str],
    own: bool,
    order: Order,
}

/// When the order of such a list counts.
enum Order {
    Never,
    Always,
    /// `$(A)` in a value means a variable that stands before it.
    WithReferences,
}

impl Keyed {
    fn named(list: &str) -> Option<Self> {
        let (keys, own, order): (&[&str], _, _) = match list {
            "vertices" | "sideInputs" => (&["name"], true, Order::Never),
            "edges" => (&["from", "to"], true, Order::Never),
            "env" => (&["name"], false, Order::WithReferences),
            "volumes" | "sidecars" => (&["name"], false, Order::Never),
            // They run one after the other.
            "initContainers" => (&["name"], false, Order::Always),
            _ => return None,
        };
        Some(Self { keys, own, order })
    }

    /// The keys of all entries; `None` if one has none, or two have the same.
    fn keys<'v>(&self, entries: &'v [Value]) -> Option<Vec<Cow<'v, str>>> {
        let mut all = Vec::new();
        for entry in entries {
            let parts: Option<Vec<&str>> = self.keys.iter().map(|key| entry.get(key)?.as_str()).collect();
            let key = match parts?.as_slice() {
                [one] => Cow::Borrowed(*one),
                more => Cow::Owned(more.join("->")),
            };
            all.push(key);
        }
        let distinct: BTreeSet<_> = all.iter().collect();
        (distinct.len() == all.len()).then_some(all)
    }

    fn order_counts(&self, olds: &[Value], news: &[Value]) -> bool {
        let refers = |entry: &Value| entry["value"].as_str().is_some_and(|value| value.contains("$("));
        match self.order {
            Order::Never => false,
            Order::Always => true,
            Order::WithReferences => olds.iter().chain(news).any(refers),
        }
    }
}

/// Whether the keys that are in both stand in the same order.
fn same_order(old: &[Cow<'_, str>], new: &[Cow<'_, str>]) -> bool {
    let in_old = old.iter().filter(|key| new.contains(key));
    let in_new = new.iter().filter(|key| old.contains(key));
    in_old.eq(in_new)
}
