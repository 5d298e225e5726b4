//! From a watch into a store: lists, follows, and says what changed. One per kind (and namespace), each with its own
//! backoff, so that a kind that cannot be watched slows nothing else down.

use std::{fmt::Debug, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use kube::{
    Resource, ResourceExt,
    runtime::watcher::{self, Event},
};

use crate::store::{Change, Key, Seen, Store};

/// What a watch follows.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Name of the watch within its store.
    pub name: String,
    /// Namespace that it lists; `None` for everything.
    pub namespace: Option<String>,
    /// Words for the log.
    pub what: String,
}

/// First and longest wait after a watch failed. The longest bounds how late a kind that comes to be served is noticed.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Follows objects for ever (until the task is dropped).
pub async fn follow<K, T>(
    scope: Scope,
    events: impl Stream<Item = watcher::Result<Event<K>>> + Send,
    store: Arc<Store<T>>,
    read: impl Fn(&K) -> T + Send,
    changed: impl Fn(&Change<T>) + Send,
    first_listed: impl Fn(&Scope) + Send,
) where
    K: Resource + Clone + Debug + Send + 'static,
{
    let mut events = std::pin::pin!(events);
    // Own wait, because kube's starts over with every event, and a watcher announces each list before it fails.
    let mut failures = 0u32;
    let mut list: Vec<(Key, Seen, T)> = Vec::new();
    let mut trouble = String::new();
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let absent = is_absent(&error);
                let words = error.to_string();
                if words != trouble {
                    if absent {
                        tracing::info!(what = scope.what, "not served by the API server (yet): nothing to watch");
                    } else {
                        tracing::warn!(what = scope.what, error = words, "cannot watch, trying again");
                    }
                    trouble = words;
                }
                if absent {
                    // A kind that nobody serves has no objects.
                    for change in store.replace(scope.namespace.as_deref(), Vec::new()) {
                        changed(&change);
                    }
                    if store.listed(&scope.name) {
                        first_listed(&scope);
                    }
                }
                let wait = BACKOFF.0.saturating_mul(1 << failures.min(8)).min(BACKOFF.1);
                failures += 1;
                tokio::time::sleep(wait).await;
                continue;
            }
        };
        if !matches!(event, Event::Init | Event::InitApply(_)) {
            failures = 0;
        }
        match event {
            Event::Init => list.clear(),
            Event::InitApply(object) => list.push((key(&object), Seen::of(object.meta()), read(&object))),
            Event::InitDone => {
                if !trouble.is_empty() {
                    tracing::info!(what = scope.what, "watching again");
                    trouble.clear();
                }
                let complete = std::mem::take(&mut list);
                for change in store.replace(scope.namespace.as_deref(), complete) {
                    changed(&change);
                }
                if store.listed(&scope.name) {
                    first_listed(&scope);
                }
            }
            Event::Apply(object) => {
                if let Some(change) = store.offer(key(&object), Seen::of(object.meta()), read(&object)) {
                    changed(&change);
                }
            }
            Event::Delete(object) => {
                if let Some(change) = store.forget(&key(&object), &Seen::of(object.meta())) {
                    changed(&change);
                }
            }
        }
    }
}

fn key<K: Resource>(object: &K) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Whether the server says that it does not serve the kind.
fn is_absent(error: &watcher::Error) -> bool {
    let status = match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => match error {
            kube::Error::Api(status) => status,
            _ => return false,
        },
        watcher::Error::WatchError(status) => status,
        watcher::Error::NoResourceVersion => return false,
    };
    status.code == 404
}
