//! The one room that writes to the cluster: carries out steps, and says what was learned from the answers.
//!
//! Every write has a time limit, states what it expects to find (uid or resourceVersion), and can be repeated. Answers go
//! into the stores at once, so that the next decision is never made from something older than this write.

mod answer;
mod certificates;
mod dataplane;
mod look;
mod own;
mod production;

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::{core::v1::ObjectReference, events},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client, Resource,
    api::{PostParams, PropagationPolicy},
    core::ObjectMeta,
};

use self::answer::limited;
pub use self::certificates::{CertificateStore, Registration};
use crate::{
    api::{
        AppliedObject, IsbServiceRollout, MonoVertexRollout, NumaflowController, NumaflowControllerRollout,
        PipelineRollout, fit, mark_of_controller, mark_of_rollout,
    },
    evidence::{Evidence, Look},
    kinds::Kinds,
    live::ObjectId,
    manifest::Part,
    numaflow::{DataPlane, Dependants},
    plan::{Event, Refusal, Step},
    world::World,
};

/// Longest time for one request.
const LIMIT: Duration = Duration::from_secs(10);

/// The object that a turn is about.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A rollout.
    Rollout(Arc<NumaflowControllerRollout>),
    /// A NumaflowController without a rollout.
    Controller(Arc<NumaflowController>),
    /// The rollout of a pipeline.
    Pipeline(Arc<PipelineRollout>),
    /// The rollout of an ISB service.
    IsbService(Arc<IsbServiceRollout>),
    /// The rollout of a MonoVertex.
    MonoVertex(Arc<MonoVertexRollout>),
    /// A namespace that is being deleted, with only its own name as its namespace.
    Namespace(Box<ObjectMeta>),
}

impl Subject {
    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Rollout(r) => &r.metadata,
            Self::Controller(c) => &c.metadata,
            Self::Pipeline(p) => &p.metadata,
            Self::IsbService(i) => &i.metadata,
            Self::MonoVertex(m) => &m.metadata,
            Self::Namespace(metadata) => metadata,
        }
    }

    /// Its kind.
    fn kind(&self) -> &'static str {
        match self {
            Self::Rollout(_) => "NumaflowControllerRollout",
            Self::Controller(_) => "NumaflowController",
            Self::Pipeline(_) => "PipelineRollout",
            Self::IsbService(_) => "ISBServiceRollout",
            Self::MonoVertex(_) => "MonoVertexRollout",
            Self::Namespace(_) => "Namespace",
        }
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.meta().namespace.as_deref().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.meta().name.as_deref().unwrap_or_default()
    }

    /// Mark of its production objects.
    fn mark(&self) -> String {
        match self {
            Self::Controller(_) => mark_of_controller(self.name()),
            // The others produce nothing that is marked.
            _ => mark_of_rollout(self.name()),
        }
    }

    fn reference(&self) -> ObjectReference {
        match self {
            Self::Rollout(r) => ObjectReference { resource_version: None, ..r.object_ref(&()) },
            Self::Controller(c) => ObjectReference { resource_version: None, ..c.object_ref(&()) },
            Self::Pipeline(p) => ObjectReference { resource_version: None, ..p.object_ref(&()) },
            Self::IsbService(i) => ObjectReference { resource_version: None, ..i.object_ref(&()) },
            Self::MonoVertex(m) => ObjectReference { resource_version: None, ..m.object_ref(&()) },
            Self::Namespace(metadata) => ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Namespace".to_owned()),
                name: metadata.name.clone(),
                uid: metadata.uid.clone(),
                ..ObjectReference::default()
            },
        }
    }
}

/// What a step taught.
#[derive(Clone, Debug, PartialEq)]
pub enum Lesson {
    /// The server agrees with this object.
    Checked(ObjectId, String),
    /// The server will not change this object in place.
    Immutable(ObjectId),
    /// The object is applied, with this fingerprint.
    Applied(Part, AppliedObject),
    /// The object is gone or going.
    Pruned(ObjectId),
    /// There is no such Secret.
    AbsentPin(String),
    /// Numaflow objects in the namespace.
    Dependants(Dependants),
    /// What was read of a lease and of pods.
    Seen(Look, Evidence),
    /// What was read of the vertices and pods of the pipeline, or of the pods of the MonoVertex, of this name.
    PlaneSeen(String, DataPlane),
    /// The server would accept this change of a Numaflow object, with this hash of what is wanted.
    Planned(String, String),
    /// Vertices were changed: what was read of them is old.
    PlanesChanged,
    /// The lease of the isolated copy with this instance is gone.
    LeaseDeleted(String),
    /// The isolated copy with this instance still has pods.
    CopyLives(String),
}

/// Why a step was not carried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// Somebody else was faster: look again.
    Conflict,
    /// The namespace is being deleted.
    Terminating,
    /// The server says no.
    Refused(Box<Refusal>),
    /// No answer, or none that means anything: try again.
    Silent(Box<Refusal>),
}

/// The cluster, to be written to.
pub struct Cluster {
    client: Client,
    world: Arc<World>,
    kinds: Kinds,
}

impl Cluster {
    /// A writer for this client; answers go into `world`.
    #[must_use]
    pub fn new(client: Client, world: Arc<World>) -> Self {
        Self { client, world, kinds: Kinds::default() }
    }

    /// Carries out one step.
    ///
    /// # Errors
    /// The step was not carried out, see [`Failure`].
    pub async fn carry_out(&self, subject: &Subject, step: &Step) -> Result<Vec<Lesson>, Failure> {
        let namespace = subject.namespace();
        match step {
            Step::SetFinalizers(finalizers) => self.set_finalizers(subject, finalizers).await?,
            Step::WriteStatus { status, events } => {
                self.write_status::<NumaflowControllerRollout>(subject, status).await?;
                for event in events {
                    self.publish(&subject.reference(), event).await;
                }
            }
            Step::ReadPin { secret } => return self.read_pin(namespace, secret).await,
            Step::Look(look) => return Ok(vec![Lesson::Seen(look.clone(), self.look(namespace, look).await)]),
            Step::AskDependants => return Ok(vec![Lesson::Dependants(self.dependants(namespace).await)]),
            Step::Pin(pin) => self.pin(subject, pin).await?,
            Step::Check(objects) => return self.check(subject, objects).await,
            Step::CreateChild { name, spec, state } => self.create_child(subject, name, spec, *state).await?,
            Step::LabelChild { child, state } => self.label_child(subject, child, *state).await?,
            Step::WriteChildStatus { child, status } => {
                self.write_status_of::<NumaflowController>(namespace, child, status).await?;
            }
            Step::DeleteChild { child } => {
                self.delete_child(namespace, child).await?;
            }
            Step::Apply { object, uid } => return self.apply(subject, object, uid.as_deref()).await,
            Step::Recreate { object, uid, event } => return self.recreate(subject, object, uid, event).await,
            Step::Prune { id, version, uid, foreground } => {
                let policy = if *foreground { PropagationPolicy::Foreground } else { PropagationPolicy::Background };
                return self.prune(namespace, id, version, uid, policy).await;
            }
            Step::DeleteLease { instance } => return Ok(vec![self.delete_lease(namespace, instance).await]),
            Step::WritePipelineStatus { status, events } => {
                self.write_status::<PipelineRollout>(subject, status).await?;
                for event in events {
                    self.publish(&subject.reference(), event).await;
                }
            }
            Step::WriteIsbServiceStatus { status, events } => {
                self.write_status::<IsbServiceRollout>(subject, status).await?;
                for event in events {
                    self.publish(&subject.reference(), event).await;
                }
            }
            Step::WriteMonoVertexStatus { status, events } => {
                self.write_status::<MonoVertexRollout>(subject, status).await?;
                for event in events {
                    self.publish(&subject.reference(), event).await;
                }
            }
            Step::ApplyNumaflow { kind, body, expect } => {
                self.apply_numaflow(subject, kind, body, expect.as_ref()).await?;
            }
            Step::CheckNumaflow { kind, body, expect } => {
                return self.check_numaflow(subject, kind, body, expect).await;
            }
            Step::PatchNumaflow { kind, object, patch, .. } => {
                return self.patch_numaflow(namespace, kind, object, patch).await;
            }
            Step::DeleteNumaflow { kind, object } => self.delete_numaflow(namespace, kind, object).await?,
            Step::ReleaseNumaflow { kind, object, finalizer } => {
                self.release_numaflow(namespace, kind, object, finalizer).await?;
            }
            Step::LookAtPipeline { name } => {
                return Ok(vec![Lesson::PlaneSeen(name.clone(), self.look_at_pipeline(namespace, name).await)]);
            }
            Step::LookAtMonoVertex { name } => {
                return Ok(vec![Lesson::PlaneSeen(name.clone(), self.look_at_mono_vertex(namespace, name).await)]);
            }
            Step::DeleteRevision { name, uid } => self.delete_revision(namespace, name, uid).await?,
        }
        Ok(Vec::new())
    }

    /// Tells the user something. That it cannot be told fails nothing.
    ///
    /// Own code rather than kube's `Recorder`, which merges events that differ in their note only and keeps the first
    /// note, and which makes names that are too long for objects with long names.
    pub async fn publish(&self, about: &ObjectReference, event: &Event) {
        let now = jiff::Timestamp::now();
        let namespace = about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name = fit(about.name.as_deref().unwrap_or_default(), 220);
        let body = events::v1::Event {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            action: Some(event.reason.to_owned()),
            event_time: Some(MicroTime(now)),
            note: Some(crate::api::cut(&event.note, 1000)),
            reason: Some(event.reason.to_owned()),
            regarding: Some(about.clone()),
            reporting_controller: Some("numaplane.numaproj.io/controller".to_owned()),
            reporting_instance: Some("numaplane".to_owned()),
            type_: Some(if event.warning { "Warning" } else { "Normal" }.to_owned()),
            ..events::v1::Event::default()
        };
        let api: Api<events::v1::Event> = Api::namespaced(self.client.clone(), &namespace);
        if let Err(error) = limited(api.create(&PostParams::default(), &body)).await {
            tracing::debug!(%error, reason = event.reason, "an event was not published");
        }
    }
}
