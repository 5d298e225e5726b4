//! What tests do to MonoVertexRollouts and see of them, and the floor that most stories about MonoVertices take place on.

use std::{collections::BTreeSet, time::Duration};

use kube::api::{DynamicObject, Patch, PatchParams};
use numaplane::api::{MonoVertexRollout, MonoVertexRolloutStatus};
use serde_json::{Value, json};

use super::{
    Scene, Team, audit,
    changes::{Change, Changes, Kind},
    definitions::Version,
    eventually,
    mono_vertices::{ready, spec},
    numaflow::{self, api},
    operator::Running,
    pipelines::controller,
};

/// What tells how MonoVertices are.
const KINDS: [Kind; 3] = [
    ("numaplane.numaproj.io", "v1alpha1", "MonoVertexRollout", "monovertexrollouts"),
    ("numaflow.numaproj.io", "v1alpha1", "MonoVertex", "monovertices"),
    ("", "v1", "Pod", "pods"),
];

/// A team whose controller was installed by a rollout, and everything that happens to its MonoVertices on record.
pub struct Floor {
    /// The scene.
    pub scene: Scene,
    changes: Changes,
    _kinds: tokio::sync::RwLockReadGuard<'static, ()>,
}

impl Floor {
    /// Namespaces and definitions; what the operator does there is up to the test.
    pub async fn bare(name: &str) -> Self {
        let scene = Scene::new(name).await;
        let kinds = numaflow::installed(&scene.team.client).await;
        let versions: [Version; 2] = [controller("1.8.0"), controller("1.8.1")];
        scene.define(&versions).await;
        let changes = Changes::watch(&scene.team, &KINDS).await;
        Self { scene, changes, _kinds: kinds }
    }

    /// With an operator at work and a controller of version 1.8.0.
    pub async fn at_work(name: &str) -> (Self, Running) {
        let floor = Self::bare(name).await;
        let operator = floor.scene.operator().await;
        floor.team().install("numaflow-controller", "1.8.0").await;
        floor.team().deployed("numaflow-controller", "1.8.0").await;
        (floor, operator)
    }

    /// The team.
    pub fn team(&self) -> &Team {
        &self.scene.team
    }

    /// Every change of a MonoVertex, of its rollout or of a pod of it, in order.
    pub fn changes(&self) -> Vec<Change> {
        self.changes.all()
    }

    /// The pods of a MonoVertex that there were at a time, also those that were going.
    pub fn pods_at(&self, child: &str, at: u64) -> BTreeSet<String> {
        let mut there = BTreeSet::new();
        let of_it = |c: &&Change| c.kind == "Pod" && c.label("numaflow.numaproj.io/mono-vertex-name") == child;
        for change in self.changes().iter().filter(of_it).filter(|c| c.at <= at) {
            if change.deleted {
                there.remove(change.name());
            } else {
                there.insert(change.name().to_owned());
            }
        }
        there
    }

    /// How often a MonoVertex was told to pause, or to run again.
    pub fn flips(&self, child: &str) -> usize {
        let mut wanted = Vec::new();
        for change in self.changes().iter().filter(|c| c.kind == "MonoVertex" && c.name() == child && !c.deleted) {
            wanted.push(change.text("/spec/lifecycle/desiredPhase") == "Paused");
        }
        wanted.dedup();
        wanted.len().saturating_sub(1)
    }

    /// The end of a story: the operator writes nothing any more, no MonoVertex is asked to pause but as its rollout says, and
    /// nobody was told that one is paused while it had a pod.
    pub async fn at_rest(&self) {
        let team = self.team();
        let quiet = Duration::from_secs(1);
        audit::settled(team, quiet).await;
        for rollout in team.all::<MonoVertexRollout>().await {
            let asked = rollout.spec.mono_vertex.spec.0["lifecycle"]["desiredPhase"].clone();
            let status = rollout.status.unwrap_or_default();
            let Some(child) = api(team, "MonoVertex").get_opt(&status.child).await.unwrap() else { continue };
            let there = &child.data["spec"]["lifecycle"]["desiredPhase"];
            assert!(*there == asked, "{}: {there} where {asked} is asked for; {}", status.child, status.message);
        }
        let mut was = String::new();
        for change in self.changes().iter().filter(|c| c.kind == "MonoVertexRollout") {
            let is = format!("{} {}", change.name(), change.text("/status/pause/state"));
            if is.ends_with(" Paused") && was != is {
                let pods = self.pods_at(change.text("/status/child"), change.at);
                assert!(pods.is_empty(), "{} is said to be paused with {pods:?}", change.name());
            }
            was = is;
        }
    }
}

impl Team {
    /// Makes a MonoVertexRollout: this spec, knobs of the stand-in, a strategy. As with real ones, its pods are still there when
    /// it says that it is paused.
    pub async fn mono_vertex_with(&self, name: &str, spec: Value, knobs: Value, strategy: Value) -> MonoVertexRollout {
        let mut all = json!({"stand-in.numaflow/terminates-after": "700ms"});
        for (knob, value) in knobs.as_object().into_iter().flatten() {
            all[format!("stand-in.numaflow/{knob}")] = value.clone();
        }
        self.create(json!({
            "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "MonoVertexRollout", "metadata": {"name": name},
            "spec": {"monoVertex": {"metadata": {"annotations": all}, "spec": spec}, "strategy": strategy},
        }))
        .await
    }

    /// Makes one with two replicas, with more or other fields, and waits until it runs.
    pub async fn mono_vertex(&self, name: &str, more: Value) -> DynamicObject {
        let mut fields = json!({"scale": {"min": 2, "max": 5}});
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.mono_vertex_with(name, spec(fields), json!({}), json!({})).await;
        self.mono_vertex_runs(name).await
    }

    /// Changes the spec of a MonoVertex by a merge patch of its rollout.
    pub async fn edit_mono_vertex(&self, name: &str, patch: Value) -> MonoVertexRollout {
        self.edit(name, json!({"spec": {"monoVertex": {"spec": patch}}})).await
    }

    /// Sets the phase that its user wants.
    pub async fn want_mono_vertex(&self, name: &str, phase: &str) -> MonoVertexRollout {
        self.edit_mono_vertex(name, json!({"lifecycle": {"desiredPhase": phase}})).await
    }

    /// Status of a MonoVertexRollout.
    pub async fn mono_vertex_status(&self, name: &str) -> MonoVertexRolloutStatus {
        self.get::<MonoVertexRollout>(name).await.status.unwrap_or_default()
    }

    /// Waits until the status of a MonoVertexRollout is about the newest spec, and as it should be.
    pub async fn mono_vertex_until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&MonoVertexRolloutStatus) -> bool,
    ) -> MonoVertexRolloutStatus {
        eventually(&format!("MonoVertexRollout/{name}: {what}"), async || {
            let rollout = self.get::<MonoVertexRollout>(name).await;
            let status = rollout.status.unwrap_or_default();
            let current = Some(status.observed_generation) == rollout.metadata.generation;
            if current && is(&status) { Ok(status) } else { Err(serde_json::to_string(&status).unwrap_or_default()) }
        })
        .await
    }

    /// Waits until a MonoVertexRollout is deployed and ready, and its MonoVertex runs with all its pods.
    pub async fn mono_vertex_runs(&self, name: &str) -> DynamicObject {
        let ready_one = |s: &MonoVertexRolloutStatus| {
            s.phase.as_str() == "Deployed" && said(s, "Ready").0 == "True" && s.pause.is_none()
        };
        let status = self.mono_vertex_until(name, "deployed and ready", ready_one).await;
        ready(self, &status.child).await
    }

    /// Waits until a MonoVertexRollout is deployed, and paused because its spec asks for it.
    pub async fn mono_vertex_rests(&self, name: &str) -> MonoVertexRolloutStatus {
        self.mono_vertex_until(name, "deployed, and paused by its spec", |s| {
            s.phase.as_str() == "Deployed" && s.pause.as_ref().is_some_and(|p| p.state == "Paused")
        })
        .await
    }

    /// Changes a MonoVertex directly, as somebody with kubectl does.
    pub async fn meddle_with(&self, child: &str, patch: Value) -> DynamicObject {
        let by = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
        let patched = api(self, "MonoVertex").patch(child, &by, &Patch::Merge(patch)).await;
        patched.unwrap_or_else(|error| panic!("MonoVertex/{child}: {error}"))
    }
}

/// Status and reason of a condition of a MonoVertexRollout.
pub fn said<'a>(status: &'a MonoVertexRolloutStatus, kind: &str) -> (&'a str, &'a str) {
    let found = status.conditions.iter().find(|c| c.type_ == kind);
    found.map_or(("", ""), |c| (c.status.as_str(), c.reason.as_str()))
}
