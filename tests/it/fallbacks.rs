//! What rollouts fall back to where they say nothing: their namespace's ConfigMap, the operator's file, what is built
//! in.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Patch, PatchParams};
use numaplane::{
    api::{NumaflowControllerRollout, Strategy},
    metrics::Metrics,
    operator::Operator,
    settings::{Defaults, Settings},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::support::{
    Invariant, Scene, Team, Version, control_plane::control_plane, eventually, faults::Faults, operator::Running,
    version,
};

/// A good version, and one that never comes up: how long that is watched is the deadline that holds.
fn versions() -> [Version; 2] {
    [version("1.3.3"), version("2.0.0").controller(|w| w.behaviour("never-ready"))]
}

/// What is built into an operator.
fn built_in(settings: &mut Settings, deadline: Duration) {
    settings.defaults = Defaults { strategy: Strategy::Progressive, deadline, ..settings.defaults };
}

const LONG: Duration = Duration::from_mins(30);

/// The data of a ConfigMap that says a deadline and nothing else.
fn deadline(text: &str) -> Value {
    json!({"strategy": format!("assessment: {{deadline: {text}}}\n")})
}

impl Team {
    /// Sets the data of a namespace-level ConfigMap in this namespace.
    pub async fn configure(&self, name: &str, data: Value) {
        self.say("namespace-level-config", name, data).await;
    }

    /// Sets the data of a ConfigMap that configures something.
    pub async fn say(&self, what: &str, name: &str, data: Value) {
        let body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "labels": {"numaplane.numaproj.io/config": what}},
            "data": data,
        });
        let apply = PatchParams::apply("team").force();
        let written = self.api::<ConfigMap>().patch(name, &apply, &Patch::Apply(&body)).await;
        written.unwrap_or_else(|error| panic!("ConfigMap {name}: {error}"));
    }

    /// Waits until version 2.0.0 is being judged, in an attempt of this strategy.
    async fn judged(&self, strategy: &str) {
        self.until("numaflow", &format!("2.0.0 is being judged, {strategy}"), |rollout| {
            let upgrade = rollout.status.as_ref().and_then(|s| s.upgrade.as_ref());
            upgrade.is_some_and(|u| {
                u.version == "2.0.0" && matches!(u.stage.as_str(), "Verify" | "Confirm") && u.strategy == strategy
            })
        })
        .await;
    }

    /// Tries version 2.0.0 again, until it is given up because this deadline is over.
    async fn fails_again(&self, text: &str, deadline: &str) {
        let patch = json!({"metadata": {"annotations": {"numaplane.numaproj.io/retry": text}}});
        self.edit::<NumaflowControllerRollout>("numaflow", patch).await;
        let said = format!("within {deadline}:");
        self.until("numaflow", &format!("{text:?} failed {said}"), |rollout| {
            let status = rollout.status.clone().unwrap_or_default();
            status.upgrade.is_none()
                && status.last_attempt.is_some_and(|a| a.retry == text && a.message.contains(&said))
        })
        .await;
    }
}

/// The strategies of all attempts that a rollout makes, with what the existing API calls them.
struct Attempts {
    seen: Arc<Mutex<BTreeSet<(String, String)>>>,
    _watch: Invariant,
}

impl Attempts {
    async fn of(team: &Team) -> Self {
        let seen: Arc<Mutex<BTreeSet<(String, String)>>> = Arc::default();
        let into = seen.clone();
        let watch = Invariant::watch("attempts", team.api::<NumaflowControllerRollout>(), move |rollouts| {
            for status in rollouts.values().filter_map(|r| r.status.clone()) {
                if let Some(upgrade) = status.upgrade {
                    let mut seen = into.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.insert((upgrade.strategy, status.upgrade_in_progress));
                }
            }
            Ok(())
        });
        Self { seen, _watch: watch.await }
    }

    /// Asserts that there were attempts of these strategies and no others.
    fn were(&self, expected: &[(&str, &str)]) {
        let seen = self.seen.lock().unwrap();
        let seen: Vec<_> = seen.iter().map(|(strategy, words)| (strategy.as_str(), words.as_str())).collect();
        assert_eq!(seen, expected);
    }
}

/// A file as it is mounted from a ConfigMap: a link into a folder that is a link itself, which is swapped.
struct Mounted {
    folder: TempDir,
    count: usize,
}

impl Mounted {
    fn new(text: &str) -> Self {
        let mut mounted = Self { folder: tempfile::tempdir().unwrap(), count: 0 };
        mounted.set(text);
        mounted.link();
        mounted
    }

    fn link(&self) {
        symlink("..data/config.yaml", self.path()).unwrap();
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("config.yaml")
    }

    fn set(&mut self, text: &str) {
        let old = format!("..{}", self.count);
        self.count += 1;
        let new = format!("..{}", self.count);
        let at = |name: &str| self.folder.path().join(name);
        fs::create_dir(at(&new)).unwrap();
        fs::write(at(&new).join("config.yaml"), text).unwrap();
        symlink(&new, at("..data_tmp")).unwrap();
        fs::rename(at("..data_tmp"), at("..data")).unwrap();
        if self.count > 1 {
            fs::remove_dir_all(at(&old)).unwrap();
        }
    }
}

/// Waits until this many configurations of a source cannot be used.
async fn invalid(operator: &Running, source: &str, count: usize) {
    let line = format!("numaplane_config_invalid{{source=\"{source}\"}} {count}\n");
    eventually(&line, async || {
        let text = operator.metrics.text();
        if text.contains(&line) { Ok(()) } else { Err(text) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_attempt_keeps_the_strategy_of_its_namespace_and_follows_its_deadline() {
    let scene = Scene::new("fallback").await;
    let team = &scene.team;
    scene.define(&versions()).await;
    // Empty: no strategy, as in the existing API.
    team.configure("config", json!({"upgradeStrategy": ""})).await;
    let _operator = scene.operator_with(|s| built_in(s, LONG)).await;
    let attempts = Attempts::of(team).await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;

    team.set_version("numaflow", "2.0.0").await;
    team.judged("no-strategy").await;
    team.configure("config", json!({"strategy": "type: pause-and-drain\nassessment: {deadline: 2s}\n"})).await;
    team.failed("numaflow", &["within 2s:", "rolled back to version \"1.3.3\""]).await;
    attempts.were(&[("no-strategy", "DirectApply")]);

    team.fails_again("the next one", "2s").await;
    attempts.were(&[("no-strategy", "DirectApply"), ("pause-and-drain", "PipelinePauseAndDrain")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_field_comes_from_the_rollout_then_its_namespace_then_the_file_then_what_is_built_in() {
    let scene = Scene::new("levels").await;
    scene.define(&versions()).await;
    let (none, some, all) = (&scene.team, &scene.another("some").await, &scene.another("all").await);
    some.configure("config", deadline("3s")).await;
    let data = json!({"upgradeStrategy": "no-strategy", "strategy": "assessment: {deadline: 3s, window: 1s}"});
    all.configure("config", data).await;
    let file = Mounted::new("logLevel: INFO\nstrategy:\n  type: pause-and-drain\n  assessment: {deadline: 4s}\n");
    let operator = scene
        .operator_with(|settings| {
            built_in(settings, LONG);
            settings.config = Some(file.path());
        })
        .await;
    let spec = json!({"controller": {"version": "1.3.3"}, "strategy": {"assessment": {"deadline": "2s"}}});
    none.install("numaflow", "1.3.3").await;
    some.install("numaflow", "1.3.3").await;
    all.install_with("numaflow", spec).await;
    let paused = &[("pause-and-drain", "PipelinePauseAndDrain")][..];
    for (team, deadline, strategies) in
        [(none, "4s", paused), (some, "3s", paused), (all, "2s", &[("no-strategy", "DirectApply")])]
    {
        team.deployed("numaflow", "1.3.3").await;
        let attempts = Attempts::of(team).await;
        team.set_version("numaflow", "2.0.0").await;
        team.failed("numaflow", &[&format!("within {deadline}:")]).await;
        attempts.were(strategies);
    }
    // What the rollout says itself it says for itself alone, and what it says no more it falls back to.
    all.edit::<NumaflowControllerRollout>("numaflow", json!({"spec": {"strategy": null}})).await;
    all.failed("numaflow", &["within 3s:"]).await;
    all.edit::<NumaflowControllerRollout>("numaflow", json!({"spec": {"strategy": {"type": "progressive"}}})).await;
    all.judged("progressive").await;
    invalid(&operator, "file", 0).await;
    invalid(&operator, "namespace", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_edit_of_a_namespace_keeps_what_was_good_and_what_is_removed_is_gone_at_once() {
    let scene = Scene::new("broken").await;
    let team = &scene.team;
    scene.define(&versions()).await;
    team.configure("config", deadline("2s")).await;
    let operator = scene.operator_with(|s| built_in(s, Duration::from_secs(3))).await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    team.set_version("numaflow", "2.0.0").await;
    team.failed("numaflow", &["within 2s:"]).await;

    team.configure("config", deadline("soon")).await;
    let wrong = "key \"strategy\", line 1: assessment.deadline: \"soon\" is not a duration";
    team.event("ConfigMap", "config", &["ConfigInvalid", wrong, "what it said before stays in use"]).await;
    invalid(&operator, "namespace", 1).await;
    team.fails_again("with a broken edit", "2s").await;

    // Once it is removed, nothing of it holds; and a new one that is broken from the start says nothing.
    team.delete::<ConfigMap>("config").await;
    invalid(&operator, "namespace", 0).await;
    team.fails_again("without", "3s").await;
    team.configure("config", json!({"upgradeStrategy": "canary"})).await;
    let wrong = "key \"upgradeStrategy\": \"canary\" is not a strategy; use progressive";
    team.event("ConfigMap", "config", &["ConfigInvalid", wrong, "nothing of it is in use"]).await;
    invalid(&operator, "namespace", 1).await;
    team.fails_again("broken from the start", "3s").await;

    // Of two the first by name counts, and the other one is told.
    team.configure("config", deadline("1s")).await;
    invalid(&operator, "namespace", 0).await;
    team.configure("more", deadline("4s")).await;
    team.event("ConfigMap", "more", &["ConfigInvalid", "/config has the label namespace-level-config too"]).await;
    invalid(&operator, "namespace", 1).await;
    team.fails_again("with two", "1s").await;
    // One that loses its label is none any more.
    let label = json!({"metadata": {"labels": {"numaplane.numaproj.io/config": null}}});
    team.edit::<ConfigMap>("config", label).await;
    invalid(&operator, "namespace", 0).await;
    team.fails_again("with the other", "4s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_level_config_map_in_the_operators_own_namespace_is_ignored() {
    let scene = Scene::new("own-config").await;
    let team = &scene.system;
    scene.define(&versions()).await;
    team.configure("config", deadline("1s")).await;
    team.configure("broken", json!({"upgradeStrategy": "canary"})).await;
    let operator = scene
        .operator_with(|settings| {
            built_in(settings, Duration::from_secs(3));
            settings.namespaces.insert(team.namespace.clone());
        })
        .await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    team.set_version("numaflow", "2.0.0").await;
    team.failed("numaflow", &["within 3s:"]).await;
    invalid(&operator, "namespace", 0).await;
    let events = team.all::<Event>().await;
    assert!(events.iter().all(|e| e.reason.as_deref() != Some("ConfigInvalid")), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_read_again_when_its_folder_is_swapped_and_a_broken_edit_keeps_what_was_good() {
    let scene = Scene::new("reload").await;
    let team = &scene.team;
    scene.define(&versions()).await;
    let mut file = Mounted::new("defaultUpgradeStrategy: no-strategy\nstrategy: {assessment: {deadline: 30m}}\n");
    let operator = scene
        .operator_with(|settings| {
            built_in(settings, Duration::from_secs(3));
            settings.config = Some(file.path());
        })
        .await;
    team.install("numaflow", "1.3.3").await;
    team.deployed("numaflow", "1.3.3").await;
    let attempts = Attempts::of(team).await;
    team.set_version("numaflow", "2.0.0").await;
    team.judged("no-strategy").await;
    file.set("defaultUpgradeStrategy: pause-and-drain\nstrategy: {assessment: {deadline: 2s}}\n");
    team.failed("numaflow", &["within 2s:"]).await;
    attempts.were(&[("no-strategy", "DirectApply")]);

    // A file that is gone is no answer: what it said holds on.
    fs::remove_file(file.path()).unwrap();
    invalid(&operator, "file", 1).await;
    team.fails_again("without the file", "2s").await;
    attempts.were(&[("no-strategy", "DirectApply"), ("pause-and-drain", "PipelinePauseAndDrain")]);
    file.link();
    invalid(&operator, "file", 0).await;

    file.set("defaultUpgradeStrategy: no-strategy\nstrategy: {assessment: {dedline: 1s}}\n");
    invalid(&operator, "file", 1).await;
    team.fails_again("with a broken edit", "2s").await;
    attempts.were(&[("no-strategy", "DirectApply"), ("pause-and-drain", "PipelinePauseAndDrain")]);

    // What is taken out falls back to what is built in.
    file.set("defaultUpgradeStrategy: progressive\n");
    invalid(&operator, "file", 0).await;
    team.fails_again("without a deadline", "3s").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_cannot_be_used_at_the_start_ends_the_process_with_what_is_wrong() {
    let scene = Scene::new("no-start").await;
    let file = Mounted::new("strategy:\n  type: progresive\n");
    let run = async || {
        let (client, clock) = control_plane().operator(&Faults::default(), None).await;
        let settings = Settings { config: Some(file.path()), ..scene.settings() };
        let metrics = Arc::new(Metrics::new().unwrap());
        Operator::run(client, clock, settings, metrics, CancellationToken::new()).await.unwrap_err()
    };
    let place = format!("config file {}", file.path().display());
    assert_eq!(
        run().await,
        format!(
            "{place}, key \"strategy\", line 2: type: \"progresive\" is not a strategy; use progressive, \
             pause-and-drain or no-strategy"
        )
    );
    fs::remove_file(file.path()).unwrap();
    assert_eq!(run().await, format!("{place} cannot be read: No such file or directory (os error 2)"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_the_rules_of_a_kind_is_told_on_the_config_map_and_only_in_the_operators_namespace() {
    let scene = Scene::new("changes").await;
    let broken = json!({"monovertex": "dataLoss:\n- path: spec.vertices.source.kafka\n", "pipeline": "recreate: []\n"});
    scene.team.say("usde-config", "changes", broken.clone()).await;
    scene.system.say("usde-config", "changes", json!({"pipeline": "dataLoss: [{path: spec.edges}]"})).await;
    let operator = scene.operator().await;
    invalid(&operator, "changes", 0).await;

    scene.system.say("usde-config", "changes", broken.clone()).await;
    let wrong = "key \"monovertex\", line 2: path \"spec.vertices.source.kafka\" is a field of Pipeline";
    scene.system.event("ConfigMap", "changes", &["ConfigInvalid", wrong, "or else what is built in"]).await;
    invalid(&operator, "changes", 1).await;
    scene.system.say("usde-config", "more", json!({"pipeline": ""})).await;
    scene.system.event("ConfigMap", "more", &["ConfigInvalid", "/changes has the label usde-config too"]).await;
    invalid(&operator, "changes", 2).await;
    scene.system.delete::<ConfigMap>("changes").await;
    invalid(&operator, "changes", 0).await;
    let events = scene.team.all::<Event>().await;
    assert!(events.iter().all(|e| e.reason.as_deref() != Some("ConfigInvalid")), "{events:?}");
}
