//! What a controller's process reads when it starts, and how its lease is called.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::pod::Seen;

/// The data of ConfigMaps by name, as far as they exist.
pub type ConfigMaps = BTreeMap<String, BTreeMap<String, String>>;

/// The part of the configuration that matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The instance; empty for the one without a name.
    pub instance: String,
    /// Whether there is an election at all.
    pub election: bool,
    /// The image for each version of an InterStepBufferService.
    pub nats: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Top {
    instance: Option<String>,
}

#[derive(Deserialize)]
struct Services {
    isbsvc: JetStream,
}

#[derive(Deserialize)]
struct JetStream {
    jetstream: Versions,
}

#[derive(Deserialize)]
struct Versions {
    versions: Vec<NatsVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NatsVersion {
    version: String,
    nats_image: String,
}

/// What the process in a pod learns from these ConfigMaps.
pub fn configuration(pod: &Seen, maps: &ConfigMaps) -> Configuration {
    // Whatever is no YAML, or has no such key, is not the configuration.
    let instance = |text: &String| serde_saphyr::from_str::<Top>(text).ok()?.instance;
    let nats = |text: &String| Some(serde_saphyr::from_str::<Services>(text).ok()?.isbsvc.jetstream.versions);
    let files = || pod.mounted.iter().filter_map(|name| maps.get(name)).flat_map(BTreeMap::values);
    let disabled = pod.election_disabled.as_ref().and_then(|(map, key)| maps.get(map)?.get(key));
    Configuration {
        instance: files().find_map(instance).unwrap_or_default(),
        election: disabled.is_none_or(|value| value != "true"),
        nats: files().find_map(nats).into_iter().flatten().map(|v| (v.version, v.nats_image)).collect(),
    }
}

/// The lease for which the controllers of an instance compete.
pub fn lease_name(instance: &str) -> String {
    if instance.is_empty() {
        return "numaflow-controller-lock".to_owned();
    }
    let mut name = "numaflow-controller-lock-".to_owned();
    let mut replaced = false;
    for c in instance.to_lowercase().chars() {
        let kept = matches!(c, 'a'..='z' | '0'..='9' | '-');
        // However many of them follow each other, one dash is put in their place.
        if kept || !replaced {
            name.push(if kept { c } else { '-' });
        }
        replaced = !kept;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::{super::pod::Life, *};

    fn pod() -> Seen {
        Seen {
            namespace: "team".to_owned(),
            name: "pod".to_owned(),
            uid: "1".to_owned(),
            life: Life::Ready,
            host: "pod".to_owned(),
            linger: None,
            lease_after: std::time::Duration::ZERO,
            config_maps: BTreeMap::new(),
            mounted: vec!["more".to_owned(), "configuration".to_owned()],
            image: String::new(),
            election_disabled: Some(("parameters".to_owned(), "disabled".to_owned())),
        }
    }

    fn maps(all: &[(&str, &str, &str)]) -> ConfigMaps {
        let mut maps = ConfigMaps::new();
        for (map, key, value) in all {
            maps.entry((*map).to_owned()).or_default().insert((*key).to_owned(), (*value).to_owned());
        }
        maps
    }

    #[test]
    fn the_instance_stands_at_the_top_of_a_file_that_is_mounted() {
        let instance = |text: &str| configuration(&pod(), &maps(&[("configuration", "controller-config.yaml", text)]));
        let instance = |text: &str| instance(text).instance;
        assert_eq!(instance("# Words.\ninstance: \"blue\"\ndefaults:\n  containerResources: |\n    a: b\n"), "blue");
        assert_eq!(instance("defaults:\n  instance: blue\n"), "");
        assert_eq!(instance("instance: \"\"\n"), "");
        assert_eq!(instance("instance: 7\n"), "7");
        assert_eq!(instance("instance: ~\n"), "");
        assert_eq!(instance("true"), "");
        assert_eq!(instance(": ]"), "");
        let elsewhere = maps(&[("other", "a", "instance: green"), ("more", "a", "instance: blue")]);
        assert_eq!(configuration(&pod(), &elsewhere).instance, "blue");
    }

    #[test]
    fn each_version_of_a_buffer_service_has_its_image() {
        let text = "instance: blue\nisbsvc:\n  jetstream:\n    settings: |\n      a: 1\n    versions:\n    \
                    - version: latest\n      natsImage: nats:2.12.7\n      startCommand: /nats-server\n    \
                    - {version: 2.10.29, natsImage: \"nats:2.10.29\"}\n";
        let found = configuration(&pod(), &maps(&[("configuration", "controller-config.yaml", text)]));
        assert_eq!(found.instance, "blue");
        let images: Vec<_> = found.nats.iter().map(|(v, image)| (v.as_str(), image.as_str())).collect();
        assert_eq!(images, [("2.10.29", "nats:2.10.29"), ("latest", "nats:2.12.7")]);
        let without = configuration(&pod(), &maps(&[("configuration", "a", "instance: blue")]));
        assert!(without.nats.is_empty());
    }

    #[test]
    fn there_is_an_election_unless_the_parameters_say_no() {
        let election = |value: &str| configuration(&pod(), &maps(&[("parameters", "disabled", value)])).election;
        assert!(!election("true"));
        assert!(election("false"));
        assert!(configuration(&pod(), &ConfigMaps::new()).election);
    }

    #[test]
    fn the_name_of_a_lease_has_only_what_a_name_may_have() {
        assert_eq!(lease_name(""), "numaflow-controller-lock");
        assert_eq!(lease_name("blue"), "numaflow-controller-lock-blue");
        assert_eq!(lease_name("Two._B--9."), "numaflow-controller-lock-two-b--9-");
    }
}
