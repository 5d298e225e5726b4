//! What a ConfigMap says: definitions, and what is wrong with those that are none.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

/// One version of the controller as the platform team wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// The version, as rollouts name it.
    pub version: String,
    /// The template of the objects: YAML documents with `{{ .InstanceSuffix }}` and `{{ .InstanceID }}`.
    pub full_spec: String,
    /// Whether the objects can be rendered in isolation beside production; `None` leaves it to the operator to find
    /// out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<bool>,
    /// Whether the controller elects a leader; `None` leaves it to the operator to find out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_election: Option<bool>,
}

/// Which ConfigMap; displays as `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConfigMapName {
    /// Its namespace.
    pub namespace: String,
    /// Its name in there.
    pub name: String,
}

impl fmt::Display for ConfigMapName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where an entry stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryPlace {
    /// The ConfigMap.
    pub configmap: ConfigMapName,
    /// The key in its `data`.
    pub key: String,
    /// 1-based number of the entry in the value of that key.
    pub entry: usize,
    /// 1-based line of that value on which the entry begins.
    pub line: u64,
}

impl fmt::Display for EntryPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { configmap, key, entry, line } = self;
        write!(f, "ConfigMap {configmap}, key {key:?}, entry {entry}, line {line}")
    }
}

/// A definition and where it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The definition.
    pub definition: Arc<Definition>,
    /// Where it stands.
    pub place: EntryPlace,
    /// Equal for entries that say the same: same objects, same settings, however they are written.
    pub(super) fingerprint: String,
}

impl Located {
    /// Whether two entries say the same: same objects, same settings, however they are written.
    #[must_use]
    pub fn says_the_same(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

/// What is wrong with an entry, or with a value as a whole. Displays as a sentence that says where it is and what to
/// do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct EntryError {
    /// The ConfigMap.
    pub configmap: ConfigMapName,
    /// The key in its `data`.
    pub key: String,
    /// 1-based number of the entry; `None` where the trouble is not in one entry.
    pub entry: Option<usize>,
    /// The version the entry was to define, if it can be read.
    pub version: Option<String>,
    /// 1-based line in the value of the key.
    pub line: Option<u64>,
    /// 1-based line of `fullSpec`, where it is not known which line of the value that is.
    pub spec_line: Option<u64>,
    /// What is wrong and what to do, without any line: those change with what stands before.
    pub message: String,
}

impl EntryError {
    /// The sentence about it for who knows ConfigMap and key.
    #[must_use]
    pub fn in_key(&self) -> String {
        let entry = self.entry.map(|entry| format!("entry {entry}")).unwrap_or_default();
        let version = self.version.as_ref().map(|version| format!(" (version {version:?})")).unwrap_or_default();
        let line = self.line.map(|line| format!("line {line}")).unwrap_or_default();
        let place: Vec<String> = [entry + &version, line].into_iter().filter(|part| !part.is_empty()).collect();
        let place = if place.is_empty() { String::new() } else { place.join(", ") + ": " };
        let end = self.spec_line.map(|line| format!(" (line {line} of fullSpec)")).unwrap_or_default();
        format!("{place}{}{end}", self.message)
    }
}

impl fmt::Display for EntryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let placed = self.entry.is_some() || self.line.is_some() || self.version.is_some();
        let end = if placed { "," } else { ":" };
        write!(f, "ConfigMap {}, key {:?}{end} {}", self.configmap, self.key, self.in_key())
    }
}

/// Everything one ConfigMap says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The good entries.
    pub definitions: Vec<Located>,
    /// The bad ones, and values that are no list of entries.
    pub errors: Vec<EntryError>,
}
