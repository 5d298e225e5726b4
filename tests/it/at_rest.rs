//! At rest nothing is written, and nothing is looked at but by the clock.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Scene, audit, stays, version, workload};

/// Looks at everything this often in these tests.
const RESYNC: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn c10_what_is_deployed_is_left_alone() {
    let scene = Scene::new("rest").await;
    let team = &scene.team;
    let two = version("1.3.3").whole().and(workload("server"));
    scene.define(&[two, version("1.4.0")]).await;
    let operator = scene.operator_with(|s| s.resync = RESYNC).await;
    // One that was just installed, one that was upgraded and came back.
    for (name, instance) in [("numaflow", ""), ("other", "other")] {
        let controller = json!({"version": "1.3.3", "instanceID": instance});
        team.install_with(name, json!({"controller": controller})).await;
        team.deployed(name, "1.3.3").await;
    }
    for version in ["1.4.0", "1.3.3"] {
        team.set_version("other", version).await;
        team.deployed("other", version).await;
    }
    let statuses = async || {
        let rollouts = [team.rollout("numaflow").await, team.rollout("other").await];
        rollouts.map(|r| r.metadata.resource_version.unwrap_or_default())
    };
    // The status of the child follows that of the Deployment, whose controller has its own pace.
    audit::settled(team, Duration::from_secs(5)).await;
    let (mark, before, turns) = (audit::mark(), statuses().await, operator.metrics.turns());
    let began = Instant::now();
    let time = Duration::from_secs(90);
    let mut seen = mark;
    stays("no write", time, async || match audit::new_writes(&mut seen, &team.namespace) {
        writes if writes.is_empty() => Ok(()),
        writes => Err(writes.join("; ")),
    })
    .await;
    // Looking takes time of its own, more of it the busier the server is.
    let (more, time) = (operator.metrics.turns() - turns, began.elapsed());
    assert_eq!(statuses().await, before);
    // The kinds of Numaflow come and go with other tests, and are asked for then.
    let foreign = ["pipelines", "interstepbufferservices", "monovertices"];
    let asked = |r: &audit::Request| r.verb != "watch" && !foreign.contains(&r.resource().as_str());
    let requests: Vec<_> = audit::since(mark, &team.namespace).into_iter().filter(asked).collect();
    assert!(requests.is_empty(), "{:?}", requests.iter().map(audit::Request::describe).collect::<Vec<_>>());
    // Both rollouts, each time.
    let most = 2 * (time.as_secs() / RESYNC.as_secs() + 1);
    println!("{more} reconciles of 2 rollouts in {time:?}, at most {most} by the clock");
    assert!(more <= most, "{more} reconciles");
    assert!(more >= 2 * (time.as_secs() / RESYNC.as_secs() - 1), "{more} reconciles: the clock has stopped");
}

#[tokio::test(flavor = "multi_thread")]
async fn c10_what_has_failed_for_good_is_left_alone() {
    let scene = Scene::new("failed").await;
    let team = &scene.team;
    let unavailable = version("2.0.0").controller(|w| w.behaviour("never-ready"));
    let elsewhere = version("3.0.0").object(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "elsewhere"},
    }));
    let secret = version("4.0.0").object(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}));
    let broken = "- version: \"5.0.0\"\n  fullSpec: |\n    kind: Deployment\n";
    scene.define(&[version("1.3.3"), unavailable, elsewhere, secret]).await;
    scene.define_in("broken", &format!("controllerDefinitions:\n{broken}")).await;
    let operator = scene.operator().await;
    let strategy = json!({"assessment": {"deadline": "3s"}});
    let failing = [
        ("undefined", "9.9.9", "is not defined"),
        ("unavailable", "2.0.0", "was not healthy within 3s"),
        ("elsewhere", "3.0.0", "metadata.namespace is \"elsewhere\""),
        ("secret", "4.0.0", "is of a kind that definitions may not hold"),
        ("broken", "5.0.0", "the object has no apiVersion"),
    ];
    for (name, _, _) in failing {
        let controller = json!({"version": "1.3.3", "instanceID": name});
        team.install_with(name, json!({"controller": controller, "strategy": strategy})).await;
        team.deployed(name, "1.3.3").await;
    }
    for (name, version, words) in failing {
        team.set_version(name, version).await;
        team.failed(name, &[words]).await;
    }
    audit::settled(team, Duration::from_secs(5)).await;
    let (mut seen, turns) = (audit::mark(), operator.metrics.turns());
    stays("no write", Duration::from_mins(1), async || match audit::new_writes(&mut seen, &team.namespace) {
        writes if writes.is_empty() => Ok(()),
        writes => Err(writes.join("; ")),
    })
    .await;
    assert_eq!(operator.metrics.turns(), turns, "nothing wakes it");
}
