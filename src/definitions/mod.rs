//! Controller definitions: from the ConfigMaps of the platform team to the objects that are applied.
//!
//! ```text
//! ConfigMap ─parse─▶ Definition ─▶ Catalogue ─lookup─▶ Definition ─render(instance)─▶ objects, hash
//!     └▶ EntryError: entry, line, what to do               └▶ missing, ambiguous,  isolate(id, footprint) ─▶ the same
//!                                                             malformed: why          beside production, or why not
//! ```
//!
//! Everything here is pure: text in, values out. Who may define, what is pinned and when something is applied is
//! decided elsewhere.

mod catalogue;
mod config_hash;
mod controller_config;
mod definition;
pub(crate) mod entries;
mod hash;
mod isolate;
mod kinds;
mod leader;
mod normalise;
mod objects;
mod parse;
mod pods;
mod references;
mod render;
mod salvage;
mod selectors;
mod template;
mod versions;
pub(crate) mod yaml;

pub use catalogue::{Catalogue, Counts, Lookup, Saying};
pub(crate) use controller_config::isbsvc as isbsvc_settings;
pub use definition::{ConfigMapName, Definition, EntryError, EntryPlace, Located, Parsed};
pub use isolate::{Footprint, NotIsolated, isolate};
pub use kinds::{KindError, PermittedKinds, cluster_scoped};
pub use leader::{Leader, leader, lease_of_instance};
pub use objects::{DocumentError, Object, ObjectKey, Place};
pub use parse::parse_config_map;
pub use render::{RenderError, Rendered, render};
pub use template::{Instance, render_template};
pub(crate) use versions::{bare, order};
// Where others still look for it.
