//! What stories about drains have in common: pipelines that run already, and what is turned while they drain.

use kube::api::DynamicObject;
use numaplane::api::NumaflowControllerRollout;
use serde_json::{Value, json};

use super::{
    Team, eventually, numaflow,
    operator::Running,
    pauses::State,
    pipelines::{PTS, edit},
    rollouts::Stage,
};

/// The rollout of the stage.
pub const ROLLOUT: &str = "numaflow-controller";

impl Stage {
    /// With an operator, and a pipeline for each of these names, with its knobs, that runs.
    pub async fn running(name: &str, pipelines: &[(&str, Value)]) -> (Self, Running) {
        let stage = Self::bare(name).await;
        let operator = stage.scene.operator().await;
        stage.furnish().await;
        stage.with(pipelines).await;
        (stage, operator)
    }

    /// Makes these pipelines and waits until they run.
    pub async fn with(&self, pipelines: &[(&str, Value)]) {
        for (name, knobs) in pipelines {
            self.team().pipeline(name, knobs.clone()).await;
        }
        self.all_run(&pipelines.iter().map(|(name, _)| *name).collect::<Vec<_>>()).await;
    }

    /// Waits until all of these rollouts are deployed and their pipelines run.
    pub async fn all_run(&self, names: &[&str]) {
        for name in names {
            self.team().pipeline_runs(name).await;
        }
    }

    /// Waits for a state of a pipeline among all that it went through; true ones may be over by now.
    pub async fn saw(&self, pipeline: &str, what: &str, is: impl Fn(&State) -> bool) {
        eventually(&format!("Pipeline/{pipeline} was seen {what}"), async || {
            if self.recorder.states(pipeline).iter().any(&is) { Ok(()) } else { Err(self.recorder.history(pipeline)) }
        })
        .await;
    }

    /// Panics unless nobody asked a pipeline to pause, or to run again, at any time.
    pub fn never_flipped(&self, pipeline: &str) {
        assert_eq!(self.recorder.flips(pipeline), [], "{}", self.recorder.history(pipeline));
    }
}

/// The stage in which an attempt at this version is; empty if there is no such attempt.
pub fn stage_of(rollout: &NumaflowControllerRollout, version: &str) -> String {
    let upgrade = rollout.status.as_ref().and_then(|s| s.upgrade.as_ref());
    upgrade.filter(|u| u.version == version).map(|u| u.stage.clone()).unwrap_or_default()
}

impl Team {
    /// Turns knobs of a pipeline at its rollout and, because nothing of it is changed on its way into a pause, there as well.
    pub async fn turn_at_once(&self, name: &str, knobs: Value) {
        self.turn_knobs(name, knobs.clone()).await;
        let child = self.pipeline_status(name).await.child;
        let knobs = knobs.as_object().cloned().unwrap_or_default();
        let annotations: serde_json::Map<String, Value> =
            knobs.into_iter().map(|(knob, value)| (format!("stand-in.numaflow/{knob}"), value)).collect();
        edit(self, "Pipeline", &child, json!({"metadata": {"annotations": annotations}})).await;
    }

    /// Waits until a pipeline is on its way into a pause, as far as its controller is concerned.
    pub async fn pausing(&self, pipeline: &str) -> DynamicObject {
        eventually(&format!("Pipeline/{pipeline} is Pausing"), async || {
            let object = numaflow::api(self, "Pipeline").get(pipeline).await.map_err(|error| error.to_string())?;
            let seen = object.data["status"]["observedGeneration"] == json!(object.metadata.generation);
            let noted = object.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(PTS));
            if seen && noted && object.data["status"]["phase"] == "Pausing" {
                Ok(object)
            } else {
                Err(object.data.to_string())
            }
        })
        .await
    }
}
