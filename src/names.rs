//! Names of Kubernetes: which alphabet and length the API server takes for which, so that what does not fit is known before anything
//! is applied.

use crate::definitions::ObjectKey;

/// Why a name cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameProblem {
    /// Longer than so many characters.
    TooLong(usize),
    /// Not what this kind takes for a name; the rule.
    Invalid(&'static str),
}

/// Longest name of an object, and longest DNS name.
pub const LONGEST: usize = 253;
/// Longest DNS label, which Services and Namespaces have for a name, and longest value of a label.
pub const LONGEST_LABEL: usize = 63;

/// Checks the name of an object.
///
/// # Errors
/// Why the API server would not take it.
pub fn check(object: &ObjectKey) -> Result<(), NameProblem> {
    let name = object.name.as_str();
    let limit = limit(object);
    if name.len() > limit {
        return Err(NameProblem::TooLong(limit));
    }
    match (object.group.as_str(), object.kind.as_str()) {
        ("rbac.authorization.k8s.io", _) => {
            if matches!(name, "" | "." | "..") || name.contains(['/', '%']) {
                return Err(NameProblem::Invalid("it must not be \".\" or \"..\" and not contain \"/\" or \"%\""));
            }
        }
        ("", "Service" | "Namespace") => {
            if !is_label(name) {
                return Err(NameProblem::Invalid(
                    "only lower-case letters, digits and \"-\", with a letter or digit at both ends",
                ));
            }
        }
        _ => {
            if !is_subdomain(name) {
                return Err(NameProblem::Invalid(
                    "only lower-case letters, digits, \"-\" and \".\", with a letter or digit at both ends and \
                     beside dots",
                ));
            }
        }
    }
    Ok(())
}

/// Longest name of an object of this kind. The server accepts longer names for workloads, but the objects and labels
/// that their controllers derive from them would be refused, and no pod would ever start.
#[must_use]
pub fn limit(object: &ObjectKey) -> usize {
    match (object.group.as_str(), object.kind.as_str()) {
        ("", "Service" | "Namespace") => LONGEST_LABEL,
        // ReplicaSets are called `<name>-<10 characters>`.
        ("apps", "Deployment") => LONGEST - 11,
        // Pods carry the label `controller-revision-hash: <name>-<10 characters>`, at most 63.
        ("apps", "StatefulSet") => 52,
        _ => LONGEST,
    }
}

/// A DNS label (RFC 1123), apart from its length.
#[must_use]
pub fn is_label(text: &str) -> bool {
    let ends_well = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
}

/// A DNS subdomain (RFC 1123), apart from its length.
#[must_use]
pub fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

/// Whether a text is a DNS label that begins with a letter (RFC 1035), apart from its length.
#[must_use]
pub fn is_dns_1035(text: &str) -> bool {
    is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// Why a text cannot be the name of a label or an annotation.
#[must_use]
pub fn not_a_key(key: &str) -> Option<&'static str> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    if prefix.is_some_and(|prefix| prefix.len() > LONGEST || !is_subdomain(prefix)) {
        return Some("what comes before '/' must be a DNS name");
    }
    (name.len() > LONGEST_LABEL || !is_qualified(name))
        .then_some("at most 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends, after an optional 'prefix/'")
}

/// Whether a text can be the value of a label.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || (text.len() <= LONGEST_LABEL && is_qualified(text))
}

/// What is the value of a label, or the name of one without its prefix; apart from its length.
fn is_qualified(text: &str) -> bool {
    let ends_well = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kind: &str, name: &str) -> Result<(), NameProblem> {
        let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
        check(&ObjectKey { group: group.into(), version: "v1".into(), kind: kind.into(), name: name.into() })
    }

    #[test]
    fn a_name_that_a_suffix_made_too_long_is_told_with_its_limit() {
        for (kind, limit) in [
            ("ConfigMap", 253),
            ("Service", 63),
            ("Deployment.apps", 242),
            ("StatefulSet.apps", 52),
            ("Role.rbac.authorization.k8s.io", 253),
        ] {
            assert_eq!(name(kind, &"a".repeat(limit)), Ok(()), "{kind}");
            assert_eq!(name(kind, &"a".repeat(limit + 1)), Err(NameProblem::TooLong(limit)), "{kind}");
        }
    }

    #[test]
    fn names_follow_the_rules_of_their_kind() {
        for good in ["numaflow-controller", "a", "1a", "a.b-c.d", "numaflow-controller-x-0a1b2c3d"] {
            assert_eq!(name("ConfigMap", good), Ok(()), "{good}");
        }
        for bad in ["", "A", "a_b", "-a", "a-", "a..b", ".a", "a.-b", "a b", "é", "a{{b"] {
            assert!(matches!(name("ConfigMap", bad), Err(NameProblem::Invalid(_))), "{bad}");
        }
        assert!(matches!(name("Service", "a.b"), Err(NameProblem::Invalid(_))));
        assert_eq!(name("Role.rbac.authorization.k8s.io", "system:Numaflow"), Ok(()));
        for bad in ["", ".", "..", "a/b", "50%"] {
            assert!(
                matches!(name("RoleBinding.rbac.authorization.k8s.io", bad), Err(NameProblem::Invalid(_))),
                "{bad}"
            );
        }
    }
}
