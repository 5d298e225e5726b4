//! The vertices and pods of a pipeline at the moment when it mattered: nobody watches them. Pure.

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use serde_json::Value;

/// Time past its own grace after which a pod that does not go is not waited for.
const PATIENCE: i64 = 60;

/// Vertices and pods of one pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DataPlane {
    /// Its vertices.
    pub vertices: Vec<VertexSeen>,
    /// The pods of its vertices.
    pub pods: Vec<VertexPod>,
    /// What could not be read, in the server's words: that is no answer, and never a yes.
    pub unreadable: Option<String>,
}

/// A Vertex.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VertexSeen {
    /// Name of the object.
    pub object: String,
    /// Its uid.
    pub uid: String,
    /// Name within the pipeline.
    pub name: String,
    /// Whether it is told to pause.
    pub paused: bool,
    /// Replicas it is told to have.
    pub replicas: Option<i64>,
}

/// A pod of a vertex.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VertexPod {
    /// Its name.
    pub name: String,
    /// Its phase.
    pub phase: String,
    /// When it should be gone, if it is being deleted.
    pub goes_at: Option<Timestamp>,
}

impl VertexSeen {
    /// Reads a Vertex.
    #[must_use]
    pub fn of(metadata: &ObjectMeta, data: &Value) -> Self {
        let spec = &data["spec"];
        Self {
            object: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            name: spec["name"].as_str().unwrap_or_default().to_owned(),
            paused: spec["lifecycle"]["desiredPhase"] == "Paused",
            replicas: spec["replicas"].as_i64(),
        }
    }
}

impl VertexPod {
    /// Reads a pod. The time in `deletionTimestamp` has its grace in it already.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            phase: pod.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default(),
            goes_at: pod.metadata.deletion_timestamp.as_ref().map(|t| t.0),
        }
    }

    /// Whether it does nothing any more although it is there: it ended, or its node does not answer.
    fn is_lost(&self, now: Timestamp) -> bool {
        let overdue = |at: Timestamp| now.duration_since(at).as_secs() > PATIENCE;
        matches!(self.phase.as_str(), "Failed" | "Succeeded") || self.goes_at.is_some_and(overdue)
    }
}

impl DataPlane {
    /// What keeps a pipeline from being paused, in words; empty when nothing does. And pods that are there for good.
    #[must_use]
    pub fn not_paused(&self, now: Timestamp) -> (Vec<String>, Vec<String>) {
        let mut waiting: Vec<String> = self.unreadable.iter().map(|why| format!("an answer: {why}")).collect();
        if self.vertices.iter().any(|v| !v.paused) {
            waiting.push("its vertices to be told to pause".to_owned());
        }
        let (lost, live): (Vec<_>, Vec<_>) = self.pods.iter().partition(|pod| pod.is_lost(now));
        if !live.is_empty() {
            waiting.push("its pods to be gone".to_owned());
        }
        (waiting, lost.into_iter().map(|pod| pod.name.clone()).collect())
    }

    /// What keeps a pipeline from running, in words; empty when nothing does.
    #[must_use]
    pub fn not_running(&self) -> Vec<String> {
        let mut waiting: Vec<String> = self.unreadable.iter().map(|why| format!("an answer: {why}")).collect();
        if self.vertices.iter().any(|v| v.paused) {
            waiting.push("its vertices to be told to run".to_owned());
        }
        waiting
    }
}
