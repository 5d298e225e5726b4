//! Rules about ISB services of rollouts and the pipelines that have their buffers in them, for the walk in `order`.

use std::collections::BTreeMap;

use super::{
    happened::{Asks, Happened, Kind, Service, Set, What},
    requesters::By,
};

/// The ISB services as they are at one time.
#[derive(Default)]
pub struct Services<'a> {
    services: BTreeMap<&'a str, One<'a>>,
    /// By ISB service.
    sets: BTreeMap<&'a str, (&'a str, &'a Set)>,
    /// Rollouts of ISB services.
    asks: BTreeMap<&'a str, &'a Asks>,
}

struct One<'a> {
    uid: &'a str,
    service: &'a Service,
    /// Whether it was changed, and not every replica has been of that since.
    pending: bool,
}

/// What is done to an ISB service of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done<'a> {
    /// It was changed in a way that may lose what is in it.
    Changed(&'a str),
    /// It is to go.
    Goes(&'a str),
}

impl<'a> Services<'a> {
    /// Takes in what happened, and tells what it does to an ISB service.
    pub fn take(&mut self, happened: &'a Happened) -> Option<Done<'a>> {
        let name = happened.name.as_str();
        match &happened.what {
            What::Service(service) => {
                let before = self.services.get(name).filter(|one| one.uid == happened.uid);
                let changed = before.is_some_and(|one| one.service.work != service.work);
                let goes = service.deleting && before.is_some_and(|one| !one.service.deleting);
                let pending = changed || before.is_some_and(|one| one.pending);
                self.services.insert(name, One { uid: &happened.uid, service, pending });
                self.look_at(name);
                if service.parent.is_empty() {
                    None
                } else if changed {
                    Some(Done::Changed(name))
                } else {
                    goes.then_some(Done::Goes(name))
                }
            }
            What::Set(set) => {
                self.sets.insert(&set.service, (&happened.uid, set));
                self.look_at(&set.service);
                None
            }
            What::Asks(asks) if asks.by == By::Isb => {
                self.asks.insert(name, asks);
                None
            }
            What::Gone(Kind::Service) => {
                self.services.remove(name);
                None
            }
            What::Gone(Kind::Set) => {
                self.sets.retain(|_, (uid, _)| *uid != happened.uid);
                None
            }
            What::Gone(Kind::IsbRollout) => {
                self.asks.remove(name);
                None
            }
            _ => None,
        }
    }

    /// Whether a change is carried out by now.
    fn look_at(&mut self, name: &str) {
        let Some(one) = self.services.get_mut(name) else { return };
        let of_it = |set: &Set| set.rolled && (one.service.image.is_empty() || one.service.image == set.image);
        if one.service.observed && self.sets.get(name).is_some_and(|(_, set)| of_it(set)) {
            one.pending = false;
        }
    }

    fn asks_for(&self, service: &str) -> Option<&'a Asks> {
        self.asks.get(self.services.get(service)?.service.parent.as_str()).copied()
    }

    /// Whether it is on record that a pipeline was not drained for the change of its ISB service, and why.
    pub fn excuse(&self, service: &str, pipeline: &str) -> bool {
        self.asks_for(service).is_some_and(|asks| asks.undrained.iter().any(|name| name == pipeline))
    }

    /// Whether an ISB service was changed by its rollout, and is not yet what it is to be. Where the rollout goes, nobody sees
    /// to that any more.
    pub fn is_changing(&self, service: &str) -> bool {
        let minded = self.asks_for(service).is_some_and(|asks| !asks.deleting);
        minded && self.services.get(service).is_some_and(|one| one.pending)
    }
}

/// Pipelines that were resumed, or made so that they run, while somebody asked for their pause who was not on the way out.
pub fn resumed_while_asked(all: &[&Happened]) -> Vec<String> {
    let mut broken = Vec::new();
    let (mut asking, mut ran) = (BTreeMap::new(), BTreeMap::new());
    for happened in all {
        let name = happened.name.as_str();
        match &happened.what {
            What::Asks(asks) => {
                asking.insert((happened.kind(), name), asks);
            }
            What::Gone(kind @ (Kind::ControllerRollout | Kind::IsbRollout)) => {
                asking.remove(&(*kind, name));
            }
            What::Pipeline(made, state) if !made.parent.is_empty() && !state.deleting => {
                let runs = !state.wants_pause();
                let resumed = runs && ran.insert(&happened.uid, runs) != Some(true);
                ran.insert(&happened.uid, runs);
                let meant = |asks: &&Asks| {
                    let of_it = if asks.by == By::Controller { &made.instance } else { &made.service };
                    asks.active && !asks.deleting && asks.scope == *of_it
                };
                for ((kind, by), _) in asking.iter().filter(|(_, asks)| resumed && meant(asks)) {
                    broken.push(format!(
                        "Pipeline/{name} was resumed at {} while {kind:?} {by} asked for its pause",
                        happened.at
                    ));
                }
            }
            _ => {}
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::{
        super::{happened::Made, order::all_broken, pauses::State},
        *,
    };

    /// A pipeline `p-0` on the ISB service `s-0` of the rollout `s`; each line is at the next version.
    ///
    /// - `runs`, `pausing`, `paused`, `resumed`, `moved`: the pipeline; a vertex goes with it
    /// - `service <version> <observed or not>`, `service going`, `set <version> <rolled or not>`
    /// - `asks`, `asks <undrained>`, `quiet`, `leaves`: the rollout of the ISB service
    fn story(lines: &[&str]) -> Vec<Happened> {
        let mut all: Vec<Happened> = Vec::new();
        let mut generation = 1;
        for (n, line) in lines.iter().enumerate() {
            let words: Vec<&str> = line.split(' ').collect();
            let mut pipeline = |desired: &str, phase: &str, service: &str| {
                generation += i64::from(phase == "-");
                let state = State {
                    at: Timestamp::UNIX_EPOCH,
                    version: n as u64,
                    uid: "p".to_owned(),
                    generation,
                    observed: Some(generation - i64::from(phase == "-")),
                    desired: desired.to_owned(),
                    grace: None,
                    phase: phase.to_owned(),
                    pause_timestamp: (phase == "Paused").then(|| "then".to_owned()),
                    drained: false,
                    spec: service.to_owned(),
                    deleting: false,
                };
                let (parent, service) = ("p".to_owned(), service.to_owned());
                ("p-0", What::Pipeline(Made { parent, service, ..Made::default() }, Box::new(state)))
            };
            let asks = |active, deleting, undrained: &[&str]| {
                let undrained = undrained.iter().map(|name| (*name).to_owned()).collect();
                let scope = "s-0".to_owned();
                ("s", What::Asks(Asks { by: By::Isb, active, wrong: None, deleting, scope, undrained }))
            };
            let service = |version: &str, observed, deleting| {
                let (parent, work, image) = ("s".to_owned(), version.to_owned(), version.to_owned());
                ("s-0", What::Service(Service { parent, observed, work, image, deleting }))
            };
            let (name, what) = match words[..] {
                ["runs"] => pipeline("Running", "Running", "s-0"),
                ["pausing"] => pipeline("Paused", "-", "s-0"),
                ["paused"] => pipeline("Paused", "Paused", "s-0"),
                ["resumed"] => pipeline("Running", "-", "s-0"),
                ["moved"] => pipeline("Paused", "Paused", "other"),
                ["service", "going"] => service("1", true, true),
                ["service", version, observed] => service(version, observed == "observed", false),
                ["set", version, rolled] => {
                    let (of, image) = ("s-0".to_owned(), version.to_owned());
                    ("set", What::Set(Set { service: of, rolled: rolled == "rolled", image }))
                }
                ["asks", ref undrained @ ..] => asks(true, false, undrained),
                ["quiet"] => asks(false, false, &[]),
                ["leaves"] => asks(true, true, &[]),
                _ => panic!("{line}"),
            };
            let (name, uid) = (name.to_owned(), name.to_owned());
            all.push(Happened { at: n as u64, seen: Timestamp::UNIX_EPOCH, name, uid, what });
        }
        all
    }

    fn count(parts: &[&[&str]]) -> usize {
        let all = story(&parts.concat());
        all_broken(&all.iter().collect::<Vec<_>>(), false, &[]).len()
    }

    const RUNS: [&str; 4] = ["service 1 observed", "set 1 rolled", "runs", "asks"];
    const PAUSED: [&str; 2] = ["pausing", "paused"];
    const CHANGED: [&str; 2] = ["service 2 not", "service 2 observed"];
    const ROLLED: [&str; 2] = ["set 2 not", "set 2 rolled"];

    #[test]
    fn a_service_that_changes_while_its_pipelines_are_paused_and_is_rolled_before_they_run_breaks_no_rule() {
        assert_eq!(count(&[&RUNS, &PAUSED, &CHANGED, &ROLLED, &["quiet", "resumed"]]), 0);
        // And back, because it was not healthy.
        let back: &[&str] = &["service 1 not", "service 1 observed", "set 1 not", "set 1 rolled", "quiet", "resumed"];
        assert_eq!(count(&[&RUNS, &PAUSED, &CHANGED, &["set 2 not"], back]), 0);
    }

    #[test]
    fn a_service_is_not_changed_while_a_pipeline_on_it_runs_or_pauses_unless_that_is_on_record() {
        assert_eq!(count(&[&RUNS, &CHANGED]), 1);
        assert_eq!(count(&[&RUNS, &["pausing"], &CHANGED]), 1);
        assert_eq!(count(&[&RUNS, &["asks p-0"], &CHANGED]), 0);
        assert_eq!(count(&[&RUNS, &["asks q-0"], &CHANGED]), 1);
    }

    #[test]
    fn a_pipeline_is_not_resumed_before_every_replica_of_its_service_is_of_the_change() {
        for changed in
            [&CHANGED[..1], &CHANGED, &["service 2 observed", "set 2 not"], &["service 2 not", "set 2 rolled"]]
        {
            assert_eq!(count(&[&RUNS, &PAUSED, changed, &["quiet", "resumed"]]), 1, "{changed:?}");
        }
        // Nobody sees to it any more.
        assert_eq!(count(&[&RUNS, &PAUSED, &CHANGED, &["leaves", "resumed"]]), 0);
    }

    #[test]
    fn a_pipeline_never_goes_to_another_service_in_place_and_its_service_does_not_go_before_it() {
        // Which is a change of what it does, too; that it is paused excuses only this.
        assert_eq!(count(&[&RUNS, &PAUSED, &["moved"]]), 1);
        assert_eq!(count(&[&RUNS, &PAUSED, &["service going"]]), 1);
    }

    #[test]
    fn who_is_resumed_while_somebody_asks_for_a_pause_is_named() {
        let count = |parts: &[&[&str]]| resumed_while_asked(&story(&parts.concat()).iter().collect::<Vec<_>>()).len();
        assert_eq!(count(&[&RUNS, &PAUSED, &["quiet", "resumed"]]), 0);
        assert_eq!(count(&[&RUNS, &PAUSED, &["leaves", "resumed"]]), 0);
        assert_eq!(count(&[&RUNS, &PAUSED, &["resumed"]]), 1);
        assert_eq!(count(&[&["asks"], &["runs"]]), 1);
    }
}
