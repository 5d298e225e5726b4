//! The command line: from arguments and environment to settings, with every mistake answered before anything starts.

mod tls;

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};

pub use self::tls::TlsArgs;
use crate::{
    admission::registration::{self, Address, Target},
    api::Wait,
    definitions::PermittedKinds,
    settings::{Defaults, Settings},
};

/// Installs, upgrades and rolls back the Numaflow controller, without ever getting stuck.
#[derive(Debug, Parser)]
#[command(name = "numaplane", version, about, propagate_version = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator.
    Controller(Box<ControllerArgs>),
    /// Run the webhook: what cannot work is refused before it is stored.
    Webhook(Box<WebhookArgs>),
    /// Write the CustomResourceDefinitions, and how the webhook is registered.
    Manifests(ManifestsArgs),
}

/// How the reconcilers run.
#[derive(Debug, Args)]
pub struct ControllerArgs {
    /// What is served, and who may define what.
    #[command(flatten)]
    pub platform: PlatformArgs,
    /// Read from this YAML file what rollouts fall back to: `strategy`, of the shape of a rollout's `spec.strategy`, and
    /// `defaultUpgradeStrategy`. It is read again within a second or two of a change; an edit that cannot be used changes
    /// nothing. Namespaces and rollouts that say something themselves come first.
    #[arg(long, env = "NUMAPLANE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Look at everything again after this time, although nothing has changed.
    #[arg(long, env = "NUMAPLANE_RESYNC", default_value = "10m", value_parser = wait, value_name = "DURATION")]
    pub resync: Duration,
    /// Work on this many rollouts at once.
    #[arg(long, env = "NUMAPLANE_WORKERS", default_value_t = 16, value_name = "N")]
    pub workers: usize,
    /// Serve /healthz, /readyz and /metrics here.
    #[arg(long, env = "NUMAPLANE_ADMIN_ADDRESS", default_value = "127.0.0.1:8081", value_name = "ADDRESS:PORT")]
    pub admin_address: SocketAddr,
    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// How the webhook runs.
#[derive(Debug, Args)]
pub struct WebhookArgs {
    /// What is served, and who may define what.
    #[command(flatten)]
    pub platform: PlatformArgs,
    /// Serve admission here, over TLS.
    #[arg(long, env = "NUMAPLANE_ADDRESS", default_value = "127.0.0.1:9443", value_name = "ADDRESS:PORT")]
    pub address: SocketAddr,
    /// With which certificate, and how it ends.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// Serve /healthz, /readyz and /metrics here.
    #[arg(long, env = "NUMAPLANE_ADMIN_ADDRESS", default_value = "127.0.0.1:8082", value_name = "ADDRESS:PORT")]
    pub admin_address: SocketAddr,
    /// How to log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// What is served, and who may define what: the same for reconcilers and webhook, or they would judge differently.
#[derive(Debug, Args)]
pub struct PlatformArgs {
    /// Namespace of the operator: definitions in it are for every namespace.
    #[arg(long, env = "NUMAPLANE_NAMESPACE", default_value = registration::NAMESPACE, value_name = "NAMESPACE")]
    pub namespace: String,
    /// Serve this namespace only; may be given more than once. All of them if never given.
    #[arg(
        long = "watch-namespace",
        env = "NUMAPLANE_WATCH_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMESPACE"
    )]
    pub watch_namespaces: Vec<String>,
    /// Let definitions ConfigMaps in other namespaces define versions for the rollouts there. Whoever may write
    /// ConfigMaps in such a namespace can then have the operator create objects in it.
    #[arg(long, env = "NUMAPLANE_ALLOW_NAMESPACE_DEFINITIONS")]
    pub allow_namespace_definitions: bool,
    /// Permit one more kind in definitions, as Kind.group (Secret, ClusterRole.rbac.authorization.k8s.io); may be given
    /// more than once.
    #[arg(long = "permit-kind", env = "NUMAPLANE_PERMIT_KINDS", value_delimiter = ',', value_name = "KIND.GROUP")]
    pub permit_kinds: Vec<String>,
}

/// How a process logs.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// What to log: error, warn, info, debug or trace, also by module (`info,numaplane=debug`).
    #[arg(long, env = "NUMAPLANE_LOG", default_value = "info,kube_runtime=error", value_name = "FILTER")]
    pub log: String,
    /// How to log.
    #[arg(long, env = "NUMAPLANE_LOG_FORMAT", default_value = "text", value_parser = ["text", "json"], value_name = "FORMAT")]
    pub log_format: String,
}

/// Where generated files go, and whom they are for.
#[derive(Debug, Args)]
pub struct ManifestsArgs {
    /// Folder to write `crds/*.yaml` and `webhooks/*.yaml` into; without it everything is printed.
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Namespace of the operator: what its own service accounts do there is not asked about.
    #[arg(long, default_value = registration::NAMESPACE, value_name = "NAMESPACE")]
    pub namespace: String,
    /// Register the webhook by this URL, for one that runs outside of the cluster, instead of by the Service
    /// numaplane-webhook in the operator's namespace.
    #[arg(long, value_parser = https, value_name = "https://ADDRESS:PORT")]
    pub webhook_url: Option<String>,
}

impl ManifestsArgs {
    /// How the webhook is registered.
    #[must_use]
    pub fn target(&self) -> Target {
        let target = Target { namespace: self.namespace.clone(), ..Target::default() };
        match &self.webhook_url {
            Some(url) => Target { address: Address::Url(url.clone()), ..target },
            None => target,
        }
    }
}

/// A URL that the API server takes for a webhook.
fn https(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").map(|rest| rest.trim_end_matches('/'));
    match host {
        Some(host)
            if !host.is_empty() && !host.contains(['/', '?', '#', '@']) && !host.contains(char::is_whitespace) =>
        {
            Ok(format!("https://{host}"))
        }
        _ => Err("must be https://, a host and a port, and nothing else, like https://127.0.0.1:9443".to_owned()),
    }
}

fn wait(text: &str) -> Result<Duration, String> {
    match Wait::from(text).get() {
        Ok(duration) if duration.is_zero() => Err("must be longer than 0s".to_owned()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(error.to_string()),
    }
}

impl ControllerArgs {
    /// The settings that the arguments ask for.
    ///
    /// # Errors
    /// A kind is not written as Kind.group.
    pub fn settings(&self) -> Result<Settings, String> {
        let settings = self.platform.settings()?;
        Ok(Settings { config: self.config.clone(), resync: self.resync, workers: self.workers, ..settings })
    }
}

impl PlatformArgs {
    /// The settings that the arguments ask for, with the rest as it is built in.
    ///
    /// # Errors
    /// A kind is not written as Kind.group.
    pub fn settings(&self) -> Result<Settings, String> {
        let more: PermittedKinds =
            self.permit_kinds.join(",").parse().map_err(|error| format!("--permit-kind: {error}"))?;
        Ok(Settings {
            operator_namespace: self.namespace.clone(),
            namespaces: self.watch_namespaces.iter().filter(|n| !n.is_empty()).cloned().collect::<BTreeSet<_>>(),
            definitions_anywhere: self.allow_namespace_definitions,
            permitted: PermittedKinds::default().and(more),
            defaults: Defaults::default(),
            config: None,
            resync: Duration::from_mins(10),
            workers: 16,
        })
    }
}
