//! The name of an ISB service in the spec of a pipeline: that of an ISBServiceRollout, or of a service itself; there before the
//! pipeline, after it, or not at all.

use kube::{ResourceExt, api::DynamicObject};
use numaplane::api::{IsbServiceRollout, PipelineRollout};
use serde_json::{Value, json};

use crate::support::{
    Team, eventually, numaflow,
    pipelines::{service, until},
    rollouts::{Stage, pipeline_spec},
};

/// An ISBServiceRollout.
async fn rollout(team: &Team, name: &str) -> IsbServiceRollout {
    team.create(json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "ISBServiceRollout", "metadata": {"name": name},
        "spec": {"interStepBufferService": {"spec": {"jetstream": {
            "version": "2.10", "persistence": {"volumeSize": "1Gi"},
        }}}},
    }))
    .await
}

/// Waits until it is deployed, with this ISB service for its pipelines.
async fn has(team: &Team, name: &str, child: &str) {
    eventually(&format!("ISBServiceRollout/{name} has {child}"), async || {
        let status = team.get::<IsbServiceRollout>(name).await.status.unwrap_or_default();
        let there = status.child == child && status.phase.as_str() == "Deployed" && status.change.is_none();
        if there { Ok(()) } else { Err(format!("{:?} {}", status.child, status.message)) }
    })
    .await;
}

/// The pipeline of the tests, on the ISB service of this name.
fn on(name: &str) -> Value {
    let mut spec = pipeline_spec();
    spec["interStepBufferServiceName"] = json!(name);
    spec
}

async fn pipeline(team: &Team, name: &str, isb: &str) {
    team.pipeline_with(name, on(isb), json!({"terminates-after": "700ms"}), json!({})).await;
}

/// The pipeline of a rollout runs on this service, and carries both names.
async fn runs_on(team: &Team, name: &str, isb: &str, service: &str) -> DynamicObject {
    let found = team.pipeline_runs(name).await;
    uses(&found, isb, service);
    found
}

fn uses(pipeline: &DynamicObject, isb: &str, service: &str) {
    let label = |key: &str| pipeline.labels()[&format!("numaplane.numaproj.io/{key}")].clone();
    assert_eq!(pipeline.data["spec"]["interStepBufferServiceName"], service);
    assert_eq!((label("isbsvc-name").as_str(), label("isbsvc-child-name").as_str()), (isb, service));
}

/// It is not made, and says for what it waits.
async fn waits(team: &Team, name: &str, words: &[&str]) {
    let status = team.pipeline_says(name, words).await;
    println!("{name}: {}", status.message);
    assert_eq!((status.phase.as_str(), status.child.as_str()), ("Pending", ""), "{status:?}");
    let ready = status.conditions.iter().find(|c| c.type_ == "Ready").unwrap();
    assert_eq!((ready.status.as_str(), ready.reason.as_str()), ("False", "IsbServiceMissing"));
    assert!(numaflow::api(team, "Pipeline").get_opt(&format!("{name}-0")).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_gets_the_isb_service_of_the_rollout_that_it_names_whichever_comes_first() {
    let (stage, _operator) = Stage::at_work("isb-order").await;
    let team = stage.team();
    // The pipeline first, which says for what it waits at each step.
    pipeline(team, "early", "late").await;
    waits(team, "early", &["waiting for ISBServiceRollout/late, or an InterStepBufferService of that name"]).await;
    rollout(team, "late").await;
    // The service first.
    rollout(team, "there").await;
    has(team, "there", "there-0").await;
    pipeline(team, "after", "there").await;
    runs_on(team, "after", "there", "there-0").await;
    has(team, "late", "late-0").await;
    runs_on(team, "early", "late", "late-0").await;
    // Both in one go, as from one file.
    tokio::join!(pipeline(team, "together", "same"), rollout(team, "same"));
    has(team, "same", "same-0").await;
    runs_on(team, "together", "same", "same-0").await;
    stage.at_rest().await;
    for name in ["early-0", "after-0", "together-0"] {
        assert_eq!(stage.recorder.flips(name).len(), 0, "{}", stage.recorder.history(name));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_names_an_isb_service_uses_it_and_waits_for_one_that_is_nowhere() {
    let (stage, _operator) = Stage::at_work("isb-plain").await;
    let team = stage.team();
    pipeline(team, "plain", "default").await;
    let made = runs_on(team, "plain", "default", "default").await;
    pipeline(team, "lost", "nowhere").await;
    waits(team, "lost", &["ISBServiceRollout/nowhere, or an InterStepBufferService of that name"]).await;
    service(team, "nowhere", "").await;
    runs_on(team, "lost", "nowhere", "nowhere").await;

    // One that is there stays where it is when the next one is missing, and is paused and resumed as its user says.
    team.edit_pipeline("plain", json!({"interStepBufferServiceName": "missing", "limits": {"readBatchSize": 7}})).await;
    let status = team.pipeline_says("plain", &["ISBServiceRollout/missing", "Pipeline/plain-0 stays as it is"]).await;
    println!("{}", status.message);
    for phase in ["Paused", "Running"] {
        team.edit_pipeline("plain", json!({"lifecycle": {"desiredPhase": phase}})).await;
        let there = |p: &DynamicObject| {
            let current = p.data["status"]["observedGeneration"] == json!(p.metadata.generation);
            current && p.data["status"]["phase"] == phase
        };
        until(team, "Pipeline", "plain-0", phase, there).await;
    }
    let same = team.live_pipeline("plain").await;
    assert_eq!((same.uid(), &same.data["spec"]["limits"]), (made.uid(), &Value::Null));
    team.edit_pipeline("plain", json!({"interStepBufferServiceName": "default", "lifecycle": null})).await;
    let changed = runs_on(team, "plain", "default", "default").await;
    assert_eq!((changed.uid(), &changed.data["spec"]["limits"]["readBatchSize"]), (made.uid(), &json!(7)));
    stage.at_rest().await;
}

/// The pipeline was drained before it went, and never ran again in between.
fn drained_and_gone(stage: &Stage, child: &str) {
    let (states, history) = (stage.recorder.states(child), stage.recorder.history(child));
    println!("{history}");
    let going = states.iter().position(|s| s.deleting).unwrap_or_else(|| panic!("never deleted: {history}"));
    let last = &states[going - 1];
    assert!(last.settled() && last.wants_pause() && last.drained, "{history}");
    assert_eq!(stage.recorder.flips(child).len(), 1, "{history}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_rollout_in_its_spec_makes_the_pipeline_anew_when_it_is_drained_and_a_label_alone_pauses_nothing() {
    let (stage, _operator) = Stage::at_work("isb-other").await;
    let team = stage.team();
    for name in ["one", "two"] {
        rollout(team, name).await;
        has(team, name, &format!("{name}-0")).await;
    }
    pipeline(team, "my", "one").await;
    let made = runs_on(team, "my", "one", "one-0").await;
    let labels = json!({"numaplane.numaproj.io/isbsvc-child-name": null, "numaplane.numaproj.io/isbsvc-name": null});
    team.meddle("my-0", json!({"metadata": {"labels": labels}})).await;
    let labelled = |p: &DynamicObject| p.labels().contains_key("numaplane.numaproj.io/isbsvc-child-name");
    uses(&until(team, "Pipeline", "my-0", "labelled again", labelled).await, "one", "one-0");
    assert_eq!(runs_on(team, "my", "one", "one-0").await.uid(), made.uid());
    assert_eq!(stage.recorder.flips("my-0").len(), 0, "{}", stage.recorder.history("my-0"));

    team.edit_pipeline("my", json!({"interStepBufferServiceName": "two"})).await;
    team.pipeline_until("my", "made anew", |s| s.child == "my-1").await;
    runs_on(team, "my", "two", "two-0").await;
    drained_and_gone(&stage, "my-0");

    // Nothing becomes of a pipeline whose rollout is being deleted: that waits for it, and no new one goes there.
    team.delete::<IsbServiceRollout>("two").await;
    pipeline(team, "new", "two").await;
    waits(team, "new", &["waiting for an ISB service: ISBServiceRollout/two is being deleted"]).await;
    team.edit_pipeline("my", json!({"limits": {"readBatchSize": 7}})).await;
    let limited = |p: &DynamicObject| p.data["spec"]["limits"]["readBatchSize"] == 7;
    uses(&until(team, "Pipeline", "my-1", "changed", limited).await, "two", "two-0");
    runs_on(team, "my", "two", "two-0").await;
    assert_eq!(stage.recorder.flips("my-1").len(), 0, "{}", stage.recorder.history("my-1"));
    eventually("the rollout names who it waits for", async || {
        let message = team.get::<IsbServiceRollout>("two").await.status.unwrap_or_default().message;
        if message.contains("Pipeline/my-1") { Ok(()) } else { Err(message) }
    })
    .await;
    team.delete::<PipelineRollout>("my").await;
    team.gone::<IsbServiceRollout>("two").await;
    waits(team, "new", &["waiting for ISBServiceRollout/two, or an InterStepBufferService of that name"]).await;
    team.delete::<PipelineRollout>("new").await;
    team.gone::<PipelineRollout>("new").await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelines_go_with_their_rollout_to_its_next_isb_service_and_pause_once_for_that() {
    let (stage, _operator) = Stage::at_work("isb-moves").await;
    let team = stage.team();
    rollout(team, "buffers").await;
    has(team, "buffers", "buffers-0").await;
    for name in ["a", "b"] {
        pipeline(team, name, "buffers").await;
        runs_on(team, name, "buffers", "buffers-0").await;
    }
    pipeline(team, "other", "default").await;
    runs_on(team, "other", "default", "default").await;
    // It asks them to pause once it has another service for them.
    let larger = json!({"jetstream": {"persistence": {"volumeSize": "2Gi"}}});
    team.edit::<IsbServiceRollout>("buffers", json!({"spec": {"interStepBufferService": {"spec": larger}}})).await;
    for name in ["a", "b"] {
        team.pipeline_until(name, "moved", |s| s.child == format!("{name}-1")).await;
        runs_on(team, name, "buffers", "buffers-1").await;
        drained_and_gone(&stage, &format!("{name}-0"));
        assert_eq!(stage.recorder.flips(&format!("{name}-1")).len(), 0);
        let last = team.pipeline_status(name).await.last_pause.unwrap();
        assert_eq!((last.drained, last.not_drained.as_str()), (Some(true), ""));
    }
    assert_eq!(stage.recorder.flips("other-0").len(), 0, "{}", stage.recorder.history("other-0"));

    has(team, "buffers", "buffers-1").await;
    eventually("the old service is gone", async || {
        let old = numaflow::api(team, "InterStepBufferService").get_opt("buffers-0").await.unwrap();
        old.map_or(Ok(()), |old| Err(format!("{:?}", old.metadata)))
    })
    .await;
    let drain = team.get::<IsbServiceRollout>("buffers").await.status.unwrap_or_default().last_drain.unwrap();
    assert_eq!(drain.drained, ["a-0", "b-0"]);
    stage.at_rest().await;
}
