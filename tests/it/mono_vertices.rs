//! The life of a MonoVertexRollout: its MonoVertex is made, kept and changed, and goes with it.

use kube::{ResourceExt, api::DynamicObject};
use numaplane::api::{MonoVertexRollout, NumaflowControllerRollout};
use serde_json::{Value, json};

use crate::support::{
    eventually,
    faults::Faults,
    mono_rollouts::{Floor, said},
    mono_vertices::{images, pods, pods_now, ready, spec},
    numaflow::api,
    pipelines::until,
};

/// Labels and annotations of a MonoVertex that name it.
fn metadata() -> Value {
    json!({
        "labels": {"of": "{{.monovertex-name}}"},
        "annotations": {"note": "{{ .monovertex-namespace }} {{.other}}"},
    })
}

/// The image of the function, as it is asked for of a MonoVertex.
fn image(mono_vertex: &DynamicObject) -> &str {
    mono_vertex.data["spec"]["udf"]["container"]["image"].as_str().unwrap_or_default()
}

/// Re-tells functional-monovertex: "create MonoVertexRollout" and "update child MonoVertex". An image changes in place, pod by
/// pod; names are filled into environment and labels; one child is left, and nothing was paused.
#[tokio::test(flavor = "multi_thread")]
async fn another_image_goes_in_pod_by_pod_with_names_filled_in_and_one_child_is_left() {
    let (floor, _operator) = Floor::at_work("mv-update").await;
    let team = floor.team();
    let made = team.mono_vertex("my", json!({})).await;
    assert_eq!(made.name_any(), "my-0");
    let rollout = team.get::<MonoVertexRollout>("my").await;
    let owner = &made.owner_references()[0];
    assert_eq!((owner.kind.as_str(), Some(&owner.uid)), ("MonoVertexRollout", rollout.uid().as_ref()));
    for (key, value) in [("parent-rollout-name", "my"), ("upgrade-state", "promoted")] {
        assert_eq!(made.labels()[&format!("numaplane.numaproj.io/{key}")], value);
    }
    let status = team.mono_vertex_status("my").await;
    assert_eq!((status.child.as_str(), status.name_count, status.upgrade_in_progress.as_str()), ("my-0", Some(0), ""));
    let selector = "app.kubernetes.io/component=mono-vertex,numaflow.numaproj.io/mono-vertex-name=my-0";
    assert_eq!(status.promoted_pod_selector, selector);
    for (kind, wanted) in [
        ("ChildResourcesHealthy", ("True", "Successful")),
        ("ChildResourceDeployed", ("True", "Successful")),
        ("MonoVertexPausingOrPaused", ("False", "Unpaused")),
        ("Reconciling", ("", "")),
        ("Stalled", ("", "")),
    ] {
        assert_eq!(said(&status, kind), wanted, "{kind}");
    }

    let environment = json!([
        {"name": "SELF", "value": "{{.monovertex-name}}"},
        {"name": "OTHER", "value": "{{.vertex-name}} {{ $labels.pod }}"},
    ]);
    let changed = json!({"metadata": metadata(), "spec": {"udf": {"container": {"image": "f:2", "env": environment}}}});
    team.edit::<MonoVertexRollout>("my", json!({"spec": {"monoVertex": changed}})).await;
    until(team, "MonoVertex", "my-0", "changed", |m| image(m) == "f:2").await;
    let runs = team.mono_vertex_runs("my").await;
    assert_eq!((runs.uid(), images(&pods(team, "my-0", 2).await)), (made.uid(), vec!["f:2".to_owned(); 2]));
    let environment = &runs.data["spec"]["udf"]["container"]["env"];
    assert_eq!(environment[0]["value"], "my-0");
    assert_eq!(environment[1]["value"], "{{.vertex-name}} {{ $labels.pod }}");
    assert_eq!(runs.labels()["of"], "my-0");
    assert_eq!(runs.annotations()["note"], format!("{} {{{{.other}}}}", team.namespace));
    assert_eq!(team.mono_vertex_status("my").await.upgrade_in_progress, "");
    assert_eq!(api(team, "MonoVertex").list(&Default::default()).await.unwrap().items.len(), 1);
    assert_eq!(floor.flips("my-0"), 0, "no change pauses it");
    floor.at_rest().await;
}

/// Re-tells functional-monovertex: "delete": rollout and child are gone, and the controller's rollout after them.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_rollout_takes_its_mono_vertex_with_it_and_others_that_hold_it_are_named() {
    let (floor, _operator) = Floor::at_work("mv-deleted").await;
    let team = floor.team();
    for name in ["my", "held"] {
        team.mono_vertex(name, json!({})).await;
    }
    team.meddle_with("held-0", json!({"metadata": {"finalizers": ["example.com/theirs"]}})).await;
    for name in ["my", "held"] {
        team.delete::<MonoVertexRollout>(name).await;
    }
    team.gone::<MonoVertexRollout>("my").await;
    assert!(api(team, "MonoVertex").get_opt("my-0").await.unwrap().is_none(), "its child goes first");
    let words = "waiting for MonoVertex/held-0 (held by finalizer example.com/theirs) to be gone";
    eventually("who holds it is named", async || {
        let status = team.mono_vertex_status("held").await;
        if status.message.contains(words) { Ok(()) } else { Err(status.message) }
    })
    .await;
    let force = json!({"metadata": {"annotations": {"numaplane.numaproj.io/force": "let go"}}});
    team.edit::<MonoVertexRollout>("held", force).await;
    team.gone::<MonoVertexRollout>("held").await;
    team.meddle_with("held-0", json!({"metadata": {"finalizers": null}})).await;
    team.delete::<NumaflowControllerRollout>("numaflow-controller").await;
    team.gone::<NumaflowControllerRollout>("numaflow-controller").await;
    floor.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mono_vertex_that_somebody_changes_directly_is_healed_and_one_that_is_deleted_is_made_anew() {
    let (floor, _operator) = Floor::at_work("mv-heal").await;
    let team = floor.team();
    let made = team.mono_vertex("my", json!({})).await;
    team.meddle_with(
        "my-0",
        json!({"spec": {"udf": {"container": {"image": "elsewhere:1"}}, "limits": {"readBatchSize": 7}}}),
    )
    .await;
    let healed = |m: &DynamicObject| image(m) == "f:1" && m.data["spec"]["limits"].is_null();
    until(team, "MonoVertex", "my-0", "healed", healed).await;
    let label = "numaplane.numaproj.io/parent-rollout-name";
    team.meddle_with("my-0", json!({"metadata": {"labels": {label: null}}})).await;
    until(team, "MonoVertex", "my-0", "label healed", |m| m.labels().get(label).is_some_and(|l| l == "my")).await;
    // An autoscaler's number is no drift, and no change takes it away.
    team.meddle_with("my-0", json!({"spec": {"replicas": 3}})).await;
    pods(team, "my-0", 3).await;
    team.edit_mono_vertex("my", json!({"udf": {"container": {"image": "f:2"}}})).await;
    until(team, "MonoVertex", "my-0", "changed", |m| image(m) == "f:2").await;
    let runs = team.mono_vertex_runs("my").await;
    assert_eq!((runs.uid(), runs.data["spec"]["replicas"].as_i64()), (made.uid(), Some(3)));
    assert_eq!(floor.flips("my-0"), 0);

    api(team, "MonoVertex").delete("my-0", &Default::default()).await.unwrap();
    team.mono_vertex_until("my", "made anew", |s| s.child == "my-1").await;
    let anew = team.mono_vertex_runs("my").await;
    assert_eq!((image(&anew), team.mono_vertex_status("my").await.name_count), ("f:2", Some(1)));
    pods(team, "my-0", 0).await;
    floor.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_that_cannot_be_is_told_by_its_field_and_mending_it_is_enough() {
    let (floor, _operator) = Floor::at_work("mv-invalid").await;
    let team = floor.team();
    team.mono_vertex_with("none", spec(json!({"lifecycle": {"desiredPhase": "Pasued"}})), json!({}), json!({})).await;
    let status = team.mono_vertex_until("none", "says why", |s| s.phase.as_str() == "Failed").await;
    println!("{}", status.message);
    assert!(status.message.contains("spec.monoVertex.spec.lifecycle.desiredPhase"), "{}", status.message);
    assert_eq!(said(&status, "Stalled"), ("True", "InvalidSpec"));
    assert!(status.child.is_empty() && status.last_failure_time.is_some());
    team.edit_mono_vertex("none", json!({"lifecycle": null})).await;
    team.mono_vertex_runs("none").await;

    // One that versions of Numaflow disagree about.
    team.mono_vertex("my", json!({})).await;
    team.edit_mono_vertex("my", json!({"scale": {"min": 3, "max": 2}})).await;
    let failed = team
        .mono_vertex_until("my", "fails", |s| said(s, "ChildResourcesHealthy") == ("False", "MonoVertexFailed"))
        .await;
    assert_eq!((failed.phase.as_str(), said(&failed, "Ready").0), ("Deployed", "False"));
    let message = failed.conditions.iter().find(|c| c.type_ == "Ready").unwrap().message.clone();
    assert!(message.contains("MonoVertex/my-0: invalid scale: from 3 to 2 replicas"), "{message}");
    let mended = json!({"source": {"generator": {"rpu": 7}}, "scale": {"min": 1, "max": null}});
    team.edit_mono_vertex("my", mended).await;
    assert_eq!(team.mono_vertex_runs("my").await.data["spec"]["source"]["generator"]["rpu"], 7);
    floor.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_refuses_is_said_and_goes_in_when_it_does_not_any_more() {
    let floor = Floor::bare("mv-refused").await;
    let faults = Faults::default();
    let _operator = floor.scene.operator_behind(&faults).await;
    let team = floor.team();
    team.install("numaflow-controller", "1.8.0").await;
    team.deployed("numaflow-controller", "1.8.0").await;
    team.mono_vertex("my", json!({})).await;
    faults.answer(403, 3, |write| write.path.ends_with("/monovertices/my-0"));
    team.edit_mono_vertex("my", json!({"udf": {"container": {"image": "f:2"}}})).await;
    let refused = team.mono_vertex_until("my", "says so", |s| s.message.contains("refused by the server")).await;
    println!("{}", refused.message);
    assert_eq!(
        (refused.phase.as_str(), said(&refused, "Reconciling").0, said(&refused, "Stalled").0),
        ("Failed", "True", "")
    );
    assert_eq!(image(&team.mono_vertex_runs("my").await), "f:2");
    assert_eq!((faults.left(), floor.flips("my-0")), (0, 0));
    floor.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_of_the_controller_pauses_pipelines_and_no_mono_vertex() {
    let (floor, _operator) = Floor::at_work("mv-upgrade").await;
    let team = floor.team();
    team.mono_vertex("my", json!({})).await;
    let strategy = json!({"spec": {"controller": {"version": "1.8.1"}, "strategy": {"type": "pause-and-drain"}}});
    team.edit::<NumaflowControllerRollout>("numaflow-controller", strategy).await;
    team.deployed("numaflow-controller", "1.8.1").await;
    team.mono_vertex_runs("my").await;
    assert_eq!(floor.flips("my-0"), 0);
    floor.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_get_shows_what_a_person_needs() {
    let (floor, _operator) = Floor::at_work("mv-columns").await;
    let team = floor.team();
    team.mono_vertex("my", json!({"lifecycle": {"desiredPhase": "Running"}})).await;
    team.want_mono_vertex("my", "Paused").await;
    team.mono_vertex_rests("my").await;
    let path = format!("/apis/numaplane.numaproj.io/v1alpha1/namespaces/{}/monovertexrollouts", team.namespace);
    let request = http::Request::get(path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let table: Value = team.client.request(request.body(Vec::new()).unwrap()).await.unwrap();
    let names: Vec<_> = table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].clone()).collect();
    assert_eq!(json!(names), json!(["Name", "MonoVertex", "Phase", "Upgrade In Progress", "Pause", "Message", "Age"]));
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    assert_eq!(json!(cells[..3]), json!(["my", "my-0", "Deployed"]));
    assert_eq!(json!(cells[4..6]), json!(["Paused", "Deployed, and paused by its spec"]));
    team.want_mono_vertex("my", "Running").await;
    team.mono_vertex_runs("my").await;
    floor.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mono_vertex_that_an_earlier_operator_left_is_kept_and_others_of_the_rollout_go() {
    let floor = Floor::bare("mv-others").await;
    let team = floor.team();
    let rollout = team.mono_vertex_with("my", spec(json!({"scale": {"min": 1}})), json!({}), json!({})).await;
    for (name, state) in [("my-0", "recyclable"), ("my-3", "promoted")] {
        let object = json!({
            "apiVersion": "numaflow.numaproj.io/v1alpha1", "kind": "MonoVertex",
            "metadata": {
                "name": name,
                "labels": {"numaplane.numaproj.io/parent-rollout-name": "my", "numaplane.numaproj.io/upgrade-state": state},
                "ownerReferences": [{
                    "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "MonoVertexRollout", "name": "my",
                    "uid": rollout.uid(), "controller": true,
                }],
            },
            // As it left one in the middle of a pause of its own.
            "spec": spec(json!({"scale": {"min": 1}, "lifecycle": {"desiredPhase": "Paused"}})),
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api(team, "MonoVertex").create(&Default::default(), &object).await.unwrap();
    }
    let _operator = floor.scene.operator().await;
    team.install("numaflow-controller", "1.8.0").await;
    team.deployed("numaflow-controller", "1.8.0").await;
    let runs = team.mono_vertex_runs("my").await;
    assert_eq!(runs.name_any(), "my-3");
    eventually("the other one is gone", async || {
        let all = api(team, "MonoVertex").list(&Default::default()).await.unwrap().items;
        if all.len() == 1 {
            Ok(())
        } else {
            Err(format!("{:?}", all.iter().map(ResourceExt::name_any).collect::<Vec<_>>()))
        }
    })
    .await;
    ready(team, "my-3").await;
    assert_eq!(pods_now(team, "my-3").await.len(), 1);
    floor.at_rest().await;
}
