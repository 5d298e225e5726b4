//! ISB services of the modelled cluster, and Numaflow, which takes one pass at a time.

use super::*;
use crate::{
    api::{ANNOTATION_INSTANCE, LABEL_POKE, LABEL_UPGRADE_STATE},
    live::{ANNOTATION_APPLIED, Version},
    numaflow::{LiveIsb, LiveObject, Ownership, StatefulSetSeen},
};

/// Passes that a StatefulSet takes from one change to the next.
const REPLICAS: i64 = 3;

/// An ISB service with its StatefulSet.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    pub uid: String,
    pub resource_version: u64,
    pub generation: i64,
    pub observed: i64,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub spec: Value,
    /// What was applied last, by us.
    pub applied: Value,
    pub owned: bool,
    pub deleting: bool,
    pub phase: String,
    /// Why it is not healthy; empty when it says that it is.
    pub lacks: String,
    pub set: Option<StatefulSetSeen>,
    /// What the StatefulSet was made of.
    pub rolled: Value,
    /// It says for a moment what was true before.
    pub stale: bool,
    /// The label that had Numaflow try to let it go: the last one, or none yet.
    pub tried: Option<String>,
}

impl Service {
    pub fn version(&self) -> String {
        self.spec["jetstream"]["version"].as_str().unwrap_or_default().to_owned()
    }

    pub fn instance(&self) -> &str {
        self.annotations.get(ANNOTATION_INSTANCE).map_or("", String::as_str)
    }

    pub fn state(&self) -> &str {
        self.labels.get(LABEL_UPGRADE_STATE).map_or("", String::as_str)
    }

    /// Somebody changes its spec, behind the operator's back.
    pub fn meddle(&mut self, change: impl FnOnce(&mut Value)) {
        change(&mut self.spec);
        self.changed();
    }

    pub fn changed(&mut self) {
        self.generation += 1;
        self.resource_version += 1;
    }

    pub fn live(&self, name: &str) -> LiveIsb {
        let (mut ours, mut foreign) = (self.applied.clone(), Vec::new());
        divide(&mut ours, &self.spec, &mut Vec::new(), &mut foreign);
        let healthy = if self.lacks.is_empty() { "True" } else { "False" };
        let condition = (healthy.to_owned(), "x".to_owned(), self.lacks.clone());
        LiveIsb {
            object: LiveObject {
                version: Version {
                    name: name.to_owned(),
                    uid: self.uid.clone(),
                    resource_version: self.resource_version.to_string(),
                },
                generation: self.generation,
                observed_generation: self.observed,
                deleting: self.deleting,
                owner: self.owned.then(|| ("ISBServiceRollout".into(), "isb".into(), "u".into())),
                labels: self.labels.clone(),
                annotations: self.annotations.clone(),
                spec: Arc::new(self.spec.clone()),
                ownership: Arc::new(Ownership { ours: Some(ours), foreign, ..Ownership::default() }),
                phase: self.phase.clone(),
                conditions: BTreeMap::from([("ChildrenResourcesHealthy".to_owned(), condition)]),
                ..LiveObject::default()
            },
        }
    }
}

/// What is left of what we applied, and the fields that are somebody else's.
fn divide(ours: &mut Value, spec: &Value, path: &mut Vec<String>, foreign: &mut Vec<Vec<String>>) {
    let (Some(map), Some(spec)) = (ours.as_object_mut(), spec.as_object()) else { return };
    let keys: BTreeSet<String> = map.keys().chain(spec.keys()).cloned().collect();
    for key in keys {
        path.push(key.clone());
        match (map.get_mut(&key), spec.get(&key)) {
            (Some(mine), Some(there)) if mine.is_object() && there.is_object() => divide(mine, there, path, foreign),
            (Some(mine), Some(there)) if mine == there => {}
            (_, Some(_)) => {
                map.remove(&key);
                foreign.push(path.clone());
            }
            (_, None) => drop(map.remove(&key)),
        }
        path.pop();
    }
}

impl Model {
    /// Whether a service is as it should be, whatever it says.
    pub fn is_healthy(&self, name: &str) -> bool {
        let Some(service) = self.services.get(name) else { return false };
        let up = |set: &StatefulSetSeen| {
            set.observed_generation == set.generation
                && set.same_revision
                && set.updated == Some(REPLICAS)
                && set.ready == REPLICAS
        };
        service.observed == service.generation
            && !service.stale
            && service.phase == "Running"
            && service.rolled == service.spec
            && service.set.as_ref().is_some_and(up)
    }

    /// One pass of each controller that is there, and of the StatefulSet's.
    pub fn numaflow(&mut self) {
        let names: Vec<String> = self.services.keys().cloned().collect();
        for name in names {
            let used = self.pipes.values().any(|p| p.isb == name);
            let service = self.services.get_mut(&name).unwrap();
            if self.gone.contains(service.instance()) {
                continue;
            }
            if service.deleting {
                // Only a change of its labels has it look again.
                let label = service.labels.get(LABEL_POKE).cloned().unwrap_or_default();
                if service.tried.as_ref() != Some(&label) {
                    (service.phase, service.tried) = ("Deleting".into(), Some(label));
                    if !used {
                        self.services.remove(&name);
                    }
                }
                continue;
            }
            service.pass();
        }
    }

    /// What is only so for a moment is over.
    pub fn wake(&mut self) {
        for service in self.services.values_mut().filter(|s| !s.deleting) {
            if service.stale && !self.gone.contains(service.instance()) {
                service.pass();
            }
        }
    }

    /// Somebody deletes a service.
    pub fn delete_service(&mut self, name: &str) {
        if let Some(service) = self.services.get_mut(name).filter(|s| !s.deleting) {
            service.deleting = true;
            service.changed();
        }
    }
}

impl Service {
    /// One pass of Numaflow, or of the controller of StatefulSets where that has something to do.
    fn pass(&mut self) {
        let before = self.clone();
        if self.observed != self.generation || self.stale {
            self.look();
        } else if self.phase != "Failed" {
            self.roll();
        }
        if *self != before {
            self.resource_version += 1;
        }
    }

    fn look(&mut self) {
        let first = self.observed != self.generation;
        self.observed = self.generation;
        let forbidden =
            self.set.is_some() && self.rolled["jetstream"]["persistence"] != self.spec["jetstream"]["persistence"];
        if !KNOWN.contains(&self.version().as_str()) || forbidden {
            (self.phase, self.lacks) = ("Failed".into(), "no jetstream configuration found".into());
            self.stale = false;
            return;
        }
        self.phase = "Running".into();
        let same = self.rolled == self.spec;
        if first && !same && self.set.is_some() && self.lacks.is_empty() {
            // Its cache is from before the change.
            self.stale = true;
            return;
        }
        self.stale = false;
        if same {
            self.lacks.clear();
            return;
        }
        self.lacks = "Waiting for statefulset spec update to be observed".into();
        self.rolled = self.spec.clone();
        let image = format!("nats:{}", self.version());
        match &mut self.set {
            Some(set) => {
                (set.generation, set.updated, set.same_revision) = (set.generation + 1, Some(0), false);
                set.image = image;
            }
            None => {
                self.set = Some(StatefulSetSeen {
                    generation: 1,
                    observed_generation: 0,
                    same_revision: true,
                    replicas: REPLICAS,
                    updated: Some(REPLICAS),
                    ready: 0,
                    image,
                });
            }
        }
    }

    /// One pod after the other; one of a sick version never gets ready.
    fn roll(&mut self) {
        let sick = self.version() == "sick";
        let Some(set) = self.set.as_mut() else { return };
        let updated = set.updated.unwrap_or_default();
        if set.observed_generation != set.generation {
            set.observed_generation = set.generation;
        } else if updated < REPLICAS {
            if sick && updated == 1 {
                set.ready = REPLICAS - 1;
                return;
            }
            (set.updated, set.ready) = (Some(updated + 1), REPLICAS - 1);
            set.same_revision = updated + 1 == REPLICAS;
            self.lacks = "waiting for statefulset rolling update to complete".into();
        } else if set.ready < REPLICAS {
            if sick {
                return;
            }
            set.ready += 1;
            // A majority is enough for Numaflow.
            if set.ready >= 2 {
                self.lacks.clear();
            }
        } else {
            self.lacks.clear();
        }
    }
}

/// Versions that Numaflow can deploy.
const KNOWN: [&str; 4] = ["2.10", "2.12", "2.14", "sick"];

/// A service as it is when it was just made.
pub fn made(uid: String, body: &Value) -> Service {
    let text = |map: &Value| -> BTreeMap<String, String> { serde_json::from_value(map.clone()).unwrap() };
    assert!(body["metadata"]["annotations"][ANNOTATION_APPLIED].is_string());
    Service {
        uid,
        resource_version: 1,
        generation: 1,
        observed: 0,
        labels: text(&body["metadata"]["labels"]),
        annotations: text(&body["metadata"]["annotations"]),
        spec: body["spec"].clone(),
        applied: body["spec"].clone(),
        owned: true,
        deleting: false,
        phase: String::new(),
        lacks: String::new(),
        set: None,
        rolled: Value::Null,
        stale: false,
        tried: None,
    }
}
