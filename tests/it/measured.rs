//! Upgrades that go wrong, and one that does not, with a pipeline that is paused and drained for them: what becomes of the
//! pipeline, and how long it takes.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use numaplane::api::NumaflowControllerRollout;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{
    Team,
    changes::{Change, Changes, OF_PIPELINES, first},
    drains::ROLLOUT,
    eventually,
    faults::Faults,
    pipelines::{self, PTS, controller},
    production::handed_over,
    program::Program,
    requesters::{BAD, By, Requester, told_for_both},
    rollouts::{Stage, versions},
    stays,
};

/// Most that the operator may add to a pause besides what Numaflow and the new pods take.
const OVERHEAD: Duration = Duration::from_millis(500);

/// How long writes take meanwhile.
struct Pace {
    taken: Arc<Mutex<Vec<Duration>>>,
    task: JoinHandle<()>,
}

impl Pace {
    fn watch(team: &Team) -> Self {
        let (team, taken) = (team.clone(), Arc::new(Mutex::new(Vec::new())));
        let times = taken.clone();
        let task = tokio::spawn(async move {
            for n in 0_u32.. {
                let began = Instant::now();
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "pace"}, "data": {"n": n.to_string()}});
                let api = team.api::<ConfigMap>();
                api.patch("pace", &PatchParams::apply("tests").force(), &Patch::Apply(&body)).await.unwrap();
                times.lock().unwrap().push(began.elapsed());
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Self { taken, task }
    }

    fn median(&self) -> Duration {
        let mut all = self.taken.lock().unwrap().clone();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_default()
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stage {
    /// With a controller of version 1.8.0, an ISB service and one pipeline that runs.
    async fn with_one_pipeline(&self) {
        self.furnish().await;
        self.with(&[("p", json!({}))]).await;
    }

    /// The end of all these stories: the version runs, the pipeline runs and nothing of a pause is left.
    async fn ends_with(&self, version: &str, flips: usize) {
        self.team()
            .controller_until(&format!("runs {version:?}"), |r| {
                let status = r.status.clone().unwrap_or_default();
                status.upgrade.is_none() && status.promoted.is_some_and(|p| p.version == version)
            })
            .await;
        self.ends(&Requester::of(self, By::Controller), flips).await;
    }

    /// The end of those that are told of any requester.
    async fn ends_as(&self, requester: &Requester, n: usize, flips: usize) {
        requester.until(&format!("has {n}"), |v| v.under_way.is_none() && v.has == Some(n)).await;
        self.ends(requester, flips).await;
    }

    async fn ends(&self, requester: &Requester, flips: usize) {
        self.team().pipeline_runs("p").await;
        self.at_rest().await;
        assert!(!requester.view().await.asks(), "a pause is still asked for");
        assert_eq!(self.recorder.flips("p-0").len(), flips, "{}", self.recorder.history("p-0"));
    }
}

/// The Deployment of production and its pods: nobody has touched them while this stays the same.
async fn production(stage: &Stage) -> (Option<String>, Option<i64>, Vec<(String, String)>) {
    let deployment = stage.team().deployment(ROLLOUT).await;
    let mut pods = stage.team().pods().await;
    pods.retain(|(name, _)| name.starts_with(ROLLOUT) && !name.contains("-x-"));
    pods.sort();
    (deployment.uid(), deployment.metadata.generation, pods)
}

fn seconds(from: &Change, to: &Change) -> f64 {
    to.seen.duration_since(from.seen).as_secs_f64()
}

/// The times of one upgrade; returns what the operator added to the pause.
fn account(by: By, all: &[Change], after: u64, version: &str) -> f64 {
    let pipeline = |c: &Change| c.kind == "Pipeline" && c.name() == "p-0";
    let wants = |c: &Change| c.text("/spec/lifecycle/desiredPhase") == "Paused";
    let asked = first(all, after, "the pipeline is to pause", |c| pipeline(c) && wants(c));
    let says = first(all, asked.at, "the pipeline says that it is paused", |c| {
        pipeline(c)
            && c.text("/status/phase") == "Paused"
            && c.object["status"]["observedGeneration"] == c.object["metadata"]["generation"]
            && !c.object["metadata"]["annotations"][PTS].is_null()
    });
    let resumed = first(all, says.at, "the pipeline is to run", |c| pipeline(c) && !wants(c));
    let of_vertices = |c: &&Change| {
        c.kind == "Pod" && c.label("numaflow.numaproj.io/pipeline-name") == "p-0" && !c.name().contains("daemon")
    };
    let last_pod = all.iter().filter(of_vertices).rfind(|c| c.deleted && c.at < resumed.at).expect("its pods go");
    let settled = if last_pod.seen > says.seen { last_pod } else { says };
    let (changed, works) = handed_over(by, all, asked.at, version);
    let runs = first(all, resumed.at, "the pipeline runs", |c| {
        pipeline(c)
            && c.text("/status/phase") == "Running"
            && c.object["status"]["observedGeneration"] == c.object["metadata"]["generation"]
            && c.object["metadata"]["annotations"][PTS].is_null()
    });
    let (pause, numaflow, pod) = (seconds(asked, resumed), seconds(asked, settled), seconds(changed, works));
    let (first_half, second_half) = (seconds(settled, changed), seconds(works, resumed));
    println!(
        "{by} {version}: paused for {pause:.3} s; of it Numaflow {numaflow:.3} s (says so after {:.3} s, the last pod went \
         after {:.3} s), settled to changed {first_half:.3} s, changed to at work {pod:.3} s, at work to resumed \
         {second_half:.3} s; added by the operator {:.3} s; runs {:.3} s after that",
        seconds(asked, says),
        seconds(asked, last_pod),
        first_half + second_half,
        seconds(resumed, runs),
    );
    pause - numaflow - pod
}

/// Holds where no other story is told at the same time, and is left to such a run.
async fn undisturbed_a_good_upgrade_costs_a_pipeline_what_numaflow_and_the_new_pod_take_and_half_a_second(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "m4-ok", &[("p", json!({}))]).await;
    let team = stage.team();
    let changes = Changes::watch(team, &OF_PIPELINES).await;
    let pace = Pace::watch(team);
    let mut added = Vec::new();
    for n in [1, 2, 0] {
        let after = changes.all().last().map(|c| c.at).unwrap_or_default();
        let began = Instant::now();
        requester.change(n).await;
        let drain = requester.done(n).await;
        let deployed = began.elapsed();
        team.pipeline_runs("p").await;
        added.push(account(by, &changes.all(), after, by.version(n)));
        println!(
            "  deployed after {:.1} s, pipeline runs after {:.1} s",
            deployed.as_secs_f32(),
            began.elapsed().as_secs_f32()
        );
        assert_eq!(drain.drained, ["p-0"], "{drain:?}");
    }
    stage.ends_as(&requester, 0, 6).await;
    let mut sorted = added.clone();
    sorted.sort_by(f64::total_cmp);
    let (median, write) = (sorted[sorted.len() / 2], pace.median());
    println!("a write takes {write:.3?}; the operator added {median:.3} s: {added:.3?}");
    assert!(
        median <= OVERHEAD.as_secs_f64(),
        "the operator added {added:.3?} s to the pauses; a write takes {write:.3?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_not_defined_pauses_nothing_and_is_taken_with_a_pause_as_soon_as_it_is() {
    let stage = Stage::bare("m4-undefined").await;
    let team = stage.team();
    let _operator = stage.scene.operator().await;
    stage.with_one_pipeline().await;
    let before = production(&stage).await;
    let began = Instant::now();
    team.set_version(ROLLOUT, "9.9.9").await;
    team.failed(ROLLOUT, &["\"9.9.9\" is not defined", "1.8.0, 1.8.1, 1.8.2"]).await;
    println!("undefined: Failed after {:.1} s", began.elapsed().as_secs_f32());
    stays("the pipeline is not paused", Duration::from_secs(4), async || {
        let (flips, now) = (stage.recorder.flips("p-0").len(), production(&stage).await);
        if flips == 0 && now == before { Ok(()) } else { Err(format!("{flips} flips, {now:?}")) }
    })
    .await;
    let status = team.status(ROLLOUT).await;
    assert!(status.pause_request.is_none(), "{:?}", status.pause_request);

    let mut known = versions();
    known.push(controller("9.9.9"));
    let began = Instant::now();
    stage.scene.define(&known).await;
    let taken_up = team.controller_until("the version is taken up", |r| {
        r.status.as_ref().is_some_and(|s| s.upgrade.as_ref().is_some_and(|u| u.version == "9.9.9"))
    });
    taken_up.await;
    let taken_up = began.elapsed();
    assert!(taken_up < Duration::from_secs(3), "the definition was seen after {taken_up:?}");
    team.deployed(ROLLOUT, "9.9.9").await;
    println!(
        "defined later: taken up after {:.1} s, deployed after {:.1} s",
        taken_up.as_secs_f32(),
        began.elapsed().as_secs_f32()
    );
    stage.ends_with("9.9.9", 2).await;
    let drain = team.status(ROLLOUT).await.last_drain.expect("a drain is on record");
    assert_eq!(drain.drained, ["p-0"], "{drain:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_whose_deployment_has_another_name_pauses_for_no_longer_than_any_other() {
    let stage = Stage::bare("m4-name").await;
    let team = stage.team();
    let renamed = |version: &str| controller(version).controller(|w| w.named("my-controller"));
    stage.scene.define(&[controller("1.8.0"), renamed("1.8.1"), renamed("1.8.2")]).await;
    let _operator = stage.scene.operator().await;
    stage.with_one_pipeline().await;
    for (version, deployment, flips) in
        [("1.8.1", "my-controller", 2), ("1.8.2", "my-controller", 4), ("1.8.0", ROLLOUT, 6)]
    {
        let began = Instant::now();
        team.set_version(ROLLOUT, version).await;
        team.deployed(ROLLOUT, version).await;
        eventually("nothing else is left", async || {
            let all = team.deployments().await;
            if all == [deployment] { Ok(()) } else { Err(format!("{all:?}")) }
        })
        .await;
        stage.ends_with(version, flips).await;
        println!("{version} as Deployment/{deployment}: all well after {:.1} s", began.elapsed().as_secs_f32());
    }
}

async fn a_pipeline_that_nothing_manages_is_left_alone_and_holds_nothing_up(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "m4-plain", &[("p", json!({}))]).await;
    pipelines::running_on(stage.team(), "plain", &requester.service_name().await).await;
    let began = Instant::now();
    requester.change(1).await;
    let drain = requester.done(1).await;
    println!("with a plain pipeline: deployed after {:.1} s", began.elapsed().as_secs_f32());
    stage.ends_as(&requester, 1, 2).await;
    assert!(stage.recorder.flips("plain").is_empty(), "{}", stage.recorder.history("plain"));
    assert_eq!((drain.drained, drain.unmanaged), (vec!["p-0".to_owned()], vec!["plain".to_owned()]));
}

/// A strategy with this deadline.
fn patient(seconds: u32) -> serde_json::Value {
    json!({"spec": {"strategy": {"assessment": {"deadline": format!("{seconds}s")}}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_pod_that_is_never_ready_beside_the_old_one_pauses_nothing() {
    let stage = Stage::bare("m4-unready").await;
    let team = stage.team();
    let broken = controller("1.8.1").controller(|w| w.behaviour("never-ready"));
    stage.scene.define(&[controller("1.8.0"), broken]).await;
    let _operator = stage.scene.operator().await;
    stage.with_one_pipeline().await;
    team.edit::<NumaflowControllerRollout>(ROLLOUT, patient(3)).await;
    let before = production(&stage).await;
    let began = Instant::now();
    team.set_version(ROLLOUT, "1.8.1").await;
    team.failed(ROLLOUT, &["was not healthy within 3s"]).await;
    println!("never ready, beside the old one: Failed after {:.1} s (deadline 3 s)", began.elapsed().as_secs_f32());
    assert_eq!(production(&stage).await, before);
    stage.ends_with("1.8.0", 0).await;
    let began = Instant::now();
    team.set_version(ROLLOUT, "1.8.0").await;
    team.deployed(ROLLOUT, "1.8.0").await;
    println!("  set back by its user: Deployed after {:.1} s", began.elapsed().as_secs_f32());
    assert_eq!(production(&stage).await, before);
    stage.ends_with("1.8.0", 0).await;
}

async fn a_new_pod_that_is_never_ready_in_production_is_taken_back_and_pipelines_run(by: By) {
    let (stage, requester, _operator) = Stage::asked(by, "m4-back", &[("p", json!({}))]).await;
    let before = requester.production().await;
    requester.set_deadline(3).await;
    let changes = Changes::watch(stage.team(), &OF_PIPELINES).await;
    let began = Instant::now();
    requester.change(BAD).await;
    // What comes back is well, which is more than the change was.
    requester.reaches(BAD, "Confirm").await;
    requester.mend().await;
    let view = requester.failed(&["not healthy within 3s"]).await;
    let failed = began.elapsed();
    stage.ends_as(&requester, 0, 2).await;
    let runs = began.elapsed();
    let all = changes.all();
    let stages: Vec<(&str, f64)> = ["Drain", by.applying(), "Confirm", "RollBack"]
        .into_iter()
        .map(|stage| (stage, first(&all, 0, stage, |c| c.kind == by.kind() && c.stage() == stage)))
        .map(|(stage, change)| (stage, change.seen.duration_since(all[0].seen).as_secs_f64()))
        .collect();
    println!(
        "never ready, in production: Failed after {:.1} s, pipeline runs after {:.1} s (deadline 3 s); stages {stages:.1?}",
        failed.as_secs_f32(),
        runs.as_secs_f32(),
    );
    assert_eq!(requester.production().await.0, before.0, "nothing was made anew");
    let drain = view.last_drain.expect("a drain is on record");
    assert_eq!(drain.drained, ["p-0"], "{drain:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_defined_late_and_broken_and_given_up_by_its_user_pauses_nothing() {
    let stage = Stage::bare("m4-late").await;
    let team = stage.team();
    let _operator = stage.scene.operator().await;
    stage.with_one_pipeline().await;
    let before = production(&stage).await;
    team.set_version(ROLLOUT, "9.9.9").await;
    team.failed(ROLLOUT, &["\"9.9.9\" is not defined"]).await;
    let mut known = versions();
    known.push(controller("9.9.9").controller(|w| w.behaviour("never-ready")));
    stage.scene.define(&known).await;
    team.controller_until("the late version proves itself", |r| {
        let upgrade = r.status.as_ref().and_then(|s| s.upgrade.as_ref());
        upgrade.is_some_and(|u| u.version == "9.9.9" && u.stage == "Verify" && !u.isolated.is_empty())
    })
    .await;
    let began = Instant::now();
    team.set_version(ROLLOUT, "1.8.0").await;
    team.deployed(ROLLOUT, "1.8.0").await;
    println!("undefined, late, broken, set back: Deployed after {:.1} s", began.elapsed().as_secs_f32());
    assert_eq!(production(&stage).await, before);
    stage.ends_with("1.8.0", 0).await;
}

async fn the_program_ends_in_mid_drain_when_asked_to_and_the_next_one_goes_on_with_the_same_clock(by: By) {
    let stage = Stage::bare(&format!("m4-term-{by}")).await;
    let team = stage.team();
    let program = Program::start(&stage.scene, &Faults::default()).await;
    let requester = stage.furnish_for(by).await;
    stage.with(&[("p", json!({"drains-after": "12s"}))]).await;
    let began = Instant::now();
    requester.change(1).await;
    let pausing = team.pipeline_until("p", "pauses", |s| s.pause.as_ref().is_some_and(|p| p.state == "Pausing")).await;
    pipelines::until(team, "Pipeline", "p-0", "pausing", |p| pipelines::phase(p) == "Pausing").await;
    let request = requester.view().await.pause_request.expect("a request");
    assert!(request.active);
    let (status, took) = program.terminate().await;
    println!("SIGTERM in mid-drain: ended with {status} after {:.2} s", took.as_secs_f32());
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(5), "{took:?}");

    let next = Program::start(&stage.scene, &Faults::default()).await;
    let settled =
        team.pipeline_until("p", "is paused", |s| s.pause.as_ref().is_some_and(|p| p.state == "Paused")).await;
    let since = |s: &numaplane::api::PipelineRolloutStatus| s.pause.as_ref().and_then(|p| p.since.clone());
    assert_eq!(since(&settled), since(&pausing));
    let drain = requester.done(1).await;
    println!("  the next one has it deployed {:.1} s after the change", began.elapsed().as_secs_f32());
    stage.ends_as(&requester, 1, 2).await;
    assert_eq!((drain.since, drain.drained), (request.since, vec!["p-0".to_owned()]));
    next.kill();
}

told_for_both! {
    undisturbed_a_good_upgrade_costs_a_pipeline_what_numaflow_and_the_new_pod_take_and_half_a_second as undisturbed_a_good_change_costs_a_pipeline_what_numaflow_and_the_new_pods_take_and_half_a_second,
    a_pipeline_that_nothing_manages_is_left_alone_and_holds_nothing_up,
    a_new_pod_that_is_never_ready_in_production_is_taken_back_and_pipelines_run,
    the_program_ends_in_mid_drain_when_asked_to_and_the_next_one_goes_on_with_the_same_clock,
}
