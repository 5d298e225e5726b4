//! What the benchmarks have in common. Each takes it in by its path: a benchmark is a crate of its own, the library is no place
//! for it, and what the tests share for this panics where a benchmark ends with words.

pub mod admin;
pub mod control_plane;
pub mod definition;
pub mod kinds;
pub mod process;

use std::{
    path::Path,
    time::{Duration, Instant},
};

/// Whatever goes wrong ends the run with its words.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Namespace of the operator: where definitions are, and the Secret with the webhook's certificates.
pub const OPERATOR_NAMESPACE: &str = "numaplane-system";

/// Measures, with a folder for logs that goes afterwards, unless it is to be kept; Ctrl-C ends it in good order.
pub fn run(keep: bool, measure: impl AsyncFnOnce(&Path) -> Result<()>) -> Result<()> {
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| "another TLS provider is installed already")?;
    let folder = tempfile::Builder::new().prefix("numaplane-bench-").disable_cleanup(keep).tempdir()?;
    if keep {
        say(&format!("logs stay in {}", folder.path().display()));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            measured = measure(folder.path()) => measured,
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        }
    })
}

/// A line of progress.
pub fn say(words: &str) {
    println!("-- {words}");
}

/// Waits for something that takes a moment.
pub async fn until(what: &str, there: impl AsyncFn() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !there().await? {
        if began.elapsed() > Duration::from_mins(2) {
            return Err(format!("still waiting for {what}").into());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
