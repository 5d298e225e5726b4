//! Tier one: a NumaflowControllerRollout owns versioned children and gives production to one of them.
//!
//! `snapshot` is the data, `resolve` finds the wanted version, `decide` (with a room for each
//! stage, and `delete`) makes the plan, `report` says what is going on. All pure.

mod alive;
mod attempt;
mod buffers;
mod decide;
mod delete;
mod drain;
mod enter;
mod judge;
mod pause;
mod report;
pub mod resolve;
pub mod snapshot;
mod stages;
#[cfg(test)]
mod tests;
mod upkeep;
mod verify;

pub use decide::decide;
