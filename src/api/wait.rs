//! Durations as users write them: `90s`, `10m`, `1h30m`.

use std::{fmt, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Longest duration accepted; what is longer is a slip of the pen and would overflow arithmetic with times.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A duration as written by the user. Kept as text so that an object with a bad value can still be read and answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wait(pub String);

/// Why a duration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a duration: write a number with a unit, like \"90s\", \"10m\" or \"1h30m\", from 0s to ten years"
)]
pub struct WaitError(String);

impl Wait {
    /// The duration; zero means "do not wait".
    ///
    /// # Errors
    /// A unit is missing or unknown, the value is negative, or longer than ten years.
    pub fn get(&self) -> Result<Duration, WaitError> {
        let bad = || WaitError(self.0.clone());
        // Sums that overflow would panic in the parser, so the length is bounded first, as the schema does.
        if self.0.is_empty() || self.0.len() > 32 || longest_number(&self.0) > 6 {
            return Err(bad());
        }
        let parsed: kube::core::Duration = self.0.parse().map_err(|_| bad())?;
        let duration = Duration::from(parsed);
        if (parsed.is_negative() && !duration.is_zero()) || duration > LONGEST { Err(bad()) } else { Ok(duration) }
    }
}

/// Digits in the longest run of digits.
fn longest_number(text: &str) -> usize {
    text.split(|c: char| !c.is_ascii_digit()).map(str::len).max().unwrap_or(0)
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
    fn negative_unitless_and_overflowing_durations_are_refused_with_an_example() {
        for text in ["-5s", "5", "", "s", "ten minutes", "99999999999h", "999999999999999999999999h", "1h-5m"] {
            let error = Wait::from(text).get().expect_err(text).to_string();
            assert!(error.contains("\"90s\""), "{error}");
        }
    }
}
