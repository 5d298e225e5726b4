//! Certificates from files: what is refused at the start, and what becomes of changes.

use std::{net::SocketAddr, os::unix::fs::symlink};

use axum::{Router, http::StatusCode, routing::post};
use jiff::SignedDuration;
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    metrics::Metrics,
    webhook::{
        Limits,
        caller::{Caller, Connection, Lost, certificate, certificate_of, eventually},
        certificates::Held,
        serve,
        server::listen,
    },
};

fn write(folder: &Path, held: &Held) {
    let leaf = held.leaf.as_ref().unwrap();
    std::fs::write(folder.join(CERTIFICATE), &leaf.certificate).unwrap();
    std::fs::write(folder.join(KEY), &leaf.key).unwrap();
    std::fs::write(folder.join(AUTHORITY), held.bundle()).unwrap();
}

fn metrics() -> (Arc<Metrics>, Arc<WebhookMetrics>) {
    let metrics = Arc::new(Metrics::new().unwrap());
    (metrics.clone(), WebhookMetrics::register(metrics).unwrap())
}

fn der(held: &Held) -> CertificateDer<'static> {
    certificates(&held.leaf.as_ref().unwrap().certificate).unwrap().remove(0)
}

/// A folder as the kubelet mounts a Secret: the files are links into a folder that is a link, and that link is replaced.
struct Mount {
    folder: TempDir,
    versions: usize,
}

impl Mount {
    fn new(held: &Held) -> Self {
        let mut mount = Self { folder: tempfile::tempdir().unwrap(), versions: 0 };
        mount.swap(held);
        for file in [CERTIFICATE, KEY, AUTHORITY] {
            symlink(format!("..data/{file}"), mount.folder.path().join(file)).unwrap();
        }
        mount
    }

    fn swap(&mut self, held: &Held) {
        let (root, before) = (self.folder.path(), format!("..{}", self.versions));
        self.versions += 1;
        let name = format!("..{}", self.versions);
        std::fs::create_dir(root.join(&name)).unwrap();
        write(&root.join(&name), held);
        symlink(&name, root.join("..tmp")).unwrap();
        std::fs::rename(root.join("..tmp"), root.join("..data")).unwrap();
        // As the kubelet does; what was opened before is gone.
        let _ = std::fs::remove_dir_all(root.join(before));
    }
}

/// A server with the certificates of a folder.
struct Served {
    address: SocketAddr,
    metrics: Arc<Metrics>,
    counted: Arc<WebhookMetrics>,
}

impl Served {
    async fn start(folder: &Path) -> Self {
        let (metrics, counted) = metrics();
        let (mut mounted, tls) = Mounted::open(folder, Clock::default(), counted.clone()).await.unwrap();
        tokio::spawn(async move { mounted.follow().await });
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", post(async || "here"));
        let of_server = counted.clone();
        tokio::spawn(async move {
            serve(listener, router, &tls, Limits::default(), of_server, CancellationToken::new()).await
        });
        Self { address, metrics, counted }
    }

    /// Waits until whoever connects is shown this certificate.
    async fn shows(&self, caller: &Caller, held: &Held) {
        eventually("the new certificate is shown", async || {
            if caller.shown(self.address).await? == der(held) { Ok(()) } else { Err("the old one".to_owned()) }
        })
        .await;
    }
}

/// Calls without end, on new connections and on one that is kept, until it is told to stop; says how often.
async fn calls(address: SocketAddr, caller: Caller, until: CancellationToken) -> Result<usize, String> {
    let mut kept = caller.h1(address).await?;
    let mut calls = 0;
    while !until.is_cancelled() {
        let mut new: Connection = caller.h1(address).await.map_err(|error| format!("after {calls} calls: {error}"))?;
        for connection in [&mut new, &mut kept] {
            match connection.try_post("/", "").await {
                Ok((StatusCode::OK, _)) => calls += 1,
                Ok(other) => return Err(format!("{other:?}")),
                Err(Lost::Unsent) => return Err("a connection was closed".to_owned()),
                Err(lost) => return Err(format!("{lost:?}")),
            }
        }
    }
    Ok(calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn c05_a_certificate_that_is_renewed_on_disk_is_shown_within_seconds_and_no_call_is_lost() {
    let (first, second, third) = (certificate(), certificate(), certificate());
    let mut mount = Mount::new(&first);
    let served = Served::start(mount.folder.path()).await;
    // As while CAs overlap: callers trust them all.
    let caller = Caller::new(&format!("{}{}{}", first.bundle(), second.bundle(), third.bundle()));
    let until = CancellationToken::new();
    let calling: Vec<_> = (0..4).map(|_| tokio::spawn(calls(served.address, caller.clone(), until.clone()))).collect();
    assert_eq!(caller.shown(served.address).await, Ok(der(&first)));
    for next in [&second, &third] {
        mount.swap(next);
        let began = std::time::Instant::now();
        served.shows(&caller, next).await;
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    }
    until.cancel();
    for calling in calling {
        let calls = calling.await.unwrap();
        assert!(calls.as_ref().is_ok_and(|calls| *calls > 5), "{calls:?}");
    }
    let expiry = third.leaf.as_ref().unwrap().until.as_second();
    let line = |of: &str, at: i64| {
        format!("numaplane_webhook_certificate_expiry_timestamp_seconds{{certificate=\"{of}\"}} {at}\n")
    };
    let text = served.metrics.text();
    assert!(text.contains(&line("serving", expiry)), "{text}");
    assert!(text.contains(&line("ca", third.authorities[0].until.as_second())), "{text}");
    assert_eq!(served.counted.reload_failures(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_written_one_by_one_are_waited_for() {
    let (first, second) = (certificate(), certificate());
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &first);
    let served = Served::start(folder.path()).await;
    let caller = Caller::new(&format!("{}{}", first.bundle(), second.bundle()));
    let leaf = second.leaf.as_ref().unwrap();
    std::fs::write(folder.path().join(CERTIFICATE), &leaf.certificate).unwrap();
    // Long enough to be looked at.
    tokio::time::sleep(Duration::from_millis(1800)).await;
    assert_eq!(caller.shown(served.address).await, Ok(der(&first)));
    std::fs::write(folder.path().join(KEY), &leaf.key).unwrap();
    served.shows(&caller, &second).await;
    assert_eq!(served.counted.reload_failures(), 0, "that was no failure");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_used_later_on_is_counted_once_and_the_last_good_one_goes_on_until_there_is_a_better() {
    let (first, second) = (certificate(), certificate());
    let expired = certificate_of(Timestamp::now().checked_sub(SignedDuration::from_hours(2)).unwrap());
    let mut mount = Mount::new(&first);
    let served = Served::start(mount.folder.path()).await;
    let caller = Caller::new(&format!("{}{}", first.bundle(), second.bundle()));
    mount.swap(&expired);
    eventually("it is counted", async || match served.counted.reload_failures() {
        1 => Ok(()),
        count => Err(count.to_string()),
    })
    .await;
    assert_eq!(caller.shown(served.address).await, Ok(der(&first)));
    std::fs::remove_file(mount.folder.path().join(KEY)).unwrap();
    eventually("so is a file that is gone", async || match served.counted.reload_failures() {
        2 => Ok(()),
        count => Err(count.to_string()),
    })
    .await;
    assert_eq!(caller.shown(served.address).await, Ok(der(&first)));
    symlink(format!("..data/{KEY}"), mount.folder.path().join(KEY)).unwrap();
    mount.swap(&second);
    served.shows(&caller, &second).await;
    assert_eq!(served.counted.reload_failures(), 2);
}

#[tokio::test]
async fn c05_what_cannot_be_used_at_the_start_ends_it_with_the_file_the_trouble_and_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display().to_string();
    let refused = async || Mounted::open(folder.path(), Clock::default(), metrics().1).await.err().unwrap();
    let said = |what: &str| {
        format!(
            "--cert-dir: {place}/{what}; have cert-manager, or whoever makes the certificate, put a good one there, or \
             leave --cert-dir out and the webhook makes its own"
        )
    };
    assert_eq!(refused().await, said("tls.crt cannot be read: No such file or directory (os error 2)"));

    let (good, other) = (certificate(), certificate());
    write(folder.path(), &good);
    std::fs::write(folder.path().join(KEY), &other.leaf.as_ref().unwrap().key).unwrap();
    assert_eq!(refused().await, said("tls.key is not the key of tls.crt beside it"));
    std::fs::write(folder.path().join(KEY), "").unwrap();
    assert_eq!(refused().await, said("tls.key holds no private key in PEM: no items found"));
    std::fs::write(folder.path().join(CERTIFICATE), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        .unwrap();
    let nonsense = refused().await;
    assert!(nonsense.starts_with(&format!("--cert-dir: {place}/tls.crt holds no X.509 certificate: ")), "{nonsense}");

    let expired = certificate_of(Timestamp::now().checked_sub(SignedDuration::from_hours(3)).unwrap());
    write(folder.path(), &expired);
    let until = expired.leaf.as_ref().unwrap().until;
    let words = refused().await;
    let expected = [0, 1].map(|more| {
        let ago = Timestamp::now().duration_since(until).unsigned_abs().saturating_sub(Duration::from_secs(more));
        said(&format!("tls.crt expired at {until} ({} ago)", duration(ago)))
    });
    assert!(expected.contains(&words), "{words}");
}

#[tokio::test]
async fn a_folder_without_a_ca_serves_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let good = certificate();
    write(folder.path(), &good);
    std::fs::remove_file(folder.path().join(AUTHORITY)).unwrap();
    let (metrics, counted) = metrics();
    assert!(Mounted::open(folder.path(), Clock::default(), counted).await.is_ok());
    assert!(!metrics.text().contains("certificate=\"ca\""));
}
