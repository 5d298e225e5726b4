//! Single writes of Numaflow's objects, and of finalizers, as the server takes them: what each expects, and what becomes of it
//! when something else is there.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Resource, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use numaplane::{
    api::{FINALIZER, NumaflowControllerRollout, PipelineRollout},
    cluster::{Cluster, Failure, Lesson, Subject},
    live::Version,
    plan::Step,
    settings::Defaults,
    world::World,
};
use serde_json::{Value, json};

use crate::support::{Scene, Team, control_plane::control_plane, eventually, faults::Faults, numaflow};

/// A writer of an operator that has seen nothing yet, and what it knows.
async fn writer(team: &Team) -> (Cluster, Arc<World>) {
    let (client, _) = control_plane().operator(&Faults::default(), None).await;
    let names = [team.namespace.clone()];
    let world = Arc::new(World::new(&names, &names, "", [], Defaults::default()));
    (Cluster::new(client, world.clone()), world)
}

async fn rollout(team: &Team) -> PipelineRollout {
    team.create(json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "PipelineRollout", "metadata": {"name": "sums"},
        "spec": {"pipeline": {"spec": {"vertices": [], "interStepBufferServiceName": "buffers"}}},
    }))
    .await
}

fn apply(limit: i64, expect: Option<Version>) -> Step {
    let body = json!({
        "metadata": {"name": "sums-0", "labels": {"from": "us"}},
        "spec": {"vertices": [{"name": "in"}], "limits": {"bufferMaxLength": limit}},
    });
    Step::ApplyNumaflow { kind: "Pipeline", body: Arc::new(body), expect }
}

fn phase(object: Version, phase: &str) -> Step {
    let patch = Arc::new(json!({"spec": {"lifecycle": {"desiredPhase": phase}}}));
    Step::PatchNumaflow { kind: "Pipeline", object, patch, why: "a test" }
}

fn managers(object: &DynamicObject) -> Vec<String> {
    object.metadata.managed_fields.iter().flatten().filter_map(|m| m.manager.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_is_applied_patched_and_deleted_only_if_it_is_the_one_that_was_seen() {
    let scene = Scene::new("one-pipeline").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    let rollout = Arc::new(rollout(team).await);
    let subject = Subject::Pipeline(rollout.clone());
    let (cluster, world) = writer(team).await;
    let api = numaflow::api(team, "Pipeline");
    let known = || world.pipelines.get(&team.namespace, "sums-0").map(|p| p.version.clone());

    cluster.carry_out(&subject, &apply(1, None)).await.unwrap();
    let made = api.get("sums-0").await.unwrap();
    let owners: Value = serde_json::to_value(made.owner_references()).unwrap();
    assert_eq!(
        owners,
        json!([{"apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "PipelineRollout", "name": "sums",
            "uid": rollout.metadata.uid, "controller": true}])
    );
    assert_eq!(managers(&made), ["numaplane-dataplane"]);
    let first = known().unwrap();
    assert_eq!(first, Version::of(&made.metadata), "the answer is known at once");
    assert_eq!(cluster.carry_out(&subject, &apply(2, None)).await, Err(Failure::Conflict), "there is to be none");

    // The wanted phase is another manager's: an apply leaves it alone.
    cluster.carry_out(&subject, &phase(first.clone(), "Paused")).await.unwrap();
    assert_eq!(cluster.carry_out(&subject, &phase(first.clone(), "Running")).await, Err(Failure::Conflict), "older");
    assert_eq!(cluster.carry_out(&subject, &apply(2, Some(first.clone()))).await, Err(Failure::Conflict), "older");
    cluster.carry_out(&subject, &apply(2, known())).await.unwrap();
    let changed = api.get("sums-0").await.unwrap();
    assert_eq!(changed.data["spec"]["limits"]["bufferMaxLength"], 2);
    assert_eq!(changed.data["spec"]["lifecycle"]["desiredPhase"], "Paused");
    assert_eq!(managers(&changed), ["numaplane-dataplane", "numaplane-lifecycle"]);
    let seen = world.pipelines.get(&team.namespace, "sums-0").unwrap();
    assert_eq!(seen.ownership.ours.as_ref().unwrap()["limits"]["bufferMaxLength"], 2);
    // Without a version only the uid counts.
    let any = Version { resource_version: String::new(), ..first.clone() };
    cluster.carry_out(&subject, &phase(any.clone(), "Running")).await.unwrap();

    // Another object of the same name.
    let other = Version { uid: "00000000-0000-4000-8000-000000000000".to_owned(), ..any.clone() };
    assert_eq!(cluster.carry_out(&subject, &phase(other.clone(), "Paused")).await, Err(Failure::Conflict));
    assert_eq!(cluster.carry_out(&subject, &apply(3, Some(other.clone()))).await, Err(Failure::Conflict));
    let delete = |object: &Version| Step::DeleteNumaflow { kind: "Pipeline", object: object.clone() };
    cluster.carry_out(&subject, &delete(&other)).await.unwrap();
    assert_eq!(api.get("sums-0").await.unwrap().data["spec"]["limits"]["bufferMaxLength"], 2);
    assert!(known().is_some());

    // It is there until its finalizers are gone.
    let held = json!({"metadata": {"finalizers": ["test/numaflow"]}});
    api.patch("sums-0", &PatchParams::default(), &Patch::Merge(&held)).await.unwrap();
    cluster.carry_out(&subject, &delete(&first)).await.unwrap();
    assert!(world.pipelines.get(&team.namespace, "sums-0").unwrap().deleting);
    let free = json!({"metadata": {"finalizers": []}});
    api.patch("sums-0", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    cluster.carry_out(&subject, &delete(&first)).await.unwrap();
    assert!(known().is_none());

    // What is gone is not made anew by a change of it.
    assert_eq!(cluster.carry_out(&subject, &apply(3, Some(first))).await, Err(Failure::Conflict));
    assert_eq!(cluster.carry_out(&subject, &phase(any, "Paused")).await, Err(Failure::Conflict));
    assert!(api.get_opt("sums-0").await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_words_of_the_server_against_a_pipeline_are_told_with_its_name() {
    let scene = Scene::new("no-pipeline").await;
    let team = &scene.team;
    let rollout = Arc::new(rollout(team).await);
    let (subject, (cluster, _)) = (Subject::Pipeline(rollout), writer(team).await);
    {
        let _kinds = numaflow::absent(&team.client).await;
        let Err(Failure::Refused(refusal)) = cluster.carry_out(&subject, &apply(1, None)).await else {
            panic!("a kind that is not served")
        };
        assert_eq!(refusal.reason, "KindNotServed");
        assert!(refusal.message.starts_with("Pipeline/sums-0: the server does not serve this kind"), "{refusal:?}");
        let looked = cluster.carry_out(&subject, &Step::LookAtPipeline { name: "sums-0".to_owned() }).await.unwrap();
        let [Lesson::PlaneSeen(_, plane)] = looked.as_slice() else { panic!("{looked:?}") };
        assert!(plane.unreadable.as_ref().is_some_and(|why| why.starts_with("vertices: ")), "{plane:?}");
    }
    let _kinds = numaflow::installed(&team.client).await;
    let bad = Step::ApplyNumaflow {
        kind: "Pipeline",
        body: Arc::new(json!({"metadata": {"name": "sums-0", "labels": {"not a label!": ""}}, "spec": {}})),
        expect: None,
    };
    let Err(Failure::Refused(refusal)) = cluster.carry_out(&subject, &bad).await else { panic!("a bad label") };
    assert!(
        refusal.message.starts_with("Pipeline/sums-0: ") && refusal.message.contains("not a label!"),
        "{refusal:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn vertices_and_pods_of_a_pipeline_are_read_as_they_are_now() {
    let scene = Scene::new("plane").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    let (subject, (cluster, _)) = (Subject::Pipeline(Arc::new(rollout(team).await)), writer(team).await);
    for (pipeline, desired) in [("sums-0", "Paused"), ("other-0", "Running")] {
        let vertex: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "numaflow.numaproj.io/v1alpha1", "kind": "Vertex",
            "metadata": {"name": format!("{pipeline}-in"), "labels": {"numaflow.numaproj.io/pipeline-name": pipeline}},
            "spec": {"name": "in", "replicas": 2, "lifecycle": {"desiredPhase": desired}},
        }))
        .unwrap();
        numaflow::api(team, "Vertex").create(&PostParams::default(), &vertex).await.unwrap();
        for component in ["vertex", "daemon"] {
            team.create::<Pod>(json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("{pipeline}-{component}"), "labels": {
                    "numaflow.numaproj.io/pipeline-name": pipeline, "app.kubernetes.io/component": component,
                }},
                "spec": {"containers": [{"name": "main", "image": "numaflow:1"}]},
            }))
            .await;
        }
    }
    let looked = cluster.carry_out(&subject, &Step::LookAtPipeline { name: "sums-0".to_owned() }).await.unwrap();
    let [Lesson::PlaneSeen(name, plane)] = looked.as_slice() else { panic!("{looked:?}") };
    assert_eq!((name.as_str(), &plane.unreadable), ("sums-0", &None));
    let [vertex] = plane.vertices.as_slice() else { panic!("{plane:?}") };
    assert_eq!((vertex.object.as_str(), vertex.name.as_str(), vertex.paused), ("sums-0-in", "in", true));
    let pods: Vec<&str> = plane.pods.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(pods, ["sums-0-vertex"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_who_keeps_changing_an_object_does_not_hold_our_finalizer() {
    let scene = Scene::new("finalizer").await;
    let team = &scene.team;
    let (cluster, world) = writer(team).await;
    let api: Api<NumaflowControllerRollout> = team.api();
    let made: NumaflowControllerRollout = team
        .create(json!({
            "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "NumaflowControllerRollout",
            "metadata": {"name": "numaflow", "finalizers": ["test/first", FINALIZER]},
            "spec": {"controller": {"version": "1"}},
        }))
        .await;
    let seen = Subject::Rollout(Arc::new(made));
    let release = Step::SetFinalizers(vec!["test/first".to_owned()]);
    let edit =
        async |patch: Value| api.patch("numaflow", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();

    // Ours is not where it was.
    edit(json!({"metadata": {"finalizers": [FINALIZER, "test/second"]}})).await;
    assert_eq!(cluster.carry_out(&seen, &release).await, Err(Failure::Conflict));
    assert_eq!(api.get("numaflow").await.unwrap().finalizers(), [FINALIZER, "test/second"]);
    // Everything else is nobody's concern.
    let seen = Subject::Rollout(Arc::new(api.get("numaflow").await.unwrap()));
    edit(json!({"metadata": {"annotations": {"changed": "since"}, "finalizers": [FINALIZER, "test/second", "test/third"]}}))
        .await;
    cluster.carry_out(&seen, &Step::SetFinalizers(vec!["test/second".to_owned()])).await.unwrap();
    let left = api.get("numaflow").await.unwrap();
    assert_eq!(left.finalizers(), ["test/second", "test/third"]);
    let known = world.rollouts.get(&team.namespace, "numaflow").unwrap();
    assert_eq!(known.good().unwrap().metadata.resource_version, left.metadata.resource_version);
    // Once more, and of another object of the same name.
    assert_eq!(cluster.carry_out(&seen, &release).await, Err(Failure::Conflict));
    edit(json!({"metadata": {"finalizers": []}})).await;
    api.delete("numaflow", &DeleteParams::default()).await.unwrap();
    team.gone::<NumaflowControllerRollout>("numaflow").await;
    assert_eq!(cluster.carry_out(&seen, &release).await, Err(Failure::Conflict));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_happens_to_a_pipeline_is_a_turn_of_its_rollout() {
    let scene = Scene::new("turns").await;
    let team = &scene.team;
    let _kinds = numaflow::installed(&team.client).await;
    let operator = scene.operator().await;
    let turns = || {
        let text = operator.metrics.text();
        let counts = text
            .lines()
            .filter(|line| line.starts_with("numaplane_reconciles_total") && line.contains("kind=\"PipelineRollout\""));
        counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum::<u64>()
    };
    let more_than = async |before: u64, what: &str| {
        eventually(what, async || if turns() > before { Ok(turns()) } else { Err(format!("{} turns", turns())) }).await
    };
    let rollout = rollout(team).await;
    let before = more_than(0, "a turn of the new rollout").await;
    let mut pipeline = DynamicObject::new("sums-7", &ApiResource::erase::<PipelineRollout>(&()))
        .data(json!({"spec": {"vertices": [], "interStepBufferServiceName": "buffers"}}));
    pipeline.types = Some(kube::core::TypeMeta {
        api_version: "numaflow.numaproj.io/v1alpha1".to_owned(),
        kind: "Pipeline".to_owned(),
    });
    pipeline.metadata.owner_references = rollout.controller_owner_ref(&()).map(|owner| vec![owner]);
    numaflow::api(team, "Pipeline").create(&PostParams::default(), &pipeline).await.unwrap();
    let before = more_than(before, "a turn for the new pipeline").await;
    numaflow::create(team, "InterStepBufferService", "buffers", "").await;
    let before = more_than(before, "a turn for its ISB service").await;
    team.install("numaflow", "1.3.3").await;
    more_than(before, "a turn for the rollout of a controller").await;
}
