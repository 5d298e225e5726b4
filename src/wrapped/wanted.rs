//! The object that a rollout asks for: its template with the names filled in, and what marks it as the rollout's. Pure.

use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use serde_json::{Map, Value, json};

use super::{Names, Wrapped};
use crate::{
    api::{
        ANNOTATION_INSTANCE, ANNOTATION_PAUSE_TIMESTAMP, LABEL_PARENT, LABEL_POKE, LABEL_UPGRADE_STATE, Raw,
        TemplateMetadata, UpgradeState, label_value, short_hash,
    },
    live::ANNOTATION_APPLIED,
};

/// Annotation of kubectl, for itself.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What an object of Numaflow's should be like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wanted {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its spec, without what is steered from one moment to the next.
    pub spec: Value,
    /// Hash of labels, annotations and spec.
    pub hash: String,
}

impl Wanted {
    /// What the rollout with this metadata asks for, for an object of this name. What is wrong with it [`crate::valid`] says; a
    /// spec that is none counts as an empty one here.
    #[must_use]
    pub fn of(
        wrapped: Wrapped,
        rollout: &ObjectMeta,
        metadata: Option<&TemplateMetadata>,
        spec: &Raw,
        name: &str,
    ) -> Self {
        let namespace = rollout.namespace.as_deref().unwrap_or_default();
        let names = Names { word: wrapped.word, name, namespace };
        let spec = if spec.0.is_object() { names.fill_value(&spec.0) } else { json!({}) };
        let metadata = metadata.cloned().unwrap_or_default();
        let fill = |map: BTreeMap<String, String>| -> BTreeMap<String, String> {
            map.into_iter().map(|(key, value)| (key, names.fill(&value))).collect()
        };
        let mut labels = fill(metadata.labels);
        // Copied from an object, it would be fought over: it says when this one was nudged.
        labels.remove(LABEL_POKE);
        labels.extend([
            (LABEL_PARENT.to_owned(), label_value(rollout.name.as_deref().unwrap_or_default())),
            (LABEL_UPGRADE_STATE.to_owned(), UpgradeState::Promoted.as_str().to_owned()),
        ]);
        let mut annotations = fill(metadata.annotations);
        // Copied from an object, these would be claims about this one; Numaflow, kubectl and this operator write them.
        for key in [ANNOTATION_APPLIED, ANNOTATION_PAUSE_TIMESTAMP, LAST_APPLIED] {
            annotations.remove(key);
        }
        Self { labels, annotations, spec, hash: String::new() }.hashed()
    }

    /// With the hash of what it is now.
    #[must_use]
    pub fn hashed(mut self) -> Self {
        self.hash = short_hash(json!([self.labels, self.annotations, self.spec]).to_string().as_bytes());
        self
    }

    /// Instance of the controller that is to manage it; empty for the one without a name.
    #[must_use]
    pub fn instance(&self) -> &str {
        self.annotations.get(ANNOTATION_INSTANCE).map_or("", String::as_str)
    }

    /// The object to be applied.
    #[must_use]
    pub fn body(&self, name: &str) -> Value {
        let mut annotations = self.annotations.clone();
        annotations.insert(ANNOTATION_APPLIED.to_owned(), self.hash.clone());
        json!({"metadata": {"name": name, "labels": self.labels, "annotations": annotations}, "spec": self.spec})
    }
}

/// Takes `lifecycle` out of a spec, and the phase that the user wants out of that: absent where the user does not say, or says
/// what is none.
pub fn take_phase(spec: &mut Value) -> (Option<String>, Map<String, Value>) {
    let phase = phase_of(spec).ok().flatten().map(str::to_owned);
    let mut lifecycle = match spec.as_object_mut().and_then(|spec| spec.remove("lifecycle")) {
        Some(Value::Object(lifecycle)) => lifecycle,
        _ => Map::new(),
    };
    lifecycle.remove("desiredPhase");
    (phase, lifecycle)
}

/// What a spec says that cannot be read as a wanted phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoPhase;

/// The phase that the user wants, whatever else of the spec cannot be read: absent where the user does not say.
///
/// # Errors
/// What is said is no phase.
pub fn phase_of(spec: &Value) -> Result<Option<&str>, NoPhase> {
    let lifecycle = match spec {
        Value::Object(spec) => spec.get("lifecycle"),
        _ => return Err(NoPhase),
    };
    match lifecycle {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(lifecycle)) => match lifecycle.get("desiredPhase") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(phase)) => match phase.as_str() {
                "" => Ok(None),
                "Paused" | "Running" => Ok(Some(phase)),
                _ => Err(NoPhase),
            },
            Some(_) => Err(NoPhase),
        },
        Some(_) => Err(NoPhase),
    }
}
