//! Properties: whatever happens in whatever order, what must never happen does not, and a good spec gets one out.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::model::{Model, Rule};
use crate::api::{ANNOTATION_FORCE, PpndSpec, Wait};

/// What can happen to a rollout.
#[derive(Clone, Debug)]
enum Happening {
    SetVersion(usize),
    EditDefinition(usize, usize),
    RemoveDefinition(usize),
    Heal(bool),
    Refuse(bool),
    Immutable,
    Drift,
    DeleteChild(usize),
    Pass(u64),
    /// The process dies after so many steps.
    Crash(usize),
    Pause(bool),
    ForcePromote(bool),
    /// No pod of this version ever takes the lease, or every pod does.
    Leaderless(usize, bool),
    /// An old process keeps every lease for so many seconds.
    Linger(u64),
    /// Only the isolated copies become unavailable.
    BreakCopies,
    Label(usize, usize),
    /// Leases cannot be read.
    Unreadable(bool),
    /// Another strategy.
    Manner(usize),
    /// Another time-out for drains, and whether the attempt is given up then.
    DrainTimeout(usize, bool),
    /// The user will not wait.
    Force(usize),
    /// A pipeline is made, or answers otherwise from now on.
    Pipeline(usize, usize),
    /// Somebody deletes a pipeline, or its rollout.
    DeletePipeline(usize, bool),
    /// Pipelines look at who asks.
    Look,
    /// An ISB service is made, or its health changes.
    Isb(usize, bool),
    /// Another happening, which the operator has not seen when it decides the next time.
    Unseen(Box<Happening>),
}

const VERSIONS: [&str; 4] = ["1.0", "2.0", "3.0-broken", "9.9"];
const STRATEGIES: [&str; 3] = ["progressive", "no-strategy", "pause-and-drain"];
const TIMEOUTS: [Option<&str>; 4] = [None, Some("0s"), Some("1m"), Some("10m")];
const RULES: [Rule; 6] = [Rule::Drains(0), Rule::Drains(3), Rule::Undrained(2), Rule::Slow, Rule::Stuck, Rule::Excused];

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => seen(),
        1 => seen().prop_map(|happening| Happening::Unseen(Box::new(happening))),
    ]
}

fn seen() -> impl Strategy<Value = Happening> {
    prop_oneof![
        3 => (0..VERSIONS.len()).prop_map(Happening::SetVersion),
        1 => (0..VERSIONS.len(), 1..3usize).prop_map(|(v, n)| Happening::EditDefinition(v, n)),
        1 => (0..VERSIONS.len()).prop_map(Happening::RemoveDefinition),
        2 => any::<bool>().prop_map(Happening::Heal),
        1 => any::<bool>().prop_map(Happening::Refuse),
        1 => Just(Happening::Immutable),
        1 => Just(Happening::Drift),
        1 => (0..3usize).prop_map(Happening::DeleteChild),
        3 => (1..700u64).prop_map(Happening::Pass),
        4 => (0..12usize).prop_map(Happening::Crash),
        1 => any::<bool>().prop_map(Happening::Pause),
        1 => any::<bool>().prop_map(Happening::ForcePromote),
        1 => (0..VERSIONS.len(), any::<bool>()).prop_map(|(v, on)| Happening::Leaderless(v, on)),
        1 => (1..2000u64).prop_map(Happening::Linger),
        2 => Just(Happening::BreakCopies),
        1 => (0..3usize, 0..3usize).prop_map(|(n, label)| Happening::Label(n, label)),
        1 => any::<bool>().prop_map(Happening::Unreadable),
        2 => (0..STRATEGIES.len() + 2).prop_map(Happening::Manner),
        1 => (0..TIMEOUTS.len(), any::<bool>()).prop_map(|(n, abort)| Happening::DrainTimeout(n, abort)),
        1 => (0..3usize).prop_map(Happening::Force),
        2 => (0..3usize, 0..RULES.len()).prop_map(|(n, rule)| Happening::Pipeline(n, rule)),
        1 => (0..3usize, any::<bool>()).prop_map(|(n, rollout)| Happening::DeletePipeline(n, rollout)),
        3 => Just(Happening::Look),
        1 => (0..2usize, any::<bool>()).prop_map(|(n, healthy)| Happening::Isb(n, healthy)),
    ]
}

fn happen(model: &mut Model, happening: &Happening) {
    match happening {
        Happening::SetVersion(v) => model.set_version(VERSIONS[*v]),
        Happening::EditDefinition(v, n) => {
            let names = ["numaflow-controller", "helper", "other"];
            model.define(VERSIONS[*v], &names[..=*n]);
        }
        Happening::RemoveDefinition(v) => {
            model.definitions.remove(VERSIONS[*v]);
        }
        Happening::Heal(workloads) => {
            if *workloads {
                model.play_workloads();
            } else {
                model.live.values_mut().for_each(|l| l.workload.iter_mut().for_each(|w| w.available = 0));
            }
        }
        Happening::Refuse(on) => {
            if *on {
                model.refused.insert("numaflow:2.0".into());
            } else {
                model.refused.clear();
            }
        }
        Happening::Immutable => {
            model.immutable.insert("numaflow-controller".into());
        }
        Happening::Drift => model.live.values_mut().for_each(|l| l.fields = "taken".into()),
        Happening::DeleteChild(n) => {
            if let Some(name) = model.children.keys().nth(*n).cloned() {
                model.children.remove(&name);
            }
        }
        Happening::Pass(seconds) => model.pass(Duration::from_secs(*seconds)),
        Happening::Crash(steps) => {
            model.turn(*steps);
        }
        Happening::Pause(on) => model.edit(|spec| spec.paused = Some(*on)),
        Happening::ForcePromote(on) => {
            model.edit(|spec| spec.strategy.get_or_insert_default().force_promote = Some(*on));
        }
        Happening::Leaderless(v, on) => {
            if *on {
                model.leaderless.insert(VERSIONS[*v].into());
            } else {
                model.leaderless.clear();
            }
        }
        Happening::Linger(seconds) => model.lease_from = model.now + SignedDuration::from_secs(*seconds as i64),
        Happening::Unreadable(on) => model.unreadable = *on,
        Happening::Manner(n) => {
            let kind = STRATEGIES[(*n).min(STRATEGIES.len() - 1)];
            model.edit(|spec| spec.strategy.get_or_insert_default().kind = Some(kind.into()));
        }
        Happening::DrainTimeout(n, abort) => model.edit(|spec| {
            let drain_timeout = TIMEOUTS[*n].map(Wait::from);
            let ppnd = PpndSpec { drain_timeout, on_drain_timeout: abort.then(|| "Abort".into()) };
            spec.strategy.get_or_insert_default().ppnd = Some(ppnd);
        }),
        Happening::Force(n) => model.annotate(ANNOTATION_FORCE, &format!("text {n}")),
        Happening::Pipeline(n, rule) => model.pipeline(&format!("p-{n}"), RULES[*rule]),
        Happening::DeletePipeline(n, rollout) => {
            if let Some(pipe) = model.pipes.get_mut(*n) {
                if *rollout {
                    pipe.seen.rollout = None;
                } else {
                    pipe.seen.deleting = true;
                }
            }
        }
        Happening::Look => model.play_pipelines(),
        Happening::Isb(n, healthy) => model.isb(&format!("isb-{n}"), *healthy),
        Happening::Unseen(happening) => {
            let before = model.clone();
            happen(model, happening);
            // The operator's own writes, and a process that dies, are no happenings that it could miss.
            if !matches!(**happening, Happening::Crash(_)) {
                model.turn_that_has_not_seen_it(&before);
            }
        }
        Happening::BreakCopies => {
            let copies = model.live.values_mut().filter(|l| l.tracking.as_deref() != Some("numaflow-controller"));
            copies.for_each(|l| l.workload.iter_mut().for_each(|w| w.available = 0));
        }
        Happening::Label(n, label) => {
            // Somebody plays with the labels; never so that there are two promoted ones, which would be their doing.
            let value = [("upgrade-state", "recyclable"), ("upgrade-state", ""), ("force-promote", "true")][*label];
            if let Some(child) = model.children.values_mut().nth(*n) {
                let labels = child.metadata.labels.get_or_insert_default();
                labels.insert(format!("numaplane.numaproj.io/{}", value.0), value.1.into());
            }
        }
    }
}

/// A rollout that may have something confirmed, and pipelines that pause for the next version.
fn start(isolatable: bool, drains: bool) -> Model {
    let mut model = Model::with(isolatable);
    if drains {
        happen(&mut model, &Happening::Manner(2));
        model.pipeline("p-0", Rule::Drains(1));
        model.pipeline("p-1", Rule::Slow);
        model.isb("isb-0", true);
        model.run();
    }
    model
}

/// Only a time-out ends the waiting for pipelines that never pause: where there is none (or it gives up the attempt), they
/// do in the end.
fn pause_in_the_end(model: &mut Model) {
    let ppnd = model.rollout.spec.strategy.as_ref().and_then(|s| s.ppnd.clone()).unwrap_or_default();
    if ppnd.drain_timeout.is_none() || ppnd.on_drain_timeout.is_some() {
        model.pipes.iter_mut().for_each(|p| p.rule = Rule::Undrained(0));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// The invariants themselves (never two promoted, nothing pruned before its successor is applied, a fixed point in
    /// every turn, no apply to another object than the one seen) are checked by the model after each step.
    #[test]
    fn whatever_happened_a_good_spec_gets_you_out(
        isolatable in any::<bool>(), drains in any::<bool>(), history in prop::collection::vec(happening(), 0..40)
    ) {
        let mut model = start(isolatable, drains);
        for happening in &history {
            happen(&mut model, happening);
        }
        model.refused.clear();
        for n in 0..2 {
            model.isbs.get_mut(&format!("isb-{n}")).into_iter().for_each(|isb| isb.phase = "Running".into());
        }
        pause_in_the_end(&mut model);
        model.lease_from = Timestamp::MIN;
        model.unreadable = false;
        model.define("5.0", &["numaflow-controller"]);
        model.edit(|spec| spec.paused = None);
        model.set_version("5.0");
        model.run();
        prop_assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("5.0")), "{}", model.message());
        prop_assert!(!model.asks());
        prop_assert_eq!(model.children.len(), 1);
        prop_assert_eq!(model.live.len(), 2, "{:?} {:?}", model.production(), model.copies());
        // Who deletes a child, and wants another version before the pods of its copy are gone, leaves an empty lease behind.
        let deleted = history.iter().any(|h| format!("{h:?}").contains("DeleteChild"));
        let leases: Vec<_> = model.leases.keys().filter(|l| !deleted || !l.contains("-x-")).collect();
        prop_assert_eq!(leases, ["numaflow-controller-lock"]);
        let steps = model.log.len();
        model.pass(Duration::from_hours(1));
        model.settle();
        prop_assert_eq!(model.log.len(), steps, "at rest nothing is written");
    }

    #[test]
    fn every_story_has_an_end(
        isolatable in any::<bool>(), drains in any::<bool>(), history in prop::collection::vec(happening(), 0..40)
    ) {
        let mut model = start(isolatable, drains);
        for happening in &history {
            happen(&mut model, happening);
        }
        model.edit(|spec| spec.paused = None);
        pause_in_the_end(&mut model);
        model.run();
        prop_assert!(matches!(model.phase(), "Deployed" | "Failed"), "{}", model.message());
        let running = matches!(model.stage(), Some("Drain" | "CutOver" | "Confirm" | "RollBack"));
        prop_assert!(running || !model.asks(), "nobody is asked at rest");
    }

    #[test]
    fn once_something_is_confirmed_production_is_never_without_its_controller(
        isolatable in any::<bool>(), history in prop::collection::vec(happening(), 0..40)
    ) {
        let mut model = Model::with(isolatable);
        model.run();
        for happening in &history {
            let inner = if let Happening::Unseen(inner) = happening { inner } else { happening };
            if matches!(inner, Happening::Immutable) {
                // Made anew on purpose; its pods run on, which the model does not play.
                continue;
            }
            happen(&mut model, happening);
            prop_assert!(model.uid_of("numaflow-controller").is_some());
        }
    }

    #[test]
    fn a_crash_after_any_step_ends_as_if_there_had_been_none(
        version in 0..VERSIONS.len(), immutable in any::<bool>(), first in any::<bool>(), isolatable in any::<bool>(),
        drains in 0..3usize
    ) {
        let start = || {
            let mut model = Model::with(isolatable);
            if !first {
                model.run();
            }
            if drains > 0 {
                happen(&mut model, &Happening::Manner(2));
                happen(&mut model, &Happening::DrainTimeout(drains + 1, false));
                model.pipeline("p-0", Rule::Drains(1));
                model.pipeline("p-1", Rule::Slow);
            }
            if immutable {
                model.immutable.insert("numaflow-controller".into());
            }
            model.set_version(VERSIONS[version]);
            model
        };
        let mut plain = start();
        let began = plain.log.len();
        plain.run();
        let outcome = |model: &Model| {
            (
                model.phase().to_owned(),
                model.promoted().map(str::to_owned),
                model.production().into_iter().collect::<Vec<_>>(),
                model.children.keys().cloned().collect::<Vec<_>>(),
                model.condition("Ready").map(|(a, b)| (a.to_owned(), b.to_owned())),
                model.copies(),
                model.leases.keys().cloned().collect::<Vec<_>>(),
                (model.asks(), model.rollout.status.as_ref().and_then(|s| s.last_drain.clone()).map(|d| d.drained)),
                // What was made anew once is not made anew again.
                model.log.iter().filter(|step| step.starts_with("Recreate")).count(),
            )
        };
        for crash in 0..plain.log.len() - began {
            let mut model = start();
            let mut left = crash;
            // Several turns may pass before the step at which the process dies.
            for _ in 0..40 {
                model.play_workloads();
                model.play_pipelines();
                let (done, again) = model.turn(left);
                left -= done;
                if left == 0 {
                    break;
                }
                model.pass(again.unwrap_or_default() + Duration::from_secs(1));
            }
            model.run();
            prop_assert_eq!(outcome(&model), outcome(&plain), "after step {}", crash);
        }
    }
}
