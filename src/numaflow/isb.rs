//! An ISB service as last seen, and with its StatefulSet at the moment when it mattered. Pure.
//!
//! What the service says of itself is not enough: after a change it says for a moment that it is healthy still, because its
//! controller has read an old StatefulSet; and which version it runs it does not say at all.

use std::ops::Deref;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::LiveObject;

/// An ISB service as last seen. It is an object of Numaflow's like any other, and says more.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveIsb {
    /// What it has like all others.
    pub object: LiveObject,
}

impl Deref for LiveIsb {
    type Target = LiveObject;

    fn deref(&self) -> &LiveObject {
        &self.object
    }
}

impl LiveIsb {
    /// Reads an ISB service as the API server gives it.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, data: &Value) -> Self {
        Self { object: LiveObject::read(metadata, data) }
    }

    /// Whether it says that it is healthy, about the spec as it is now.
    #[must_use]
    pub fn says_healthy(&self) -> bool {
        self.is_observed() && self.phase == "Running" && self.conditions.values().all(|(status, ..)| status == "True")
    }
}

/// An ISB service, asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IsbEvidence {
    /// Whether it is being deleted.
    pub deleting: bool,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// `spec.jetstream.version`; empty where it is not of that kind.
    pub version: String,
    /// Generation of its spec.
    pub generation: i64,
    /// Generation that Numaflow has seen.
    pub observed_generation: i64,
    /// `status.phase`.
    pub phase: String,
    /// Conditions that are not True, as `Type: message`.
    pub lacking: Vec<String>,
    /// The StatefulSet `isbsvc-<name>-js`; `None` where there is none.
    pub stateful_set: Option<StatefulSetSeen>,
}

/// The StatefulSet of an ISB service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatefulSetSeen {
    /// Generation of its spec.
    pub generation: i64,
    /// Generation that its controller has seen.
    pub observed_generation: i64,
    /// Whether the revision that it is updated to is the one that all pods have.
    pub same_revision: bool,
    /// Replicas wanted.
    pub replicas: i64,
    /// Replicas of the wanted revision; absent where nothing is being rolled.
    pub updated: Option<i64>,
    /// Replicas that are ready.
    pub ready: i64,
    /// Image of the container `main`.
    pub image: String,
}

impl StatefulSetSeen {
    /// Reads a StatefulSet.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, data: &Value) -> Self {
        let (spec, status) = (&data["spec"], &data["status"]);
        let containers = spec["template"]["spec"]["containers"].as_array();
        let main = containers.into_iter().flatten().find(|c| c["name"] == "main");
        Self {
            generation: metadata.generation.unwrap_or_default(),
            observed_generation: status["observedGeneration"].as_i64().unwrap_or_default(),
            same_revision: status["updateRevision"] == status["currentRevision"],
            replicas: spec["replicas"].as_i64().unwrap_or(1),
            updated: status["updatedReplicas"].as_i64(),
            ready: status["readyReplicas"].as_i64().unwrap_or_default(),
            image: main.and_then(|c| c["image"].as_str()).unwrap_or_default().to_owned(),
        }
    }

    /// What it lacks; empty when all its pods are ready and of the wanted revision.
    fn lacks(&self) -> Option<String> {
        let updated = self.updated.unwrap_or(if self.same_revision { self.replicas } else { 0 });
        if self.observed_generation < self.generation {
            Some("its StatefulSet has a change that is not acted upon yet".to_owned())
        } else if !self.same_revision || updated != self.replicas {
            Some(format!("{updated} of {} pods of its StatefulSet are updated", self.replicas))
        } else if self.ready != self.replicas {
            Some(format!("{} of {} pods of its StatefulSet are ready", self.ready, self.replicas))
        } else {
            None
        }
    }
}

impl IsbEvidence {
    /// Reads an ISB service, with its StatefulSet.
    #[must_use]
    pub fn read(metadata: &ObjectMeta, data: &Value, stateful_set: Option<(&ObjectMeta, &Value)>) -> Self {
        let status = &data["status"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let conditions = status["conditions"].as_array().into_iter().flatten();
        Self {
            deleting: metadata.deletion_timestamp.is_some(),
            created: metadata.creation_timestamp.as_ref().map(|t| t.0),
            version: text(&data["spec"]["jetstream"]["version"]),
            generation: metadata.generation.unwrap_or_default(),
            observed_generation: status["observedGeneration"].as_i64().unwrap_or_default(),
            phase: text(&status["phase"]),
            lacking: conditions
                .filter(|c| c["status"] != "True")
                .map(|c| format!("{}: {}", text(&c["type"]), text(&c["message"])))
                .collect(),
            stateful_set: stateful_set.map(|(metadata, data)| StatefulSetSeen::read(metadata, data)),
        }
    }

    /// What it lacks, in words; empty when it is healthy. `settings` is what its controller is told about ISB services: where
    /// that cannot be read, the image is not looked at.
    #[must_use]
    pub fn lacks(&self, settings: Option<&Value>) -> String {
        if self.observed_generation != self.generation {
            return "its controller has not seen its spec yet".to_owned();
        }
        if self.phase != "Running" {
            let phase = if self.phase.is_empty() { "none" } else { &self.phase };
            return format!("phase {phase}{}", self.lacking.first().map(|c| format!(", {c}")).unwrap_or_default());
        }
        if let Some(condition) = self.lacking.first() {
            return condition.clone();
        }
        let jetstream = !self.version.is_empty();
        let Some(stateful_set) = &self.stateful_set else {
            return if jetstream { "its StatefulSet does not exist".to_owned() } else { String::new() };
        };
        if let Some(lacks) = stateful_set.lacks() {
            return lacks;
        }
        match settings.and_then(|s| image(s, &self.version)) {
            Some(image) if image != stateful_set.image => {
                format!("its StatefulSet runs {}, and {image} is wanted", stateful_set.image)
            }
            _ => String::new(),
        }
    }
}

/// The image of a version, where the settings tell.
fn image<'a>(settings: &'a Value, version: &str) -> Option<&'a str> {
    let versions = settings["jetstream"]["versions"].as_array()?;
    versions.iter().find(|v| v["version"] == version)?["natsImage"].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings() -> Value {
        json!({"jetstream": {"versions": [{"version": "2.10", "natsImage": "nats:2.10"}]}})
    }

    /// A healthy one, changed: paths `service/…` and `set/…` to values.
    fn with(changes: &[(&str, Value)]) -> IsbEvidence {
        let mut service = json!({
            "spec": {"jetstream": {"version": "2.10"}},
            "status": {"observedGeneration": 2, "phase": "Running", "conditions": [
                {"type": "Configured", "status": "True"}, {"type": "ChildrenResourcesHealthy", "status": "True", "message": "rolling"},
            ]},
        });
        let mut set = json!({
            "spec": {"replicas": 3, "template": {"spec": {"containers": [
                {"name": "reloader", "image": "r"}, {"name": "main", "image": "nats:2.10"}]}}},
            "status": {"observedGeneration": 5, "updateRevision": "a", "currentRevision": "a", "updatedReplicas": 3,
                "readyReplicas": 3},
        });
        for (path, value) in changes {
            let (of, path) = path.split_once('/').unwrap();
            let object = if of == "set" { &mut set } else { &mut service };
            *object.pointer_mut(&format!("/{path}")).unwrap() = value.clone();
        }
        let metadata = |generation| ObjectMeta { generation: Some(generation), ..ObjectMeta::default() };
        IsbEvidence::read(&metadata(2), &service, Some((&metadata(5), &set)))
    }

    #[test]
    fn one_is_healthy_when_it_says_so_and_its_pods_are_ready_and_of_the_image_of_its_version() {
        let cases = [
            (vec![], ""),
            (vec![("service/status/observedGeneration", json!(1))], "not seen its spec"),
            (vec![("service/status/phase", json!("Failed"))], "phase Failed"),
            (vec![("service/status/conditions/1/status", json!("False"))], "ChildrenResourcesHealthy: rolling"),
            (vec![("set/status/observedGeneration", json!(4))], "not acted upon"),
            (
                vec![("set/status/updateRevision", json!("b")), ("set/status/updatedReplicas", json!(1))],
                "1 of 3 pods of its StatefulSet are updated",
            ),
            (vec![("set/status/updatedReplicas", json!(null))], ""),
            (vec![("set/status/readyReplicas", json!(2))], "2 of 3 pods of its StatefulSet are ready"),
            (
                vec![("set/spec/template/spec/containers/1/image", json!("nats:2.8"))],
                "runs nats:2.8, and nats:2.10 is wanted",
            ),
        ];
        for (changes, words) in cases {
            let said = with(&changes).lacks(Some(&settings()));
            assert!(if words.is_empty() { said.is_empty() } else { said.contains(words) }, "{changes:?}: {said}");
        }
    }

    #[test]
    fn the_image_is_left_out_where_the_settings_do_not_tell_and_the_set_must_be_there() {
        let old = [("set/spec/template/spec/containers/1/image", json!("nats:2.8"))];
        assert_eq!(with(&old).lacks(None), "");
        assert_eq!(with(&old).lacks(Some(&json!({"jetstream": {"versions": []}}))), "");
        assert_eq!(IsbEvidence { stateful_set: None, ..with(&[]) }.lacks(None), "its StatefulSet does not exist");
        let redis = IsbEvidence { stateful_set: None, version: String::new(), ..with(&[]) };
        assert_eq!(redis.lacks(None), "");
    }

    #[test]
    fn an_isb_service_is_healthy_when_all_it_says_is_about_its_spec_of_now_and_good() {
        let metadata = ObjectMeta { generation: Some(2), ..ObjectMeta::default() };
        let status = |observed: i64, phase: &str, ready: &str| {
            json!({"status": {"observedGeneration": observed, "phase": phase, "conditions": [
                {"type": "Configured", "status": "True"}, {"type": "ChildrenResourcesHealthy", "status": ready},
            ]}})
        };
        let healthy = |data: &Value| LiveIsb::read(&metadata, data).says_healthy();
        assert!(healthy(&status(2, "Running", "True")));
        assert!(!healthy(&status(1, "Running", "True")));
        assert!(!healthy(&status(2, "Pending", "True")));
        assert!(!healthy(&status(2, "Running", "False")));
        assert!(!healthy(&json!({})));
    }
}
