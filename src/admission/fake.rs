//! A cluster for tests of what is known: definitions, rollouts and what depends on them, made by hand.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Judgement, Looked, Verdict, View, judge, review};
use crate::{
    api::OnDrainTimeout,
    definitions::{PermittedKinds, parse_config_map},
    settings::{Defaults, Settings},
    store::Seen,
    world::{CLUSTER, Decoded, DefinitionsMap, World},
};

/// What is known.
pub(crate) struct Fake {
    pub settings: Settings,
    pub world: World,
    pub looked: Looked,
}

impl Default for Fake {
    fn default() -> Self {
        let settings = settings();
        let (scopes, own) = ([CLUSTER.to_owned()], &settings.operator_namespace);
        let world = World::new(&scopes, std::slice::from_ref(own), own, [], Defaults::default());
        Self { world, settings, looked: Looked::default() }
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
    pub fn defining(self, namespace: &str, versions: &[(&str, &str)]) -> Self {
        self.define(namespace, "defs", "d.yaml", &definitions(versions));
        self
    }

    /// With a NumaflowControllerRollout `name` in namespace `team-a` that asks for these instances: one, or one and that of what
    /// it has in production.
    pub fn rival(self, name: &str, instance: &str, promoted: Option<&str>) -> Self {
        let promoted = promoted.map(|id| json!({"name": "x-0", "version": "1.8.3", "instanceID": id}));
        self.roll("team-a", name, &json!({"version": "1.8.3", "instanceID": instance}), promoted.as_ref());
        self
    }

    /// Has a definitions ConfigMap with one key.
    pub fn define(&self, namespace: &str, name: &str, key: &str, text: &str) {
        let parsed = parse_config_map(namespace, name, &[(key.to_owned(), text.to_owned())].into());
        let map = DefinitionsMap { uid: name.to_owned(), parsed };
        let key = (namespace.to_owned(), name.to_owned());
        self.world.config_maps.offer(key.clone(), Seen::for_good(name), map);
        self.world.catalogue_follows(&key);
    }

    /// Has that ConfigMap no more.
    pub fn undefine(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.world.config_maps.forget(&key, &Seen::for_good(name));
        self.world.catalogue_follows(&key);
    }

    /// Has a NumaflowControllerRollout that asks for one version and runs another; "" for none.
    pub fn uses(&self, namespace: &str, name: &str, wanted: &str, promoted: &str) {
        let runs = json!({"name": "x-0", "version": promoted});
        self.roll(namespace, name, &json!({"version": wanted}), Some(&runs).filter(|_| !promoted.is_empty()));
    }

    fn roll(&self, namespace: &str, name: &str, controller: &Value, promoted: Option<&Value>) {
        let rollout = json!({
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"controller": controller}, "status": {"promoted": promoted},
        });
        let rollout = serde_json::from_value(rollout).expect("a rollout");
        let key = (namespace.to_owned(), name.to_owned());
        self.world.rollouts.offer(key, Seen::for_good(name), Decoded::Good(Arc::new(rollout)));
    }

    /// What a review comes to.
    pub fn judge(&self, request: &Value) -> Judgement {
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let review = review::read(body.to_string().as_bytes()).expect("a review");
        judge(&review, &View::new(&self.world, &self.settings, &self.looked))
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
