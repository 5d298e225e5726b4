//! ppnd: what pauses and drains may not hold up, and how a pipeline comes back.

use numaplane::api::{IsbServiceRollout, NumaflowControllerRollout, PipelineRollout};
use serde_json::{Value, json};

use super::{CONTROLLER, PIPELINE, SERVICE, begin, spec, with_pods};
use crate::support::{
    numaflow, pipelines,
    rollouts::{Stage, unfit},
};

/// What is changed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Pipeline,
    Service,
    Controller,
}

impl What {
    async fn change(self, stage: &Stage) {
        let team = stage.team();
        match self {
            Self::Pipeline => {
                let mut other = spec();
                other["vertices"][1]["udf"]["container"]["image"] = json!("cat:2");
                team.edit_pipeline(PIPELINE, other).await;
            }
            Self::Service => team.edit_service(json!({"version": "latest"})).await,
            Self::Controller => {
                team.set_version(CONTROLLER, "1.8.1").await;
            }
        }
    }

    /// Waits until the change is there.
    async fn is_there(self, stage: &Stage) {
        let team = stage.team();
        match self {
            Self::Pipeline => {
                crate::support::eventually("the pipeline has its change", async || {
                    let now = team.live_pipeline(PIPELINE).await;
                    let image = &now.data["spec"]["vertices"][1]["udf"]["container"]["image"];
                    if image == "cat:2" { Ok(()) } else { Err(image.to_string()) }
                })
                .await;
            }
            Self::Service => {
                team.service_deployed().await;
                assert_eq!(team.service_runs().await.1, "nats:latest");
            }
            Self::Controller => {
                team.deployed(CONTROLLER, "1.8.1").await;
            }
        }
    }
}

/// A pipeline that takes for ever to drain is told not to wait, in the middle of it.
async fn data_loss_is_allowed(what: What) {
    let (stage, _operator) = begin(&format!("ppnd-loss-{what:?}").to_lowercase(), "pause-and-drain").await;
    let team = stage.team();
    let mut slow = spec();
    slow["lifecycle"] = json!({"pauseGracePeriodSeconds": 3600});
    team.pipeline_with(PIPELINE, slow, with_pods(&json!({"pending": "7"})), json!({})).await;
    team.pipeline_runs(PIPELINE).await;
    stage.recorder.changes_may_lose_data();
    match what {
        // Its own grace period stays.
        What::Pipeline => {
            team.set_image(PIPELINE, "cat:2").await;
        }
        _ => what.change(&stage).await,
    }
    team.pipeline_until(PIPELINE, "pausing", |s| s.pause.as_ref().is_some_and(|p| p.state == "Pausing")).await;
    team.annotate_pipeline(PIPELINE, "allow-data-loss", "true").await;
    what.is_there(&stage).await;
    team.pipeline_runs(PIPELINE).await;
    stage.at_rest().await;
}

/// Re-tells ppnd: "allow data loss … Pipeline update".
#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_may_lose_data_is_changed_without_waiting_any_longer() {
    data_loss_is_allowed(What::Pipeline).await;
}

/// Re-tells ppnd: "allow data loss … ISBService update".
#[tokio::test(flavor = "multi_thread")]
async fn an_isb_service_is_changed_without_waiting_any_longer_for_a_pipeline_that_may_lose_data() {
    data_loss_is_allowed(What::Service).await;
}

/// Re-tells ppnd: "allow data loss … Numaflow Controller update".
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_is_upgraded_without_waiting_any_longer_for_a_pipeline_that_may_lose_data() {
    data_loss_is_allowed(What::Controller).await;
}

/// A pipeline that fails, because its spec is not valid to Numaflow, and so can never pause.
async fn one_has_failed(what: What) {
    let (stage, _operator) = begin(&format!("ppnd-failed-{what:?}").to_lowercase(), "pause-and-drain").await;
    let team = stage.team();
    let mut broken = spec();
    unfit(&mut broken);
    team.pipeline_with(PIPELINE, broken, with_pods(&json!({})), json!({})).await;
    team.pipeline_until(PIPELINE, "its pipeline has failed", |s| {
        s.conditions.iter().any(|c| c.type_ == "ChildResourcesHealthy" && c.reason == "PipelineFailed")
    })
    .await;
    what.change(&stage).await;
    what.is_there(&stage).await;
    if what == What::Pipeline {
        team.pipeline_runs(PIPELINE).await;
    }
    stage.at_rest().await;
}

/// Re-tells ppnd: "update a Pipeline even if the Pipeline is failed".
#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_that_has_failed_is_mended_by_another_spec() {
    one_has_failed(What::Pipeline).await;
}

/// Re-tells ppnd: "update an ISBService even if the Pipeline is failed".
#[tokio::test(flavor = "multi_thread")]
async fn an_isb_service_is_changed_although_a_pipeline_on_it_has_failed() {
    one_has_failed(What::Service).await;
}

/// Re-tells ppnd: "update a NumaflowController even if the Pipeline is failed".
#[tokio::test(flavor = "multi_thread")]
async fn a_controller_is_upgraded_although_a_pipeline_of_it_has_failed() {
    one_has_failed(What::Controller).await;
}

/// Re-tells ppnd: "resume gradually" and "resume quickly".
#[tokio::test(flavor = "multi_thread")]
async fn pipelines_come_back_from_a_drain_gradually_or_as_they_were() {
    let (stage, _operator) = begin("ppnd-resume", "pause-and-drain").await;
    let team = stage.team();
    let made = stage.with_pipeline(json!({})).await;
    let vertex = format!("{}-cat", made.metadata.name.unwrap());
    for (fast, version) in [(false, "latest"), (true, "2.10")] {
        pipelines::edit(team, "Vertex", &vertex, json!({"spec": {"replicas": 2}})).await;
        let strategy: Value = json!({"spec": {"strategy": {"ppnd": {"fastResume": fast}}}});
        team.edit::<PipelineRollout>(PIPELINE, strategy).await;
        team.edit_service(json!({"version": version})).await;
        team.all_well("1.8.0").await;
        let replicas = numaflow::api(team, "Vertex").get(&vertex).await.unwrap().data["spec"]["replicas"].as_i64();
        assert!(if fast { replicas == Some(2) } else { replicas.is_none_or(|n| n < 2) }, "{fast} {replicas:?}");
    }
    stage.at_rest().await;
    team.delete_all().await;
    assert!(team.find::<IsbServiceRollout>(SERVICE).await.is_none());
    assert!(team.find::<NumaflowControllerRollout>(CONTROLLER).await.is_none());
}
