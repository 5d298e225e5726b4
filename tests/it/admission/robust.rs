//! What reaches the webhook and is no review, over real TLS: it is answered in words or turned away, and the next one is
//! answered as if nothing had been.

use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
};

use serde_json::{Value, json};

use crate::support::{
    Scene,
    asking::User,
    tls::{exchange, served},
    version,
    webhook::Webhook,
};

const PATH: &str = "/validate/rollouts";

/// A request as it goes over the wire.
fn request(method: &str, path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: webhook\r\nConnection: close\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// A review of a rollout.
fn review(namespace: &str, operation: &str, object: Value, old: Value) -> Value {
    let kind = json!({"group": "numaplane.numaproj.io", "version": "v1alpha1", "kind": "NumaflowControllerRollout"});
    let resource =
        json!({"group": "numaplane.numaproj.io", "version": "v1alpha1", "resource": "numaflowcontrollerrollouts"});
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kind, "resource": resource, "name": "a",
            "namespace": namespace, "operation": operation, "userInfo": {"username": "me"}, "object": object,
            "oldObject": old, "dryRun": false, "options": {},
        },
    })
}

/// Status and body of an answer.
fn read(answer: &str) -> (u16, String) {
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let chunked = head.to_lowercase().contains("transfer-encoding: chunked");
    assert!(!chunked, "{head}");
    (status, body.trim_end().to_owned())
}

/// A webhook, and what is needed to call it as the API server does.
struct Called {
    scene: Scene,
    webhook: Webhook,
    serving: SocketAddr,
    bundle: String,
}

impl Called {
    async fn start(name: &str) -> Self {
        let scene = Scene::new(name).await;
        scene.define(&[version("1.3.3")]).await;
        let webhook = Webhook::start(&scene).await;
        let (serving, bundle) = (webhook.replicas[0].serving, webhook.bundle(&scene).await);
        Self { scene, webhook, serving, bundle }
    }

    /// Status and body of the answer to these bytes.
    async fn exchange(&self, what: &str, bytes: Vec<u8>) -> (u16, String) {
        let answer = exchange(self.serving, &self.bundle, bytes).await;
        read(&answer.unwrap_or_else(|error| panic!("{what}: {error}")))
    }

    /// A review of a rollout of this scene.
    fn review(&self, operation: &str, object: Value, old: Value) -> Value {
        review(&self.scene.team.namespace, operation, object, old)
    }

    /// A good rollout.
    fn good(&self) -> Value {
        json!({
            "metadata": {"name": "a", "namespace": self.scene.team.namespace},
            "spec": {"controller": {"version": "1.3.3"}},
        })
    }

    /// The end: whoever asks is answered, and nothing went wrong in the process.
    async fn answers_as_before(&self) {
        let user = User::of(&self.scene.team).await.dry();
        let mut object = self.good();
        object["apiVersion"] = json!("numaplane.numaproj.io/v1alpha1");
        object["kind"] = json!("NumaflowControllerRollout");
        let answer = user.create(&object).await;
        assert!(answer.is_ok(), "{}", answer.describe());
        served(self.serving, &self.bundle).await.unwrap();
        let log = self.webhook.replicas[0].log();
        assert!(!log.contains("panicked"), "{log}");
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn c23_what_is_no_review_is_answered_in_words_and_the_next_review_as_if_nothing_had_been() {
    let called = Called::start("c23").await;
    let good = called.review("CREATE", called.good(), Value::Null);
    let mut other_version = good.clone();
    other_version["apiVersion"] = json!("admission.k8s.io/v1beta1");
    let mut other_kind = good.clone();
    other_kind["kind"] = json!("Pod");
    let mut without = good;
    without.as_object_mut().unwrap().remove("request");
    let json = "application/json";
    let no_review = |why: &str| format!("the body is no AdmissionReview of admission.k8s.io/v1: {why}");
    let not_served = |version: &str, kind: &str| {
        format!(
            "apiVersion {version:?}, kind {kind:?} is not served here; send an AdmissionReview of admission.k8s.io/v1"
        )
    };
    let words = str::to_owned;
    let post = |body: &[u8]| request("POST", PATH, json, body);
    let v1 = "admission.k8s.io/v1";
    let cases: Vec<(&str, Vec<u8>, u16, String)> = vec![
        ("an empty body", post(b""), 400, words("the body is empty; send an AdmissionReview of admission.k8s.io/v1")),
        ("no JSON", post(b"\xff\x00{"), 400, no_review("it is no JSON object")),
        (
            "half of it",
            post(&bytes(&other_kind)[..100]),
            400,
            no_review("EOF while parsing a string at line 1 column 100"),
        ),
        ("a list", post(b"[]"), 400, no_review("it is no JSON object")),
        ("another kind", post(&bytes(&other_kind)), 400, not_served(v1, "Pod")),
        (
            "another version",
            post(&bytes(&other_version)),
            400,
            not_served("admission.k8s.io/v1beta1", "AdmissionReview"),
        ),
        ("no request in it", post(&bytes(&without)), 400, words("the AdmissionReview has no request")),
        (
            "a body of 9 MiB",
            post(&vec![b' '; 9 << 20]),
            413,
            words("the request is larger than 8192 KiB, and no review of an object that Kubernetes stores is"),
        ),
        ("another path", request("POST", "/", json, b"{}"), 404, String::new()),
        ("another method", request("GET", PATH, json, b""), 405, String::new()),
    ];
    let mut wrong = Vec::new();
    for (what, bytes, status, words) in cases {
        let (code, said) = called.exchange(what, bytes).await;
        if (code, &said) != (status, &words) {
            wrong.push(format!("{what}: {code} {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    called.answers_as_before().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c23_odd_reviews_are_answered_with_their_uid() {
    let called = Called::start("c23-odd").await;
    let good = called.good();
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let odd = [
        ("DELETE", Value::Null, good.clone(), true),
        ("CONNECT", Value::Null, Value::Null, true),
        ("CREATE", json!({"metadata": {"name": "a"}, "spec": {"controller": {"version": deep}}}), Value::Null, false),
        ("CREATE", json!({"metadata": {"name": "a"}, "spec": {"controller": {"version": 1e300}}}), Value::Null, false),
        ("CREATE", Value::Null, Value::Null, true),
        ("UPDATE", good.clone(), Value::Null, true),
        ("CREATE", good, Value::Null, true),
    ];
    for (operation, object, old, allowed) in odd {
        let review = called.review(operation, object, old);
        let (code, body) = called.exchange(operation, request("POST", PATH, "application/json", &bytes(&review))).await;
        assert_eq!(code, 200, "{operation}: {body}");
        let body: Value = serde_json::from_str(&body).unwrap();
        let said = body["response"]["status"]["message"].as_str().unwrap_or_default();
        assert_eq!(
            (&body["response"]["uid"], &body["response"]["allowed"], body["response"]["allowed"] == (said.is_empty())),
            (&review["request"]["uid"], &json!(allowed), true),
            "{body}"
        );
    }
    // Whatever it says that it is.
    let review = called.review("CREATE", called.good(), Value::Null);
    let (code, body) = called.exchange("text", request("POST", PATH, "text/plain", &bytes(&review))).await;
    assert!(code == 200 && body.contains("\"allowed\":true"), "{code} {body}");
    called.answers_as_before().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c23_who_speaks_no_tls_says_nothing_or_stops_half_way_is_in_nobodys_way() {
    let called = Called::start("c23-tls").await;
    let mut silent = Vec::new();
    for n in 0..100 {
        let mut stream = TcpStream::connect(called.serving).unwrap();
        match n % 3 {
            0 => stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap(),
            1 => stream.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap(),
            _ => {}
        }
        silent.push(stream);
    }
    called.answers_as_before().await;
    drop(silent);
    called.answers_as_before().await;
}
