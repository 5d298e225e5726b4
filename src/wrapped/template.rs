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

/// Longest text between braces that could be meant for a name.
const LONGEST: usize = 80;

impl Names<'_> {
    /// What stands for the text between a pair of braces. It is read from the front, and only as far as it is a name: of a text
    /// full of braces, each pair sees all that comes after it.
    fn value(&self, between: &str) -> Option<&str> {
        let asked = between.trim_start().strip_prefix('.')?.strip_prefix(self.word)?;
        [("-namespace", self.namespace), ("-name", self.name)]
            .into_iter()
            .find(|(name, _)| asked.strip_prefix(name).is_some_and(|rest| rest.trim_start().is_empty()))
            .map(|(_, value)| value)
    }

    /// What a text asks for that is no name of these, like `.pipeline-nam`; so it stays as it is written.
    #[must_use]
    pub fn not_filled<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let mut asked = Vec::new();
        let mut braces = Braces::of(text);
        while let Some((open, close)) = braces.next() {
            let between = &text[open + 2..close];
            if between.len() <= LONGEST && between.trim_start().starts_with('.') && self.value(between).is_none() {
                asked.push(between.trim());
            }
        }
        asked
    }

    /// Fills the names into a text.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        let mut braces = Braces::of(text);
        while let Some((open, close)) = braces.next() {
            if let Some(value) = self.value(&text[open + 2..close]) {
                out.push_str(&text[done..open]);
                out.push_str(value);
                done = close + 2;
                braces.go_on_at(done);
            }
        }
        out.push_str(&text[done..]);
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

/// The pairs of braces of a text: where each opens, and where the first one after it closes. One brace at a time: a name may begin
/// within what another pair opened.
struct Braces<'t> {
    text: &'t str,
    at: usize,
    close: usize,
}

impl<'t> Braces<'t> {
    fn of(text: &'t str) -> Self {
        Self { text, at: 0, close: 0 }
    }

    fn next(&mut self) -> Option<(usize, usize)> {
        let open = self.at + self.text[self.at..].find("{{")?;
        // What closes one may close the next as well, and is not looked for again.
        if self.close < open + 2 {
            self.close = open + 2 + self.text[open + 2..].find("}}")?;
        }
        self.at = open + 1;
        Some((open, self.close))
    }

    fn go_on_at(&mut self, at: usize) {
        self.at = at;
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
            (
                "{{.pipeline-name x}}{{.pipeline-names}}{{ .pipeline-namespace  }}",
                "{{.pipeline-name x}}{{.pipeline-names}}team",
            ),
        ];
        for (text, wanted) in cases {
            assert_eq!(NAMES.fill(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_text_full_of_braces_takes_no_longer_than_any_other() {
        let (braces, spaces) = ("{".repeat(300_000), " ".repeat(300_000));
        let names = "{{.pipeline-name ".repeat(20_000);
        for text in
            [braces.clone(), format!("{braces}{spaces}}}}}"), format!("{names}{spaces}}}}}"), format!("{braces}}}}}")]
        {
            let begun = std::time::Instant::now();
            assert!(NAMES.fill(&text).len() > 200_000);
            assert!(NAMES.not_filled(&text).len() < 20_000);
            assert!(begun.elapsed().as_secs() < 2, "{:?}", begun.elapsed());
        }
    }

    #[test]
    fn what_is_not_filled_in_can_be_asked_for() {
        let cases = [
            ("{{.pipeline-name}} {{", &[][..]),
            ("a {{ .pipeline-nam }}{{.pipeline-name}}{{.isbsvc-name}} }}", &[".pipeline-nam", ".isbsvc-name"]),
            ("{{ $labels.pod }} {{pipeline-name}} {{.", &[]),
            ("{{ x {{.y}} {{{.z}}", &[".y", ".z"]),
        ];
        for (text, asked) in cases {
            assert_eq!(NAMES.not_filled(text), asked, "{text}");
        }
    }

    #[test]
    fn values_are_filled_at_any_depth_and_keys_are_not() {
        let value = json!({"{{.pipeline-name}}": [{"env": "{{.pipeline-name}}", "n": 1, "b": true, "none": null}]});
        let wanted = json!({"{{.pipeline-name}}": [{"env": "my-0", "n": 1, "b": true, "none": null}]});
        assert_eq!(NAMES.fill_value(&value), wanted);
    }
}
