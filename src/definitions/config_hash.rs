//! Which configuration the pods of a workload use, as a hash: pods do not notice a changed ConfigMap, a changed pod
//! template they do.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{
    hash,
    objects::Object,
    pods,
    references::{self, CONFIG_MAP, SECRET},
};

/// Hexadecimal digits of the hash: enough to tell configurations apart, short enough to read.
const DIGITS: usize = 16;

/// A ConfigMap or Secret: (kind, name).
type Source = (&'static str, String);

/// The content of every ConfigMap and Secret among `objects`.
pub(super) struct Contents(BTreeMap<Source, Value>);

impl Contents {
    pub(super) fn of(objects: &[Object]) -> Self {
        let content = |object: &Object| {
            let (_, kind) = [CONFIG_MAP, SECRET].into_iter().find(|kind| object.key.is_of(*kind))?;
            let field = |name| object.body.get(name).cloned().unwrap_or(Value::Null);
            let content = json!([kind, object.key.name, field("data"), field("binaryData"), field("stringData")]);
            Some(((kind, object.key.name.clone()), content))
        };
        Self(objects.iter().filter_map(content).collect())
    }

    /// Hash of what the pods of `workload` use of these. `None` where it is no workload or uses none of them.
    pub(super) fn hash_for(&self, workload: &Object) -> Option<String> {
        if !pods::is_workload(&workload.key) {
            return None;
        }
        let used: BTreeSet<Source> =
            references::configuration(workload).into_iter().map(|reference| (reference.to.1, reference.name)).collect();
        let mut contents = used.iter().filter_map(|source| self.0.get(source)).peekable();
        contents.peek()?;
        let mut hash = hash::sha256(contents);
        hash.truncate(DIGITS);
        Some(hash)
    }
}
