//! The limits of every request: how many at once, how large, how long; and the way out when the process ends.
//!
//! Own middleware rather than tower-http's limits, whose answers are empty: what is said here is what the user reads.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderValue, StatusCode, Version, header::CONNECTION, header::CONTENT_LENGTH},
    middleware::Next,
    response::{IntoResponse, Response},
};
use axum_server::ConnectionShutdown;
use futures::StreamExt as _;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::{Instant, timeout_at},
};

use super::{Limits, WebhookMetrics};
use crate::{webhook::metrics::Unanswered, words::duration};

/// How much of a body that is too large is read nevertheless, in multiples of what is not: who is still sending does not
/// read the answer.
const TOLERATED: usize = 4;

/// Bytes of a body that are taken before there has to be room for the rest. Most reviews have no more, so that they wait for
/// nobody; and who only announces a large body takes nobody's place.
const AT_ONCE: usize = 64 << 10;

/// How much of the limits is in use.
#[derive(Debug)]
pub struct Limiter {
    limits: Limits,
    in_flight: Semaphore,
    /// Room for bodies, in KiB.
    room: Semaphore,
    ending: AtomicBool,
    metrics: Arc<WebhookMetrics>,
}

impl Limiter {
    pub fn new(limits: Limits, metrics: Arc<WebhookMetrics>) -> Self {
        let room = Semaphore::new(limits.bodies >> 10);
        Self { limits, in_flight: Semaphore::new(limits.concurrency), room, ending: AtomicBool::new(false), metrics }
    }

    /// From here on, nobody makes two requests on a connection.
    pub fn send_away(&self) {
        self.ending.store(true, Ordering::Release);
    }

    /// The answer to a request, within the time that there is for it.
    async fn answer(&self, request: Request, next: Next) -> Response {
        let deadline = Instant::now() + self.limits.answer;
        let (head, body) = request.into_parts();
        let announced = head.headers.get(CONTENT_LENGTH).and_then(|n| n.to_str().ok()).and_then(|n| n.parse().ok());
        let by = deadline.min(Instant::now() + self.limits.receive);
        let (body, _room) = match timeout_at(by, self.receive(body, announced)).await {
            Ok(Ok(received)) => received,
            Ok(Err(NotReceived::TooLarge)) => {
                let words = format!(
                    "the request is larger than {} KiB, and no review of an object that Kubernetes stores is",
                    self.limits.body >> 10
                );
                return self.instead(Unanswered::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, words);
            }
            Ok(Err(NotReceived::Broken(error))) => {
                let words = format!("the request was not received: {error}");
                return self.instead(Unanswered::NotReceived, StatusCode::BAD_REQUEST, words);
            }
            Err(_) => {
                let words = format!("the request was not received within {}", duration(self.limits.receive));
                return self.instead(Unanswered::NotReceived, StatusCode::REQUEST_TIMEOUT, words);
            }
        };
        // Not before: a body that dribbles keeps nobody else waiting.
        let Ok(_in_flight) =
            timeout_at(deadline.min(Instant::now() + self.limits.wait), self.in_flight.acquire()).await
        else {
            let words = format!(
                "{} requests are being answered, as many as this replica takes at once, and none was done within {}; \
                 try again",
                self.limits.concurrency,
                duration(self.limits.wait),
            );
            return self.instead(Unanswered::Busy, StatusCode::SERVICE_UNAVAILABLE, words);
        };
        let Ok(answer) = timeout_at(deadline, next.run(Request::from_parts(head, Body::from(body)))).await else {
            let words = format!("there was no answer within {}; try again", duration(self.limits.answer));
            return self.instead(Unanswered::Late, StatusCode::GATEWAY_TIMEOUT, words);
        };
        answer
    }

    /// Reads a body. Beyond its beginning, once there is room for all of it: two that are there by half would wait for each
    /// other.
    async fn receive(
        &self,
        body: Body,
        announced: Option<usize>,
    ) -> Result<(Bytes, Option<SemaphorePermit<'_>>), NotReceived> {
        let limit = self.limits.body;
        let mut room = None;
        let mut stream = body.into_data_stream();
        let mut content = Vec::new();
        let mut length = 0;
        while let Some(data) = stream.next().await {
            let data = data.map_err(NotReceived::Broken)?;
            length += data.len();
            if length > AT_ONCE && room.is_none() {
                let all = announced.unwrap_or(limit).min(limit).div_ceil(1 << 10);
                let all = self.room.acquire_many(u32::try_from(all).unwrap_or(u32::MAX)).await;
                // unreachable: it is never closed
                room = Some(all.map_err(|_| NotReceived::TooLarge)?);
            }
            if length > limit * TOLERATED {
                break;
            }
            if length <= limit {
                content.extend_from_slice(&data);
            }
        }
        if length > limit { Err(NotReceived::TooLarge) } else { Ok((content.into(), room)) }
    }

    fn instead(&self, reason: Unanswered, status: StatusCode, words: String) -> Response {
        self.metrics.unanswered(reason);
        if reason == Unanswered::NotReceived {
            // Whoever can connect could fill the log with these.
            tracing::debug!(%status, words, "a request was not received");
        } else {
            tracing::warn!(%status, words, "a request got no answer of the webhook's own");
        }
        (status, words + "\n").into_response()
    }
}

enum NotReceived {
    TooLarge,
    Broken(axum::Error),
}

/// Middleware: every request is answered within the limits.
pub async fn limit(State(limiter): State<Arc<Limiter>>, request: Request, next: Next) -> Response {
    let version = request.version();
    let connection = request.extensions().get::<ConnectionShutdown>().cloned();
    let mut answer = limiter.answer(request, next).await;
    if limiter.ending.load(Ordering::Acquire) {
        if version < Version::HTTP_2 {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        } else if let Some(connection) = connection {
            connection.graceful_shutdown();
        }
    }
    answer
}

/// The answer in place of a handler that panicked: others are served on.
pub fn panicked(metrics: Arc<WebhookMetrics>) -> impl FnMut(Box<dyn Any + Send>) -> Response + Clone {
    move |panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words");
        metrics.unanswered(Unanswered::Panic);
        tracing::error!(words, "a handler panicked: this is a fault of the webhook, please report it");
        (StatusCode::INTERNAL_SERVER_ERROR, "a fault of the webhook kept it from answering; its log says which\n")
            .into_response()
    }
}
