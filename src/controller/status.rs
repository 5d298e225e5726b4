//! The status of a NumaflowController, from how its objects stand. Pure.

use jiff::Timestamp;

use crate::{
    api::{ConditionType, Conditions, Identity, IsolatedCopy, NumaflowControllerStatus, Phase},
    controller::standing::Standing,
};

/// How far the objects of a child are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Something is in the way.
    Applying,
    /// Every object is in place.
    Applied,
    /// The server refuses, in these words.
    Refused(String),
}

/// The next status of a child, for production or for the isolated copy of that instance. Equal to the stored one where
/// there is nothing new to say.
#[must_use]
pub fn child_status(
    stored: &NumaflowControllerStatus,
    generation: i64,
    isolated: Option<&str>,
    hash: &str,
    standing: &Standing,
    outcome: &Outcome,
    now: Timestamp,
) -> NumaflowControllerStatus {
    let (phase, message) = match outcome {
        Outcome::Refused(words) => (Phase::failed(), words.clone()),
        Outcome::Applied if standing.healthy() => (Phase::deployed(), String::new()),
        Outcome::Applied | Outcome::Applying => (Phase::pending(), format!("waiting for {}", standing.waiting_for())),
    };
    let mut conditions = Conditions::from_stored(&stored.conditions);
    let mut set = |kind, status, reason: &str, message: &str| {
        conditions.set(kind, Some(status), reason, message, generation, now);
    };
    let healthy = standing.health.iter().all(|w| w.healthy);
    let unhealthy: Vec<String> = standing
        .health
        .iter()
        .filter(|w| !w.healthy)
        .map(|w| format!("{}/{}: {}", w.kind, w.name, w.message))
        .collect();
    match outcome {
        Outcome::Refused(words) => {
            set(ConditionType::Ready, false, "Refused", words);
            set(ConditionType::ChildResourceDeployed, false, "Refused", words);
        }
        Outcome::Applying => {
            set(ConditionType::Ready, false, "Progressing", &message);
            set(ConditionType::ChildResourceDeployed, false, "Progressing", &message);
        }
        Outcome::Applied => {
            let reason = if healthy { "Successful" } else { "Progressing" };
            set(ConditionType::Ready, healthy, reason, &unhealthy.join("; "));
            set(ConditionType::ChildResourceDeployed, true, "Successful", "");
        }
    }
    let reason = if healthy { "Successful" } else { "Progressing" };
    set(ConditionType::ChildResourcesHealthy, healthy, reason, &unhealthy.join("; "));
    let (identity, inventory, isolated) = match isolated {
        // Production's inventory is another list: each is removed on its own.
        Some(instance) => {
            let copy = IsolatedCopy { instance: instance.to_owned(), inventory: standing.inventory.clone() };
            (Identity::isolated(), stored.inventory.clone(), Some(copy))
        }
        None => (Identity::production(), standing.inventory.clone(), stored.isolated.clone()),
    };
    NumaflowControllerStatus {
        phase,
        message,
        observed_generation: generation,
        conditions: conditions.into_vec(),
        identity: Some(identity),
        definition_hash: Some(hash.to_owned()),
        inventory,
        isolated,
        health: standing.health.clone(),
    }
}
