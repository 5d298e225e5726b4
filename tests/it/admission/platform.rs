//! Platform ConfigMaps that are no good: refused where somebody writes them, and where one gets in nevertheless it is nobody's
//! trouble but of those who choose what is bad in it.

use k8s_openapi::api::core::v1::ConfigMap;
use numaplane::api::NumaflowControllerRollout;
use serde_json::{Value, json};

use crate::support::{
    Scene,
    asking::User,
    definitions::{comments, config_map_value, entry},
    version,
    webhook::{Webhook, refusal},
};

fn map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {"numaplane.numaproj.io/config": "numaflow-controller-definitions"}},
        "data": {"controller_definitions.yaml": value},
    })
}

fn rollout(name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "NumaflowControllerRollout",
        "metadata": {"name": name}, "spec": {"controller": {"version": version, "instanceID": name}},
    })
}

/// Entries that are no good: the version, the entry, and what is said of it, after a line that counts from that of the entry.
fn bad_entries() -> Vec<(&'static str, String, &'static str)> {
    let small = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";
    vec![
        ("9.1.0", entry("9.1.0", "a: ["), "{3}: fullSpec, document 1: this is not YAML: unclosed bracket '['"),
        (
            "9.1.1",
            "- version: \"9.1.1\"\n".to_owned(),
            "{1}: the entry has no fullSpec (its fields are: version); add it",
        ),
        (
            "9.1.2",
            entry("9.1.2", "").replace("|\n", "\"\"\n"),
            "{2}: fullSpec, document 1: there is no object; write the objects of the controller (line 1 of fullSpec)",
        ),
        (
            "9.1.3",
            format!("- version: \"9.1.3\"\n  version: \"9.1.3\"\n  fullSpec: \"{small}\"\n"),
            "{2}: version is given twice; remove one of the two",
        ),
        (
            "9.1.4",
            entry("9.1.4", "apiVersion: v1\nmetadata: {name: a}"),
            "{3}: fullSpec, document 1: the object has no kind",
        ),
        (
            "9.1.5",
            entry("9.1.5", "just text"),
            "{3}: fullSpec, document 1: this is text, not an object; perhaps its indentation or a \"---\" is missing",
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn c18_a_bad_entry_is_refused_and_where_it_gets_in_only_who_chooses_it_is_refused_with_its_place() {
    let scene = Scene::new("c18").await;
    let (team, system) = (&scene.team, &scene.system.namespace);
    let good = config_map_value(&[version("1.3.3"), version("1.4.0")]);
    scene.define_in("definitions", &good).await;
    let _webhook = Webhook::start(&scene).await;
    let _operator = scene.operator().await;
    let (user, platform) = (User::of(team).await, User::of(&scene.system).await);
    for name in ["one", "two"] {
        assert!(user.create(&rollout(name, "1.3.3")).await.is_ok());
        team.deployed(name, "1.3.3").await;
    }

    // All of them behind two good ones, in one value: all are told, each with entry and line.
    let (mut value, mut told) = (good.clone(), Vec::new());
    for (n, (version, text, words)) in bad_entries().into_iter().enumerate() {
        let line = |within: usize| value.lines().count() + within;
        let at = words.replace("{1}", &line(1).to_string()).replace("{2}", &line(2).to_string());
        let at = at.replace("{3}", &line(3).to_string());
        told.push(format!("data[controller_definitions.yaml]: entry {} (version {version:?}), line {at}", n + 3));
        value.push_str(&text);
    }
    let told: Vec<&str> = told.iter().map(String::as_str).collect();
    let answer = platform.apply(&map("definitions", &value)).await;
    assert_eq!(answer.message, refusal("config-maps", &told));
    assert_eq!(answer.causes, told);

    // Stored unseen, it takes nothing from the versions beside it, and who chooses one that is bad is told where it stands.
    let stored = platform.clone().acting_as(&Webhook::exempt(&scene)).apply(&map("definitions", &value)).await;
    assert!(stored.is_ok(), "{}", stored.describe());
    scene.system.event("ConfigMap", "definitions", &["DefinitionMalformed", "entry 3"]).await;
    for (n, (version, ..)) in bad_entries().into_iter().enumerate() {
        let answer = user.told(&rollout("three", version)).await;
        let place = told[n].split_once(": ").unwrap().1;
        let said = format!(
            "spec.controller.version: version {version:?} is defined, but its definition is malformed: ConfigMap \
             {system}/definitions, key \"controller_definitions.yaml\", {place}. Mend it there, or set another version"
        );
        assert_eq!(
            (answer.message.as_str(), answer.causes),
            (refusal("rollouts", &[&said]).as_str(), vec![said.clone()])
        );
    }
    for (name, version) in [("one", "1.4.0"), ("two", "1.4.0")] {
        let answer =
            user.edit("NumaflowControllerRollout", name, &json!({"spec": {"controller": {"version": version}}})).await;
        assert!(answer.is_ok(), "{}", answer.describe());
        team.deployed(name, version).await;
    }
    // Mending it is never in the way of anybody.
    let answer = platform.apply(&map("definitions", &good)).await;
    assert!(answer.is_ok(), "{}", answer.describe());
}

#[tokio::test(flavor = "multi_thread")]
async fn c18_a_rollout_that_nobody_can_read_is_nobody_elses_trouble() {
    let scene = Scene::new("c18-cr").await;
    let team = &scene.team;
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    team.install_with("bad", json!({"controller": {"version": "1.3.3", "instanceID": "bad"}})).await;
    // What another version of the operator, or a script, may have written.
    team.break_status::<NumaflowControllerRollout>("bad").await;
    let _webhook = Webhook::start(&scene).await;
    let user = User::of(team).await;
    let made = user.create(&rollout("good", "1.3.3")).await;
    assert!(made.is_ok() && made.warnings.is_empty(), "{}", made.describe());
    let changed = json!({"spec": {"controller": {"version": "1.4.0"}}});
    for name in ["good", "bad"] {
        let answer = user.edit("NumaflowControllerRollout", name, &changed).await;
        assert!(answer.is_ok() && answer.warnings.is_empty(), "{name}: {}", answer.describe());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c18_more_than_a_mebibyte_of_versions_goes_into_several_config_maps() {
    let scene = Scene::new("c18-large").await;
    let (team, platform) = (&scene.team, User::of(&scene.system).await);
    scene.define(&[version("1.3.3")]).await;
    let webhook = Webhook::start(&scene).await;
    // Two that the server takes, and that are more than it takes of one.
    for (name, first) in [("many", "2.0.0"), ("more", "2.0.1")] {
        let value = config_map_value(&[version(first).padding(700_000)]);
        let answer = platform.apply(&map(name, &value)).await;
        assert!(answer.is_ok() && answer.warnings.is_empty(), "{}", answer.describe());
    }
    let answer = platform.edit("ConfigMap", "many", &json!({"data": {"rest": comments(400_000)}})).await;
    assert_eq!(answer.code, 422, "{}", answer.describe());
    assert_eq!(answer.message, "ConfigMap \"many\" is invalid: []: Too long: may not be more than 1048576 bytes");
    let user = User::of(team).await;
    for (name, version) in [("a", "2.0.0"), ("b", "2.0.1"), ("c", "1.3.3")] {
        let answer = user.create(&rollout(name, version)).await;
        assert!(answer.is_ok() && answer.warnings.is_empty(), "{}", answer.describe());
    }
    // Reviews of what is changed hold it twice.
    let mut value = config_map_value(&[version("2.0.0").padding(700_000)]);
    value.push_str("# more\n");
    let answer = platform.apply(&map("many", &value)).await;
    assert!(answer.is_ok(), "{}", answer.describe());
    assert!(scene.system.find::<ConfigMap>("many").await.is_some());
    assert!(!webhook.replicas[0].log().contains("WARN"), "{}", webhook.replicas[0].log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_not_defined_any_more_is_there_for_who_has_it_pinned_and_for_nobody_else() {
    let scene = Scene::new("pinned").await;
    let (team, system) = (&scene.team, &scene.system.namespace);
    scene.define(&[version("1.3.3"), version("1.4.0")]).await;
    let _webhook = Webhook::start(&scene).await;
    let _operator = scene.operator().await;
    let (user, platform) = (User::of(team).await, User::of(&scene.system).await);
    assert!(user.create(&rollout("one", "1.3.3")).await.is_ok());
    team.deployed("one", "1.3.3").await;

    // The platform team is told whom it is about.
    let answer = platform.apply(&map("definitions", &config_map_value(&[version("1.4.0")]))).await;
    let told = format!(
        "version \"1.3.3\" is not defined any more; what runs it keeps its pinned copy, nobody else gets it. Used by 1 \
         NumaflowControllerRollout: {}/one",
        team.namespace
    );
    assert!(answer.is_ok(), "{}", answer.describe());
    assert_eq!(answer.warnings, [told]);
    let to = |version: &str| json!({"spec": {"controller": {"version": version}}});
    let answer = user.edit("NumaflowControllerRollout", "one", &to("1.4.0")).await;
    assert!(answer.is_ok() && answer.warnings.is_empty(), "{}", answer.describe());
    team.deployed("one", "1.4.0").await;
    // The way back needs no definition.
    let answer = user.edit("NumaflowControllerRollout", "one", &to("1.3.3")).await;
    assert!(answer.is_ok(), "{}", answer.describe());
    let said = "spec.controller.version: version \"1.3.3\" is not defined any more; the copy that this rollout has pinned is used";
    assert_eq!(answer.warnings, [said]);
    team.deployed("one", "1.3.3").await;
    let answer = user.told(&rollout("two", "1.3.3")).await;
    let said = format!(
        "spec.controller.version: version \"1.3.3\" is not defined. Defined versions: 1.4.0 (looked in {system}/definitions). \
         Set one of them, or add this version to a definitions ConfigMap"
    );
    assert_eq!((answer.message.as_str(), answer.causes), (refusal("rollouts", &[&said]).as_str(), vec![said.clone()]));
}
