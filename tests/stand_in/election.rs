//! What becomes of one lease now: whether its holder renews it, somebody takes it, or everybody waits.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};

use super::processes::{Process, State};

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Timings {
    /// How long a process lives on, and renews its lease, after its pod was deleted.
    pub linger: Duration,
    /// How long a lease is good for after it was renewed. Whole seconds: the API knows no others.
    pub lease_duration: Duration,
    /// Time between two renewals, and between two looks at a lease that somebody else holds.
    pub renew: Duration,
}

/// What is known of a lease.
#[derive(Clone, Debug, PartialEq)]
pub enum Known {
    /// Nothing, or nothing that can be relied upon.
    Nothing,
    /// That there is none.
    Absent,
    /// What it was when it was last read or written.
    Is(Box<Lease>, Timestamp),
}

/// What is to be done about a lease.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing until then, or until something else happens.
    Wait(Option<Timestamp>),
    /// Read it.
    Read,
    /// Write it: create it if it has no resourceVersion, replace it if it has.
    Write(Box<Lease>),
}

/// Who has a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder<'a> {
    /// Not known.
    Unknown,
    /// Nobody.
    Nobody,
    /// A process here. It renews the lease.
    Process(&'a Process),
    /// Somebody that does not renew it as far as is known here.
    Other(&'a str),
}

/// Who has a lease, of these processes or others.
pub fn holder<'a>(known: &'a Known, processes: &'a [Process], now: Timestamp) -> Holder<'a> {
    let identity = match known {
        Known::Nothing => return Holder::Unknown,
        Known::Absent => return Holder::Nobody,
        Known::Is(lease, _) => lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default(),
    };
    let alive = |p: &&Process| p.identity == identity && !matches!(p.state, State::Ending { until } if until <= now);
    match processes.iter().find(alive) {
        Some(process) => Holder::Process(process),
        None if identity.is_empty() => Holder::Nobody,
        None => Holder::Other(identity),
    }
}

/// When a lease runs out unless it is renewed.
pub fn runs_out(lease: &Lease, timings: &Timings) -> Timestamp {
    let spec = lease.spec.as_ref();
    let duration = spec.and_then(|s| s.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
    let renewed = spec.and_then(|s| s.renew_time.as_ref()).map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    renewed + duration.map_or(timings.lease_duration, Duration::from_secs)
}

/// The next step about a lease, for which these processes compete, in this order.
pub fn step(known: &Known, processes: &[Process], now: Timestamp, timings: &Timings) -> Step {
    let held = holder(known, processes, now);
    let lease = match known {
        Known::Is(lease, _) => lease.as_ref().clone(),
        Known::Nothing | Known::Absent => Lease::default(),
    };
    if let Holder::Process(process) = held {
        let renewed = lease.spec.as_ref().and_then(|s| s.renew_time.as_ref()).map_or(now, |time| time.0);
        let due = renewed + timings.renew;
        // A time that is still to come was written by somebody else, and says nothing about the last renewal.
        return if now < due && renewed <= now {
            Step::Wait(Some(due))
        } else {
            Step::Write(Box::new(written(lease, process, now, timings)))
        };
    }
    // Who has just ended may still have to be told from a stranger, but takes nothing.
    let running = |p: &Process| match p.state {
        State::Running { candidate_from } => Some(candidate_from),
        State::Ending { .. } => None,
    };
    let Some(candidate) = processes.iter().find(|p| running(p).is_some_and(|from| from <= now)) else {
        // For one that lives on after its pod it matters whether the lease is its own.
        return match held {
            Holder::Unknown if processes.iter().any(|p| running(p).is_none()) => Step::Read,
            _ => Step::Wait(processes.iter().filter_map(running).min()),
        };
    };
    match (held, known) {
        (Holder::Unknown, _) => Step::Read,
        (Holder::Other(_), Known::Is(_, read_at)) if now < runs_out(&lease, timings) => {
            // It may be renewed or deleted by whoever has it.
            let look_at = *read_at + timings.renew;
            if look_at <= now { Step::Read } else { Step::Wait(Some(look_at.min(runs_out(&lease, timings)))) }
        }
        _ => Step::Write(Box::new(written(lease, candidate, now, timings))),
    }
}

/// The lease as a process writes it.
fn written(mut lease: Lease, process: &Process, now: Timestamp, timings: &Timings) -> Lease {
    let old = lease.spec.take();
    let same = old.as_ref().is_some_and(|old| old.holder_identity.as_deref() == Some(&process.identity));
    let transitions = old.as_ref().map_or(0, |old| old.lease_transitions.unwrap_or_default() + i32::from(!same));
    let acquired = old.as_ref().and_then(|old| old.acquire_time.clone()).filter(|_| same);
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(process.identity.clone()),
        lease_duration_seconds: Some(i32::try_from(timings.lease_duration.as_secs()).unwrap_or(i32::MAX)),
        acquire_time: Some(acquired.unwrap_or(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        lease_transitions: Some(transitions),
        ..old.unwrap_or_default()
    });
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As measured of the real one.
    const TIMINGS: Timings = Timings {
        linger: Duration::from_secs(18),
        lease_duration: Duration::from_secs(15),
        renew: Duration::from_secs(2),
    };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    fn running(name: &str, candidate_from: i64) -> Process {
        let state = State::Running { candidate_from: at(candidate_from) };
        Process { identity: format!("{name}_1"), pod: name.to_owned(), state }
    }

    fn ending(name: &str, until: i64) -> Process {
        Process { state: State::Ending { until: at(until) }, ..running(name, 0) }
    }

    fn lease(holder: &str, acquired: i64, renewed: i64, transitions: i32) -> Lease {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            acquire_time: Some(MicroTime(at(acquired))),
            renew_time: Some(MicroTime(at(renewed))),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        };
        let mut lease = Lease { spec: Some(spec), ..Lease::default() };
        lease.metadata.resource_version = Some("7".to_owned());
        lease
    }

    fn is(lease: Lease, read: i64) -> Known {
        Known::Is(Box::new(lease), at(read))
    }

    fn take(known: &Known, processes: &[Process], now: i64) -> Step {
        step(known, processes, at(now), &TIMINGS)
    }

    fn wait(until: i64) -> Step {
        Step::Wait(Some(at(until)))
    }

    fn write(lease: Lease) -> Step {
        Step::Write(Box::new(lease))
    }

    #[test]
    fn a_lease_that_nobody_has_made_is_made_by_who_is_ready() {
        assert_eq!(take(&Known::Nothing, &[running("a", 0)], 0), Step::Read);
        let mut made = lease("a_1", 5, 5, 0);
        made.metadata.resource_version = None;
        assert_eq!(take(&Known::Absent, &[running("a", 0)], 5), write(made));
    }

    #[test]
    fn nobody_asks_about_a_lease_for_which_there_is_no_candidate() {
        for known in [Known::Nothing, Known::Absent, is(lease("other", 0, 0, 0), 0)] {
            assert_eq!(take(&known, &[], 0), Step::Wait(None));
            assert_eq!(take(&known, &[running("a", 9), running("b", 8)], 0), wait(8));
        }
        assert_eq!(take(&Known::Absent, &[ending("a", 9)], 0), Step::Wait(None));
        assert_eq!(take(&Known::Nothing, &[ending("a", 9)], 0), Step::Read);
    }

    #[test]
    fn the_holder_renews_when_it_is_due_and_stays_the_holder_since_then() {
        let known = is(lease("a_1", 1, 10, 4), 10);
        let both = [running("b", 0), running("a", 0)];
        assert_eq!(take(&known, &both, 11), wait(12));
        assert_eq!(take(&known, &both, 12), write(lease("a_1", 1, 12, 4)));
        // However late it is: those who stand by see it alive.
        assert_eq!(take(&known, &both, 100), write(lease("a_1", 1, 100, 4)));
        assert_eq!(take(&is(lease("a_1", 1, 1000, 4), 10), &both, 12), write(lease("a_1", 1, 12, 4)));
    }

    #[test]
    fn an_old_process_keeps_the_lease_and_the_next_one_takes_it_when_it_has_run_out() {
        let both = [running("b", 10), ending("a", 28)];
        assert_eq!(take(&is(lease("a_1", 1, 10, 0), 10), &both, 12), write(lease("a_1", 1, 12, 0)));
        let last = is(lease("a_1", 1, 26, 0), 26);
        assert_eq!(take(&last, &both, 27), wait(28));
        // Ended, and from then on those who wait look at it.
        assert_eq!(take(&last, &both, 28), Step::Read);
        let looked = is(lease("a_1", 1, 26, 0), 40);
        assert_eq!(take(&looked, &both, 40), wait(41));
        assert_eq!(take(&looked, &both[..1], 40), wait(41), "forgotten makes no difference");
        assert_eq!(take(&looked, &both, 41), write(lease("b_1", 41, 41, 1)));
    }

    #[test]
    fn a_stranger_keeps_the_lease_for_as_long_as_it_says() {
        let mut strange = lease("stranger", 0, 10, 3);
        strange.spec.as_mut().unwrap().lease_duration_seconds = Some(3);
        let known = is(strange.clone(), 10);
        assert_eq!(take(&known, &[running("a", 0)], 11), wait(12));
        assert_eq!(take(&known, &[running("a", 0)], 12), Step::Read);
        assert_eq!(take(&known, &[running("a", 0)], 13), write(lease("a_1", 13, 13, 4)));
        strange.spec = None;
        assert_eq!(take(&is(strange, 10), &[running("a", 0)], 10), write(lease("a_1", 10, 10, 0)));
    }

    #[test]
    fn a_lease_that_was_given_up_is_taken_at_once() {
        assert_eq!(take(&is(lease("", 0, 10, 3), 10), &[running("a", 0)], 10), write(lease("a_1", 10, 10, 4)));
    }

    #[test]
    fn only_who_may_already_takes_it() {
        let known = is(lease("gone", 0, 0, 0), 100);
        assert_eq!(take(&known, &[running("late", 200), running("a", 100)], 100), write(lease("a_1", 100, 100, 1)));
        assert_eq!(take(&known, &[running("late", 200), ending("a", 300)], 100), wait(200));
    }

    #[test]
    fn what_others_wrote_on_the_lease_stays() {
        let mut marked = lease("a_1", 1, 10, 4);
        marked.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
        let Step::Write(after) = take(&is(marked.clone(), 10), &[running("a", 0)], 12) else { panic!("renewed") };
        assert_eq!(after.metadata, marked.metadata);
    }
}
