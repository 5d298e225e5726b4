//! The webhook of a scene: replicas of the program as processes of their own, one address for them, and the registration that
//! has the API server ask there about this scene's namespaces and no others.

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use numaplane::admission::registration::{self, Address, Target};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    Scene, asking::User, balancer::Balancer, control_plane::control_plane, eventually, forward::Forward, within,
};

/// A registered webhook with its replicas; they end when it is dropped.
pub struct Webhook {
    /// Where the API server asks.
    pub balancer: Balancer,
    /// Name of the registration.
    pub configuration: String,
    /// The replicas that serve.
    pub replicas: Vec<Replica>,
}

/// One process.
pub struct Replica {
    process: Child,
    log: PathBuf,
    /// Where it answers reviews.
    pub serving: SocketAddr,
    /// Where it says how it is.
    pub admin: SocketAddr,
    _folder: TempDir,
}

impl Webhook {
    /// Registers a webhook with one replica, and waits until the API server asks it.
    pub async fn start(scene: &Scene) -> Self {
        Self::start_with(scene, 1, &[]).await
    }

    /// With so many replicas, started at the same time with these arguments besides.
    pub async fn start_with(scene: &Scene, replicas: usize, arguments: &[&str]) -> Self {
        let mut webhook = Self::registered(scene).await;
        let way = control_plane().operator_kubeconfig();
        for _ in 0..replicas {
            webhook.replicas.push(Replica::spawn(scene, &webhook.configuration, arguments, &way));
        }
        for replica in &mut webhook.replicas {
            replica.listens().await;
            webhook.balancer.add(replica.serving, replica.admin).await;
        }
        webhook.answers(scene).await;
        webhook
    }

    /// With one replica that asks the API server through this proxy.
    pub async fn start_through(scene: &Scene, forward: &Forward) -> Self {
        let mut webhook = Self::registered(scene).await;
        let folder = tempfile::tempdir().expect("a folder");
        let way = folder.path().join("kubeconfig");
        forward.write_kubeconfig(&way);
        let mut replica = Replica::spawn(scene, &webhook.configuration, &[], &way);
        replica.listens().await;
        webhook.balancer.add(replica.serving, replica.admin).await;
        webhook.replicas.push(replica);
        webhook.answers(scene).await;
        webhook
    }

    /// Registered, with nobody to answer.
    pub async fn registered(scene: &Scene) -> Self {
        let balancer = Balancer::start();
        let configuration = scene.unique("webhook");
        let address = Address::Url(format!("https://{}", balancer.address()));
        let target = Target { namespace: scene.system.namespace.clone(), address };
        let mut body = registration::configuration(&target);
        body.metadata.name = Some(configuration.clone());
        let mut namespaces: Vec<String> = scene.settings().namespaces.into_iter().collect();
        namespaces.push(scene.system.namespace.clone());
        let here = json!({"matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": namespaces},
        ]});
        for webhook in body.webhooks.iter_mut().flatten() {
            assert!(webhook.namespace_selector.is_none(), "another selector would be overwritten here");
            webhook.namespace_selector = Some(serde_json::from_value(here.clone()).expect("a selector"));
        }
        let mut body = serde_json::to_value(body).expect("JSON");
        body["apiVersion"] = json!("admissionregistration.k8s.io/v1");
        body["kind"] = json!("ValidatingWebhookConfiguration");
        let api: Api<ValidatingWebhookConfiguration> = Api::all(scene.team.client.clone());
        // As a chart does: who fills in the CA comes later, and owns that field alone.
        let applied = api.patch(&configuration, &PatchParams::apply("helm"), &Patch::Apply(&body)).await;
        applied.unwrap_or_else(|error| panic!("ValidatingWebhookConfiguration {configuration}: {error}"));
        Self { balancer, configuration, replicas: Vec::new() }
    }

    /// One more replica; waits until it is ready.
    pub async fn add(&mut self, scene: &Scene, arguments: &[&str]) {
        let way = control_plane().operator_kubeconfig();
        let mut replica = Replica::spawn(scene, &self.configuration, arguments, &way);
        replica.listens().await;
        self.balancer.add(replica.serving, replica.admin).await;
        self.replicas.push(replica);
    }

    /// Waits until the API server asks a replica about objects of each of the scene's kinds.
    pub async fn answers(&self, scene: &Scene) {
        let user = User::of(&scene.team).await.dry();
        eventually("the API server asks the webhook", async || {
            let answer = user.create(&probe()).await;
            if answer.message.contains("denied the request") { Ok(()) } else { Err(answer.describe()) }
        })
        .await;
    }

    /// Waits until the API server asks, and nobody answers.
    pub async fn fails(&self, scene: &Scene) {
        let user = User::of(&scene.team).await.dry();
        eventually("the API server finds no webhook", async || {
            let answer = user.create(&probe()).await;
            if answer.message.contains("failed calling webhook") { Ok(()) } else { Err(answer.describe()) }
        })
        .await;
    }

    /// What the registration says, apart from whom the API server trusts.
    pub async fn rules(&self, scene: &Scene) -> Value {
        let mut webhooks = self.body(scene).await["webhooks"].clone();
        for webhook in webhooks.as_array_mut().into_iter().flatten() {
            webhook["clientConfig"]["caBundle"] = Value::Null;
        }
        webhooks
    }

    /// The registration as it is stored.
    pub async fn body(&self, scene: &Scene) -> Value {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(scene.team.client.clone());
        let found = api.get(&self.configuration).await.expect("the registration is there");
        serde_json::to_value(found).expect("JSON")
    }

    /// The CAs that the API server trusts, as PEM.
    pub async fn bundle(&self, scene: &Scene) -> String {
        let api: Api<ValidatingWebhookConfiguration> = Api::all(scene.team.client.clone());
        let found = api.get(&self.configuration).await.expect("the registration is there");
        let bundle = found.webhooks.into_iter().flatten().find_map(|webhook| webhook.client_config.ca_bundle);
        bundle.map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned()).unwrap_or_default()
    }

    /// The user whom the webhook does not see: the operator.
    pub fn exempt(scene: &Scene) -> String {
        format!("system:serviceaccount:{}:{}", scene.system.namespace, registration::SERVICE_ACCOUNTS[0])
    }
}

/// A rollout that no webhook admits.
fn probe() -> Value {
    json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "NumaflowControllerRollout",
        "metadata": {"name": "probe"}, "spec": {"controller": {"version": " "}},
    })
}

/// What a user reads of a refusal by a hook, for these reasons.
pub fn refusal(hook: &str, causes: &[&str]) -> String {
    format!("admission webhook \"{hook}.numaplane.numaproj.io\" denied the request: {}", causes.join("; "))
}

impl Replica {
    /// Starts one; `way` is the kubeconfig that it is given.
    pub fn spawn(scene: &Scene, configuration: &str, arguments: &[&str], way: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let settings = scene.settings();
        let mut command = Command::new(env!("CARGO_BIN_EXE_numaplane"));
        command.args(["webhook", "--namespace", &settings.operator_namespace]);
        command.args(["--address", "127.0.0.1:0", "--admin-address", "127.0.0.1:0"]);
        if !arguments.contains(&"--cert-dir") {
            command.args(["--webhook-configuration", configuration, "--dns-name", "127.0.0.1"]);
        }
        for namespace in &settings.namespaces {
            command.args(["--watch-namespace", namespace]);
        }
        let process = command
            .args(arguments)
            .env("KUBECONFIG", way)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).expect("a file can be written"))
            .spawn()
            .expect("the program can be started");
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { process, log, serving: nowhere, admin: nowhere, _folder: folder }
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it says where it listens.
    async fn listens(&mut self) {
        let (serving, admin) = eventually("the webhook listens", async || {
            let log = self.log();
            address(&log, "address").zip(address(&log, "admin")).ok_or(log)
        })
        .await;
        (self.serving, self.admin) = (serving, admin);
    }

    /// Sends it a signal, as Kubernetes does.
    pub fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let asked = Command::new("kill").args([&format!("-{name}"), &id]).status().expect("a signal can be sent");
        assert!(asked.success(), "{asked}");
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let process = &mut self.process;
        within(Duration::from_mins(1), "the webhook ends", async || {
            process.try_wait().ok().flatten().ok_or_else(|| "it runs".to_owned())
        })
        .await
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            // It may have ended in between.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        if std::thread::panicking() {
            println!("---- a replica of the webhook\n{}", self.log());
        }
    }
}

/// An address that a log tells: `name=127.0.0.1:1234`.
fn address(log: &str, name: &str) -> Option<SocketAddr> {
    let (_, after) = log.split_once(&format!(" {name}="))?;
    after.split_whitespace().next()?.parse().ok()
}
