//! The API that users write: kinds, labels, annotations and the CustomResourceDefinitions made from them. Types only, no
//! client: every other room may use this one, this one uses none.

mod attempt;
mod condition;
mod controller;
mod crd;
mod isb_service;
mod keys;
mod mono_vertex;
mod pause;
mod phase;
mod pipeline;
mod readable;
mod rollout;
mod template;
mod wait;

pub use attempt::{AssessmentSpec, AttemptResult, LastChange, LastForce, OnDrainTimeout, Strategy};
pub use condition::{Condition, ConditionType, Conditions, cut};
pub use controller::{
    AppliedObject, Identity, IsolatedCopy, NumaflowController, NumaflowControllerSpec, NumaflowControllerStatus,
    WorkloadHealth,
};
pub use crd::{CrdFile, crds};
pub use isb_service::{
    IsbChange, IsbServiceRollout, IsbServiceRolloutSpec, IsbServiceRolloutStatus, IsbServiceTemplate, IsbStage,
    IsbStrategySpec,
};
pub use keys::*;
pub use mono_vertex::{
    MonoVertexPause, MonoVertexRollout, MonoVertexRolloutSpec, MonoVertexRolloutStatus, MonoVertexStrategySpec,
    MonoVertexTemplate,
};
pub use pause::{DrainProgress, PauseAnswer, PauseRequest, PauseStatus, PpndSpec, answer, pausing};
pub use phase::Phase;
pub use pipeline::{
    PipelinePause, PipelinePpndSpec, PipelineRollout, PipelineRolloutSpec, PipelineRolloutStatus, PipelineStrategySpec,
    PipelineTemplate, ResumeSpec, Wedge,
};
pub use rollout::{
    Assessment, ControllerSpec, ControllerUnavailable, ForcePromoted, HistoryEntry, LastAttempt,
    NumaflowControllerRollout, NumaflowControllerRolloutSpec, NumaflowControllerRolloutStatus, Promoted, Stage,
    StrategySpec, Upgrade,
};
pub use template::{Raw, TemplateMetadata};
pub use wait::{Wait, WaitError};
