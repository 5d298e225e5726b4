//! The MonoVertex tier: what to do next for one MonoVertexRollout. Pure.

pub mod decide;
pub mod snapshot;

pub use decide::decide;
