//! How the webhook is served: with which certificate, and how it ends.

use std::{collections::BTreeSet, net::IpAddr, path::PathBuf, time::Duration};

use clap::Args;

use super::wait;
use crate::{
    admission::registration,
    names::is_subdomain,
    webhook::{Limits, Managed, Source, certificates::Terms},
    words::duration,
};

/// With which certificate the webhook is served, and how it ends.
#[derive(Debug, Args)]
pub struct TlsArgs {
    /// Serve the certificate that cert-manager, or somebody else, keeps in this folder: `tls.crt`, `tls.key` and, if it is
    /// there, `ca.crt`. They are read again within a second or two of a change. Without it, the webhook makes its own
    /// certificates and keeps them in a Secret.
    #[arg(long, env = "NUMAPLANE_CERT_DIR", value_name = "FOLDER")]
    pub cert_dir: Option<PathBuf>,
    /// Keep the webhook's own certificates in this Secret, in the operator's namespace [default: numaplane-webhook-certs]
    #[arg(long, env = "NUMAPLANE_SECRET", value_name = "NAME")]
    pub secret: Option<String>,
    /// Have this ValidatingWebhookConfiguration trust the webhook's own certificates; "" for none [default: numaplane]
    #[arg(long, env = "NUMAPLANE_WEBHOOK_CONFIGURATION", value_name = "NAME")]
    pub webhook_configuration: Option<String>,
    /// Make certificates for this Service, in the operator's namespace [default: numaplane-webhook]
    #[arg(long, env = "NUMAPLANE_SERVICE", value_name = "NAME")]
    pub service: Option<String>,
    /// Make certificates for this DNS name or IP address as well; may be given more than once.
    #[arg(long = "dns-name", env = "NUMAPLANE_DNS_NAMES", value_delimiter = ',', value_name = "NAME")]
    pub dns_names: Vec<String>,
    /// Make certificates that are good for this long; they are renewed at two thirds of it [default: 2160h]
    #[arg(long, env = "NUMAPLANE_CERTIFICATE_LIFETIME", value_parser = wait, value_name = "DURATION")]
    pub certificate_lifetime: Option<Duration>,
    /// Make a CA that is good for this long; it is followed by the next one at two thirds of it [default: 87600h]
    #[arg(long, env = "NUMAPLANE_CA_LIFETIME", value_parser = wait, value_name = "DURATION")]
    pub ca_lifetime: Option<Duration>,
    /// When asked to end, go on answering for this long, until nobody sends calls here any more.
    #[arg(long, env = "NUMAPLANE_DRAIN", default_value = "5s", value_parser = wait, value_name = "DURATION")]
    pub drain: Duration,
}

/// Shortest life of a certificate: what is renewed must reach all replicas before the one from before expires.
const SHORTEST: Duration = Duration::from_secs(10);

impl TlsArgs {
    /// Where the certificate comes from, for an operator in this namespace.
    ///
    /// # Errors
    /// The arguments contradict each other, or make no certificate that could be served: which, and what to do.
    pub fn validate(&self, namespace: &str) -> Result<Source, String> {
        if let Some(folder) = &self.cert_dir {
            let idle: Vec<&str> = [
                ("--secret", self.secret.is_some()),
                ("--webhook-configuration", self.webhook_configuration.is_some()),
                ("--service", self.service.is_some()),
                ("--dns-name", !self.dns_names.is_empty()),
                ("--certificate-lifetime", self.certificate_lifetime.is_some()),
                ("--ca-lifetime", self.ca_lifetime.is_some()),
            ]
            .into_iter()
            .filter_map(|(name, given)| given.then_some(name))
            .collect();
            if !idle.is_empty() {
                return Err(format!(
                    "--cert-dir {} has the webhook serve what somebody else makes, {} {} for certificates of its own: leave \
                     out one or the other",
                    folder.display(),
                    idle.join(", "),
                    if idle.len() == 1 { "is" } else { "are" },
                ));
            }
            return Ok(Source::Mounted(folder.clone()));
        }
        let or = |given: &Option<String>, usual: &str| given.clone().unwrap_or_else(|| usual.to_owned());
        let secret = or(&self.secret, registration::SECRET);
        let service = or(&self.service, registration::SERVICE);
        let configuration = or(&self.webhook_configuration, registration::CONFIGURATION);
        for (argument, name) in [("--secret", &secret), ("--service", &service)] {
            if !is_subdomain(name) {
                return Err(format!(
                    "{argument} {name:?} is not the name of an object: lower case letters, digits, '-' and '.'"
                ));
            }
        }
        let certificate = self.certificate_lifetime.unwrap_or(Duration::from_hours(24 * 90));
        let authority = self.ca_lifetime.unwrap_or(Duration::from_hours(87600));
        if certificate < SHORTEST {
            return Err(format!(
                "--certificate-lifetime is {}; it must be {} at least",
                duration(certificate),
                duration(SHORTEST)
            ));
        }
        if authority < 2 * certificate {
            return Err(format!(
                "--ca-lifetime is {} and --certificate-lifetime {}: a CA must be good for twice as long as what it signs, at \
                 least",
                duration(authority),
                duration(certificate)
            ));
        }
        let mut names =
            BTreeSet::from([format!("{service}.{namespace}.svc"), format!("{service}.{namespace}.svc.cluster.local")]);
        for name in self.dns_names.iter().filter(|name| !name.is_empty()) {
            let address = name.parse::<IpAddr>().map(|address| address.to_string());
            if address.is_err() && !is_subdomain(name.strip_prefix("*.").unwrap_or(name)) {
                return Err(format!("--dns-name {name:?} is neither a DNS name in lower case nor an IP address"));
            }
            names.insert(address.unwrap_or_else(|_| name.clone()));
        }
        Ok(Source::Managed(Managed {
            namespace: namespace.to_owned(),
            secret,
            configuration: Some(configuration).filter(|name| !name.is_empty()),
            terms: Terms { names, certificate, authority },
        }))
    }

    /// What one replica takes upon itself.
    #[must_use]
    pub fn limits(&self) -> Limits {
        Limits { drain: self.drain, ..Limits::default() }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Webhook {
        #[command(flatten)]
        tls: TlsArgs,
    }

    fn validate(arguments: &[&str]) -> Result<Source, String> {
        let arguments = ["webhook"].iter().chain(arguments);
        Webhook::try_parse_from(arguments).map_err(|error| error.to_string())?.tls.validate("system")
    }

    fn managed(arguments: &[&str]) -> Managed {
        match validate(arguments) {
            Ok(Source::Managed(managed)) => managed,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_arguments_the_webhook_makes_certificates_for_its_service() {
        let names = ["numaplane-webhook.system.svc", "numaplane-webhook.system.svc.cluster.local"];
        let usual = Managed {
            namespace: "system".to_owned(),
            secret: "numaplane-webhook-certs".to_owned(),
            configuration: Some("numaplane".to_owned()),
            terms: Terms {
                names: names.map(str::to_owned).into(),
                certificate: Duration::from_hours(2160),
                authority: Duration::from_hours(87600),
            },
        };
        assert_eq!(managed(&[]), usual);
        let limits = Webhook::try_parse_from(["webhook", "--drain", "250ms"]).unwrap().tls.limits();
        assert_eq!(limits, Limits { drain: Duration::from_millis(250), ..Limits::default() });
    }

    #[test]
    fn names_addresses_and_lifetimes_can_be_others() {
        let managed = managed(&[
            "--secret=certs",
            "--service=hooks",
            "--webhook-configuration=",
            "--dns-name=127.0.0.1,0:0:0:0:0:0:0:1",
            "--dns-name=*.example.com",
            "--certificate-lifetime=15s",
            "--ca-lifetime=45s",
        ]);
        let names = ["*.example.com", "127.0.0.1", "::1", "hooks.system.svc", "hooks.system.svc.cluster.local"];
        assert_eq!(managed.terms.names, names.map(str::to_owned).into());
        assert_eq!((managed.secret.as_str(), managed.configuration), ("certs", None));
        assert_eq!(managed.terms.overlap(), jiff::SignedDuration::from_millis(2250));
    }

    #[test]
    fn what_contradicts_itself_or_cannot_be_served_is_refused_with_words() {
        let cases: [(&[&str], &str); 7] = [
            (
                &["--cert-dir=/certs", "--dns-name=a.b"],
                "--cert-dir /certs has the webhook serve what somebody else makes, --dns-name is for certificates of its own: \
                 leave out one or the other",
            ),
            (
                &["--cert-dir=/certs", "--secret=a", "--ca-lifetime=1h"],
                "--cert-dir /certs has the webhook serve what somebody else makes, --secret, --ca-lifetime are for \
                 certificates of its own: leave out one or the other",
            ),
            (&["--certificate-lifetime=9s"], "--certificate-lifetime is 9s; it must be 10s at least"),
            (
                &["--ca-lifetime=2h", "--certificate-lifetime=1h30m"],
                "--ca-lifetime is 2h and --certificate-lifetime 1h30m: a CA must be good for twice as long as what it signs, \
                 at least",
            ),
            (&["--dns-name=A.b"], "--dns-name \"A.b\" is neither a DNS name in lower case nor an IP address"),
            (
                &["--secret=a_b"],
                "--secret \"a_b\" is not the name of an object: lower case letters, digits, '-' and '.'",
            ),
            (&["--service="], "--service \"\" is not the name of an object: lower case letters, digits, '-' and '.'"),
        ];
        for (arguments, words) in cases {
            assert_eq!(validate(arguments).unwrap_err(), words, "{arguments:?}");
        }
        assert_eq!(validate(&["--cert-dir=/certs"]), Ok(Source::Mounted("/certs".into())));
        let unreadable = validate(&["--ca-lifetime=10"]).unwrap_err();
        assert!(unreadable.contains("--ca-lifetime <DURATION>") && unreadable.contains("\"90s\""), "{unreadable}");
    }
}
