//! YAML as Kubernetes reads it: text → documents → JSON values, with the line of everything that is wrong.
//!
//! `kubectl` and the controllers read manifests with `sigs.k8s.io/yaml`, which follows YAML 1.1. A definition must mean
//! here what it means there, so: unquoted `yes`, `no`, `on`, `off`, `y` and `n` are booleans, `0644` is octal, whole
//! floats such as `1.0` become integers (Go prints them so), keys that are numbers or booleans become text, `<<`
//! merges. Stricter than there: a key given twice, infinities and numbers that overflow are errors. More lenient than
//! there: booleans in mixed case (`yEs`).

use std::{cell::Cell, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::{MessageFormatter, Options, UserMessageFormatter, options::DuplicateKeyPolicy};

/// How many times its length a document may weigh after aliases are expanded: bytes of text plus one per value. Without
/// aliases none weighs twice its length; a few lines of aliases upon aliases weigh what they like. What is read takes as
/// long as it is heavy, and everything that is made of it does, so that this bounds all of it.
const HEAVIEST: usize = 4;
/// Largest whole number that a float holds exactly (2^53).
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Why text is not YAML that Kubernetes could use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct YamlError {
    /// 1-based line in the text that was parsed.
    pub line: u64,
    /// What is wrong, without the position.
    pub message: String,
}

impl From<serde_saphyr::Error> for YamlError {
    fn from(error: serde_saphyr::Error) -> Self {
        let line = error.location().map_or(1, |location| location.line().max(1));
        Self { line, message: UserMessageFormatter.format_message(&error).into_owned() }
    }
}

/// One document of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Document<'a> {
    /// 1-based number among the documents that hold something.
    pub number: usize,
    /// Lines of the stream before this document.
    pub lines_before: u64,
    /// 1-based line of the stream on which the content begins.
    pub first_line: u64,
    /// The text, with its own `---` if it has one.
    pub text: &'a str,
}

/// Cuts a stream at its `---` and `...` lines, as `kubectl` does, so that a broken document takes no other with it.
/// Documents that hold nothing but comments are left out.
pub(crate) fn documents(stream: &str) -> Vec<Document<'_>> {
    let mut found = Vec::new();
    let (mut start, mut lines_before) = (0, 0);
    let (mut offset, mut lines) = (0, 0);
    let mut first_line = None;
    // Directives (`%YAML 1.1`) stand before the `---` of the document they belong to.
    let mut has_directive = false;
    let mut close = |start: usize, end: usize, lines_before, first_line: Option<u64>| {
        if let Some(first_line) = first_line {
            found.push(Document { number: found.len() + 1, lines_before, first_line, text: &stream[start..end] });
        }
    };
    for line in stream.split_inclusive('\n') {
        let separator = marker(line, "---");
        if separator.is_some() && !(has_directive && first_line.is_none()) {
            close(start, offset, lines_before, first_line.take());
            (start, lines_before) = (offset, lines);
        }
        has_directive &= separator.is_none();
        offset += line.len();
        lines += 1;
        if marker(line, "...").is_some() {
            close(start, offset - line.len(), lines_before, first_line.take());
            (start, lines_before) = (offset, lines);
            continue;
        }
        if first_line.is_none() {
            has_directive |= line.starts_with('%');
            let content = separator.unwrap_or(line).trim_start_matches('\u{feff}').trim();
            if !content.is_empty() && !content.starts_with(['#', '%']) {
                first_line = Some(lines);
            }
        }
    }
    close(start, offset, lines_before, first_line);
    found
}

/// What follows `marker` on a line that begins with it as a word of its own.
fn marker<'a>(line: &'a str, marker: &str) -> Option<&'a str> {
    line.strip_prefix(marker).filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

/// The settings of every parse here. Values and text are limited to what a ConfigMap can hold, aliases (`replays` is
/// the number of values they may expand to) to what no honest definition needs.
pub(super) fn options(duplicate_keys: DuplicateKeyPolicy, replays: usize) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_events: 8_000_000,
            max_nodes: 4_000_000,
            max_aliases: 1_000,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: replays },
        duplicate_keys: duplicate_keys,
        legacy_octal_numbers: true,
        emit_comments: false,
        with_snippet: false,
    }
}

/// One document as JSON; `null` for an empty one.
///
/// # Errors
/// The text is not YAML, a key is given twice or is not a scalar, a number is not finite, or aliases make it too large.
pub(super) fn parse(document: &str) -> Result<Value, YamlError> {
    let room = Cell::new(HEAVIEST * (document.len() + 1));
    let options = options(DuplicateKeyPolicy::Error, 200_000);
    serde_saphyr::with_deserializer_from_str_with_options(document, options, |deserializer| {
        Node { room: &room, kept: true }.deserialize(deserializer)
    })
    .map_err(YamlError::from)
}

/// Finds out whether aliases make a document too large, for those who read it into other shapes with `options`.
///
/// # Errors
/// They do, or it is not YAML.
pub(super) fn weigh(document: &str, options: Options) -> Result<(), YamlError> {
    if !document.contains('*') {
        return Ok(());
    }
    let room = Cell::new(HEAVIEST * (document.len() + 1));
    serde_saphyr::with_deserializer_from_str_with_options(document, options, |deserializer| {
        Node { room: &room, kept: false }.deserialize(deserializer).map(drop)
    })
    .map_err(YamlError::from)
}

/// Builds a [`Value`] and stops when it becomes too heavy.
#[derive(Clone, Copy)]
struct Node<'w> {
    /// How much more it may weigh.
    room: &'w Cell<usize>,
    /// Whether the value is wanted, or its weight alone; then any value will do.
    kept: bool,
}

impl Node<'_> {
    fn weigh<E: serde::de::Error>(self, bytes: usize) -> Result<(), E> {
        let room = self.room.get().checked_sub(bytes + 1);
        self.room.set(room.ok_or_else(|| {
            E::custom(format!("aliases make it more than {HEAVIEST} times as long; write it out, or split it"))
        })?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.weigh(0)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.weigh(0)?;
        Ok(Value::from(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.weigh(0)?;
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.weigh(0)?;
        if value.fract() == 0.0 && value.abs() <= EXACT {
            return Ok(Value::from(value as i64));
        }
        match Number::from_f64(value) {
            Some(number) => Ok(Value::Number(number)),
            None if self.kept => Err(E::custom("the number is not finite")),
            None => Ok(Value::Null),
        }
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.weigh(0)?;
        Ok(Value::Null)
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.weigh(value.len())?;
        Ok(if self.kept { Value::String(value.to_owned()) } else { Value::Null })
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<Value, E> {
        self.weigh(value.len())?;
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.weigh(0)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            if self.kept {
                list.push(item);
            }
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.weigh(0)?;
        let mut map = Map::new();
        if !self.kept {
            while entries.next_entry_seed(self, self)?.is_some() {}
            return Ok(Value::Null);
        }
        while let Some(key) = entries.next_key_seed(Key)? {
            self.weigh(key.len())?;
            let value = entries.next_value_seed(self)?;
            // The parser compares keys as written; `1` and `"1"` become the same key only here.
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("duplicate mapping key `{key}`")));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// A key as text, spelled as Kubernetes spells keys that are not.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Key {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("text as a key (quote a value that begins with a brace)")
    }

    fn visit_str<E>(self, key: &str) -> Result<String, E> {
        Ok(key.to_owned())
    }

    fn visit_string<E>(self, key: String) -> Result<String, E> {
        Ok(key)
    }

    fn visit_bool<E>(self, key: bool) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_i64<E>(self, key: i64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_u64<E>(self, key: u64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_f64<E>(self, key: f64) -> Result<String, E> {
        Ok(key.to_string())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(text: &str) -> Value {
        parse(text).expect(text)
    }

    #[test]
    fn scalars_mean_what_kubernetes_takes_them_for() {
        for (text, expected) in [
            ("1", json!(1)),
            ("-5", json!(-5)),
            ("18446744073709551615", json!(18_446_744_073_709_551_615_u64)),
            ("1.5", json!(1.5)),
            ("1.0", json!(1)),
            ("1e3", json!(1000)),
            ("0644", json!(420)),
            ("0o644", json!(420)),
            ("0x1F", json!(31)),
            ("1_000", json!(1000)),
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("y", json!(true)),
            ("true", json!(true)),
            ("~", json!(null)),
            ("'yes'", json!("yes")),
            ("\"true\"", json!("true")),
            ("'1'", json!("1")),
            ("!!str 1", json!("1")),
            ("1.8.3", json!("1.8.3")),
            ("2001-01-01", json!("2001-01-01")),
            ("12:30:45", json!("12:30:45")),
            ("500m", json!("500m")),
            ("yesterday", json!("yesterday")),
        ] {
            assert_eq!(value(&format!("a: {text}\n")), json!({ "a": expected }), "{text}");
        }
    }

    #[test]
    fn keys_that_are_not_text_become_text() {
        assert_eq!(value("1: a\non: b\n'off': c\n-2: d\n"), json!({"1": "a", "true": "b", "off": "c", "-2": "d"}));
    }

    #[test]
    fn keys_given_twice_are_errors_however_they_are_spelled() {
        for text in ["a: 1\na: 2\n", "a: 1\n'a': 2\n", "1: x\n'1': y\n", "true: x\non: y\n", "m: {a: 1, a: 2}\n"] {
            let error = parse(text).expect_err(text);
            assert!(error.message.contains("duplicate mapping key"), "{text:?}: {error:?}");
        }
        assert_eq!(parse("x: 1\ny:\n  a: 1\n  a: 2\n").expect_err("twice").line, 4);
    }

    #[test]
    fn anchors_aliases_and_merges_are_expanded() {
        assert_eq!(
            value("base: &b {a: 1, b: 2}\nthis: {<<: *b, b: 3}\nthat: *b\n"),
            json!({"base": {"a": 1, "b": 2}, "this": {"a": 1, "b": 3}, "that": {"a": 1, "b": 2}})
        );
    }

    #[test]
    fn a_few_lines_of_aliases_cannot_fill_the_memory() {
        let level = |level: usize| {
            let items = vec![format!("*a{}", level - 1); 10].join(", ");
            format!("a{level}: &a{level} [{items}]\n")
        };
        let levels: Vec<_> = (1..10).map(level).collect();
        parse(&format!("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n{}", levels.concat())).expect_err("ten to the tenth");

        let mut long = format!("anchors: &a1\n- &a0 \"{}\"\nlist:\n", "x".repeat(500_000));
        long.push_str(&"- *a0\n".repeat(900));
        let error = parse(&long).expect_err("450 megabytes");
        assert_eq!(error.message, "aliases make it more than 4 times as long; write it out, or split it");
    }

    #[test]
    fn deep_nesting_is_an_error_and_no_stack_overflow() {
        for text in ["[".repeat(100_000), "a: ".to_owned() + &"{a: ".repeat(5_000), "- ".repeat(10_000)] {
            parse(&text).expect_err("deep");
        }
    }

    #[test]
    fn errors_carry_their_line() {
        for (text, line) in [
            ("a: 1\nb: [1,\nc: 2\n", 2),
            ("a: 1\nb:\n\t- c\n", 3),
            ("a: b: c\n", 1),
            ("a: 1\nb: *nowhere\n", 2),
            ("a: |\n  text\nb\n", 3),
            ("a: 1\nb: .inf\n", 2),
            ("a: {{ .Values.x }}\n", 1),
        ] {
            assert_eq!(parse(text).expect_err(text).line, line, "{text:?}");
        }
    }

    #[test]
    fn documents_are_cut_where_kubectl_cuts_them() {
        let stream =
            "# a comment\n---\na: 1\n---\n\n# nothing\n--- # said twice\nb: |\n  ---\n  x\n---\n...\n--- {c: 3}\n---\n";
        let found: Vec<_> =
            documents(stream).iter().map(|d| (d.number, d.lines_before, d.first_line, d.text)).collect();
        assert_eq!(
            found,
            [(1, 1, 3, "---\na: 1\n"), (2, 6, 8, "--- # said twice\nb: |\n  ---\n  x\n"), (3, 12, 13, "--- {c: 3}\n"),]
        );
        for document in documents(stream) {
            parse(document.text).expect(document.text);
        }
    }

    #[test]
    fn empty_streams_windows_line_ends_directives_and_byte_order_marks_are_read() {
        for empty in ["", "\n\n", "---\n", "---\n---\n...\n", "# only a comment", "\u{feff}"] {
            assert_eq!(documents(empty), [], "{empty:?}");
        }
        let windows = documents("a: 1\r\n---\r\nb: 2\r\n");
        assert_eq!(windows.len(), 2);
        assert_eq!(parse(windows[1].text).expect("windows"), json!({"b": 2}));
        let directive = documents("%YAML 1.1\n# why\n---\na: 1\n");
        assert_eq!(directive.len(), 1);
        assert_eq!(parse(directive[0].text).expect("directive"), json!({"a": 1}));
        assert_eq!(value("\u{feff}a: 1\n"), json!({"a": 1}));
        assert_eq!(documents("a: ---x\n---x\n").len(), 1, "not a separator");
    }
}
