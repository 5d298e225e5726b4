//! What a Service is to the API server: one address, behind which replicas come and go. A new connection goes to one of those
//! that said last that they are ready, and stays with it.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinHandle,
};

use super::eventually;

/// Time between two looks at who is ready.
const PERIOD: Duration = Duration::from_millis(250);

/// One address for several replicas; connections are refused there until there is the first one, and once it is dropped.
pub struct Balancer {
    address: SocketAddr,
    /// The address, taken and not listened on.
    socket: Option<TcpSocket>,
    replicas: Arc<Mutex<Vec<Behind>>>,
    tasks: Vec<JoinHandle<()>>,
}

/// A replica behind it.
struct Behind {
    serving: SocketAddr,
    admin: SocketAddr,
    ready: bool,
    /// Connections that it was handed.
    handed: usize,
}

impl Balancer {
    /// An address with nobody behind it.
    pub fn start() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port is free");
        let address = socket.local_addr().expect("it has an address");
        Self { address, socket: Some(socket), replicas: Arc::default(), tasks: Vec::new() }
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes in a replica that serves here and says there whether it is ready; waits until it is.
    pub async fn add(&mut self, serving: SocketAddr, admin: SocketAddr) {
        if let Some(socket) = self.socket.take() {
            let listener = socket.listen(1024).expect("it can be listened on");
            self.tasks.push(tokio::spawn(hand_out(listener, self.replicas.clone())));
            self.tasks.push(tokio::spawn(look(self.replicas.clone())));
        }
        lock(&self.replicas).push(Behind { serving, admin, ready: false, handed: 0 });
        eventually(&format!("the replica at {serving} is ready"), async || {
            let ready = lock(&self.replicas).iter().any(|r| r.serving == serving && r.ready);
            if ready { Ok(()) } else { Err(format!("{:?}", ask(admin).await)) }
        })
        .await;
    }

    /// How many connections a replica was handed.
    pub fn handed(&self, serving: SocketAddr) -> usize {
        lock(&self.replicas).iter().filter(|r| r.serving == serving).map(|r| r.handed).sum()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

fn lock(replicas: &Mutex<Vec<Behind>>) -> MutexGuard<'_, Vec<Behind>> {
    replicas.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn hand_out(listener: TcpListener, replicas: Arc<Mutex<Vec<Behind>>>) {
    while let Ok((mut from, _)) = listener.accept().await {
        let to = {
            let mut replicas = lock(&replicas);
            // The one with fewest connections, so that each has some.
            let chosen = replicas.iter_mut().filter(|r| r.ready).min_by_key(|r| r.handed);
            chosen.map(|replica| {
                replica.handed += 1;
                replica.serving
            })
        };
        // Without a replica the connection is closed, as with a Service that has no endpoint.
        let Some(to) = to else { continue };
        tokio::spawn(async move {
            if let Ok(mut to) = TcpStream::connect(to).await {
                // Whoever ends first ends it.
                let _ = copy_bidirectional(&mut from, &mut to).await;
            }
        });
    }
}

async fn look(replicas: Arc<Mutex<Vec<Behind>>>) {
    loop {
        let all: Vec<SocketAddr> = lock(&replicas).iter().map(|r| r.admin).collect();
        for admin in all {
            let ready = ask(admin).await.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"));
            lock(&replicas).iter_mut().filter(|r| r.admin == admin).for_each(|r| r.ready = ready);
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// What a replica says about itself.
async fn ask(admin: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(admin).await?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: replica\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
