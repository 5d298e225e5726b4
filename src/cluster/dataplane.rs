//! Writes of Numaflow's objects, and reads of what Numaflow makes of them. Whatever the server says against one is told by the
//! rollout that wanted it, with the object in front.

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams, Patch, PatchParams, PropagationPolicy},
};
use serde_json::{Value, json};

use super::{
    Cluster, Failure, Lesson, Subject,
    answer::{failure, is_absent, is_gone, limited, own, with_sources},
    own::{json_patch, mistake, owner_reference},
    production::delete_of,
};
use crate::{
    api::{MANAGER_LIFECYCLE, MANAGER_NUMAFLOW},
    kinds,
    live::{ANNOTATION_APPLIED, Version},
    numaflow::{DataPlane, LiveIsb, LiveMonoVertex, LivePipeline, VertexPod, VertexSeen, pods_of_mono_vertex},
    plan::{About, Refusal},
    store::Seen,
};

/// Label of Numaflow on vertices and their pods: the pipeline that they belong to.
const LABEL_PIPELINE: &str = "numaflow.numaproj.io/pipeline-name";

impl Cluster {
    /// Applies an object that belongs to the subject. One that is expected must be there, of that very version; where none is,
    /// there must be none.
    pub(super) async fn apply_numaflow(
        &self,
        subject: &Subject,
        kind: &str,
        body: &Value,
        expect: Option<&Version>,
    ) -> Result<(), Failure> {
        let namespace = subject.namespace();
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        if expect.is_none() && self.knows(namespace, kind, name) {
            return Err(Failure::Conflict);
        }
        let body = completed(subject, kind, body, expect);
        let parameters = PatchParams::apply(MANAGER_NUMAFLOW).force();
        let api = self.numaflow(namespace, kind)?;
        match limited(api.patch(name, &parameters, &Patch::Apply(&body))).await {
            Ok(answer) => self.keep_numaflow(kind, &answer),
            // There is nothing that could be missing but the kind.
            Err(kube::Error::Api(status)) if expect.is_none() && status.code == 404 => {
                return Err(Failure::Refused(Box::new(Refusal {
                    about: About::Own,
                    reason: "KindNotServed".to_owned(),
                    message: format!("{kind}/{name}: the server does not serve this kind: {}", status.message),
                })));
            }
            Err(error) => return Err(failure(&error, About::Own, &format!("{kind}/{name}"))),
        }
        Ok(())
    }

    /// Changes fields of an object of this very uid and, where it is given, of this resourceVersion.
    pub(super) async fn patch_numaflow(
        &self,
        namespace: &str,
        kind: &str,
        object: &Version,
        patch: &Value,
    ) -> Result<Vec<Lesson>, Failure> {
        let api = self.numaflow(namespace, kind)?;
        let parameters = PatchParams { field_manager: Some(MANAGER_LIFECYCLE.to_owned()), ..PatchParams::default() };
        let answer = limited(api.patch(&object.name, &parameters, &Patch::Merge(&expecting(patch, object)))).await;
        let what = format!("{kind}/{}", object.name);
        self.keep_numaflow(kind, &answer.map_err(|error| failure(&error, About::Steering, &what))?);
        // Whatever was read of a pipeline's vertices is not so any more.
        Ok(if kind == "Vertex" { vec![Lesson::PlanesChanged] } else { Vec::new() })
    }

    /// Asks the server what it would say to an apply.
    pub(super) async fn check_numaflow(
        &self,
        subject: &Subject,
        kind: &str,
        body: &Value,
        expect: &Version,
    ) -> Result<Vec<Lesson>, Failure> {
        let body = completed(subject, kind, body, Some(expect));
        let parameters = PatchParams { dry_run: true, ..PatchParams::apply(MANAGER_NUMAFLOW).force() };
        let api = self.numaflow(subject.namespace(), kind)?;
        let answer = limited(api.patch(&expect.name, &parameters, &Patch::Apply(&body))).await;
        own(&format!("{kind}/{}", expect.name), answer)?;
        let hash = body["metadata"]["annotations"][ANNOTATION_APPLIED].as_str().unwrap_or_default();
        Ok(vec![Lesson::Planned(expect.name.clone(), hash.to_owned())])
    }

    /// Deletes an object of this very uid; one that is gone already is as good. What Numaflow made of it goes by its own
    /// finalizers, so nothing is waited for here.
    pub(super) async fn delete_numaflow(&self, namespace: &str, kind: &str, object: &Version) -> Result<(), Failure> {
        let api = self.numaflow(namespace, kind)?;
        let gone = || self.forget_numaflow(namespace, kind, object);
        match limited(api.delete(&object.name, &delete_of(&object.uid, PropagationPolicy::Background))).await {
            Ok(answer) => match answer.left() {
                Some(going) => self.keep_numaflow(kind, &going),
                None => gone(),
            },
            Err(kube::Error::Api(status)) if is_gone(&status) => gone(),
            Err(error) => return Err(failure(&error, About::Own, &format!("{kind}/{}", object.name))),
        }
        Ok(())
    }

    /// Takes one finalizer from an object, and touches no other.
    pub(super) async fn release_numaflow(
        &self,
        namespace: &str,
        kind: &str,
        object: &Version,
        finalizer: &str,
    ) -> Result<(), Failure> {
        let api = self.numaflow(namespace, kind)?;
        let what = format!("{kind}/{}", object.name);
        let Some(found) = own(&what, limited(api.get_opt(&object.name)).await)? else {
            self.forget_numaflow(namespace, kind, object);
            return Ok(());
        };
        let Some(at) = found.finalizers().iter().position(|known| known == finalizer) else { return Ok(()) };
        let path = format!("/metadata/finalizers/{at}");
        let patch = json_patch(&json!([
            {"op": "test", "path": "/metadata/uid", "value": object.uid},
            {"op": "test", "path": path, "value": finalizer},
            {"op": "remove", "path": path},
        ]))?;
        match limited(api.patch(&object.name, &PatchParams::default(), &patch)).await {
            Ok(answer) => self.keep_numaflow(kind, &answer),
            // The last finalizer: the object is gone with it.
            Err(kube::Error::Api(status)) if is_absent(&status) => self.forget_numaflow(namespace, kind, object),
            Err(error) => return Err(failure(&error, About::Own, &what)),
        }
        Ok(())
    }

    /// Reads the vertices of a pipeline and their pods, as they are now. What cannot be read is said so in the answer.
    pub(super) async fn look_at_pipeline(&self, namespace: &str, name: &str) -> DataPlane {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let of_it = format!("{LABEL_PIPELINE}={name}");
        // Without a resourceVersion: what the server has in its cache may be from before the pause.
        let of_vertices = ListParams::default().labels(&of_it);
        let of_pods = ListParams::default().labels(&format!("{of_it},app.kubernetes.io/component=vertex"));
        let vertices = async {
            let api = self.numaflow(namespace, "Vertex").map_err(|_| "Vertex is no known kind".to_owned())?;
            limited(api.list(&of_vertices)).await.map_err(|error| format!("vertices: {}", with_sources(&error)))
        };
        let pods =
            async { limited(pods.list(&of_pods)).await.map_err(|error| format!("pods: {}", with_sources(&error))) };
        let (vertices, pods) = futures::join!(vertices, pods);
        let mut plane = DataPlane::default();
        let mut unreadable = Vec::new();
        match vertices {
            Ok(list) => plane.vertices = list.items.iter().map(|v| VertexSeen::of(&v.metadata, &v.data)).collect(),
            Err(why) => unreadable.push(why),
        }
        match pods {
            Ok(list) => plane.pods = list.items.iter().map(VertexPod::of).collect(),
            Err(why) => unreadable.push(why),
        }
        if !unreadable.is_empty() {
            tracing::warn!(namespace, pipeline = name, says = unreadable.join("; "), "cannot be looked at");
            plane.unreadable = Some(unreadable.join("; "));
        }
        plane
    }

    /// Reads the pods of a MonoVertex, as they are now. What cannot be read is said so in the answer.
    pub(super) async fn look_at_mono_vertex(&self, namespace: &str, name: &str) -> DataPlane {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        // Without a resourceVersion: what the server has in its cache may be from before the pause.
        let of_it = ListParams::default().labels(&pods_of_mono_vertex(name));
        let mut plane = DataPlane::default();
        match limited(pods.list(&of_it)).await {
            Ok(list) => plane.pods = list.items.iter().map(VertexPod::of).collect(),
            Err(error) => {
                let says = format!("pods: {}", with_sources(&error));
                tracing::warn!(namespace, mono_vertex = name, says, "cannot be looked at");
                plane.unreadable = Some(says);
            }
        }
        plane
    }

    fn numaflow(&self, namespace: &str, kind: &str) -> Result<Api<DynamicObject>, Failure> {
        let resource = kinds::numaflow(kind).ok_or_else(|| mistake(&format!("{kind} is no kind of Numaflow's")))?;
        Ok(Api::namespaced_with(self.client.clone(), namespace, &resource))
    }

    /// Whether an object of this name was seen.
    fn knows(&self, namespace: &str, kind: &str, name: &str) -> bool {
        match kind {
            "Pipeline" => self.world.pipelines.get(namespace, name).is_some(),
            "InterStepBufferService" => self.world.isb_services.get(namespace, name).is_some(),
            "MonoVertex" => self.world.mono_vertices.get(namespace, name).is_some(),
            _ => false,
        }
    }

    /// Takes the server's answer in.
    fn keep_numaflow(&self, kind: &str, object: &DynamicObject) {
        let key = (object.namespace().unwrap_or_default(), object.name_any());
        let seen = Seen::of(&object.metadata);
        match kind {
            "Pipeline" => {
                self.world.pipelines.offer(key, seen, LivePipeline::read(&object.metadata, &object.data));
            }
            "InterStepBufferService" => {
                self.world.isb_services.offer(key, seen, LiveIsb::read(&object.metadata, &object.data));
            }
            "MonoVertex" => {
                self.world.mono_vertices.offer(key, seen, LiveMonoVertex::read(&object.metadata, &object.data));
            }
            _ => {}
        }
    }

    fn forget_numaflow(&self, namespace: &str, kind: &str, object: &Version) {
        let (key, gone) = ((namespace.to_owned(), object.name.clone()), Seen::for_good(&object.uid));
        match kind {
            "Pipeline" => drop(self.world.pipelines.forget(&key, &gone)),
            "InterStepBufferService" => drop(self.world.isb_services.forget(&key, &gone)),
            "MonoVertex" => drop(self.world.mono_vertices.forget(&key, &gone)),
            _ => {}
        }
    }
}

/// The whole object: what it is, whose it is, and what must be there.
fn completed(subject: &Subject, kind: &str, body: &Value, expect: Option<&Version>) -> Value {
    let mut body = body.clone();
    body["apiVersion"] = json!("numaflow.numaproj.io/v1alpha1");
    body["kind"] = json!(kind);
    body["metadata"]["namespace"] = json!(subject.namespace());
    body["metadata"]["ownerReferences"] = json!([owner_reference(subject)]);
    match expect {
        Some(object) => expecting(&body, object),
        None => body,
    }
}

/// A body that the server takes only for this very object.
fn expecting(body: &Value, object: &Version) -> Value {
    let mut body = body.clone();
    body["metadata"]["uid"] = json!(object.uid);
    if !object.resource_version.is_empty() {
        body["metadata"]["resourceVersion"] = json!(object.resource_version);
    }
    body
}
