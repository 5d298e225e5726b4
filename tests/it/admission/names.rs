//! Long names: refused with the limit where Kubernetes or Numaflow could not take what is made of them, and otherwise good for
//! as many upgrades as there will ever be.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{ResourceExt, api::DynamicObject};
use numaplane::api::{NumaflowController, NumaflowControllerRollout};
use serde_json::{Value, json};

use crate::support::{
    Scene, Version,
    asking::User,
    eventually, numaflow,
    rollouts::{Stage, pipeline_spec},
    version,
    webhook::{Webhook, refusal},
};

/// The longest name of each kind that is admitted, when the object is made: there is room for a number of four digits.
const LONGEST: [(&str, usize); 3] = [("PipelineRollout", 45), ("ISBServiceRollout", 37), ("MonoVertexRollout", 44)];

/// A rollout of a kind, with a spec that is good.
fn rollout(kind: &str, name: &str) -> Value {
    let spec = match kind {
        "PipelineRollout" => json!({"pipeline": {"spec": pipeline_spec()}}),
        "ISBServiceRollout" => json!({"interStepBufferService": {"spec": {"jetstream": {"version": "2.10"}}}}),
        "MonoVertexRollout" => json!({"monoVertex": {"spec": {"source": {"generator": {}}, "sink": {"log": {}}}}}),
        _ => json!({"controller": {"version": "1.0.0"}}),
    };
    json!({"apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

#[tokio::test(flavor = "multi_thread")]
async fn c16_names_of_40_to_253_characters_are_admitted_or_refused_with_the_limit() {
    let scene = Scene::new("c16").await;
    scene.define(&[version("1.0.0")]).await;
    let _webhook = Webhook::start(&scene).await;
    let user = User::of(&scene.team).await.dry();
    for length in [40, 52, 62, 63, 64, 253] {
        let name = "a".repeat(length);
        let answer = user.create(&rollout("NumaflowControllerRollout", &name)).await;
        assert!(answer.is_ok() && answer.warnings.is_empty(), "{length}: {}", answer.describe());
    }
    for (kind, longest) in LONGEST {
        for length in [40, 52, 62, 63, 64, 253, longest, longest + 1] {
            let answer = user.create(&rollout(kind, &"a".repeat(length))).await;
            assert_eq!(answer.is_ok(), length <= longest, "{kind} of {length}: {}", answer.describe());
            if length > longest {
                let over = format!("shorter by {}", length - longest);
                let all = answer.causes.iter().all(|c| c.starts_with("metadata.name: ") || c.contains("].name: "));
                let said = answer.causes.iter().any(|c| c.contains("63 are the limit") && c.contains(&over));
                assert!(all && said, "{kind} of {length}: {}", answer.describe());
                assert_eq!(
                    answer.message,
                    refusal("rollouts", &answer.causes.iter().map(String::as_str).collect::<Vec<_>>())
                );
            }
        }
        let dotted = user.create(&rollout(kind, "a.b")).await;
        let said = "metadata.name: \"a.b\" cannot be the beginning of the names of Services: use lower-case letters, digits and \
                    '-', beginning with a letter";
        assert_eq!(dotted.causes, [said], "{kind}: {}", dotted.describe());
    }
    let dotted = user.create(&rollout("NumaflowControllerRollout", "a.b.c-1")).await;
    assert!(dotted.is_ok(), "{}", dotted.describe());
}

/// Twelve versions, that are told apart by what is in them.
fn versions() -> Vec<Version> {
    (0..12).map(|n| version(&format!("1.0.{n}")).not_isolated().without_leader()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn c16_controllers_whose_names_differ_only_at_their_ends_are_upgraded_twelve_times_and_never_mixed_up() {
    let scene = Scene::new("c16-twelve").await;
    let team = &scene.team;
    scene.define(&versions()).await;
    let _webhook = Webhook::start(&scene).await;
    let _operator = scene.operator().await;
    let user = User::of(team).await;
    // As long as names get, with dots; and two that are the same up to character 60.
    let names = [format!("{}a", "a.".repeat(126)), format!("{}one", "b".repeat(60)), format!("{}two", "b".repeat(60))];
    let instances = ["long", "one", "two"];
    let spec = |instance: &str, version: &str| json!({"controller": {"version": version, "instanceID": instance}, "strategy": {"type": "no-strategy"}});
    for (name, instance) in names.iter().zip(instances) {
        let mut object = rollout("NumaflowControllerRollout", name);
        object["spec"] = spec(instance, "1.0.0");
        let answer = user.create(&object).await;
        assert!(answer.is_ok(), "{}", answer.describe());
    }
    for n in 0..12 {
        let version = format!("1.0.{n}");
        for (name, instance) in names.iter().zip(instances) {
            if n > 0 {
                let patch = json!({"spec": spec(instance, &version)});
                let answer = user.edit("NumaflowControllerRollout", name, &patch).await;
                assert!(answer.is_ok(), "{}", answer.describe());
            }
        }
        for name in &names {
            team.deployed(name, &version).await;
        }
    }
    // One child each, the twelfth; everything has a label that says whose it is, and no two say the same.
    let mut marks = BTreeSet::new();
    for (name, instance) in names.iter().zip(instances) {
        let child: NumaflowController = team.one_child(name).await;
        assert!(child.name_any().ends_with("-11") && child.name_any().len() <= 253, "{}", child.name_any());
        let config = team.get::<ConfigMap>(&format!("numaflow-controller-config-{instance}")).await;
        let mark = config.labels()["numaplane.numaproj.io/tracking-id"].clone();
        assert!(mark.len() <= 63, "{mark}");
        marks.insert(mark);
        assert_eq!(team.get::<NumaflowControllerRollout>(name).await.status.and_then(|s| s.name_count), Some(11));
    }
    assert_eq!(marks.len(), 3, "{marks:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c16_a_pipeline_with_the_longest_name_is_made_anew_twelve_times() {
    let stage = Stage::bare("c16-pipeline").await;
    let (scene, team) = (&stage.scene, stage.team());
    let _webhook = Webhook::start(scene).await;
    let _operator = scene.operator().await;
    stage.furnish().await;
    let user = User::of(team).await;
    let names = ["x", "y"].map(|end| format!("{}{end}", "p".repeat(LONGEST[0].1 - 1)));
    for name in &names {
        let answer = user.create(&rollout("PipelineRollout", name)).await;
        assert!(answer.is_ok(), "{}", answer.describe());
    }
    for n in 0..=12 {
        for name in &names {
            let child = format!("{name}-{n}");
            let made = team.pipeline_until(name, &child, |s| s.child == child && s.phase.as_str() == "Deployed").await;
            assert_eq!(made.name_count, Some(n));
            let found: DynamicObject = team.pipeline_runs(name).await;
            assert_eq!(found.name_any(), child);
            assert!(found.labels().values().all(|value| value.len() <= 63));
            if n < 12 {
                numaflow::delete(team, "Pipeline", &child).await;
            }
        }
    }
    eventually("nothing is left of those before", async || {
        let all = numaflow::api(team, "Pipeline").list(&Default::default()).await.unwrap().items;
        let left: Vec<String> = all.iter().map(ResourceExt::name_any).collect();
        if left.len() == 2 { Ok(()) } else { Err(left.join(", ")) }
    })
    .await;
    stage.at_rest().await;
}
