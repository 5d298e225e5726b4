//! What the tests ask of the modelled cluster, and what its users do to it.

use super::*;

impl Model {
    pub fn stage(&self) -> Option<&str> {
        self.rollout.status.as_ref()?.upgrade.as_ref().map(|u| u.stage.as_str())
    }

    pub fn phase(&self) -> &str {
        self.rollout.status.as_ref().map_or("", |s| s.phase.as_str())
    }

    pub fn message(&self) -> &str {
        self.rollout.status.as_ref().map_or("", |s| s.message.as_str())
    }

    pub fn promoted(&self) -> Option<&str> {
        self.rollout.status.as_ref()?.promoted.as_ref().map(|p| p.version.as_str())
    }

    pub fn result(&self) -> (&str, &str, &str) {
        let last = self.rollout.status.as_ref().and_then(|s| s.last_attempt.as_ref()).unwrap();
        (&last.result, &last.stage, &last.reason)
    }

    pub fn condition(&self, kind: &str) -> Option<(&str, &str)> {
        let status = self.rollout.status.as_ref()?;
        status.conditions.iter().find(|c| c.type_ == kind).map(|c| (c.status.as_str(), c.reason.as_str()))
    }

    /// Production: names of the objects, and the version that each Deployment runs.
    pub fn production(&self) -> Vec<String> {
        let ours = self.live.values().filter(|l| l.tracking.as_deref() == Some("numaflow-controller"));
        ours.map(|l| format!("{} {}", l.id, l.applied.as_deref().unwrap_or_default())).collect()
    }

    /// Names of the objects of isolated copies.
    pub fn copies(&self) -> Vec<String> {
        let copies = self.live.values().filter(|l| l.tracking.as_deref() != Some("numaflow-controller"));
        copies.map(|l| l.id.to_string()).collect()
    }

    pub fn uid_of(&self, name: &str) -> Option<&str> {
        self.live.values().find(|l| l.id.name == name).map(|l| l.uid.as_str())
    }

    pub fn delete(&mut self) {
        self.rollout.metadata.deletion_timestamp = Some(Time(self.now));
    }

    pub fn add_pipeline(&mut self, name: &str, instance: &str) {
        self.dependants.objects.push(Dependant {
            kind: "Pipeline".into(),
            name: name.into(),
            instance: instance.into(),
        });
    }

    pub fn held(&self) -> bool {
        self.rollout.metadata.finalizers.iter().flatten().any(|f| f == FINALIZER)
    }
}
