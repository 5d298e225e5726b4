//! What is to be done: steps as data, so that a plan can be compared, printed and replayed. Deciding makes them,
//! `cluster` carries them out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;

use crate::{
    api::{
        IsbServiceRolloutStatus, MonoVertexRolloutStatus, NumaflowControllerRolloutStatus, NumaflowControllerSpec,
        NumaflowControllerStatus, PipelineRolloutStatus, UpgradeState,
    },
    evidence::{Evidence, Look},
    live::{ObjectId, Version},
    manifest::DesiredObject,
    numaflow::{DataPlane, Dependants},
};

/// The next steps for one rollout or NumaflowController, in order. An empty list means that nothing is to be done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Steps, each of which can be repeated. Carried out in order; after the last one everything is decided again.
    pub steps: Vec<Step>,
    /// When to look again at the latest although nothing has changed, when there is nothing to do now.
    pub again_after: Option<Duration>,
}

impl Plan {
    /// Steps to be taken now.
    #[must_use]
    pub fn of(steps: Vec<Step>) -> Self {
        Self { steps, again_after: None }
    }
}

/// One write (or dry run, or read that must be fresh).
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Replaces the finalizers of the object that the turn is about.
    SetFinalizers(Vec<String>),
    /// Writes the status of the rollout.
    WriteStatus {
        /// The whole new status.
        status: Box<NumaflowControllerRolloutStatus>,
        /// Told to the user once the status is stored.
        events: Vec<Event>,
    },
    /// Reads a pinned definition that is not watched.
    ReadPin {
        /// Name of the Secret.
        secret: String,
    },
    /// Reads a lease and pods, which are not watched.
    Look(Look),
    /// Asks the server which Numaflow objects there are in the namespace now: the watch of a kind that has only just come to be
    /// served may not have begun.
    AskDependants,
    /// Pins a definition.
    Pin(Box<Pin>),
    /// Asks the server what it would say to these objects.
    Check(Vec<Arc<DesiredObject>>),
    /// Creates a child.
    CreateChild {
        /// Its name.
        name: String,
        /// Its spec.
        spec: Box<NumaflowControllerSpec>,
        /// Its label.
        state: UpgradeState,
    },
    /// Changes what a child renders.
    LabelChild {
        /// The child.
        child: Version,
        /// Its new label.
        state: UpgradeState,
    },
    /// Writes the status of a child (or of a NumaflowController without a rollout).
    WriteChildStatus {
        /// The child.
        child: Version,
        /// The whole new status.
        status: Box<NumaflowControllerStatus>,
    },
    /// Deletes a child.
    DeleteChild {
        /// The child.
        child: Version,
    },
    /// Applies an object.
    Apply {
        /// What.
        object: Arc<DesiredObject>,
        /// Uid of the object that must be there; `None` where none was seen.
        uid: Option<String>,
    },
    /// Takes away a production object whose immutable field must change; it is applied anew once it is gone. A
    /// Deployment's pods are kept running meanwhile. Not carried out unless the server would accept the new one.
    Recreate {
        /// What is wanted in its place.
        object: Arc<DesiredObject>,
        /// Uid of the object that must be there.
        uid: String,
        /// Told to the user.
        event: Event,
    },
    /// Deletes an object of ours that nothing wants any more.
    Prune {
        /// Which object.
        id: ObjectId,
        /// API version to delete it by; empty where the watched one is to be used.
        version: String,
        /// Uid of the object that must be there.
        uid: String,
        /// Whether it is to be seen until its pods are gone.
        foreground: bool,
    },
    /// Deletes the lease that the controller of an isolated copy has made, unless pods of the copy live: they would make it
    /// again.
    DeleteLease {
        /// Instance of the copy.
        instance: String,
    },
    /// Writes the status of a PipelineRollout.
    WritePipelineStatus {
        /// The whole new status.
        status: Box<PipelineRolloutStatus>,
        /// Told to the user once the status is stored.
        events: Vec<Event>,
    },
    /// Writes the status of an ISBServiceRollout.
    WriteIsbServiceStatus {
        /// The whole new status.
        status: Box<IsbServiceRolloutStatus>,
        /// Told to the user once the status is stored.
        events: Vec<Event>,
    },
    /// Writes the status of a MonoVertexRollout.
    WriteMonoVertexStatus {
        /// The whole new status.
        status: Box<MonoVertexRolloutStatus>,
        /// Told to the user once the status is stored.
        events: Vec<Event>,
    },
    /// Applies a Numaflow object that belongs to the subject: metadata and spec.
    ApplyNumaflow {
        /// Kind.
        kind: &'static str,
        /// The object without apiVersion, kind, namespace and owner.
        body: Arc<Value>,
        /// The object that must be there; `None` where there is to be none.
        expect: Option<Version>,
    },
    /// Asks the server what it would say to such an apply.
    CheckNumaflow {
        /// Kind.
        kind: &'static str,
        /// The object without apiVersion, kind, namespace and owner.
        body: Arc<Value>,
        /// The object that must be there.
        expect: Version,
    },
    /// Changes single fields of a Numaflow object by merge patch: its wanted phase, say, or a label.
    PatchNumaflow {
        /// Kind.
        kind: &'static str,
        /// The object: its uid must match, its resourceVersion only where it is given.
        object: Version,
        /// The merge patch.
        patch: Arc<Value>,
        /// What for, in words for the log.
        why: &'static str,
    },
    /// Deletes a Numaflow object, with everything that belongs to it.
    DeleteNumaflow {
        /// Kind.
        kind: &'static str,
        /// The object.
        object: Version,
    },
    /// Takes a finalizer of Numaflow's from an object that nobody is left to release.
    ReleaseNumaflow {
        /// Kind.
        kind: &'static str,
        /// The object.
        object: Version,
        /// The finalizer.
        finalizer: &'static str,
    },
    /// Reads the vertices of a pipeline and their pods, which are not watched.
    LookAtPipeline {
        /// Name of the pipeline.
        name: String,
    },
    /// Reads the pods of a MonoVertex, which are not watched.
    LookAtMonoVertex {
        /// Name of the MonoVertex.
        name: String,
    },
    /// Deletes a pinned revision.
    DeleteRevision {
        /// Its name.
        name: String,
        /// Its uid.
        uid: String,
    },
}

/// A definition that is to be pinned.
#[derive(Clone, Debug, PartialEq)]
pub struct Pin {
    /// Name of the ControllerRevision.
    pub name: String,
    /// Number of the revision.
    pub number: i64,
    /// What is pinned.
    pub definition: Arc<crate::definitions::Definition>,
    /// Whether the definition holds a Secret and so must be kept in one.
    pub secret: bool,
}

/// Something worth an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether it is bad news.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// What happened; names the object.
    pub note: String,
}

/// Reason of a refusal that nobody spoke: what was written did not last.
pub const NOT_KEPT: &str = "NotKept";

/// What the server refuses, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was to be written.
    pub about: About,
    /// One word: `Forbidden`, `Invalid`, `ObjectExists`…
    pub reason: String,
    /// The server's sentence, with the object in front.
    pub message: String,
}

/// What a refused write was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// A production object with this content.
    Object(ObjectId, String),
    /// A production object that was to be removed.
    Leftover(ObjectId),
    /// A child, a revision, a status.
    Own,
    /// The wanted phase of a pipeline, or another single field of a Numaflow object.
    Steering,
    /// A child or a revision of this name that nothing needs any more: it is in nobody's way.
    CleanUp(String),
}

/// What one turn has learned so far that no store holds. Forgotten at its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    /// Objects whose dry run passed, as (object, hash of its content).
    pub checked: BTreeSet<(ObjectId, String)>,
    /// Objects that the server will not change in place.
    pub immutable: BTreeSet<ObjectId>,
    /// What the server refused.
    pub refusals: Vec<Refusal>,
    /// What the server gave no usable answer to, again and again.
    pub silences: Vec<Refusal>,
    /// Fingerprints of the production objects applied in this turn.
    pub applied: Vec<crate::api::AppliedObject>,
    /// The same for objects of isolated copies, each with the uid of the child that it belongs to.
    pub applied_copies: Vec<(String, crate::api::AppliedObject)>,
    /// Objects that were removed in this turn; of kinds that are not watched nothing else tells.
    pub pruned: BTreeSet<ObjectId>,
    /// Whether the server said that the namespace is being deleted.
    pub terminating: bool,
    /// Pinned Secrets that were looked for and are not there.
    pub absent_pins: BTreeSet<String>,
    /// Numaflow objects that were in the namespace when the server was asked.
    pub dependants: Option<Dependants>,
    /// What was read of leases and pods.
    pub looks: BTreeMap<Look, Evidence>,
    /// Changes of Numaflow objects that the server would accept, as (name of the object, hash of what is wanted).
    pub planned: BTreeSet<(String, String)>,
    /// What was read of the vertices and pods of pipelines, and of the pods of MonoVertices, by name.
    pub planes: BTreeMap<String, DataPlane>,
    /// Instances of isolated copies whose leases were deleted.
    pub deleted_leases: BTreeSet<String>,
    /// Instances of isolated copies that still have pods.
    pub living_copies: BTreeSet<String>,
}

impl Step {
    /// Whether it changes the object that the turn is about, or one that every decision is made from: nothing else that was
    /// decided with it holds then.
    #[must_use]
    pub fn changes_subject(&self) -> bool {
        matches!(
            self,
            Self::WriteStatus { .. }
                | Self::WriteChildStatus { .. }
                | Self::WritePipelineStatus { .. }
                | Self::WriteIsbServiceStatus { .. }
                | Self::WriteMonoVertexStatus { .. }
                | Self::SetFinalizers(_)
        )
    }

    /// Whether it asks for the same as another step that writes an object of Numaflow's, whatever was seen of that object then.
    #[must_use]
    pub fn repeats(&self, other: &Self) -> bool {
        let asks = |step: &Self| match step {
            Self::ApplyNumaflow { kind, body, .. } => Some((*kind, String::new(), body.clone())),
            Self::PatchNumaflow { kind, object, patch, .. } => Some((*kind, object.name.clone(), patch.clone())),
            _ => None,
        };
        asks(self).is_some_and(|asked| asks(other) == Some(asked))
    }

    /// Whether it only reads what Numaflow made of one of its objects.
    #[must_use]
    pub fn is_look_at_plane(&self) -> bool {
        matches!(self, Self::LookAtPipeline { .. } | Self::LookAtMonoVertex { .. })
    }

    /// Whether it lets an object of Numaflow's run again.
    #[must_use]
    pub fn is_resume(&self) -> bool {
        matches!(self, Self::PatchNumaflow { patch, .. }
            if patch["spec"]["lifecycle"].get("desiredPhase").is_some_and(|phase| phase != "Paused"))
    }

    /// Whether it writes an object of Numaflow's.
    #[must_use]
    pub fn is_of_numaflow(&self) -> bool {
        matches!(
            self,
            Self::ApplyNumaflow { .. }
                | Self::CheckNumaflow { .. }
                | Self::PatchNumaflow { .. }
                | Self::DeleteNumaflow { .. }
                | Self::ReleaseNumaflow { .. }
        )
    }

    /// Removes an object that is left over: (identity, API version where known, uid).
    #[must_use]
    pub fn prune((id, version, uid): &(ObjectId, String, String)) -> Self {
        Self::Prune { id: id.clone(), version: version.clone(), uid: uid.clone(), foreground: false }
    }

    /// As [`Self::prune`], but the object is to be seen until its pods are gone.
    #[must_use]
    pub fn prune_with_pods((id, version, uid): &(ObjectId, String, String)) -> Self {
        Self::Prune { id: id.clone(), version: version.clone(), uid: uid.clone(), foreground: true }
    }
}

impl Learned {
    /// Whether the server was asked about this very object, and agreed.
    #[must_use]
    pub fn has_checked(&self, object: &DesiredObject) -> bool {
        self.checked.contains(&(object.id.clone(), object.hash.clone()))
    }

    /// Whether the server was asked to let this child or revision go, and did not.
    #[must_use]
    pub fn stays(&self, name: &str) -> bool {
        let about = |r: &Refusal| matches!(&r.about, About::CleanUp(what) if what == name);
        self.refusals.iter().chain(&self.silences).any(about)
    }

    /// The first refusal of a write of our own kinds.
    #[must_use]
    pub fn own_refusal(&self) -> Option<&Refusal> {
        self.refusals.iter().find(|r| r.about == About::Own)
    }

    /// The first refusal of a change of a wanted phase.
    #[must_use]
    pub fn steering_refusal(&self) -> Option<&Refusal> {
        self.refusals.iter().chain(&self.silences).find(|r| r.about == About::Steering)
    }

    /// The first refusal of a write of our own kinds or of Numaflow's, or that such a write was not answered.
    #[must_use]
    pub fn own_trouble(&self) -> Option<&Refusal> {
        self.refusals.iter().chain(&self.silences).find(|r| r.about == About::Own)
    }

    /// The first refusal, or missing answer, that concerns any of these very objects.
    #[must_use]
    pub fn trouble_with<'a>(&self, objects: impl Iterator<Item = &'a Arc<DesiredObject>>) -> Option<&Refusal> {
        let known: BTreeSet<(&ObjectId, &str)> = objects.map(|o| (&o.id, o.hash.as_str())).collect();
        let about = |r: &&Refusal| match &r.about {
            About::Object(id, hash) => known.contains(&(id, hash.as_str())),
            About::Leftover(_) | About::Own | About::Steering | About::CleanUp(_) => false,
        };
        self.refusals.iter().chain(&self.silences).find(about)
    }

    /// The first refusal that concerns any of these objects (as they are wanted) or leftovers.
    #[must_use]
    pub fn refusal_of(&self, standing: &crate::controller::standing::Standing) -> Option<&Refusal> {
        Self::about(&self.refusals, standing)
    }

    /// The first missing answer that concerns any of these objects (as they are wanted) or leftovers.
    #[must_use]
    pub fn silence_of(&self, standing: &crate::controller::standing::Standing) -> Option<&Refusal> {
        Self::about(&self.silences, standing)
    }

    fn about<'a>(list: &'a [Refusal], standing: &crate::controller::standing::Standing) -> Option<&'a Refusal> {
        list.iter().find(|refusal| match &refusal.about {
            About::Object(id, hash) => standing.to_apply.iter().any(|(o, _)| o.id == *id && o.hash == *hash),
            About::Leftover(id) => standing.leftovers.iter().chain(&standing.orphans).any(|(known, ..)| known == id),
            About::Own | About::Steering | About::CleanUp(_) => false,
        })
    }
}
