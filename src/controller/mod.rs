//! Tier two: a NumaflowController renders one version's objects and reports how they stand. Pure.

pub mod alone;
pub mod produce;
pub mod removal;
pub mod standing;
pub mod status;
pub mod target;
