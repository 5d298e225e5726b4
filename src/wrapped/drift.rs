//! Whether somebody changed what we applied, and how their additions are removed. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Wanted;
use crate::{
    api::short_hash,
    numaflow::{LiveObject, covers},
};

/// Whether somebody changed what we applied, or added to it. `phase` says whether the user wants a phase, `left_alone` is the
/// hash of the additions that come back whenever they are removed.
#[must_use]
pub fn drifted(child: &LiveObject, wanted: &Wanted, phase: bool, left_alone: &str) -> bool {
    let ours = child.ownership.ours.as_ref().unwrap_or(&Value::Null);
    let has = |there: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>| {
        wanted.iter().all(|(key, value)| there.get(key) == Some(value))
    };
    child.owner.is_none()
        || !covers(ours, &wanted.spec)
        || !has(&child.labels, &wanted.labels)
        || !has(&child.annotations, &wanted.annotations)
        || removal(child, wanted, phase).is_some_and(|(_, hash)| hash != left_alone)
}

/// The merge patch that removes what others added to the spec, and a wanted phase that stands for none, and its hash.
#[must_use]
pub fn removal(child: &LiveObject, wanted: &Wanted, phase: bool) -> Option<(Value, String)> {
    let steered = |path: &[String]| match path {
        [lifecycle, field] => {
            lifecycle == "lifecycle" && (field == "desiredPhase" || field == "pauseGracePeriodSeconds")
        }
        // An autoscaler's; of what we wrap only a MonoVertex has it here.
        [field] => field == "replicas",
        _ => false,
    };
    let is_wanted = |path: &[String]| path.iter().try_fold(&wanted.spec, |value, key| value.get(key)).is_some();
    let mut patch = json!({});
    let mut any = false;
    for path in child.ownership.foreign.iter().filter(|path| !steered(path) && !is_wanted(path)) {
        let mut at = &mut patch["spec"];
        for key in path {
            at = &mut at[key.as_str()];
        }
        *at = Value::Null;
        any = true;
    }
    // A phase that means Running is as good as none; but nobody asks for it.
    if !phase && !child.wants_paused() && child.written_phase().is_some() && child.ownership.phase {
        patch["spec"]["lifecycle"]["desiredPhase"] = Value::Null;
        any = true;
    }
    any.then(|| {
        let hash = short_hash(patch.to_string().as_bytes());
        (patch, hash)
    })
}
