//! What the server does to who calls it, over real connections.

mod ending;

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::{
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::*;
use crate::{
    metrics::Metrics,
    webhook::{
        caller::{Caller, Connection, certificate, eventually},
        certificates::Held,
    },
};

/// A server that runs, and what it has to do.
struct Served {
    address: SocketAddr,
    bundle: String,
    metrics: Arc<Metrics>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), String>>,
    handlers: Arc<Handlers>,
}

/// What the handlers of a server count.
#[derive(Default)]
struct Handlers {
    working: AtomicUsize,
    most: AtomicUsize,
}

/// Works for as many milliseconds as the body says.
async fn work(State(handlers): State<Arc<Handlers>>, time: String) -> String {
    let working = handlers.working.fetch_add(1, Ordering::SeqCst) + 1;
    handlers.most.fetch_max(working, Ordering::SeqCst);
    sleep(Duration::from_millis(time.parse().unwrap_or_default())).await;
    handlers.working.fetch_sub(1, Ordering::SeqCst);
    "done".to_owned()
}

async fn length(body: axum::body::Bytes) -> String {
    body.len().to_string()
}

impl Served {
    fn start(limits: Limits) -> Self {
        Self::start_with(limits, &certificate())
    }

    fn start_with(limits: Limits, held: &Held) -> Self {
        let tls = Tls::new(&held.leaf.as_ref().unwrap().pair);
        let handlers = Arc::<Handlers>::default();
        let router = Router::new()
            .route("/work", post(work))
            .route("/length", post(length))
            .route("/panic", post(async || -> &'static str { panic!("nobody expects this") }))
            .route("/", get(async || "here"))
            .with_state(handlers.clone());
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Arc::new(Metrics::new().unwrap());
        metrics.set_ready(true);
        let counted = WebhookMetrics::register(metrics.clone()).unwrap();
        let shutdown = CancellationToken::new();
        let end = shutdown.clone();
        let task = tokio::spawn(async move { serve(listener, router, &tls, limits, counted, end).await });
        Self { address, bundle: held.bundle(), metrics, shutdown, task, handlers }
    }

    fn caller(&self) -> Caller {
        Caller::new(&self.bundle)
    }

    async fn h1(&self) -> Connection {
        self.caller().h1(self.address).await.unwrap()
    }

    async fn h2(&self) -> Connection {
        Caller::offering(&self.bundle, &[b"h2"]).h2(self.address).await.unwrap()
    }

    /// Calls on a connection of its own.
    fn call(&self, path: &'static str, body: &str) -> JoinHandle<(StatusCode, String)> {
        let (caller, address, body) = (self.caller(), self.address, body.to_owned());
        tokio::spawn(async move { caller.h1(address).await.unwrap().post(path, body).await.unwrap() })
    }

    /// Waits until that many handlers are at work.
    async fn working(&self, count: usize) {
        eventually(&format!("{count} are at work"), async || match self.handlers.working.load(Ordering::SeqCst) {
            working if working == count => Ok(()),
            working => Err(working.to_string()),
        })
        .await;
    }

    fn counted(&self, line: &str) -> bool {
        self.metrics.text().lines().any(|l| l == line)
    }
}

fn ok(words: &str) -> (StatusCode, String) {
    (StatusCode::OK, words.to_owned())
}

/// Waits until the other side has closed a connection.
async fn closed(mut stream: impl tokio::io::AsyncRead + Unpin) {
    let mut rest = Vec::new();
    // With or without a reset.
    let end = timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "it is still open; {:?} came", String::from_utf8_lossy(&rest));
}

#[tokio::test(flavor = "multi_thread")]
async fn c23_whoever_trusts_the_ca_is_answered_in_http_1_1_in_h2_and_in_tls_1_2() {
    let served = Served::start(Limits::default());
    let mut connection = served.h1().await;
    for _ in 0..3 {
        assert_eq!(connection.post("/work", "0").await, Ok(ok("done")));
    }
    assert_eq!(served.h2().await.post("/work", "0").await, Ok(ok("done")));
    assert_eq!(Caller::old(&served.bundle).h1(served.address).await.unwrap().post("/work", "0").await, Ok(ok("done")));
    let offered = Caller::offering(&served.bundle, &[b"h2", b"http/1.1"]).connect(served.address).await.unwrap();
    assert_eq!(offered.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let stranger = Caller::new(&certificate().bundle()).shown(served.address).await;
    assert_eq!(stranger.unwrap_err(), "invalid peer certificate: UnknownIssuer");
}

#[tokio::test(flavor = "multi_thread")]
async fn c23_a_body_that_is_too_large_is_refused_with_words_and_one_that_is_as_large_as_may_be_is_read() {
    let served = Served::start(Limits { body: 64 << 10, ..Limits::default() });
    let refused = (
        StatusCode::PAYLOAD_TOO_LARGE,
        "the request is larger than 64 KiB, and no review of an object that Kubernetes stores is\n".to_owned(),
    );
    for connection in [&mut served.h1().await, &mut served.h2().await] {
        assert_eq!(connection.post("/length", vec![b'a'; 64 << 10]).await, Ok(ok("65536")));
        assert_eq!(connection.post("/length", vec![b'a'; (64 << 10) + 1]).await, Ok(refused.clone()));
        // Who is answered although he sent too much goes on.
        assert_eq!(connection.post("/length", "abc").await, Ok(ok("3")));
    }
    // Without any word on how much it will be.
    let mut stream = served.caller().connect(served.address).await.unwrap();
    stream.write_all(b"POST /length HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
    for _ in 0..65 {
        stream.write_all(format!("400\r\n{}\r\n", "a".repeat(1024)).as_bytes()).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    assert!(served.counted("numaplane_webhook_unanswered_total{reason=\"too_large\"} 3"));
    // Far too much is not read to its end.
    let far = served.h1().await.post("/length", vec![b'a'; 20 << 20]).await;
    assert!(far.is_err() || far == Ok(refused), "{far:?}");
    assert_eq!(served.h1().await.post("/work", "0").await, Ok(ok("done")));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_dribble_keep_nobody_else_waiting_and_end() {
    let receive = Duration::from_secs(2);
    let served = Served::start(Limits { receive, concurrency: 1, ..Limits::default() });
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = served.caller().connect(served.address).await.unwrap();
        stream.write_all(b"POST /work HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\n1").await.unwrap();
        streams.push(stream);
    }
    let began = tokio::time::Instant::now();
    assert_eq!(served.h1().await.post("/work", "0").await, Ok(ok("done")));
    assert!(began.elapsed() < receive, "it waited for them: {:?}", began.elapsed());
    let mut stream = streams.remove(0);
    let mut answer = vec![0; 300];
    let length = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]);
    assert!(answer.starts_with("HTTP/1.1 408") && answer.ends_with("was not received within 2s\n"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_announces_large_bodies_keeps_nobody_waiting() {
    let limits = Limits { receive: Duration::from_secs(5), ..Limits::default() };
    let served = Served::start(limits);
    let mut dribbling = Vec::new();
    for _ in 0..64 {
        let mut slow = served.caller().connect(served.address).await.unwrap();
        let head = format!("POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\nx", limits.body);
        slow.write_all(head.as_bytes()).await.unwrap();
        slow.flush().await.unwrap();
        dribbling.push(slow);
    }
    let began = std::time::Instant::now();
    for size in [10, 1 << 10, 1 << 20] {
        assert_eq!(served.call("/length", &"x".repeat(size)).await.unwrap(), ok(&size.to_string()));
    }
    assert!(began.elapsed() < limits.receive / 2, "they waited: {:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_do_not_fit_beside_each_other_are_received_one_after_the_other() {
    let served = Served::start(Limits { body: 1 << 20, bodies: 3 << 19, ..Limits::default() });
    let calls: Vec<_> = (0..8).map(|_| served.call("/length", &"a".repeat(1 << 20))).collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), ok("1048576"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_finish_a_handshake_or_the_head_of_a_request_is_disconnected() {
    let short = Duration::from_millis(300);
    let served = Served::start(Limits { handshake: short, head: short, ..Limits::default() });
    let silent = TcpStream::connect(served.address).await.unwrap();
    let unused = served.caller().connect(served.address).await.unwrap();
    let mut slow = served.caller().connect(served.address).await.unwrap();
    slow.write_all(b"POST /work HTTP/1.1\r\nhost: ").await.unwrap();
    tokio::join!(closed(silent), closed(unused), closed(slow));
    assert!(served.counted("numaplane_webhook_handshake_failures_total 1"));
    assert_eq!(served.h1().await.post("/work", "0").await, Ok(ok("done")));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_calls_than_are_answered_at_once_wait_and_are_told_when_that_takes_too_long() {
    let (wait, answer) = (Duration::from_secs(1), Duration::from_secs(2));
    let served = Served::start(Limits { concurrency: 2, wait, answer, ..Limits::default() });
    let calls: Vec<_> = (0..6).map(|_| served.call("/work", "100")).collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), ok("done"));
    }
    assert_eq!(served.handlers.most.load(Ordering::SeqCst), 2);

    let long: Vec<_> = (0..2).map(|_| served.call("/work", "60000")).collect();
    served.working(2).await;
    let busy = "2 requests are being answered, as many as this replica takes at once, and none was done within 1s; try \
                again\n";
    assert_eq!(served.call("/work", "0").await.unwrap(), (StatusCode::SERVICE_UNAVAILABLE, busy.to_owned()));
    for call in long {
        let late = "there was no answer within 2s; try again\n";
        assert_eq!(call.await.unwrap(), (StatusCode::GATEWAY_TIMEOUT, late.to_owned()));
    }
    assert!(served.counted("numaplane_webhook_unanswered_total{reason=\"busy\"} 1"));
    assert!(served.counted("numaplane_webhook_unanswered_total{reason=\"late\"} 2"));
    assert_eq!(served.h1().await.post("/work", "0").await, Ok(ok("done")));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_has_so_many_streams_at_once_and_no_more() {
    let served = Served::start(Limits { streams: 3, ..Limits::default() });
    let Connection::H2(sender) = served.h2().await else { panic!("it is h2") };
    // What the server allows is known once it has said so.
    assert_eq!(Connection::H2(sender.clone()).post("/work", "0").await, Ok(ok("done")));
    let calls: Vec<_> = (0..9)
        .map(|_| {
            let mut connection = Connection::H2(sender.clone());
            tokio::spawn(async move { connection.post("/work", "50").await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap(), Ok(ok("done")));
    }
    assert_eq!(served.handlers.most.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn c23_a_handler_that_panics_is_answered_for_and_the_same_connection_goes_on() {
    let served = Served::start(Limits { concurrency: 1, ..Limits::default() });
    for connection in [&mut served.h1().await, &mut served.h2().await] {
        let words = "a fault of the webhook kept it from answering; its log says which\n".to_owned();
        assert_eq!(connection.post("/panic", "").await, Ok((StatusCode::INTERNAL_SERVER_ERROR, words)));
        assert_eq!(connection.post("/work", "0").await, Ok(ok("done")));
    }
    assert!(served.counted("numaplane_webhook_unanswered_total{reason=\"panic\"} 2"));
}
