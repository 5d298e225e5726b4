//! A listener that can be closed while the connections that it has accepted are served on.
//!
//! Own code, because axum-server stops listening and gives up handshakes in the same moment: what was accepted last would
//! be closed.

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

/// The webhook's listener.
#[derive(Debug)]
pub struct Listener {
    /// `None` once it is closed.
    socket: Mutex<Option<Arc<TcpListener>>>,
    close: CancellationToken,
}

impl Listener {
    /// Begins to listen; the token ends that.
    pub fn open(listener: std::net::TcpListener) -> io::Result<(Self, CancellationToken)> {
        listener.set_nonblocking(true)?;
        let close = CancellationToken::new();
        let socket = Mutex::new(Some(Arc::new(TcpListener::from_std(listener)?)));
        Ok((Self { socket, close: close.clone() }, close))
    }

    fn socket(&self) -> Option<Arc<TcpListener>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From here on the kernel refuses connections.
    fn close(&self) {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl AddrListener<TcpStream, Peer> for Listener {
    async fn bind_to(Peer(address): Peer) -> io::Result<Self> {
        Ok(Self::open(std::net::TcpListener::bind(address)?)?.0)
    }

    async fn accept_stream(&self) -> io::Result<(TcpStream, Peer)> {
        let Some(socket) = self.socket() else { return std::future::pending().await };
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = self.close.cancelled() => {
                // Who was accepted by the kernel before does not know of any end.
                let Some(accepted) = socket.accept().now_or_never() else {
                    self.close();
                    drop(socket);
                    return std::future::pending().await;
                };
                accepted
            }
        };
        accepted.map(|(stream, address)| (stream, Peer(address)))
    }

    fn get_local_addr(&self) -> io::Result<Peer> {
        match self.socket() {
            Some(socket) => socket.local_addr().map(Peer),
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

impl Address for Peer {
    type Stream = TcpStream;
    type Listener = Listener;
}
