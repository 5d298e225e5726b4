//! What rollouts fall back to where they say nothing: their namespace's configuration, then the operator's file, then
//! what is built in, field by field. Pure.

mod parse;

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    time::Duration,
};

pub use self::parse::{parse_config_map, parse_file};
use crate::{
    api::{OnDrainTimeout, Strategy},
    settings::Defaults,
    words,
};

/// What one place says; what it leaves out is for the next one to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fallback {
    /// Strategy.
    pub strategy: Option<Strategy>,
    /// Time to become ready.
    pub deadline: Option<Duration>,
    /// Time to stay healthy.
    pub window: Option<Duration>,
    /// Time between two looks.
    pub interval: Option<Duration>,
    /// Longest time for a drain.
    pub drain_timeout: Option<Duration>,
    /// What happens then.
    pub on_drain_timeout: Option<OnDrainTimeout>,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = [
            self.strategy.map(|s| format!("type {}", s.as_str())),
            self.deadline.map(|d| format!("assessment.deadline {}", words::duration(d))),
            self.window.map(|d| format!("assessment.window {}", words::duration(d))),
            self.interval.map(|d| format!("assessment.interval {}", words::duration(d))),
            self.drain_timeout.map(|d| format!("ppnd.drainTimeout {}", words::duration(d))),
            self.on_drain_timeout.map(|a| format!("ppnd.onDrainTimeout {}", a.as_str())),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        f.write_str(if said.is_empty() { "nothing" } else { "" })?;
        f.write_str(&said.join(", "))
    }
}

impl Defaults {
    /// These defaults, with what a fall-back says over them.
    #[must_use]
    pub fn with(self, fallback: &Fallback) -> Self {
        Self {
            strategy: fallback.strategy.unwrap_or(self.strategy),
            deadline: fallback.deadline.unwrap_or(self.deadline),
            window: fallback.window.unwrap_or(self.window),
            interval: fallback.interval.unwrap_or(self.interval),
            drain_timeout: fallback.drain_timeout.or(self.drain_timeout),
            on_drain_timeout: fallback.on_drain_timeout.unwrap_or(self.on_drain_timeout),
        }
    }
}

/// What a configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// What rollouts fall back to.
    pub fallback: Fallback,
    /// Keys that mean nothing here, in their order.
    pub ignored: Vec<String>,
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The key of a file or of a ConfigMap's data; `None` where the trouble is not in one key.
    pub key: Option<String>,
    /// 1-based line in the file, or in the value of the key.
    pub line: Option<u64>,
    /// What is wrong and what to do.
    pub message: String,
}

impl Fault {
    /// The sentence about it, where `place` is what it was found in.
    #[must_use]
    pub fn at(&self, place: &str) -> String {
        let key = self.key.as_ref().map(|key| format!(", key {key:?}")).unwrap_or_default();
        let line = self.line.map(|line| format!(", line {line}")).unwrap_or_default();
        format!("{place}{key}{line}: {}", self.message)
    }
}

/// What there is to fall back to in every namespace.
#[derive(Clone, Debug)]
pub struct Fallbacks {
    built_in: Defaults,
    file: Fallback,
    file_broken: bool,
    /// Namespace-level ConfigMaps by namespace and name.
    namespaces: BTreeMap<String, BTreeMap<String, Known>>,
}

/// A namespace-level ConfigMap.
#[derive(Clone, Debug, Default)]
struct Known {
    uid: String,
    /// What it said when it could be used last.
    good: Option<Fallback>,
    /// What is wrong with it now.
    faults: Vec<String>,
    /// What its users have been told.
    told: Vec<String>,
}

/// What a change came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// What the namespace says now, if that is not what it said before.
    pub says: Option<Fallback>,
    /// What is to be told.
    pub notices: Vec<Notice>,
}

/// Something to be told about a namespace-level ConfigMap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Name of the ConfigMap.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// What is wrong, what to do, and what holds until then.
    pub text: String,
}

/// How many configurations cannot be used as they are, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Invalid {
    /// 1 if the file cannot be used.
    pub file: usize,
    /// Namespace-level ConfigMaps.
    pub namespaces: usize,
}

impl Fallbacks {
    /// Nothing but what is built in.
    #[must_use]
    pub fn new(built_in: Defaults) -> Self {
        Self { built_in, file: Fallback::default(), file_broken: false, namespaces: BTreeMap::new() }
    }

    /// What the rollouts of a namespace use where they say nothing.
    #[must_use]
    pub fn defaults(&self, namespace: &str) -> Defaults {
        self.built_in.with(&self.file).with(&self.of(namespace))
    }

    /// Takes in what the file says. Answers whether that is something else than before.
    pub fn set_file(&mut self, said: &Said) -> bool {
        self.file_broken = false;
        std::mem::replace(&mut self.file, said.fallback) != said.fallback
    }

    /// The file cannot be used: what it said before holds on.
    pub fn break_file(&mut self) {
        self.file_broken = true;
    }

    /// Takes in what a namespace-level ConfigMap says. One that cannot be used stands for what it said before.
    pub fn set(&mut self, namespace: &str, name: &str, uid: &str, read: &Result<Said, Vec<Fault>>) -> Difference {
        let before = self.of(namespace);
        let known = self.namespaces.entry(namespace.to_owned()).or_default().entry(name.to_owned()).or_default();
        if known.uid != uid {
            // Another one under the same name: the old one was removed, and what it said with it.
            *known = Known { uid: uid.to_owned(), ..Known::default() };
        }
        match read {
            Ok(said) => {
                known.good = Some(said.fallback);
                known.faults.clear();
            }
            Err(faults) => {
                let place = format!("ConfigMap {namespace}/{name}");
                known.faults = faults.iter().map(|fault| fault.at(&place)).collect();
            }
        }
        self.difference(namespace, before)
    }

    /// Forgets a namespace-level ConfigMap.
    pub fn remove(&mut self, namespace: &str, name: &str) -> Difference {
        let before = self.of(namespace);
        if let Some(maps) = self.namespaces.get_mut(namespace) {
            maps.remove(name);
            if maps.is_empty() {
                self.namespaces.remove(namespace);
            }
        }
        self.difference(namespace, before)
    }

    /// How many configurations cannot be used as they are.
    #[must_use]
    pub fn invalid(&self) -> Invalid {
        let maps = self.namespaces.values().flat_map(BTreeMap::values);
        Invalid { file: usize::from(self.file_broken), namespaces: maps.filter(|known| !known.told.is_empty()).count() }
    }

    fn of(&self, namespace: &str) -> Fallback {
        self.namespaces.get(namespace).and_then(counting).map(|(_, fallback)| fallback).unwrap_or_default()
    }

    fn difference(&mut self, namespace: &str, before: Fallback) -> Difference {
        let after = self.of(namespace);
        let mut notices = Vec::new();
        if let Some(maps) = self.namespaces.get_mut(namespace) {
            let counting = counting(maps).map(|(name, _)| name.to_owned());
            for (name, known) in maps {
                let counts = counting.as_ref() == Some(name);
                let meanwhile = if counts { "what it said before stays in use" } else { "nothing of it is in use" };
                let mut texts: Vec<String> =
                    known.faults.iter().map(|fault| format!("{fault} ({meanwhile})")).collect();
                if let (Some(first), false, Some(_)) = (&counting, counts, known.good) {
                    texts.push(format!(
                        "ConfigMap {namespace}/{name}: ConfigMap {namespace}/{first} has the label \
                         namespace-level-config too, and counts because its name comes first; make one of the two \
                         (nothing of this one is in use)"
                    ));
                }
                let told: HashSet<&String> = known.told.iter().collect();
                let fresh = texts.iter().filter(|text| !told.contains(text));
                notices.extend(fresh.map(|text| Notice {
                    name: name.clone(),
                    uid: known.uid.clone(),
                    text: text.clone(),
                }));
                known.told = texts;
            }
        }
        Difference { says: (after != before).then_some(after), notices }
    }
}

/// The ConfigMap that speaks for a namespace: the first by name of those that could be used at some time. One that
/// never could takes nothing from them.
fn counting(maps: &BTreeMap<String, Known>) -> Option<(&str, Fallback)> {
    maps.iter().find_map(|(name, known)| Some((name.as_str(), known.good?)))
}

#[cfg(test)]
mod tests;
