//! Which kinds a definition may hold, in which order they are applied, and which have no namespace.

use std::{collections::BTreeSet, fmt, str::FromStr};

use super::objects::ObjectKey;
use crate::names;

/// Kinds permitted unless the operator is configured otherwise: what a controller in one namespace is made of. No
/// Secret (the operator would need to read secrets) and nothing cluster-scoped (a rollout would reach out of its
/// namespace).
const DEFAULT: [&str; 13] = [
    "ServiceAccount",
    "ConfigMap",
    "Service",
    "PersistentVolumeClaim",
    "Role.rbac.authorization.k8s.io",
    "RoleBinding.rbac.authorization.k8s.io",
    "Deployment.apps",
    "StatefulSet.apps",
    "DaemonSet.apps",
    "PodDisruptionBudget.policy",
    "HorizontalPodAutoscaler.autoscaling",
    "NetworkPolicy.networking.k8s.io",
    "Ingress.networking.k8s.io",
];

/// The kinds that definitions may hold: `Kind.group`, or `Kind` for the core group.
///
/// Reads from and prints as comma-separated text: `ConfigMap,Deployment.apps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PermittedKinds(BTreeSet<String>);

/// A kind that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a kind: write the singular name with a capital letter and the group after a dot, like \
     Deployment.apps (core kinds have no group: ConfigMap)"
)]
pub struct KindError(String);

impl PermittedKinds {
    /// Whether definitions may hold objects of the kind of `object`, in any version.
    #[must_use]
    pub fn permits(&self, object: &ObjectKey) -> bool {
        self.0.contains(&object.group_kind())
    }

    /// Permits what `more` permits, too.
    #[must_use]
    pub fn and(mut self, more: Self) -> Self {
        self.0.extend(more.0);
        self
    }

    /// The kinds as `Kind.group`, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl Default for PermittedKinds {
    fn default() -> Self {
        Self(DEFAULT.into_iter().map(str::to_owned).collect())
    }
}

impl FromStr for PermittedKinds {
    type Err = KindError;

    fn from_str(text: &str) -> Result<Self, KindError> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        items
            .map(|item| {
                let (kind, group) = item.split_once('.').unwrap_or((item, ""));
                let kind_is_one = kind.starts_with(|c: char| c.is_ascii_uppercase())
                    && kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
                let group_is_one = !item.contains('.') || names::is_subdomain(group);
                if kind_is_one && group_is_one { Ok(item.to_owned()) } else { Err(KindError(item.to_owned())) }
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

impl fmt::Display for PermittedKinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, kind) in self.0.iter().enumerate() {
            if n > 0 {
                f.write_str(", ")?;
            }
            f.write_str(kind)?;
        }
        Ok(())
    }
}

/// Place in the order of application: what others need comes first, workloads come last.
pub(super) fn rank(object: &ObjectKey) -> u8 {
    match (object.group.as_str(), object.kind.as_str()) {
        ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition") => 0,
        ("", "ServiceAccount") => 1,
        ("", "ConfigMap") => 2,
        ("", "Secret") => 3,
        ("rbac.authorization.k8s.io", "Role") => 4,
        ("rbac.authorization.k8s.io", "ClusterRole") => 5,
        ("rbac.authorization.k8s.io", "RoleBinding") => 6,
        ("rbac.authorization.k8s.io", "ClusterRoleBinding") => 7,
        ("", "Service") => 8,
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch", "Job" | "CronJob")
        | ("", "Pod") => 10,
        _ => 9,
    }
}

/// Whether objects of this kind have no namespace. Kinds that Kubernetes does not bring itself are taken for
/// namespaced.
#[must_use]
pub fn cluster_scoped(group: &str, kind: &str) -> bool {
    matches!(
        (group, kind),
        ("", "Namespace" | "Node" | "PersistentVolume")
            | ("rbac.authorization.k8s.io", "ClusterRole" | "ClusterRoleBinding")
            | ("apiextensions.k8s.io", "CustomResourceDefinition")
            | ("apiregistration.k8s.io", "APIService")
            | (
                "admissionregistration.k8s.io",
                "ValidatingWebhookConfiguration"
                    | "MutatingWebhookConfiguration"
                    | "ValidatingAdmissionPolicy"
                    | "ValidatingAdmissionPolicyBinding"
                    | "MutatingAdmissionPolicy"
                    | "MutatingAdmissionPolicyBinding"
            )
            | ("scheduling.k8s.io", "PriorityClass")
            | (
                "storage.k8s.io",
                "StorageClass" | "CSIDriver" | "CSINode" | "VolumeAttachment" | "VolumeAttributesClass"
            )
            | ("networking.k8s.io", "IngressClass" | "IPAddress" | "ServiceCIDR")
            | ("node.k8s.io", "RuntimeClass")
            | ("flowcontrol.apiserver.k8s.io", "FlowSchema" | "PriorityLevelConfiguration")
            | ("certificates.k8s.io", "CertificateSigningRequest" | "ClusterTrustBundle")
            | ("resource.k8s.io", "DeviceClass" | "ResourceSlice")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: &str, kind: &str) -> ObjectKey {
        ObjectKey { group: group.into(), version: "v1".into(), kind: kind.into(), name: "x".into() }
    }

    #[test]
    fn secrets_and_cluster_scoped_kinds_need_the_platform_teams_word() {
        let kinds = PermittedKinds::default();
        assert!(kinds.permits(&key("apps", "Deployment")) && kinds.permits(&key("", "ConfigMap")));
        for (group, kind) in [
            ("", "Secret"),
            ("", "Namespace"),
            ("", "Deployment"),
            ("example.com", "ConfigMap"),
            ("rbac.authorization.k8s.io", "ClusterRole"),
            ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ] {
            assert!(!kinds.permits(&key(group, kind)), "{kind}.{group}");
        }
        assert!(DEFAULT.iter().all(|kind| {
            let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
            !cluster_scoped(group, kind)
        }));
    }

    #[test]
    fn kinds_are_read_from_and_printed_as_one_line() {
        let kinds: PermittedKinds =
            " Deployment.apps, ConfigMap,,ClusterRole.rbac.authorization.k8s.io ".parse().unwrap();
        assert_eq!(kinds.to_string(), "ClusterRole.rbac.authorization.k8s.io, ConfigMap, Deployment.apps");
        assert_eq!(kinds.iter().count(), 3);
        assert_eq!(kinds.to_string().parse(), Ok(kinds));
        assert!(PermittedKinds::default().and("Secret".parse().unwrap()).permits(&key("", "Secret")));
        assert_eq!(PermittedKinds::default().to_string().parse(), Ok(PermittedKinds::default()));
    }

    #[test]
    fn a_kind_that_cannot_be_meant_is_refused_with_an_example() {
        for text in ["deployments.apps", "Deployment.", "apps/v1", "Config Map", "*", "Deployment.Apps"] {
            let error = text.parse::<PermittedKinds>().expect_err(text).to_string();
            assert!(error.contains("like Deployment.apps"), "{error}");
        }
    }
}
