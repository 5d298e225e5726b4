//! From a definition to the objects that are applied.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};

use super::{
    config_hash::Contents,
    definition::Definition,
    hash,
    kinds::{self, PermittedKinds},
    normalise,
    objects::{self, DocumentError, Found, Object, ObjectKey, Place},
    template::Instance,
};
use crate::{
    api::ANNOTATION_CONFIG_HASH,
    names::{self, NameProblem},
};

/// The objects of a definition for one instance, in any namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// The objects in the order in which they are applied: service accounts, ConfigMaps, Secrets, Roles, bindings,
    /// Services, others, workloads; in the order of the definition within each.
    pub objects: Vec<Object>,
    /// `v1:` and 64 hexadecimal digits: sha256 of the objects as the definition has them. Comments, the order of
    /// documents and fields and the style of quoting change nothing, nor does the namespace. Rendered for the
    /// production instance this is the `definitionHash`.
    pub hash: String,
}

/// Why a definition cannot be rendered for an instance. The texts name the object and what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenderError {
    /// A document is not an object.
    #[error("{error}, line {}", error.place.line)]
    Document {
        /// Which and why.
        error: DocumentError,
    },
    /// There is no object in it.
    #[error("fullSpec holds no object")]
    Empty {},
    /// A kind that definitions may not hold.
    #[error(
        "{object} ({place}) is of a kind that definitions may not hold: {} is not among {permitted}; take it out of \
         the definition, or have the platform team permit it (--permit-kind={})",
        object.group_kind(),
        object.group_kind()
    )]
    KindNotPermitted {
        /// The object.
        object: Box<ObjectKey>,
        /// Where it stands.
        place: Place,
        /// The kinds that are permitted.
        permitted: String,
    },
    /// A name that the server, or the controllers behind it, cannot take.
    #[error(
        "the name of {object} ({place}) has {} characters and may have {limit}: shorten it, or the instance ID",
        object.name.len()
    )]
    NameTooLong {
        /// The object.
        object: Box<ObjectKey>,
        /// Where it stands.
        place: Place,
        /// The most characters it may have.
        limit: usize,
    },
    /// A name that the server does not take for one.
    #[error("the name of {object} ({place}) is not valid: {rule}")]
    InvalidName {
        /// The object.
        object: Box<ObjectKey>,
        /// Where it stands.
        place: Place,
        /// What a name of this kind is made of.
        rule: &'static str,
    },
    /// A field that would take the object out of the operator's hands.
    #[error("{object} ({place}) has metadata.{field}: {why}; remove the field")]
    ForbiddenField {
        /// The object.
        object: Box<ObjectKey>,
        /// Where it stands.
        place: Place,
        /// The field of metadata.
        field: &'static str,
        /// Why it cannot be.
        why: &'static str,
    },
    /// Two objects with one name.
    #[error("{object} is defined twice ({first} and {place}): remove one of the two")]
    Duplicate {
        /// The object.
        object: Box<ObjectKey>,
        /// Where it stands first.
        first: Place,
        /// Where it stands again.
        place: Place,
    },
}

impl RenderError {
    /// One word for conditions, events and metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Document { .. } | Self::Empty {} => "DefinitionMalformed",
            Self::KindNotPermitted { .. } => "KindNotPermitted",
            Self::NameTooLong { .. } => "NameTooLong",
            Self::InvalidName { .. } => "InvalidName",
            Self::ForbiddenField { .. } => "ForbiddenField",
            Self::Duplicate { .. } => "DuplicateObject",
        }
    }
}

/// Fields of metadata that are refused, and why.
const FORBIDDEN: [(&str, &str); 3] = [
    ("generateName", "an object without a name of its own cannot be found again"),
    ("ownerReferences", "the object would go with an owner that the operator does not know"),
    ("finalizers", "the object could not be removed without whoever serves them"),
];

/// Renders `definition` for `instance`. The namespace comes when an object is applied.
///
/// # Errors
/// The first object that cannot be applied as it stands, see [`RenderError`]. What only the server knows (schemas,
/// quota, admission) is left to a dry-run.
pub fn render(
    definition: &Definition,
    instance: &Instance,
    permitted: &PermittedKinds,
) -> Result<Rendered, RenderError> {
    let mut found = objects::read(&definition.full_spec, instance).map_err(|error| RenderError::Document { error })?;
    if found.is_empty() {
        return Err(RenderError::Empty {});
    }
    let mut places = HashMap::new();
    for Found { place, object } in &mut found {
        let (key, place) = (&object.key, *place);
        if !permitted.permits(key) {
            let permitted = permitted.to_string();
            return Err(RenderError::KindNotPermitted { object: Box::new(key.clone()), place, permitted });
        }
        check_metadata(object, place)?;
        let key = &object.key;
        if let Some(first) = places.insert((key.group.clone(), key.kind.clone(), key.name.clone()), place) {
            return Err(RenderError::Duplicate { object: Box::new(key.clone()), first, place });
        }
    }
    let mut objects: Vec<_> = found.into_iter().map(|found| found.object).collect();
    let hash = definition_hash(&objects);
    for Object { key, body, .. } in &mut objects {
        normalise::for_apply(key, body);
    }
    objects.sort_by_key(|object| kinds::rank(&object.key));
    Ok(Rendered { objects, hash })
}

/// Leaves in metadata what may be there, or says what may not. A namespace that is the right one goes as well, so that
/// the hash is the same with and without it.
fn check_metadata(object: &mut Object, place: Place) -> Result<(), RenderError> {
    normalise::drop_server_owned(&mut object.body);
    let key = &object.key;
    match names::check(key) {
        Ok(()) => {}
        Err(NameProblem::TooLong(limit)) => {
            return Err(RenderError::NameTooLong { object: Box::new(key.clone()), place, limit });
        }
        Err(NameProblem::Invalid(rule)) => {
            return Err(RenderError::InvalidName { object: Box::new(key.clone()), place, rule });
        }
    }
    let Some(metadata) = object.body.get_mut("metadata").and_then(Value::as_object_mut) else { return Ok(()) };
    for (field, why) in FORBIDDEN {
        if metadata.contains_key(field) {
            return Err(RenderError::ForbiddenField { object: Box::new(key.clone()), place, field, why });
        }
    }
    object.namespace = metadata.remove("namespace").map(|n| n.as_str().map_or_else(|| n.to_string(), str::to_owned));
    Ok(())
}

/// The hash of the objects, whatever their order.
fn definition_hash(objects: &[Object]) -> String {
    let mut sorted: Vec<_> = objects.iter().collect();
    sorted.sort_by_key(|object| &object.key);
    format!("v1:{}", hash::sha256(sorted.into_iter().map(|object| &object.body)))
}

impl Rendered {
    /// For each workload of group `apps` whose pods use ConfigMaps or Secrets of this set: a hash of
    /// their content, 16 hexadecimal digits. Volumes (projected ones, too) and the environment of all containers count.
    #[must_use]
    pub fn config_hashes(&self) -> BTreeMap<ObjectKey, String> {
        let contents = Contents::of(&self.objects);
        let hash = |object: &Object| Some((object.key.clone(), contents.hash_for(object)?));
        self.objects.iter().filter_map(hash).collect()
    }

    /// Writes [`Self::config_hashes`] into the annotations of the pod templates, so that a change of configuration
    /// rolls the pods. Workloads that use no configuration of this set stay as they are, and so does [`Self::hash`].
    pub fn add_config_hashes(&mut self) {
        let hashes = self.config_hashes();
        for Object { key, body, .. } in &mut self.objects {
            let Some(hash) = hashes.get(key) else { continue };
            let Some(template) = body.pointer_mut("/spec/template").and_then(Value::as_object_mut) else { continue };
            let metadata = template.entry("metadata").or_insert(Value::Null);
            if metadata.is_null() {
                *metadata = json!({});
            }
            let Some(metadata) = metadata.as_object_mut() else { continue };
            let annotations = metadata.entry("annotations").or_insert(Value::Null);
            if annotations.is_null() {
                *annotations = json!({});
            }
            if let Some(annotations) = annotations.as_object_mut() {
                annotations.insert(ANNOTATION_CONFIG_HASH.to_owned(), Value::String(hash.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests;
