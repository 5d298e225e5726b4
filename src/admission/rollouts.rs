//! The four rollout kinds: what is asked of them before they are stored. Pure.

use kube::core::admission::Operation;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{About, Judgement, View, review::Review};
use crate::{
    api::{GROUP, IsbServiceRollout, MonoVertexRollout, NumaflowControllerRollout, PipelineRollout},
    controller::target::Reason,
    rollout::resolve::{conflict, in_use},
    valid::{self, Finding, Findings},
};

/// Where version and instanceID stand.
const CONTROLLER: &str = "spec.controller";
const VERSION: &str = "spec.controller.version";
const INSTANCE: &str = "spec.controller.instanceID";

/// Judges a review of an object of one of the four kinds; everything else is admitted.
#[must_use]
pub fn judge(review: &Review, known: &View<'_>) -> Judgement {
    let mut judgement = Judgement::default();
    if review.kind.group != GROUP || !review.sub_resource.is_empty() {
        return judgement;
    }
    let Some((object, old)) = asked_about(review) else { return judgement };
    let decoded = match review.kind.kind.as_str() {
        "NumaflowControllerRollout" => decode(object).map(|mut rollout: NumaflowControllerRollout| {
            rollout.metadata.namespace.get_or_insert_with(|| review.namespace.clone());
            controller(&rollout, old, known)
        }),
        "PipelineRollout" => decode(object).map(|rollout: PipelineRollout| spec(&rollout, old, valid::pipeline)),
        "ISBServiceRollout" => decode(object).map(|rollout: IsbServiceRollout| spec(&rollout, old, valid::isb_service)),
        "MonoVertexRollout" => decode(object).map(|rollout: MonoVertexRollout| spec(&rollout, old, valid::mono_vertex)),
        _ => return judgement,
    };
    if !known.settings().serves(&review.namespace) {
        // Somebody else's, who may judge otherwise.
        judgement.warn(format!(
            "namespace {:?} is not served by the operator of this webhook (--watch-namespace): it was not checked, and that \
             operator does nothing for it",
            review.namespace
        ));
        return judgement;
    }
    decoded.unwrap_or_else(|finding| Judgement { violations: vec![finding], ..Judgement::default() })
}

/// The object, and the one before it, if anything is to be said about it. Recovery is never stood in the way of: what is being deleted and what leaves
/// the spec alone is let through, whatever the spec is like.
fn asked_about(review: &Review) -> Option<(&Value, Option<&Value>)> {
    let object = review.object.as_ref()?;
    let old = match review.operation {
        Some(Operation::Create) => None,
        Some(Operation::Update) => review.old_object.as_ref(),
        _ => return None,
    };
    let unchanged = old.is_some_and(|old| old["spec"] == object["spec"]);
    (object["metadata"]["deletionTimestamp"].is_null() && !unchanged).then_some((object, old))
}

/// Reads an object; what cannot be read is named by its path.
pub(super) fn decode<K: DeserializeOwned>(object: &Value) -> Result<K, Finding> {
    let read = |object: &Value| serde_path_to_error::deserialize(object).map_err(|error| unreadable(&error));
    read(object).or_else(|finding: Finding| {
        if !finding.field.starts_with("status") {
            return Err(finding);
        }
        // Not written by who asks; the spec can be judged without it.
        let mut object = object.clone();
        object.as_object_mut().and_then(|object| object.remove("status"));
        read(&object)
    })
}

fn unreadable(error: &serde_path_to_error::Error<serde_json::Error>) -> Finding {
    let (path, message) = (error.path().to_string(), error.inner().to_string());
    let path = if path == "." { String::new() } else { path };
    match message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        Some(name) => {
            let dot = if path.is_empty() { "" } else { "." };
            Finding { field: format!("{path}{dot}{name}"), message: "is missing; set it".to_owned() }
        }
        None if path.is_empty() => Finding { field: "object".to_owned(), message },
        None => Finding { field: path, message },
    }
}

/// What is wrong with a spec. What was wrong in the same way before stays a warning: a pipeline can be resumed, and a version
/// set, whatever else is in a spec that was stored while nobody was asked.
fn spec<K: DeserializeOwned>(rollout: &K, old: Option<&Value>, look: impl Fn(&K) -> Findings) -> Judgement {
    let mut judgement = Judgement::default();
    let found = look(rollout);
    let before = old.and_then(|old| decode(old).ok()).map(|old| look(&old).violations).unwrap_or_default();
    judgement.ratchet(found.violations.into_iter().map(|finding| (finding.clone(), finding)), before);
    judgement.warnings.extend(found.warnings.iter().map(ToString::to_string));
    judgement
}

fn controller(rollout: &NumaflowControllerRollout, old: Option<&Value>, known: &View<'_>) -> Judgement {
    let look = |rollout: &NumaflowControllerRollout| valid::controller(rollout, CONTROLLER);
    let mut judgement = spec(rollout, old, look);
    let violations = look(rollout).violations;
    let asked = &rollout.spec.controller;
    let before = old.map(|old| {
        let controller = &old["spec"]["controller"];
        let text = |field: &str| controller[field].as_str().unwrap_or_default();
        (text("version"), text("instanceID"))
    });
    let wrong = |field: &str| violations.iter().any(|v| v.field == field);
    if before != Some((&asked.version, asked.instance())) && !wrong(VERSION) {
        let mut rollout = rollout.clone();
        if wrong(INSTANCE) {
            // It is said already; what the version comes to is said as well.
            rollout.spec.controller.instance_id = None;
        }
        definition(&rollout, old.is_some(), known, &mut judgement);
    }
    if before.map(|(_, instance)| instance) != Some(asked.instance()) && !wrong(INSTANCE) {
        instance(rollout, known, &mut judgement);
    }
    judgement
}

/// Whether what the version is defined as can be used.
fn definition(rollout: &NumaflowControllerRollout, exists: bool, known: &View<'_>, judgement: &mut Judgement) {
    let version = &rollout.spec.controller.version;
    let only_pinned = || {
        format!("{VERSION}: version {version:?} is not defined any more; the copy that this rollout has pinned is used")
    };
    match known.find(rollout) {
        Ok(target) if target.only_pinned.is_some() => judgement.warn(only_pinned()),
        // It may be gone by now.
        Ok(_) if known.stale() => judgement.doubt(About::Definitions, unchecked(VERSION)),
        Ok(_) => {}
        Err(missing) if missing.reason == Reason::DefinitionNotFound && known.pins_unseen(rollout) => {
            judgement.warn(only_pinned());
        }
        // It runs already, and the way back to it never depends on a ConfigMap.
        Err(broken) if runs(rollout) => {
            judgement.warn(format!("this version runs, from its pinned copy, and goes on; but {}", broken.message()));
        }
        Err(unresolved) => {
            judgement.doubt(About::Definitions, unchecked(VERSION));
            if exists {
                judgement.doubt(About::Revisions, unchecked(VERSION));
            }
            judgement.doubtful.extend(unresolved.findings);
        }
    }
}

/// Whether what a rollout asks for is what it has in production.
fn runs(rollout: &NumaflowControllerRollout) -> bool {
    let asked = &rollout.spec.controller;
    let promoted = rollout.status.as_ref().and_then(|status| status.promoted.as_ref());
    promoted.is_some_and(|promoted| promoted.is_asked_for(asked))
}

/// Whether the instance can be had.
fn instance(rollout: &NumaflowControllerRollout, known: &View<'_>, judgement: &mut Judgement) {
    let wanted = rollout.spec.controller.instance();
    let promoted = rollout.status.as_ref().and_then(|s| s.promoted.as_ref()).map(|p| p.instance_id.as_str());
    if promoted == Some(wanted) {
        // It has that instance: this is the way back to it.
        return;
    }
    // Who is there already is not pushed out, whatever its age: that orders those only whom nobody was asked about.
    let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
    let name = rollout.metadata.name.as_deref().unwrap_or_default();
    if let Some(rival) = known.rivals(namespace, name).iter().find(|r| r.instances.iter().any(|i| i == wanted)) {
        judgement.doubt(About::Rollouts, unchecked(INSTANCE));
        judgement.doubtful.extend(conflict(CONTROLLER, wanted, &rival.name).findings);
    } else if known.stale() {
        judgement.doubt(About::Rollouts, unchecked(INSTANCE));
    }
    let Some(old) = promoted else { return };
    match known.dependants() {
        None => judgement.doubt(About::Dependants, unchecked(INSTANCE)),
        Some(dependants) => {
            let used = in_use(old, wanted, dependants);
            judgement.violations.extend(used.into_iter().flat_map(|used| used.findings));
        }
    }
}

fn unchecked(field: &str) -> String {
    format!("{field}: could not be checked; the operator checks it again")
}

#[cfg(test)]
mod tests;
