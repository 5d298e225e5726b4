//! A client that does nothing but write: what the same objects cost without an operator.

use std::{path::Path, time::Duration};

use futures::{StreamExt, TryStreamExt, future, stream};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{Result, phases::Cpu, sample, shared::control_plane};

/// Manager of the fields that it applies.
const MANAGER: &str = "floor";

/// What is written per namespace besides the objects of the definition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    /// Writes at the installation.
    pub install: usize,
    /// Dry-runs at the installation.
    pub install_dry_runs: usize,
    /// Writes at the change.
    pub change: usize,
    /// Dry-runs at the change.
    pub change_dry_runs: usize,
}

/// The client.
pub struct Floor {
    client: Client,
    workers: usize,
    beside: Beside,
    /// About as long as the status of a rollout.
    words: String,
}

impl Floor {
    /// A client with the operator's own identity, so that the server treats both alike.
    pub async fn new(kubeconfig: &Path, workers: u16, beside: Beside) -> Result<Self> {
        let client = control_plane::client(kubeconfig).await?;
        Ok(Self { client, workers: usize::from(workers), beside, words: "x".repeat(2000) })
    }

    /// Applies all objects in each namespace, one after the other, and in so many namespaces at once.
    pub async fn install(&self, namespaces: &[String]) -> Result<()> {
        let objects = sample::objects(sample::VERSIONS[0])?;
        self.in_each(namespaces, async |namespace| {
            self.dry_runs(namespace, &objects, self.beside.install_dry_runs).await?;
            let mut left = self.beside.install;
            if left > 0 {
                self.create_child(namespace).await?;
                left -= 1;
            }
            if left > 0 {
                self.pin(namespace, sample::VERSIONS[0], &objects).await?;
                left -= 1;
            }
            for object in &objects {
                self.apply(namespace, object, false).await?;
            }
            self.statuses(namespace, left).await
        })
        .await
    }

    /// Applies the one object that differs in the second version.
    pub async fn change(&self, namespaces: &[String]) -> Result<()> {
        let (old, new) = (sample::objects(sample::VERSIONS[0])?, sample::objects(sample::VERSIONS[1])?);
        let objects: Vec<Value> = new.into_iter().filter(|object| !old.contains(object)).collect();
        self.in_each(namespaces, async |namespace| {
            self.dry_runs(namespace, &objects, self.beside.change_dry_runs).await?;
            let mut left = self.beside.change;
            if left > 0 {
                self.pin(namespace, sample::VERSIONS[1], &objects).await?;
                left -= 1;
            }
            for object in &objects {
                self.apply(namespace, object, false).await?;
            }
            self.statuses(namespace, left).await
        })
        .await
    }

    async fn in_each<'a>(&self, namespaces: &'a [String], work: impl AsyncFn(&'a str) -> Result<()>) -> Result<()> {
        stream::iter(namespaces).map(|n| work(n)).buffer_unordered(self.workers).try_collect().await
    }

    async fn apply(&self, namespace: &str, object: &Value, dry_run: bool) -> Result<()> {
        let resource = sample::resource_of(object);
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), namespace, &resource);
        let parameters = PatchParams { dry_run, ..PatchParams::apply(MANAGER).force() };
        api.patch(object["metadata"]["name"].as_str().unwrap_or_default(), &parameters, &Patch::Apply(object)).await?;
        Ok(())
    }

    async fn dry_runs(&self, namespace: &str, objects: &[Value], count: usize) -> Result<()> {
        future::try_join_all(objects.iter().cycle().take(count).map(|object| self.apply(namespace, object, true)))
            .await?;
        Ok(())
    }

    /// A child as the operator makes one.
    async fn create_child(&self, namespace: &str) -> Result<()> {
        let child: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "numaplane.numaproj.io/v1alpha1",
            "kind": "NumaflowController",
            "metadata": {"name": MANAGER},
            "spec": {"version": sample::VERSIONS[0]},
        }))?;
        self.children(namespace).create(&PostParams::default(), &child).await?;
        Ok(())
    }

    /// A revision that holds the definition.
    async fn pin(&self, namespace: &str, version: &str, objects: &[Value]) -> Result<()> {
        let revision = json!({
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {"name": format!("{MANAGER}-{version}")},
            "revision": 1,
            "data": {"version": version, "definition": objects},
        });
        self.apply(namespace, &revision, false).await
    }

    /// As many statuses.
    async fn statuses(&self, namespace: &str, count: usize) -> Result<()> {
        for number in 0..count {
            let status = json!({"status": {"phase": "Pending", "message": format!("{number} {}", self.words)}});
            self.children(namespace).patch_status(MANAGER, &PatchParams::default(), &Patch::Merge(&status)).await?;
        }
        Ok(())
    }

    fn children(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &sample::controllers())
    }
}

/// What the client needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// For the installation.
    pub install: Time,
    /// For the change.
    pub change: Time,
}

/// What the client needed for one of the two.
#[derive(Clone, Copy, Debug, Default)]
pub struct Time {
    /// Until all Deployments were available in the version.
    pub took: Duration,
    /// CPU seconds until then.
    pub cpu: Cpu,
    /// Writes per namespace.
    pub writes: f64,
}
