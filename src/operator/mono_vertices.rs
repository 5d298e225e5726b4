//! What MonoVertices bring: their watches, and the turns that a change calls for.

use std::sync::Arc;

use kube::{api::DynamicObject, core::DeserializeGuard, runtime::watcher};
use tokio::task::JoinSet;

use super::{Operator, Task};
use crate::{api::MonoVertexRollout, kinds, numaflow::LiveMonoVertex, store::Change, watch::Scope, world::Decoded};

impl Operator {
    pub(super) fn watch_mono_vertices(self: &Arc<Self>, tasks: &mut JoinSet<()>, scope: &Scope) {
        let this = self.clone();
        self.spawn(
            tasks,
            scope,
            "MonoVertexRollouts",
            &self.world.mono_vertex_rollouts,
            scope.api::<DeserializeGuard<MonoVertexRollout>>(&self.client),
            watcher::Config::default(),
            Decoded::read,
            move |change: &Change<Decoded<MonoVertexRollout>>| {
                let (namespace, name) = change.key.clone();
                this.queue.add(Task::MonoVertex(namespace, name));
            },
        );
        if let Some(resource) = kinds::numaflow("MonoVertex") {
            let this = self.clone();
            self.spawn(
                tasks,
                scope,
                "MonoVertices",
                &self.world.mono_vertices,
                scope.dynamic(&self.client, &resource),
                watcher::Config::default(),
                |object: &DynamicObject| LiveMonoVertex::read(&object.metadata, &object.data),
                move |c| this.mono_vertex_changed(c),
            );
        }
    }

    fn mono_vertex_changed(&self, change: &Change<LiveMonoVertex>) {
        let namespace = &change.key.0;
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && old.is_same(new)
        {
            return;
        }
        for mono_vertex in [&change.old, &change.new].into_iter().flatten() {
            let rollouts = &self.world.mono_vertex_rollouts;
            self.enqueue_wrapper(namespace, mono_vertex, "MonoVertexRollout", rollouts, Task::MonoVertex);
        }
        let instance = |seen: &Option<Arc<LiveMonoVertex>>| seen.as_ref().map(|m| m.instance().to_owned());
        if instance(&change.old) != instance(&change.new) {
            self.enqueue_rollouts(namespace);
        }
    }

    /// Wants the rollouts of MonoVertices to be looked at.
    pub(super) fn enqueue_mono_vertices(&self, namespace: &str) {
        for (name, _) in self.world.mono_vertex_rollouts.in_namespace(namespace) {
            self.queue.add(Task::MonoVertex(namespace.to_owned(), name));
        }
    }
}
