//! Removing the production objects of an owner that is being deleted: not while anything depends on the controller, and
//! nothing that is not ours. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    api::AppliedObject,
    controller::standing::{Production, assess},
    live::{Live, ObjectId},
    manifest::Manifest,
    numaflow::Dependants,
    plan::{Learned, Step},
    words::{held_by, list},
};

/// What a removal is decided from.
#[derive(Clone, Copy, Debug)]
pub struct Leaving<'a> {
    /// Mark of its objects.
    pub mark: &'a str,
    /// Instance of its controller.
    pub instance: &'a str,
    /// Whether the user will not wait.
    pub forced: bool,
    /// What depends on the controller.
    pub dependants: &'a Dependants,
    /// Objects in the namespace.
    pub live: &'a BTreeMap<ObjectId, Live>,
    /// What was applied.
    pub inventory: &'a [AppliedObject],
    /// Kinds that are not watched.
    pub unwatched: &'a BTreeSet<(String, String)>,
    /// Cluster-scoped objects that others use too.
    pub elsewhere: &'a BTreeSet<ObjectId>,
    /// What this turn has learned.
    pub learned: &'a Learned,
}

/// How far a removal is.
#[derive(Clone, Debug, PartialEq)]
pub enum Removal {
    /// Dependants need the controller: it is kept as it is.
    Needed(String),
    /// Nothing needs the controller, and something is waited for.
    Wait(String),
    /// Objects to remove now.
    Steps(Vec<Step>),
    /// Nothing is left (or, forced, what is left stays): the owner may go.
    Done,
}

/// Decides how a removal goes on.
#[must_use]
pub fn next(leaving: &Leaving<'_>) -> Removal {
    // An empty wish: everything of ours is left over.
    let nothing = Manifest::default();
    let standing = assess(&Production {
        mark: leaving.mark,
        manifest: &nothing,
        inventory: leaving.inventory,
        live: leaving.live,
        unwatched: leaving.unwatched,
        elsewhere: leaving.elsewhere,
        pruned: &leaving.learned.pruned,
    });
    let steps: Vec<Step> = standing.leftovers.iter().chain(&standing.orphans).map(Step::prune).collect();
    let dying: Vec<String> = leaving
        .live
        .values()
        .filter(|l| l.deleting && l.tracking.as_deref() == Some(leaving.mark))
        .map(|l| format!("{}{}", l.id, held_by(&l.finalizers)))
        .collect();
    if steps.is_empty() && dying.is_empty() {
        // Nothing of ours runs, so nothing can depend on it.
        return Removal::Done;
    }
    if let Some(words) = needed(leaving, leaving.dependants) {
        // Forced, what depends on the controller keeps it: an owner made again takes it over.
        return if leaving.forced { Removal::Done } else { Removal::Needed(words) };
    }
    if let Some(refusal) = leaving.learned.refusal_of(&standing) {
        return Removal::Wait(format!("the server to let its objects be removed: {}", refusal.message));
    }
    if !steps.is_empty() {
        // Nothing is taken away on the word of the stores alone.
        return match &leaving.learned.dependants {
            None => Removal::Steps(vec![Step::AskDependants]),
            Some(now) => match needed(leaving, now) {
                Some(_) if leaving.forced => Removal::Done,
                Some(words) => Removal::Needed(words),
                None => Removal::Steps(steps),
            },
        };
    }
    Removal::Wait(format!("{} to be gone", list(&dying, 5)))
}

/// What needs the controller still, in words.
fn needed(leaving: &Leaving<'_>, dependants: &Dependants) -> Option<String> {
    let unlisted = &dependants.unlisted;
    if !unlisted.is_empty() {
        return Some(format!(
            "the operator to be able to list {} (is it allowed to? its log says what the server answered)",
            list(unlisted, 5)
        ));
    }
    let names: Vec<String> = dependants
        .of_instance(leaving.instance)
        // A MonoVertex has no finalizer; its pods go with it.
        .filter(|d| d.kind != "MonoVertex")
        .map(|d| format!("{}/{}", d.kind, d.name))
        .collect();
    let need = if names.len() == 1 { "it needs" } else { "they need" };
    (!names.is_empty()).then(|| format!("{} to be gone: {need} a running controller", list(&names, 5)))
}
