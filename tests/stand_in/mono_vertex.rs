//! One pass over a MonoVertex, which is source, function and sink in one: its pods, and what is said of them.

use std::{ops::Range, time::Duration};

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    kinds::Kind,
    knobs::{Knobs, PREFIX},
    pipeline::Memory,
    vertices::{SLOW, desired, is_ready, remove},
    view::{
        After, Draft, HASH, MONO_VERTEX_NAME, Pace, Pass, REPLICA, Seen, Step, asked, generation, going, hash,
        instance, labels, list, number, owner, text, written,
    },
};

/// Time between two looks at one whose pods are being replaced.
const ROLL: Duration = Duration::from_secs(1);

/// What is seen in a pass.
pub struct Look<'a> {
    /// The MonoVertex.
    pub mono_vertex: &'a DynamicObject,
    /// The pods that have its name in their label, including those that are going.
    pub pods: &'a [Seen],
    /// The instance of the controller.
    pub instance: &'a str,
    /// The image of the controller, which runs beside everything that users have in their pods.
    pub image: &'a str,
    /// What the controller remembers.
    pub memory: &'a Memory,
    /// The time.
    pub now: Timestamp,
    /// How long things take.
    pub pace: &'a Pace,
}

/// What is to be done about a MonoVertex, and what is remembered of it from then on.
///
/// A pause is one write, at once and without a drain: what is said of replicas is what is wanted, and the pods may be there
/// for a while yet.
pub fn pass(look: &Look) -> (Pass, Memory) {
    let Look { mono_vertex, now, .. } = *look;
    let (mut memory, knobs) = (look.memory.clone(), asked(mono_vertex));
    if instance(mono_vertex) != look.instance || knobs.silent || going(mono_vertex) {
        return (Pass::NOTHING, memory);
    }
    let mut draft = Draft::keeping(mono_vertex);
    let cannot_be = invalid(mono_vertex).map(|message| ("InvalidSpec", message));
    if let Some((reason, message)) =
        cannot_be.or_else(|| Some(("OrchestrateFixedResourcesFailed", knobs.fails.clone()?)))
    {
        // Nothing else is touched: neither pods, nor what is said of them.
        draft.phase("Failed", &message);
        draft.set("reason", reason);
        draft.condition("Deployed", false, reason, &message);
        return (Pass { steps: vec![write(look, draft)], after: After::Retry }, memory);
    }
    let daemon = hash(&made_from(look, &["lifecycle", "replicas", "updateStrategy"]));
    if memory.daemon.as_ref().is_none_or(|(of, _)| *of != daemon) {
        memory.daemon = Some((daemon, now + look.pace.daemon));
    }
    let daemon_ready = memory.daemon.as_ref().map_or(now, |(_, ready)| *ready);

    let mut steps = place_pods(look, &knobs, &mut draft);
    draft.condition("Deployed", true, "Successful", "");
    draft.phase(desired(mono_vertex), "");
    draft.set("reason", "");
    health(look, daemon_ready <= now, &mut draft);
    let rolls = draft.get("updateHash") != draft.get("currentHash");
    let status = write(look, draft);
    // Looking again and again at a roll that does not go on says nothing.
    if !(rolls && steps.is_empty() && says_the_same(mono_vertex, &status)) {
        steps.push(status);
    }
    // A pod that is ready is a reason to look, but what is seen of the status then may be from before the last write, and the
    // roll begins anew with it.
    let after = match (daemon_ready > now, rolls) {
        (true, _) => After::At(daemon_ready),
        (false, true) => After::At(now + ROLL),
        (false, false) => After::Rest,
    };
    (Pass { steps, after }, memory)
}

/// What becomes of the pods of a MonoVertex that is gone: what garbage collection does, which may take half a minute to
/// notice a kind that is new.
pub fn left(pods: &[Seen]) -> Pass {
    let steps = pods.iter().filter(|pod| !going(pod)).map(|pod| Step::Delete(Kind::Pod, pod.name_any()));
    Pass { steps: steps.collect(), after: After::Rest }
}

/// Why a spec is not valid, if it is not.
fn invalid(mono_vertex: &DynamicObject) -> Option<String> {
    for part in ["source", "sink"] {
        let given = mono_vertex.data.pointer(&format!("/spec/{part}")).and_then(Value::as_object);
        if given.is_none_or(serde_json::Map::is_empty) {
            return Some(format!("{part} is not defined"));
        }
    }
    let (min, max) = scale(mono_vertex);
    (min < 0 || min > max).then(|| format!("invalid scale: from {min} to {max} replicas"))
}

/// The least and the most replicas that a MonoVertex may have.
fn scale(mono_vertex: &DynamicObject) -> (i64, i64) {
    let limit = |name: &str| number(mono_vertex, &format!("/spec/scale/{name}"));
    (limit("min").unwrap_or(0), limit("max").unwrap_or(50))
}

/// How many replicas there are to be. What a user or an autoscaler has written stays through a pause; without it, it is one
/// as far as the scale allows that.
fn wanted(mono_vertex: &DynamicObject) -> i64 {
    if desired(mono_vertex) == "Paused" {
        return 0;
    }
    let set = number(mono_vertex, "/spec/replicas").unwrap_or(1);
    let fixed = mono_vertex.data.pointer("/spec/scale/disabled") == Some(&Value::Bool(true));
    let (min, max) = scale(mono_vertex);
    if fixed { set } else { set.max(min).min(max) }
}

/// The spec without some of its fields, and the image beside it.
fn made_from(look: &Look, without: &[&str]) -> Value {
    let mut spec = look.mono_vertex.data.get("spec").cloned().unwrap_or_default();
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|name, _| !without.contains(&name.as_str()));
    }
    json!([spec, look.image])
}

/// Makes and removes pods, and counts: those of another spec are replaced some at a time, each time when those before are
/// ready.
fn place_pods(look: &Look, knobs: &Knobs, draft: &mut Draft) -> Vec<Step> {
    let mono_vertex = look.mono_vertex;
    let own = look.pods.iter().filter(|pod| is_own(mono_vertex, pod));
    let mut placing = Placing {
        look,
        knobs,
        made_from: hash(&made_from(look, &["lifecycle", "replicas", "scale", "updateStrategy"])),
        there: own.filter(|pod| !going(pod)).cloned().collect(),
        steps: left(&look.pods.iter().filter(|pod| !is_own(mono_vertex, pod)).cloned().collect::<Vec<_>>()).steps,
    };
    let said = |name: &str| number(mono_vertex, &format!("/status/{name}")).unwrap_or_default();
    let (wanted, update) = (wanted(mono_vertex), placing.made_from.clone());
    let mut current = text(mono_vertex, "/status/currentHash").to_owned();
    let is_new = text(mono_vertex, "/status/updateHash") != update;
    let (mut updated, mut ready) =
        if is_new { (0, 0) } else { (said("updatedReplicas").min(wanted), said("updatedReadyReplicas")) };
    let mut replicas = said("replicas").min(wanted);

    placing.empty_from(wanted);
    placing.fill(0..updated);
    // Once as many were ready nobody counts again, not even when a pause was in between: so does the real one.
    if updated > 0 && ready != updated {
        ready = placing.ready(updated);
    }
    if updated == 0 || ready >= updated {
        if current.is_empty() || current == update {
            placing.fill(updated..wanted);
            (updated, replicas) = (wanted, wanted);
        } else if updated < wanted {
            let next = (updated + at_once(mono_vertex, wanted)).min(wanted);
            placing.fill(updated..next);
            (updated, replicas) = (next, wanted);
        }
        if updated == wanted {
            current.clone_from(&update);
        }
    }
    if replicas != said("replicas") {
        draft.set("lastScaledAt", written(look.now));
    }
    for (name, count) in [
        ("replicas", replicas),
        ("desiredReplicas", wanted),
        ("updatedReplicas", updated),
        ("updatedReadyReplicas", ready),
        // Those that are going are counted as long as they are ready.
        ("readyReplicas", replicas.min(look.pods.iter().filter(|pod| is_ready(pod)).count() as i64)),
    ] {
        draft.set(name, count);
    }
    draft.set("updateHash", update);
    draft.set("currentHash", current);
    let selector = format!("app.kubernetes.io/component=mono-vertex,{MONO_VERTEX_NAME}={}", mono_vertex.name_any());
    draft.set("selector", selector);
    placing.steps
}

/// How many pods are replaced at once: a quarter, unless it says otherwise.
fn at_once(mono_vertex: &DynamicObject, replicas: i64) -> i64 {
    let place = "/spec/updateStrategy/rollingUpdate/maxUnavailable";
    if let Some(count) = number(mono_vertex, place) {
        return count;
    }
    let share = text(mono_vertex, place).strip_suffix('%').and_then(|t| t.parse::<i64>().ok()).unwrap_or(25);
    (share * replicas + 99) / 100
}

/// Pods that are being put where they belong.
struct Placing<'a> {
    look: &'a Look<'a>,
    knobs: &'a Knobs,
    made_from: String,
    /// That belong to the MonoVertex and are not going.
    there: Vec<Seen>,
    steps: Vec<Step>,
}

impl Placing<'_> {
    /// Removes those with this number or a greater one.
    fn empty_from(&mut self, first: i64) {
        let (look, knobs) = (self.look, self.knobs);
        let over = self.there.iter().filter(|pod| place(pod).is_none_or(|n| n >= first));
        self.steps.extend(over.flat_map(|pod| remove(pod, knobs, look.now)));
    }

    /// Sees to it that at each of these places there is one pod of the spec as it is now, and no other.
    fn fill(&mut self, places: Range<i64>) {
        for n in places {
            let mut found = false;
            for pod in self.there.iter().filter(|pod| place(pod) == Some(n)) {
                if !found && pod.annotations().get(HASH) == Some(&self.made_from) {
                    found = true;
                } else {
                    self.steps.extend(remove(pod, self.knobs, self.look.now));
                }
            }
            if !found {
                self.steps.push(Step::Create(Kind::Pod, self.pod(n)));
            }
        }
    }

    /// How many of the first places have a pod of the spec as it is now that is ready.
    fn ready(&self, places: i64) -> i64 {
        let counts = |pod: &&Seen| {
            place(pod).is_some_and(|n| n < places)
                && pod.annotations().get(HASH) == Some(&self.made_from)
                && is_ready(pod)
        };
        self.there.iter().filter(counts).count() as i64
    }

    fn pod(&self, number: i64) -> Value {
        let (mono_vertex, name) = (self.look.mono_vertex, self.look.mono_vertex.name_any());
        // The same for the same spec, so that a pod that was not seen yet is not made twice.
        let random = hash(&json!([mono_vertex.uid(), generation(mono_vertex), number, self.made_from]));
        let given =
            |place: &str| mono_vertex.data.pointer(place).and_then(Value::as_object).cloned().unwrap_or_default();
        let mut all_labels = given("/spec/metadata/labels");
        let own = [(MONO_VERTEX_NAME, name.as_str()), ("app.kubernetes.io/name", name.as_str())];
        if let Value::Object(own) = labels("mono-vertex", "mono-vertex-controller", &own) {
            all_labels.extend(own);
        }
        let mut annotations = given("/spec/metadata/annotations");
        annotations.insert(HASH.to_owned(), self.made_from.clone().into());
        annotations.insert(REPLICA.to_owned(), number.to_string().into());
        annotations.extend(self.knobs.of_pods());
        let mut metadata = json!({
            "name": format!("{name}-mv-{number}-{}", random.get(..5).unwrap_or_default()),
            "labels": all_labels,
            "ownerReferences": owner(Kind::MonoVertex, mono_vertex),
        });
        if let Some(time) = self.knobs.terminates_after {
            // From the beginning: garbage collection, which deletes them with their MonoVertex, would not ask.
            metadata["finalizers"] = json!([SLOW]);
            annotations.insert(format!("{PREFIX}terminates-after"), format!("{}ms", time.as_millis()).into());
        }
        metadata["annotations"] = annotations.into();
        let containers = containers(mono_vertex, self.look.image);
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"terminationGracePeriodSeconds": 1, "containers": containers},
        })
    }
}

/// Which of the replicas a pod is.
fn place(pod: &DynamicObject) -> Option<i64> {
    pod.annotations().get(REPLICA)?.parse().ok()
}

/// Whether a pod is one of this MonoVertex, and not of one that had its name before.
fn is_own(mono_vertex: &DynamicObject, pod: &DynamicObject) -> bool {
    pod.owner_references().iter().any(|reference| Some(&reference.uid) == mono_vertex.metadata.uid.as_ref())
}

/// Numaflow's own container and those of the user.
fn containers(mono_vertex: &DynamicObject, image: &str) -> Vec<Value> {
    let mut all = vec![json!({"name": "numa", "image": image, "args": ["processor"]})];
    for (name, part) in [
        ("udsource", "source/udsource"),
        ("transformer", "source/transformer"),
        ("udf", "udf"),
        ("udsink", "sink/udsink"),
        ("fb-udsink", "sink/fallback/udsink"),
        ("ons-udsink", "sink/onSuccess/udsink"),
    ] {
        let image = text(mono_vertex, &format!("/spec/{part}/container/image"));
        if !image.is_empty() {
            all.push(json!({"name": name, "image": image}));
        }
    }
    all
}

/// How the children are.
fn health(look: &Look, daemon: bool, draft: &mut Draft) {
    let mut degraded = None;
    let waits = "Waiting for daemon deployment to be ready";
    if daemon {
        draft.condition("DaemonHealthy", true, "Successful", "");
    } else {
        draft.condition("DaemonHealthy", false, "Progressing", waits);
        degraded = Some(waits.to_owned());
    }
    let ill = look.pods.iter().filter(|pod| !going(pod)).find_map(|pod| {
        let waiting =
            list(pod, "/status/containerStatuses").iter().filter_map(|c| c["state"]["waiting"]["reason"].as_str());
        let reason =
            waiting.into_iter().find(|r| ["CrashLoopBackOff", "ErrImagePull", "ImagePullBackOff"].contains(r))?;
        Some((format!("Pod{reason}"), format!("Pod {}: {reason}", pod.name_any())))
    });
    match ill {
        Some((reason, message)) => {
            draft.condition("PodsHealthy", false, &reason, &message);
            degraded = degraded.or(Some(message));
        }
        None if look.pods.is_empty() => draft.condition("PodsHealthy", true, "NoPodsFound", "No Pods found"),
        // A pod that waits to be ready is healthy, and so is one that is going.
        None => draft.condition("PodsHealthy", true, "Running", "All pods are healthy"),
    }
    if let Some(message) = degraded {
        draft.set("message", format!("Degraded: {message}"));
        draft.set("reason", "ChildResourceUnhealthy");
    }
}

/// The step that writes a status. What is empty or zero is left out but for two counts.
fn write(look: &Look, draft: Draft) -> Step {
    let mut status = draft.finish(generation(look.mono_vertex), look.now);
    status.insert("lastUpdated".to_owned(), written(look.now).into());
    let always = |name: &str| matches!(name, "replicas" | "desiredReplicas");
    status.retain(|name, value| always(name) || (*value != json!(0) && *value != json!("")));
    Step::Status(Kind::MonoVertex, look.mono_vertex.name_any(), status.into())
}

/// Whether a status says what is said already, but for when it was written.
fn says_the_same(mono_vertex: &DynamicObject, step: &Step) -> bool {
    let Step::Status(_, _, new) = step else { return false };
    let (mut old, mut new) = (mono_vertex.data["status"].clone(), new.clone());
    for status in [&mut old, &mut new] {
        status.as_object_mut().map(|status| status.remove("lastUpdated"));
    }
    old == new
}
