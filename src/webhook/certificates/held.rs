//! What the Secret holds, as read: whatever it is, good or damaged.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use super::{BACKDATED, Terms, keys};
use crate::webhook::tls::{Pair, Unusable, certificates, validity};

/// A CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// As PEM.
    pub pem: String,
    /// As it is compared.
    pub der: CertificateDer<'static>,
    /// When it was made.
    pub issued: Timestamp,
    /// Until when it is good.
    pub until: Timestamp,
}

/// The certificate that is served.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// As it is served.
    pub pair: Pair,
    /// As PEM.
    pub certificate: String,
    /// Its key, as PEM.
    pub key: String,
    /// When it was made.
    pub issued: Timestamp,
    /// Until when it is good.
    pub until: Timestamp,
    /// What it is good for.
    pub names: BTreeSet<String>,
    /// Which of the CAs has signed it.
    pub signer: usize,
}

/// What the Secret holds.
#[derive(Clone, Debug)]
pub struct Held {
    /// CAs that are to be trusted, newest first; what is none is left out.
    pub authorities: Vec<Authority>,
    /// Key of the newest, as PEM, or why nothing can be signed.
    pub key: Result<String, String>,
    /// The certificate, or why it cannot be served.
    pub leaf: Result<Leaf, String>,
}

impl Held {
    /// Reads the data of the Secret.
    #[must_use]
    pub fn read(data: &BTreeMap<String, ByteString>) -> Self {
        let text = |key: &str| {
            let bytes = data.get(key).ok_or_else(|| format!("{key} is not there"))?;
            String::from_utf8(bytes.0.clone()).map_err(|_| format!("{key} is not text"))
        };
        let authorities = text(keys::AUTHORITIES).map(|pem| authorities(&pem)).unwrap_or_default();
        let key = text(keys::AUTHORITY_KEY).and_then(|key| fits(authorities.first(), key));
        let leaf = text(keys::CERTIFICATE)
            .and_then(|certificate| Ok((certificate, text(keys::KEY)?)))
            .and_then(|(certificate, key)| leaf(certificate, key, &authorities));
        Self { authorities, key, leaf }
    }

    /// The bundle of all CAs, newest first: the same text whoever writes it.
    #[must_use]
    pub fn bundle(&self) -> String {
        self.authorities.iter().map(|authority| authority.pem.as_str()).collect()
    }

    /// The CA that can sign.
    pub(super) fn signing(&self) -> Result<&Authority, &str> {
        match (&self.key, self.authorities.first()) {
            (Err(why), _) => Err(why),
            (Ok(_), Some(newest)) => Ok(newest),
            (Ok(_), None) => Err("ca.crt holds no CA"),
        }
    }

    /// The certificate, if it can be served now to who is asked for.
    pub(super) fn leaf_at(&self, now: Timestamp, terms: &Terms) -> Result<&Leaf, String> {
        let leaf = self.leaf.as_ref().map_err(Clone::clone)?;
        if leaf.until <= now {
            return Err(format!("the certificate expired at {}", leaf.until));
        }
        if !leaf.names.is_superset(&terms.names) {
            let names = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
            return Err(format!(
                "the certificate is for {}, and the webhook is called as {}",
                names(&leaf.names),
                names(&terms.names)
            ));
        }
        Ok(leaf)
    }
}

/// All CAs in a PEM file; what is none is left out.
#[must_use]
pub fn authorities(pem: &str) -> Vec<Authority> {
    const END: &str = "-----END CERTIFICATE-----";
    let mut found: Vec<Authority> = Vec::new();
    for block in pem.split_inclusive(END) {
        let Some(begin) = block.find("-----BEGIN CERTIFICATE-----") else { continue };
        let pem = format!("{}\n", &block[begin..]);
        let Some(authority) = authority(pem) else { continue };
        if !found.iter().any(|other| other.der == authority.der) {
            found.push(authority);
        }
    }
    found
}

fn authority(pem: String) -> Option<Authority> {
    let der = certificates(&pem).ok()?.pop()?;
    let (from, until) = validity(&der).ok()?;
    let is_ca = X509Certificate::from_der(&der).ok().is_some_and(|(_, certificate)| certificate.is_ca());
    is_ca.then(|| Authority { pem, der, issued: issued(from), until })
}

/// When a certificate was made that says that it is good from this time on.
fn issued(from: Timestamp) -> Timestamp {
    from.checked_add(BACKDATED).unwrap_or(from)
}

/// The key, if it is that of this CA.
fn fits(authority: Option<&Authority>, key: String) -> Result<String, String> {
    let authority = authority.ok_or("ca.crt holds no CA")?;
    let pair = KeyPair::from_pem(&key).map_err(|error| format!("ca.key cannot be used: {error}"))?;
    let (_, certificate) =
        X509Certificate::from_der(&authority.der).map_err(|error| format!("ca.crt cannot be read: {error}"))?;
    if certificate.public_key().subject_public_key.data.as_ref() != pair.der_bytes() {
        return Err("ca.key is not the key of the first CA in ca.crt".to_owned());
    }
    Ok(key)
}

fn leaf(certificate: String, key: String, authorities: &[Authority]) -> Result<Leaf, String> {
    let pair = Pair::read(&certificate, &key).map_err(|unusable| match unusable {
        Unusable::Certificate(why) => format!("tls.crt {why}"),
        Unusable::Key(why) => format!("tls.key {why}"),
        Unusable::Apart => "tls.key is not the key of tls.crt".to_owned(),
    })?;
    let unreadable = |why: String| format!("tls.crt cannot be read: {why}");
    let der = certificates(&certificate).map_err(unreadable)?.into_iter().next().unwrap_or_else(|| Vec::new().into());
    let (_, parsed) = X509Certificate::from_der(&der).map_err(|error| unreadable(error.to_string()))?;
    let alternatives = parsed.subject_alternative_name().map_err(|error| unreadable(error.to_string()))?;
    let names = alternatives.iter().flat_map(|names| &names.value.general_names).filter_map(name).collect();
    let signed_by = |authority: &Authority| {
        X509Certificate::from_der(&authority.der).is_ok_and(|(_, ca)| {
            ca.subject() == parsed.issuer() && parsed.verify_signature(Some(ca.public_key())).is_ok()
        })
    };
    let signer = authorities.iter().position(signed_by).ok_or("tls.crt is signed by no CA in ca.crt")?;
    let (issued, until) = (issued(pair.from), pair.until);
    Ok(Leaf { pair, certificate, key, issued, until, names, signer })
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            _ => <[u8; 16]>::try_from(*bytes).ok().map(|bytes| IpAddr::from(bytes).to_string()),
        },
        _ => None,
    }
}
