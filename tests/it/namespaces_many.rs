//! Many namespaces, each with one of everything: all of it is changed at once.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use kube::{ResourceExt, api::ListParams};
use numaplane::api::{IsbServiceRollout, MonoVertexRollout, NumaflowControllerRollout, Phase, PipelineRollout};
use serde_json::{Value, json};

use crate::support::{
    Scene, Team, mono_vertices, numaflow,
    rest::assert_at_rest,
    rollouts::{spec_of, versions},
    wait::within,
};

/// Namespaces.
const MANY: usize = 50;
/// Pipelines in each.
const PIPELINES: usize = 5;
/// Longest until all is well: the control plane, the nodes, Numaflow and the operator share two cores.
const LONGEST: Duration = Duration::from_mins(8);
/// What is built in outside of tests: nothing is wrong with what is slow here.
const DEADLINE: &str = "10m";
/// How many requests of the story itself are made at a time.
const AT_ONCE: usize = 16;

/// As small as a pipeline can be, with this image for its sink.
fn pipeline(image: &str) -> Value {
    json!({
        "interStepBufferServiceName": "buffers",
        "vertices": [
            {"name": "in", "scale": {"min": 1}, "source": {"generator": {"rpu": 5, "duration": "1s"}}},
            {"name": "out", "scale": {"min": 1}, "sink": {"udsink": {"container": {"image": image}}}},
        ],
        "edges": [{"from": "in", "to": "out"}],
    })
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

fn name_of_pipeline(n: usize) -> String {
    format!("p{n}")
}

/// Everything that a namespace is to have, without waiting for any of it.
async fn make(team: &Team) {
    let mut controller = spec_of("1.8.0");
    controller["strategy"]["assessment"] = json!({"deadline": DEADLINE});
    team.create::<NumaflowControllerRollout>(object("NumaflowControllerRollout", "numaflow-controller", &controller))
        .await;
    let buffers = json!({
        "interStepBufferService": {"spec": {"jetstream": {"version": "2.10"}}},
        "strategy": {"assessment": {"deadline": DEADLINE}},
    });
    team.create::<IsbServiceRollout>(object("ISBServiceRollout", "buffers", &buffers)).await;
    for n in 0..PIPELINES {
        let spec = json!({"pipeline": {"spec": pipeline("sink:1")}});
        team.create::<PipelineRollout>(object("PipelineRollout", &name_of_pipeline(n), &spec)).await;
    }
    let mono = json!({"monoVertex": {"spec": mono_vertices::spec(json!({}))}});
    team.create::<MonoVertexRollout>(object("MonoVertexRollout", "mono", &mono)).await;
}

/// Another version, another service, another image, all at once.
async fn change(team: &Team) {
    team.set_version("numaflow-controller", "1.8.1").await;
    let buffers = json!({"spec": {"interStepBufferService": {"spec": {"jetstream": {"version": "latest"}}}}});
    team.edit::<IsbServiceRollout>("buffers", buffers).await;
    for n in 0..PIPELINES {
        let spec = json!({"spec": {"pipeline": {"spec": pipeline("sink:2")}}});
        team.edit::<PipelineRollout>(&name_of_pipeline(n), spec).await;
    }
    let mono = json!({"spec": {"monoVertex": {"spec": {"udf": {"container": {"image": "f:2"}}}}}});
    team.edit::<MonoVertexRollout>("mono", mono).await;
}

/// What is not deployed yet, as its newest spec asks for it.
async fn undeployed(team: &Team) -> Vec<String> {
    let mut all = Vec::new();
    macro_rules! look {
        ($($kind:ty),*) => {
            $(for rollout in team.all::<$kind>().await {
                let (name, generation) = (rollout.name_any(), rollout.metadata.generation);
                let status = rollout.status.unwrap_or_default();
                if Some(status.observed_generation) != generation || status.phase != Phase::deployed() {
                    all.push(format!("{}/{name}: {}", team.namespace, status.message));
                }
            })*
        };
    }
    look!(NumaflowControllerRollout, IsbServiceRollout, PipelineRollout, MonoVertexRollout);
    all
}

/// Waits until everything in all namespaces is deployed.
async fn all_deployed(teams: &[Team], what: &str) {
    within(LONGEST, what, async || {
        let all: Vec<Vec<String>> = stream::iter(teams).map(undeployed).buffer_unordered(AT_ONCE).collect().await;
        let left: Vec<String> = all.into_iter().flatten().collect();
        let first = left.iter().take(5).cloned().collect::<Vec<_>>().join("; ");
        if left.is_empty() { Ok(()) } else { Err(format!("{} are not deployed, like {first}", left.len())) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_namespaces_in_which_everything_is_changed_at_once_end_deployed_with_nothing_paused() {
    let scene = Scene::new("fifty").await;
    let _kinds = numaflow::installed(&scene.team.client).await;
    scene.define(&versions()).await;
    let mut teams = vec![scene.team.clone()];
    for n in 1..MANY {
        teams.push(scene.another(&n.to_string()).await);
    }
    let _operator = scene.operator().await;
    let began = Instant::now();
    stream::iter(&teams).map(make).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    all_deployed(&teams, "everything is made").await;
    println!("{MANY} namespaces: all made and deployed after {:.1} s", began.elapsed().as_secs_f32());

    let began = Instant::now();
    stream::iter(&teams).map(change).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    println!("all changed after {:.1} s", began.elapsed().as_secs_f32());
    all_deployed(&teams, "everything is changed").await;
    println!("all deployed after {:.1} s", began.elapsed().as_secs_f32());

    for team in &teams {
        assert_at_rest(team).await;
        let pipelines = numaflow::api(team, "Pipeline").list(&ListParams::default()).await.unwrap().items;
        assert_eq!(pipelines.len(), PIPELINES);
        for pipeline in pipelines {
            let image = &pipeline.data["spec"]["vertices"][1]["sink"]["udsink"]["container"]["image"];
            assert_eq!(image, "sink:2", "{}/{}", team.namespace, pipeline.name_any());
        }
        let mono = numaflow::api(team, "MonoVertex").get("mono-0").await.unwrap();
        assert_eq!(mono.data["spec"]["udf"]["container"]["image"], "f:2");
        let service = numaflow::api(team, "InterStepBufferService").get("buffers-0").await.unwrap();
        assert_eq!(service.data["spec"]["jetstream"]["version"], "latest");
    }
}
