//! A namespace, and what its users do and see in it.

use k8s_openapi::api::{
    apps::v1::{ControllerRevision, Deployment},
    core::v1::{Event, Pod},
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    core::NamespaceResourceScope,
};
use numaplane::api::{
    Condition, LABEL_UPGRADE_STATE, NumaflowController, NumaflowControllerRollout, NumaflowControllerRolloutStatus,
    Phase,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::wait::eventually;

/// A namespace, seen by an administrator.
#[derive(Clone)]
pub struct Team {
    /// The administrator's client.
    pub client: Client,
    /// The namespace.
    pub namespace: String,
}

impl Team {
    /// The API of a kind in this namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// All objects of a kind.
    pub async fn all<K>(&self) -> Vec<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.api::<K>().list(&ListParams::default()).await.expect("the kind can be listed").items
    }

    /// One object, if it is there.
    pub async fn find<K>(&self, name: &str) -> Option<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.api::<K>().get_opt(name).await.expect("the object can be read")
    }

    /// One object that is there.
    pub async fn get<K>(&self, name: &str) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.find(name).await.unwrap_or_else(|| panic!("{}/{name} is not there", K::kind(&())))
    }

    /// Creates an object from JSON.
    pub async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + serde::Serialize
            + std::fmt::Debug,
    {
        let object = serde_json::from_value(object).expect("an object of this kind");
        self.api::<K>().create(&PostParams::default(), &object).await.expect("the object can be created")
    }

    /// Stores a time in a status that the schema takes and nobody can read: what another version, or a script, could write.
    pub async fn break_status<K>(&self, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let patch = Patch::Merge(json!({"status": {"lastFailureTime": "9999-12-31T23:59:59Z"}}));
        self.api::<K>().patch_status(name, &PatchParams::default(), &patch).await.expect("the status can be written");
    }

    /// Changes an object as somebody with kubectl does.
    pub async fn edit<K>(&self, name: &str, patch: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let parameters = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
        self.api::<K>().patch(name, &parameters, &Patch::Merge(patch)).await.expect("the object can be changed")
    }

    /// Deletes an object and does not wait for it to be gone.
    pub async fn delete<K>(&self, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        self.api::<K>().delete(name, &DeleteParams::default()).await.expect("the object can be deleted");
    }

    /// Waits until an object is gone.
    pub async fn gone<K>(&self, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        eventually(&format!("{}/{name} is gone", K::kind(&())), async || match self.find::<K>(name).await {
            None => Ok(()),
            Some(object) => Err(format!("finalizers {:?}", object.finalizers())),
        })
        .await;
    }

    // ---- rollouts -----------------------------------------------------------------------------------------------

    /// Creates a rollout.
    pub async fn install(&self, name: &str, version: &str) -> NumaflowControllerRollout {
        self.install_with(name, json!({"controller": {"version": version}})).await
    }

    /// Creates a rollout with this spec.
    pub async fn install_with(&self, name: &str, spec: Value) -> NumaflowControllerRollout {
        let rollout = NumaflowControllerRollout::new(name, serde_json::from_value(spec).expect("a spec"));
        let made = self.api().create(&PostParams::default(), &rollout).await;
        made.unwrap_or_else(|error| panic!("NumaflowControllerRollout {name}: {error}"))
    }

    /// Sets the version that a rollout is to have.
    pub async fn set_version(&self, name: &str, version: &str) -> NumaflowControllerRollout {
        self.edit(name, json!({"spec": {"controller": {"version": version}}})).await
    }

    /// The rollout.
    pub async fn rollout(&self, name: &str) -> NumaflowControllerRollout {
        self.get(name).await
    }

    /// Its status.
    pub async fn status(&self, name: &str) -> NumaflowControllerRolloutStatus {
        self.rollout(name).await.status.unwrap_or_default()
    }

    /// Waits until a rollout is as it should be.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&NumaflowControllerRollout) -> bool,
    ) -> NumaflowControllerRollout {
        eventually(&format!("{name}: {what}"), async || {
            let rollout = self.rollout(name).await;
            if is(&rollout) { Ok(rollout) } else { Err(describe(&rollout)) }
        })
        .await
    }

    /// Waits until the version that the spec asks for is promoted, confirmed and healthy, and is this one.
    pub async fn deployed(&self, name: &str, version: &str) -> NumaflowControllerRollout {
        self.until(name, &format!("version {version:?} is Deployed"), |rollout| {
            let status = rollout.status.clone().unwrap_or_default();
            looked_at(rollout)
                && status.phase == Phase::deployed()
                && rollout.spec.controller.version == version
                && status.promoted.is_some_and(|p| p.version == version)
                && status.upgrade.is_none()
        })
        .await
    }

    /// Waits until a condition of a rollout is True.
    pub async fn is_true(&self, name: &str, kind: &str) -> NumaflowControllerRollout {
        let holds = |r: &NumaflowControllerRollout| condition(r, kind).is_some_and(|c| c.status == "True");
        self.until(name, &format!("{kind} is True"), holds).await
    }

    /// Waits until a rollout is Failed and says all of these words.
    pub async fn failed(&self, name: &str, words: &[&str]) -> NumaflowControllerRollout {
        self.until(name, &format!("is Failed and says {words:?}"), |rollout| {
            let status = rollout.status.clone().unwrap_or_default();
            looked_at(rollout)
                && status.phase == Phase::failed()
                && status.upgrade.is_none()
                && words.iter().all(|w| status.message.contains(w))
        })
        .await
    }

    /// The children of a rollout, by name.
    pub async fn children(&self, rollout: &str) -> Vec<NumaflowController> {
        let owner = self.rollout(rollout).await.uid();
        let mut all = self.all::<NumaflowController>().await;
        all.retain(|c| c.owner_references().iter().any(|o| Some(&o.uid) == owner.as_ref()));
        all
    }

    /// Waits until a rollout has exactly one child and that one is promoted; returns it.
    pub async fn one_child(&self, rollout: &str) -> NumaflowController {
        eventually("one child, promoted", async || {
            let mut children = self.children(rollout).await;
            match (children.pop(), children.len()) {
                (Some(child), 0) if state(&child) == "promoted" && child.metadata.deletion_timestamp.is_none() => {
                    Ok(child)
                }
                (child, more) => Err(format!("{:?} and {more} more", child.map(|c| (c.name_any(), state(&c))))),
            }
        })
        .await
    }

    // ---- what runs ----------------------------------------------------------------------------------------------

    /// A Deployment.
    pub async fn deployment(&self, name: &str) -> Deployment {
        self.get(name).await
    }

    /// Names of all Deployments.
    pub async fn deployments(&self) -> Vec<String> {
        self.all::<Deployment>().await.iter().map(ResourceExt::name_any).collect()
    }

    /// Names and uids of the pods that are not on their way out.
    pub async fn pods(&self) -> Vec<(String, String)> {
        let pods = self.all::<Pod>().await;
        let alive = pods.into_iter().filter(|p| p.metadata.deletion_timestamp.is_none());
        alive.map(|p| (p.name_any(), p.uid().unwrap_or_default())).collect()
    }

    /// Names of all pinned revisions.
    pub async fn revisions(&self) -> Vec<String> {
        self.all::<ControllerRevision>().await.iter().map(ResourceExt::name_any).collect()
    }

    /// Waits for an event about an object that says all of these words.
    pub async fn event(&self, kind: &str, name: &str, words: &[&str]) {
        eventually(&format!("an event on {kind}/{name} says {words:?}"), async || {
            let notes: Vec<String> = self
                .all::<Event>()
                .await
                .into_iter()
                .filter(|e| {
                    e.involved_object.kind.as_deref() == Some(kind) && e.involved_object.name.as_deref() == Some(name)
                })
                .map(|e| format!("{}: {}", e.reason.unwrap_or_default(), e.message.unwrap_or_default()))
                .collect();
            let said = notes.iter().any(|note| words.iter().all(|w| note.contains(w)));
            if said { Ok(()) } else { Err(format!("{notes:?}")) }
        })
        .await;
    }
}

/// Whether the status is about the current spec.
pub fn looked_at(rollout: &NumaflowControllerRollout) -> bool {
    rollout.status.as_ref().map(|s| s.observed_generation) == rollout.metadata.generation
}

/// What a child renders, by its label.
pub fn state(child: &NumaflowController) -> String {
    child.labels().get(LABEL_UPGRADE_STATE).cloned().unwrap_or_default()
}

/// A condition of a rollout.
pub fn condition(rollout: &NumaflowControllerRollout, kind: &str) -> Option<Condition> {
    rollout.status.as_ref()?.conditions.iter().find(|c| c.type_ == kind).cloned()
}

/// A rollout in one line.
pub fn describe(rollout: &NumaflowControllerRollout) -> String {
    let status = rollout.status.clone().unwrap_or_default();
    format!(
        "generation {:?} (observed {}), {:?}: {:?}, stage {:?}, promoted {:?}",
        rollout.metadata.generation,
        status.observed_generation,
        status.phase.as_str(),
        status.message,
        status.upgrade.map(|u| u.stage),
        status.promoted.map(|p| p.version),
    )
}
