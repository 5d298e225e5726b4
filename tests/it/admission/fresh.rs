//! What was defined a moment ago, or comes in the same bundle: nobody is refused because the webhook has not heard of it.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use numaplane::api::NumaflowControllerRollout;
use serde_json::{Value, json};

use crate::support::{
    Scene,
    asking::User,
    audit,
    control_plane::control_plane,
    definitions::{config_map_value, entry},
    eventually,
    faults::Faults,
    forward::{Forward, Held},
    version,
    webhook::{Webhook, refusal},
};

/// A definition of one object.
const SMALL: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: \"a{{ .InstanceSuffix }}\"}}";

fn rollout(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "NumaflowControllerRollout",
        "metadata": {"name": name}, "spec": {"controller": {"version": version, "instanceID": name}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn c02_a_version_that_was_added_50_ms_ago_is_admitted_200_times_out_of_200() {
    let scene = Scene::new("c02").await;
    let mut value = "controllerDefinitions:\n".to_owned();
    value.push_str(&entry("9.0.0", SMALL));
    scene.define_in("definitions", &value).await;
    let _webhook = Webhook::start(&scene).await;
    let user = User::of(&scene.team).await;
    let (mut refused, mut unchecked, mut took) = (Vec::new(), 0, Vec::new());
    for n in 1..=200 {
        let version = format!("9.0.{n}");
        value.push_str(&entry(&version, SMALL));
        scene.define_in("definitions", &value).await;
        // The case says so: this long, and no longer, after the version was added.
        tokio::time::sleep(Duration::from_millis(50)).await;
        let began = Instant::now();
        let answer = user.create(&rollout(&format!("n{n}"), &version)).await;
        took.push(began.elapsed());
        // On a busy machine the read may take longer than it is waited for; that is no reason to refuse.
        unchecked += usize::from(!answer.warnings.is_empty());
        if !answer.is_ok() {
            refused.push(answer.describe());
        }
    }
    took.sort();
    println!("creating took {:?} (median), {:?} (longest); {unchecked} unchecked", took[100], took[199]);
    assert!(refused.is_empty(), "{} of 200:\n{}", refused.len(), refused.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn c02_a_version_that_no_watch_has_told_of_is_read_before_it_is_refused() {
    let scene = Scene::new("unheard").await;
    scene.define(&[version("1.3.3")]).await;
    let (client, _) = control_plane().operator(&Faults::default(), None).await;
    let forward = Forward::start(client).await;
    let _webhook = Webhook::start_through(&scene, &forward).await;
    let user = User::of(&scene.team).await;
    forward.hold(Held { watches: true, answers: false });

    // Another version in the ConfigMap that is known, and one in a ConfigMap that is not.
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    scene.define_in("more", &config_map_value(&[version("1.5.0")])).await;
    for (name, version) in [("one", "1.4.0"), ("two", "1.5.0")] {
        let answer = user.told(&rollout(name, version)).await;
        assert!(answer.is_ok() && answer.warnings.is_empty(), "{}", answer.describe());
    }
    // And what is wrong is still told, with all that there is now.
    let system = &scene.system.namespace;
    let answer = user.told(&rollout("three", "1.5.1")).await;
    let said = format!(
        "spec.controller.version: version \"1.5.1\" is not defined (did you mean \"1.5.0\"?). Defined versions: 1.3.3, 1.4.0, \
         1.5.0 (looked in {system}/definitions, {system}/more). Set one of them, or add this version to a definitions ConfigMap"
    );
    assert_eq!(answer.causes, [said.as_str()], "{}", answer.describe());
    assert_eq!(answer.message, refusal("rollouts", &[&said]));

    // Where nobody answers either, it is admitted: the operator looks again, and the user is told so.
    forward.hold(Held { watches: true, answers: true });
    let answer = user.create(&rollout("four", "1.5.2")).await;
    assert!(answer.is_ok(), "{}", answer.describe());
    let said = "spec.controller.version: could not be checked; the operator checks it again (no answer from the API server \
                within 2s)";
    assert_eq!(answer.warnings, [said]);
    forward.hold(Held::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn c03_a_dry_run_is_answered_and_nothing_is_written() {
    let scene = Scene::new("c03-dry").await;
    scene.define(&[version("1.3.3")]).await;
    let webhook = Webhook::start(&scene).await;
    assert!(
        webhook.body(&scene).await["webhooks"]
            .as_array()
            .is_some_and(|all| { all.len() == 2 && all.iter().all(|one| one["sideEffects"] == "None") })
    );
    let user = User::of(&scene.team).await;
    let mark = audit::mark();
    let answer = user.clone().dry().create(&rollout("dry", "1.3.3")).await;
    assert!(answer.is_ok() && answer.warnings.is_empty(), "{}", answer.describe());
    assert_eq!(user.get("NumaflowControllerRollout", "dry").await.code, 404);
    let answer = user.told(&rollout("dry", "1.3.4")).await;
    assert_eq!(answer.code, 422, "{}", answer.describe());
    for namespace in [&scene.team.namespace, &scene.system.namespace] {
        let writes: Vec<String> =
            audit::since(mark, namespace).iter().filter(|r| r.write()).map(audit::Request::describe).collect();
        assert!(writes.is_empty(), "{namespace}: {}", writes.join("; "));
    }
}

/// Somebody with kubectl: whether it went well, and what is printed.
fn kubectl(arguments: &[&str]) -> (bool, String) {
    let program = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin/kubectl");
    let done = Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", control_plane().administrator_kubeconfig())
        .output()
        .expect("kubectl can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.success(), text(&done.stdout) + &text(&done.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn c03_a_bundle_of_a_version_and_a_rollout_that_uses_it_is_applied_at_once_and_its_dry_run_says_what_is_missing()
{
    let scene = Scene::new("c03-bundle").await;
    scene.define(&[version("1.3.3")]).await;
    let _webhook = Webhook::start(&scene).await;
    let (team, system) = (&scene.team.namespace, &scene.system.namespace);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bundle.yaml");
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "bundled", "namespace": system,
            "labels": {"numaplane.numaproj.io/config": "numaflow-controller-definitions"},
        },
        "data": {"definitions": config_map_value(&[version("1.4.0")])},
    });
    let mut user = rollout("numaflow", "1.4.0");
    user["metadata"]["namespace"] = json!(team);
    fs::write(&file, format!("{map}\n---\n{user}\n")).unwrap();
    let file = file.to_str().unwrap();

    // In a dry run nothing is there that comes before it in the bundle: the refusal says what is looked for, and where.
    let said = eventually("it could be checked", async || {
        match kubectl(&["apply", "--server-side", "--dry-run=server", "-f", file]) {
            (true, said) if said.contains("could not be checked") => Err(said),
            (true, said) => panic!("{said}"),
            (false, said) => Ok(said),
        }
    })
    .await;
    assert_eq!(
        said,
        format!(
            "configmap/bundled serverside-applied (server dry run)\nThe NumaflowControllerRollout \"numaflow\" is invalid: \
             spec.controller.version: version \"1.4.0\" is not defined. Defined versions: 1.3.3 (looked in \
             {system}/definitions). Set one of them, or add this version to a definitions ConfigMap\n"
        )
    );
    assert!(scene.system.find::<ConfigMap>("bundled").await.is_none());
    // For good it goes in, in one go.
    let (ok, said) = kubectl(&["apply", "--server-side", "-f", file]);
    assert!(ok, "{said}");
    assert_eq!(scene.team.get::<NumaflowControllerRollout>("numaflow").await.spec.controller.version, "1.4.0");
    // And from then on its dry run is clean, as a GitOps tool makes it before each sync.
    let (ok, said) = kubectl(&["apply", "--server-side", "--dry-run=server", "-f", file]);
    assert!(ok, "{said}");
}
