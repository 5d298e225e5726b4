//! What the server's answers mean.

use std::future::Future;

use kube::core::Status;

use super::{Failure, LIMIT};
use crate::plan::{About, Refusal};

/// Fails a request that takes too long: the client's own retries could hold a turn for minutes.
pub(super) async fn limited<T>(request: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    match tokio::time::timeout(LIMIT, request).await {
        Ok(answer) => answer,
        Err(_) => Err(kube::Error::Service(format!("no answer within {} s", LIMIT.as_secs()).into())),
    }
}

pub(super) fn gone_is_good<T>(answer: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match answer {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if is_absent(&status) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(super) fn own<T>(what: &str, answer: Result<T, kube::Error>) -> Result<T, Failure> {
    answer.map_err(|error| failure(&error, About::Own, what))
}

fn silent(about: About, message: String) -> Failure {
    Failure::Silent(Box::new(Refusal { about, reason: "NoAnswer".to_owned(), message }))
}

/// What an error means for the turn.
pub(super) fn failure(error: &kube::Error, about: About, what: &str) -> Failure {
    if let kube::Error::Discovery(unknown) = error {
        let message = format!("{what}: the server does not serve this kind: {unknown}");
        return Failure::Refused(Box::new(Refusal { about, reason: "KindNotServed".to_owned(), message }));
    }
    let kube::Error::Api(status) = error else {
        return silent(about, format!("{what}: {}", with_sources(error)));
    };
    let terminating =
        status.details.as_ref().is_some_and(|d| d.causes.iter().any(|c| c.reason == "NamespaceTerminating"));
    match status.code {
        _ if terminating => Failure::Terminating,
        409 => Failure::Conflict,
        // Another object than the one that was seen.
        422 if is_other_uid(status) => Failure::Conflict,
        // Of an object of our own that must be there: somebody deleted it, and the watch will say so.
        404 if matches!(about, About::Own | About::Steering) => Failure::Conflict,
        // What is too large for the server's store is answered with 500, and will be the next time too.
        500 if status.message.contains("too large") || status.message.contains("ResourceExhausted") => {
            Failure::Refused(Box::new(Refusal {
                about,
                reason: "TooLarge".to_owned(),
                message: format!("{what}: {}", status.message),
            }))
        }
        // A server-side apply of what the schema does not have is answered so, too.
        500 if status.message.contains("field not declared in schema")
            || status.message.contains("failed to create typed patch object") =>
        {
            Failure::Refused(Box::new(Refusal {
                about,
                reason: "Invalid".to_owned(),
                message: format!("{what}: {}", status.message),
            }))
        }
        401 | 429 | 500..=599 => silent(about, format!("{what}: {}", status.message)),
        _ => {
            let reason = if status.reason.is_empty() { "Refused".to_owned() } else { status.reason.clone() };
            Failure::Refused(Box::new(Refusal { about, reason, message: format!("{what}: {}", status.message) }))
        }
    }
}

pub(super) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// Whether the server says that a field can only be set when the object is made, and nothing else.
pub(super) fn is_immutable(status: &Status) -> bool {
    const WORDS: [&str; 5] = [
        "is immutable",
        "cannot change roleRef",
        "may not change once set",
        "updates to statefulset spec for fields other than",
        "may not be changed",
    ];
    let says = |text: &str| WORDS.iter().any(|words| text.contains(words));
    if status.code != 422
        || is_other_uid(status)
        || status.message.contains("denied request")
        || status.message.contains("denied the request")
    {
        return false;
    }
    match status.details.as_ref().map(|d| d.causes.as_slice()).unwrap_or_default() {
        [] => says(&status.message),
        causes => causes.iter().all(|cause| says(&cause.message)),
    }
}

/// Whether the server says that the object is not the one whose uid was given.
fn is_other_uid(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|d| d.causes.as_slice()).unwrap_or_default();
    status.code == 422 && causes.iter().any(|cause| cause.field == "metadata.uid")
}

/// Whether the server did not carry out a JSON patch because of what it found: no words of a policy, which refuses with the
/// same code, but its own.
pub(super) fn is_failed_test(status: &Status) -> bool {
    status.code == 422 && status.message.contains("the server rejected our request due to an error in our request")
}

/// Whether an object is not there, or nothing of its kind. By the code: where a whole group is not served, the answer is a page
/// without a reason, which is what `Status::is_not_found` asks for.
pub(super) fn is_absent(status: &Status) -> bool {
    status.code == 404
}

/// Whether the server did not delete an object because it is not the one whose uid was given.
pub(super) fn is_gone(status: &Status) -> bool {
    // In the words of its store, and in those of what stands before that.
    let other = ["UID in precondition", "UID in the precondition"];
    is_absent(status) || (status.code == 409 && other.iter().any(|words| status.message.contains(words)))
}
