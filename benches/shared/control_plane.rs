//! A control plane of this run's own, which ends with this process whatever becomes of it.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;

use super::{Result, process};

/// A running control plane.
pub struct ControlPlane {
    program: PathBuf,
    child: Child,
    /// The control plane ends when this does: the kernel closes it even if this process is killed.
    stdin: Option<ChildStdin>,
    dir: PathBuf,
}

impl ControlPlane {
    /// Starts one under `folder` and waits until it can run pods. It removes what it wrote when it ends, unless it is to
    /// keep it.
    pub async fn start(folder: &Path, keep: bool) -> Result<Self> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin/control-plane");
        if !program.exists() {
            return Err("the control plane is not built yet: run 'make tools'".into());
        }
        let dir = folder.join("control-plane");
        let mut child = Command::new(&program)
            .args(["up", "--foreground", "--quiet", "--dir"])
            .arg(&dir)
            .args((!keep).then_some("--remove"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(folder.join("control-plane.stderr"))?)
            .spawn()?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("the control plane has no output")?;
        let plane = Self { program, child, stdin, dir };
        let ready = tokio::task::spawn_blocking(move || BufReader::new(stdout).lines().next()).await?;
        match ready {
            Some(Ok(_)) => Ok(plane),
            _ => Err(format!(
                "the control plane does not start: {}",
                fs::read_to_string(folder.join("control-plane.stderr")).unwrap_or_default().trim()
            )
            .into()),
        }
    }

    /// The kubeconfig of the user whose requests are recorded.
    pub fn recorded_user(&self) -> PathBuf {
        self.dir.join("kubeconfig-operator")
    }

    /// Where the requests of that user are recorded.
    pub fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    /// A client of the administrator, whose requests are not recorded.
    pub async fn admin(&self) -> Result<Client> {
        client(&self.dir.join("kubeconfig")).await
    }

    /// Has a process ended along with the control plane, should this one not live to do it.
    pub fn record(&self, name: &str, pid: u32) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["record", "--name", name, "--pid", &pid.to_string(), "--dir"]).arg(&self.dir);
        if command.status()?.success() { Ok(()) } else { Err(format!("{name} cannot be recorded").into()) }
    }

    /// CPU seconds of all its processes together.
    pub fn cpu_seconds(&self) -> Result<f64> {
        let state: Value = serde_json::from_slice(&fs::read(self.dir.join("pids"))?)?;
        let components = state["processes"].as_array().into_iter().flatten().filter(|p| p["role"] == "component");
        let pids = components.filter_map(|p| p["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()));
        pids.map(process::cpu_seconds).sum()
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(30) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // It may be gone in between, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client from a kubeconfig.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
