//! What a worker has to look at: one object at a time, none twice at once, and what failed ever later.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use jiff::Timestamp;

use super::view::After;

/// The names of objects that are to be looked at.
#[derive(Debug, Default)]
pub struct Queue {
    ready: VecDeque<String>,
    /// In the worker's hands.
    busy: Option<String>,
    /// Came in again while it was in the worker's hands.
    again: bool,
    later: BTreeMap<String, Timestamp>,
    failures: BTreeMap<String, u32>,
}

impl Queue {
    /// There is a reason to look at an object.
    pub fn add(&mut self, name: &str) {
        if self.busy.as_deref() == Some(name) {
            self.again = true;
        } else if !self.ready.iter().any(|n| n == name) {
            self.ready.push_back(name.to_owned());
        }
    }

    /// Hands the next object to the worker.
    pub fn take(&mut self, now: Timestamp) -> Option<String> {
        let due: BTreeSet<String> =
            self.later.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            self.later.remove(&name);
            self.add(&name);
        }
        self.busy = self.ready.pop_front();
        self.busy.clone()
    }

    /// The worker is done with what it had.
    pub fn done(&mut self, after: After, now: Timestamp, retry: Duration, retry_limit: Duration) {
        let Some(name) = self.busy.take() else { return };
        let at = match after {
            After::Retry => {
                let failures = self.failures.entry(name.clone()).or_default();
                let time = retry.saturating_mul(2_u32.saturating_pow(*failures)).min(retry_limit);
                *failures += 1;
                Some(now + time)
            }
            After::At(at) => {
                self.failures.remove(&name);
                Some(at)
            }
            After::Rest => {
                self.failures.remove(&name);
                None
            }
        };
        if let Some(at) = at {
            // What was put off before comes when it was to come.
            let earliest = self.later.get(&name).map_or(at, |before| at.min(*before));
            self.later.insert(name.clone(), earliest);
        }
        if std::mem::take(&mut self.again) {
            self.add(&name);
        }
    }

    /// When the next of those comes that were put off.
    pub fn next(&self) -> Option<Timestamp> {
        self.later.values().min().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: Duration = Duration::from_secs(1);
    const LIMIT: Duration = Duration::from_secs(5);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn what_comes_in_while_it_is_looked_at_is_looked_at_once_more() {
        let mut queue = Queue::default();
        for name in ["a", "b", "a"] {
            queue.add(name);
        }
        assert_eq!(queue.take(at(0)).as_deref(), Some("a"));
        queue.add("a");
        queue.add("a");
        queue.done(After::Rest, at(0), RETRY, LIMIT);
        assert_eq!(queue.take(at(0)).as_deref(), Some("b"));
        queue.done(After::Rest, at(0), RETRY, LIMIT);
        assert_eq!(queue.take(at(0)).as_deref(), Some("a"));
        queue.done(After::Rest, at(0), RETRY, LIMIT);
        assert_eq!((queue.take(at(0)), queue.next()), (None, None));
    }

    #[test]
    fn what_fails_is_tried_ever_later_until_it_does_not() {
        let mut queue = Queue::default();
        queue.add("a");
        let mut now = 0;
        for wait in [1, 2, 4, 5, 5] {
            assert_eq!(queue.take(at(now)).as_deref(), Some("a"));
            queue.done(After::Retry, at(now), RETRY, LIMIT);
            now += wait;
            assert_eq!(queue.next(), Some(at(now)));
            assert_eq!(queue.take(at(now - 1)), None);
        }
        queue.take(at(now));
        queue.done(After::Rest, at(now), RETRY, LIMIT);
        queue.add("a");
        queue.take(at(now));
        queue.done(After::Retry, at(now), RETRY, LIMIT);
        assert_eq!(queue.next(), Some(at(now + 1)));
    }

    #[test]
    fn a_tick_that_was_due_earlier_comes_earlier() {
        let mut queue = Queue::default();
        for until in [10, 15] {
            queue.add("a");
            queue.take(at(1));
            queue.done(After::At(at(until)), at(1), RETRY, LIMIT);
        }
        assert_eq!(queue.next(), Some(at(10)));
    }
}
