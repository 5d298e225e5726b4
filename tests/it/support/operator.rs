//! An operator in this process.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use numaplane::{
    api::Strategy,
    definitions::PermittedKinds,
    metrics::Metrics,
    operator::Operator,
    settings::{Defaults, Settings},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{control_plane::control_plane, faults::Faults, wait::eventually};

/// A running operator; ends, as by a crash, when dropped.
pub struct Running {
    /// What it counts.
    pub metrics: Arc<Metrics>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), String>>,
}

/// Settings for tests: nothing is waited for longer than must be, and nothing happens just because time passes.
pub fn settings(operator_namespace: &str, namespaces: impl IntoIterator<Item = String>) -> Settings {
    Settings {
        operator_namespace: operator_namespace.to_owned(),
        namespaces: BTreeSet::from_iter(namespaces),
        definitions_anywhere: false,
        permitted: PermittedKinds::default(),
        defaults: Defaults {
            strategy: Strategy::Progressive,
            deadline: Duration::from_mins(1),
            window: Duration::ZERO,
            interval: Duration::from_millis(200),
            ..Defaults::default()
        },
        config: None,
        resync: Duration::from_mins(10),
        workers: 4,
    }
}

impl Running {
    /// Starts an operator and waits until it is at work.
    pub async fn start(settings: Settings, faults: Faults, act_as: Option<&str>) -> Self {
        let (client, clock) = control_plane().operator(&faults, act_as).await;
        let metrics = Arc::new(Metrics::new().expect("metrics can be made"));
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(Operator::run(client, clock, settings, metrics.clone(), shutdown.clone()));
        eventually("the operator is ready", async || {
            metrics.ready().then_some(()).ok_or_else(|| "not ready".to_owned())
        })
        .await;
        Self { metrics, shutdown, task }
    }

    /// Ends it in good order.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(30), &mut self.task).await;
        ended.expect("the operator ends when asked to").expect("the operator does not panic").expect("no watch ends");
    }

    /// Ends it as a crash does: whatever was in flight is lost.
    pub async fn kill(mut self) {
        self.task.abort();
        // Cancelled, which is what was asked for.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
