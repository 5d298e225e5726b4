//! The phases of a run, in order, and what each measures.

use std::{
    path::Path,
    process::ExitStatus,
    time::{Duration, Instant},
};

use futures::{StreamExt, TryStreamExt, stream};
use kube::{
    Api, Client,
    api::{DynamicObject, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    Args, Result,
    audit::{Audit, Counts},
    floor::{Beside, Floor, Time, Times},
    operator::{Operator, Turns},
    sample::{self, VERSIONS},
    say,
    seen::{Goal, Seen, Watches},
    shared::{
        OPERATOR_NAMESPACE,
        control_plane::ControlPlane,
        kinds::{self, resource},
        process::{self, Memory},
        until,
    },
};

/// How many requests this program has under way when it prepares and asks.
const AT_ONCE: usize = 16;

/// Everything that was measured.
pub struct Measured {
    /// Load before and after.
    pub load: [String; 2],
    /// The first start, with nothing to do.
    pub start: Start,
    /// All rollouts created at once.
    pub install: Phase,
    /// The version of all of them changed at once.
    pub change: Phase,
    /// Nothing asked.
    pub idle: Phase,
    /// Memory after that.
    pub memory: Memory,
    /// Time from SIGTERM to the end, and how it ended; `None` if it had to be killed.
    pub end: (Duration, Option<ExitStatus>),
    /// The second start, with everything in place.
    pub restart: Start,
    /// The client that applies the objects only.
    pub floor: Times,
    /// The client that writes as often as the operator.
    pub as_many: Times,
}

/// A start of the operator.
#[derive(Default)]
pub struct Start {
    /// Until it was ready.
    pub ready: Duration,
    /// Until it had looked at every rollout.
    pub looked: Duration,
    /// Its requests until it was quiet.
    pub requests: Counts,
    /// CPU seconds for that.
    pub cpu: f64,
    /// Memory after that.
    pub memory: Memory,
}

/// A phase with the operator running.
#[derive(Default)]
pub struct Phase {
    /// Until all Deployments were available in the version.
    pub available: Duration,
    /// Until all rollouts said so as well.
    pub done: Duration,
    /// Requests of the operator, until it was quiet.
    pub requests: Counts,
    /// CPU seconds of the operator for that.
    pub cpu: f64,
    /// CPU seconds until all was done.
    pub until_done: Cpu,
    /// Turns that the operator took.
    pub turns: Turns,
    /// Deployments that are not the same object as before.
    pub replaced: usize,
    /// Namespaces that were without an available pod for a time, and the longest such time.
    pub outages: (usize, Duration),
}

/// Who used the processors for how many seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// The operator, or the bare client.
    pub own: f64,
    /// The control plane.
    pub plane: f64,
    /// Everybody else: other programs on this machine, and with the operator also the one that asks and watches.
    pub others: f64,
}

impl Cpu {
    /// Up to now; `pid` is the operator or the client.
    fn of(pid: u32, plane: &ControlPlane) -> Result<Self> {
        let (own, plane) = (process::cpu_seconds(pid)?, plane.cpu_seconds()?);
        Ok(Self { own, plane, others: process::machine_cpu_seconds()? - own - plane })
    }

    fn since(self, earlier: Self) -> Self {
        // Read one after the other, so that a little may be missing.
        let others = (self.others - earlier.others).max(0.0);
        Self { own: self.own - earlier.own, plane: self.plane - earlier.plane, others }
    }
}

/// Runs all phases.
pub async fn all(args: &Args, folder: &Path) -> Result<Measured> {
    let before = process::load();
    say(&format!("starting a control plane ({before})"));
    let plane = ControlPlane::start(folder, args.keep).await?;
    let bench = Bench::new(args, folder, &plane).await?;
    // Else whoever comes first pays for what the control plane does once.
    say("warming the control plane up");
    bench.floor("warm", usize::from(args.namespaces.min(10)), Beside::default()).await?;
    let mut measured = bench.with_operator().await?;
    measured.load[0] = before;

    let count = usize::from(args.namespaces);
    say("bare client: the same objects, nothing else");
    measured.floor = bench.floor("floor", count, Beside::default()).await?;
    let objects = sample::objects(VERSIONS[0])?.len();
    let beside = Beside {
        install: (measured.install.requests.all_writes() / count).saturating_sub(objects),
        install_dry_runs: measured.install.requests.dry_runs / count,
        change: (measured.change.requests.all_writes() / count).saturating_sub(1),
        change_dry_runs: measured.change.requests.dry_runs / count,
    };
    say("bare client: as many writes and dry-runs as the operator made");
    measured.as_many = bench.floor("same", count, beside).await?;
    measured.load[1] = process::load();
    say("ending the control plane");
    Ok(measured)
}

struct Bench<'a> {
    args: &'a Args,
    folder: &'a Path,
    plane: &'a ControlPlane,
    admin: Client,
    watches: Watches,
}

impl<'a> Bench<'a> {
    async fn new(args: &'a Args, folder: &'a Path, plane: &'a ControlPlane) -> Result<Self> {
        let admin = plane.admin().await?;
        kinds::install(&admin, sample::numaflow_kinds()).await?;
        let watches = Seen::watch(&admin);
        Ok(Self { args, folder, plane, admin, watches })
    }

    /// Everything that the operator is measured at.
    async fn with_operator(&self) -> Result<Measured> {
        let namespaces = self.namespaces("bench", usize::from(self.args.namespaces)).await?;
        self.create_namespaces(&[OPERATOR_NAMESPACE.to_owned()]).await?;
        let config_maps = resource("", "v1", "ConfigMap", "configmaps");
        let config_maps = Api::<DynamicObject>::namespaced_with(self.admin.clone(), OPERATOR_NAMESPACE, &config_maps);
        for version in VERSIONS {
            kinds::apply(&config_maps, &sample::definitions(version)).await?;
        }
        let mut audit = Audit::new(self.plane.audit_log())?;

        say("starting the operator");
        let (mut operator, start) = self.start(&mut audit, 0).await?;

        say(&format!("install: creating {} rollouts at once", namespaces.len()));
        let install = self.phase(&mut operator, &mut audit, &namespaces, VERSIONS[0], self.create(&namespaces)).await?;
        say(&format!("change: version of all to {} at once", VERSIONS[1]));
        let change =
            self.phase(&mut operator, &mut audit, &namespaces, VERSIONS[1], self.set_version(&namespaces)).await?;

        say(&format!("idle: {:?}", self.args.idle));
        let (cpu, turns) = (process::cpu_seconds(operator.pid())?, operator.turns()?);
        tokio::time::sleep(self.args.idle).await;
        operator.alive()?;
        let idle = Phase {
            requests: audit.take()?,
            cpu: process::cpu_seconds(operator.pid())? - cpu,
            turns: operator.turns()?.since(&turns),
            ..Phase::default()
        };
        let memory = process::memory(operator.pid())?;

        say("restart: ending the operator and starting it again");
        let end = operator.end().await?;
        // Its last requests belong to its end, not to the start that follows.
        audit.take()?;
        let (operator, restart) = self.start(&mut audit, u64::from(self.args.namespaces)).await?;
        operator.end().await?;
        audit.take()?;
        Ok(Measured {
            load: Default::default(),
            start,
            install,
            change,
            idle,
            memory,
            end,
            restart,
            floor: Times::default(),
            as_many: Times::default(),
        })
    }

    async fn start(&self, audit: &mut Audit, rollouts: u64) -> Result<(Operator, Start)> {
        let mut operator = Operator::start(self.args, self.plane, self.folder)?;
        let ready = operator.ready(self.args.timeout).await?;
        let looked = operator.turns_taken(rollouts, self.args.timeout).await?;
        let requests = audit.take_when_quiet().await?;
        operator.alive()?;
        let (cpu, memory) = (process::cpu_seconds(operator.pid())?, process::memory(operator.pid())?);
        Ok((operator, Start { ready, looked, requests, cpu, memory }))
    }

    /// Asks something of every rollout, and waits until all of them have the version.
    async fn phase(
        &self,
        operator: &mut Operator,
        audit: &mut Audit,
        namespaces: &[String],
        version: &'static str,
        ask: impl Future<Output = Result<()>>,
    ) -> Result<Phase> {
        self.calm(operator.pid()).await?;
        audit.take()?;
        self.watches.seen.forget_outages();
        let uids = self.watches.seen.uids(namespaces);
        let (turns, cpu) = (operator.turns()?, Cpu::of(operator.pid(), self.plane)?);
        let began = Instant::now();
        ask.await?;
        let goals = [Goal::Rolled(version), Goal::Deployed(version)];
        let met = self.watches.seen.wait(namespaces, &goals, began, self.args.timeout, || operator.alive()).await;
        let met = met.map_err(|error| format!("{error}\nThe operator's log ends with:\n{}", operator.log_tail()))?;
        let until_done = Cpu::of(operator.pid(), self.plane)?.since(cpu);
        let (available, done) = (met[0], met[1]);
        say(&format!("{:6.1} s: done", done.as_secs_f64()));
        let requests = audit.take_when_quiet().await?;
        let now = self.watches.seen.uids(namespaces);
        Ok(Phase {
            available,
            done,
            requests,
            cpu: process::cpu_seconds(operator.pid())? - cpu.own,
            until_done,
            turns: operator.turns()?.since(&turns),
            replaced: uids.iter().filter(|(namespace, uid)| now.get(*namespace) != Some(uid)).count(),
            outages: self.watches.seen.outages(namespaces),
        })
    }

    /// Waits until other programs take less than a fifth of a processor for three seconds, or for as long as was asked.
    async fn calm(&self, pid: u32) -> Result<()> {
        let (began, window) = (Instant::now(), Duration::from_secs(3));
        while began.elapsed() < self.args.calm {
            let before = Cpu::of(pid, self.plane)?;
            tokio::time::sleep(window).await;
            if Cpu::of(pid, self.plane)?.since(before).others < window.as_secs_f64() / 5.0 {
                break;
            }
        }
        Ok(())
    }

    async fn create(&self, namespaces: &[String]) -> Result<()> {
        self.in_each(namespaces, async |namespace| {
            let rollout = sample::rollout(namespace, VERSIONS[0], Some(self.args.strategy.as_str()));
            self.rollouts(namespace).create(&PostParams::default(), &serde_json::from_value(rollout)?).await?;
            Ok(())
        })
        .await
    }

    async fn set_version(&self, namespaces: &[String]) -> Result<()> {
        let patch = json!({"spec": {"controller": {"version": VERSIONS[1]}}});
        self.in_each(namespaces, async |namespace| {
            let name = sample::rollout(namespace, VERSIONS[1], None)["metadata"]["name"].clone();
            let name = name.as_str().unwrap_or_default();
            self.rollouts(namespace).patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
            Ok(())
        })
        .await
    }

    fn rollouts(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), namespace, &sample::rollouts())
    }

    /// The same objects by a bare client, in namespaces of their own.
    async fn floor(&self, prefix: &str, count: usize, beside: Beside) -> Result<Times> {
        let namespaces = self.namespaces(prefix, count).await?;
        let floor = Floor::new(&self.plane.recorded_user(), self.args.workers, beside).await?;
        let mut audit = Audit::new(self.plane.audit_log())?;
        let mut times = Times::default();
        for (version, measured) in [(VERSIONS[0], &mut times.install), (VERSIONS[1], &mut times.change)] {
            self.calm(std::process::id()).await?;
            let (began, cpu) = (Instant::now(), Cpu::of(std::process::id(), self.plane)?);
            if version == VERSIONS[0] {
                floor.install(&namespaces).await?;
            } else {
                floor.change(&namespaces).await?;
            }
            let goals = [Goal::Rolled(version)];
            let met = self.watches.seen.wait(&namespaces, &goals, began, self.args.timeout, || Ok(())).await?;
            say(&format!("{:6.1} s: done", met[0].as_secs_f64()));
            *measured = Time {
                took: met[0],
                cpu: Cpu::of(std::process::id(), self.plane)?.since(cpu),
                writes: audit.take_when_quiet().await?.all_writes() as f64 / count as f64,
            };
        }
        Ok(times)
    }

    /// Namespaces, with everything in them that Kubernetes puts there by itself.
    async fn namespaces(&self, prefix: &str, count: usize) -> Result<Vec<String>> {
        let names: Vec<String> = (0..count).map(|number| format!("{prefix}-{number:04}")).collect();
        self.create_namespaces(&names).await?;
        Ok(names)
    }

    async fn create_namespaces(&self, names: &[String]) -> Result<()> {
        let api = Api::<DynamicObject>::all_with(self.admin.clone(), &resource("", "v1", "Namespace", "namespaces"));
        self.in_each(names, async |name| {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            api.create(&PostParams::default(), &serde_json::from_value(namespace)?).await?;
            Ok(())
        })
        .await?;
        for (kind, plural, name) in
            [("ServiceAccount", "serviceaccounts", "default"), ("ConfigMap", "configmaps", "kube-root-ca.crt")]
        {
            let api = Api::<DynamicObject>::all_with(self.admin.clone(), &resource("", "v1", kind, plural));
            let only = ListParams::default().fields(&format!("metadata.name={name}"));
            until(&format!("{kind}/{name} in every namespace"), async || {
                let there = api.list_metadata(&only).await?.items;
                Ok(names.iter().all(|n| there.iter().any(|o| o.metadata.namespace.as_ref() == Some(n))))
            })
            .await?;
        }
        Ok(())
    }

    async fn in_each<'n>(&self, namespaces: &'n [String], work: impl AsyncFn(&'n str) -> Result<()>) -> Result<()> {
        stream::iter(namespaces).map(|n| work(n)).buffer_unordered(AT_ONCE).try_collect().await
    }
}
