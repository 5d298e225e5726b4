//! What there is in the cluster, and the writes that are measured.

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, Client, api::PostParams};
use numaplane::api::{CONFIG_DEFINITIONS, LABEL_CONFIG, NumaflowControllerRollout};
use serde_json::json;

use crate::shared::{OPERATOR_NAMESPACE, Result, definition::entries, say};

/// Rollouts in a namespace.
const IN_A_NAMESPACE: u32 = 50;
/// Definitions in a ConfigMap, which holds a megabyte.
const IN_A_CONFIG_MAP: u32 = 60;
/// Where a write goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Nobody is asked.
    NoWebhook,
    /// Somebody is asked who says yes.
    AdmitAll,
    /// The product is asked.
    Product,
    /// And says no: the version is not defined.
    Refused,
}

impl Sort {
    /// Namespace of its writes.
    pub fn namespace(self) -> &'static str {
        match self {
            Self::NoWebhook => "write-none",
            Self::AdmitAll => "write-all",
            Self::Product | Self::Refused => "write-product",
        }
    }
}

/// What there is.
pub struct Load {
    client: Client,
    versions: u32,
}

fn version(n: u32) -> String {
    format!("1.{}.{}", n / 100, n % 100)
}

fn rollout(namespace: &str, name: &str, version: &str, instance: &str) -> Result<NumaflowControllerRollout> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1",
        "kind": "NumaflowControllerRollout",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"controller": {"version": version, "instanceID": instance}},
    }))?)
}

impl Load {
    /// Makes definitions and rollouts.
    pub async fn make(client: &Client, definitions: u32, rollouts: u32) -> Result<Self> {
        let began = Instant::now();
        let namespaces = rollouts.div_ceil(IN_A_NAMESPACE);
        let names = (0..namespaces).map(|n| format!("team-{n}"));
        let more = [OPERATOR_NAMESPACE, "write-none", "write-all", "write-product"].map(str::to_owned);
        let api: Api<Namespace> = Api::all(client.clone());
        stream::iter(names.chain(more))
            .map(async |name| {
                let mut namespace = Namespace::default();
                namespace.metadata.name = Some(name);
                api.create(&PostParams::default(), &namespace).await
            })
            .buffer_unordered(16)
            .try_collect::<Vec<_>>()
            .await?;
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), OPERATOR_NAMESPACE);
        let all: Vec<u32> = (0..definitions).collect();
        for (n, chunk) in all.chunks(IN_A_CONFIG_MAP as usize).enumerate() {
            let versions: Vec<String> = chunk.iter().map(|n| version(*n)).collect();
            let map = serde_json::from_value(json!({
                "metadata": {"name": format!("definitions-{n}"), "labels": {LABEL_CONFIG: CONFIG_DEFINITIONS}},
                "data": {"definitions.yaml": entries(&versions)},
            }))?;
            maps.create(&PostParams::default(), &map).await?;
        }
        stream::iter(0..rollouts)
            .map(async |n| {
                let namespace = format!("team-{}", n / IN_A_NAMESPACE);
                let instance = format!("i-{}", n % IN_A_NAMESPACE);
                let object = rollout(&namespace, &format!("rollout-{n}"), &version(n % definitions), &instance)?;
                let api: Api<NumaflowControllerRollout> = Api::namespaced(client.clone(), &namespace);
                api.create(&PostParams::default(), &object).await?;
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
            })
            .buffer_unordered(32)
            .try_collect::<Vec<()>>()
            .await?;
        let took = began.elapsed().as_secs_f32();
        say(&format!(
            "{definitions} definitions and {rollouts} rollouts in {namespaces} namespaces, made in {took:.0} s"
        ));
        Ok(Self { client: client.clone(), versions: definitions })
    }

    /// Writes, with a dry run so that all of them find the same; the time that each took.
    pub async fn write(&self, sort: &Sort, writes: u32, at_once: usize) -> Result<Vec<Duration>> {
        let api: Api<NumaflowControllerRollout> = Api::namespaced(self.client.clone(), sort.namespace());
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        stream::iter(0..writes)
            .map(async |n| {
                let refused = *sort == Sort::Refused;
                let version = if refused { "9.9.9".to_owned() } else { version(n % self.versions) };
                let object = rollout(sort.namespace(), &format!("write-{n}"), &version, "")?;
                let began = Instant::now();
                let answer = api.create(&dry_run, &object).await;
                let took = began.elapsed();
                match answer {
                    Ok(_) if !refused => Ok(took),
                    Err(kube::Error::Api(status)) if refused && status.message.contains("is not defined") => Ok(took),
                    Ok(_) => Err("a version that is not defined was admitted".into()),
                    Err(error) => Err(error.into()),
                }
            })
            .buffer_unordered(at_once)
            .try_collect()
            .await
    }
}

/// Whether a write of a sort is refused by a webhook for what it says, rather than because nobody answers.
pub async fn is_refused(client: &Client, sort: Sort) -> bool {
    let api: Api<NumaflowControllerRollout> = Api::namespaced(client.clone(), sort.namespace());
    let Ok(object) = rollout(sort.namespace(), "probe", "9.9.9", "") else { return false };
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    matches!(api.create(&dry_run, &object).await, Err(kube::Error::Api(status)) if status.message.contains("is not defined"))
}

/// Times of one sort.
#[derive(Default)]
pub struct Figures(Vec<Duration>);

impl Figures {
    /// More of them.
    pub fn add(&mut self, more: Vec<Duration>) {
        self.0.extend(more);
        self.0.sort();
    }

    /// The time in milliseconds within which this part of them was done.
    pub fn at(&self, part: f64) -> String {
        #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)] // thousands
        let index = ((self.0.len() as f64 * part).ceil() as usize).saturating_sub(1);
        let time = self.0.get(index).copied().unwrap_or_default();
        format!("{:.1}", time.as_secs_f64() * 1000.0)
    }
}
