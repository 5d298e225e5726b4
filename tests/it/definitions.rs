//! Definitions that change, go, or were never any good.

use std::time::Duration;

use k8s_openapi::api::{
    apps::v1::ControllerRevision,
    core::v1::{ConfigMap, Secret},
};
use kube::ResourceExt;
use numaplane::api::{NumaflowControllerRollout, Phase};
use serde_json::json;

use crate::support::{
    Scene, audit,
    definitions::{comments, config_map_value, entry},
    eventually, stays,
    team::condition,
    version,
};

fn environment(team_deployment: &k8s_openapi::api::apps::v1::Deployment) -> Vec<(String, String)> {
    let pod = team_deployment.spec.clone().unwrap().template.spec.unwrap();
    let env = pod.containers[0].env.clone().unwrap_or_default();
    env.into_iter().map(|e| (e.name, e.value.unwrap_or_default())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a05a_an_edited_definition_is_rolled_out_once() {
    let scene = Scene::new("edited").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3")]).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    let before = team.deployed("numaflow", "1.3.3").await;

    // Words are no change.
    let mut mark = audit::settled(team, Duration::from_secs(2)).await;
    scene.define(&[version("1.3.3").padding(500)]).await;
    stays("a comment changes nothing", Duration::from_secs(3), async || {
        match audit::new_writes(&mut mark, &team.namespace) {
            writes if writes.is_empty() => Ok(()),
            writes => Err(writes.join("; ")),
        }
    })
    .await;

    scene.define(&[version("1.3.3").controller(|w| w.env("GOMAXPROCS", "2"))]).await;
    let old = before.status.and_then(|s| s.promoted).unwrap();
    let after = team
        .until("numaflow", "the new definition is promoted", |r| {
            let status = r.status.clone().unwrap_or_default();
            status.phase == Phase::deployed()
                && status.promoted.is_some_and(|p| p.definition_hash != old.definition_hash)
        })
        .await;
    assert_eq!(after.metadata.generation, before.metadata.generation);
    let new = after.status.and_then(|s| s.promoted).unwrap();
    assert_ne!(new.name, old.name, "an edit is an attempt like any other");
    let deployment = team.deployment("numaflow-controller").await;
    assert_eq!(environment(&deployment), [("GOMAXPROCS".to_owned(), "2".to_owned())]);
    assert_eq!(deployment.annotations().get("deployment.kubernetes.io/revision").map(String::as_str), Some("2"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a05bc_a_removed_definition_takes_nothing_away_and_comes_back_without_a_trace() {
    let scene = Scene::new("removed").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let before = (team.deployment("numaflow-controller").await.metadata, team.pods().await);

    scene.define(&[version("1.4.0")]).await;
    let missing = |rollout: &NumaflowControllerRollout| condition(rollout, "DefinitionMissing").is_some();
    let rollout = team.until("numaflow", "says that its definition is missing", missing).await;
    let said = condition(&rollout, "DefinitionMissing").unwrap();
    assert!(said.status == "True" && said.message.contains("\"1.3.3\" is not defined"), "{said:?}");
    assert_eq!(rollout.status.map(|s| s.phase), Some(Phase::deployed()));
    // Held by what was pinned: also for an operator that has never seen the definition.
    operator.stop().await;
    let _operator = scene.operator().await;
    team.delete::<ConfigMap>("numaflow-controller-config").await;
    eventually("what belongs to it is kept", async || {
        team.find::<ConfigMap>("numaflow-controller-config").await.map(|_| ()).ok_or_else(|| "gone".to_owned())
    })
    .await;
    team.deployed("numaflow", "1.3.3").await;

    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    team.until("numaflow", "no longer says so", |r| !missing(r)).await;
    let after = (team.deployment("numaflow-controller").await.metadata, team.pods().await);
    assert_eq!((&after.0.uid, &after.0.generation, &after.1), (&before.0.uid, &before.0.generation, &before.1));

    // And the way back from another version needs no definition either.
    team.set_version("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;
    scene.define(&[version("1.4.0")]).await;
    team.set_version("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    team.until("numaflow", "says so again", missing).await;
}

/// Entries of which all but the first and the last are no good: (version, its entry, words, line within the value).
fn bad_entries() -> Vec<(&'static str, &'static str, &'static str)> {
    vec![
        ("2.0.0", "- version: \"2.0.0\"\n  fullSpec: |\n    a: [\n", "this is not YAML"),
        ("2.0.1", "- version: \"2.0.1\"\n  fullSpec: \"\"\n", "fullSpec"),
        ("2.0.2", "- version: \"2.0.2\"\n", "no fullSpec"),
        ("2.0.3", "- version: \"2.0.3\"\n  fullSpec: |\n    kind: Deployment\n", "has no apiVersion"),
        ("2.0.4", "- version: \"2.0.4\"\n  version: \"2.0.4\"\n  fullSpec: x\n", "given twice"),
        ("2.0.5", "- version: \"2.0.5\"\n  fullSpec: |\n    just text\n", "not an object"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn c18_a_bad_entry_hurts_nobody_else_and_is_told_with_entry_and_line() {
    let scene = Scene::new("malformed").await;
    let team = &scene.team;
    let mut value = config_map_value(&[version("1.3.3")]);
    let mut lines = Vec::new();
    for (_, text, _) in bad_entries() {
        lines.push(value.lines().count() + 1);
        value.push_str(text);
    }
    // Ends in the middle of nothing, like a manifest that was put together by a script.
    value.push_str(&entry("1.4.0", &format!("---\n{}---\n", version("1.4.0").full_spec())));
    let operator = scene.operator().await;
    scene.define_in("definitions", &value).await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    for (n, (version, _, words)) in bad_entries().into_iter().enumerate() {
        team.set_version("numaflow", version).await;
        let entry = format!("entry {}", n + 2);
        let rollout = team.failed("numaflow", &[words, &entry, "line "]).await;
        let status = rollout.status.unwrap();
        assert!(status.message.contains("/definitions, key \"controller_definitions.yaml\""), "{}", status.message);
        let line: usize = status.message.split("line ").nth(1).unwrap().split(':').next().unwrap().parse().unwrap();
        let next = lines.get(n + 1).copied().unwrap_or(usize::MAX);
        assert!(line >= lines[n] && line < next, "{version}: line {line} is not between {} and {next}", lines[n]);
        scene.system.event("ConfigMap", "definitions", &["DefinitionMalformed", &entry, words]).await;
    }
    team.set_version("numaflow", "1.4.0").await;
    team.deployed("numaflow", "1.4.0").await;
    let text = operator.metrics.text();
    assert!(text.contains("numaplane_definitions{state=\"malformed\"} 6"), "{text}");
    assert!(text.contains("numaplane_definitions{state=\"good\"} 2"), "{text}");

    // A value that is no list at all, and one that is no longer YAML where it was.
    for (map, value) in [("other", "just text\n"), ("tabs", "controllerDefinitions:\n\t- version: x\n")] {
        scene.define_in(map, value).await;
        scene.system.event("ConfigMap", map, &["DefinitionMalformed"]).await;
    }
    team.set_version("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_defined_twice_is_used_only_if_both_say_the_same() {
    let scene = Scene::new("twice").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let other = version("1.4.0").controller(|w| w.env("A", "B"));
    scene.define_in("more", &config_map_value(&[version("1.3.3").padding(100), other])).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    team.set_version("numaflow", "1.4.0").await;
    team.failed("numaflow", &["\"1.4.0\" is defined more than once", "/definitions", "/more"]).await;
    scene.system.delete::<ConfigMap>("more").await;
    team.deployed("numaflow", "1.4.0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_in_a_teams_namespace_count_only_if_the_operator_allows_them() {
    let scene = Scene::new("own").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3")]).await;
    let own = version("1.3.3").controller(|w| w.env("OWN", "yes"));
    team.define("definitions", &config_map_value(&[own, version("1.4.0")])).await;
    let operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    assert!(environment(&team.deployment("numaflow-controller").await).is_empty());
    team.set_version("numaflow", "1.4.0").await;
    team.failed("numaflow", &["\"1.4.0\" is not defined"]).await;
    operator.stop().await;
    let _operator = scene.operator_with(|s| s.definitions_anywhere = true).await;
    team.deployed("numaflow", "1.4.0").await;
    team.set_version("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    assert_eq!(environment(&team.deployment("numaflow-controller").await).len(), 1, "the nearer one counts");
}

/// Versions that cannot be rendered: what is wrong, and the words for it.
fn unusable() -> Vec<(&'static str, serde_json::Value, &'static [&'static str])> {
    let of = |kind: &str, metadata: serde_json::Value| json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
    vec![
        ("2.0.0", of("Secret", json!({"name": "a"})), &["Secret \"a\"", "definitions may not hold", "--permit-kind"]),
        ("2.0.1", of("Gizmo", json!({"name": "a"})), &["Gizmo \"a\"", "definitions may not hold"]),
        ("2.0.2", of("ConfigMap", json!({"name": "a", "namespace": "elsewhere"})), &["ConfigMap/a", "\"elsewhere\""]),
        ("2.0.3", of("Service", json!({"name": "s".repeat(64)})), &["64 characters", "may have 63"]),
        ("2.0.4", of("ConfigMap", json!({"name": "A_b"})), &["ConfigMap \"A_b\"", "is not valid"]),
        ("2.0.5", of("ConfigMap", json!({"name": "a", "finalizers": ["x/y"]})), &["metadata.finalizers"]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_cannot_be_rendered_is_refused_in_words_and_nothing_that_runs_is_touched() {
    let scene = Scene::new("unusable").await;
    let team = &scene.team;
    let bad = unusable().into_iter().map(|(name, object, _)| version(name).object(object));
    scene.define(&[version("1.3.3")].into_iter().chain(bad).collect::<Vec<_>>()).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let before = team.deployment("numaflow-controller").await.metadata;
    for (name, _, words) in unusable() {
        team.set_version("numaflow", name).await;
        let rollout = team.failed("numaflow", words).await;
        let attempt = rollout.status.and_then(|s| s.last_attempt).unwrap();
        assert_eq!((attempt.version.as_str(), attempt.stage.as_str()), (name, "Resolve"));
    }
    // The cause heals, the rollout does not change.
    let generation = team.rollout("numaflow").await.metadata.generation;
    scene.define(&[version("1.3.3"), version("2.0.5").controller(|w| w.env("A", "B"))]).await;
    let healed = team.deployed("numaflow", "2.0.5").await;
    assert_eq!(healed.metadata.generation, generation);
    assert_eq!(team.deployment("numaflow-controller").await.metadata.uid, before.uid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_with_a_secret_is_pinned_in_a_secret_and_found_there_again() {
    let scene = Scene::new("secret").await;
    let team = &scene.team;
    let secret = |text: &str| {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "token"}, "stringData": {"token": text},
        })
    };
    let bad = version("2.0.0").not_isolated().object(secret("second")).controller(|w| w.behaviour("never-ready"));
    scene.define(&[version("1.3.3").object(secret("first")), bad]).await;
    let permit = |s: &mut numaplane::settings::Settings| {
        s.permitted = s.permitted.clone().and("Secret".parse().unwrap());
        s.defaults.deadline = Duration::from_secs(15);
    };
    let operator = scene.operator_with(permit).await;
    team.install("numaflow", "1.3.3").await;
    let rollout = team.deployed("numaflow", "1.3.3").await;
    let revision = rollout.status.and_then(|s| s.promoted).unwrap().revision;
    let pinned = team.get::<ControllerRevision>(&revision).await;
    assert!(!format!("{:?}", pinned.data).contains("first"), "a secret is kept in Secrets alone");
    assert_eq!(team.get::<Secret>(&revision).await.owner_references().len(), 1);
    let token = async || {
        let data = team.get::<Secret>("token").await.data.unwrap_or_default();
        String::from_utf8(data["token"].0.clone()).unwrap()
    };
    assert_eq!(token().await, "first");
    // A process that has never seen the definition takes the way back.
    team.set_version("numaflow", "2.0.0").await;
    team.until("numaflow", "is being judged", |r| {
        r.status.as_ref().and_then(|s| s.upgrade.as_ref()).is_some_and(|u| u.stage == "Confirm")
    })
    .await;
    assert_eq!(token().await, "second");
    operator.kill().await;
    scene.define(&[version("3.0.0")]).await;
    let _operator = scene.operator_with(permit).await;
    team.failed("numaflow", &["rolled back to version \"1.3.3\""]).await;
    assert_eq!(token().await, "first");
    // And what no version wants any more goes.
    team.set_version("numaflow", "3.0.0").await;
    team.deployed("numaflow", "3.0.0").await;
    team.gone::<Secret>("token").await;
    team.delete::<NumaflowControllerRollout>("numaflow").await;
    team.gone::<NumaflowControllerRollout>("numaflow").await;
    team.gone::<Secret>(&revision).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c18_a_config_map_as_large_as_the_server_takes_is_read_and_one_too_large_is_the_platforms_trouble() {
    let scene = Scene::new("large").await;
    let team = &scene.team;
    // Two long ones, and as many of ordinary length as fit.
    let mut value = config_map_value(&[version("1.3.3").padding(30_000), version("1.4.0").padding(300_000)]);
    let mut n = 0;
    loop {
        let more = entry(&format!("2.0.{n}"), &version("2.0.0").padding(9_000).full_spec());
        if value.len() + more.len() > 1_040_000 {
            break;
        }
        value.push_str(&more);
        n += 1;
    }
    value.push_str(&format!("# {}", "x".repeat(1_045_000 - value.len())));
    println!("{} bytes, {} versions", value.len(), n + 2);
    scene.define_in("definitions", &value).await;
    let _operator = scene.operator().await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    for version in ["1.4.0", "2.0.0", &format!("2.0.{}", n - 1), "1.3.3"] {
        team.set_version("numaflow", version).await;
        team.deployed("numaflow", version).await;
    }
    let api = scene.system.api::<ConfigMap>();
    let patch = json!({"data": {"more": comments(100_000)}});
    let refused = api.patch("definitions", &Default::default(), &kube::api::Patch::Merge(patch)).await;
    assert!(refused.is_err_and(|e| e.to_string().contains("Too long")));
    // What the platform team does then: another ConfigMap.
    scene.define_in("definitions-2", &config_map_value(&[version("3.0.0")])).await;
    team.set_version("numaflow", "3.0.0").await;
    team.deployed("numaflow", "3.0.0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c18_a_status_with_a_time_that_nobody_can_read_stops_nothing() {
    let scene = Scene::new("unreadable").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let operator = scene.operator().await;
    for name in ["good", "bad"] {
        team.install_with(name, json!({"controller": {"version": "1.3.3", "instanceID": name}})).await;
        team.deployed(name, "1.3.3").await;
    }
    operator.stop().await;
    team.break_status::<NumaflowControllerRollout>("bad").await;
    let _operator = scene.operator().await;
    for name in ["good", "bad"] {
        team.set_version(name, "1.4.0").await;
        team.deployed(name, "1.4.0").await;
    }
}
