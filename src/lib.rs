//! Installs, upgrades and rolls back the Numaflow controller and the pipelines under it, without ever getting stuck.
//!
//! ```text
//! watch ─▶ stores ─▶ observe ─▶ Snapshot ─▶ decide ─▶ Plan ─▶ apply ─▶ status ─▶ report
//!           (reads)             (pure data)  (pure)    (data)  (writes)
//! ```
//!
//! | rooms | what lives there |
//! |---|---|
//! | [`api`] | the kinds users write, labels, CRDs |
//! | [`definitions`], [`manifest`] | versions from ConfigMaps to objects (pure) |
//! | [`names`], [`nearest`], [`words`] | names that Kubernetes takes, what a slip of the pen was meant for, how things are said (pure) |
//! | [`fallback`] | configuration: what rollouts that say nothing use (pure) |
//! | [`valid`] | what is wrong with a spec, before anything is done for it (pure) |
//! | [`admission`] | what is asked before an object is stored, and the answer (pure) |
//! | [`changes`] | which change of a pipeline, ISB service or MonoVertex needs what (pure) |
//! | [`rollout`], [`controller`] | the two tiers of a controller: what to do next (pure) |
//! | [`drain`] | before something changes that pipelines depend on: who is asked to pause, who answers what, when nobody waits any longer (pure) |
//! | [`pipeline`], [`isb`], [`mono_vertex`], [`numaflow`] | pipelines, ISB services and MonoVertices: what to do next, and what their states mean (pure) |
//! | [`wrapped`] | what their rollouts have in common: templates, drift, numbers, what was given up (pure) |
//! | [`summary`], [`finalizer`], [`time`] | what a turn comes to, when an object is held and let go, how times in a status count (pure) |
//! | [`plan`], [`live`], [`evidence`] | steps, seen objects, and what was read of leases and pods, as data |
//! | [`watch`], [`store`], [`world`], [`observe`] | from the cluster to a snapshot (reads) |
//! | [`cluster`] | the one writer |
//! | [`operator`], [`queue`] | who takes a turn when |
//! | [`webhook`] | the server that is asked before an object is stored, and its certificates |
//! | [`cli`], [`clock`], [`nesting`], [`settings`], [`config_file`], [`looked_at`], [`metrics`], [`admin`], [`kinds`], [`generate`] | the process around it |

pub mod admin;
pub mod admission;
pub mod api;
pub mod changes;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config_file;
pub mod controller;
pub mod definitions;
pub mod drain;
pub mod evidence;
pub mod fallback;
pub mod finalizer;
pub mod generate;
pub mod isb;
pub mod kinds;
pub mod live;
pub mod looked_at;
pub mod manifest;
pub mod metrics;
pub mod mono_vertex;
pub mod names;
pub mod nearest;
pub mod nesting;
pub mod numaflow;
pub mod observe;
pub mod operator;
pub mod pipeline;
pub mod plan;
pub mod queue;
pub mod rollout;
pub mod settings;
pub mod store;
pub mod summary;
pub mod time;
pub mod valid;
pub mod watch;
pub mod webhook;
pub mod words;
pub mod world;
pub mod wrapped;
