//! The pipeline tier: what to do next for one PipelineRollout. Pure.

pub mod snapshot;
