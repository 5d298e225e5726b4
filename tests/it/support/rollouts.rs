//! What tests do to PipelineRollouts and see of them, and the stage that most stories about pipelines begin on.

use std::sync::atomic::{AtomicBool, Ordering};

use kube::{
    Api, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
};
use numaplane::api::{NumaflowControllerRollout, PipelineRollout, PipelineRolloutStatus};
use serde_json::{Value, json};

use super::{
    Scene, Team, Version, eventually, numaflow,
    operator::Running,
    pauses::Recorder,
    pipelines::{controller, service},
    requesters::{By, Requester},
    rest::assert_at_rest,
};

/// A team whose controller was installed by a rollout, with an ISB service, and everything that happens to its pipelines on
/// record.
pub struct Stage {
    /// The scene.
    pub scene: Scene,
    /// What became of the pipelines.
    pub recorder: Recorder,
    /// Whether anybody has looked what is left of pauses.
    looked: AtomicBool,
    _kinds: tokio::sync::RwLockReadGuard<'static, ()>,
}

/// Versions of the controller that stories upgrade between, each of which can prove itself beside another.
pub fn versions() -> Vec<Version> {
    vec![controller("1.8.0"), controller("1.8.1"), controller("1.8.2")]
}

impl Stage {
    /// Namespaces and definitions; what the operator does there is up to the test.
    pub async fn bare(name: &str) -> Self {
        let scene = Scene::new(name).await;
        let kinds = numaflow::installed(&scene.team.client).await;
        scene.define(&versions()).await;
        let recorder = Recorder::watch(&scene.team).await;
        Self { scene, recorder, looked: AtomicBool::new(false), _kinds: kinds }
    }

    /// With a controller of version 1.8.0 and an ISB service that is healthy. An operator has to be there.
    pub async fn furnish(&self) {
        self.team().install_with("numaflow-controller", spec_of("1.8.0")).await;
        self.team().deployed("numaflow-controller", "1.8.0").await;
        service(self.team(), "default", "").await;
    }

    /// Furnished so that this one can ask for pauses. An operator has to be there.
    pub async fn furnish_for(&self, by: By) -> Requester {
        match by {
            By::Controller => self.furnish().await,
            By::Isb => {
                Requester::of(self, By::Controller).install().await;
                Requester::of(self, by).install().await;
            }
        }
        Requester::of(self, by)
    }

    /// Furnished, with an operator at work.
    pub async fn at_work(name: &str) -> (Self, Running) {
        let stage = Self::bare(name).await;
        let operator = stage.scene.operator().await;
        stage.furnish().await;
        (stage, operator)
    }

    /// With an operator, one that may ask for pauses, and a pipeline for each of these names, with its knobs, that runs.
    pub async fn asked(by: By, name: &str, pipelines: &[(&str, Value)]) -> (Self, Requester, Running) {
        let stage = Self::bare(&format!("{name}-{by}")).await;
        let operator = stage.scene.operator().await;
        let requester = stage.furnish_for(by).await;
        stage.with(pipelines).await;
        (stage, requester, operator)
    }

    /// The team.
    pub fn team(&self) -> &Team {
        &self.scene.team
    }

    /// The end of a story: nobody flipped a pipeline too early, and nothing of a pause is left.
    pub async fn at_rest(&self) {
        self.nothing_left().await;
        self.recorder.rules().await;
    }

    /// The end of a story in which a pipeline was wedged: out of a wedge there is no way but another flip.
    pub async fn at_rest_after_a_wedge(&self) {
        self.nothing_left().await;
        self.recorder.rules_but_cures().await;
    }

    /// The half of it that holds for every story: nothing of a pause is left.
    pub async fn nothing_left(&self) {
        assert_at_rest(self.team()).await;
        self.looked.store(true, Ordering::Relaxed);
    }
}

impl Drop for Stage {
    /// Every story looks at its end what is left of pauses. The look over all of them, at the end, tells no longer which
    /// story it was in which the time ran out.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.looked.load(Ordering::Relaxed), "this story never looked whether its pipelines are at rest");
        }
    }
}

/// The spec of a controller rollout that pauses and drains.
pub fn spec_of(version: &str) -> Value {
    json!({"controller": {"version": version}, "strategy": {"type": "pause-and-drain"}})
}

/// A pipeline of three vertices: source, one that works, sink.
pub fn pipeline_spec() -> Value {
    json!({
        "interStepBufferServiceName": "default",
        "vertices": [
            {"name": "in", "scale": {"min": 1}, "source": {"generator": {"rpu": 5, "duration": "1s"}}},
            {"name": "cat", "scale": {"min": 1}, "udf": {"container": {"image": "cat:1"}}},
            {"name": "out", "scale": {"min": 1}, "sink": {"log": {}}},
        ],
        "edges": [{"from": "in", "to": "cat"}, {"from": "cat", "to": "out"}],
    })
}

/// The same, not valid to Numaflow. Versions of it disagree about this, so that the operator has nothing against it.
pub fn unfit_spec() -> Value {
    let mut spec = pipeline_spec();
    unfit(&mut spec);
    spec
}

/// Makes the last vertex of a spec, its sink, such that the spec is not valid to Numaflow.
pub fn unfit(spec: &mut Value) {
    let sink = spec["vertices"].as_array_mut().and_then(|vertices| vertices.last_mut()).expect("vertices");
    sink["sink"]["retryStrategy"] = json!({"onFailure": "fallback"});
}

impl Team {
    /// Makes a PipelineRollout; `knobs` are those of the stand-in. As with real ones, its pods are still there when it says that
    /// it is paused, and for longer than the operator takes to write something.
    pub async fn pipeline(&self, name: &str, knobs: Value) -> PipelineRollout {
        let mut all = json!({"terminates-after": "700ms"});
        for (knob, value) in knobs.as_object().into_iter().flatten() {
            all[knob] = value.clone();
        }
        self.pipeline_with(name, pipeline_spec(), all, json!({})).await
    }

    /// Makes a PipelineRollout of this spec and strategy.
    pub async fn pipeline_with(&self, name: &str, spec: Value, knobs: Value, strategy: Value) -> PipelineRollout {
        self.create(json!({
            "apiVersion": "numaplane.numaproj.io/v1alpha1",
            "kind": "PipelineRollout",
            "metadata": {"name": name},
            "spec": {
                "pipeline": {"metadata": {"annotations": annotations(knobs)}, "spec": spec},
                "strategy": strategy,
            },
        }))
        .await
    }

    /// Changes the spec of a pipeline by a merge patch.
    pub async fn edit_pipeline(&self, name: &str, patch: Value) -> PipelineRollout {
        self.edit(name, json!({"spec": {"pipeline": {"spec": patch}}})).await
    }

    /// Another image for the vertex that works: a change that needs a pause.
    pub async fn set_image(&self, name: &str, image: &str) -> PipelineRollout {
        let mut spec = self.get::<PipelineRollout>(name).await.spec.pipeline.spec.0;
        spec["vertices"][1]["udf"]["container"]["image"] = json!(image);
        self.edit_pipeline(name, spec).await
    }

    /// Sets an annotation of a rollout of pipelines.
    pub async fn annotate_pipeline(&self, name: &str, key: &str, value: &str) -> PipelineRollout {
        self.edit(name, json!({"metadata": {"annotations": {format!("numaplane.numaproj.io/{key}"): value}}})).await
    }

    /// Turns knobs of a pipeline that is there, at the rollout, so that they stay.
    pub async fn turn_knobs(&self, name: &str, knobs: Value) -> PipelineRollout {
        self.edit(name, json!({"spec": {"pipeline": {"metadata": {"annotations": annotations(knobs)}}}})).await
    }

    /// Status of a PipelineRollout.
    pub async fn pipeline_status(&self, name: &str) -> PipelineRolloutStatus {
        self.get::<PipelineRollout>(name).await.status.unwrap_or_default()
    }

    /// Waits until the status of a PipelineRollout is about the newest spec, and as it should be.
    pub async fn pipeline_until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&PipelineRolloutStatus) -> bool,
    ) -> PipelineRolloutStatus {
        eventually(&format!("PipelineRollout/{name}: {what}"), async || {
            let rollout = self.get::<PipelineRollout>(name).await;
            let status = rollout.status.unwrap_or_default();
            let current = Some(status.observed_generation) == rollout.metadata.generation;
            if current && is(&status) { Ok(status) } else { Err(serde_json::to_string(&status).unwrap_or_default()) }
        })
        .await
    }

    /// Waits until a PipelineRollout is deployed, and its pipeline runs.
    pub async fn pipeline_runs(&self, name: &str) -> DynamicObject {
        let status = self.pipeline_until(name, "deployed", |s| s.phase.as_str() == "Deployed").await;
        let api = numaflow::api(self, "Pipeline");
        eventually(&format!("Pipeline/{} runs", status.child), async || {
            let object = api.get(&status.child).await.map_err(|error| error.to_string())?;
            let running = object.data["status"]["phase"] == "Running"
                && object.data["status"]["observedGeneration"] == json!(object.metadata.generation)
                && !object.annotations().contains_key(super::pipelines::PTS);
            if running { Ok(object) } else { Err(format!("{:?}", object.data)) }
        })
        .await
    }

    /// Waits until a PipelineRollout says all of these words about its newest spec.
    pub async fn pipeline_says(&self, name: &str, words: &[&str]) -> PipelineRolloutStatus {
        let says = |s: &PipelineRolloutStatus| words.iter().all(|w| s.message.contains(w));
        self.pipeline_until(name, &format!("says {words:?}"), says).await
    }

    /// Waits until a PipelineRollout is deployed, and paused because its spec asks for it.
    pub async fn pipeline_rests(&self, name: &str) -> DynamicObject {
        let paused = |s: &PipelineRolloutStatus| {
            s.phase.as_str() == "Deployed" && s.pause.as_ref().is_some_and(|p| p.state == "Paused")
        };
        let status = self.pipeline_until(name, "deployed, and paused by its spec", paused).await;
        super::pipelines::settled(self, &status.child, "Paused").await
    }

    /// Waits until one is deployed and paused so, and so many vertices are told to.
    pub async fn pipeline_rests_with(&self, name: &str, vertices: usize) {
        let child = self.pipeline_until(name, "deployed", |s| s.phase.as_str() == "Deployed").await.child;
        super::pipelines::desired(self, &child, &vec!["Paused"; vertices]).await;
    }

    /// Changes a pipeline directly, as somebody with kubectl does.
    pub async fn meddle(&self, child: &str, patch: Value) -> DynamicObject {
        let by = PatchParams { field_manager: Some("kubectl-edit".to_owned()), ..PatchParams::default() };
        let patched = numaflow::api(self, "Pipeline").patch(child, &by, &Patch::Merge(patch)).await;
        patched.unwrap_or_else(|error| panic!("Pipeline/{child}: {error}"))
    }

    /// The pipeline of a rollout as it is now.
    pub async fn live_pipeline(&self, name: &str) -> DynamicObject {
        let child = self.pipeline_status(name).await.child;
        numaflow::api(self, "Pipeline").get(&child).await.unwrap_or_else(|error| panic!("Pipeline/{child}: {error}"))
    }

    /// Waits until the controller rollout is as it should be.
    pub async fn controller_until(
        &self,
        what: &str,
        is: impl Fn(&NumaflowControllerRollout) -> bool,
    ) -> NumaflowControllerRollout {
        self.until("numaflow-controller", what, is).await
    }

    /// The API of PipelineRollouts.
    pub fn pipelines(&self) -> Api<PipelineRollout> {
        self.api()
    }
}

/// Knobs of the stand-in as annotations; null turns one off.
fn annotations(knobs: Value) -> Value {
    let knobs = knobs.as_object().cloned().unwrap_or_default();
    Value::Object(knobs.into_iter().map(|(knob, value)| (format!("stand-in.numaflow/{knob}"), value)).collect())
}

#[cfg(test)]
mod tests {
    use super::Stage;

    #[tokio::test(flavor = "multi_thread")]
    #[should_panic(expected = "never looked whether its pipelines are at rest")]
    async fn a_story_that_does_not_look_what_is_left_of_pauses_fails() {
        drop(Stage::bare("no-look").await);
    }
}
