//! How the production objects of one version stand: what must be applied, what is in the way, what is left over, and how
//! healthy the workloads are. Pure; both tiers read it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::{
    api::{AppliedObject, WorkloadHealth},
    live::{Live, ObjectId},
    manifest::{DesiredObject, Manifest},
    words::held_by,
};

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub struct Production<'a> {
    /// Mark of the objects: whose they are.
    pub mark: &'a str,
    /// What is wanted.
    pub manifest: &'a Manifest,
    /// What was applied before, by any child of the owner.
    pub inventory: &'a [AppliedObject],
    /// Objects seen in the namespace: ours, and those of other owners.
    pub live: &'a BTreeMap<ObjectId, Live>,
    /// Kinds that are applied but not watched, as (group, kind): known from the inventory alone.
    pub unwatched: &'a BTreeSet<(String, String)>,
    /// Cluster-scoped objects that others use too.
    pub elsewhere: &'a BTreeSet<ObjectId>,
    /// Objects that were removed just now.
    pub pruned: &'a BTreeSet<ObjectId>,
}

/// How things stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Standing {
    /// Objects to apply, in order, each with the uid that must be there.
    pub to_apply: Vec<(Arc<DesiredObject>, Option<String>)>,
    /// Those of them that carry the wanted content already, and are applied again only to be sure that nobody changed it.
    pub in_place: BTreeSet<ObjectId>,
    /// Objects that are being deleted and must be gone first, each with who holds it.
    pub awaited: Vec<String>,
    /// Objects that belong to another owner, with its name.
    pub taken: Vec<(ObjectId, String)>,
    /// Objects of ours that this version does not want, with API version (where known) and uid.
    pub leftovers: Vec<(ObjectId, String, String)>,
    /// Workloads that this version does not want, and ReplicaSets that a Deployment left behind when it was made anew: their
    /// pods run on until the new ones are available, so that a version that never comes up takes nothing away.
    pub orphans: Vec<(ObjectId, String, String)>,
    /// What the inventory of this version should say.
    pub inventory: Vec<AppliedObject>,
    /// Health of each workload.
    pub health: Vec<WorkloadHealth>,
}

impl Standing {
    /// Whether every object is as wanted and nothing is left over.
    #[must_use]
    pub fn applied(&self) -> bool {
        self.to_apply.is_empty() && self.awaited.is_empty() && self.taken.is_empty() && self.leftovers.is_empty()
    }

    /// Whether every workload is updated and available.
    #[must_use]
    pub fn healthy(&self) -> bool {
        self.applied() && self.health.iter().all(|w| w.healthy)
    }

    /// What is waited for; names the objects. Empty when healthy.
    #[must_use]
    pub fn waiting_for(&self) -> String {
        let mut parts: Vec<String> = Vec::new();
        parts.extend(self.awaited.iter().map(|id| format!("{id} to be gone (it is being deleted)")));
        parts.extend(self.to_apply.iter().map(|(object, _)| format!("{} to be applied", object.id)));
        parts.extend(self.taken.iter().map(|(id, owner)| format!("{id}, which belongs to {owner}")));
        parts.extend(self.leftovers.iter().map(|(id, ..)| format!("{id} to be removed")));
        parts
            .extend(self.health.iter().filter(|w| !w.healthy).map(|w| format!("{}/{}: {}", w.kind, w.name, w.message)));
        let more = parts.len().saturating_sub(5);
        parts.truncate(5);
        if more > 0 {
            parts.push(format!("and {more} more"));
        }
        parts.join("; ")
    }
}

/// Compares what is wanted with what is there.
#[must_use]
pub fn assess(production: &Production<'_>) -> Standing {
    let mut standing = Standing::default();
    for object in &production.manifest.objects {
        let entry = |uid: &str, fields: &str| AppliedObject {
            group: object.id.group.clone(),
            version: object.version.clone(),
            kind: object.id.kind.clone(),
            name: object.id.name.clone(),
            uid: uid.to_owned(),
            hash: object.hash.clone(),
            fields: fields.to_owned(),
        };
        if production.unwatched.contains(&(object.id.group.clone(), object.id.kind.clone())) {
            // Never seen, so what was applied is all there is to know; drift in these kinds is not noticed.
            match production.inventory.iter().find(|e| is(e, &object.id) && e.hash == object.hash) {
                Some(done) => standing.inventory.push(done.clone()),
                None => standing.to_apply.push((object.clone(), None)),
            }
            continue;
        }
        match production.live.get(&object.id) {
            None => standing.to_apply.push((object.clone(), None)),
            Some(live) if live.deleting => {
                standing.awaited.push(format!("{}{}", object.id, held_by(&live.finalizers)));
            }
            Some(live) if is_taken(production, live) => {
                standing.taken.push((object.id.clone(), live.tracking.clone().unwrap_or_default()));
            }
            Some(live) => {
                // The object says which content was applied last; the inventory says which fields were ours then. If
                // both still hold, nobody has touched anything of ours.
                let ours = entry(&live.uid, &live.fields);
                let untouched = live.applied.as_ref() == Some(&object.hash) && production.inventory.contains(&ours);
                if untouched {
                    standing.inventory.push(ours);
                } else {
                    if live.applied.as_ref() == Some(&object.hash) {
                        standing.in_place.insert(object.id.clone());
                    }
                    standing.to_apply.push((object.clone(), Some(live.uid.clone())));
                }
            }
        }
        if let Some(health) = health(object, production.live.get(&object.id)) {
            standing.health.push(health);
        }
    }
    leftovers(production, &mut standing);
    standing
}

/// Whether an object belongs to another owner: its mark says so, nobody allows it to be taken over, and it is not one that
/// was applied here (whose mark somebody changed).
fn is_taken(production: &Production<'_>, live: &Live) -> bool {
    live.tracking.as_ref().is_some_and(|t| t != production.mark)
        && !live.adoptable
        && !production.inventory.iter().any(|e| is(e, &live.id) && e.uid == live.uid)
}

fn is(entry: &AppliedObject, id: &ObjectId) -> bool {
    entry.group == id.group && entry.kind == id.kind && entry.name == id.name
}

fn health(object: &DesiredObject, live: Option<&Live>) -> Option<WorkloadHealth> {
    let workload =
        object.id.group == "apps" && matches!(object.id.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet");
    let message = match live {
        _ if !workload => return None,
        None => "does not exist".to_owned(),
        Some(live) if live.deleting => "is being deleted".to_owned(),
        Some(live) => live.workload.as_ref().and_then(crate::live::Workload::missing).unwrap_or_default(),
    };
    Some(WorkloadHealth {
        kind: object.id.kind.clone(),
        name: object.id.name.clone(),
        healthy: message.is_empty(),
        message,
    })
}

/// Objects of ours that this version does not want: those that carry our mark, and of kinds that are not watched those
/// that an inventory names.
fn leftovers(production: &Production<'_>, standing: &mut Standing) {
    let wanted = production.manifest.by_id();
    for live in production.live.values() {
        if live.tracking.as_deref() != Some(production.mark) || live.deleting || wanted.contains_key(&live.id) {
            continue;
        }
        let version =
            production.inventory.iter().find(|e| is(e, &live.id)).map(|e| e.version.clone()).unwrap_or_default();
        let item = (live.id.clone(), version, live.uid.clone());
        if live.id.kind == "ReplicaSet" && live.id.group == "apps" {
            // One that a Deployment has adopted again is that Deployment's business.
            if !live.controlled {
                standing.orphans.push(item);
            }
        } else if live.fields.is_empty() {
            // A copy that somebody made, label and all: nothing in it was applied by us.
        } else if live.workload.is_some() {
            standing.orphans.push(item);
        } else {
            standing.leftovers.push(item);
        }
    }
    for entry in production.inventory {
        let id = ObjectId::new(&entry.group, &entry.kind, &entry.name);
        if production.unwatched.contains(&(entry.group.clone(), entry.kind.clone()))
            && !wanted.contains_key(&id)
            && !production.pruned.contains(&id)
            && !production.elsewhere.contains(&id)
            && !standing.leftovers.iter().any(|(known, ..)| *known == id)
        {
            standing.leftovers.push((id, entry.version.clone(), entry.uid.clone()));
        }
    }
}
