//! A controller and an ISB service that are changed at the same time, in every order: pipelines are paused once for both, and
//! run again when nobody needs them paused any more.

use futures::{StreamExt, stream};
use serde_json::{Value, json};

use crate::support::{
    Version, eventually,
    faults::{Faults, Write},
    numaflow,
    operator::Running,
    requesters::{BAD, By, Requester, SLOW, SLOW_TOO, View, all_versions},
    rollouts::Stage,
};

/// Stages at the same time.
const AT_ONCE: usize = 2;

/// A stage on which both may ask for pauses.
struct Both {
    stage: Stage,
    faults: Faults,
    first: Requester,
    second: Requester,
    _operator: Running,
}

impl Both {
    /// With a pipeline for each of these names; the second one is of the other sort.
    async fn new(name: &str, first: By, pipelines: &[(&str, Value)]) -> Self {
        let stage = Stage::bare(&format!("{name}-{first}")).await;
        // What proves itself beside the old one comes too late to overlap with anything.
        stage.scene.define(&all_versions(Version::not_isolated)).await;
        let faults = Faults::default();
        let operator = stage.scene.operator_behind(&faults).await;
        stage.furnish_for(By::Isb).await;
        stage.with(pipelines).await;
        let second = if first == By::Controller { By::Isb } else { By::Controller };
        let [first, second] = [first, second].map(|by| Requester::of(&stage, by).defined());
        Self { stage, faults, first, second, _operator: operator }
    }

    /// The end: all of these run, nothing is paused, and nobody was resumed while somebody needed him paused.
    async fn rests(&self, pipelines: &[&str], flips: usize) {
        self.stage.all_run(pipelines).await;
        self.stage.at_rest().await;
        for requester in [&self.first, &self.second] {
            assert!(!requester.view().await.asks(), "{}", requester.key());
        }
        assert_eq!(self.stage.recorder.resumed_while_asked().await, Vec::<String>::new());
        for name in pipelines {
            let child = format!("{name}-0");
            assert_eq!(self.stage.recorder.flips(&child).len(), flips, "{}", self.stage.recorder.history(&child));
        }
    }
}

/// A write of what is in production for one of them.
fn production(by: By) -> impl Fn(&Write) -> bool {
    let path =
        if by == By::Controller { "/deployments/numaflow-controller" } else { "/interstepbufferservices/default-0" };
    move |write| write.path.ends_with(path)
}

/// Where the first one is when the second one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Drain,
    Applying,
    Confirm,
}

/// The second one begins in this stage of the first: once it ends before the first, and once after it.
async fn overlaps(first: By, at: At) {
    let both = Both::new(
        &format!("overlap-{at:?}").to_lowercase(),
        first,
        &[("a", json!({})), ("b", json!({"drains-after": "3s"}))],
    )
    .await;
    let slow_at_first = if at == At::Confirm { SLOW_TOO } else { 2 };
    for (told, changes) in [(SLOW, 1), (slow_at_first, SLOW)].into_iter().enumerate() {
        one_overlap(&both, at, changes, told).await;
    }
}

async fn one_overlap(both: &Both, at: At, (of_first, of_second): (usize, usize), told: usize) {
    let (stage, first, second) = (&both.stage, &both.first, &both.second);
    let team = stage.team();
    let under_way = |v: &View| !v.stage_of(of_second).is_empty();
    match at {
        At::Drain => {
            first.change(of_first).await;
            first.reaches(of_first, "Drain").await;
            second.change(of_second).await;
            second.until("is under way", under_way).await;
        }
        At::Applying => {
            let held = both.faults.hold(production(first.by));
            first.change(of_first).await;
            let held = held.carried_out().await;
            assert_eq!(first.view().await.stage_of(of_first), first.by.applying());
            second.change(of_second).await;
            second.until("is under way", under_way).await;
            drop(held);
        }
        At::Confirm => {
            first.change(of_first).await;
            first.reaches(of_first, "Confirm").await;
            second.change(of_second).await;
            second.until("is under way", under_way).await;
        }
    }
    // And one of its own that goes in while it is paused for them.
    let image = format!("cat:{}", told + 2);
    team.set_image("a", &image).await;
    let ([drain, other], ended) = ends(first, of_first, second, of_second).await;
    println!("{} at {at:?} of {}: {ended} ended first", second.by, first.by);
    for drain in [drain, other] {
        assert_eq!(drain.drained, ["a-0", "b-0"], "{drain:?}");
    }
    both.rests(&["a", "b"], 2 * (told + 1)).await;
    assert_eq!(team.live_pipeline("a").await.data["spec"]["vertices"][1]["udf"]["container"]["image"], image);
}

/// Sees both through; gives what is on record of their drains, and who ended first.
async fn ends(
    first: &Requester,
    of_first: usize,
    second: &Requester,
    of_second: usize,
) -> ([numaplane::api::DrainProgress; 2], By) {
    let one = async { (first.done(of_first).await, std::time::Instant::now()) };
    let other = async { (second.done(of_second).await, std::time::Instant::now()) };
    let ((drain, at), (other, then)) = tokio::join!(one, other);
    ([drain, other], if at <= then { first.by } else { second.by })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isb_service_that_is_changed_while_pipelines_drain_for_a_controller_pauses_them_once() {
    overlaps(By::Controller, At::Drain).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_upgraded_while_pipelines_drain_for_an_isb_service_pauses_them_once() {
    overlaps(By::Isb, At::Drain).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isb_service_that_is_changed_while_a_controller_is_replaced_keeps_pipelines_paused() {
    overlaps(By::Controller, At::Applying).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_upgraded_while_an_isb_service_is_being_changed_keeps_pipelines_paused() {
    overlaps(By::Isb, At::Applying).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_isb_service_that_is_changed_while_a_controller_is_judged_keeps_pipelines_paused() {
    overlaps(By::Controller, At::Confirm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_is_upgraded_while_an_isb_service_is_judged_keeps_pipelines_paused() {
    overlaps(By::Isb, At::Confirm).await;
}

/// What becomes of one of them while the other goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Aborted,
    Forced,
    Deleted,
    Superseded,
    TakenBack,
    Failed,
}

/// Tells this fate of each of the two, as the first one and as the second one.
async fn while_the_other_goes_on(fate: Fate) {
    let stories =
        [By::Controller, By::Isb].into_iter().flat_map(|first| [true, false].map(|of_first| (first, of_first)));
    let stories = stories.map(|(first, of_first)| async move {
        if fate == Fate::Failed { failed(first, of_first).await } else { in_mid_drain(fate, first, of_first).await }
    });
    stream::iter(stories.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

/// Both drain, and wait for the same pipeline, when one of them comes to its end.
async fn in_mid_drain(fate: Fate, first: By, of_first: bool) {
    let name = format!("{fate:?}-{}", if of_first { "first" } else { "second" }).to_lowercase();
    let both = Both::new(&name, first, &[("a", json!({})), ("stuck", json!({"never-pauses": "true"}))]).await;
    let (stage, team) = (&both.stage, both.stage.team());
    let (one, other) = if of_first { (&both.first, &both.second) } else { (&both.second, &both.first) };
    for requester in [&both.first, &both.second] {
        requester.change(1).await;
        requester.draining(1, &["stuck-0"]).await;
    }
    let ends_with = match fate {
        Fate::Aborted => {
            one.set_ppnd(json!({"drainTimeout": "1s", "onDrainTimeout": "Abort"})).await;
            let view = one.failed(&["did not drain within 1s", "Pipeline/stuck-0"]).await;
            assert_eq!((view.wanted, view.has), (Some(1), Some(0)));
            None
        }
        Fate::Forced => {
            one.force("enough is enough").await;
            let drain = one.done(1).await;
            assert_eq!(drain.not_drained, ["stuck-0: ended by force"], "{drain:?}");
            Some(1)
        }
        Fate::Deleted => {
            one.delete().await;
            let awaits = |v: &View| !v.asks() && v.deleting().contains("Pipeline/a-0");
            one.until("waits for its pipelines", awaits).await;
            None
        }
        Fate::Superseded => {
            one.change(2).await;
            one.draining(2, &["stuck-0"]).await;
            Some(2)
        }
        Fate::TakenBack => {
            one.change(0).await;
            one.deployed(0).await;
            Some(0)
        }
        Fate::Failed => unreachable!("told otherwise"),
    };
    // The other one waits on, and nobody runs.
    other.draining(1, &["stuck-0"]).await;
    for name in ["a-0", "stuck-0"] {
        let state = stage.recorder.states(name).pop().unwrap();
        assert!(state.wants_pause(), "{name}: {state}");
    }
    team.turn_at_once("stuck", json!({"never-pauses": null})).await;
    assert_eq!(other.done(1).await.drained, ["a-0", "stuck-0"]);
    if let Some(n) = ends_with {
        one.deployed(n).await;
    }
    both.rests(&["a", "stuck"], 2).await;
    if fate == Fate::Deleted {
        assert!(one.found().await.is_some(), "it goes after its pipelines");
    }
}

/// One of them is not healthy with its change and takes it back, while the other one is judged.
async fn failed(first: By, of_first: bool) {
    let name = format!("failed-{}", if of_first { "first" } else { "second" });
    let both = Both::new(&name, first, &[("a", json!({})), ("b", json!({"drains-after": "3s"}))]).await;
    let (one, other) = if of_first { (&both.first, &both.second) } else { (&both.second, &both.first) };
    one.set_deadline(8).await;
    let (of_one, of_other) = (BAD, SLOW);
    if of_first {
        one.change(of_one).await;
        one.reaches(of_one, "Drain").await;
        other.change(of_other).await;
    } else {
        other.change(of_other).await;
        other.reaches(of_other, "Drain").await;
        one.change(of_one).await;
    }
    one.reaches(of_one, "Confirm").await;
    one.mend().await;
    let view = one.failed(&["not healthy within 8s"]).await;
    println!("{}: {}", one.key(), view.message);
    eventually("what was before is back", async || {
        let view = one.view().await;
        if view.has == Some(0) { Ok(()) } else { Err(format!("{view:?}")) }
    })
    .await;
    assert_eq!(other.done(of_other).await.drained, ["a-0", "b-0"]);
    both.rests(&["a", "b"], 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_gives_up_while_another_one_drains_leaves_pipelines_paused_for_that() {
    while_the_other_goes_on(Fate::Aborted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_forced_while_another_one_drains_resumes_no_pipeline() {
    while_the_other_goes_on(Fate::Forced).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn b10_one_that_is_deleted_while_another_one_drains_leaves_pipelines_paused_for_that() {
    while_the_other_goes_on(Fate::Deleted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d01_one_that_is_changed_again_while_another_one_drains_resumes_no_pipeline() {
    while_the_other_goes_on(Fate::Superseded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_taken_back_while_another_one_drains_resumes_no_pipeline() {
    while_the_other_goes_on(Fate::TakenBack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_not_healthy_and_rolled_back_while_another_one_is_judged_resumes_no_pipeline() {
    while_the_other_goes_on(Fate::Failed).await;
}

/// The ISB service is replaced by another one, to which pipelines move while a controller needs them paused.
async fn moves(first: By) {
    let pipelines = [("a", json!({})), ("b", json!({"drains-after": "6s"}))];
    let both = Both::new("overlap-moves", first, &pipelines).await;
    let (controller, isb) =
        if first == By::Controller { (&both.first, &both.second) } else { (&both.second, &both.first) };
    let another = json!({"jetstream": {"persistence": {"volumeSize": "2Gi"}}});
    let another = json!({"spec": {"interStepBufferService": {"spec": another}}});
    match first {
        By::Controller => {
            controller.change(SLOW).await;
            controller.reaches(SLOW, "Drain").await;
            isb.edit(another).await;
        }
        By::Isb => {
            isb.edit(another).await;
            isb.reaches(0, "Drain").await;
            controller.change(SLOW).await;
        }
    }
    let moved =
        isb.until("has another ISB service", |v| v.current && v.phase.as_str() == "Deployed" && v.under_way.is_none());
    println!("{}", moved.await.message);
    assert_eq!(isb.service_name().await, "default-1");
    // Whether the others saw them on the old service or on the new one, they were not left out.
    let drain = controller.done(SLOW).await;
    assert_eq!((drain.drained.len(), drain.not_drained.len()), (2, 0), "{drain:?}");
    both.stage.all_run(&["a", "b"]).await;
    both.stage.at_rest().await;
    assert_eq!(both.stage.recorder.resumed_while_asked().await, Vec::<String>::new());
    for name in ["a", "b"] {
        let live = both.stage.team().live_pipeline(name).await;
        assert_eq!(live.metadata.name, Some(format!("{name}-1")));
        assert_eq!(live.data["spec"]["interStepBufferServiceName"], "default-1");
        assert_eq!(live.data["spec"]["lifecycle"]["desiredPhase"], Value::Null);
    }
    eventually("the old ISB service is gone", async || {
        let old = numaflow::api(both.stage.team(), "InterStepBufferService").get_opt("default-0").await;
        old.map_err(|error| error.to_string())?.map_or(Ok(()), |old| Err(old.data["status"].to_string()))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelines_that_move_to_another_isb_service_while_a_controller_is_upgraded_run_when_both_are_done() {
    moves(By::Controller).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelines_that_drain_to_move_to_another_isb_service_are_paused_for_a_controller_as_well() {
    moves(By::Isb).await;
}
