//! The webhook's process: what it knows, the certificates that it shows, and the server, until it is asked to end.

use std::{net::TcpListener, sync::Arc};

use kube::Client;
use tokio_util::sync::CancellationToken;

use super::{Certificates, Knowledge, Limits, Source, Watches, WebhookMetrics, router, serve};
use crate::{clock::Clock, metrics::Metrics, settings::Settings};

/// What the webhook's process is made of.
pub struct Webhook {
    /// The way to the API server.
    pub client: Client,
    /// A layer of the client.
    pub clock: Clock,
    /// What the platform team has set.
    pub settings: Settings,
    /// Where the certificate comes from.
    pub source: Source,
    /// What it takes upon itself.
    pub limits: Limits,
    /// Where it is called.
    pub listener: TcpListener,
    /// The metrics of the process.
    pub metrics: Arc<Metrics>,
}

impl Webhook {
    /// Serves until `shutdown`, then until nobody is owed an answer.
    ///
    /// # Errors
    /// There is no certificate that can be served, the listener cannot be used, or a watch ended, which none does by itself: what
    /// it fed would be stale for ever, so the process has to be started again. Nobody is owed an answer then either.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), String> {
        let Self { client, clock, settings, source, limits, listener, metrics } = self;
        let metrics = WebhookMetrics::register(metrics).map_err(|error| error.to_string())?;
        let knowledge = Arc::new(Knowledge::new(client.clone(), settings, metrics.clone()));
        let mut watches = Watches::start(&knowledge);
        // Of the server, whoever asks for it.
        let end = shutdown.child_token();
        let tls = tokio::select! {
            tls = Certificates::start(source, client, clock, metrics.clone(), end.clone()) => match tls {
                Ok(tls) => tls,
                // Asked to end before there was a certificate.
                Err(_) if end.is_cancelled() => return Ok(()),
                Err(words) => return Err(words),
            },
            // Nobody is served yet.
            ended = watches.ended() => return Err(ended),
        };
        let served = serve(listener, router(knowledge, metrics.clone()), &tls, limits, metrics.clone(), end.clone());
        tokio::pin!(served);
        tokio::select! {
            served = &mut served => served,
            ended = at_work(&mut watches, metrics.process(), &end) => {
                tracing::error!(why = ended, "the webhook has to be started again");
                end.cancel();
                served.await?;
                Err(ended)
            }
        }
    }
}

/// Says that the process is ready once everything is known, until a watch ends: why.
async fn at_work(watches: &mut Watches, metrics: &Metrics, end: &CancellationToken) -> String {
    let ended = match watches.synced().await {
        Ok(()) => {
            if !end.is_cancelled() {
                metrics.set_ready(true);
                tracing::info!("all caches are synced, at work");
            }
            watches.ended().await
        }
        Err(ended) => ended,
    };
    metrics.set_ready(false);
    ended
}

#[cfg(test)]
mod tests;
