//! The end: what all stories of a run together have left in the cluster.

use crate::support::{control_plane::control_plane, numaflow};

/// Tests begin in the order of their names, this one last; it waits until the last of the others is done.
#[tokio::test(flavor = "multi_thread")]
async fn after_all_stories_no_pipeline_is_asked_to_pause_that_its_rollout_wants_to_run() {
    let client = control_plane().administrator().await;
    drop(numaflow::alone(&client).await);
}
