//! Hashes that see what the cluster would get, not how it was written down.

use std::fmt::Write;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Feeds `value` as canonical JSON (keys sorted, no white space) to `sink`.
///
/// The order of a [`serde_json::Map`] depends on the features other crates switch on, so keys are sorted here.
fn canonical(value: &Value, sink: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            sink.push('{');
            for (n, (key, value)) in entries.into_iter().enumerate() {
                if n > 0 {
                    sink.push(',');
                }
                text(key, sink);
                sink.push(':');
                canonical(value, sink);
            }
            sink.push('}');
        }
        Value::Array(items) => {
            sink.push('[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    sink.push(',');
                }
                canonical(item, sink);
            }
            sink.push(']');
        }
        Value::String(value) => text(value, sink),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            // Writing to a String cannot fail.
            let _ = write!(sink, "{value}");
        }
    }
}

/// A JSON string. Written by hand so that no formatter of another version can change a stored hash.
fn text(value: &str, sink: &mut String) {
    sink.push('"');
    for character in value.chars() {
        match character {
            '"' => sink.push_str("\\\""),
            '\\' => sink.push_str("\\\\"),
            control if control < ' ' => {
                let _ = write!(sink, "\\u{:04x}", u32::from(control));
            }
            other => sink.push(other),
        }
    }
    sink.push('"');
}

/// Sha256 over the values in the order given, in hexadecimal (64 digits). Values are kept apart: moving content from
/// one to the next changes the hash.
pub(super) fn sha256<'v>(values: impl IntoIterator<Item = &'v Value>) -> String {
    let mut hasher = Sha256::new();
    let mut buffer = String::new();
    for value in values {
        buffer.clear();
        canonical(value, &mut buffer);
        buffer.push('\n');
        hasher.update(buffer.as_bytes());
    }
    let mut hex = String::with_capacity(64);
    for byte in hasher.finalize() {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_hash_of_a_value_never_changes_between_releases() {
        // A stored hash that no longer matches would look like an edited definition and roll every controller.
        let value = json!({"b": [1, -2, 1.5, true, null, "é\n\"\\"], "a": {"z": {}, "y": []}});
        let mut written = String::new();
        canonical(&value, &mut written);
        assert_eq!(written, r#"{"a":{"y":[],"z":{}},"b":[1,-2,1.5,true,null,"é\u000a\"\\"]}"#);
        assert_eq!(sha256([&value]), "89a31bc1c5c9281acd96ca7fbc6f49a9e3662aba81af67a22f887cf23819be8f");
        assert_eq!(sha256([]), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn content_that_moves_from_one_value_to_the_next_is_a_change() {
        let (a, b, both) = (json!("a"), json!("b"), json!(["a", "b"]));
        assert_ne!(sha256([&a, &b]), sha256([&both]));
        assert_ne!(sha256([&a, &b]), sha256([&b, &a]));
    }
}
