//! Reads and writes of the webhook's certificates: the Secret that all replicas share, and the CAs by which the API server
//! knows them.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::{admissionregistration::v1::ValidatingWebhookConfiguration, core::v1::Secret},
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::ObjectMeta,
};
use serde_json::json;

use super::{
    Failure,
    answer::{limited, own},
    own::{expect, json_patch},
};
use crate::api::{MANAGER_CA_BUNDLE, MANAGER_OWN};

/// Where the certificates are kept, and where the API server is told whom to trust.
pub struct CertificateStore {
    secrets: Api<Secret>,
    secret: String,
    configurations: Api<ValidatingWebhookConfiguration>,
    configuration: Option<String>,
}

/// A ValidatingWebhookConfiguration, as far as it says whom to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    name: String,
    uid: String,
    resource_version: String,
    /// Where in its `managedFields` it says that the bundles are ours.
    owned: Option<usize>,
    /// Its webhooks: name and `caBundle`, which is empty where there is none.
    pub bundles: Vec<(String, Vec<u8>)>,
}

impl Registration {
    fn of(configuration: &ValidatingWebhookConfiguration) -> Self {
        let webhooks = configuration.webhooks.iter().flatten();
        Self {
            name: configuration.name_any(),
            uid: configuration.uid().unwrap_or_default(),
            resource_version: configuration.resource_version().unwrap_or_default(),
            owned: configuration
                .managed_fields()
                .iter()
                .position(|entry| entry.manager.as_deref() == Some(MANAGER_CA_BUNDLE)),
            bundles: webhooks
                .map(|webhook| {
                    let bundle = webhook.client_config.ca_bundle.clone();
                    (webhook.name.clone(), bundle.map(|bytes| bytes.0).unwrap_or_default())
                })
                .collect(),
        }
    }
}

impl CertificateStore {
    /// For this Secret, and for the webhooks of this configuration, if any.
    #[must_use]
    pub fn new(client: Client, namespace: &str, secret: &str, configuration: Option<&str>) -> Self {
        Self {
            secrets: Api::namespaced(client.clone(), namespace),
            secret: secret.to_owned(),
            configurations: Api::all(client),
            configuration: configuration.map(str::to_owned),
        }
    }

    fn what(&self) -> String {
        format!("Secret/{}", self.secret)
    }

    /// The Secret, if it is there.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn secret(&self) -> Result<Option<Secret>, Failure> {
        own(&self.what(), limited(self.secrets.get_opt(&self.secret)).await)
    }

    /// Makes the Secret, or replaces the content of the one that was seen.
    ///
    /// # Errors
    /// [`Failure::Conflict`] where another replica was faster: what it wrote counts.
    pub async fn keep(&self, seen: Option<&Secret>, data: BTreeMap<String, ByteString>) -> Result<(), Failure> {
        let parameters = PostParams { field_manager: Some(MANAGER_OWN.to_owned()), ..PostParams::default() };
        let answer = match seen {
            None => {
                let secret = Secret {
                    metadata: ObjectMeta { name: Some(self.secret.clone()), ..ObjectMeta::default() },
                    type_: Some("kubernetes.io/tls".to_owned()),
                    data: Some(data),
                    ..Secret::default()
                };
                limited(self.secrets.create(&parameters, &secret)).await
            }
            // With its resourceVersion: whoever has seen an older one is answered with 409. Labels and type stay.
            Some(seen) => {
                let secret = Secret { data: Some(data), ..seen.clone() };
                limited(self.secrets.replace(&self.secret, &parameters, &secret)).await
            }
        };
        own(&self.what(), answer).map(drop)
    }

    /// Whom the webhooks' callers trust; `None` while there is no such configuration.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn registration(&self) -> Result<Option<Registration>, Failure> {
        let Some(name) = &self.configuration else { return Ok(None) };
        let what = format!("ValidatingWebhookConfiguration/{name}");
        let configuration = own(&what, limited(self.configurations.get_opt(name)).await)?;
        Ok(configuration.as_ref().map(Registration::of))
    }

    /// Has the callers of all webhooks of a configuration trust this bundle, and changes nothing else of it.
    ///
    /// Applied from the server's side, which names the webhooks rather than counts them. The bundles are then left to nobody
    /// (see [`Self::leave`]).
    ///
    /// # Errors
    /// [`Failure::Conflict`] where the configuration has changed since.
    pub async fn register(&self, seen: &Registration, bundle: &[u8]) -> Result<(), Failure> {
        let bundle = ByteString(bundle.to_vec());
        let webhooks: Vec<_> =
            seen.bundles.iter().map(|(name, _)| json!({"name": name, "clientConfig": {"caBundle": bundle}})).collect();
        let body = json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            // The uid keeps an apply from making one that was deleted; the version keeps it from giving a webhook that was
            // taken out back, with a bundle and nothing else.
            "metadata": {"name": seen.name, "uid": seen.uid, "resourceVersion": seen.resource_version},
            "webhooks": webhooks,
        });
        let parameters = PatchParams::apply(MANAGER_CA_BUNDLE).force();
        let answer = limited(self.configurations.patch(&seen.name, &parameters, &Patch::Apply(&body))).await;
        let applied = own(&format!("ValidatingWebhookConfiguration/{}", seen.name), answer)?;
        self.leave(&Registration::of(&applied)).await
    }

    /// Gives up what an apply of bundles came to own, if there is such a thing.
    ///
    /// What nobody owns is changed by nobody who does not speak of it, so the bundles stay. Were they owned, a webhook that
    /// Helm or Argo CD applies no longer would stay with its bundle and nothing else, which is no webhook: the server would
    /// refuse the whole apply, as long as there is an owner.
    ///
    /// # Errors
    /// [`Failure::Conflict`] where the configuration has changed since.
    pub async fn leave(&self, seen: &Registration) -> Result<(), Failure> {
        let Some(index) = seen.owned else { return Ok(()) };
        let entry = format!("/metadata/managedFields/{index}");
        let patch = json_patch(&json!([
            expect(&seen.resource_version),
            {"op": "test", "path": format!("{entry}/manager"), "value": MANAGER_CA_BUNDLE},
            {"op": "remove", "path": entry},
        ]))?;
        let parameters = PatchParams { field_manager: Some(MANAGER_CA_BUNDLE.to_owned()), ..PatchParams::default() };
        let answer = limited(self.configurations.patch(&seen.name, &parameters, &patch)).await;
        own(&format!("ValidatingWebhookConfiguration/{}", seen.name), answer).map(drop)
    }
}
