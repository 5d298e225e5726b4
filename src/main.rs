//! The `numaplane` program.

use std::{net::SocketAddr, process::ExitCode, sync::Arc};

use clap::Parser;
use kube::{Client, Config, client::ClientBuilder};
use numaplane::{
    admin,
    cli::{Cli, Command, ControllerArgs, LogArgs, ManifestsArgs, WebhookArgs},
    clock::Clock,
    generate,
    metrics::Metrics,
    nesting::Nesting,
    operator::Operator,
    webhook::{Webhook, server},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Manifests(args) => manifests(&args),
        Command::Controller(args) => controller(&args),
        Command::Webhook(args) => webhook(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("numaplane: {message}");
            ExitCode::FAILURE
        }
    }
}

fn manifests(args: &ManifestsArgs) -> Result<(), String> {
    let target = args.target();
    match &args.out {
        Some(folder) => {
            let written = generate::write(folder, &target).map_err(|error| format!("{}: {error}", folder.display()))?;
            for path in written {
                println!("wrote {path}");
            }
        }
        None => {
            for (_, content) in generate::files(&target).map_err(|error| error.to_string())? {
                println!("---\n{content}");
            }
        }
    }
    Ok(())
}

fn controller(args: &ControllerArgs) -> Result<(), String> {
    let settings = args.settings()?;
    process(&args.log, args.admin_address, async |Process { client, clock, metrics, shutdown }| {
        tracing::info!(namespace = settings.operator_namespace, "the operator starts");
        Operator::run(client, clock, settings, metrics, shutdown).await
    })
}

fn webhook(args: &WebhookArgs) -> Result<(), String> {
    let settings = args.platform.settings()?;
    let source = args.tls.validate(&settings.operator_namespace)?;
    process(&args.log, args.admin_address, async |Process { client, clock, metrics, shutdown }| {
        let listener = server::listen(args.address).map_err(|error| format!("--address {error}"))?;
        let address = listener.local_addr().map_err(|error| format!("--address: {error}"))?;
        tracing::info!(namespace = settings.operator_namespace, %address, "the webhook starts");
        let limits = args.tls.limits();
        Webhook { client, clock, settings, source, limits, listener, metrics }.run(shutdown).await
    })
}

/// What every process has.
struct Process {
    client: Client,
    clock: Clock,
    metrics: Arc<Metrics>,
    /// Asked to end.
    shutdown: CancellationToken,
}

/// Serves `/healthz`, `/readyz` and `/metrics` and does the work, until that ends by itself or is asked to.
fn process(
    log: &LogArgs,
    admin: SocketAddr,
    work: impl AsyncFnOnce(Process) -> Result<(), String>,
) -> Result<(), String> {
    start_log(log)?;
    // Chosen here, once: which provider is used must not depend on what the dependencies happen to enable.
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| "another TLS provider is installed already".to_owned())?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("the runtime cannot start: {error}"))?;
    runtime.block_on(async {
        let metrics = Arc::new(Metrics::new().map_err(|error| error.to_string())?);
        let listener =
            tokio::net::TcpListener::bind(admin).await.map_err(|error| format!("--admin-address {admin}: {error}"))?;
        let address = listener.local_addr().map_err(|error| format!("--admin-address: {error}"))?;
        let served = tokio::spawn(axum::serve(listener, admin::router(metrics.clone())).into_future());
        let config = Config::infer().await.map_err(|error| no_way(&error))?;
        let clock = Clock::default();
        let client = ClientBuilder::try_from(config)
            .map_err(|error| no_way(&error))?
            .with_layer(&clock)
            .with_layer(&Nesting)
            .build();
        let shutdown = CancellationToken::new();
        tokio::spawn(end_on_signal(shutdown.clone()));
        tracing::info!(version = env!("CARGO_PKG_VERSION"), admin = %address, "starting");
        let result = work(Process { client, clock, metrics, shutdown }).await;
        tracing::info!("ended");
        served.abort();
        result
    })
}

/// Has everything logged from here on.
fn start_log(args: &LogArgs) -> Result<(), String> {
    let filter = EnvFilter::try_new(&args.log).map_err(|error| format!("--log {:?}: {error}", args.log))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()));
    if args.log_format == "json" {
        log.json().init();
    } else {
        log.init();
    }
    Ok(())
}

fn no_way(error: &dyn std::error::Error) -> String {
    format!("no way to the API server: {error} (set KUBECONFIG, or run in a pod with a service account)")
}

/// SIGTERM and Ctrl-C end the process in good order; a second one ends it at once.
async fn end_on_signal(shutdown: CancellationToken) {
    wait_for_signal().await;
    tracing::info!("asked to end: finishing what is in flight");
    shutdown.cancel();
    wait_for_signal().await;
    std::process::exit(1);
}

async fn wait_for_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        },
        Err(error) => {
            tracing::warn!(%error, "SIGTERM cannot be caught");
            // Without a handler Ctrl-C is what is left.
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}
