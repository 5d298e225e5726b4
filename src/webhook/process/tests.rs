//! The process from its start to an end that nobody asked for.

use std::{path::Path, time::Duration};

use axum::http::StatusCode;
use serde_json::Value;
use tokio::{task::JoinHandle, time::timeout};

use super::*;
use crate::{
    admission::{fake::settings, registration::ROLLOUTS},
    webhook::{
        caller::{Caller, certificate, eventually},
        certificates::Held,
        server::listen,
        tests::{create, definitions, review, server::Server},
    },
};

/// Calls with a review of a rollout that asks for a version; what it is refused for.
fn call(caller: &Caller, address: std::net::SocketAddr, version: &str) -> JoinHandle<String> {
    let (caller, body) = (caller.clone(), review(&create(version)));
    tokio::spawn(async move {
        let (status, body) = caller.h1(address).await.unwrap().post(ROLLOUTS.path, body).await.unwrap();
        assert_eq!(status, StatusCode::OK, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        answer["response"]["status"]["message"].as_str().unwrap_or_default().to_owned()
    })
}

fn mounted(folder: &Path, held: &Held) -> Source {
    let leaf = held.leaf.as_ref().unwrap();
    std::fs::write(folder.join("tls.crt"), &leaf.certificate).unwrap();
    std::fs::write(folder.join("tls.key"), &leaf.key).unwrap();
    Source::Mounted(folder.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_watch_ends_calls_that_are_under_way_and_those_of_the_next_moment_are_answered() {
    let (server, held, folder) = (Arc::new(Server::default()), certificate(), tempfile::tempdir().unwrap());
    server.put(definitions("defs", &[("1", "a")]));
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let (address, metrics) = (listener.local_addr().unwrap(), Arc::new(Metrics::new().unwrap()));
    let webhook = Webhook {
        client: server.client(),
        clock: Clock::default(),
        settings: settings(),
        source: mounted(folder.path(), &held),
        limits: Limits { drain: Duration::from_secs(1), ..Limits::default() },
        listener,
        metrics: metrics.clone(),
    };
    // On a runtime of its own: what is still under way when it ends is lost, as with a process.
    let process = tokio::task::spawn_blocking(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let ended = runtime.block_on(webhook.run(CancellationToken::new()));
        runtime.shutdown_background();
        ended
    });
    eventually("it is ready", async || metrics.ready().then_some(()).ok_or_else(String::new)).await;

    let caller = Caller::new(&held.bundle());
    let before = server.requests();
    // A read that is made before the refusal.
    server.takes(Duration::from_millis(1500));
    let under_way = call(&caller, address, "7");
    eventually("it reads", async || (server.requests() > before).then_some(()).ok_or_else(String::new)).await;
    server.ends_watches();
    eventually("it is not ready any more", async || (!metrics.ready()).then_some(()).ok_or_else(String::new)).await;
    let late = call(&caller, address, "1");

    let long = Duration::from_secs(20);
    assert_eq!(timeout(long, late).await.unwrap().unwrap(), "", "it is admitted");
    let refusal = timeout(long, under_way).await.unwrap().unwrap();
    assert!(refusal.contains("version \"7\" is not defined"), "{refusal}");
    let ended = timeout(long, process).await.unwrap().unwrap().unwrap_err();
    assert!(ended.starts_with("a watch ended: "), "{ended}");
    assert!(metrics.text().contains("numaplane_synced 0"));
}
