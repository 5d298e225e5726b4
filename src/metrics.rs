//! What Prometheus sees of the process, and whether it is ready.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder,
};

use crate::{operator::Task, world::World};

/// How a turn ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// There is no such object.
    Gone,
    /// Nothing is left to do; look again after this time at the latest.
    Settled(Option<Duration>),
    /// Somebody else was faster.
    Conflict,
    /// The server says no.
    Refused(Option<Duration>),
    /// No usable answer: what was said.
    Failed(String),
    /// Gave way to others.
    Long,
}

impl Outcome {
    fn label(&self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Settled(_) => "settled",
            Self::Conflict => "conflict",
            Self::Refused(_) => "refused",
            Self::Failed(_) => "failed",
            Self::Long => "long",
        }
    }
}

/// The metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    turns: IntCounterVec,
    seconds: HistogramVec,
    definitions: IntGaugeVec,
    invalid: IntGaugeVec,
    ready: AtomicBool,
    ending: AtomicBool,
    synced: IntGauge,
    world: OnceLock<Arc<World>>,
}

impl Metrics {
    /// Metrics in a registry of their own.
    ///
    /// # Errors
    /// A metric is named twice: a mistake in this file.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let turns = IntCounterVec::new(
            Opts::new(
                "numaplane_reconciles_total",
                "Reconciles by kind and outcome. Alert on a rising share of refused and failed ones.",
            ),
            &["kind", "outcome"],
        )?;
        let seconds = HistogramVec::new(
            HistogramOpts::new("numaplane_reconcile_duration_seconds", "Time of one reconcile.")
                // A settled one makes no request (well below a millisecond); one that applies a version makes a dozen.
                .buckets(vec![0.0005, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0]),
            &["kind"],
        )?;
        let definitions = IntGaugeVec::new(
            Opts::new(
                "numaplane_definitions",
                "Controller definitions by state (good, malformed, ambiguous). Alert on malformed and ambiguous ones.",
            ),
            &["state"],
        )?;
        let invalid = IntGaugeVec::new(
            Opts::new(
                "numaplane_config_invalid",
                "Configurations that cannot be used as they are, by source: the operator's file, ConfigMaps of \
                 namespaces, and those that say which changes need what. Alert on any.",
            ),
            &["source"],
        )?;
        let build =
            IntGaugeVec::new(Opts::new("numaplane_build_info", "Version of the operator; always 1."), &["version"])?;
        let synced = IntGauge::new("numaplane_synced", "1 while all caches are synced.")?;
        registry.register(Box::new(turns.clone()))?;
        registry.register(Box::new(seconds.clone()))?;
        registry.register(Box::new(definitions.clone()))?;
        registry.register(Box::new(invalid.clone()))?;
        registry.register(Box::new(build.clone()))?;
        registry.register(Box::new(synced.clone()))?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Ok(Self {
            registry,
            turns,
            seconds,
            definitions,
            invalid,
            ready: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            synced,
            world: OnceLock::new(),
        })
    }

    /// Shows what this world holds.
    pub fn observe(&self, world: &Arc<World>) {
        // The first one stays: a process has one world.
        let _ = self.world.set(world.clone());
    }

    /// Counts a turn.
    pub fn turn(&self, task: &Task, outcome: &Outcome, took: Duration) {
        let kind = task.kind();
        self.turns.with_label_values(&[kind, outcome.label()]).inc();
        self.seconds.with_label_values(&[kind]).observe(took.as_secs_f64());
    }

    /// How many reconciles there have been.
    #[must_use]
    pub fn turns(&self) -> u64 {
        prometheus::core::Collector::collect(&self.seconds)
            .iter()
            .flat_map(prometheus::proto::MetricFamily::get_metric)
            .map(|m| m.get_histogram().get_sample_count())
            .sum()
    }

    /// Says whether the process is ready.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
        self.synced.set(i64::from(ready));
    }

    /// The process is ending: from now on it is not ready, whatever is synced.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// Whether the process is ready.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) && !self.ending.load(Ordering::Acquire)
    }

    /// Where rooms of one kind of process register what is theirs alone.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The text that Prometheus reads.
    #[must_use]
    pub fn text(&self) -> String {
        if let Some(world) = self.world.get() {
            let counts = world.catalogue.read().unwrap_or_else(std::sync::PoisonError::into_inner).counts();
            let set = |state: &str, count: usize| {
                self.definitions.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
            };
            set("good", counts.good);
            set("malformed", counts.malformed);
            set("ambiguous", counts.ambiguous);
            let invalid = world.fallbacks.read().unwrap_or_else(std::sync::PoisonError::into_inner).invalid();
            let set = |source: &str, count: usize| {
                self.invalid.with_label_values(&[source]).set(i64::try_from(count).unwrap_or(i64::MAX));
            };
            set("file", invalid.file);
            set("namespace", invalid.namespaces);
            set("changes", world.rulebook.read().unwrap_or_else(std::sync::PoisonError::into_inner).invalid());
        }
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            tracing::warn!(%error, "metrics cannot be written");
        }
        String::from_utf8_lossy(&text).into_owned()
    }
}
