//! The program itself, as a process of its own whose requests pass through this one: so that it can be killed right after
//! any of its writes.

use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{Scene, control_plane::control_plane, faults::Faults, forward::Forward, wait::within};

/// A running program; killed when dropped.
pub struct Program {
    process: Child,
    log: PathBuf,
    forward: Forward,
    _folder: TempDir,
}

impl Program {
    /// Starts the program for the namespaces of a scene.
    pub async fn start(scene: &Scene, faults: &Faults) -> Self {
        let (client, _) = control_plane().operator(faults, None).await;
        let forward = Forward::start(client).await;
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        forward.write_kubeconfig(&kubeconfig);
        let config = folder.path().join("config.yaml");
        let strategy = "strategy: {assessment: {deadline: 1m, window: 0s, interval: 200ms}}\n";
        fs::write(&config, strategy).expect("a file can be written");
        let log = folder.path().join("log");
        let settings = scene.settings();
        let mut command = Command::new(env!("CARGO_BIN_EXE_numaplane"));
        command.arg("controller").args(["--namespace", &settings.operator_namespace, "--admin-address", "127.0.0.1:0"]);
        for namespace in &settings.namespaces {
            command.args(["--watch-namespace", namespace]);
        }
        let process = command
            .env("KUBECONFIG", &kubeconfig)
            .env("NUMAPLANE_CONFIG", &config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("a file can be written"))
            .spawn()
            .expect("the program can be started");
        Self { process, log, forward, _folder: folder }
    }

    /// Kills it, as `kill -9` does.
    pub fn kill(mut self) {
        self.end();
    }

    /// Asks it to end, as Kubernetes does, and waits for that; returns how it ended, and after what time.
    pub async fn terminate(mut self) -> (ExitStatus, Duration) {
        let (began, id) = (Instant::now(), self.process.id().to_string());
        let asked = Command::new("kill").args(["-TERM", &id]).status().expect("a signal can be sent");
        assert!(asked.success(), "{asked}");
        let process = &mut self.process;
        let status = within(Duration::from_secs(30), "the program ends when asked to", async || {
            process.try_wait().ok().flatten().ok_or_else(|| "it runs".to_owned())
        })
        .await;
        self.forward.end();
        (status, began.elapsed())
    }

    /// How long it has kept a processor busy so far.
    pub fn busy(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).expect("it runs");
        // What follows the name, which may hold anything: state is field 3, user and system time are 14 and 15.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
        Duration::from_millis(ticks * 10)
    }

    fn end(&mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it ends");
        self.forward.end();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.end();
        }
        if std::thread::panicking() {
            println!("{}", fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}
