//! A way to the API server for a process of its own, through this one: what it asks passes through faults, and what it is told
//! can be held back.

use std::{fs, net::SocketAddr, path::Path};

use axum::{Router, body::Body, extract::Request, response::Response};
use futures::StreamExt;
use http::StatusCode;
use http_body_util::BodyExt;
use kube::Client;
use tokio::{sync::watch, task::JoinHandle};

/// What is held back of what the API server says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// News on watches, also those that run already.
    pub watches: bool,
    /// Answers to all else that is asked.
    pub answers: bool,
}

/// A proxy without TLS; ends when dropped.
pub struct Forward {
    address: SocketAddr,
    held: watch::Sender<Held>,
    task: JoinHandle<()>,
}

impl Forward {
    /// Starts one that asks with this client.
    pub async fn start(client: Client) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let (held, seen) = watch::channel(Held::default());
        let forward = Router::new().fallback(move |request: Request| forward(client.clone(), request, seen.clone()));
        let task = tokio::spawn(async move { axum::serve(listener, forward).await.expect("the proxy serves") });
        Self { address, held, task }
    }

    /// Writes a kubeconfig that leads here.
    pub fn write_kubeconfig(&self, path: &Path) {
        let content = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{}}}}]\nclusters: [{{name: c, cluster: {{server: 'http://{}'}}}}]\n",
            self.address
        );
        fs::write(path, content).expect("a file can be written");
    }

    /// Holds this back from now on.
    pub fn hold(&self, held: Held) {
        // Nobody is told while nobody has asked anything.
        self.held.send_replace(held);
    }

    /// Ends it: whoever asks finds nobody.
    pub fn end(&self) {
        self.task.abort();
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.end();
    }
}

/// Hands a request on to the API server, and its answer back as it comes in: a watch has no end.
async fn forward(client: Client, request: Request, mut held: watch::Receiver<Held>) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let watches = path.contains("watch=true");
    let mut asked = http::Request::builder().method(parts.method).uri(path);
    for name in [http::header::ACCEPT, http::header::CONTENT_TYPE] {
        if let Some(value) = parts.headers.get(&name) {
            asked = asked.header(name, value);
        }
    }
    let asked = asked.body(kube::client::Body::from(bytes.to_vec())).expect("a request");
    let answered = client.send(asked).await;
    if !watches {
        // Held until it is let go, or whoever asked has gone.
        let _ = held.wait_for(|held| !held.answers).await;
    }
    match answered {
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            let body = if watches {
                let parts = body.into_data_stream().then(move |part| {
                    let mut held = held.clone();
                    async move {
                        let _ = held.wait_for(|held| !held.watches).await;
                        part
                    }
                });
                Body::from_stream(parts)
            } else {
                Body::new(body)
            };
            let mut response = Response::new(body);
            *response.status_mut() = head.status;
            if let Some(kind) = head.headers.get(http::header::CONTENT_TYPE) {
                response.headers_mut().insert(http::header::CONTENT_TYPE, kind.clone());
            }
            response
        }
        Err(error) => {
            let mut response = Response::new(Body::from(error.to_string()));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}
