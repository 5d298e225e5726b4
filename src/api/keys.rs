//! Names that live in the API: group, labels, annotations, finalizer, field managers.

use std::fmt;

use sha2::{Digest, Sha256};

/// API group of every kind of this operator.
pub const GROUP: &str = "numaplane.numaproj.io";
/// The one version served and stored.
pub const VERSION: &str = "v1alpha1";

/// Label on platform ConfigMaps; its value says what the ConfigMap configures.
pub const LABEL_CONFIG: &str = "numaplane.numaproj.io/config";
/// Value of [`LABEL_CONFIG`] on ConfigMaps that hold controller definitions.
pub const CONFIG_DEFINITIONS: &str = "numaflow-controller-definitions";
/// Value of [`LABEL_CONFIG`] on the ConfigMap that says which changes of Numaflow objects need a pause.
pub const CONFIG_CHANGES: &str = "usde-config";
/// Value of [`LABEL_CONFIG`] on ConfigMaps that hold what the rollouts of their namespace fall back to.
pub const CONFIG_NAMESPACE: &str = "namespace-level-config";
/// Selects the ConfigMaps that hold controller definitions.
#[must_use]
pub fn definitions_selector() -> String {
    format!("{LABEL_CONFIG}={CONFIG_DEFINITIONS}")
}

/// Label on children: what the child renders, see [`UpgradeState`].
pub const LABEL_UPGRADE_STATE: &str = "numaplane.numaproj.io/upgrade-state";
/// Label on children and revisions: the rollout they belong to (see [`label_value`]).
pub const LABEL_PARENT: &str = "numaplane.numaproj.io/parent-rollout-name";
/// Label on every production object: the rollout (or the NumaflowController without a rollout) it belongs to. It is the
/// mark that says "ours"; Numaplane writes the same one.
pub const LABEL_TRACKING: &str = "numaplane.numaproj.io/tracking-id";

/// Label on every object of an isolated copy and on its pods: the instance of the copy.
pub const LABEL_ISOLATED: &str = "numaplane.numaproj.io/isolated";
/// Label on an upgrading child: `true` ends its assessment, as if it had passed.
pub const LABEL_FORCE_PROMOTE: &str = "numaplane.numaproj.io/force-promote";

/// Annotation on an object that exists already: the operator may take it over.
pub const ANNOTATION_ADOPT: &str = "numaplane.numaproj.io/adopt";
/// Annotation on a rollout: ends the waiting of the running attempt, or of a deletion, once per text.
pub const ANNOTATION_FORCE: &str = "numaplane.numaproj.io/force";
/// Annotation on a rollout: another text makes a fresh attempt of what failed.
pub const ANNOTATION_RETRY: &str = "numaplane.numaproj.io/retry";
/// Annotation on pod templates: hash of the ConfigMaps and Secrets that the pods use.
pub const ANNOTATION_CONFIG_HASH: &str = "numaplane.numaproj.io/config-hash";
/// Annotation of Numaflow: the controller instance that manages an object; absent means the one without a name.
pub const ANNOTATION_INSTANCE: &str = "numaflow.numaproj.io/instance";

/// Annotation of Numaflow on a pipeline: when its pause began, by the controller's clock; absent while it runs.
pub const ANNOTATION_PAUSE_TIMESTAMP: &str = "numaflow.numaproj.io/pause-timestamp";
/// Annotation of Numaflow on a pipeline: `slow` has its vertices begin from their minimum when it resumes.
pub const ANNOTATION_RESUME: &str = "numaflow.numaproj.io/resume-strategy";
/// Annotation on a PipelineRollout or MonoVertexRollout: `true` has no change of it wait for a pause (and no one else pauses the
/// pipeline), whatever that loses. Stays until its user removes it.
pub const ANNOTATION_ALLOW_DATA_LOSS: &str = "numaplane.numaproj.io/allow-data-loss";
/// Label on Numaflow objects: changed (to the time, in seconds) where nothing else makes Numaflow look at one again.
pub const LABEL_POKE: &str = "numaplane.numaproj.io/poked";
/// Label on pipelines: the ISBServiceRollout that they use, or the ISB service that they name where there is none.
pub const LABEL_ISB: &str = "numaplane.numaproj.io/isbsvc-name";
/// Label on pipelines: the ISB service itself.
pub const LABEL_ISB_CHILD: &str = "numaplane.numaproj.io/isbsvc-child-name";

/// Finalizer on rollouts, and on NumaflowControllers that have no rollout.
pub const FINALIZER: &str = "numaplane.numaproj.io/numaplane-controller";

/// Field manager of production objects.
pub const MANAGER_PRODUCTION: &str = "numaplane";
/// Field manager of the objects of isolated copies.
pub const MANAGER_ISOLATED: &str = "numaplane-isolated";
/// Field manager of Numaflow objects: their specs.
pub const MANAGER_NUMAFLOW: &str = "numaplane-dataplane";
/// Field manager of the wanted phase and the grace period of pipelines.
pub const MANAGER_LIFECYCLE: &str = "numaplane-lifecycle";
/// Field manager of the operator's own kinds: children, revisions, status.
pub const MANAGER_OWN: &str = "numaplane-controller";
/// Field manager that applies the `caBundle` of the webhook's registration, and then owns it no longer.
pub const MANAGER_CA_BUNDLE: &str = "numaplane-webhook";

/// Prefix of instance IDs that belong to isolated copies; refused to users.
pub const RESERVED_INSTANCE_PREFIX: &str = "x-";

/// What a child renders: value of [`LABEL_UPGRADE_STATE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeState {
    /// Renders the production objects.
    Promoted,
    /// Proves itself in isolation.
    Upgrading,
    /// Renders nothing and goes.
    Recyclable,
}

impl UpgradeState {
    /// Reads a label value; `None` for a value that this version does not know.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        match value {
            "promoted" => Some(Self::Promoted),
            "upgrading" => Some(Self::Upgrading),
            "recyclable" => Some(Self::Recyclable),
            _ => None,
        }
    }

    /// The label value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Promoted => "promoted",
            Self::Upgrading => "upgrading",
            Self::Recyclable => "recyclable",
        }
    }
}

impl fmt::Display for UpgradeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name as a label value: itself while it fits, else cut with a hash of the whole, unique and stable (63 characters at
/// most).
#[must_use]
pub fn label_value(name: &str) -> String {
    fit(name, 63)
}

/// The mark (value of [`LABEL_TRACKING`]) of a rollout's production objects: its name, as Numaplane has it.
#[must_use]
pub fn mark_of_rollout(name: &str) -> String {
    label_value(name)
}

/// The mark of the production objects of a NumaflowController without a rollout. No rollout has the same one, whatever
/// its name: names have no underscore.
#[must_use]
pub fn mark_of_controller(name: &str) -> String {
    format!("{}_alone", fit(name, 57))
}

/// The mark of the objects of a child's isolated copy. No rollout has the same one: names have no underscore.
#[must_use]
pub fn mark_of_isolated(child: &str) -> String {
    format!("{}{ISOLATED}", fit(child, 63 - ISOLATED.len()))
}

/// Whether a mark is that of some isolated copy.
#[must_use]
pub fn is_mark_of_isolated(mark: &str) -> bool {
    mark.ends_with(ISOLATED)
}

/// End of the mark of an isolated copy.
const ISOLATED: &str = "_isolated";

/// The instance of a child's isolated copy, from the child's uid.
#[must_use]
pub fn isolated_instance(uid: &str) -> String {
    format!("{RESERVED_INSTANCE_PREFIX}{}", short_uid(uid))
}

/// A name cut to `limit` characters (20 at least): itself while it fits, else its beginning and a hash of the whole.
#[must_use]
pub fn fit(name: &str, limit: usize) -> String {
    if name.len() <= limit {
        return name.to_owned();
    }
    let hash = short_hash(name.as_bytes());
    let keep = name.chars().take(limit.saturating_sub(hash.len() + 1)).collect::<String>();
    format!("{}-{hash}", keep.trim_end_matches(['-', '.', '_']))
}

/// The first eight hex digits of a uid, for names.
#[must_use]
pub fn short_uid(uid: &str) -> String {
    uid.chars().filter(char::is_ascii_hexdigit).take(8).collect()
}

/// Name of child number `n` of a rollout.
#[must_use]
pub fn child_name(rollout: &str, n: i32) -> String {
    let suffix = format!("-{n}");
    format!("{}{suffix}", fit(rollout, 253 - suffix.len()))
}

/// Number of a child of this rollout, from its name; `None` for any other name.
#[must_use]
pub fn child_number(rollout: &str, child: &str) -> Option<i32> {
    let (_, number) = child.rsplit_once('-')?;
    let n: i32 = number.parse().ok()?;
    (n >= 0 && child_name(rollout, n) == child).then_some(n)
}

/// First 16 hex digits of the sha256.
#[must_use]
pub fn short_hash(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().take(8).fold(String::with_capacity(16), |mut text, byte| {
        // unreachable: writing to a String cannot fail
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c16_names_of_any_length_give_labels_of_63_and_child_names_of_253_that_stay_apart() {
        for length in [40, 52, 62, 63, 64, 253] {
            let name = "a".repeat(length);
            assert!(label_value(&name).len() <= 63);
            for n in [0, 9, 10, 999] {
                let child = child_name(&name, n);
                assert!(child.len() <= 253);
                assert_eq!(child_number(&name, &child), Some(n));
            }
        }
        let (a, b) = (format!("{}x", "a".repeat(60)) + "yz", format!("{}x", "a".repeat(60)) + "yw" + "12");
        assert_ne!(label_value(&format!("{a}long")), label_value(&format!("{b}long")));
    }

    #[test]
    fn a_child_of_a_rollout_with_a_longer_name_is_not_ours() {
        assert_eq!(child_number("a", "a-b-1"), None);
        assert_eq!(child_number("a", "a-1"), Some(1));
        assert_eq!(child_number("a", "a-01"), None);
        assert_eq!(child_number("a", "a"), None);
    }
}
