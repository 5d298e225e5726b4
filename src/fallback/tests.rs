//! What configurations say, every mistake that can be made in one, and which of them holds.

use std::{collections::BTreeMap, time::Duration};

use super::*;

const PLACE: &str = "here";

fn told(read: Result<Said, Vec<Fault>>) -> Vec<String> {
    read.err().unwrap_or_default().iter().map(|fault| fault.at(PLACE)).collect()
}

fn data(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn config_map(entries: &[(&str, &str)]) -> Result<Said, Vec<Fault>> {
    parse_config_map(&data(entries))
}

fn says(strategy: Option<Strategy>, seconds: [Option<u64>; 3]) -> Fallback {
    let [deadline, window, interval] = seconds.map(|s| s.map(Duration::from_secs));
    Fallback { strategy, deadline, window, interval, ..Fallback::default() }
}

#[test]
fn files_say_what_they_say() {
    use Strategy::{NoStrategy, PauseAndDrain, Progressive};
    let nothing = [None; 3];
    for (text, expected) in [
        ("", says(None, nothing)),
        ("# only a comment\n", says(None, nothing)),
        ("---\n", says(None, nothing)),
        ("defaultUpgradeStrategy: progressive\n", says(Some(Progressive), nothing)),
        ("defaultUpgradeStrategy: pause-and-drain\n---\n", says(Some(PauseAndDrain), nothing)),
        ("defaultUpgradeStrategy: \"\"\n", says(Some(NoStrategy), nothing)),
        ("defaultupgradestrategy: no-strategy\n", says(Some(NoStrategy), nothing)),
        ("defaultUpgradeStrategy:\n", says(None, nothing)),
        ("strategy:\n", says(None, nothing)),
        ("strategy: {}\n", says(None, nothing)),
        ("strategy: {type: , assessment: , ppnd: }\n", says(None, nothing)),
        ("strategy:\n  type: pause-and-drain\n", says(Some(PauseAndDrain), nothing)),
        (
            "strategy:\n  assessment:\n    deadline: 15m\n    window: 0s\n    interval: 1.5s\n",
            Fallback { interval: Some(Duration::from_millis(1500)), ..says(None, [Some(900), Some(0), None]) },
        ),
        ("strategy: {assessment: {window: 1m}}\n", says(None, [None, Some(60), None])),
        (
            "strategy: {ppnd: {drainTimeout: 5m, onDrainTimeout: Abort}}\n",
            Fallback {
                drain_timeout: Some(Duration::from_mins(5)),
                on_drain_timeout: Some(OnDrainTimeout::Abort),
                ..Fallback::default()
            },
        ),
        (
            "defaultUpgradeStrategy: \"\"\nstrategy: {type: no-strategy, assessment: {interval: 1s}}\n",
            says(Some(NoStrategy), [None, None, Some(1)]),
        ),
        (
            "short: &short {deadline: 5s, window: 0s}\nstrategy: {assessment: {<<: *short, window: 1s}}\n",
            says(None, [Some(5), Some(1), None]),
        ),
    ] {
        assert_eq!(parse_file(text).map(|said| said.fallback), Ok(expected), "{text}");
    }
}

/// A file as it is shipped for Numaplane, with all its keys.
const NUMAPLANE: &str = r#"logLevel: INFO
includedResources: "group=apps,kind=Deployment;group=,kind=ConfigMap;group=,kind=Secret"
defaultUpgradeStrategy: pause-and-drain
progressive:
  defaultAssessmentSchedule:
    - {kind: Pipeline, schedule: "10,200,60,10"}
    - {kind: InterstepBufferService, schedule: "0,0,0,10"}
  analysisRunTimeout: 1200
permittedRiders: "group=autoscaling,kind=HorizontalPodAutoscaler"
pipeline:
  recycleScaleFactor: 50
"#;

#[test]
fn a_file_of_numaplane_works_and_what_means_nothing_here_is_listed() {
    let said = parse_file(NUMAPLANE).unwrap();
    assert_eq!(said.fallback, says(Some(Strategy::PauseAndDrain), [None; 3]));
    assert_eq!(said.ignored, ["logLevel", "includedResources", "progressive", "permittedRiders", "pipeline"]);
}

#[test]
fn whatever_is_wrong_with_a_file_is_told_with_key_and_line() {
    for (text, expected) in [
        ("just text\n", "here, line 1: this is text; it must be a map with the keys of a configuration"),
        ("\n- a\n", "here, line 2: this is a list; it must be a map with the keys of a configuration"),
        ("a: 1\nb: [1,\nc: 2\n", "here, line 2: this is not YAML: unclosed bracket '['"),
        ("# first\n---\na: b: c\n", "here, line 3: this is not YAML: mapping values are not allowed in this context"),
        ("a: 1\n---\nb: 2\n", "here, line 3: a second document begins here; keep one"),
        (
            "logLevel: INFO\ndefaultUpgradeStrategy: canary\n",
            "here, key \"defaultUpgradeStrategy\", line 2: \"canary\" is not a strategy; use progressive, \
             pause-and-drain or no-strategy",
        ),
        (
            "defaultUpgradeStrategy: [progressive]\n",
            "here, key \"defaultUpgradeStrategy\", line 1: this is a list; it must be progressive, pause-and-drain or \
             no-strategy",
        ),
        (
            "defaultUpgradeStrategy: progressive\ndefaultUpgradeStrategy: no-strategy\n",
            "here, key \"defaultUpgradeStrategy\", line 2: defaultUpgradeStrategy is given twice; remove one of \
             the two",
        ),
        (
            "strategy: progressive\n",
            "here, key \"strategy\", line 1: strategy is text; it must be a map with type, assessment and ppnd, as in \
             a rollout",
        ),
        (
            "strategy:\n  type: canary\n",
            "here, key \"strategy\", line 2: type: \"canary\" is not a strategy; use progressive, pause-and-drain or \
             no-strategy",
        ),
        (
            "strategy:\n  type: \"\"\n",
            "here, key \"strategy\", line 2: type: \"\" is not a strategy; use progressive, pause-and-drain or \
             no-strategy",
        ),
        (
            "strategy:\n  type: no\n",
            "here, key \"strategy\", line 2: type is a boolean; it must be progressive, pause-and-drain or no-strategy",
        ),
        (
            "strategy:\n  kind: progressive\n",
            "here, key \"strategy\", line 2: strategy has no key kind; those it may have are type, assessment and ppnd",
        ),
        (
            "strategy:\n  1: progressive\n",
            "here, key \"strategy\", line 2: strategy has no key (a number); those it may have are type, assessment \
             and ppnd",
        ),
        (
            "strategy:\n  type: progressive\n  forcePromote: true\n",
            "here, key \"strategy\", line 3: forcePromote is an order to one rollout, not something to fall back to; \
             remove it here, and set it in the spec of that rollout",
        ),
    ] {
        assert_eq!(told(parse_file(text)), [expected], "{text}");
    }
}

#[test]
fn whatever_is_wrong_with_the_times_of_a_file_is_told_with_key_and_line() {
    for (text, expected) in [
        (
            "strategy:\n  assessment: 5m\n",
            "here, key \"strategy\", line 2: assessment is text; it must be a map with deadline, window and interval, \
             as in a rollout",
        ),
        (
            "strategy:\n  assessment:\n    deadline: 5m\n    dedline: 5m\n",
            "here, key \"strategy\", line 4: assessment has no key dedline; those it may have are deadline, window and \
             interval",
        ),
        (
            "strategy:\n  assessment:\n    deadline: 5m\n    deadline: 6m\n",
            "here, key \"strategy\", line 4: deadline is given twice; remove one of the two",
        ),
        (
            "strategy:\n  assessment:\n    deadline: 5 minutes\n",
            "here, key \"strategy\", line 3: assessment.deadline: \"5 minutes\" is not a duration: write a number with \
             a unit, like \"90s\", \"10m\" or \"1h30m\", from 0s to ten years",
        ),
        (
            "strategy:\n  assessment:\n    window: 90\n",
            "here, key \"strategy\", line 3: assessment.window is a number; it must be a duration with a unit, like \
             \"90s\", \"10m\" or \"1h30m\"",
        ),
        (
            "strategy:\n  assessment:\n    interval: -5s\n",
            "here, key \"strategy\", line 3: assessment.interval: \"-5s\" is not a duration: write a number with a \
             unit, like \"90s\", \"10m\" or \"1h30m\", from 0s to ten years",
        ),
        (
            "strategy:\n  ppnd:\n    drainTimeout: soon\n",
            "here, key \"strategy\", line 3: ppnd.drainTimeout: \"soon\" is not a duration: write a number with a \
             unit, like \"90s\", \"10m\" or \"1h30m\", from 0s to ten years",
        ),
        (
            "strategy:\n  ppnd:\n    onDrainTimeout: proceed\n",
            "here, key \"strategy\", line 3: ppnd.onDrainTimeout: \"proceed\" is neither Proceed nor Abort; use one of \
             them",
        ),
        (
            "strategy:\n  ppnd:\n    timeout: 5m\n",
            "here, key \"strategy\", line 3: ppnd has no key timeout; those it may have are drainTimeout and \
             onDrainTimeout",
        ),
        (
            "strategy:\n  type: no-strategy\ndefaultUpgradeStrategy: progressive\n",
            "here, key \"strategy\", line 2: type is no-strategy, but defaultUpgradeStrategy says progressive; remove \
             one of the two",
        ),
    ] {
        assert_eq!(told(parse_file(text)), [expected], "{text}");
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let text = "defaultUpgradeStrategy: x\nstrategy:\n  type: y\n  assessment: {deadline: 5, window: 1s, late: 1s}\n";
    let lines: Vec<Option<u64>> = parse_file(text).unwrap_err().into_iter().map(|fault| fault.line).collect();
    assert_eq!(lines, [Some(1), Some(3), Some(4), Some(4)]);
}

#[test]
fn config_maps_of_a_namespace_say_what_they_say() {
    use Strategy::{NoStrategy, PauseAndDrain, Progressive};
    let nothing = [None; 3];
    for (entries, expected) in [
        (&[][..], says(None, nothing)),
        (&[("upgradeStrategy", "progressive")], says(Some(Progressive), nothing)),
        (&[("upgradeStrategy", "")], says(Some(NoStrategy), nothing)),
        (&[("upgradeStrategy", "pause-and-drain\n")], says(Some(PauseAndDrain), nothing)),
        (&[("upgradestrategy", "no-strategy")], says(Some(NoStrategy), nothing)),
        (&[("strategy", "")], says(None, nothing)),
        (&[("strategy", "type: pause-and-drain\n")], says(Some(PauseAndDrain), nothing)),
        (
            &[("strategy", "assessment: {deadline: 1m}\n"), ("upgradeStrategy", "progressive")],
            says(Some(Progressive), [Some(60), None, None]),
        ),
        (&[("strategy", "type: progressive\n"), ("upgradeStrategy", "progressive")], says(Some(Progressive), nothing)),
    ] {
        assert_eq!(config_map(entries).map(|said| said.fallback), Ok(expected), "{entries:?}");
    }
    let said = config_map(&[("owner", "team"), ("upgradeStrategy", ""), ("x.yaml", "[")]).unwrap();
    assert_eq!(said.ignored, ["owner", "x.yaml"]);
}

#[test]
fn whatever_is_wrong_with_a_config_map_of_a_namespace_is_told_with_key_and_line() {
    for (entries, expected) in [
        (
            &[("upgradeStrategy", "Progressive")][..],
            "here, key \"upgradeStrategy\": \"Progressive\" is not a strategy; use progressive, pause-and-drain or \
             no-strategy",
        ),
        (
            &[("upgradeStrategy", "progressive"), ("upgradestrategy", "progressive")],
            "here, key \"upgradeStrategy\": upgradestrategy is the same key once more; remove one of the two",
        ),
        (
            &[("strategy", "type: progressive\nassessment:\n\tdeadline: 1m\n")],
            "here, key \"strategy\", line 3: this is not YAML: tabs disallowed within this context (block indentation)",
        ),
        (
            &[("strategy", "spec:\n  strategy: {}\n")],
            "here, key \"strategy\", line 1: strategy has no key spec; those it may have are type, assessment and ppnd",
        ),
        (
            &[("strategy", "# ours\ntype: no-strategy\n"), ("upgradeStrategy", "progressive")],
            "here, key \"strategy\", line 2: type is no-strategy, but upgradeStrategy says progressive; remove one of \
             the two",
        ),
        (
            &[("strategy", "type: progressive\n"), ("upgradeStrategy", "")],
            "here, key \"strategy\", line 1: type is progressive, but upgradeStrategy says no-strategy; remove one of \
             the two",
        ),
        (
            &[("strategy", "---\nassessment:\n  deadline: 1\n")],
            "here, key \"strategy\", line 3: assessment.deadline is a number; it must be a duration with a unit, like \
             \"90s\", \"10m\" or \"1h30m\"",
        ),
    ] {
        assert_eq!(told(config_map(entries)), [expected], "{entries:?}");
    }
}

#[test]
fn the_examples_say_what_the_documentation_says() {
    let (file, map) =
        (include_str!("../../examples/config.yaml"), include_str!("../../examples/namespace-config.yaml"));
    let said = parse_file(file).unwrap();
    let expected = Fallback {
        drain_timeout: Some(Duration::from_mins(5)),
        on_drain_timeout: Some(OnDrainTimeout::Proceed),
        ..says(Some(Strategy::PauseAndDrain), [Some(900), Some(60), Some(5)])
    };
    assert_eq!(said.fallback, expected);
    let map: k8s_openapi::api::core::v1::ConfigMap = serde_saphyr::from_str(map).unwrap();
    let said = parse_config_map(&map.data.unwrap()).unwrap();
    assert_eq!(said.fallback, says(Some(Strategy::Progressive), [Some(300), None, None]));

    let docs = include_str!("../../docs/configuration.md");
    for example in [file, include_str!("../../examples/namespace-config.yaml")] {
        let quoted: String = example.lines().map(|line| format!("    {line}\n")).collect();
        assert!(docs.contains(quoted.replace("    \n", "\n").as_str()), "docs/configuration.md lacks:\n{quoted}");
    }
}

// ---- which of them holds ------------------------------------------------------------------------------------------

fn built_in() -> Defaults {
    Defaults {
        strategy: Strategy::Progressive,
        deadline: Duration::from_secs(1),
        window: Duration::from_secs(2),
        interval: Duration::from_secs(3),
        ..Defaults::default()
    }
}

fn said(text: &str) -> Said {
    parse_file(text).unwrap()
}

fn map(text: &str) -> Result<Said, Vec<Fault>> {
    config_map(&[("strategy", text)])
}

fn deadline(fallbacks: &Fallbacks) -> u64 {
    fallbacks.defaults("ns").deadline.as_secs()
}

#[test]
fn each_field_comes_from_the_nearest_that_says_it() {
    let mut fallbacks = Fallbacks::new(built_in());
    assert_eq!(fallbacks.defaults("ns"), built_in());
    assert!(fallbacks.set_file(&said("strategy: {type: pause-and-drain, assessment: {deadline: 10s, window: 20s}}")));
    let difference = fallbacks.set("ns", "a", "1", &map("type: no-strategy\nassessment: {deadline: 100s}"));
    assert_eq!(difference.says, Some(says(Some(Strategy::NoStrategy), [Some(100), None, None])));
    let seconds = |d: Defaults| (d.strategy, d.deadline.as_secs(), d.window.as_secs(), d.interval.as_secs());
    assert_eq!(seconds(fallbacks.defaults("ns")), (Strategy::NoStrategy, 100, 20, 3));
    assert_eq!(seconds(fallbacks.defaults("other")), (Strategy::PauseAndDrain, 10, 20, 3));
    // What is taken out again falls back at once.
    assert!(fallbacks.set_file(&said("strategy: {assessment: {deadline: 10s}}")));
    assert!(!fallbacks.set_file(&said("# the same\nstrategy: {assessment: {deadline: 10s}}")));
    assert!(fallbacks.set("ns", "a", "1", &map("type: no-strategy")).says.is_some());
    assert_eq!(seconds(fallbacks.defaults("ns")), (Strategy::NoStrategy, 10, 2, 3));
    assert_eq!(fallbacks.remove("ns", "a").says, Some(Fallback::default()));
    assert_eq!(seconds(fallbacks.defaults("ns")), (Strategy::Progressive, 10, 2, 3));
    assert_eq!(fallbacks.remove("ns", "a"), Difference::default());
}

#[test]
fn a_broken_edit_keeps_what_was_good_and_is_told_once() {
    let mut fallbacks = Fallbacks::new(built_in());
    fallbacks.set("ns", "a", "1", &map("assessment: {deadline: 100s}"));
    let broken = map("assessment: {deadline: soon}");
    let difference = fallbacks.set("ns", "a", "1", &broken);
    assert_eq!(difference.says, None);
    assert_eq!(
        difference.notices.iter().map(|notice| notice.text.as_str()).collect::<Vec<_>>(),
        ["ConfigMap ns/a, key \"strategy\", line 1: assessment.deadline: \"soon\" is not a duration: write a number \
          with a unit, like \"90s\", \"10m\" or \"1h30m\", from 0s to ten years (what it said before stays in use)"]
    );
    assert_eq!((deadline(&fallbacks), fallbacks.invalid().namespaces), (100, 1));
    assert_eq!(fallbacks.set("ns", "a", "1", &broken), Difference::default(), "told already");
    // One more mistake is one more thing to tell.
    assert_eq!(fallbacks.set("ns", "a", "1", &map("typ: x\nassessment: {deadline: soon}")).notices.len(), 2);
    fallbacks.set("ns", "a", "1", &map("assessment: {deadline: 101s}"));
    assert_eq!((deadline(&fallbacks), fallbacks.invalid().namespaces), (101, 0));
    assert_eq!(fallbacks.set("ns", "a", "1", &broken).notices.len(), 1, "it was good in between");
    // Removed, or made anew under the same name: nothing of it holds on.
    fallbacks.set("ns", "a", "2", &broken);
    assert_eq!((deadline(&fallbacks), fallbacks.invalid().namespaces), (1, 1));
    fallbacks.remove("ns", "a");
    assert_eq!((deadline(&fallbacks), fallbacks.invalid()), (1, Invalid::default()));
}

#[test]
fn one_that_was_never_good_says_nothing_and_says_so() {
    let mut fallbacks = Fallbacks::new(built_in());
    fallbacks.set_file(&said("strategy: {assessment: {deadline: 10s}}"));
    let difference = fallbacks.set("ns", "a", "1", &config_map(&[("upgradeStrategy", "canary")]));
    assert_eq!(
        difference.notices,
        [Notice {
            name: "a".to_owned(),
            uid: "1".to_owned(),
            text: "ConfigMap ns/a, key \"upgradeStrategy\": \"canary\" is not a strategy; use progressive, \
                   pause-and-drain or no-strategy (nothing of it is in use)"
                .to_owned(),
        }]
    );
    assert_eq!(deadline(&fallbacks), 10);
}

#[test]
fn of_several_config_maps_the_first_by_name_counts_and_the_others_are_told() {
    let mut fallbacks = Fallbacks::new(built_in());
    fallbacks.set("ns", "b", "1", &map("assessment: {deadline: 20s}"));
    let difference = fallbacks.set("ns", "a", "2", &map("assessment: {deadline: 10s}"));
    assert_eq!(deadline(&fallbacks), 10);
    assert_eq!(
        difference.notices,
        [Notice {
            name: "b".to_owned(),
            uid: "1".to_owned(),
            text:
                "ConfigMap ns/b: ConfigMap ns/a has the label namespace-level-config too, and counts because its name \
                   comes first; make one of the two (nothing of this one is in use)"
                    .to_owned(),
        }]
    );
    assert_eq!(fallbacks.invalid().namespaces, 1);
    // A broken edit of the first leaves it the first, and one that never was any good takes nothing from the others.
    fallbacks.set("ns", "a", "2", &map("assessment: {deadline: soon}"));
    assert_eq!((deadline(&fallbacks), fallbacks.invalid().namespaces), (10, 2));
    fallbacks.remove("ns", "a");
    assert_eq!((deadline(&fallbacks), fallbacks.invalid().namespaces), (20, 0));
    fallbacks.set("ns", "a", "3", &map("assessment: {deadline: soon}"));
    assert_eq!((deadline(&fallbacks), fallbacks.invalid().namespaces), (20, 1));
    assert_eq!(fallbacks.defaults("other"), built_in());
}

#[test]
fn a_file_that_breaks_is_counted_and_holds_on() {
    let mut fallbacks = Fallbacks::new(built_in());
    fallbacks.set_file(&said("strategy: {assessment: {deadline: 10s}}"));
    fallbacks.break_file();
    assert_eq!((deadline(&fallbacks), fallbacks.invalid().file), (10, 1));
    assert!(!fallbacks.set_file(&said("strategy: {assessment: {deadline: 10s}}")));
    assert_eq!(fallbacks.invalid(), Invalid::default());
}

#[test]
fn what_a_configuration_says_reads_as_it_is_written() {
    assert_eq!(Fallback::default().to_string(), "nothing");
    let all = says(Some(Strategy::NoStrategy), [Some(90), Some(0), None]);
    assert_eq!(all.to_string(), "type no-strategy, assessment.deadline 1m30s, assessment.window 0ms");
}

#[test]
fn a_config_map_full_of_mistakes_is_told_once_and_in_no_time() {
    let fault = |n: u64| Fault { key: None, line: Some(n), message: "no".to_owned() };
    let faults = Err((0..100_000).map(fault).collect());
    let begun = std::time::Instant::now();
    let mut fallbacks = Fallbacks::new(built_in());
    assert_eq!(fallbacks.set("ns", "a", "1", &faults).notices.len(), 100_000);
    assert_eq!(fallbacks.set("ns", "a", "1", &faults).notices, []);
    // In the square of their number it takes a minute; this is many times what it takes without optimisations.
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
