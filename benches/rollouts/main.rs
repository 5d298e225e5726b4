//! The benchmark: installs, changes and restarts at scale against a local control plane, next to what a bare client
//! needs for the same objects. Run it with `make bench`; docs/performance.md says what the figures mean.

// Counts of requests and seconds are far from the limits of the types they are converted between.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod audit;
mod floor;
mod operator;
mod phases;
mod report;
mod sample;
mod seen;
#[path = "../shared/mod.rs"]
mod shared;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Parser;
use numaplane::api::Wait;

use self::shared::{Result, say};

/// Measures the operator with many rollouts at once, and a bare client with the same objects.
#[derive(Debug, Parser)]
#[command(name = "rollouts")]
struct Args {
    /// Namespaces, with one rollout each.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=5000))]
    namespaces: u16,
    /// How long nothing is asked of the operator, to see what it does then.
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "DURATION")]
    idle: Duration,
    /// Longest time for a phase; what is not done by then ends the run.
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "DURATION")]
    timeout: Duration,
    /// Rollouts that the operator, and namespaces that the bare client, works on at once.
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    workers: u16,
    /// Strategy of the rollouts: progressive, pause-and-drain or no-strategy. The last one does what the bare clients do; the
    /// others install every version once more in isolation, and wait for the assessment.
    #[arg(long, default_value = "no-strategy", value_name = "TYPE")]
    strategy: String,
    /// The operator to measure, instead of the one built along with this program.
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_numaplane"))]
    operator: PathBuf,
    /// Wait up to this long before each measurement until other programs leave the processors alone.
    #[arg(long, default_value = "0s", value_parser = duration, value_name = "DURATION")]
    calm: Duration,
    /// Keep the folder with all logs, and say where it is.
    #[arg(long)]
    keep: bool,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

fn duration(text: &str) -> std::result::Result<Duration, String> {
    Wait::from(text).get().map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    let args = Args::parse();
    let measured = shared::run(args.keep, async |folder| {
        print!("{}", report::table(&phases::all(&args, folder).await?, &args));
        Ok(())
    });
    match measured {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rollouts: {error}");
            ExitCode::FAILURE
        }
    }
}
