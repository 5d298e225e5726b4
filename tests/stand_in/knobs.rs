//! What annotations ask of the stand-in: to behave as Numaflow does on a bad day.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value};

/// What all of these annotations begin with.
pub const PREFIX: &str = "stand-in.numaflow/";

/// What is asked by the annotations of one object.
#[allow(clippy::struct_excessive_bools)] // independent of each other
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Knobs {
    /// Messages that stay in the buffers.
    pub pending: u64,
    /// How long the buffers take to drain.
    pub drains_after: Option<Duration>,
    /// A pause never gets beyond Pausing.
    pub never_pauses: bool,
    /// How long the worker takes before it begins a pass.
    pub pass_delay: Duration,
    /// The controller never looks at the object.
    pub silent: bool,
    /// What failed is not tried again by itself, as if its next try were a quarter of an hour away.
    pub no_retries: bool,
    /// Why it cannot be deployed.
    pub fails: Option<String>,
    /// How the daemon answers, if it does not.
    pub daemon: Option<Daemon>,
    /// How long pods take to go.
    pub terminates_after: Option<Duration>,
    /// How long pods that are made now take to become ready.
    pub pod_takes: Option<Duration>,
    /// Pods that are made now never become ready.
    pub never_ready: bool,
    /// The wedge that the next flip ends in.
    pub wedge: Option<Wedge>,
    /// An InterStepBufferService says that it is unhealthy.
    pub unhealthy: bool,
    /// How long an InterStepBufferService says it is healthy after its change was seen.
    pub stale_health: Duration,
}

impl Knobs {
    /// The annotations with which simulated pods behave as they are asked to.
    pub fn of_pods(&self) -> Map<String, Value> {
        let mut all = Map::new();
        if let Some(time) = self.pod_takes {
            all.insert("numaplane.test/ready-after".to_owned(), time.as_secs_f64().to_string().into());
        }
        if self.never_ready {
            all.insert("numaplane.test/behaviour".to_owned(), "never-ready".into());
        }
        all
    }
}

/// A daemon that does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// Refuses connections.
    Refused,
    /// Takes them, and says nothing.
    Hung,
}

/// States out of which a pipeline does not come by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wedge {
    /// Running, with its sources paused and the time of the pause still there.
    Running,
    /// Paused and drained as it says, with everything running and no time of a pause.
    Paused,
}

/// Reads them. What cannot be understood is not asked for: a test that misspells a knob sees that nothing happens.
pub fn knobs(annotations: &BTreeMap<String, String>) -> Knobs {
    let text = |name: &str| annotations.get(&format!("{PREFIX}{name}")).map(String::as_str);
    let time = |name: &str| text(name).and_then(duration);
    let is_set = |name: &str| text(name) == Some("true");
    Knobs {
        pending: text("pending").and_then(|t| t.parse().ok()).unwrap_or_default(),
        drains_after: time("drains-after"),
        never_pauses: is_set("never-pauses"),
        pass_delay: time("pass-delay").unwrap_or_default(),
        silent: is_set("silent"),
        no_retries: is_set("no-retries"),
        fails: text("fails").map(str::to_owned),
        daemon: match text("daemon") {
            Some("refused") => Some(Daemon::Refused),
            Some("hung") => Some(Daemon::Hung),
            _ => None,
        },
        terminates_after: time("terminates-after"),
        pod_takes: time("pod-takes"),
        never_ready: is_set("never-ready"),
        wedge: match text("wedge") {
            Some("running") => Some(Wedge::Running),
            Some("paused") => Some(Wedge::Paused),
            _ => None,
        },
        unhealthy: is_set("unhealthy"),
        stale_health: time("stale-health").unwrap_or_default(),
    }
}

fn duration(text: &str) -> Option<Duration> {
    if let Some(number) = text.strip_suffix("ms") {
        return number.parse().ok().map(Duration::from_millis);
    }
    let seconds: f64 = text.strip_suffix('s').unwrap_or(text).parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knobs_are_read_and_what_is_misspelt_asks_for_nothing() {
        let asked = |all: &[(&str, &str)]| {
            knobs(&all.iter().map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned())).collect())
        };
        assert_eq!(asked(&[]), Knobs::default());
        assert_eq!(
            asked(&[("pending", "many"), ("daemon", "gone"), ("wedge", "yes"), ("silent", "1")]),
            Knobs::default()
        );
        let all =
            asked(&[("pending", "7"), ("drains-after", "2s"), ("pass-delay", "500ms"), ("terminates-after", "1.5")]);
        assert_eq!((all.pending, all.drains_after), (7, Some(Duration::from_secs(2))));
        assert_eq!(all.pass_delay, Duration::from_millis(500));
        assert_eq!(all.terminates_after, Some(Duration::from_millis(1500)));
        let all = asked(&[
            ("daemon", "hung"),
            ("wedge", "paused"),
            ("fails", "no way"),
            ("never-pauses", "true"),
            ("no-retries", "true"),
        ]);
        assert_eq!((all.daemon, all.wedge), (Some(Daemon::Hung), Some(Wedge::Paused)));
        assert!(all.never_pauses && all.no_retries);
        assert_eq!(all.fails.as_deref(), Some("no way"));
        assert!(all.of_pods().is_empty());
        let pods = asked(&[("pod-takes", "1500ms"), ("never-ready", "true")]).of_pods();
        assert_eq!(
            (&pods["numaplane.test/ready-after"], &pods["numaplane.test/behaviour"]),
            (&"1.5".into(), &"never-ready".into())
        );
    }
}
