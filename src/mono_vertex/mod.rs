//! The MonoVertex tier: what to do next for one MonoVertexRollout. Pure.
//!
//! As pipelines, but simpler: a MonoVertex does not drain, may be told another phase at any time, and is paused for nobody else.

mod change;
mod clocks;
pub mod decide;
mod delete;
mod desired;
mod report;
pub mod snapshot;
mod steer;
#[cfg(test)]
mod tests;
mod want;

pub use decide::decide;
