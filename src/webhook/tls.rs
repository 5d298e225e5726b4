//! TLS as it is served: a certificate and its key, checked before they are used, and swapped while the process runs.

use std::{fmt, sync::Arc};

use axum_server::tls_rustls::RustlsConfig;
use jiff::Timestamp;
use rustls::{
    InconsistentKeys, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::{TLS12, TLS13},
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate (with what stands between it and its CA) and its key, as they can be served.
#[derive(Clone)]
pub struct Pair {
    config: Arc<ServerConfig>,
    /// From when it is good, by what it says.
    pub from: Timestamp,
    /// Until when it is good.
    pub until: Timestamp,
}

/// Why a certificate and a key cannot be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The certificate cannot be read: what follows its name in a message.
    Certificate(String),
    /// The key cannot be read: what follows its name in a message.
    Key(String),
    /// The key is that of another certificate. While files are written one by one, it is so for a moment.
    Apart,
}

impl Pair {
    /// Reads a certificate and its key, both PEM.
    ///
    /// # Errors
    /// One of them cannot be used, or they do not belong together.
    pub fn read(certificate: &str, key: &str) -> Result<Self, Unusable> {
        let chain = certificates(certificate).map_err(Unusable::Certificate)?;
        let (from, until) =
            chain.first().map_or(Err("holds no certificate".to_owned()), validity).map_err(Unusable::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
            .map_err(|error| Unusable::Key(format!("holds no private key in PEM: {error}")))?;
        // The provider is given rather than found: which one is used must not depend on what the dependencies enable.
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| Unusable::Certificate(format!("cannot be served: {error}")))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|error| match error {
                rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Unusable::Apart,
                rustls::Error::InvalidCertificate(why) => Unusable::Certificate(format!("cannot be served: {why:?}")),
                error => Unusable::Key(format!("cannot be used: {error}")),
            })?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { config: Arc::new(config), from, until })
    }
}

impl fmt::Debug for Pair {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").field("from", &self.from).field("until", &self.until).finish_non_exhaustive()
    }
}

/// All certificates of a PEM file.
///
/// # Errors
/// It is no PEM file: what follows its name in a message.
pub fn certificates(pem: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|error| format!("holds no certificate in PEM: {error}"))
}

/// From when until when a certificate is good.
///
/// # Errors
/// It cannot be read: what follows its name in a message.
pub fn validity(certificate: &CertificateDer<'_>) -> Result<(Timestamp, Timestamp), String> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|error| format!("holds no X.509 certificate: {error}"))?;
    let time =
        |seconds: i64| Timestamp::from_second(seconds).map_err(|error| format!("has a time out of reach: {error}"));
    let validity = certificate.validity();
    Ok((time(validity.not_before.timestamp())?, time(validity.not_after.timestamp())?))
}

/// What is served now. Whoever connects after a swap is shown the new certificate; a session that was begun under another one
/// is not resumed, because each has its own memory of sessions.
#[derive(Clone)]
pub struct Tls {
    served: RustlsConfig,
}

impl Tls {
    /// Serves this pair.
    #[must_use]
    pub fn new(pair: &Pair) -> Self {
        Self { served: RustlsConfig::from_config(pair.config.clone()) }
    }

    /// Serves this pair from now on.
    pub fn swap(&self, pair: &Pair) {
        self.served.reload_from_config(pair.config.clone());
    }

    /// As the server takes it.
    pub(super) fn served(&self) -> RustlsConfig {
        self.served.clone()
    }
}
