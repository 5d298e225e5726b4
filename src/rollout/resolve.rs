//! From the version in a spec to the definition that is meant: the look-up, and everything that can be wrong with it
//! before the server is asked. Pure.

use std::{cmp::Ordering, sync::Arc, time::Duration};

use crate::{
    api::{ControllerSpec, NumaflowControllerRollout, OnDrainTimeout, RESERVED_INSTANCE_PREFIX, Strategy, Wait},
    controller::target::{Target, Unresolved},
    definitions::{Definition, Lookup},
    manifest::Manifest,
    rollout::snapshot::Revision,
    settings::Defaults,
    words::list,
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
    let controller = &rollout.spec.controller;
    let instance = controller.instance();
    check_spec(rollout, question.field)?;
    check_rivals(question, instance)?;
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
    let manifest = (question.render)(&definition, instance).map_err(|message| Unresolved {
        reason: "DefinitionUnusable",
        message: format!("version {:?}: {message}", controller.version),
    })?;
    check_namespace(rollout, &manifest)?;
    Ok(Target { version: controller.version.clone(), instance: instance.to_owned(), definition, manifest, only_pinned })
}

fn describe(lookup: &Lookup, controller: &ControllerSpec, field: &str) -> Unresolved {
    let version = &controller.version;
    match lookup {
        Lookup::Found(_) => Unresolved { reason: "Found", message: String::new() },
        Lookup::Missing { defined, looked_at, nearest } => {
            let defined = if defined.is_empty() { "none".to_owned() } else { list(defined, 30) };
            let looked_at = if looked_at.is_empty() {
                "no ConfigMap is labelled numaplane.numaproj.io/config=numaflow-controller-definitions".to_owned()
            } else {
                format!("looked in {}", list(looked_at, 10))
            };
            let hint = nearest.as_ref().map_or_else(|| ".".to_owned(), |n| format!("; did you mean {n:?}?"));
            Unresolved {
                reason: "DefinitionNotFound",
                message: format!(
                    "{field}.version: version {version:?} is not defined{hint} Defined versions: {defined} \
                     ({looked_at}). Set one of them, or add this version to a definitions ConfigMap"
                ),
            }
        }
        Lookup::Ambiguous { places } => Unresolved {
            reason: "DefinitionAmbiguous",
            message: format!(
                "{field}.version: version {version:?} is defined more than once with different content, in {}; \
                 remove all but one",
                places.join(" and ")
            ),
        },
        Lookup::Malformed(error) => Unresolved {
            reason: "DefinitionMalformed",
            message: format!("version {version:?} is defined, but its definition is malformed: {error}"),
        },
    }
}

/// What the schema of the CRD refuses too; said again here for objects that were stored before it did.
fn check_spec(rollout: &NumaflowControllerRollout, field: &str) -> Result<(), Unresolved> {
    let invalid = |message: String| Err(Unresolved { reason: "InvalidSpec", message });
    let controller = &rollout.spec.controller;
    let instance = controller.instance();
    if controller.version.trim().is_empty() {
        return invalid(format!("{field}.version: is empty; set one of the defined versions"));
    }
    let label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if instance.len() > 20 || !instance.chars().all(label) || instance.starts_with('-') || instance.ends_with('-') {
        return invalid(format!(
            "{field}.instanceID: {instance:?} is not a DNS label of at most 20 characters (lower-case letters, \
             digits and '-')"
        ));
    }
    if instance.starts_with(RESERVED_INSTANCE_PREFIX) {
        return invalid(format!(
            "{field}.instanceID: {instance:?} begins with {RESERVED_INSTANCE_PREFIX:?}, which is kept for isolated \
             copies; choose another"
        ));
    }
    let Some(strategy) = &rollout.spec.strategy else { return Ok(()) };
    if let Some(kind) = &strategy.kind
        && Strategy::parse(kind).is_none()
    {
        return invalid(format!(
            "spec.strategy.type: {kind:?} is not a strategy; use progressive, pause-and-drain or no-strategy"
        ));
    }
    let assessment = strategy.assessment.clone().unwrap_or_default();
    let ppnd = strategy.ppnd.clone().unwrap_or_default();
    for (path, wait) in [
        ("assessment.deadline", &assessment.deadline),
        ("assessment.window", &assessment.window),
        ("assessment.interval", &assessment.interval),
        ("ppnd.drainTimeout", &ppnd.drain_timeout),
    ] {
        if let Some(Err(error)) = wait.as_ref().map(Wait::get) {
            return invalid(format!("spec.strategy.{path}: {error}"));
        }
    }
    if let Some(action) = &ppnd.on_drain_timeout
        && OnDrainTimeout::parse(action).is_none()
    {
        return invalid(format!("spec.strategy.ppnd.onDrainTimeout: {action:?} is neither Proceed nor Abort"));
    }
    Ok(())
}

/// One instance of the controller in a namespace belongs to one rollout: the one with a promoted child, else the older.
fn check_rivals(question: &Question<'_>, instance: &str) -> Result<(), Unresolved> {
    let rollout = question.rollout;
    let name = rollout.metadata.name.as_deref().unwrap_or_default();
    let promoted = rollout.status.as_ref().and_then(|s| s.promoted.as_ref()).is_some_and(|p| p.instance_id == instance);
    let created = rollout.metadata.creation_timestamp.as_ref().map_or(0, |t| t.0.as_second());
    let winner = question.rivals.iter().filter(|r| r.instances.iter().any(|i| i == instance)).find(|rival| {
        let order = promoted
            .cmp(&(rival.promoted.as_deref() == Some(instance)))
            .then_with(|| rival.created.cmp(&created))
            .then_with(|| rival.name.as_str().cmp(name));
        order == Ordering::Less
    });
    match winner {
        None => Ok(()),
        Some(rival) => Err(Unresolved {
            reason: "InstanceConflict",
            message: format!(
                "{}.instanceID: instance {instance:?} in this namespace belongs to NumaflowControllerRollout/{}; \
                 choose another instanceID or delete one of the two",
                question.field, rival.name
            ),
        }),
    }
}

fn check_namespace(rollout: &NumaflowControllerRollout, manifest: &Manifest) -> Result<(), Unresolved> {
    let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
    match manifest.objects.iter().find(|o| o.namespace.as_deref().is_some_and(|n| n != namespace)) {
        None => Ok(()),
        Some(object) => Err(Unresolved {
            reason: "ForeignNamespace",
            message: format!(
                "{}: metadata.namespace is {:?}, but a definition is rendered into the namespace of its rollout, {namespace:?}; \
                 remove the field from the definition",
                object.id,
                object.namespace.as_deref().unwrap_or_default()
            ),
        }),
    }
}
