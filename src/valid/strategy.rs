//! Strategies: durations that are some, and words that mean something. What the schemas of the CRDs refuse too is said again
//! here, for objects that were stored before they did.

use std::time::Duration;

use super::Findings;
use crate::{
    api::{AssessmentSpec, OnDrainTimeout, Raw, Wait},
    words::duration,
};

/// Where a strategy stands in a spec.
const FIELD: &str = "spec.strategy";
/// What is accepted because users of other releases write it.
const NO_EFFECT: &str = "has no effect in this release";

/// A duration of a strategy, where it is one.
fn wait(found: &mut Findings, path: &str, wait: Option<&Wait>) -> Option<Duration> {
    match wait?.get() {
        Ok(wait) => Some(wait),
        Err(error) => {
            found.violation(format!("{FIELD}.{path}"), error.to_string());
            None
        }
    }
}

/// How a version, or an ISB service, is judged; `windows` says whether it has to stay healthy for a time.
pub(super) fn assessment(found: &mut Findings, spec: Option<&AssessmentSpec>, windows: bool) {
    let Some(spec) = spec else { return };
    let deadline = wait(found, "assessment.deadline", spec.deadline.as_ref());
    let window = wait(found, "assessment.window", spec.window.as_ref());
    let interval = wait(found, "assessment.interval", spec.interval.as_ref());
    let field = |name: &str| format!("{FIELD}.assessment.{name}");
    if deadline == Some(Duration::ZERO) {
        found.warning(field("deadline"), "0s: what is not healthy at once is given up");
    }
    if !windows && window.is_some() {
        found.warning(
            field("window"),
            format!("{NO_EFFECT}: an ISB service is believed once all of its pods bear it out"),
        );
    }
    let longest = [("deadline", deadline), ("window", window.filter(|_| windows))];
    let Some(interval) = interval else { return };
    for (name, time) in longest.into_iter().filter_map(|(name, time)| Some((name, time?))) {
        if !time.is_zero() && interval > time {
            let words = format!(
                "{} is longer than the {name}, {}: that is over before the second look",
                duration(interval),
                duration(time)
            );
            found.warning(field("interval"), words);
        }
    }
}

/// How pipelines are paused and drained.
pub(super) fn ppnd(found: &mut Findings, drain_timeout: Option<&Wait>, on_drain_timeout: Option<&str>) {
    let timeout = wait(found, "ppnd.drainTimeout", drain_timeout);
    if timeout == Some(Duration::ZERO) {
        let words = "0s: nothing is paused, and what is not processed by then may be lost";
        found.warning(format!("{FIELD}.ppnd.drainTimeout"), words);
    }
    if let Some(Err(words)) = on_drain_timeout.map(OnDrainTimeout::read) {
        found.violation(format!("{FIELD}.ppnd.onDrainTimeout"), words);
    }
}

/// Fields of a strategy that are without effect, where they are there.
pub(super) fn without_effect(found: &mut Findings, fields: &[(&str, Option<&Raw>)]) {
    for (name, value) in fields {
        let Some(Raw(value)) = value else { continue };
        found.warning(format!("{FIELD}.{name}"), NO_EFFECT);
        let schedule = &value["assessmentSchedule"];
        if !schedule.is_null() && !schedule.as_str().is_some_and(is_schedule) {
            let words = format!(
                "{} is no schedule: write four numbers of seconds, delay, end, period and interval, like \"120,300,60,10\"",
                super::place::kind_of(schedule)
            );
            found.warning(format!("{FIELD}.{name}.assessmentSchedule"), words);
        }
    }
}

/// Whether a text is a schedule as other releases read one. As it is without effect here, one that is not keeps nobody from
/// anything.
fn is_schedule(text: &str) -> bool {
    text.split(',').count() == 4 && text.split(',').all(|part| part.trim().parse::<u32>().is_ok())
}

/// Objects that go with one of Numaflow's.
pub(super) fn riders(found: &mut Findings, riders: &[Raw]) {
    if !riders.is_empty() {
        found.warning("spec.riders", format!("{NO_EFFECT}: none of these objects is made"));
    }
}
