//! From a watch into a store: lists, follows, and says what changed. One per kind (and namespace), each with its own
//! backoff, so that a kind that cannot be watched slows nothing else down.

use std::{fmt::Debug, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::DynamicObject,
    core::{ApiResource, NamespaceResourceScope},
    runtime::watcher::{self, Event},
};

use crate::{
    settings::Settings,
    store::{Change, Key, News, Seen, Store},
    world::CLUSTER,
};

/// Where a watch looks: everywhere, or in one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The namespace; `None` for everywhere.
    pub namespace: Option<String>,
}

impl Scope {
    /// Everywhere.
    #[must_use]
    pub fn everywhere() -> Self {
        Self { namespace: None }
    }

    /// One namespace.
    #[must_use]
    pub fn of(namespace: &str) -> Self {
        Self { namespace: Some(namespace.to_owned()) }
    }

    /// Name of the watch within its store.
    #[must_use]
    pub fn name(&self) -> &str {
        self.namespace.as_deref().unwrap_or(CLUSTER)
    }

    /// The way to the objects of a kind there.
    #[must_use]
    pub fn api<K>(&self, client: &Client) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }

    /// The same for a kind of which no type is known.
    #[must_use]
    pub fn dynamic(&self, client: &Client, resource: &ApiResource) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
            None => Api::all_with(client.clone(), resource),
        }
    }
}

/// The watches of what is served: one of everything, or one of each of some namespaces.
#[must_use]
pub fn scopes(settings: &Settings) -> Vec<Scope> {
    if settings.namespaces.is_empty() {
        return vec![Scope::everywhere()];
    }
    settings.namespaces.iter().map(|namespace| Scope::of(namespace)).collect()
}

/// The watches of definitions ConfigMaps, likewise.
#[must_use]
pub fn definition_scopes(settings: &Settings) -> Vec<Scope> {
    let own = Scope::of(&settings.operator_namespace);
    if !settings.definitions_anywhere {
        return vec![own];
    }
    let mut all = scopes(settings);
    if !all.contains(&Scope::everywhere()) && !all.contains(&own) {
        all.push(own);
    }
    all
}

/// Names of watches within their store.
#[must_use]
pub fn names(scopes: &[Scope]) -> Vec<String> {
    scopes.iter().map(|scope| scope.name().to_owned()).collect()
}

/// First and longest wait after a watch failed. The longest bounds how late a kind that comes to be served is noticed.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How long a watch that failed may be silent. One that works again says nothing until something happens, and one that
/// hangs says as much: a fresh list tells them apart, before what is known counts as old.
const SILENCE: Duration = Duration::from_secs(20);

/// Follows objects for ever (until the task is dropped). `what` is for the log; `news` is called when more is known than the objects say.
pub async fn follow<K, T, S>(
    scope: Scope,
    what: String,
    watch: impl Fn() -> S + Send,
    store: Arc<Store<T>>,
    read: impl Fn(&K) -> T + Send,
    changed: impl Fn(&Change<T>) + Send,
    news: impl Fn(&Scope, News) + Send,
) where
    K: Resource + Clone + Debug + Send + 'static,
    S: Stream<Item = watcher::Result<Event<K>>> + Send,
{
    let mut events = Box::pin(watch());
    // Own wait, because kube's starts over with every event, and a watcher announces each list before it fails.
    let mut failures = 0u32;
    let mut list: Vec<(Key, Seen, T)> = Vec::new();
    let mut trouble = String::new();
    // It failed while it watched: whether it works again is not known until it says something.
    let mut unsure = false;
    loop {
        let next = if unsure {
            let Ok(next) = tokio::time::timeout(SILENCE, events.next()).await else {
                events = Box::pin(watch());
                unsure = false;
                continue;
            };
            next
        } else {
            events.next().await
        };
        let event = match next {
            None => return,
            Some(Ok(event)) => event,
            Some(Err(error)) => {
                let absent = is_absent(&error);
                let words = error.to_string();
                if words != trouble {
                    if absent {
                        tracing::info!(what, "not served by the API server (yet): nothing to watch");
                    } else {
                        tracing::warn!(what, error = words, "cannot watch, trying again");
                    }
                    trouble = words;
                }
                if absent {
                    // A kind that nobody serves has no objects.
                    for change in store.replace(scope.namespace.as_deref(), Vec::new()) {
                        changed(&change);
                    }
                    if let Some(told) = store.absent(scope.name()) {
                        news(&scope, told);
                    }
                } else {
                    store.lost(scope.name());
                }
                // A list that fails is made again, and ends in any case with something to be heard.
                unsure = !matches!(error, watcher::Error::InitialListFailed(_) | watcher::Error::NoResourceVersion);
                let wait = BACKOFF.0.saturating_mul(1 << failures.min(8)).min(BACKOFF.1);
                failures += 1;
                tokio::time::sleep(wait).await;
                continue;
            }
        };
        unsure = false;
        if !matches!(event, Event::Init | Event::InitApply(_)) {
            failures = 0;
            if !trouble.is_empty() {
                tracing::info!(what, "watching again");
                trouble.clear();
            }
            // After a list, what it brought is passed on first.
            if !matches!(event, Event::InitDone)
                && let Some(told) = store.heard(scope.name())
            {
                news(&scope, told);
            }
        }
        match event {
            Event::Init => list.clear(),
            Event::InitApply(object) => list.push((key(&object), Seen::of(object.meta()), read(&object))),
            Event::InitDone => {
                let complete = std::mem::take(&mut list);
                for change in store.replace(scope.namespace.as_deref(), complete) {
                    changed(&change);
                }
                if let Some(told) = store.listed(scope.name()) {
                    news(&scope, told);
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

/// Namespace and name of an object.
pub fn key<K: Resource>(object: &K) -> Key {
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream;
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn failed() -> watcher::Error {
        watcher::Error::WatchFailed(kube::Error::Service("connection lost".into()))
    }

    fn listed() -> [watcher::Result<Event<ConfigMap>>; 2] {
        [Ok(Event::Init), Ok(Event::InitDone)]
    }

    /// Follows watches that say this, one after the other, and are silent afterwards.
    fn following(
        store: &Arc<Store<()>>,
        said: Vec<Vec<watcher::Result<Event<ConfigMap>>>>,
        made: &Arc<AtomicUsize>,
    ) -> tokio::task::JoinHandle<()> {
        let (store, made) = (store.clone(), made.clone());
        let said = std::sync::Mutex::new(said.into_iter());
        let watch = move || {
            made.fetch_add(1, Ordering::Relaxed);
            let first = said.lock().unwrap().next().unwrap_or_default();
            stream::iter(first).chain(stream::pending())
        };
        let scope = Scope::everywhere();
        tokio::spawn(async move { follow(scope, "things".into(), watch, store, |_| (), |_| (), |_, _| ()).await })
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_failed_and_is_silent_lists_again_before_what_is_known_counts_as_old() {
        let (store, made) = (Arc::new(Store::<()>::new([CLUSTER.into()])), Arc::default());
        let first = listed().into_iter().chain([Err(failed())]).collect();
        let task = following(&store, vec![first, listed().into()], &made);
        for _ in 0..120 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert!(!store.stale());
        }
        assert_eq!(made.load(Ordering::Relaxed), 2, "once, and not as long as it is silent");
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_goes_on_failing_or_hangs_makes_what_is_known_old() {
        for second in [Vec::new(), vec![Ok(Event::Init), Err(failed())]] {
            let (store, made) = (Arc::new(Store::<()>::new([CLUSTER.into()])), Arc::default());
            let first = listed().into_iter().chain([Err(failed())]).collect();
            let task = following(&store, vec![first, second], &made);
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert!(store.stale());
            task.abort();
        }
    }
}
