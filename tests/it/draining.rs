//! Upgrades of a controller whose pipelines are paused and drained for it.

use serde_json::json;

use crate::support::rollouts::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_is_upgraded_while_its_pipelines_are_drained_and_they_run_again_afterwards() {
    let stage = Stage::bare("drain").await;
    let team = stage.team();
    let _operator = stage.scene.operator().await;
    stage.furnish().await;
    team.pipeline("a", json!({})).await;
    team.pipeline("b", json!({})).await;
    team.pipeline_runs("a").await;
    team.pipeline_runs("b").await;

    team.set_version("numaflow-controller", "1.8.1").await;
    team.deployed("numaflow-controller", "1.8.1").await;
    team.pipeline_runs("a").await;
    team.pipeline_runs("b").await;
    stage.at_rest().await;
    let drain = team.status("numaflow-controller").await.last_drain.unwrap();
    assert_eq!((drain.drained.len(), drain.not_drained.len()), (2, 0), "{drain:?}");
    for name in ["a-0", "b-0"] {
        assert_eq!(stage.recorder.flips(name).len(), 2, "{}", stage.recorder.history(name));
    }
}
