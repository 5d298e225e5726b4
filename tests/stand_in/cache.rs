//! What the controllers know of the objects, and which changes are a reason for a pass over which object.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use kube::{ResourceExt, api::DynamicObject};

use super::{
    kinds::Kind,
    knobs::PREFIX,
    vertices::{name_of, pipeline_of},
    view::{self, MONO_VERTEX_NAME, PIPELINE_NAME, SERVICE_NAME, Seen, generation, going},
};

/// An object over which there are passes: its kind and name.
pub type Item = (Kind, String);

/// What happened to an object.
#[derive(Debug)]
pub enum Change {
    /// It is like this now.
    Is(DynamicObject),
    /// It is gone.
    Gone(DynamicObject),
    /// These are all objects of the kind, by namespace and name.
    Only(BTreeSet<(String, String)>),
}

/// All objects that are watched, as they were a short while ago.
#[derive(Debug, Default)]
pub struct Cache {
    objects: BTreeMap<(Kind, String, String), Seen>,
    /// Kinds of which all objects were seen.
    listed: BTreeSet<Kind>,
}

impl Cache {
    /// Takes in a change, and says where there is a reason for a pass over what.
    pub fn take_in(&mut self, kind: Kind, change: Change) -> Vec<(String, Item)> {
        let key = |o: &DynamicObject| (kind, o.namespace().unwrap_or_default(), o.name_any());
        match change {
            Change::Is(object) => {
                let new = Arc::new(object);
                let old = self.objects.insert(key(&new), new.clone());
                reasons(kind, old.as_deref(), Some(&new))
            }
            Change::Gone(object) => {
                let old = self.objects.remove(&key(&object));
                reasons(kind, old.as_deref(), None)
            }
            Change::Only(all) => {
                self.listed.insert(kind);
                let gone: Vec<_> = self
                    .objects
                    .keys()
                    .filter(|(k, namespace, name)| *k == kind && !all.contains(&(namespace.clone(), name.clone())))
                    .cloned()
                    .collect();
                gone.iter().flat_map(|key| reasons(kind, self.objects.remove(key).as_deref(), None)).collect()
            }
        }
    }

    /// One object.
    pub fn one(&self, kind: Kind, namespace: &str, name: &str) -> Option<Seen> {
        self.objects.get(&(kind, namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Whether what is not known of a kind is not there.
    pub fn knows_all(&self, kind: Kind) -> bool {
        self.listed.contains(&kind)
    }

    /// All objects of a kind in a namespace.
    pub fn all<'a>(&'a self, kind: Kind, namespace: &'a str) -> impl Iterator<Item = &'a Seen> {
        self.beginning(kind, namespace, "")
    }

    /// The vertices or pods of a pipeline.
    pub fn of_pipeline(&self, kind: Kind, namespace: &str, pipeline: &str) -> Vec<Seen> {
        self.labelled(kind, namespace, PIPELINE_NAME, pipeline)
    }

    /// The pods of a MonoVertex.
    pub fn of_mono_vertex(&self, namespace: &str, name: &str) -> Vec<Seen> {
        self.labelled(Kind::Pod, namespace, MONO_VERTEX_NAME, name)
    }

    /// Children that have the name of their parent in a label, and begin with it.
    fn labelled(&self, kind: Kind, namespace: &str, label: &str, parent: &str) -> Vec<Seen> {
        let children = self.beginning(kind, namespace, parent);
        children.filter(|o| o.labels().get(label).is_some_and(|l| l == parent)).cloned().collect()
    }

    fn beginning<'a>(&'a self, kind: Kind, namespace: &'a str, name: &'a str) -> impl Iterator<Item = &'a Seen> {
        let from = (kind, namespace.to_owned(), name.to_owned());
        self.objects
            .range(from..)
            .take_while(move |((k, n, o), _)| *k == kind && n == namespace && o.starts_with(name))
            .map(|(_, object)| object)
    }
}

fn reasons(kind: Kind, old: Option<&DynamicObject>, new: Option<&DynamicObject>) -> Vec<(String, Item)> {
    let Some(object) = new.or(old) else { return Vec::new() };
    if let (Some(old), Some(new)) = (old, new)
        && old.resource_version() == new.resource_version()
    {
        return Vec::new();
    }
    let namespace = object.namespace().unwrap_or_default();
    let label = |name: &str| object.labels().get(name).cloned().unwrap_or_default();
    // Annotations are none, nor is the status that a controller itself writes.
    let by_spec = match (old, new) {
        (Some(old), Some(new)) => generation(old) != generation(new) || old.labels() != new.labels(),
        (None, Some(_)) => true,
        _ => false,
    };
    let mut items = Vec::new();
    match kind {
        Kind::Pipeline => items.extend(by_spec.then(|| (kind, object.name_any()))),
        // What a knob makes of it is in place of what a StatefulSet would.
        Kind::Service => {
            let turned = new.is_some() && asked(old) != asked(new);
            items.extend((by_spec || turned).then(|| (kind, object.name_any())));
        }
        Kind::Vertex => {
            items.extend(by_spec.then(|| (kind, object.name_any())));
            items.push((Kind::Pipeline, label(PIPELINE_NAME)));
        }
        // That it is gone, too: its pods are left then.
        Kind::MonoVertex => items.extend((by_spec || new.is_none()).then(|| (kind, object.name_any()))),
        Kind::Pod => items.push(match label(MONO_VERTEX_NAME) {
            none if none.is_empty() => (Kind::Vertex, format!("{}-{}", pipeline_of(object), name_of(object))),
            name => (Kind::MonoVertex, name),
        }),
        Kind::StatefulSet => items.push((Kind::Service, label(SERVICE_NAME))),
    }
    items.into_iter().map(|item| (namespace.clone(), item)).collect()
}

fn asked(object: Option<&DynamicObject>) -> Vec<(&String, &String)> {
    let annotations = object.map(ResourceExt::annotations).into_iter().flatten();
    annotations.filter(|(name, _)| name.starts_with(PREFIX)).collect()
}

/// Whether a pod waits for the stand-in to let it go, and until when.
pub fn waits(pod: &DynamicObject) -> Option<jiff::Timestamp> {
    if !going(pod) || !pod.finalizers().iter().any(|f| f == super::vertices::SLOW) {
        return None;
    }
    if let Some(until) = pod.annotations().get(&format!("{PREFIX}until")) {
        return until.parse().ok();
    }
    // Deleted by somebody else. The time of that is given with the grace period added.
    let grace = pod.metadata.deletion_grace_period_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or_default();
    let deleted = pod.metadata.deletion_timestamp.as_ref()?.0 - Duration::from_secs(grace);
    Some(deleted + view::asked(pod).terminates_after.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(name: &str, version: u32, metadata: &Value, status: &str) -> Change {
        let mut object = json!({
            "metadata": {"namespace": "team", "name": name, "resourceVersion": version.to_string(), "generation": 1},
            "status": {"phase": status},
        });
        object["metadata"].as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        Change::Is(serde_json::from_value(object).unwrap())
    }

    fn names(reasons: &[(String, Item)]) -> Vec<&str> {
        reasons.iter().map(|(_, (_, name))| name.as_str()).collect()
    }

    #[test]
    fn only_generation_and_labels_of_a_pipeline_are_a_reason() {
        let mut cache = Cache::default();
        let mut seen = |version, metadata: Value, status| {
            names(&cache.take_in(Kind::Pipeline, object("p", version, &metadata, status))).len()
        };
        assert_eq!(seen(1, json!({}), ""), 1, "it is new");
        assert_eq!(seen(2, json!({}), "Running"), 0);
        assert_eq!(seen(3, json!({"annotations": {"a": "b"}}), "Running"), 0);
        assert_eq!(seen(4, json!({"labels": {"a": "b"}}), "Running"), 1);
        assert_eq!(seen(5, json!({"labels": {"a": "b"}, "generation": 2}), "Running"), 1);
        assert_eq!(seen(5, json!({"generation": 3}), "Running"), 0, "it is the same one");
    }

    #[test]
    fn any_change_of_a_vertex_is_a_reason_for_its_pipeline() {
        let mut cache = Cache::default();
        let labels = json!({"labels": {PIPELINE_NAME: "p", "numaflow.numaproj.io/vertex-name": "in"}});
        let reasons = cache.take_in(Kind::Vertex, object("p-in", 1, &labels, ""));
        assert_eq!(names(&reasons), ["p-in", "p"]);
        let reasons = cache.take_in(Kind::Vertex, object("p-in", 2, &labels, "Running"));
        assert_eq!(names(&reasons), ["p"]);
        assert_eq!(names(&cache.take_in(Kind::Pod, object("p-in-0-abc", 1, &labels, ""))), ["p-in"]);
        assert_eq!(names(&cache.take_in(Kind::Vertex, Change::Only(BTreeSet::new()))), ["p"]);
    }

    #[test]
    fn a_pod_of_a_mono_vertex_is_a_reason_for_it_and_so_is_its_end() {
        let mut cache = Cache::default();
        let labels = json!({"labels": {MONO_VERTEX_NAME: "m"}});
        let reasons = cache.take_in(Kind::Pod, object("m-mv-0-abc", 1, &labels, ""));
        assert_eq!(reasons, [("team".to_owned(), (Kind::MonoVertex, "m".to_owned()))]);
        assert_eq!(cache.of_mono_vertex("team", "m").len(), 1);
        assert!(!cache.knows_all(Kind::MonoVertex));
        assert_eq!(names(&cache.take_in(Kind::MonoVertex, object("m", 1, &json!({}), ""))), ["m"]);
        assert!(cache.take_in(Kind::MonoVertex, object("m", 2, &json!({}), "Running")).is_empty());
        assert_eq!(names(&cache.take_in(Kind::MonoVertex, Change::Only(BTreeSet::new()))), ["m"]);
        assert!(cache.knows_all(Kind::MonoVertex));
    }

    #[test]
    fn the_children_of_a_pipeline_are_not_those_of_one_with_a_longer_name() {
        let mut cache = Cache::default();
        for (pipeline, name) in [("p", "p-in"), ("p-in", "p-in-in"), ("o", "o-in")] {
            cache.take_in(Kind::Vertex, object(name, 1, &json!({"labels": {PIPELINE_NAME: pipeline}}), ""));
        }
        let found = cache.of_pipeline(Kind::Vertex, "team", "p");
        assert_eq!(found.iter().map(|o| o.name_any()).collect::<Vec<_>>(), ["p-in"]);
        assert_eq!(cache.all(Kind::Vertex, "team").count(), 3);
        assert_eq!(cache.all(Kind::Vertex, "tea").count(), 0);
    }
}
