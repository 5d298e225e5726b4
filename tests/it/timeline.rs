//! An upgrade as the API server saw it: every change of every object, in order.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::{
    Scene,
    changes::{Change, Changes, OF_CONTROLLERS},
    eventually, version,
};

fn seconds(value: &Value) -> i64 {
    let text = value.as_str().unwrap_or_default();
    text.parse::<jiff::Timestamp>().unwrap_or_else(|error| panic!("{value}: {error}")).as_second()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_touches_production_once_and_leaves_nothing_of_the_copy() {
    let scene = Scene::new("timeline").await;
    let team = &scene.team;
    scene.define(&[version("1.4.0").whole(), version("1.5.0").whole()]).await;
    let _operator = scene.operator_with(|s| s.defaults.window = std::time::Duration::from_secs(3)).await;
    team.install("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;

    let recorder = Changes::watch(team, &OF_CONTROLLERS).await;
    team.set_version("numaflow", "1.5.0").await;
    team.deployed("numaflow", "1.5.0").await;
    let copies_gone = |all: &[Change]| {
        let mut alive: BTreeMap<(&str, String), bool> = BTreeMap::new();
        for change in all.iter().filter(|c| c.is_isolated()) {
            alive.insert((change.kind, change.name().to_owned()), !change.deleted);
        }
        (alive.len(), alive.into_iter().filter(|(_, alive)| *alive).map(|(key, _)| key.1).collect::<Vec<_>>())
    };
    eventually("six isolated objects came and went", async || match copies_gone(&recorder.all()) {
        (6, left) if left.is_empty() => Ok(()),
        seen => Err(format!("{seen:?}")),
    })
    .await;
    team.one_child("numaflow").await;
    let all = recorder.all();
    let first = |what: &str, is: &dyn Fn(&Change) -> bool| -> Change {
        all.iter().find(|c| is(c)).unwrap_or_else(|| panic!("never seen: {what}")).clone()
    };
    let stage = |name: &str| first(name, &|c| c.kind == "NumaflowControllerRollout" && c.stage() == name);

    // Isolated objects appear, and all of them before production changes.
    let verify = stage("Verify");
    let cut_over = stage("CutOver");
    let came: BTreeMap<&str, u64> = all.iter().filter(|c| c.is_isolated()).rev().map(|c| (c.name(), c.at)).collect();
    assert!(came.values().all(|at| (verify.at..cut_over.at).contains(at)), "{came:?}");
    // The window passes.
    let healthy =
        first("the window begins", &|c| !c.object["status"]["upgrade"]["assessment"]["healthySince"].is_null());
    assert_eq!(healthy.stage(), "Verify");
    let since = seconds(&healthy.object["status"]["upgrade"]["assessment"]["healthySince"]);
    let ended = seconds(&cut_over.object["status"]["upgrade"]["stageStartedAt"]);
    assert!(ended - since >= 3, "the window was {} s", ended - since);
    // Labels are swapped: first the old one loses it, then the new one gets it.
    let label = |name: &str, state: &str| {
        first(&format!("{name} is {state}"), &|c| {
            c.kind == "NumaflowController" && c.name() == name && c.state() == state
        })
    };
    let (old, new) = (label("numaflow-0", "recyclable"), label("numaflow-1", "promoted"));
    assert!(cut_over.at < old.at && old.at < new.at);
    assert!(label("numaflow-1", "upgrading").at < cut_over.at);
    let mut states: BTreeMap<&str, &str> = BTreeMap::new();
    for change in all.iter().filter(|c| c.kind == "NumaflowController") {
        states.insert(change.name(), if change.deleted { "" } else { change.state() });
        let promoted = states.values().filter(|s| **s == "promoted").count();
        assert!(promoted <= 1, "two promoted at {}: {states:?}", change.at);
        assert!(states.values().filter(|s| **s == "upgrading").count() <= 1, "{states:?}");
    }
    // Production: the Deployment is updated once, and no object of it is ever away.
    let mut generations: Vec<i64> = Vec::new();
    for change in all.iter().filter(|c| c.is_production("numaflow")) {
        assert!(!change.deleted, "{}/{} was away", change.kind, change.name());
        if change.kind == "Deployment" {
            generations.extend(change.object["metadata"]["generation"].as_i64());
        }
    }
    generations.dedup();
    assert_eq!(generations, [1, 2]);
    let updated = first("production is updated", &|c| {
        c.is_production("numaflow") && c.object["metadata"]["generation"] == json!(2)
    });
    assert!(new.at < updated.at);
    // … and then the copy goes.
    let went = all.iter().filter(|c| c.is_isolated() && c.deleted).map(|c| c.at).min().unwrap_or_default();
    assert!(updated.at < went, "the copy went at {went}, production changed at {}", updated.at);
    for line in [("Verify", verify.at), ("window", healthy.at), ("CutOver", cut_over.at), ("recyclable", old.at)] {
        println!("{:>8}  {}", line.1, line.0);
    }
    println!(
        "{:>8}  promoted\n{:>8}  production updated\n{went:>8}  the first isolated object goes",
        new.at, updated.at
    );
}
