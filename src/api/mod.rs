//! The API that users write: kinds, labels, annotations and the CustomResourceDefinitions made from them. Types only, no
//! client: every other room may use this one, this one uses none.

mod condition;
mod controller;
mod crd;
mod keys;
mod pipeline;
mod readable;
mod rollout;
mod wait;

pub use condition::{Condition, ConditionType, Conditions, cut};
pub use controller::{
    AppliedObject, Identity, IsolatedCopy, NumaflowController, NumaflowControllerSpec, NumaflowControllerStatus,
    WorkloadHealth,
};
pub use crd::{CrdFile, crds};
pub use keys::*;
pub use pipeline::{
    PauseAnswer, PipelineAttempt, PipelinePause, PipelinePpndSpec, PipelineRollout, PipelineRolloutSpec,
    PipelineRolloutStatus, PipelineStrategySpec, PipelineTemplate, Raw, ResumeSpec, TemplateMetadata, Wedge, answer,
    pausing,
};
pub use rollout::{
    Assessment, AssessmentSpec, AttemptResult, ControllerSpec, ControllerUnavailable, DrainProgress, ForcePromoted,
    HistoryEntry, LastAttempt, LastForce, NumaflowControllerRollout, NumaflowControllerRolloutSpec,
    NumaflowControllerRolloutStatus, OnDrainTimeout, PauseRequest, PauseStatus, Phase, PpndSpec, Promoted, Stage,
    Strategy, StrategySpec, Upgrade,
};
pub use wait::{Wait, WaitError};
