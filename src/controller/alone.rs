//! A NumaflowController that has no rollout: edited in place by its user, renders production. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    api::{
        ANNOTATION_FORCE, ConditionType, Conditions, NumaflowController, NumaflowControllerStatus, Phase,
        mark_of_controller,
    },
    controller::{
        produce::{Producing, steps},
        removal::{Leaving, Removal, next},
        standing::{Production, assess},
        target::{Target, Unresolved},
    },
    finalizer::{Hold, release},
    live::{Live, ObjectId, Version},
    numaflow::Dependants,
    plan::{Learned, Plan, Step},
};

/// One look at the world of one NumaflowController without a rollout.
#[derive(Clone, Debug)]
pub struct Alone {
    /// The NumaflowController.
    pub controller: Arc<NumaflowController>,
    /// Whether its namespace is being deleted.
    pub namespace_terminating: bool,
    /// The version that its spec asks for.
    pub desired: Result<Target, Unresolved>,
    /// Production objects in the namespace.
    pub live: BTreeMap<ObjectId, Live>,
    /// Kinds that are not watched.
    pub unwatched: BTreeSet<(String, String)>,
    /// Cluster-scoped objects that others use too.
    pub elsewhere: BTreeSet<ObjectId>,
    /// What depends on the controller.
    pub dependants: Dependants,
    /// What this turn has learned.
    pub learned: Learned,
}

/// Decides the next steps.
#[must_use]
pub fn decide(s: &Alone, now: Timestamp) -> Plan {
    let metadata = &s.controller.metadata;
    let hold = Hold::of(metadata, s.namespace_terminating);
    if let Hold::First(plan) = hold {
        return plan;
    }
    let mark = mark_of_controller(metadata.name.as_deref().unwrap_or_default());
    let stored = s.controller.status.clone().unwrap_or_default();
    let inventory: Vec<_> = s.learned.applied.iter().chain(&stored.inventory).cloned().collect();
    if hold == Hold::Deleting {
        let removal = next(&Leaving {
            mark: &mark,
            instance: s.controller.spec.instance_id.as_deref().unwrap_or_default(),
            forced: metadata.annotations.as_ref().is_some_and(|a| a.contains_key(ANNOTATION_FORCE)),
            dependants: &s.dependants,
            live: &s.live,
            inventory: &inventory,
            unwatched: &s.unwatched,
            elsewhere: &s.elsewhere,
            learned: &s.learned,
        });
        return match removal {
            Removal::Steps(steps) => Plan::of(steps),
            Removal::Done => Plan::of(vec![release(metadata)]),
            Removal::Wait(words) | Removal::Needed(words) => {
                let message = format!("being deleted, waiting for {words}");
                let mut plan = say(s, &stored, &Phase::pending(), "Deleting", &message, now);
                plan.again_after = Some(Duration::from_secs(30));
                plan
            }
        };
    }
    let target = match &s.desired {
        Ok(target) => target,
        // What runs stays as it is.
        Err(why) => return say(s, &stored, &Phase::failed(), why.reason.as_str(), &why.message(), now),
    };
    let standing = assess(&Production {
        mark: &mark,
        manifest: &target.manifest,
        inventory: &inventory,
        live: &s.live,
        unwatched: &s.unwatched,
        elsewhere: &s.elsewhere,
        pruned: &s.learned.pruned,
    });
    let producing = Producing {
        child: Some(&s.controller),
        manifest: &target.manifest,
        standing: &standing,
        learned: &s.learned,
        recreate: &[],
        orphans: standing.healthy(),
        isolated: None,
        now,
    };
    Plan::of(steps(&producing))
}

/// Says something without touching what runs.
fn say(
    s: &Alone,
    stored: &NumaflowControllerStatus,
    phase: &Phase,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Plan {
    let generation = s.controller.metadata.generation.unwrap_or_default();
    let mut conditions = Conditions::from_stored(&stored.conditions);
    conditions.set(ConditionType::Ready, Some(false), reason, message, generation, now);
    conditions.set(ConditionType::ChildResourceDeployed, Some(false), reason, message, generation, now);
    let next = NumaflowControllerStatus {
        phase: phase.clone(),
        message: message.to_owned(),
        observed_generation: generation,
        conditions: conditions.into_vec(),
        ..stored.clone()
    };
    if next == *stored {
        return Plan::default();
    }
    Plan::of(vec![Step::WriteChildStatus { child: Version::of(&s.controller.metadata), status: Box::new(next) }])
}
