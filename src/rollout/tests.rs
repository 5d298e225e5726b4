//! Decisions, tested in a model of the cluster: named scenarios, and properties over random histories.

mod drain;
mod drained;
mod model;
mod properties;
mod purity;
mod scenarios;
mod verify;
