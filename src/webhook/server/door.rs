//! A listener that can be closed while those whom it has let in are served on.
//!
//! Own code, because axum-server stops listening and gives up handshakes in the same moment: who was let in last would be
//! turned away.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use axum_server::{AddrListener, Address};
use futures::FutureExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub SocketAddr);

/// The listener.
#[derive(Debug)]
pub struct Door {
    /// `None` once it is closed.
    listener: Mutex<Option<Arc<TcpListener>>>,
    close: CancellationToken,
}

impl Door {
    /// Opens it; the answer closes it.
    pub fn open(listener: std::net::TcpListener) -> io::Result<(Self, CancellationToken)> {
        listener.set_nonblocking(true)?;
        let close = CancellationToken::new();
        let listener = Mutex::new(Some(Arc::new(TcpListener::from_std(listener)?)));
        Ok((Self { listener, close: close.clone() }, close))
    }

    fn listener(&self) -> Option<Arc<TcpListener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From here on the kernel refuses connections.
    fn shut(&self) {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl AddrListener<TcpStream, Peer> for Door {
    async fn bind_to(Peer(address): Peer) -> io::Result<Self> {
        Ok(Self::open(std::net::TcpListener::bind(address)?)?.0)
    }

    async fn accept_stream(&self) -> io::Result<(TcpStream, Peer)> {
        let Some(listener) = self.listener() else { return std::future::pending().await };
        let let_in = tokio::select! {
            accepted = listener.accept() => accepted,
            () = self.close.cancelled() => {
                // Whom the kernel has let in before does not know of any end.
                let Some(accepted) = listener.accept().now_or_never() else {
                    self.shut();
                    drop(listener);
                    return std::future::pending().await;
                };
                accepted
            }
        };
        let_in.map(|(stream, address)| (stream, Peer(address)))
    }

    fn get_local_addr(&self) -> io::Result<Peer> {
        match self.listener() {
            Some(listener) => listener.local_addr().map(Peer),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Address for Peer {
    type Stream = TcpStream;
    type Listener = Door;
}
