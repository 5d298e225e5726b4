//! One local control plane for the whole binary: started when the first test asks for it, ended with the process.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, Config,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, WatchParams},
    client::ClientBuilder,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use numaplane::{clock::Clock, nesting::Nesting};
use serde_json::Value;

use super::{
    faults::Faults,
    leases::{Leases, RealTime},
    wait::eventually,
};

/// The control plane of this process.
pub struct ControlPlane {
    dir: PathBuf,
    administrator: Kubeconfig,
    operator: Kubeconfig,
    /// Who leads in simulated pods.
    pub leases: Leases,
    /// Its standard input ends with this process, however that ends, and the control plane ends with it.
    _process: Option<Child>,
}

static CONTROL_PLANE: LazyLock<ControlPlane> = LazyLock::new(ControlPlane::start);

/// The control plane; the first call starts it.
pub fn control_plane() -> &'static ControlPlane {
    &CONTROL_PLANE
}

/// Whether everything is to be left running for a look at it.
fn keep() -> bool {
    std::env::var_os("KEEP").is_some_and(|value| !value.is_empty())
}

impl ControlPlane {
    fn start() -> Self {
        rustls::crypto::ring::default_provider().install_default().expect("no other TLS provider is installed");
        let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "numaplane=info".to_owned());
        // Goes where the output of the test goes, because threads inherit that; shown when the test fails.
        tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().with_ansi(false).init();

        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join(".tools/bin/control-plane");
        assert!(program.exists(), "{} is missing: run 'make tools'", program.display());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("it-{}", std::process::id()));
        let mut command = Command::new(program);
        command.arg("up").arg("--quiet").arg("--dir").arg(&dir);
        let process = if keep() {
            let done = command.stdin(Stdio::null()).status().expect("control-plane can be started");
            assert!(done.success(), "control-plane up: {done}");
            eprintln!(
                "kept: export KUBECONFIG={0}/kubeconfig; end it with control-plane down --dir {0}",
                dir.display()
            );
            None
        } else {
            let mut process = command
                .args(["--foreground", "--remove"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("control-plane can be started");
            let output = process.stdout.take().expect("its output is a pipe");
            let line = BufReader::new(output).lines().map_while(Result::ok).find(|line| line.contains("ready in"));
            assert!(line.is_some(), "the control plane did not come up, see its messages above");
            Some(process)
        };
        let read = |name: &str| Kubeconfig::read_from(dir.join(name)).expect("a kubeconfig");
        let control_plane = Self {
            administrator: read("kubeconfig"),
            operator: read("kubeconfig-operator"),
            leases: Leases::default(),
            dir: dir.clone(),
            _process: process,
        };
        control_plane.install_crds();
        control_plane.leases.play(control_plane.administrator.clone());
        control_plane
    }

    /// Installs the operator's own kinds, on a runtime of its own: this may be called from within another one.
    fn install_crds(&self) {
        let work = async || {
            let client = self.administrator().await;
            for crd in numaplane::api::crds() {
                install_crd(&client, &crd.body).await;
            }
        };
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime can be made").block_on(work());
            });
            done.join().expect("the CustomResourceDefinitions are installed");
        });
    }

    /// Has Numaflow take as long in this namespace as the real one, until the answer is dropped.
    pub fn real_time(&self, namespace: &str) -> RealTime {
        self.leases.real_time(self.administrator.clone(), namespace)
    }

    /// File to which the API server writes the operators' requests.
    pub fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    /// Length of the audit log.
    pub fn audit_length(&self) -> u64 {
        fs::metadata(self.audit_log()).map(|m| m.len()).unwrap_or_default()
    }

    /// A client of the administrator.
    pub async fn administrator(&self) -> Client {
        client(&self.administrator).await
    }

    /// A client of the administrator that makes each request once: whoever counts refusals must see them.
    pub async fn asking_once(&self) -> Client {
        let mut config = config(&self.administrator).await;
        config.default_retry = false;
        Client::try_from(config).expect("a client can be made")
    }

    /// The kubeconfig of the operator, for processes of their own.
    pub fn operator_kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig-operator")
    }

    /// The kubeconfig of the administrator, for processes of their own.
    pub fn administrator_kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    /// A client of the operator, whose requests are in the audit log and pass through `faults`, and the clock that it reads.
    pub async fn operator(&self, faults: &Faults, act_as: Option<&str>) -> (Client, Clock) {
        let mut config = config(&self.operator).await;
        // A test that counts or answers requests must see each of them once.
        config.default_retry = false;
        if let Some(user) = act_as {
            config.auth_info = AuthInfo { impersonate: Some(user.to_owned()), ..config.auth_info };
        }
        let clock = Clock::default();
        let builder = ClientBuilder::try_from(config).expect("a client can be made");
        (builder.with_layer(&clock).with_layer(faults).with_layer(&Nesting).build(), clock)
    }
}

/// A client of whoever the kubeconfig is for.
pub async fn client(kubeconfig: &Kubeconfig) -> Client {
    Client::try_from(config(kubeconfig).await).expect("a client can be made")
}

async fn config(kubeconfig: &Kubeconfig) -> Config {
    Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default())
        .await
        .expect("the kubeconfig can be used")
}

/// Installs a CustomResourceDefinition and waits until its kind is served, for those too who watch it: for a moment the
/// server lists objects of a new kind and refuses a watch of them.
pub async fn install_crd(client: &Client, body: &Value) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = body["metadata"]["name"].as_str().expect("a CRD has a name").to_owned();
    let apply = PatchParams::apply("tests").force();
    let crd = api.patch(&name, &apply, &Patch::Apply(body)).await.unwrap_or_else(|error| panic!("CRD {name}: {error}"));
    for version in &crd.spec.versions {
        let gvk = GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &crd.spec.names.plural);
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        eventually(&format!("{}/{} is served", crd.spec.names.plural, version.name), async || {
            let list =
                objects.list_metadata(&ListParams::default().limit(1)).await.map_err(|error| error.to_string())?;
            let since = list.metadata.resource_version.unwrap_or_default();
            let watched = objects.watch_metadata(&WatchParams::default().timeout(1), &since).await;
            watched.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }
}
