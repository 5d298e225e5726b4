//! The webhook's process: what it knows, the certificates that it shows, and the server, until it is asked to end.

use std::{net::TcpListener, sync::Arc, time::Duration};

use kube::Client;
use tokio_util::sync::CancellationToken;

use super::{Certificates, Knowledge, Limits, Source, WebhookMetrics, router, serve};
use crate::{clock::Clock, metrics::Metrics, settings::Settings};

/// Time between two looks at whether everything is known.
const LOOK: Duration = Duration::from_millis(50);

/// Serves until `shutdown`, then until nobody is owed an answer. The clock is a layer of the client.
///
/// # Errors
/// There is no certificate that can be served, the listener cannot be used, or a watch ended, which none does by itself: what it
/// fed would be stale for ever, so the process has to be started again.
#[allow(clippy::too_many_arguments)] // the parts of a process, each of its own type
pub async fn run(
    client: Client,
    clock: Clock,
    settings: Settings,
    source: Source,
    limits: Limits,
    listener: TcpListener,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
) -> Result<(), String> {
    let webhook_metrics = WebhookMetrics::register(metrics.clone()).map_err(|error| error.to_string())?;
    let knowledge = Arc::new(Knowledge::start(client.clone(), settings, webhook_metrics.clone()));
    let router = router(knowledge.clone(), webhook_metrics.clone());
    let tls = match Certificates::start(source, client, clock, webhook_metrics.clone(), shutdown.clone()).await {
        Ok(tls) => tls,
        // Asked to end before there was a certificate.
        Err(_) if shutdown.is_cancelled() => return Ok(()),
        Err(words) => return Err(words),
    };
    let ended = async {
        while !knowledge.ready() {
            tokio::time::sleep(LOOK).await;
        }
        if !shutdown.is_cancelled() {
            metrics.set_ready(true);
            tracing::info!("all caches are synced, at work");
        }
        while knowledge.ready() {
            tokio::time::sleep(LOOK).await;
        }
        metrics.set_ready(false);
        "a watch ended".to_owned()
    };
    tokio::select! {
        served = serve(listener, router, &tls, limits, webhook_metrics, shutdown.clone()) => served,
        words = ended => Err(words),
    }
}
