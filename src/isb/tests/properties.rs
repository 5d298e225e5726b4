//! Whatever happened: what must never happen does not (the model sees to that at every write), and a good spec gets one out.

use proptest::prelude::*;
use serde_json::json;

use super::{model::State, *};
use crate::api;

/// What may happen.
#[derive(Clone, Debug)]
enum Happening {
    /// The operator's turn; it may end in a crash after so many writes.
    Turn(usize),
    Numaflow,
    Pipelines,
    Others(u8),
    Time(i64),
    Version(usize),
    Volume(u8),
    Cpu(u8),
    Instance(bool),
    Invalid,
    Manner(usize, bool, bool),
    NoStrategy(bool),
    Force(u8),
    Retry(u8),
    Rule(u8, usize),
    Unmanaged(bool),
    Leave(u8),
    Gone(bool, bool),
    Versions(bool),
    Unreadable(bool),
    Unknown(bool),
    Undecodable(bool),
    Served(bool),
    Refuses(usize),
    Lies(bool),
    Keeps(bool),
    Rigid(bool),
    Silent(u8),
    Conflicts(u32),
    Meddle(u8, u8),
    DeleteService(u8, bool),
    Status(u8),
    Foreign(u8),
    Recreates(bool),
}

const VERSIONS: [&str; 6] = ["2.10", "2.12", "2.14", "sick", "failing", "9.9.9"];
const RULES: [Rule; 7] =
    [Rule::Drains(0), Rule::Drains(3), Rule::Undrained(1), Rule::Slow, Rule::Stuck, Rule::Excused, Rule::Forced];
const TIMEOUTS: [Option<&str>; 3] = [None, Some("0s"), Some("40s")];
const REFUSED: [Option<&str>; 5] = [None, Some("2.12"), Some("2Gi"), Some("isb-0"), Some("isb")];

fn happening() -> impl Strategy<Value = Happening> {
    use Happening as H;
    let users = prop_oneof![
        4 => (0..VERSIONS.len()).prop_map(H::Version),
        3 => (1u8..4).prop_map(H::Volume),
        1 => (1u8..4).prop_map(H::Cpu),
        1 => any::<bool>().prop_map(H::Instance),
        1 => Just(H::Invalid),
        2 => (0..TIMEOUTS.len(), any::<bool>(), any::<bool>()).prop_map(|(n, abort, short)| H::Manner(n, abort, short)),
        1 => any::<bool>().prop_map(H::NoStrategy),
        2 => (0u8..4).prop_map(H::Force),
        1 => (0u8..3).prop_map(H::Retry),
        3 => (0u8..3, 0..RULES.len()).prop_map(|(n, rule)| H::Rule(n, rule)),
        1 => any::<bool>().prop_map(H::Unmanaged),
        1 => (0u8..3).prop_map(H::Leave),
        1 => (0u8..3, 0u8..4).prop_map(|(n, what)| H::Meddle(n, what)),
        2 => (0u8..3, any::<bool>()).prop_map(|(n, at_once)| H::DeleteService(n, at_once)),
        2 => (0u8..9).prop_map(H::Status),
    ];
    let world = prop_oneof![
        2 => (any::<bool>(), any::<bool>()).prop_map(|(blue, yes)| H::Gone(blue, yes)),
        1 => any::<bool>().prop_map(H::Versions),
        1 => any::<bool>().prop_map(H::Unreadable),
        1 => any::<bool>().prop_map(H::Unknown),
        1 => any::<bool>().prop_map(H::Undecodable),
        1 => any::<bool>().prop_map(H::Served),
        2 => (0..REFUSED.len()).prop_map(H::Refuses),
        1 => any::<bool>().prop_map(H::Lies),
        1 => any::<bool>().prop_map(H::Keeps),
        1 => any::<bool>().prop_map(H::Rigid),
        1 => (0u8..3).prop_map(H::Silent),
        1 => (0u32..3).prop_map(H::Conflicts),
        1 => (0u8..4).prop_map(H::Foreign),
        1 => any::<bool>().prop_map(H::Recreates),
    ];
    prop_oneof![
        10 => (0usize..8).prop_map(H::Turn),
        6 => Just(H::Turn(usize::MAX)),
        4 => Just(H::Numaflow),
        4 => Just(H::Pipelines),
        4 => (1u8..9).prop_map(H::Others),
        4 => prop_oneof![1i64..5, 20i64..90, 600i64..700].prop_map(H::Time),
        10 => users,
        5 => world,
    ]
}

fn happen(m: &mut Model, what: &Happening) {
    match what {
        Happening::Turn(writes) => drop(m.turn_of(*writes)),
        Happening::Numaflow => m.numaflow(),
        Happening::Pipelines => m.play_pipelines(),
        Happening::Others(n) => (0..*n).for_each(|_| m.others()),
        Happening::Time(seconds) => m.pass(*seconds),
        Happening::Version(n) => {
            repair(m);
            m.set_version(VERSIONS[*n]);
        }
        Happening::Volume(n) => {
            repair(m);
            m.set_volume(&format!("{n}Gi"));
        }
        Happening::Cpu(n) => {
            repair(m);
            m.set_cpu(&n.to_string());
        }
        Happening::Instance(blue) => m.set_instance(if *blue { "blue" } else { "" }),
        Happening::Invalid => m.edit(|spec| *spec = json!("nonsense")),
        Happening::Manner(n, abort, short) => m.manner(
            &json!({"drainTimeout": TIMEOUTS[*n], "onDrainTimeout": abort.then_some("Abort")}),
            if *short { "1m" } else { "10m" },
        ),
        Happening::NoStrategy(none) => {
            m.strategy = if *none { api::Strategy::NoStrategy } else { api::Strategy::Progressive };
        }
        Happening::Force(n) => m.annotate("force", &n.to_string()),
        Happening::Retry(n) => m.annotate("retry", &n.to_string()),
        Happening::Rule(n, rule) => {
            let (name, rule) = (format!("p{n}"), RULES[*rule]);
            if let Some(pipe) = m.pipes.get_mut(&name) {
                pipe.rule = rule;
            } else if m.services.contains_key(&m.child()) {
                m.pipe(&name, rule);
            }
        }
        Happening::Unmanaged(there) => {
            if *there && m.services.contains_key(&m.child()) {
                m.pipe("mine", Rule::Mute).managed = false;
            } else {
                m.pipes.remove("mine");
            }
        }
        Happening::Leave(n) => {
            if let Some(pipe) = m.pipes.get_mut(&format!("p{n}")) {
                pipe.deleting = true;
            }
        }
        Happening::Gone(blue, yes) => {
            let instance = if *blue { "blue" } else { "" };
            if *yes {
                m.gone.insert(instance.to_owned())
            } else {
                m.gone.remove(instance)
            };
        }
        Happening::Versions(known) => {
            m.versions = known.then(|| vec!["2.10", "2.12", "2.14", "sick", "failing"]);
        }
        Happening::Unreadable(yes) => m.unreadable = *yes,
        Happening::Unknown(yes) => m.unknown = if *yes { vec!["PipelineRollouts".to_owned()] } else { Vec::new() },
        Happening::Undecodable(yes) => m.undecodable = *yes,
        Happening::Served(yes) => {
            m.served = *yes;
            if !yes {
                m.services.clear();
            }
        }
        Happening::Refuses(n) => m.server.refuses = REFUSED[*n].map(str::to_owned),
        Happening::Lies(yes) => m.server.lies = *yes,
        Happening::Keeps(yes) => m.server.keeps = *yes,
        Happening::Rigid(yes) => m.server.rigid = *yes,
        Happening::Silent(n) => m.server.silent = [None, Some(false), Some(true)][usize::from(*n)],
        Happening::Conflicts(n) => m.server.conflicts = *n,
        Happening::Meddle(n, what) => meddle_with_service(m, *n, *what),
        Happening::DeleteService(n, at_once) => {
            let name = format!("isb-{n}");
            if *at_once { drop(m.services.remove(&name)) } else { m.delete_service(&name) }
        }
        Happening::Status(what) => meddle_with_status(m, *what),
        Happening::Foreign(n) => {
            let name = format!("isb-{n}");
            if !m.services.contains_key(&name) {
                m.foreign.insert(name);
            }
        }
        Happening::Recreates(yes) => {
            let mut rules = api_rules();
            if *yes {
                let path = "spec.jetstream.version".into();
                rules.recreate.push(crate::changes::Rule { path, include_subfields: true });
            }
            m.rules = std::sync::Arc::new(rules);
        }
    }
}

fn api_rules() -> crate::changes::Rules {
    crate::changes::Rules::built_in(crate::changes::Kind::InterStepBufferService)
}

/// A spec that can be read again.
fn repair(m: &mut Model) {
    m.edit(|there| {
        if !there.is_object() {
            *there = super::model::spec("2.10");
        }
    });
}

fn meddle_with_service(m: &mut Model, n: u8, what: u8) {
    let Some(service) = m.services.get_mut(&format!("isb-{n}")) else { return };
    match what {
        0 => service.meddle(|spec| spec["jetstream"]["settings"] = json!("by hand")),
        1 => service.meddle(|spec| spec["jetstream"]["nodeSelector"] = json!({"disk": "ssd"})),
        2 => {
            service.labels.remove(api::LABEL_UPGRADE_STATE);
            service.resource_version += 1;
        }
        _ => {
            service.annotations.remove(crate::live::ANNOTATION_APPLIED);
            service.resource_version += 1;
        }
    }
}

fn meddle_with_status(m: &mut Model, what: u8) {
    match what {
        0 => m.rollout.status = None,
        1 => m.meddle(|status| status.pause_request = None),
        2 => m.meddle(|status| status.change = None),
        3 => m.meddle(|status| status.child = "nothing".into()),
        4 => m.meddle(|status| status.child = String::new()),
        5 => m.meddle(|status| {
            if let Some(change) = &mut status.change {
                (change.before, change.drain) = (None, None);
            }
        }),
        6 => m.meddle(|status| {
            if let Some(request) = &mut status.pause_request {
                request.active = !request.active;
            }
        }),
        7 => m.meddle(|status| {
            if let Some(change) = &mut status.change {
                change.stage = "FromTheFuture".into();
            }
        }),
        _ => m.meddle(|status| status.name_count = None),
    }
}

/// All trouble ends.
fn heal(m: &mut Model) {
    m.unknown.clear();
    m.gone.clear();
    (m.undecodable, m.unreadable, m.served) = (false, false, true);
    m.versions = Some(vec!["2.10", "2.12", "2.14", "sick", "failing"]);
    m.server = Default::default();
    m.strategy = api::Strategy::Progressive;
    m.rules = std::sync::Arc::new(api_rules());
    m.rollout.spec.strategy = None;
    m.rollout.spec.inter_step_buffer_service.metadata = None;
    m.pipes.remove("mine");
    m.pipes.values_mut().for_each(|p| p.rule = Rule::Drains(1));
}

/// No request stands at rest unless a change on record needs it, and somebody is waited for.
fn assert_at_rest(m: &Model) {
    let status = m.status();
    if m.asks() && m.request().is_some() {
        let change = status.change.as_ref().expect("a change that needs the request");
        assert_ne!(change.stage, "Beside");
    }
    if !m.asks() && m.unknown.is_empty() && m.gone.is_empty() {
        let paused = m.pipes.values().filter(|p| p.managed && p.state != State::Running);
        assert_eq!(paused.count(), 0, "{}: {:?}", m.message(), m.pipes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(96), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happened_a_good_spec_gets_out_of_it(story in proptest::collection::vec(happening(), 1..60)) {
        let mut m = Model::new();
        m.settle();
        m.pipe("p0", Rule::Drains(1));
        for what in &story {
            happen(&mut m, what);
        }
        m.settle();
        assert_at_rest(&m);
        heal(&mut m);
        m.edit(|there| *there = super::model::spec("2.14"));
        m.wait(3);
        if m.status().change.is_some_and(|change| change.stage == "RollBack") {
            // What comes back, because another service is wanted in the middle of a roll, may be sick itself: it has ten minutes.
            m.wait(11);
        }
        m.assert_good();
        let (writes, status) = (m.writes.len(), m.rollout.status.clone());
        for seconds in [0, 6, 3600] {
            m.pass(seconds);
            m.turn();
        }
        prop_assert_eq!((m.writes.len(), m.rollout.status.clone()), (writes, status), "at rest nothing is written");
    }

    #[test]
    fn whatever_happened_nobody_stays_paused_for_a_bad_spec_either(
        story in proptest::collection::vec(happening(), 1..40),
        bad in 3..VERSIONS.len(),
    ) {
        let mut m = Model::new();
        m.settle();
        m.pipe("p0", Rule::Drains(1));
        for what in &story {
            happen(&mut m, what);
        }
        heal(&mut m);
        m.edit(|there| *there = super::model::spec(VERSIONS[bad]));
        m.wait(25);
        prop_assert!(!m.asks(), "{}", m.message());
        prop_assert!(m.pipes.values().all(|p| p.state == State::Running));
        assert_at_rest(&m);
    }

    #[test]
    fn whatever_happened_a_deleted_rollout_goes_with_its_services(
        story in proptest::collection::vec(happening(), 1..40),
        force in any::<bool>(),
    ) {
        let mut m = Model::new();
        m.settle();
        m.pipe("p0", Rule::Drains(1));
        for what in &story {
            happen(&mut m, what);
        }
        m.delete();
        m.turn();
        m.others();
        heal(&mut m);
        m.settle();
        prop_assert!(m.request().is_none());
        prop_assert!(m.pipes.values().all(|p| p.state == State::Running));
        if force {
            m.annotate("force", "at last");
            m.settle();
            prop_assert!(m.released);
        }
        m.pipes.values_mut().for_each(|p| p.deleting = true);
        m.wait(2);
        prop_assert!(m.released, "{}", m.message());
        // By force it goes at once, and services wait for whom they have to wait for.
        if m.status().last_force.is_none_or(|f| f.ended != "the deletion") {
            prop_assert!(m.services.is_empty(), "{:?}", m.services);
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(64), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_crash_after_any_step_ends_as_without(
        changes in proptest::collection::vec((0..VERSIONS.len(), 1u8..3, 0usize..6), 1..3),
        rule in 0..3usize,
    ) {
        let end = |crashes: bool| {
            let mut m = Model::deployed(&[RULES[rule]]);
            m.manner(&json!({}), "1m");
            for (version, volume, writes) in &changes {
                m.set_version(VERSIONS[*version]);
                m.set_volume(&format!("{volume}Gi"));
                for _ in 0..12 {
                    if crashes {
                        // It always comes a little further.
                        m.turn_of(1 + writes);
                    } else {
                        m.turn();
                    }
                    m.others();
                    m.pass(2);
                }
                m.wait(3);
            }
            let specs: Vec<_> = m.services.values().map(|s| s.spec.clone()).collect();
            let states: Vec<_> = m.pipes.values().map(|p| p.state).collect();
            (m.phase(), m.asks(), specs, states, m.stage())
        };
        prop_assert_eq!(end(true), end(false));
    }
}

/// So many cases, or as many as somebody asks for.
fn cases(built_in: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(built_in)
}
