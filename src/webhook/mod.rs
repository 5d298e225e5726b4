//! The webhook: reviews come in, answers go out. What a review comes to is decided in [`crate::admission`].

#[cfg(test)]
mod caller;
pub mod certificates;
mod knowledge;
pub mod managed;
pub mod metrics;
pub mod mounted;
mod process;
pub mod server;
pub mod source;
pub mod tls;
mod watches;

use std::sync::Arc;

use axum::{
    Json, Router,
    body::Bytes,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use tokio::time::Instant;

pub use self::{
    knowledge::Knowledge,
    metrics::WebhookMetrics,
    process::Webhook,
    server::{Limits, serve},
    source::{Certificates, Managed, Source},
    tls::Tls,
    watches::Watches,
};
use crate::{
    admission::{
        Looked, Verdict, judge,
        registration::{CONFIG_MAPS, Hook, ROLLOUTS},
        review::{self, Review, Unreadable},
    },
    valid::sentence,
};

#[derive(Clone)]
struct Serving {
    knowledge: Arc<Knowledge>,
    metrics: Arc<WebhookMetrics>,
}

/// The routes: one for each webhook that is registered. How large a body may be is for the server to say, see [`Limits::body`].
pub fn router(knowledge: Arc<Knowledge>, metrics: Arc<WebhookMetrics>) -> Router {
    let serve = |hook: &'static Hook| {
        post(async move |State(serving): State<Serving>, body: Bytes| serving.serve(hook, &body).await)
    };
    Router::new()
        .route(ROLLOUTS.path, serve(&ROLLOUTS))
        .route(CONFIG_MAPS.path, serve(&CONFIG_MAPS))
        .with_state(Serving { knowledge, metrics })
}

impl Serving {
    async fn serve(&self, hook: &Hook, body: &[u8]) -> Response {
        let asked = Instant::now();
        let (outcome, response) = match review::read(body) {
            Ok(review) => {
                let verdict = self.knowledge.answer(&review, asked).await;
                log(hook, &review, &verdict);
                (outcome(&verdict), Json(review::answer(&review, &verdict)).into_response())
            }
            Err(Unreadable::Question { uid, finding }) => {
                tracing::info!(webhook = hook.name, uid, why = %finding, "refused: the review cannot be read");
                ("unreadable", Json(review::answer_to_unreadable(&uid, &finding)).into_response())
            }
            Err(Unreadable::NoReview(message)) => {
                tracing::info!(webhook = hook.name, message, "not a review");
                ("unreadable", (StatusCode::BAD_REQUEST, message + "\n").into_response())
            }
        };
        self.metrics.review(hook.name, outcome, asked.elapsed());
        response
    }
}

impl Knowledge {
    /// Judges a review that came in at `asked`; before anything is refused because of what is not known, that is read.
    pub async fn answer(&self, review: &Review, asked: Instant) -> Verdict {
        let judgement = judge(review, &self.view(&Looked::default()));
        if judgement.doubts.is_empty() {
            return judgement.verdict();
        }
        match self.look(review, &judgement, asked).await {
            Ok(looked) => judge(review, &self.view(&looked)).verdict(),
            Err(why) => judgement.unchecked(&why),
        }
    }
}

fn outcome(verdict: &Verdict) -> &'static str {
    match (verdict.violations.is_empty(), verdict.warnings.is_empty()) {
        (false, _) => "refused",
        (true, false) => "warned",
        (true, true) => "admitted",
    }
}

fn log(hook: &Hook, review: &Review, verdict: &Verdict) {
    if verdict.violations.is_empty() {
        return;
    }
    tracing::info!(
        webhook = hook.name,
        kind = review.kind.kind,
        object = format!("{}/{}", review.namespace, review.name),
        user = review.user,
        dry_run = review.dry_run,
        why = sentence(&verdict.violations),
        "refused"
    );
}

#[cfg(test)]
mod tests;
