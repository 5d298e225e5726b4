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

/// A text in quotes; one that is longer than any name is cut.
#[must_use]
pub fn quoted(text: &str) -> String {
    const MOST: usize = 100;
    match text.char_indices().nth(MOST) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}…", &text[..end]),
    }
}

/// What was probably meant, to come after a text that nothing is known by; nothing where that cannot be guessed.
#[must_use]
pub fn meant(nearest: Option<&str>) -> String {
    nearest.map(|nearest| format!(" (did you mean {nearest:?}?)")).unwrap_or_default()
}

/// The last of many names, as `list` gives the first.
#[must_use]
pub fn last(names: &[String], most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let shown = names[more..].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

/// Who else holds an object that is being deleted, in words; nothing where only Numaflow or the API server does.
#[must_use]
pub fn held_by(finalizers: &[String]) -> String {
    let own =
        |f: &&String| !f.starts_with("numaflow.numaproj.io/") && !matches!(f.as_str(), "foregroundDeletion" | "orphan");
    let others: Vec<String> = finalizers.iter().filter(own).cloned().collect();
    if others.is_empty() { String::new() } else { format!(" (held by finalizer {})", list(&others, 3)) }
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
        assert_eq!((last(&names, 3).as_str(), last(&names, 1).as_str()), ("a, b, c", "c and 2 more"));
    }

    #[test]
    fn who_holds_an_object_is_named_unless_that_is_expected() {
        let names = ["numaflow.numaproj.io/pipeline-controller", "foregroundDeletion", "team/audit"].map(str::to_owned);
        assert_eq!(held_by(&names), " (held by finalizer team/audit)");
        assert_eq!(held_by(&names[..2]), "");
    }

    #[test]
    fn a_text_is_quoted_and_one_beyond_measure_is_cut() {
        assert_eq!(quoted("a\n"), "\"a\\n\"");
        assert_eq!(quoted(&"ä".repeat(101)), format!("\"{}\"…", "ä".repeat(100)));
        assert_eq!((meant(Some("in")).as_str(), meant(None).as_str()), (" (did you mean \"in\"?)", ""));
    }

    #[test]
    fn durations_read_as_people_write_them() {
        for (seconds, text) in [(600, "10m"), (5400, "1h30m"), (45, "45s"), (0, "0ms")] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }
}
