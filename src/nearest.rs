//! What a slip of the pen was probably meant for: a version, a field, a name of something.

use crate::definitions::{bare, order};

/// The one among `defined` that `version` was probably meant to be: the same apart from a `v`, from case or from
/// separators, or else one slip away (two in long ones). The greatest, where several are as near.
#[must_use]
pub fn nearest<'v>(version: &str, defined: impl Iterator<Item = &'v str>) -> Option<&'v str> {
    let wanted = plain(version);
    let allowed = if wanted.len() > 8 { 2 } else { 1 };
    defined
        .filter_map(|candidate| {
            let plain = plain(candidate);
            let slips = if plain == wanted { 0 } else { distance(&wanted, &plain, allowed)? };
            (slips < plain.len()).then_some((slips, candidate))
        })
        .min_by(|(slips_a, a), (slips_b, b)| slips_a.cmp(slips_b).then_with(|| order(b, a)))
        .map(|(_, candidate)| candidate)
}

/// What is compared for slips.
fn plain(version: &str) -> Vec<char> {
    bare(version.trim())
        .chars()
        .map(|c| if matches!(c, '-' | '_' | ',') { '.' } else { c.to_ascii_lowercase() })
        .collect()
}

/// Insertions, deletions, replacements and swaps of neighbours from `a` to `b`; `None` for more than `allowed`.
fn distance(a: &[char], b: &[char], allowed: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > allowed || a.len() > 64 {
        return None;
    }
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut best = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last.last().copied().filter(|slips| *slips <= allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_met_with_the_version_that_was_meant() {
        let defined = ["1.7.5", "1.8.3", "v2.0.0", "1.10.0-rc1", "nightly"];
        for (asked, meant) in [
            ("v1.8.3", Some("1.8.3")),
            ("V1.8.3", Some("1.8.3")),
            ("2.0.0", Some("v2.0.0")),
            ("1,8.3", Some("1.8.3")),
            ("1.8.33", Some("1.8.3")),
            ("1.83", Some("1.8.3")),
            ("18.3", Some("1.8.3")),
            ("1.8.4", Some("1.8.3")),
            ("1.10.0-cr1", Some("1.10.0-rc1")),
            ("Nightly", Some("nightly")),
            ("nigthly", Some("nightly")),
            ("3.2.1", None),
            ("", None),
            ("latest", None),
        ] {
            assert_eq!(nearest(asked, defined.into_iter()), meant, "{asked:?}");
        }
        assert_eq!(nearest("1", ["2"].into_iter()), None, "nothing is left of it");
        assert_eq!(
            nearest("1.8.3", ["1.8.2", "1.8.10", "1.8.4"].into_iter()),
            Some("1.8.4"),
            "the greatest of the near"
        );
        assert_eq!(nearest(&"1".repeat(10_000), ["1.8.3"].into_iter()), None);
    }
}
