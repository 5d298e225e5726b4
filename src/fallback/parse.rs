//! From the text of a configuration to what it says, with the line of everything that is wrong.

use std::{collections::BTreeMap, time::Duration};

use serde_saphyr::Spanned;

use super::{Fallback, Fault, Said};
use crate::{
    api::{OnDrainTimeout, Strategy, Wait},
    definitions::entries::{self, Keyed, Node, Scalar, Shape, key_name},
};

/// The key of our own: what a rollout has as `spec.strategy`.
const BLOCK: &str = "strategy";

/// Reads the operator's config file. Keys at the top are found in any case, as Numaplane finds them.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse_file(text: &str) -> Result<Said, Vec<Fault>> {
    let mut reader = Reader::default();
    let Some(root) = reader.document(text) else { return reader.end() };
    let map = match &root.value {
        Shape::Scalar(Scalar::Nothing) => return reader.end(),
        Shape::Map(map) => map,
        other => {
            let message = format!("this is {}; it must be a map with the keys of a configuration", other.what());
            reader.fault(Some(root.referenced.line()), message);
            return reader.end();
        }
    };
    let entries: Vec<_> =
        map.0.iter().map(|(key, value)| (key_name(key), key.referenced.line(), &value.value)).collect();
    let ours = ["defaultUpgradeStrategy", BLOCK];
    // The name alone first: the block says what it thinks of it.
    for name in ours {
        let mut found = entries.iter().filter(|(key, ..)| key.eq_ignore_ascii_case(name));
        let Some((key, line, node)) = found.next() else { continue };
        reader.key = Some(key.clone());
        if name == BLOCK {
            reader.block(*line, node);
        } else {
            match node {
                Shape::Scalar(Scalar::Nothing) => {}
                Shape::Scalar(Scalar::Text(text)) => reader.name_alone(Some(*line), text),
                other => reader.fault(Some(*line), format!("this is {}; it must be {}", other.what(), Strategy::NAMES)),
            }
        }
        for (_, line, _) in found {
            reader.fault(Some(*line), format!("{name} is given twice; remove one of the two"));
        }
    }
    let others = entries.into_iter().map(|(key, ..)| key);
    reader.said.ignored = others.filter(|key| !ours.iter().any(|name| key.eq_ignore_ascii_case(name))).collect();
    reader.end()
}

/// Reads the data of a namespace-level ConfigMap.
///
/// # Errors
/// Everything that is wrong with it.
pub fn parse_config_map(data: &BTreeMap<String, String>) -> Result<Said, Vec<Fault>> {
    let mut reader = Reader::default();
    let ours = ["upgradeStrategy", BLOCK];
    for name in ours {
        let mut found = data.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
        let Some((key, text)) = found.next() else { continue };
        reader.key = Some(key.clone());
        if name == BLOCK {
            if let Some(root) = reader.document(text) {
                reader.block(root.referenced.line(), &root.value);
            }
        } else {
            // A file that was made into a ConfigMap ends in a newline.
            reader.name_alone(None, text.trim());
        }
        for (again, _) in found {
            reader.fault(None, format!("{again} is the same key once more; remove one of the two"));
        }
    }
    let others = data.keys().filter(|key| !ours.iter().any(|name| key.eq_ignore_ascii_case(name)));
    reader.said.ignored = others.cloned().collect();
    reader.end()
}

/// Reads on, whatever is wrong, so that all of it is told at once.
#[derive(Default)]
struct Reader {
    said: Said,
    faults: Vec<Fault>,
    /// The key that is being read, and lines before the document in its value.
    key: Option<String>,
    before: u64,
    /// The key that holds the name of a strategy alone, and the strategy.
    alone: Option<(String, Strategy)>,
}

impl Reader {
    fn end(self) -> Result<Said, Vec<Fault>> {
        if self.faults.is_empty() { Ok(self.said) } else { Err(self.faults) }
    }

    fn fault(&mut self, line: Option<u64>, message: String) {
        let line = line.map(|line| self.before + line);
        self.faults.push(Fault { key: self.key.clone(), line, message });
    }

    /// The one document of a text; `None` for a text that holds nothing, or that cannot be read.
    fn document(&mut self, text: &str) -> Option<Spanned<Node>> {
        self.before = 0;
        let read = entries::only_document(text).unwrap_or_else(|error| {
            self.fault(Some(error.line), error.message);
            None
        });
        let (before, root) = read?;
        self.before = before;
        Some(root)
    }

    /// The name of a strategy, as Numaplane has it: empty means none.
    fn name_alone(&mut self, line: Option<u64>, name: &str) {
        let strategy = if name.is_empty() { Ok(Strategy::NoStrategy) } else { Strategy::read(name) };
        match strategy {
            Ok(strategy) => {
                self.said.fallback.strategy = Some(strategy);
                self.alone = self.key.clone().map(|key| (key, strategy));
            }
            Err(words) => self.fault(line, words),
        }
    }

    /// What a rollout would have as `spec.strategy`.
    fn block(&mut self, line: u64, node: &Node) {
        let mut said = Fallback::default();
        for (name, line, node) in self.map(BLOCK, "type, assessment and ppnd", line, node) {
            match name.as_str() {
                "type" => said.strategy = self.kind(line, node),
                "assessment" => {
                    let keys = "deadline, window and interval";
                    for (name, line, node) in self.map(&name, keys, line, node) {
                        match name.as_str() {
                            "deadline" => said.deadline = self.wait("assessment.deadline", line, node),
                            "window" => said.window = self.wait("assessment.window", line, node),
                            "interval" => said.interval = self.wait("assessment.interval", line, node),
                            _ => self.unknown("assessment", keys, &name, line),
                        }
                    }
                }
                "ppnd" => {
                    let keys = "drainTimeout and onDrainTimeout";
                    for (name, line, node) in self.map(&name, keys, line, node) {
                        match name.as_str() {
                            "drainTimeout" => said.drain_timeout = self.wait("ppnd.drainTimeout", line, node),
                            "onDrainTimeout" => said.on_drain_timeout = self.on_drain_timeout(line, node),
                            _ => self.unknown("ppnd", keys, &name, line),
                        }
                    }
                }
                "forcePromote" => {
                    let message =
                        "forcePromote is an order to one rollout, not something to fall back to; remove it here";
                    self.fault(Some(line), format!("{message}, and set it in the spec of that rollout"));
                }
                _ => self.unknown(BLOCK, "type, assessment and ppnd", &name, line),
            }
        }
        let strategy = said.strategy.or(self.said.fallback.strategy);
        self.said.fallback = Fallback { strategy, ..said };
    }

    /// The entries of a map, without those given twice.
    fn map<'n>(&mut self, what: &str, keys: &str, line: u64, node: &'n Node) -> Vec<(String, u64, &'n Node)> {
        let keyed = entries::keyed(node).unwrap_or_else(|is| {
            self.fault(Some(line), format!("{what} is {is}; it must be a map with {keys}, as in a rollout"));
            Keyed::default()
        });
        for (name, line) in keyed.again {
            self.fault(Some(line), format!("{name} is given twice; remove one of the two"));
        }
        keyed.entries
    }

    fn unknown(&mut self, parent: &str, keys: &str, name: &str, line: u64) {
        self.fault(Some(line), format!("{parent} has no key {name}; those it may have are {keys}"));
    }

    fn kind(&mut self, line: u64, node: &Node) -> Option<Strategy> {
        let read = Strategy::read(self.text("type", Strategy::NAMES, line, node)?);
        let strategy = read.map_err(|words| self.fault(Some(line), format!("type: {words}"))).ok()?;
        if let Some((key, alone)) = self.alone.clone().filter(|(_, alone)| *alone != strategy) {
            let (this, that) = (strategy.as_str(), alone.as_str());
            self.fault(Some(line), format!("type is {this}, but {key} says {that}; remove one of the two"));
        }
        Some(strategy)
    }

    fn wait(&mut self, path: &str, line: u64, node: &Node) -> Option<Duration> {
        let text = self.text(path, "a duration with a unit, like \"90s\", \"10m\" or \"1h30m\"", line, node)?;
        match Wait::from(text).get() {
            Ok(duration) => Some(duration),
            Err(error) => {
                self.fault(Some(line), format!("{path}: {error}"));
                None
            }
        }
    }

    fn on_drain_timeout(&mut self, line: u64, node: &Node) -> Option<OnDrainTimeout> {
        let path = "ppnd.onDrainTimeout";
        let text = self.text(path, "Proceed or Abort", line, node)?;
        let read = OnDrainTimeout::read(text);
        read.map_err(|words| self.fault(Some(line), format!("{path}: {words}; use one of them"))).ok()
    }

    /// Text; nothing at all says nothing, as everywhere in Kubernetes.
    fn text<'n>(&mut self, path: &str, wanted: &str, line: u64, node: &'n Node) -> Option<&'n str> {
        match node {
            Shape::Scalar(Scalar::Nothing) => None,
            Shape::Scalar(Scalar::Text(text)) => Some(text),
            other => {
                self.fault(Some(line), format!("{path} is {}; it must be {wanted}", other.what()));
                None
            }
        }
    }
}
