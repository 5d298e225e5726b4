//! A cluster for tests of what is known: definitions, rollouts and what depends on them, made by hand.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Judgement, Known, User, Verdict, judge, review};
use crate::{
    api::{NumaflowControllerRollout, OnDrainTimeout},
    controller::target::{Target, Unresolved},
    definitions::{Catalogue, Instance, PermittedKinds, parse_config_map, render},
    manifest::Manifest,
    numaflow::Dependants,
    rollout::{
        resolve::{Question, Rival, find},
        snapshot::Revision,
    },
    settings::{Defaults, Settings},
};

/// What is known.
pub(crate) struct Fake {
    pub settings: Settings,
    pub catalogue: Catalogue,
    pub revisions: Vec<Revision>,
    pub pins_unseen: bool,
    pub rivals: Vec<Rival>,
    pub dependants: Option<Dependants>,
    pub users: Vec<User>,
}

impl Default for Fake {
    fn default() -> Self {
        Self {
            settings: settings(),
            catalogue: Catalogue::new(),
            revisions: Vec::new(),
            pins_unseen: false,
            rivals: Vec::new(),
            dependants: None,
            users: Vec::new(),
        }
    }
}

/// Settings of an operator in `ops` that serves all namespaces.
pub(crate) fn settings() -> Settings {
    Settings {
        operator_namespace: "ops".to_owned(),
        namespaces: std::collections::BTreeSet::new(),
        definitions_anywhere: false,
        permitted: PermittedKinds::default(),
        defaults: Defaults { on_drain_timeout: OnDrainTimeout::Proceed, ..Defaults::default() },
        config: None,
        resync: std::time::Duration::from_mins(10),
        workers: 1,
    }
}

/// The value of a key with these definitions: version, and what tells its content from others.
pub(crate) fn definitions(versions: &[(&str, &str)]) -> String {
    let entries = versions.iter().map(|(version, content)| {
        format!(
            "- version: {version:?}\n  fullSpec: |\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: {{name: c}}\n    \
             data: {{a: {content:?}}}\n"
        )
    });
    format!("controllerDefinitions:\n{}", entries.collect::<String>())
}

impl Fake {
    /// With these versions, defined in ConfigMap `defs` of a namespace.
    pub fn defining(mut self, namespace: &str, versions: &[(&str, &str)]) -> Self {
        let data = [("d.yaml".to_owned(), definitions(versions))].into();
        self.catalogue.set(namespace, "defs", parse_config_map(namespace, "defs", &data));
        self
    }

    /// What a review comes to.
    pub fn judge(&self, request: &Value) -> Judgement {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        judge(&review::read(body.to_string().as_bytes()).expect("a review"), self)
    }

    /// The same, if what is known is all there is.
    pub fn verdict(&self, request: &Value) -> Verdict {
        self.judge(request).verdict()
    }

    /// The words of a refusal and the warnings.
    pub fn said(&self, request: &Value) -> (Vec<String>, Vec<String>) {
        let verdict = self.verdict(request);
        (verdict.violations.iter().map(ToString::to_string).collect(), verdict.warnings)
    }
}

impl Known for Fake {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn find(&self, rollout: &NumaflowControllerRollout) -> Result<Target, Unresolved> {
        let namespace = rollout.metadata.namespace.as_deref().unwrap_or_default();
        let lookup = self.catalogue.lookup(&self.settings.definers(namespace), &rollout.spec.controller.version);
        find(&Question {
            rollout,
            field: "spec.controller",
            lookup,
            revisions: &self.revisions,
            rivals: &[],
            render: &|definition, instance| {
                let rendered = render(definition, &Instance::production(instance), &self.settings.permitted);
                rendered.map(|r| Arc::new(Manifest::new(r, None))).map_err(|error| error.to_string())
            },
        })
    }

    fn pins_unseen(&self, _: &NumaflowControllerRollout) -> bool {
        self.pins_unseen
    }

    fn rivals(&self, _: &str, name: &str) -> Vec<Rival> {
        self.rivals.iter().filter(|rival| rival.name != name).cloned().collect()
    }

    fn dependants(&self) -> Option<&Dependants> {
        self.dependants.as_ref()
    }

    fn catalogue(&self) -> Catalogue {
        self.catalogue.clone()
    }

    fn users(&self, namespace: Option<&str>) -> Vec<User> {
        self.users.iter().filter(|user| namespace.is_none_or(|n| user.namespace == n)).cloned().collect()
    }
}
