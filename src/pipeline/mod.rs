//! The pipeline tier: what to do next for one PipelineRollout. Pure.

mod change;
pub mod decide;
mod delete;
mod desired;
mod heal;
mod report;
pub mod snapshot;
mod steer;
mod template;

pub use decide::decide;
