//! The ISB service tier: what to do next for one ISBServiceRollout. Pure.

pub mod decide;
pub mod snapshot;

pub use decide::decide;
