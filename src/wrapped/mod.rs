//! What the rollouts of pipelines, ISB services and MonoVertices have in common: each wraps one object of Numaflow's, makes it
//! from a template, keeps it as it should be, and gives it a number. Pure.

mod drift;
mod last_change;
mod numbers;
mod template;
mod wanted;

pub use drift::{drifted, removal};
pub use last_change::{Now, Tries};
pub use numbers::{current, next_name, no_next};
pub use template::Names;
pub use wanted::{NoPhase, Wanted, phase_of, take_phase};

/// How a kind of Numaflow's is wrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrapped {
    /// Kind of the object.
    pub kind: &'static str,
    /// Field of the rollout's spec that holds its template.
    pub field: &'static str,
    /// What templates call it.
    pub word: &'static str,
}

/// What a PipelineRollout wraps.
pub const PIPELINE: Wrapped = Wrapped { kind: "Pipeline", field: "spec.pipeline", word: "pipeline" };
/// What an ISBServiceRollout wraps.
pub const ISB_SERVICE: Wrapped =
    Wrapped { kind: "InterStepBufferService", field: "spec.interStepBufferService", word: "isbsvc" };
/// What a MonoVertexRollout wraps.
pub const MONO_VERTEX: Wrapped = Wrapped { kind: "MonoVertex", field: "spec.monoVertex", word: "monovertex" };
