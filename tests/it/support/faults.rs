//! What can happen to an operator's requests: they are counted, answered with errors in place of the server, or carried
//! out by it without the operator ever hearing of it, as when the process dies at that moment.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::{Body, DynBody};
use serde_json::json;
use tokio::sync::{Notify, oneshot};
use tower::{BoxError, Layer, Service};

use super::wait::PATIENCE;

/// A request that changes something: no dry run, no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// POST, PUT, PATCH or DELETE.
    pub method: Method,
    /// Path within the API.
    pub path: String,
}

impl Write {
    /// Whether the path has this part.
    pub fn about(&self, part: &str) -> bool {
        self.path.contains(part)
    }
}

/// Which writes are meant.
type Matches = Box<dyn Fn(&Write) -> bool + Send>;

/// A rule: matching writes are answered with this code, as often as `left` says.
struct Rule {
    matches: Matches,
    code: u16,
    left: usize,
}

#[derive(Default)]
struct Inner {
    writes: Vec<Write>,
    rules: Vec<Rule>,
    crash_after: Option<usize>,
    crash_on: Option<Matches>,
    held: Vec<(Matches, Holding)>,
    /// Nothing is sent any more.
    dead: bool,
    /// … and the last write was carried out.
    buried: bool,
}

/// The other side of a [`Held`].
struct Holding {
    reached: oneshot::Sender<()>,
    release: oneshot::Receiver<()>,
}

/// A write that is carried out and answered later: until then the operator does not know of it.
pub struct Held {
    reached: oneshot::Receiver<()>,
    release: oneshot::Sender<()>,
}

impl Held {
    /// Waits until it was carried out; the answer waits until what is returned is dropped.
    pub async fn carried_out(self) -> oneshot::Sender<()> {
        let reached = tokio::time::timeout(PATIENCE, self.reached).await;
        reached.expect("there is such a write").expect("it is carried out");
        self.release
    }
}

/// The faults of one operator; a layer of its client.
#[derive(Clone, Default)]
pub struct Faults {
    inner: Arc<Mutex<Inner>>,
    died: Arc<Notify>,
}

impl Faults {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the next `times` writes that match with this code; they do not reach the server.
    pub fn answer(&self, code: u16, times: usize, matches: impl Fn(&Write) -> bool + Send + 'static) {
        self.lock().rules.push(Rule { matches: Box::new(matches), code, left: times });
    }

    /// How many answers are still to be given.
    pub fn left(&self) -> usize {
        self.lock().rules.iter().map(|rule| rule.left).sum()
    }

    /// Lets the process die right after its write number `n` (from 1) was carried out.
    pub fn crash_after(&self, n: usize) {
        self.lock().crash_after = Some(n);
    }

    /// Lets the process die right after the next write that matches was carried out.
    pub fn crash_on(&self, matches: impl Fn(&Write) -> bool + Send + 'static) {
        self.lock().crash_on = Some(Box::new(matches));
    }

    /// Holds back the answer to the next write that matches, after it was carried out.
    pub fn hold(&self, matches: impl Fn(&Write) -> bool + Send + 'static) -> Held {
        let ((reached, was_reached), (release, was_released)) = (oneshot::channel(), oneshot::channel());
        self.lock().held.push((Box::new(matches), Holding { reached, release: was_released }));
        Held { reached: was_reached, release }
    }

    /// Waits until the process has died.
    pub async fn crashed(&self) {
        loop {
            let died = self.died.notified();
            if self.lock().buried {
                return;
            }
            died.await;
        }
    }

    /// The writes that reached the server, in order.
    pub fn writes(&self) -> Vec<Write> {
        self.lock().writes.clone()
    }

    /// What becomes of a request that changes something.
    fn judge(&self, write: Write) -> Verdict {
        let mut inner = self.lock();
        if inner.dead {
            return Verdict::Nothing;
        }
        if let Some(rule) = inner.rules.iter_mut().find(|rule| rule.left > 0 && (rule.matches)(&write)) {
            rule.left -= 1;
            return Verdict::Answer(rule.code);
        }
        let hit = inner.crash_on.as_ref().is_some_and(|matches| matches(&write));
        inner.writes.push(write);
        if hit || inner.crash_after == Some(inner.writes.len()) {
            inner.dead = true;
            return Verdict::LastWrite;
        }
        let inner = &mut *inner;
        let write = inner.writes.last();
        match inner.held.iter().position(|(matches, _)| write.is_some_and(matches)) {
            Some(place) => Verdict::Hold(inner.held.remove(place).1),
            None => Verdict::Pass,
        }
    }
}

enum Verdict {
    Pass,
    Hold(Holding),
    Answer(u16),
    LastWrite,
    Nothing,
}

impl<S> Layer<S> for Faults {
    type Service = Faulty<S>;

    fn layer(&self, inner: S) -> Faulty<S> {
        Faulty { inner, faults: self.clone() }
    }
}

/// A client's service with faults.
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
}

type Answer = Response<Box<DynBody>>;

impl<S> Service<Request<Body>> for Faulty<S>
where
    S: Service<Request<Body>, Response = Answer, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let verdict = changes_something(&request).map_or(Verdict::Pass, |write| self.faults.judge(write));
        match verdict {
            Verdict::Pass => Box::pin(self.inner.call(request)),
            Verdict::Hold(Holding { reached, release }) => {
                let carried_out = self.inner.call(request);
                Box::pin(async move {
                    let answer = carried_out.await;
                    // Whoever does not listen any more holds nothing up.
                    let _ = reached.send(());
                    let _ = release.await;
                    answer
                })
            }
            Verdict::Answer(code) => Box::pin(std::future::ready(refusal(code))),
            Verdict::LastWrite => {
                let (carried_out, faults) = (self.inner.call(request), self.faults.clone());
                Box::pin(async move {
                    // Whatever the answer is, nobody hears it.
                    drop(carried_out.await);
                    faults.lock().buried = true;
                    faults.died.notify_waiters();
                    std::future::pending().await
                })
            }
            Verdict::Nothing => Box::pin(std::future::pending()),
        }
    }
}

fn changes_something(request: &Request<Body>) -> Option<Write> {
    let (method, uri) = (request.method(), request.uri());
    let harmless = *method == Method::GET
        || uri.query().is_some_and(|query| query.contains("dryRun=All"))
        || uri.path().contains("/events");
    (!harmless).then(|| Write { method: method.clone(), path: uri.path().to_owned() })
}

/// The answer that the API server gives with this code.
fn refusal(code: u16) -> Result<Answer, BoxError> {
    let (reason, message) = match code {
        409 => ("Conflict", "the object has been modified; please apply your changes to the latest version"),
        429 => ("TooManyRequests", "too many requests, please try again later"),
        _ => ("InternalError", "an error on the server has prevented the request from succeeding"),
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {},
        "status": "Failure", "message": message, "reason": reason, "code": code,
    });
    let body: Box<DynBody> = Box::new(Body::from(serde_json::to_vec(&status)?).map_err(BoxError::from));
    Ok(Response::builder().status(StatusCode::from_u16(code)?).header("content-type", "application/json").body(body)?)
}
