//! Pipelines that are made anew, and rollouts that are deleted: what goes is drained first, and nothing is in the way of it.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    Resource, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch},
    core::NamespaceResourceScope,
};
use numaplane::api::{NumaflowController, NumaflowControllerRollout, PipelineRollout};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::support::{
    Team, audit, eventually,
    faults::Faults,
    numaflow,
    pipelines::{pods, service, until},
    rollouts::{Stage, pipeline_spec},
    wait::within,
};

/// The pipeline was drained before it was deleted.
fn drained_first(stage: &Stage, child: &str) {
    let (states, history) = (stage.recorder.states(child), stage.recorder.history(child));
    println!("{history}");
    let going = states.iter().position(|s| s.deleting).unwrap_or_else(|| panic!("never deleted: {history}"));
    let last = &states[going - 1];
    assert!(last.settled() && last.wants_pause() && last.drained, "{history}");
}

#[tokio::test(flavor = "multi_thread")]
async fn another_isb_service_or_instance_makes_the_pipeline_anew_when_the_old_one_is_drained() {
    let (stage, _operator) = Stage::at_work("pl-anew").await;
    let team = stage.team();
    service(team, "other", "").await;
    team.pipeline("my", json!({"drains-after": "2s"})).await;
    team.pipeline_runs("my").await;
    team.edit_pipeline("my", json!({"interStepBufferServiceName": "other"})).await;
    let status = team.pipeline_says("my", &["is made anew", "spec.interStepBufferServiceName"]).await;
    println!("{}", status.message);
    let status = team.pipeline_until("my", "made anew", |s| s.child == "my-1").await;
    assert_eq!(status.name_count, Some(1));
    let anew = team.pipeline_runs("my").await;
    assert_eq!(anew.data["spec"]["interStepBufferServiceName"], "other");
    assert_eq!(anew.labels()["numaplane.numaproj.io/isbsvc-name"], "other");
    drained_first(&stage, "my-0");
    pods(team, "my-0", 0).await;
    // The buffers of two of a kind are never there at a time.
    let (old, new) = (stage.recorder.states("my-0"), stage.recorder.states("my-1"));
    assert!(old.last().unwrap().at <= new[0].at);

    // Another instance, with its own controller and ISB service.
    let spec = json!({"controller": {"version": "1.8.0", "instanceID": "blue"}});
    team.install_with("blue", spec).await;
    team.deployed("blue", "1.8.0").await;
    service(team, "of-blue", "blue").await;
    let annotations = json!({"numaflow.numaproj.io/instance": "blue", "stand-in.numaflow/drains-after": "2s"});
    let patch = json!({"metadata": {"annotations": annotations}, "spec": {"interStepBufferServiceName": "of-blue"}});
    team.edit::<PipelineRollout>("my", json!({"spec": {"pipeline": patch}})).await;
    team.pipeline_until("my", "made anew", |s| s.child == "my-2").await;
    let anew = team.pipeline_runs("my").await;
    assert_eq!(anew.annotations()["numaflow.numaproj.io/instance"], "blue");
    drained_first(&stage, "my-1");
    assert_eq!(numaflow::api(team, "Pipeline").list(&Default::default()).await.unwrap().items.len(), 1);
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_rollout_lets_its_pipeline_drain_and_goes_after_it() {
    let (stage, _operator) = Stage::at_work("pl-deleted").await;
    let team = stage.team();
    team.pipeline("my", json!({"drains-after": "3s"})).await;
    let mut spec = pipeline_spec();
    spec["lifecycle"] = json!({"deletionGracePeriodSeconds": 2});
    team.pipeline_with("full", spec, json!({"pending": "7"}), json!({})).await;
    let grace = |p: &DynamicObject| p.data["spec"]["lifecycle"]["deletionGracePeriodSeconds"].clone();
    assert_eq!(grace(&team.pipeline_runs("my").await), 30);
    assert_eq!(grace(&team.pipeline_runs("full").await), 2);
    let (all, began) = (numaflow::api(team, "Pipeline"), Instant::now());
    for name in ["my", "full"] {
        team.delete::<PipelineRollout>(name).await;
    }
    eventually("it says what it waits for", async || {
        let message = team.pipeline_status("my").await.message;
        let words = "waiting for Pipeline/my-0 to be drained and gone";
        if message.contains(words) { Ok(()) } else { Err(message) }
    })
    .await;
    for name in ["my", "full"] {
        eventually(&format!("{name} is gone, after its pipeline"), async || {
            let rollout = team.find::<PipelineRollout>(name).await;
            let child = all.get_opt(&format!("{name}-0")).await.map_err(|error| error.to_string())?;
            match (rollout, child) {
                (None, None) => Ok(()),
                // The first answer was so a moment before the second.
                (None, Some(child)) => panic!("{name} is gone, and its pipeline is not: {child:?}"),
                (Some(_), child) => Err(format!("pipeline there: {}", child.is_some())),
            }
        })
        .await;
        println!("{name} was gone after {:?}", began.elapsed());
    }
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
    stage.at_rest().await;
}

const OTHERS: &str = "example.com/theirs";

/// Deletes an object in the foreground, while somebody changes it again and again; its other finalizers are kept.
pub async fn let_go<K>(team: &Team, faults: &Faults, plural: &'static str, name: &'static str)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + 'static,
{
    const OURS: &str = "numaplane.numaproj.io/numaplane-controller";
    let api = team.api::<K>();
    let mut finalizers = team.get::<K>(name).await.finalizers().to_vec();
    finalizers.push(OTHERS.to_owned());
    team.edit::<K>(name, json!({"metadata": {"finalizers": finalizers}})).await;
    let (client, before) = (api.clone(), faults.left());
    let busy = tokio::spawn(async move {
        for n in 0.. {
            let patch = json!({"metadata": {"annotations": {"example.com/busy": n.to_string()}}});
            if client.patch(name, &Default::default(), &Patch::Merge(patch)).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let object = format!("/{plural}/{name}");
    faults.answer(409, 10, move |write| write.path.ends_with(&object));
    let (began, mark) = (Instant::now(), audit::mark());
    api.delete(name, &DeleteParams::foreground()).await.unwrap();
    within(Duration::from_secs(30), &format!("{plural}/{name} is let go"), async || match team.find::<K>(name).await {
        None => Err("everything is gone, and so is what is theirs".to_owned()),
        Some(object) if object.finalizers().iter().any(|f| f == OURS) => Err(format!("{:?}", object.finalizers())),
        Some(object) => {
            assert!(object.finalizers().iter().any(|f| f == OTHERS), "{:?}", object.finalizers());
            Ok(())
        }
    })
    .await;
    let writes = audit::since(mark, &team.namespace);
    let writes = writes.iter().filter(|r| r.write() && r.resource() == plural && r.name() == name).count();
    println!("{plural}/{name} was let go after {:?}, with {writes} writes and 10 conflicts", began.elapsed());
    assert_eq!(faults.left(), before, "every conflict was met");
    busy.abort();
    team.edit::<K>(name, json!({"metadata": {"finalizers": null}})).await;
    team.gone::<K>(name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a11_conflicts_and_other_finalizers_do_not_keep_what_is_deleted() {
    let stage = Stage::bare("pl-a11").await;
    let team = stage.team();
    let faults = Faults::default();
    let _operator = stage.scene.operator_behind(&faults).await;
    stage.furnish().await;
    // Its pipeline is slow to go; and another one has none.
    team.pipeline("slow", json!({"drains-after": "3s"})).await;
    let mut spec = pipeline_spec();
    spec["lifecycle"] = json!({"desiredPhase": 7});
    team.pipeline_with("none", spec, json!({}), json!({})).await;
    team.pipeline_runs("slow").await;
    let status = team.pipeline_until("none", "cannot be made", |s| s.phase.as_str() == "Failed").await;
    assert!(status.child.is_empty(), "{status:?}");
    let_go::<PipelineRollout>(team, &faults, "pipelinerollouts", "slow").await;
    let_go::<PipelineRollout>(team, &faults, "pipelinerollouts", "none").await;
    let alone = json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "NumaflowController",
        "metadata": {"name": "alone"}, "spec": {"version": "1.8.0", "instanceID": "green"},
    });
    team.create::<NumaflowController>(alone).await;
    eventually("the one without a rollout is there", async || {
        let found = team.get::<NumaflowController>("alone").await;
        let status = found.status.unwrap_or_default();
        if status.phase.as_str() == "Deployed" { Ok(()) } else { Err(status.message) }
    })
    .await;
    let_go::<NumaflowController>(team, &faults, "numaflowcontrollers", "alone").await;
    numaflow::delete(team, "InterStepBufferService", "default").await;
    let_go::<NumaflowControllerRollout>(team, &faults, "numaflowcontrollerrollouts", "numaflow-controller").await;
    team.gone::<Deployment>("numaflow-controller").await;
    stage.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_deleted_by_hand_in_the_middle_of_a_pause_is_made_anew_and_runs() {
    let (stage, _operator) = Stage::at_work("pl-by-hand").await;
    let team = stage.team();
    team.pipeline("my", json!({"drains-after": "20s"})).await;
    team.pipeline_runs("my").await;
    team.set_image("my", "cat:2").await;
    until(team, "Pipeline", "my-0", "pauses", |p| p.data["status"]["phase"] == "Pausing").await;
    stage.recorder.deleted_by_hand("my-0");
    numaflow::delete(team, "Pipeline", "my-0").await;
    team.turn_knobs("my", json!({"drains-after": Value::Null})).await;
    team.pipeline_until("my", "made anew", |s| s.child == "my-1").await;
    let anew = team.pipeline_runs("my").await;
    assert_eq!(anew.data["spec"]["vertices"][1]["udf"]["container"]["image"], "cat:2");
    assert!(team.pipeline_status("my").await.pause.is_none());
    stage.at_rest().await;
}
