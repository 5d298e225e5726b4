//! What pipelines get to see of the rollouts of ISB services: which service is theirs, and who asks them for a pause.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::pipeline::read;
use crate::{
    api::{DrainProgress, IsbServiceRollout, IsbStage},
    drain::Scope,
    numaflow::LiveIsb,
    pipeline::snapshot::{IsbRollout, Request},
    world::World,
};

/// The rollouts of ISB services in a namespace with these services, by name, and their requests.
pub(super) fn seen(
    world: &World,
    namespace: &str,
    services: &[(String, Arc<LiveIsb>)],
) -> (BTreeMap<String, IsbRollout>, Vec<Request>) {
    let (mut rollouts, mut requests) = (BTreeMap::new(), Vec::new());
    for (name, decoded) in world.isb_rollouts.in_namespace(namespace) {
        let known = decoded.good().map(|rollout| {
            let known = of(rollout, services);
            requests.extend(request(rollout, &known));
            known
        });
        let unreadable = || IsbRollout { unreadable: true, ..IsbRollout::default() };
        rollouts.insert(name, known.unwrap_or_else(unreadable));
    }
    (rollouts, requests)
}

fn of(rollout: &IsbServiceRollout, services: &[(String, Arc<LiveIsb>)]) -> IsbRollout {
    let status = rollout.status.as_ref();
    let recorded = status.map(|s| s.child.as_str()).unwrap_or_default();
    let (children, _) = super::children(services.to_vec(), &rollout.metadata, recorded);
    IsbRollout {
        // What is on record may be gone, or be what somebody wrote there.
        child: children.get(recorded).map(|_| recorded.to_owned()).unwrap_or_default(),
        unreadable: false,
        deleting: rollout.metadata.deletion_timestamp.is_some(),
        children: children.into_keys().collect(),
        asked: status.and_then(|s| s.last_drain.as_ref()).map(asked).unwrap_or_default(),
    }
}

/// The pipelines that a drain has on record with a reason why it does not wait for them.
fn asked(drain: &DrainProgress) -> BTreeSet<String> {
    let name = |entry: &String| entry.split_once(": ").map_or(entry.as_str(), |(name, _)| name).to_owned();
    drain.not_drained.iter().chain(&drain.excused).map(name).collect()
}

/// The request of an ISB service's rollout, while it stands.
fn request(rollout: &IsbServiceRollout, known: &IsbRollout) -> Option<Request> {
    if known.deleting {
        return None;
    }
    let status = rollout.status.as_ref()?;
    let asked = status.pause_request.as_ref().filter(|request| request.active)?;
    let change = status.change.as_ref();
    // What is made beside has nothing in it yet that could be lost.
    let beside = change.map(|c| c.to.as_str()).unwrap_or_default();
    let mut names: BTreeSet<&String> = known.children.iter().collect();
    names.insert(&status.child);
    let names = names.into_iter().filter(|name| !name.is_empty() && *name != beside).cloned().collect();
    let changes = |stage| matches!(stage, IsbStage::Apply | IsbStage::Confirm | IsbStage::RollBack);
    let changing = change.and_then(|c| IsbStage::parse(&c.stage)).is_some_and(changes);
    let by = format!("ISBServiceRollout/{}", rollout.metadata.name.as_deref().unwrap_or_default());
    Some(read(asked, by, Scope::Isb(names), changing))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rollout(status: &Value) -> IsbServiceRollout {
        let mut rollout =
            IsbServiceRollout { status: serde_json::from_value(status.clone()).unwrap(), ..Default::default() };
        rollout.metadata.name = Some("i".into());
        rollout.metadata.uid = Some("u".into());
        rollout
    }

    /// Services of this rollout, and one that looks like it.
    fn services() -> Vec<(String, Arc<LiveIsb>)> {
        let service = |name: &str, owner: &str| {
            let mut isb = LiveIsb::default();
            isb.object.version.name = name.to_owned();
            isb.object.owner = Some(("ISBServiceRollout".to_owned(), "i".to_owned(), owner.to_owned()));
            (name.to_owned(), Arc::new(isb))
        };
        vec![service("i-0", "u"), service("i-1", "u"), service("i-7", "somebody else's")]
    }

    fn request_of(status: &Value) -> Option<Request> {
        let rollout = rollout(status);
        request(&rollout, &of(&rollout, &services()))
    }

    #[test]
    fn pipelines_on_each_of_its_services_are_asked_but_those_on_the_one_that_is_made_beside() {
        let status = |change: Value, active: bool| json!({"child": "i-0", "change": change, "pauseRequest": {"active": active, "attempt": "a", "drainTimeout": "90s"}});
        let request = request_of(&status(json!({"stage": "Drain", "to": "i-1"}), true)).unwrap();
        assert_eq!((request.by.as_str(), request.attempt.as_str()), ("ISBServiceRollout/i", "a"));
        assert_eq!((request.scope, request.changing), (Scope::Isb(vec!["i-0".into()]), false));
        let request = request_of(&status(json!({"stage": "Confirm"}), true)).unwrap();
        assert_eq!((request.scope, request.changing), (Scope::Isb(vec!["i-0".into(), "i-1".into()]), true));
        for (stage, changing) in [("Beside", false), ("Apply", true), ("RollBack", true), ("Later", false)] {
            assert_eq!(request_of(&status(json!({"stage": stage}), true)).unwrap().changing, changing, "{stage}");
        }
        assert_eq!(request_of(&status(json!({"stage": "Drain"}), false)), None);
    }

    #[test]
    fn one_whose_service_is_gone_still_asks_the_pipelines_on_it() {
        let request = request_of(&json!({"child": "i-5", "pauseRequest": {"active": true}})).unwrap();
        assert_eq!(request.scope, Scope::Isb(vec!["i-0".into(), "i-1".into(), "i-5".into()]));
    }

    #[test]
    fn one_that_is_being_deleted_asks_nobody() {
        let mut rollout = rollout(&json!({"child": "i-0", "pauseRequest": {"active": true}}));
        rollout.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        let known = of(&rollout, &services());
        assert_eq!((known.deleting, request(&rollout, &known)), (true, None));
    }

    #[test]
    fn who_is_not_waited_for_again_is_whoever_the_last_drain_names_with_a_reason() {
        let drain = json!({"drained": ["a-0"], "notDrained": ["b-0: it paused: with messages left"], "excused": ["c-3: Failed"],
            "unmanaged": ["d"], "waitingFor": ["e-0"]});
        let known = of(&rollout(&json!({"lastDrain": drain})), &[]);
        assert_eq!(known.asked.iter().map(String::as_str).collect::<Vec<_>>(), ["b-0", "c-3"]);
        assert_eq!(known.child, "");
    }
}
