//! Writes of what definitions render, in production and in isolated copies: dry runs, applies, removals.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy},
};
use serde_json::{Value, json};

use super::{
    Cluster, Failure, Lesson, Subject,
    answer::{failure, is_gone, is_immutable, limited},
};
use crate::{
    api::{AppliedObject, LABEL_TRACKING, MANAGER_ISOLATED, MANAGER_OWN, MANAGER_PRODUCTION, fit},
    kinds::{self},
    live::{Live, ObjectId},
    manifest::{DesiredObject, Part},
    plan::{About, Event, Refusal},
    store::Seen,
};

impl Cluster {
    pub(super) async fn api_of(
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

    pub(super) fn body(subject: &Subject, object: &DesiredObject, uid: Option<&str>, namespaced: bool) -> Value {
        let mut body = object.placed(subject.namespace(), &subject.mark(), uid);
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
    pub(super) async fn check(
        &self,
        subject: &Subject,
        objects: &[Arc<DesiredObject>],
    ) -> Result<Vec<Lesson>, Failure> {
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

    pub(super) async fn check_one(
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
        let parameters = PatchParams { dry_run: true, ..applied(object) };
        match limited(api.patch(&object.id.name, &parameters, &Patch::Apply(&body))).await {
            // A dry run that would create has no resourceVersion to give.
            Ok(answer) if known.is_none() && answer.metadata.resource_version.is_some() => {
                self.check_owner(subject, object, &api, namespaced).await?;
                Ok(vec![passed])
            }
            Ok(_) => Ok(vec![passed]),
            Err(kube::Error::Api(status)) if known.is_none() && is_immutable(&status) => {
                self.check_owner(subject, object, &api, namespaced).await?;
                Err(Failure::Refused(Box::new(Refusal {
                    about: about(),
                    reason: "Immutable".to_owned(),
                    message: format!(
                        "{}: a field that differs cannot be changed in place ({}); delete the object, and it is made anew",
                        object.id, status.message
                    ),
                })))
            }
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

    /// Whether an object that exists, but was not seen by its watch, may be taken over.
    async fn check_owner(
        &self,
        subject: &Subject,
        object: &Arc<DesiredObject>,
        api: &Api<DynamicObject>,
        namespaced: bool,
    ) -> Result<(), Failure> {
        let about = || About::Object(object.id.clone(), object.hash.clone());
        let existing = limited(api.get_opt(&object.id.name))
            .await
            .map_err(|error| failure(&error, about(), &object.id.to_string()))?;
        match existing.map(|e| Live::read(&object.id.group, &object.id.kind, &e.metadata, &Value::Null)) {
            Some(live) if !may_take_over(&live, &object.mark(&subject.mark()), namespaced) => {
                Err(Failure::Refused(Box::new(Refusal {
                    about: about(),
                    reason: "ObjectExists".to_owned(),
                    message: exists(&live),
                })))
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn apply(
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
        let parameters = applied(object);
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
        let entry = AppliedObject {
            group: object.id.group.clone(),
            version: object.version.clone(),
            kind: object.id.kind.clone(),
            name: object.id.name.clone(),
            uid: live.uid,
            hash: object.hash.clone(),
            fields: live.fields,
        };
        Ok(vec![Lesson::Applied(object.part.clone(), entry)])
    }

    pub(super) fn keep_live(&self, namespace: &str, id: &ObjectId, answer: &DynamicObject) -> Live {
        let live = Live::read(&id.group, &id.kind, &answer.metadata, &answer.data);
        if let Some(store) = self.world.produced(&id.group, &id.kind) {
            store.offer((namespace.to_owned(), id.name.clone()), Seen::of(&answer.metadata), live.clone());
        }
        live
    }

    pub(super) async fn prune(
        &self,
        namespace: &str,
        id: &ObjectId,
        version: &str,
        uid: &str,
        policy: PropagationPolicy,
    ) -> Result<Vec<Lesson>, Failure> {
        let answer = self.remove(namespace, id, version, uid, policy).await;
        answer.map_err(|error| failure(&error, About::Leftover(id.clone()), &id.to_string()))?;
        Ok(vec![Lesson::Pruned(id.clone())])
    }

    /// Whether the server would accept an object that is to be made anew: asked under a name that nothing has, before the
    /// one that runs is taken away. (What only one Service can have, its address and ports, cannot be asked for.)
    pub(super) async fn try_anew(
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
        if object.id.kind == "PersistentVolumeClaim" {
            return Err(Failure::Refused(Box::new(Refusal {
                about: About::Object(object.id.clone(), object.hash.clone()),
                reason: "HoldsData".to_owned(),
                message: format!(
                    "{}: a field that differs cannot be changed in place, and making the claim anew would lose its data; \
                     give it another name in the definition, or delete it yourself",
                    object.id
                ),
            })));
        }
        let namespace = subject.namespace();
        let (api, namespaced) = self.api_of(namespace, &object.id, &object.version).await.map_err(refused)?;
        let mut body = Self::body(subject, object, None, namespaced);
        let trial = fit(&format!("{}-trial-{}", object.id.name, object.hash), 50);
        body["metadata"]["name"] = json!(trial);
        let parameters = PatchParams { dry_run: true, ..applied(object) };
        match limited(api.patch(&trial, &parameters, &Patch::Apply(&body))).await {
            Err(kube::Error::Api(status)) if status.code == 404 && all.iter().any(|o| object.refers_to_role(&o.id)) => {
                Ok(())
            }
            answer => answer.map(drop).map_err(refused),
        }
    }

    pub(super) async fn recreate(
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
                let patch = json!({"metadata": {"labels": {LABEL_TRACKING: subject.mark()}}});
                limited(api.patch(&set.name_any(), &owned(), &Patch::Merge(&patch))).await.map_err(refused)?;
            }
        }
        self.remove(namespace, id, &object.version, uid, policy).await.map_err(refused)?;
        self.publish(&subject.reference(), event).await;
        Ok(Vec::new())
    }

    pub(super) async fn remove(
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
            Err(kube::Error::Api(status)) if is_gone(&status) => {
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

fn may_take_over(live: &Live, mark: &str, namespaced: bool) -> bool {
    let ours = live.tracking.as_ref().is_some_and(|t| t == mark || (!namespaced && t == SHARED));
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

/// Parameters of an apply: production and isolated copies have a field manager each.
fn applied(object: &DesiredObject) -> PatchParams {
    let manager = match object.part {
        Part::Production => MANAGER_PRODUCTION,
        Part::Isolated { .. } => MANAGER_ISOLATED,
    };
    PatchParams::apply(manager).force()
}

pub(super) fn owned() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER_OWN.to_owned()), ..PatchParams::default() }
}

pub(super) fn delete_of(uid: &str, policy: PropagationPolicy) -> DeleteParams {
    DeleteParams {
        propagation_policy: Some(policy),
        preconditions: (!uid.is_empty()).then(|| Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    }
}
