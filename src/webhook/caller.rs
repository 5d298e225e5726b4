//! A caller as the API server is one, for tests: it trusts one bundle, keeps connections, and makes no call twice that may
//! have been heard.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName},
    version::{TLS12, TLS13},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    certificates::{Action, Held, State, Terms, make, next},
    tls::certificates,
};

/// A CA that was made just now, and a certificate for localhost that it has signed.
pub fn certificate() -> Held {
    certificate_of(Timestamp::now())
}

/// As it was made at this time, for an hour.
pub fn certificate_of(time: Timestamp) -> Held {
    let terms = Terms {
        names: ["localhost".to_owned()].into(),
        certificate: Duration::from_hours(1),
        authority: Duration::from_hours(100),
    };
    let Action::Write(change) = next(&State::default(), time, &terms) else { panic!("it is made at the first start") };
    Held::read(&make(&change, None, time, &terms).unwrap())
}

/// What a call came to.
pub type Answer = Result<(StatusCode, String), String>;

/// Who is trusted, and under which name the webhook is called.
#[derive(Clone)]
pub struct Caller {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Caller {
    /// Trusts this bundle.
    pub fn new(bundle: &str) -> Self {
        Self::offering(bundle, &[b"http/1.1"])
    }

    /// Trusts this bundle, and offers these protocols.
    pub fn offering(bundle: &str, protocols: &[&[u8]]) -> Self {
        Self::of(bundle, protocols, &[&TLS13, &TLS12])
    }

    /// Knows nothing newer than TLS 1.2.
    pub fn old(bundle: &str) -> Self {
        Self::of(bundle, &[], &[&TLS12])
    }

    fn of(bundle: &str, protocols: &[&[u8]], versions: &[&'static rustls::SupportedProtocolVersion]) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(bundle).unwrap() {
            roots.add(certificate).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let mut config =
            builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Self { config: Arc::new(config), name: ServerName::try_from("localhost").unwrap() }
    }

    /// Connects, and shakes hands.
    pub async fn connect(&self, address: SocketAddr) -> Result<TlsStream<TcpStream>, String> {
        self.shake_hands(TcpStream::connect(address).await.map_err(|error| error.to_string())?).await
    }

    async fn shake_hands(&self, tcp: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        TlsConnector::from(self.config.clone()).connect(self.name.clone(), tcp).await.map_err(|error| error.to_string())
    }

    /// The certificate that is shown to who connects now.
    pub async fn shown(&self, address: SocketAddr) -> Result<CertificateDer<'static>, String> {
        let stream = self.connect(address).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).cloned();
        shown.ok_or_else(|| "no certificate was shown".to_owned())
    }

    /// A connection of its own, in HTTP/1.1.
    pub async fn h1(&self, address: SocketAddr) -> Result<Connection, String> {
        self.h1_over(TcpStream::connect(address).await.map_err(|error| error.to_string())?).await
    }

    /// Shakes hands over a connection, and speaks HTTP/1.1.
    pub async fn h1_over(&self, tcp: TcpStream) -> Result<Connection, String> {
        let stream = TokioIo::new(self.shake_hands(tcp).await?);
        let (sender, connection) = http1::handshake(stream).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(Connection::H1(sender))
    }

    /// A connection of its own, in h2.
    pub async fn h2(&self, address: SocketAddr) -> Result<Connection, String> {
        let stream = TokioIo::new(self.connect(address).await?);
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), stream).await.map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(Connection::H2(sender))
    }
}

/// A connection that is kept.
pub enum Connection {
    H1(http1::SendRequest<Full<Bytes>>),
    H2(http2::SendRequest<Full<Bytes>>),
}

/// Why there is no answer.
#[derive(Debug)]
pub enum Lost {
    /// Nothing was sent: another connection will do.
    Unsent,
    /// It was sent, and may have been heard.
    Sent(String),
}

impl Connection {
    /// Calls.
    pub async fn post(&mut self, path: &str, body: impl Into<Bytes>) -> Answer {
        match self.try_post(path, body).await {
            Ok(answer) => Ok(answer),
            Err(lost) => Err(format!("{lost:?}")),
        }
    }

    /// Calls, and says whether it may be tried again.
    pub async fn try_post(&mut self, path: &str, body: impl Into<Bytes>) -> Result<(StatusCode, String), Lost> {
        let answer = match self {
            Self::H1(sender) => {
                sender.ready().await.map_err(|_| Lost::Unsent)?;
                let request = Request::post(path).header("host", "localhost").body(Full::new(body.into())).unwrap();
                sender.try_send_request(request).await
            }
            Self::H2(sender) => {
                sender.ready().await.map_err(|_| Lost::Unsent)?;
                let uri = format!("https://localhost{path}");
                sender.try_send_request(Request::post(uri).body(Full::new(body.into())).unwrap()).await
            }
        };
        let answer = answer.map_err(|mut error| {
            // Refused or beyond a GOAWAY: the server says that it has not looked at it.
            let untouched = is_untouched(error.error());
            if error.take_message().is_some() || untouched { Lost::Unsent } else { Lost::Sent(words(error.error())) }
        })?;
        read(answer).await.map_err(Lost::Sent)
    }
}

fn words(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", words(source)),
        None => error.to_string(),
    }
}

fn is_untouched(error: &hyper::Error) -> bool {
    let words = words(error);
    words.contains("REFUSED_STREAM") || words.contains("GO_AWAY") || words.contains("not a result of an error")
}

async fn read(answer: Response<hyper::body::Incoming>) -> Answer {
    let (status, body) = (answer.status(), answer.into_body());
    let bytes = body.collect().await.map_err(|error| words(&error))?.to_bytes();
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

/// Looks until it is so, and says what was seen when it is not within a few seconds.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let began = tokio::time::Instant::now();
    loop {
        match look().await {
            Ok(answer) => return answer,
            Err(seen) => assert!(began.elapsed() < Duration::from_secs(20), "{what}; last seen: {seen}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
