//! The benchmark of admission: how long the API server takes for a write with the webhook, with one that admits everything, and
//! with none. Run it with `make bench-admission`; docs/performance.md says what the figures mean.

mod load;
#[path = "../shared/mod.rs"]
#[allow(dead_code)] // the other benchmark uses the rest
mod shared;
mod webhooks;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;

use self::{
    load::{Figures, Load},
    shared::{Result, control_plane::ControlPlane, kinds, process, say},
    webhooks::{AdmitAll, Product},
};

/// Measures how long a write takes with the webhook, with one that admits everything, and with none.
#[derive(Debug, Parser)]
#[command(name = "admission")]
struct Args {
    /// Versions that are defined.
    #[arg(long, default_value_t = 1000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    definitions: u32,
    /// Rollouts that there are, fifty in each namespace.
    #[arg(long, default_value_t = 5000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50_000))]
    rollouts: u32,
    /// Writes that are measured of each sort.
    #[arg(long, default_value_t = 2000, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    writes: u32,
    /// The webhook to measure, instead of the one built along with this program.
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_numaplane"))]
    webhook: PathBuf,
    /// Keep the folder with all logs, and say where it is.
    #[arg(long)]
    keep: bool,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match shared::run(args.keep, async |folder| measure(&args, folder).await) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("admission: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(args: &Args, folder: &std::path::Path) -> Result<()> {
    let plane = ControlPlane::start(folder, args.keep).await?;
    let client = plane.admin().await?;
    kinds::install(&client, Vec::new()).await?;
    let load = Load::make(&client, args.definitions, args.rollouts).await?;
    let product = Product::start(&client, &args.webhook, &plane, folder).await?;
    let admit_all = AdmitAll::start(&client).await?;
    say(&format!("{}; {} writes of each sort, with dryRun", process::load(), args.writes));
    println!("| at once | | p50 ms | p99 ms | most ms |\n|---|---|---|---|---|");
    for at_once in [1, 16] {
        // One after the other, thrice in turns, so that what else goes on strikes all of them.
        let mut figures = [Figures::default(), Figures::default(), Figures::default(), Figures::default()];
        for _ in 0..3 {
            let writes = args.writes.div_ceil(3);
            figures[0].add(load.write(&load::Sort::NoWebhook, writes, at_once).await?);
            figures[1].add(load.write(&load::Sort::AdmitAll, writes, at_once).await?);
            figures[2].add(load.write(&load::Sort::Product, writes, at_once).await?);
            figures[3].add(load.write(&load::Sort::Refused, writes.min(200), at_once).await?);
        }
        let names =
            ["no webhook", "a webhook that admits everything", "this one", "this one, refused after a live read"];
        for (name, figures) in names.iter().zip(&mut figures) {
            println!("| {at_once} | {name} | {} | {} | {} |", figures.at(0.5), figures.at(0.99), figures.at(1.0));
        }
    }
    println!();
    println!("the webhook: {}", product.cost()?);
    drop(admit_all);
    Ok(())
}
