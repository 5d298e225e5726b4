//! Durations in any text: what the code takes is what the schema takes, to the nanosecond; and what a strategy says of
//! them is what they say themselves.
#![no_main]
// A panic is how a finding is told.
#![allow(clippy::expect_used)]

mod limit;

use std::{borrow::Cow, sync::LazyLock, time::Duration};

use libfuzzer_sys::{Corpus, fuzz_target};
use numaplane::{
    api::{AssessmentSpec, NumaflowControllerRollout, OnDrainTimeout, PpndSpec, Strategy, StrategySpec, Wait},
    valid,
};
use regex::Regex;
use schemars::{JsonSchema, SchemaGenerator};

fuzz_target!(|data: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(data) else { return Corpus::Reject };
    let (duration, found) =
        limit::within(data.len(), || (Wait::from(text).get(), valid::controller(&rollout(text), "spec.controller")));
    let expected = as_the_server(text);
    assert_eq!(duration.as_ref().ok(), expected.as_ref(), "{text:?}");
    for (field, taken) in [
        ("spec.strategy.type", Strategy::parse(text).is_some()),
        ("spec.strategy.assessment.deadline", expected.is_some()),
        ("spec.strategy.assessment.window", expected.is_some()),
        ("spec.strategy.assessment.interval", expected.is_some()),
        ("spec.strategy.ppnd.drainTimeout", expected.is_some()),
        ("spec.strategy.ppnd.onDrainTimeout", OnDrainTimeout::parse(text).is_some()),
    ] {
        let refused = found.violations.iter().filter(|finding| finding.field == field).count();
        assert_eq!(refused, usize::from(!taken), "{field}: {text:?}: {found:?}");
    }
    Corpus::Keep
});

/// A rollout that says `text` wherever a strategy has a text.
fn rollout(text: &str) -> NumaflowControllerRollout {
    let mut rollout = NumaflowControllerRollout::default();
    let wait = || Some(Wait::from(text));
    rollout.spec.strategy = Some(StrategySpec {
        kind: Some(text.to_owned()),
        assessment: Some(AssessmentSpec { deadline: wait(), window: wait(), interval: wait() }),
        ppnd: Some(PpndSpec { drain_timeout: wait(), on_drain_timeout: Some(text.to_owned()) }),
        force_promote: None,
    });
    rollout
}

/// What the schema says a duration is: its pattern, and the most characters.
static SCHEMA: LazyLock<(Regex, usize)> = LazyLock::new(|| {
    let schema = Wait::json_schema(&mut SchemaGenerator::default());
    let schema = schema.as_value();
    let rule = schema["x-kubernetes-validations"][0]["rule"].as_str().expect("the schema has a rule");
    let (_, pattern) = rule.split_once("matches('").expect("the rule has a pattern");
    let (pattern, rest) = pattern.split_once("')").expect("the pattern ends");
    assert_eq!(rest, " && duration(self) <= duration('87600h')", "the limit below is that of the schema");
    let most = schema["maxLength"].as_u64().expect("the schema has a length");
    (Regex::new(&unescaped(pattern)).expect("a pattern"), usize::try_from(most).expect("a length"))
});

/// Text of a literal of CEL.
fn unescaped(literal: &str) -> Cow<'_, str> {
    literal.replace("\\\\", "\\").into()
}

/// The duration as the API server reads it, in whole nanoseconds; `None` where the schema refuses it.
fn as_the_server(text: &str) -> Option<Duration> {
    let (pattern, most) = &*SCHEMA;
    if text.chars().count() > *most || !pattern.is_match(text) {
        return None;
    }
    let mut rest = text;
    let mut sum = 0_u64;
    while let Some(end) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let (number, unit) = rest.split_at(end);
        let unit = &unit[..unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len())];
        rest = &rest[number.len() + unit.len()..];
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // Six digits behind the point, whatever was written.
        let millionths: u64 = format!("{whole}{fraction:0<6}").parse().ok()?;
        let nanos_per_millionth = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return None,
        };
        sum += millionths * nanos_per_millionth;
    }
    Some(Duration::from_nanos(sum)).filter(|duration| *duration <= Duration::from_hours(87_600))
}
