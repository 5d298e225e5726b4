//! The ISB services of the model, and their rollouts.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Model;
use crate::{
    drain::Scope,
    live::Version,
    numaflow::{IsbEvidence, LiveIsb, LiveObject, StatefulSetSeen},
    pipeline::snapshot::{IsbRollout, Request},
};

impl Model {
    /// The user has the pipeline on another ISB service, or on that of an ISBServiceRollout.
    pub fn name_isb(&mut self, name: &str) {
        self.edit(|spec| spec["interStepBufferServiceName"] = json!(name));
    }

    /// An ISBServiceRollout has this ISB service from now on; an empty name: none yet.
    pub fn isb_rollout(&mut self, name: &str, child: &str) -> &mut IsbRollout {
        let rollout = self.isb_rollouts.entry(name.to_owned()).or_default();
        child.clone_into(&mut rollout.child);
        if !child.is_empty() {
            self.services.insert(child.to_owned());
            rollout.children.insert(child.to_owned());
        }
        rollout
    }

    /// An ISBServiceRollout asks the pipelines on these services for a pause.
    pub fn isb_request(&mut self, rollout: &str, services: &[&str], changing: bool) {
        self.requests.retain(|r| !r.by.starts_with("ISBServiceRollout/"));
        self.requests.push(Request {
            by: format!("ISBServiceRollout/{rollout}"),
            attempt: format!("{rollout}-1"),
            scope: Scope::Isb(services.iter().map(|name| (*name).to_owned()).collect()),
            since: Some(self.now),
            timeout: None,
            cut: false,
            changing,
        });
    }

    /// What the controller is told about ISB services.
    pub fn settings(&mut self, settings: &Value) {
        self.settings.insert(String::new(), Arc::new(settings.clone()));
    }

    /// The ISB service that the pipeline uses.
    pub fn isb(&self) -> &str {
        self.live().isb()
    }

    /// A label of the pipeline, by its last word.
    pub fn label(&self, key: &str) -> &str {
        self.live().labels.get(&format!("numaplane.numaproj.io/{key}")).map_or("", String::as_str)
    }

    /// An ISB service as it is seen.
    pub(super) fn isb_service(&self, name: &str) -> LiveIsb {
        let phase = if self.isb_healthy { "Running" } else { "Pending" };
        let version = Version { name: name.into(), ..Version::default() };
        let deleting = self.isb_deleting && name == "default";
        LiveIsb { object: LiveObject { version, phase: phase.into(), deleting, ..LiveObject::default() } }
    }

    /// … and what is found when it is asked for.
    pub(super) fn isb_evidence(&self) -> IsbEvidence {
        let stateful_set = StatefulSetSeen {
            same_revision: self.isb_rolled,
            image: self.isb_image.clone(),
            ..StatefulSetSeen::default()
        };
        IsbEvidence {
            phase: "Running".into(),
            version: "2.10".into(),
            stateful_set: Some(stateful_set),
            ..IsbEvidence::default()
        }
    }
}

// ---- rules of conduct -------------------------------------------------------------------------------------------

impl Model {
    /// A pipeline may be made on this ISB service: there is one, or a rollout says so.
    pub(super) fn may_use(&self, service: &str) {
        let handed_out = self.isb_rollouts.values().any(|r| !r.deleting && r.child == service);
        assert!(
            handed_out || self.services.contains(service),
            "made on {service}, which nobody has: {:?}",
            self.services
        );
    }

    /// The pipeline may be deleted to be made anew: it stands still, or what is lost by that is on record, here or with the
    /// rollout that has waited for it.
    pub(super) fn may_go(&self) {
        if self.rollout.metadata.deletion_timestamp.is_some() {
            return;
        }
        let still = self.wants_paused() && self.pods.is_empty() && self.vertices.iter().all(|v| v.paused);
        let status = self.status();
        let records = status.pause.iter().chain(&status.last_pause);
        let on_record = records.into_iter().any(|p| p.not_drained.contains("applied without a pause"));
        let waited_for = self.isb_rollouts.values().any(|r| r.asked.contains(&self.live().version.name));
        assert!(still || on_record || waited_for, "deleted while it runs: {} {:?}", status.message, self.live());
    }
}
