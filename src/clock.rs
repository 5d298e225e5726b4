//! The API server's clock: times that are stored are compared with times that the server, or another process, has written,
//! so none of them may come from a clock of our own that is wrong.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll},
};

use http::{Request, Response, header::DATE};
use jiff::{SignedDuration, Timestamp};
use tower::{Layer, Service};

/// Differences that are taken for none: the server says whole seconds, and an answer takes its time.
const SLACK: SignedDuration = SignedDuration::from_secs(2);

/// The server's clock, read from the `Date` of its answers; a layer of the client.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Server's time less own time, in milliseconds.
    offset: Arc<AtomicI64>,
}

impl Clock {
    /// The time by the server's clock; by the own one while no answer was seen.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let own = Timestamp::now();
        own.checked_add(self.offset()).unwrap_or(own)
    }

    /// How much the server's clock is ahead.
    #[must_use]
    pub fn offset(&self) -> SignedDuration {
        SignedDuration::from_millis(self.offset.load(Ordering::Relaxed))
    }

    fn learn(&self, date: &str, asked: Timestamp, answered: Timestamp) {
        let Ok(date) = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(date) else { return };
        let known = self.offset();
        let offset = corrected(known, date, asked, answered);
        if offset != known {
            tracing::info!(offset = %offset, "the clock of the API server differs from this machine's; its own counts");
            self.offset.store(i64::try_from(offset.as_millis()).unwrap_or_default(), Ordering::Relaxed);
        }
    }
}

/// The offset after an answer of this date to a question asked and answered at these times by the own clock. One that the
/// answer does not contradict stays, so that time does not jump to and fro within the second that the date leaves open.
fn corrected(known: SignedDuration, date: Timestamp, asked: Timestamp, answered: Timestamp) -> SignedDuration {
    // The server wrote it after it was asked and before it was heard, within the second that the date names.
    let least = date.duration_since(answered);
    let most = date.duration_since(asked) + SignedDuration::from_secs(1);
    let agrees = |offset: SignedDuration| least - SLACK <= offset && offset <= most + SLACK;
    if agrees(known) {
        known
    } else if agrees(SignedDuration::ZERO) {
        SignedDuration::ZERO
    } else {
        least + (most - least) / 2
    }
}

impl<S> Layer<S> for Clock {
    type Service = Timed<S>;

    fn layer(&self, inner: S) -> Timed<S> {
        Timed { inner, clock: self.clone() }
    }
}

/// A client's service that reads the time from answers.
#[derive(Clone, Debug)]
pub struct Timed<S> {
    inner: S,
    clock: Clock,
}

impl<S, Q, A> Service<Request<Q>> for Timed<S>
where
    S: Service<Request<Q>, Response = Response<A>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let clock = self.clock.clone();
        let asked = Timestamp::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            if let Some(date) = answer.headers().get(DATE).and_then(|date| date.to_str().ok()) {
                clock.learn(date, asked, Timestamp::now());
            }
            Ok(answer)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_millisecond(1_700_000_000_000 + (seconds * 1000.0) as i64).unwrap()
    }

    fn seconds(offset: SignedDuration) -> f64 {
        offset.as_secs_f64()
    }

    #[test]
    fn a_difference_of_two_seconds_is_none() {
        for date in -2..=2 {
            assert_eq!(corrected(SignedDuration::ZERO, at(f64::from(date)), at(0.0), at(0.1)), SignedDuration::ZERO);
        }
    }

    #[test]
    fn a_larger_one_is_taken_over_and_then_stays_within_the_second_that_the_date_leaves_open() {
        let offset = corrected(SignedDuration::ZERO, at(100.0), at(0.0), at(0.2));
        assert!((seconds(offset) - 100.4).abs() < 0.01, "{offset}");
        // The same server, asked at other moments of its second.
        for (date, asked) in [(100.0, 0.9), (101.0, 0.61), (101.0, 1.5), (102.0, 1.6)] {
            assert_eq!(corrected(offset, at(date), at(asked), at(asked + 0.1)), offset, "{date} {asked}");
        }
        let behind = corrected(SignedDuration::ZERO, at(-50.0), at(0.0), at(0.0));
        assert!((seconds(behind) + 49.5).abs() < 0.01, "{behind}");
    }

    #[test]
    fn an_answer_that_took_long_says_little() {
        assert_eq!(corrected(SignedDuration::ZERO, at(0.0), at(0.0), at(30.0)), SignedDuration::ZERO);
        let offset = SignedDuration::from_secs(10);
        assert_eq!(corrected(offset, at(10.0), at(0.0), at(30.0)), offset);
    }

    #[test]
    fn a_clock_that_was_put_right_is_not_corrected_any_more() {
        assert_eq!(corrected(SignedDuration::from_secs(100), at(0.0), at(0.3), at(0.4)), SignedDuration::ZERO);
    }

    #[test]
    fn the_date_of_an_answer_is_read_and_nonsense_is_not() {
        let clock = Clock::default();
        let own = Timestamp::from_second(784_111_777).unwrap();
        clock.learn("tomorrow", own, own);
        assert_eq!(clock.offset(), SignedDuration::ZERO);
        clock.learn("Sun, 06 Nov 1994 08:59:37 GMT", own, own);
        assert_eq!(clock.offset(), SignedDuration::from_millis(600_500));
        assert!(clock.now().duration_since(Timestamp::now()) > SignedDuration::from_secs(599));
    }
}
