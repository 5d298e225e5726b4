//! Decisions, tested in a model of the cluster: named scenarios, and properties over random histories.

mod deletion;
mod drain;
mod drained;
mod lost;
mod model;
mod properties;
mod purity;
mod resolve;
mod scenarios;
mod unproven;
mod verify;
