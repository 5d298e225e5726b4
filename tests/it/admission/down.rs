//! The webhook does not run: what is refused then is what it would have been asked about, and the operator's own work goes on.

use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Namespace, Pod, Secret, Service, ServiceAccount},
    rbac::v1::ClusterRoleBinding,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use numaplane::api::{NumaflowControllerRollout, PipelineRollout};
use serde_json::{Value, json};

use crate::support::{
    Scene, Team,
    asking::User,
    eventually,
    faults::Faults,
    operator::Running,
    requesters::{BAD, By},
    rollouts::{Stage, pipeline_spec},
    version,
    webhook::Webhook,
};

/// An object of each kind that the webhook is asked about.
fn ours() -> Vec<Value> {
    let specs = [
        ("NumaflowControllerRollout", json!({"controller": {"version": "1.3.3"}})),
        ("PipelineRollout", json!({"pipeline": {"spec": pipeline_spec()}})),
        ("ISBServiceRollout", json!({"interStepBufferService": {"spec": {"jetstream": {"version": "2.10"}}}})),
        ("MonoVertexRollout", json!({"monoVertex": {"spec": {"source": {"generator": {}}, "sink": {"log": {}}}}})),
    ];
    let of = |(kind, spec): (&str, Value)| {
        json!({
            "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": kind, "metadata": {"name": "mine"}, "spec": spec,
        })
    };
    specs.into_iter().map(of).collect()
}

/// What is nobody else's business: made, changed and deleted in a namespace.
async fn everything_else(team: &Team) {
    let labelled = json!({"numaplane.numaproj.io/config": "numaflow-controller-definitions"});
    let pod = json!({"containers": [{"name": "main", "image": "operator:1"}]});
    let meta = json!({"name": "theirs"});
    team.create::<ServiceAccount>(json!({"metadata": meta})).await;
    team.create::<Secret>(json!({"metadata": meta, "stringData": {"a": "b"}})).await;
    team.create::<Service>(json!({"metadata": meta, "spec": {"ports": [{"port": 443}], "selector": {"a": "b"}}})).await;
    team.create::<Lease>(json!({"metadata": meta, "spec": {"holderIdentity": "me"}})).await;
    team.create::<Pod>(json!({"metadata": meta, "spec": pod})).await;
    team.create::<ConfigMap>(json!({"metadata": meta, "data": {"a": "b"}})).await;
    // Also what the webhook would look at: better unchecked than in the way.
    team.create::<ConfigMap>(json!({"metadata": {"name": "platform", "labels": labelled}, "data": {"a": "just text"}}))
        .await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    let spec = json!({"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    team.create::<Deployment>(json!({"metadata": meta, "spec": spec})).await;
    let touch = json!({"metadata": {"labels": {"touched": "yes"}}});
    team.edit::<ConfigMap>("theirs", touch.clone()).await;
    team.edit::<ConfigMap>("platform", json!({"data": {"a": "other text"}})).await;
    team.edit::<Deployment>("theirs", touch.clone()).await;
    team.edit::<Service>("theirs", touch).await;
    team.delete::<ConfigMap>("platform").await;
    team.delete::<Deployment>("theirs").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c01_without_the_webhook_only_our_own_kinds_are_refused_and_it_comes_back_by_itself() {
    let scene = Scene::new("c01").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3")]).await;
    let user = User::of(team).await;
    // One that is there from before.
    team.install("there", "1.3.3").await;
    let mut webhook = Webhook::registered(&scene).await;
    webhook.fails(&scene).await;

    for object in ours() {
        let answer = user.create(&object).await;
        println!("{}", answer.describe());
        let asked = format!("https://{}/validate/rollouts?timeout=10s", webhook.balancer.address());
        assert_eq!(answer.code, 500);
        assert_eq!(
            answer.message,
            format!(
                "Internal error occurred: failed calling webhook \"rollouts.numaplane.numaproj.io\": failed to call \
                 webhook: Post \"{asked}\": dial tcp {}: connect: connection refused",
                webhook.balancer.address()
            )
        );
    }
    // Everything beside it, in the operator's namespace too, and a whole new namespace.
    everything_else(team).await;
    everything_else(&scene.system).await;
    let namespaces: Api<Namespace> = Api::all(team.client.clone());
    let another = scene.another("later").await;
    let touch = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
    namespaces.patch(&another.namespace, &PatchParams::default(), &touch).await.unwrap();
    namespaces.delete(&another.namespace, &DeleteParams::default()).await.unwrap();

    // Of our own kinds: whatever leaves the spec alone.
    let edit = async |name: &str, patch: Value| user.edit("NumaflowControllerRollout", name, &patch).await;
    let force = json!({"metadata": {"annotations": {"numaplane.numaproj.io/force": "now"}}});
    for (name, patch) in [
        ("there", force),
        ("there/status", json!({"status": {"message": "somebody looked"}})),
        ("there", json!({"metadata": {"finalizers": ["tests/hold"]}})),
    ] {
        let answer = edit(name, patch).await;
        assert!(answer.is_ok(), "{name}: {}", answer.describe());
    }
    let refused = edit("there", json!({"spec": {"paused": true}})).await;
    assert_eq!(refused.code, 500, "{}", refused.describe());
    assert!(user.delete("NumaflowControllerRollout", "there").await.is_ok());
    // Being deleted, it is let go in any case.
    let answer = edit("there", json!({"spec": {"paused": true}, "metadata": {"finalizers": null}})).await;
    assert!(answer.is_ok(), "{}", answer.describe());
    team.gone::<NumaflowControllerRollout>("there").await;

    // Nobody touches the registration: a replica that starts is all it takes.
    let before = webhook.rules(&scene).await;
    webhook.add(&scene, &[]).await;
    for object in ours() {
        eventually("the webhook answers again", async || {
            let answer = user.clone().dry().create(&object).await;
            if answer.is_ok() { Ok(()) } else { Err(answer.describe()) }
        })
        .await;
    }
    assert_eq!(webhook.rules(&scene).await, before);
}

/// The operator's account, with all rights.
async fn account(scene: &Scene) -> String {
    let name = scene.unique("operator");
    let user = Webhook::exempt(scene);
    let account = user.rsplit(':').next().unwrap_or_default();
    scene.system.create::<ServiceAccount>(json!({"metadata": {"name": account}})).await;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": scene.system.namespace}],
    });
    let api: Api<ClusterRoleBinding> = Api::all(scene.team.client.clone());
    api.patch(&name, &PatchParams::apply("tests").force(), &Patch::Apply(&binding)).await.unwrap();
    user
}

#[tokio::test(flavor = "multi_thread")]
async fn c01_without_the_webhook_a_version_is_rolled_back_pipelines_resume_and_what_is_deleted_goes() {
    let stage = Stage::bare("c01-mid").await;
    let (scene, team) = (&stage.scene, stage.team());
    let user = account(scene).await;
    let _operator = Running::start(scene.settings(), Faults::default(), Some(&user)).await;
    let requester = stage.furnish_for(By::Controller).await;
    stage.with(&[("a", json!({})), ("b", json!({}))]).await;
    requester.set_deadline(25).await;
    requester.change(BAD).await;
    requester.reaches(BAD, "Confirm").await;
    for name in ["a-0", "b-0"] {
        let last = stage.recorder.states(name).pop().unwrap();
        assert!(last.wants_pause() && last.settled(), "{last}");
    }
    // In the middle of it, with pipelines paused, it is gone.
    let webhook = Webhook::registered(scene).await;
    webhook.fails(scene).await;
    assert!(requester.view().await.under_way.is_some(), "it was over before the webhook was missed");
    let view = requester.failed(&["rolled back"]).await;
    println!("{}", view.message);
    assert_eq!((view.wanted, view.has, view.asks()), (Some(BAD), Some(0), false));
    stage.all_run(&["a", "b"]).await;
    stage.at_rest().await;
    // It was never asked, and everything goes that is to go.
    team.delete::<PipelineRollout>("a").await;
    team.gone::<PipelineRollout>("a").await;
    team.delete::<PipelineRollout>("b").await;
    team.delete::<NumaflowControllerRollout>(&requester.name).await;
    team.gone::<PipelineRollout>("b").await;
    webhook.fails(scene).await;
}
