//! What is known of Numaflow's kinds: how to read them, and what their states mean. Pure.

mod isb;
mod ownership;
mod patience;
mod pipeline;
mod plane;

pub use isb::{IsbEvidence, StatefulSetSeen};
pub use ownership::{Ownership, covers};
pub use patience::{GRACE, budget, last_wait};
pub use pipeline::{LivePipeline, Wedged};
pub use plane::{DataPlane, VertexPod, VertexSeen};
