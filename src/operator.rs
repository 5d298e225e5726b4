//! The process at work: watches feed the stores, changes fill the queue, workers take turns.
//!
//! A turn is: look (stores only), decide (pure), carry out, and again, until nothing is left to do. Turns of one rollout
//! never overlap, so that the writes to its production objects are in one line.

mod fallbacks;
mod isb_services;
mod mono_vertices;
mod pipelines;
mod triggers;
mod watches;

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Client, core::ObjectMeta};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;

use self::watches::watched_kinds;
use crate::{
    clock::Clock,
    cluster::{Cluster, Failure, Lesson, Subject},
    controller::alone,
    isb,
    manifest::Part,
    metrics::{Metrics, Outcome},
    mono_vertex, observe, pipeline,
    plan::{About, Event, Learned, NOT_KEPT, Plan, Refusal, Step},
    queue::Queue,
    rollout,
    settings::Settings,
    watch::{definition_scopes, names, scopes},
    world::{Decoded, World},
};

/// What a turn is about: namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Task {
    /// A rollout.
    Rollout(String, String),
    /// A NumaflowController without a rollout.
    Controller(String, String),
    /// The rollout of a pipeline.
    Pipeline(String, String),
    /// The rollout of an ISB service.
    IsbService(String, String),
    /// The rollout of a MonoVertex.
    MonoVertex(String, String),
    /// A namespace that is being deleted.
    Namespace(String),
}

impl Task {
    /// Kind of the object that it is about.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Rollout(..) => "NumaflowControllerRollout",
            Self::Controller(..) => "NumaflowController",
            Self::Pipeline(..) => "PipelineRollout",
            Self::IsbService(..) => "ISBServiceRollout",
            Self::MonoVertex(..) => "MonoVertexRollout",
            Self::Namespace(_) => "Namespace",
        }
    }

    /// Namespace and name of that object.
    fn of(&self) -> (&str, &str) {
        match self {
            Self::Rollout(namespace, name)
            | Self::Controller(namespace, name)
            | Self::Pipeline(namespace, name)
            | Self::IsbService(namespace, name)
            | Self::MonoVertex(namespace, name) => (namespace, name),
            Self::Namespace(name) => (name, name),
        }
    }
}

/// Steps after which a turn gives way to others; far more than any attempt takes.
const LONGEST_TURN: usize = 200;
/// First and longest wait before a failed turn is tried again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// Turns without a usable answer before the user is told.
const PATIENCE: u32 = 3;
/// Times in a row that somebody else may be faster before that is said of a write of Numaflow's objects.
const WEATHER: u32 = 10;
/// Longest wait after somebody else was faster.
const LONGEST_CONFLICT: Duration = Duration::from_secs(2);

/// Turns in a row that were not brought to their end.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    /// Somebody else was faster.
    conflicts: u32,
    /// Refused, or not answered.
    others: u32,
}

/// The operator.
pub struct Operator {
    client: Client,
    clock: Clock,
    settings: Settings,
    world: Arc<World>,
    queue: Arc<Queue<Task>>,
    cluster: Cluster,
    metrics: Arc<Metrics>,
    /// Failed turns in a row.
    failures: Mutex<HashMap<Task, Failures>>,
    /// News for users that no turn brings: (about, event).
    news: mpsc::UnboundedSender<(ObjectReference, Event)>,
}

impl Operator {
    /// Serves until `shutdown`, then finishes what is in flight. The clock is a layer of the client.
    ///
    /// # Errors
    /// The config file cannot be used, or a watch ended, which none does by itself: what it fed would be stale for ever,
    /// so the process has to be started again.
    pub async fn run(
        client: Client,
        clock: Clock,
        settings: Settings,
        metrics: Arc<Metrics>,
        shutdown: CancellationToken,
    ) -> Result<(), String> {
        let scopes = scopes(&settings);
        let definitions = definition_scopes(&settings);
        let world = World::new(
            &names(&scopes),
            &names(&definitions),
            &settings.operator_namespace,
            watched_kinds(&settings),
            settings.defaults,
        );
        let world = Arc::new(world);
        let file = match &settings.config {
            Some(path) => Some(fallbacks::open(path, &world).await?),
            None => None,
        };
        metrics.observe(&world);
        let (news, mut incoming) = mpsc::unbounded_channel();
        let operator = Arc::new(Self {
            cluster: Cluster::new(client.clone(), world.clone()),
            queue: Arc::default(),
            failures: Mutex::default(),
            client,
            clock,
            settings,
            world,
            metrics,
            news,
        });
        let mut watches = JoinSet::new();
        operator.watch(&mut watches, &scopes, &definitions);
        operator.watch_changes_configs(&mut watches);
        if let Some(file) = file {
            let operator = operator.clone();
            watches.spawn(async move { operator.follow_file(file).await });
        }
        let reporter = operator.clone();
        watches.spawn(async move {
            while let Some((about, event)) = incoming.recv().await {
                reporter.cluster.publish(&about, &event).await;
            }
        });
        let mut workers = JoinSet::new();
        let mut broken = None;
        if operator.synced(&shutdown).await {
            // Not before: the clock is right since the first answer.
            operator.world.begin(operator.clock.now());
            operator.metrics.set_ready(true);
            tracing::info!("all caches are synced, at work");
            for _ in 0..operator.settings.workers.max(1) {
                workers.spawn(operator.clone().work());
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                ended = watches.join_next() => broken = Some(format!("a watch ended: {ended:?}")),
            }
        }
        operator.metrics.set_ready(false);
        operator.queue.close();
        while workers.join_next().await.is_some() {}
        watches.shutdown().await;
        broken.map_or(Ok(()), Err)
    }

    /// Waits until every store has listed; `false` if the process is to end before.
    async fn synced(&self, shutdown: &CancellationToken) -> bool {
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        let mut said = Instant::now();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return false,
                _ = tick.tick() => {}
            }
            let waiting = self.world.unsynced();
            if waiting.is_empty() {
                return true;
            }
            if said.elapsed() > Duration::from_secs(10) {
                said = Instant::now();
                tracing::info!(waiting = waiting.join(", "), "waiting for the first lists");
            }
        }
    }

    // ---- turns --------------------------------------------------------------------------------------------------

    async fn work(self: Arc<Self>) {
        while let Some(task) = self.queue.next().await {
            let started = Instant::now();
            // One object that brings a turn down must not take the worker, and so the others, with it.
            let turn = AssertUnwindSafe(self.turn(&task)).catch_unwind().await;
            let after = turn.unwrap_or_else(|_| {
                tracing::error!(?task, "a turn panicked: this is a mistake in the operator, please report it");
                Outcome::Failed("panic".to_owned())
            });
            self.metrics.turn(&task, &after, started.elapsed());
            let wait = self.wait(&task, &after);
            self.queue.done(&task);
            if let Some(wait) = wait {
                self.queue.add_after(task, wait);
            }
        }
    }

    /// When a task is due again; `None` for one that is about nothing any more.
    fn wait(&self, task: &Task, after: &Outcome) -> Option<Duration> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match after {
            Outcome::Gone => {
                failures.remove(task);
                None
            }
            Outcome::Settled(again) => {
                failures.remove(task);
                Some(again.unwrap_or(self.settings.resync).min(self.settings.resync))
            }
            // Somebody else was faster; what they wrote is about to be seen.
            Outcome::Conflict => {
                let count = failures.entry(task.clone()).or_default();
                count.conflicts = count.conflicts.saturating_add(1);
                Some(backoff(count.conflicts).min(LONGEST_CONFLICT))
            }
            Outcome::Refused(_) | Outcome::Failed(_) | Outcome::Long => {
                let count = failures.entry(task.clone()).or_default();
                count.others = count.others.saturating_add(1);
                // A refusal of one thing must not keep another from being looked at in time.
                let again = match after {
                    Outcome::Refused(again) => again.unwrap_or(BACKOFF.1),
                    _ => BACKOFF.1,
                };
                Some(backoff(count.others).min(again.max(BACKOFF.0)))
            }
        }
    }

    fn failures_of(&self, task: &Task) -> Failures {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).get(task).copied().unwrap_or_default()
    }

    async fn turn(&self, task: &Task) -> Outcome {
        let mut learned = Learned::default();
        let mut refused: Vec<Step> = Vec::new();
        let mut written: Vec<Step> = Vec::new();
        for _ in 0..LONGEST_TURN {
            let Some((subject, plan)) = self.decide(task, &learned) else { return Outcome::Gone };
            if plan.steps.is_empty() {
                return if refused.is_empty() {
                    Outcome::Settled(plan.again_after)
                } else {
                    Outcome::Refused(plan.again_after)
                };
            }
            for step in &plan.steps {
                if refused.contains(step) {
                    return Outcome::Refused(plan.again_after);
                }
                tracing::debug!(?task, ?step, "step");
                if written.iter().any(|before| step.repeats(before)) {
                    // Written, and changed back: by a webhook, another controller, or the server's own defaults.
                    let refusal = not_kept(step);
                    tracing::warn!(?task, says = refusal.message, "not kept by the server");
                    learned.refusals.push(refusal);
                    refused.push(step.clone());
                    break;
                }
                match self.cluster.carry_out(&subject, step).await {
                    Ok(lessons) => lessons.into_iter().for_each(|lesson| learn(&mut learned, lesson)),
                    Err(Failure::Conflict) => {
                        let conflicts = self.failures_of(task).conflicts;
                        if !step.is_of_numaflow() || conflicts < WEATHER || !learned.silences.is_empty() {
                            return Outcome::Conflict;
                        }
                        // Somebody is faster each time, or says so: deadlines go on counting.
                        learned.silences.push(overtaken(step));
                        refused.push(step.clone());
                        break;
                    }
                    Err(Failure::Terminating) => {
                        if learned.terminating {
                            return Outcome::Refused(None);
                        }
                        learned.terminating = true;
                        break;
                    }
                    Err(Failure::Refused(refusal)) => {
                        tracing::warn!(?task, reason = refusal.reason, says = refusal.message, "refused by the server");
                        if matches!(step, Step::WriteStatus { .. }) {
                            // There is nowhere left to say so.
                            return Outcome::Refused(None);
                        }
                        // A pipeline is resumed although its status cannot be written.
                        learned.refusals.push(*refusal);
                        refused.push(step.clone());
                        break;
                    }
                    Err(Failure::Silent(silence)) => {
                        tracing::warn!(?task, says = silence.message, "no usable answer, trying again");
                        // Once or twice is weather; after that the user is told, and deadlines go on counting.
                        if (silence.about == About::Own && !step.is_of_numaflow())
                            || (self.failures_of(task).others < PATIENCE && !matches!(step, Step::CheckNumaflow { .. }))
                            || !learned.silences.is_empty()
                        {
                            return Outcome::Failed(silence.message);
                        }
                        learned.silences.push(*silence);
                        refused.push(step.clone());
                        break;
                    }
                }
                Self::log(task, step);
                self.after(&subject, step);
                if step.is_of_numaflow() {
                    written.push(step.clone());
                }
                // Each of these changes what was decided from.
                if step.changes_subject() {
                    break;
                }
            }
        }
        Outcome::Long
    }

    fn decide(&self, task: &Task, learned: &Learned) -> Option<(Subject, Plan)> {
        let now = self.clock.now();
        match task {
            Task::Rollout(namespace, name) => {
                let decoded = self.world.rollouts.get(namespace, name)?;
                let found = good(task, &decoded)?;
                let snapshot = observe::rollout(&self.world, &self.settings, found, learned);
                let plan = rollout::decide(&snapshot, &self.world.defaults(namespace), now);
                Some((Subject::Rollout(found.clone()), plan))
            }
            Task::Controller(namespace, name) => {
                let decoded = self.world.controllers.get(namespace, name)?;
                let found = decoded.good().filter(|c| !observe::is_child(c))?;
                let snapshot = observe::alone(&self.world, &self.settings, found, learned);
                Some((Subject::Controller(found.clone()), alone::decide(&snapshot, now)))
            }
            Task::Pipeline(namespace, name) => {
                let decoded = self.world.pipeline_rollouts.get(namespace, name)?;
                let found = good(task, &decoded)?;
                let snapshot = observe::pipeline(&self.world, &self.settings, found, learned);
                let plan = pipeline::decide(&snapshot, now);
                Some((Subject::Pipeline(found.clone()), plan))
            }
            Task::IsbService(namespace, name) => {
                let decoded = self.world.isb_rollouts.get(namespace, name)?;
                let found = good(task, &decoded)?;
                let snapshot = observe::isb_service(&self.world, &self.settings, found, learned);
                let plan = isb::decide(&snapshot, &self.world.defaults(namespace), now);
                Some((Subject::IsbService(found.clone()), plan))
            }
            Task::MonoVertex(namespace, name) => {
                let decoded = self.world.mono_vertex_rollouts.get(namespace, name)?;
                let found = good(task, &decoded)?;
                let snapshot = observe::mono_vertex(&self.world, found, learned);
                let plan = mono_vertex::decide(&snapshot, now);
                Some((Subject::MonoVertex(found.clone()), plan))
            }
            Task::Namespace(name) => {
                let leaving = observe::leaving(&self.world, name)?;
                let metadata =
                    ObjectMeta { name: Some(name.clone()), namespace: Some(name.clone()), ..ObjectMeta::default() };
                Some((Subject::Namespace(Box::new(metadata)), pipeline::leave(&leaving, now)))
            }
        }
    }

    /// One line per decision that changed something.
    fn log(task: &Task, step: &Step) {
        let (kind, (namespace, name)) = (task.kind(), task.of());
        match step {
            Step::WriteStatus { status, .. } => {
                let stage = status.upgrade.as_ref().map(|u| u.stage.as_str()).unwrap_or_default();
                tracing::info!(
                    kind,
                    namespace,
                    name,
                    phase = status.phase.as_str(),
                    stage,
                    says = status.message,
                    "status"
                );
            }
            Step::CreateChild { name: child, state, .. } => {
                tracing::info!(kind, namespace, name, child, %state, "child created");
            }
            Step::LabelChild { child, state } => {
                tracing::info!(kind, namespace, name, child = child.name, %state, "child relabelled");
            }
            Step::DeleteChild { child } => tracing::info!(kind, namespace, name, child = child.name, "child deleted"),
            Step::Apply { object, .. } => tracing::info!(kind, namespace, name, object = %object.id, "applied"),
            Step::Recreate { object, .. } => {
                tracing::info!(kind, namespace, name, object = %object.id, "taken away to be made anew");
            }
            Step::Prune { id, .. } => tracing::info!(kind, namespace, name, object = %id, "removed"),

            Step::Pin(pin) => tracing::info!(kind, namespace, name, revision = pin.name, "definition pinned"),
            Step::WritePipelineStatus { status, .. } => {
                let pause = status.pause.as_ref().map(|p| p.state.as_str()).unwrap_or_default();
                tracing::info!(
                    kind,
                    namespace,
                    name,
                    phase = status.phase.as_str(),
                    pause,
                    says = status.message,
                    "status"
                );
            }
            Step::WriteIsbServiceStatus { status, .. } => {
                let stage = status.change.as_ref().map(|c| c.stage.as_str()).unwrap_or_default();
                let (phase, says) = (status.phase.as_str(), &status.message);
                tracing::info!(kind, namespace, name, phase, stage, says, "status");
            }
            Step::WriteMonoVertexStatus { status, .. } => {
                let pause = status.pause.as_ref().map(|p| p.state.as_str()).unwrap_or_default();
                let (phase, says) = (status.phase.as_str(), &status.message);
                tracing::info!(kind, namespace, name, phase, pause, says, "status");
            }
            Step::ApplyNumaflow { kind: what, body, expect } => {
                let object = format!("{what}/{}", body["metadata"]["name"].as_str().unwrap_or_default());
                tracing::info!(kind, namespace, name, object, new = expect.is_none(), "applied");
            }
            Step::PatchNumaflow { kind: what, object, patch, why } => {
                tracing::info!(kind, namespace, name, object = %format_args!("{what}/{}", object.name), %patch, why, "changed");
            }
            Step::ReleaseNumaflow { kind: what, object, finalizer } => {
                tracing::info!(kind, namespace, name, object = %format_args!("{what}/{}", object.name), finalizer, "released");
            }
            Step::DeleteNumaflow { kind: what, object } => {
                tracing::info!(kind, namespace, name, object = %format_args!("{what}/{}", object.name), "deleted");
            }
            Step::LookAtPipeline { .. }
            | Step::LookAtMonoVertex { .. }
            | Step::CheckNumaflow { .. }
            | Step::SetFinalizers(_)
            | Step::ReadPin { .. }
            | Step::Look(_)
            | Step::AskDependants
            | Step::DeleteLease { .. }
            | Step::Check(_)
            | Step::WriteChildStatus { .. }
            | Step::DeleteRevision { .. } => {}
        }
    }
}

fn learn(learned: &mut Learned, lesson: Lesson) {
    match lesson {
        Lesson::Checked(id, hash) => {
            learned.checked.insert((id, hash));
        }
        Lesson::Immutable(id) => {
            learned.immutable.insert(id);
        }
        Lesson::Applied(Part::Production, entry) => learned.applied.push(entry),
        Lesson::Applied(Part::Isolated { uid, .. }, entry) => learned.applied_copies.push((uid, entry)),
        Lesson::Pruned(id) => {
            learned.pruned.insert(id);
        }
        Lesson::AbsentPin(secret) => {
            learned.absent_pins.insert(secret);
        }
        Lesson::Dependants(dependants) => learned.dependants = Some(dependants),
        Lesson::Seen(look, evidence) => {
            learned.looks.insert(look, evidence);
        }
        Lesson::PlaneSeen(pipeline, plane) => {
            learned.planes.insert(pipeline, plane);
        }
        Lesson::Planned(name, hash) => {
            learned.planned.insert((name, hash));
        }
        Lesson::PlanesChanged => learned.planes.clear(),
        Lesson::LeaseDeleted(instance) => {
            learned.deleted_leases.insert(instance);
        }
        Lesson::CopyLives(instance) => {
            learned.living_copies.insert(instance);
        }
    }
}

/// What was decoded; of what was not, a word in the log.
fn good<'d, T>(task: &Task, decoded: &'d Decoded<T>) -> Option<&'d Arc<T>> {
    match decoded {
        Decoded::Good(found) => Some(found),
        Decoded::Bad(error) => {
            tracing::warn!(?task, error, "cannot be decoded; left as it is");
            None
        }
    }
}

/// What a write of Numaflow's objects is about, and the object.
fn of_numaflow(step: &Step) -> (About, String) {
    match step {
        Step::PatchNumaflow { kind, object, .. } => (About::Steering, format!("{kind}/{}", object.name)),
        Step::DeleteNumaflow { kind, object } => (About::Own, format!("{kind}/{}", object.name)),
        Step::ApplyNumaflow { kind, body, .. } => {
            (About::Own, format!("{kind}/{}", body["metadata"]["name"].as_str().unwrap_or_default()))
        }
        _ => (About::Own, "an object".to_owned()),
    }
}

/// What is said where somebody else was faster again and again.
fn overtaken(step: &Step) -> Refusal {
    let (about, what) = of_numaflow(step);
    let message = format!("{what}: the server says again and again that somebody else has just changed it");
    Refusal { about, reason: "Conflict".to_owned(), message }
}

/// What is said of a write that does not last.
fn not_kept(step: &Step) -> Refusal {
    let (about, what) = of_numaflow(step);
    let message = format!(
        "{what}: what is written is changed back at once, by a webhook, another controller or the server's own defaults"
    );
    Refusal { about, reason: NOT_KEPT.to_owned(), message }
}

/// The wait after so many failures in a row: doubling, with a spread that keeps many from coming back at once.
fn backoff(count: u32) -> Duration {
    let wait = BACKOFF.0.saturating_mul(1 << count.saturating_sub(1).min(16)).min(BACKOFF.1);
    let spread = f64::from(Timestamp::now().subsec_nanosecond().unsigned_abs() % 1000) / 5000.0;
    wait.mul_f64(0.9 + spread)
}
