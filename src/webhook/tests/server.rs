//! An API server made of a function: lists, metadata of lists, and single objects. It is as slow, and fails, as it is told.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub struct Server {
    inner: Mutex<Inner>,
    watches_end: CancellationToken,
}

#[derive(Default)]
struct Inner {
    objects: Vec<Value>,
    version: u64,
    takes: Duration,
    fails: Option<(u16, String)>,
    requests: Vec<String>,
}

impl Server {
    pub fn client(self: &Arc<Self>) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            let request = request.map(drop);
            async move { Ok::<_, Infallible>(server.answer(&request).await) }
        });
        Client::new(service, "default")
    }

    /// Stores an object in place of the one of its name.
    pub fn put(&self, mut object: Value) {
        let mut inner = self.inner.lock().unwrap();
        inner.version += 1;
        object["metadata"]["resourceVersion"] = json!(inner.version.to_string());
        let same = |o: &Value| {
            o["kind"] == object["kind"]
                && ["namespace", "name"].iter().all(|field| o["metadata"][field] == object["metadata"][field])
        };
        inner.objects.retain(|o| !same(o));
        inner.objects.push(object);
    }

    pub fn delete(&self, kind: &str, name: &str) {
        let mut inner = self.inner.lock().unwrap();
        inner.version += 1;
        inner.objects.retain(|o| o["kind"] != kind || o["metadata"]["name"] != name);
    }

    pub fn all(&self) -> Vec<Value> {
        self.inner.lock().unwrap().objects.clone()
    }

    /// Has each answer take this long.
    pub fn takes(&self, time: Duration) {
        self.inner.lock().unwrap().takes = time;
    }

    /// Has each answer be this failure.
    pub fn fails(&self, code: u16, message: &str) {
        self.inner.lock().unwrap().fails = Some((code, message.to_owned()));
    }

    /// Has each task that watches panic: a watch ends in no other way.
    pub fn ends_watches(&self) {
        self.watches_end.cancel();
    }

    /// How many requests there have been.
    pub fn requests(&self) -> usize {
        self.inner.lock().unwrap().requests.len()
    }

    /// How many of them were for lists.
    pub fn lists(&self) -> usize {
        self.inner.lock().unwrap().requests.iter().filter(|path| !path.contains("/configmaps/")).count()
    }

    async fn answer(&self, request: &Request<()>) -> Response<Body> {
        let (time, (code, body)) = {
            let mut inner = self.inner.lock().unwrap();
            inner.requests.push(request.uri().path().to_owned());
            (inner.takes, inner.answer(request))
        };
        tokio::time::sleep(time).await;
        if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
            // Nothing happens.
            self.watches_end.cancelled().await;
            panic!("a watch ends");
        }
        Response::builder().status(code).body(Body::from(serde_json::to_vec(&body).unwrap())).unwrap()
    }
}

impl Inner {
    fn answer(&self, request: &Request<()>) -> (u16, Value) {
        let status = |code: u16, message: &str| {
            (code, json!({"kind": "Status", "status": "Failure", "code": code, "message": message, "reason": "x"}))
        };
        if let Some((code, message)) = &self.fails {
            return status(*code, message);
        }
        let path: Vec<&str> = request.uri().path().split('/').filter(|part| !part.is_empty()).collect();
        let at = path.iter().position(|part| *part == "namespaces");
        let (namespace, rest) = match at {
            Some(at) => (Some(path[at + 1]), &path[at + 2..]),
            None => (None, &path[path.len() - 1..]),
        };
        let kind = match rest[0] {
            "configmaps" => "ConfigMap",
            "numaflowcontrollerrollouts" => "NumaflowControllerRollout",
            "controllerrevisions" => "ControllerRevision",
            "pipelines" => "Pipeline",
            _ => return status(404, "the server could not find the requested resource"),
        };
        let here = |o: &&Value| o["kind"] == kind && namespace.is_none_or(|n| o["metadata"]["namespace"] == n);
        let mut found: Vec<Value> = self.objects.iter().filter(here).cloned().collect();
        if kind == "Pipeline" && found.is_empty() {
            return status(404, "the server could not find the requested resource");
        }
        if let Some(name) = rest.get(1) {
            let one = found.into_iter().find(|o| o["metadata"]["name"] == *name);
            return one.map_or_else(|| status(404, "not found"), |one| (200, one));
        }
        let query = request.uri().query().unwrap_or_default().replace("%2F", "/").replace("%3D", "=");
        if let Some(selector) = query.split('&').find_map(|part| part.strip_prefix("labelSelector=")) {
            let (key, value) = selector.split_once('=').unwrap();
            found.retain(|o| o["metadata"]["labels"][key] == value);
        }
        let accept = request.headers().get("accept").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let mut list_kind = format!("{kind}List");
        if accept.contains("PartialObjectMetadataList") {
            "PartialObjectMetadataList".clone_into(&mut list_kind);
            let partial = |o: Value| json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": o["metadata"]});
            found = found.into_iter().map(partial).collect();
        }
        let metadata = json!({"resourceVersion": self.version.to_string()});
        (200, json!({"apiVersion": "v1", "kind": list_kind, "metadata": metadata, "items": found}))
    }
}
