//! What the operator knows of one kind: fed by a watch and by the answers to its own writes, so that it never decides from
//! something older than what it has just written.
//!
//! Own code rather than kube's reflector, because that one takes no answers of writes and its shared streams lose deletes.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Namespace (empty for cluster-scoped objects) and name.
pub type Key = (String, String);

/// Objects of one kind.
#[derive(Debug)]
pub struct Store<T> {
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    objects: BTreeMap<Key, Entry<T>>,
    /// Objects that are gone, as (uid, resourceVersion at which they went): an answer that was under way must not bring
    /// one back.
    gone: VecDeque<(String, u64)>,
    /// Watches that have not listed yet.
    pending: BTreeSet<String>,
    /// Watches that failed and have not been heard of since, with the time when they failed first.
    lost: BTreeMap<String, Instant>,
    /// Watches that were told that the kind is not served.
    absent: BTreeSet<String>,
}

#[derive(Debug)]
struct Entry<T> {
    value: Arc<T>,
    version: Seen,
}

/// Uid and resourceVersion of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Uid.
    pub uid: String,
    /// resourceVersion as a number: the API server's are ordered within a kind.
    pub resource_version: u64,
}

impl Seen {
    /// An object that the server says is gone for good.
    #[must_use]
    pub fn for_good(uid: &str) -> Self {
        Self { uid: uid.to_owned(), resource_version: u64::MAX }
    }

    /// Reads both from metadata.
    #[must_use]
    pub fn of(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Self {
        let number = metadata.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or_default();
        Self { uid: metadata.uid.clone().unwrap_or_default(), resource_version: number }
    }
}

/// A difference in a store.
#[derive(Clone, Debug)]
pub struct Change<T> {
    /// Which object.
    pub key: Key,
    /// What was known.
    pub old: Option<Arc<T>>,
    /// What is known now.
    pub new: Option<Arc<T>>,
}

/// That more is known of a kind than its objects say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// All that a watch sees is known now.
    FirstList,
    /// The kind came to be served or ceased to be, or what is known had been old.
    Otherwise,
}

/// How many uids of gone objects are remembered: far more than answers can be under way.
const REMEMBERED: usize = 1024;
/// Time without contact after which what is known may be old.
const FRESH: Duration = Duration::from_secs(30);

impl<T> Store<T> {
    /// An empty store that waits for these watches to list.
    #[must_use]
    pub fn new(watches: impl IntoIterator<Item = String>) -> Self {
        Self {
            inner: Mutex::new(Inner {
                objects: BTreeMap::new(),
                gone: VecDeque::new(),
                pending: watches.into_iter().collect(),
                lost: BTreeMap::new(),
                absent: BTreeSet::new(),
            }),
        }
    }

    /// The data, also after a thread died while holding it: every change is a single assignment.
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an object in unless something newer is known. Returns the change, if there is one.
    pub fn offer(&self, key: Key, seen: Seen, value: T) -> Option<Change<T>> {
        let mut inner = self.lock();
        if inner.gone.iter().any(|(uid, at)| *uid == seen.uid && *at >= seen.resource_version) {
            return None;
        }
        if inner.objects.get(&key).is_some_and(|entry| entry.version.resource_version >= seen.resource_version) {
            return None;
        }
        let value = Arc::new(value);
        let old = inner.objects.insert(key.clone(), Entry { value: value.clone(), version: seen });
        Some(Change { key, old: old.map(|e| e.value), new: Some(value) })
    }

    /// Forgets an object that went at `gone` (deleted, or its label does not match any more); one that was made anew
    /// under the same name stays.
    pub fn forget(&self, key: &Key, gone: &Seen) -> Option<Change<T>> {
        let mut inner = self.lock();
        if inner.gone.len() == REMEMBERED {
            inner.gone.pop_front();
        }
        inner.gone.push_back((gone.uid.clone(), gone.resource_version));
        if inner.objects.get(key)?.version.uid != gone.uid {
            return None;
        }
        let old = inner.objects.remove(key)?;
        Some(Change { key: key.clone(), old: Some(old.value), new: None })
    }

    /// Takes a complete list of one watch in; `namespace` is what it lists, `None` for everything. What the list lacks
    /// because it was made since comes back with the watch.
    pub fn replace(&self, namespace: Option<&str>, list: Vec<(Key, Seen, T)>) -> Vec<Change<T>> {
        let mut changes = Vec::new();
        {
            let mut inner = self.lock();
            let listed: BTreeSet<&Key> = list.iter().map(|(key, ..)| key).collect();
            let here = |key: &Key| namespace.is_none_or(|n| key.0 == n);
            let lost: Vec<Key> =
                inner.objects.keys().filter(|key| here(key) && !listed.contains(key)).cloned().collect();
            for key in lost {
                let old = inner.objects.remove(&key).map(|entry| entry.value);
                changes.push(Change { key, old, new: None });
            }
        }
        changes.extend(list.into_iter().filter_map(|(key, seen, value)| self.offer(key, seen, value)));
        changes
    }

    /// Which of the objects of a list are newer than what is known.
    #[must_use]
    pub fn newer_of(&self, listed: &[(Key, Seen)]) -> Vec<Key> {
        let inner = self.lock();
        let known = |key: &Key| inner.objects.get(key).map_or(0, |entry| entry.version.resource_version);
        listed.iter().filter(|(key, seen)| known(key) < seen.resource_version).map(|(key, _)| key.clone()).collect()
    }

    /// Forgets what a complete list lacks that was made beside the watches, at resourceVersion `at`; `namespace` is what it
    /// lists, `None` for everything. What was made since stays: no watch would bring it again.
    pub fn retain(&self, namespace: Option<&str>, at: u64, listed: &[(Key, Seen)]) -> Vec<Change<T>> {
        let listed: BTreeSet<&Key> = listed.iter().map(|(key, _)| key).collect();
        let here = |key: &Key| namespace.is_none_or(|n| key.0 == n);
        let gone: Vec<(Key, Seen)> = {
            let inner = self.lock();
            let older = inner
                .objects
                .iter()
                .filter(|(key, entry)| here(key) && !listed.contains(key) && entry.version.resource_version <= at);
            older.map(|(key, entry)| (key.clone(), Seen { resource_version: at, ..entry.version.clone() })).collect()
        };
        gone.iter().filter_map(|(key, seen)| self.forget(key, seen)).collect()
    }

    /// Says that a watch has listed, and that what it brought has been passed on.
    pub fn listed(&self, watch: &str) -> Option<News> {
        let heard = self.heard(watch);
        let mut inner = self.lock();
        let served = inner.absent.remove(watch);
        let first = inner.pending.remove(watch);
        first.then_some(News::FirstList).or(served.then_some(News::Otherwise)).or(heard)
    }

    /// Says that a watch was told that nobody serves the kind.
    pub fn absent(&self, watch: &str) -> Option<News> {
        let mut inner = self.lock();
        inner.lost.remove(watch);
        let first = inner.pending.remove(watch);
        let absent = inner.absent.insert(watch.to_owned());
        first.then_some(News::FirstList).or(absent.then_some(News::Otherwise))
    }

    /// Says that a watch brought something.
    pub fn heard(&self, watch: &str) -> Option<News> {
        let since = self.lock().lost.remove(watch)?;
        (since.elapsed() > FRESH).then_some(News::Otherwise)
    }

    /// Says that a watch failed.
    pub fn lost(&self, watch: &str) {
        self.lock().lost.entry(watch.to_owned()).or_insert_with(Instant::now);
    }

    /// What keeps one watch of this store from being trusted: it has not listed, or may be out of date; `None` where nothing
    /// does. Of a store that has no such watch nothing is known either.
    #[must_use]
    pub fn trouble_of(&self, watch: &str) -> Option<&'static str> {
        let inner = self.lock();
        if inner.pending.contains(watch) {
            Some("not listed yet")
        } else if inner.lost.get(watch).is_some_and(|since| since.elapsed() > FRESH) {
            Some("the watch fails")
        } else {
            None
        }
    }

    /// Whether a watch has listed what it sees.
    #[must_use]
    pub fn has_listed(&self, watch: &str) -> bool {
        !self.lock().pending.contains(watch)
    }

    /// Whether what is known may be old, because a watch failed and has not been heard of for long.
    #[must_use]
    pub fn stale(&self) -> bool {
        self.lock().lost.values().any(|since| since.elapsed() > FRESH)
    }

    /// Whether the server serves the kind, as far as this watch knows.
    #[must_use]
    pub fn serves(&self, watch: &str) -> bool {
        !self.lock().absent.contains(watch)
    }

    /// Whether every watch has listed.
    #[must_use]
    pub fn synced(&self) -> bool {
        self.lock().pending.is_empty()
    }

    /// One object.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<T>> {
        self.lock().objects.get(&(namespace.to_owned(), name.to_owned())).map(|e| e.value.clone())
    }

    /// The objects of a namespace, by name.
    #[must_use]
    pub fn in_namespace(&self, namespace: &str) -> Vec<(String, Arc<T>)> {
        let inner = self.lock();
        inner
            .objects
            .range((namespace.to_owned(), String::new())..)
            .take_while(|((ns, _), _)| ns == namespace)
            .map(|((_, name), entry)| (name.clone(), entry.value.clone()))
            .collect()
    }

    /// The keys of all objects.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        self.lock().objects.keys().cloned().collect()
    }

    /// All objects.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<T>> {
        self.lock().objects.values().map(|e| e.value.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("ns".into(), name.into())
    }

    fn seen(uid: &str, version: u64) -> Seen {
        Seen { uid: uid.into(), resource_version: version }
    }

    #[test]
    fn an_older_event_does_not_undo_the_answer_to_our_own_write() {
        let store = Store::new([]);
        store.offer(key("a"), seen("u", 5), "new");
        assert!(store.offer(key("a"), seen("u", 4), "old").is_none());
        assert!(store.offer(key("a"), seen("u", 5), "same").is_none());
        assert_eq!(*store.get("ns", "a").unwrap(), "new");
    }

    #[test]
    fn a_late_answer_does_not_bring_a_deleted_object_back() {
        let store = Store::new([]);
        store.offer(key("a"), seen("u", 5), 1);
        store.forget(&key("a"), &seen("u", 7));
        assert!(store.offer(key("a"), seen("u", 6), 2).is_none());
        assert!(store.offer(key("a"), seen("v", 8), 3).is_some());
        assert!(store.forget(&key("a"), &Seen::for_good("u")).is_none(), "the one made anew stays");
        assert!(store.offer(key("b"), seen("u", 9), 4).is_none(), "gone for good");
    }

    #[test]
    fn an_object_whose_label_was_taken_away_is_seen_again_when_it_is_back() {
        let store = Store::new([]);
        store.offer(key("a"), seen("u", 5), 1);
        assert!(store.forget(&key("a"), &seen("u", 6)).is_some());
        assert!(store.offer(key("a"), seen("u", 7), 2).is_some());
    }

    #[test]
    fn a_list_of_one_namespace_leaves_the_others_alone_and_syncs_only_its_own_watch() {
        let store = Store::new(["x".into(), "y".into()]);
        store.offer(("x".into(), "a".into()), seen("1", 1), 1);
        store.offer(("y".into(), "b".into()), seen("2", 1), 2);
        let changes = store.replace(Some("x"), vec![(("x".into(), "c".into()), seen("3", 2), 3)]);
        assert_eq!(changes.len(), 2, "a is gone, c is new");
        assert_eq!(store.listed("x"), Some(News::FirstList));
        assert_eq!(store.listed("x"), None);
        assert!(!store.synced());
        assert!(store.get("y", "b").is_some());
        store.replace(Some("y"), vec![]);
        store.listed("y");
        assert!(store.synced());
        assert!(store.get("y", "b").is_none());
    }

    #[test]
    fn a_list_made_beside_the_watches_takes_nothing_away_that_is_newer_than_it() {
        let store = Store::new([]);
        for (name, uid, version) in [("gone", "1", 5), ("listed", "2", 6), ("new", "3", 9)] {
            store.offer(key(name), seen(uid, version), name);
        }
        store.offer(("other".into(), "gone".into()), seen("4", 1), "elsewhere");
        let list = [(key("listed"), seen("2", 6)), (key("unseen"), seen("5", 7))];
        assert_eq!(store.newer_of(&list), [key("unseen")]);
        let changes = store.retain(Some("ns"), 8, &list);
        assert_eq!(changes.iter().map(|c| &c.key).collect::<Vec<_>>(), [&key("gone")]);
        assert_eq!(store.keys(), [key("listed"), key("new"), ("other".into(), "gone".into())]);
        assert!(store.offer(key("gone"), seen("1", 7), "late").is_none(), "what the list lacks is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_fails_for_long_makes_its_store_stale_until_it_is_heard_of() {
        let store = Store::<u8>::new(["x".into(), "y".into()]);
        store.listed("x");
        store.lost("x");
        tokio::time::advance(Duration::from_secs(20)).await;
        store.lost("x");
        assert!(!store.stale(), "for a moment that happens");
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(store.stale(), "counted from the first failure");
        store.listed("y");
        assert!(store.stale(), "another watch says nothing about it");
        assert_eq!(store.listed("x"), Some(News::Otherwise));
        assert!(!store.stale());
        store.lost("x");
        assert_eq!(store.heard("x"), None);
    }

    #[test]
    fn a_kind_that_is_not_served_counts_as_listed_and_fresh_and_its_coming_is_news() {
        let store = Store::<u8>::new(["x".into()]);
        store.lost("x");
        assert_eq!(store.absent("x"), Some(News::FirstList));
        assert_eq!(store.absent("x"), None);
        assert_eq!((store.synced(), store.serves("x"), store.stale()), (true, false, false));
        assert_eq!(store.listed("x"), Some(News::Otherwise));
        assert!(store.serves("x"));
        assert_eq!(store.listed("x"), None);
    }
}
