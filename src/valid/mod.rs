//! What a spec must be like before anything is done for it, kind by kind: all that is wrong with it, field by field, and what is
//! legal but likely not meant. Pure.
//!
//! The reconcilers and the webhook ask the same functions, so that what is admitted is never refused later on.

mod controller;
mod edges;
mod isb_service;
mod mono_vertex;
mod names;
mod pipeline;
mod place;
mod side_inputs;
mod slips;
mod strategy;
mod template;
mod vertex;
mod vertices;

use std::fmt;

pub use self::{
    controller::controller,
    isb_service::{isb_service, isb_service_called},
    mono_vertex::{mono_vertex, mono_vertex_called},
    pipeline::{pipeline, pipeline_called},
};

/// Most findings that a sentence lists.
const MOST: usize = 20;

/// Something that a field says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Finding {
    /// Path of the field, like `spec.controller.version`.
    pub field: String,
    /// What is wrong with it, and what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// All that is to be said of a spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// What has to be changed, in the order of the fields.
    pub violations: Vec<Finding>,
    /// What is legal but likely not meant.
    pub warnings: Vec<Finding>,
    /// How often it was guessed what was meant.
    guesses: usize,
}

impl Findings {
    /// Says that a field has to be changed.
    pub fn violation(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.violations.push(Finding { field: field.into(), message: message.into() });
    }

    /// Says that a field is likely not meant like this.
    pub fn warning(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(Finding { field: field.into(), message: message.into() });
    }

    /// Nothing, if nothing has to be changed.
    ///
    /// # Errors
    /// All that has to be, as one sentence.
    pub fn check(&self) -> Result<(), String> {
        if self.violations.is_empty() { Ok(()) } else { Err(sentence(&self.violations)) }
    }
}

/// Findings as one text; where there are more than anybody reads, the first of them, and how many more.
#[must_use]
pub fn sentence(findings: &[Finding]) -> String {
    let shown = findings.iter().take(MOST).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    match findings.len().saturating_sub(MOST) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

#[cfg(test)]
mod tests;
