//! Which objects an object refers to by name, and in which of its fields.

use serde_json::Value;

use super::{
    objects::{Object, ObjectKey},
    pods::{self, CONTAINERS},
};

/// A kind with its group: (group, kind).
pub(super) type Kind = (&'static str, &'static str);

pub(super) const CONFIG_MAP: Kind = ("", "ConfigMap");
pub(super) const SECRET: Kind = ("", "Secret");
pub(super) const SERVICE: Kind = ("", "Service");
pub(super) const SERVICE_ACCOUNT: Kind = ("", "ServiceAccount");
const CLAIM: Kind = ("", "PersistentVolumeClaim");
/// The annotation that says whose token a Secret is.
const TOKEN_OF: &str = "/metadata/annotations/kubernetes.io~1service-account.name";
const RBAC: &str = "rbac.authorization.k8s.io";

/// A field that holds the name of another object of the namespace or the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// Group and kind of what is referred to.
    pub to: Kind,
    /// Its name.
    pub name: String,
    /// Where the name stands, as a JSON pointer.
    pub pointer: String,
    /// Whether pods do not start, or lack their rights, while there is no such object.
    pub needed: bool,
}

impl Reference {
    /// What is referred to, as messages say it.
    pub fn target(&self) -> String {
        format!("{} {:?}", self.to.1, self.name)
    }

    /// Where the name stands, as people write it: `spec.volumes[0].name`.
    pub fn field(&self) -> String {
        self.pointer.split('/').skip(1).map(|part| part.replace("~1", "/")).fold(String::new(), |path, part| {
            if part.bytes().all(|byte| byte.is_ascii_digit()) {
                format!("{path}[{part}]")
            } else if path.is_empty() {
                part
            } else {
                format!("{path}.{part}")
            }
        })
    }
}

/// What `object` refers to.
pub(super) fn references(object: &Object) -> Vec<Reference> {
    let (group, kind) = (object.key.group.as_str(), object.key.kind.as_str());
    let whole = At { value: &object.body, pointer: String::new() };
    let mut found = Vec::new();
    if let Some(fields) = pods::template_fields(group, kind) {
        let path: String = fields.iter().chain(&["spec"]).map(|field| format!("/{field}")).collect();
        if let Some(spec) = whole.at(&path) {
            pod_configuration(&spec, &mut found);
            pod_others(&spec, &mut found);
        }
    }
    match (group, kind) {
        ("apps", "StatefulSet") => {
            whole.name(SERVICE, "/spec/serviceName", false, &mut found);
            for claim in whole.items("/spec/volumeClaimTemplates") {
                claim_spec(&claim, &mut found);
            }
        }
        ("", "PersistentVolumeClaim") => claim_spec(&whole, &mut found),
        // The server fills a Secret of this kind with a token of the account.
        ("", "Secret") => whole.name(SERVICE_ACCOUNT, TOKEN_OF, true, &mut found),
        ("", "ServiceAccount") => {
            for secret in whole.items("/secrets") {
                secret.name(SECRET, "/name", false, &mut found);
            }
            for secret in whole.items("/imagePullSecrets") {
                secret.name(SECRET, "/name", true, &mut found);
            }
        }
        (RBAC, "RoleBinding") => binding(&whole, &mut found),
        (RBAC, "Role") => role(&whole, &mut found),
        _ => {}
    }
    found
}

/// The ConfigMaps and Secrets that the pods of `object` take their configuration from: volumes (projected ones, too) and
/// the environment of all containers.
pub(super) fn configuration(object: &Object) -> Vec<Reference> {
    let mut found = Vec::new();
    if let Some(value) = pods::spec(object) {
        pod_configuration(&At { value, pointer: String::new() }, &mut found);
    }
    found
}

/// A value and where in the object it stands.
struct At<'v> {
    value: &'v Value,
    pointer: String,
}

impl<'v> At<'v> {
    fn at(&self, path: &str) -> Option<Self> {
        Some(At { value: self.value.pointer(path)?, pointer: format!("{}{path}", self.pointer) })
    }

    fn items(&self, path: &str) -> Vec<At<'v>> {
        let items = self.value.pointer(path).and_then(Value::as_array).into_iter().flatten().enumerate();
        items.map(|(n, value)| At { value, pointer: format!("{}{path}/{n}", self.pointer) }).collect()
    }

    /// Notes the name at `path`, if there is one.
    fn name(&self, to: Kind, path: &str, needed: bool, found: &mut Vec<Reference>) {
        if let Some(name) = self.value.pointer(path).and_then(Value::as_str).filter(|name| !name.is_empty()) {
            found.push(Reference { to, name: name.to_owned(), pointer: format!("{}{path}", self.pointer), needed });
        }
    }

    /// Notes the name below `source`, which may say that it is optional.
    fn source(&self, to: Kind, source: &str, name: &str, found: &mut Vec<Reference>) {
        let optional = self.value.pointer(&format!("{source}/optional")).and_then(Value::as_bool) == Some(true);
        self.name(to, &format!("{source}/{name}"), !optional, found);
    }
}

fn pod_configuration(spec: &At<'_>, found: &mut Vec<Reference>) {
    for volume in spec.items("/volumes") {
        volume.source(CONFIG_MAP, "/configMap", "name", found);
        volume.source(SECRET, "/secret", "secretName", found);
        for source in volume.items("/projected/sources") {
            source.source(CONFIG_MAP, "/configMap", "name", found);
            source.source(SECRET, "/secret", "name", found);
        }
    }
    for list in CONTAINERS {
        for container in spec.items(&format!("/{list}")) {
            for variable in container.items("/env") {
                variable.source(CONFIG_MAP, "/valueFrom/configMapKeyRef", "name", found);
                variable.source(SECRET, "/valueFrom/secretKeyRef", "name", found);
            }
            for source in container.items("/envFrom") {
                source.source(CONFIG_MAP, "/configMapRef", "name", found);
                source.source(SECRET, "/secretRef", "name", found);
            }
        }
    }
}

/// Secrets that drivers of volumes take, below a volume.
const DRIVERS_SECRETS: [&str; 8] = [
    "/csi/nodePublishSecretRef/name",
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/rbd/secretRef/name",
    "/iscsi/secretRef/name",
    "/flexVolume/secretRef/name",
    "/scaleIO/secretRef/name",
    "/storageos/secretRef/name",
];

fn pod_others(spec: &At<'_>, found: &mut Vec<Reference>) {
    spec.name(SERVICE_ACCOUNT, "/serviceAccountName", true, found);
    // The old name of the same field; the server fills in both.
    spec.name(SERVICE_ACCOUNT, "/serviceAccount", true, found);
    spec.name(SERVICE, "/subdomain", false, found);
    spec.name(("scheduling.k8s.io", "PriorityClass"), "/priorityClassName", true, found);
    spec.name(("node.k8s.io", "RuntimeClass"), "/runtimeClassName", true, found);
    for secret in spec.items("/imagePullSecrets") {
        secret.name(SECRET, "/name", true, found);
    }
    for volume in spec.items("/volumes") {
        volume.name(CLAIM, "/persistentVolumeClaim/claimName", true, found);
        for path in DRIVERS_SECRETS {
            volume.name(SECRET, path, true, found);
        }
        if let Some(claim) = volume.at("/ephemeral/volumeClaimTemplate") {
            claim_spec(&claim, found);
        }
    }
}

fn claim_spec(claim: &At<'_>, found: &mut Vec<Reference>) {
    claim.name(("storage.k8s.io", "StorageClass"), "/spec/storageClassName", true, found);
    claim.name(("", "PersistentVolume"), "/spec/volumeName", true, found);
    for source in ["/spec/dataSource", "/spec/dataSourceRef"] {
        if claim.value.pointer(&format!("{source}/kind")).and_then(Value::as_str) == Some(CLAIM.1) {
            claim.name(CLAIM, &format!("{source}/name"), true, found);
        }
    }
}

fn binding(binding: &At<'_>, found: &mut Vec<Reference>) {
    match binding.value.pointer("/roleRef/kind").and_then(Value::as_str) {
        Some("Role") => binding.name((RBAC, "Role"), "/roleRef/name", true, found),
        Some("ClusterRole") => binding.name((RBAC, "ClusterRole"), "/roleRef/name", true, found),
        _ => {}
    }
    for subject in binding.items("/subjects") {
        if subject.value.get("kind").and_then(Value::as_str) == Some(SERVICE_ACCOUNT.1) {
            // Whatever its namespace: a rendering serves every namespace, so it may be the own one.
            subject.name(SERVICE_ACCOUNT, "/name", false, found);
        }
    }
}

/// What rules call the kinds whose objects they can name.
const RESOURCES: [(&str, Kind); 11] = [
    ("configmaps", CONFIG_MAP),
    ("secrets", SECRET),
    ("services", SERVICE),
    ("serviceaccounts", SERVICE_ACCOUNT),
    ("persistentvolumeclaims", CLAIM),
    ("roles", (RBAC, "Role")),
    ("rolebindings", (RBAC, "RoleBinding")),
    ("deployments", ("apps", "Deployment")),
    ("statefulsets", ("apps", "StatefulSet")),
    ("daemonsets", ("apps", "DaemonSet")),
    ("networkpolicies", ("networking.k8s.io", "NetworkPolicy")),
];

/// The kinds that a rule for API groups `groups` means by `resource`, with or without a subresource.
pub(super) fn kinds_of_resource(groups: &[Value], resource: &str) -> Vec<Kind> {
    let plural = resource.split('/').next().unwrap_or_default();
    let in_groups = |group: &str| groups.iter().any(|item| item == group || item == "*");
    let meant = RESOURCES.iter().filter(|(name, (group, _))| (plural == "*" || plural == *name) && in_groups(group));
    meant.map(|(_, kind)| *kind).collect()
}

fn role(role: &At<'_>, found: &mut Vec<Reference>) {
    for rule in role.items("/rules") {
        let names = rule.items("/resourceNames");
        if names.is_empty() {
            continue;
        }
        let groups = pods::items(rule.value, "apiGroups");
        let resources = pods::items(rule.value, "resources").iter().filter_map(Value::as_str);
        let mut kinds: Vec<Kind> = resources.flat_map(|resource| kinds_of_resource(groups, resource)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for name in names {
            for kind in &kinds {
                // A rule may name what the controller makes itself, later.
                name.name(*kind, "", false, found);
            }
        }
    }
}

/// Whether all references of objects of this kind are known here.
pub(super) fn known_for(object: &ObjectKey) -> bool {
    let (group, kind) = (object.group.as_str(), object.kind.as_str());
    pods::template_fields(group, kind).is_some()
        || matches!(
            (group, kind),
            ("", "ServiceAccount" | "ConfigMap" | "Secret" | "Service" | "PersistentVolumeClaim")
                | (RBAC, "Role" | "RoleBinding")
                | ("networking.k8s.io", "NetworkPolicy")
        )
}
