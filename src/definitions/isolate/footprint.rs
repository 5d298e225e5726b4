//! What production occupies in a namespace.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::definitions::{
    hash, pods,
    selectors::{self, Selector},
};

/// What production in a namespace occupies: names, and selectors that act on pods.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    names: BTreeSet<(String, String, String)>,
    selectors: BTreeSet<Taken>,
}

/// A selector of production that acts on pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Taken {
    /// The object that has it, as messages say it.
    pub object: String,
    /// Where it stands.
    pub field: String,
    /// The selector itself.
    pub selector: Selector,
}

/// Hexadecimal digits of a fingerprint: so many that no two contents meet by chance or by intent.
const DIGITS: usize = 40;

impl Footprint {
    /// Adds an object of production; `body` is the object as it is rendered.
    pub fn add(&mut self, group: &str, kind: &str, name: &str, body: &Value) {
        self.names.insert((group.to_owned(), kind.to_owned(), name.to_owned()));
        let object = format!("{kind} {name:?}");
        let mut take = |field: String, selector: Option<Selector>| {
            // One that cannot be read may select anything.
            let selector = selector.unwrap_or_default();
            self.selectors.insert(Taken { object: object.clone(), field, selector });
        };
        if let Some(acting) = selectors::acting(group, kind, body) {
            take(acting.fields.join("."), acting.selector);
        }
        let pods = pods::template(group, kind, body).and_then(|template| template.get("spec"));
        for selector in pods.into_iter().flat_map(selectors::repelled) {
            take("podAntiAffinity".to_owned(), selector);
        }
    }

    /// Short text, equal for footprints with the same content and for no others, in whatever order it was added.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let names = self.names.iter().map(|(group, kind, name)| json!([group, kind, name])).collect();
        let selectors = self.selectors.iter().map(Taken::content).collect();
        let mut fingerprint = hash::sha256([&Value::Array(names), &Value::Array(selectors)]);
        fingerprint.truncate(DIGITS);
        fingerprint
    }

    /// Whether production has this object.
    pub(super) fn holds(&self, group: &str, kind: &str, name: &str) -> bool {
        self.names.contains(&(group.to_owned(), kind.to_owned(), name.to_owned()))
    }

    /// The selectors that act on pods.
    pub(super) fn selectors(&self) -> impl Iterator<Item = &Taken> {
        self.selectors.iter()
    }
}

impl Taken {
    fn content(&self) -> Value {
        json!([self.object, self.field, self.selector.content()])
    }
}
