//! The process dies right after any one of its writes: the next one ends the story as if nothing had happened.

use futures::{StreamExt, stream};
use kube::ResourceExt;
use numaplane::{
    api::{NumaflowController, NumaflowControllerRollout},
    settings::Settings,
};
use serde_json::json;

use crate::{
    recovery::one_promoted,
    support::{
        Invariant, Scene, Version, audit, eventually, faults::Faults, operator::Running, program::Program, state,
        version, workload,
    },
};

/// Stories that are told at the same time.
const AT_ONCE: usize = 6;

/// Kinds in the versions of this story.
const KINDS: &str = "ServiceAccount,ConfigMap,Service,Role.rbac.authorization.k8s.io,RoleBinding.rbac.authorization.k8s.io,\
                     Deployment.apps";

/// What is done.
#[derive(Clone, Copy, Debug)]
enum Story {
    Install,
    /// Verify and promotion.
    Upgrade,
    /// Another version while one proves itself.
    Supersede,
    RollBack,
    Delete,
}

/// One version, one that drops an object, brings one and has a Deployment made anew, and two that do the same and do not
/// come up: in production, and in isolation.
fn versions() -> [Version; 4] {
    let service = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            // Without an address of its own, which would be another one each time.
            "spec": {"clusterIP": "None", "ports": [{"port": 8443}], "selector": {"a": "b"}},
        })
    };
    let next = |name: &str| version(name).controller(|w| w.selected_by("generation", "two")).object(service("new"));
    [
        version("1.3.3").object(service("old")).and(workload("server")),
        next("1.4.0"),
        next("2.0.0").not_isolated().controller(|w| w.behaviour("never-ready")),
        next("2.1.0").controller(|w| w.behaviour("never-ready")),
    ]
}

/// Who tells a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teller {
    /// An operator in this process; it dies when its tasks are dropped.
    Tasks,
    /// The program; it dies of `kill -9`.
    Program,
}

/// An operator of either sort.
pub(crate) enum Operator {
    Tasks(Running),
    Program(Program),
}

impl Operator {
    pub(crate) async fn start(teller: Teller, scene: &Scene, faults: &Faults) -> Self {
        match teller {
            Teller::Program => Self::Program(Program::start(scene, faults).await),
            Teller::Tasks => {
                let mut settings = scene.settings();
                sparing(&mut settings);
                Self::Tasks(Running::start(settings, faults.clone(), None).await)
            }
        }
    }

    pub(crate) async fn kill(self) {
        match self {
            Self::Tasks(running) => running.kill().await,
            Self::Program(program) => program.kill(),
        }
    }

    pub(crate) async fn stop(self) {
        match self {
            Self::Tasks(running) => running.stop().await,
            Self::Program(program) => program.kill(),
        }
    }
}

/// What need not be watched costs nothing: there are many of these stories.
fn sparing(settings: &mut Settings) {
    settings.permitted = KINDS.parse().expect("kinds with their groups");
}

impl Story {
    /// Tells the story with a process that dies after write number `crash`; returns how many writes it made, and what
    /// there is in the end.
    async fn tell(self, teller: Teller, crash: Option<usize>, expected: Option<&str>) -> (usize, String) {
        let name = format!("crash-{self:?}-{}", crash.unwrap_or_default()).to_lowercase();
        let scene = Scene::new(&name).await;
        let team = &scene.team;
        scene.define(&versions()).await;
        if !matches!(self, Self::Install) {
            let operator = scene.operator_with(sparing).await;
            Self::Install.happens(&scene).await;
            settled(&scene).await;
            operator.stop().await;
        }
        let mark = audit::mark();
        let never_two = Invariant::watch("never two promoted children", team.api(), one_promoted).await;
        let faults = Faults::default();
        if let Some(n) = crash {
            faults.crash_after(n);
        }
        let first = Operator::start(teller, &scene, &faults).await;
        let mut story = std::pin::pin!(async {
            self.happens(&scene).await;
            let Some(expected) = expected else {
                settled(&scene).await;
                return self.end(&scene).await;
            };
            eventually(&format!("the crash after write {crash:?} changed nothing in the end"), async || {
                let end = self.end(&scene).await;
                if end == expected { Ok(end) } else { Err(difference(expected, &end)) }
            })
            .await
        });
        let (next, end) = tokio::select! {
            () = faults.crashed() => {
                first.kill().await;
                let next = Operator::start(teller, &scene, &Faults::default()).await;
                (next, story.await)
            }
            end = &mut story => (first, end),
        };
        next.stop().await;
        never_two.held();
        let made_anew = audit::since(mark, &team.namespace)
            .iter()
            .filter(|r| r.verb == "delete" && r.resource() == "deployments" && r.name() == "numaflow-controller")
            .filter(|r| r.code() == 200)
            .count();
        let most = if matches!(self, Self::RollBack) { 2 } else { 1 };
        assert!(made_anew <= most, "after write {crash:?} the Deployment was taken away {made_anew} times");
        (faults.writes().len(), end)
    }

    /// What the user does, and waits for.
    async fn happens(self, scene: &Scene) {
        let team = &scene.team;
        match self {
            Self::Install => {
                team.install("numaflow", "1.3.3").await;
                team.deployed("numaflow", "1.3.3").await;
            }
            Self::Upgrade => {
                team.set_version("numaflow", "1.4.0").await;
                team.deployed("numaflow", "1.4.0").await;
            }
            Self::Supersede => {
                team.set_version("numaflow", "2.1.0").await;
                let proves = |r: &NumaflowControllerRollout| {
                    let upgrade = r.status.as_ref().and_then(|s| s.upgrade.as_ref());
                    upgrade.is_some_and(|u| u.stage == "Verify" && !u.isolated.is_empty())
                };
                team.until("numaflow", "proves itself", proves).await;
                team.set_version("numaflow", "1.4.0").await;
                team.deployed("numaflow", "1.4.0").await;
            }
            Self::RollBack => {
                team.set_version("numaflow", "2.0.0").await;
                let judged = |r: &NumaflowControllerRollout| {
                    r.status.as_ref().and_then(|s| s.upgrade.as_ref()).is_some_and(|u| u.stage == "Confirm")
                };
                team.until("numaflow", "is being judged", judged).await;
                // Nothing that could be attempted: all that can be done about 2.0.0 is to take it back.
                team.set_version("numaflow", "9.9.9").await;
                team.failed("numaflow", &["\"9.9.9\" is not defined"]).await;
            }
            Self::Delete => {
                team.delete::<NumaflowControllerRollout>("numaflow").await;
                team.gone::<NumaflowControllerRollout>("numaflow").await;
            }
        }
    }

    async fn end(self, scene: &Scene) -> String {
        match self {
            Self::Delete => {
                let children = scene.team.all::<NumaflowController>().await;
                let objects = state::objects(&scene.team).await;
                let left = (objects, children.iter().map(ResourceExt::name_any).collect::<Vec<_>>());
                serde_json::to_string_pretty(&left).expect("what is left is JSON")
            }
            _ => state::of(&scene.team, "numaflow").await,
        }
    }
}

/// Waits until the one child says that it is deployed, or went with the rollout.
async fn settled(scene: &Scene) {
    let team = &scene.team;
    eventually("one child that is Deployed, or none without the rollout", async || {
        let there = team.find::<NumaflowControllerRollout>("numaflow").await.is_some();
        let children = team.all::<NumaflowController>().await;
        let phase = |c: &NumaflowController| {
            let status = c.status.clone().unwrap_or_default();
            if status.isolated.is_some() { "with a copy".to_owned() } else { status.phase.as_str().to_owned() }
        };
        let phases: Vec<_> = children.iter().map(phase).collect();
        let wanted = if there { vec!["Deployed"] } else { vec![] };
        if phases == wanted { Ok(()) } else { Err(format!("{phases:?}")) }
    })
    .await;
}

/// Lines of two texts that differ.
fn difference(expected: &str, found: &str) -> String {
    let only = |of: &str, other: &str, sign: &str| {
        let lines: Vec<&str> = other.lines().collect();
        of.lines().filter(|line| !lines.contains(line)).map(|line| format!("{sign} {line}\n")).collect::<String>()
    };
    format!("\n{}{}", only(expected, found, "-"), only(found, expected, "+"))
}

async fn crash_after_every_write(story: Story) {
    let (writes, expected) = story.tell(Teller::Tasks, None, None).await;
    println!("{story:?}: {writes} writes");
    assert!(writes > 3, "{writes} writes");
    let expected = &expected;
    let numbers = stream::iter(1..=writes);
    numbers
        .map(|n| story.tell(Teller::Tasks, Some(n), Some(expected)))
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_survives_a_crash_after_any_write() {
    crash_after_every_write(Story::Install).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_survives_a_crash_after_any_write() {
    crash_after_every_write(Story::Upgrade).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_version_in_the_middle_of_an_assessment_survives_a_crash_after_any_write() {
    crash_after_every_write(Story::Supersede).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_roll_back_survives_a_crash_after_any_write() {
    crash_after_every_write(Story::RollBack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_survives_a_crash_after_any_write() {
    crash_after_every_write(Story::Delete).await;
}

/// The program is killed at so many points, spread over the whole of a story.
async fn killed(story: Story, points: usize) {
    let (writes, expected) = story.tell(Teller::Program, None, None).await;
    let expected = &expected;
    let at: Vec<usize> = (0..points).map(|n| 1 + n * (writes - 1) / points.max(2).saturating_sub(1)).collect();
    println!("{story:?}: {writes} writes, killed after {at:?}");
    let stories =
        stream::iter(at.into_iter().map(|n| story.tell(Teller::Program, Some(n.min(writes)), Some(expected))));
    stories.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_killed_in_an_upgrade_leaves_nothing_that_the_next_one_does_not_finish() {
    killed(Story::Upgrade, 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_killed_while_one_version_gives_way_to_another_leaves_nothing_unfinished() {
    killed(Story::Supersede, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_killed_in_a_roll_back_leaves_nothing_unfinished() {
    killed(Story::RollBack, 2).await;
}
