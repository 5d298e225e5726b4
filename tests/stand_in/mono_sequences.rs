//! Sequences of passes over a MonoVertex without a server: how it begins, pauses, runs again, rolls and fails.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    kinds::Kind,
    mono_vertex::{self, Look},
    pipeline::Memory,
    view::{After, INSTANCE, MONO_VERTEX_NAME, Pace, Seen, Step},
};

/// A server with one MonoVertex and its pods, and the time.
struct World {
    mono_vertex: Value,
    pods: BTreeMap<String, Value>,
    memory: Memory,
    now: Timestamp,
}

fn object(value: &Value) -> DynamicObject {
    serde_json::from_value(value.clone()).unwrap()
}

impl World {
    /// Nobody has looked yet.
    fn new(more: Value) -> Self {
        let mut spec =
            json!({"source": {"generator": {}}, "udf": {"container": {"image": "f:1"}}, "sink": {"log": {}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let mono_vertex = json!({"metadata": {"name": "m", "uid": "1", "generation": 1}, "spec": spec});
        let now = Timestamp::from_second(1_000_000).unwrap();
        Self { mono_vertex, pods: BTreeMap::new(), memory: Memory::default(), now }
    }

    /// All its pods are ready and it has seen that, and its daemon too.
    fn running(more: Value) -> Self {
        let mut world = Self::new(more);
        world.pass();
        world.now += Duration::from_secs(1);
        world.ready();
        world.pass();
        assert_eq!(world.condition("DaemonHealthy"), "True Successful");
        world
    }

    fn change(&mut self, place: &str, value: Value) {
        let (path, name) = place.rsplit_once('/').unwrap();
        let parent = self.mono_vertex["spec"].pointer_mut(path).unwrap();
        if value.is_null() {
            parent.as_object_mut().unwrap().remove(name);
        } else {
            parent[name] = value;
        }
        let generation = self.mono_vertex["metadata"]["generation"].as_i64().unwrap();
        self.mono_vertex["metadata"]["generation"] = (generation + 1).into();
    }

    fn want(&mut self, phase: &str) {
        self.change("/lifecycle", json!({"desiredPhase": phase}));
    }

    fn turn(&mut self, knob: &str, value: &str) {
        self.mono_vertex["metadata"]["annotations"][format!("stand-in.numaflow/{knob}")] = value.into();
    }

    /// Says of all pods that they are ready.
    fn ready(&mut self) {
        for pod in self.pods.values_mut() {
            pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        }
    }

    /// Takes away those that are going.
    fn gone(&mut self) {
        self.pods.retain(|_, pod| pod["metadata"]["deletionTimestamp"].is_null());
    }

    fn pass(&mut self) -> (Vec<Step>, After) {
        let pods: Vec<Seen> = self.pods.values().map(|pod| Arc::new(object(pod))).collect();
        let (pass, memory) = mono_vertex::pass(&Look {
            mono_vertex: &object(&self.mono_vertex),
            pods: &pods,
            instance: "",
            image: "numaflow:1",
            memory: &self.memory,
            now: self.now,
            pace: &Pace::REAL,
        });
        self.memory = memory;
        for step in pass.steps.clone() {
            match step {
                Step::Create(Kind::Pod, body) => {
                    let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                    assert!(self.pods.insert(name, body).is_none(), "made twice");
                }
                Step::Delete(Kind::Pod, name) => {
                    self.pods.get_mut(&name).unwrap()["metadata"]["deletionTimestamp"] = self.now.to_string().into();
                }
                Step::Merge(Kind::Pod, ..) => {}
                Step::Status(Kind::MonoVertex, _, status) => self.mono_vertex["status"] = status,
                other => panic!("{other:?}"),
            }
        }
        (pass.steps, pass.after)
    }

    /// `generation/observed phase`, replicas as it says, those that are updated and those that are ready.
    fn line(&self) -> String {
        let (status, count) =
            (&self.mono_vertex["status"], |name: &str| self.mono_vertex["status"][name].as_i64().unwrap_or_default());
        format!(
            "{}/{} {} {} {} {}",
            self.mono_vertex["metadata"]["generation"],
            count("observedGeneration"),
            status["phase"].as_str().unwrap_or("-"),
            count("replicas"),
            count("updatedReplicas"),
            count("readyReplicas"),
        )
    }

    /// The numbers of its pods, and the image of the user in them; `-` before those that are going.
    fn placed(&self) -> Vec<String> {
        let one = |pod: &Value| {
            let going = if pod["metadata"]["deletionTimestamp"].is_null() { "" } else { "-" };
            let number = pod["metadata"]["annotations"]["numaflow.numaproj.io/replica"].as_str().unwrap();
            format!("{going}{number} {}", pod["spec"]["containers"][1]["image"].as_str().unwrap())
        };
        let mut all: Vec<String> = self.pods.values().map(one).collect();
        all.sort();
        all
    }

    fn condition(&self, name: &str) -> String {
        let found = self.mono_vertex["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == name);
        let found = found.unwrap_or(&Value::Null);
        format!("{} {}", found["status"].as_str().unwrap_or("-"), found["reason"].as_str().unwrap_or("-"))
    }
}

#[test]
fn it_says_that_it_runs_before_anything_is_up() {
    let mut world = World::new(json!({"scale": {"min": 2}}));
    let (_, after) = world.pass();
    assert_eq!((world.line().as_str(), world.placed().len()), ("1/1 Running 2 2 0", 2));
    assert_eq!(
        [world.condition("PodsHealthy"), world.condition("DaemonHealthy"), world.condition("Deployed")],
        ["True NoPodsFound", "False Progressing", "True Successful"]
    );
    assert_eq!(world.mono_vertex["status"]["reason"], "ChildResourceUnhealthy");
    assert_eq!(after, After::At(world.now + Duration::from_millis(300)));
    let pod = world.pods.values().next().unwrap();
    assert!(pod["metadata"]["name"].as_str().unwrap().starts_with("m-mv-0-"), "{pod}");
    let labels = &pod["metadata"]["labels"];
    assert_eq!(
        (&labels[MONO_VERTEX_NAME], &labels["app.kubernetes.io/component"]),
        (&json!("m"), &json!("mono-vertex"))
    );
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "MonoVertex");
    world.now += Duration::from_secs(1);
    world.ready();
    assert_eq!(world.pass().1, After::Rest);
    assert_eq!((world.line().as_str(), world.condition("PodsHealthy").as_str()), ("1/1 Running 2 2 2", "True Running"));
    assert!(world.mono_vertex["status"]["message"].is_null(), "{}", world.mono_vertex);
}

#[test]
fn a_pause_is_one_write_while_the_pods_are_there_still_and_a_resume_is_one_too() {
    let mut world = World::running(json!({"replicas": 3}));
    world.want("Paused");
    assert_eq!(world.pass().1, After::Rest);
    assert_eq!(world.line(), "2/2 Paused 0 0 0");
    assert_eq!(world.placed(), ["-0 f:1", "-1 f:1", "-2 f:1"]);
    assert_eq!(world.condition("PodsHealthy"), "True Running");
    world.gone();
    world.pass();
    assert_eq!(world.condition("PodsHealthy"), "True NoPodsFound");
    world.want("Running");
    world.pass();
    assert_eq!((world.line().as_str(), world.placed().len()), ("3/3 Running 3 3 0", 3), "as many as before");

    world.want("Paused");
    world.pass();
    world.gone();
    world.change("/replicas", Value::Null);
    world.change("/scale", json!({"min": 2}));
    world.want("Running");
    world.pass();
    assert_eq!(world.line(), "7/7 Running 2 2 0", "as few as may be");
    world.change("/replicas", json!(9));
    world.change("/scale", json!({"max": 4}));
    world.ready();
    world.pass();
    assert_eq!(world.line(), "9/9 Running 4 4 2");
    world.change("/scale", json!({"disabled": true}));
    world.change("/replicas", json!(0));
    world.pass();
    assert_eq!(world.line(), "11/11 Running 0 0 0");
}

#[test]
fn another_image_takes_the_place_of_the_old_one_pod_by_pod_when_those_before_are_ready() {
    let mut world = World::running(json!({"replicas": 2}));
    world.change("/udf/container/image", json!("f:2"));
    world.pass();
    assert_eq!(
        (world.line().as_str(), world.placed()),
        ("2/2 Running 2 1 2", vec!["-0 f:1".into(), "0 f:2".into(), "1 f:1".into()])
    );
    world.gone();
    for _ in 0..3 {
        world.pass();
        assert_eq!(
            (world.line().as_str(), world.placed()),
            ("2/2 Running 2 1 1", vec!["0 f:2".into(), "1 f:1".into()])
        );
    }
    world.ready();
    world.pass();
    world.gone();
    assert_eq!((world.line().as_str(), world.placed()), ("2/2 Running 2 2 2", vec!["0 f:2".into(), "1 f:2".into()]));
    let status = &world.mono_vertex["status"];
    assert_eq!(status["currentHash"], status["updateHash"]);

    // With a pause in the same change, it is paused at once and comes up new.
    world.change("/udf/container/image", json!("f:3"));
    world.want("Paused");
    world.pass();
    assert_eq!((world.line().as_str(), world.placed().len()), ("4/4 Paused 0 0 0", 2));
    world.gone();
    world.want("Running");
    world.pass();
    assert_eq!(world.placed(), ["0 f:3", "1 f:3"]);
}

#[test]
fn what_cannot_be_deployed_keeps_its_pods_and_what_was_said_of_them() {
    let mut world = World::running(json!({"replicas": 2}));
    world.now += Duration::from_mins(1);
    let before = world.mono_vertex["status"]["conditions"][0].clone();
    let sink = world.mono_vertex["spec"]["sink"].clone();
    world.change("/sink", Value::Null);
    assert_eq!(world.pass().1, After::Retry);
    assert_eq!((world.line().as_str(), world.placed()), ("2/2 Failed 2 2 2", vec!["0 f:1".into(), "1 f:1".into()]));
    assert_eq!(
        [world.condition("Deployed"), world.condition("PodsHealthy"), world.condition("DaemonHealthy")],
        ["False InvalidSpec", "True Running", "True Successful"]
    );
    let status = &world.mono_vertex["status"];
    assert_eq!((&status["reason"], &status["conditions"][0]), (&json!("InvalidSpec"), &before), "with its time");
    world.want("Paused");
    world.pass();
    assert_eq!((world.line().as_str(), world.placed().len()), ("3/3 Failed 2 2 2", 2), "it is not paused");
    world.change("/sink", sink);
    world.pass();
    assert_eq!(world.line(), "4/4 Paused 0 0 0");
    world.gone();
    world.change("/source", json!({}));
    world.pass();
    assert_eq!(world.line(), "5/5 Failed 0 0 0");
    world.change("/source", json!({"generator": {}}));
    world.want("Running");
    world.pass();
    assert_eq!(world.line(), "7/7 Running 2 2 0");
    world.turn("fails", "no quota");
    assert_eq!(world.pass().1, After::Retry);
    assert_eq!(
        (&world.mono_vertex["status"]["phase"], &world.mono_vertex["status"]["message"]),
        (&json!("Failed"), &json!("no quota"))
    );
}

#[test]
fn pods_go_slowly_are_ready_late_and_are_ill_as_they_are_asked_to() {
    let mut world = World::new(json!({"metadata": {"labels": {"mine": "1"}}}));
    for (knob, value) in [("terminates-after", "3s"), ("pod-takes", "2s"), ("never-ready", "true")] {
        world.turn(knob, value);
    }
    world.pass();
    let pod = world.pods.values_mut().next().unwrap();
    assert_eq!(
        (&pod["metadata"]["labels"]["mine"], &pod["metadata"]["finalizers"]),
        (&json!("1"), &json!(["stand-in.numaflow/terminates"]))
    );
    let annotations = &pod["metadata"]["annotations"];
    assert_eq!(
        (&annotations["numaplane.test/ready-after"], &annotations["numaplane.test/behaviour"]),
        (&json!("2"), &json!("never-ready"))
    );
    // Whoever deletes it.
    let held = {
        let mut deleted = pod.clone();
        deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:05Z".into();
        deleted["metadata"]["deletionGracePeriodSeconds"] = 1.into();
        super::cache::waits(&object(&deleted)).unwrap()
    };
    assert_eq!(held.to_string(), "2026-01-01T00:00:07Z");
    pod["status"]["containerStatuses"] = json!([{"state": {"waiting": {"reason": "ImagePullBackOff"}}}]);
    world.pass();
    assert_eq!(world.condition("PodsHealthy"), "False PodImagePullBackOff");
    world.want("Paused");
    let (steps, _) = world.pass();
    assert!(
        matches!(&steps[0], Step::Merge(Kind::Pod, _, patch) if patch["metadata"]["annotations"].is_object()),
        "{steps:?}"
    );
    world.pass();
    assert_eq!(world.condition("PodsHealthy"), "True Running", "it is going");
}

#[test]
fn others_and_silent_ones_are_left_alone_and_pods_of_one_that_is_gone_are_not() {
    for annotation in [INSTANCE, "stand-in.numaflow/silent"] {
        let mut world = World::new(json!({}));
        world.mono_vertex["metadata"]["annotations"][annotation] = "true".into();
        assert_eq!(world.pass(), (Vec::new(), After::Rest));
    }
    let mut world = World::running(json!({}));
    let old: Vec<String> = world.pods.keys().cloned().collect();
    world.mono_vertex["metadata"]["uid"] = "2".into();
    world.mono_vertex["status"] = Value::Null;
    world.pass();
    assert_eq!(world.placed(), ["-0 f:1", "0 f:1"]);
    let pods: Vec<Seen> = world.pods.values().map(|pod| Arc::new(object(pod))).collect();
    let left = mono_vertex::left(&pods);
    let new = pods.iter().map(|pod| pod.name_any()).find(|name| !old.contains(name)).unwrap();
    assert_eq!(left.steps, [Step::Delete(Kind::Pod, new)]);
}
