//! From the version in a spec to the definition that is meant: the look-up, and everything that can be wrong with it
//! before the server is asked. Pure.

use std::{cmp::Ordering, sync::Arc, time::Duration};

use crate::{
    api::{
        CONFIG_DEFINITIONS, ControllerSpec, LABEL_CONFIG, NumaflowControllerRollout, OnDrainTimeout, Strategy, Wait,
    },
    controller::target::{Reason, Target, Unresolved},
    definitions::{Definition, Lookup},
    manifest::Manifest,
    numaflow::Dependants,
    rollout::snapshot::Revision,
    settings::Defaults,
    valid,
    words::{last, list, meant},
};

/// How an attempt is made and judged: spec over defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Strategy.
    pub strategy: Strategy,
    /// Time to become ready.
    pub deadline: Duration,
    /// Time to stay healthy.
    pub window: Duration,
    /// Time between two looks.
    pub interval: Duration,
    /// Longest time for a drain; `None`: as long as each pipeline's own grace period.
    pub drain_timeout: Option<Duration>,
    /// What happens then.
    pub on_drain_timeout: OnDrainTimeout,
}

impl Manner {
    /// Reads the strategy of a rollout. What cannot be read is replaced by the default: [`resolve`] says what is wrong
    /// before any attempt starts, and an attempt that runs already must not stop for it.
    #[must_use]
    pub fn of(rollout: &NumaflowControllerRollout, defaults: &Defaults) -> Self {
        let spec = rollout.spec.strategy.as_ref();
        let assessment = spec.and_then(|s| s.assessment.as_ref());
        let wait = |get: fn(&crate::api::AssessmentSpec) -> Option<&Wait>, default: Duration| {
            assessment.and_then(get).and_then(|w| w.get().ok()).unwrap_or(default)
        };
        let ppnd = spec.and_then(|s| s.ppnd.as_ref());
        Self {
            strategy: spec.and_then(|s| s.kind.as_deref()).and_then(Strategy::parse).unwrap_or(defaults.strategy),
            deadline: wait(|a| a.deadline.as_ref(), defaults.deadline),
            window: wait(|a| a.window.as_ref(), defaults.window),
            interval: wait(|a| a.interval.as_ref(), defaults.interval).max(Duration::from_millis(100)),
            drain_timeout: ppnd
                .and_then(|p| p.drain_timeout.as_ref())
                .and_then(|w| w.get().ok())
                .or(defaults.drain_timeout),
            on_drain_timeout: ppnd
                .and_then(|p| p.on_drain_timeout.as_deref())
                .and_then(OnDrainTimeout::parse)
                .unwrap_or(defaults.on_drain_timeout),
        }
    }
}

/// Another rollout in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Its name.
    pub name: String,
    /// Instances that it holds or asks for.
    pub instances: Vec<String>,
    /// Instance of its promoted child, if it has one.
    pub promoted: Option<String>,
    /// When it was created, in seconds since 1970.
    pub created: i64,
}

/// Renders a definition for an instance.
pub type Render<'a> = &'a dyn Fn(&Arc<Definition>, &str) -> Result<Arc<Manifest>, String>;

/// What is known about the version that a spec asks for.
pub struct Question<'a> {
    /// The rollout.
    pub rollout: &'a NumaflowControllerRollout,
    /// Where version and instanceID stand in what the user wrote: `spec.controller`, or `spec`.
    pub field: &'static str,
    /// What the ConfigMaps say about its version.
    pub lookup: Lookup,
    /// Definitions pinned by it, newest first.
    pub revisions: &'a [Revision],
    /// The other rollouts in its namespace.
    pub rivals: &'a [Rival],
    /// Renders a definition for an instance (memoised by the caller).
    pub render: Render<'a>,
}

/// Finds what a spec asks for.
///
/// # Errors
/// The spec is not valid, the instance belongs to another rollout, or the version is not defined, defined twice,
/// malformed, or cannot be rendered for this namespace.
pub fn resolve(question: &Question<'_>) -> Result<Target, Unresolved> {
    let rollout = question.rollout;
    let findings = valid::controller(rollout, question.field).violations;
    if !findings.is_empty() {
        return Err(Unresolved { reason: Reason::InvalidSpec, findings });
    }
    if let Some(rival) = winner(rollout, question.rivals) {
        return Err(conflict(question.field, rollout.spec.controller.instance(), &rival.name));
    }
    find(question)
}

/// Finds the definition that a spec asks for, whatever else is wrong with the spec.
///
/// # Errors
/// The version is not defined, defined twice, malformed, or cannot be rendered for this namespace.
pub fn find(question: &Question<'_>) -> Result<Target, Unresolved> {
    let rollout = question.rollout;
    let controller = &rollout.spec.controller;
    let instance = controller.instance();
    let (definition, only_pinned) = match &question.lookup {
        Lookup::Found(definition) => (definition.clone(), None),
        other => {
            let missing = describe(other, controller, question.field);
            let status = rollout.status.as_ref();
            let promoted = status.and_then(|s| s.promoted.as_ref()).map(|p| p.revision.as_str());
            // What runs already comes before what was tried since under the same name.
            let pinned = question
                .revisions
                .iter()
                .filter(|r| r.version == controller.version)
                .max_by_key(|r| (promoted == Some(r.name.as_str()), r.number))
                .and_then(|r| r.definition.clone());
            // A statement that cannot be read, or two that differ, still are statements: only where nothing is said any
            // more does the pinned definition speak.
            match (pinned, other) {
                (Some(definition), Lookup::Missing { .. }) => (definition, Some(missing)),
                _ => return Err(missing),
            }
        }
    };
    let unusable = |reason, message: &str| {
        let message = format!("version {:?}: {message}", controller.version);
        Unresolved::of(reason, format!("{}.version", question.field), message)
    };
    let manifest =
        (question.render)(&definition, instance).map_err(|message| unusable(Reason::DefinitionUnusable, &message))?;
    check_namespace(rollout, &manifest).map_err(|message| unusable(Reason::ForeignNamespace, &message))?;
    Ok(Target { version: controller.version.clone(), instance: instance.to_owned(), definition, manifest, only_pinned })
}

fn describe(lookup: &Lookup, controller: &ControllerSpec, field: &str) -> Unresolved {
    let version = &controller.version;
    let (reason, message) = match lookup {
        Lookup::Found(_) => (Reason::DefinitionUnusable, String::new()),
        Lookup::Missing { defined, looked_at, nearest } => {
            let looked_at = if looked_at.is_empty() {
                format!("no ConfigMap is labelled {LABEL_CONFIG}={CONFIG_DEFINITIONS}")
            } else {
                format!("looked in {}", list(looked_at, 10))
            };
            let known = if defined.is_empty() {
                format!("No version is defined ({looked_at}). Add it to a definitions ConfigMap")
            } else {
                format!(
                    "Defined versions: {} ({looked_at}). Set one of them, or add this version to a definitions ConfigMap",
                    last(defined, 30)
                )
            };
            let hint = meant(nearest.as_deref());
            (Reason::DefinitionNotFound, format!("version {version:?} is not defined{hint}. {known}"))
        }
        Lookup::Ambiguous { places } => (
            Reason::DefinitionAmbiguous,
            format!(
                "version {version:?} is defined more than once with different content, in {}; \
                 remove all but one",
                places.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
            ),
        ),
        Lookup::Malformed(error) => (
            Reason::DefinitionMalformed,
            format!(
                "version {version:?} is defined, but its definition is malformed: {error}. Mend it there, or set \
                 another version"
            ),
        ),
    };
    Unresolved::of(reason, format!("{field}.version"), message)
}

/// One instance of the controller in a namespace belongs to one rollout: the one with a promoted child, else the older. The one
/// that it belongs to, if that is another.
fn winner<'a>(rollout: &NumaflowControllerRollout, rivals: &'a [Rival]) -> Option<&'a Rival> {
    let instance = rollout.spec.controller.instance();
    let name = rollout.metadata.name.as_deref().unwrap_or_default();
    let promoted = rollout.status.as_ref().and_then(|s| s.promoted.as_ref()).is_some_and(|p| p.instance_id == instance);
    let created = rollout.metadata.creation_timestamp.as_ref().map_or(0, |t| t.0.as_second());
    rivals.iter().filter(|r| r.instances.iter().any(|i| i == instance)).find(|rival| {
        let order = promoted
            .cmp(&(rival.promoted.as_deref() == Some(instance)))
            .then_with(|| rival.created.cmp(&created))
            .then_with(|| rival.name.as_str().cmp(name));
        order == Ordering::Less
    })
}

/// That an instance belongs to another rollout. `field` is where instanceID stands.
#[must_use]
pub fn conflict(field: &str, instance: &str, rival: &str) -> Unresolved {
    let message = format!(
        "instance {instance:?} in this namespace belongs to NumaflowControllerRollout/{rival}; choose another instanceID or delete \
         one of the two"
    );
    Unresolved::of(Reason::InstanceConflict, format!("{field}.instanceID"), message)
}

/// That an instance cannot be left, because something depends on it; `None` where nothing does.
#[must_use]
pub fn in_use(old: &str, wanted: &str, dependants: &Dependants) -> Option<Unresolved> {
    if old == wanted {
        return None;
    }
    let unlisted = &dependants.unlisted;
    let message = if unlisted.is_empty() {
        let names: Vec<String> = dependants.of_instance(old).map(|d| format!("{}/{}", d.kind, d.name)).collect();
        if names.is_empty() {
            return None;
        }
        format!(
            "cannot change from {old:?} to {wanted:?} while {} {} the old one; move or delete \
             {} first",
            list(&names, 5),
            if names.len() == 1 { "uses" } else { "use" },
            if names.len() == 1 { "it" } else { "them" }
        )
    } else {
        format!("cannot change from {old:?} to {wanted:?} while {} cannot be listed", list(unlisted, 5))
    };
    Some(Unresolved::of(Reason::InstanceInUse, "spec.controller.instanceID".to_owned(), message))
}

/// That all objects are of the rollout's own namespace.
fn check_namespace(rollout: &NumaflowControllerRollout, manifest: &Manifest) -> Result<(), String> {
    let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
    match manifest.objects.iter().find(|o| o.namespace.as_deref().is_some_and(|n| n != namespace)) {
        None => Ok(()),
        Some(object) => Err(format!(
            "{}: metadata.namespace is {:?}, but a definition is rendered into the namespace of its rollout, {namespace:?}; remove \
             the field from the definition",
            object.id,
            object.namespace.as_deref().unwrap_or_default()
        )),
    }
}
