//! What is decided for MonoVertices, told as stories about a model of a cluster with Numaflow in it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod changes;
mod clocks;
mod deletion;
mod model;
mod pauses;
mod properties;

use std::sync::Arc;

use crate::changes::{Rule, Rules};

/// Rules as a platform team may write them: another source needs a pause, another sink a new MonoVertex.
fn lists() -> Arc<Rules> {
    let all_of = |path: &str| Rule { path: path.to_owned(), include_subfields: true };
    let (recreate, data_loss) = (vec![all_of("spec.sink")], vec![all_of("spec.source")]);
    Arc::new(Rules { recreate, data_loss, progressive: Vec::new() })
}

/// Rules as they are built in.
fn built_in() -> Arc<Rules> {
    Arc::new(Rules::built_in(crate::changes::Kind::MonoVertex))
}
