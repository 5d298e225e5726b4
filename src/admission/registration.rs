//! How the webhook is registered: from the same constants as the routes that it serves. Pure.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, RuleWithOperations, ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration,
    WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::{Resource, core::ObjectMeta};

use crate::api::{
    GROUP, IsbServiceRollout, LABEL_CONFIG, MonoVertexRollout, NumaflowControllerRollout, PipelineRollout, VERSION,
};

/// Name of the configuration.
pub const CONFIGURATION: &str = "numaplane";
/// Name of the Service in front of the webhook.
pub const SERVICE: &str = "numaplane-webhook";
/// The operator's own ServiceAccounts: what they write was decided already, and must not hang on a webhook.
pub const SERVICE_ACCOUNTS: [&str; 2] = ["numaplane", "numaplane-webhook"];
/// Namespace of the operator, unless it is told another.
pub const NAMESPACE: &str = "numaplane-system";

/// Secret with the webhook's own certificates, unless it is told another.
pub const SECRET: &str = "numaplane-webhook-certs";
/// How many seconds the API server waits for an answer; it takes 30 at most. The webhook answers before that, with words, and what
/// it waits for itself takes less.
pub const TIMEOUT: u8 = 10;

/// One webhook of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hook {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Where it is served.
    pub path: &'static str,
}

/// Asked about the four rollout kinds.
pub const ROLLOUTS: Hook = Hook { name: "rollouts.numaplane.numaproj.io", path: "/validate/rollouts" };
/// Asked about platform ConfigMaps.
pub const CONFIG_MAPS: Hook = Hook { name: "config-maps.numaplane.numaproj.io", path: "/validate/config-maps" };

/// Where the API server finds the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Behind a Service in the operator's namespace: its name.
    Service(String),
    /// At a URL, like `https://127.0.0.1:9443`: for a process outside of the cluster.
    Url(String),
}

/// Whose webhook is registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Namespace of the operator.
    pub namespace: String,
    /// Where its webhook is.
    pub address: Address,
}

impl Default for Target {
    fn default() -> Self {
        Self { namespace: NAMESPACE.to_owned(), address: Address::Service(SERVICE.to_owned()) }
    }
}

/// The configuration. The certificate authority is not in it: who makes the certificates writes it.
#[must_use]
pub fn configuration(target: &Target) -> ValidatingWebhookConfiguration {
    ValidatingWebhookConfiguration {
        metadata: ObjectMeta { name: Some(CONFIGURATION.to_owned()), ..ObjectMeta::default() },
        webhooks: Some(vec![rollouts(target), config_maps(target)]),
    }
}

fn rollouts(target: &Target) -> ValidatingWebhook {
    let resources = vec![
        IsbServiceRollout::plural(&()).into_owned(),
        MonoVertexRollout::plural(&()).into_owned(),
        NumaflowControllerRollout::plural(&()).into_owned(),
        PipelineRollout::plural(&()).into_owned(),
    ];
    let spec_changes = "request.operation != 'UPDATE' || !has(object.spec) || !has(oldObject.spec) || \
                        object.spec != oldObject.spec";
    ValidatingWebhook {
        failure_policy: Some("Fail".to_owned()),
        match_conditions: Some(conditions(target, "spec-changes", spec_changes)),
        ..hook(ROLLOUTS, target, rule(GROUP, VERSION, resources, &["CREATE", "UPDATE"]))
    }
}

fn config_maps(target: &Target) -> ValidatingWebhook {
    // Not in the way of anybody's ConfigMaps, and of the platform's only while it answers.
    let labelled =
        LabelSelectorRequirement { key: LABEL_CONFIG.to_owned(), operator: "Exists".to_owned(), values: None };
    let or_empty = |object: &str, field: &str| format!("(has({object}.{field}) ? {object}.{field} : {{}})");
    let differs = |field: &str| format!("{} != {}", or_empty("object", field), or_empty("oldObject", field));
    let content_changes =
        format!("request.operation != 'UPDATE' || {} || {}", differs("data"), differs("metadata.labels"));
    let rule = rule("", "v1", vec!["configmaps".to_owned()], &["CREATE", "UPDATE", "DELETE"]);
    ValidatingWebhook {
        failure_policy: Some("Ignore".to_owned()),
        object_selector: Some(LabelSelector { match_expressions: Some(vec![labelled]), match_labels: None }),
        match_conditions: Some(conditions(target, "content-changes", &content_changes)),
        ..hook(CONFIG_MAPS, target, rule)
    }
}

fn hook(hook: Hook, target: &Target, rule: RuleWithOperations) -> ValidatingWebhook {
    ValidatingWebhook {
        name: hook.name.to_owned(),
        admission_review_versions: vec!["v1".to_owned()],
        client_config: client_config(hook, target),
        match_policy: Some("Equivalent".to_owned()),
        rules: Some(vec![rule]),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(TIMEOUT.into()),
        ..ValidatingWebhook::default()
    }
}

fn client_config(hook: Hook, target: &Target) -> WebhookClientConfig {
    match &target.address {
        Address::Service(name) => WebhookClientConfig {
            service: Some(ServiceReference {
                name: name.clone(),
                namespace: target.namespace.clone(),
                path: Some(hook.path.to_owned()),
                port: Some(443),
            }),
            ..WebhookClientConfig::default()
        },
        Address::Url(url) => WebhookClientConfig {
            url: Some(format!("{}{}", url.trim_end_matches('/'), hook.path)),
            ..WebhookClientConfig::default()
        },
    }
}

fn rule(group: &str, version: &str, resources: Vec<String>, operations: &[&str]) -> RuleWithOperations {
    RuleWithOperations {
        api_groups: Some(vec![group.to_owned()]),
        api_versions: Some(vec![version.to_owned()]),
        operations: Some(operations.iter().map(|&operation| operation.to_owned()).collect()),
        resources: Some(resources),
        scope: Some("Namespaced".to_owned()),
    }
}

/// What the API server looks at itself, so that recovery does not hang on a webhook. A condition that fails counts as a webhook
/// that does, so none of them asks for what may not be there: there is no object where one is deleted.
fn conditions(target: &Target, changes: &str, changed: &str) -> Vec<MatchCondition> {
    let accounts = SERVICE_ACCOUNTS.map(|name| format!("'system:serviceaccount:{}:{name}'", target.namespace));
    let condition = |name: &str, expression: String| MatchCondition { name: name.to_owned(), expression };
    vec![
        condition("not-the-operator", format!("!(request.userInfo.username in [{}])", accounts.join(", "))),
        condition(
            "not-being-deleted",
            "request.operation == 'DELETE' || !has(object.metadata.deletionTimestamp)".to_owned(),
        ),
        condition(changes, changed.to_owned()),
    ]
}

#[cfg(test)]
mod tests;
