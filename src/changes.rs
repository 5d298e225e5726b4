//! Which change of a Numaflow object needs what. Pure.

use serde_json::Value;

/// Rules of one kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules;

/// What a change needs: with the changed paths, in words.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Nothing changed.
    None,
    /// It can be applied at once.
    Direct(Vec<String>),
    /// It needs a pause.
    Pause(Vec<String>),
    /// The object has to be made anew.
    Recreate(Vec<String>),
}

/// What it takes to get from one spec to another.
#[must_use]
pub fn classify(_kind: &str, old: &Value, new: &Value, _rules: &Rules) -> Change {
    if old == new { Change::None } else { Change::Pause(vec!["spec".to_owned()]) }
}
