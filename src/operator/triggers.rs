//! From a change in a store to the turns that it calls for.

use std::{collections::HashSet, sync::Arc};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;

use super::{
    Operator, Task, isb_services,
    pipelines::{answers_differently, asks_differently},
};
use crate::{
    api::{
        GROUP, NumaflowController, NumaflowControllerRollout, is_mark_of_isolated, mark_of_controller,
        mark_of_isolated, mark_of_rollout,
    },
    cluster::Subject,
    live::Live,
    observe,
    plan::{Event, Step},
    store::Change,
    world::{Decoded, DefinitionsMap, NamespaceState, Pinned},
};

impl Operator {
    pub(super) fn rollout_changed(&self, change: &Change<Decoded<NumaflowControllerRollout>>) {
        let (namespace, name) = change.key.clone();
        self.queue.add(Task::Rollout(namespace.clone(), name.clone()));
        // What it holds may have kept others of its namespace waiting.
        let claims = |decoded: &Option<Arc<Decoded<NumaflowControllerRollout>>>| {
            let rollout = decoded.as_ref().and_then(|d| d.good().cloned())?;
            let promoted = rollout.status.as_ref().and_then(|s| s.promoted.clone()).map(|p| p.instance_id);
            Some((rollout.spec.controller.clone(), promoted))
        };
        if claims(&change.old) != claims(&change.new) {
            for (other, _) in self.world.rollouts.in_namespace(&namespace) {
                if other != name {
                    self.queue.add(Task::Rollout(namespace.clone(), other));
                }
            }
            self.enqueue_controllers(&namespace);
        }
        self.pipelines_are_told(change);
    }

    /// What a step of ours means for others: its event tells nobody, as its answer is known already.
    pub(super) fn after(&self, subject: &Subject, step: &Step) {
        let namespace = subject.namespace();
        match (subject, step) {
            (Subject::Rollout(before), Step::WriteStatus { status, .. }) => {
                let held = before.status.as_ref().and_then(|s| s.promoted.as_ref()).map(|p| &p.instance_id);
                if held != status.promoted.as_ref().map(|p| &p.instance_id) {
                    for (other, _) in self.world.rollouts.in_namespace(namespace) {
                        if before.metadata.name.as_ref() != Some(&other) {
                            self.queue.add(Task::Rollout(namespace.to_owned(), other));
                        }
                    }
                    self.enqueue_controllers(namespace);
                }
                if asks_differently(before.status.as_ref(), Some(status)) {
                    self.enqueue_data_plane(namespace);
                }
            }
            (Subject::IsbService(before), Step::WriteIsbServiceStatus { status, .. })
                if isb_services::asks_differently(before.status.as_ref(), Some(status)) =>
            {
                self.enqueue_pipelines(namespace);
                self.enqueue_rollouts(namespace);
            }
            (Subject::Pipeline(before), Step::WritePipelineStatus { status, .. })
                if answers_differently(before.status.as_ref(), Some(status)) =>
            {
                self.enqueue_rollouts(namespace);
                self.enqueue_isb_services(namespace);
            }
            // Of which instance a pipeline is, and whether it is there.
            (_, Step::ApplyNumaflow { .. } | Step::DeleteNumaflow { .. }) => {
                self.enqueue_rollouts(namespace);
                self.enqueue_isb_services(namespace);
            }
            (Subject::Rollout(_) | Subject::Controller(_), Step::PatchNumaflow { .. }) => {
                self.enqueue_pipelines(namespace);
            }
            _ => {}
        }
    }

    pub(super) fn controller_changed(&self, change: &Change<Decoded<NumaflowController>>) {
        let (namespace, name) = &change.key;
        for controller in [&change.old, &change.new].into_iter().flatten() {
            match controller.good() {
                Some(controller) if !observe::is_child(controller) => {
                    self.queue.add(Task::Controller(namespace.clone(), name.clone()));
                }
                Some(controller) => self.enqueue_owner(namespace, controller.owner_references()),
                None => self.enqueue_namespace(namespace),
            }
        }
    }

    pub(super) fn owner_of_revision_changed(&self, change: &Change<Pinned>) {
        let namespace = &change.key.0;
        for pinned in [&change.old, &change.new].into_iter().flatten() {
            for (name, decoded) in self.world.rollouts.in_namespace(namespace) {
                if decoded.good().is_some_and(|r| r.metadata.uid.as_deref() == Some(pinned.owner.as_str())) {
                    self.queue.add(Task::Rollout(namespace.clone(), name));
                }
            }
        }
    }

    pub(super) fn enqueue_owner(
        &self,
        namespace: &str,
        owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference],
    ) {
        for owner in owners.iter().filter(|o| o.kind == "NumaflowControllerRollout" && o.api_version.starts_with(GROUP))
        {
            self.queue.add(Task::Rollout(namespace.to_owned(), owner.name.clone()));
        }
    }

    pub(super) fn object_changed(&self, change: &Change<Live>) {
        let same = match (&change.old, &change.new) {
            (Some(old), Some(new)) => {
                **old == Live { resource_version: old.resource_version.clone(), ..(**new).clone() }
            }
            _ => false,
        };
        if same {
            return;
        }
        let namespace = &change.key.0;
        for live in [&change.old, &change.new].into_iter().flatten() {
            let Some(mark) = &live.tracking else { continue };
            if is_mark_of_isolated(mark) {
                for (name, controller) in self.world.controllers.in_namespace(namespace) {
                    if let Some(child) = controller.good().filter(|_| mark_of_isolated(&name) == *mark) {
                        self.enqueue_owner(namespace, child.owner_references());
                    }
                }
                continue;
            }
            for (name, _) in self.world.rollouts.in_namespace(namespace) {
                if mark_of_rollout(&name) == *mark {
                    self.queue.add(Task::Rollout(namespace.clone(), name));
                }
            }
            for (name, controller) in self.world.controllers.in_namespace(namespace) {
                let alone = controller.good().is_some_and(|c| !observe::is_child(c));
                if alone && mark_of_controller(&name) == *mark {
                    self.queue.add(Task::Controller(namespace.clone(), name));
                }
            }
        }
    }

    pub(super) fn definitions_changed(&self, change: &Change<DefinitionsMap>) {
        let (namespace, name) = &change.key;
        self.world.catalogue_follows(&change.key);
        // Pinned copies of what is defined are then shared with it.
        for located in change.new.iter().flat_map(|map| &map.parsed.definitions) {
            drop(self.world.intern(located.definition.clone()));
        }
        let known: HashSet<String> =
            change.old.iter().flat_map(|map| &map.parsed.errors).map(ToString::to_string).collect();
        for error in change.new.iter().flat_map(|map| &map.parsed.errors) {
            let note = error.to_string();
            if known.contains(&note) {
                continue;
            }
            tracing::warn!(configmap = format!("{namespace}/{name}"), error = note, "a definition is not usable");
            let about = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("ConfigMap".to_owned()),
                namespace: Some(namespace.clone()),
                name: Some(name.clone()),
                // Without it `kubectl describe` does not show the event.
                uid: change.new.as_ref().map(|map| map.uid.clone()),
                ..ObjectReference::default()
            };
            // The receiver lives as long as the operator; without one there is nobody to tell.
            let _ = self.news.send((about, Event { warning: true, reason: "DefinitionMalformed", note }));
        }
        if *namespace == self.settings.operator_namespace {
            self.enqueue_all();
        } else {
            self.enqueue_namespace(namespace);
        }
    }

    pub(super) fn namespace_changed(&self, change: &Change<NamespaceState>) {
        let name = &change.key.1;
        let terminating = |state: &Option<Arc<NamespaceState>>| state.as_ref().is_some_and(|s| s.terminating);
        if terminating(&change.old) != terminating(&change.new) {
            self.enqueue_namespace(name);
            if change.new.is_none() {
                self.world.forget_namespace(name);
            } else if !self.world.rollouts.in_namespace(name).is_empty() {
                self.world.leaves(name);
            }
            // Namespaces of others, served or not, are nobody's business here.
            if self.world.was_ours(name) || !self.world.pipelines.in_namespace(name).is_empty() {
                self.queue.add(Task::Namespace(name.clone()));
            }
        }
        let remaining = |state: &Option<Arc<NamespaceState>>| state.as_ref().and_then(|s| s.remaining.clone());
        let held = remaining(&change.new).filter(|_| remaining(&change.old).is_none());
        if let Some(words) = held
            && !self.world.rollouts.in_namespace(name).is_empty()
        {
            // Nothing can be created in it any more, so the event goes where those about cluster-scoped objects go.
            let about = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Namespace".to_owned()),
                name: Some(name.clone()),
                uid: change.new.as_ref().map(|s| s.uid.clone()),
                ..ObjectReference::default()
            };
            let note = format!("the deletion of namespace {name} is held up, not by this operator: {words}");
            let _ = self.news.send((about, Event { warning: true, reason: "NamespaceHeld", note }));
        }
    }

    pub(super) fn enqueue_namespace(&self, namespace: &str) {
        self.enqueue_rollouts(namespace);
        self.enqueue_data_plane(namespace);
    }

    /// Wants the rollouts of controllers, and the NumaflowControllers without one, to be looked at.
    pub(super) fn enqueue_rollouts(&self, namespace: &str) {
        for (name, _) in self.world.rollouts.in_namespace(namespace) {
            self.queue.add(Task::Rollout(namespace.to_owned(), name));
        }
        self.enqueue_controllers(namespace);
    }

    pub(super) fn enqueue_controllers(&self, namespace: &str) {
        for (name, controller) in self.world.controllers.in_namespace(namespace) {
            if controller.good().is_some_and(|c| !observe::is_child(c)) {
                self.queue.add(Task::Controller(namespace.to_owned(), name));
            }
        }
    }

    pub(super) fn enqueue_all(&self) {
        for (namespace, name) in self.world.rollouts.keys() {
            self.queue.add(Task::Rollout(namespace, name));
        }
        for (namespace, name) in self.world.controllers.keys() {
            if self
                .world
                .controllers
                .get(&namespace, &name)
                .is_some_and(|c| c.good().is_some_and(|c| !observe::is_child(c)))
            {
                self.queue.add(Task::Controller(namespace, name));
            }
        }
        self.enqueue_whole_data_plane();
    }
}
