//! The drain: before something that pipelines depend on is changed, whoever changes it asks them to pause, and waits. Pure.
//!
//! A requester only asks, in `status.pauseRequest`. Each pipeline is paused by its own reconciler, which answers in the
//! status of its PipelineRollout. Nothing here knows which kind the requester is of: it says who it is and whom it means
//! ([`Asking`]), lends what of its status is written ([`InStatus`]), and is told what came of it ([`Beginning`], then
//! [`Ending`] in each turn until the drain is over).

mod answers;
mod asking;
mod ending;
mod request;
mod seen;
#[cfg(test)]
mod tests;
mod words;

pub use answers::Answers;
pub use asking::{Asking, Beginning};
pub use ending::{Ending, closed};
pub use request::{InStatus, force, standing};
pub use seen::{PipelineSeen, Scope};
pub use words::{condition, not_drained};
