//! What became of pipelines, their vertices, their pods and those who ask for pauses, in one order; and rules about how one
//! follows on another.
//!
//! Each kind has a watch of its own, and nothing orders the events of one against those of another. So nothing here goes by
//! when an event came in: all are put in the order of their resourceVersions. These are the revisions of the one etcd in which
//! all kinds are kept, numbers that are given once; that of an object that is gone is the revision in which it went. What is
//! still on its way is waited for before rules are looked at, see `Recorder::caught_up`. After a watch was begun anew nobody
//! knows when an object went that is not there any more: it is taken for gone from when it was last seen, which accuses nobody.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{
    happened::{Happened, Kind, Made, Noted, Pod, Vertex, What},
    pauses::State,
    services::{Done, Services},
};

/// What is true of a pipeline at one time.
#[derive(Default)]
struct Now<'a> {
    state: Option<&'a State>,
    made: Made,
    /// What was made of the spec when this was applied.
    base: Made,
    vertices: BTreeMap<&'a str, &'a Vertex>,
    pods: BTreeMap<&'a str, &'a Pod>,
    /// Since the wanted phase was turned to Paused: whether it was seen paused, every vertex told to pause and no pod left.
    settled: bool,
    /// Whether it was ever where it was to be: what is made before that is no change.
    stood: bool,
}

struct Walk {
    broken: Vec<String>,
    left: Vec<Left>,
}

/// A pipeline that was deleted while it was not paused: in order, unless another one is made for it that differs.
struct Left {
    at: u64,
    uid: String,
    made: Made,
    words: String,
}

impl Now<'_> {
    /// Whether it is there to stay, and there is a rollout that sees to it.
    fn managed(&self) -> bool {
        !self.made.parent.is_empty() && self.state.is_some_and(|s| !s.deleting)
    }

    /// What is wrong with what was done to the ISB service of this pipeline, if anything is.
    fn left_alone(&self, name: &str, done: Option<Done>, services: &Services) -> Option<String> {
        let (Done::Changed(service) | Done::Goes(service)) = done?;
        if !self.managed() || self.made.service != service {
            return None;
        }
        let at_risk = self.stood && !self.paused() && !services.excuse(service, name);
        match done? {
            Done::Changed(_) => {
                at_risk.then(|| format!("InterStepBufferService/{service} changed and Pipeline/{name} was not paused"))
            }
            Done::Goes(_) => Some(format!("InterStepBufferService/{service} was deleted before Pipeline/{name}")),
        }
    }

    fn pausing(&self) -> bool {
        self.state.is_some_and(|s| s.wants_pause() && !s.deleting) && !self.settled
    }

    fn paused(&self) -> bool {
        self.state.is_some_and(State::wants_pause) && self.settled
    }

    /// Whether everything of it stands still at this time.
    fn still(&self, time: Timestamp) -> bool {
        self.vertices.values().all(|v| v.desired == "Paused")
            && self.pods.values().all(|pod| pod.until.is_some_and(|until| until <= time))
    }

    fn left(&self, time: Timestamp) -> String {
        let told = self.vertices.iter().filter(|(_, v)| v.desired != "Paused").map(|(name, _)| *name);
        let told = told.collect::<Vec<_>>().join(", ");
        let pods = self.pods.values().filter(|pod| pod.until.is_none_or(|until| until > time)).count();
        let state = self.state.map(ToString::to_string).unwrap_or_default();
        format!("it was {state}; vertices that were not told: [{told}]; pods: {pods}")
    }
}

/// What is on record about changes that did not wait for a pause, and for which of them it is.
#[derive(Default)]
struct Records<'a> {
    /// By rollout, each with what was applied first after it came in.
    noted: BTreeMap<&'a str, Vec<(&'a Noted, Option<&'a str>)>>,
    /// The pipeline of each rollout, and what was applied to it last.
    applied: BTreeMap<&'a str, (&'a str, &'a str)>,
}

impl<'a> Records<'a> {
    fn take(&mut self, happened: &'a Happened) {
        match &happened.what {
            What::Record(said) => {
                let before = self.noted.remove(happened.name.as_str()).unwrap_or_default();
                // The same one still, also when its pause is over by now or somebody else asks for that, too.
                let same = |a: &Noted, b: &Noted| (&a.since, &a.words) == (&b.since, &b.words);
                let known = |noted: &Noted| before.iter().find(|(old, _)| same(old, noted)).and_then(|(_, of)| *of);
                self.noted.insert(&happened.name, said.iter().map(|noted| (noted, known(noted))).collect());
            }
            What::Pipeline(made, _) if !made.applied.is_empty() => {
                let now = (happened.name.as_str(), made.applied.as_str());
                let before = self.applied.insert(&made.parent, now);
                if before.is_some_and(|before| before != now) {
                    let noted = self.noted.get_mut(made.parent.as_str()).into_iter().flatten();
                    noted.for_each(|(_, of)| *of = of.or(Some(now.1)));
                }
            }
            _ => {}
        }
    }

    /// Whether it is on record why this of a rollout did not wait. Where no hash says for what a record is, it is for what is
    /// applied next.
    fn excuse(&self, parent: &str, hash: &str) -> bool {
        self.noted.get(parent).into_iter().flatten().any(|(noted, of)| {
            if noted.reason.starts_with("change ") {
                !hash.is_empty() && noted.reason.contains(hash)
            } else {
                of.is_none_or(|of| of == hash)
            }
        })
    }
}

/// What was done to a pipeline that must not be done: a change, of it or of a vertex, while a pause is asked for and not
/// settled; and one that can lose data without any pause and without a word on record why.
///
/// Where the operator is told that changes may lose data, only the first of these is.
fn walk(all: &[&Happened], name: &str, lossy: bool) -> Walk {
    let (mut broken, mut left) = (Vec::new(), Vec::new());
    let mut now = Now::default();
    let (mut records, mut services) = (Records::default(), Services::default());
    for happened in all {
        let (at, time) = (happened.at, happened.seen);
        records.take(happened);
        let done = services.take(happened);
        if !lossy && let Some(words) = now.left_alone(name, done, &services) {
            broken.push(format!("{words}, at {at}: {}", now.left(time)));
        }
        match &happened.what {
            What::Pipeline(made, state) if happened.name == name => {
                if now.state.is_none_or(|before| before.uid != state.uid) {
                    now = Now {
                        vertices: std::mem::take(&mut now.vertices),
                        pods: std::mem::take(&mut now.pods),
                        ..Now::default()
                    };
                    now.base = made.clone();
                }
                let excused = records.excuse(&made.parent, &made.applied);
                if now.managed() && made.service != now.made.service {
                    let (from, to) = (&now.made.service, &made.service);
                    broken.push(format!("Pipeline/{name} went from the ISB service {from} to {to} in place at {at}"));
                }
                let resumed = now.state.is_some_and(|s| s.wants_pause() && !state.wants_pause());
                if now.managed() && resumed && services.is_changing(&made.service) {
                    let service = &made.service;
                    broken.push(format!(
                        "Pipeline/{name} was resumed at {at} before InterStepBufferService/{service} was rolled"
                    ));
                }
                if now.pausing() && !state.deleting && now.state.is_some_and(|s| s.spec != state.spec) && !excused {
                    broken.push(format!(
                        "Pipeline/{name}: its spec changed at {at} before its pause was settled: {}",
                        now.left(time)
                    ));
                }
                if made.applied != now.base.applied && !made.applied.is_empty() {
                    let loses = !now.base.applied.is_empty() && made.work != now.base.work && !lossy;
                    if loses && !now.paused() && !excused {
                        broken.push(format!(
                            "Pipeline/{name}: {} was applied at {at} without a pause, and nothing on record says why: {}",
                            made.applied,
                            now.left(time)
                        ));
                    }
                    now.base = made.clone();
                }
                if now.state.is_none_or(|before| before.wants_pause() != state.wants_pause()) {
                    now.settled = false;
                }
                let goes = state.deleting && now.state.is_none_or(|before| !before.deleting);
                if goes && !made.parent.is_empty() && !now.paused() && !excused && !lossy {
                    let words = format!(
                        "Pipeline/{name} was deleted at {at} without a pause, to be made anew: {}",
                        now.left(time)
                    );
                    left.push(Left { at, uid: state.uid.clone(), made: made.clone(), words });
                }
                (now.state, now.made) = (Some(state.as_ref()), made.clone());
            }
            What::Vertex(vertex) if vertex.pipeline == name => {
                let before = now.vertices.insert(&happened.name, vertex);
                let changed = before.map_or(now.stood, |before| before.work != vertex.work);
                if changed && now.pausing() && !records.excuse(&now.made.parent, &now.made.applied) {
                    let what = if before.is_some() { "changed" } else { "came" };
                    let left = now.left(time);
                    broken
                        .push(format!("Vertex/{} {what} at {at} before the pause was settled: {left}", happened.name));
                }
            }
            What::Pod(pod) if pod.pipeline == name => {
                now.pods.insert(&happened.uid, pod);
            }
            What::Gone(Kind::Vertex) => {
                let known = now.vertices.remove(happened.name.as_str()).is_some();
                if known && now.pausing() && !records.excuse(&now.made.parent, &now.made.applied) {
                    let left = now.left(time);
                    broken.push(format!("Vertex/{} went at {at} before the pause was settled: {left}", happened.name));
                }
            }
            What::Gone(Kind::Pod) => {
                now.pods.remove(happened.uid.as_str());
            }
            What::Gone(Kind::Pipeline) if happened.name == name => now.state = None,
            _ => continue,
        }
        if let Some(state) = now.state.filter(|state| state.settled()) {
            now.stood = true;
            now.settled |= state.wants_pause() && now.still(time);
        }
    }
    Walk { broken, left }
}

/// Everything that was done to pipelines and must not be done.
pub fn all_broken(all: &[&Happened], lossy: bool, by_hand: &[String]) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for happened in all.iter().filter(|h| matches!(h.what, What::Pipeline(..))) {
        if !names.contains(&happened.name.as_str()) {
            names.push(&happened.name);
        }
    }
    let (mut broken, mut left) = (asked_too_early(all), Vec::new());
    for name in names {
        let walk = walk(all, name, lossy);
        broken.extend(walk.broken);
        if !by_hand.iter().any(|deleted| deleted == name) {
            left.extend(walk.left);
        }
    }
    // Those that went without a pause and were followed by another one that is made otherwise.
    for left in left {
        let next = all.iter().find_map(|h| match &h.what {
            What::Pipeline(made, _) if h.at > left.at && h.uid != left.uid && made.parent == left.made.parent => {
                Some(made)
            }
            _ => None,
        });
        if next.is_some_and(|next| next.work != left.made.work) {
            broken.push(left.words);
        }
    }
    broken
}

/// Requests for pauses that must not be made.
fn asked_too_early(all: &[&Happened]) -> Vec<String> {
    let wrong = all.iter().filter_map(|happened| match &happened.what {
        What::Asks(asks) => {
            let (kind, name, at) = (asks.by.kind(), &happened.name, happened.at);
            asks.wrong.as_ref().map(|words| format!("{kind}/{name} {words}, at {at}"))
        }
        _ => None,
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipeline `p-0` of the rollout `p`, one vertex and one pod of it; each line is at the next version.
    ///
    /// - `is <generation>/<observed> <desired> <phase> <pts or -> <spec>`; the spec is what was applied, and what it does
    /// - `vertex <desired> <spec>`, `pod`, `pod lost`, `record <spec>`, `record pause <who asks for it>`, `going`
    /// - `vertex gone`, `pod gone`
    fn story(lines: &[&str]) -> Vec<Happened> {
        let mut all: Vec<Happened> = Vec::new();
        for (n, line) in lines.iter().enumerate() {
            let words: Vec<&str> = line.split(' ').collect();
            let pipeline = "p-0".to_owned();
            let (name, what) = match words[..] {
                ["is", generations, desired, phase, pts, spec] => {
                    let (generation, observed) = generations.split_once('/').unwrap();
                    let state = State {
                        at: Timestamp::UNIX_EPOCH,
                        version: n as u64,
                        uid: "p-0".to_owned(),
                        generation: generation.parse().unwrap(),
                        observed: observed.parse().ok(),
                        desired: desired.to_owned(),
                        grace: None,
                        phase: phase.to_owned(),
                        pause_timestamp: (pts == "pts").then(|| "then".to_owned()),
                        drained: false,
                        spec: spec.to_owned(),
                        deleting: false,
                    };
                    let (applied, work) = (spec.to_owned(), spec.to_owned());
                    let made = Made { parent: "p".to_owned(), applied, work, ..Made::default() };
                    ("p-0", What::Pipeline(made, Box::new(state)))
                }
                ["going"] => {
                    let last = all.iter().rev().find_map(|h| match &h.what {
                        What::Pipeline(made, state) => {
                            Some((made.clone(), State { deleting: true, ..(**state).clone() }))
                        }
                        _ => None,
                    });
                    let (made, state) = last.unwrap();
                    ("p-0", What::Pipeline(made, Box::new(state)))
                }
                ["vertex", "gone"] => ("v", What::Gone(Kind::Vertex)),
                ["vertex", desired, work] => {
                    ("v", What::Vertex(Vertex { pipeline, desired: desired.to_owned(), work: work.to_owned() }))
                }
                ["pod"] => ("pod", What::Pod(Pod { pipeline, until: None })),
                ["pod", "lost"] => ("pod", What::Pod(Pod { pipeline, until: Some(Timestamp::UNIX_EPOCH) })),
                ["pod", "gone"] => ("pod", What::Gone(Kind::Pod)),
                ["record", ref of @ ..] => {
                    let reason = match of {
                        [spec] => format!("change {spec} of its own spec"),
                        _ => format!("{} asks for it", of[1]),
                    };
                    let words = "applied without a pause: forced".to_owned();
                    ("p", What::Record(vec![Noted { since: of[0].to_owned(), reason, words }]))
                }
                _ => panic!("{line}"),
            };
            let (name, uid) = (name.to_owned(), name.to_owned());
            all.push(Happened { at: n as u64, seen: Timestamp::UNIX_EPOCH, name, uid, what });
        }
        all
    }

    fn told(lines: &[&str]) -> Vec<String> {
        all_broken(&story(lines).iter().collect::<Vec<_>>(), false, &[])
    }

    /// Runs with `a`.
    const RUNS: [&str; 3] = ["is 1/1 Running Running - a", "vertex Running a", "pod"];
    /// Says that it is paused, and has one vertex more to tell and one pod left.
    const SAYS: [&str; 2] = ["is 2/1 Paused Running - a", "is 2/2 Paused Paused pts a"];

    fn count(parts: &[&[&str]]) -> usize {
        told(&parts.concat()).len()
    }

    #[test]
    fn a_change_in_a_pause_that_is_settled_breaks_no_rule() {
        let paused: [&[&str]; 3] = [&RUNS, &SAYS, &["vertex Paused a", "pod gone"]];
        let changed: &[&str] = &["is 3/2 Paused Paused pts b", "is 3/3 Paused Paused pts b", "vertex Paused b"];
        let resumed: &[&str] =
            &["is 4/3 Running Paused pts b", "vertex Running b", "is 4/4 Running Running - b", "pod"];
        assert_eq!(told(&[&paused.concat(), changed, resumed].concat()), Vec::<String>::new());
        // Whether one more vertex comes or the one that there was goes.
        assert_eq!(count(&[&paused.concat(), changed, &["vertex gone"]]), 0);
        // A pod that is on a node that is gone does not count.
        assert_eq!(count(&[&RUNS, &SAYS, &["vertex Paused a", "pod lost"], changed]), 0);
    }

    #[test]
    fn what_says_that_it_is_paused_is_not_changed_while_a_vertex_or_a_pod_is_left() {
        let changed: &[&str] = &["is 3/2 Paused Paused pts b", "vertex Paused b"];
        for left in [&["vertex Paused a"][..], &["pod gone"], &[]] {
            // The pipeline before its pause is settled and without it, and its vertex.
            assert_eq!(count(&[&RUNS, &SAYS, left, changed]), 3, "{left:?}");
        }
        assert_eq!(count(&[&RUNS, &SAYS, &["vertex gone"]]), 1);
        // Who goes altogether takes its vertices along.
        assert_eq!(count(&[&RUNS, &SAYS, &["going", "vertex gone"]]), 0);
    }

    #[test]
    fn a_spec_that_changes_together_with_or_during_the_way_into_a_pause_breaks_a_rule() {
        assert_eq!(count(&[&RUNS, &["is 2/1 Paused Running - b"]]), 1);
        let pausing: &[&str] = &["is 2/1 Paused Running - a", "is 2/2 Paused Pausing pts a"];
        assert_eq!(count(&[&RUNS, pausing, &["is 3/2 Paused Pausing pts b"]]), 2);
        assert_eq!(count(&[&RUNS, pausing, &["vertex Running b"]]), 1);
        // What is made paused from the beginning gets its vertices on the way into that pause.
        assert_eq!(count(&[&["is 1/1 Paused Pausing pts a", "vertex Paused a", "is 1/1 Paused Paused pts a"]]), 0);
    }

    #[test]
    fn a_change_without_a_pause_needs_a_record_of_why() {
        let changed: &[&str] = &["is 2/1 Running Running - b", "vertex Running b"];
        assert_eq!(count(&[&RUNS, changed]), 1);
        assert_eq!(count(&[&RUNS, &["record b"], changed]), 0);
        assert_eq!(count(&[&RUNS, &["record c"], changed]), 1);
        // The pause of another change does not count, nor one that is over.
        let over: &[&str] = &["vertex Paused a", "pod gone", "is 3/2 Running Paused pts a"];
        assert_eq!(count(&[&RUNS, &SAYS, over, &["is 4/2 Running Paused pts b"]]), 1);
        assert!(all_broken(&story(&[&RUNS, changed].concat()).iter().collect::<Vec<_>>(), true, &[]).is_empty());
    }

    #[test]
    fn a_record_without_a_hash_is_for_what_is_applied_next_and_no_other() {
        let first: &[&str] = &["record pause x", "is 2/1 Running Running - b", "vertex Running b"];
        let second: &[&str] = &["is 3/2 Running Running - c", "vertex Running c"];
        assert_eq!(count(&[&RUNS, first]), 0);
        assert_eq!(count(&[&RUNS, first, second]), 1);
        // Neither is it a new one when somebody else asks for its pause, too, or when it is written again.
        assert_eq!(count(&[&RUNS, first, &["record pause x,y"], second]), 1);
        // One that came in later is one of its own, and so is one that is there again.
        assert_eq!(count(&[&RUNS, first, &["record c"], second]), 0);
        assert_eq!(count(&[&RUNS, first, &["record c", "record pause x"], second]), 0);
        // What follows of what it was for is excused, too.
        let pausing: &[&str] = &["is 2/1 Paused Running - a", "record pause x", "is 3/1 Paused Running - b"];
        assert_eq!(count(&[&RUNS, pausing, &["vertex Running b"]]), 0);
        assert_eq!(count(&[&RUNS, pausing, &["is 4/1 Paused Running - c", "vertex Running c"]]), 3);
    }

    #[test]
    fn a_record_of_one_change_excuses_no_pipeline_that_says_nothing_of_what_was_applied() {
        // The last word of the last line, what was applied, is empty.
        let pausing: &[&str] = &["is 2/1 Paused Running - a", "is 2/2 Paused Pausing pts a"];
        assert_eq!(count(&[&RUNS, pausing, &["record c", "is 3/2 Paused Pausing pts "]]), 1);
    }

    #[test]
    fn what_goes_without_a_pause_is_not_followed_by_one_that_is_made_otherwise() {
        let next = |spec: &str| {
            let mut all = story(&[&RUNS[..], &["going", "is 1/1 Running Running - next"]].concat());
            let last = all.last_mut().unwrap();
            let What::Pipeline(made, state) = &mut last.what else { panic!() };
            (made.work, state.uid) = (spec.to_owned(), "p-1".to_owned());
            (last.name, last.uid) = ("p-1".to_owned(), "p-1".to_owned());
            all_broken(&all.iter().collect::<Vec<_>>(), false, &[]).len()
        };
        assert_eq!((next("a"), next("b")), (0, 1));
    }
}
