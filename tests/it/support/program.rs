//! The program itself, as a process of its own whose requests pass through this one: so that it can be killed right after
//! any of its writes.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use axum::{Router, body::Body, extract::Request, response::Response};
use http::StatusCode;
use http_body_util::BodyExt;
use kube::Client;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::{Scene, control_plane::control_plane, faults::Faults, wait::within};

/// A running program; killed when dropped.
pub struct Program {
    process: Child,
    log: PathBuf,
    proxy: JoinHandle<()>,
    _folder: TempDir,
}

impl Program {
    /// Starts the program for the namespaces of a scene.
    pub async fn start(scene: &Scene, faults: &Faults) -> Self {
        let (client, _) = control_plane().operator(faults, None).await;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let forward = Router::new().fallback(move |request: Request| forward(client.clone(), request));
        let proxy = tokio::spawn(async move { axum::serve(listener, forward).await.expect("the proxy serves") });
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        let content = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{}}}}]\nclusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}]\n"
        );
        fs::write(&kubeconfig, content).expect("a file can be written");
        let config = folder.path().join("config.yaml");
        let strategy = "strategy: {assessment: {deadline: 1m, window: 0s, interval: 200ms}}\n";
        fs::write(&config, strategy).expect("a file can be written");
        let log = folder.path().join("log");
        let settings = scene.settings();
        let mut command = Command::new(env!("CARGO_BIN_EXE_numaplane"));
        command.arg("controller").args(["--namespace", &settings.operator_namespace, "--admin-address", "127.0.0.1:0"]);
        for namespace in &settings.namespaces {
            command.args(["--watch-namespace", namespace]);
        }
        let process = command
            .env("KUBECONFIG", &kubeconfig)
            .env("NUMAPLANE_CONFIG", &config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("a file can be written"))
            .spawn()
            .expect("the program can be started");
        Self { process, log, proxy, _folder: folder }
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(mut self) {
        self.end();
    }

    /// Asks it to end, as Kubernetes does, and waits for that; returns how it ended, and after what time.
    pub async fn terminate(mut self) -> (ExitStatus, Duration) {
        let (began, id) = (Instant::now(), self.process.id().to_string());
        let asked = Command::new("kill").args(["-TERM", &id]).status().expect("a signal can be sent");
        assert!(asked.success(), "{asked}");
        let process = &mut self.process;
        let status = within(Duration::from_secs(30), "the program ends when asked to", async || {
            process.try_wait().ok().flatten().ok_or_else(|| "it runs".to_owned())
        })
        .await;
        self.proxy.abort();
        (status, began.elapsed())
    }

    /// How long it has kept a processor busy so far.
    pub fn busy(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("it runs");
        // What follows the name, which may hold anything: state is field 3, user and system time are 14 and 15.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
        Duration::from_millis(ticks * 10)
    }

    fn end(&mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it ends");
        self.proxy.abort();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.end();
        }
        if std::thread::panicking() {
            println!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}

/// Hands a request on to the API server, and its answer back as it comes in: a watch has no end.
async fn forward(client: Client, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = parts.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let mut asked = http::Request::builder().method(parts.method).uri(path);
    for name in [http::header::ACCEPT, http::header::CONTENT_TYPE] {
        if let Some(value) = parts.headers.get(&name) {
            asked = asked.header(name, value);
        }
    }
    let asked = asked.body(kube::client::Body::from(bytes.to_vec())).expect("a request");
    match client.send(asked).await {
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            let mut response = Response::new(Body::new(body));
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
