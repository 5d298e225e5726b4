//! A spec that is nested deeper than any parser goes, as the API server stores it: its owner reads why it cannot be, and
//! nobody else notices.

use http::{Method, Request, header::CONTENT_TYPE};
use serde_json::{Value, json};

use crate::support::{
    Team,
    mono_rollouts::{Floor, said},
    mono_vertices::spec,
    wait::{PATIENCE, within},
};

/// Asks the API server, and does not parse what it answers.
async fn ask(team: &Team, method: Method, path: &str, kind: &str, body: &str) -> kube::Result<String> {
    let group = format!("/apis/numaplane.numaproj.io/v1alpha1/namespaces/{}", team.namespace);
    let request = Request::builder().method(method).uri(format!("{group}/{path}")).header(CONTENT_TYPE, kind);
    team.client.request_text(request.body(body.as_bytes().to_vec()).unwrap()).await
}

/// A field of so many levels.
fn deep(levels: usize) -> String {
    format!("{{\"templates\":{}1{}}}", "{\"a\":".repeat(levels), "}".repeat(levels))
}

/// Stores a MonoVertexRollout with a field of so many levels.
async fn store(team: &Team, name: &str, levels: usize) {
    let object = json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "MonoVertexRollout", "metadata": {"name": name},
        "spec": {"monoVertex": {"spec": spec(json!({"more": "MORE"}))}},
    });
    let object = object.to_string().replace("\"MORE\"", &deep(levels));
    ask(team, Method::POST, "monovertexrollouts", "application/json", &object).await.unwrap();
}

/// Takes the field out again.
async fn mend(team: &Team, name: &str) {
    let patch = json!([{"op": "remove", "path": "/spec/monoVertex/spec/more"}]).to_string();
    let path = format!("monovertexrollouts/{name}");
    ask(team, Method::PATCH, &path, "application/json-patch+json", &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c18_one_spec_that_no_parser_takes_stops_nothing_and_can_be_mended_and_deleted() {
    let (floor, operator) = Floor::at_work("deep").await;
    let team = floor.team();
    for (name, levels) in [("deep", 119), ("deeper", 1_000)] {
        store(team, name, levels).await;
    }
    // By the watch that brought them, and by the list that comes after it.
    team.mono_vertex("one", json!({})).await;
    team.mono_vertex_runs("one").await;
    operator.stop().await;
    let _operator = floor.scene.operator().await;
    team.mono_vertex("two", json!({})).await;
    team.mono_vertex_runs("two").await;
    mend(team, "deep").await;
    team.mono_vertex_runs("deep").await;
    ask(team, Method::DELETE, "monovertexrollouts/deeper", "application/json", "").await.unwrap();
    within(PATIENCE, "it goes", async || match ask(team, Method::GET, "monovertexrollouts/deeper", "", "").await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        there => Err(format!("{there:?}").chars().take(500).collect::<String>()),
    })
    .await;
    floor.at_rest().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spec_that_is_nested_too_deep_is_told_by_its_field() {
    let (floor, _operator) = Floor::at_work("deep-told").await;
    let team = floor.team();
    let field = |levels| serde_json::from_str::<Value>(&deep(levels)).unwrap();
    team.mono_vertex_with("my", spec(json!({"more": field(70)})), json!({}), json!({})).await;
    let status = team.mono_vertex_until("my", "says why", |s| s.phase.as_str() == "Failed").await;
    assert_eq!(said(&status, "Stalled"), ("True", "InvalidSpec"));
    let words = "spec.monoVertex.spec.more: is nested more than 64 levels deep, which no field of Numaflow is; remove what \
                 does not belong there";
    assert_eq!(status.message, words);
    mend(team, "my").await;
    team.mono_vertex_runs("my").await;
    floor.at_rest().await;
}
