//! The drain as a requester of any kind sees it: from the first request to the last record.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::{
    Asking, Beginning, Ending, InStatus, PipelineSeen, Scope, closed, condition, force, not_drained, request::wait,
    standing,
};
use crate::api::{
    ANNOTATION_FORCE, DrainProgress, LastForce, OnDrainTimeout, PauseAnswer, PauseRequest, PauseStatus, Wait, answer,
};

const BY: &str = "ISBServiceRollout/isb";
const ATTEMPT: &str = "isb-3";

/// What of a status is written.
#[derive(Default)]
struct Status {
    request: Option<PauseRequest>,
    times: Option<PauseStatus>,
    last_force: Option<LastForce>,
    seconds: i64,
}

impl Status {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(500_000) + SignedDuration::from_secs(self.seconds)
    }

    /// Lets a drain write, and stores what it has written: times are whole seconds then.
    fn write<T>(&mut self, write: impl FnOnce(&mut InStatus<'_>) -> T) -> T {
        let now = self.now();
        let (request, times, last_force) = (&mut self.request, &mut self.times, &mut self.last_force);
        let came_of_it = write(&mut InStatus { request, times, last_force, now });
        self.request = serde_json::from_value(serde_json::to_value(&self.request).unwrap()).unwrap();
        came_of_it
    }

    /// What comes of the drain now, in a stage that began then.
    fn ending(&mut self, asking: &Asking<'_>, stage_started_at: Option<&Time>) -> Ending {
        self.write(|status| asking.ending(stage_started_at, status))
    }
}

/// A pipeline on the ISB service `default` that answers so to the attempt; to nobody where that is empty.
fn pipeline(name: &str, says: &str, drained: Option<bool>) -> PipelineSeen {
    let by_it =
        PauseAnswer { by: BY.into(), attempt: ATTEMPT.into(), answer: says.into(), drained, why: String::new() };
    PipelineSeen {
        name: name.into(),
        isb: "default".into(),
        rollout: Some(name.into()),
        answers: if says.is_empty() { Vec::new() } else { vec![by_it] },
        ..PipelineSeen::default()
    }
}

fn asking(pipelines: &[PipelineSeen]) -> Asking<'_> {
    Asking {
        by: BY.into(),
        attempt: ATTEMPT.into(),
        what: "the drain for a change".into(),
        scope: Scope::Isb(vec!["default".into(), "isb-2".into()]),
        pipelines,
        unlisted: false,
        timeout: Some(Duration::from_secs(100)),
        on_timeout: OnDrainTimeout::Proceed,
        force: None,
        gone: None,
    }
}

/// Asks, and lets so many seconds pass.
fn asked(asking: &Asking<'_>, seconds: i64) -> Status {
    let mut status = Status::default();
    assert!(matches!(status.write(|s| asking.begin(false, s)), Beginning::Asked(..)));
    status.seconds = seconds;
    status
}

fn over(ending: Ending) -> DrainProgress {
    match ending {
        Ending::Over(drain) => drain,
        other => panic!("{other:?}"),
    }
}

#[test]
fn those_of_the_scope_that_stay_are_meant_by_name() {
    let mut all: Vec<PipelineSeen> = ["d", "c", "b", "a"].map(|name| pipeline(name, "", None)).into();
    (all[0].isb, all[1].isb, all[2].deleting) = ("isb-2".into(), "another".into(), true);
    let names = |asking: Asking<'_>| asking.meant().iter().map(|p| p.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(asking(&all)), ["a", "d"]);
    all[3].instance = "blue".into();
    assert_eq!(names(Asking { scope: Scope::Instance("blue".into()), ..asking(&all) }), ["a"]);
    assert_eq!(names(Asking { scope: Scope::Instance(String::new()), ..asking(&all) }), ["c", "d"]);
}

#[test]
fn each_answer_has_its_place_in_the_record() {
    let mut all = vec![
        pipeline("a", answer::PAUSED, Some(true)),
        pipeline("b", answer::PAUSED, Some(false)),
        pipeline("c", answer::FORCED, None),
        pipeline("d", answer::EXCUSED, None),
        pipeline("e", answer::PAUSING, None),
        pipeline("f", answer::PAUSED, Some(true)),
        pipeline("g", answer::PAUSED, Some(true)),
    ];
    all[3].answers[0].why = "it has failed".into();
    all[5].answers[0].attempt = "isb-2".into();
    all[6].rollout = None;
    let seen = asking(&all).answers();
    assert_eq!((seen.managed, seen.settled()), (6, false));
    let drain = seen.record(None, None);
    assert_eq!((drain.drained, drain.excused), (vec!["a".to_owned()], vec!["d: it has failed".to_owned()]));
    assert_eq!(drain.not_drained, ["b: it paused with messages left", "c: its user does not want to wait"]);
    assert_eq!((drain.waiting_for, drain.unmanaged), (vec!["e".to_owned(), "f".into()], vec!["g".to_owned()]));
    assert_eq!(seen.names(None), "Pipeline/e (Pausing), Pipeline/f (no answer yet)");
}

#[test]
fn a_drain_begins_unless_something_says_that_it_need_not() {
    let all = [pipeline("a", "", None)];
    let begun = |asking: Asking<'_>, held| {
        let mut status = Status::default();
        let beginning = status.write(|s| asking.begin(held, s));
        assert_eq!(matches!(beginning, Beginning::Asked(..)), status.request.is_some(), "{beginning:?}");
        (beginning, status.last_force)
    };
    let left_out = |asking: Asking<'_>| match begun(asking, false) {
        (Beginning::LeftOut(drain), used) => (drain.ended, drain.not_drained, used.map(|f| f.ended)),
        other => panic!("{other:?}"),
    };
    assert!(matches!(begun(asking(&all), false).0, Beginning::Asked(drain, _) if drain.waiting_for == ["a"]));
    assert!(matches!(begun(asking(&all), true), (Beginning::Held, None)));
    let (ended, lost, _) = left_out(Asking { timeout: Some(Duration::ZERO), ..asking(&all) });
    assert_eq!(ended, "spec.strategy.ppnd.drainTimeout is 0s: nothing was paused");
    assert_eq!(lost, ["a: nothing was paused"]);
    assert_eq!(left_out(asking(&[])), (String::new(), Vec::new(), None));
    assert!(matches!(begun(Asking { unlisted: true, ..asking(&[]) }, false).0, Beginning::Asked(..)));
    let (ended, lost, _) = left_out(Asking { gone: Some("it is gone".into()), ..asking(&all) });
    assert_eq!((ended.as_str(), lost), ("it is gone: nothing was paused", vec!["a: its controller is gone".into()]));
    let forced = Asking { force: Some("now".into()), ..asking(&all) };
    assert!(matches!(begun(forced.clone(), true), (Beginning::Held, None)), "held back, it is not used up");
    let (ended, lost, used) = left_out(forced);
    assert_eq!((ended.as_str(), lost), ("ended by force: now", vec!["a: ended by force".into()]));
    assert_eq!(used.as_deref(), Some("the drain for a change, before it began"));
}

#[test]
fn it_is_over_when_nobody_is_waited_for() {
    let all = [pipeline("a", answer::PAUSED, Some(true)), pipeline("b", answer::PAUSED, Some(true))];
    let mut status = asked(&asking(&all), 7);
    let unlisted = Asking { unlisted: true, ..asking(&all) };
    let Ending::Waiting { words, .. } = status.ending(&unlisted, None) else { panic!("over") };
    assert!(words.contains("for 0 of 2 pipelines to drain: Pipelines, which cannot be listed"), "{words}");
    let drain = over(status.ending(&asking(&all), None));
    assert_eq!((drain.drained.len(), drain.ended.as_str()), (2, ""));
    assert_eq!(drain.since, standing(status.request.as_ref(), ATTEMPT).unwrap().since);
    assert_eq!(status.times.as_ref().unwrap().last_pause_phase_change_time, Some(Time(status.now())));
}

#[test]
fn it_ends_at_once_by_force_and_where_the_controller_is_gone() {
    let all = [pipeline("a", answer::PAUSING, None)];
    let mut status = asked(&asking(&all), 7);
    let gone = Asking { gone: Some("it is gone".into()), ..asking(&all) };
    let drain = over(status.ending(&gone, None));
    assert_eq!(
        (drain.ended.as_str(), &drain.not_drained[..]),
        ("it is gone", &["a: its controller is gone".into()][..])
    );
    assert_eq!(status.last_force, None);
    let forced = Asking { force: Some("now".into()), ..gone };
    let drain = over(status.ending(&forced, None));
    assert_eq!(
        (drain.ended.as_str(), &drain.not_drained[..]),
        ("ended by force: now", &["a: ended by force".into()][..])
    );
    assert_eq!(status.last_force.unwrap().ended, "the drain for a change");
}

#[test]
fn when_the_time_is_up_it_is_cut_and_then_over_or_given_up() {
    let all = [pipeline("a", answer::PAUSING, None)];
    let asking = asking(&all);
    let mut status = asked(&asking, 99);
    let waiting = |status: &mut Status| match status.ending(&asking, None) {
        Ending::Waiting { words, again_after, .. } => (words, again_after.unwrap().as_secs()),
        other => panic!("{other:?}"),
    };
    let (words, again_after) = waiting(&mut status);
    assert_eq!((again_after, status.request.as_ref().unwrap().cut_at.is_none()), (1, true));
    assert!(words.ends_with("; times out at 08:01:40 UTC (drainTimeout 1m40s), and goes on then"), "{words}");
    status.seconds = 100;
    let abort = Asking { on_timeout: OnDrainTimeout::Abort, ..asking.clone() };
    let Ending::Abort(drain, words) = status.ending(&abort, None) else { panic!("it goes on") };
    assert_eq!(words, "1 of 1 pipeline did not drain within 1m40s: Pipeline/a (Pausing)");
    assert_eq!(drain.not_drained, ["a: did not drain within 1m40s"]);
    // 15 s, and 20 s for the one.
    let (words, again_after) = waiting(&mut status);
    assert_eq!((again_after, status.request.as_ref().unwrap().cut_at.clone()), (35, Some(Time(status.now()))));
    assert!(words.starts_with("the time to drain was up at 08:01:40 UTC; waiting until 08:02:15 UTC"), "{words}");
    status.seconds = 134;
    assert_eq!(waiting(&mut status).1, 1);
    status.seconds = 135;
    let drain = over(status.ending(&asking, None));
    assert_eq!(drain.ended, "drainTimeout 1m40s had passed, and 35s more");
    assert_eq!(not_drained(Some(&drain)), "not drained: a: did not pause within 1m40s, nor within 35s more");
}

#[test]
fn a_clock_that_is_set_back_counts_from_when_the_stage_was_stamped_anew() {
    let all = [pipeline("a", answer::PAUSING, None)];
    let mut status = asked(&asking(&all), -3600);
    let stamped = Some(Time(status.now()));
    status.seconds += 60;
    let ending = status.ending(&asking(&all), stamped.as_ref());
    assert!(matches!(ending, Ending::Waiting { drain, .. } if drain.since == stamped));
    assert_eq!(status.request.as_ref().unwrap().since, stamped);
    status.seconds += 40;
    let _ = status.ending(&asking(&all), stamped.as_ref());
    assert_eq!(status.request.unwrap().cut_at, Some(Time(Status { seconds: -3500, ..Status::default() }.now())));
}

#[test]
fn the_time_out_in_the_request_follows_that_of_the_spec() {
    let all = [pipeline("a", answer::PAUSING, None)];
    let mut status = asked(&asking(&all), 7);
    for timeout in [Some(Duration::from_secs(200)), None] {
        let ending = status.ending(&Asking { timeout, ..asking(&all) }, None);
        assert!(matches!(ending, Ending::Waiting { .. }));
        assert_eq!(status.request.as_ref().unwrap().drain_timeout, timeout.map(wait));
    }
}

#[test]
fn a_request_that_is_withdrawn_stands_no_more_and_its_answers_are_waited_out() {
    let all = [pipeline("a", answer::PAUSING, None), pipeline("b", "", None)];
    let asking = asking(&all);
    let mut status = asked(&asking, 7);
    assert!(standing(status.request.as_ref(), ATTEMPT).is_some());
    assert!(standing(status.request.as_ref(), "isb-2").is_none());
    let of = |attempt: &str| format!("change {attempt}");
    let said = condition(status.request.as_ref(), of);
    assert_eq!(said, (true, "Pause", "pipelines are asked to pause since 08:00:00 UTC, for change isb-3".to_owned()));
    status.write(|s| {
        s.withdraw();
    });
    assert!(standing(status.request.as_ref(), ATTEMPT).is_none());
    assert_eq!(condition(status.request.as_ref(), of), (false, "NoPause", String::new()));
    let ended = Some(Time(status.now()));
    assert_eq!(status.times.as_ref().unwrap().last_pause_end_time, ended);
    status.seconds = 60;
    status.write(|s| {
        s.withdraw();
    });
    assert_eq!(status.times.unwrap().last_pause_end_time, ended, "once");
    assert_eq!(asking.still_answered(), ["Pipeline/a"]);
    let words = asking.unseen_withdrawal().unwrap();
    assert_eq!(words, "waiting for Pipeline/a to have seen that the last request was withdrawn");
    assert_eq!(Asking { attempt: "isb-4".into(), ..asking }.unseen_withdrawal(), None);
}

#[test]
fn a_text_of_force_is_honoured_once() {
    let mut metadata = ObjectMeta::default();
    assert_eq!(force(&metadata, None), None);
    metadata.annotations = Some([(ANNOTATION_FORCE.to_owned(), "now".to_owned())].into());
    assert_eq!(force(&metadata, None).as_deref(), Some("now"));
    let mut status = Status::default();
    status.write(|s| s.use_force("now", "a drain"));
    assert_eq!(force(&metadata, status.last_force.as_ref()), None);
    status.write(|s| s.use_force("before", "a drain"));
    assert_eq!(force(&metadata, status.last_force.as_ref()).as_deref(), Some("now"));
    metadata.annotations = Some([(ANNOTATION_FORCE.to_owned(), String::new())].into());
    assert_eq!(force(&metadata, None), None);
}

#[test]
fn the_record_of_an_attempt_that_ended_says_so_where_somebody_was_waited_for() {
    let waiting = DrainProgress { waiting_for: vec!["a".into()], ..DrainProgress::default() };
    let drain = closed(waiting.clone(), "superseded");
    assert_eq!((drain.ended.as_str(), drain.waiting_for.len()), ("the attempt ended: superseded", 0));
    let drain = closed(DrainProgress { ended: "ended by force: now".into(), ..waiting }, "superseded");
    assert_eq!((drain.ended.as_str(), drain.waiting_for.len()), ("ended by force: now", 0));
    assert_eq!(closed(DrainProgress::default(), "superseded"), DrainProgress::default());
    assert_eq!((not_drained(None), not_drained(Some(&drain))), (String::new(), String::new()));
}

#[test]
fn what_is_written_reads_as_the_same_duration() {
    for millis in [0, 1, 250, 1500, 300_000, 5_400_250, 315_360_000_000] {
        let duration = Duration::from_millis(millis);
        let written: Wait = wait(duration);
        assert_eq!(written.get(), Ok(duration), "{written}");
    }
}
