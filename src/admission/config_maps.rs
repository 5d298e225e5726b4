//! Platform ConfigMaps: what is asked of them before they are stored. Pure.
//!
//! What is malformed is refused, but for what was malformed already: an update that mends one of two entries must not have to
//! mend both. What is legal and has consequences elsewhere is stored with a warning: a version that goes or changes, and one
//! that two ConfigMaps define differently. The latter is a state that one passes through when a definition moves from one
//! ConfigMap to another, in whichever order they are applied, and takes nothing away from what runs.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::admission::Operation;
use serde_json::Value;

use super::{About, Judgement, User, View, review::Review, rollouts::decode};
use crate::{
    api::{CONFIG_CHANGES, CONFIG_DEFINITIONS, CONFIG_NAMESPACE, LABEL_CONFIG},
    changes,
    definitions::{Catalogue, ConfigMapName, Instance, Located, Lookup, Parsed, Saying, parse_config_map, render},
    fallback::{self, Fault},
    nearest::nearest,
    settings::Settings,
    valid::Finding,
    words::list,
};

/// Values of the label that mean something.
const MEANINGS: [&str; 3] = [CONFIG_DEFINITIONS, CONFIG_CHANGES, CONFIG_NAMESPACE];
/// Most definitions from which objects are made to see whether they can be, as that takes its time.
const RENDERED: usize = 50;
/// Most rollouts that a warning names.
const NAMED: usize = 10;

/// Whether a review is about a ConfigMap.
#[must_use]
pub fn is_about(review: &Review) -> bool {
    review.kind.group.is_empty() && review.kind.kind == "ConfigMap"
}

/// Judges a review of a ConfigMap; one without the label is nobody's business here.
#[must_use]
pub fn judge(review: &Review, known: &View<'_>) -> Judgement {
    let mut judgement = Judgement::default();
    if !review.sub_resource.is_empty() {
        return judgement;
    }
    let (new, old) = match review.operation {
        Some(Operation::Create) => (review.object.as_ref(), None),
        Some(Operation::Update) => (review.object.as_ref(), review.old_object.as_ref()),
        Some(Operation::Delete) => (None, review.old_object.as_ref()),
        _ => return judgement,
    };
    // What cannot be read was not read before either.
    let old = old.and_then(|old| Map::read(old).ok());
    let new = match new.map(Map::read).transpose() {
        Ok(new) => new.unwrap_or_default(),
        Err(finding) => return Judgement { violations: vec![finding], ..judgement },
    };
    let leaving = review.object.as_ref().is_some_and(|object| !object["metadata"]["deletionTimestamp"].is_null());
    if leaving || old.as_ref() == Some(&new) {
        return judgement;
    }
    let old = old.unwrap_or_default();
    let settings = known.settings();
    let [old_definitions, new_definitions] = [&old, &new].map(|map| map.definitions(review, settings));
    judgement.warnings.extend(unread(&new, review, settings));
    if new.counts(&review.namespace, settings) {
        // What meant something else before was not in use.
        let before = if new.meaning == old.meaning { old.faults(&old_definitions) } else { Vec::new() };
        judgement.ratchet(new.faults(&new_definitions), before.into_iter().map(|(_, mark)| mark));
        judgement.warnings.extend(new.ignored_keys());
        judgement.warnings.extend(unusable(&new_definitions, &old_definitions, settings));
    }
    if judgement.violations.is_empty() && (new.means(CONFIG_DEFINITIONS) || old.means(CONFIG_DEFINITIONS)) {
        consequences(new_definitions, old_definitions, review, known, &mut judgement);
    }
    judgement
}

/// What matters of a ConfigMap; nothing, of one that there is not.
#[derive(Clone, Debug, Default, PartialEq)]
struct Map {
    /// What the label says.
    meaning: Option<String>,
    data: BTreeMap<String, String>,
    has_binary_data: bool,
}

impl Map {
    fn read(object: &Value) -> Result<Self, Finding> {
        let map: ConfigMap = decode(object)?;
        Ok(Self {
            meaning: map.metadata.labels.and_then(|mut labels| labels.remove(LABEL_CONFIG)),
            data: map.data.unwrap_or_default(),
            has_binary_data: map.binary_data.is_some_and(|data| !data.is_empty()),
        })
    }

    fn means(&self, meaning: &str) -> bool {
        self.meaning.as_deref() == Some(meaning)
    }

    /// Whether it is read in this namespace.
    fn counts(&self, namespace: &str, settings: &Settings) -> bool {
        let own = namespace == settings.operator_namespace;
        match self.meaning.as_deref() {
            Some(CONFIG_DEFINITIONS) => own || (settings.definitions_anywhere && settings.serves(namespace)),
            Some(CONFIG_CHANGES) => own,
            Some(CONFIG_NAMESPACE) => !own && settings.serves(namespace),
            _ => false,
        }
    }

    /// The definitions in it that count.
    fn definitions(&self, review: &Review, settings: &Settings) -> Parsed {
        if self.means(CONFIG_DEFINITIONS) && self.counts(&review.namespace, settings) {
            parse_config_map(&review.namespace, &review.name, &self.data)
        } else {
            Parsed::default()
        }
    }

    /// What is wrong with it, each with what tells it from others.
    fn faults(&self, definitions: &Parsed) -> Vec<(Finding, Mark)> {
        let of_fault = |fault: &Fault| {
            let line = fault.line.map(|line| format!("line {line}: ")).unwrap_or_default();
            let key = fault.key.clone().unwrap_or_default();
            let finding = Finding { field: field(&key), message: format!("{line}{}", fault.message) };
            (finding, Mark { key, version: None, wrong: Wrong::Malformed(fault.message.clone()) })
        };
        match self.meaning.as_deref() {
            Some(CONFIG_DEFINITIONS) => {
                let malformed = definitions.errors.iter().map(|error| {
                    let finding = Finding { field: field(&error.key), message: error.in_key() };
                    let (key, version) = (error.key.clone(), error.version.clone());
                    (finding, Mark { key, version, wrong: Wrong::Malformed(error.message.clone()) })
                });
                malformed.chain(contradictions(definitions)).collect()
            }
            Some(CONFIG_CHANGES) => changes::parse(&self.data).faults().map(of_fault).collect(),
            Some(CONFIG_NAMESPACE) => {
                fallback::parse_config_map(&self.data).err().unwrap_or_default().iter().map(of_fault).collect()
            }
            _ => Vec::new(),
        }
    }

    fn ignored_keys(&self) -> Option<String> {
        let said = fallback::parse_config_map(&self.data).ok().filter(|_| self.means(CONFIG_NAMESPACE))?;
        let keys = list(&said.ignored, NAMED);
        (!keys.is_empty()).then(|| format!("data: these keys mean nothing here, and are ignored: {keys}"))
    }
}

/// What a fault is told by, wherever in its key it stands.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark {
    key: String,
    version: Option<String>,
    wrong: Wrong,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Wrong {
    /// This is said of it.
    Malformed(String),
    /// Its version is defined differently before it.
    Contradiction,
}

fn field(key: &str) -> String {
    if key.is_empty() { "data".to_owned() } else { format!("data[{key}]") }
}

/// Versions that one ConfigMap defines more than once with different content: nobody could use them.
fn contradictions(parsed: &Parsed) -> impl Iterator<Item = (Finding, Mark)> {
    let mut defined: HashMap<&str, &Located> = HashMap::new();
    parsed.definitions.iter().filter_map(move |located| {
        let version = &located.definition.version;
        let first = *defined.entry(version).or_insert(located);
        if first.says_the_same(located) {
            return None;
        }
        let (place, before) = (&located.place, &first.place);
        let key = if before.key == place.key { String::new() } else { format!("key {:?}, ", before.key) };
        let message = format!(
            "entry {} (version {version:?}), line {}: {key}entry {}, line {} defines the same version with different content; \
             remove one of the two",
            place.entry, place.line, before.entry, before.line
        );
        let mark = Mark { key: place.key.clone(), version: Some(version.clone()), wrong: Wrong::Contradiction };
        Some((Finding { field: field(&place.key), message }, mark))
    })
}

/// What is not read of a ConfigMap, and why.
fn unread(new: &Map, review: &Review, settings: &Settings) -> Vec<String> {
    let Some(meaning) = new.meaning.as_deref() else { return Vec::new() };
    let (namespace, own) = (review.namespace.as_str(), settings.operator_namespace.as_str());
    if !MEANINGS.contains(&meaning) {
        let meant = nearest(meaning, MEANINGS.into_iter()).map(|it| format!("; did you mean {it:?}?"));
        return vec![format!(
            "label {LABEL_CONFIG}: {meaning:?} means nothing here{} It may be {}",
            meant.unwrap_or_else(|| ".".to_owned()),
            MEANINGS.join(", ")
        )];
    }
    if new.counts(namespace, settings) {
        let binary = new.has_binary_data.then(|| "binaryData: is not read; put the text in data".to_owned());
        return binary.into_iter().collect();
    }
    vec![match meaning {
        CONFIG_NAMESPACE if namespace == own => {
            "nothing of this is read: a namespace-level configuration does not count in the operator's own namespace, whose \
             rollouts have the operator's config file"
                .to_owned()
        }
        CONFIG_CHANGES => {
            format!("nothing of this is read: {meaning} counts in the operator's own namespace {own:?} only")
        }
        CONFIG_DEFINITIONS if !settings.definitions_anywhere => format!(
            "nothing of this is read: definitions count in the operator's own namespace {own:?} only, as long as the operator \
             runs without --allow-namespace-definitions"
        ),
        _ => format!("nothing of this is read: the operator does not serve namespace {namespace:?} (--watch-namespace)"),
    }]
}

/// Definitions that are new and from which nothing can be made, whoever asks for them.
fn unusable(new: &Parsed, old: &Parsed, settings: &Settings) -> Vec<String> {
    let known: HashMap<&str, &Located> =
        old.definitions.iter().map(|located| (located.definition.version.as_str(), located)).collect();
    let says = |located: &&Located| {
        let before = known.get(located.definition.version.as_str());
        before.is_none_or(|before| !before.says_the_same(located))
    };
    let production = Instance::production("");
    let rendered = new.definitions.iter().filter(says).take(RENDERED).filter_map(|located| {
        let error = render(&located.definition, &production, &settings.permitted).err()?;
        let (version, place) = (&located.definition.version, &located.place);
        let (field, entry, line) = (field(&place.key), place.entry, place.line);
        Some(format!("{field}: entry {entry} (version {version:?}), line {line}: nobody can use it: {error}"))
    });
    rendered.collect()
}

/// What becomes of versions that are in use, and of those that another ConfigMap defines too.
fn consequences(new: Parsed, old: Parsed, review: &Review, known: &View<'_>, judgement: &mut Judgement) {
    let settings = known.settings();
    let (namespace, name) = (review.namespace.as_str(), review.name.as_str());
    // The ConfigMap itself may not have been seen as it is stored.
    let mut before = known.catalogue();
    before.set(namespace, name, old);
    let mut after = before.clone();
    let changed = after.set(namespace, name, new);
    let twice = |catalogue: &Catalogue, version: &str| catalogue.saying(&[namespace], version) == Saying::Ambiguous;
    for version in changed.iter().filter(|version| twice(&after, version) && !twice(&before, version)) {
        judgement.warn(ambiguous(&after, namespace, name, version));
    }
    let defined = |version: &&String| matches!(before.saying(&[namespace], version), Saying::Definition(_));
    let changed: Vec<&String> = changed.iter().filter(defined).collect();
    if changed.is_empty() {
        return;
    }
    let own = namespace == settings.operator_namespace;
    let users = known.users((!own).then_some(namespace));
    let mut using: HashMap<&str, Vec<&User>> = HashMap::new();
    for user in &users {
        using.entry(&user.wanted).or_default().push(user);
        if user.promoted != user.wanted {
            using.entry(&user.promoted).or_default().push(user);
        }
    }
    let mut fates: BTreeMap<(&String, Fate), Vec<String>> = BTreeMap::new();
    for version in changed {
        for user in using.get(version.as_str()).into_iter().flatten() {
            if let Some(fate) = Fate::of(user, version, &before, &after, settings) {
                fates.entry((version, fate)).or_default().push(format!("{}/{}", user.namespace, user.name));
            }
        }
    }
    if fates.is_empty() {
        let about = if own { About::AllRollouts } else { About::Rollouts };
        judgement
            .doubt(about, "whether any NumaflowControllerRollout uses what is removed or changed could not be checked");
    }
    for ((version, fate), names) in fates {
        judgement.warn(fate.warning(version, &names));
    }
}

fn ambiguous(after: &Catalogue, namespace: &str, name: &str, version: &str) -> String {
    let places = match after.lookup(&[namespace], version) {
        Lookup::Ambiguous { places } => places,
        _ => Vec::new(),
    };
    let own = ConfigMapName { namespace: namespace.to_owned(), name: name.to_owned() };
    let other = places.iter().find(|place| place.configmap != own);
    format!(
        "version {version:?} is defined differently in {}: nobody can be upgraded to it until one of the two is removed",
        other.map_or_else(|| "another ConfigMap".to_owned(), ToString::to_string)
    )
}

/// What becomes of a rollout when the definition of a version that it uses goes or changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// Nobody defines the version any more.
    Removed,
    /// It is defined otherwise, and asked for.
    Changed,
    /// It is defined twice now.
    Ambiguous,
}

impl Fate {
    fn of(user: &User, version: &str, before: &Catalogue, after: &Catalogue, settings: &Settings) -> Option<Self> {
        let definers = settings.definers(&user.namespace);
        let (before, after) = (before.saying(&definers, version), after.saying(&definers, version));
        match after {
            Saying::Nothing if after != before => Some(Self::Removed),
            Saying::Ambiguous if after != before => Some(Self::Ambiguous),
            // Who runs it and asks for another keeps what it runs.
            Saying::Definition(_) if after != before && user.wanted == version => Some(Self::Changed),
            _ => None,
        }
    }

    fn warning(self, version: &str, names: &[String]) -> String {
        let rollouts = if names.len() == 1 { "NumaflowControllerRollout" } else { "NumaflowControllerRollouts" };
        let using = format!("{} {rollouts}: {}", names.len(), list(names, NAMED));
        match self {
            Self::Removed => format!(
                "version {version:?} is not defined any more; what runs it keeps its pinned copy, nobody else gets it. Used by \
                 {using}"
            ),
            Self::Changed => {
                format!(
                    "version {version:?} is defined otherwise now; this begins an upgrade to the changed definition of {using}"
                )
            }
            Self::Ambiguous => format!(
                "version {version:?} is ambiguous now; what runs it keeps its pinned copy, nobody else gets it. Used by {using}"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
