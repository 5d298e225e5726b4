//! The API that users write: kinds, labels, annotations and the CustomResourceDefinitions made from them. Types only, no
//! client: every other room may use this one, this one uses none.

mod attempt;
mod condition;
mod controller;
mod crd;
mod keys;
mod pause;
mod phase;
mod pipeline;
mod readable;
mod rollout;
mod template;
mod wait;

pub use attempt::{AttemptResult, LastForce, OnDrainTimeout, Strategy};
pub use condition::{Condition, ConditionType, Conditions, cut};
pub use controller::{
    AppliedObject, Identity, IsolatedCopy, NumaflowController, NumaflowControllerSpec, NumaflowControllerStatus,
    WorkloadHealth,
};
pub use crd::{CrdFile, crds};
pub use keys::*;
pub use pause::{PauseAnswer, PauseRequest, PauseStatus, answer, pausing};
pub use phase::Phase;
pub use pipeline::{
    PipelineAttempt, PipelinePause, PipelinePpndSpec, PipelineRollout, PipelineRolloutSpec, PipelineRolloutStatus,
    PipelineStrategySpec, PipelineTemplate, ResumeSpec, Wedge,
};
pub use rollout::{
    Assessment, AssessmentSpec, ControllerSpec, ControllerUnavailable, DrainProgress, ForcePromoted, HistoryEntry,
    LastAttempt, NumaflowControllerRollout, NumaflowControllerRolloutSpec, NumaflowControllerRolloutStatus, PpndSpec,
    Promoted, Stage, StrategySpec, Upgrade,
};
pub use template::{Raw, TemplateMetadata};
pub use wait::{Wait, WaitError};
