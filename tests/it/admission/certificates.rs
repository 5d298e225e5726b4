//! Certificates that are renewed while reviews are asked for: none of them is refused, and nobody restarts anything.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, Instant},
};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use serde_json::{Value, json};

use crate::support::{
    Scene,
    asking::User,
    control_plane::control_plane,
    eventually,
    load::Load,
    tls::served,
    version,
    webhook::{Replica, Webhook},
    within,
};

fn rollout() -> Value {
    json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "NumaflowControllerRollout",
        "metadata": {"name": "numaflow"}, "spec": {"controller": {"version": "1.3.3"}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn c05_leaf_and_ca_are_renewed_under_continuous_admission_and_nobody_is_refused() {
    let scene = Scene::new("c05").await;
    scene.define(&[version("1.3.3")]).await;
    let lifetimes = ["--certificate-lifetime", "24s", "--ca-lifetime", "72s"];
    let webhook = Webhook::start_with(&scene, 2, &lifetimes).await;
    let load = Load::start(&User::of(&scene.team).await, 10, rollout());
    let (began, mut serials) = (Instant::now(), BTreeSet::new());
    let first = webhook.bundle(&scene).await;
    // Until each replica serves what the second CA has signed, and the API server trusts the first one no more.
    within(Duration::from_mins(3), "the second CA has taken over", async || {
        let bundle = webhook.bundle(&scene).await;
        let mut by_the_newest = 0;
        for replica in &webhook.replicas {
            let served = served(replica.serving, &bundle).await;
            let Ok(served) = served else {
                // At any time who trusts the registration trusts what is served; unless that was another one by then.
                assert_ne!(webhook.bundle(&scene).await, bundle, "{served:?} by {}", replica.log());
                return Err(format!("{served:?}"));
            };
            by_the_newest += usize::from(served.authority == 0);
            serials.insert(served.serial);
        }
        let over = !bundle.contains(first.trim()) && by_the_newest == webhook.replicas.len();
        if over { Ok(()) } else { Err(format!("{} certificates in the bundle", bundle.matches("BEGIN").count())) }
    })
    .await;
    let (count, longest) = load.all_admitted().await;
    println!("{:?}: {} leaves, {count} reviews, the longest took {longest:?}", began.elapsed(), serials.len());
    assert!(serials.len() >= 3, "{serials:?}");
    assert!(count >= 100, "{count}");
}

/// A CA of the platform team's.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self { issuer: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// Certificate and key of a webhook, good until the beginning of a year.
    fn sign(&self, until: i32) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(until, 1, 1);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Puts a certificate where a pod finds it, the way the kubelet does: files are links into a folder that is replaced as a whole.
fn mount(folder: &Path, number: usize, (certificate, key): &(String, String)) {
    let name = format!("..{number}");
    let inside = folder.join(&name);
    fs::create_dir(&inside).unwrap();
    fs::write(inside.join("tls.crt"), certificate).unwrap();
    fs::write(inside.join("tls.key"), key).unwrap();
    let next = folder.join("..data_tmp");
    symlink(&name, &next).unwrap();
    fs::rename(&next, folder.join("..data")).unwrap();
    for file in ["tls.crt", "tls.key"] {
        // There since the first time.
        let _ = symlink(format!("..data/{file}"), folder.join(file));
    }
}

/// Has the API server trust these, as cert-manager's injector does.
async fn trust(scene: &Scene, webhook: &Webhook, authorities: &[&Authority]) {
    let bundle: String = authorities.iter().map(|a| a.issuer.pem()).collect();
    let bundle = k8s_openapi::ByteString(bundle.into_bytes());
    let set = |n: usize| json!({"op": "add", "path": format!("/webhooks/{n}/clientConfig/caBundle"), "value": bundle});
    let patch = serde_json::from_value(json!([set(0), set(1)])).unwrap();
    let api: Api<ValidatingWebhookConfiguration> = Api::all(scene.team.client.clone());
    api.patch(&webhook.configuration, &PatchParams::default(), &Patch::<()>::Json(patch)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c05_a_mounted_certificate_is_swapped_under_continuous_admission_and_served_within_a_minute() {
    let scene = Scene::new("c05-mounted").await;
    scene.define(&[version("1.3.3")]).await;
    let (old, new) = (Authority::new(), Authority::new());
    let folder = tempfile::tempdir().unwrap();
    mount(folder.path(), 1, &old.sign(2100));
    let mut webhook = Webhook::registered(&scene).await;
    trust(&scene, &webhook, &[&old]).await;
    webhook.add(&scene, &["--cert-dir", folder.path().to_str().unwrap()]).await;
    webhook.answers(&scene).await;
    let load = Load::start(&User::of(&scene.team).await, 10, rollout());
    // First whom to trust, then what is served.
    trust(&scene, &webhook, &[&new, &old]).await;
    let both = webhook.bundle(&scene).await;
    let serving = webhook.replicas[0].serving;
    assert_eq!(served(serving, &both).await.unwrap().authority, 1);
    // Half of it: a key that is not that of the certificate is no reason to serve nothing.
    fs::write(folder.path().join("..1/tls.key"), new.sign(2100).1).unwrap();
    let before = load.answered();
    eventually("reviews go on", async || if load.answered() > before + 20 { Ok(()) } else { Err(String::new()) }).await;
    assert_eq!(served(serving, &both).await.unwrap().authority, 1);
    mount(folder.path(), 2, &new.sign(2100));
    let began = Instant::now();
    within(Duration::from_mins(1), "the new certificate is served", async || match served(serving, &both).await {
        Ok(served) if served.authority == 0 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    println!("served after {:?}", began.elapsed());
    trust(&scene, &webhook, &[&new]).await;
    let before = load.answered();
    eventually("reviews go on", async || if load.answered() > before + 20 { Ok(()) } else { Err(String::new()) }).await;
    load.all_admitted().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c05_a_mounted_certificate_that_has_expired_ends_the_start_with_words() {
    let scene = Scene::new("c05-expired").await;
    let folder = tempfile::tempdir().unwrap();
    mount(folder.path(), 1, &Authority::new().sign(2021));
    let path = folder.path().to_str().unwrap();
    let way = control_plane().operator_kubeconfig();
    let mut replica = Replica::spawn(&scene, "", &["--cert-dir", path], &way);
    let status = replica.ended().await;
    assert_eq!(status.code(), Some(1));
    let log = replica.log();
    println!("{log}");
    let last = log.lines().last().unwrap_or_default();
    let (said, advice) = last.split_once(" ago); ").unwrap_or_default();
    assert!(
        said.starts_with(&format!("numaplane: --cert-dir: {path}/tls.crt expired at 2021-01-01T00:00:00Z (")),
        "{log}"
    );
    assert_eq!(
        advice,
        "have cert-manager, or whoever makes the certificate, put a good one there, or leave --cert-dir out and the webhook \
         makes its own"
    );
}
