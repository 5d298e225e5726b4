//! How things are said: lists and durations in messages.

use std::time::Duration;

/// Up to `most` names, and how many more.
#[must_use]
pub fn list(names: &[String], most: usize) -> String {
    let shown = names.iter().take(most).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// A duration as people write it: `10m`, `1h30m`, `90s`.
#[must_use]
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let part = |n: u64, unit: &str| if n == 0 { String::new() } else { format!("{n}{unit}") };
    match format!("{}{}{}", part(hours, "h"), part(minutes, "m"), part(rest, "s")) {
        text if text.is_empty() => format!("{}ms", duration.as_millis()),
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_say_how_many_more_there_are() {
        let names = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(list(&names, 3), "a, b, c");
        assert_eq!(list(&names, 1), "a and 2 more");
    }

    #[test]
    fn durations_read_as_people_write_them() {
        for (seconds, text) in [(600, "10m"), (5400, "1h30m"), (45, "45s"), (0, "0ms")] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }
}
