//! What is known of Numaflow's kinds: how to read them, and what their states mean. Pure.

mod dependants;
mod held;
mod isb;
mod mono_vertex;
mod object;
mod ownership;
mod patience;
mod pipeline;
mod plane;

pub use dependants::{Dependant, Dependants};
pub use held::Held;
pub use isb::{IsbEvidence, LiveIsb, StatefulSetSeen};
pub use mono_vertex::{LiveMonoVertex, pods_of_mono_vertex};
pub use object::LiveObject;
pub use ownership::{Ownership, covers};
pub use patience::{GRACE, budget, last_wait};
pub use pipeline::{LivePipeline, Wedged, isb_of};
pub use plane::{DataPlane, VertexPod, VertexSeen};
