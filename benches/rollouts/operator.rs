//! The operator as a process of its own, and what it says about itself.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus},
    time::{Duration, Instant},
};

use crate::{
    Args, Result,
    shared::{OPERATOR_NAMESPACE, admin, control_plane::ControlPlane, process},
};

/// How long the operator may take to end; what the benchmark waits for before it gives up on it.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running operator.
pub struct Operator {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
    started: Instant,
}

impl Operator {
    /// Starts it; its log goes on in `folder`.
    pub fn start(args: &Args, plane: &ControlPlane, folder: &Path) -> Result<Self> {
        let address = admin::free()?;
        let log = folder.join("operator.log");
        let file = File::options().create(true).append(true).open(&log)?;
        let started = Instant::now();
        let child = Command::new(&args.operator)
            .args(["controller", "--namespace", OPERATOR_NAMESPACE])
            .args(["--admin-address", &address.to_string(), "--workers", &args.workers.to_string()])
            .env("KUBECONFIG", plane.recorded_user())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .map_err(|error| format!("{}: {error}", args.operator.display()))?;
        let operator = Self { child, address, log, started };
        plane.record("operator", operator.pid())?;
        Ok(operator)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Fails if it has ended by itself.
    pub fn alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(format!("the operator has ended ({status}):\n{}", self.log_tail()).into()),
        }
    }

    /// Waits until it says that it is ready; the time since its start.
    pub async fn ready(&mut self, timeout: Duration) -> Result<Duration> {
        loop {
            if admin::get(self.address, "/readyz").is_ok() {
                return Ok(self.started.elapsed());
            }
            self.wait(timeout, "is not ready").await?;
        }
    }

    /// Waits until it has taken that many turns of rollouts since its start; the time since then.
    pub async fn turns_taken(&mut self, turns: u64, timeout: Duration) -> Result<Duration> {
        loop {
            if self.turns().is_ok_and(|taken| taken.all() >= turns) {
                return Ok(self.started.elapsed());
            }
            self.wait(timeout, "has not looked at every rollout").await?;
        }
    }

    async fn wait(&mut self, timeout: Duration, trouble: &str) -> Result<()> {
        self.alive()?;
        if self.started.elapsed() > timeout {
            return Err(format!("the operator {trouble} after {timeout:?}:\n{}", self.log_tail()).into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        Ok(())
    }

    /// Turns of rollouts since its start, by outcome.
    pub fn turns(&self) -> Result<Turns> {
        let text = admin::get(self.address, "/metrics")?;
        let lines = text.lines().filter_map(|line| {
            let rest = line.strip_prefix("numaplane_reconciles_total{")?;
            let (labels, value) = rest.rsplit_once("} ")?;
            let outcome = labels.split("outcome=\"").nth(1)?.split('"').next()?;
            labels.contains("kind=\"NumaflowControllerRollout\"").then_some(())?;
            // A counter is printed as a floating-point number.
            Some((outcome.to_owned(), value.trim().parse::<f64>().ok()? as u64))
        });
        Ok(Turns(lines.collect()))
    }

    /// Asks it to end; the time it took and how it ended, or `None` if it had to be killed.
    pub async fn end(mut self) -> Result<(Duration, Option<ExitStatus>)> {
        let began = Instant::now();
        process::terminate(self.pid())?;
        while began.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                return Ok((began.elapsed(), Some(status)));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // Dropping it kills it.
        Ok((began.elapsed(), None))
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Turns by outcome.
#[derive(Clone, Debug, Default)]
pub struct Turns(pub std::collections::BTreeMap<String, u64>);

impl Turns {
    /// All of them.
    pub fn all(&self) -> u64 {
        self.0.values().sum()
    }

    /// Those since an earlier look.
    pub fn since(&self, earlier: &Self) -> Self {
        let before = |outcome: &String| earlier.0.get(outcome).copied().unwrap_or_default();
        Self(self.0.iter().map(|(outcome, n)| (outcome.clone(), n - before(outcome))).filter(|(_, n)| *n > 0).collect())
    }
}
