//! MonoVertices that are paused: by their users, and for a change that a list of the platform team names.

use kube::{ResourceExt, api::DynamicObject};
use numaplane::api::{MonoVertexRollout, MonoVertexRolloutStatus};
use serde_json::{Value, json};

use k8s_openapi::api::core::v1::Pod;

use crate::support::{
    Invariant, Team,
    changes::{Change, first},
    eventually,
    mono_rollouts::{Floor, said},
    mono_vertices::{images, pods, pods_now, says, spec},
    numaflow::api,
    pipelines::{poke, until},
};

/// Re-tells functional-monovertex: "pause the MonoVertex if user requests it and resume it": slowly, so that spec.replicas is
/// null, and with fastResume, so that the 5 that an autoscaler has set are kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_users_pause_ends_slowly_with_no_replicas_set_or_fast_with_those_that_there_were() {
    let (floor, _operator) = Floor::at_work("mv-pause").await;
    let team = floor.team();
    team.mono_vertex("my", json!({"lifecycle": {"desiredPhase": "Running"}})).await;
    for fast in [false, true] {
        if fast {
            team.edit::<MonoVertexRollout>("my", json!({"spec": {"strategy": {"pauseResume": {"fastResume": true}}}}))
                .await;
        }
        team.want_mono_vertex("my", "Paused").await;
        let status = team.mono_vertex_rests("my").await;
        assert_eq!(status.message, "Deployed, and paused by its spec");
        assert_eq!(said(&status, "MonoVertexPausingOrPaused"), ("True", "MonoVertexPaused"));
        assert_eq!((said(&status, "Ready").0, said(&status, "ChildResourcesHealthy").0), ("True", "Unknown"));
        assert!(pods_now(team, "my-0").await.is_empty());
        team.meddle_with("my-0", json!({"spec": {"replicas": 5}})).await;
        floor.at_rest().await;
        team.mono_vertex_rests("my").await;
        assert!(pods_now(team, "my-0").await.is_empty(), "it stays paused");
        team.want_mono_vertex("my", "Running").await;
        let runs = team.mono_vertex_runs("my").await;
        let (replicas, there) = if fast { (Some(5), 5) } else { (None, 2) };
        assert_eq!(runs.data["spec"]["replicas"].as_i64(), replicas, "{}", runs.data["spec"]);
        assert_eq!(runs.data["spec"]["lifecycle"]["desiredPhase"], "Running");
        pods(team, "my-0", there).await;
        let status = team.mono_vertex_status("my").await;
        assert_eq!(said(&status, "MonoVertexPausingOrPaused"), ("False", "Unpaused"));
    }
    assert_eq!(floor.flips("my-0"), 4);
    floor.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn trap11_nobody_is_told_that_it_is_paused_while_a_pod_is_left() {
    let (floor, _operator) = Floor::at_work("mv-trap11").await;
    let team = floor.team();
    let fields = spec(json!({"scale": {"min": 2}}));
    team.mono_vertex_with("my", fields, json!({"terminates-after": "6s"}), json!({})).await;
    team.mono_vertex_runs("my").await;
    team.want_mono_vertex("my", "Paused").await;
    let paused = says(team, "my-0", "Paused").await;
    assert_eq!(paused.data["status"]["replicas"], 0);
    let waits = |s: &MonoVertexRolloutStatus| s.message.contains("waiting for its pods to be gone");
    let status = team.mono_vertex_until("my", "waits for its pods", waits).await;
    assert_eq!(pods_now(team, "my-0").await.len(), 2);
    assert_eq!(said(&status, "MonoVertexPausingOrPaused"), ("True", "MonoVertexPausing"));
    assert_eq!((status.phase.as_str(), status.pause.unwrap().state.as_str()), ("Pending", "Pausing"));
    team.mono_vertex_rests("my").await;
    assert!(pods_now(team, "my-0").await.is_empty());
    // With every change of the rollout and of the pods in the order in which they were made.
    floor.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn edits_while_it_is_paused_start_no_pod_and_the_last_one_runs_in_the_end() {
    let (floor, _operator) = Floor::at_work("mv-edits").await;
    let team = floor.team();
    team.mono_vertex("my", json!({"lifecycle": {"desiredPhase": "Running"}})).await;
    let edit = async |image: &str, phase: &str| {
        let patch = json!({"lifecycle": {"desiredPhase": phase}, "udf": {"container": {"image": image}}});
        team.edit_mono_vertex("my", patch).await;
    };
    let went_in = async |image: &str| {
        let is = |m: &DynamicObject| m.data["spec"]["udf"]["container"]["image"] == image;
        until(team, "MonoVertex", "my-0", &format!("has {image}"), is).await;
    };
    edit("f:2", "Paused").await;
    team.mono_vertex_rests("my").await;
    let no_pods = no_pods(team).await;
    for image in ["f:3", "f:4"] {
        edit(image, "Paused").await;
        went_in(image).await;
        team.mono_vertex_rests("my").await;
    }
    floor.at_rest().await;
    no_pods.held();
    edit("f:5", "Running").await;
    team.mono_vertex_runs("my").await;
    assert_eq!(images(&pods(team, "my-0", 2).await), ["f:5", "f:5"]);
    for pod in floor.changes().iter().filter(|c| c.kind == "Pod" && c.name().starts_with("my-0-mv-")) {
        let image = pod.object["spec"]["containers"].as_array().unwrap().iter().find(|c| c["name"] == "udf").unwrap();
        assert!(image["image"] == "f:1" || image["image"] == "f:5", "{} of {}", pod.name(), image["image"]);
    }
    assert_eq!(floor.flips("my-0"), 2);
    floor.at_rest().await;
}

/// Sees to it that there is never a pod of a MonoVertex.
async fn no_pods(team: &Team) -> Invariant {
    Invariant::watch("no pod of a MonoVertex", team.api::<Pod>(), |pods| {
        let of_one = |pod: &&Pod| pod.labels().contains_key("numaflow.numaproj.io/mono-vertex-name");
        pods.values().find(of_one).map_or(Ok(()), |pod| Err(pod.name_any()))
    })
    .await
}

/// Lists as a platform team may write them: another source needs a pause, another sink a new MonoVertex.
fn lists() -> Value {
    json!({"monovertex": "dataLoss:\n- path: spec.source\n  includeSubfields: true\n\
                          recreate:\n- path: spec.sink\n  includeSubfields: true\n"})
}

/// Says which changes need what, and sees to it that the operator knows.
async fn listed(floor: &Floor) {
    // What is wrong with the other kind is told, and that tells that this one was seen.
    let mut lists = lists();
    lists["pipeline"] = json!("dataLoss:\n- path: spec.jetstream\n");
    floor.scene.system.say("usde-config", "changes", lists).await;
    floor.scene.system.event("ConfigMap", "changes", &["ConfigInvalid", "spec.jetstream"]).await;
}

fn rpu(change: &Change) -> i64 {
    change.object["spec"]["source"]["generator"]["rpu"].as_i64().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_the_platform_team_pauses_it_for_a_change_also_across_a_crash_of_the_operator() {
    let (floor, operator) = Floor::at_work("mv-usde").await;
    let team = floor.team();
    listed(&floor).await;
    let fields = spec(json!({"scale": {"min": 2}}));
    team.mono_vertex_with("my", fields, json!({"terminates-after": "3s"}), json!({})).await;
    let made = team.mono_vertex_runs("my").await;
    team.edit_mono_vertex("my", json!({"source": {"generator": {"rpu": 7}}})).await;
    let status = team.mono_vertex_until("my", "pauses", |s| s.upgrade_in_progress == "PipelinePauseAndDrain").await;
    assert!(status.message.contains("spec.source.generator.rpu"), "{}", status.message);
    says(team, "my-0", "Paused").await;
    operator.kill().await;
    let _operator = floor.scene.operator().await;
    let runs = until(team, "MonoVertex", "my-0", "runs with it", |m| {
        m.data["spec"]["source"]["generator"]["rpu"] == 7 && m.data["status"]["phase"] == "Running"
    })
    .await;
    assert_eq!(runs.uid(), made.uid());
    team.mono_vertex_runs("my").await;
    floor.at_rest().await;
    let status = team.mono_vertex_status("my").await;
    let last = status.last_pause.unwrap();
    assert_eq!((last.asked_by, status.upgrade_in_progress), (vec!["MonoVertexRollout/my".to_owned()], String::new()));
    let all = floor.changes();
    let changed = first(&all, 0, "the new source", |c| c.kind == "MonoVertex" && rpu(c) == 7);
    assert_eq!(changed.text("/spec/lifecycle/desiredPhase"), "Paused");
    assert!(floor.pods_at("my-0", changed.at).is_empty(), "its pods were gone");
    assert_eq!(floor.flips("my-0"), 2);

    // What needs a new one: the old one is paused, and goes.
    team.edit_mono_vertex("my", json!({"sink": {"log": null, "blackhole": {}}})).await;
    team.mono_vertex_until("my", "made anew", |s| s.child == "my-1").await;
    team.mono_vertex_runs("my").await;
    let all = floor.changes();
    let gone = first(&all, 0, "the old one is gone", |c| c.kind == "MonoVertex" && c.name() == "my-0" && c.deleted);
    assert!(floor.pods_at("my-0", gone.at).is_empty());
    assert_eq!(api(team, "MonoVertex").list(&Default::default()).await.unwrap().items.len(), 1);
    floor.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn force_ends_the_waiting_for_a_controller_that_does_not_look() {
    let (floor, _operator) = Floor::at_work("mv-force").await;
    let team = floor.team();
    listed(&floor).await;
    team.mono_vertex_with("my", spec(json!({})), json!({"silent": "true"}), json!({})).await;
    // Nobody has begun with it: the change waits for nothing.
    team.edit_mono_vertex("my", json!({"source": {"generator": {"rpu": 6}}})).await;
    let is = |n: i64| move |m: &DynamicObject| m.data["spec"]["source"]["generator"]["rpu"] == n;
    until(team, "MonoVertex", "my-0", "has it", is(6)).await;
    let knob = |value: Value| json!({"spec": {"monoVertex": {"metadata": {"annotations": {"stand-in.numaflow/silent": value}}}}});
    // An annotation alone is no reason for Numaflow to look.
    let looked_at = async || {
        team.edit::<MonoVertexRollout>("my", knob(Value::Null)).await;
        until(team, "MonoVertex", "my-0", "may be looked at", |m| {
            !m.annotations().contains_key("stand-in.numaflow/silent")
        })
        .await;
        poke(team, "MonoVertex", "my-0").await;
    };
    looked_at().await;
    team.mono_vertex_runs("my").await;
    team.edit::<MonoVertexRollout>("my", knob(json!("true"))).await;
    until(team, "MonoVertex", "my-0", "is not looked at", |m| m.annotations().contains_key("stand-in.numaflow/silent"))
        .await;
    team.edit_mono_vertex("my", json!({"source": {"generator": {"rpu": 7}}})).await;
    let words = "waiting for Numaflow's controller to look at MonoVertex/my-0";
    team.mono_vertex_until("my", "says what it waits for", |s| s.message.contains(words)).await;
    let force = json!({"metadata": {"annotations": {"numaplane.numaproj.io/force": "now"}}});
    team.edit::<MonoVertexRollout>("my", force).await;
    let runs = until(team, "MonoVertex", "my-0", "has it", is(7)).await;
    println!("{}", runs.data["spec"]);
    eventually("it is not left paused", async || {
        let there = api(team, "MonoVertex").get("my-0").await.map_err(|error| error.to_string())?;
        let phase = &there.data["spec"]["lifecycle"]["desiredPhase"];
        if phase.is_null() { Ok(()) } else { Err(phase.to_string()) }
    })
    .await;
    assert_eq!(team.mono_vertex_status("my").await.last_force.unwrap().text, "now");
    looked_at().await;
    team.mono_vertex_runs("my").await;
    floor.at_rest().await;
}

/// Takes two minutes: no controller is taken for gone before it was away for one and a half.
#[tokio::test(flavor = "multi_thread")]
async fn slow_a_change_does_not_wait_for_a_controller_that_is_gone_and_nothing_is_left_paused() {
    let (floor, _operator) = Floor::at_work("mv-gone").await;
    let team = floor.team();
    listed(&floor).await;
    team.mono_vertex("my", json!({})).await;
    for pod in team.all::<Pod>().await {
        if pod.name_any().starts_with("numaflow-controller") {
            let broken = json!({"metadata": {"labels": {"numaplane.test/behaviour": "never-ready"}}});
            team.edit::<Pod>(&pod.name_any(), broken).await;
        }
    }
    let notices = |r: &numaplane::api::NumaflowControllerRollout| {
        r.status.as_ref().is_some_and(|s| s.controller_unavailable.is_some())
    };
    team.until("numaflow-controller", "notices", notices).await;
    team.edit_mono_vertex("my", json!({"source": {"generator": {"rpu": 7}}})).await;
    crate::support::within(
        std::time::Duration::from_mins(3),
        "the change goes in, and nothing is paused",
        async || {
            let there = api(team, "MonoVertex").get("my-0").await.map_err(|error| error.to_string())?;
            let spec = &there.data["spec"];
            let done = spec["source"]["generator"]["rpu"] == 7 && spec["lifecycle"]["desiredPhase"].is_null();
            if done { Ok(()) } else { Err(team.mono_vertex_status("my").await.message) }
        },
    )
    .await;
    let words = "waiting for a controller to look at MonoVertex/my-0; no pod of one is available";
    let status = team.mono_vertex_until("my", "says so", |s| s.message.contains(words)).await;
    let last = status.last_pause.unwrap().reason;
    assert!(last.contains("ControllerUnavailable"), "{last}");
    team.event("MonoVertexRollout", "my", &["NotPaused", "spec.source.generator.rpu"]).await;
    team.set_version("numaflow-controller", "1.8.1").await;
    team.mono_vertex_runs("my").await;
    floor.at_rest().await;
}
