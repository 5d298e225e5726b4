//! The webhook as it is served, with an API server made of a function.

pub(super) mod server;

use std::time::Duration;

use axum::{body::Body, http::Request};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use self::server::Server;
use super::*;
use crate::{
    admission::fake::settings,
    api::{GROUP, LABEL_CONFIG, NumaflowControllerRollout},
    metrics::Metrics,
    settings::Settings,
    store::Seen,
    watch::key,
    world::{Decoded, DefinitionsMap},
};

struct Scene {
    server: Arc<Server>,
    knowledge: Arc<Knowledge>,
    metrics: Arc<WebhookMetrics>,
}

impl Scene {
    fn new() -> Self {
        Self::with(settings())
    }

    fn with(settings: Settings) -> Self {
        let server = Arc::new(Server::default());
        let metrics = WebhookMetrics::register(Arc::new(Metrics::new().unwrap())).unwrap();
        let knowledge = Arc::new(Knowledge::new(server.client(), settings, metrics.clone()));
        Self { server, knowledge, metrics }
    }

    /// Has the webhook know what the server has by now, as its watches would.
    fn seen(&self) {
        let world = self.knowledge.world();
        for object in self.server.all() {
            match object["kind"].as_str().unwrap() {
                "ConfigMap" => {
                    let map: ConfigMap = serde_json::from_value(object).unwrap();
                    world.config_maps.offer(key(&map), Seen::of(&map.metadata), DefinitionsMap::read(&map));
                    world.catalogue_follows(&key(&map));
                }
                "NumaflowControllerRollout" => {
                    let rollout: NumaflowControllerRollout = serde_json::from_value(object).unwrap();
                    let (key, seen) = (key(&rollout), Seen::of(&rollout.metadata));
                    world.rollouts.offer(key, seen, Decoded::Good(Arc::new(rollout)));
                }
                _ => {}
            }
        }
    }

    /// Sends a body; the status code, and the body of the answer.
    async fn post(&self, path: &str, body: impl Into<Body>) -> (u16, String) {
        let request = Request::post(path).header("content-type", "application/json").body(body.into()).unwrap();
        let response = router(self.knowledge.clone(), self.metrics.clone()).oneshot(request).await.unwrap();
        let code = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    /// The words of the refusal, and the warnings.
    async fn ask(&self, request: Value) -> (String, Vec<String>) {
        let path = if request["kind"]["kind"] == "ConfigMap" { CONFIG_MAPS.path } else { ROLLOUTS.path };
        let (code, body) = self.post(path, review(&request)).await;
        assert_eq!(code, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        let response = &answer["response"];
        assert_eq!((&response["uid"], &answer["kind"]), (&request["uid"], &json!("AdmissionReview")));
        let message = response["status"]["message"].as_str().unwrap_or_default().to_owned();
        assert_eq!(response["allowed"] == true, message.is_empty());
        let warnings = response["warnings"].as_array().into_iter().flatten();
        (message, warnings.map(|w| w.as_str().unwrap().to_owned()).collect())
    }
}

pub(super) fn review(request: &Value) -> String {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

fn asked(kind: &str, object: &Value, old: &Value) -> Value {
    let operation = match (object.is_null(), old.is_null()) {
        (false, true) => "CREATE",
        (false, false) => "UPDATE",
        _ => "DELETE",
    };
    let group = if kind == "ConfigMap" { "" } else { GROUP };
    let of = if object.is_null() { old } else { object };
    json!({
        "uid": "u", "kind": {"group": group, "version": "v1", "kind": kind},
        "resource": {"group": group, "version": "v1", "resource": "x"}, "operation": operation,
        "name": of["metadata"]["name"], "namespace": of["metadata"]["namespace"], "object": object, "oldObject": old,
    })
}

fn rollout(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "NumaflowControllerRollout",
        "metadata": {"name": name, "namespace": "team-a", "uid": format!("uid-{name}")},
        "spec": {"controller": {"version": version}},
    })
}

pub(super) fn create(version: &str) -> Value {
    asked("NumaflowControllerRollout", &rollout("r", version), &Value::Null)
}

pub(super) fn definitions(name: &str, versions: &[(&str, &str)]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "ops", "uid": format!("uid-{name}"),
            "labels": {LABEL_CONFIG: "numaflow-controller-definitions"}},
        "data": {"d.yaml": crate::admission::fake::definitions(versions)},
    })
}

#[tokio::test]
async fn c23_what_is_no_review_is_answered_with_400_and_words() {
    let scene = Scene::new();
    for (body, words) in [
        ("", "the body is empty; send an AdmissionReview of admission.k8s.io/v1\n"),
        (
            r#"{"apiVersion": "v1", "kind": "Pod"}"#,
            "apiVersion \"v1\", kind \"Pod\" is not served here; send an AdmissionReview of admission.k8s.io/v1\n",
        ),
        (r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#, "the AdmissionReview has no request\n"),
    ] {
        assert_eq!(scene.post(ROLLOUTS.path, body).await, (400, words.to_owned()));
    }
    assert_eq!(scene.post("/elsewhere", "{}").await.0, 404);
}

#[tokio::test]
async fn c23_reviews_of_any_shape_are_answered_with_their_uid() {
    let scene = Scene::new();
    scene.server.put(definitions("defs", &[("1", "a")]));
    let huge = review(&create("1")).replace("\"spec\":{", "\"spec\":{\"n\":-1e9999,");
    let (code, body) = scene.post(ROLLOUTS.path, huge).await;
    let answer: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &answer["response"]["uid"], &answer["response"]["allowed"]), (200, &json!("u"), &json!(false)));
    let message = answer["response"]["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("object: cannot be read: number out of range"), "{message}");
    let deleted = asked("NumaflowControllerRollout", &Value::Null, &rollout("r", "7"));
    assert_eq!(scene.ask(deleted).await, (String::new(), Vec::new()));
    let (refusal, _) = scene.ask(create("7")).await;
    assert_eq!(
        refusal,
        "spec.controller.version: version \"7\" is not defined. Defined versions: 1 (looked in ops/defs). Set one of them, or \
         add this version to a definitions ConfigMap"
    );
}

#[tokio::test]
async fn c02_a_version_that_was_added_a_moment_ago_is_read_before_it_is_refused() {
    let scene = Scene::new();
    scene.server.put(definitions("defs", &[("1", "a")]));
    scene.seen();
    assert_eq!(scene.ask(create("1")).await, (String::new(), Vec::new()));
    assert_eq!(scene.server.requests(), 0, "what is known is not read");
    scene.server.put(definitions("defs", &[("1", "a"), ("9", "b")]));
    scene.server.put(definitions("other", &[("2", "b")]));
    assert_eq!(scene.ask(create("9")).await, (String::new(), Vec::new()));
    assert_eq!(scene.server.requests(), 3, "a list, and the two that are new");
    assert_eq!(scene.ask(create("2")).await, (String::new(), Vec::new()));
    assert_eq!(scene.server.requests(), 3, "what was read is known");
    assert!(scene.ask(create("3")).await.0.contains("Defined versions: 1, 2, 9 (looked in ops/defs, ops/other)"));
    assert_eq!(scene.server.requests(), 4, "a list, in which nothing is new");
    assert!(scene.metrics.process().text().contains("numaplane_admission_live_reads_total{result=\"read\"} 2"));
}

#[tokio::test]
async fn c02_what_was_removed_a_moment_ago_stands_in_the_way_of_nothing() {
    let scene = Scene::new();
    scene.server.put(definitions("defs", &[("1", "a")]));
    scene.server.put(definitions("other", &[("1", "b")]));
    scene.server.put(definitions("third", &[("1", "c")]));
    scene.server.put(rollout("old", "1"));
    scene.seen();
    scene.server.delete("ConfigMap", "other");
    let mut unlabelled = definitions("third", &[("1", "c")]);
    unlabelled["metadata"]["labels"] = json!({});
    scene.server.put(unlabelled);
    scene.server.delete("NumaflowControllerRollout", "old");
    assert_eq!(scene.ask(create("1")).await, (String::new(), Vec::new()));
}

#[tokio::test]
async fn c02_a_version_that_a_watch_is_bringing_at_this_moment_is_admitted() {
    let scene = Scene::new();
    scene.server.put(definitions("defs", &[("1", "a")]));
    scene.server.put(definitions("other", &[("1", "a")]));
    scene.seen();
    scene.server.put(definitions("defs", &[("1", "b"), ("9", "b")]));
    scene.server.delete("ConfigMap", "other");
    // A watch has brought both to the store, and not yet to the catalogue.
    let config_maps = &scene.knowledge.world().config_maps;
    let map: ConfigMap = serde_json::from_value(scene.server.all().remove(0)).unwrap();
    config_maps.offer(key(&map), Seen::of(&map.metadata), DefinitionsMap::read(&map)).expect("it is newer");
    config_maps.forget(&("ops".to_owned(), "other".to_owned()), &Seen::for_good("uid-other")).expect("it was there");
    assert_eq!(scene.ask(create("9")).await, (String::new(), Vec::new()));
    assert_eq!(scene.ask(create("1")).await, (String::new(), Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn who_misses_at_the_same_time_shares_a_read() {
    let scene = Arc::new(Scene::new());
    scene.server.put(definitions("defs", &[("1", "a")]));
    scene.seen();
    scene.server.put(definitions("defs", &[("1", "a"), ("9", "b")]));
    scene.server.takes(Duration::from_millis(100));
    let all = (0..50).map(|n| {
        let scene = scene.clone();
        async move {
            // Some come while a read is under way, which may have missed what they ask for.
            tokio::time::sleep(Duration::from_millis(n * 3)).await;
            scene.ask(create("8")).await.0
        }
    });
    let said = futures::future::join_all(all).await;
    assert!(said.iter().all(|words| words.contains("Defined versions: 1, 9")), "{said:?}");
    let lists = scene.server.lists();
    assert!(lists <= 3, "{lists} lists");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_in_time_is_admitted_and_said_to_be_unchecked() {
    let scene = Scene::new();
    scene.server.takes(Duration::from_mins(1));
    let words = "spec.controller.version: could not be checked; the operator checks it again (no answer from the API server \
                 within 2s)";
    let asked = tokio::time::Instant::now();
    assert_eq!(scene.ask(create("1")).await, (String::new(), vec![words.to_owned()]));
    assert!(asked.elapsed() < Duration::from_secs(3));
    scene.server.takes(Duration::ZERO);
    scene.server.fails(500, "etcd is away");
    let words = "spec.controller.version: could not be checked; the operator checks it again (the API server did not let it be \
                 read; the webhook's log says why)";
    assert_eq!(scene.ask(create("1")).await, (String::new(), vec![words.to_owned()]));
    let text = scene.metrics.process().text();
    assert!(text.contains("numaplane_admission_live_reads_total{result=\"failed\"} 2"), "{text}");
    assert!(text.contains(
        "numaplane_admission_reviews_total{verdict=\"warned\",webhook=\"rollouts.numaplane.numaproj.io\"} 2"
    ));
    // What is wrong whatever there is in the cluster is refused all the same.
    let mut request = create("1");
    request["object"]["spec"]["strategy"] = json!({"type": "fast"});
    assert_eq!(
        scene.ask(request).await.0,
        "spec.strategy.type: \"fast\" is not a strategy; use progressive, pause-and-drain or no-strategy"
    );
}

#[tokio::test]
async fn a15_a_rival_that_nobody_has_seen_leave_is_looked_for() {
    let scene = Scene::new();
    scene.server.put(definitions("defs", &[("1", "a")]));
    scene.server.put(rollout("x", "1"));
    scene.seen();
    let (refusal, _) = scene.ask(create("1")).await;
    assert!(refusal.contains("belongs to NumaflowControllerRollout/x"), "{refusal}");
    scene.server.delete("NumaflowControllerRollout", "x");
    assert_eq!(scene.ask(create("1")).await, (String::new(), Vec::new()));
}

#[tokio::test]
async fn the_instance_of_pipelines_is_not_left_where_they_are_and_can_be_where_nobody_serves_them() {
    let scene = Scene::new();
    scene.server.put(definitions("defs", &[("1", "a")]));
    scene.seen();
    let with = |id: &str| {
        let mut object = rollout("r", "1");
        object["spec"]["controller"]["instanceID"] = json!(id);
        object["status"] = json!({"promoted": {"name": "r-0", "version": "1", "instanceID": "a"}});
        object
    };
    let request = asked("NumaflowControllerRollout", &with("b"), &with("a"));
    assert_eq!(scene.ask(request.clone()).await, (String::new(), Vec::new()), "no such kinds");
    let pipeline = |instance: &str| {
        json!({
            "apiVersion": "numaflow.numaproj.io/v1alpha1", "kind": "Pipeline",
            "metadata": {"name": "p", "namespace": "team-a", "annotations": {"numaflow.numaproj.io/instance": instance}},
        })
    };
    scene.server.put(pipeline("other"));
    assert_eq!(scene.ask(request.clone()).await, (String::new(), Vec::new()));
    scene.server.put(pipeline("a"));
    assert_eq!(
        scene.ask(request).await.0,
        "spec.controller.instanceID: cannot change from \"a\" to \"b\" while Pipeline/p uses the old one; move or delete it \
         first"
    );
}

#[tokio::test]
async fn a_rollout_can_go_back_to_what_it_has_pinned() {
    let scene = Scene::new();
    scene.server.put(definitions("defs", &[("2", "b")]));
    scene.seen();
    let data = [("k".to_owned(), crate::admission::fake::definitions(&[("1", "a")]))].into();
    let parsed = crate::definitions::parse_config_map("ops", "x", &data);
    let revision = |name: &str, owner: &str, content: Value| {
        json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1, "data": content,
            "metadata": {"name": name, "namespace": "team-a", "labels": {"numaplane.numaproj.io/parent-rollout-name": "r"},
                "ownerReferences": [{"apiVersion": "x", "kind": "NumaflowControllerRollout", "name": "r", "uid": owner,
                    "controller": true}]},
        })
    };
    let definition = json!({"version": "1", "definition": *parsed.definitions[0].definition});
    let request = asked("NumaflowControllerRollout", &rollout("r", "1"), &rollout("r", "2"));
    scene.server.put(revision("r-1", "of-another", definition.clone()));
    assert!(scene.ask(request.clone()).await.0.contains("version \"1\" is not defined"));
    let words =
        "spec.controller.version: version \"1\" is not defined any more; the copy that this rollout has pinned is used";
    for content in [definition, json!({"version": "1", "secret": "r-2"})] {
        scene.server.put(revision("r-2", "uid-r", content));
        assert_eq!(scene.ask(request.clone()).await, (String::new(), vec![words.to_owned()]));
    }
}

#[tokio::test]
async fn a_rollout_that_nobody_has_seen_yet_is_named_when_its_version_goes() {
    let scene = Scene::new();
    scene.server.put(definitions("defs", &[("1", "a")]));
    scene.seen();
    let deleted = asked("ConfigMap", &Value::Null, &definitions("defs", &[("1", "a")]));
    assert_eq!(scene.ask(deleted.clone()).await, (String::new(), Vec::new()));
    scene.server.put(rollout("r", "1"));
    assert_eq!(
        scene.ask(deleted).await.1,
        ["version \"1\" is not defined any more; what runs it keeps its pinned copy, nobody else gets it. Used by 1 \
          NumaflowControllerRollout: team-a/r"]
    );
}

#[tokio::test]
async fn definitions_of_a_namespace_are_read_where_they_count() {
    let scene = Scene::with(Settings { definitions_anywhere: true, ..settings() });
    scene.server.put(definitions("defs", &[("1", "a")]));
    let mut own = definitions("own", &[("7", "a")]);
    own["metadata"]["namespace"] = json!("team-a");
    scene.server.put(own);
    assert_eq!(scene.ask(create("7")).await, (String::new(), Vec::new()));
    assert!(scene.ask(create("8")).await.0.contains("(looked in ops/defs, team-a/own)"));
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_when_all_there_is_was_listed() {
    let scene = Scene::new();
    scene.server.put(definitions("defs", &[("1", "a")]));
    scene.server.takes(Duration::from_secs(1));
    let began = tokio::time::Instant::now();
    let mut watches = Watches::start(&scene.knowledge);
    tokio::time::timeout(Duration::from_secs(30), watches.synced()).await.expect("in time").expect("ready");
    assert!(began.elapsed() >= Duration::from_secs(1), "before it has listed");
    assert_eq!(scene.knowledge.world().catalogue.read().unwrap().versions(&["ops"]), ["1"]);
}
