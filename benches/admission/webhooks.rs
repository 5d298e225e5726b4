//! The two webhooks that are compared: the product, as a process of its own, and one in this process that admits everything.

use std::{
    fs::File,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command},
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, routing::post};
use axum_server::tls_rustls::RustlsConfig;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use numaplane::admission::registration::{self, Address, Target};
use serde_json::{Value, json};

use crate::{
    load,
    shared::{OPERATOR_NAMESPACE, Result, admin, control_plane::ControlPlane, process, say, until},
};

/// How long a webhook may take until it is asked.
const PATIENCE: Duration = Duration::from_mins(2);

/// The webhook of this project.
pub struct Product {
    child: Child,
    admin: SocketAddr,
    /// CPU seconds that it had used when it was first asked.
    used: f64,
}

impl Product {
    /// Starts it, registers it for the namespace of its writes, and waits until it is asked.
    pub async fn start(client: &Client, program: &Path, plane: &ControlPlane, folder: &Path) -> Result<Self> {
        let (address, admin) = (admin::free()?, admin::free()?);
        let url = format!("https://{address}");
        let mut configuration = registration::configuration(&at(url));
        only_in(&mut configuration, load::Sort::Product.namespace());
        apply(client, &configuration).await?;
        let log = File::create(folder.join("webhook.log"))?;
        let began = Instant::now();
        let child = Command::new(program)
            .args(["webhook", "--namespace", OPERATOR_NAMESPACE, "--address", &address.to_string()])
            .args(["--admin-address", &admin.to_string(), "--dns-name", "127.0.0.1"])
            .env("KUBECONFIG", plane.recorded_user())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("{}: {error}", program.display()))?;
        plane.record("webhook", child.id())?;
        let mut product = Self { child, admin, used: 0.0 };
        while admin::get(product.admin, "/readyz").is_err() {
            if began.elapsed() > PATIENCE {
                return Err(format!("the webhook is not ready, see webhook.log in {}", folder.display()).into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        say(&format!("the webhook was ready after {:.1} s", began.elapsed().as_secs_f32()));
        asked(client, load::Sort::Refused, |refused| refused).await?;
        product.used = process::cpu_seconds(product.child.id())?;
        Ok(product)
    }

    /// What it has used since it was first asked, and what it holds.
    pub fn cost(&self) -> Result<String> {
        let used = process::cpu_seconds(self.child.id())? - self.used;
        let memory = process::memory(self.child.id())?;
        let text = admin::get(self.admin, "/metrics")?;
        let line = |name: &str| -> f64 {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
        };
        let (seconds, count) =
            (line("numaplane_admission_duration_seconds_sum"), line("numaplane_admission_duration_seconds_count"));
        Ok(format!(
            "{count} reviews, {:.3} ms each from the inside, {used:.1} s of CPU ({:.2} ms each), {:.0} MiB resident, {:.0} at most",
            seconds * 1000.0 / count,
            used * 1000.0 / count,
            memory.resident,
            memory.peak
        ))
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        // It may have ended already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A webhook that admits everything: what the API server and TLS take by themselves.
pub struct AdmitAll(axum_server::Handle<SocketAddr>);

impl AdmitAll {
    /// Starts it, registers it for the namespace of its writes, and waits until it is asked.
    pub async fn start(client: &Client) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()])?;
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let tls = RustlsConfig::from_pem(certificate.clone().into_bytes(), key.into_bytes()).await?;
        let handle = axum_server::Handle::new();
        let router = Router::new().route("/", post(admit));
        let server = axum_server::from_tcp_rustls(listener, tls)?.handle(handle.clone());
        tokio::spawn(server.serve(router.into_make_service()));
        let rollouts = registration::configuration(&at(format!("https://{address}")));
        let mut body = serde_json::to_value(rollouts)?;
        body["metadata"]["name"] = json!("admit-all");
        let mut only = body["webhooks"][0].clone();
        only["name"] = json!("all.bench.numaplane.numaproj.io");
        only["clientConfig"]["url"] = json!(format!("https://{address}/"));
        body["webhooks"] = json!([only]);
        let mut configuration: ValidatingWebhookConfiguration = serde_json::from_value(body)?;
        for webhook in configuration.webhooks.iter_mut().flatten() {
            webhook.client_config.ca_bundle = Some(k8s_openapi::ByteString(certificate.clone().into_bytes()));
        }
        only_in(&mut configuration, load::Sort::AdmitAll.namespace());
        apply(client, &configuration).await?;
        asked(client, load::Sort::AdmitAll, |_| ADMITTED.load(Ordering::Relaxed) > 0).await?;
        Ok(Self(handle))
    }
}

impl Drop for AdmitAll {
    fn drop(&mut self) {
        self.0.shutdown();
    }
}

/// How many it has admitted.
static ADMITTED: AtomicU64 = AtomicU64::new(0);

async fn admit(body: Bytes) -> axum::Json<Value> {
    ADMITTED.fetch_add(1, Ordering::Relaxed);
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let response = json!({"uid": review["request"]["uid"], "allowed": true});
    axum::Json(json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}))
}

/// Has a configuration count in one namespace alone.
fn only_in(configuration: &mut ValidatingWebhookConfiguration, namespace: &str) {
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    for webhook in configuration.webhooks.iter_mut().flatten() {
        webhook.namespace_selector = serde_json::from_value(selector.clone()).ok();
    }
}

async fn apply(client: &Client, configuration: &ValidatingWebhookConfiguration) -> Result<()> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let name = configuration.metadata.name.clone().unwrap_or_default();
    api.patch(&name, &PatchParams::apply("bench").force(), &Patch::Apply(configuration)).await?;
    Ok(())
}

/// Waits until the API server asks whoever is registered for the writes of a sort. `is_so` sees whether a write was refused.
async fn asked(client: &Client, sort: load::Sort, is_so: impl Fn(bool) -> bool) -> Result<()> {
    until("the API server to ask the webhook", async || Ok(is_so(load::is_refused(client, sort).await))).await
}

fn at(url: String) -> Target {
    Target { address: Address::Url(url), ..Target::default() }
}
