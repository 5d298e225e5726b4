//! What production is of those who ask for pauses, as the API server saw it: when it changed, and when it was at work again.

use serde_json::{Value, json};

use super::{
    changes::{Change, first},
    drains::ROLLOUT,
    leases::LEASE,
    pipelines::IMAGES,
    requesters::By,
};

/// The image of a version of an ISB service; empty for one that no controller knows.
pub fn image_of(version: &str) -> &'static str {
    IMAGES.iter().find(|(known, _)| *known == version).map_or("", |(_, image)| image)
}

/// Whether every replica of the StatefulSet of an ISB service is updated and ready.
pub fn is_rolled(set: &Value) -> bool {
    let (spec, status) = (&set["spec"], &set["status"]);
    let replicas = spec["replicas"].as_i64().unwrap_or(1);
    let updated = status["updatedReplicas"].as_i64().unwrap_or(replicas);
    status["observedGeneration"] == set["metadata"]["generation"]
        && status["updateRevision"] == status["currentRevision"]
        && updated == replicas
        && status["readyReplicas"] == json!(replicas)
}

/// The image that a StatefulSet of an ISB service, or a Deployment of a controller, has.
pub fn image(workload: &Value) -> &str {
    workload["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
}

/// When production changed to a version, and when that was at work: the controller led, or the ISB service was rolled.
pub fn handed_over<'a>(by: By, all: &'a [Change], after: u64, version: &str) -> (&'a Change, &'a Change) {
    match by {
        By::Controller => {
            let changed = first(all, after, "the Deployment has the new image", |c| {
                c.kind == "Deployment" && c.name() == ROLLOUT && image(&c.object).ends_with(version)
            });
            let lease = |c: &Change| c.kind == "Lease" && c.name() == LEASE;
            let holder = |c: &Change| c.text("/spec/holderIdentity").to_owned();
            let before = all.iter().rfind(|c| lease(c) && c.at < changed.at).map(holder).unwrap_or_default();
            let leads = first(all, changed.at, "the new pod leads", |c| {
                lease(c) && !holder(c).is_empty() && holder(c) != before
            });
            (changed, leads)
        }
        By::Isb => {
            let changed = first(all, after, "the ISB service has the new version", |c| {
                c.kind == "InterStepBufferService" && c.text("/spec/jetstream/version") == version
            });
            let rolled = first(all, changed.at, "its StatefulSet is rolled", |c| {
                c.kind == "StatefulSet" && image(&c.object) == image_of(version) && is_rolled(&c.object)
            });
            (changed, rolled)
        }
    }
}
