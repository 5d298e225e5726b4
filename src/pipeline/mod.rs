//! The pipeline tier: what to do next for one PipelineRollout. Pure.

mod change;
pub mod decide;
mod delete;
mod desired;
mod heal;
mod leaving;
mod report;
pub mod snapshot;
mod steer;
mod template;
#[cfg(test)]
mod tests;

pub use decide::decide;
pub use leaving::{Leaving, leave};
