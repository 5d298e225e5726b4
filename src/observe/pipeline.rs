//! From the stores to a snapshot of one PipelineRollout, and what the rollouts of controllers get to see of pipelines.

use std::{collections::BTreeMap, sync::Arc};

use super::{isb_rollout, isb_service::all_told};
use crate::{
    api::{IsbStage, NumaflowControllerRollout, PauseRequest, PipelineRollout},
    changes::Kind,
    drain::{PipelineSeen, Scope},
    numaflow::LivePipeline,
    pipeline::snapshot::{Controller, Request, Snapshot},
    plan::Learned,
    settings::Settings,
    world::World,
};

/// One look at the rollout of a pipeline.
#[must_use]
pub fn pipeline(world: &World, settings: &Settings, rollout: &Arc<PipelineRollout>, learned: &Learned) -> Snapshot {
    let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
    let pipelines = world.pipelines.in_namespace(namespace);
    let count = pipelines.len();
    let recorded = rollout.status.as_ref().map(|s| s.child.as_str()).unwrap_or_default();
    let (children, foreign_children) = super::children(pipelines, &rollout.metadata, recorded);
    let controllers = controllers(world, namespace);
    let services = world.isb_services.in_namespace(namespace);
    let (isb_rollouts, isb_requests) = isb_rollout::seen(world, namespace, &services);
    Snapshot {
        rollout: rollout.clone(),
        namespace_terminating: world.terminating(namespace) || learned.terminating,
        children,
        foreign_children,
        served: world.serves_pipelines(namespace),
        requests: controllers.iter().filter_map(|r| request(r)).chain(isb_requests).collect(),
        unknown: world.unknown_for_pipelines(namespace),
        controllers: health(&controllers),
        isb: services.into_iter().collect(),
        isb_rollouts,
        settings: all_told(world, settings, namespace, &controllers),
        pipelines: count,
        strategy: world.defaults(namespace).strategy,
        rules: world.rules(Kind::Pipeline),
        learned: learned.clone(),
    }
}

/// Whether a pipeline belongs to this rollout.
fn belongs_to(pipeline: &LivePipeline, rollout: &PipelineRollout) -> bool {
    let recorded = rollout.status.as_ref().is_some_and(|s| s.child == pipeline.version.name);
    super::belongs_to(pipeline, &rollout.metadata, recorded)
}

/// The request of a controller's rollout, while it stands.
fn request(rollout: &NumaflowControllerRollout) -> Option<Request> {
    if rollout.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let status = rollout.status.as_ref()?;
    let asked = status.pause_request.as_ref().filter(|request| request.active)?;
    // The pipelines of what runs: an instance does not change while anything depends on it.
    let instance = &status.promoted.as_ref()?.instance_id;
    let by = format!("NumaflowControllerRollout/{}", rollout.metadata.name.as_deref().unwrap_or_default());
    Some(read(asked, by, Scope::Instance(instance.clone()), false))
}

/// A request as its requester has it in its status.
pub(super) fn read(request: &PauseRequest, by: String, scope: Scope, changing: bool) -> Request {
    Request {
        by,
        attempt: request.attempt.clone(),
        scope,
        since: request.since.as_ref().map(|t| t.0),
        timeout: request.drain_timeout.as_ref().and_then(|wait| wait.get().ok()),
        cut: request.cut_at.is_some(),
        changing,
    }
}

/// The rollouts of controllers in a namespace.
pub(super) fn controllers(world: &World, namespace: &str) -> Vec<Arc<NumaflowControllerRollout>> {
    world.rollouts.in_namespace(namespace).into_iter().filter_map(|(_, r)| r.good().cloned()).collect()
}

/// How the controllers are, by instance. Where several claim one, it is gone only if all say so.
pub(super) fn health(rollouts: &[Arc<NumaflowControllerRollout>]) -> BTreeMap<String, Controller> {
    let mut all: BTreeMap<String, Controller> = BTreeMap::new();
    for status in rollouts.iter().filter_map(|r| r.status.as_ref()) {
        let attempted = status.upgrade.as_ref().map(|u| &u.instance_id);
        let Some(instance) = status.promoted.as_ref().map(|p| &p.instance_id).or(attempted) else { continue };
        let gone = status.controller_unavailable.as_ref().is_some_and(|c| c.gone);
        all.entry(instance.clone()).and_modify(|known| known.gone &= gone).or_insert(Controller { gone });
    }
    all
}

/// The pipelines of a namespace as those see them who ask for a pause.
pub(super) fn seen(world: &World, namespace: &str) -> Vec<PipelineSeen> {
    let rollouts: Vec<Arc<PipelineRollout>> = world
        .pipeline_rollouts
        .in_namespace(namespace)
        .into_iter()
        .filter_map(|(_, decoded)| decoded.good().cloned())
        .filter(|rollout| rollout.metadata.deletion_timestamp.is_none())
        .collect();
    let pipelines = world.pipelines.in_namespace(namespace).into_iter();
    pipelines
        .map(|(name, pipeline)| {
            let rollout = rollouts.iter().find(|rollout| belongs_to(&pipeline, rollout));
            let status = rollout.and_then(|r| r.status.as_ref());
            PipelineSeen {
                name,
                instance: pipeline.instance().to_owned(),
                isb: pipeline.isb().to_owned(),
                rollout: rollout.and_then(|r| r.metadata.name.clone()),
                deleting: pipeline.deleting,
                answers: status.map(|s| s.pause_requests.clone()).unwrap_or_default(),
                grace: pipeline.grace(),
            }
        })
        .collect()
}

/// The ISB services of a namespace that a controller may be judged by: name and instance. One that is made or changed by its
/// own rollout at this moment is judged by that.
pub(super) fn isb_services(world: &World, namespace: &str) -> Vec<(String, String)> {
    let changed: Vec<String> = world
        .isb_rollouts
        .in_namespace(namespace)
        .iter()
        .filter_map(|(_, decoded)| decoded.good()?.status.as_ref())
        .filter_map(|status| {
            let change = status.change.as_ref()?;
            match IsbStage::parse(&change.stage) {
                Some(IsbStage::Apply | IsbStage::Confirm | IsbStage::RollBack) => Some(status.child.clone()),
                _ => Some(change.to.clone()),
            }
        })
        .collect();
    let all = world.isb_services.in_namespace(namespace).into_iter();
    all.filter(|(name, _)| !changed.contains(name)).map(|(name, isb)| (name, isb.instance().to_owned())).collect()
}
