//! What was read of a lease and of pods at the moment when it mattered: nobody watches them. Pure.

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{ContainerStatus, Pod},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};

use crate::{definitions::Leader, live::ObjectId, words::list};

/// What is to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Look {
    /// Name of a lease.
    pub lease: Option<String>,
    /// Workloads whose pods are of interest, with the label selector of their pods.
    pub workloads: Vec<(ObjectId, String)>,
    /// Whether the events of pods that are not ready are wanted too.
    pub events: bool,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The lease; `None` where there is none.
    pub lease: Option<LeaseSeen>,
    /// Pods of the workloads.
    pub pods: Vec<PodSeen>,
    /// What could not be read, in the server's words: that is no answer, and never a yes.
    pub unreadable: Option<String>,
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
    /// Its last event that warns; empty when there is none, or when events were not asked for.
    pub event: String,
}

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
        }
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
            _ => list(&pods, 2),
        }
    }

    /// Whether a pod leads.
    ///
    /// With the host's network a pod cannot be told from the name of the holder: then a holder that is another one than
    /// `before` and has renewed the lease is taken for the new one.
    ///
    /// # Errors
    /// The words for what is waited for.
    pub fn leads(&self, leader: &Leader, before: &str) -> Result<(), String> {
        let name = &leader.lease;
        if let Some(why) = &self.unreadable {
            return Err(format!("lease {name} to be read: {why}"));
        }
        let workloads: Vec<String> = leader.workloads.iter().map(|w| format!("{}/{}", w.kind, w.name)).collect();
        let of = list(&workloads, 3);
        let Some(lease) = self.lease.as_ref().filter(|l| !l.holder.is_empty()) else {
            return Err(format!("lease {name} to be held by a pod of {of} (nobody holds it)"));
        };
        let leads = if leader.host_network {
            lease.holder != before && lease.renewed > lease.acquired
        } else {
            self.pods.iter().any(|pod| !pod.deleting && pod.hostname == lease.hostname())
        };
        if leads {
            return Ok(());
        }
        Err(format!("lease {name} to be held by a new pod of {of} (still held by {})", lease.holder))
    }
}
