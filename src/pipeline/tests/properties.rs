//! Whatever happened, a pipeline ends in the phase that its spec asks for. The model itself refuses a second change of phase
//! before the first was safe, and a change of vertices during a pause.

use proptest::prelude::*;
use serde_json::json;

use super::model::{Model, spec, unfit};
use crate::api;

/// What may happen.
#[derive(Clone, Debug)]
enum Happening {
    Turn,
    Step,
    Numaflow,
    Time(i64),
    Image(u8),
    UserPauses(bool),
    Request(Option<u64>),
    Cut,
    Withdraw,
    Force(u8),
    Data(bool),
    Breaks(bool),
    Controller(bool),
    Unknown(bool),
    Meddle(u8),
    Refuses(bool),
    Nowhere(bool),
    Unfit(bool),
    Timeout(u8, bool),
    Isb(bool),
    IsbChild(u8, bool),
    IsbRollout(u8),
    IsbService(u8, bool),
    IsbRequest(bool),
    Allows(bool),
    Gone,
    Grace(Option<i64>),
    MeddleGrace(i64),
    Invalid,
    Strategy(bool),
    Strip,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    use Happening as H;
    let one = prop_oneof![
        5 => Just(H::Turn),
        3 => Just(H::Step),
        6 => Just(H::Numaflow),
        3 => (1i64..90).prop_map(H::Time),
        2 => (0u8..4).prop_map(H::Image),
        1 => any::<bool>().prop_map(H::UserPauses),
        2 => proptest::option::of(prop_oneof![Just(0u64), Just(20), Just(120)]).prop_map(H::Request),
        1 => Just(H::Cut),
        2 => Just(H::Withdraw),
        1 => (0u8..3).prop_map(H::Force),
        1 => any::<bool>().prop_map(H::Data),
        1 => any::<bool>().prop_map(H::Breaks),
        1 => any::<bool>().prop_map(H::Controller),
        1 => any::<bool>().prop_map(H::Unknown),
        1 => (0u8..4).prop_map(H::Meddle),
        1 => any::<bool>().prop_map(H::Refuses),
        2 => any::<bool>().prop_map(H::Nowhere),
        2 => any::<bool>().prop_map(H::Unfit),
        1 => (0u8..3, any::<bool>()).prop_map(|(n, abort)| H::Timeout(n, abort)),
        1 => any::<bool>().prop_map(H::Isb),
        2 => (0u8..3, any::<bool>()).prop_map(|(n, asked)| H::IsbChild(n, asked)),
        1 => (0u8..4).prop_map(H::IsbRollout),
        1 => (0u8..4, any::<bool>()).prop_map(|(n, there)| H::IsbService(n, there)),
        1 => any::<bool>().prop_map(H::IsbRequest),
        1 => any::<bool>().prop_map(H::Allows),
        1 => Just(H::Gone),
        1 => proptest::option::of(31i64..200).prop_map(H::Grace),
        1 => (31i64..200).prop_map(H::MeddleGrace),
        1 => Just(H::Invalid),
        1 => any::<bool>().prop_map(H::Strategy),
        1 => Just(H::Strip),
    ];
    proptest::collection::vec(one, 1..40)
}

fn happen(m: &mut Model, what: &Happening) {
    match what {
        Happening::Turn => drop(m.turn()),
        Happening::Step => m.step(),
        Happening::Numaflow => m.numaflow(),
        Happening::Time(seconds) => m.pass_time(*seconds),
        Happening::Image(n) => m.image(&format!("cat:{n}")),
        Happening::UserPauses(yes) => m.edit(|spec| {
            spec["lifecycle"] = if *yes { json!({"desiredPhase": "Paused"}) } else { json!({}) };
        }),
        Happening::Request(timeout) => m.request(*timeout),
        Happening::Cut => m.requests.iter_mut().for_each(|r| r.cut = true),
        Happening::Withdraw => m.requests.clear(),
        Happening::Force(n) => m.annotate("force", &n.to_string()),
        Happening::Data(left) => m.numaflow.pending = *left,
        Happening::Breaks(yes) => m.numaflow.fails = yes.then(|| "isbsvc not healthy".to_owned()),
        Happening::Controller(alive) => {
            m.numaflow.alive = *alive;
            m.gone = false;
        }
        Happening::Unknown(yes) => m.unknown = if *yes { vec!["PipelineRollouts".into()] } else { Vec::new() },
        Happening::Meddle(phase) => {
            // Somebody who waits as long as the operator does.
            let safe = m.child.as_ref().is_some_and(|c| c.says_running() || c.says_paused());
            if safe {
                let phases = [json!("Paused"), json!("Running"), json!(""), serde_json::Value::Null];
                m.meddle(phases[usize::from(*phase)].clone());
            }
        }
        Happening::Nowhere(yes) => m.edit(|spec| spec["edges"][1]["to"] = json!(if *yes { "nowhere" } else { "out" })),
        Happening::Unfit(yes) => m.edit(|spec| unfit(spec, *yes)),
        Happening::Timeout(n, abort) => {
            let timeout = [None, Some("0s"), Some("50s")][usize::from(*n)];
            m.ppnd(&json!({"drainTimeout": timeout, "onDrainTimeout": abort.then_some("Abort")}));
            m.edit(|_| {});
        }
        Happening::Isb(other) => {
            m.edit(|spec| spec["interStepBufferServiceName"] = json!(if *other { "other" } else { "default" }));
        }
        Happening::IsbChild(n, asked) => {
            let asked = m.child.iter().filter(|_| *asked).map(|c| c.version.name.clone()).collect();
            m.isb_rollout("default", &format!("default-{n}")).asked = asked;
        }
        Happening::IsbRollout(what) => {
            if *what == 0 {
                m.isb_rollouts.clear();
            } else if let Some(rollout) = m.isb_rollouts.get_mut("default") {
                (rollout.deleting, rollout.unreadable) = (*what == 1, *what == 2);
                if *what > 1 {
                    rollout.child.clear();
                }
            }
        }
        Happening::IsbService(n, there) => {
            let name = ["default", "default-0", "default-1", "default-2"][usize::from(*n)];
            if *there {
                m.services.insert(name.to_owned());
            } else {
                m.services.remove(name);
            }
        }
        Happening::IsbRequest(changing) => m.isb_request("default", &["default", "default-0", "default-1"], *changing),
        Happening::Allows(yes) => m.annotate("allow-data-loss", if *yes { "true" } else { "false" }),
        Happening::Gone => {
            m.numaflow.alive = false;
            m.gone = true;
        }
        Happening::Grace(seconds) => m.edit(|spec| spec["lifecycle"]["pauseGracePeriodSeconds"] = json!(seconds)),
        Happening::MeddleGrace(seconds) => {
            if let Some(child) = m.child.as_mut() {
                let mut spec = (*child.spec).clone();
                spec["lifecycle"]["pauseGracePeriodSeconds"] = json!(seconds);
                (child.spec, child.generation) = (std::sync::Arc::new(spec), child.generation + 1);
            }
        }
        Happening::Invalid => m.edit(|spec| spec["lifecycle"] = json!({"desiredPhase": "Nonsense"})),
        Happening::Strategy(none) => {
            m.strategy = if *none { api::Strategy::NoStrategy } else { api::Strategy::PauseAndDrain };
        }
        Happening::Strip => {
            // Of one that is no concern of ours any more nobody looks at the vertices.
            let paused = m.status().pause.is_some();
            if let Some(child) = m.child.as_mut().filter(|_| paused) {
                child.annotations.remove(api::ANNOTATION_PAUSE_TIMESTAMP);
            }
        }
        Happening::Refuses(yes) => m.refuses = yes.then(|| "cat:3".to_owned()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happened_the_pipeline_ends_as_its_spec_asks(
        story in happenings(),
        paused in any::<bool>(),
        by_rollout in any::<bool>(),
    ) {
        let mut m = Model::new();
        for what in &story {
            happen(&mut m, what);
        }
        m.requests.clear();
        m.unknown.clear();
        (m.refuses, m.numaflow.fails, m.numaflow.alive, m.numaflow.pending, m.gone) = (None, None, true, false, false);
        m.rollout.spec.strategy = None;
        m.isb_rollouts.clear();
        m.services = ["default".to_owned()].into();
        if by_rollout {
            m.isb_rollout("default", "default-9");
        }
        m.strategy = api::Strategy::PauseAndDrain;
        m.edit(|there| {
            *there = spec();
            there["lifecycle"] = if paused { json!({"desiredPhase": "Paused"}) } else { json!({}) };
        });
        m.image("good:1");
        for _ in 0..12 {
            m.settle();
            m.pass_time(61);
        }
        m.settle();
        let wanted = if paused { "Paused" } else { "Running" };
        prop_assert_eq!((m.phase(), m.wants_paused()), (wanted, paused), "{}", m.status().message);
        let status = m.status();
        prop_assert_eq!(status.phase.as_str(), "Deployed", "{}", m.status().message);
        prop_assert_eq!(m.isb(), if by_rollout { "default-9" } else { "default" });
        prop_assert_eq!(m.label("isbsvc-child-name"), m.isb());
        prop_assert_eq!(m.live().grace(), None);
        prop_assert_eq!(m.live().written_phase().is_some(), paused);
        prop_assert_eq!(&m.live().spec["vertices"][1]["udf"]["container"]["image"], "good:1");
        prop_assert!(m.vertices.iter().all(|v| v.paused == paused), "{:?}", m.vertices);
        prop_assert!(m.status().pause_requests.is_empty());
        let (writes, status) = (m.writes.len(), m.status());
        for seconds in [0, 6, 3600] {
            m.pass_time(seconds);
            m.turn();
        }
        prop_assert_eq!((m.writes.len(), m.status()), (writes, status), "at rest nothing is written");
    }
}
