//! What became of objects, each state in words of its own: pipelines, their vertices and pods, ISB services, and those who ask
//! for pauses.

use jiff::{SignedDuration, Timestamp};
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{pauses::State, production, requesters::By};

const PIPELINE_NAME: &str = "numaflow.numaproj.io/pipeline-name";
const PARENT: &str = "numaplane.numaproj.io/parent-rollout-name";
const SERVICE_NAME: &str = "numaflow.numaproj.io/isbsvc-name";
const APPLIED: &str = "numaplane.numaproj.io/applied";

/// After so long beyond its own deletion a pod is on a node that is gone.
const LOST: SignedDuration = SignedDuration::from_secs(60);
/// Stages in which a pause may be asked for.
const ASKING: [&str; 5] = ["Drain", "CutOver", "Apply", "Confirm", "RollBack"];
/// How the record of a change begins that did not wait for a pause.
const WITHOUT: &str = "applied without a pause";

/// An object at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// Its resourceVersion.
    pub at: u64,
    /// When that came in here.
    pub seen: Timestamp,
    /// Name of the object.
    pub name: String,
    /// Which of that name.
    pub uid: String,
    /// What it was then.
    pub what: What,
}

/// What an object was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Pipeline(Made, Box<State>),
    Vertex(Vertex),
    Pod(Pod),
    /// What the rollout of a controller, or of an ISB service, asks of pipelines.
    Asks(Asks),
    /// An ISB service.
    Service(Service),
    /// The StatefulSet of an ISB service.
    Set(Set),
    /// What the rollout of a pipeline has on record about changes that did not wait for a pause.
    Record(Vec<Noted>),
    Gone(Kind),
}

/// The kinds of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Pipeline,
    Vertex,
    Pod,
    ControllerRollout,
    IsbRollout,
    PipelineRollout,
    Service,
    Set,
}

/// What a pipeline is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Made {
    /// The rollout that it belongs to.
    pub parent: String,
    /// Hash of what the operator applied last.
    pub applied: String,
    /// What may lose data if it changes while there are messages in the buffers.
    pub work: String,
    /// The ISB service that its buffers are in.
    pub service: String,
    /// The instance that manages it.
    pub instance: String,
}

/// What one asks who may ask for pauses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asks {
    pub by: By,
    /// Whether it asks for one.
    pub active: bool,
    /// What is wrong with that.
    pub wrong: Option<String>,
    /// Whether it is being deleted: then it does not count.
    pub deleting: bool,
    /// Whose pipelines are meant: those of this instance, or on this ISB service.
    pub scope: String,
    /// Pipelines of which it is on record that they are not drained, or not paused at all.
    pub undrained: Vec<String>,
}

/// An ISB service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// The rollout that it belongs to.
    pub parent: String,
    /// Whether Numaflow has seen its spec.
    pub observed: bool,
    /// What may lose data if it changes while there are messages in the buffers.
    pub work: String,
    /// The image of its version.
    pub image: String,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// The StatefulSet of an ISB service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// The ISB service.
    pub service: String,
    /// Whether every replica is updated and ready.
    pub rolled: bool,
    /// The image of its pods.
    pub image: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vertex {
    pub pipeline: String,
    /// The phase that it is to be in.
    pub desired: String,
    /// Its spec, but for phase and scale.
    pub work: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub pipeline: String,
    /// From when on it is not waited for.
    pub until: Option<Timestamp>,
}

/// What is on record about a change that did not wait for a pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noted {
    /// When the pause began that it is noted with, or the change was made.
    pub since: String,
    /// Of the change, with its hash; that of the pause, where one was under way.
    pub reason: String,
    /// Why it did not wait.
    pub words: String,
}

impl Happened {
    /// What an event tells.
    pub fn of(kind: Kind, object: &DynamicObject) -> Self {
        let pipeline = object.labels().get(PIPELINE_NAME).cloned().unwrap_or_default();
        let what = match kind {
            Kind::Pipeline => What::Pipeline(made(object), Box::new(State::of(object))),
            Kind::Vertex => What::Vertex(Vertex {
                pipeline,
                desired: text(&object.data, "/spec/lifecycle/desiredPhase"),
                work: without(&object.data["spec"], &["lifecycle", "replicas", "scale"]),
            }),
            Kind::Pod => {
                let over =
                    ["Failed", "Succeeded"].contains(&object.data["status"]["phase"].as_str().unwrap_or_default());
                let gone = object.metadata.deletion_timestamp.as_ref().map(|t| t.0 + LOST);
                What::Pod(Pod { pipeline, until: if over { Some(Timestamp::MIN) } else { gone } })
            }
            Kind::ControllerRollout => What::Asks(asks(By::Controller, object)),
            Kind::IsbRollout => What::Asks(asks(By::Isb, object)),
            Kind::Service => What::Service(Service {
                parent: object.labels().get(PARENT).cloned().unwrap_or_default(),
                observed: object.data["status"]["observedGeneration"] == json!(object.metadata.generation),
                work: lossy(&object.data["spec"]),
                image: production::image_of(&text(&object.data, "/spec/jetstream/version")).to_owned(),
                deleting: object.metadata.deletion_timestamp.is_some(),
            }),
            Kind::Set => {
                let set = serde_json::to_value(object).unwrap_or_default();
                What::Set(Set {
                    service: object.labels().get(SERVICE_NAME).cloned().unwrap_or_default(),
                    rolled: production::is_rolled(&set),
                    image: production::image(&set).to_owned(),
                })
            }
            Kind::PipelineRollout => {
                let pauses = ["pause", "lastPause"].map(|field| &object.data["status"][field]);
                let said = pauses.map(|p| Noted {
                    since: text(p, "/since"),
                    reason: text(p, "/reason"),
                    words: text(p, "/notDrained"),
                });
                What::Record(said.into_iter().filter(|noted| noted.words.starts_with(WITHOUT)).collect())
            }
        };
        Self { what, ..Self::gone(kind, object) }
    }

    /// That an object is gone.
    pub fn gone(kind: Kind, object: &DynamicObject) -> Self {
        Self {
            at: object.resource_version().and_then(|v| v.parse().ok()).unwrap_or_default(),
            seen: Timestamp::now(),
            name: object.name_any(),
            uid: object.uid().unwrap_or_default(),
            what: What::Gone(kind),
        }
    }

    pub fn kind(&self) -> Kind {
        match self.what {
            What::Pipeline(..) => Kind::Pipeline,
            What::Vertex(_) => Kind::Vertex,
            What::Pod(_) => Kind::Pod,
            What::Asks(ref asks) => match asks.by {
                By::Controller => Kind::ControllerRollout,
                By::Isb => Kind::IsbRollout,
            },
            What::Service(_) => Kind::Service,
            What::Set(_) => Kind::Set,
            What::Record(_) => Kind::PipelineRollout,
            What::Gone(kind) => kind,
        }
    }
}

fn text(value: &Value, place: &str) -> String {
    value.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn hash(value: &Value) -> String {
    numaplane::api::short_hash(value.to_string().as_bytes())
}

fn without(spec: &Value, fields: &[&str]) -> String {
    let mut spec = spec.clone();
    strip(&mut spec, fields);
    hash(&spec)
}

/// Takes fields away, wherever they are.
fn strip(value: &mut Value, fields: &[&str]) {
    match value {
        Value::Object(all) => {
            all.retain(|name, _| !fields.contains(&name.as_str()));
            all.values_mut().for_each(|inner| strip(inner, fields));
        }
        Value::Array(all) => all.iter_mut().for_each(|inner| strip(inner, fields)),
        _ => {}
    }
}

fn made(pipeline: &DynamicObject) -> Made {
    // Topology, and what vertices compute; not how many pods there are, where they run and how fast they may be. As far as any
    // story changes it: this is no list of all fields.
    const HARMLESS: [&str; 5] = ["scale", "replicas", "limits", "resources", "containerTemplate"];
    let spec = &pipeline.data["spec"];
    let sorted = |list: &str, keys: &[&str], strip: &[&str]| {
        let mut all: Vec<(String, String)> = spec[list]
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| (keys.iter().map(|key| text(entry, &format!("/{key}"))).collect(), without(entry, strip)))
            .collect();
        all.sort();
        all
    };
    let others = ["interStepBufferServiceName", "interStepBuffer", "watermark", "ordered"].map(|field| &spec[field]);
    let work = json!([
        sorted("vertices", &["name"], &HARMLESS),
        sorted("edges", &["from", "to"], &[]),
        sorted("sideInputs", &["name"], &[]),
        others,
        pipeline.annotations().get("numaflow.numaproj.io/instance"),
    ]);
    Made {
        parent: pipeline.labels().get(PARENT).cloned().unwrap_or_default(),
        applied: pipeline.annotations().get(APPLIED).cloned().unwrap_or_default(),
        work: hash(&work),
        service: match text(spec, "/interStepBufferServiceName") {
            none if none.is_empty() => "default".to_owned(),
            named => named,
        },
        instance: pipeline.annotations().get("numaflow.numaproj.io/instance").cloned().unwrap_or_default(),
    }
}

/// What of an ISB service may lose data if it changes while there are messages in the buffers. As far as any story changes it:
/// this is no list of all fields.
fn lossy(spec: &Value) -> String {
    let jetstream = &spec["jetstream"];
    let template = &jetstream["containerTemplate"];
    hash(&json!([jetstream["version"], jetstream["settings"], jetstream["startArgs"], template["env"]]))
}

fn asks(by: By, object: &DynamicObject) -> Asks {
    let status = &object.data["status"];
    let attempt = &status[if by == By::Controller { "upgrade" } else { "change" }];
    let (not_drained, excused) = (&attempt["drain"]["notDrained"], &attempt["drain"]["excused"]);
    let undrained = [not_drained, excused].into_iter().filter_map(Value::as_array).flatten().filter_map(Value::as_str);
    let scope = if by == By::Controller { "/promoted/instanceID" } else { "/child" };
    Asks {
        by,
        active: status["pauseRequest"]["active"] == true,
        wrong: wrong(by, status),
        deleting: object.metadata.deletion_timestamp.is_some(),
        scope: text(status, scope),
        undrained: undrained.filter_map(|said| said.split_once(':')).map(|(name, _)| name.to_owned()).collect(),
    }
}

/// What is wrong with a request for a pause: it is one of no attempt that is under way, or of a version of a controller that
/// has not proved itself, and had to.
pub fn wrong(by: By, status: &Value) -> Option<String> {
    let request = &status["pauseRequest"];
    if request["active"] != true {
        return None;
    }
    let (attempt, name) = match by {
        By::Controller => (&status["upgrade"], "name"),
        By::Isb => (&status["change"], "attempt"),
    };
    let stage = text(attempt, "/stage");
    let proved = by == By::Isb || attempt["verified"] == true || !text(attempt, "/verifySkipped").is_empty();
    let of_it = request["attempt"] == attempt[name] && attempt[name].is_string();
    if ASKING.contains(&stage.as_str()) && proved && of_it {
        return None;
    }
    Some(format!(
        "asks for a pause for {} in stage {stage:?} of {}, proved {}, skipped {}",
        request["attempt"], attempt[name], attempt["verified"], attempt["verifySkipped"]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_attempt_that_has_proved_itself_asks_for_a_pause() {
        let status = |stage: &str, verified: bool, skipped: &str, attempt: &str| {
            let upgrade = json!({"name": "c-1", "stage": stage, "verified": verified, "verifySkipped": skipped});
            wrong(By::Controller, &json!({"pauseRequest": {"active": true, "attempt": attempt}, "upgrade": upgrade}))
        };
        for stage in ["Drain", "CutOver", "Confirm", "RollBack"] {
            assert_eq!(status(stage, true, "", "c-1"), None);
            assert_eq!(status(stage, false, "forcePromote", "c-1"), None);
            assert!(status(stage, false, "", "c-1").is_some());
            assert!(status(stage, true, "", "c-0").is_some());
        }
        assert!(status("Verify", true, "", "c-1").is_some());
        assert!(wrong(By::Controller, &json!({"pauseRequest": {"active": true}})).is_some());
        let quiet = json!({"pauseRequest": {"active": false}, "upgrade": {"stage": "Verify"}});
        assert_eq!(wrong(By::Controller, &quiet), None);
    }

    #[test]
    fn the_rollout_of_an_isb_service_asks_for_the_change_that_is_under_way_and_not_for_one_that_proves_itself() {
        let status = |stage: &str, attempt: &str| {
            let change = json!({"attempt": "2-a", "stage": stage});
            wrong(By::Isb, &json!({"pauseRequest": {"active": true, "attempt": attempt}, "change": change}))
        };
        for stage in ["Drain", "Apply", "Confirm", "RollBack"] {
            assert_eq!(status(stage, "2-a"), None);
            assert!(status(stage, "1-a").is_some());
        }
        assert!(status("Beside", "2-a").is_some());
        assert!(wrong(By::Isb, &json!({"pauseRequest": {"active": true, "attempt": "2-a"}})).is_some());
    }
}
