//! The operator against a real API server: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and simulated
//! nodes, one control plane for all tests, a namespace and an operator of its own for each.
//!
//! Tests mostly wait, so run more of them at once than there are cores: `cargo test --test it -- --test-threads 8`.
//! `KEEP=1` leaves control plane and namespaces running for a look at them, `RUST_LOG` sets what the operators log.

// A test may stop where it stands: a panic is the report. So may what tests share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// `json!` makes its argument anew wherever it is written, so that it is passed by value.
#![allow(clippy::needless_pass_by_value)]
// The version of a `Version` is called that.
#![allow(clippy::struct_field_names)]

mod support;

mod admission;
mod alone;
mod at_rest;
mod certificates;
mod children;
mod conflicts;
mod counts;
mod crash;
mod crds;
mod dataplane;
mod definitions;
mod deletion;
mod draining;
mod fallbacks;
mod isb_names;
mod isb_services;
mod manifests;
mod many;
mod measured;
mod mono_vertices;
mod mono_vertices_paused;
mod namespaces_many;
mod nesting;
mod objects;
mod overlapping;
mod pausing;
mod pipelines;
mod pipelines_gone;
mod pipelines_paused;
mod pipelines_rules;
mod promotion;
mod recovery;
mod refusals;
mod restarts;
mod resuming;
mod retold;
mod seed;
mod shapes;
mod stand_in;
mod stand_in_mono_vertices;
mod stand_in_pipelines;
mod stand_in_services;
mod steering;
mod timeline;
mod timeline_pipelines;
mod traps;
mod traps_around;
mod whole_cluster;
