//! TLS as the API server speaks it with a webhook: trusting the CAs of the registration and nobody else.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, Stream,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Longest wait for an answer, or for the other side to close.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is served, as far as tests ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Serial number.
    pub serial: String,
    /// Number of the CA in the bundle that signed it, from 0.
    pub authority: usize,
}

/// A connection to a replica whose certificate was verified against a bundle.
struct Connection {
    tls: ClientConnection,
    stream: TcpStream,
}

impl Connection {
    fn open(address: SocketAddr, roots: impl IntoIterator<Item = CertificateDer<'static>>) -> Result<Self, String> {
        let words = |error: &dyn std::error::Error| error.to_string();
        let mut store = RootCertStore::empty();
        for root in roots {
            store.add(root).map_err(|error| words(&error))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| words(&error))?
            .with_root_certificates(store)
            .with_no_client_auth();
        let stream = TcpStream::connect(address).map_err(|error| words(&error))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|error| words(&error))?;
        let name = ServerName::IpAddress(address.ip().into());
        let mut connection =
            Self { tls: ClientConnection::new(Arc::new(config), name).map_err(|error| words(&error))?, stream };
        while connection.tls.is_handshaking() {
            connection.tls.complete_io(&mut connection.stream).map_err(|error| words(&error))?;
        }
        Ok(connection)
    }

    /// Sends bytes and returns all that comes back until the other side closes.
    fn exchange(mut self, bytes: &[u8]) -> Result<String, String> {
        let mut stream = Stream::new(&mut self.tls, &mut self.stream);
        // An answer may come before everything is sent: what is too much is not read to its end.
        let sent = stream.write_all(bytes).and_then(|()| stream.flush());
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) if !answer.is_empty() || error.kind() == ErrorKind::UnexpectedEof => {}
            Err(error) => return Err(format!("{error}; sent: {sent:?}")),
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// The certificate that is served now to somebody who trusts this bundle.
///
/// # Errors
/// No connection, or nobody in the bundle has signed it.
pub async fn served(address: SocketAddr, bundle: &str) -> Result<Served, String> {
    let roots: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(bundle.as_bytes()).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    blocking(move || {
        let connection = Connection::open(address, roots.clone())?;
        let chain = connection.tls.peer_certificates().unwrap_or_default();
        let leaf = chain.first().ok_or("no certificate is served")?;
        let (_, leaf) = X509Certificate::from_der(leaf).map_err(|error| error.to_string())?;
        let signs = |root: &CertificateDer| {
            let root = X509Certificate::from_der(root);
            root.is_ok_and(|(_, root)| leaf.verify_signature(Some(root.public_key())).is_ok())
        };
        // Of one connection: what is served may be another one on the next.
        let authority = roots.iter().position(signs).ok_or("nobody in the bundle has signed it")?;
        Ok(Served { serial: leaf.raw_serial_as_string(), authority })
    })
    .await
}

/// Sends bytes over TLS and returns what comes back until the other side closes.
///
/// # Errors
/// No connection, or no answer.
pub async fn exchange(address: SocketAddr, bundle: &str, bytes: Vec<u8>) -> Result<String, String> {
    let roots: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(bundle.as_bytes()).collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    blocking(move || Connection::open(address, roots)?.exchange(&bytes)).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.expect("nobody panics")
}
