//! A replica's part in keeping the webhook's own certificates: it looks at the Secret every few seconds, does what is due, has
//! the API server trust the CAs, and serves the certificate once it does.
//!
//! There is no leader. Every write states what it was decided from, so that of several replicas that do the same one wins, and
//! the others take what it wrote. Both objects are read by name, every few seconds, rather than watched: that needs no more
//! than the right to `get` these two, has no connection that can be silent, and heals a bundle that somebody overwrote within
//! seconds.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hasher, RandomState},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::Client;
use rustls::pki_types::CertificateDer;
use tokio_util::sync::CancellationToken;

use super::{
    Managed, Tls, WebhookMetrics,
    certificates::{Action, Authority, Held, Leaf, State, Terms, authorities, make, next},
    metrics::Certificate,
};
use crate::{
    clock::Clock,
    cluster::{CertificateStore, Failure, Registration},
};

/// Time between two looks, give or take a fifth.
const LOOK: Duration = Duration::from_secs(3);
/// Writes in one look, after which something is wrong that a pause is good for.
const MOST: usize = 8;

/// Waits until there is a certificate that can be served, and keeps it up to date from then on.
///
/// # Errors
/// The end was asked for before.
pub async fn start(
    managed: Managed,
    client: Client,
    clock: Clock,
    metrics: Arc<WebhookMetrics>,
    shutdown: CancellationToken,
) -> Result<Tls, String> {
    let mut replica = Replica::new(managed, client, clock, metrics);
    let tls = shutdown.run_until_cancelled(replica.first()).await.ok_or("ended before there was a certificate")?;
    tokio::spawn(async move { shutdown.run_until_cancelled(replica.follow()).await });
    Ok(tls)
}

/// A replica.
struct Replica {
    store: CertificateStore,
    terms: Terms,
    clock: Clock,
    metrics: Arc<WebhookMetrics>,
    /// What is served, since there is something.
    tls: Option<Tls>,
    /// The certificate that is served, and its CA.
    served: Option<(Leaf, Authority)>,
    /// Whom all callers trust, and since when at the least.
    trusted: HashMap<CertificateDer<'static>, Timestamp>,
    /// Whether it has been seen at all whom they trust.
    looked: bool,
    /// What went wrong last.
    trouble: String,
}

impl Replica {
    fn new(managed: Managed, client: Client, clock: Clock, metrics: Arc<WebhookMetrics>) -> Self {
        let configuration = managed.configuration.as_deref();
        let store = CertificateStore::new(client, &managed.namespace, &managed.secret, configuration);
        Self {
            store,
            terms: managed.terms,
            clock,
            metrics,
            tls: None,
            served: None,
            trusted: HashMap::new(),
            looked: false,
            trouble: String::new(),
        }
    }

    /// Looks until there is something to serve.
    async fn first(&mut self) -> Tls {
        loop {
            self.turn().await;
            if let Some(tls) = &self.tls {
                return tls.clone();
            }
            tokio::time::sleep(self.pause().min(Duration::from_secs(1))).await;
        }
    }

    /// Looks for ever.
    async fn follow(&mut self) {
        loop {
            tokio::time::sleep(self.pause()).await;
            self.turn().await;
        }
    }

    /// Time until the next look: not the same for all replicas, and several looks in the life of a certificate.
    fn pause(&self) -> Duration {
        let pause = LOOK.min(self.terms.certificate / 30).min(self.terms.authority / 60);
        let chance = RandomState::new().build_hasher().finish() % 400;
        pause * u32::try_from(chance + 800).unwrap_or(1000) / 1000
    }

    /// Looks, and says what went wrong, once while it is the same.
    async fn turn(&mut self) {
        match self.look().await {
            Ok(()) if self.trouble.is_empty() => {}
            Ok(()) => {
                tracing::info!("the webhook's certificates are in order again");
                self.trouble.clear();
            }
            Err(words) => {
                self.metrics.reload_failed();
                if words != self.trouble {
                    tracing::warn!(why = words, "the webhook's certificates cannot be kept, trying again");
                    self.trouble = words;
                }
            }
        }
    }

    /// Does what is due, until nothing is.
    async fn look(&mut self) -> Result<(), String> {
        for _ in 0..MOST {
            match self.step().await {
                Ok(true) => return Ok(()),
                // Written, or somebody else was faster: what is there now is looked at anew.
                Ok(false) | Err(Trouble::Conflict) => {}
                Err(Trouble::Words(words)) => return Err(words),
            }
        }
        Err("others change the Secret or the registration all the time".to_owned())
    }

    /// One step; whether nothing was left to do.
    ///
    /// The order matters. Whom callers trust is read before the Secret, so that who has an old Secret in hand has an old
    /// registration in hand too, and does not overwrite what was made of a newer one. The Secret is put right before callers are
    /// told to trust what it holds and nothing else. And they are told before anything is served that they would not trust.
    async fn step(&mut self) -> Result<bool, Trouble> {
        let registration = self.store.registration().await?;
        let secret = self.store.secret().await?;
        let now = self.clock.now();
        let state = State {
            held: secret.as_ref().map(|secret| Held::read(&secret.data.clone().unwrap_or_default())),
            registered: registration.as_ref().map(everywhere).unwrap_or_default(),
            ..State::default()
        };
        if let Some(held) = &state.held {
            self.note(registration.as_ref(), &state.registered, held, now);
            self.serve(held, now);
        }
        let newest = state.held.as_ref().and_then(|held| held.authorities.first());
        let state = State {
            trusted: newest.and_then(|newest| self.trusted.get(&newest.der)).copied(),
            served: self.served.as_ref().map(|(_, authority)| authority.clone()),
            ..state
        };
        match (next(&state, now, &self.terms), &state.held, &registration) {
            (Action::Write(change), ..) => {
                let data = make(&change, state.held.as_ref(), now, &self.terms).map_err(Trouble::Words)?;
                self.store.keep(secret.as_ref(), data).await?;
                let (new_ca, new_certificate) = (change.authority, change.sign);
                tracing::info!(why = change.why, new_ca, new_certificate, "the webhook's certificates written");
                Ok(false)
            }
            (Action::Wait(_), Some(held), Some(registration)) => self.register(registration, held, now).await,
            (Action::Wait(_), ..) => Ok(true),
        }
    }

    /// Notes since when all callers trust which CA.
    fn note(&mut self, registration: Option<&Registration>, registered: &[Authority], held: &Held, now: Timestamp) {
        let first = !std::mem::replace(&mut self.looked, true);
        let since = if registration.is_none_or(|registration| registration.bundles.is_empty()) {
            // Nobody calls, or somebody else sees to whom callers trust.
            self.trusted.clear();
            held.authorities.iter().map(|ours| (&ours.der, self.long_since(now))).collect::<Vec<_>>()
        } else {
            // What was there before this replica came may have been there for long.
            let since = if first { self.long_since(now) } else { now };
            self.trusted.retain(|ca, _| registered.iter().any(|there| there.der == *ca));
            registered.iter().map(|there| (&there.der, since)).collect()
        };
        for (ca, since) in since {
            self.trusted.entry(ca.clone()).or_insert(since);
        }
        if let Some(newest) = held.authorities.first() {
            self.metrics.expires(Certificate::Authority, newest.until);
        }
    }

    /// A time after which everybody has heard.
    fn long_since(&self, now: Timestamp) -> Timestamp {
        now.checked_sub(self.terms.hearing()).unwrap_or(now)
    }

    /// Has all callers trust the CAs of the Secret and no others; whether they did already.
    async fn register(&mut self, seen: &Registration, held: &Held, now: Timestamp) -> Result<bool, Trouble> {
        let bundle = held.bundle();
        if seen.bundles.iter().all(|(_, there)| there == bundle.as_bytes()) {
            // An apply of ours may have been the last that this or another replica did.
            self.store.leave(seen).await?;
            return Ok(true);
        }
        self.store.register(seen, bundle.as_bytes()).await?;
        tracing::info!(authorities = held.authorities.len(), "the API server was told whom to trust");
        // Who trusted nobody before has nothing to lose by hearing of it late.
        let nobody = seen.bundles.iter().all(|(_, there)| there.is_empty());
        let since = if nobody { self.long_since(now) } else { now };
        for authority in &held.authorities {
            self.trusted.entry(authority.der.clone()).or_insert(since);
        }
        Ok(false)
    }

    /// Serves the certificate of the Secret, once its CA is trusted, or if what is served is good for nothing any more.
    fn serve(&mut self, held: &Held, now: Timestamp) {
        let Ok(leaf) = &held.leaf else { return };
        let Some(authority) = held.authorities.get(leaf.signer) else { return };
        let served = self.served.as_ref().map(|(leaf, _)| leaf);
        if leaf.until <= now || served.is_some_and(|served| served.certificate == leaf.certificate) {
            return;
        }
        // Another replica is called otherwise, and has not made room for this one yet.
        if served.is_some_and(|served| served.until > now) && !leaf.names.is_superset(&self.terms.names) {
            return;
        }
        // All callers have had the time to hear of it.
        let trusted =
            self.trusted.get(&authority.der).is_some_and(|since| now.duration_since(*since) >= self.terms.hearing());
        let nothing_to_lose = served.is_some_and(|served| served.until <= now);
        if !trusted && !nothing_to_lose {
            return;
        }
        match &self.tls {
            Some(tls) => tls.swap(&leaf.pair),
            None => self.tls = Some(Tls::new(&leaf.pair)),
        }
        self.served = Some((leaf.clone(), authority.clone()));
        self.metrics.expires(Certificate::Serving, leaf.until);
        tracing::info!(until = %leaf.until, "serving the webhook's own certificate");
    }
}

/// The CAs that the callers of all webhooks trust.
fn everywhere(registration: &Registration) -> Vec<Authority> {
    let mut bundles = registration.bundles.iter().map(|(_, bundle)| authorities(&String::from_utf8_lossy(bundle)));
    let mut found = bundles.next().unwrap_or_default();
    for bundle in bundles {
        found.retain(|authority| bundle.contains(authority));
    }
    found
}

/// Why a step was not taken.
enum Trouble {
    /// Somebody else was faster.
    Conflict,
    /// All else, in words.
    Words(String),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Conflict => Self::Conflict,
            Failure::Terminating => Self::Words("the namespace is being deleted".to_owned()),
            Failure::Refused(refusal) | Failure::Silent(refusal) => Self::Words(refusal.message),
        }
    }
}
