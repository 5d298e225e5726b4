//! Certificates of the webhook's own: what the Secret holds, and what is to be done about it. Pure; how they are made is in
//! [`make`].
//!
//! There is one CA, and one certificate that it has signed; all replicas serve that one. Two things take their time, because
//! API servers hear of a CA some time after it was registered: a new CA is only announced at first, and signs once everybody
//! trusts it; and the one before it stays trusted until nobody can be serving what it signed.

mod held;
mod make;

use std::{collections::BTreeSet, time::Duration};

use jiff::{SignedDuration, Timestamp};

pub use self::{
    held::{Authority, Held, Leaf, authorities},
    make::make,
};

/// How long before it was made a certificate says that it is good: clocks of API servers are behind at times.
pub const BACKDATED: SignedDuration = SignedDuration::from_hours(1);

/// Keys of the Secret.
pub mod keys {
    /// All CAs that are to be trusted, newest first.
    pub const AUTHORITIES: &str = "ca.crt";
    /// Key of the newest of them.
    pub const AUTHORITY_KEY: &str = "ca.key";
    /// The certificate that is served.
    pub const CERTIFICATE: &str = "tls.crt";
    /// Its key.
    pub const KEY: &str = "tls.key";
}

/// What certificates are to be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// DNS names and IP addresses under which the webhook is called.
    pub names: BTreeSet<String>,
    /// How long the certificate is good.
    pub certificate: Duration,
    /// How long the CA is good.
    pub authority: Duration,
}

impl Terms {
    /// How long CAs overlap: from its announcement until a CA signs, and from then until the one before it goes. A certificate
    /// that is due waits for that, so it is less than what is left of its life then.
    #[must_use]
    pub fn overlap(&self) -> SignedDuration {
        let least = (self.authority / 20).min(self.certificate / 6).min(Duration::from_hours(1));
        SignedDuration::try_from(least).unwrap_or(SignedDuration::MAX)
    }

    /// How long an API server takes to hear whom to trust, at most: it watches.
    #[must_use]
    pub fn hearing(&self) -> SignedDuration {
        self.overlap().min(SignedDuration::from_secs(5))
    }
}

/// What a replica knows.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// What the Secret holds; `None`: there is none.
    pub held: Option<Held>,
    /// The CA of the certificate that this replica serves now, which may be another one than that of the Secret.
    pub served: Option<Authority>,
    /// The CAs that all callers trust now; other replicas may serve what these have signed.
    pub registered: Vec<Authority>,
    /// Since when all callers trust the newest CA of the Secret, as far as this replica has seen; `None`: they do not.
    pub trusted: Option<Timestamp>,
}

/// What to do about the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing before this time.
    Wait(Timestamp),
    /// Write it.
    Write(Change),
}

/// A change of the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What for.
    pub why: String,
    /// Make a CA, which comes first.
    pub authority: bool,
    /// Have the newest CA sign a new certificate.
    pub sign: bool,
    /// The CAs that are to be trusted besides, newest first.
    pub keep: Vec<Authority>,
}

/// What is to be done next.
#[must_use]
pub fn next(state: &State, now: Timestamp, terms: &Terms) -> Action {
    let served: Vec<Authority> = state.served.iter().cloned().collect();
    let Some(held) = &state.held else {
        // Whatever became of the Secret, callers go on trusting what is served until something else is.
        return write("there is none yet", true, true, alive([&served, &state.registered], now));
    };
    let anew = |why: &str| write(why, true, true, alive([&held.authorities, &served, &state.registered], now));
    let newest = match held.signing() {
        Ok(newest) if newest.until > now => newest,
        Ok(newest) => return anew(&format!("the CA expired at {}", newest.until)),
        Err(why) => return anew(why),
    };
    let all = || alive([&held.authorities, &served], now);
    let leaf = match held.leaf_at(now, terms) {
        Ok(leaf) => leaf,
        Err(why) => return write(&why, false, true, all()),
    };
    if served.iter().any(|served| served.until > now && !held.authorities.contains(served)) {
        return write("the CA of what is served still is missing", false, false, all());
    }
    let renew = due(newest.issued, newest.until);
    if now >= renew {
        return write(
            "the CA has come of age: here is the next one, which signs once it is trusted",
            true,
            false,
            all(),
        );
    }
    let mut wait = vec![renew];
    if leaf.signer == 0 {
        let renew = due(leaf.issued, leaf.until);
        if now >= renew {
            return write(&format!("the certificate expires at {}", leaf.until), false, true, all());
        }
        wait.push(renew);
        if held.authorities.len() > 1 {
            let unused = later(leaf.issued, terms.overlap());
            if now >= unused && state.served.as_ref().is_none_or(|served| served == newest) {
                return write("the CA from before is in use nowhere any more", false, false, vec![newest.clone()]);
            }
            wait.push(unused);
        }
    } else {
        let announced = later(newest.issued, terms.overlap());
        let heard = state.trusted.map(|since| later(since, terms.hearing()));
        if now >= announced && heard.is_some_and(|heard| now >= heard) {
            return write("the next CA is trusted by now, so it signs", false, true, all());
        }
        // Until it is trusted at all there is no saying when.
        wait.extend(heard.map(|heard| heard.max(announced)));
        wait.push(leaf.until);
    }
    if held.authorities.iter().any(|authority| authority.until <= now) {
        return write("a CA has expired", false, false, all());
    }
    wait.extend(held.authorities.iter().map(|authority| authority.until));
    Action::Wait(wait.into_iter().min().unwrap_or(now).max(now))
}

/// The CAs of all these lists that are good now, each once.
fn alive<'a>(lists: impl IntoIterator<Item = &'a Vec<Authority>>, now: Timestamp) -> Vec<Authority> {
    let mut found: Vec<Authority> = Vec::new();
    for authority in lists.into_iter().flatten() {
        if authority.until > now && !found.contains(authority) {
            found.push(authority.clone());
        }
    }
    found
}

fn write(why: &str, authority: bool, sign: bool, keep: Vec<Authority>) -> Action {
    Action::Write(Change { why: why.to_owned(), authority, sign, keep })
}

/// When something that is good from `issued` to `until` is to be replaced: at two thirds, so that there is time for what goes
/// wrong then.
fn due(issued: Timestamp, until: Timestamp) -> Timestamp {
    later(issued, until.duration_since(issued) / 3 * 2)
}

fn later(then: Timestamp, by: SignedDuration) -> Timestamp {
    then.checked_add(by).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
