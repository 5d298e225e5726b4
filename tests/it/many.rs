//! Many pipelines in one namespace: what they cost when all are paused together, and when nothing happens.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use kube::ResourceExt;
use numaplane::api::PipelineRollout;
use serde_json::{Value, json};

use crate::support::{
    Team, audit,
    faults::Faults,
    numaflow,
    pipelines::{PTS, phase},
    program::Program,
    requesters::{By, Requester, View},
    rollouts::Stage,
    stays,
    wait::within,
};

/// Pipelines that are paused together.
const MANY: usize = 200;
/// Longest that may take until Numaflow has looked at all of them: it, the nodes and many other tests are on the same machine.
const LONGEST: Duration = Duration::from_mins(5);
/// Longest that the operator may take to write to all of them.
const AT_ONCE: Duration = Duration::from_secs(30);
/// The operator looks at everything this often while nothing happens.
const RESYNC: Duration = Duration::from_secs(20);

/// As small as a pipeline can be.
fn small() -> Value {
    json!({
        "interStepBufferServiceName": "default",
        "vertices": [
            {"name": "in", "scale": {"min": 1}, "source": {"generator": {"rpu": 5, "duration": "1s"}}},
            {"name": "out", "scale": {"min": 1}, "sink": {"log": {}}},
        ],
        "edges": [{"from": "in", "to": "out"}],
    })
}

/// Makes so many and waits until all run.
async fn make(team: &Team, count: usize) {
    let began = Instant::now();
    let made = stream::iter(0..count).map(|n| async move {
        team.pipeline_with(&format!("p{n}"), small(), json!({}), json!({})).await;
    });
    made.buffer_unordered(8).collect::<Vec<()>>().await;
    let created = began.elapsed();
    all_run(team, count).await;
    println!(
        "{count} pipelines: created in {:.1} s, all run after {:.1} s",
        created.as_secs_f32(),
        began.elapsed().as_secs_f32()
    );
}

/// Waits until all pipelines run and their rollouts say so.
async fn all_run(team: &Team, count: usize) {
    within(LONGEST, "all pipelines run", async || {
        let pipelines = numaflow::api(team, "Pipeline").list(&Default::default()).await.map_err(|e| e.to_string())?;
        let runs = pipelines.items.iter().filter(|p| {
            phase(p) == "Running"
                && p.data["status"]["observedGeneration"] == json!(p.metadata.generation)
                && !p.annotations().contains_key(PTS)
        });
        let runs = runs.count();
        let rollouts = team.all::<PipelineRollout>().await;
        let deployed = rollouts.iter().filter(|r| r.status.as_ref().is_some_and(|s| s.phase.as_str() == "Deployed"));
        let deployed = deployed.count();
        if (runs, deployed) == (count, count) { Ok(()) } else { Err(format!("{runs} run, {deployed} are deployed")) }
    })
    .await;
}

/// Requests by verb and kind.
fn table(requests: &[audit::Request]) -> String {
    let mut all: BTreeMap<String, usize> = BTreeMap::new();
    for request in requests.iter().filter(|r| r.verb != "watch") {
        *all.entry(format!("{} {}", request.verb, request.resource())).or_default() += 1;
    }
    all.into_iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_pipelines_pause_together_each_with_one_write_and_run_again_with_another() {
    let stage = Stage::bare("many").await;
    let program = Program::start(&stage.scene, &Faults::default()).await;
    stage.furnish_for(By::Isb).await;
    make(stage.team(), MANY).await;
    // One after the other: it is making the pipelines that takes long.
    for (told, by) in [By::Controller, By::Isb].into_iter().enumerate() {
        pause_together(&stage, &program, &Requester::of(&stage, by), told).await;
    }
    drop(program);
}

/// All pipelines pause for the next change; so many times they did before.
async fn pause_together(stage: &Stage, program: &Program, requester: &Requester, before: usize) {
    let team = stage.team();
    audit::settled(team, Duration::from_secs(2)).await;
    let (mark, busy, began) = (audit::mark(), program.busy(), Instant::now());
    requester.change(1).await;
    let reached = async |what: &'static str, is: &dyn Fn(&View) -> bool| {
        within(LONGEST, what, async || {
            let view = requester.view().await;
            if is(&view) { Ok(()) } else { Err(view.message) }
        })
        .await;
        began.elapsed()
    };
    let deployed = |view: &View| view.has == Some(1) && view.under_way.is_none();
    let before_that = |view: &View, stages: &[&str]| !deployed(view) && stages.contains(&view.stage_of(1));
    let asked = reached("asked", &|view| !before_that(view, &["", "Resolve", "Verify"])).await;
    let drained = reached("drained", &|view| !before_that(view, &["Drain"])).await;
    let deployed = reached("deployed", &deployed).await;
    all_run(team, MANY).await;
    let took = began.elapsed();
    stage.at_rest().await;
    audit::settled(team, Duration::from_secs(2)).await;
    let requests = audit::since(mark, &team.namespace);
    println!(
        "{MANY} pipelines, {}: asked after {:.1} s, all paused after {:.1} s, deployed after {:.1} s, all run after {:.1} s; \
         the operator was busy for {:.1} s; {}",
        requester.by,
        asked.as_secs_f32(),
        drained.as_secs_f32(),
        deployed.as_secs_f32(),
        took.as_secs_f32(),
        program.busy().saturating_sub(busy).as_secs_f32(),
        table(&requests)
    );
    // What the operator itself takes. The rest is Numaflow's, whose one worker looks at one pipeline after the other.
    let [pause, resume] = [true, false].map(|to_paused| spread(stage, to_paused));
    println!("from the first to the last write: {pause:.1?} for the pause, {resume:.1?} for the way back");
    assert!(pause < AT_ONCE && resume < AT_ONCE, "{pause:?}, {resume:?}");
    let mut writes: BTreeMap<&str, usize> = BTreeMap::new();
    for request in requests.iter().filter(|r| r.write() && r.resource() == "pipelines") {
        *writes.entry(request.name()).or_default() += 1;
    }
    assert_eq!(writes.len(), MANY);
    assert!(writes.values().all(|count| *count == 2), "{writes:?}");
    for name in stage.recorder.names() {
        assert_eq!(stage.recorder.flips(&name).len(), 2 * (before + 1), "{}", stage.recorder.history(&name));
    }
    let drain = requester.done(1).await;
    assert_eq!((drain.drained.len(), drain.not_drained.len(), drain.excused.len()), (MANY, 0, 0));
}

/// Time from the first to the last of the last flips of all pipelines in one direction.
fn spread(stage: &Stage, to_paused: bool) -> Duration {
    let flipped = |name: &String| {
        let states = stage.recorder.states(name);
        let mut pairs = states.iter().zip(states.iter().skip(1));
        pairs
            .rfind(|(before, after)| before.wants_pause() != to_paused && after.wants_pause() == to_paused)
            .map(|(_, s)| s.at)
    };
    let times: Vec<_> = stage.recorder.names().iter().filter_map(flipped).collect();
    let (first, last) = (times.iter().min().copied(), times.iter().max().copied());
    first.zip(last).and_then(|(first, last)| last.duration_since(first).try_into().ok()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_pipelines_at_rest_cost_no_write_and_no_look() {
    let stage = Stage::bare("rest-pipelines").await;
    let team = stage.team();
    let operator = stage.scene.operator_with(|s| s.resync = RESYNC).await;
    stage.furnish_for(By::Isb).await;
    make(team, 20).await;
    // Some of them have a pause behind them.
    for by in [By::Controller, By::Isb] {
        let requester = Requester::of(&stage, by);
        requester.change(1).await;
        requester.deployed(1).await;
        all_run(team, 20).await;
    }
    let mark = audit::settled(team, Duration::from_secs(5)).await;
    let (turns, began) = (operator.metrics.turns(), Instant::now());
    let mut seen = mark;
    stays("no write", Duration::from_mins(1), async || match audit::new_writes(&mut seen, &team.namespace) {
        writes if writes.is_empty() => Ok(()),
        writes => Err(writes.join("; ")),
    })
    .await;
    let requests: Vec<_> = audit::since(mark, &team.namespace).into_iter().filter(|r| r.verb != "watch").collect();
    // Looking takes time of its own, more of it the busier the server is.
    let (turns, time) = (operator.metrics.turns() - turns, began.elapsed());
    println!("20 pipelines at rest for a minute: {turns} turns by the clock, requests: {:?}", table(&requests));
    assert!(requests.is_empty(), "{}", table(&requests));
    // Twenty-two rollouts, each time.
    let most = 22 * (time.as_secs() / RESYNC.as_secs() + 1);
    assert!(turns <= most, "{turns} turns in {time:?}");
    stage.at_rest().await;
}
