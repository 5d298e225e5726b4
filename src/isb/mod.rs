//! The ISB service tier: what to do next for one ISBServiceRollout. Pure.

mod beside;
mod change;
mod clocks;
mod controller;
pub mod decide;
mod delete;
mod drain;
mod in_place;
mod judge;
pub mod manner;
mod report;
pub mod snapshot;
mod stages;
mod upkeep;

pub use decide::decide;

#[cfg(test)]
mod tests;
