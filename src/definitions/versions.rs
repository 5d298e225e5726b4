//! Versions as text: their order.

use std::cmp::Ordering;

/// Orders versions as people do: numbers by value, a leading `v` ignored, a pre-release before its release. Text that
/// is no version has a place, too; equal only if the texts are.
pub(crate) fn order(a: &str, b: &str) -> Ordering {
    let (core_a, pre_a) = split(a);
    let (core_b, pre_b) = split(b);
    natural(core_a, core_b)
        .then_with(|| match (pre_a, pre_b) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) => natural(a, b),
        })
        .then_with(|| a.cmp(b))
}

/// The version without its `v`, cut at its pre-release.
fn split(version: &str) -> (&str, Option<&str>) {
    let version = bare(version);
    match version.split_once('-') {
        Some((core, pre)) => (core, Some(pre)),
        None => (version, None),
    }
}

/// The version without a leading `v`.
pub(crate) fn bare(version: &str) -> &str {
    let rest = version.strip_prefix(['v', 'V']).unwrap_or(version);
    if rest.starts_with(|c: char| c.is_ascii_digit()) { rest } else { version }
}

/// Compares runs of digits by value and what is between them as text.
fn natural(mut a: &str, mut b: &str) -> Ordering {
    while !a.is_empty() && !b.is_empty() {
        let (run_a, rest_a) = run(a);
        let (run_b, rest_b) = run(b);
        let number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        let ordering = if number(run_a) && number(run_b) {
            // Without leading zeros the longer number is the greater.
            let (x, y) = (run_a.trim_start_matches('0'), run_b.trim_start_matches('0'));
            x.len().cmp(&y.len()).then_with(|| x.cmp(y))
        } else {
            run_a.cmp(run_b)
        };
        if ordering != Ordering::Equal {
            return ordering;
        }
        (a, b) = (rest_a, rest_b);
    }
    a.len().cmp(&b.len())
}

/// The leading run of digits or of other characters, and the rest.
fn run(text: &str) -> (&str, &str) {
    let digits = text.starts_with(|c: char| c.is_ascii_digit());
    text.split_at(text.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_listed_in_the_order_of_their_releases() {
        let mut versions = [
            "1.10.0",
            "v1.9.0",
            "latest",
            "1.8.3",
            "1.8.3-rc10",
            "1.8.3-rc2",
            "1.8.10",
            "2",
            "1.8",
            "01.8.3",
            "canary",
        ];
        versions.sort_by(|a, b| order(a, b));
        assert_eq!(
            versions,
            [
                "1.8",
                "1.8.3-rc2",
                "1.8.3-rc10",
                "01.8.3",
                "1.8.3",
                "1.8.10",
                "v1.9.0",
                "1.10.0",
                "2",
                "canary",
                "latest"
            ]
        );
    }
}
