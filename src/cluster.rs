//! The one room that writes to the cluster: carries out steps, and says what was learned from the answers.
//!
//! Every write has a time limit, states what it expects to find (uid or resourceVersion), and can be repeated. Answers go
//! into the stores at once, so that the next decision is never made from something older than this write.

use std::{collections::BTreeMap, future::Future, sync::Arc, time::Duration};

use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::{ControllerRevision, ReplicaSet},
        core::v1::{ObjectReference, Secret},
        events,
    },
    apimachinery::pkg::{
        apis::meta::v1::{MicroTime, OwnerReference},
        runtime::RawExtension,
    },
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
    core::{ObjectMeta, Status},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    api::{
        AppliedObject, LABEL_PARENT, LABEL_TRACKING, LABEL_UPGRADE_STATE, MANAGER_OWN, MANAGER_PRODUCTION,
        NumaflowController, NumaflowControllerRollout, NumaflowControllerSpec, UpgradeState, fit, label_value,
    },
    definitions::Definition,
    kinds::{self, Kinds},
    live::{Live, ObjectId},
    manifest::DesiredObject,
    plan::{About, Event, Pin, Refusal, Step, Version},
    store::Seen,
    world::{Decoded, Pinned, World},
};

/// Longest time for one request.
const LIMIT: Duration = Duration::from_secs(10);

/// The object that a turn is about.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A rollout.
    Rollout(Arc<NumaflowControllerRollout>),
    /// A NumaflowController without a rollout.
    Controller(Arc<NumaflowController>),
}

impl Subject {
    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Rollout(r) => &r.metadata,
            Self::Controller(c) => &c.metadata,
        }
    }

    fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    fn reference(&self) -> ObjectReference {
        match self {
            Self::Rollout(r) => ObjectReference { resource_version: None, ..r.object_ref(&()) },
            Self::Controller(c) => ObjectReference { resource_version: None, ..c.object_ref(&()) },
        }
    }
}

/// What a step taught.
#[derive(Clone, Debug, PartialEq)]
pub enum Lesson {
    /// The server agrees with this object.
    Checked(ObjectId, String),
    /// The server will not change this object in place.
    Immutable(ObjectId),
    /// The object is applied, with this fingerprint.
    Applied(AppliedObject),
    /// The object is gone or going.
    Pruned(ObjectId),
    /// There is no such Secret.
    AbsentPin(String),
}

/// Why a step was not carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// Somebody else was faster: look again.
    Conflict,
    /// The namespace is being deleted.
    Terminating,
    /// The server says no.
    Refused(Box<Refusal>),
    /// No answer, or none that means anything: try again.
    Transient(String),
}

/// The cluster, to be written to.
pub struct Cluster {
    client: Client,
    world: Arc<World>,
    kinds: Kinds,
}

impl Cluster {
    /// A writer for this client; answers go into `world`.
    #[must_use]
    pub fn new(client: Client, world: Arc<World>) -> Self {
        Self { client, world, kinds: Kinds::default() }
    }

    /// Carries out one step.
    ///
    /// # Errors
    /// The step was not carried out, see [`Failure`].
    pub async fn carry_out(&self, subject: &Subject, step: &Step) -> Result<Vec<Lesson>, Failure> {
        let namespace = subject.namespace();
        match step {
            Step::SetFinalizers(finalizers) => self.set_finalizers(subject, finalizers).await?,
            Step::WriteStatus { status, events } => {
                self.write_status(subject, status).await?;
                for event in events {
                    self.publish(&subject.reference(), event).await;
                }
            }
            Step::ReadPin { secret } => return self.read_pin(namespace, secret).await,
            Step::Pin(pin) => self.pin(subject, pin).await?,
            Step::Check(objects) => return self.check(subject, objects).await,
            Step::CreateChild { name, spec, state } => self.create_child(subject, name, spec, *state).await?,
            Step::LabelChild { child, state } => self.label_child(namespace, child, *state).await?,
            Step::WriteChildStatus { child, status } => {
                let patch = status_patch(&child.resource_version, status)?;
                let answer = self.patch_status::<NumaflowController>(namespace, &child.name, &patch).await;
                self.keep_controller(own(&format!("NumaflowController/{}", child.name), answer)?);
            }
            Step::DeleteChild { child } => {
                self.delete_child(namespace, child).await?;
            }
            Step::Apply { object, uid } => return self.apply(subject, object, uid.as_deref()).await,
            Step::Recreate { object, uid, event } => return self.recreate(subject, object, uid, event).await,
            Step::Prune { id, version, uid } => return self.prune(namespace, id, version, uid).await,
            Step::DeleteRevision { name, uid } => {
                let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
                let secret = match self.world.revisions.get(namespace, name).map(|p| p.content.clone()) {
                    Some(crate::world::PinnedContent::Secret(secret)) => Some(secret),
                    _ => None,
                };
                if let Some(secret) = secret {
                    let answer = limited(secrets.delete(&secret, &DeleteParams::default())).await;
                    own(&format!("Secret/{secret}"), gone_is_good(answer))?;
                }
                let answer = self.delete::<ControllerRevision>(namespace, name, uid).await;
                own(&format!("ControllerRevision/{name}"), answer)?;
                self.world.revisions.forget(&(namespace.to_owned(), name.clone()), &Seen::for_good(uid));
            }
        }
        Ok(Vec::new())
    }

    /// Tells the user something. That it cannot be told fails nothing.
    ///
    /// Own code rather than kube's `Recorder`, which merges events that differ in their note only and keeps the first
    /// note, and which makes names that are too long for objects with long names.
    pub async fn publish(&self, about: &ObjectReference, event: &Event) {
        let now = jiff::Timestamp::now();
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name = fit(about.name.as_deref().unwrap_or_default(), 220);
        let body = events::v1::Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            action: Some(event.reason.to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(crate::api::cut(&event.note, 1000)),
            reason: Some(event.reason.to_owned()),
            regarding: Some(about.clone()),
            reporting_controller: Some("numaplane.numaproj.io/controller".to_owned()),
            reporting_instance: Some("numaplane".to_owned()),
            type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
            ..events::v1::Event::default()
        };
        let api: Api<events::v1::Event> = Api::namespaced(self.client.clone(), &namespace);
        if let Err(error) = limited(api.create(&PostParams::default(), &body)).await {
            tracing::debug!(%error, reason = event.reason, "an event was not published");
        }
    }

    // ---- our own kinds ------------------------------------------------------------------------------------------

    async fn set_finalizers(&self, subject: &Subject, finalizers: &[String]) -> Result<(), Failure> {
        let meta = subject.meta();
        let patch = json_patch(&json!([
            expect(meta.resource_version.as_deref().unwrap_or_default()),
            {"op": "add", "path": "/metadata/finalizers", "value": finalizers},
        ]))?;
        let (namespace, name) = (subject.namespace(), subject.name());
        match subject {
            Subject::Rollout(_) => {
                let api: Api<NumaflowControllerRollout> = Api::namespaced(self.client.clone(), namespace);
                let answer = limited(api.patch(name, &owned(), &patch)).await;
                self.keep_rollout(own(&format!("NumaflowControllerRollout/{name}"), answer)?);
            }
            Subject::Controller(_) => {
                let api: Api<NumaflowController> = Api::namespaced(self.client.clone(), namespace);
                let answer = limited(api.patch(name, &owned(), &patch)).await;
                self.keep_controller(own(&format!("NumaflowController/{name}"), answer)?);
            }
        }
        Ok(())
    }

    async fn write_status(
        &self,
        subject: &Subject,
        status: &crate::api::NumaflowControllerRolloutStatus,
    ) -> Result<(), Failure> {
        let Subject::Rollout(rollout) = subject else {
            return Err(Failure::Transient("only a rollout has this status".to_owned()));
        };
        let patch = status_patch(rollout.metadata.resource_version.as_deref().unwrap_or_default(), status)?;
        let answer = self.patch_status::<NumaflowControllerRollout>(subject.namespace(), subject.name(), &patch).await;
        self.keep_rollout(own(&format!("NumaflowControllerRollout/{}", subject.name()), answer)?);
        Ok(())
    }

    async fn create_child(
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
        self.keep_controller(own(&format!("NumaflowController/{name}"), answer)?);
        Ok(())
    }

    async fn label_child(&self, namespace: &str, child: &Version, state: UpgradeState) -> Result<(), Failure> {
        let path = format!("/metadata/labels/{}", LABEL_UPGRADE_STATE.replace('/', "~1"));
        let patch = json_patch(&json!([
            expect(&child.resource_version),
            {"op": "add", "path": path, "value": state.as_str()},
        ]))?;
        let api: Api<NumaflowController> = Api::namespaced(self.client.clone(), namespace);
        let answer = limited(api.patch(&child.name, &owned(), &patch)).await;
        self.keep_controller(own(&format!("NumaflowController/{}", child.name), answer)?);
        Ok(())
    }

    async fn delete_child(&self, namespace: &str, child: &Version) -> Result<(), Failure> {
        let api: Api<NumaflowController> = Api::namespaced(self.client.clone(), namespace);
        let parameters = delete_of(&child.uid, PropagationPolicy::Background);
        match limited(api.delete(&child.name, &parameters)).await {
            // Somebody's finalizer holds it.
            Ok(answer) if answer.is_left() => answer.left().into_iter().for_each(|going| self.keep_controller(going)),
            Ok(_) => {
                let key = (namespace.to_owned(), child.name.clone());
                self.world.controllers.forget(&key, &Seen::for_good(&child.uid));
            }
            Err(error) => own(&format!("NumaflowController/{}", child.name), gone_is_good::<()>(Err(error)))?,
        }
        Ok(())
    }

    async fn patch_status<K>(&self, namespace: &str, name: &str, patch: &Patch<()>) -> Result<K, kube::Error>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        limited(api.patch_status(name, &owned(), patch)).await
    }

    /// Deletes an object of this very uid. One that is gone already is as good.
    async fn delete<K>(&self, namespace: &str, name: &str, uid: &str) -> Result<(), kube::Error>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        gone_is_good(limited(api.delete(name, &delete_of(uid, PropagationPolicy::Background))).await)
    }

    fn keep_rollout(&self, rollout: NumaflowControllerRollout) {
        let key = (rollout.namespace().unwrap_or_default(), rollout.name_any());
        let seen = Seen::of(&rollout.metadata);
        self.world.rollouts.offer(key, seen, Decoded::Good(Arc::new(rollout)));
    }

    fn keep_controller(&self, controller: NumaflowController) {
        let key = (controller.namespace().unwrap_or_default(), controller.name_any());
        let seen = Seen::of(&controller.metadata);
        self.world.controllers.offer(key, seen, Decoded::Good(Arc::new(controller)));
    }

    // ---- pinned definitions -------------------------------------------------------------------------------------

    async fn pin(&self, subject: &Subject, pin: &Pin) -> Result<(), Failure> {
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
        let pinned = Pinned::read(&stored);
        self.world.revisions.offer((namespace.to_owned(), pin.name.clone()), seen, pinned);
        Ok(())
    }

    /// Revisions are compared byte for byte by the server; only what server-side apply wrote can be written again.
    async fn apply_own<K>(&self, namespace: &str, name: &str, object: &K) -> Result<K, kube::Error>
    where
        K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
            + Clone
            + Serialize
            + DeserializeOwned
            + std::fmt::Debug,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        limited(api.patch(name, &PatchParams::apply(MANAGER_OWN).force(), &Patch::Apply(object))).await
    }

    async fn read_pin(&self, namespace: &str, name: &str) -> Result<Vec<Lesson>, Failure> {
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

    // ---- production objects -------------------------------------------------------------------------------------

    async fn api_of(
        &self,
        namespace: &str,
        id: &ObjectId,
        version: &str,
    ) -> Result<(Api<DynamicObject>, bool), kube::Error> {
        let kind = self.kinds.find(&self.client, &id.group, version, &id.kind).await?;
        let api = if kind.namespaced {
            Api::namespaced_with(self.client.clone(), namespace, &kind.resource)
        } else {
            Api::all_with(self.client.clone(), &kind.resource)
        };
        Ok((api, kind.namespaced))
    }

    fn body(subject: &Subject, object: &DesiredObject, uid: Option<&str>, namespaced: bool) -> Value {
        let mut body = object.placed(subject.namespace(), subject.name(), uid);
        if !namespaced {
            // Shared by all namespaces that use the version; no namespace's rollout is its only owner.
            body["metadata"]["labels"][LABEL_TRACKING] = json!(SHARED);
            if let Some(metadata) = body["metadata"].as_object_mut() {
                metadata.remove("namespace");
            }
        }
        body
    }

    /// Asks the server what it would say. Answers for all objects before it reports the first refusal.
    async fn check(&self, subject: &Subject, objects: &[Arc<DesiredObject>]) -> Result<Vec<Lesson>, Failure> {
        let asked = futures::future::join_all(objects.iter().map(|object| self.check_one(subject, object, objects)));
        let mut lessons = Vec::new();
        let mut failure = None;
        for answer in asked.await {
            match answer {
                Ok(learned) => lessons.extend(learned),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(lessons), Err)
    }

    async fn check_one(
        &self,
        subject: &Subject,
        object: &Arc<DesiredObject>,
        all: &[Arc<DesiredObject>],
    ) -> Result<Vec<Lesson>, Failure> {
        let namespace = subject.namespace();
        let about = || About::Object(object.id.clone(), object.hash.clone());
        let passed = Lesson::Checked(object.id.clone(), object.hash.clone());
        let (api, namespaced) = self
            .api_of(namespace, &object.id, &object.version)
            .await
            .map_err(|error| failure(&error, about(), &object.id.to_string()))?;
        let known = self
            .world
            .produced(&object.id.group, &object.id.kind)
            .and_then(|store| store.get(namespace, &object.id.name));
        let body = Self::body(subject, object, known.as_ref().map(|l| l.uid.as_str()), namespaced);
        let parameters = PatchParams { dry_run: true, ..PatchParams::apply(MANAGER_PRODUCTION).force() };
        match limited(api.patch(&object.id.name, &parameters, &Patch::Apply(&body))).await {
            // A dry run that would create has no resourceVersion to give.
            Ok(answer) if known.is_none() && answer.metadata.resource_version.is_some() => {
                let existing = limited(api.get_opt(&object.id.name))
                    .await
                    .map_err(|error| failure(&error, about(), &object.id.to_string()))?;
                match existing.map(|e| Live::read(&object.id.group, &object.id.kind, &e.metadata, &Value::Null)) {
                    Some(live) if !may_take_over(&live, subject.name(), namespaced) => {
                        Err(Failure::Refused(Box::new(Refusal {
                            about: about(),
                            reason: "ObjectExists".to_owned(),
                            message: exists(&live),
                        })))
                    }
                    _ => Ok(vec![passed]),
                }
            }
            Ok(_) => Ok(vec![passed]),
            Err(kube::Error::Api(status)) if is_immutable(&status) => {
                self.try_anew(subject, object, all).await?;
                Ok(vec![passed, Lesson::Immutable(object.id.clone())])
            }
            // The Role that a new binding refers to is applied just before it.
            Err(kube::Error::Api(status))
                if status.code == 404 && all.iter().any(|other| object.refers_to_role(&other.id)) =>
            {
                Ok(vec![passed])
            }
            Err(error) => Err(failure(&error, about(), &object.id.to_string())),
        }
    }

    async fn apply(
        &self,
        subject: &Subject,
        object: &Arc<DesiredObject>,
        uid: Option<&str>,
    ) -> Result<Vec<Lesson>, Failure> {
        let about = || About::Object(object.id.clone(), object.hash.clone());
        let (api, namespaced) = self
            .api_of(subject.namespace(), &object.id, &object.version)
            .await
            .map_err(|error| failure(&error, about(), &object.id.to_string()))?;
        let body = Self::body(subject, object, uid, namespaced);
        let parameters = PatchParams::apply(MANAGER_PRODUCTION).force();
        let answer = match limited(api.patch(&object.id.name, &parameters, &Patch::Apply(&body))).await {
            Ok(answer) => answer,
            Err(kube::Error::Api(status)) if uid.is_some() && is_immutable(&status) => {
                return Ok(vec![Lesson::Immutable(object.id.clone())]);
            }
            Err(error) => return Err(failure(&error, about(), &object.id.to_string())),
        };
        let live = self.keep_live(subject.namespace(), &object.id, &answer);
        if live.deleting {
            // The server says yes to a change of something that is about to be gone.
            return Ok(Vec::new());
        }
        Ok(vec![Lesson::Applied(AppliedObject {
            group: object.id.group.clone(),
            version: object.version.clone(),
            kind: object.id.kind.clone(),
            name: object.id.name.clone(),
            uid: live.uid,
            hash: object.hash.clone(),
            fields: live.fields,
        })])
    }

    fn keep_live(&self, namespace: &str, id: &ObjectId, answer: &DynamicObject) -> Live {
        let live = Live::read(&id.group, &id.kind, &answer.metadata, &answer.data);
        if let Some(store) = self.world.produced(&id.group, &id.kind) {
            store.offer((namespace.to_owned(), id.name.clone()), Seen::of(&answer.metadata), live.clone());
        }
        live
    }

    async fn prune(&self, namespace: &str, id: &ObjectId, version: &str, uid: &str) -> Result<Vec<Lesson>, Failure> {
        let answer = self.remove(namespace, id, version, uid, PropagationPolicy::Background).await;
        answer.map_err(|error| failure(&error, About::Leftover(id.clone()), &id.to_string()))?;
        Ok(vec![Lesson::Pruned(id.clone())])
    }

    /// Whether the server would accept an object that is to be made anew: asked under a name that nothing has, before the
    /// one that runs is taken away. (What only one Service can have, its address and ports, cannot be asked for.)
    async fn try_anew(
        &self,
        subject: &Subject,
        object: &Arc<DesiredObject>,
        all: &[Arc<DesiredObject>],
    ) -> Result<(), Failure> {
        let refused = |error: kube::Error| {
            failure(&error, About::Object(object.id.clone(), object.hash.clone()), &object.id.to_string())
        };
        if object.id.kind == "Service" {
            return Ok(());
        }
        let namespace = subject.namespace();
        let (api, namespaced) = self.api_of(namespace, &object.id, &object.version).await.map_err(refused)?;
        let mut body = Self::body(subject, object, None, namespaced);
        let trial = fit(&format!("{}-trial-{}", object.id.name, object.hash), 50);
        body["metadata"]["name"] = json!(trial);
        let parameters = PatchParams { dry_run: true, ..PatchParams::apply(MANAGER_PRODUCTION).force() };
        match limited(api.patch(&trial, &parameters, &Patch::Apply(&body))).await {
            Err(kube::Error::Api(status)) if status.code == 404 && all.iter().any(|o| object.refers_to_role(&o.id)) => {
                Ok(())
            }
            answer => answer.map(drop).map_err(refused),
        }
    }

    async fn recreate(
        &self,
        subject: &Subject,
        object: &Arc<DesiredObject>,
        uid: &str,
        event: &Event,
    ) -> Result<Vec<Lesson>, Failure> {
        self.try_anew(subject, object, &[]).await?;
        let namespace = subject.namespace();
        let id = &object.id;
        let refused =
            |error: kube::Error| failure(&error, About::Object(id.clone(), object.hash.clone()), &id.to_string());
        let mut policy = PropagationPolicy::Background;
        if id.kind == "Deployment" && id.group == "apps" {
            // Its pods run on under the old ReplicaSets, which carry our mark so that they are found again (after a crash
            // too) and go when the new pods are available.
            policy = PropagationPolicy::Orphan;
            let api: Api<ReplicaSet> = Api::namespaced(self.client.clone(), namespace);
            let sets = limited(api.list(&ListParams::default())).await.map_err(refused)?;
            let of_it = |set: &ReplicaSet| set.owner_references().iter().any(|o| o.uid == uid);
            for set in sets.items.iter().filter(|set| of_it(set)) {
                let patch = json!({"metadata": {"labels": {LABEL_TRACKING: label_value(subject.name())}}});
                limited(api.patch(&set.name_any(), &owned(), &Patch::Merge(&patch))).await.map_err(refused)?;
            }
        }
        self.remove(namespace, id, &object.version, uid, policy).await.map_err(refused)?;
        self.publish(&subject.reference(), event).await;
        Ok(Vec::new())
    }

    async fn remove(
        &self,
        namespace: &str,
        id: &ObjectId,
        version: &str,
        uid: &str,
        policy: PropagationPolicy,
    ) -> Result<(), kube::Error> {
        let version = if version.is_empty() {
            kinds::usual(&id.group, &id.kind).map(|k| k.resource.version).unwrap_or_default()
        } else {
            version.to_owned()
        };
        let (api, _) = self.api_of(namespace, id, &version).await?;
        let key = (namespace.to_owned(), id.name.clone());
        match limited(api.delete(&id.name, &delete_of(uid, policy))).await {
            Ok(answer) => {
                if let Some(going) = answer.left() {
                    self.keep_live(namespace, id, &going);
                } else if let Some(store) = self.world.produced(&id.group, &id.kind) {
                    store.forget(&key, &Seen::for_good(uid));
                }
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {
                if let Some(store) = self.world.produced(&id.group, &id.kind) {
                    store.forget(&key, &Seen::for_good(uid));
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Tracking label of cluster-scoped objects.
const SHARED: &str = "shared";

fn may_take_over(live: &Live, owner: &str, namespaced: bool) -> bool {
    let ours = live.tracking.as_ref().is_some_and(|t| *t == label_value(owner) || (!namespaced && t == SHARED));
    // Without the label, fields of ours still say that this operator applied it: somebody took the label away.
    ours || live.adoptable || (live.tracking.is_none() && !live.fields.is_empty())
}

fn exists(live: &Live) -> String {
    let whose = match &live.tracking {
        Some(owner) => format!("belongs to {owner}"),
        None => "was not made by this operator".to_owned(),
    };
    format!(
        "{} exists and {whose}; it is not taken over. Delete it, rename it in the definition, or annotate it \
         numaplane.numaproj.io/adopt",
        live.id
    )
}

/// Fails a request that takes too long: the client's own retries could hold a turn for minutes.
async fn limited<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    match tokio::time::timeout(LIMIT, request).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service(format!("no answer within {} s", LIMIT.as_secs()).into())),
    }
}

fn gone_is_good<T>(answer: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

fn own<T>(what: &str, answer: Result<T, kube::Error>) -> Result<T, Failure> {
    answer.map_err(|error| failure(&error, About::Own, what))
}

/// What an error means for the turn.
fn failure(error: &kube::Error, about: About, what: &str) -> Failure {
    let kube::Error::Api(status) = error else {
        return Failure::Transient(format!("{what}: {}", with_sources(error)));
    };
    let terminating =
        status.details.as_ref().is_some_and(|d| d.causes.iter().any(|c| c.reason == "NamespaceTerminating"));
    match status.code {
        _ if terminating => Failure::Terminating,
        409 => Failure::Conflict,
        // Of an object of our own that must be there: somebody deleted it, and the watch will say so.
        404 if about == About::Own => Failure::Conflict,
        // What is too large for the server's store is answered with 500, and will be the next time too.
        500 if status.message.contains("too large") || status.message.contains("ResourceExhausted") => {
            Failure::Refused(Box::new(Refusal {
                about,
                reason: "TooLarge".to_owned(),
                message: format!("{what}: {}", status.message),
            }))
        }
        401 | 429 | 500..=599 => Failure::Transient(format!("{what}: {}", status.message)),
        _ => {
            let reason = if status.reason.is_empty() { "Refused".to_owned() } else { status.reason.clone() };
            Failure::Refused(Box::new(Refusal { about, reason, message: format!("{what}: {}", status.message) }))
        }
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// Whether the server says that a field can only be set when the object is made, and nothing else.
fn is_immutable(status: &Status) -> bool {
    const WORDS: [&str; 5] = [
        "is immutable",
        "cannot change roleRef",
        "may not change once set",
        "updates to statefulset spec for fields other than",
        "may not be changed",
    ];
    let says = |text: &str| WORDS.iter().any(|words| text.contains(words));
    if status.code != 422 || status.message.contains("denied request") || status.message.contains("denied the request")
    {
        return false;
    }
    match status.details.as_ref().map(|d| d.causes.as_slice()).unwrap_or_default() {
        [] => says(&status.message),
        causes => causes.iter().all(|cause| says(&cause.message)),
    }
}

fn owned() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER_OWN.to_owned()), ..PatchParams::default() }
}

fn delete_of(uid: &str, policy: PropagationPolicy) -> DeleteParams {
    DeleteParams {
        propagation_policy: Some(policy),
        preconditions: (!uid.is_empty()).then(|| Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    }
}

/// Makes the server compare the version that the change was decided from: a difference is answered with 409.
fn expect(resource_version: &str) -> Value {
    json!({"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version})
}

fn json_patch(operations: &Value) -> Result<Patch<()>, Failure> {
    serde_json::from_value(operations.clone())
        .map(Patch::Json)
        .map_err(|error| Failure::Transient(format!("a patch cannot be made: {error}")))
}

fn status_patch(resource_version: &str, status: &impl Serialize) -> Result<Patch<()>, Failure> {
    json_patch(&json!([expect(resource_version), {"op": "add", "path": "/status", "value": status}]))
}

fn owner_reference(subject: &Subject) -> OwnerReference {
    let (api_version, kind) = match subject {
        Subject::Rollout(_) => (NumaflowControllerRollout::api_version(&()), NumaflowControllerRollout::kind(&())),
        Subject::Controller(_) => (NumaflowController::api_version(&()), NumaflowController::kind(&())),
    };
    OwnerReference {
        api_version: api_version.into_owned(),
        kind: kind.into_owned(),
        name: subject.name().to_owned(),
        uid: subject.meta().uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}
