//! Which object of a rollout's counts, and the name of the next one. Pure.

use std::{collections::BTreeMap, collections::BTreeSet, ops::Deref, sync::Arc};

use super::Wrapped;
use crate::{
    api::{LABEL_UPGRADE_STATE, UpgradeState, child_name, child_number},
    numaflow::LiveObject,
};

/// The object that counts: the one on record, else the promoted one, else the newest.
#[must_use]
pub fn current<'a, T: Deref<Target = LiveObject>>(
    rollout: &str,
    children: &'a BTreeMap<String, Arc<T>>,
    recorded: &str,
) -> Option<&'a Arc<T>> {
    let promoted = |c: &LiveObject| {
        c.labels.get(LABEL_UPGRADE_STATE).is_some_and(|state| state == UpgradeState::Promoted.as_str())
    };
    let rank = |c: &&'a Arc<T>| (!c.deleting, promoted(c), child_number(rollout, &c.version.name));
    children.get(recorded).or_else(|| children.values().max_by_key(rank))
}

/// The name of the next object: one above every number that was ever given. `used` are the names that there are, `given` the
/// highest number on record, and `recorded` the object on record.
#[must_use]
pub fn next_name(rollout: &str, used: &BTreeSet<&str>, given: Option<i32>, recorded: &str) -> String {
    let is_free = |name: &String| !used.contains(name.as_str());
    let reserved = given.map(|n| child_name(rollout, n));
    if let Some(reserved) = reserved.filter(|r| r != recorded && is_free(r)) {
        // Written down, and never seen.
        return reserved;
    }
    let highest = used.iter().filter_map(|child| child_number(rollout, child)).chain(given).max().unwrap_or(-1);
    let above = highest.checked_add(1).map(|n| child_name(rollout, n)).filter(is_free);
    above.or_else(|| (0..i32::MAX).map(|n| child_name(rollout, n)).find(is_free)).unwrap_or_default()
}

/// What is said where an object would have to be made anew, and cannot have the name that it would get.
#[must_use]
pub fn no_next(wrapped: Wrapped, next: &str, child: &str, words: &str) -> String {
    let kind = wrapped.kind;
    format!("{kind}/{next} cannot take the place of {kind}/{child}, which stays as it is: {words}")
}
