//! What is decided for pipelines, told as stories about a model of a cluster with Numaflow in it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changing;
mod clocks;
mod deletion;
mod force;
mod invalid;
mod isb_names;
mod model;
mod moves;
mod properties;
mod restarts;
mod scenarios;
mod traps;

/// Rules as they are built in.
fn rules() -> std::sync::Arc<crate::changes::Rules> {
    std::sync::Arc::new(crate::changes::Rules::built_in(crate::changes::Kind::Pipeline))
}
