//! The phase of an object, as every status has it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where an object stands. Stored as a text without an enum in the schema, so that any operator can read any status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Phase(String);

impl Phase {
    /// Something is waited for.
    #[must_use]
    pub fn pending() -> Self {
        Self("Pending".to_owned())
    }
    /// The desired spec is in place.
    #[must_use]
    pub fn deployed() -> Self {
        Self("Deployed".to_owned())
    }
    /// The desired spec is not in place, and only a change will help.
    #[must_use]
    pub fn failed() -> Self {
        Self("Failed".to_owned())
    }
    /// Nobody has looked yet.
    #[must_use]
    pub fn is_unset(&self) -> bool {
        self.0.is_empty()
    }
    /// The text as stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
