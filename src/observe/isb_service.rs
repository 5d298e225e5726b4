//! From the stores to a snapshot of one ISBServiceRollout.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    pipeline::{controllers, health, seen},
    rendered, revisions,
};
use crate::{
    api::{IsbServiceRollout, NumaflowControllerRollout, Stage},
    changes::Kind,
    isb::snapshot::Snapshot,
    plan::Learned,
    settings::Settings,
    world::World,
};

/// One look at the rollout of an ISB service.
#[must_use]
pub fn isb_service(
    world: &World,
    settings: &Settings,
    rollout: &Arc<IsbServiceRollout>,
    learned: &Learned,
) -> Snapshot {
    let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
    let recorded = rollout.status.as_ref().map(|s| s.child.as_str()).unwrap_or_default();
    let services = world.isb_services.in_namespace(namespace);
    let (children, foreign_children) = super::children(services, &rollout.metadata, recorded);
    let controllers = controllers(world, namespace);
    Snapshot {
        rollout: rollout.clone(),
        namespace_terminating: world.terminating(namespace) || learned.terminating,
        children,
        foreign_children,
        served: world.serves_isb_services(namespace),
        unknown: world.unknown_for_pipelines(namespace),
        settings: all_told(world, settings, namespace, &controllers),
        upgrading: controllers.iter().filter_map(|c| upgrading(c)).collect(),
        controllers: health(&controllers),
        pipelines: seen(world, namespace),
        rules: world.rules(Kind::InterStepBufferService),
        learned: learned.clone(),
    }
}

/// What the controllers of a namespace are told about ISB services, by instance.
pub(super) fn all_told(
    world: &World,
    settings: &Settings,
    namespace: &str,
    controllers: &[Arc<NumaflowControllerRollout>],
) -> BTreeMap<String, Arc<Value>> {
    controllers.iter().filter_map(|rollout| told(world, settings, namespace, rollout)).collect()
}

/// What the controller of a rollout is told about ISB services, with its instance: what is in production or, once that changes
/// hands, on its way there.
fn told(
    world: &World,
    settings: &Settings,
    namespace: &str,
    rollout: &NumaflowControllerRollout,
) -> Option<(String, Arc<Value>)> {
    let status = rollout.status.as_ref()?;
    let enters = |stage: &str| matches!(Stage::parse(stage), Some(Stage::CutOver | Stage::Confirm));
    let entering = status.upgrade.as_ref().filter(|u| enters(&u.stage)).map(|u| (&u.revision, &u.instance_id));
    let (revision, instance) = entering.or(status.promoted.as_ref().map(|p| (&p.revision, &p.instance_id)))?;
    let revisions = revisions(world, namespace, rollout.metadata.uid.as_deref().unwrap_or_default());
    let definition = revisions.iter().find(|r| r.name == *revision)?.definition.clone()?;
    let manifest = rendered(world, settings, &definition, instance).ok()?;
    Some((instance.clone(), manifest.isbsvc.clone()?))
}

/// The instance of a controller that is about to be another one, or whose rollout has not looked at its spec yet.
fn upgrading(rollout: &NumaflowControllerRollout) -> Option<String> {
    let status = rollout.status.as_ref()?;
    let under_way = status.upgrade.is_some() || Some(status.observed_generation) != rollout.metadata.generation;
    under_way.then(|| rollout.spec.controller.instance().to_owned())
}
