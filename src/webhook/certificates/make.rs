//! Makes certificates: the one place that needs randomness, for keys.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use super::{BACKDATED, Change, Held, Terms, due, held::authorities, keys};
use crate::api::short_hash;

/// What the Secret is to hold after a change of what it holds.
///
/// # Errors
/// A certificate cannot be made: a name that is none, or a CA that cannot be read.
pub fn make(
    change: &Change,
    held: Option<&Held>,
    now: Timestamp,
    terms: &Terms,
) -> Result<BTreeMap<String, ByteString>, String> {
    let (newest, key) = if change.authority {
        let (certificate, key) = authority(now, terms).map_err(|error| format!("no CA can be made: {error}"))?;
        (Some(certificate), key)
    } else {
        let key = held.ok_or("there is no CA to keep")?.key.clone()?;
        (None, key)
    };
    let kept = change.keep.iter().map(|authority| authority.pem.as_str());
    let bundle: String = newest.as_deref().into_iter().chain(kept).collect();
    let (certificate, certificate_key) = if change.sign {
        sign(&bundle, &key, &names(held, now, terms), now, terms)
            .map_err(|error| format!("no certificate can be made: {error}"))?
    } else {
        let leaf = held.ok_or("there is no certificate to keep")?.leaf.as_ref().map_err(Clone::clone)?;
        (leaf.certificate.clone(), leaf.key.clone())
    };
    let text = |key: &str, text: String| (key.to_owned(), ByteString(text.into_bytes()));
    Ok(BTreeMap::from([
        text(keys::AUTHORITIES, bundle),
        text(keys::AUTHORITY_KEY, key),
        text(keys::CERTIFICATE, certificate),
        text(keys::KEY, certificate_key),
    ]))
}

/// A CA and its key, as PEM.
fn authority(now: Timestamp, terms: &Terms) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    // Each has a name of its own: who looks for the signer of a certificate looks for a name.
    params.distinguished_name = named(&format!("numaplane webhook CA {}", short_hash(key.public_key_raw())));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    good(&mut params, now, later(now, terms.authority));
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// What a certificate is to be good for. Replicas that are called otherwise (while their names are being changed, say) share it:
/// if each took out the names of the other, they would write in turns for ever. Names that nobody has any more go when it is
/// renewed.
fn names(held: Option<&Held>, now: Timestamp, terms: &Terms) -> BTreeSet<String> {
    let leaf = held.and_then(|held| held.leaf.as_ref().ok()).filter(|leaf| now < due(leaf.issued, leaf.until));
    let others = leaf.into_iter().flat_map(|leaf| &leaf.names).filter(|name| name.is_ascii());
    terms.names.iter().chain(others).cloned().collect()
}

/// A certificate that the newest CA of the bundle has signed, and its key, as PEM.
fn sign(
    bundle: &str,
    key: &str,
    names: &BTreeSet<String>,
    now: Timestamp,
    terms: &Terms,
) -> Result<(String, String), String> {
    let words = |error: rcgen::Error| error.to_string();
    let newest = authorities(bundle).into_iter().next().ok_or("there is no CA")?;
    let issuer = Issuer::from_ca_cert_der(&newest.der, KeyPair::from_pem(key).map_err(words)?).map_err(words)?;
    let mut params = CertificateParams::new(names.iter().cloned().collect::<Vec<_>>()).map_err(words)?;
    params.distinguished_name = named("numaplane webhook");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    // Nothing is good for longer than who vouches for it.
    good(&mut params, now, later(now, terms.certificate).min(newest.until));
    let key = KeyPair::generate().map_err(words)?;
    Ok((params.signed_by(&key, &issuer).map_err(words)?.pem(), key.serialize_pem()))
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn good(params: &mut CertificateParams, now: Timestamp, until: Timestamp) {
    let epoch = date_time_ymd(1970, 1, 1);
    let since = |time: Timestamp| Duration::from_secs(u64::try_from(time.as_second()).unwrap_or_default());
    params.not_before = epoch + since(now.checked_sub(BACKDATED).unwrap_or(now));
    params.not_after = epoch + since(until);
}

fn later(now: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| now.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}
