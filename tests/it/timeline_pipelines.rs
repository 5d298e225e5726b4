//! What becomes of pipelines as the API server saw it, every change in order: in an upgrade of their controller or of their ISB
//! service, and when one of them is changed itself.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    changes::{Change, Changes, OF_PIPELINES, first},
    pipelines::PTS,
    production::handed_over,
    requesters::{By, told_for_both},
    rollouts::Stage,
};

fn is_pipeline(c: &Change, name: &str) -> bool {
    c.kind == "Pipeline" && c.name() == name
}

fn wants_pause(c: &Change) -> bool {
    c.text("/spec/lifecycle/desiredPhase") == "Paused"
}

/// Whether a pipeline says about the spec that it has that it is in this phase.
fn says(c: &Change, phase: &str) -> bool {
    c.text("/status/phase") == phase
        && c.object["status"]["observedGeneration"] == c.object["metadata"]["generation"]
        && c.object["metadata"]["annotations"][PTS].is_null() == (phase != "Paused")
}

/// A spec without what a pause changes in it.
fn work(object: &Value) -> Value {
    let mut spec = object["spec"].clone();
    for field in ["lifecycle", "replicas"] {
        spec.as_object_mut().map(|fields| fields.remove(field));
    }
    spec
}

/// When a pause was asked for, settled, and when it ended.
struct Pause {
    asked: u64,
    settled: u64,
    resumed: u64,
    runs: u64,
}

/// The one pause of a pipeline after this time.
fn pause(all: &[Change], after: u64, name: &str) -> Pause {
    let asked = first(all, after, "asked to pause", |c| is_pipeline(c, name) && wants_pause(c)).at;
    let said = first(all, asked, "paused", |c| is_pipeline(c, name) && says(c, "Paused")).at;
    let resumed = first(all, said, "asked to run", |c| is_pipeline(c, name) && !wants_pause(c)).at;
    let runs = first(all, resumed, "runs", |c| is_pipeline(c, name) && says(c, "Running")).at;
    let pods = |c: &&Change| {
        c.kind == "Pod"
            && c.label("numaflow.numaproj.io/pipeline-name") == name
            && !c.name().contains("daemon")
            && (asked..resumed).contains(&c.at)
    };
    let gone: BTreeSet<&str> = all.iter().filter(pods).filter(|c| c.deleted).map(Change::name).collect();
    let last = all.iter().filter(pods).rfind(|c| c.deleted).map_or(0, |c| c.at);
    let there: BTreeSet<&str> = all.iter().filter(pods).map(Change::name).collect();
    assert_eq!(gone, there, "pods of {name} that went while it was paused, and those that there were");
    assert_eq!(gone.len(), 3, "{gone:?}");
    let again = all.iter().filter(|c| c.at > runs && is_pipeline(c, name) && wants_pause(c)).count();
    assert_eq!(again, 0, "{name} is paused once");
    Pause { asked, settled: said.max(last), resumed, runs }
}

/// Asserts that nothing that does the work of a pipeline changes in this time: neither its spec nor that of a vertex.
fn untouched(all: &[Change], name: &str, from: u64, to: u64) {
    let of_it = |c: &Change| {
        is_pipeline(c, name) || (c.kind == "Vertex" && c.label("numaflow.numaproj.io/pipeline-name") == name)
    };
    for change in all.iter().filter(|c| of_it(c) && (from..to).contains(&c.at)) {
        let before = all.iter().rfind(|c| c.at < change.at && c.kind == change.kind && c.name() == change.name());
        let before = before.unwrap_or_else(|| panic!("{}/{} came at {}", change.kind, change.name(), change.at));
        assert_eq!(work(&before.object), work(&change.object), "{}/{} at {}", change.kind, change.name(), change.at);
        assert!(!change.deleted, "{}/{} went at {}", change.kind, change.name(), change.at);
    }
}

fn print(title: &str, mut lines: Vec<(u64, String)>) {
    lines.sort();
    println!("{title}");
    for (at, what) in lines {
        println!("{at:>8}  {what}");
    }
}

async fn pipelines_pause_after_the_version_has_proved_itself_and_run_again_after_it_leads(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "timeline", &[("a", json!({})), ("b", json!({}))]).await;
    let changes = Changes::watch(stage.team(), &OF_PIPELINES).await;
    let after = changes.all().last().map(|c| c.at).unwrap_or_default();
    requester.change(1).await;
    requester.deployed(1).await;
    stage.all_run(&["a", "b"]).await;
    stage.at_rest().await;
    let all = changes.all();
    let rollout = |c: &Change| c.kind == by.kind();
    let names: &[&str] = match by {
        By::Controller => &["Verify", "Drain", "CutOver", "Confirm"],
        By::Isb => &["Drain", "Apply", "Confirm"],
    };
    let stages: Vec<(u64, String)> = names
        .iter()
        .map(|name| (first(&all, after, name, |c| rollout(c) && c.stage() == *name).at, (*name).to_owned()))
        .collect();
    assert!(stages.is_sorted(), "{stages:?}");
    let at = |wanted: &str| stages.iter().find(|(_, name)| name == wanted).map_or(0, |(at, _)| *at);
    let (drain, applying) = (at("Drain"), at(by.applying()));
    // A pause is asked for from Drain on, by a version that has proved itself where it can, and by nobody else.
    for change in all.iter().filter(|c| c.object["status"]["pauseRequest"]["active"] == true) {
        let proved = by == By::Isb || change.object["status"]["upgrade"]["verified"] == true;
        let on = ["Drain", by.applying(), "Confirm", "RollBack"].contains(&change.stage());
        assert!(rollout(change) && on && proved, "at {}: {}", change.at, change.object["status"]);
    }
    let ended =
        first(&all, drain, "the request ends", |c| rollout(c) && c.object["status"]["pauseRequest"]["active"] != true);
    let (changed, works) = handed_over(by, &all, after, by.version(1));
    let mut lines = stages;
    for name in ["a-0", "b-0"] {
        let pause = pause(&all, after, name);
        assert!(drain < pause.asked, "{name} is paused before Drain");
        assert!(pause.settled < applying && applying < changed.at, "{name} is settled at {}", pause.settled);
        assert!(works.at < ended.at && ended.at < pause.resumed, "{name} is resumed at {}", pause.resumed);
        untouched(&all, name, after + 1, u64::MAX);
        lines.extend([
            (pause.asked, format!("{name} is asked to pause")),
            (pause.settled, format!("{name} is paused, and its pods are gone")),
            (pause.resumed, format!("{name} is asked to run")),
            (pause.runs, format!("{name} runs")),
        ]);
    }
    lines.extend([
        (changed.at, "production changes".to_owned()),
        (works.at, "what it is now is at work".to_owned()),
        (ended.at, "the request ends".to_owned()),
    ]);
    print("an upgrade", lines);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_pipeline_reaches_it_and_its_vertices_only_while_it_is_paused() {
    let stage = Stage::bare("timeline-own").await;
    let team = stage.team();
    let _operator = stage.scene.operator().await;
    stage.furnish().await;
    for name in ["a", "b"] {
        team.pipeline(name, json!({})).await;
        team.pipeline_runs(name).await;
    }
    let changes = Changes::watch(team, &OF_PIPELINES).await;
    let after = changes.all().last().map(|c| c.at).unwrap_or_default();
    team.set_image("a", "cat:2").await;
    let status =
        team.pipeline_until("a", "deployed", |s| s.phase.as_str() == "Deployed" && s.last_pause.is_some()).await;
    assert_eq!(status.last_pause.and_then(|p| p.drained), Some(true));
    team.pipeline_runs("a").await;
    stage.at_rest().await;
    let all = changes.all();
    let pause = pause(&all, after, "a-0");
    let image = "/spec/vertices/1/udf/container/image";
    let applied =
        first(&all, after, "the pipeline is changed", |c| is_pipeline(c, "a-0") && c.text(image) == "cat:2").at;
    let vertex = first(&all, after, "the vertex is changed", |c| {
        c.kind == "Vertex" && c.name() == "a-0-cat" && c.text("/spec/udf/container/image") == "cat:2"
    });
    untouched(&all, "a-0", after + 1, applied);
    assert!(pause.settled < applied, "changed at {applied}, settled at {}", pause.settled);
    assert!(applied < vertex.at && vertex.at < pause.resumed, "the vertex changed at {}", vertex.at);
    // Nobody else is paused, and no controller's rollout asks for anything.
    let others = all.iter().filter(|c| c.at > after && is_pipeline(c, "b-0") && wants_pause(c)).count();
    let asks = all.iter().filter(|c| c.object["status"]["pauseRequest"]["active"] == true).count();
    assert_eq!((others, asks), (0, 0));
    print(
        "a change",
        vec![
            (pause.asked, "asked to pause".to_owned()),
            (pause.settled, "paused, and its pods are gone".to_owned()),
            (applied, "the pipeline is changed".to_owned()),
            (vertex.at, "its vertex is changed".to_owned()),
            (pause.resumed, "asked to run".to_owned()),
            (pause.runs, "runs".to_owned()),
        ],
    );
}

told_for_both! {
    pipelines_pause_after_the_version_has_proved_itself_and_run_again_after_it_leads as pipelines_pause_before_their_isb_service_changes_and_run_again_after_it_is_rolled,
}
