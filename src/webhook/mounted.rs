//! Certificates from files: read at the start, and taken over whenever somebody renews them.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use super::{
    Tls, WebhookMetrics,
    metrics::Certificate,
    tls::{Pair, Unusable, certificates, validity},
};
use crate::{
    clock::Clock,
    looked_at::{Content, LookedAt, read},
    words::duration,
};

/// The certificate, and what stands between it and its CA.
const CERTIFICATE: &str = "tls.crt";
/// Its key.
const KEY: &str = "tls.key";
/// The CA, where the one who fills the folder puts it. Nothing depends on it: who registers the webhook says whom to trust.
const AUTHORITY: &str = "ca.crt";

/// How long what cannot be used may be half of something that can: whoever writes files one by one takes a moment.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the files hold.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Files {
    certificate: Content,
    key: Content,
    authority: Content,
}

/// The folder.
pub struct Mounted {
    folder: PathBuf,
    files: LookedAt<Files>,
    tls: Tls,
    clock: Clock,
    metrics: Arc<WebhookMetrics>,
}

impl Mounted {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// They cannot be used: which one, what is wrong, and what to do.
    pub async fn open(folder: &Path, clock: Clock, metrics: Arc<WebhookMetrics>) -> Result<(Self, Tls), String> {
        let files = read_all(folder.to_owned()).await;
        let pair = usable(folder, &files, clock.now()).map_err(|why| {
            format!(
                "--cert-dir: {why}; have cert-manager, or whoever makes the certificate, put a good one there, or leave \
                 --cert-dir out and the webhook makes its own"
            )
        })?;
        let tls = Tls::new(&pair);
        let mounted =
            Self { folder: folder.to_owned(), files: LookedAt::new(files.clone()), tls: tls.clone(), clock, metrics };
        mounted.tell(&pair, &files);
        Ok((mounted, tls))
    }

    /// Takes over what the files come to hold, for ever. What cannot be used changes nothing.
    pub async fn follow(&mut self) {
        let mut files = self.changed().await;
        loop {
            let Err(why) = self.take_over(&files) else {
                files = self.changed().await;
                continue;
            };
            files = if let Ok(more) = tokio::time::timeout(PATIENCE, self.changed()).await {
                more
            } else {
                self.metrics.reload_failed();
                tracing::error!(why, "the new certificate cannot be used; the one from before goes on being served");
                self.changed().await
            };
        }
    }

    async fn changed(&mut self) -> Files {
        self.files.changed(|| read_all(self.folder.clone())).await
    }

    fn take_over(&self, files: &Files) -> Result<(), String> {
        let pair = usable(&self.folder, files, self.clock.now())?;
        self.tls.swap(&pair);
        self.tell(&pair, files);
        Ok(())
    }

    fn tell(&self, pair: &Pair, files: &Files) {
        self.metrics.expires(Certificate::Serving, pair.until);
        if let Some(until) = authority_until(files) {
            self.metrics.expires(Certificate::Authority, until);
        }
        tracing::info!(folder = %self.folder.display(), until = %pair.until, "serving the certificate that is mounted");
    }
}

async fn read_all(folder: PathBuf) -> Files {
    Files {
        certificate: read(folder.join(CERTIFICATE)).await,
        key: read(folder.join(KEY)).await,
        authority: read(folder.join(AUTHORITY)).await,
    }
}

/// Until when the first of the CAs that are there is good.
fn authority_until(files: &Files) -> Option<Timestamp> {
    let certificates = certificates(files.authority.as_ref().ok()?).ok()?;
    certificates.iter().filter_map(|certificate| validity(certificate).ok()).map(|(_, until)| until).min()
}

/// What the files hold, as it can be served; or which file is how unusable.
fn usable(folder: &Path, files: &Files, now: Timestamp) -> Result<Pair, String> {
    let of = |file: &str, why: &str| format!("{} {why}", folder.join(file).display());
    let certificate = files.certificate.as_ref().map_err(|why| of(CERTIFICATE, why))?;
    let key = files.key.as_ref().map_err(|why| of(KEY, why))?;
    let pair = Pair::read(certificate, key).map_err(|unusable| match unusable {
        Unusable::Certificate(why) => of(CERTIFICATE, &why),
        Unusable::Key(why) => of(KEY, &why),
        Unusable::Apart => of(KEY, &format!("is not the key of {CERTIFICATE} beside it")),
    })?;
    match Duration::try_from(now.duration_since(pair.until)) {
        Ok(since) => Err(of(CERTIFICATE, &format!("expired at {} ({} ago)", pair.until, duration(since)))),
        Err(_) => Ok(pair),
    }
}

#[cfg(test)]
mod tests;
