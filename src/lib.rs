//! Installs, upgrades and rolls back the Numaflow controller and the pipelines under it, without ever getting stuck.
//!
//! ```text
//! watch ─▶ stores ─▶ observe ─▶ Snapshot ─▶ decide ─▶ Plan ─▶ apply ─▶ status ─▶ report
//!           (reads)             (pure data)  (pure)    (data)  (writes)
//! ```

pub mod api;
pub mod definitions;
pub mod controller;
pub mod live;
pub mod manifest;
pub mod plan;
pub mod rollout;
pub mod settings;
