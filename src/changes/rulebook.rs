//! The rules that hold now: what is built in, and what the ConfigMaps of the operator's namespace say over it.

use std::{collections::BTreeMap, sync::Arc};

use super::{Kind, Lists, Rules, Written};
use crate::fallback::Notice;

/// The rules of all kinds.
#[derive(Clone, Debug)]
pub struct Rulebook {
    maps: BTreeMap<String, Known>,
    rules: BTreeMap<Kind, Arc<Rules>>,
}

/// A ConfigMap.
#[derive(Clone, Debug, Default)]
struct Known {
    uid: String,
    /// Whether anything in it could be used at some time.
    usable: bool,
    /// What it said of each kind when that could be used last.
    good: BTreeMap<Kind, Lists>,
    /// What is wrong with it now.
    faults: Vec<String>,
    /// What its users have been told.
    told: Vec<String>,
}

/// What a change of a ConfigMap came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Kinds that have other rules than before.
    pub kinds: Vec<Kind>,
    /// What is to be told.
    pub notices: Vec<Notice>,
}

impl Default for Rulebook {
    fn default() -> Self {
        let rules = Kind::ALL.into_iter().map(|kind| (kind, Arc::new(Rules::built_in(kind)))).collect();
        Self { maps: BTreeMap::new(), rules }
    }
}

impl Rulebook {
    /// The rules of a kind.
    #[must_use]
    pub fn rules(&self, kind: Kind) -> Arc<Rules> {
        // Every kind is there from the beginning.
        self.rules.get(&kind).cloned().unwrap_or_else(|| Arc::new(Rules::built_in(kind)))
    }

    /// Takes in what a ConfigMap says. A kind that cannot be used stands for what was said of it before.
    pub fn set(&mut self, namespace: &str, name: &str, uid: &str, written: &Written) -> Difference {
        let known = self.maps.entry(name.to_owned()).or_default();
        if known.uid != uid {
            // Another one under the same name: the old one was removed, and what it said with it.
            *known = Known { uid: uid.to_owned(), ..Known::default() };
        }
        for kind in Kind::ALL {
            match written.kinds.get(&kind) {
                Some(Ok(lists)) => drop(known.good.insert(kind, lists.clone())),
                Some(Err(_)) => {}
                // With an unknown key, one that is missing may be written wrongly.
                None if !written.unknown.is_empty() => {}
                None => drop(known.good.remove(&kind)),
            }
        }
        let place = format!("ConfigMap {namespace}/{name}");
        known.faults = written.faults().map(|fault| fault.at(&place)).collect();
        known.usable |= known.faults.is_empty() || written.kinds.values().any(Result::is_ok);
        self.difference(namespace)
    }

    /// Forgets a ConfigMap. What it said falls back to what is built in.
    pub fn remove(&mut self, namespace: &str, name: &str) -> Difference {
        self.maps.remove(name);
        self.difference(namespace)
    }

    /// How many ConfigMaps cannot be used as they are, for metrics.
    #[must_use]
    pub fn invalid(&self) -> usize {
        self.maps.values().filter(|known| !known.told.is_empty()).count()
    }

    /// The ConfigMap that counts: the first by name of those of which something could be used. One that never could
    /// takes nothing from them.
    fn counting(&self) -> Option<(&String, &Known)> {
        self.maps.iter().find(|(_, known)| known.usable)
    }

    fn difference(&mut self, namespace: &str) -> Difference {
        let counting = self.counting().map(|(name, known)| (name.clone(), known.good.clone()));
        let (counting, good) = counting.map_or((None, BTreeMap::new()), |(name, good)| (Some(name), good));
        let mut difference = Difference::default();
        for (kind, rules) in &mut self.rules {
            let lists = good.get(kind).cloned().unwrap_or_default();
            let now = Rules::built_in(*kind).with(&lists);
            if **rules != now {
                *rules = Arc::new(now);
                difference.kinds.push(*kind);
            }
        }
        for (name, known) in &mut self.maps {
            let counts = counting.as_ref() == Some(name);
            let meanwhile = if counts {
                "what this key said before stays in use, or else what is built in"
            } else {
                "nothing of it is in use"
            };
            let mut texts: Vec<String> = known.faults.iter().map(|fault| format!("{fault} ({meanwhile})")).collect();
            if let (Some(first), false, true) = (&counting, counts, known.usable) {
                texts.push(format!(
                    "ConfigMap {namespace}/{name}: ConfigMap {namespace}/{first} has the label usde-config too, and \
                     counts because its name comes first; make one of the two (nothing of this one is in use)"
                ));
            }
            let fresh = texts.iter().filter(|text| !known.told.contains(text));
            difference.notices.extend(fresh.map(|text| Notice {
                name: name.clone(),
                uid: known.uid.clone(),
                text: text.clone(),
            }));
            known.told = texts;
        }
        difference
    }
}
