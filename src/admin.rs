//! `/healthz`, `/readyz` and `/metrics`, from the first moment on.

use std::sync::Arc;

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};

use crate::metrics::Metrics;

/// The routes.
pub fn router(metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/readyz", get(ready))
        .route("/metrics", get(text))
        .with_state(metrics)
}

async fn ready(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    if metrics.ready() { (StatusCode::OK, "ok\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not synced\n") }
}

async fn text(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    ([("content-type", "text/plain; version=0.0.4")], metrics.text())
}
