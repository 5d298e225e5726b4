//! Writes of our own kinds: rollouts, children, pinned definitions.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::{
    ByteString,
    api::{apps::v1::ControllerRevision, core::v1::Secret},
    apimachinery::pkg::{apis::meta::v1::OwnerReference, runtime::RawExtension},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, PropagationPolicy},
    core::{NamespaceResourceScope, ObjectMeta, object::HasStatus},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    Cluster, Failure, Lesson, Subject,
    answer::{failure, gone_is_good, is_failed_test, limited, own},
    production::{delete_of, owned},
};
use crate::{
    api::{
        FINALIZER, GROUP, IsbServiceRollout, LABEL_PARENT, LABEL_UPGRADE_STATE, MANAGER_OWN, MonoVertexRollout,
        NumaflowController, NumaflowControllerRollout, NumaflowControllerSpec, PipelineRollout, UpgradeState, VERSION,
        label_value,
    },
    definitions::Definition,
    live::Version,
    plan::{About, Pin, Refusal},
    store::{Seen, Store},
    words::list,
    world::{Decoded, World},
};

/// A kind of our own.
pub(super) trait Own:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + HasStatus<Status: Serialize>
    + Clone
    + DeserializeOwned
    + std::fmt::Debug
{
    /// Where objects of this kind are kept.
    fn store(world: &World) -> &Store<Decoded<Self>>;
}

impl Own for NumaflowControllerRollout {
    fn store(world: &World) -> &Store<Decoded<Self>> {
        &world.rollouts
    }
}

impl Own for NumaflowController {
    fn store(world: &World) -> &Store<Decoded<Self>> {
        &world.controllers
    }
}

impl Own for PipelineRollout {
    fn store(world: &World) -> &Store<Decoded<Self>> {
        &world.pipeline_rollouts
    }
}

impl Own for IsbServiceRollout {
    fn store(world: &World) -> &Store<Decoded<Self>> {
        &world.isb_rollouts
    }
}

impl Own for MonoVertexRollout {
    fn store(world: &World) -> &Store<Decoded<Self>> {
        &world.mono_vertex_rollouts
    }
}

impl Cluster {
    pub(super) async fn set_finalizers(&self, subject: &Subject, finalizers: &[String]) -> Result<(), Failure> {
        let patch = json_patch(&finalizers_patch(subject.meta(), finalizers))?;
        match subject {
            Subject::Rollout(_) => self.keep(self.patch_subject::<NumaflowControllerRollout>(subject, &patch).await?),
            Subject::Controller(_) => self.keep(self.patch_subject::<NumaflowController>(subject, &patch).await?),
            Subject::Namespace(_) => return Err(mistake("a namespace has no finalizer of ours")),
            Subject::Pipeline(_) => self.keep(self.patch_subject::<PipelineRollout>(subject, &patch).await?),
            Subject::IsbService(_) => self.keep(self.patch_subject::<IsbServiceRollout>(subject, &patch).await?),
            Subject::MonoVertex(_) => self.keep(self.patch_subject::<MonoVertexRollout>(subject, &patch).await?),
        }
        Ok(())
    }

    async fn patch_subject<K: Own>(&self, subject: &Subject, patch: &Patch<()>) -> Result<K, Failure> {
        let api: Api<K> = Api::namespaced(self.client.clone(), subject.namespace());
        match limited(api.patch(subject.name(), &owned(), patch)).await {
            // What was to be removed is not where it was.
            Err(kube::Error::Api(status)) if is_failed_test(&status) => Err(Failure::Conflict),
            answer => own(&format!("{}/{}", subject.kind(), subject.name()), answer),
        }
    }

    /// Writes the status of the object that the turn is about.
    pub(super) async fn write_status<K: Own>(&self, subject: &Subject, status: &K::Status) -> Result<(), Failure> {
        if subject.kind() != K::kind(&()) {
            return Err(mistake(&format!("a {} has another status", subject.kind())));
        }
        self.write_status_of::<K>(subject.namespace(), &Version::of(subject.meta()), status).await
    }

    /// Writes the status of an object of ours, unless it has changed since.
    pub(super) async fn write_status_of<K: Own>(
        &self,
        namespace: &str,
        of: &Version,
        status: &K::Status,
    ) -> Result<(), Failure> {
        let patch = json_patch(&json!([
            expect(&of.resource_version),
            {"op": "add", "path": "/status", "value": status},
        ]))?;
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let what = format!("{}/{}", K::kind(&()), of.name);
        let answer = own(&what, limited(api.patch_status(&of.name, &owned(), &patch)).await)?;
        let kept = as_sent(&what, status, answer.status());
        self.keep(answer);
        kept
    }

    pub(super) async fn create_child(
        &self,
        subject: &Subject,
        name: &str,
        spec: &NumaflowControllerSpec,
        state: UpgradeState,
    ) -> Result<(), Failure> {
        let namespace = subject.namespace();
        let mut child = NumaflowController::new(name, spec.clone());
        child.metadata.namespace = Some(namespace.to_owned());
        child.metadata.labels = Some(BTreeMap::from([
            (LABEL_UPGRADE_STATE.to_owned(), state.as_str().to_owned()),
            (LABEL_PARENT.to_owned(), label_value(subject.name())),
        ]));
        child.metadata.owner_references = Some(vec![owner_reference(subject)]);
        let api: Api<NumaflowController> = Api::namespaced(self.client.clone(), namespace);
        let parameters = PostParams { field_manager: Some(MANAGER_OWN.to_owned()), ..PostParams::default() };
        let answer = limited(api.create(&parameters, &child)).await;
        self.keep(own(&format!("NumaflowController/{name}"), answer)?);
        Ok(())
    }

    /// Gives a child its label, and whatever else somebody took from it: the labels and the owner that make it ours.
    pub(super) async fn label_child(
        &self,
        subject: &Subject,
        child: &Version,
        state: UpgradeState,
    ) -> Result<(), Failure> {
        let patch = json!({"metadata": {
            "resourceVersion": child.resource_version,
            "labels": {LABEL_UPGRADE_STATE: state.as_str(), LABEL_PARENT: label_value(subject.name())},
            "ownerReferences": [owner_reference(subject)],
        }});
        let api: Api<NumaflowController> = Api::namespaced(self.client.clone(), subject.namespace());
        let answer = limited(api.patch(&child.name, &owned(), &Patch::Merge(&patch))).await;
        self.keep(own(&format!("NumaflowController/{}", child.name), answer)?);
        Ok(())
    }

    pub(super) async fn delete_child(&self, namespace: &str, child: &Version) -> Result<(), Failure> {
        let api: Api<NumaflowController> = Api::namespaced(self.client.clone(), namespace);
        let parameters = delete_of(&child.uid, PropagationPolicy::Background);
        match limited(api.delete(&child.name, &parameters)).await {
            // Somebody's finalizer holds it.
            Ok(answer) if answer.is_left() => answer.left().into_iter().for_each(|going| self.keep(going)),
            Ok(_) => {
                let key = (namespace.to_owned(), child.name.clone());
                self.world.controllers.forget(&key, &Seen::for_good(&child.uid));
            }
            Err(error) => clean_up("NumaflowController", &child.name, gone_is_good::<()>(Err(error)))?,
        }
        Ok(())
    }

    /// Deletes an object of this very uid. One that is gone already is as good.
    pub(super) async fn delete<K>(&self, namespace: &str, name: &str, uid: &str) -> Result<(), kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        gone_is_good(limited(api.delete(name, &delete_of(uid, PropagationPolicy::Background))).await)
    }

    /// What the server answers about an object of ours is in its store before the next decision.
    pub(super) fn keep<K: Own>(&self, mut object: K) {
        object.meta_mut().managed_fields = None;
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        let seen = Seen::of(object.meta());
        K::store(&self.world).offer(key, seen, Decoded::Good(Arc::new(object)));
    }

    pub(super) async fn pin(&self, subject: &Subject, pin: &Pin) -> Result<(), Failure> {
        let namespace = subject.namespace();
        let metadata = ObjectMeta {
            name: Some(pin.name.clone()),
            namespace: Some(namespace.to_owned()),
            labels: Some(BTreeMap::from([(LABEL_PARENT.to_owned(), label_value(subject.name()))])),
            owner_references: Some(vec![owner_reference(subject)]),
            ..ObjectMeta::default()
        };
        let data = if pin.secret {
            let content = serde_json::to_vec(&*pin.definition).unwrap_or_default();
            let secret = Secret {
                metadata: metadata.clone(),
                data: Some(BTreeMap::from([("definition".to_owned(), ByteString(content))])),
                immutable: Some(true),
                ..Secret::default()
            };
            let what = format!("Secret/{}", pin.name);
            own(&what, self.apply_own(namespace, &pin.name, &secret).await)?;
            self.world.keep_pin(namespace, &pin.name, pin.definition.clone());
            json!({"version": pin.definition.version, "secret": pin.name})
        } else {
            json!({"version": pin.definition.version, "definition": *pin.definition})
        };
        let revision = ControllerRevision { metadata, revision: pin.number, data: Some(RawExtension(data)) };
        let what = format!("ControllerRevision/{}", pin.name);
        let stored: ControllerRevision = own(&what, self.apply_own(namespace, &pin.name, &revision).await)?;
        let seen = Seen::of(&stored.metadata);
        let pinned = self.world.read_revision(&stored);
        self.world.revisions.offer((namespace.to_owned(), pin.name.clone()), seen, pinned);
        Ok(())
    }

    /// Revisions are compared byte for byte by the server; only what server-side apply wrote can be written again.
    pub(super) async fn apply_own<K>(&self, namespace: &str, name: &str, object: &K) -> Result<K, kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Serialize
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        limited(api.patch(name, &PatchParams::apply(MANAGER_OWN).force(), &Patch::Apply(object))).await
    }

    pub(super) async fn delete_revision(&self, namespace: &str, name: &str, uid: &str) -> Result<(), Failure> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = match self.world.revisions.get(namespace, name).map(|p| p.content.clone()) {
            Some(crate::world::PinnedContent::Secret(secret)) => Some(secret),
            _ => None,
        };
        if let Some(secret) = secret {
            let answer = limited(secrets.delete(&secret, &DeleteParams::default())).await;
            clean_up("Secret", &secret, gone_is_good(answer))?;
            self.world.forget_pin(namespace, &secret);
        }
        let answer = self.delete::<ControllerRevision>(namespace, name, uid).await;
        clean_up("ControllerRevision", name, answer)?;
        self.world.revisions.forget(&(namespace.to_owned(), name.to_owned()), &Seen::for_good(uid));
        Ok(())
    }

    pub(super) async fn read_pin(&self, namespace: &str, name: &str) -> Result<Vec<Lesson>, Failure> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = own(&format!("Secret/{name}"), limited(secrets.get_opt(name)).await)?;
        let definition: Option<Definition> = secret
            .and_then(|s| s.data)
            .and_then(|mut data| data.remove("definition"))
            .and_then(|bytes| serde_json::from_slice(&bytes.0).ok());
        match definition {
            Some(definition) => {
                self.world.keep_pin(namespace, name, Arc::new(definition));
                Ok(Vec::new())
            }
            None => Ok(vec![Lesson::AbsentPin(name.to_owned())]),
        }
    }
}

/// The answer to the removal of something that nothing needs any more.
fn clean_up(kind: &str, name: &str, answer: Result<(), kube::Error>) -> Result<(), Failure> {
    answer.map_err(|error| failure(&error, About::CleanUp(name.to_owned()), &format!("{kind}/{name}")))
}

/// Whether the server stored a status as it was sent. One whose CustomResourceDefinition is older drops what it does not know;
/// written again and again it would never be there.
fn as_sent<T: Serialize>(what: &str, sent: &T, stored: Option<&T>) -> Result<(), Failure> {
    let value = |status: Option<&T>| status.and_then(|s| serde_json::to_value(s).ok()).unwrap_or_default();
    let (sent, stored) = (value(Some(sent)), value(stored));
    let lost: Vec<String> = sent
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(key, value)| stored.get(key.as_str()) != Some(value))
        .map(|(key, _)| format!("status.{key}"))
        .collect();
    if lost.is_empty() {
        return Ok(());
    }
    Err(Failure::Refused(Box::new(Refusal {
        about: About::Own,
        reason: "StatusNotStored".to_owned(),
        message: format!(
            "{what}: the server does not store {} as it is; its CustomResourceDefinition is older than this operator, \
             apply the one that belongs to it",
            list(&lost, 5)
        ),
    })))
}

/// A mistake in this room.
pub(super) fn mistake(words: &str) -> Failure {
    Failure::Silent(Box::new(Refusal { about: About::Own, reason: "Mistake".to_owned(), message: words.to_owned() }))
}

/// Makes the server compare the version that the change was decided from: a difference is answered with 409.
pub(super) fn expect(resource_version: &str) -> Value {
    json!({"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version})
}

/// Gives an object these finalizers. Taking ours away touches nothing else and expects no version: whoever keeps changing the
/// object does not hold it up, and what others add meanwhile stays.
fn finalizers_patch(metadata: &ObjectMeta, wanted: &[String]) -> Value {
    let is_ours = |finalizer: &String| finalizer == FINALIZER;
    let ours = metadata.finalizers.iter().flatten().position(is_ours);
    match ours.filter(|_| !wanted.iter().any(is_ours)) {
        Some(index) => {
            let path = format!("/metadata/finalizers/{index}");
            json!([
                {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
                {"op": "test", "path": path, "value": FINALIZER},
                {"op": "remove", "path": path},
            ])
        }
        None => json!([
            expect(metadata.resource_version.as_deref().unwrap_or_default()),
            {"op": "add", "path": "/metadata/finalizers", "value": wanted},
        ]),
    }
}

pub(super) fn json_patch(operations: &Value) -> Result<Patch<()>, Failure> {
    serde_json::from_value(operations.clone())
        .map(Patch::Json)
        .map_err(|error| mistake(&format!("a patch cannot be made: {error}")))
}

pub(super) fn owner_reference(subject: &Subject) -> OwnerReference {
    OwnerReference {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: subject.kind().to_owned(),
        name: subject.name().to_owned(),
        uid: subject.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::NumaflowControllerStatus;

    fn metadata(finalizers: &[&str]) -> ObjectMeta {
        ObjectMeta {
            uid: Some("u".into()),
            resource_version: Some("7".into()),
            finalizers: Some(finalizers.iter().map(ToString::to_string).collect()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn our_finalizer_is_removed_from_where_it_is_and_nothing_else_is_expected_or_touched() {
        let patch = finalizers_patch(&metadata(&["theirs", FINALIZER]), &["theirs".into()]);
        let path = "/metadata/finalizers/1";
        assert_eq!(
            patch,
            json!([
                {"op": "test", "path": "/metadata/uid", "value": "u"},
                {"op": "test", "path": path, "value": FINALIZER},
                {"op": "remove", "path": path},
            ])
        );
        assert!(json_patch(&patch).is_ok());
    }

    #[test]
    fn it_is_added_to_what_was_seen() {
        let wanted = ["theirs".to_owned(), FINALIZER.to_owned()];
        let patch = finalizers_patch(&metadata(&["theirs"]), &wanted);
        assert_eq!(patch[0]["value"], "7");
        assert_eq!(patch[1], json!({"op": "add", "path": "/metadata/finalizers", "value": wanted}));
    }

    #[test]
    fn a_status_that_the_server_does_not_store_whole_is_told_and_not_written_again_at_once() {
        let sent = NumaflowControllerStatus { message: "m".into(), ..Default::default() };
        assert_eq!(as_sent("NumaflowController/a", &sent, Some(&sent)), Ok(()));
        let stored = NumaflowControllerStatus::default();
        let Err(Failure::Refused(refusal)) = as_sent("NumaflowController/a", &sent, Some(&stored)) else {
            panic!("it is refused")
        };
        assert!(refusal.message.contains("status.message") && refusal.message.contains("older"), "{}", refusal.message);
    }
}
