//! Labels and selectors of isolated objects: what is the copy's own finds each other, and nothing else.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Footprint, NotIsolated};
use crate::{
    api::{LABEL_ISOLATED, LABEL_TRACKING, fit},
    definitions::{
        objects::Object,
        pods,
        selectors::{self, Acting, Form, Labels, Selector},
    },
    names::LONGEST_LABEL,
};

/// Gives pods and selectors of `objects` label values of their own and marks every object, and checks that the selectors
/// of `production` leave the pods alone.
pub(super) fn separate(objects: &mut [Object], id: &str, production: &Footprint) -> Result<(), NotIsolated> {
    let before = Own::of(objects)?;
    let keys = before.selectors().chain(production.selectors().map(|taken| &taken.selector)).flat_map(Selector::keys);
    let mapping = Mapping { id, keys: keys.map(str::to_owned).collect() };
    for object in &mut *objects {
        other_selectors(object, &before, &mapping);
        // Manifests exported from a cluster carry the mark by which production is told from other objects.
        map_at(object, &["metadata", "labels"])?.remove(LABEL_TRACKING);
        mapping.mark(object, &["metadata", "labels"])?;
        mapping.acting_selector(object)?;
        mapping.pods(object)?;
    }
    let after = Own::of(objects)?;
    before.selects_as(&after)?;
    after.is_left_alone_by(production)
}

/// How labels get values of their own.
struct Mapping<'i> {
    id: &'i str,
    /// Keys that acting selectors speak of.
    keys: BTreeSet<String>,
}

impl Mapping<'_> {
    /// The value that stands for `value`. No two values become the same one.
    fn value(&self, value: &str) -> String {
        if value.is_empty() { self.id.to_owned() } else { fit(&format!("{value}-{}", self.id), LONGEST_LABEL) }
    }

    fn labels(&self, labels: &mut Map<String, Value>) {
        for (key, value) in labels {
            if self.keys.contains(key) && (value.is_string() || value.is_null()) {
                *value = json!(self.value(value.as_str().unwrap_or_default()));
            }
        }
    }

    fn label_selector(&self, selector: &mut Map<String, Value>) {
        if let Some(labels) = selector.get_mut("matchLabels").and_then(Value::as_object_mut) {
            self.labels(labels);
        }
        for expression in selector.get_mut("matchExpressions").and_then(Value::as_array_mut).into_iter().flatten() {
            if expression.get("key").and_then(Value::as_str).is_none_or(|key| !self.keys.contains(key)) {
                continue;
            }
            for value in expression.get_mut("values").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Value::String(text) = value {
                    *text = self.value(text);
                }
            }
        }
    }

    fn acting_selector(&self, object: &mut Object) -> Result<(), NotIsolated> {
        let Object { key, body, .. } = &*object;
        match selectors::acting(&key.group, &key.kind, body) {
            Some(Acting { fields, form: Form::Labels, .. }) => {
                self.labels(map_at(object, fields)?);
                self.mark(object, fields)
            }
            Some(Acting { fields, form: Form::LabelSelector, .. }) => {
                self.label_selector(map_at(object, fields)?);
                self.mark(object, &[fields, &["matchLabels"]].concat())
            }
            None => Ok(()),
        }
    }

    fn pods(&self, object: &mut Object) -> Result<(), NotIsolated> {
        let Object { key, body, .. } = &*object;
        let template = pods::template(&key.group, &key.kind, body).and(pods::template_fields(&key.group, &key.kind));
        let Some(template) = template else { return Ok(()) };
        let fields = [template, &["metadata", "labels"]].concat();
        self.labels(map_at(object, &fields)?);
        self.mark(object, &fields)
    }

    /// Says in the labels at `fields` whose they are.
    fn mark(&self, object: &mut Object, fields: &[&str]) -> Result<(), NotIsolated> {
        map_at(object, fields)?.insert(LABEL_ISOLATED.to_owned(), json!(self.id));
        Ok(())
    }
}

/// The map at `fields`, made where there is nothing.
fn map_at<'o>(object: &'o mut Object, fields: &[&str]) -> Result<&'o mut Map<String, Value>, NotIsolated> {
    let Object { key, body, .. } = object;
    let mut value = body;
    for field in fields {
        let map = value.as_object_mut();
        let no_map = || NotIsolated(format!("{key}: {} cannot be read; make it a map", fields.join(".")));
        value = map.ok_or_else(no_map)?.entry(*field).or_insert(Value::Null);
        if value.is_null() {
            *value = json!({});
        }
    }
    value.as_object_mut().ok_or_else(|| NotIsolated(format!("{key}: {} is not a map; make it one", fields.join("."))))
}

/// Changes the selectors of `object` that find pods without acting on them, where they find the copy's own.
fn other_selectors(object: &mut Object, own: &Own, mapping: &Mapping<'_>) {
    let mut follow = |selector: &mut Map<String, Value>, keeps_away: bool| {
        let read = Selector::of_label_selector(&Value::Object(selector.clone()));
        if !read.is_some_and(|read| own.pods().any(|(_, labels)| read.matches(labels))) {
            return;
        }
        mapping.label_selector(selector);
        if keeps_away {
            // Pods that must not share a node with others keep those away from theirs, whichever was there first.
            let labels = selector.entry("matchLabels").or_insert(Value::Null);
            if labels.is_null() {
                *labels = json!({});
            }
            if let Some(labels) = labels.as_object_mut() {
                labels.insert(LABEL_ISOLATED.to_owned(), json!(mapping.id));
            }
        }
    };
    if object.key.is_of(("networking.k8s.io", "NetworkPolicy"))
        && let Some(spec) = object.body.get_mut("spec")
    {
        selectors::each_peer(spec, &mut |selector| follow(selector, false));
    }
    let template = pods::template_fields(&object.key.group, &object.key.kind);
    let spec = template.and_then(|fields| {
        fields.iter().chain(&["spec"]).try_fold(&mut object.body, |value, field| value.get_mut(field))
    });
    if let Some(spec) = spec {
        selectors::each_of_pod(spec, &mut follow);
    }
}

/// Pods and acting selectors of the isolated copy, object by object.
struct Own(Vec<One>);

struct One {
    /// The object, as messages say it.
    object: String,
    selector: Option<Selector>,
    /// The labels of its pods.
    pods: Option<Labels>,
}

impl Own {
    fn of(objects: &[Object]) -> Result<Self, NotIsolated> {
        let one = |Object { key, body, .. }: &Object| {
            let selector = match selectors::acting(&key.group, &key.kind, body) {
                Some(Acting { fields, selector: None, .. }) => {
                    return Err(NotIsolated(format!("{key}: {} is not a selector; correct it", fields.join("."))));
                }
                acting => acting.and_then(|acting| acting.selector),
            };
            let labels = |template: &Value| {
                template.pointer("/metadata/labels").map_or(Some(Labels::new()), selectors::labels).ok_or_else(|| {
                    NotIsolated(format!("{key}: the labels of its pods are no map of text; correct them"))
                })
            };
            let pods = pods::template(&key.group, &key.kind, body).map(labels).transpose()?;
            Ok(One { object: key.to_string(), selector, pods })
        };
        objects.iter().map(one).collect::<Result<_, _>>().map(Self)
    }

    fn selectors(&self) -> impl Iterator<Item = &Selector> {
        self.0.iter().filter_map(|one| one.selector.as_ref())
    }

    /// The labels of pods, with the object that brings them.
    fn pods(&self) -> impl Iterator<Item = (&str, &Labels)> {
        self.0.iter().filter_map(|one| Some((one.object.as_str(), one.pods.as_ref()?)))
    }

    /// Checks that each selector finds the same pods of the copy as before it was changed, and each workload its own.
    fn selects_as(&self, after: &Self) -> Result<(), NotIsolated> {
        for (before, now) in self.0.iter().zip(&after.0) {
            let (Some(selector_before), Some(selector)) = (&before.selector, &now.selector) else { continue };
            if now.pods.as_ref().is_some_and(|labels| !selector.matches(labels)) {
                // In the production instance it may match, by the value that its ID happens to have.
                return Err(NotIsolated(format!(
                    "{}: its selector ({selector_before}) does not match the labels of its own pods; write the same \
                     into both, and leave {LABEL_ISOLATED} to the operator",
                    now.object
                )));
            }
            for ((_, labels_before), (pods, labels)) in self.pods().zip(after.pods()) {
                if selector_before.matches(labels_before) != selector.matches(labels) {
                    return Err(NotIsolated(format!(
                        "{} would not select the pods of {pods} in isolation as it does now (its selector: \
                         {selector_before}); take {LABEL_ISOLATED} out of selectors and labels, it is the operator's",
                        now.object
                    )));
                }
            }
        }
        Ok(())
    }

    /// Checks that no selector of `production` acts on the pods of the copy.
    fn is_left_alone_by(&self, production: &Footprint) -> Result<(), NotIsolated> {
        for taken in production.selectors() {
            if let Some((pods, _)) = self.pods().find(|(_, labels)| taken.selector.matches(labels)) {
                return Err(NotIsolated(format!(
                    "{} of production would act on the isolated pods of {pods} as well (its {}: {}); have it select \
                     by the value of a label that only its own pods have",
                    taken.object, taken.field, taken.selector
                )));
            }
        }
        Ok(())
    }
}
