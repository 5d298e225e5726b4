//! Whatever happened, a MonoVertex ends as its spec asks. The model itself refuses that it is said to be paused while a pod
//! works, that a change which waits for that goes in before, and that a phase is turned while something is not known.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::model::{Model, spec};
use crate::api;

/// What may happen.
#[derive(Clone, Debug)]
enum Happening {
    Turn,
    Step,
    Numaflow,
    PodsGo,
    Time(i64),
    Image(u8),
    Source(i64),
    Sink(bool),
    Instance(bool),
    UserPauses(bool),
    Force(u8),
    Allows(bool),
    Alive(bool),
    Gone,
    Unknown(bool),
    Blind(bool),
    MeddlePhase(u8),
    Scale(Option<i64>),
    Meddle(u8),
    Refuses(bool, bool),
    RefusesPhase(bool),
    Broken,
    Invalid,
    Strategy(bool),
    Lists(bool),
    Replicas(Option<i64>, bool),
    Fast(bool),
    Deleted,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    use Happening as H;
    let one = prop_oneof![
        5 => Just(H::Turn),
        4 => Just(H::Step),
        6 => Just(H::Numaflow),
        3 => Just(H::PodsGo),
        2 => (1i64..90).prop_map(H::Time),
        2 => (0u8..4).prop_map(H::Image),
        3 => (5i64..9).prop_map(H::Source),
        1 => any::<bool>().prop_map(H::Sink),
        1 => any::<bool>().prop_map(H::Instance),
        2 => any::<bool>().prop_map(H::UserPauses),
        1 => (0u8..3).prop_map(H::Force),
        1 => any::<bool>().prop_map(H::Allows),
        1 => any::<bool>().prop_map(H::Alive),
        1 => Just(H::Gone),
        1 => any::<bool>().prop_map(H::Unknown),
        1 => any::<bool>().prop_map(H::Blind),
        1 => (0u8..4).prop_map(H::MeddlePhase),
        1 => proptest::option::of(1i64..9).prop_map(H::Scale),
        1 => (0u8..3).prop_map(H::Meddle),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(yes, lies)| H::Refuses(yes, lies)),
        1 => any::<bool>().prop_map(H::RefusesPhase),
        1 => Just(H::Broken),
        1 => Just(H::Invalid),
        1 => any::<bool>().prop_map(H::Strategy),
        1 => any::<bool>().prop_map(H::Lists),
        1 => (proptest::option::of(1i64..9), any::<bool>()).prop_map(|(n, fixed)| H::Replicas(n, fixed)),
        1 => any::<bool>().prop_map(H::Fast),
        1 => Just(H::Deleted),
    ];
    proptest::collection::vec(one, 1..40)
}

fn happen(m: &mut Model, what: &Happening) {
    let meddle = |m: &mut Model, patch: Value| {
        if m.child.is_some() {
            m.meddle(&patch);
        }
    };
    match what {
        Happening::Turn => drop(m.turn()),
        Happening::Step => m.step(),
        Happening::Numaflow => m.numaflow(),
        Happening::PodsGo => m.pods_go(),
        Happening::Time(seconds) => m.pass_time(*seconds),
        Happening::Image(n) => m.image(&format!("f:{n}")),
        Happening::Source(rpu) => m.edit(|spec| spec["source"] = json!({"generator": {"rpu": rpu}})),
        Happening::Sink(other) => {
            m.edit(|spec| spec["sink"] = if *other { json!({"blackhole": {}}) } else { json!({"log": {}}) });
        }
        Happening::Instance(other) => {
            let instance = if *other { json!({"numaflow.numaproj.io/instance": "b"}) } else { json!({}) };
            let metadata = serde_json::from_value(json!({"annotations": instance})).unwrap();
            m.rollout.spec.mono_vertex.metadata = Some(metadata);
            m.edit(|_| {});
        }
        Happening::UserPauses(yes) => m.edit(|spec| {
            spec["lifecycle"] = if *yes { json!({"desiredPhase": "Paused"}) } else { json!({}) };
        }),
        Happening::Force(n) => m.annotate("force", &n.to_string()),
        Happening::Allows(yes) => m.annotate("allow-data-loss", if *yes { "true" } else { "false" }),
        Happening::Alive(alive) => (m.alive, m.gone) = (*alive, false),
        Happening::Gone => (m.alive, m.gone) = (false, true),
        Happening::Unknown(yes) => m.unknown = if *yes { vec!["MonoVertexRollouts".into()] } else { Vec::new() },
        Happening::Blind(yes) => m.blind = *yes,
        Happening::MeddlePhase(n) => {
            let phase = [json!("Paused"), json!("Running"), json!(""), Value::Null][usize::from(*n)].clone();
            meddle(m, json!({"lifecycle": {"desiredPhase": phase}}));
        }
        Happening::Scale(replicas) => meddle(m, json!({"replicas": replicas})),
        Happening::Meddle(n) => {
            let patches =
                [json!({"udf": {"container": {"image": "x:1"}}}), json!({"limits": {}}), json!({"sink": null})];
            meddle(m, patches[usize::from(*n)].clone());
        }
        Happening::Refuses(yes, lies) => (m.refuses, m.lies) = (yes.then(|| "\"rpu\":7".to_owned()), *lies),
        Happening::RefusesPhase(yes) => m.refuses_phase = *yes,
        Happening::Broken => m.edit(|spec| spec["source"] = json!({})),
        Happening::Invalid => m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": "Nonsense"})),
        Happening::Strategy(none) => {
            m.strategy = if *none { api::Strategy::NoStrategy } else { api::Strategy::Progressive };
        }
        Happening::Lists(yes) => m.rules = if *yes { super::lists() } else { super::built_in() },
        Happening::Replicas(n, fixed) => {
            m.edit(|spec| (spec["replicas"], spec["scale"]["disabled"]) = (json!(n), json!(fixed)));
        }
        Happening::Fast(fast) => m.fast_resume(*fast),
        Happening::Deleted => (m.child, m.pods) = (None, Vec::new()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happened_a_good_spec_gets_it_out_and_it_ends_as_that_asks(
        story in happenings(),
        paused in any::<bool>(),
        listed in any::<bool>(),
    ) {
        let mut m = Model::new();
        if listed {
            m.rules = super::lists();
        }
        for what in &story {
            happen(&mut m, what);
        }
        m.unknown.clear();
        (m.refuses, m.refuses_phase, m.alive, m.gone, m.blind) = (None, false, true, false, false);
        m.strategy = api::Strategy::PauseAndDrain;
        m.edit(|there| {
            *there = spec();
            there["lifecycle"] = if paused { json!({"desiredPhase": "Paused"}) } else { json!({}) };
        });
        m.image("good:1");
        for _ in 0..4 {
            m.settle();
            m.pass_time(3601);
        }
        m.settle();
        let status = m.status();
        let wanted = if paused { "Paused" } else { "Running" };
        prop_assert_eq!((m.phase(), m.live().wants_paused()), (wanted, paused), "{}", status.message);
        prop_assert_eq!((status.phase.as_str(), status.upgrade_in_progress.as_str()), ("Deployed", ""), "{}", status.message);
        prop_assert_eq!(m.live().written_phase().is_some(), paused);
        let mut there = (*m.live().spec).clone();
        let map = there.as_object_mut().unwrap();
        map.retain(|field, _| field != "replicas" && field != "lifecycle");
        let mut asked = spec();
        asked["udf"]["container"]["image"] = json!("good:1");
        prop_assert_eq!(there, asked);
        prop_assert_eq!(m.pods.is_empty(), paused, "{:?}", m.pods);
        prop_assert_eq!(m.pause(), if paused { "Paused" } else { "" });
        let (writes, status) = (m.writes.len(), m.status());
        for seconds in [0, 6, 3600] {
            m.pass_time(seconds);
            m.turn();
        }
        prop_assert_eq!((m.writes.len(), m.status()), (writes, status), "at rest nothing is written");
    }

    /// Whatever happens in between, nobody is left paused: each time that all is well for a while it is as its spec asks, if
    /// that can be read.
    #[test]
    fn what_its_user_does_not_want_paused_is_not_left_so(stories in proptest::collection::vec(happenings(), 1..4)) {
        let mut m = Model::new();
        for story in &stories {
            for what in story {
                happen(&mut m, what);
            }
            m.unknown.clear();
            (m.refuses_phase, m.alive, m.gone, m.blind) = (false, true, false, false);
            for _ in 0..3 {
                m.settle();
                m.pass_time(61);
            }
            let phase = m.rollout.spec.mono_vertex.spec.0["lifecycle"]["desiredPhase"].clone();
            if phase != "Nonsense" && let Some(child) = &m.child {
                prop_assert_eq!(child.wants_paused(), phase == "Paused", "{} {:?}", m.status().message, m.writes);
            }
        }
    }
}
