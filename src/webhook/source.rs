//! Where the webhook's certificate comes from: a folder that somebody else fills, or a Secret of its own.

use std::{path::PathBuf, sync::Arc};

use kube::Client;
use tokio_util::sync::CancellationToken;

use super::{Tls, WebhookMetrics, certificates::Terms, managed, mounted::Mounted};
use crate::clock::Clock;

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// From `tls.crt`, `tls.key` and, if it is there, `ca.crt` in this folder, which cert-manager or somebody else fills.
    Mounted(PathBuf),
    /// The webhook's own.
    Managed(Managed),
}

/// Certificates of the webhook's own, which all replicas share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// Name of the ValidatingWebhookConfiguration whose webhooks are to trust the CA; `None` where somebody else sees to that.
    pub configuration: Option<String>,
    /// What the certificates are to be like.
    pub terms: Terms,
}

/// Certificates of this process.
pub struct Certificates;

impl Certificates {
    /// Waits until there is a certificate that can be served, and keeps it up to date from then on, until `shutdown`. Certificates
    /// from files need no client. The clock is a layer of the client.
    ///
    /// # Errors
    /// What is mounted cannot be used: which file, what is wrong, and what to do. Or the end was asked for.
    pub async fn start(
        source: Source,
        client: Client,
        clock: Clock,
        metrics: Arc<WebhookMetrics>,
        shutdown: CancellationToken,
    ) -> Result<Tls, String> {
        match source {
            Source::Mounted(folder) => {
                let (mut mounted, tls) = Mounted::open(&folder, clock, metrics).await?;
                tokio::spawn(async move { shutdown.run_until_cancelled(mounted.follow()).await });
                Ok(tls)
            }
            Source::Managed(managed) => managed::start(managed, client, clock, metrics, shutdown).await,
        }
    }
}
