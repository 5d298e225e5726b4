//! The server: TLS, limits, and an end that loses nothing.
//!
//! Who calls is the API server, over HTTP/1.1 with connections that it keeps (its webhook client does not offer h2, so that
//! calls spread over replicas), and it does not repeat a call that it has begun to send. What closes a connection that may
//! be called on at this moment loses an admission.

mod limiter;
mod listener;

use std::{future::pending, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, extract::DefaultBodyLimit, middleware::from_fn_with_state};
use axum_server::{Handle, Server, accept::NoDelayAcceptor, tls_rustls::RustlsAcceptor};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use self::{
    limiter::{Limiter, limit, panicked},
    listener::{Listener, Peer},
};
use super::{Tls, WebhookMetrics};
use crate::admission::registration;

/// What one replica takes upon itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest body, in bytes. A review of an update holds the object twice, and each may have the 3 MiB that the API server
    /// takes in a request.
    pub body: usize,
    /// Longest time for a whole body to come in. The API server sends it at once; one that dribbles holds the room for it.
    pub receive: Duration,
    /// Longest time from a request to its answer, waiting for its turn included. Less than the `timeoutSeconds` of the
    /// registration, so that the user reads why instead of "context deadline exceeded".
    pub answer: Duration,
    /// Bytes of all bodies together: what is sent beyond that waits to be received.
    pub bodies: usize,
    /// Requests that are worked on at once. The others wait.
    pub concurrency: usize,
    /// Longest wait for its turn. Who gets it in the last moment would have no time left to be answered.
    pub wait: Duration,
    /// Streams of one h2 connection.
    pub streams: u32,
    /// Longest time for a TLS handshake.
    pub handshake: Duration,
    /// Longest time for the head of a request, waiting for it to begin included: hyper has one clock for both. So it is longer
    /// than the 90 s for which the API server keeps a connection that it does not use, and it is the caller that closes it: were
    /// it this side, a call might be on its way. What is slow until then holds a file descriptor and nothing else.
    pub head: Duration,
    /// Time that everything goes on as before after the end was asked for, until those who send calls have heard that this
    /// replica is not ready any more.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 8 << 20,
            bodies: 64 << 20,
            receive: Duration::from_secs(3),
            answer: Duration::from_secs(registration::TIMEOUT.into()).saturating_sub(Duration::from_secs(2)),
            concurrency: 64,
            wait: Duration::from_secs(4),
            streams: 100,
            handshake: Duration::from_secs(5),
            head: Duration::from_secs(100),
            drain: Duration::from_secs(5),
        }
    }
}

/// Time between accepting no more connections and closing those that are idle: for those that were accepted last, whose
/// handshake or first request is on its way.
const LINGER: Duration = Duration::from_secs(1);
/// How often an h2 connection is asked whether the other side is still there, and how long it may take to say so.
const ALIVE: Duration = Duration::from_secs(20);

/// Serves until `shutdown`, then as long as it takes to lose no request: [`Limits::drain`], a second, and the answers that are
/// still owed, which is [`Limits::answer`] at most. The process is to be given more than that in sum (by
/// `terminationGracePeriodSeconds`: 14 s as it is built in; 30 s are usual).
///
/// # Errors
/// The listener cannot be used.
pub async fn serve(
    listener: std::net::TcpListener,
    router: Router,
    tls: &Tls,
    limits: Limits,
    metrics: Arc<WebhookMetrics>,
    shutdown: CancellationToken,
) -> Result<(), String> {
    let in_vain = |error: std::io::Error| format!("the webhook cannot be served: {error}");
    let (listener, close) = Listener::open(listener).map_err(in_vain)?;
    let limiter = Arc::new(Limiter::new(limits, metrics.clone()));
    let app = router
        // The limiter reads bodies, and has a limit of its own with words.
        .layer(DefaultBodyLimit::disable())
        .layer(CatchPanicLayer::custom(panicked(metrics.clone())))
        .layer(from_fn_with_state(limiter.clone(), limit));
    let handle = Handle::<Peer>::new();
    let acceptor = RustlsAcceptor::new(tls.served())
        .handshake_timeout(limits.handshake)
        // An answer must not wait for the acknowledgement of the packet before it.
        .acceptor(NoDelayAcceptor::new());
    let failures = metrics.clone();
    let mut server = Server::<Peer>::from_listener(listener)
        .handle(handle.clone())
        .acceptor(acceptor)
        .first_request_timeout(limits.head)
        .accept_error_handler(move |peer, error| {
            failures.handshake_failed();
            let peer = peer.map(|Peer(address)| address.to_string()).unwrap_or_default();
            tracing::debug!(peer, %error, "a connection came to nothing");
        });
    server.http_builder().http1().header_read_timeout(limits.head);
    server
        .http_builder()
        .http2()
        .max_concurrent_streams(limits.streams)
        .keep_alive_interval(ALIVE)
        .keep_alive_timeout(ALIVE);
    let end = async {
        shutdown.cancelled().await;
        // First, because all else takes until this is known: no new calls are sent to who is not ready.
        metrics.process().end();
        // Whoever calls nevertheless is answered, and told to make his next call on another connection, which by then leads to
        // another replica. So few connections are left, none of them in use, when the rest is closed.
        limiter.send_away();
        tracing::info!(drain = ?limits.drain, "the webhook is not ready any more, and answers who has not heard yet");
        tokio::time::sleep(limits.drain).await;
        close.cancel();
        tokio::time::sleep(LINGER).await;
        // Answers who is still owed one; ends what is idle (h2: after a GOAWAY that says what was not looked at).
        handle.graceful_shutdown(Some(limits.answer + LINGER));
        pending::<()>().await;
    };
    let served = server.serve(app.into_make_service());
    tokio::select! {
        result = served => result.map_err(in_vain),
        () = end => Ok(()),
    }
}

/// Opens the port, in one line for whoever asks for it, with words for the user.
///
/// # Errors
/// It cannot be opened.
pub fn listen(address: SocketAddr) -> Result<std::net::TcpListener, String> {
    std::net::TcpListener::bind(address).map_err(|error| format!("{address} cannot be listened on: {error}"))
}

#[cfg(test)]
mod tests;
