//! What a simulated pod says about the process that would run in it.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;

/// Environment variable with which a controller is told to lead without asking.
const ELECTION_DISABLED: &str = "NUMAFLOW_LEADER_ELECTION_DISABLED";

/// Longest name that a host may have.
const HOST_NAME: usize = 63;

/// A pod with a controller of Numaflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Where it is, and where its lease will be.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// What tells it from the next pod of the same name.
    pub uid: String,
    /// How far it is.
    pub life: Life,
    /// What the process would take for the name of its host.
    pub host: String,
    /// How long the process outlives its pod, if it is to be another time than usual.
    pub linger: Option<Duration>,
    /// How long it takes from ready to being a candidate.
    pub lease_after: Duration,
    /// The ConfigMaps it cannot start without (true), or can.
    pub config_maps: BTreeMap<String, bool>,
    /// Those among them with its configuration.
    pub mounted: Vec<String>,
    /// The image that runs beside what users have in their pods.
    pub image: String,
    /// ConfigMap and key that say whether there is an election.
    pub election_disabled: Option<(String, String)>,
}

/// How far a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Not ready yet, or not any more.
    Unready,
    /// A process runs in it.
    Ready,
    /// Deleted.
    Going,
}

/// A pod as it is to be played; `None` if no process in it takes part in an election.
pub fn see(pod: &Pod) -> Option<Seen> {
    let spec = pod.spec.as_ref()?;
    let first = |c: &Container| c.args.as_ref().and_then(|args| args.first()).is_some_and(|arg| arg == "controller");
    let plays = match asked(pod, "lease") {
        Some("none") => false,
        Some("take") => true,
        _ => spec.containers.iter().any(first),
    };
    if !plays {
        return None;
    }
    let mut config_maps = BTreeMap::new();
    let mut needs = |name: &str, optional: Option<bool>| {
        *config_maps.entry(name.to_owned()).or_insert(false) |= !optional.unwrap_or_default();
    };
    let mut mounted = Vec::new();
    for source in spec.volumes.iter().flatten().filter_map(|volume| volume.config_map.as_ref()) {
        needs(&source.name, source.optional);
        mounted.push(source.name.clone());
    }
    let mut election_disabled = None;
    for variable in spec.containers.iter().flat_map(|c| c.env.iter().flatten()).filter(|v| v.name == ELECTION_DISABLED)
    {
        if variable.value.as_deref() == Some("true") {
            return None;
        }
        if let Some(key) = variable.value_from.as_ref().and_then(|from| from.config_map_key_ref.as_ref()) {
            needs(&key.name, key.optional);
            election_disabled = Some((key.name.clone(), key.key.clone()));
        }
    }
    let with_image = spec.containers.iter().find(|c| first(c)).or_else(|| spec.containers.first());
    Some(Seen {
        image: with_image.and_then(|c| c.image.clone()).unwrap_or_default(),
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        life: life(pod),
        host: host(pod),
        linger: seconds(pod, "linger"),
        lease_after: seconds(pod, "lease-after").unwrap_or_default(),
        config_maps,
        mounted,
        election_disabled,
    })
}

/// What a label or, failing that, an annotation asks of a simulated pod.
fn asked<'a>(pod: &'a Pod, what: &str) -> Option<&'a str> {
    let key = format!("numaplane.test/{what}");
    pod.labels().get(&key).or_else(|| pod.annotations().get(&key)).map(String::as_str)
}

fn seconds(pod: &Pod, what: &str) -> Option<Duration> {
    asked(pod, what)?.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

fn life(pod: &Pod) -> Life {
    if pod.metadata.deletion_timestamp.is_some() {
        return Life::Going;
    }
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True") { Life::Ready } else { Life::Unready }
}

fn host(pod: &Pod) -> String {
    let spec = pod.spec.clone().unwrap_or_default();
    if spec.host_network == Some(true) {
        return spec.node_name.unwrap_or_default();
    }
    let mut name = spec.hostname.filter(|name| !name.is_empty()).unwrap_or_else(|| pod.name_any());
    if name.len() > HOST_NAME {
        name.truncate(HOST_NAME);
        // As kubelet does: a host's name ends with a letter or a digit.
        name.truncate(name.trim_end_matches(['-', '.']).len());
    }
    name
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(labels: Value, spec: Value) -> Pod {
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        serde_json::from_value(json!({
            "metadata": {"namespace": "team", "name": "pod", "uid": "1", "labels": labels},
            "spec": spec,
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    fn containers(args: &[&str]) -> Value {
        json!({"containers": [{"name": "sidecar"}, {"name": "main", "args": args}]})
    }

    #[test]
    fn a_controller_is_known_by_its_first_argument_or_by_its_label() {
        let plays = |labels, args: &[&str]| see(&pod(labels, containers(args))).is_some();
        assert!(plays(json!({}), &["controller"]));
        assert!(!plays(json!({}), &["server", "controller"]));
        assert!(!plays(json!({}), &[]));
        assert!(plays(json!({"numaplane.test/lease": "take"}), &["server"]));
        assert!(!plays(json!({"numaplane.test/lease": "none"}), &["controller"]));
    }

    #[test]
    fn the_host_is_the_pod_cut_to_what_a_host_may_be_called_unless_the_spec_says_otherwise() {
        let host = |name: &str, more: Value| {
            let mut spec = containers(&["controller"]);
            spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let mut pod = pod(json!({}), spec);
            pod.metadata.name = Some(name.to_owned());
            see(&pod).unwrap().host
        };
        assert_eq!(host("pod", json!({})), "pod");
        assert_eq!(host("pod", json!({"hostname": "other", "nodeName": "node"})), "other");
        assert_eq!(host("pod", json!({"hostname": "other", "nodeName": "node", "hostNetwork": true})), "node");
        assert_eq!(host(&"x".repeat(70), json!({})), "x".repeat(63));
        assert_eq!(host(&format!("{}-and-more", "x".repeat(62)), json!({})), "x".repeat(62));
    }

    #[test]
    fn what_is_asked_in_seconds_may_be_asked_by_annotation_and_in_parts() {
        let mut pod = pod(json!({"numaplane.test/linger": "5"}), containers(&["controller"]));
        pod.annotations_mut().insert("numaplane.test/lease-after".to_owned(), "0.5".to_owned());
        let seen = see(&pod).unwrap();
        assert_eq!((seen.linger, seen.lease_after), (Some(Duration::from_secs(5)), Duration::from_millis(500)));
        pod.labels_mut().clear();
        assert_eq!(see(&pod).unwrap().linger, None);
    }

    #[test]
    fn what_it_reads_is_what_it_mounts_and_where_its_environment_comes_from() {
        let mut spec = containers(&["controller"]);
        spec["volumes"] = json!([
            {"name": "a", "configMap": {"name": "configuration"}},
            {"name": "b", "configMap": {"name": "more", "optional": true}},
            {"name": "c", "emptyDir": {}},
        ]);
        let key = json!({"name": "more", "key": "disabled", "optional": true});
        spec["containers"][1]["env"] = json!([{"name": ELECTION_DISABLED, "valueFrom": {"configMapKeyRef": key}}]);
        let seen = see(&pod(json!({}), spec.clone())).unwrap();
        assert_eq!(seen.mounted, ["configuration", "more"]);
        assert_eq!(seen.config_maps, [("configuration".to_owned(), true), ("more".to_owned(), false)].into());
        assert_eq!(seen.election_disabled, Some(("more".to_owned(), "disabled".to_owned())));
        spec["containers"][1]["env"] = json!([{"name": ELECTION_DISABLED, "value": "true"}]);
        assert_eq!(see(&pod(json!({}), spec)), None);
    }

    #[test]
    fn a_pod_that_is_going_is_not_ready_any_more() {
        let mut pod = pod(json!({}), containers(&["controller"]));
        assert_eq!(see(&pod).unwrap().life, Life::Ready);
        pod.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH.into());
        assert_eq!(see(&pod).unwrap().life, Life::Going);
        pod.metadata.deletion_timestamp = None;
        pod.status = None;
        assert_eq!(see(&pod).unwrap().life, Life::Unready);
    }
}
