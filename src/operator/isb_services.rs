//! What ISB services bring: their watches, and the turns that a change calls for. What uses one, or waits for it, is told at
//! once.

use std::sync::Arc;

use kube::{api::DynamicObject, core::DeserializeGuard, runtime::watcher};
use tokio::task::JoinSet;

use super::{Operator, Task};
use crate::{
    api::{IsbServiceRollout, IsbServiceRolloutStatus},
    kinds,
    numaflow::LiveIsb,
    store::Change,
    watch::Scope,
    world::Decoded,
};

/// Whether pipelines have to look again when the status of an ISB service's rollout goes from one to the other.
pub(super) fn asks_differently(old: Option<&IsbServiceRolloutStatus>, new: Option<&IsbServiceRolloutStatus>) -> bool {
    let asks = |status: Option<&IsbServiceRolloutStatus>| {
        status.map(|s| {
            let stage = s.change.as_ref().map(|c| c.stage.clone());
            (s.pause_request.clone(), s.child.clone(), s.last_drain.clone(), stage)
        })
    };
    asks(old) != asks(new)
}

impl Operator {
    pub(super) fn watch_isb_services(self: &Arc<Self>, tasks: &mut JoinSet<()>, scope: &Scope) {
        let this = self.clone();
        self.spawn(
            tasks,
            scope,
            "ISBServiceRollouts",
            &self.world.isb_rollouts,
            scope.api::<DeserializeGuard<IsbServiceRollout>>(&self.client),
            watcher::Config::default(),
            Decoded::read,
            move |c| this.isb_rollout_changed(c),
        );
        if let Some(resource) = kinds::numaflow("InterStepBufferService") {
            let this = self.clone();
            self.spawn(
                tasks,
                scope,
                "InterStepBufferServices",
                &self.world.isb_services,
                scope.dynamic(&self.client, &resource),
                watcher::Config::default(),
                |object: &DynamicObject| LiveIsb::read(&object.metadata, &object.data),
                move |c| this.isb_service_changed(c),
            );
        }
    }

    fn isb_rollout_changed(&self, change: &Change<Decoded<IsbServiceRollout>>) {
        let (namespace, name) = change.key.clone();
        self.queue.add(Task::IsbService(namespace.clone(), name));
        let [old, new] = [&change.old, &change.new].map(|decoded| decoded.as_ref().and_then(|d| d.good()));
        let there = |rollout: Option<&Arc<IsbServiceRollout>>| {
            rollout.map(|r| (r.metadata.uid.clone(), r.metadata.deletion_timestamp.is_some()))
        };
        let [said, says] = [old, new].map(|rollout| rollout.and_then(|r| r.status.as_ref()));
        if there(old) != there(new) || asks_differently(said, says) {
            self.enqueue_pipelines(&namespace);
            self.enqueue_rollouts(&namespace);
        }
    }

    fn isb_service_changed(&self, change: &Change<LiveIsb>) {
        let (namespace, isb) = &change.key;
        if self.world.terminating(namespace) {
            self.queue.add(Task::Namespace(namespace.clone()));
        }
        if let (Some(old), Some(new)) = (&change.old, &change.new)
            && old.is_same(new)
        {
            return;
        }
        for service in [&change.old, &change.new].into_iter().flatten() {
            let rollouts = &self.world.isb_rollouts;
            self.enqueue_wrapper(namespace, service, "ISBServiceRollout", rollouts, Task::IsbService);
        }
        for (_, pipeline) in self.world.pipelines.in_namespace(namespace) {
            if pipeline.isb() == isb {
                self.enqueue_rollout_of(namespace, &pipeline);
            }
        }
        let matters = |isb: &Option<Arc<LiveIsb>>| isb.as_ref().map(|isb| isb.instance().to_owned());
        if matters(&change.old) != matters(&change.new) {
            // Those that have no pipeline yet may have waited for it.
            self.enqueue_pipelines(namespace);
            self.enqueue_rollouts(namespace);
        }
    }

    /// Wants the rollouts of ISB services to be looked at.
    pub(super) fn enqueue_isb_services(&self, namespace: &str) {
        for (name, _) in self.world.isb_rollouts.in_namespace(namespace) {
            self.queue.add(Task::IsbService(namespace.to_owned(), name));
        }
    }
}
