//! Whether a definition may be isolated: whether its controller keeps to its own instance, and its kinds are known.

use semver::Version;
use serde_json::Value;

use super::NotIsolated;
use crate::definitions::{
    controller_config::instance_settings,
    kinds::cluster_scoped,
    objects::{Object, ObjectKey},
    pods::items,
    references::SERVICE_ACCOUNT,
};

/// The first version whose controller leaves alone what carries another instance.
const FIRST: Version = Version::new(1, 4, 0);

/// What becomes of a kind in isolation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Objects of it are made for the isolated copy.
    Isolated,
    /// The isolated copy goes without: it would reach out of the namespace, or act on what is not its own.
    LeftOut,
    /// Nobody knows here what objects of it do.
    Unknown,
}

/// What becomes of objects of the kind of `object`.
pub(super) fn treatment(object: &ObjectKey) -> Treatment {
    match (object.group.as_str(), object.kind.as_str()) {
        (group, kind) if cluster_scoped(group, kind) => Treatment::LeftOut,
        ("networking.k8s.io", "Ingress")
        | ("autoscaling", "HorizontalPodAutoscaler")
        | ("policy", "PodDisruptionBudget") => Treatment::LeftOut,
        ("", "ServiceAccount" | "ConfigMap" | "Secret" | "Service" | "PersistentVolumeClaim")
        | ("rbac.authorization.k8s.io", "Role" | "RoleBinding")
        | ("apps", "Deployment" | "StatefulSet" | "DaemonSet")
        | ("networking.k8s.io", "NetworkPolicy") => Treatment::Isolated,
        _ => Treatment::Unknown,
    }
}

/// How a definition can overrule what is found here.
const TRUST: &str = "or say isolated: true in the entry if it does";

/// Checks a definition that says nothing about it.
pub(super) fn check(version: &str, id: &str, objects: &[Object], left_out: &[Object]) -> Result<(), NotIsolated> {
    if let Some(object) = objects.iter().find(|object| treatment(&object.key) == Treatment::Unknown) {
        return Err(NotIsolated(format!(
            "{} is of a kind of which the operator does not know how to isolate it ({}); take it out of the \
             definition, or say isolated: true in the entry if it does no harm to have one more of it",
            object.key,
            object.key.group_kind()
        )));
    }
    ports_of_nodes(objects)?;
    keeps_instances_apart(version)?;
    configured_for(id, objects)?;
    rights_of_the_cluster(objects, left_out)
}

/// Checks that no pod needs the ports that production's pods have already on the same node.
fn ports_of_nodes(objects: &[Object]) -> Result<(), NotIsolated> {
    let on_node = |object: &&Object| {
        let spec = crate::definitions::pods::spec(object);
        spec.and_then(|spec| spec.get("hostNetwork")) == Some(&Value::Bool(true))
    };
    objects.iter().find(on_node).map_or(Ok(()), |object| {
        Err(NotIsolated(format!(
            "pods of {} use the network of their node (hostNetwork), where the ports they listen on may be taken by those that \
             run; say isolated: true in the entry if there are nodes enough for both",
            object.key
        )))
    })
}

/// Checks that the controller of `version` knows instances.
fn keeps_instances_apart(version: &str) -> Result<(), NotIsolated> {
    let number = version.strip_prefix(['v', 'V']).unwrap_or(version);
    match Version::parse(number) {
        Ok(number) if number.cmp_precedence(&FIRST).is_ge() => Ok(()),
        Ok(_) => Err(NotIsolated(format!(
            "version {version:?} is older than {FIRST}, the first whose controller keeps to the objects of its own \
             instance; {TRUST}"
        ))),
        Err(_) => Err(NotIsolated(format!(
            "version {version:?} is not one by semantic versioning, so it cannot be told whether its controller keeps \
             to the objects of its own instance ({FIRST} and later do); name it like 1.8.3, {TRUST}"
        ))),
    }
}

/// Checks that the controller's configuration gets the instance ID.
fn configured_for(id: &str, objects: &[Object]) -> Result<(), NotIsolated> {
    let settings = instance_settings(objects);
    if let Some(other) = settings.iter().find(|setting| setting.instance != id) {
        return Err(NotIsolated(format!(
            "{}, data[{:?}]: instance is {}, not the instance ID, so a second controller would act on the objects of \
             the running one; write instance: \"{{{{ .InstanceID }}}}\" there, or say isolated: true in the entry if \
             the controller gets its instance in another way",
            other.config_map, other.key, other.instance
        )));
    }
    if settings.is_empty() {
        return Err(NotIsolated(
            "no ConfigMap of the definition that its pods use has the key instance in a value that is YAML, so a \
             second controller would act on the objects of the running one; write instance: \"{{ .InstanceID }}\" \
             into the controller's configuration, or say isolated: true in the entry if the controller gets its \
             instance in another way"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Checks that no pod would lack rights that come from a binding that was left out: a good version would be taken for a
/// bad one.
fn rights_of_the_cluster(objects: &[Object], left_out: &[Object]) -> Result<(), NotIsolated> {
    for binding in left_out.iter().filter(|object| object.key.kind == "ClusterRoleBinding") {
        for subject in items(&binding.body, "subjects") {
            let field = |name| subject.get(name).and_then(Value::as_str).unwrap_or_default();
            if field("kind") != SERVICE_ACCOUNT.1 {
                continue;
            }
            if objects.iter().any(|object| object.key.is_of(SERVICE_ACCOUNT) && object.key.name == field("name")) {
                return Err(NotIsolated(format!(
                    "{} gives ServiceAccount {:?} rights in the whole cluster, which an isolated copy does not get; \
                     use a Role and a RoleBinding, or say isolated: true in the entry if its pods come up without",
                    binding.key,
                    field("name")
                )));
            }
        }
    }
    Ok(())
}
