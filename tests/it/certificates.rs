//! The webhook's own certificates against a real API server: replicas without a leader, the Secret that they share, and the
//! `caBundle` by which the API server knows them.

use std::{
    collections::BTreeSet,
    io::Write as _,
    net::SocketAddr,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Json, Router, http::header::CONNECTION, routing::post};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString,
    api::{
        admissionregistration::v1::ValidatingWebhookConfiguration,
        core::v1::{ConfigMap, Secret},
    },
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use numaplane::{
    metrics::Metrics,
    webhook::{
        Certificates, Limits, Managed, Source, WebhookMetrics,
        certificates::{Action, Held, State, Terms, make, next},
        serve,
    },
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{
    Scene,
    control_plane::control_plane,
    eventually,
    faults::Faults,
    wait::{PATIENCE, within},
};

const SECRET: &str = "numaplane-webhook-certs";

/// Where a test of certificates takes place: a configuration of its own, for its own namespace only.
struct Place {
    scene: Scene,
    name: String,
    terms: Terms,
}

/// A replica of a webhook that admits everything.
struct Replica {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    calls: Arc<AtomicUsize>,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), String>>,
}

impl Place {
    async fn new(name: &str) -> Self {
        let scene = Scene::new(name).await;
        let terms = Terms {
            names: BTreeSet::from(["127.0.0.1".to_owned(), "numaplane-webhook.system.svc".to_owned()]),
            certificate: Duration::from_hours(2160),
            authority: Duration::from_hours(87600),
        };
        Self { name: scene.unique("webhooks"), scene, terms }
    }

    fn managed(&self) -> Managed {
        Managed {
            namespace: self.scene.system.namespace.clone(),
            secret: SECRET.to_owned(),
            configuration: Some(self.name.clone()),
            terms: self.terms.clone(),
        }
    }

    /// The configuration as somebody has it in a file: without any bundle.
    fn file(&self, address: SocketAddr, webhooks: &[&str]) -> Value {
        let webhook = |name: &&str| {
            json!({
                "name": format!("{name}.example.com"),
                "clientConfig": {"url": format!("https://{address}/{name}")},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"], "scope": "*"}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.scene.team.namespace}},
                "objectSelector": {"matchLabels": {"guarded": "yes"}},
                "failurePolicy": "Fail",
                "matchPolicy": "Equivalent",
                "sideEffects": "None",
                "timeoutSeconds": 10,
                "admissionReviewVersions": ["v1"],
            })
        };
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": self.name},
            "webhooks": webhooks.iter().map(webhook).collect::<Vec<_>>(),
        })
    }

    fn configurations(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.scene.team.client.clone())
    }

    /// Applies the configuration from the server's side, as Helm 4, Argo CD and Flux do: never by force.
    async fn apply(&self, by: &str, file: &Value) -> Result<(), String> {
        let parameters = PatchParams { force: false, ..PatchParams::apply(by) };
        let applied = self.configurations().patch(&self.name, &parameters, &Patch::Apply(file)).await;
        applied.map(drop).map_err(|error| error.to_string())
    }

    async fn configuration(&self) -> ValidatingWebhookConfiguration {
        self.configurations().get(&self.name).await.unwrap()
    }

    async fn bundles(&self) -> Vec<String> {
        bundles(&self.configuration().await)
    }

    async fn secret(&self) -> Option<Secret> {
        self.scene.system.find(SECRET).await
    }

    async fn held(&self) -> Option<Held> {
        self.secret().await.map(|secret| Held::read(&secret.data.unwrap_or_default()))
    }

    /// Waits until all webhooks have the bundle of the Secret, and returns it.
    async fn agrees(&self) -> String {
        eventually("all webhooks have the bundle of the Secret", async || {
            let held = self.held().await.ok_or("there is no Secret")?;
            let (bundle, there) = (held.bundle(), self.bundles().await);
            let agree = !bundle.is_empty() && there.iter().all(|there| *there == bundle);
            agree.then_some(bundle).ok_or_else(|| format!("{there:?}"))
        })
        .await
    }

    /// A configured replica, once it has a certificate.
    async fn replica(&self) -> Replica {
        self.replica_behind(&Faults::default()).await
    }

    async fn replica_behind(&self, faults: &Faults) -> Replica {
        let (client, clock) = control_plane().operator(faults, None).await;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Arc::new(Metrics::new().unwrap());
        let counted = WebhookMetrics::register(metrics.clone()).unwrap();
        let shutdown = CancellationToken::new();
        let source = Source::Managed(self.managed());
        let started = Certificates::start(source, client, clock, counted.clone(), shutdown.clone());
        let started = tokio::time::timeout(PATIENCE, started).await;
        let tls = started.expect("there is a certificate in time").unwrap();
        let calls = Arc::<AtomicUsize>::default();
        let count = calls.clone();
        let admit = post(async move |Json(review): Json<Value>| {
            count.fetch_add(1, Ordering::Relaxed);
            let response = json!({"uid": review["request"]["uid"], "allowed": true});
            let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            // So that every call shows what is served now to whom callers trust now.
            ([(CONNECTION, "close")], Json(review))
        });
        let router = Router::new().route("/{webhook}", admit);
        let limits = Limits { drain: Duration::from_millis(200), ..Limits::default() };
        let end = shutdown.clone();
        let task = tokio::spawn(async move { serve(listener, router, &tls, limits, counted, end).await });
        Replica { address, metrics, calls, shutdown, task }
    }

    /// Stores an object that the webhook is asked about.
    async fn store(&self, n: usize) -> Result<(), String> {
        let api: Api<ConfigMap> = self.scene.team.api();
        let mut object = ConfigMap::default();
        object.metadata.generate_name = Some(format!("guarded-{n}-"));
        object.metadata.labels = Some([("guarded".to_owned(), "yes".to_owned())].into());
        api.create(&PostParams::default(), &object).await.map(drop).map_err(|error| error.to_string())
    }

    /// Waits until the API server asks this replica and believes its answer.
    async fn admits(&self) {
        eventually("the webhook is asked and believed", async || self.store(0).await).await;
    }

    /// Runs kubectl as the administrator, with this as its input.
    async fn kubectl(&self, arguments: &[&str], input: &Value) -> String {
        let kubeconfig = control_plane().audit_log().with_file_name("kubeconfig");
        let (arguments, input) = (arguments.iter().map(ToString::to_string).collect::<Vec<_>>(), input.to_string());
        let run = move || {
            let mut process = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.tools/bin/kubectl"))
                .args(&arguments)
                .env("KUBECONFIG", kubeconfig)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            process.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            let output = process.wait_with_output().unwrap();
            let text =
                [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
            assert!(output.status.success(), "kubectl {arguments:?}: {text}");
            text
        };
        tokio::task::spawn_blocking(run).await.unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It would be asked for nothing any more, and nobody answers.
        let (api, name) = (self.configurations(), self.name.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            tokio::task::block_in_place(|| {
                runtime.block_on(async move {
                    let _ = api.delete(&name, &DeleteParams::default()).await;
                });
            });
        }
    }
}

impl Replica {
    async fn stop(mut self) {
        self.shutdown.cancel();
        let ended = tokio::time::timeout(Duration::from_secs(30), &mut self.task).await;
        assert_eq!(ended.expect("it ends").unwrap(), Ok(()));
    }

    /// When the certificate that it serves expires, by its metric.
    fn serves_until(&self) -> i64 {
        let name = "numaplane_webhook_certificate_expiry_timestamp_seconds{certificate=\"serving\"} ";
        let text = self.metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|number| number.parse().ok()).unwrap_or_default()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.task.abort();
    }
}

fn bundles(configuration: &ValidatingWebhookConfiguration) -> Vec<String> {
    let webhooks = configuration.webhooks.iter().flatten();
    let bundle = |bytes: Option<ByteString>| String::from_utf8_lossy(&bytes.unwrap_or_default().0).into_owned();
    webhooks.map(|webhook| bundle(webhook.client_config.ca_bundle.clone())).collect()
}

/// An address where nobody listens.
fn nowhere() -> SocketAddr {
    "127.0.0.1:1".parse().unwrap()
}

/// Stores objects as fast as it can until it is told to stop, and says how many.
async fn storing(place: Arc<Place>, until: CancellationToken) -> Result<usize, String> {
    let mut stored = 0;
    while !until.is_cancelled() {
        place.store(stored).await.map_err(|error| format!("after {stored}: {error}"))?;
        stored += 1;
    }
    Ok(stored)
}

#[tokio::test(flavor = "multi_thread")]
async fn three_replicas_that_start_at_once_agree_on_one_ca_and_one_certificate() {
    let place = Place::new("agree").await;
    place.apply("helm", &place.file(nowhere(), &["a", "b"])).await.unwrap();
    let (one, two, three) = tokio::join!(place.replica(), place.replica(), place.replica());
    let bundle = place.agrees().await;
    let held = place.held().await.unwrap();
    assert_eq!((held.authorities.len(), held.bundle()), (1, bundle));
    let until = held.leaf.unwrap().until.as_second();
    assert_eq!([&one, &two, &three].map(Replica::serves_until), [until; 3]);
    // Whichever of them is called is believed.
    for replica in [&one, &two, &three] {
        place.apply("helm", &place.file(replica.address, &["a", "b"])).await.unwrap();
        let before = replica.calls.load(Ordering::Relaxed);
        eventually("it is called and believed", async || {
            place.store(1).await?;
            (replica.calls.load(Ordering::Relaxed) > before).then_some(()).ok_or("another one was called".to_owned())
        })
        .await;
    }
    // One of them has written the Secret, once.
    let secret = place.secret().await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(secret.managed_fields().len(), 1, "{:?}", secret.managed_fields());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bundle_that_somebody_overwrites_is_put_back_within_seconds_and_so_is_a_configuration_made_anew() {
    let place = Place::new("healed").await;
    // The configuration comes later, which keeps nobody from starting.
    let replica = place.replica().await;
    assert!(place.configurations().get_opt(&place.name).await.unwrap().is_none(), "it is not made");
    let file = place.file(replica.address, &["a", "b"]);
    place.apply("helm", &file).await.unwrap();
    let bundle = place.agrees().await;
    place.admits().await;

    let mut wrong = file.clone();
    let other = place.held().await.unwrap().leaf.unwrap().certificate;
    wrong["webhooks"][0]["clientConfig"]["caBundle"] = json!(ByteString(other.into_bytes()));
    let somebody = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
    place.configurations().patch(&place.name, &somebody, &Patch::Merge(&wrong)).await.unwrap();
    let began = Instant::now();
    assert_eq!(place.agrees().await, bundle);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    place.admits().await;

    place.configurations().delete(&place.name, &DeleteParams::default()).await.unwrap();
    place.apply("helm", &file).await.unwrap();
    assert_eq!(place.agrees().await, bundle);
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_the_bundles_is_changed_and_who_applies_the_rest_is_never_in_conflict() {
    let place = Place::new("owned").await;
    let file = place.file(nowhere(), &["a", "b"]);
    place.apply("argocd-controller", &file).await.unwrap();
    let replica = place.replica().await;
    let bundle = place.agrees().await;
    // Whoever looks sees one owner of all there is, and of the bundles none.
    let configuration = eventually("nobody owns the bundles", async || {
        let configuration = place.configuration().await;
        let owners: Vec<_> = configuration.managed_fields().iter().filter_map(|entry| entry.manager.clone()).collect();
        let owned = serde_json::to_string(configuration.managed_fields()).unwrap();
        let fine = owners == ["argocd-controller"] && !owned.contains("caBundle");
        fine.then_some(configuration).ok_or(owned)
    })
    .await;

    // Applied again and again, changed, and by somebody else.
    let version = configuration.resource_version();
    place.apply("argocd-controller", &file).await.unwrap();
    assert_eq!(place.configuration().await.resource_version(), version, "nothing is different");
    let mut changed = file.clone();
    changed["webhooks"][0]["timeoutSeconds"] = json!(7);
    place.apply("argocd-controller", &changed).await.unwrap();
    assert_eq!(place.bundles().await, [bundle.clone(), bundle.clone()]);
    let mut labelled = place.configuration().await;
    labelled.labels_mut().insert("team".to_owned(), "platform".to_owned());
    place.configurations().replace(&place.name, &PostParams::default(), &labelled).await.unwrap();
    assert_eq!(place.bundles().await, [bundle.clone(), bundle]);
    drop(replica);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_applies_from_the_clients_side_neither_takes_the_bundle_away_nor_sees_a_difference() {
    let place = Place::new("client-side").await;
    let mut file = place.file(nowhere(), &["a", "b"]);
    place.kubectl(&["apply", "-f", "-"], &file).await;
    let replica = place.replica().await;
    let bundle = place.agrees().await;
    let again = place.kubectl(&["apply", "-f", "-"], &file).await;
    assert!(again.contains("unchanged"), "{again}");
    assert_eq!(place.kubectl(&["diff", "-f", "-"], &file).await, "");
    file["webhooks"][1]["timeoutSeconds"] = json!(7);
    let changed = place.kubectl(&["apply", "-f", "-"], &file).await;
    assert!(changed.contains("configured"), "{changed}");
    assert_eq!(place.bundles().await, [bundle.clone(), bundle.clone()]);
    // A webhook fewer, and one more.
    let file = place.file(nowhere(), &["b", "c"]);
    place.kubectl(&["apply", "-f", "-"], &file).await;
    assert_eq!(place.agrees().await, bundle);
    assert_eq!(place.configuration().await.webhooks.unwrap().len(), 2);
    drop(replica);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_that_is_taken_out_of_the_file_is_taken_out_of_the_configuration() {
    let place = Place::new("fewer").await;
    place.apply("helm", &place.file(nowhere(), &["a", "b"])).await.unwrap();
    let replica = place.replica().await;
    let bundle = place.agrees().await;
    place.apply("helm", &place.file(nowhere(), &["b", "c"])).await.unwrap();
    assert_eq!(place.agrees().await, bundle);
    let names: Vec<String> =
        place.configuration().await.webhooks.unwrap().into_iter().map(|webhook| webhook.name).collect();
    assert_eq!(names, ["b.example.com", "c.example.com"]);
    drop(replica);
}

#[tokio::test(flavor = "multi_thread")]
async fn c05_certificate_and_ca_are_renewed_again_and_again_while_objects_are_stored_and_none_is_refused() {
    let mut place = Place::new("renewed").await;
    place.terms.certificate = Duration::from_secs(15);
    place.terms.authority = Duration::from_secs(45);
    place.apply("helm", &place.file(nowhere(), &["a"])).await.unwrap();
    let (one, two) = tokio::join!(place.replica(), place.replica());
    // Both are called, by one webhook each.
    let mut file = place.file(one.address, &["a", "b"]);
    file["webhooks"][1]["clientConfig"]["url"] = json!(format!("https://{}/b", two.address));
    place.apply("helm", &file).await.unwrap();
    place.agrees().await;
    place.admits().await;

    let place = Arc::new(place);
    let first = place.held().await.unwrap();
    let until = CancellationToken::new();
    let storing: Vec<_> = (0..2).map(|_| tokio::spawn(storing(place.clone(), until.clone()))).collect();
    let mut certificates = BTreeSet::new();
    within(Duration::from_mins(3), "the first CA has gone, and the next signs", async || {
        let held = place.held().await.ok_or("there is no Secret")?;
        certificates.insert(held.leaf.clone().unwrap().certificate);
        let gone = !held.authorities.contains(&first.authorities[0]);
        let bundles = place.bundles().await;
        let told = bundles.iter().all(|bundle| *bundle == held.bundle());
        let refused = storing.iter().any(JoinHandle::is_finished);
        if refused || (gone && told && held.authorities.len() == 1) {
            return Ok(());
        }
        Err(format!("{} CAs, {} certificates so far", held.authorities.len(), certificates.len()))
    })
    .await;
    until.cancel();
    for storing in storing {
        let stored = storing.await.unwrap();
        assert!(stored.as_ref().is_ok_and(|stored| *stored > 20), "{stored:?}");
    }
    assert!(certificates.len() > 2, "{} certificates", certificates.len());
    assert!(one.calls.load(Ordering::Relaxed) > 40 && two.calls.load(Ordering::Relaxed) > 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_somebody_deletes_or_damages_is_made_anew_while_objects_are_stored_and_none_is_refused() {
    let place = Arc::new(Place::new("damaged").await);
    place.apply("helm", &place.file(nowhere(), &["a"])).await.unwrap();
    let (one, _two) = tokio::join!(place.replica(), place.replica());
    place.apply("helm", &place.file(one.address, &["a"])).await.unwrap();
    place.agrees().await;
    place.admits().await;
    let until = CancellationToken::new();
    let storing: Vec<_> = (0..3).map(|_| tokio::spawn(storing(place.clone(), until.clone()))).collect();
    let secrets: Api<Secret> = place.scene.system.api();
    for damage in ["deleted", "garbage", "no key"] {
        let before = place.held().await.unwrap();
        match damage {
            "deleted" => drop(secrets.delete(SECRET, &DeleteParams::default()).await.unwrap()),
            "garbage" => {
                let garbage = json!({"data": {"ca.crt": "Z2FyYmFnZQ==", "tls.crt": "Z2FyYmFnZQ=="}});
                secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(garbage)).await.unwrap();
            }
            _ => {
                let garbage = json!({"data": {"ca.key": "Z2FyYmFnZQ=="}});
                secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(garbage)).await.unwrap();
            }
        }
        let until = eventually(&format!("{damage}: there is another CA, and a certificate of it"), async || {
            let held = place.held().await.ok_or("there is no Secret")?;
            let newest = held.authorities.first().ok_or("no CA")?;
            let fine = held.key.is_ok() && !before.authorities.contains(newest);
            fine.then_some(held.leaf?.until.as_second()).ok_or_else(|| "the one from before".to_owned())
        })
        .await;
        eventually(&format!("{damage}: it is served"), async || {
            let serves = one.serves_until();
            if storing.iter().any(JoinHandle::is_finished) || serves == until {
                Ok(())
            } else {
                Err(format!("until {serves}"))
            }
        })
        .await;
        place.agrees().await;
    }
    until.cancel();
    for storing in storing {
        let stored = storing.await.unwrap();
        assert!(stored.as_ref().is_ok_and(|stored| *stored > 20), "{stored:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_api_server_cannot_be_told_of_a_new_ca_what_it_trusts_goes_on_being_served() {
    let place = Arc::new(Place::new("untold").await);
    place.apply("helm", &place.file(nowhere(), &["a"])).await.unwrap();
    let faults = Faults::default();
    let replica = place.replica_behind(&faults).await;
    place.apply("helm", &place.file(replica.address, &["a"])).await.unwrap();
    place.agrees().await;
    place.admits().await;
    let before = place.held().await.unwrap();
    let until = CancellationToken::new();
    let storing = tokio::spawn(storing(place.clone(), until.clone()));
    faults.answer(403, 2, |write| write.about("validatingwebhookconfigurations"));
    let secrets: Api<Secret> = place.scene.system.api();
    secrets.delete(SECRET, &DeleteParams::default()).await.unwrap();
    eventually("there is another CA, and a certificate of it is served", async || {
        let held = place.held().await.ok_or("there is no Secret")?;
        let (after, serves) = (held.leaf.as_ref().map(|leaf| leaf.until.as_second()), replica.serves_until());
        let done = held.authorities[0] != before.authorities[0] && after == Ok(serves);
        (done || storing.is_finished()).then_some(()).ok_or_else(|| format!("until {serves}"))
    })
    .await;
    // Believed, too.
    for n in 0..5 {
        assert_eq!(place.store(n).await, Ok(()));
    }
    until.cancel();
    let stored = storing.await.unwrap();
    assert!(stored.as_ref().is_ok_and(|stored| *stored > 20), "{stored:?}");
    assert_eq!(faults.left(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn c05_a_secret_whose_certificates_expired_while_nobody_ran_is_made_anew_at_the_start() {
    let place = Place::new("expired").await;
    place.apply("helm", &place.file(nowhere(), &["a"])).await.unwrap();
    let past = Timestamp::now().checked_sub(SignedDuration::from_hours(24 * 4000)).unwrap();
    let Action::Write(change) = next(&State::default(), past, &place.terms) else { panic!("it is made") };
    let data = make(&change, None, past, &place.terms).unwrap();
    let old = Held::read(&data);
    // Of another type, and with a label that is somebody's.
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": SECRET, "labels": {"team": "platform"}},
        "data": data,
    });
    place.scene.system.create::<Secret>(secret).await;
    let replica = place.replica().await;
    place.apply("helm", &place.file(replica.address, &["a"])).await.unwrap();
    place.agrees().await;
    place.admits().await;
    let held = place.held().await.unwrap();
    assert!(held.authorities.len() == 1 && held.authorities != old.authorities, "{:?}", held.authorities);
    let secret = place.secret().await.unwrap();
    assert_eq!((secret.type_.as_deref(), secret.labels().contains_key("team")), (Some("Opaque"), true));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_register_the_ca_is_not_ready_and_says_why_and_goes_on_once_it_may() {
    let place = Place::new("forbidden").await;
    place.apply("helm", &place.file(nowhere(), &["a"])).await.unwrap();
    let faults = Faults::default();
    faults.answer(403, 3, |write| write.about("validatingwebhookconfigurations"));
    let replica = place.replica_behind(&faults).await;
    assert_eq!(faults.left(), 0, "it was not ready before");
    let failures = "numaplane_webhook_certificate_reload_failures_total 3\n";
    assert!(replica.metrics.text().contains(failures), "{}", replica.metrics.text());
    place.agrees().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_replica_dies_after_it_registered_the_ca_another_one_gives_up_what_it_owned() {
    let place = Place::new("died").await;
    place.apply("helm", &place.file(nowhere(), &["a"])).await.unwrap();
    let faults = Faults::default();
    faults.crash_on(|write| write.about("validatingwebhookconfigurations"));
    let (client, clock) = control_plane().operator(&faults, None).await;
    let counted = WebhookMetrics::register(Arc::new(Metrics::new().unwrap())).unwrap();
    let source = Source::Managed(place.managed());
    let dies = tokio::spawn(Certificates::start(source, client, clock, counted, CancellationToken::new()));
    let owns = |configuration: &ValidatingWebhookConfiguration| {
        configuration.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some("numaplane-webhook"))
    };
    eventually("it has registered the CA", async || {
        owns(&place.configuration().await).then_some(()).ok_or("not yet".to_owned())
    })
    .await;
    dies.abort();
    let _replica = place.replica().await;
    eventually("nobody owns the bundle", async || {
        if owns(&place.configuration().await) { Err("somebody does".to_owned()) } else { Ok(()) }
    })
    .await;
    assert!(!place.agrees().await.is_empty());
}
