//! What is to be looked at: each key once, never twice at the same time, again after a while.
//!
//! Own code, after client-go's work queue, because kube's `Controller` hands the reconciler its own copy of the object,
//! which may be older than what this process has just written (see `store`).

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// A work queue.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<State<K>>,
    wake: Notify,
}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    queued: HashSet<K>,
    running: HashSet<K>,
    again: HashSet<K>,
    due: HashMap<K, Instant>,
    times: BTreeSet<(Instant, K)>,
    closed: bool,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                ready: VecDeque::new(),
                queued: HashSet::new(),
                running: HashSet::new(),
                again: HashSet::new(),
                due: HashMap::new(),
                times: BTreeSet::new(),
                closed: false,
            }),
            wake: Notify::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wants a key to be looked at now. One that is being looked at is looked at again afterwards.
    pub fn add(&self, key: K) {
        self.lock().add(key);
        self.wake.notify_one();
    }

    /// Wants a key to be looked at after `wait` at the latest.
    pub fn add_after(&self, key: K, wait: Duration) {
        let at = Instant::now() + wait;
        let mut state = self.lock();
        if state.due.get(&key).is_some_and(|known| *known <= at) {
            return;
        }
        if let Some(old) = state.due.insert(key.clone(), at) {
            state.times.remove(&(old, key.clone()));
        }
        state.times.insert((at, key));
        drop(state);
        self.wake.notify_one();
    }

    /// The next key, when there is one; `None` once the queue is closed. Call [`Queue::done`] with it afterwards.
    pub async fn next(&self) -> Option<K> {
        loop {
            let sleep = {
                let mut state = self.lock();
                if state.closed {
                    drop(state);
                    // The other workers have to hear of it too.
                    self.wake.notify_one();
                    return None;
                }
                let now = Instant::now();
                while let Some((at, key)) = state.times.first().cloned() {
                    if at > now {
                        break;
                    }
                    state.times.pop_first();
                    state.due.remove(&key);
                    state.add(key);
                }
                if let Some(key) = state.ready.pop_front() {
                    state.queued.remove(&key);
                    state.running.insert(key.clone());
                    // What this look finds decides when the next one is.
                    if let Some(at) = state.due.remove(&key) {
                        state.times.remove(&(at, key.clone()));
                    }
                    if !state.ready.is_empty() {
                        self.wake.notify_one();
                    }
                    return Some(key);
                }
                state.times.first().map(|(at, _)| *at)
            };
            match sleep {
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, self.wake.notified()).await;
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// Says that a key has been looked at.
    pub fn done(&self, key: &K) {
        let mut state = self.lock();
        state.running.remove(key);
        if state.again.remove(key) {
            state.add(key.clone());
            drop(state);
            self.wake.notify_one();
        }
    }

    /// Gives out no more keys.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// Keys that wait to be looked at now.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.lock().ready.len()
    }
}

impl<K: Clone + Eq + Hash> State<K> {
    fn add(&mut self, key: K) {
        if self.running.contains(&key) {
            self.again.insert(key);
        } else if self.queued.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_is_never_looked_at_twice_at_once_and_no_change_is_lost() {
        let queue = Queue::default();
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.next().await, Some("a"));
        queue.add("a");
        assert_eq!(queue.depth(), 0, "it is being looked at");
        queue.done(&"a");
        assert_eq!(queue.next().await, Some("a"));
        queue.done(&"a");
        assert!(tokio::time::timeout(Duration::from_mins(1), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_time_counts_and_a_look_clears_it() {
        let queue = Queue::default();
        queue.add_after("a", Duration::from_secs(50));
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_secs(90));
        let start = Instant::now();
        assert_eq!(queue.next().await, Some("a"));
        assert_eq!(start.elapsed().as_secs(), 10);
        queue.done(&"a");
        assert!(tokio::time::timeout(Duration::from_secs(200), queue.next()).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_every_worker() {
        let queue: std::sync::Arc<Queue<u8>> = std::sync::Arc::default();
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.close();
        for worker in workers {
            assert_eq!(worker.await.unwrap(), None);
        }
    }
}
