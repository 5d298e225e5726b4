//! The pipeline tier: what to do next for one PipelineRollout. Pure.

mod answer;
mod change;
mod clocks;
pub mod decide;
mod delete;
mod desired;
mod heal;
mod isb_name;
mod leaving;
mod nudge;
mod own_change;
mod report;
pub mod snapshot;
mod steer;
#[cfg(test)]
mod tests;
mod want;

pub use decide::decide;
pub use leaving::{Leaving, leave};
