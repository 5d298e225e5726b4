//! A rendered definition ready to be applied: each object with its identity and the hash of its content. Made once per
//! definition and instance and shared by every rollout that uses it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    api::{LABEL_TRACKING, label_value, short_hash},
    definitions::Rendered,
    live::{ANNOTATION_APPLIED, ObjectId},
};

/// Everything that one version wants in production.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Objects in the order in which they are applied.
    pub objects: Vec<Arc<DesiredObject>>,
    /// Hash of the definition, `v1:…`.
    pub hash: String,
}

/// One object that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredObject {
    /// Which object.
    pub id: ObjectId,
    /// API version within the group.
    pub version: String,
    /// Hash of its content.
    pub hash: String,
    /// Namespace that the definition writes into it, if any.
    pub namespace: Option<String>,
    body: Value,
}

impl Manifest {
    /// Takes over what was rendered.
    #[must_use]
    pub fn new(rendered: Rendered) -> Self {
        let objects = rendered
            .objects
            .into_iter()
            .map(|object| {
                Arc::new(DesiredObject {
                    id: ObjectId::new(&object.key.group, &object.key.kind, &object.key.name),
                    version: object.key.version,
                    hash: short_hash(object.body.to_string().as_bytes()),
                    namespace: object.body["metadata"]["namespace"].as_str().map(str::to_owned),
                    body: object.body,
                })
            })
            .collect();
        Self { objects, hash: rendered.hash }
    }

    /// Whether any object is of this kind.
    #[must_use]
    pub fn has_kind(&self, group: &str, kind: &str) -> bool {
        self.objects.iter().any(|o| o.id.group == group && o.id.kind == kind)
    }

    /// The wanted objects by identity.
    #[must_use]
    pub fn by_id(&self) -> BTreeMap<&ObjectId, &Arc<DesiredObject>> {
        self.objects.iter().map(|o| (&o.id, o)).collect()
    }
}

impl DesiredObject {
    /// `apiVersion` of the object.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.id.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.id.group, self.version) }
    }

    /// The object as it is sent to the server: in its namespace, with our mark and the hash of its content, and with the
    /// uid of the object that must be there (an apply then never makes it anew by accident).
    #[must_use]
    pub fn placed(&self, namespace: &str, owner: &str, uid: Option<&str>) -> Value {
        let mut body = self.body.clone();
        body["metadata"]["namespace"] = json!(namespace);
        body["metadata"]["labels"][LABEL_TRACKING] = json!(label_value(owner));
        body["metadata"]["annotations"][ANNOTATION_APPLIED] = json!(self.hash);
        if let Some(uid) = uid {
            body["metadata"]["uid"] = json!(uid);
        }
        if self.id.kind == "RoleBinding" && self.id.group == "rbac.authorization.k8s.io" {
            for subject in body["subjects"].as_array_mut().into_iter().flatten() {
                // Manifests leave the namespace to the tool that applies them; the server wants it.
                if subject["kind"] == "ServiceAccount" && subject["namespace"].as_str().unwrap_or_default().is_empty() {
                    subject["namespace"] = json!(namespace);
                }
            }
        }
        body
    }

    /// Whether this RoleBinding refers to that Role: the server refuses a binding whose Role is not there yet.
    #[must_use]
    pub fn refers_to_role(&self, id: &ObjectId) -> bool {
        self.id.kind == "RoleBinding"
            && self.body["roleRef"]["kind"] == id.kind
            && self.body["roleRef"]["name"] == id.name
    }

    /// The body without marks, for tests and for the hash of the definition.
    #[must_use]
    pub fn body(&self) -> &Value {
        &self.body
    }
}
