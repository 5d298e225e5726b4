//! The pipeline that a rollout asks for, apart from its wanted phase and its grace period, which are steered. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::template::Names;
use crate::{
    api::{
        ANNOTATION_INSTANCE, ANNOTATION_PAUSE_TIMESTAMP, LABEL_ISB, LABEL_PARENT, LABEL_POKE, LABEL_UPGRADE_STATE,
        PipelineRollout, UpgradeState, child_name, label_value, short_hash,
    },
    live::ANNOTATION_APPLIED,
    numaflow::isb_of,
};

/// Seconds that a pipeline may take to drain when it is deleted, where its user does not say. Numaflow's own default does not
/// reach an object without a schema.
const DELETION_GRACE: i64 = 30;
/// Annotation of kubectl, for itself.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What a pipeline should be like.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its spec, without the wanted phase and the grace period of pauses.
    pub spec: Value,
    /// The wanted phase, as the user writes it; absent where the user does not say.
    pub phase: Option<String>,
    /// The grace period of pauses in seconds, where the user says one.
    pub grace: Option<i64>,
    /// Hash of labels, annotations and spec.
    pub hash: String,
}

/// The grace period of pauses that a rollout asks for, whatever else of its spec cannot be read.
pub(super) fn grace_of(rollout: &PipelineRollout) -> Option<i64> {
    rollout.spec.pipeline.spec.0["lifecycle"]["pauseGracePeriodSeconds"].as_i64().filter(|grace| *grace >= 0)
}

impl Desired {
    /// What a rollout asks for, for a pipeline of this name.
    ///
    /// # Errors
    /// A sentence that names the field and says what to do.
    pub fn of(rollout: &PipelineRollout, name: &str) -> Result<Self, String> {
        let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
        let names = Names { pipeline: name, namespace };
        let template = &rollout.spec.pipeline;
        let Value::Object(mut spec) = names.fill_value(&template.spec.0) else {
            return Err("spec.pipeline.spec: must be the spec of a Numaflow Pipeline".to_owned());
        };
        let mut lifecycle = match spec.remove("lifecycle") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(lifecycle)) => lifecycle,
            Some(_) => return Err("spec.pipeline.spec.lifecycle: must be an object".to_owned()),
        };
        let phase = match lifecycle.remove("desiredPhase") {
            None | Some(Value::Null) => None,
            Some(Value::String(phase)) if matches!(phase.as_str(), "" | "Paused" | "Running") => {
                Some(phase).filter(|p| !p.is_empty())
            }
            Some(other) => {
                return Err(format!(
                    "spec.pipeline.spec.lifecycle.desiredPhase: {other} is not a phase; use Paused or Running"
                ));
            }
        };
        let grace = match lifecycle.remove("pauseGracePeriodSeconds") {
            None | Some(Value::Null) => None,
            Some(grace) => Some(grace.as_i64().filter(|g| *g >= 0).ok_or_else(|| {
                format!("spec.pipeline.spec.lifecycle.pauseGracePeriodSeconds: {grace} is not a number of seconds")
            })?),
        };
        if lifecycle.get("deletionGracePeriodSeconds").is_none() && lifecycle.get("deleteGracePeriodSeconds").is_none()
        {
            lifecycle.insert("deletionGracePeriodSeconds".to_owned(), json!(DELETION_GRACE));
        }
        spec.insert("lifecycle".to_owned(), Value::Object(lifecycle));
        let metadata = template.metadata.clone().unwrap_or_default();
        let fill = |map: BTreeMap<String, String>| -> BTreeMap<String, String> {
            map.into_iter().map(|(key, value)| (key, names.fill(&value))).collect()
        };
        let rollout_name = rollout.metadata.name.as_deref().unwrap_or_default();
        let spec = Value::Object(spec);
        let mut labels = fill(metadata.labels);
        // Copied from a pipeline, it would be fought over: it says when this one was nudged.
        labels.remove(LABEL_POKE);
        labels.extend([
            (LABEL_PARENT.to_owned(), label_value(rollout_name)),
            (LABEL_UPGRADE_STATE.to_owned(), UpgradeState::Promoted.as_str().to_owned()),
            (LABEL_ISB.to_owned(), label_value(isb_of(&spec))),
        ]);
        let mut annotations = fill(metadata.annotations);
        // Copied from a pipeline, these would be claims about this one; Numaflow, kubectl and this operator write them.
        for key in [ANNOTATION_APPLIED, ANNOTATION_PAUSE_TIMESTAMP, LAST_APPLIED] {
            annotations.remove(key);
        }
        let mut desired = Self { labels, annotations, spec, phase, grace, hash: String::new() };
        desired.hash = desired.hashed();
        Ok(desired)
    }

    fn hashed(&self) -> String {
        short_hash(json!([self.labels, self.annotations, self.spec]).to_string().as_bytes())
    }

    /// With vertices, edges and side inputs in the order in which a spec has the same ones already: it means nothing to
    /// Numaflow, and another one is no reason to write.
    #[must_use]
    pub fn arranged_like(mut self, there: &Value) -> Self {
        for (list, keys) in [("vertices", &["name"][..]), ("edges", &["from", "to"]), ("sideInputs", &["name"])] {
            let Some(old) = there[list].as_array() else { continue };
            let Some(new) = self.spec.get_mut(list).and_then(Value::as_array_mut) else { continue };
            let key = |entry: &Value| -> Vec<Value> { keys.iter().map(|key| entry[*key].clone()).collect() };
            let place = |entry: &Value| old.iter().position(|known| key(known) == key(entry));
            let places: BTreeSet<usize> = new.iter().filter_map(place).collect();
            if places.len() == old.len() && old.len() == new.len() {
                new.sort_by_key(place);
            }
        }
        self.hash = self.hashed();
        self
    }

    /// Whether the user wants it paused.
    #[must_use]
    pub fn wants_paused(&self) -> bool {
        self.phase.as_deref() == Some("Paused")
    }

    /// The ISB service that it is to use.
    #[must_use]
    pub fn isb(&self) -> &str {
        isb_of(&self.spec)
    }

    /// Instance of the controller that is to manage it.
    #[must_use]
    pub fn instance(&self) -> &str {
        self.annotations.get(ANNOTATION_INSTANCE).map_or("", String::as_str)
    }

    /// The object to be applied, with the wanted phase and grace period that it is to have.
    #[must_use]
    pub fn body(&self, name: &str, phase: Option<&Value>, grace: Option<&Value>) -> Value {
        let mut spec = self.spec.clone();
        for (key, value) in [("desiredPhase", phase), ("pauseGracePeriodSeconds", grace)] {
            if let Some(value) = value {
                spec["lifecycle"][key] = value.clone();
            }
        }
        let mut annotations = self.annotations.clone();
        annotations.insert(ANNOTATION_APPLIED.to_owned(), self.hash.clone());
        json!({"metadata": {"name": name, "labels": self.labels, "annotations": annotations}, "spec": spec})
    }

    /// Vertices that this one has and another spec has not, and whose scaling is disabled.
    #[must_use]
    pub fn added_unscaled(&self, other: &Value) -> Vec<String> {
        let name = |v: &Value| v["name"].as_str().unwrap_or_default().to_owned();
        let known: Vec<String> = other["vertices"].as_array().into_iter().flatten().map(name).collect();
        let vertices = self.spec["vertices"].as_array().into_iter().flatten();
        vertices.filter(|v| v["scale"]["disabled"] == true).map(name).filter(|n| !known.contains(n)).collect()
    }

    /// Fewest replicas of a vertex.
    #[must_use]
    pub fn least_replicas(&self, vertex: &str) -> i64 {
        let vertices = self.spec["vertices"].as_array().into_iter().flatten();
        let found = vertices.into_iter().find(|v| v["name"] == vertex);
        let scale = found.map_or(&Value::Null, |v| &v["scale"]);
        let most = scale["max"].as_i64().unwrap_or(i64::MAX);
        scale["min"].as_i64().unwrap_or(1).max(0).min(most)
    }
}

/// The ISB service that the pipeline of a rollout is to use: the one on record or, before there is one, the next.
#[must_use]
pub fn isb_wanted(rollout: &PipelineRollout) -> String {
    let (metadata, status) = (&rollout.metadata, rollout.status.as_ref());
    let next = || {
        child_name(metadata.name.as_deref().unwrap_or_default(), status.and_then(|s| s.name_count).unwrap_or_default())
    };
    let name = status.map(|s| s.child.clone()).filter(|child| !child.is_empty()).unwrap_or_else(next);
    let names = Names { pipeline: &name, namespace: metadata.namespace.as_deref().unwrap_or_default() };
    names.fill(isb_of(&rollout.spec.pipeline.spec.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_isb_service_that_is_wanted_is_the_one_that_the_pipeline_will_name() {
        let mut rollout: PipelineRollout = serde_json::from_value(json!({
            "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "PipelineRollout",
            "metadata": {"name": "my", "namespace": "team"},
            "spec": {"pipeline": {"spec": {"interStepBufferServiceName": "{{.pipeline-namespace}}-{{.pipeline-name}}"}}},
        }))
        .unwrap();
        assert_eq!(isb_wanted(&rollout), Desired::of(&rollout, "my-0").unwrap().isb());
        rollout.status.get_or_insert_default().child = "my-3".to_owned();
        assert_eq!(isb_wanted(&rollout), "team-my-3");
        rollout.spec.pipeline.spec.0 = json!({});
        assert_eq!(isb_wanted(&rollout), "default");
    }
}
