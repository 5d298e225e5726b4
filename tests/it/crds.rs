//! The CustomResourceDefinitions: in the repository as the types make them, and what the API server makes of them.

use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    discovery,
};
use numaplane::{
    admission::registration::Target,
    api::{GROUP, NumaflowController, NumaflowControllerRollout},
};
use serde_json::{Value, json};

use crate::support::{Scene, Team};

#[test]
fn generated_files_are_those_in_the_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let generated = numaplane::generate::files(&Target::default()).unwrap();
    for (path, content) in &generated {
        let there = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        assert!(there == *content, "{path} is not what the types say: run 'make generate'");
    }
    for folder in ["crds", "webhooks"] {
        let there = std::fs::read_dir(root.join(folder)).unwrap().count();
        let ours = generated.iter().filter(|(path, _)| path.starts_with(&format!("{folder}/"))).count();
        assert_eq!(there, ours, "{folder}/ holds a file that nothing makes");
    }
}

/// What the API server says to a rollout with this spec.
async fn answer(team: &Team, spec: &Value) -> Result<(), String> {
    let api: Api<NumaflowControllerRollout> = team.api();
    let parameters = PostParams { dry_run: true, ..PostParams::default() };
    let rollout = serde_json::from_value(json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1",
        "kind": "NumaflowControllerRollout",
        "metadata": {"name": "x"},
        "spec": spec,
    }));
    api.create(&parameters, &rollout.unwrap()).await.map(|_| ()).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_nobody_has_looked_at_says_so() {
    let scene = Scene::new("fresh").await;
    let rollout = scene.team.install("numaflow", "1.3.3").await;
    assert_eq!(rollout.status.map(|s| s.observed_generation), Some(-1));
    let alone = NumaflowController::new("alone", serde_json::from_value(json!({"version": "1"})).unwrap());
    let alone = scene.team.api().create(&PostParams::default(), &alone).await.unwrap();
    assert_eq!(alone.status.map(|s| s.observed_generation), Some(-1));
}

#[tokio::test(flavor = "multi_thread")]
async fn b09_the_server_refuses_durations_and_strategies_that_are_none() {
    let scene = Scene::new("durations").await;
    let team = &scene.team;
    let with =
        |field: &str, text: &str| json!({"controller": {"version": "1"}, "strategy": {"assessment": {field: text}}});
    for text in ["0s", "90s", "10m", "1h30m", "1.5h", "100ms", "87600h"] {
        assert_eq!(answer(team, &with("deadline", text)).await, Ok(()), "{text}");
    }
    for text in ["", "5", "-5s", "10 minutes", "ten", "1d", "m", "87601h", "99999999999999999999s", "1h-5m", "+5s"] {
        for field in ["deadline", "window", "interval"] {
            let said = answer(team, &with(field, text)).await.expect_err(text);
            assert!(said.contains(field) && said.contains("must be a duration"), "{text:?}: {said}");
        }
        let ppnd = json!({"controller": {"version": "1"}, "strategy": {"ppnd": {"drainTimeout": text}}});
        assert!(answer(team, &ppnd).await.is_err_and(|e| e.contains("drainTimeout")), "{text:?}");
    }
    for (strategy, words) in [
        (json!({"type": "fast"}), "progressive, pause-and-drain or no-strategy"),
        (json!({"ppnd": {"onDrainTimeout": "Wait"}}), "must be Proceed or Abort"),
    ] {
        let said = answer(team, &json!({"controller": {"version": "1"}, "strategy": strategy})).await.unwrap_err();
        assert!(said.contains(words), "{said}");
    }
    for limit in [-1, 101] {
        let spec = json!({"controller": {"version": "1"}, "revisionHistoryLimit": limit});
        assert!(answer(team, &spec).await.is_err_and(|e| e.contains("revisionHistoryLimit")), "{limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_refuses_instance_ids_and_versions_that_cannot_be() {
    let scene = Scene::new("instances").await;
    let team = &scene.team;
    let with = |id: &str| json!({"controller": {"version": "1.3.3", "instanceID": id}});
    for id in ["", "a", "0", "team-a", "a2345678901234567890", "xy"] {
        assert_eq!(answer(team, &with(id)).await, Ok(()), "{id:?}");
    }
    for id in ["A", "-a", "a-", "a.b", "a_b", "a23456789012345678901", "x-1", "é", " "] {
        let said = answer(team, &with(id)).await.expect_err(id);
        assert!(said.contains("spec.controller.instanceID"), "{id:?}: {said}");
    }
    for controller in [json!({}), json!({"version": ""}), json!({"version": "1".repeat(64)})] {
        // The client's own types know no rollout without a version.
        let name = "numaflow";
        let body = json!({
            "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "NumaflowControllerRollout",
            "metadata": {"name": name}, "spec": {"controller": controller},
        });
        let api: Api<NumaflowControllerRollout> = team.api();
        let said = api.patch(name, &PatchParams::apply("tests"), &Patch::Apply(&body)).await.unwrap_err().to_string();
        assert!(said.contains("spec.controller.version"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spec_of_a_child_cannot_be_changed_and_that_of_a_controller_without_a_rollout_can() {
    let scene = Scene::new("immutable").await;
    let team = &scene.team;
    let api: Api<NumaflowController> = team.api();
    for (name, spec) in [("child", json!({"version": "1", "revision": "r"})), ("alone", json!({"version": "1"}))] {
        let object = NumaflowController::new(name, serde_json::from_value(spec).unwrap());
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    let changes =
        [json!({"version": "2"}), json!({"instanceID": "a"}), json!({"revision": "s"}), json!({"revision": null})];
    for change in changes {
        let patch = Patch::Merge(json!({"spec": change}));
        let said = api.patch("child", &PatchParams::default(), &patch).await.unwrap_err().to_string();
        assert!(said.contains("immutable"), "{change}: {said}");
    }
    for harmless in [json!({"spec": {"instanceID": ""}}), json!({"metadata": {"labels": {"a": "b"}}})] {
        api.patch("child", &PatchParams::default(), &Patch::Merge(&harmless)).await.unwrap();
    }
    team.edit::<NumaflowController>("alone", json!({"spec": {"version": "2", "instanceID": "a"}})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn short_names_categories_and_columns_are_served() {
    let scene = Scene::new("discovery").await;
    let client = &scene.team.client;
    let found = discovery::group(client, GROUP).await.unwrap();
    let kinds: Vec<_> = found.recommended_resources().into_iter().map(|(resource, _)| resource.kind).collect();
    assert!(kinds.contains(&"NumaflowControllerRollout".to_owned()), "{kinds:?}");
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (plural, short, columns) in [
        ("numaflowcontrollerrollouts", "ncr", ["Version", "Promoted", "Phase", "Stage", "Message"].as_slice()),
        ("numaflowcontrollers", "nc", ["Version", "State", "Phase", "Message"].as_slice()),
        ("pipelinerollouts", "plr", ["Pipeline", "Phase", "Upgrade In Progress", "Pause", "Message"].as_slice()),
        ("isbservicerollouts", "isbr", ["Service", "Phase", "Upgrade In Progress", "Stage", "Message"].as_slice()),
        ("monovertexrollouts", "mvr", ["MonoVertex", "Phase", "Upgrade In Progress", "Pause", "Message"].as_slice()),
    ] {
        let crd = crds.get(&format!("{plural}.{GROUP}")).await.unwrap();
        let accepted = crd.status.as_ref().and_then(|s| s.accepted_names.clone()).unwrap();
        assert_eq!(accepted.short_names, Some(vec![short.to_owned()]));
        assert_eq!(accepted.categories, Some(vec!["numaplane".to_owned()]));
        let served = crd.spec.versions[0].additional_printer_columns.clone().unwrap_or_default();
        for column in columns {
            assert!(served.iter().any(|c| c.name == *column), "{}: {column}", crd.name_any());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_explain_has_something_to_say_about_every_field() {
    let scene = Scene::new("explain").await;
    let crds: Api<CustomResourceDefinition> = Api::all(scene.team.client.clone());
    let all = [
        "numaflowcontrollerrollouts",
        "numaflowcontrollers",
        "pipelinerollouts",
        "isbservicerollouts",
        "monovertexrollouts",
    ];
    for plural in all {
        let crd = crds.get(&format!("{plural}.{GROUP}")).await.unwrap();
        let schema = json!(crd.spec.versions[0].schema.as_ref().and_then(|s| s.open_api_v3_schema.clone()));
        let mut silent = Vec::new();
        fields_without_words(&schema, plural, &mut silent);
        assert!(silent.is_empty(), "no description: {silent:?}");
    }
}

fn fields_without_words(schema: &Value, path: &str, silent: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        // The server describes these itself.
        if matches!(name.as_str(), "apiVersion" | "kind" | "metadata")
            && !path[..path.len() - name.len() - 1].contains('.')
        {
            continue;
        }
        if field["description"].as_str().unwrap_or_default().is_empty() {
            silent.push(path.clone());
        }
        fields_without_words(field, &path, silent);
        fields_without_words(&field["items"], &path, silent);
    }
}
