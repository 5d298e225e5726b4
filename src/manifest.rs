//! A rendered definition ready to be applied: each object with its identity and the hash of its content. Made once per
//! definition and instance and shared by every rollout that uses it.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};

use crate::{
    api::{GROUP, LABEL_TRACKING, VERSION, mark_of_isolated, short_hash},
    definitions::{Leader, Rendered, cluster_scoped, isbsvc_settings},
    live::{ANNOTATION_APPLIED, ObjectId},
};

/// Everything that one version wants, in production or in an isolated copy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifest {
    /// Objects in the order in which they are applied.
    pub objects: Vec<Arc<DesiredObject>>,
    /// Hash of the definition, `v1:…`.
    pub hash: String,
    /// The lease that its controller takes; `None` where it elects no leader.
    pub leader: Option<Leader>,
    /// What its controller is told about ISB services: `isbsvc` in its configuration; `None` where that cannot be read.
    pub isbsvc: Option<Arc<Value>>,
}

/// Which part of the cluster an object belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// What works for the users; belongs to the rollout.
    #[default]
    Production,
    /// A copy in which a version proves itself; belongs to a child.
    Isolated {
        /// Name of the child.
        child: String,
        /// Its uid.
        uid: String,
    },
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
    /// Whose it is.
    pub part: Part,
    body: Value,
}

impl Manifest {
    /// Takes over what was rendered for production.
    #[must_use]
    pub fn new(rendered: Rendered, leader: Option<Leader>) -> Self {
        Self::of(rendered, leader, &Part::Production)
    }

    /// Takes over what was rendered for the isolated copy of a child.
    #[must_use]
    pub fn isolated(rendered: Rendered, leader: Option<Leader>, child: &str, uid: &str) -> Self {
        Self::of(rendered, leader, &Part::Isolated { child: child.to_owned(), uid: uid.to_owned() })
    }

    fn of(rendered: Rendered, leader: Option<Leader>, part: &Part) -> Self {
        let isbsvc = isbsvc_settings(&rendered.objects).map(Arc::new);
        let objects = rendered
            .objects
            .into_iter()
            .map(|object| {
                Arc::new(DesiredObject {
                    id: ObjectId::new(&object.key.group, &object.key.kind, &object.key.name),
                    version: object.key.version,
                    hash: short_hash(object.body.to_string().as_bytes()),
                    namespace: object.namespace,
                    part: part.clone(),
                    body: object.body,
                })
            })
            .collect();
        Self { objects, hash: rendered.hash, leader, isbsvc }
    }

    /// The workloads, with the label selector of their pods as the API takes it.
    pub fn pod_selectors(&self) -> impl Iterator<Item = (&ObjectId, String)> {
        self.objects.iter().filter(|o| o.is_workload()).map(|o| (&o.id, o.pod_selector()))
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

    /// Whether it is a Deployment, StatefulSet or DaemonSet.
    #[must_use]
    pub fn is_workload(&self) -> bool {
        self.id.group == "apps" && matches!(self.id.kind.as_str(), "Deployment" | "StatefulSet" | "DaemonSet")
    }

    /// The selector of a workload's pods, as the API takes it: `a=b,c in (d,e),!f`.
    fn pod_selector(&self) -> String {
        let selector = &self.body["spec"]["selector"];
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let equal = selector["matchLabels"].as_object().into_iter().flatten();
        let mut parts: Vec<String> = equal.map(|(key, value)| format!("{key}={}", text(value))).collect();
        for rule in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key = text(&rule["key"]);
            let values = rule["values"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>().join(",");
            parts.push(match rule["operator"].as_str() {
                Some("In") => format!("{key} in ({values})"),
                Some("NotIn") => format!("{key} notin ({values})"),
                Some("DoesNotExist") => format!("!{key}"),
                _ => key,
            });
        }
        parts.join(",")
    }

    /// The object as it is sent to the server: in its namespace, with the mark of its owner and the hash of its content, and
    /// with the uid of the object that must be there (an apply then never makes it anew by accident). `mark` is that of
    /// the owner of production.
    #[must_use]
    pub fn placed(&self, namespace: &str, mark: &str, uid: Option<&str>) -> Value {
        let mut body = self.body.clone();
        if !cluster_scoped(&self.id.group, &self.id.kind) {
            body["metadata"]["namespace"] = json!(namespace);
        }
        body["metadata"]["labels"][LABEL_TRACKING] = json!(self.mark(mark));
        if let Part::Isolated { child, uid } = &self.part {
            // The copy goes with its child; production must not.
            body["metadata"]["ownerReferences"] = json!([{
                "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "NumaflowController", "name": child, "uid": uid,
                "controller": true,
            }]);
        }
        body["metadata"]["annotations"][ANNOTATION_APPLIED] = json!(self.hash);
        if let Some(uid) = uid {
            body["metadata"]["uid"] = json!(uid);
        }
        if matches!(self.id.kind.as_str(), "RoleBinding" | "ClusterRoleBinding")
            && self.id.group == "rbac.authorization.k8s.io"
        {
            for subject in body["subjects"].as_array_mut().into_iter().flatten() {
                // Manifests leave the namespace to the tool that applies them; the server wants it.
                if subject["kind"] == "ServiceAccount" && subject["namespace"].as_str().unwrap_or_default().is_empty() {
                    subject["namespace"] = json!(namespace);
                }
            }
        }
        body
    }

    /// The mark that it carries, where `production` is that of the owner of production.
    #[must_use]
    pub fn mark(&self, production: &str) -> String {
        match &self.part {
            Part::Production => production.to_owned(),
            Part::Isolated { child, .. } => mark_of_isolated(child),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::definitions::{Definition, Instance, PermittedKinds, render};

    fn object(text: &str) -> Arc<DesiredObject> {
        let permitted = PermittedKinds::default()
            .and("ClusterRole.rbac.authorization.k8s.io".parse().expect("a kind with its group"));
        let definition =
            Definition { version: "1".into(), full_spec: text.into(), isolated: None, leader_election: None };
        let rendered = render(&definition, &Instance::production(""), &permitted).expect("renders");
        Manifest::new(rendered, None).objects.remove(0)
    }

    #[test]
    fn an_object_carries_our_mark_the_hash_of_its_content_and_the_uid_that_must_be_there() {
        let body = object("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {app: z}}\n");
        let placed = body.placed("team-a", "rollout", Some("u"));
        assert_eq!(placed["metadata"]["namespace"], "team-a");
        assert_eq!(placed["metadata"]["labels"], json!({"app": "z", LABEL_TRACKING: "rollout"}));
        assert_eq!(placed["metadata"]["annotations"][ANNOTATION_APPLIED], body.hash);
        assert_eq!(placed["metadata"]["uid"], "u");
    }

    #[test]
    fn a_binding_names_the_service_account_of_its_own_namespace() {
        let binding = object(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: a}\nroleRef: {kind: Role, \
             name: r}\nsubjects: [{kind: ServiceAccount, name: a}, {kind: ServiceAccount, name: b, namespace: other}, \
             {kind: User, name: c}]\n",
        );
        let placed = binding.placed("team-a", "r", None);
        assert_eq!(
            placed["subjects"],
            json!([
                {"kind": "ServiceAccount", "name": "a", "namespace": "team-a"},
                {"kind": "ServiceAccount", "name": "b", "namespace": "other"},
                {"kind": "User", "name": "c"},
            ])
        );
        assert!(binding.refers_to_role(&ObjectId::new("rbac.authorization.k8s.io", "Role", "r")));
    }

    #[test]
    fn a_cluster_scoped_object_gets_no_namespace() {
        let role = object("apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\n");
        assert_eq!(role.placed("team-a", "r", None)["metadata"].get("namespace"), None);
    }
}
