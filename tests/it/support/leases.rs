//! Who leads in simulated pods: the stand-in for Numaflow's leader election that all tests share, and what they ask of
//! a lease.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::config::Kubeconfig;

use super::{
    control_plane::client,
    stand_in::{self, Pace, Timings},
    team::Team,
    wait::eventually,
};

/// The lease of the instance without a name.
pub const LEASE: &str = "numaflow-controller-lock";

/// The shortest that a lease may have, and what goes with it, so that a test does not wait long for the next leader.
pub const TIMINGS: Timings = Timings {
    linger: Duration::from_millis(300),
    lease_duration: Duration::from_secs(1),
    renew: Duration::from_millis(300),
};

/// … and how long things take that a controller does.
pub const PACE: Pace = Pace {
    tick: Duration::from_secs(1),
    retry_limit: Duration::from_secs(2),
    hung: Duration::from_secs(2),
    ..Pace::REAL
};

/// How long both take of the real one.
const REAL_TIMINGS: Timings =
    Timings { linger: Duration::from_secs(18), lease_duration: Duration::from_secs(15), renew: Duration::from_secs(2) };

/// The stand-in of this process.
#[derive(Default)]
pub struct Leases {
    /// Namespaces in which it does not play.
    over: Arc<Mutex<HashSet<String>>>,
}

/// Another one, for one namespace, that takes its time as the real Numaflow does; it ends when this is dropped.
pub struct RealTime {
    ends: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Leases {
    /// Starts to play, on a thread of its own that ends with the process: tests come and go with their runtimes.
    pub fn play(&self, administrator: Kubeconfig) {
        let over = self.over.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                let client = client(&administrator).await;
                let plays_in = |namespace: &str| !lock(&over).contains(namespace);
                stand_in::run(client, TIMINGS, PACE, plays_in, |words| tracing::debug!("stand-in: {words}")).await;
            });
        });
    }

    /// Has it all take as long in this namespace as was measured of the real Numaflow: looks at what drains ten seconds apart,
    /// a lease of fifteen, and old processes that keep it for eighteen more. To be asked for before there is any pod.
    pub fn real_time(&self, administrator: Kubeconfig, namespace: &str) -> RealTime {
        self.over(&[namespace.to_owned()]);
        let (ends, ended) = tokio::sync::oneshot::channel();
        let namespace = namespace.to_owned();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                let client = client(&administrator).await;
                let plays_in = |other: &str| other == namespace;
                let tell = |words: &str| tracing::debug!("stand-in: {words}");
                tokio::select! {
                    () = stand_in::run(client, REAL_TIMINGS, Pace::REAL, plays_in, tell) => {}
                    // Dropped or told: the end either way.
                    _ = ended => {}
                }
            });
        });
        RealTime { ends: Some(ends) }
    }

    /// Plays no more in these namespaces: their test is over. They stay until the control plane goes, hundreds of them,
    /// and renewing all their leases would be most of what the API server has to do. In what `KEEP=1` leaves running,
    /// the example `numaflow-stand-in` plays on when it is started.
    pub fn over(&self, namespaces: &[String]) {
        lock(&self.over).extend(namespaces.iter().cloned());
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        if let Some(ends) = self.ends.take() {
            // It may have ended by itself.
            let _ = ends.send(());
        }
    }
}

fn lock(over: &Mutex<HashSet<String>>) -> MutexGuard<'_, HashSet<String>> {
    over.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lease as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// `<host>_<uuid>`.
    pub holder: String,
    /// Since when it is the holder.
    pub acquired: Timestamp,
    /// When it said last that it still is.
    pub renewed: Timestamp,
    /// How many holders there were before.
    pub transitions: i32,
}

impl Held {
    /// Whether the process of a pod on this host has it.
    pub fn by(&self, host: &str) -> bool {
        self.holder.split_once('_').is_some_and(|(name, _)| name == host)
    }
}

impl Team {
    /// A lease, if it is there.
    pub async fn lease(&self, name: &str) -> Option<Held> {
        let spec: LeaseSpec = self.find::<Lease>(name).await?.spec.unwrap_or_default();
        Some(Held {
            holder: spec.holder_identity.unwrap_or_default(),
            acquired: spec.acquire_time.map(|time| time.0).unwrap_or_default(),
            renewed: spec.renew_time.map(|time| time.0).unwrap_or_default(),
            transitions: spec.lease_transitions.unwrap_or_default(),
        })
    }

    /// Waits until a lease is as it should be.
    pub async fn leads(&self, lease: &str, what: &str, is: impl Fn(&Held) -> bool) -> Held {
        eventually(&format!("{lease}: {what}"), async || match self.lease(lease).await {
            Some(held) if is(&held) => Ok(held),
            other => Err(format!("{other:?}")),
        })
        .await
    }
}
