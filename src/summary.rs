//! What a turn comes to, in one phase, one reason and one message, and how a status says so to people and to kstatus. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::{
    Condition, ConditionType, Conditions, IsbServiceRolloutStatus, MonoVertexRolloutStatus,
    NumaflowControllerRolloutStatus, Phase, PipelineRolloutStatus,
};

/// What a turn comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    phase: Phase,
    reason: String,
    message: String,
    /// Failed, but the server is asked again and again: it may heal by itself.
    retried: bool,
}

/// Why something is not ready although what is asked for was put in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unready {
    /// One word.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Whether its objects are not as they should be either.
    pub drifted: bool,
}

/// The fields with which the status of every kind of rollout says what a turn came to.
#[derive(Debug)]
pub struct Fields<'a> {
    phase: &'a mut Phase,
    message: &'a mut String,
    conditions: &'a mut Vec<Condition>,
    last_failure_time: &'a mut Option<Time>,
    /// Generation that the status is about.
    generation: i64,
}

/// The status of a kind of rollout.
pub trait Status {
    /// The fields that it has like all others. Not a struct within it: each kind documents for itself what its phases mean.
    fn fields(&mut self) -> Fields<'_>;
}

impl Summary {
    fn new(phase: Phase, reason: &str, message: &str) -> Self {
        Self { phase, reason: reason.to_owned(), message: message.to_owned(), retried: false }
    }

    /// What is asked for is in place.
    #[must_use]
    pub fn deployed(message: &str) -> Self {
        Self::new(Phase::deployed(), "Deployed", message)
    }

    /// Something is waited for.
    #[must_use]
    pub fn pending(reason: &str, message: &str) -> Self {
        Self::new(Phase::pending(), reason, message)
    }

    /// Only a change will help.
    #[must_use]
    pub fn failed(reason: &str, message: &str) -> Self {
        Self::new(Phase::failed(), reason, message)
    }

    /// The server refuses; it is asked again.
    #[must_use]
    pub fn blocked(reason: &str, message: &str) -> Self {
        let words = format!("refused by the server, retrying: {message}");
        Self { retried: true, ..Self::new(Phase::failed(), reason, &words) }
    }

    /// With more words, where something is waited for.
    #[must_use]
    pub fn while_pending(mut self, words: Option<String>) -> Self {
        if let Some(words) = words.filter(|_| self.is_pending()) {
            self.message = format!("{} ({words})", self.message);
        }
        self
    }

    /// Whether something is waited for.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.phase == Phase::pending()
    }

    /// Whether the server is asked again and again.
    #[must_use]
    pub fn is_retried(&self) -> bool {
        self.retried
    }

    /// Whether this is about something that the server refused before, and that is about to be tried again: `phase` and
    /// `conditions` are what was said of the same spec.
    #[must_use]
    pub fn is_another_try(&self, phase: &Phase, conditions: &[Condition]) -> bool {
        let retried = |c: &Condition| c.type_ == ConditionType::Reconciling.as_str() && c.status == "True";
        self.is_pending() && *phase == Phase::failed() && conditions.iter().any(retried)
    }

    /// Writes phase, message and conditions into the status in the making, which has those of the stored one until then.
    /// `conditions` has what else there is to say.
    pub fn write(
        self,
        status: &mut impl Status,
        mut conditions: Conditions,
        unready: Option<&Unready>,
        now: Timestamp,
    ) {
        let fields = status.fields();
        let (deployed, failed) = (self.phase == Phase::deployed(), self.phase == Phase::failed());
        let stalled = failed && !self.retried;
        let reconciling = self.is_pending() || self.retried;
        let mut set = |kind, status, reason: &str, message: &str| {
            conditions.set(kind, Some(status), reason, message, fields.generation, now);
        };
        let done = if deployed { "Successful" } else { &self.reason };
        match unready.filter(|why| why.drifted) {
            Some(why) => set(ConditionType::ChildResourceDeployed, false, &why.reason, &why.message),
            None => set(ConditionType::ChildResourceDeployed, deployed, done, &self.message),
        }
        match unready.filter(|_| deployed) {
            Some(why) => set(ConditionType::Ready, false, &why.reason, &why.message),
            None => set(ConditionType::Ready, deployed, &self.reason, &self.message),
        }
        for (kind, holds) in [(ConditionType::Reconciling, reconciling), (ConditionType::Stalled, stalled)] {
            // To kstatus these two are true, or not there.
            if holds {
                conditions.set(kind, Some(true), &self.reason, &self.message, fields.generation, now);
            } else {
                conditions.remove(kind);
            }
        }
        if failed && *fields.phase != Phase::failed() {
            *fields.last_failure_time = Some(Time(now));
        }
        *fields.phase = self.phase;
        *fields.message = self.message;
        *fields.conditions = conditions.into_vec();
    }
}

/// Says that an object is being deleted, and what is waited for. What was said of its children still stands.
pub fn deleting(status: &mut impl Status, message: &str, now: Timestamp) {
    let fields = status.fields();
    let mut conditions = Conditions::from_stored(fields.conditions);
    let mut set = |kind, status, reason| conditions.set(kind, Some(status), reason, message, fields.generation, now);
    set(ConditionType::Deleting, true, "Waiting");
    set(ConditionType::Ready, false, "Deleting");
    set(ConditionType::Reconciling, true, "Deleting");
    conditions.remove(ConditionType::Stalled);
    *fields.conditions = conditions.into_vec();
    *fields.phase = Phase::pending();
    message.clone_into(fields.message);
}

macro_rules! statuses {
    ($($status:ty),*) => {
        $(impl Status for $status {
            fn fields(&mut self) -> Fields<'_> {
                Fields {
                    phase: &mut self.phase,
                    message: &mut self.message,
                    conditions: &mut self.conditions,
                    last_failure_time: &mut self.last_failure_time,
                    generation: self.observed_generation,
                }
            }
        })*
    };
}

statuses!(IsbServiceRolloutStatus, MonoVertexRolloutStatus, NumaflowControllerRolloutStatus, PipelineRolloutStatus);
