//! Sequences of passes without a server: what the stand-in makes of a pipeline, step by step, also when it has not seen
//! the last change yet.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    kinds::Kind,
    pipeline::{self, Memory},
    service, vertices,
    view::{After, INSTANCE, PAUSE_TIMESTAMP, PIPELINE_NAME, Pace, Seen, Step, VERTEX_NAME},
};

/// A server with one pipeline, and the time.
#[derive(Clone)]
struct World {
    objects: BTreeMap<(Kind, String), Value>,
    memory: Memory,
    now: Timestamp,
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut into[name], value);
        }
    }
}

fn object(value: &Value) -> DynamicObject {
    serde_json::from_value(value.clone()).unwrap()
}

impl World {
    /// A pipeline that runs, with an InterStepBufferService that is healthy, and no pods.
    fn running(lifecycle: Value) -> Self {
        let mut world = Self::new(lifecycle);
        world.pass();
        world.settle_vertices();
        world.now += Duration::from_secs(1);
        world.pass();
        assert_eq!(world.line(), "1/1 Running");
        world
    }

    fn new(lifecycle: Value) -> Self {
        let service = json!({
            "metadata": {"name": "default", "generation": 1}, "spec": {"jetstream": {"version": "1"}},
            "status": {"phase": "Running", "conditions": [{"type": "Configured", "status": "True"}]},
        });
        let pipeline = json!({
            "metadata": {"name": "p", "uid": "1", "generation": 1},
            "spec": {
                "lifecycle": lifecycle,
                "vertices": [{"name": "in", "source": {}}, {"name": "cat", "udf": {}}, {"name": "out", "sink": {}}],
                "edges": [{"from": "in", "to": "cat"}, {"from": "cat", "to": "out"}],
            },
        });
        let mut objects = BTreeMap::new();
        objects.insert((Kind::Service, "default".to_owned()), service);
        objects.insert((Kind::Pipeline, "p".to_owned()), pipeline);
        Self { objects, memory: Memory::default(), now: Timestamp::from_second(1_000_000).unwrap() }
    }

    fn pipeline(&mut self) -> &mut Value {
        self.objects.get_mut(&(Kind::Pipeline, "p".to_owned())).unwrap()
    }

    /// Changes an object as its user does.
    fn change(&mut self, kind: Kind, name: &str, patch: &Value) {
        let object = self.objects.get_mut(&(kind, name.to_owned())).unwrap();
        let before = object["spec"].clone();
        merge(object, patch);
        if object["spec"] != before {
            let generation = object["metadata"]["generation"].as_i64().unwrap();
            object["metadata"]["generation"] = (generation + 1).into();
        }
    }

    fn want(&mut self, phase: &str) {
        self.change(Kind::Pipeline, "p", &json!({"spec": {"lifecycle": {"desiredPhase": phase}}}));
    }

    fn turn(&mut self, knob: &str, value: Value) {
        let patch = json!({"metadata": {"annotations": {format!("stand-in.numaflow/{knob}"): value}}});
        self.change(Kind::Pipeline, "p", &patch);
    }

    /// Says of all vertices that they were looked at.
    fn settle_vertices(&mut self) {
        for ((_, _), vertex) in self.objects.iter_mut().filter(|((kind, _), _)| *kind == Kind::Vertex) {
            vertex["status"]["observedGeneration"] = vertex["metadata"]["generation"].clone();
        }
    }

    fn all(&self, wanted: Kind) -> Vec<Seen> {
        self.objects.iter().filter(|((kind, _), _)| *kind == wanted).map(|(_, o)| Arc::new(object(o))).collect()
    }

    fn pass(&mut self) -> (Vec<Step>, After) {
        let seen = self.clone();
        self.pass_of(&seen)
    }

    /// A pass that decides from what was so some time ago.
    fn pass_of(&mut self, seen: &Self) -> (Vec<Step>, After) {
        let (pipeline, service) = (seen.all(Kind::Pipeline).remove(0), seen.all(Kind::Service).pop());
        let (pass, memory) = pipeline::pass(&pipeline::Look {
            pipeline: &pipeline,
            service: service.as_deref(),
            vertices: &seen.all(Kind::Vertex),
            pods: &seen.all(Kind::Pod),
            instance: "",
            memory: &self.memory,
            now: self.now,
            pace: &Pace::REAL,
        });
        self.memory = memory;
        let mut read_back = Value::Null;
        for step in pass.steps.clone() {
            match step {
                Step::Create(kind, mut body) => {
                    body["metadata"]["generation"] = 1.into();
                    self.objects.insert((kind, body["metadata"]["name"].as_str().unwrap().to_owned()), body);
                }
                Step::Merge(kind, name, patch) => {
                    self.change(kind, &name, &patch);
                    if kind == Kind::Pipeline {
                        read_back = self.pipeline()["status"].clone();
                    }
                }
                Step::Json(kind, name, patch) => self.change(kind, &name, &json!({"spec": patch[0]["value"]})),
                Step::Status(_, _, status) => self.pipeline()["status"] = status,
                Step::StatusAgain(_, _, fields) => {
                    merge(&mut read_back, &fields.into());
                    self.pipeline()["status"] = read_back.clone();
                }
                Step::Delete(kind, name) => drop(self.objects.remove(&(kind, name))),
                Step::Wait(_) | Step::Apply(..) => {}
            }
        }
        (pass.steps, pass.after)
    }

    /// `generation/observed phase`, and whether there is the time of a pause, and whether it was drained.
    fn line(&mut self) -> String {
        let pipeline = self.pipeline().clone();
        let (metadata, status) = (&pipeline["metadata"], &pipeline["status"]);
        let mut line = format!(
            "{}/{} {}",
            metadata["generation"],
            status["observedGeneration"].as_i64().unwrap_or_default(),
            status["phase"].as_str().unwrap_or("-")
        );
        for (is, word) in [
            (metadata["annotations"][PAUSE_TIMESTAMP].is_string(), " pts"),
            (status["drainedOnPause"] == true, " drained"),
        ] {
            line += if is { word } else { "" };
        }
        line
    }

    /// What in, cat and out are to do: `P` or `R`.
    fn wishes(&self) -> String {
        let of = |name: &str| {
            let vertex = &self.objects[&(Kind::Vertex, format!("p-{name}"))];
            if vertex["spec"]["lifecycle"]["desiredPhase"] == "Paused" { 'P' } else { 'R' }
        };
        ["in", "cat", "out"].into_iter().map(of).collect()
    }

    fn pod_of_the_source(&mut self) {
        let labels = json!({PIPELINE_NAME: "p", VERTEX_NAME: "in"});
        let pod = json!({"metadata": {"name": "p-in-0", "labels": labels}});
        self.objects.insert((Kind::Pod, "p-in-0".to_owned()), pod);
    }

    fn condition(&mut self, name: &str) -> String {
        let status = self.pipeline()["status"].clone();
        let found = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == name).cloned().unwrap();
        format!("{} {}", found["status"].as_str().unwrap(), found["reason"].as_str().unwrap())
    }
}

#[test]
fn a_pause_is_two_writes_or_more_and_waits_for_the_pods_of_its_sources() {
    let mut world = World::running(json!({}));
    world.pod_of_the_source();
    world.want("Paused");
    let (_, after) = world.pass();
    assert_eq!((world.line().as_str(), world.wishes().as_str()), ("2/1 Running pts", "PRR"));
    assert_eq!(after, After::At(world.now + Duration::from_secs(10)));
    let (_, after) = world.pass();
    assert_eq!((world.line().as_str(), world.wishes().as_str()), ("2/2 Pausing pts", "PRR"));
    assert_eq!(after, After::At(world.now + Duration::from_secs(10)));
    world.objects.remove(&(Kind::Pod, "p-in-0".to_owned()));
    let (_, after) = world.pass();
    assert_eq!((world.line().as_str(), world.wishes().as_str()), ("2/2 Paused pts drained", "PPP"));
    assert_eq!(after, After::Rest);

    world.want("Running");
    world.pass();
    assert_eq!((world.line().as_str(), world.wishes().as_str()), ("3/2 Running", "RRR"));
    world.pass();
    assert_eq!(world.line(), "3/3 Running");
}

#[test]
fn what_does_not_drain_is_paused_when_its_grace_is_over() {
    for (knob, value, busy) in [("pending", "7", 0), ("daemon", "refused", 0), ("daemon", "hung", 20)] {
        let mut world = World::running(json!({"pauseGracePeriodSeconds": 20}));
        world.turn(knob, value.into());
        world.want("Paused");
        world.pass();
        for _ in 0..2 {
            let (steps, _) = world.pass();
            assert_eq!(world.line(), "2/2 Pausing pts");
            let waits = steps.contains(&Step::Wait(Duration::from_secs(20)));
            assert_eq!(waits, busy > 0);
            world.now += Duration::from_secs(10);
        }
        world.now += Duration::from_secs(1);
        world.pass();
        assert_eq!((world.line().as_str(), world.wishes().as_str()), ("2/2 Paused pts", "PPP"));
    }
    let mut world = World::running(json!({"pauseGracePeriodSeconds": 0}));
    for (knob, value) in [("never-pauses", "true"), ("drains-after", "3s")] {
        world.turn(knob, value.into());
    }
    world.want("Paused");
    world.pass();
    world.now += Duration::from_mins(1);
    world.pass();
    assert_eq!(world.line(), "2/2 Pausing pts");
    world.turn("never-pauses", Value::Null);
    world.pass();
    assert_eq!(world.line(), "2/2 Paused pts drained");
}

#[test]
fn flips_that_are_too_close_wedge_a_pipeline() {
    let mut world = World::running(json!({}));
    world.want("Paused");
    world.pass();
    world.want("Running");
    for _ in 0..3 {
        world.pass();
        assert_eq!((world.line().as_str(), world.wishes().as_str()), ("3/3 Running pts", "PRR"));
    }
    // The cure.
    world.want("Paused");
    world.pass();
    assert_eq!(world.line(), "4/4 Paused pts drained");
    world.want("Running");
    let first = world.clone();
    world.want("Paused");
    // Two passes, of which the second one has not seen what the first one wrote.
    let second = world.clone();
    world.pass_of(&first);
    assert_eq!((world.line().as_str(), world.wishes().as_str()), ("6/4 Running", "RRR"));
    world.pass_of(&second);
    world.settle_vertices();
    for _ in 0..3 {
        assert_eq!((world.line().as_str(), world.wishes().as_str()), ("6/6 Paused drained", "RRR"));
        world.pass();
    }
}

#[test]
fn a_knob_wedges_the_next_flip_and_no_other_whatever_is_seen_of_it() {
    let mut world = World::running(json!({}));
    world.turn("wedge", "paused".into());
    let before = {
        world.want("Paused");
        world.clone()
    };
    world.pass();
    for _ in 0..2 {
        assert_eq!((world.line().as_str(), world.wishes().as_str()), ("2/2 Paused drained", "RRR"));
        world.pass_of(&before);
    }
    world.want("Running");
    world.pass();
    assert_eq!(world.line(), "3/3 Running");
    world.turn("wedge", "running".into());
    world.want("Paused");
    world.pass();
    world.pass();
    assert_eq!(world.line(), "4/4 Paused pts drained");
    world.want("Running");
    world.pass();
    assert_eq!((world.line().as_str(), world.wishes().as_str()), ("5/5 Running pts", "PRR"));
    assert!(world.pipeline()["metadata"]["annotations"]["stand-in.numaflow/wedge"].is_null());
}

#[test]
fn a_failure_keeps_times_and_vertices_and_is_tried_again() {
    let mut world = World::running(json!({}));
    world.want("Paused");
    world.pass();
    world.pass();
    let service = world.objects[&(Kind::Service, "default".to_owned())].clone();
    let mut foreign = service.clone();
    foreign["metadata"]["annotations"] = json!({INSTANCE: "blue"});
    let mut ill = service.clone();
    ill["status"]["conditions"][0]["status"] = "False".into();
    for (service, words) in [
        (None, "isbsvc default not found"),
        (Some(foreign), "isbsvc not managed by the same controller of this pipeline"),
        (Some(ill), "isbsvc not healthy"),
    ] {
        world.objects.remove(&(Kind::Service, "default".to_owned()));
        world.objects.extend(service.map(|s| ((Kind::Service, "default".to_owned()), s)));
        assert_eq!(world.pass().1, After::Retry);
        assert_eq!((world.line().as_str(), world.wishes().as_str()), ("2/2 Failed pts drained", "PPP"));
        assert_eq!(world.pipeline()["status"]["message"], words);
        assert_eq!(world.condition("Deployed"), "False ReconcileFixedResourcesFailed");
        assert_eq!(world.condition("VerticesHealthy"), "Unknown Unknown");
    }
    world.objects.insert((Kind::Service, "default".to_owned()), service);
    let edges = world.pipeline()["spec"]["edges"].clone();
    world.change(Kind::Pipeline, "p", &json!({"spec": {"edges": [{"from": "in", "to": "nowhere"}]}}));
    assert_eq!(world.pass().1, After::Retry);
    assert_eq!(world.condition("Configured"), "False InvalidSpec");
    world.change(Kind::Pipeline, "p", &json!({"spec": {"edges": edges}}));
    world.pass();
    assert_eq!(world.line(), "4/4 Paused pts drained");
}

#[test]
fn a_deletion_takes_the_time_that_it_was_given() {
    let mut world = World::running(json!({"deletionGracePeriodSeconds": 25}));
    world.turn("pending", "1".into());
    let since = world.now.to_string();
    world.change(Kind::Pipeline, "p", &json!({"metadata": {"deletionTimestamp": since, "generation": 2}}));
    for _ in 0..2 {
        let (_, after) = world.pass();
        assert_eq!((world.line().as_str(), world.wishes().as_str()), ("2/1 Deleting", "PRR"));
        assert_eq!(after, After::At(world.now + Duration::from_secs(10)));
    }
    world.turn("daemon", "refused".into());
    assert_eq!(world.pass().1, After::Retry);
    world.now += Duration::from_secs(25);
    world.pass();
    assert!(object(world.pipeline()).finalizers().is_empty() && world.all(Kind::Vertex).is_empty());

    let mut world = World::running(json!({}));
    let grace = json!({"metadata": {"deletionTimestamp": since, "deletionGracePeriodSeconds": 0}});
    world.change(Kind::Pipeline, "p", &grace);
    world.pass();
    assert!(object(world.pipeline()).finalizers().is_empty(), "no drain");
}

#[test]
fn others_and_silent_ones_are_left_alone() {
    for annotation in [INSTANCE, "stand-in.numaflow/silent"] {
        let mut world = World::new(json!({}));
        world.change(Kind::Pipeline, "p", &json!({"metadata": {"annotations": {annotation: "true"}}}));
        assert_eq!(world.pass(), (Vec::new(), After::Rest));
    }
}

#[test]
fn a_vertex_has_pods_unless_it_is_paused() {
    let image = |vertex: &Value, pods: &[Seen]| {
        let knobs = super::knobs::Knobs { terminates_after: Some(Duration::from_secs(3)), ..Default::default() };
        let now = Timestamp::from_second(1_000_000).unwrap();
        let vertex = object(vertex);
        vertices::pass(&vertices::Look { vertex: &vertex, pods, knobs: &knobs, instance: "", image: "numaflow:1", now })
    };
    let mut vertex = json!({
        "metadata": {"name": "p-in", "generation": 1, "labels": {PIPELINE_NAME: "p", VERTEX_NAME: "in"}},
        "spec": {"replicas": 2, "scale": {"max": 5}},
    });
    let created = |pass: &super::view::Pass| -> Vec<Seen> {
        let pods = pass.steps.iter().filter_map(|step| match step {
            Step::Create(Kind::Pod, body) => Some(Arc::new(object(body))),
            _ => None,
        });
        pods.collect()
    };
    let pods = created(&image(&vertex, &[]));
    assert!(pods.len() == 2 && pods[1].name_any().starts_with("p-in-1-"), "{pods:?}");
    assert!(created(&image(&vertex, &pods)).is_empty());
    vertex["spec"]["lifecycle"] = json!({"desiredPhase": "Paused"});
    let stopped = image(&vertex, &pods);
    let deleted = stopped.steps.iter().filter(|step| matches!(step, Step::Delete(Kind::Pod, _))).count();
    let slowly = stopped.steps.iter().filter(|step| matches!(step, Step::Merge(Kind::Pod, ..))).count();
    assert_eq!((deleted, slowly), (2, 2));
    assert!(
        matches!(stopped.steps.last(), Some(Step::Status(_, _, s)) if s["phase"] == "Paused" && s["replicas"] == 0)
    );
    // Without a number of its own it begins small, and with none it grows unless that is forbidden.
    vertex["spec"] = json!({"scale": {"min": 3}});
    assert_eq!(image(&vertex, &[]).steps, [Step::Merge(Kind::Vertex, "p-in".into(), json!({"spec": {"replicas": 3}}))]);
    vertex["spec"] = json!({"replicas": 0, "scale": {"disabled": true}});
    assert!(created(&image(&vertex, &[])).is_empty());
}

#[test]
fn a_buffer_service_has_a_statefulset_of_the_image_that_is_configured() {
    let pass = |service: &Value, set: Option<&DynamicObject>, pipelines: usize| {
        let images = [("1".to_owned(), "nats:1".to_owned()), ("2".to_owned(), "nats:2".to_owned())].into();
        let (service, now) = (object(service), Timestamp::from_second(1_000_000).unwrap());
        service::pass(&service::Look { service: &service, set, pipelines, images: &images, instance: "", now })
    };
    let last = |pass: &super::view::Pass| match pass.steps.last() {
        Some(Step::Status(_, _, status)) => {
            let healthy = &status["conditions"][0];
            format!("{} {}", status["phase"].as_str().unwrap(), healthy["reason"].as_str().unwrap())
        }
        other => format!("{other:?}"),
    };
    let mut service = json!({"metadata": {"name": "s", "generation": 1}, "spec": {"jetstream": {"version": "1"}}});
    let made = pass(&service, None, 0);
    assert_eq!(last(&made), "Running Progressing");
    let applied = made.steps.iter().find_map(|step| match step {
        Step::Apply(Kind::StatefulSet, name, body) if name == "isbsvc-s-js" => Some(body.clone()),
        _ => None,
    });
    let mut set = applied.unwrap();
    assert_eq!(set["spec"]["template"]["spec"]["containers"][0], json!({"name": "main", "image": "nats:1"}));
    set["metadata"]["generation"] = 1.into();
    set["status"] = json!({"observedGeneration": 1, "readyReplicas": 1, "updateRevision": "a", "currentRevision": "a"});
    assert_eq!(last(&pass(&service, Some(&object(&set)), 0)), "Running Unavailable");
    set["status"]["readyReplicas"] = 2.into();
    assert_eq!(last(&pass(&service, Some(&object(&set)), 0)), "Running Healthy");
    // How its pods behave is no reason to roll them, and comes along with one.
    let applies = |pass: &super::view::Pass| {
        let applied = pass.steps.iter().find_map(|step| match step {
            Step::Apply(Kind::StatefulSet, _, body) => {
                Some(body["spec"]["template"]["metadata"]["annotations"].clone())
            }
            _ => None,
        });
        applied.map(|annotations| annotations["numaplane.test/ready-after"].clone())
    };
    let mut slow = service.clone();
    slow["metadata"]["annotations"] = json!({"stand-in.numaflow/pod-takes": "2s"});
    assert_eq!(applies(&pass(&slow, Some(&object(&set)), 0)), None);
    slow["spec"]["jetstream"]["version"] = "2".into();
    assert_eq!(applies(&pass(&slow, Some(&object(&set)), 0)), Some(json!("2")));
    set["status"]["updateRevision"] = "b".into();
    assert_eq!(last(&pass(&service, Some(&object(&set)), 0)), "Running Progressing");
    service["spec"]["jetstream"]["version"] = "2".into();
    service["metadata"]["annotations"] = json!({"stand-in.numaflow/stale-health": "50ms"});
    let rolled = pass(&service, Some(&object(&set)), 0);
    assert!(rolled.steps.contains(&Step::Wait(Duration::from_millis(50))), "{rolled:?}");
    service["spec"]["jetstream"]["version"] = "3".into();
    let failed = pass(&service, Some(&object(&set)), 0);
    assert_eq!((last(&failed).as_str(), failed.after), ("Failed Unknown", After::Retry));
    service["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    service["metadata"]["finalizers"] = json!(["numaflow.numaproj.io/isbsvc-controller"]);
    let refused = pass(&service, Some(&object(&set)), 3);
    assert_eq!((refused.after, last(&refused).as_str()), (After::Retry, "Deleting Successful"));
    let released = pass(&service, Some(&object(&set)), 0);
    assert!(released.steps.contains(&Step::Delete(Kind::StatefulSet, "isbsvc-s-js".to_owned())), "{released:?}");
}
