//! What is known of Numaflow's kinds: how to read them, and what their states mean. Pure.

mod ownership;
mod pipeline;
mod plane;

pub use ownership::{Ownership, covers};
pub use pipeline::{LivePipeline, Wedged};
pub use plane::{DataPlane, VertexPod, VertexSeen, budget};
