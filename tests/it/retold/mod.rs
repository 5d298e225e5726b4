//! The end-to-end cases of Numaplane for the kinds of the data plane, told again: what its users count on holds here too. Each
//! test says which suite it comes from. Suites that run with each strategy do so here.

mod concurrent;
mod functional_monovertex;
mod functional_pipeline;
mod ppnd;
mod rollback;

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::{ResourceExt, api::DynamicObject};
use numaplane::api::{IsbServiceRollout, IsbServiceRolloutStatus, NumaflowControllerRollout, PipelineRollout};
use serde_json::{Value, json};

use crate::support::{
    Team, eventually, numaflow,
    operator::Running,
    rollouts::{Stage, pipeline_spec},
};

/// Names as in the suites.
const CONTROLLER: &str = "numaflow-controller";
const SERVICE: &str = "test-isbservice-rollout";
const PIPELINE: &str = "test-pipeline-rollout";

/// Tells each of these stories with every strategy that a namespace may have.
macro_rules! with_each_strategy {
    ($($story:ident),* $(,)?) => {
        mod pause_and_drain {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $story() {
                super::$story("pause-and-drain").await;
            })*
        }
        mod progressive {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $story() {
                super::$story("progressive").await;
            })*
        }
        mod no_strategy {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $story() {
                super::$story("no-strategy").await;
            })*
        }
    };
}
use with_each_strategy;

/// A namespace of this strategy with an operator, a controller and an ISB service, each by its rollout.
async fn begin(name: &str, strategy: &str) -> (Stage, Running) {
    let stage = Stage::bare(&format!("{name}-{strategy}")).await;
    let team = stage.team();
    team.configure("strategy", json!({"upgradeStrategy": strategy})).await;
    let operator = stage.scene.operator().await;
    team.install_with(CONTROLLER, json!({"controller": {"version": "1.8.0"}})).await;
    team.deployed(CONTROLLER, "1.8.0").await;
    team.create::<IsbServiceRollout>(json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "ISBServiceRollout", "metadata": {"name": SERVICE},
        "spec": {"interStepBufferService": {"spec": {"jetstream": {
            "version": "2.10", "persistence": {"volumeSize": "1Gi"},
            "containerTemplate": {"resources": {"limits": {"memory": "2Gi"}}},
        }}}},
    }))
    .await;
    team.service_deployed().await;
    (stage, operator)
}

/// The pipeline of the suites, on the service of the suites.
fn spec() -> Value {
    let mut spec = pipeline_spec();
    spec["interStepBufferServiceName"] = json!(SERVICE);
    spec["vertices"][1]["udf"]["container"]["env"] = json!([{"name": "SELF", "value": "{{.pipeline-name}}"}]);
    spec
}

impl Stage {
    /// Makes the rollout of the pipeline, and waits until it runs.
    async fn with_pipeline(&self, knobs: Value) -> DynamicObject {
        self.team().pipeline_with(PIPELINE, spec(), with_pods(&knobs), json!({})).await;
        self.team().pipeline_runs(PIPELINE).await
    }
}

/// Knobs, and pods that are still there when their pipeline says that it is paused.
fn with_pods(knobs: &Value) -> Value {
    let mut all = json!({"terminates-after": "700ms"});
    all.as_object_mut().unwrap().extend(knobs.as_object().cloned().unwrap_or_default());
    all
}

impl Team {
    /// Changes the ISB service.
    async fn edit_service(&self, jetstream: Value) {
        let patch = json!({"spec": {"interStepBufferService": {"spec": {"jetstream": jetstream}}}});
        self.edit::<IsbServiceRollout>(SERVICE, patch).await;
    }

    async fn service_status(&self) -> IsbServiceRolloutStatus {
        self.get::<IsbServiceRollout>(SERVICE).await.status.unwrap_or_default()
    }

    /// Waits until the rollout of the ISB service is as it should be, about its newest spec.
    async fn service_until(
        &self,
        what: &str,
        is: impl Fn(&IsbServiceRolloutStatus) -> bool,
    ) -> IsbServiceRolloutStatus {
        eventually(&format!("ISBServiceRollout/{SERVICE}: {what}"), async || {
            let rollout = self.get::<IsbServiceRollout>(SERVICE).await;
            let status = rollout.status.unwrap_or_default();
            let current = Some(status.observed_generation) == rollout.metadata.generation;
            if current && is(&status) { Ok(status) } else { Err(serde_json::to_string(&status).unwrap_or_default()) }
        })
        .await
    }

    /// Waits until the ISB service is deployed and healthy, and nothing is under way.
    async fn service_deployed(&self) -> IsbServiceRolloutStatus {
        self.service_until("deployed and healthy", |s| {
            let healthy = s.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
            s.phase.as_str() == "Deployed" && healthy && s.change.is_none() && s.upgrade_in_progress.is_empty()
        })
        .await
    }

    /// The ISB service that counts, and the image that its brokers run.
    async fn service_runs(&self) -> (String, String) {
        let child = self.service_status().await.child;
        let set: StatefulSet = self.get(&format!("isbsvc-{child}-js")).await;
        let containers = set.spec.and_then(|s| s.template.spec).map(|s| s.containers).unwrap_or_default();
        let main = containers.into_iter().find(|c| c.name == "main").and_then(|c| c.image);
        (child, main.unwrap_or_default())
    }

    /// Waits until everything is deployed, healthy and running, with nothing under way; gives the pipeline.
    async fn all_well(&self, version: &str) -> DynamicObject {
        self.deployed(CONTROLLER, version).await;
        self.service_deployed().await;
        let pipeline = self.pipeline_runs(PIPELINE).await;
        self.pipeline_until(PIPELINE, "nothing under way", |s| s.upgrade_in_progress.is_empty() && s.pause.is_none())
            .await;
        pipeline
    }

    /// Names of the objects of a kind of Numaflow's.
    async fn names_of(&self, kind: &str) -> Vec<String> {
        let all = numaflow::api(self, kind).list(&kube::api::ListParams::default()).await.unwrap();
        all.items.iter().map(ResourceExt::name_any).collect()
    }

    /// Waits until there is only one pipeline and one ISB service, the ones on record.
    async fn only_one_child_each(&self) {
        eventually("one pipeline and one ISB service are left", async || {
            let wanted = (vec![self.pipeline_status(PIPELINE).await.child], vec![self.service_status().await.child]);
            let seen = (self.names_of("Pipeline").await, self.names_of("InterStepBufferService").await);
            if seen == wanted { Ok(()) } else { Err(format!("{seen:?}, and {wanted:?} on record")) }
        })
        .await;
    }

    /// Deletes the three rollouts, the pipeline's first, and waits until they and what they made are gone.
    async fn delete_all(&self) {
        self.delete::<PipelineRollout>(PIPELINE).await;
        self.gone::<PipelineRollout>(PIPELINE).await;
        self.delete::<IsbServiceRollout>(SERVICE).await;
        self.gone::<IsbServiceRollout>(SERVICE).await;
        self.delete::<NumaflowControllerRollout>(CONTROLLER).await;
        self.gone::<NumaflowControllerRollout>(CONTROLLER).await;
        for kind in ["Pipeline", "InterStepBufferService"] {
            assert!(self.names_of(kind).await.is_empty(), "{kind} is left");
        }
        assert!(self.deployments().await.is_empty());
    }
}
