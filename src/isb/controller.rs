//! The controller that acts for an ISB service: whether it is there, and what it is told. Pure.

use serde_json::Value;

use super::decide::Turn;
use crate::wrapped::Wanted;

impl Turn<'_> {
    /// Instance of the controller that acts for the service that there is.
    pub(super) fn instance(&self) -> &str {
        self.child.map_or_else(|| self.wanted_instance(), |child| child.instance())
    }

    /// Instance of the controller that is to act for what is wanted. It is another one where pipelines are to leave a controller.
    pub(super) fn wanted_instance(&self) -> &str {
        self.wanted.as_ref().map_or("", Wanted::instance)
    }

    /// What a controller is told about ISB services, where that can be read.
    pub(super) fn settings(&self, instance: &str) -> Option<&Value> {
        self.s.settings.get(instance).map(|settings| &**settings)
    }

    /// The words for a controller that is gone: nobody would act upon a change.
    pub(super) fn gone(&self, instance: &str) -> Option<String> {
        let gone = self.s.controllers.get(instance).is_some_and(|c| c.gone);
        gone.then(|| {
            "ControllerUnavailable: no pod of its controller is available, and its lease has run out".to_owned()
        })
    }

    /// The version of the spec, where its controller is known not to know it: it would be refused after pipelines had paused.
    pub(super) fn unknown_version(&self, wanted: &Wanted) -> Option<String> {
        let version = wanted.spec["jetstream"]["version"].as_str()?;
        let runs = self.child.is_some_and(|c| c.spec["jetstream"]["version"].as_str() == Some(version));
        let versions = self.settings(wanted.instance())?["jetstream"]["versions"].as_array()?;
        let known: Vec<String> = versions.iter().filter_map(|v| v["version"].as_str()).map(str::to_owned).collect();
        let unknown = !runs && !known.is_empty() && !known.iter().any(|k| k == version);
        unknown.then(|| {
            format!(
                "spec.interStepBufferService.spec.jetstream.version: the running Numaflow controller has no JetStream \
                 {version:?}; it has {}. No pipeline is paused for that",
                known.join(", ")
            )
        })
    }
}
