//! What was read of a lease and of pods at the moment when it mattered: nobody watches them. Pure.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{ContainerStatus, Pod},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use crate::{definitions::Leader, live::ObjectId, numaflow::IsbEvidence, words::list};

/// What is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Look {
    /// Name of a lease.
    pub lease: Option<String>,
    /// Workloads whose pods are of interest, with the label selector of their pods.
    pub workloads: Vec<(ObjectId, String)>,
    /// Whether the events of pods that are not ready are wanted too.
    pub events: bool,
    /// Names of ISB services.
    pub isb: Vec<String>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The lease; `None` where there is none.
    pub lease: Option<LeaseSeen>,
    /// Pods of the workloads.
    pub pods: Vec<PodSeen>,
    /// The ISB services, by name; one that is not there is left out.
    pub isb: BTreeMap<String, IsbEvidence>,
    /// What could not be read, in the server's words: that is no answer, and never a yes.
    pub unreadable: Option<String>,
}

/// Whether a pod leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leads {
    /// It does, by this lease.
    Yes(LeaseSeen),
    /// It does not: the words for what is waited for.
    No(String),
    /// That cannot be told now: why.
    Unknown(String),
}

/// A lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseSeen {
    /// `<hostname>_<uuid>`; empty when nobody holds it.
    pub holder: String,
    /// When the holder took it.
    pub acquired: Option<Timestamp>,
    /// When it last renewed it.
    pub renewed: Option<Timestamp>,
    /// Seconds after which it has run out if it is not renewed.
    pub seconds: i64,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodSeen {
    /// Its name.
    pub name: String,
    /// Name of the host as a process in it sees it.
    pub hostname: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Why it is not ready, by container; empty when it is.
    pub trouble: String,
    /// What ended before in a pod that is ready now, by container: one that flaps may be so at any look.
    pub ended: String,
    /// Its last event that warns; empty when there is none, or when events were not asked for.
    pub event: String,
}

/// Seconds by which the clocks of nodes may differ from ours.
const CLOCKS: i64 = 60;
/// Longest name of a host.
const HOSTNAME: usize = 63;

impl LeaseSeen {
    /// Reads a lease.
    #[must_use]
    pub fn of(lease: &Lease) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        Self {
            holder: spec.holder_identity.unwrap_or_default(),
            acquired: spec.acquire_time.map(|t| t.0),
            renewed: spec.renew_time.map(|t| t.0),
            seconds: i64::from(spec.lease_duration_seconds.unwrap_or_default()),
        }
    }

    /// How long it holds without a renewal.
    #[must_use]
    pub fn holds(&self) -> Duration {
        Duration::from_secs(self.seconds.unsigned_abs())
    }

    /// Whether it is certain, whatever the clocks of the nodes say, that it has run out.
    #[must_use]
    pub fn has_run_out(&self, now: Timestamp) -> bool {
        let patience = SignedDuration::from_secs(self.seconds.saturating_add(CLOCKS));
        self.renewed.is_some_and(|renewed| now.duration_since(renewed) > patience)
    }

    /// Name of the host on which its holder runs.
    #[must_use]
    pub fn hostname(&self) -> &str {
        // A uuid has no underscore, and neither has a hostname.
        self.holder.rsplit_once('_').map_or(self.holder.as_str(), |(host, _)| host)
    }
}

impl PodSeen {
    /// Reads a pod; `None` for one that only looks like a pod of this workload.
    #[must_use]
    pub fn of(pod: &Pod, workload: &ObjectId) -> Option<Self> {
        let metadata = &pod.metadata;
        let owner = metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true))?;
        if !is_of(owner, workload) {
            return None;
        }
        let name = metadata.name.clone().unwrap_or_default();
        let spec = pod.spec.clone().unwrap_or_default();
        // As kubelet cuts it.
        let cut = name.get(..HOSTNAME).unwrap_or(&name).trim_end_matches(['-', '.']).to_owned();
        Some(Self {
            hostname: spec.hostname.unwrap_or(cut),
            deleting: metadata.deletion_timestamp.is_some(),
            trouble: trouble(pod),
            ended: ended(pod),
            event: String::new(),
            name,
        })
    }

    fn words(&self) -> String {
        let mut words = format!("pod {}: {}", self.name, self.trouble);
        if !self.event.is_empty() {
            words = format!("{words}; event: {}", self.event);
        }
        words
    }
}

/// Whether an owner of a pod is this workload, or a ReplicaSet of it: those are called `<Deployment>-<hash of the template>`.
fn is_of(owner: &OwnerReference, workload: &ObjectId) -> bool {
    match (workload.kind.as_str(), owner.kind.as_str()) {
        ("Deployment", "ReplicaSet") => owner.name.rsplit_once('-').is_some_and(|(name, _)| name == workload.name),
        (kind, of) => kind == of && owner.name == workload.name,
    }
}

/// Why a pod is not ready: empty when it is.
fn trouble(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default();
    let condition = |kind: &str| conditions.iter().find(|c| c.type_ == kind);
    if condition("Ready").is_some_and(|c| c.status == "True") {
        return String::new();
    }
    if let Some(unscheduled) = condition("PodScheduled").filter(|c| c.status == "False") {
        let why = unscheduled.message.as_deref().or(unscheduled.reason.as_deref()).unwrap_or("no reason given");
        return format!("cannot be scheduled ({why})");
    }
    let containers = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    let unready: Vec<String> = containers.filter(|c| !is_done(c)).map(container).collect();
    if unready.is_empty() {
        return status.message.or(status.reason).unwrap_or_else(|| "not ready".to_owned());
    }
    list(&unready, 3)
}

/// What ended before in the containers of a pod; empty when nothing did.
fn ended(pod: &Pod) -> String {
    let containers = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
    let ended: Vec<String> = containers
        .filter_map(|c| {
            let last = c.last_state.as_ref()?.terminated.as_ref()?;
            let why = last.reason.as_deref().unwrap_or("no reason given");
            Some(format!("container {} is back, before that it ended with exit code {}, {why}", c.name, last.exit_code))
        })
        .collect();
    list(&ended, 3)
}

/// Whether a container is ready, or was an init container that has done its work.
fn is_done(container: &ContainerStatus) -> bool {
    let ended = container.state.as_ref().and_then(|s| s.terminated.as_ref());
    container.ready || ended.is_some_and(|t| t.exit_code == 0)
}

/// A container that is not ready, with its state and its last one.
fn container(status: &ContainerStatus) -> String {
    let state = status.state.clone().unwrap_or_default();
    let with = |reason: Option<String>, message: Option<String>, otherwise: &str| match (reason, message) {
        (Some(reason), Some(message)) => format!("{reason} ({})", message.trim()),
        (Some(text), None) | (None, Some(text)) => text.trim().to_owned(),
        (None, None) => otherwise.to_owned(),
    };
    let mut text = match (state.waiting, state.terminated) {
        (Some(waiting), _) => with(waiting.reason, waiting.message, "waiting"),
        (None, Some(ended)) => {
            format!(
                "ended with exit code {}, {}",
                ended.exit_code,
                with(ended.reason, ended.message, "no reason given")
            )
        }
        (None, None) => "running but not ready".to_owned(),
    };
    if let Some(last) = status.last_state.clone().and_then(|s| s.terminated) {
        let why = with(last.reason, last.message, "no reason given");
        text = format!("{text}, before that it ended with exit code {}, {why}", last.exit_code);
    }
    format!("container {} {text}", status.name)
}

impl Evidence {
    /// What is wrong with the pods, in words; empty where nothing is seen to be.
    #[must_use]
    pub fn troubles(&self) -> String {
        let pods: Vec<String> =
            self.pods.iter().filter(|p| !p.deleting && !p.trouble.is_empty()).map(PodSeen::words).collect();
        match &self.unreadable {
            Some(why) if pods.is_empty() => format!("its pods cannot be read: {why}"),
            _ if pods.is_empty() => {
                let back = self.pods.iter().filter(|p| !p.deleting && !p.ended.is_empty());
                list(&back.map(|p| format!("pod {}: {}", p.name, p.ended)).collect::<Vec<_>>(), 2)
            }
            _ => list(&pods, 2),
        }
    }

    /// Whether a pod leads.
    ///
    /// Where hostnames stay (on the host's network, and in a StatefulSet) `before` is who held the lease until pods were
    /// replaced: another one has to hold it then. With the host's network a pod cannot be told from the name of the holder at
    /// all, and a holder that has renewed the lease is taken for a pod.
    #[must_use]
    pub fn leads(&self, leader: &Leader, before: &str, now: Timestamp) -> Leads {
        let name = &leader.lease;
        if let Some(why) = &self.unreadable {
            return Leads::Unknown(format!("lease {name} to be read: {why}"));
        }
        let workloads: Vec<String> = leader.workloads.iter().map(|w| format!("{}/{}", w.kind, w.name)).collect();
        let of = list(&workloads, 3);
        let Some(lease) = self.lease.as_ref().filter(|l| !l.holder.is_empty()) else {
            return Leads::No(format!("lease {name} to be held by a pod of {of} (nobody holds it)"));
        };
        let holder = &lease.holder;
        if lease.has_run_out(now) {
            return Leads::No(format!("lease {name} to be taken over by a pod of {of} ({holder} no longer renews it)"));
        }
        let is_pod = if leader.host_network {
            lease.renewed > lease.acquired
        } else {
            self.pods.iter().any(|pod| !pod.deleting && pod.hostname == lease.hostname())
        };
        if is_pod && (before.is_empty() || holder != before) {
            return Leads::Yes(lease.clone());
        }
        Leads::No(format!("lease {name} to be held by a new pod of {of} (still held by {holder})"))
    }

    /// The lease, if the one that led still does.
    #[must_use]
    pub fn still_led_by(&self, holder: &str, now: Timestamp) -> Option<&LeaseSeen> {
        self.lease.as_ref().filter(|l| self.unreadable.is_none() && l.holder == holder && !l.has_run_out(now))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::definitions::ObjectKey;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn leader(kind: &str, host_network: bool) -> Leader {
        let key =
            ObjectKey { group: "apps".into(), version: "v1".into(), kind: kind.into(), name: "controller".into() };
        Leader { lease: "numaflow-controller-lock".into(), workloads: vec![key], host_network }
    }

    fn pod(name: &str, status: &Value) -> Pod {
        let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "controller-5d8f", "uid": "u", "controller": true});
        serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": [owner]}, "status": status}))
            .unwrap()
    }

    fn words(leads: &Leads) -> String {
        match leads {
            Leads::Yes(_) => "yes".to_owned(),
            Leads::No(words) | Leads::Unknown(words) => words.clone(),
        }
    }

    fn deployment() -> ObjectId {
        ObjectId::new("apps", "Deployment", "controller")
    }

    fn seen(holder: &str, pods: &[&str]) -> Evidence {
        Evidence {
            lease: Some(LeaseSeen {
                holder: holder.into(),
                acquired: Some(at(100)),
                renewed: Some(at(110)),
                seconds: 15,
            }),
            pods: pods.iter().filter_map(|name| PodSeen::of(&pod(name, &json!({})), &deployment())).collect(),
            ..Evidence::default()
        }
    }

    #[test]
    fn a_pod_leads_when_the_holder_of_the_lease_has_its_name() {
        let leader = leader("Deployment", false);
        assert_eq!(words(&seen("controller-5d8f-x_uuid", &["controller-5d8f-x"]).leads(&leader, "", at(112))), "yes");
        let other = words(&seen("controller-77aa-y_uuid", &["controller-5d8f-x"]).leads(&leader, "", at(112)));
        assert!(other.contains("still held by controller-77aa-y_uuid"), "{other}");
        assert!(words(&seen("", &["controller-5d8f-x"]).leads(&leader, "", at(112))).contains("nobody holds it"));
        let long = "c".repeat(70);
        let cut = format!("{}_uuid", "c".repeat(63));
        assert_eq!(words(&seen(&cut, &[&long]).leads(&leader, "", at(112))), "yes");
    }

    #[test]
    fn a_pod_that_is_on_its_way_out_does_not_lead() {
        let mut evidence = seen("controller-5d8f-x_uuid", &["controller-5d8f-x"]);
        evidence.pods[0].deleting = true;
        assert_ne!(words(&evidence.leads(&leader("Deployment", false), "", at(112))), "yes");
    }

    #[test]
    fn a_lease_that_ran_out_long_ago_is_held_by_nobody_and_clocks_may_differ_by_a_minute() {
        let evidence = seen("controller-5d8f-x_uuid", &["controller-5d8f-x"]);
        assert_eq!(words(&evidence.leads(&leader("Deployment", false), "", at(110 + 15 + 60))), "yes");
        let said = words(&evidence.leads(&leader("Deployment", false), "", at(110 + 15 + 61)));
        assert!(said.contains("no longer renews it"), "{said}");
    }

    #[test]
    fn the_pod_of_a_stateful_set_leads_only_when_the_process_before_it_does_no_longer() {
        let leader = leader("StatefulSet", false);
        assert!(leader.hostnames_stay());
        let evidence = seen("controller-5d8f-x_old", &["controller-5d8f-x"]);
        assert_ne!(words(&evidence.leads(&leader, "controller-5d8f-x_old", at(112))), "yes");
        assert_eq!(words(&evidence.leads(&leader, "controller-5d8f-x_before", at(112))), "yes");
    }

    #[test]
    fn with_the_hosts_network_another_holder_that_renews_is_the_new_one() {
        let leader = leader("Deployment", true);
        let mut evidence = seen("node-1_new", &[]);
        assert_eq!(words(&evidence.leads(&leader, "node-1_old", at(112))), "yes");
        assert_ne!(words(&evidence.leads(&leader, "node-1_new", at(112))), "yes");
        evidence.lease.as_mut().unwrap().renewed = Some(at(100));
        assert_ne!(words(&evidence.leads(&leader, "node-1_old", at(112))), "yes", "it has not renewed yet");
    }

    #[test]
    fn what_cannot_be_read_is_not_a_yes() {
        let evidence =
            Evidence { unreadable: Some("forbidden".into()), ..seen("controller-5d8f-x_u", &["controller-5d8f-x"]) };
        assert!(words(&evidence.leads(&leader("Deployment", false), "", at(112))).contains("forbidden"));
        assert!(Evidence { pods: Vec::new(), ..evidence }.troubles().contains("forbidden"));
    }

    #[test]
    fn pods_of_others_that_match_the_selector_too_do_not_count() {
        assert!(PodSeen::of(&pod("p", &json!({})), &ObjectId::new("apps", "Deployment", "other")).is_none());
        assert!(PodSeen::of(&pod("p", &json!({})), &ObjectId::new("apps", "StatefulSet", "controller")).is_none());
        let nobodys: Pod = serde_json::from_value(json!({"metadata": {"name": "p"}})).unwrap();
        assert!(PodSeen::of(&nobodys, &deployment()).is_none());
    }

    #[test]
    fn the_container_and_its_last_state_are_named() {
        let of = |status: Value| PodSeen::of(&pod("p", &status), &deployment()).unwrap().trouble;
        let waiting = |reason: &str, message: &str| {
            json!({"name": "main", "ready": false, "restartCount": 1, "image": "", "imageID": "",
            "state": {"waiting": {"reason": reason, "message": message}}})
        };
        assert_eq!(of(json!({"conditions": [{"type": "Ready", "status": "True"}]})), "");
        assert_eq!(
            of(json!({"containerStatuses": [waiting("ImagePullBackOff", "Back-off pulling image \"x\"")]})),
            "container main ImagePullBackOff (Back-off pulling image \"x\")"
        );
        let mut crashed = waiting("CrashLoopBackOff", "back-off");
        crashed["lastState"] = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
        assert_eq!(
            of(json!({"containerStatuses": [crashed]})),
            "container main CrashLoopBackOff (back-off), before that it ended with exit code 137, OOMKilled"
        );
        let unscheduled = json!({"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"});
        assert_eq!(of(json!({"conditions": [unscheduled]})), "cannot be scheduled (0/3 nodes are available)");
        let done = json!({"name": "init", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": {"terminated": {"exitCode": 0}}});
        let running = json!({"name": "main", "ready": false, "restartCount": 0, "image": "", "imageID": "", "state": {"running": {}}});
        assert_eq!(
            of(json!({"initContainerStatuses": [done], "containerStatuses": [running]})),
            "container main running but not ready"
        );
        assert_eq!(of(json!({"reason": "Evicted", "message": "low on memory"})), "low on memory");
    }

    #[test]
    fn a_pod_that_is_ready_again_at_the_very_look_is_still_named_with_what_ended() {
        let back = json!({"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{
            "name": "main", "ready": true, "restartCount": 2, "image": "", "imageID": "", "state": {"running": {}},
            "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
        }]});
        let pods = vec![PodSeen::of(&pod("p", &back), &deployment()).unwrap()];
        assert_eq!(
            Evidence { pods, ..Evidence::default() }.troubles(),
            "pod p: container main is back, before that it ended with exit code 1, Error"
        );
    }
}
