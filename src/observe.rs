//! From the stores to a snapshot: no request is made here.

mod isb_rollout;
mod isb_service;
mod mono_vertex;
mod pipeline;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

pub use self::{isb_service::isb_service, mono_vertex::mono_vertex, pipeline::pipeline};

use crate::{
    api::{
        LABEL_PARENT, NumaflowController, NumaflowControllerRollout, Stage, UpgradeState, child_number,
        isolated_instance, label_value, short_uid,
    },
    controller::{
        alone::Alone,
        target::{Target, Unresolved},
    },
    definitions::{
        Definition, Footprint, Instance, Lookup, cluster_scoped, isolate, leader, lease_of_instance, render,
    },
    live::ObjectId,
    manifest::Manifest,
    numaflow::{Held, LiveObject, LivePipeline},
    pipeline::Leaving,
    plan::Learned,
    rollout::{
        resolve::{Question, Rival, find, resolve},
        snapshot::{Revision, Snapshot, state_of},
    },
    settings::Settings,
    world::{GroupKind, Pinned, PinnedContent, World},
};

/// One look at a rollout.
#[must_use]
pub fn rollout(
    world: &World,
    settings: &Settings,
    rollout: &Arc<NumaflowControllerRollout>,
    learned: &Learned,
) -> Snapshot {
    let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
    let name = rollout.metadata.name.as_deref().unwrap_or_default();
    let uid = rollout.metadata.uid.as_deref().unwrap_or_default();
    let revisions = revisions(world, namespace, uid);
    let mut children = Vec::new();
    let mut foreign_children = BTreeSet::new();
    for (child, decoded) in world.controllers.in_namespace(namespace) {
        let owned = decoded.good().filter(|c| match owner_uid(c) {
            Some(owner) => owner == uid,
            // Somebody took its owner away; the revision in its spec, which never changes, says whose it is.
            None => c.spec.revision.as_ref().is_some_and(|r| revisions.iter().any(|known| known.name == *r)),
        });
        match owned {
            Some(controller) => children.push(controller.clone()),
            None if child_number(name, &child).is_some() => {
                foreign_children.insert(child);
            }
            None => {}
        }
    }
    let render = |definition: &Arc<Definition>, instance: &str| rendered(world, settings, definition, instance);
    let desired = target(world, settings, rollout, &revisions);
    let status = rollout.status.as_ref();
    // (revision, version, instance, hash where it is known)
    let mut used: Vec<(String, String, String, Option<String>)> = Vec::new();
    used.extend(
        status
            .and_then(|s| s.promoted.clone())
            .map(|p| (p.revision, p.version, p.instance_id, Some(p.definition_hash))),
    );
    used.extend(
        status.and_then(|s| s.upgrade.clone()).map(|u| (u.revision, u.version, u.instance_id, Some(u.definition_hash))),
    );
    for child in children.iter().filter(|c| state_of(c) == Some(UpgradeState::Promoted)) {
        let spec = child.spec.clone();
        used.extend(spec.revision.map(|r| (r, spec.version, spec.instance_id.unwrap_or_default(), None)));
    }
    let mut manifests = std::collections::BTreeMap::new();
    for (revision, version, instance, hash) in used {
        let pinned = revisions.iter().find(|r| r.name == revision).and_then(|r| r.definition.clone());
        let manifest = match pinned {
            Some(definition) => render(&definition, &instance),
            // Somebody deleted the revision; the same definition may still be in a ConfigMap.
            None => match lookup(world, settings, namespace, &version) {
                Lookup::Found(definition) => render(&definition, &instance),
                _ => Err(String::new()),
            }
            .ok()
            .filter(|found| hash.as_ref() == Some(&found.hash))
            .ok_or_else(|| format!("ControllerRevision/{revision} is missing or cannot be read")),
        };
        manifests.entry((revision, instance)).or_insert(manifest);
    }
    let inventories = children.iter().filter_map(|c| c.status.as_ref()).flat_map(|s| &s.inventory);
    let wanted = manifests.values().filter_map(|m| m.as_ref().ok()).chain(desired.as_ref().ok().map(|t| &t.manifest));
    let unwatched = world.unwatched(
        inventories
            .map(|e| (e.group.as_str(), e.kind.as_str()))
            .chain(wanted.flat_map(|m| &m.objects).map(|o| (o.id.group.as_str(), o.id.kind.as_str()))),
    );
    let elsewhere = elsewhere(world, namespace, name, &unwatched);
    let copy = proving(rollout, &children, &desired, &revisions).map(|proving| {
        let mut production: Vec<Arc<Manifest>> = desired.iter().map(|t| t.manifest.clone()).collect();
        for (key, manifest) in &manifests {
            // What is not known cannot be kept apart from.
            let known =
                manifest.clone().map_err(|why| format!("what {} has in production is not known: {why}", key.0))?;
            production.push(known);
        }
        production.extend(production_of_others(world, settings, namespace, name)?);
        isolated(world, settings, &proving, &production)
    });
    Snapshot {
        watching_since: world.since(),
        copy,
        elsewhere,
        rollout: rollout.clone(),
        namespace_terminating: world.terminating(namespace) || learned.terminating,
        foreign_children,
        desired,
        revisions,
        manifests,
        live: world.live(namespace),
        unwatched,
        dependants: world.dependants(namespace),
        pipelines: pipeline::seen(world, namespace),
        isb_services: pipeline::isb_services(world, namespace),
        learned: learned.clone(),
        children,
    }
}

/// The definition that a rollout asks for, whatever else is wrong with its spec. `pinned` are ControllerRevisions of its
/// namespace, by name.
///
/// # Errors
/// Why there is none that can be used.
pub fn defined(
    world: &World,
    settings: &Settings,
    rollout: &NumaflowControllerRollout,
    pinned: &[(String, Arc<Pinned>)],
) -> Result<Target, Unresolved> {
    let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
    let uid = rollout.metadata.uid.as_deref().unwrap_or_default();
    ask(world, settings, rollout, &owned(world, namespace, pinned, uid), &[], find)
}

fn target(
    world: &World,
    settings: &Settings,
    rollout: &NumaflowControllerRollout,
    revisions: &[Revision],
) -> Result<Target, Unresolved> {
    let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
    let rivals = rivals(world, namespace, rollout.metadata.name.as_deref().unwrap_or_default());
    ask(world, settings, rollout, revisions, &rivals, resolve)
}

fn ask<T>(
    world: &World,
    settings: &Settings,
    rollout: &NumaflowControllerRollout,
    revisions: &[Revision],
    rivals: &[Rival],
    answer: impl FnOnce(&Question<'_>) -> T,
) -> T {
    let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
    answer(&Question {
        rollout,
        field: "spec.controller",
        lookup: lookup(world, settings, namespace, &rollout.spec.controller.version),
        revisions,
        rivals,
        render: &|definition, instance| rendered(world, settings, definition, instance),
    })
}

/// What is left of Numaflow in a namespace; `None` unless it is being deleted.
#[must_use]
pub fn leaving(world: &World, namespace: &str) -> Option<Leaving> {
    if !world.terminating(namespace) {
        return None;
    }
    let pipelines = world.pipelines.in_namespace(namespace);
    let ours = |p: &LivePipeline| p.owner.as_ref().is_some_and(|(kind, ..)| kind == "PipelineRollout");
    // Once nothing of ours is left in it, only this process knows whose controller there was.
    let here = world.was_ours(namespace) || pipelines.iter().any(|(_, p)| ours(p));
    let mut objects: Vec<(&'static str, Held)> = Vec::new();
    objects.extend(pipelines.iter().filter(|(_, p)| here || ours(p)).map(|(_, p)| ("Pipeline", p.held())));
    if here {
        let services = world.isb_services.in_namespace(namespace);
        objects.extend(services.iter().map(|(_, isb)| ("InterStepBufferService", isb.held())));
    }
    let controllers = world.live(namespace).values().any(|l| l.workload.as_ref().is_some_and(|w| w.total > 0));
    Some(Leaving { objects, controllers })
}

/// What an isolated copy is to be made of.
struct Proving {
    definition: Option<Arc<Definition>>,
    namespace: String,
    /// The child that it belongs to; made up while there is none.
    child: String,
    uid: String,
}

/// Uid of a child that does not exist yet.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";

/// The version that proves itself, or would if its attempt started now; `None` at rest.
fn proving(
    rollout: &NumaflowControllerRollout,
    children: &[Arc<NumaflowController>],
    desired: &Result<Target, Unresolved>,
    revisions: &[Revision],
) -> Option<Proving> {
    let status = rollout.status.as_ref()?;
    let namespace = rollout.metadata.namespace.clone().unwrap_or_default();
    if let Some(upgrade) = &status.upgrade {
        let child = children.iter().find(|c| c.metadata.name.as_ref() == Some(&upgrade.name))?;
        if Stage::parse(&upgrade.stage) != Some(Stage::Verify) {
            return None;
        }
        let definition = revisions.iter().find(|r| r.name == upgrade.revision).and_then(|r| r.definition.clone());
        let uid = child.metadata.uid.clone().unwrap_or_default();
        return Some(Proving { definition, namespace, child: upgrade.name.clone(), uid });
    }
    let promoted = status.promoted.as_ref()?;
    let target = desired.as_ref().ok()?;
    let child = rollout.metadata.name.clone().unwrap_or_default();
    (!target.is(promoted)).then(|| Proving {
        namespace,
        definition: Some(target.definition.clone()),
        child,
        uid: NO_UID.to_owned(),
    })
}

/// Renders an isolated copy that touches none of these production sets.
fn isolated(
    world: &World,
    settings: &Settings,
    proving: &Proving,
    production: &[Arc<Manifest>],
) -> Result<Arc<Manifest>, String> {
    let definition = proving.definition.as_ref().ok_or("the revision that pins its definition is missing")?;
    let mut footprint = Footprint::default();
    for object in production.iter().flat_map(|m| &m.objects) {
        footprint.add(&object.id.group, &object.id.kind, &object.id.name, object.body());
    }
    let id = isolated_instance(&proving.uid);
    let key = format!("{}/{}", proving.namespace, proving.child);
    world.copy(definition, &key, &format!("{id} {}", footprint.fingerprint()), |definition| {
        let mut rendered =
            isolate(definition, &id, &settings.permitted, &footprint).map_err(|error| error.to_string())?;
        rendered.add_config_hashes();
        // A copy that takes another lease than its own (its definition hides the instance from us) is not asked for one.
        let leader = leader(definition, &rendered.objects).filter(|l| l.lease == lease_of_instance(&id));
        Ok(Arc::new(Manifest::isolated(rendered, leader, &proving.child, &proving.uid)))
    })
}

/// Production of the other owners in a namespace.
///
/// # Errors
/// Whose production is not known.
fn production_of_others(
    world: &World,
    settings: &Settings,
    namespace: &str,
    name: &str,
) -> Result<Vec<Arc<Manifest>>, String> {
    let unknown = |kind: &str, name: &str| format!("what {kind}/{name} has in this namespace is not known");
    let mut all = Vec::new();
    for (other, decoded) in world.rollouts.in_namespace(namespace) {
        if other == name {
            continue;
        }
        let rollout = decoded.good().ok_or_else(|| unknown("NumaflowControllerRollout", &other))?;
        let Some(status) = &rollout.status else { continue };
        let revisions = revisions(world, namespace, rollout.metadata.uid.as_deref().unwrap_or_default());
        let promoted = status.promoted.iter().map(|p| (&p.revision, &p.instance_id));
        for (revision, instance) in promoted.chain(status.upgrade.iter().map(|u| (&u.revision, &u.instance_id))) {
            let pinned = revisions.iter().find(|r| r.name == *revision).and_then(|r| r.definition.clone());
            let manifest = pinned.and_then(|definition| rendered(world, settings, &definition, instance).ok());
            all.push(manifest.ok_or_else(|| unknown("NumaflowControllerRollout", &other))?);
        }
    }
    for (name, decoded) in world.controllers.in_namespace(namespace) {
        let Some(controller) = decoded.good().filter(|c| !is_child(c)) else { continue };
        let produces = controller.status.as_ref().is_some_and(|s| !s.inventory.is_empty());
        let instance = controller.spec.instance_id.as_deref().unwrap_or_default();
        let manifest = match lookup(world, settings, namespace, &controller.spec.version) {
            Lookup::Found(definition) => rendered(world, settings, &definition, instance).ok(),
            _ => None,
        };
        match manifest {
            Some(manifest) => all.push(manifest),
            None if produces => return Err(unknown("NumaflowController", &name)),
            None => {}
        }
    }
    Ok(all)
}

/// One look at a NumaflowController without a rollout.
#[must_use]
pub fn alone(world: &World, settings: &Settings, controller: &Arc<NumaflowController>, learned: &Learned) -> Alone {
    let namespace = controller.metadata.namespace.as_deref().unwrap_or_default();
    let name = controller.metadata.name.as_deref().unwrap_or_default();
    let desired = alone_target(world, settings, namespace, name, controller);
    let inventory = controller.status.iter().flat_map(|s| &s.inventory);
    let unwatched =
        world.unwatched(inventory.map(|e| (e.group.as_str(), e.kind.as_str())).chain(
            desired.iter().flat_map(|t| &t.manifest.objects).map(|o| (o.id.group.as_str(), o.id.kind.as_str())),
        ));
    let elsewhere = elsewhere(world, namespace, name, &unwatched);
    Alone {
        elsewhere,
        controller: controller.clone(),
        namespace_terminating: world.terminating(namespace) || learned.terminating,
        desired,
        live: world.live(namespace),
        unwatched,
        dependants: world.dependants(namespace),
        learned: learned.clone(),
    }
}

/// Cluster-scoped objects that others use too; asked only where any are in play.
fn elsewhere(world: &World, namespace: &str, owner: &str, unwatched: &BTreeSet<GroupKind>) -> BTreeSet<ObjectId> {
    if unwatched.iter().any(|(group, kind)| cluster_scoped(group, kind)) {
        world.used_elsewhere(namespace, owner)
    } else {
        BTreeSet::new()
    }
}

fn alone_target(
    world: &World,
    settings: &Settings,
    namespace: &str,
    name: &str,
    controller: &NumaflowController,
) -> Result<Target, Unresolved> {
    // A rollout of the same spec answers the question for a NumaflowController too; only the names differ.
    let stand_in = NumaflowControllerRollout {
        metadata: kube::core::ObjectMeta {
            creation_timestamp: controller.metadata.creation_timestamp.clone(),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..Default::default()
        },
        spec: crate::api::NumaflowControllerRolloutSpec {
            controller: crate::api::ControllerSpec {
                version: controller.spec.version.clone(),
                instance_id: controller.spec.instance_id.clone(),
            },
            ..Default::default()
        },
        status: None,
    };
    let instance = controller.spec.instance_id.as_deref().unwrap_or_default();
    resolve(&Question {
        rollout: &stand_in,
        field: "spec",
        lookup: lookup(world, settings, namespace, &controller.spec.version),
        revisions: &[],
        // A rollout comes first, whatever its age and also if it has the same name.
        rivals: &rivals(world, namespace, "")
            .into_iter()
            .map(|r| Rival { promoted: Some(instance.to_owned()), ..r })
            .collect::<Vec<_>>(),
        render: &|definition, instance| rendered(world, settings, definition, instance),
    })
}

/// Whether an object of Numaflow's belongs to the rollout with this metadata: by its owner or, where somebody took that away,
/// by label and name. `recorded` says that the status of the rollout names it.
fn belongs_to(object: &LiveObject, rollout: &kube::core::ObjectMeta, recorded: bool) -> bool {
    if let Some((_, _, owner)) = &object.owner {
        return rollout.uid.as_ref() == Some(owner);
    }
    let name = rollout.name.as_deref().unwrap_or_default();
    // Of one that lost its owner and its labels too, it is on record that it is ours.
    let ours = recorded && object.ownership.ours.is_some();
    let labelled = object.labels.get(LABEL_PARENT).is_some_and(|parent| *parent == label_value(name));
    (ours || labelled) && child_number(name, &object.version.name).is_some()
}

/// The objects of a rollout, by name, and names that look like those of its objects but belong to somebody else.
fn children<T: std::ops::Deref<Target = LiveObject>>(
    objects: Vec<(String, Arc<T>)>,
    rollout: &kube::core::ObjectMeta,
    recorded: &str,
) -> (BTreeMap<String, Arc<T>>, BTreeSet<String>) {
    let mut ours = BTreeMap::new();
    let mut foreign = BTreeSet::new();
    for (name, object) in objects {
        if belongs_to(&object, rollout, name == recorded) {
            ours.insert(name, object);
        } else if child_number(rollout.name.as_deref().unwrap_or_default(), &name).is_some() {
            foreign.insert(name);
        }
    }
    (ours, foreign)
}

/// The uid of the rollout that controls a child.
#[must_use]
pub fn owner_uid(child: &NumaflowController) -> Option<&str> {
    let owners = child.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().find(|o| o.controller == Some(true)).map(|o| o.uid.as_str())
}

/// Whether a NumaflowController is a child of some rollout (alive or not), rather than one that a user made.
#[must_use]
pub fn is_child(controller: &NumaflowController) -> bool {
    // Only children have a revision; labels and owners can be taken away.
    controller.spec.revision.is_some() || owner_uid(controller).is_some()
}

fn lookup(world: &World, settings: &Settings, namespace: &str, version: &str) -> Lookup {
    let catalogue = world.catalogue.read().unwrap_or_else(std::sync::PoisonError::into_inner);
    catalogue.lookup(&settings.definers(namespace), version)
}

fn rendered(
    world: &World,
    settings: &Settings,
    definition: &Arc<Definition>,
    instance: &str,
) -> Result<Arc<Manifest>, String> {
    world.render(definition, instance, |definition, instance| {
        render(definition, &Instance::production(instance), &settings.permitted)
            .map(|mut rendered| {
                rendered.add_config_hashes();
                let leader = leader(definition, &rendered.objects);
                Arc::new(Manifest::new(rendered, leader))
            })
            .map_err(|error| error.to_string())
    })
}

fn revisions(world: &World, namespace: &str, owner: &str) -> Vec<Revision> {
    owned(world, namespace, &world.revisions.in_namespace(namespace), owner)
}

/// Those of the pinned definitions of a namespace that belong to the rollout with this uid.
fn owned(world: &World, namespace: &str, pinned: &[(String, Arc<Pinned>)], owner: &str) -> Vec<Revision> {
    let mut all: Vec<Revision> = pinned
        .iter()
        // One whose owner was taken away (a deletion that orphans does) is known by its name.
        .filter(|(name, pinned)| pinned.owner == owner || (pinned.owner.is_empty() && names_uid(name, owner)))
        .map(|(name, pinned)| {
            let (definition, secret) = match &pinned.content {
                PinnedContent::Here(definition) => (Some(definition.clone()), None),
                PinnedContent::Secret(secret) => (world.pin(namespace, secret), Some(secret.clone())),
                PinnedContent::Unreadable(_) => (None, None),
            };
            Revision {
                name: name.clone(),
                uid: pinned.uid.clone(),
                number: pinned.number,
                version: pinned.version.clone(),
                definition,
                secret,
            }
        })
        .collect();
    all.sort_by(|a, b| b.number.cmp(&a.number).then_with(|| a.name.cmp(&b.name)));
    all
}

/// Whether the name of a revision has the uid of this rollout in it.
fn names_uid(revision: &str, uid: &str) -> bool {
    let short = short_uid(uid);
    short.len() == 8 && revision.contains(&format!("-{short}-"))
}

/// The other rollouts of a namespace, those that cannot be decoded left out: what they ask for is not known.
#[must_use]
pub fn rivals(world: &World, namespace: &str, name: &str) -> Vec<Rival> {
    world
        .rollouts
        .in_namespace(namespace)
        .into_iter()
        .filter(|(other, _)| other != name)
        .filter_map(|(other, decoded)| {
            let rival = decoded.good()?;
            let promoted = rival.status.as_ref().and_then(|s| s.promoted.as_ref());
            let mut instances = vec![rival.spec.controller.instance().to_owned()];
            instances.extend(promoted.map(|p| p.instance_id.clone()));
            Some(Rival {
                name: other,
                instances,
                promoted: promoted.map(|p| p.instance_id.clone()),
                created: rival.metadata.creation_timestamp.as_ref().map_or(0, |t| t.0.as_second()),
            })
        })
        .collect()
}
