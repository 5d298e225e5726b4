//! Names that the template of an object of Numaflow's may use. Pure.
//!
//! Own code, because every other pair of braces has to reach the object byte for byte, in any spelling: template engines
//! replace what they do not know with nothing.

use serde_json::Value;

/// The names, and what they stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names<'a> {
    /// What templates call the kind: `pipeline`, say, for `.pipeline-name` and `.pipeline-namespace`.
    pub word: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
}

impl Names<'_> {
    fn value(&self, asked: &str) -> Option<&str> {
        match asked.strip_prefix('.')?.strip_prefix(self.word)? {
            "-name" => Some(self.name),
            "-namespace" => Some(self.namespace),
            _ => None,
        }
    }

    /// Fills the names into a text.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("{{") {
            let (before, action) = rest.split_at(at);
            out.push_str(before);
            let end = action.find("}}");
            let known = end.and_then(|end| Some((self.value(action[2..end].trim())?, end)));
            if let Some((value, end)) = known {
                out.push_str(value);
                rest = &action[end + 2..];
            } else {
                // One brace at a time: a name may begin within what this pair opened.
                out.push('{');
                rest = &action[1..];
            }
        }
        out.push_str(rest);
        out
    }

    /// Fills the names into every text of a value; keys stay as they are.
    #[must_use]
    pub fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) if text.contains("{{") => Value::String(self.fill(text)),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.fill_value(item)).collect()),
            Value::Object(map) => Value::Object(map.iter().map(|(k, v)| (k.clone(), self.fill_value(v))).collect()),
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAMES: Names<'static> = Names { word: "pipeline", name: "my-0", namespace: "team" };

    #[test]
    fn names_are_filled_in_and_every_other_brace_stays_as_it_is_written() {
        let cases = [
            ("{{.pipeline-name}}", "my-0"),
            ("a {{ .pipeline-name }}.{{.pipeline-namespace}}!", "a my-0.team!"),
            ("{{.vertex-name}} {{ $labels.pod }} {{", "{{.vertex-name}} {{ $labels.pod }} {{"),
            ("{{.isbsvc-name}} {{.pipeline}} {{pipeline-name}}", "{{.isbsvc-name}} {{.pipeline}} {{pipeline-name}}"),
            ("{{{.pipeline-name}}}", "{my-0}"),
            ("{{ x {{.pipeline-name}}", "{{ x my-0"),
            ("{{}} }} {{.pipeline-nam", "{{}} }} {{.pipeline-nam"),
            ("ä{{.pipeline-name}}ö", "ämy-0ö"),
        ];
        for (text, wanted) in cases {
            assert_eq!(NAMES.fill(text), wanted, "{text}");
        }
    }

    #[test]
    fn values_are_filled_at_any_depth_and_keys_are_not() {
        let value = json!({"{{.pipeline-name}}": [{"env": "{{.pipeline-name}}", "n": 1, "b": true, "none": null}]});
        let wanted = json!({"{{.pipeline-name}}": [{"env": "my-0", "n": 1, "b": true, "none": null}]});
        assert_eq!(NAMES.fill_value(&value), wanted);
    }
}
