//! Which processes there are: one starts when its pod becomes ready, crashes when the pod is ready no more, and lives
//! on for a while when the pod is deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::{
    configuration::{Configuration, lease_name},
    pod::{Life, Seen},
};

/// Namespace and name of a lease.
pub type Lease = (String, String);

/// A process that takes part in an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// What it writes into the lease.
    pub identity: String,
    /// Its pod.
    pub pod: String,
    /// How it stands.
    pub state: State,
}

/// How a process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its pod is ready; it may take a lease from then on.
    Running { candidate_from: Timestamp },
    /// Its pod is gone. It renews what it has until then, and takes nothing.
    Ending { until: Timestamp },
}

/// A process that is about to start, and has to know what it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its pod.
    pub pod: Seen,
    /// Which start of this pod it is, from 1.
    pub count: u32,
}

/// All processes, by the uid of their pods.
#[derive(Debug)]
pub struct Processes {
    linger: Duration,
    pods: BTreeMap<String, Slot>,
}

#[derive(Debug)]
struct Slot {
    pod: Seen,
    starts: u32,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// No process.
    Nothing,
    /// The process reads its configuration, or is to from then on.
    Starting { ask_at: Option<Timestamp> },
    /// The process runs; without a lease if it takes part in no election.
    Running { candidate_from: Timestamp, lease: Option<Lease>, configuration: Arc<Configuration> },
    /// The pod is gone.
    Ending { until: Timestamp, lease: Lease },
}

impl Processes {
    /// None yet; one whose pod goes lives on for this long, unless its pod says otherwise.
    pub fn new(linger: Duration) -> Self {
        Self { linger, pods: BTreeMap::new() }
    }

    /// Takes in a pod as it is now.
    pub fn seen(&mut self, pod: Seen, now: Timestamp) {
        let (uid, life) = (pod.uid.clone(), pod.life);
        let slot =
            self.pods.entry(uid.clone()).or_insert_with(|| Slot { pod: pod.clone(), starts: 0, phase: Phase::Nothing });
        slot.pod = pod;
        match (&slot.phase, life) {
            (Phase::Nothing, Life::Ready) => {
                slot.starts += 1;
                slot.phase = Phase::Starting { ask_at: Some(now) };
            }
            (Phase::Starting { .. } | Phase::Running { .. }, Life::Unready) => slot.phase = Phase::Nothing,
            (_, Life::Going) => self.gone(&uid, now),
            _ => {}
        }
    }

    /// Takes in that a pod takes part no more although it is still there: as if its process had crashed.
    pub fn dropped(&mut self, uid: &str) {
        if let Some(slot) = self.pods.get_mut(uid)
            && !matches!(slot.phase, Phase::Ending { .. })
        {
            slot.phase = Phase::Nothing;
        }
    }

    /// Takes in that a pod is gone.
    pub fn gone(&mut self, uid: &str, now: Timestamp) {
        let Some(slot) = self.pods.get_mut(uid) else { return };
        match &slot.phase {
            Phase::Ending { .. } => {}
            Phase::Running { lease: Some(lease), .. } => {
                let until = now + slot.pod.linger.unwrap_or(self.linger);
                slot.phase = Phase::Ending { until, lease: lease.clone() };
            }
            _ => {
                self.pods.remove(uid);
            }
        }
    }

    /// Takes in that these are all pods there are.
    pub fn only(&mut self, uids: &BTreeSet<String>, now: Timestamp) {
        let gone: Vec<String> = self.pods.keys().filter(|uid| !uids.contains(*uid)).cloned().collect();
        for uid in gone {
            self.gone(&uid, now);
        }
    }

    /// Forgets processes whose time is over, and those in namespaces where nothing is played any more.
    pub fn prune(&mut self, now: Timestamp, plays_in: impl Fn(&str) -> bool) {
        self.pods.retain(|_, slot| {
            let over = matches!(slot.phase, Phase::Ending { until, .. } if until <= now);
            !over && plays_in(&slot.pod.namespace)
        });
    }

    /// The processes that are to start now; each is told once, until [`Self::failed`].
    pub fn starting(&mut self, now: Timestamp) -> Vec<Start> {
        let mut all = Vec::new();
        for slot in self.pods.values_mut() {
            if let Phase::Starting { ask_at } = &mut slot.phase
                && ask_at.is_some_and(|at| at <= now)
            {
                *ask_at = None;
                all.push(Start { pod: slot.pod.clone(), count: slot.starts });
            }
        }
        all
    }

    /// Takes in what a process has read: it runs now.
    pub fn started(&mut self, start: &Start, configuration: &Configuration, now: Timestamp) {
        if let Some(slot) = self.slot(start) {
            let name = lease_name(&configuration.instance);
            let lease = configuration.election.then(|| (slot.pod.namespace.clone(), name));
            let candidate_from = now + slot.pod.lease_after;
            slot.phase = Phase::Running { candidate_from, lease, configuration: Arc::new(configuration.clone()) };
        }
    }

    /// Takes in that its configuration could not be read; it starts later.
    pub fn failed(&mut self, start: &Start, ask_at: Timestamp) {
        if let Some(slot) = self.slot(start) {
            slot.phase = Phase::Starting { ask_at: Some(ask_at) };
        }
    }

    /// The pod of a start that is still going on.
    fn slot(&mut self, start: &Start) -> Option<&mut Slot> {
        let slot = self.pods.get_mut(&start.pod.uid)?;
        (slot.starts == start.count && matches!(slot.phase, Phase::Starting { .. })).then_some(slot)
    }

    /// The processes that compete for each lease, in the order in which they may take it.
    pub fn by_lease(&self) -> BTreeMap<Lease, Vec<Process>> {
        let mut all: BTreeMap<Lease, Vec<Process>> = BTreeMap::new();
        for slot in self.pods.values() {
            let (lease, state) = match &slot.phase {
                Phase::Running { lease: Some(lease), candidate_from, .. } => {
                    (lease, State::Running { candidate_from: *candidate_from })
                }
                Phase::Ending { lease, until } => (lease, State::Ending { until: *until }),
                _ => continue,
            };
            let (pod, identity) = (slot.pod.name.clone(), slot.identity());
            all.entry(lease.clone()).or_default().push(Process { identity, pod, state });
        }
        for processes in all.values_mut() {
            processes.sort_by_key(|p| match p.state {
                State::Running { candidate_from } => (candidate_from, p.pod.clone()),
                State::Ending { .. } => (Timestamp::MAX, p.pod.clone()),
            });
        }
        all
    }

    /// What each process that runs has read, and its image, by identity.
    pub fn read(&self) -> BTreeMap<String, (Arc<Configuration>, String)> {
        let running = self.pods.values().filter_map(|slot| match &slot.phase {
            Phase::Running { configuration, .. } => {
                Some((slot.identity(), (configuration.clone(), slot.pod.image.clone())))
            }
            _ => None,
        });
        running.collect()
    }

    /// When something will happen by itself.
    pub fn next(&self) -> Option<Timestamp> {
        let times = self.pods.values().filter_map(|slot| match &slot.phase {
            Phase::Starting { ask_at } => *ask_at,
            Phase::Ending { until, .. } => Some(*until),
            _ => None,
        });
        times.min()
    }
}

impl Slot {
    /// `<host>_<uuid>`. The real one takes a new uuid at random; this one follows from the pod and the count of its
    /// starts, so that a stand-in that starts again while the pods run on goes on in their names.
    fn identity(&self) -> String {
        let hash = Sha256::digest(format!("{} {}", self.pod.uid, self.starts));
        let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let (first, last) = (&hex[..8], &hex[20..]);
        format!("{}_{first}-{}-{}-{}-{last}", self.pod.host, &hex[8..12], &hex[12..16], &hex[16..20])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::from_secs(18);

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn pod(name: &str, life: Life) -> Seen {
        Seen {
            namespace: "team".to_owned(),
            name: name.to_owned(),
            uid: format!("uid of {name}"),
            life,
            host: name.to_owned(),
            linger: None,
            lease_after: Duration::ZERO,
            config_maps: BTreeMap::new(),
            mounted: Vec::new(),
            image: "numaflow:1".to_owned(),
            election_disabled: None,
        }
    }

    fn elects(instance: &str) -> Configuration {
        Configuration { instance: instance.to_owned(), election: true, nats: BTreeMap::new() }
    }

    fn ready(processes: &mut Processes, pod: Seen, now: Timestamp) {
        processes.seen(pod, now);
        for start in processes.starting(now) {
            processes.started(&start, &elects(""), now);
        }
    }

    fn only_lease(processes: &Processes) -> Vec<Process> {
        let mut all = processes.by_lease();
        assert!(all.len() <= 1, "{all:?}");
        all.pop_first().map(|(_, processes)| processes).unwrap_or_default()
    }

    #[test]
    fn a_process_starts_when_its_pod_is_ready_and_has_read_what_it_needs() {
        let mut processes = Processes::new(LINGER);
        processes.seen(pod("a", Life::Unready), at(0));
        assert_eq!((processes.starting(at(0)), processes.next()), (vec![], None));
        processes.seen(pod("a", Life::Ready), at(1));
        assert_eq!(processes.next(), Some(at(1)));
        let start = processes.starting(at(1)).pop().unwrap();
        assert_eq!((processes.starting(at(1)), processes.next()), (vec![], None), "told once");
        processes.failed(&start, at(3));
        assert_eq!((processes.starting(at(2)), processes.next()), (vec![], Some(at(3))));
        assert_eq!(processes.starting(at(3)), std::slice::from_ref(&start));
        processes.started(&start, &elects("blue"), at(4));
        let all = processes.by_lease();
        let lease = ("team".to_owned(), "numaflow-controller-lock-blue".to_owned());
        assert_eq!(all[&lease][0].state, State::Running { candidate_from: at(4) });
        assert!(all[&lease][0].identity.starts_with("a_"), "{all:?}");
    }

    #[test]
    fn one_without_an_election_competes_for_nothing() {
        let mut processes = Processes::new(LINGER);
        processes.seen(pod("a", Life::Ready), at(0));
        let start = processes.starting(at(0)).pop().unwrap();
        processes.started(&start, &Configuration { election: false, ..elects("") }, at(0));
        assert_eq!(only_lease(&processes), []);
        processes.gone("uid of a", at(1));
        assert_eq!(processes.next(), None, "nothing of it lives on");
    }

    #[test]
    fn the_process_of_a_pod_that_goes_lives_on_for_a_while() {
        let mut processes = Processes::new(LINGER);
        ready(&mut processes, pod("a", Life::Ready), at(0));
        let before = only_lease(&processes);
        // First it is marked, then it is gone; the time counts from the first.
        processes.seen(pod("a", Life::Going), at(1));
        processes.gone("uid of a", at(2));
        let after = only_lease(&processes);
        assert_eq!(after[0].identity, before[0].identity);
        assert_eq!(after[0].state, State::Ending { until: at(19) });
        processes.prune(at(18), |_| true);
        assert_eq!(only_lease(&processes).len(), 1);
        processes.prune(at(19), |_| true);
        assert_eq!(only_lease(&processes), []);
    }

    #[test]
    fn a_pod_may_ask_for_another_time() {
        let mut processes = Processes::new(LINGER);
        let (linger, lease_after) = (Some(Duration::from_secs(2)), Duration::from_secs(3));
        ready(&mut processes, Seen { linger, lease_after, ..pod("a", Life::Ready) }, at(0));
        assert_eq!(only_lease(&processes)[0].state, State::Running { candidate_from: at(3) });
        processes.only(&BTreeSet::new(), at(1));
        assert_eq!(only_lease(&processes)[0].state, State::Ending { until: at(3) });
    }

    #[test]
    fn a_crash_ends_a_process_at_once_and_the_next_one_is_another() {
        let mut processes = Processes::new(LINGER);
        ready(&mut processes, pod("a", Life::Ready), at(0));
        let first = only_lease(&processes);
        processes.seen(pod("a", Life::Unready), at(1));
        assert_eq!(only_lease(&processes), []);
        ready(&mut processes, pod("a", Life::Ready), at(2));
        let second = only_lease(&processes);
        assert_ne!(first[0].identity, second[0].identity);
        processes.dropped("uid of a");
        assert_eq!(only_lease(&processes), []);
    }

    #[test]
    fn what_was_read_for_a_process_that_has_crashed_since_is_not_for_the_next() {
        let mut processes = Processes::new(LINGER);
        processes.seen(pod("a", Life::Ready), at(0));
        let first = processes.starting(at(0)).pop().unwrap();
        processes.seen(pod("a", Life::Unready), at(1));
        processes.seen(pod("a", Life::Ready), at(2));
        processes.started(&first, &elects(""), at(3));
        assert_eq!(only_lease(&processes), []);
        let second = processes.starting(at(3)).pop().unwrap();
        processes.started(&second, &elects(""), at(3));
        assert_eq!(only_lease(&processes).len(), 1);
    }

    #[test]
    fn who_could_take_the_lease_first_comes_first() {
        let mut processes = Processes::new(LINGER);
        ready(&mut processes, pod("c", Life::Ready), at(0));
        ready(&mut processes, pod("b", Life::Ready), at(1));
        ready(&mut processes, pod("a", Life::Ready), at(1));
        ready(&mut processes, pod("0", Life::Ready), at(0));
        let (read, image) = processes.read().remove(&only_lease(&processes)[0].identity).unwrap();
        assert_eq!((read.as_ref(), image.as_str()), (&elects(""), "numaflow:1"));
        processes.gone("uid of 0", at(2));
        assert_eq!(processes.read().get(&only_lease(&processes)[3].identity), None, "it does nothing any more");
        assert_eq!(only_lease(&processes).iter().map(|p| p.pod.as_str()).collect::<Vec<_>>(), ["c", "a", "b", "0"]);
        processes.prune(at(3), |namespace| namespace != "team");
        assert_eq!(only_lease(&processes), []);
    }
}
