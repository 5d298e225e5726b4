//! The list of entries in a ConfigMap value, read so that whatever is wrong with an entry stays with that entry: every
//! shape is accepted here, with its line, and judged one by one later. Configuration is read in the same shapes.

use std::{collections::HashSet, fmt, marker::PhantomData};

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Spanned, options::DuplicateKeyPolicy, options::NonFiniteFloatPolicy};

use super::yaml::{self, YamlError};

/// The one key that is read.
pub(super) const LIST: &str = "controllerDefinitions";
/// Values that aliases may expand to: whole entries are repeated at most.
const REPLAYS: usize = 1_000;

/// A scalar.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Nothing,
    Bool(bool),
    Number,
    Text(String),
}

/// A value of any shape: what is of interest in a list or map depends on where it stands.
#[derive(Clone, Debug)]
pub(crate) enum Shape<S, M> {
    Scalar(Scalar),
    Seq(S),
    Map(M),
}

impl<S, M> Shape<S, M> {
    /// What it is, with its article.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Scalar(Scalar::Nothing) => "empty",
            Self::Scalar(Scalar::Bool(_)) => "a boolean",
            Self::Scalar(Scalar::Number) => "a number",
            Self::Scalar(Scalar::Text(_)) => "text",
            Self::Seq(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// Content that is skipped.
#[derive(Clone, Debug)]
pub(crate) struct Skipped;

/// A value of which only scalars are kept.
pub(super) type Leaf = Shape<Skipped, Skipped>;
/// An entry as it is written.
pub(super) type Entry = Shape<Skipped, Fields>;

/// The fields of an entry in order, repeated ones included.
#[derive(Clone, Debug)]
pub(super) struct Fields(pub Vec<(String, Spanned<Leaf>)>);

/// The entries of a list.
#[derive(Clone, Debug)]
pub(super) struct Entries(pub Vec<Spanned<Entry>>);

/// A map; what is of interest are the lists called [`LIST`] in it.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    pub lists: Vec<Spanned<Shape<Entries, Skipped>>>,
    /// Whether fields of an object follow a list: then the last `fullSpec` lost its indentation and its end.
    pub stray: bool,
}

/// A key as it is written.
pub(crate) type Key = Shape<Skipped, Skipped>;
/// A value of which everything is kept.
pub(crate) type Node = Shape<Items, Tree>;

/// The entries of a list, whatever they are.
#[derive(Clone, Debug)]
pub(crate) struct Items(pub Vec<Spanned<Node>>);

/// Keys and values in order, repeated ones included.
#[derive(Clone, Debug)]
pub(crate) struct Tree(pub Vec<(Spanned<Key>, Spanned<Node>)>);

/// A key as text; what it is, where it is none.
pub(crate) fn key_name(key: &Spanned<Key>) -> String {
    match &key.value {
        Shape::Scalar(Scalar::Text(name)) => name.clone(),
        other => format!("({})", other.what()),
    }
}

/// The one document of a text, with the lines before it; nothing where the text holds nothing.
///
/// # Errors
/// What is wrong with it, and in which line of the text.
pub(crate) fn only_document(text: &str) -> Result<Option<(u64, Spanned<Node>)>, YamlError> {
    let documents = yaml::documents(text);
    let Some(document) = documents.first() else { return Ok(None) };
    if let Some(second) = documents.get(1) {
        let message = "a second document begins here; keep one".to_owned();
        return Err(YamlError { line: second.first_line, message });
    }
    match read(document.text) {
        Ok(root) => Ok(Some((document.lines_before, root))),
        Err(YamlError { line, message }) => {
            let message = format!("this is not YAML: {message}");
            Err(YamlError { line: document.lines_before + line, message })
        }
    }
}

/// The entries of a map.
#[derive(Debug, Default)]
pub(crate) struct Keyed<'n> {
    /// Name, line and value of each; of those given twice, the first.
    pub entries: Vec<(String, u64, &'n Node)>,
    /// Name and line of those given once more.
    pub again: Vec<(String, u64)>,
}

/// The entries of a map; nothing at all has none.
///
/// # Errors
/// What it is instead of a map.
pub(crate) fn keyed(node: &Node) -> Result<Keyed<'_>, &'static str> {
    let mut keyed = Keyed::default();
    let mut known = HashSet::new();
    match node {
        Shape::Scalar(Scalar::Nothing) => {}
        Shape::Map(map) => {
            for (key, value) in &map.0 {
                let (name, line) = (key_name(key), key.referenced.line());
                if known.insert(name.clone()) {
                    keyed.entries.push((name, line, &value.value));
                } else {
                    keyed.again.push((name, line));
                }
            }
        }
        other => return Err(other.what()),
    }
    Ok(keyed)
}

/// Whether `name` is a field that objects have and neither entries nor the map around them.
pub(super) fn is_objects_own(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata" | "spec" | "data" | "rules" | "roleRef" | "subjects")
}

/// Reads one document of a ConfigMap value.
pub(super) fn read_document(text: &str) -> Result<Shape<Skipped, Lists>, YamlError> {
    read(text)
}

/// Reads text that should be a list of entries.
pub(super) fn read_list(text: &str) -> Result<Shape<Entries, Skipped>, YamlError> {
    read(text)
}

/// Reads text of one document in any shape; keys that are given twice are passed on.
pub(crate) fn read<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, YamlError> {
    let mut options = yaml::options(DuplicateKeyPolicy::PassThrough, REPLAYS);
    options.non_finite_float_policy = NonFiniteFloatPolicy::PassThrough;
    yaml::weigh(text, options.clone())?;
    serde_saphyr::from_str_with_options(text, options).map_err(YamlError::from)
}

pub(crate) trait FromSeq: Sized {
    fn from_seq<'de, A: SeqAccess<'de>>(items: A) -> Result<Self, A::Error>;
}

pub(crate) trait FromMap: Sized {
    fn from_map<'de, A: MapAccess<'de>>(entries: A) -> Result<Self, A::Error>;
}

impl FromSeq for Skipped {
    fn from_seq<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self)
    }
}

impl FromMap for Skipped {
    fn from_map<'de, A: MapAccess<'de>>(mut entries: A) -> Result<Self, A::Error> {
        while entries.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self)
    }
}

impl FromSeq for Items {
    fn from_seq<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(Self(all))
    }
}

impl FromMap for Tree {
    fn from_map<'de, A: MapAccess<'de>>(mut entries: A) -> Result<Self, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            all.push(entry);
        }
        Ok(Self(all))
    }
}

impl FromSeq for Entries {
    fn from_seq<'de, A: SeqAccess<'de>>(mut items: A) -> Result<Self, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = items.next_element()? {
            entries.push(entry);
        }
        Ok(Self(entries))
    }
}

impl FromMap for Fields {
    fn from_map<'de, A: MapAccess<'de>>(mut entries: A) -> Result<Self, A::Error> {
        let mut fields = Vec::new();
        while let Some(key) = entries.next_key::<Leaf>()? {
            match key {
                Shape::Scalar(Scalar::Text(name)) => fields.push((name, entries.next_value()?)),
                // Unknown fields are tolerated, whatever their names are made of.
                _ => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Self(fields))
    }
}

impl FromMap for Lists {
    fn from_map<'de, A: MapAccess<'de>>(mut entries: A) -> Result<Self, A::Error> {
        let (mut lists, mut stray) = (Vec::new(), false);
        while let Some(key) = entries.next_key::<Leaf>()? {
            match key {
                Shape::Scalar(Scalar::Text(name)) if name == LIST => lists.push(entries.next_value()?),
                other => {
                    let objects_own = matches!(other, Shape::Scalar(Scalar::Text(name)) if is_objects_own(&name));
                    stray |= objects_own && !lists.is_empty();
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Self { lists, stray })
    }
}

impl<'de, S: FromSeq, M: FromMap> Deserialize<'de> for Shape<S, M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyShape(PhantomData))
    }
}

struct AnyShape<S, M>(PhantomData<(S, M)>);

impl<'de, S: FromSeq, M: FromMap> Visitor<'de> for AnyShape<S, M> {
    type Value = Shape<S, M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Shape::Scalar(Scalar::Bool(value)))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Shape::Scalar(Scalar::Number))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Shape::Scalar(Scalar::Number))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Shape::Scalar(Scalar::Number))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Shape::Scalar(Scalar::Nothing))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Shape::Scalar(Scalar::Text(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Self::Value, E> {
        Ok(Shape::Scalar(Scalar::Text(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        S::from_seq(items).map(Shape::Seq)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        M::from_map(entries).map(Shape::Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_as_large_as_can_be_stored_is_looked_through_in_no_time() {
        let text: String = (0..100_000).chain([7]).map(|n| format!("key-{n}:\n")).collect();
        let (_, root) = only_document(&text).unwrap().unwrap();
        let begun = std::time::Instant::now();
        let keyed = keyed(&root.value).unwrap();
        assert_eq!((keyed.entries.len(), keyed.again), (100_000, vec![("key-7".to_owned(), 100_001)]));
        // In the square of their number it takes a minute; this is many times what it takes without optimisations.
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    }
}
