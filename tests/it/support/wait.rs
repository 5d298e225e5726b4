//! Waiting: for something to become true, for something to stay true, and for something never to be otherwise.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::StreamExt;
use kube::{
    Api, Resource, ResourceExt,
    runtime::watcher::{self, Event, watcher},
};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

/// Longest wait for what should take a second or two: much longer, because many tests share few cores.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Time between two looks: dozens of tests look at the same API server.
const TICK: Duration = Duration::from_millis(250);

/// Time after which a watch that failed is tried again.
pub const AGAIN: Duration = Duration::from_millis(500);

/// Looks until there is an answer. An error says what was seen instead; the last one is told when time is up.
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Result<T, String>) -> T {
    within(PATIENCE, what, look).await
}

/// As [`eventually`], with a limit of its own.
pub async fn within<T>(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        let seen = match look().await {
            Ok(answer) => return answer,
            Err(seen) => seen,
        };
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}; last seen: {seen}");
        tokio::time::sleep(TICK).await;
    }
}

/// Looks again and again for a time; an error ends it, with what was seen.
pub async fn stays(what: &str, time: Duration, mut look: impl AsyncFnMut() -> Result<(), String>) {
    let start = Instant::now();
    loop {
        if let Err(seen) = look().await {
            panic!("no longer so after {:?}: {what}; seen: {seen}", start.elapsed());
        }
        if start.elapsed() >= time {
            return;
        }
        tokio::time::sleep(TICK.min(time)).await;
    }
}

/// Something that must hold in every state that the objects of a kind go through.
pub struct Invariant {
    what: String,
    broken: Arc<Mutex<Vec<String>>>,
    /// States looked at.
    seen: Arc<Mutex<usize>>,
    task: JoinHandle<()>,
}

impl Invariant {
    /// Watches `api` and looks at all its objects after each change of one. Returns once the first list is in.
    pub async fn watch<K>(
        what: &str,
        api: Api<K>,
        holds: impl Fn(&BTreeMap<String, K>) -> Result<(), String> + Send + 'static,
    ) -> Self
    where
        K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let broken = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::new(Mutex::new(0));
        let (told, count) = (broken.clone(), seen.clone());
        let task = tokio::spawn(async move {
            let mut events = watcher(api, watcher::Config::default()).boxed();
            let mut objects = BTreeMap::new();
            let mut listing = BTreeMap::new();
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Init) => {
                        listing.clear();
                        continue;
                    }
                    Ok(Event::InitApply(object)) => {
                        listing.insert(object.name_any(), object);
                        continue;
                    }
                    Ok(Event::InitDone) => objects = std::mem::take(&mut listing),
                    Ok(Event::Apply(object)) => {
                        objects.insert(object.name_any(), object);
                    }
                    Ok(Event::Delete(object)) => {
                        objects.remove(&object.name_any());
                    }
                    Err(_) => {
                        // Where the client has ended nothing else would ever let go of the thread.
                        tokio::time::sleep(AGAIN).await;
                        continue;
                    }
                }
                if let Err(words) = holds(&objects) {
                    lock(&told).push(words);
                }
                *lock(&count) += 1;
            }
        });
        let this = Self { what: what.to_owned(), broken, seen, task };
        eventually(
            "the watch has listed",
            async || {
                if *lock(&this.seen) >= 1 { Ok(()) } else { Err("nothing".to_owned()) }
            },
        )
        .await;
        this
    }

    /// Ends the watch; panics if there was a state in which it did not hold.
    pub fn held(self) {
        self.task.abort();
        let broken = lock(&self.broken);
        assert!(broken.is_empty(), "{}: {}", self.what, broken.join("\n"));
    }
}

impl Drop for Invariant {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
