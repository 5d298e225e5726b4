//! Durations as users write them: `90s`, `10m`, `1h30m`.

use std::{fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::words::quoted;

/// Longest duration accepted; what is longer is a slip of the pen and would overflow arithmetic with times.
const LONGEST: Duration = Duration::from_hours(87600);

/// A duration as written by the user. Kept as text so that an object with a bad value can still be read and answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wait(pub String);

/// Why a duration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is not a duration: write a number with a unit, like \"90s\", \"10m\" or \"1h30m\", from 0s to ten years",
    quoted(.0)
)]
pub struct WaitError(String);

impl Wait {
    /// The duration; zero means "do not wait".
    ///
    /// # Errors
    /// A unit is missing or unknown, the value is negative, or longer than ten years.
    pub fn get(&self) -> Result<Duration, WaitError> {
        parse(&self.0).filter(|duration| *duration <= LONGEST).ok_or_else(|| WaitError(self.0.clone()))
    }
}

/// Reads what the schema's pattern admits. Own code, because kube's parser panics on some of what users may write. In
/// whole nanoseconds, as the API server counts: floats are some off, and so would be the limit of ten years.
fn parse(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut nanos = 0_u64;
    if rest.is_empty() || rest.len() > 32 {
        return None;
    }
    while !rest.is_empty() {
        let number = &rest[..rest.find(|c: char| !c.is_ascii_digit() && c != '.')?];
        rest = &rest[number.len()..];
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        if !(1..=6).contains(&whole.len()) || !(1..=6).contains(&fraction.len()) || fraction.contains('.') {
            return None;
        }
        let unit = &rest[..rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len())];
        rest = &rest[unit.len()..];
        let millionth = match unit {
            "h" => 3_600_000,
            "m" => 60_000,
            "s" => 1_000,
            "ms" => 1,
            _ => return None,
        };
        let millionths = format!("{whole}{fraction:0<6}").parse::<u64>().ok()?;
        nanos = nanos.checked_add(millionths.checked_mul(millionth)?)?;
    }
    Some(Duration::from_nanos(nanos))
}

impl From<&str> for Wait {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl JsonSchema for Wait {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Wait".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "maxLength": 32,
            "x-kubernetes-validations": [{
                "rule": "self.matches('^([0-9]{1,6}(\\\\.[0-9]{1,6})?(h|m|s|ms))+$') && duration(self) <= duration('87600h')",
                "message": "must be a duration with units, like 90s, 10m or 1h30m, from 0s to ten years (0s means: do not wait)",
            }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_with_units_are_read() {
        for (text, seconds) in [("90s", 90), ("10m", 600), ("1h30m", 5400), ("0s", 0), ("0.5m", 30)] {
            assert_eq!(Wait::from(text).get(), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn every_nanosecond_counts_up_to_ten_years() {
        let years = Duration::from_hours(87_600);
        for (text, duration) in [
            ("0.000001ms", Duration::from_nanos(1)),
            ("87600h", years),
            ("87599.999999h3.6ms", years),
            ("87599.999999h3.599999ms", Duration::new(87_600 * 3600 - 1, 999_999_999)),
            ("10.000001h", Duration::new(36_000, 3_600_000)),
        ] {
            assert_eq!(Wait::from(text).get(), Ok(duration), "{text}");
        }
        for text in ["87600h0.000001ms", "999999.999999h999999.999999h"] {
            Wait::from(text).get().expect_err(text);
        }
    }

    #[test]
    fn negative_unitless_and_overflowing_durations_are_refused_with_an_example() {
        for text in [
            "-5s",
            "5",
            "",
            "s",
            "1.s",
            "1..5s",
            "5 s",
            "5S",
            "µs",
            "1é",
            "ten minutes",
            "99999999999h",
            "999999999999999999999999h",
            "1h-5m",
        ] {
            let error = Wait::from(text).get().expect_err(text).to_string();
            assert!(error.contains("\"90s\""), "{error}");
        }
    }
}
