//! From the standing of production, or of an isolated copy, to steps: check what is new, apply in order, recreate what
//! cannot change in place, prune last, and write down in the child's status what was done. Pure.

use jiff::Timestamp;

use crate::{
    api::NumaflowController,
    controller::{
        standing::Standing,
        status::{Outcome, child_status},
    },
    live::Version,
    manifest::Manifest,
    plan::{Event, Learned, Step},
};

/// What is to be produced, and what is known about it.
#[derive(Clone, Copy, Debug)]
pub struct Producing<'a> {
    /// The NumaflowController that produces; `None` while there is none to write to.
    pub child: Option<&'a NumaflowController>,
    /// What it wants.
    pub manifest: &'a Manifest,
    /// How that stands.
    pub standing: &'a Standing,
    /// What this turn has learned.
    pub learned: &'a Learned,
    /// Objects, as `Kind/name`, of which the server said beforehand that they cannot be changed in place.
    pub recreate: &'a [String],
    /// Whether ReplicaSets that keep an old Deployment's pods running may go.
    pub orphans: bool,
    /// Instance of the isolated copy that this is; `None` for production.
    pub isolated: Option<&'a str>,
    /// The time.
    pub now: Timestamp,
}

/// The next steps for the production objects; none when all is in place and written down.
#[must_use]
pub fn steps(p: &Producing<'_>) -> Vec<Step> {
    if let Some(refusal) = p.learned.refusal_of(p.standing) {
        return record(p, &Outcome::Refused(refusal.message.clone()));
    }
    if p.learned.silence_of(p.standing).is_some() {
        // Whoever asks for these steps has a deadline, and says what is waited for.
        return Vec::new();
    }
    // An object that was never seen may belong to somebody: the server is asked first. Names of an isolated copy are
    // nobody else's.
    let unknown: Vec<_> = p
        .standing
        .to_apply
        .iter()
        .filter(|(object, uid)| p.isolated.is_none() && uid.is_none() && !p.learned.has_checked(object))
        .map(|(object, _)| object.clone())
        .collect();
    if !unknown.is_empty() {
        return vec![Step::Check(unknown)];
    }
    let apply: Vec<Step> = p.standing.to_apply.iter().map(|(object, uid)| apply(p, object, uid.as_ref())).collect();
    if !apply.is_empty() {
        return apply;
    }
    if !p.standing.awaited.is_empty() || !p.standing.taken.is_empty() {
        return record(p, &Outcome::Applying);
    }
    let orphans = if p.orphans { p.standing.orphans.as_slice() } else { &[] };
    let prune: Vec<Step> = p.standing.leftovers.iter().chain(orphans).map(Step::prune).collect();
    if !prune.is_empty() {
        return prune;
    }
    record(p, &Outcome::Applied)
}

fn apply(p: &Producing<'_>, object: &std::sync::Arc<crate::manifest::DesiredObject>, uid: Option<&String>) -> Step {
    // What was foretold may have happened already, before the process died.
    let foretold = p.recreate.contains(&object.id.to_string()) && !p.standing.in_place.contains(&object.id);
    match uid {
        Some(uid) if foretold || p.learned.immutable.contains(&object.id) => Step::Recreate {
            object: object.clone(),
            uid: uid.clone(),
            event: Event {
                warning: false,
                reason: "Recreated",
                note: format!("{} is made anew, because a field that differs cannot be changed in place", object.id),
            },
        },
        uid => Step::Apply { object: object.clone(), uid: uid.cloned() },
    }
}

fn record(p: &Producing<'_>, outcome: &Outcome) -> Vec<Step> {
    let Some(child) = p.child.filter(|c| c.metadata.deletion_timestamp.is_none()) else { return Vec::new() };
    let stored = child.status.clone().unwrap_or_default();
    let generation = child.metadata.generation.unwrap_or_default();
    let next = child_status(&stored, generation, p.isolated, &p.manifest.hash, p.standing, outcome, p.now);
    if next == stored || p.learned.own_refusal().is_some() {
        return Vec::new();
    }
    vec![Step::WriteChildStatus { child: Version::of(&child.metadata), status: Box::new(next) }]
}
