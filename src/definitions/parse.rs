//! From a ConfigMap to definitions: every data key and every entry is read on its own, and what is wrong with one is
//! told with its line and takes no other with it.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use serde_json::{Value, json};
use serde_saphyr::Spanned;

use super::{
    definition::{ConfigMapName, Definition, EntryError, EntryPlace, Located, Parsed},
    entries::{self, Entries, Entry, Fields, LIST, Leaf, Scalar, Shape, Skipped, is_objects_own},
    hash,
    objects::{self, DocumentError},
    salvage,
    template::Instance,
    yaml::{self, Document},
};

/// Reads the `data` of a ConfigMap: the value of every key is YAML with a list `controllerDefinitions` of
/// `{version, fullSpec, isolated?, leaderElection?}`. Names of keys and unknown fields do not matter.
///
/// An entry is good if its version is one and its `fullSpec`, rendered for some instance, is a stream of YAML documents
/// that are objects. Whether its kinds and names are permitted depends on who asks, see [`super::render()`].
#[must_use]
pub fn parse_config_map(namespace: &str, name: &str, data: &BTreeMap<String, String>) -> Parsed {
    let mut parsed = Parsed::default();
    let configmap = ConfigMapName { namespace: namespace.to_owned(), name: name.to_owned() };
    for (key, value) in data {
        let lines = value.lines().collect();
        Reader { configmap: &configmap, key, value, lines, entries: 0, parsed: &mut parsed }.value();
    }
    parsed
}

/// Reads the value of one key.
struct Reader<'a> {
    configmap: &'a ConfigMapName,
    key: &'a str,
    value: &'a str,
    /// The lines of the value.
    lines: Vec<&'a str>,
    /// Entries seen so far, good or bad.
    entries: usize,
    parsed: &'a mut Parsed,
}

/// What is wrong with an entry, before it is known which.
struct Fault {
    version: Option<String>,
    line: u64,
    /// Line of `fullSpec`, where that of the value is not known.
    spec_line: Option<u64>,
    message: String,
}

impl Fault {
    fn at(line: u64, message: impl Into<String>) -> Self {
        Self { version: None, line, spec_line: None, message: message.into() }
    }

    fn of(self, version: Option<&str>) -> Self {
        Self { version: version.map(str::to_owned), ..self }
    }
}

impl Reader<'_> {
    fn value(&mut self) {
        let documents = yaml::documents(self.value);
        let mut lists = Vec::new();
        let mut faults = Vec::new();
        let mut readable = true;
        for document in &documents {
            match entries::read_document(document.text) {
                Ok(Shape::Scalar(Scalar::Nothing)) => {}
                Ok(Shape::Map(map)) if !map.lists.is_empty() => {
                    readable &= !map.stray;
                    lists.push((document, map.lists));
                }
                Ok(Shape::Map(_)) => {
                    let message = format!("there is no list {LIST}; add it, or move this to a ConfigMap of its own");
                    faults.push((document.first_line, message));
                }
                Ok(other) => {
                    let message = format!("this is {}; it must be a map with a list {LIST}", other.what());
                    faults.push((document.first_line, message));
                }
                Err(error) => {
                    readable = false;
                    faults.push((document.lines_before + error.line, format!("this is not YAML: {}", error.message)));
                }
            }
        }
        // Where one of several documents is no list, a `---` inside a fullSpec may have lost its indentation; then the
        // documents are not what the author meant, and the entry before it lacks its end.
        if !faults.is_empty() && documents.len() > 1 {
            readable = false;
        }
        let known = (self.entries, self.parsed.errors.len());
        if !readable {
            self.salvage();
        }
        if self.entries == known.0 {
            for (document, lists) in lists {
                self.lists(document, lists);
            }
        }
        // A broken value is told by its broken entries, if it can be.
        if readable || self.parsed.errors.len() == known.1 {
            for (line, message) in faults {
                self.fault(None, Fault::at(line, message));
            }
        }
    }

    fn lists(&mut self, document: &Document<'_>, lists: Vec<Spanned<Shape<Entries, Skipped>>>) {
        for (n, list) in lists.into_iter().enumerate() {
            let line = document.lines_before + list.referenced.line();
            if n > 0 {
                self.fault(None, Fault::at(line, format!("{LIST} is given twice; move its entries to one list")));
            }
            match list.value {
                Shape::Seq(Entries(entries)) => {
                    for entry in entries {
                        self.entry(entry, document.lines_before, document.text);
                    }
                }
                Shape::Scalar(Scalar::Nothing) => {}
                other => self.fault(None, Fault::at(line, format!("{LIST} is {}; it must be a list", other.what()))),
            }
        }
    }

    /// Reads entry by entry a value that cannot be read as a whole.
    fn salvage(&mut self) {
        let value = self.value;
        for chunk in salvage::chunks(value) {
            let documents = yaml::documents(chunk.text);
            let (line, message) = match entries::read_list(chunk.text) {
                _ if documents.len() > 1 => {
                    let message = "a \"---\" stands left of its place and ends the entry; indent it with its fullSpec";
                    (documents[1].lines_before + 1, message.to_owned())
                }
                Ok(Shape::Seq(Entries(mut entries))) if entries.len() == 1 => {
                    if let Some(entry) = entries.pop() {
                        self.entry(entry, chunk.lines_before, chunk.text);
                    }
                    continue;
                }
                Ok(Shape::Seq(Entries(entries))) => {
                    let line = entries.get(1).map_or(1, |second| second.referenced.line());
                    (line, "text of the entry stands left of its place; indent it with its fullSpec".to_owned())
                }
                Ok(_) => (1, "this is not an entry; write a map with version and fullSpec".to_owned()),
                Err(error) => (error.line, format!("this is not YAML: {}", error.message)),
            };
            self.entries += 1;
            let version = salvage::version(chunk.text).filter(|version| version_fault(version).is_none());
            self.fault(Some(self.entries), Fault::at(chunk.lines_before + line, message).of(version.as_deref()));
        }
    }

    fn fault(&mut self, entry: Option<usize>, fault: Fault) {
        let (configmap, key) = (self.configmap.clone(), self.key.to_owned());
        let Fault { version, line, spec_line, message } = fault;
        self.parsed.errors.push(EntryError { configmap, key, entry, version, line: Some(line), spec_line, message });
    }

    /// Reads an entry that was found in `source`, which has `before` lines of the value before it.
    fn entry(&mut self, entry: Spanned<Entry>, before: u64, source: &str) {
        self.entries += 1;
        let line = before + entry.referenced.line();
        match self.definition(entry.value, line, before, source) {
            Ok((definition, fingerprint)) => {
                let (configmap, key) = (self.configmap.clone(), self.key.to_owned());
                let place = EntryPlace { configmap, key, entry: self.entries, line };
                self.parsed.definitions.push(Located { definition: Arc::new(definition), place, fingerprint });
            }
            Err(fault) => self.fault(Some(self.entries), fault),
        }
    }

    fn definition(&self, entry: Entry, line: u64, before: u64, source: &str) -> Result<(Definition, String), Fault> {
        let Shape::Map(Fields(mut fields)) = entry else {
            return Err(Fault::at(
                line,
                format!("the entry is {}; it must be a map with version and fullSpec", entry.what()),
            ));
        };
        let names = fields.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let mut seen = HashSet::new();
        let twice = fields.iter().find(|(name, _)| !seen.insert(name)).map(|(name, value)| {
            (before + value.referenced.line(), format!("{name} is given twice; remove one of the two"))
        });
        let stray = fields.iter().find(|(name, _)| is_objects_own(name)).map(|(name, value)| {
            let message = format!("{name} stands left of its place; indent it with the text of fullSpec");
            (before + value.referenced.line(), message)
        });
        let mut take =
            |name: &str| fields.iter().position(|(field, _)| field == name).map(|at| fields.swap_remove(at).1);
        let missing = |name| format!("the entry has no {name} (its fields are: {names}); add it");

        let version = take("version").ok_or_else(|| Fault::at(line, missing("version")))?;
        let version_line = before + version.referenced.line();
        let version = version_text(&version, source).map_err(|message| Fault::at(version_line, message))?;
        let fault = |line, message: String| Fault::at(line, message).of(Some(&version));
        if let Some((line, message)) = twice.or(stray) {
            return Err(fault(line, message));
        }
        let spec = take("fullSpec").ok_or_else(|| fault(line, missing("fullSpec")))?;
        let spec_line = before + spec.referenced.line();
        let full_spec = match spec.value {
            Shape::Scalar(Scalar::Text(text)) => text,
            other => {
                let message =
                    format!("fullSpec is {}; write the objects as text, below \"fullSpec: |-\"", other.what());
                return Err(fault(spec_line, message));
            }
        };
        let mut setting = |name| switch(name, take(name)).map_err(|(line, message)| fault(before + line, message));
        let (isolated, leader_election) = (setting("isolated")?, setting("leaderElection")?);
        let fingerprint = fingerprint(&full_spec, isolated, leader_election).map_err(|problem| {
            let DocumentError { place, .. } = &problem;
            match self.line_in_value(&full_spec, spec_line, place.line) {
                Some(line) => fault(line, problem.to_string()),
                None => Fault { spec_line: Some(place.line), ..fault(spec_line, problem.to_string()) },
            }
        })?;
        Ok((Definition { version, full_spec, isolated, leader_election }, fingerprint))
    }

    /// The line of the value on which line `line` of `full_spec` stands, if it stands there as it is (in a block
    /// scalar).
    /// `first` is the line of its first character that is not a line break.
    fn line_in_value(&self, full_spec: &str, first: u64, line: u64) -> Option<u64> {
        let blank = full_spec.bytes().take_while(|byte| *byte == b'\n').count() as u64;
        let candidate = (first + line).checked_sub(blank + 1)?;
        let index = |line: u64| usize::try_from(line.checked_sub(1)?).ok();
        let here = self.lines.get(index(candidate)?)?;
        let there = full_spec.lines().nth(index(line)?)?;
        (here.trim() == there.trim()).then_some(candidate)
    }
}

/// The version of an entry as text, or why it is none.
fn version_text(version: &Spanned<Leaf>, source: &str) -> Result<String, String> {
    let text = match &version.value {
        Shape::Scalar(Scalar::Text(text)) => text.clone(),
        // `version: 1.10` is the number 1.1; what was written is still there to be read.
        Shape::Scalar(Scalar::Number | Scalar::Bool(_)) => {
            let span = version.defined.span();
            let written = span.byte_offset().zip(span.byte_len()).and_then(|(start, length)| {
                let start = usize::try_from(start).ok()?;
                source.get(start..start.checked_add(usize::try_from(length).ok()?)?)
            });
            let Some(written) = written else {
                return Err(format!("version is {}; put it in quotes", version.value.what()));
            };
            written.trim().to_owned()
        }
        other => return Err(format!("version is {}; write it as text", other.what())),
    };
    match version_fault(&text) {
        None => Ok(text),
        Some(fault) => Err(fault),
    }
}

/// Why text cannot be a version.
fn version_fault(version: &str) -> Option<String> {
    if version.is_empty() {
        return Some("version is empty; write the version that rollouts name".to_owned());
    }
    if version.chars().count() > 63 {
        return Some("version has more than 63 characters; shorten it".to_owned());
    }
    if version.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Some(format!("version {version:?} contains white space; remove it"));
    }
    None
}

/// A boolean field, or its line and why it is none. Templating tools like to quote, so `"true"` is taken as well.
fn switch(name: &str, field: Option<Spanned<Leaf>>) -> Result<Option<bool>, (u64, String)> {
    let Some(field) = field else { return Ok(None) };
    match &field.value {
        Shape::Scalar(Scalar::Nothing) => Ok(None),
        Shape::Scalar(Scalar::Bool(value)) => Ok(Some(*value)),
        Shape::Scalar(Scalar::Text(text)) if text == "true" => Ok(Some(true)),
        Shape::Scalar(Scalar::Text(text)) if text == "false" => Ok(Some(false)),
        other => Err((field.referenced.line(), format!("{name} is {}; it must be true or false", other.what()))),
    }
}

/// Checks the documents of `full_spec`, and hashes what they say.
fn fingerprint(
    full_spec: &str,
    isolated: Option<bool>,
    leader_election: Option<bool>,
) -> Result<String, DocumentError> {
    // An instance with a name of its own: two definitions that differ only in where they put it are not the same.
    let instance = Instance { id: "sample-id".to_owned(), suffix: "-sample-suffix".to_owned() };
    let mut objects: Vec<_> = objects::read(full_spec, &instance)?.into_iter().map(|found| found.object).collect();
    if objects.is_empty() {
        let place = objects::Place { document: 1, item: None, line: 1 };
        return Err(DocumentError {
            place,
            problem: "there is no object; write the objects of the controller".to_owned(),
        });
    }
    objects.sort_by(|a, b| a.key.cmp(&b.key));
    let settings: Value = json!([isolated, leader_election]);
    Ok(hash::sha256(objects.iter().map(|object| &object.body).chain([&settings])))
}

#[cfg(test)]
mod tests;
