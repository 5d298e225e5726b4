//! From the data of a ConfigMap to what it says about each kind, with the line of everything that is wrong.

use std::collections::BTreeMap;

use super::{Kind, List, Lists, Rule};
use crate::{
    definitions::entries::{self, Keyed, Node, Scalar, Shape},
    fallback::Fault,
};

/// The kinds, in messages.
const KINDS: &str = "pipeline, interstepbufferservice, monovertex and numaflowcontroller";
/// The lists, in messages.
const LISTS: &str = "recreate, dataLoss and progressive";
/// What an entry of a list is, in messages.
const ENTRY: &str = "{path: spec.…, includeSubfields: false}";

/// What a ConfigMap says. What is wrong with one kind is no matter to the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// By kind: what is said, or everything that is wrong with it. A kind that has no key is not here.
    pub kinds: BTreeMap<Kind, Result<Lists, Vec<Fault>>>,
    /// Keys that mean nothing here.
    pub unknown: Vec<Fault>,
}

impl Written {
    /// Everything that is wrong.
    pub fn faults(&self) -> impl Iterator<Item = &Fault> {
        self.kinds.values().filter_map(|read| read.as_ref().err()).flatten().chain(&self.unknown)
    }
}

/// Reads the data of a ConfigMap: a kind in lower case as key, and YAML with lists of paths as value. Keys are found in
/// any case.
#[must_use]
pub fn parse(data: &BTreeMap<String, String>) -> Written {
    let mut written = Written::default();
    for (key, text) in data {
        let fault = |message| Fault { key: Some(key.clone()), line: None, message };
        let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.key().eq_ignore_ascii_case(key)) else {
            let message = format!("this is not a kind; those there may be are {KINDS}; correct or remove it");
            written.unknown.push(fault(message));
            continue;
        };
        let again = || Err(vec![fault("the same kind has another key; remove one of the two".to_owned())]);
        let read = if written.kinds.contains_key(&kind) { again() } else { read(kind, key, text) };
        written.kinds.insert(kind, read);
    }
    written
}

fn read(kind: Kind, key: &str, text: &str) -> Result<Lists, Vec<Fault>> {
    let mut reader = Reader { kind, key, before: 0, faults: Vec::new() };
    let lists = reader.lists(text);
    if reader.faults.is_empty() { Ok(lists) } else { Err(reader.faults) }
}

/// Reads on, whatever is wrong, so that all of it is told at once.
struct Reader<'k> {
    kind: Kind,
    key: &'k str,
    /// Lines before the document.
    before: u64,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    fn fault(&mut self, line: u64, message: String) {
        self.faults.push(Fault { key: Some(self.key.to_owned()), line: Some(self.before + line), message });
    }

    fn lists(&mut self, text: &str) -> Lists {
        let mut lists = Lists::default();
        let root = match entries::only_document(text) {
            Ok(None) => return lists,
            Ok(Some((before, root))) => {
                self.before = before;
                root
            }
            Err(error) => {
                self.fault(error.line, error.message);
                return lists;
            }
        };
        for (name, line, node) in self.map("this", &format!("a map with {LISTS}"), root.referenced.line(), &root.value)
        {
            match List::ALL.into_iter().find(|list| list.key() == name) {
                Some(list) => *lists.list_mut(list) = self.rules(list, line, node),
                None => self.fault(line, format!("there is no list {name}; those there may be are {LISTS}")),
            }
        }
        lists
    }

    /// The rules of a list; `None` where nothing is said.
    fn rules(&mut self, list: List, line: u64, node: &Node) -> Option<Vec<Rule>> {
        let items = match node {
            Shape::Scalar(Scalar::Nothing) => return None,
            Shape::Seq(items) => items,
            other => {
                let (list, what) = (list.key(), other.what());
                self.fault(line, format!("{list} is {what}; it must be a list with entries like {ENTRY}"));
                return None;
            }
        };
        let mut rules = Vec::new();
        for item in &items.0 {
            rules.extend(self.rule(list, item.referenced.line(), &item.value));
        }
        Some(rules)
    }

    fn rule(&mut self, list: List, line: u64, node: &Node) -> Option<Rule> {
        let what = format!("an entry of {}", list.key());
        let (mut path, mut include_subfields) = (None, false);
        let before = self.faults.len();
        for (name, line, node) in self.map(&what, &format!("like {ENTRY}"), line, node) {
            match (name.as_str(), node) {
                ("path", Shape::Scalar(Scalar::Text(text))) => path = Some((line, text)),
                ("includeSubfields", Shape::Scalar(Scalar::Bool(value))) => include_subfields = *value,
                ("includeSubfields", Shape::Scalar(Scalar::Nothing)) => {}
                ("path", other) => {
                    self.fault(line, format!("path is {}; it must be text like spec.edges", other.what()));
                }
                ("includeSubfields", other) => {
                    self.fault(line, format!("includeSubfields is {}; it must be true or false", other.what()));
                }
                _ => self.fault(line, format!("{what} has no key {name}; it is like {ENTRY}")),
            }
        }
        let Some((line, path)) = path else {
            if self.faults.len() == before {
                self.fault(line, format!("{what} has no path; it is like {ENTRY}"));
            }
            return None;
        };
        match Rule::new(self.kind, path, include_subfields) {
            Ok(rule) => Some(rule),
            Err(why) => {
                self.fault(line, why);
                None
            }
        }
    }

    /// The entries of a map, without those given twice.
    fn map<'n>(&mut self, what: &str, wanted: &str, line: u64, node: &'n Node) -> Vec<(String, u64, &'n Node)> {
        let keyed = entries::keyed(node).unwrap_or_else(|is| {
            self.fault(line, format!("{what} is {is}; it must be {wanted}"));
            Keyed::default()
        });
        for (name, line) in keyed.again {
            self.fault(line, format!("{name} is given twice; remove one of the two"));
        }
        keyed.entries
    }
}
