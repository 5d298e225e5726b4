//! What Prometheus sees of the webhook: its reviews, its server and its certificates, beside what it sees of any process.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use prometheus::{HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts};

use crate::metrics::Metrics;

/// Which certificate a time is said of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    /// The one that is shown to who connects.
    Serving,
    /// The CA that has signed it, or that will sign the next one.
    Authority,
}

/// Why a request got no answer of the webhook's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// Its body is too large.
    TooLarge,
    /// Its body did not come in time.
    NotReceived,
    /// Too many others are being answered.
    Busy,
    /// The answer took too long.
    Late,
    /// A panic.
    Panic,
}

/// The metrics of the webhook's process.
#[derive(Debug)]
pub struct WebhookMetrics {
    process: Arc<Metrics>,
    reviews: IntCounterVec,
    review_seconds: HistogramVec,
    live_reads: IntCounterVec,
    expiry: IntGaugeVec,
    reload_failures: IntCounter,
    handshake_failures: IntCounter,
    unanswered: IntCounterVec,
}

impl WebhookMetrics {
    /// Adds the webhook's metrics to those of the process.
    ///
    /// # Errors
    /// They are there already.
    pub fn register(process: Arc<Metrics>) -> Result<Arc<Self>, prometheus::Error> {
        let reviews = IntCounterVec::new(
            Opts::new(
                "numaplane_admission_reviews_total",
                "Admission reviews by webhook and verdict (admitted, warned, refused, unreadable).",
            ),
            &["webhook", "verdict"],
        )?;
        let review_seconds = HistogramVec::new(
            HistogramOpts::new("numaplane_admission_duration_seconds", "Time of one admission review.")
                // Most are answered from memory; one that reads before it refuses takes as long as the API server does.
                .buckets(vec![0.0005, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0]),
            &["webhook"],
        )?;
        let live_reads = IntCounterVec::new(
            Opts::new(
                "numaplane_admission_live_reads_total",
                "Reads before a refusal, by result (read, failed). Alert on failed ones: what they were for was admitted \
                 unchecked.",
            ),
            &["result"],
        )?;
        let expiry = IntGaugeVec::new(
            Opts::new(
                "numaplane_webhook_certificate_expiry_timestamp_seconds",
                "When a certificate of the webhook expires: the serving one, or the ca. Alert days before.",
            ),
            &["certificate"],
        )?;
        let reload_failures = IntCounter::new(
            "numaplane_webhook_certificate_reload_failures_total",
            "Times that a changed certificate could not be used, or that a managed one could not be read, renewed or \
             registered; the last good one goes on being served. Alert on any increase.",
        )?;
        let handshake_failures = IntCounter::new(
            "numaplane_webhook_handshake_failures_total",
            "Connections that ended before a request: probes, and callers that do not trust the certificate.",
        )?;
        let unanswered = IntCounterVec::new(
            Opts::new(
                "numaplane_webhook_unanswered_total",
                "Requests that the server had to answer in place of the webhook, by reason (too_large, not_received, \
                 busy, late, panic). Alert on late, busy and panic.",
            ),
            &["reason"],
        )?;
        let registry = process.registry();
        registry.register(Box::new(reviews.clone()))?;
        registry.register(Box::new(review_seconds.clone()))?;
        registry.register(Box::new(live_reads.clone()))?;
        registry.register(Box::new(expiry.clone()))?;
        registry.register(Box::new(reload_failures.clone()))?;
        registry.register(Box::new(handshake_failures.clone()))?;
        registry.register(Box::new(unanswered.clone()))?;
        // From the start, so that an increase can be seen.
        for reason in
            [Unanswered::TooLarge, Unanswered::NotReceived, Unanswered::Busy, Unanswered::Late, Unanswered::Panic]
        {
            unanswered.with_label_values(&[reason.label()]);
        }
        Ok(Arc::new(Self {
            process,
            reviews,
            review_seconds,
            live_reads,
            expiry,
            reload_failures,
            handshake_failures,
            unanswered,
        }))
    }

    /// The metrics that any process has.
    #[must_use]
    pub fn process(&self) -> &Metrics {
        &self.process
    }

    /// Counts a review.
    pub(super) fn review(&self, webhook: &str, verdict: &str, took: Duration) {
        self.reviews.with_label_values(&[webhook, verdict]).inc();
        self.review_seconds.with_label_values(&[webhook]).observe(took.as_secs_f64());
    }

    /// Counts a read before a refusal.
    pub(super) fn live_read(&self, result: &str) {
        self.live_reads.with_label_values(&[result]).inc();
    }

    /// Says until when a certificate is good.
    pub fn expires(&self, certificate: Certificate, at: Timestamp) {
        self.expiry.with_label_values(&[certificate.label()]).set(at.as_second());
    }

    /// Counts a certificate that could not be taken over.
    pub fn reload_failed(&self) {
        self.reload_failures.inc();
    }

    /// Times that a certificate could not be taken over.
    #[must_use]
    pub fn reload_failures(&self) -> u64 {
        self.reload_failures.get()
    }

    /// Counts a connection that came to nothing.
    pub(super) fn handshake_failed(&self) {
        self.handshake_failures.inc();
    }

    /// Counts a request that got no answer of the webhook's own.
    pub(super) fn unanswered(&self, reason: Unanswered) {
        self.unanswered.with_label_values(&[reason.label()]).inc();
    }
}

impl Certificate {
    fn label(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Authority => "ca",
        }
    }
}

impl Unanswered {
    fn label(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NotReceived => "not_received",
            Self::Busy => "busy",
            Self::Late => "late",
            Self::Panic => "panic",
        }
    }
}
