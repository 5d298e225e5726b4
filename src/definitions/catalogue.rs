//! All definitions known, by namespace and version.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    definition::{Definition, EntryError, EntryPlace, Located, Parsed},
    versions,
};
use crate::nearest::nearest;

/// All definitions known, by namespace and version; what it answers does not depend on the order in which ConfigMaps
/// came.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    namespaces: BTreeMap<String, Namespace>,
}

#[derive(Clone, Debug, Default)]
struct Namespace {
    config_maps: BTreeMap<String, Parsed>,
    /// What the ConfigMaps together say about each version.
    versions: BTreeMap<String, Statement>,
}

/// What a namespace says about a version.
#[derive(Clone, Debug, PartialEq)]
enum Statement {
    /// The definition, and what is equal for those that say the same.
    Good(Arc<Definition>, String),
    Ambiguous(Vec<EntryPlace>),
    Malformed(EntryError),
}

/// The answer to who asks for a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The definition.
    Found(Arc<Definition>),
    /// No namespace says anything about the version.
    Missing {
        /// Versions that are defined, in their order.
        defined: Vec<String>,
        /// ConfigMaps that were looked at, as `namespace/name`.
        looked_at: Vec<String>,
        /// The version that was probably meant.
        nearest: Option<String>,
    },
    /// It is defined with different content in these places.
    Ambiguous {
        /// Where each of them stands.
        places: Vec<EntryPlace>,
    },
    /// Its only definition is not one.
    Malformed(EntryError),
}

/// What is said about a version, for comparing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saying<'c> {
    /// Nothing.
    Nothing,
    /// A definition: equal for those that say the same, however they are written.
    Definition(&'c str),
    /// Definitions with different content.
    Ambiguous,
    /// Something that is no definition.
    Malformed,
}

/// How many there are, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Good entries.
    pub good: usize,
    /// Bad entries and values that are no list of entries.
    pub malformed: usize,
    /// Versions defined with different content within one namespace.
    pub ambiguous: usize,
}

impl Catalogue {
    /// A catalogue without definitions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in what the ConfigMap `name` says now, in place of what it said before. Answers the versions about which
    /// the namespace says something else than before: who asked for one of them should ask again.
    pub fn set(&mut self, namespace: &str, name: &str, parsed: Parsed) -> BTreeSet<String> {
        let namespace = self.namespaces.entry(namespace.to_owned()).or_default();
        namespace.config_maps.insert(name.to_owned(), parsed);
        namespace.update()
    }

    /// Forgets the ConfigMap `name`. Answers as [`Self::set`] does.
    pub fn remove(&mut self, namespace: &str, name: &str) -> BTreeSet<String> {
        let Some(known) = self.namespaces.get_mut(namespace) else { return BTreeSet::new() };
        if known.config_maps.remove(name).is_none() {
            return BTreeSet::new();
        }
        let changed = known.update();
        if known.config_maps.is_empty() {
            self.namespaces.remove(namespace);
        }
        changed
    }

    /// What `namespaces` say about `version`: the first that says anything decides. So a namespace can have a version
    /// of its own, and a slip in it is told instead of answered by another namespace.
    #[must_use]
    pub fn lookup(&self, namespaces: &[&str], version: &str) -> Lookup {
        match self.statement(namespaces, version) {
            Some(Statement::Good(definition, _)) => Lookup::Found(definition.clone()),
            Some(Statement::Ambiguous(places)) => Lookup::Ambiguous { places: places.clone() },
            Some(Statement::Malformed(error)) => Lookup::Malformed(error.clone()),
            None => {
                let defined = self.versions(namespaces);
                let nearest = nearest(version, defined.iter().map(String::as_str)).map(str::to_owned);
                Lookup::Missing { nearest, looked_at: self.config_maps(namespaces), defined }
            }
        }
    }

    /// What `namespaces` say about `version`, without what it comes to.
    #[must_use]
    pub fn saying(&self, namespaces: &[&str], version: &str) -> Saying<'_> {
        match self.statement(namespaces, version) {
            None => Saying::Nothing,
            Some(Statement::Good(_, fingerprint)) => Saying::Definition(fingerprint),
            Some(Statement::Ambiguous(_)) => Saying::Ambiguous,
            Some(Statement::Malformed(_)) => Saying::Malformed,
        }
    }

    fn statement(&self, namespaces: &[&str], version: &str) -> Option<&Statement> {
        namespaces.iter().find_map(|namespace| self.namespaces.get(*namespace)?.versions.get(version))
    }

    /// The versions that `namespaces` say anything about, malformed and ambiguous ones included, in their natural
    /// order.
    #[must_use]
    pub fn versions(&self, namespaces: &[&str]) -> Vec<String> {
        let all: BTreeSet<_> = self.known(namespaces).flat_map(|(_, known)| known.versions.keys()).collect();
        let mut all: Vec<_> = all.into_iter().cloned().collect();
        all.sort_by(|a, b| versions::order(a, b));
        all
    }

    /// The ConfigMaps of `namespaces` as `namespace/name`, sorted.
    #[must_use]
    pub fn config_maps(&self, namespaces: &[&str]) -> Vec<String> {
        let names = |(namespace, known): (&str, &Namespace)| {
            known.config_maps.keys().map(|name| format!("{namespace}/{name}")).collect::<Vec<_>>()
        };
        let all: BTreeSet<_> = self.known(namespaces).flat_map(names).collect();
        all.into_iter().collect()
    }

    /// Everything that is wrong, in the order of ConfigMaps.
    pub fn errors(&self) -> impl Iterator<Item = &EntryError> {
        self.parsed().flat_map(|parsed| &parsed.errors)
    }

    /// How many entries are good, bad and ambiguous.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let ambiguous = |known: &Namespace| {
            known.versions.values().filter(|statement| matches!(statement, Statement::Ambiguous(_))).count()
        };
        Counts {
            good: self.parsed().map(|parsed| parsed.definitions.len()).sum(),
            malformed: self.parsed().map(|parsed| parsed.errors.len()).sum(),
            ambiguous: self.namespaces.values().map(ambiguous).sum(),
        }
    }

    fn parsed(&self) -> impl Iterator<Item = &Parsed> {
        self.namespaces.values().flat_map(|known| known.config_maps.values())
    }

    fn known<'c>(&'c self, namespaces: &[&'c str]) -> impl Iterator<Item = (&'c str, &'c Namespace)> {
        namespaces.iter().filter_map(|namespace| Some((*namespace, self.namespaces.get(*namespace)?)))
    }
}

impl Namespace {
    /// Works out the statements anew; answers the versions for which they changed.
    fn update(&mut self) -> BTreeSet<String> {
        let mut good: BTreeMap<&str, Vec<&Located>> = BTreeMap::new();
        for located in self.config_maps.values().flat_map(|parsed| &parsed.definitions) {
            good.entry(&located.definition.version).or_default().push(located);
        }
        let mut versions = BTreeMap::new();
        // A bad entry takes nothing from a good one of the same version, so good ones are written last.
        for error in self.config_maps.values().flat_map(|parsed| &parsed.errors) {
            if let Some(version) = &error.version {
                versions.entry(version.clone()).or_insert_with(|| Statement::Malformed(error.clone()));
            }
        }
        for (version, located) in good {
            versions.insert(version.to_owned(), Statement::of(&located));
        }
        let old = std::mem::replace(&mut self.versions, versions);
        let all: BTreeSet<&String> = old.keys().chain(self.versions.keys()).collect();
        all.into_iter().filter(|version| old.get(*version) != self.versions.get(*version)).cloned().collect()
    }
}

impl Statement {
    /// What entries of one version say together.
    fn of(located: &[&Located]) -> Self {
        let mut sorted = located.to_vec();
        // Entries that say the same may be written differently; which one stands for them must not depend on chance.
        sorted.sort_by(|a, b| a.place.cmp(&b.place));
        let Some(first) = sorted.first() else { return Self::Ambiguous(Vec::new()) };
        if sorted.iter().all(|other| other.says_the_same(first)) {
            return Self::Good(first.definition.clone(), first.fingerprint.clone());
        }
        Self::Ambiguous(sorted.iter().map(|located| located.place.clone()).collect())
    }
}

#[cfg(test)]
mod tests;
