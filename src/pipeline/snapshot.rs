//! Everything that a decision about one PipelineRollout is made from, as plain data.

use std::{collections::BTreeMap, collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::{
    api::{ANNOTATION_INSTANCE, PipelineRollout, Strategy},
    numaflow::LivePipeline,
    plan::{Learned, Version},
};

/// One look at the world of one PipelineRollout.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The rollout.
    pub rollout: Arc<PipelineRollout>,
    /// Whether its namespace is being deleted.
    pub namespace_terminating: bool,
    /// Its pipelines, by name.
    pub children: BTreeMap<String, Arc<LivePipeline>>,
    /// Names that look like its pipelines' but belong to somebody else.
    pub foreign_children: BTreeSet<String>,
    /// Whether the API server serves Pipelines.
    pub served: bool,
    /// Who asks for a pause, by instance: all active requests in the namespace.
    pub requests: Vec<Request>,
    /// What is not known: while anything is, no wanted phase is newly set or removed.
    pub unknown: Vec<String>,
    /// How the controllers of the namespace are, by instance; absent where no rollout manages one: then it is assumed alive.
    pub controllers: BTreeMap<String, Controller>,
    /// ISB services in the namespace, by name.
    pub isb: BTreeMap<String, IsbSeen>,
    /// Pipelines in the namespace: what one controller has to do.
    pub pipelines: usize,
    /// Strategy of the namespace.
    pub strategy: Strategy,
    /// Which changes of pipelines need what.
    pub rules: Arc<crate::changes::Rules>,
    /// What this turn has learned from the server.
    pub learned: Learned,
}

/// An active request for a pause.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Who asks: `Kind/name`.
    pub by: String,
    /// For which attempt.
    pub attempt: String,
    /// Whose pipelines are meant.
    pub scope: Scope,
    /// Since when.
    pub since: Option<Timestamp>,
    /// Longest time for the drain.
    pub timeout: Option<Duration>,
    /// Whether the time is up: pipelines are to pause without draining any further.
    pub cut: bool,
}

/// Whose pipelines a request means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of a controller instance.
    Instance(String),
    /// Those of an ISB service, by the name that pipelines use.
    Isb(String),
}

/// How the controller of an instance is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controller {
    /// Whether it is certain that nobody acts for its pipelines.
    pub gone: bool,
}

/// An ISB service, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IsbSeen {
    /// Instance that manages it.
    pub instance: String,
    /// Whether it says that it is healthy, about the spec as it is now.
    pub says_healthy: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What holds it when it is deleted.
    pub held: Held,
}

/// What holds an object of Numaflow's that is being deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Name and uid; the resourceVersion does not matter.
    pub object: Version,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Since when it is being deleted.
    pub deleted_at: Option<Timestamp>,
}

impl Held {
    /// Reads metadata.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Self {
        Self {
            object: Version { resource_version: String::new(), ..Version::of(metadata) },
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            deleted_at: metadata.deletion_timestamp.as_ref().map(|t| t.0),
        }
    }
}

impl IsbSeen {
    /// Reads an ISB service as the API server gives it.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, data: &Value) -> Self {
        let status = &data["status"];
        let observed = status["observedGeneration"].as_i64() == metadata.generation;
        let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let instance = metadata.annotations.as_ref().and_then(|a| a.get(ANNOTATION_INSTANCE)).cloned();
        Self {
            instance: instance.unwrap_or_default(),
            says_healthy: observed
                && status["phase"] == "Running"
                && conditions.iter().all(|condition| condition["status"] == "True"),
            deleting: metadata.deletion_timestamp.is_some(),
            held: Held::of(metadata),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_isb_service_is_healthy_when_all_it_says_is_about_its_spec_of_now_and_good() {
        let metadata = ObjectMeta { generation: Some(2), ..ObjectMeta::default() };
        let status = |observed: i64, phase: &str, ready: &str| {
            json!({"status": {"observedGeneration": observed, "phase": phase, "conditions": [
                {"type": "Configured", "status": "True"}, {"type": "ChildrenResourcesHealthy", "status": ready},
            ]}})
        };
        let healthy = |data: &Value| IsbSeen::read(&metadata, data).says_healthy;
        assert!(healthy(&status(2, "Running", "True")));
        assert!(!healthy(&status(1, "Running", "True")));
        assert!(!healthy(&status(2, "Pending", "True")));
        assert!(!healthy(&status(2, "Running", "False")));
        assert!(!healthy(&json!({})));
    }
}
