//! What pipelines bring: their watches, and the turns that a change calls for. Requests and answers
//! go both ways between the rollouts of controllers and those of pipelines; whoever is asked, or is waiting, is told at once.

use std::sync::Arc;

use kube::{api::DynamicObject, core::DeserializeGuard, runtime::watcher};
use tokio::task::JoinSet;

use super::{Operator, Task};
use crate::{
    api::{
        LABEL_PARENT, NumaflowControllerRollout, NumaflowControllerRolloutStatus, PauseAnswer, PauseRequest,
        PipelinePause, PipelineRollout, PipelineRolloutStatus, label_value,
    },
    kinds,
    numaflow::{LiveObject, LivePipeline},
    store::{Change, Store},
    watch::Scope,
    world::Decoded,
};

/// What the rollouts of the data plane are asked for by the rollout of a controller, and what they are told of it.
#[derive(PartialEq)]
struct Asks<'a> {
    request: Option<&'a PauseRequest>,
    /// Instance and revision: what is promoted says which ISB services its controller knows.
    promoted: Option<(&'a str, &'a str)>,
    attempted: Option<&'a str>,
    /// Stage of the upgrade: in some of them what it brings is what its controller is told.
    stage: Option<&'a str>,
    /// Generation of the spec that it is about.
    generation: i64,
    gone: bool,
}

impl<'a> Asks<'a> {
    fn of(status: Option<&'a NumaflowControllerRolloutStatus>) -> Option<Self> {
        status.map(|status| Self {
            request: status.pause_request.as_ref(),
            promoted: status.promoted.as_ref().map(|p| (p.instance_id.as_str(), p.revision.as_str())),
            attempted: status.upgrade.as_ref().map(|u| u.instance_id.as_str()),
            stage: status.upgrade.as_ref().map(|u| u.stage.as_str()),
            generation: status.observed_generation,
            gone: status.controller_unavailable.as_ref().is_some_and(|c| c.gone),
        })
    }
}

/// What the rollout of a pipeline answers.
fn answers(status: Option<&PipelineRolloutStatus>) -> (&[PauseAnswer], Option<&PipelinePause>) {
    status.map_or((&[], None), |status| (status.pause_requests.as_slice(), status.pause.as_ref()))
}

/// Whether pipelines have to look again when the status of a controller's rollout goes from one to the other.
pub(super) fn asks_differently(
    old: Option<&NumaflowControllerRolloutStatus>,
    new: Option<&NumaflowControllerRolloutStatus>,
) -> bool {
    Asks::of(old) != Asks::of(new)
}

/// Whether the rollouts of controllers have to look again when the status of a pipeline's rollout goes from one to the other.
pub(super) fn answers_differently(old: Option<&PipelineRolloutStatus>, new: Option<&PipelineRolloutStatus>) -> bool {
    answers(old) != answers(new)
}

impl Operator {
    pub(super) fn watch_pipelines(self: &Arc<Self>, tasks: &mut JoinSet<()>, scope: &Scope) {
        let this = self.clone();
        self.spawn(
            tasks,
            scope,
            "PipelineRollouts",
            &self.world.pipeline_rollouts,
            scope.api::<DeserializeGuard<PipelineRollout>>(&self.client),
            watcher::Config::default(),
            Decoded::read,
            move |c| this.pipeline_rollout_changed(c),
        );
        if let Some(resource) = kinds::numaflow("Pipeline") {
            let this = self.clone();
            self.spawn(
                tasks,
                scope,
                "Pipelines",
                &self.world.pipelines,
                scope.dynamic(&self.client, &resource),
                watcher::Config::default(),
                |object: &DynamicObject| LivePipeline::read(&object.metadata, &object.data),
                move |c| this.pipeline_changed(c),
            );
        }
    }

    fn pipeline_rollout_changed(&self, change: &Change<Decoded<PipelineRollout>>) {
        let (namespace, name) = change.key.clone();
        self.queue.add(Task::Pipeline(namespace.clone(), name));
        let [old, new] = [&change.old, &change.new].map(|decoded| decoded.as_ref().and_then(|d| d.good()));
        let there = |rollout: Option<&Arc<PipelineRollout>>| {
            rollout.map(|r| (r.metadata.uid.clone(), r.metadata.deletion_timestamp.is_some()))
        };
        let status = |rollout: Option<&Arc<PipelineRollout>>| rollout.and_then(|r| r.status.clone());
        if there(old) != there(new) || answers_differently(status(old).as_ref(), status(new).as_ref()) {
            self.enqueue_rollouts(&namespace);
            self.enqueue_isb_services(&namespace);
        }
    }

    /// What a change of a controller's rollout means for pipelines.
    pub(super) fn pipelines_are_told(&self, change: &Change<Decoded<NumaflowControllerRollout>>) {
        let [old, new] = [&change.old, &change.new].map(|decoded| decoded.as_ref().and_then(|d| d.good()));
        let there = |rollout: Option<&Arc<NumaflowControllerRollout>>| {
            rollout.map(|r| (r.metadata.uid.clone(), r.metadata.deletion_timestamp.is_some()))
        };
        let [said, says] = [old, new].map(|rollout| rollout.and_then(|r| r.status.as_ref()));
        if there(old) != there(new) || asks_differently(said, says) {
            self.enqueue_data_plane(&change.key.0);
        }
    }

    fn pipeline_changed(&self, change: &Change<LivePipeline>) {
        let namespace = &change.key.0;
        if let (Some(old), Some(new)) = (&change.old, &change.new) {
            // Numaflow writes the status every now and then, and says nothing new.
            if old.drained == new.drained && old.is_same(new) {
                return;
            }
        }
        for pipeline in [&change.old, &change.new].into_iter().flatten() {
            self.enqueue_rollout_of(namespace, pipeline);
        }
        let matters = |pipeline: &Option<Arc<LivePipeline>>| {
            pipeline.as_ref().map(|p| {
                (
                    p.version.uid.clone(),
                    [p.instance(), p.isb()].map(str::to_owned),
                    p.owner.clone(),
                    p.deleting,
                    p.grace(),
                )
            })
        };
        if matters(&change.old) != matters(&change.new) {
            self.enqueue_rollouts(namespace);
            self.enqueue_isb_services(namespace);
            if self.world.terminating(namespace) {
                self.queue.add(Task::Namespace(namespace.clone()));
            }
        }
    }

    pub(super) fn enqueue_rollout_of(&self, namespace: &str, pipeline: &LivePipeline) {
        let rollouts = &self.world.pipeline_rollouts;
        self.enqueue_wrapper(namespace, pipeline, "PipelineRollout", rollouts, Task::Pipeline);
    }

    /// Wants the rollout to be looked at that an object of Numaflow's belongs to: by its owner or, where somebody took that away,
    /// by its label.
    pub(super) fn enqueue_wrapper<K>(
        &self,
        namespace: &str,
        object: &LiveObject,
        kind: &str,
        rollouts: &Store<Decoded<K>>,
        task: fn(String, String) -> Task,
    ) {
        match &object.owner {
            Some((of, name, _)) if of == kind => self.queue.add(task(namespace.to_owned(), name.clone())),
            Some(_) => {}
            None => {
                let Some(parent) = object.labels.get(LABEL_PARENT) else { return };
                for (name, _) in rollouts.in_namespace(namespace) {
                    if label_value(&name) == *parent {
                        self.queue.add(task(namespace.to_owned(), name));
                    }
                }
            }
        }
    }

    /// Wants all rollouts of pipelines, ISB services and MonoVertices to be looked at.
    pub(super) fn enqueue_whole_data_plane(&self) {
        let pipelines = self.world.pipeline_rollouts.keys().into_iter().map(|(ns, name)| Task::Pipeline(ns, name));
        let services = self.world.isb_rollouts.keys().into_iter().map(|(ns, name)| Task::IsbService(ns, name));
        let mono = self.world.mono_vertex_rollouts.keys().into_iter().map(|(ns, name)| Task::MonoVertex(ns, name));
        for task in pipelines.chain(services).chain(mono) {
            self.queue.add(task);
        }
    }

    /// Wants the rollouts of pipelines, ISB services and MonoVertices in a namespace to be looked at.
    pub(super) fn enqueue_data_plane(&self, namespace: &str) {
        self.enqueue_pipelines(namespace);
        self.enqueue_isb_services(namespace);
        self.enqueue_mono_vertices(namespace);
    }

    /// Wants the rollouts of pipelines to be looked at.
    pub(super) fn enqueue_pipelines(&self, namespace: &str) {
        for (name, _) in self.world.pipeline_rollouts.in_namespace(namespace) {
            self.queue.add(Task::Pipeline(namespace.to_owned(), name));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pipeline(resource_version: &str, status: &Value) -> LivePipeline {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "numaflow.numaproj.io/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "p-0", "uid": "u", "resourceVersion": resource_version},
            "spec": {"vertices": []}, "status": status,
        }))
        .unwrap();
        LivePipeline::read(&object.metadata, &object.data)
    }

    #[test]
    fn a_heartbeat_of_the_status_is_no_change_and_a_phase_is() {
        let running = pipeline("1", &json!({"phase": "Running", "lastUpdated": "2026-01-01T00:00:00Z"}));
        let later = pipeline("2", &json!({"phase": "Running", "lastUpdated": "2026-01-01T00:10:00Z"}));
        assert!(running.is_same(&later));
        assert!(!running.is_same(&pipeline("2", &json!({"phase": "Pausing"}))));
    }

    #[test]
    fn requests_and_answers_are_told_and_nothing_else_of_a_status_is() {
        let status = |message: &str, active: bool| NumaflowControllerRolloutStatus {
            message: message.to_owned(),
            pause_request: Some(PauseRequest { active, ..PauseRequest::default() }),
            ..NumaflowControllerRolloutStatus::default()
        };
        assert!(!asks_differently(Some(&status("a", false)), Some(&status("b", false))));
        assert!(asks_differently(Some(&status("a", false)), Some(&status("a", true))));
        let answer = |message: &str, answer: &str| PipelineRolloutStatus {
            message: message.to_owned(),
            pause_requests: vec![PauseAnswer { answer: answer.to_owned(), ..PauseAnswer::default() }],
            ..PipelineRolloutStatus::default()
        };
        assert!(!answers_differently(Some(&answer("a", "Pausing")), Some(&answer("b", "Pausing"))));
        assert!(answers_differently(Some(&answer("a", "Pausing")), Some(&answer("a", "Paused"))));
        assert!(!answers_differently(None, Some(&PipelineRolloutStatus::default())));
    }
}
