//! What holds at any time: production belongs to one child and is kept as it should be, and what nothing needs goes. Pure.

use std::collections::BTreeSet;

use crate::{
    api::{
        Identity, NumaflowController, NumaflowControllerSpec, NumaflowControllerStatus, Promoted, Upgrade,
        UpgradeState, child_number, isolated_instance, mark_of_isolated, mark_of_rollout,
    },
    controller::{
        produce::{Producing, steps},
        standing::{Production, Standing, assess},
    },
    live::{ObjectId, Version},
    manifest::Manifest,
    plan::{Plan, Step},
    rollout::{
        decide::Turn,
        report::Report,
        snapshot::{Revision, state_of},
    },
    words::held_by,
};

impl Turn<'_> {
    /// Keeps what is promoted as it should be, and tidies up.
    pub(super) fn keep(self, report: impl Into<Report>) -> Plan {
        let report = report.into();
        let Some(promoted) = self.next.promoted.clone() else {
            // Nothing was ever confirmed; the child that tried last keeps the label until another takes it over.
            let last = self.holder().map(str::to_owned);
            let tidy = self.tidy(&last.iter().map(String::as_str).collect::<Vec<_>>());
            return self.finish(tidy, None, report);
        };
        let tidy = |this: &Self| this.tidy(&[&promoted.name]);
        match self.upkeep(&promoted) {
            Upkeep::Steps(steps) => Plan::of(steps),
            Upkeep::Waiting(words) => self.finish(Vec::new(), None, report.with_trouble("ChildMissing", &words)),
            Upkeep::Unusable(words) => {
                let tidy = tidy(&self);
                self.finish(tidy, None, report.with_trouble("RevisionUnusable", &words))
            }
            Upkeep::Kept(standing) => {
                let tidy = tidy(&self);
                self.finish(tidy, Some(&standing), report)
            }
        }
    }

    /// What is to be done for production to be as its last confirmed version wants it.
    pub(super) fn upkeep(&self, promoted: &Promoted) -> Upkeep {
        match self.hand_over(promoted) {
            HandOver::Steps(steps) => return Upkeep::Steps(steps),
            HandOver::Wait(words) => return Upkeep::Waiting(words),
            HandOver::Done => {}
        }
        if let Some(step) = self.repin(promoted) {
            return Upkeep::Steps(vec![step]);
        }
        let manifest = match self.s.manifest(&promoted.revision, &promoted.instance_id) {
            Ok(manifest) => manifest,
            Err(words) => return Upkeep::Unusable(words),
        };
        let standing = self.standing(&manifest);
        let steps = self.produce(&promoted.name, &manifest, &standing, standing.healthy());
        if !steps.is_empty() {
            return Upkeep::Steps(steps);
        }
        match self.s.child(&promoted.name).map(|child| self.teardown(child)) {
            Some(Teardown::Steps(steps)) => Upkeep::Steps(steps),
            _ => Upkeep::Kept(standing),
        }
    }

    /// Pins the promoted definition again where somebody deleted its revision and a ConfigMap still has it.
    fn repin(&self, promoted: &Promoted) -> Option<Step> {
        let target = self.s.desired.as_ref().ok().filter(|t| self.is_promoted(t))?;
        let readable = self.s.revision(&promoted.revision).is_some_and(|r| r.definition.is_some());
        (!readable && self.s.learned.own_refusal().is_none()).then(|| self.pin(target, promoted.revision.clone()))
    }

    /// Pins an attempted definition again where somebody deleted its revision and a ConfigMap still has it.
    pub(super) fn repin_attempt(&self, upgrade: &Upgrade) -> Option<Step> {
        let target = self.s.desired.as_ref().ok().filter(|t| t.manifest.hash == upgrade.definition_hash)?;
        let readable = self.s.revision(&upgrade.revision).is_some_and(|r| r.definition.is_some());
        (!readable && self.s.learned.own_refusal().is_none()).then(|| self.pin(target, upgrade.revision.clone()))
    }

    /// Removes children and revisions that nothing needs.
    pub(super) fn tidy(&self, keep: &[&str]) -> Vec<Step> {
        if self.s.learned.own_refusal().is_some() {
            return Vec::new();
        }
        let mut steps = self.drop_children(keep);
        let kept = self.kept_revisions();
        let goes = |name: &str| !kept.iter().any(|r| r.name == name) && !self.s.learned.stays(name);
        let going = self.s.revisions.iter().filter(|r| goes(&r.name));
        steps.extend(going.map(|r| Step::DeleteRevision { name: r.name.clone(), uid: r.uid.clone() }));
        steps
    }

    /// The next steps by which all children but these go: each says that it is recyclable, loses its isolated copy, and is
    /// deleted when nothing is left of that.
    pub(super) fn drop_children(&self, keep: &[&str]) -> Vec<Step> {
        let mut steps = Vec::new();
        if self.s.learned.own_refusal().is_some() {
            return steps;
        }
        for child in &self.s.children {
            if keep.contains(&child.metadata.name.as_deref().unwrap_or_default()) {
                continue;
            }
            if state_of(child) == Some(UpgradeState::Upgrading) {
                steps.push(Step::LabelChild { child: Version::of(&child.metadata), state: UpgradeState::Recyclable });
                continue;
            }
            // One that is being deleted already, and is held by somebody's finalizer, keeps its copy no longer.
            let deleting = child.metadata.deletion_timestamp.is_some();
            match self.teardown(child) {
                Teardown::Steps(teardown) => steps.extend(teardown),
                Teardown::Done if !deleting && !self.stays(child) => {
                    steps.push(Step::DeleteChild { child: Version::of(&child.metadata) });
                }
                Teardown::Done | Teardown::Waiting => {}
            }
        }
        steps
    }

    /// Deletes all children at once; what is left of their isolated copies goes with them.
    pub(super) fn delete_children(&self) -> Vec<Step> {
        let alive = |c: &&std::sync::Arc<NumaflowController>| c.metadata.deletion_timestamp.is_none() && !self.stays(c);
        let children = self.s.children.iter().filter(alive);
        children.map(|c| Step::DeleteChild { child: Version::of(&c.metadata) }).collect()
    }

    /// Whether the server does not let a child go.
    fn stays(&self, child: &NumaflowController) -> bool {
        self.s.learned.stays(child.metadata.name.as_deref().unwrap_or_default())
    }

    /// How a child's isolated copy goes: its objects, then the lease that its controller made, then the note of it.
    pub(super) fn teardown(&self, child: &NumaflowController) -> Teardown {
        let learned = &self.s.learned;
        let standing = self.standing_of_copy(child, &Manifest::default());
        if learned.own_refusal().or_else(|| learned.refusal_of(&standing)).is_some()
            || learned.silence_of(&standing).is_some()
        {
            return Teardown::Waiting;
        }
        let objects =
            standing.orphans.iter().map(Step::prune_with_pods).chain(standing.leftovers.iter().map(Step::prune));
        let steps: Vec<Step> = objects.collect();
        if !steps.is_empty() {
            return Teardown::Steps(steps);
        }
        let instance = isolated_instance(child.metadata.uid.as_deref().unwrap_or_default());
        let was_isolated = Self::was_isolated(child);
        if self.is_copy_alive(child) || (was_isolated && learned.living_copies.contains(&instance)) {
            return Teardown::Waiting;
        }
        if was_isolated && !learned.deleted_leases.contains(&instance) {
            return Teardown::Steps(vec![Step::DeleteLease { instance }]);
        }
        match child.status.clone() {
            Some(status) if status.isolated.is_some() && state_of(child) == Some(UpgradeState::Promoted) => {
                let next = NumaflowControllerStatus { isolated: None, ..status };
                Teardown::Steps(vec![Step::WriteChildStatus {
                    child: Version::of(&child.metadata),
                    status: Box::new(next),
                }])
            }
            _ => Teardown::Done,
        }
    }

    /// Whether a child ever had an isolated copy, of which something may be left.
    fn was_isolated(child: &NumaflowController) -> bool {
        let noted = child.status.as_ref().is_some_and(|s| s.isolated.is_some());
        // One that never took production was made to prove itself, whether or not it came to write that down.
        let production = child.status.as_ref().is_some_and(|s| s.identity == Some(Identity::production()));
        noted || (state_of(child) != Some(UpgradeState::Promoted) && !production)
    }

    /// Whether anything of a child's isolated copy is still seen, be it on its way out.
    fn is_copy_alive(&self, child: &NumaflowController) -> bool {
        self.objects_of_copy(child).next().is_some()
    }

    /// What is seen of a child's isolated copy.
    pub(super) fn objects_of_copy(&self, child: &NumaflowController) -> impl Iterator<Item = &ObjectId> {
        let mark = mark_of_isolated(child.metadata.name.as_deref().unwrap_or_default());
        self.s.live.values().filter(move |l| l.tracking.as_ref() == Some(&mark)).map(|l| &l.id)
    }

    /// The next step for the lease of a copy whose child is gone, with which everything else of it went.
    pub(super) fn stale_lease(&self, upgrade: &Upgrade) -> Option<Step> {
        let instance = &upgrade.isolated;
        let child = self.s.child(&upgrade.name).and_then(|c| c.metadata.uid.as_deref()).map(isolated_instance);
        let learned = &self.s.learned;
        let known = learned.deleted_leases.contains(instance) || learned.living_copies.contains(instance);
        (!instance.is_empty() && child.as_ref() != Some(instance) && !known)
            .then(|| Step::DeleteLease { instance: instance.clone() })
    }

    /// How a child's isolated copy stands.
    pub(super) fn standing_of_copy(&self, child: &NumaflowController, manifest: &Manifest) -> Standing {
        let uid = child.metadata.uid.as_ref();
        let now = self.s.learned.applied_copies.iter().filter(|(of, _)| Some(of) == uid).map(|(_, entry)| entry);
        let noted = child.status.iter().filter_map(|s| s.isolated.as_ref()).flat_map(|c| &c.inventory);
        let inventory: Vec<_> = now.chain(noted).cloned().collect();
        assess(&Production {
            mark: &mark_of_isolated(child.metadata.name.as_deref().unwrap_or_default()),
            manifest,
            inventory: &inventory,
            live: &self.s.live,
            unwatched: &self.s.unwatched,
            elsewhere: &BTreeSet::new(),
            pruned: &self.s.learned.pruned,
        })
    }

    /// The next steps for the objects of a child's isolated copy.
    pub(super) fn produce_copy(
        &self,
        child: &NumaflowController,
        manifest: &Manifest,
        standing: &Standing,
    ) -> Vec<Step> {
        steps(&Producing {
            child: Some(child),
            manifest,
            standing,
            learned: &self.s.learned,
            recreate: &[],
            orphans: true,
            isolated: Some(&isolated_instance(child.metadata.uid.as_deref().unwrap_or_default())),
            now: self.now,
        })
    }

    /// The pinned revisions that stay: those in use, and the newest of the others.
    pub(super) fn kept_revisions(&self) -> Vec<&Revision> {
        let limit = usize::try_from(self.s.rollout.spec.revision_history_limit.unwrap_or(3)).unwrap_or(0);
        let used = |name: &str| {
            self.next.promoted.as_ref().is_some_and(|p| p.revision == name)
                || self.next.upgrade.as_ref().is_some_and(|u| u.revision == name)
        };
        let mut others = 0;
        let stays = |r: &&Revision| {
            used(&r.name) || {
                others += 1;
                others <= limit
            }
        };
        self.s.revisions.iter().filter(stays).collect()
    }

    /// The child that holds the promoted label.
    pub(super) fn holder(&self) -> Option<&str> {
        let names = self.s.children.iter().filter(|c| state_of(c) == Some(UpgradeState::Promoted));
        names.filter_map(|c| c.metadata.name.as_deref()).max_by_key(|n| child_number(self.s.name(), n))
    }

    pub(super) fn standing(&self, manifest: &Manifest) -> Standing {
        let inventory = self.s.inventory();
        assess(&Production {
            mark: &mark_of_rollout(self.s.name()),
            manifest,
            inventory: &inventory,
            live: &self.s.live,
            unwatched: &self.s.unwatched,
            elsewhere: &self.s.elsewhere,
            pruned: &self.s.learned.pruned,
        })
    }

    /// The next steps for the production objects, through the child that holds them.
    pub(super) fn produce(&self, child: &str, manifest: &Manifest, standing: &Standing, orphans: bool) -> Vec<Step> {
        steps(&Producing {
            child: self.s.child(child).map(AsRef::as_ref),
            manifest,
            standing,
            learned: &self.s.learned,
            recreate: self.next.upgrade.as_ref().map(|u| u.recreate.as_slice()).unwrap_or_default(),
            orphans,
            isolated: None,
            now: self.now,
        })
    }

    /// Gives production to one child: first every other one loses the label, then this one gets it; so there are never
    /// two.
    pub(super) fn hand_over(&self, to: &Promoted) -> HandOver {
        match (self.next_label(to), self.s.learned.own_refusal()) {
            (HandOver::Steps(_), Some(refusal)) => HandOver::Wait(refusal.message.clone()),
            (step, _) => step,
        }
    }

    /// Whether a child says that it belongs to this rollout.
    pub(super) fn owns(&self, child: &NumaflowController) -> bool {
        let owners = child.metadata.owner_references.as_deref().unwrap_or_default();
        owners.iter().any(|o| o.controller == Some(true) && Some(&o.uid) == self.s.rollout.metadata.uid.as_ref())
    }

    fn next_label(&self, to: &Promoted) -> HandOver {
        let name = to.name.as_str();
        let lose: Vec<Step> = self
            .s
            .children
            .iter()
            .filter(|c| c.metadata.name.as_deref() != Some(name) && state_of(c) == Some(UpgradeState::Promoted))
            .map(|c| Step::LabelChild { child: Version::of(&c.metadata), state: UpgradeState::Recyclable })
            .collect();
        if !lose.is_empty() {
            return HandOver::Steps(lose);
        }
        match self.s.child(name) {
            Some(child) if child.metadata.deletion_timestamp.is_some() => {
                let held = held_by(child.metadata.finalizers.as_deref().unwrap_or_default());
                HandOver::Wait(format!(
                    "NumaflowController/{name} is being deleted{held}; it is made anew once it is gone"
                ))
            }
            Some(child) if state_of(child) == Some(UpgradeState::Promoted) && self.owns(child) => HandOver::Done,
            // It comes back: what it applied once may have been changed since by the one that leaves.
            Some(child)
                if state_of(child) != Some(UpgradeState::Promoted)
                    && child.status.as_ref().is_some_and(|s| !s.inventory.is_empty()) =>
            {
                let mut status = child.status.clone().unwrap_or_default();
                status.inventory.clear();
                HandOver::Steps(vec![Step::WriteChildStatus {
                    child: Version::of(&child.metadata),
                    status: Box::new(status),
                }])
            }
            Some(child) => HandOver::Steps(vec![Step::LabelChild {
                child: Version::of(&child.metadata),
                state: UpgradeState::Promoted,
            }]),
            None if self.s.foreign_children.contains(name) => {
                HandOver::Wait(format!("NumaflowController/{name} belongs to somebody else; waiting until it is gone"))
            }
            None => HandOver::Steps(vec![Step::CreateChild {
                name: name.to_owned(),
                spec: Box::new(NumaflowControllerSpec {
                    version: to.version.clone(),
                    instance_id: Some(to.instance_id.clone()).filter(|i| !i.is_empty()),
                    revision: Some(to.revision.clone()),
                }),
                state: UpgradeState::Promoted,
            }]),
        }
    }
}

/// How production stands while nothing is to change.
pub(super) enum Upkeep {
    /// Steps to be taken.
    Steps(Vec<Step>),
    /// Its child is in the way.
    Waiting(String),
    /// Its definition cannot be had.
    Unusable(String),
    /// All is done that can be.
    Kept(Standing),
}

/// How far an isolated copy is on its way out.
pub(super) enum Teardown {
    /// Steps to be taken.
    Steps(Vec<Step>),
    /// Something of it is still there, or in the way.
    Waiting,
    /// Nothing is left of it.
    Done,
}

/// How far the label is.
pub(super) enum HandOver {
    /// Steps to be taken.
    Steps(Vec<Step>),
    /// Something is in the way.
    Wait(String),
    /// The child holds it, alone.
    Done,
}

/// The sentence for an object that belongs to somebody else.
pub(super) fn taken(id: &crate::live::ObjectId, owner: &str) -> String {
    format!(
        "{id} exists and belongs to {owner}; it is not taken over. Delete it, rename it in the definition, or annotate it \
         numaplane.numaproj.io/adopt"
    )
}
