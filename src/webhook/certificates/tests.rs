//! What is to be done about the Secret, case by case.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use proptest::prelude::*;

use super::*;

type Data = BTreeMap<String, ByteString>;

/// A Secret, a clock, and since when callers trust the newest CA.
struct Story {
    terms: Terms,
    now: Timestamp,
    secret: Option<Data>,
    /// Whether what is written is registered at once.
    heard: bool,
    served: Option<Authority>,
    registered: Vec<Authority>,
    trusted: Option<Timestamp>,
}

fn days(days: u64) -> Duration {
    Duration::from_hours(24 * days)
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// 90 days, ten years.
fn usual() -> Terms {
    Terms { names: names(&["numaplane-webhook.system.svc", "127.0.0.1"]), certificate: days(90), authority: days(3650) }
}

impl Story {
    fn new() -> Self {
        Self::with(usual())
    }

    fn with(terms: Terms) -> Self {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        Self { terms, now, secret: None, heard: true, served: None, registered: Vec::new(), trusted: None }
    }

    /// After the first start.
    fn begun() -> Self {
        let mut story = Self::new();
        assert_eq!(story.act(), "there is none yet");
        story
    }

    fn held(&self) -> Held {
        Held::read(self.secret.as_ref().unwrap())
    }

    fn leaf(&self) -> Leaf {
        self.held().leaf.unwrap()
    }

    fn next(&self) -> Action {
        let held = self.secret.as_ref().map(Held::read);
        let (served, registered) = (self.served.clone(), self.registered.clone());
        next(&State { held, served, registered, trusted: self.trusted }, self.now, &self.terms)
    }

    /// Does what is due, and says what for.
    fn act(&mut self) -> String {
        match self.next() {
            Action::Wait(until) => {
                format!("wait {}", crate::words::duration(until.duration_since(self.now).unsigned_abs()))
            }
            Action::Write(change) => {
                let before = self.secret.as_ref().map(Held::read);
                let newest = |held: Option<&Held>| held.and_then(|h| h.authorities.first()).map(|a| a.der.clone());
                let secret = make(&change, before.as_ref(), self.now, &self.terms).unwrap();
                let after = Held::read(&secret);
                if newest(before.as_ref()) != newest(Some(&after)) {
                    self.trusted = None;
                }
                if self.heard {
                    self.trusted = self.trusted.or(Some(self.now));
                }
                self.secret = Some(secret);
                change.why
            }
        }
    }

    fn pass(&mut self, time: Duration) -> &mut Self {
        self.now = self.now.checked_add(time).unwrap();
        self
    }

    fn set(&mut self, key: &str, value: &str) {
        self.secret.as_mut().unwrap().insert(key.to_owned(), ByteString(value.as_bytes().to_vec()));
    }

    fn text(&self, key: &str) -> String {
        String::from_utf8(self.secret.as_ref().unwrap()[key].0.clone()).unwrap()
    }
}

#[test]
fn at_the_first_start_there_is_a_ca_for_ten_years_and_a_certificate_for_ninety_days_with_all_names() {
    let story = Story::begun();
    let (held, leaf) = (story.held(), story.leaf());
    assert_eq!(story.secret.as_ref().unwrap().keys().collect::<Vec<_>>(), ["ca.crt", "ca.key", "tls.crt", "tls.key"]);
    assert_eq!(held.authorities.len(), 1);
    assert_eq!(held.authorities[0].issued, story.now);
    assert_eq!(held.authorities[0].until.duration_since(story.now), SignedDuration::from_hours(87600));
    assert_eq!((leaf.signer, leaf.issued, leaf.names), (0, story.now, story.terms.names.clone()));
    assert_eq!(leaf.until.duration_since(story.now), SignedDuration::from_hours(2160));
    assert_eq!(held.bundle(), story.text(keys::AUTHORITIES));
}

#[test]
fn the_certificate_is_renewed_at_two_thirds_of_its_life_by_the_same_ca() {
    let mut story = Story::begun();
    let (first, ca) = (story.leaf(), story.text(keys::AUTHORITIES));
    assert_eq!(story.act(), "wait 1440h");
    story.pass(Duration::from_secs(60 * 24 * 3600 - 1));
    assert_eq!(story.act(), "wait 1s");
    story.pass(Duration::from_secs(1));
    assert_eq!(story.act(), format!("the certificate expires at {}", first.until));
    let second = story.leaf();
    assert_eq!((second.issued, story.text(keys::AUTHORITIES)), (story.now, ca));
    assert!(second.key != first.key, "a key is not used for longer than its certificate");
    assert_eq!(story.act(), "wait 1440h");
}

#[test]
fn the_next_ca_is_announced_first_signs_once_it_is_trusted_and_the_one_before_goes_last() {
    let mut story = Story::begun();
    let hour = Duration::from_hours(1);
    let old = story.held().authorities[0].clone();
    // Its certificates were renewed all the time; now two thirds of ten years have passed.
    for _ in 0..40 {
        story.pass(days(60));
        assert!(story.act().starts_with("the certificate expires"));
    }
    story.pass(Duration::from_hours(8 + 24 * 33));
    let leaf = story.leaf();
    story.heard = false;
    assert_eq!(story.act(), "the CA has come of age: here is the next one, which signs once it is trusted");
    let held = story.held();
    assert_eq!((held.authorities.len(), &held.authorities[1]), (2, &old));
    assert_eq!((story.leaf().certificate, story.leaf().signer), (leaf.certificate, 1), "nothing else is served");
    assert!(held.key.is_ok(), "its key is that of the new CA");

    // Nobody has heard of it, although the time is over.
    story.pass(hour * 2);
    assert!(story.act().starts_with("wait "));
    // A restart: this replica has seen just now that all trust it.
    story.trusted = Some(story.now);
    assert_eq!(story.act(), "wait 5s");
    story.pass(Duration::from_secs(5));
    assert_eq!(story.act(), "the next CA is trusted by now, so it signs");
    assert_eq!((story.leaf().signer, story.held().authorities.len()), (0, 2), "both are trusted");
    assert_eq!(story.act(), "wait 1h");
    story.pass(hour);
    assert_eq!(story.act(), "the CA from before is in use nowhere any more");
    assert_eq!((story.leaf().signer, story.held().authorities.len()), (0, 1));
    assert!(!story.held().authorities.contains(&old));
    assert_eq!(story.act(), "wait 1439h");
}

#[test]
fn a_ca_that_was_registered_at_once_waits_for_its_hour_all_the_same() {
    let mut story = Story::begun();
    story.pass(days(59));
    story.act();
    story.terms.authority = days(60);
    story.set(keys::AUTHORITIES, "");
    assert_eq!(story.act(), "ca.crt holds no CA");
    story.pass(days(40));
    assert_eq!(story.act(), "the CA has come of age: here is the next one, which signs once it is trusted");
    // The certificate is due as well, but who trusts whom comes first.
    story.pass(Duration::from_mins(59));
    assert_eq!(story.act(), "wait 1m");
    story.pass(Duration::from_mins(1));
    assert_eq!(story.act(), "the next CA is trusted by now, so it signs");
}

#[test]
fn while_callers_cannot_be_told_of_the_next_ca_the_old_certificate_is_used_up() {
    let mut story = Story::begun();
    let ca = days(3650) * 2 / 3;
    story.pass(ca);
    story.heard = false;
    // Expired long ago in this story: made anew, and then the CA comes of age.
    assert!(story.act().starts_with("the certificate expired at"));
    assert!(story.act().starts_with("the CA has come of age"));
    assert_eq!(story.leaf().signer, 1);
    story.pass(days(89));
    assert_eq!(story.act(), "wait 24h");
    story.pass(days(1));
    assert!(story.act().starts_with("the certificate expired at"), "now there is nothing to lose");
    assert_eq!(story.leaf().signer, 0);
}

#[test]
fn what_is_damaged_is_made_anew_and_nothing_else() {
    let other = Story::begun();
    let (crt, key) = (other.text(keys::CERTIFICATE), other.text(keys::KEY));
    let (ca, ca_key) = (other.text(keys::AUTHORITIES), other.text(keys::AUTHORITY_KEY));
    let no_key = "holds no private key in PEM: no items found";
    // (key, value, why, whether the CA is made anew)
    let cases: &[(&str, &str, String, bool)] = &[
        (keys::CERTIFICATE, "", "tls.crt holds no certificate".into(), false),
        (keys::CERTIFICATE, "garbage", "tls.crt holds no certificate".into(), false),
        (keys::CERTIFICATE, &crt, "tls.key is not the key of tls.crt".into(), false),
        (keys::KEY, "garbage", format!("tls.key {no_key}"), false),
        (keys::KEY, &key, "tls.key is not the key of tls.crt".into(), false),
        (keys::AUTHORITIES, "", "ca.crt holds no CA".into(), true),
        (keys::AUTHORITIES, &crt, "ca.crt holds no CA".into(), true),
        (keys::AUTHORITIES, &ca, "ca.key is not the key of the first CA in ca.crt".into(), true),
        (keys::AUTHORITY_KEY, &ca_key, "ca.key is not the key of the first CA in ca.crt".into(), true),
    ];
    for (name, value, why, authority) in cases {
        let mut story = Story::begun();
        let before = story.held();
        story.set(name, value);
        let Action::Write(change) = story.next() else { panic!("{name}: nothing is done") };
        assert_eq!((&change.why, change.authority, change.sign), (why, *authority, true), "{name}");
        story.act();
        let held = story.held();
        assert_eq!(held.leaf.as_ref().map(|leaf| leaf.signer), Ok(0), "{name}");
        if !authority {
            assert_eq!(held.authorities, before.authorities, "{name}: callers trust it already");
        }
        assert!(story.act().starts_with("wait"), "{name}: once");
    }
    for name in [keys::AUTHORITIES, keys::AUTHORITY_KEY, keys::CERTIFICATE, keys::KEY] {
        let mut story = Story::begun();
        story.secret.as_mut().unwrap().remove(name);
        let missing = story.act();
        assert!(missing == format!("{name} is not there") || missing == "ca.crt holds no CA", "{missing}");
        story.secret.as_mut().unwrap().insert(name.to_owned(), ByteString(vec![0xff, 0xfe]));
        let garbage = story.act();
        assert!(garbage == format!("{name} is not text") || garbage == "ca.crt holds no CA", "{garbage}");
        assert!(story.act().starts_with("wait"));
    }
}

#[test]
fn where_only_the_key_of_the_ca_is_lost_callers_go_on_trusting_what_replicas_serve() {
    let mut story = Story::begun();
    let old = story.held().authorities[0].clone();
    story.set(keys::AUTHORITY_KEY, "garbage");
    assert!(story.act().starts_with("ca.key cannot be used: "));
    assert_eq!((story.held().authorities.len(), &story.held().authorities[1]), (2, &old));
    story.pass(Duration::from_hours(1));
    assert_eq!(story.act(), "the CA from before is in use nowhere any more");
}

#[test]
fn whatever_becomes_of_the_secret_callers_go_on_trusting_what_is_served_and_what_others_may_serve() {
    let mut story = Story::begun();
    let (one, other) = (story.held().authorities[0].clone(), Story::begun().held().authorities[0].clone());
    let backup = story.secret.clone();
    story.served = Some(one.clone());
    story.registered = vec![other.clone(), one.clone()];
    // Deleted.
    story.secret = None;
    assert_eq!(story.act(), "there is none yet");
    assert_eq!(story.held().authorities[1..], [one.clone(), other.clone()]);
    // Damaged.
    story.set(keys::AUTHORITIES, "");
    assert_eq!(story.act(), "ca.crt holds no CA");
    assert_eq!(story.held().authorities[1..], [one.clone(), other]);
    // While this replica serves by the old one, that stays, whatever time has passed.
    story.pass(Duration::from_hours(2));
    assert!(story.act().starts_with("wait"));
    story.served = Some(story.held().authorities[0].clone());
    assert_eq!(story.act(), "the CA from before is in use nowhere any more");
    assert_eq!(story.held().authorities.len(), 1);
    // Put back from a backup, which is as good as any.
    story.secret = backup;
    assert_eq!(story.act(), "the CA of what is served still is missing");
    assert_eq!(story.held().authorities, [one.clone(), story.served.clone().unwrap()]);
    assert_eq!(story.leaf().signer, 0);
    story.served = Some(one);
    assert_eq!(story.act(), "the CA from before is in use nowhere any more");
}

#[test]
fn an_expired_ca_and_all_that_it_signed_are_made_anew() {
    let mut story = Story::begun();
    let (old, leaf) = (story.held().authorities[0].clone(), story.leaf());
    story.pass(days(3650));
    assert_eq!(story.act(), format!("the CA expired at {}", old.until));
    let held = story.held();
    assert!(held.authorities.len() == 1 && held.authorities[0] != old);
    assert!(story.leaf().certificate != leaf.certificate && story.leaf().until > story.now);
}

#[test]
fn another_service_or_address_makes_another_certificate_by_the_same_ca() {
    let mut story = Story::begun();
    let ca = story.text(keys::AUTHORITIES);
    story.terms.names = names(&["numaplane-webhook.system.svc", "127.0.0.1", "::1"]);
    assert_eq!(
        story.act(),
        "the certificate is for 127.0.0.1, numaplane-webhook.system.svc, and the webhook is called as 127.0.0.1, ::1, \
         numaplane-webhook.system.svc"
    );
    assert_eq!((story.leaf().names, story.text(keys::AUTHORITIES)), (story.terms.names.clone(), ca));
    assert!(story.act().starts_with("wait"));
}

#[test]
fn replicas_that_are_called_otherwise_share_a_certificate_until_it_is_renewed() {
    let mut story = Story::begun();
    let old = story.terms.names.clone();
    let new = names(&["numaplane-webhook.elsewhere.svc"]);
    story.terms.names = new.clone();
    assert!(story.act().starts_with("the certificate is for 127.0.0.1, "));
    assert_eq!(story.leaf().names, &old | &new);
    for one in [&old, &new] {
        story.terms.names = one.clone();
        assert!(story.act().starts_with("wait"));
    }
    story.pass(days(61));
    assert!(story.act().starts_with("the certificate expires at "));
    assert_eq!(story.leaf().names, new, "those of before are nobody's");
}

#[test]
fn a_clock_that_is_behind_trusts_what_was_made_and_makes_nothing_itself() {
    let mut story = Story::begun();
    story.now = story.now.checked_sub(SignedDuration::from_mins(59)).unwrap();
    let ca = story.held().authorities[0].der.clone();
    assert!(story.leaf().pair.from <= story.now);
    assert!(crate::webhook::tls::validity(&ca).unwrap().0 <= story.now);
    assert!(story.act().starts_with("wait"));
}

#[test]
fn no_certificate_is_good_for_longer_than_its_ca() {
    let mut story = Story::with(Terms { certificate: days(90), authority: days(30), ..usual() });
    story.act();
    assert_eq!(story.leaf().until, story.held().authorities[0].until);
}

#[test]
fn over_years_callers_who_trust_the_bundle_always_trust_what_is_served_and_every_wait_ends() {
    for (certificate, authority) in
        [(days(90), days(3650)), (days(7), days(30)), (Duration::from_secs(12), Duration::from_mins(2))]
    {
        let mut story = Story::with(Terms { certificate, authority, ..usual() });
        let end = story.now.checked_add(authority * 5).unwrap();
        let (mut signers, mut writes, mut old) = (BTreeSet::new(), 0, None::<Held>);
        while story.now < end {
            match story.next() {
                Action::Wait(until) => {
                    assert!(until > story.now, "it waits for what has come");
                    story.now = until;
                }
                Action::Write(change) => {
                    story.act();
                    let (held, leaf) = (story.held(), story.leaf());
                    writes += 1;
                    signers.insert(held.authorities[leaf.signer].pem.clone());
                    assert!(leaf.until > story.now, "{change:?}");
                    if let Some(old) = old {
                        assert!(old.leaf.unwrap().until > story.now, "{change:?}: too late");
                        assert!(!change.sign || old.authorities.contains(&held.authorities[leaf.signer]), "{change:?}");
                    }
                    old = Some(held);
                }
            }
        }
        // A CA lasts for two thirds of its life.
        assert_eq!(signers.len(), 8, "{writes} writes");
        assert!(writes < 5 * authority.as_secs() / certificate.as_secs() * 2 + 40, "{writes} writes");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_somebody_writes_into_the_secret_one_write_or_two_make_it_good(
        key in 0..4usize, at in any::<prop::sample::Index>(), length in 0..200usize, with in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let mut story = Story::begun();
        let secret = story.secret.as_mut().unwrap();
        let name = secret.keys().nth(key).unwrap().clone();
        let bytes = &mut secret.get_mut(&name).unwrap().0;
        let from = at.index(bytes.len());
        let to = (from + length).min(bytes.len());
        bytes.splice(from..to, with);
        for _ in 0..2 {
            story.act();
        }
        prop_assert!(story.act().starts_with("wait"));
        prop_assert!(story.held().key.is_ok() && story.leaf().until > story.now);
    }
}
