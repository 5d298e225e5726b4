//! Places in a raw spec, with their paths: what is there of another kind than it has to be is said where it stands.

use serde_json::Value;

use super::Findings;

/// A place in a spec.
#[derive(Clone, Debug)]
pub(super) struct Place<'v> {
    /// Its path, like `spec.pipeline.spec.vertices[2]`.
    pub path: String,
    /// What is there.
    pub value: &'v Value,
}

impl<'v> Place<'v> {
    pub fn new(path: impl Into<String>, value: &'v Value) -> Self {
        Self { path: path.into(), value }
    }

    /// The path of a field.
    pub fn path_of(&self, field: &str) -> String {
        format!("{}.{field}", self.path)
    }

    /// What a field has; null where there is none, which is the same to Numaflow.
    pub fn get(&self, field: &str) -> &'v Value {
        &self.value[field]
    }

    /// Whether anything is written into a field.
    pub fn has(&self, field: &str) -> bool {
        !self.get(field).is_null()
    }

    /// A field that holds an object; `None` where it is not there.
    pub fn object(&self, found: &mut Findings, field: &str) -> Option<Self> {
        let place = Self { path: self.path_of(field), value: self.get(field) };
        place.has_to_be(found, "an object", Value::is_object).then_some(place)
    }

    /// The entries of a field that holds a list of objects.
    pub fn objects(&self, found: &mut Findings, field: &str) -> Vec<Self> {
        let mut entries = self.list(found, field);
        entries.retain(|entry| entry.value.is_object() || !entry.refuse(found, "an object"));
        entries
    }

    /// The entries of a field that holds a list.
    pub fn list(&self, found: &mut Findings, field: &str) -> Vec<Self> {
        let place = Self { path: String::new(), value: self.get(field) };
        match place.value {
            Value::Null => Vec::new(),
            Value::Array(entries) => {
                let path = self.path_of(field);
                let entry = |(at, value)| Self { path: format!("{path}[{at}]"), value };
                entries.iter().enumerate().map(entry).collect()
            }
            _ => {
                Self { path: self.path_of(field), ..place }.refuse(found, "a list");
                Vec::new()
            }
        }
    }

    /// A field that holds a text; `None` where it is not there, or empty.
    pub fn text(&self, found: &mut Findings, field: &str) -> Option<&'v str> {
        let text = self.typed(found, field, "a text", Value::as_str)?;
        (!text.is_empty()).then_some(text)
    }

    /// A field that holds a whole number (of 32 bits, as Numaflow has them); `None` where it is not there.
    pub fn number(&self, found: &mut Findings, field: &str) -> Option<i32> {
        self.typed(found, field, "a whole number", |value| value.as_i64()?.try_into().ok())
    }

    /// A field that holds true or false; `None` where it is not there.
    pub fn flag(&self, found: &mut Findings, field: &str) -> Option<bool> {
        self.typed(found, field, "true or false", Value::as_bool)
    }

    /// Whether a field is not there, or empty; and not only of another kind.
    pub fn lacks(&self, field: &str) -> bool {
        match self.get(field) {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(entries) => entries.is_empty(),
            _ => false,
        }
    }

    fn typed<T>(
        &self,
        found: &mut Findings,
        field: &str,
        wanted: &str,
        read: impl Fn(&'v Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(field);
        if value.is_null() {
            return None;
        }
        let known = read(value);
        if known.is_none() {
            Self { path: self.path_of(field), value }.refuse(found, wanted);
        }
        known
    }

    fn has_to_be(&self, found: &mut Findings, wanted: &str, is: impl Fn(&Value) -> bool) -> bool {
        !self.value.is_null() && (is(self.value) || !self.refuse(found, wanted))
    }

    /// Says that it is of another kind; always true.
    fn refuse(&self, found: &mut Findings, wanted: &str) -> bool {
        found.violation(self.path.clone(), format!("must be {wanted}, not {}", kind_of(self.value)));
        true
    }
}

/// More characters than any key has that there can be.
pub(super) const LONGEST: usize = 320;

/// A key in a path, cut where it is longer than any that there can be.
pub(super) fn shortened(key: &str) -> String {
    key.chars().take(LONGEST).collect()
}

/// What a value is, in words.
pub(super) fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => crate::words::quoted(text),
    }
}
