//! The program `numaflow-stand-in`: plays Numaflow's controllers in the simulated pods of a control plane, until it is
//! ended.

// The same files are part of the tests.
#[path = "mod.rs"]
mod stand_in;

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client, ResourceExt, api::PostParams};
use numaplane::api::Wait;
use tokio::signal::unix::{SignalKind, signal};

/// A stand-in for Numaflow's controller, for pods that are only simulated.
///
/// Simulated pods run no process, so nobody takes the Lease numaflow-controller-lock[-<instance>] that a controller has
/// in its namespace. This program takes and renews it in the names of these pods, as the processes in them would; and
/// for the one that leads it does what a controller does about every Pipeline, MonoVertex and InterStepBufferService of
/// its namespace and instance: statuses, vertices and pods, pauses. It is of no use on a cluster that runs pods.
///
/// A pod plays a controller if the first argument of a container is "controller". Labels or annotations change that:
///
///   numaplane.test/lease: take               whatever its arguments are
///   numaplane.test/lease: none               never; on a pod that runs, it stops renewing
///   numaplane.test/lease-after: "SECONDS"    takes the lease only that long after it became ready
///   numaplane.test/linger: "SECONDS"         as --linger, for this pod
///
/// Leader election can be disabled as for the real one: `NUMAFLOW_LEADER_ELECTION_DISABLED` is "true" in a container's
/// environment. The instance is the key `instance` of the configuration that the pod mounts.
#[derive(Debug, Parser)]
#[command(name = "numaflow-stand-in", verbatim_doc_comment, after_help = "The cluster is the one of KUBECONFIG.")]
struct Arguments {
    /// How long a process lives on, and renews its lease, after its pod was deleted.
    #[arg(long, default_value = "18s", value_parser = duration, value_name = "DURATION")]
    linger: Duration,
    /// How long a lease is good for after it was renewed: whole seconds.
    #[arg(long, default_value = "15s", value_parser = seconds, value_name = "DURATION")]
    lease_duration: Duration,
    /// Time between two renewals; shorter than --lease-duration.
    #[arg(long, default_value = "2s", value_parser = duration, value_name = "DURATION")]
    renew: Duration,
    /// Time between two looks at a pipeline that drains.
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "DURATION")]
    tick: Duration,
    /// Longest time until something that failed is tried again.
    #[arg(long, default_value = "1000s", value_parser = duration, value_name = "DURATION")]
    retry_limit: Duration,
    /// How long a daemon that hangs keeps its controller.
    #[arg(long, default_value = "20s", value_parser = duration, value_name = "DURATION")]
    hung: Duration,
    /// How long a new daemon takes until it answers.
    #[arg(long, default_value = "300ms", value_parser = duration, value_name = "DURATION")]
    daemon: Duration,
    /// How long a change takes until a controller sees it.
    #[arg(long, default_value = "4ms", value_parser = duration, value_name = "DURATION")]
    lag: Duration,
    /// Define Numaflow's kinds, as small as they can be, where they are not defined.
    #[arg(long)]
    install_kinds: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    Wait::from(text).get().map_err(|error| error.to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let whole = duration(text)?;
    if whole.subsec_nanos() > 0 || whole.is_zero() {
        return Err("must be whole seconds, and at least one".to_owned());
    }
    Ok(whole)
}

fn main() -> ExitCode {
    match play(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("numaflow-stand-in: {message}");
            ExitCode::FAILURE
        }
    }
}

fn play(arguments: &Arguments) -> Result<(), String> {
    let Arguments { linger, lease_duration, renew, .. } = *arguments;
    if renew.is_zero() || renew >= lease_duration {
        return Err(format!("--renew {renew:?} is not between 0s and --lease-duration {lease_duration:?}"));
    }
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| "another TLS provider is installed already".to_owned())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the runtime cannot start: {error}"))?;
    runtime.block_on(async {
        let client = Client::try_default().await.map_err(|error| format!("no way to the API server: {error}"))?;
        let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
        tell(&format!(
            "a stand-in for Numaflow's controllers, because simulated pods run no process: \
             leases last {lease_duration:?}, are renewed each {renew:?}, and for {linger:?} after a pod is deleted"
        ));
        if arguments.install_kinds {
            install_kinds(&client).await?;
        }
        let timings = stand_in::Timings { linger, lease_duration, renew };
        let Arguments { tick, retry_limit, hung, daemon, lag, .. } = *arguments;
        let pace = stand_in::Pace { tick, retry_limit, hung, daemon, lag, ..stand_in::Pace::REAL };
        tokio::select! {
            () = stand_in::run(client, timings, pace, |_| true, tell) => Err("the watch of pods has ended".to_owned()),
            _ = terminate.recv() => Ok(()),
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    })
}

/// Defines the kinds that are not there. Whatever is there is somebody's, and stays as it is.
async fn install_kinds(client: &Client) -> Result<(), String> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for body in stand_in::definitions() {
        let definition: CustomResourceDefinition = serde_json::from_value(body).map_err(|error| error.to_string())?;
        match api.create(&PostParams::default(), &definition).await {
            Ok(_) => tell(&format!("defined {}", definition.name_any())),
            Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
            Err(error) => return Err(format!("{} cannot be defined: {error}", definition.name_any())),
        }
    }
    Ok(())
}

fn tell(words: &str) {
    println!("{:.3} {words}", jiff::Timestamp::now());
}
