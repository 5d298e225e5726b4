//! What is decided for ISB services, told as stories about a model of a cluster with Numaflow and pipelines in it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod beside;
mod controllers;
mod deletion;
mod drain;
mod in_place;
mod lost;
mod model;
mod properties;
mod refused;
mod rest;

use model::{Model, Rule, at};
