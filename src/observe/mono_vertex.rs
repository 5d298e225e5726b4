//! From the stores to a snapshot of one MonoVertexRollout.

use std::sync::Arc;

use super::pipeline::{controllers, health};
use crate::{
    api::MonoVertexRollout,
    changes::{Kind, Rules},
    mono_vertex::snapshot::Snapshot,
    plan::Learned,
    world::World,
};

/// One look at the rollout of a MonoVertex.
#[must_use]
pub fn mono_vertex(world: &World, rollout: &Arc<MonoVertexRollout>, learned: &Learned) -> Snapshot {
    let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
    let recorded = rollout.status.as_ref().map(|s| s.child.as_str()).unwrap_or_default();
    let mono_vertices = world.mono_vertices.in_namespace(namespace);
    let (children, foreign_children) = super::children(mono_vertices, &rollout.metadata, recorded);
    // There is no trial beside what runs yet, and a change that is rolled out pod by pod loses nothing.
    let rules = Rules { progressive: Vec::new(), ..(*world.rules(Kind::MonoVertex)).clone() };
    Snapshot {
        rollout: rollout.clone(),
        namespace_terminating: world.terminating(namespace) || learned.terminating,
        children,
        foreign_children,
        served: world.serves_mono_vertices(namespace),
        unknown: world.unknown_for_mono_vertices(namespace),
        controllers: health(&controllers(world, namespace)),
        strategy: world.defaults(namespace).strategy,
        rules: Arc::new(rules),
        learned: learned.clone(),
    }
}
