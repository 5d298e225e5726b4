//! Stub.

use super::{definition::Definition, kinds::PermittedKinds, render::{Rendered, render}, template::Instance};

/// What production occupies.
#[derive(Clone, Debug, Default)]
pub struct Footprint { n: usize }

impl Footprint {
    /// Adds.
    pub fn add(&mut self, _group: &str, _kind: &str, _name: &str, _body: &serde_json::Value) { self.n += 1; }
    /// Print.
    #[must_use]
    pub fn fingerprint(&self) -> String { self.n.to_string() }
}

/// Why not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotIsolated(pub String);

/// Isolates.
///
/// # Errors
/// Cannot.
pub fn isolate(definition: &Definition, id: &str, permitted: &PermittedKinds, _production: &Footprint) -> Result<Rendered, NotIsolated> {
    if definition.isolated == Some(false) { return Err(NotIsolated("its definition says isolated: false".into())); }
    render(definition, &Instance { id: id.to_owned(), suffix: format!("-{id}") }, permitted).map_err(|e| NotIsolated(e.to_string()))
}
