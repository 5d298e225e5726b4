//! What tests share: the control plane, namespaces, operators, definitions, and ways to wait and to look.

pub mod asking;
pub mod audit;
pub mod balancer;
pub mod changes;
pub mod control_plane;
pub mod definitions;
pub mod drains;
pub mod faults;
pub mod forward;
pub mod happened;
pub mod leases;
pub mod load;
pub mod mono_rollouts;
pub mod mono_vertices;
pub mod numaflow;
pub mod operator;
pub mod order;
pub mod pauses;
pub mod pipelines;
pub mod production;
pub mod program;
pub mod requesters;
pub mod rest;
pub mod rollouts;
pub mod scene;
pub mod services;
#[path = "../../stand_in/mod.rs"]
pub mod stand_in;
pub mod state;
pub mod team;
pub mod tls;
pub mod wait;
pub mod webhook;

pub use definitions::{Version, Workload, version, workload};
pub use scene::Scene;
pub use team::Team;
pub use wait::{Invariant, eventually, stays, within};
