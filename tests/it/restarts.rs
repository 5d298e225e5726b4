//! The operator dies while pipelines are paused, after any of its writes: the next one goes on with the same clock, and no
//! pipeline runs before its time.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde_json::json;

use crate::{
    crash::{Operator, Teller},
    support::{
        changes::{Change, Changes, OF_PIPELINES, first},
        drains::ROLLOUT,
        faults::{Faults, Write},
        pipelines::controller,
        production::handed_over,
        requesters::{By, Requester, told_for_both},
        rollouts::Stage,
    },
};

/// Namespaces in which stories are told at the same time.
const AT_ONCE: usize = 5;
/// Time for draining where pipelines never drain.
const TIMEOUT: Duration = Duration::from_secs(6);
/// Most that may pass beyond that until the next operator has seen it: less than the time-out, after which it would have begun
/// anew.
const SLACK: Duration = Duration::from_secs(5);

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Story {
    /// Another version of the controller, or of the ISB service, of two pipelines.
    Upgrade,
    /// Another image for one of two pipelines.
    Own,
    /// Another version, and a pipeline that does not drain in the time that there is.
    Late,
}

/// Two pipelines and one that asks for pauses, of which one story is told after the other.
struct Place {
    stage: Stage,
    requester: Requester,
    changes: Changes,
    /// Stories told so far.
    told: usize,
}

impl Place {
    async fn new(by: By, story: Story, number: usize) -> Self {
        let stage = Stage::bare(&format!("restart-{story:?}-{number}-{by}").to_lowercase()).await;
        let team = stage.team();
        // What proves itself first pauses nobody then.
        let versions = ["1.8.0", "1.8.1"].map(|version| controller(version).not_isolated());
        stage.scene.define(&versions).await;
        let operator = Operator::start(Teller::Tasks, &stage.scene, &Faults::default()).await;
        let requester = stage.furnish_for(by).await;
        let ppnd = json!({"drainTimeout": format!("{}s", TIMEOUT.as_secs()), "onDrainTimeout": "Proceed"});
        if story == Story::Late {
            requester.set_ppnd(ppnd).await;
            requester.deployed(0).await;
        }
        let knobs = if story == Story::Late { json!({"pending": "7"}) } else { json!({}) };
        team.pipeline("a", knobs).await;
        team.pipeline("b", json!({})).await;
        team.pipeline_runs("a").await;
        team.pipeline_runs("b").await;
        operator.stop().await;
        let changes = Changes::watch(team, &OF_PIPELINES).await;
        Self { stage, requester, changes, told: 0 }
    }

    /// Tells the story with an operator that dies after write number `crash`; returns how many writes the first one made.
    async fn tell(&mut self, story: Story, teller: Teller, crash: Option<usize>) -> usize {
        let after = self.changes.all().last().map_or(0, |c| c.at);
        let faults = Faults::default();
        if let Some(n) = crash {
            faults.crash_after(n);
        }
        let first = Operator::start(teller, &self.stage.scene, &faults).await;
        let told = self.told;
        let mut happens = std::pin::pin!(story.happens(&self.stage, &self.requester, told));
        let next = tokio::select! {
            () = faults.crashed() => {
                first.kill().await;
                let next = Operator::start(teller, &self.stage.scene, &Faults::default()).await;
                happens.await;
                next
            }
            () = &mut happens => first,
        };
        self.told += 1;
        self.stage.at_rest().await;
        self.stage.team().one_child(ROLLOUT).await;
        next.stop().await;
        story.holds(&self.requester, &self.changes.all(), after, crash).await;
        faults.writes().len()
    }
}

impl Story {
    /// What the user does, and waits for.
    async fn happens(self, stage: &Stage, requester: &Requester, told: usize) {
        let team = stage.team();
        match self {
            Self::Upgrade | Self::Late => {
                let n = usize::from(told.is_multiple_of(2));
                requester.change(n).await;
                requester.deployed(n).await;
            }
            Self::Own => {
                let image = format!("cat:{}", told + 2);
                team.set_image("a", &image).await;
                team.pipeline_until("a", &format!("has {image}"), |s| s.phase.as_str() == "Deployed").await;
                let live = team.live_pipeline("a").await;
                assert_eq!(live.data["spec"]["vertices"][1]["udf"]["container"]["image"], image);
            }
        }
        team.pipeline_runs("a").await;
        team.pipeline_runs("b").await;
    }

    /// Each paused pipeline was paused once, on one clock, and not asked to run before its time.
    async fn holds(self, requester: &Requester, all: &[Change], after: u64, crash: Option<usize>) {
        let by = requester.by;
        let version = requester.view().await.wanted.map(|n| by.version(n)).unwrap_or_default();
        let all: Vec<Change> = all.iter().filter(|c| c.at > after).cloned().collect();
        let paused: &[&str] = if self == Self::Own { &["a"] } else { &["a", "b"] };
        for name in ["a", "b"] {
            let child = format!("{name}-0");
            let of_it = |c: &Change| c.kind == "Pipeline" && c.name() == child;
            let mut phases: Vec<bool> = all.iter().filter(|c| of_it(c)).map(wants_pause).collect();
            phases.dedup();
            let phases: Vec<bool> = phases.into_iter().skip_while(|paused| !paused).collect();
            let expected: &[bool] = if paused.contains(&name) { &[true, false] } else { &[] };
            assert_eq!(phases, expected, "after write {crash:?}, {child} is to be paused");
            let of_rollout = |c: &Change| c.kind == "PipelineRollout" && c.name() == name;
            let since = texts(&all, of_rollout, "/status/pause/since");
            assert_eq!(since.len(), expected.len() / 2, "after write {crash:?}, {name} is paused since {since:?}");
            if !paused.contains(&name) {
                continue;
            }
            let asked = first(&all, after, "it is to pause", |c| of_it(c) && wants_pause(c)).at;
            let resumed = first(&all, asked, "it is to run", |c| of_it(c) && !wants_pause(c)).at;
            let may_run = if self == Self::Own { changed(&all) } else { may_run(by, &all, asked, version) };
            assert!(may_run < resumed, "after write {crash:?}, {child} runs at {resumed}, and may at {may_run}");
        }
        let asks = |c: &Change| c.kind == by.kind() && asks(c);
        let since = texts(&all, asks, "/status/pauseRequest/since");
        assert_eq!(since.len(), usize::from(self != Self::Own), "after write {crash:?}, asked since {since:?}");
        let cut = texts(&all, asks, "/status/pauseRequest/cutAt");
        assert_eq!(cut.len(), usize::from(self == Self::Late), "after write {crash:?}, cut at {cut:?}");
        if self == Self::Late {
            let time = |text: &str| text.parse::<Timestamp>().expect("a time");
            let (since, cut) = (time(&since[0]), time(&cut[0]));
            let drained = Duration::try_from(cut.duration_since(since)).expect("time goes on");
            println!("after write {crash:?}: cut after {drained:?}");
            assert!(drained >= TIMEOUT, "after write {crash:?}, cut after {drained:?}");
            assert!(drained <= TIMEOUT + SLACK, "after write {crash:?}, cut after {drained:?}: from the beginning");
        }
    }
}

fn wants_pause(c: &Change) -> bool {
    c.text("/spec/lifecycle/desiredPhase") == "Paused"
}

fn asks(c: &Change) -> bool {
    c.object["status"]["pauseRequest"]["active"] == true
}

/// When the pipeline got its new image.
fn changed(all: &[Change]) -> u64 {
    let image = |c: &Change| c.text("/spec/vertices/1/udf/container/image").to_owned();
    let pipelines: Vec<&Change> = all.iter().filter(|c| c.kind == "Pipeline" && c.name() == "a-0").collect();
    let last = image(pipelines.last().expect("it is there"));
    pipelines.iter().find(|c| image(c) == last).map_or(0, |c| c.at)
}

/// When production had changed and was at work again, and nobody asked for a pause any more.
fn may_run(by: By, all: &[Change], asked: u64, version: &str) -> u64 {
    let (_, works) = handed_over(by, all, 0, version);
    let ended = first(all, asked, "nobody asks", |c| c.kind == by.kind() && !asks(c));
    works.at.max(ended.at)
}

/// The different texts at a place in objects.
fn texts(all: &[Change], of: impl Fn(&Change) -> bool, place: &str) -> Vec<String> {
    let texts: BTreeSet<&str> = all.iter().filter(|c| of(c)).map(|c| c.text(place)).collect();
    texts.into_iter().filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

/// Tells a story with a death at each of the points that are chosen among its writes.
async fn walk(by: By, story: Story, teller: Teller, choose: impl Fn(usize) -> Vec<usize>) {
    let began = Instant::now();
    let mut place = Place::new(by, story, 0).await;
    let writes = place.tell(story, Teller::Tasks, None).await;
    let points = choose(writes);
    let told = began.elapsed();
    let places = AT_ONCE.min(points.len());
    let mut known = Some(place);
    let shares = (0..places).map(|n| {
        let (place, points) = (known.take(), points.iter().skip(n).step_by(places).copied().collect::<Vec<_>>());
        async move {
            let mut place = match place {
                Some(place) => place,
                None => Place::new(by, story, n).await,
            };
            for point in points {
                place.tell(story, teller, Some(point)).await;
            }
        }
    });
    stream::iter(shares.collect::<Vec<_>>()).buffer_unordered(places).collect::<Vec<_>>().await;
    println!(
        "{story:?} of {by}: {writes} writes, {teller:?} died after {points:?}; once told in {:.0} s, all in {:.0} s",
        told.as_secs_f32(),
        began.elapsed().as_secs_f32()
    );
}

/// So many points, spread over all writes.
fn spread(points: usize) -> impl Fn(usize) -> Vec<usize> {
    move |writes| (0..points).map(|n| 1 + n * (writes - 1) / (points - 1)).collect()
}

async fn an_upgrade_with_two_pipelines_survives_a_crash_after_any_write(by: By) {
    walk(by, Story::Upgrade, Teller::Tasks, |writes| (1..=writes).collect()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_a_pipeline_survives_a_crash_after_any_write() {
    walk(By::Controller, Story::Own, Teller::Tasks, |writes| (1..=writes).collect()).await;
}

async fn a_drain_that_takes_too_long_is_cut_at_the_same_time_after_a_crash(by: By) {
    walk(by, Story::Late, Teller::Tasks, spread(5)).await;
}

async fn the_program_killed_while_pipelines_are_paused_leaves_nothing_that_the_next_one_does_not_finish(by: By) {
    walk(by, Story::Upgrade, Teller::Program, spread(4)).await;
}

/// One upgrade, from its first write to its last. What the next program writes again as it is (the objects of a version, which
/// are all put in place anew) is a reason to kill it once.
async fn programs_that_are_killed_after_each_single_write_get_an_upgrade_done_all_the_same(by: By) {
    let began = Instant::now();
    let place = Place::new(by, Story::Upgrade, 8).await;
    let after = place.changes.all().last().map_or(0, |c| c.at);
    let mut happens = std::pin::pin!(Story::Upgrade.happens(&place.stage, &place.requester, 0));
    let killed: Arc<Mutex<Vec<Write>>> = Arc::default();
    let last = loop {
        let (faults, known) = (Faults::default(), killed.clone());
        faults.crash_on(move |write| {
            let mut known = known.lock().unwrap();
            let ours = write.about(".numaproj.io/");
            let kills = ours || !known.contains(write);
            if kills {
                known.push(write.clone());
            }
            kills
        });
        let program = Operator::start(Teller::Program, &place.stage.scene, &faults).await;
        tokio::select! {
            () = &mut happens => break program,
            () = faults.crashed() => program.kill().await,
        }
        let kills = killed.lock().unwrap().clone();
        assert!(kills.len() < 120, "it has no end: {kills:?}");
    };
    let writes: Vec<String> = killed
        .lock()
        .unwrap()
        .iter()
        .map(|write| format!("{} {}", write.method, write.path.rsplit('/').take(2).collect::<Vec<_>>().join(" of ")))
        .collect();
    // What is left to do after all runs again, if anything.
    last.kill().await;
    let operator = Operator::start(Teller::Tasks, &place.stage.scene, &Faults::default()).await;
    place.stage.at_rest().await;
    place.stage.team().one_child(ROLLOUT).await;
    operator.stop().await;
    println!("killed {} times in {:.0} s, after {writes:?}", writes.len(), began.elapsed().as_secs_f32());
    assert!(writes.len() >= 12, "{writes:?}");
    Story::Upgrade.holds(&place.requester, &place.changes.all(), after, None).await;
}

async fn an_operator_that_dies_every_other_second_of_a_drain_cuts_it_at_the_same_time(by: By) {
    let place = Place::new(by, Story::Late, 9).await;
    let after = place.changes.all().last().map_or(0, |c| c.at);
    let mut operator = Operator::start(Teller::Tasks, &place.stage.scene, &Faults::default()).await;
    let mut happens = std::pin::pin!(Story::Late.happens(&place.stage, &place.requester, 0));
    let mut deaths = 0;
    loop {
        tokio::select! {
            () = &mut happens => break,
            () = tokio::time::sleep(Duration::from_millis(1700)), if deaths < 6 => {
                operator.kill().await;
                operator = Operator::start(Teller::Tasks, &place.stage.scene, &Faults::default()).await;
                deaths += 1;
            }
        }
    }
    println!("{deaths} deaths");
    assert!(deaths >= 4, "{deaths} deaths");
    place.stage.at_rest().await;
    operator.stop().await;
    Story::Late.holds(&place.requester, &place.changes.all(), after, None).await;
}

told_for_both! {
    an_upgrade_with_two_pipelines_survives_a_crash_after_any_write,
    a_drain_that_takes_too_long_is_cut_at_the_same_time_after_a_crash,
    the_program_killed_while_pipelines_are_paused_leaves_nothing_that_the_next_one_does_not_finish,
    programs_that_are_killed_after_each_single_write_get_an_upgrade_done_all_the_same,
    an_operator_that_dies_every_other_second_of_a_drain_cuts_it_at_the_same_time,
}
