use serde_json::json;

use super::*;
use crate::{
    admission::{
        Looked, Verdict,
        fake::{Fake, definitions},
    },
    numaflow::{Dependant, Dependants},
    world::{Pinned, PinnedContent},
};

/// A review of an object of one of our kinds.
fn asked(kind: &str, object: Option<&Value>, old: Option<&Value>) -> Value {
    let operation = match (object, old) {
        (Some(_), None) => "CREATE",
        (Some(_), Some(_)) => "UPDATE",
        _ => "DELETE",
    };
    let name = object.or(old).and_then(|o| o["metadata"]["name"].as_str());
    json!({
        "uid": "u", "kind": {"group": GROUP, "version": "v1alpha1", "kind": kind},
        "resource": {"group": GROUP, "version": "v1alpha1", "resource": "x"},
        "name": name, "namespace": "team-a", "operation": operation, "object": object, "oldObject": old,
    })
}

/// A NumaflowControllerRollout that asks for this.
fn rollout(controller: &Value) -> Value {
    json!({"metadata": {"name": "r", "namespace": "team-a", "uid": "u-r"}, "spec": {"controller": controller}})
}

fn version(version: &str) -> Value {
    rollout(&json!({"version": version}))
}

fn create(object: &Value) -> Value {
    asked("NumaflowControllerRollout", Some(object), None)
}

fn update(object: &Value, old: &Value) -> Value {
    asked("NumaflowControllerRollout", Some(object), Some(old))
}

fn known() -> Fake {
    Fake::default().defining("ops", &[("1.8.3", "a"), ("1.9.0", "b")])
}

fn nothing() -> (Vec<String>, Vec<String>) {
    (Vec::new(), Vec::new())
}

fn refused(words: &[&str]) -> (Vec<String>, Vec<String>) {
    (words.iter().map(|&w| w.to_owned()).collect(), Vec::new())
}

#[test]
fn a_version_that_nobody_defines_is_refused_with_those_that_somebody_does() {
    let words = "spec.controller.version: version \"1.8.4\" is not defined (did you mean \"1.8.3\"?). Defined versions: 1.8.3, \
                 1.9.0 (looked in ops/defs). Set one of them, or add this version to a definitions ConfigMap";
    assert_eq!(known().said(&create(&version("1.8.4"))), refused(&[words]));
    assert_eq!(known().said(&update(&version("1.8.4"), &version("1.8.3"))), refused(&[words]));
    assert_eq!(known().said(&create(&version("1.8.3"))), nothing());
}

#[test]
fn all_that_is_wrong_is_said_in_one_answer() {
    let mut object = rollout(&json!({"version": "7", "instanceID": "NO"}));
    object["spec"]["strategy"] = json!({"type": "fast", "assessment": {"deadline": "5"}});
    let (violations, _) = known().said(&create(&object));
    let fields: Vec<&str> = violations.iter().map(|v| v.split(": ").next().unwrap()).collect();
    let expected = [
        "spec.controller.instanceID",
        "spec.strategy.type",
        "spec.strategy.assessment.deadline",
        "spec.controller.version",
    ];
    assert_eq!(fields, expected, "{violations:?}");
}

#[test]
fn what_leaves_the_version_alone_does_not_ask_for_it() {
    let (old, mut new) = (version("0.1"), version("0.1"));
    new["spec"]["paused"] = json!(true);
    new["spec"]["controller"]["instanceID"] = json!("");
    assert_eq!(known().said(&update(&new, &old)), nothing());
    assert!(known().judge(&update(&new, &old)).doubts.is_empty());
}

#[test]
fn updates_that_leave_the_spec_alone_deletions_and_what_is_being_deleted_are_never_stood_in_the_way_of() {
    let bad = rollout(&json!({"version": "", "instanceID": "NO"}));
    let mut edited = bad.clone();
    edited["metadata"]["annotations"] = json!({"numaplane.numaproj.io/retry": "1"});
    assert_eq!(known().said(&update(&edited, &bad)), nothing());
    assert_eq!(known().said(&asked("NumaflowControllerRollout", None, Some(&bad))), nothing());
    let mut leaving = bad.clone();
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    leaving["spec"]["controller"]["version"] = json!("worse");
    assert_eq!(known().said(&update(&leaving, &bad)), nothing());
    let mut connect = create(&bad);
    connect["operation"] = json!("CONNECT");
    assert_eq!(known().said(&connect), nothing());
    let mut status = update(&version("7"), &version("1.8.3"));
    status["subResource"] = json!("status");
    assert_eq!(known().said(&status), nothing());
    for kind in ["NumaflowController", "Pod"] {
        assert_eq!(known().said(&asked(kind, Some(&bad), None)), nothing());
    }
    let mut foreign = create(&bad);
    foreign["kind"]["group"] = json!("example.com");
    assert_eq!(known().said(&foreign), nothing());
}

#[test]
fn what_cannot_be_read_is_named_by_its_path() {
    for (object, words) in [
        (rollout(&json!({})), "spec.controller.version: is missing; set it"),
        (json!({"metadata": {"name": "r"}}), "spec: is missing; set it"),
        (
            rollout(&json!({"version": 1.8})),
            "spec.controller.version: invalid type: floating point `1.8`, expected a string",
        ),
        (json!({"metadata": {"name": 5}, "spec": {}}), "metadata.name: invalid type: integer `5`, expected a string"),
        (json!([]), "object: invalid length 0, expected struct NumaflowControllerRollout with 3 elements"),
    ] {
        let (violations, _) = known().said(&create(&object));
        assert_eq!(violations.len(), 1);
        let said = &violations[0];
        assert!(said == words || (words.starts_with("object") && said.starts_with("object: ")), "{said}");
    }
}

#[test]
fn a_status_that_cannot_be_read_is_not_the_fault_of_who_changes_the_spec() {
    let mut object = version("1.8.3");
    object["status"] = json!({"promoted": 5});
    assert_eq!(known().said(&update(&object, &version("1.9.0"))), nothing());
    object["spec"]["controller"] = json!({});
    assert_eq!(
        known().said(&update(&object, &version("1.9.0"))),
        refused(&["spec.controller.version: is missing; set it"])
    );
}

#[test]
fn a15_an_instance_that_somebody_has_or_asks_for_is_refused_whoever_is_older() {
    let words = |id: &str| {
        format!(
            "spec.controller.instanceID: instance {id:?} in this namespace belongs to NumaflowControllerRollout/x; choose \
             another instanceID or delete one of the two"
        )
    };
    let fake = known().rival("x", "", Some("a"));
    assert_eq!(fake.said(&create(&version("1.8.3"))), refused(&[&words("")]));
    let with = |id: &str| rollout(&json!({"version": "1.8.3", "instanceID": id}));
    assert_eq!(fake.said(&create(&with("b"))), nothing());
    assert_eq!(fake.said(&update(&with("a"), &with("b"))), refused(&[&words("a")]));
    assert!(fake.judge(&update(&with("a"), &with("b"))).doubts(About::Rollouts));
    // It is stored already: who comes first is for the operator to order.
    assert_eq!(fake.said(&update(&rollout(&json!({"version": "1.9.0", "instanceID": "a"})), &with("a"))), nothing());
    assert_eq!(known().rival("r", "", None).said(&create(&version("1.8.3"))), nothing(), "itself");
}

fn promoted(mut object: Value, instance: &str) -> Value {
    object["status"] = json!({"promoted": {"name": "r-0", "version": "1.8.3", "instanceID": instance}});
    object
}

#[test]
fn the_way_back_to_an_instance_that_it_has_is_free() {
    let with = |id: &str| promoted(rollout(&json!({"version": "1.8.3", "instanceID": id})), "a");
    let fake = known().rival("x", "a", None);
    assert_eq!(fake.said(&update(&with("a"), &with("b"))), nothing());
}

#[test]
fn an_instance_is_not_left_while_something_uses_it() {
    let with = |id: &str| promoted(rollout(&json!({"version": "1.8.3", "instanceID": id})), "a");
    let request = update(&with("b"), &with("a"));
    let judgement = known().judge(&request);
    assert!(judgement.doubts(About::Dependants) && judgement.violations.is_empty());
    assert_eq!(
        judgement.unchecked("no answer"),
        Verdict {
            violations: Vec::new(),
            warnings: vec![
                "spec.controller.instanceID: could not be checked; the operator checks it again (no answer)".into()
            ],
        }
    );
    let object = |name: &str, instance: &str| Dependant {
        kind: "Pipeline".to_owned(),
        name: name.to_owned(),
        instance: instance.to_owned(),
    };
    let knowing = |objects: Vec<Dependant>| {
        let dependants = Some(Dependants { unlisted: Vec::new(), objects });
        Fake { looked: Looked { dependants, ..Looked::default() }, ..known() }
    };
    let fake = knowing(vec![object("p", "a"), object("q", "")]);
    assert_eq!(
        fake.said(&request),
        refused(&[
            "spec.controller.instanceID: cannot change from \"a\" to \"b\" while Pipeline/p uses the old one; move or \
                   delete it first"
        ])
    );
    let fake = knowing(vec![object("q", "")]);
    assert_eq!(fake.said(&request), nothing());
    assert!(fake.judge(&request).doubts.iter().all(|doubt| doubt.about != About::Definitions));
}

#[test]
fn a_version_that_only_this_rollout_has_is_admitted_with_a_warning() {
    let data = [("k".to_owned(), definitions(&[("1.7.0", "x")]))].into();
    let parsed = crate::definitions::parse_config_map("ops", "old", &data);
    let request = update(&version("1.7.0"), &version("1.8.3"));
    let judgement = known().judge(&request);
    assert!(judgement.doubts(About::Revisions) && judgement.doubts(About::Definitions));
    assert!(!known().judge(&create(&version("1.7.0"))).doubts(About::Revisions), "what is new has pinned nothing");
    let words = "spec.controller.version: version \"1.7.0\" is not defined any more; the copy that this rollout has pinned is \
                 used";
    let definition = parsed.definitions[0].definition.clone();
    for content in [PinnedContent::Here(definition), PinnedContent::Secret("r-1".to_owned())] {
        let pinned = |owner: &str| {
            let (uid, version, content) = ("x".to_owned(), "1.7.0".to_owned(), content.clone());
            let revision = Pinned { uid, owner: owner.to_owned(), number: 1, version, content };
            let revisions = vec![("r-1".to_owned(), revision.into())];
            Fake { looked: Looked { revisions, ..Looked::default() }, ..known() }
        };
        assert_eq!(pinned("u-r").said(&request), (Vec::new(), vec![words.to_owned()]));
        assert_eq!(pinned("another").said(&request).0.len(), 1, "what another one has pinned is not its own");
    }
}

#[test]
fn the_way_back_to_what_runs_never_depends_on_a_config_map() {
    let fake = known();
    fake.define("ops", "twice", "k", &definitions(&[("1.8.3", "other")]));
    let back = |promoted: &str| {
        let mut object = version("1.8.3");
        object["status"] = json!({"observedGeneration": 2, "promoted": {"name": "a-0", "version": promoted}});
        update(&object, &version("1.7.0"))
    };
    let (violations, warnings) = fake.said(&back("1.8.3"));
    assert_eq!(violations, Vec::<String>::new());
    assert!(
        warnings[0].starts_with(
            "this version runs, from its pinned copy, and goes on; but spec.controller.version: version \"1.8.3\" is defined more \
             than once"
        ),
        "{warnings:?}"
    );
    assert_eq!(fake.said(&back("1.8.2")).0.len(), 1, "what does not run is not to be had");
}

#[test]
fn definitions_that_cannot_be_used_are_refused_with_what_is_wrong_with_them() {
    let fake = known();
    let text = "controllerDefinitions:\n- version: \"2\"\n- version: \"3\"\n  fullSpec: |\n    apiVersion: v1\n    kind: Secret\n    \
                metadata: {name: s}\n- version: \"4\"\n  fullSpec: |\n    apiVersion: v1\n    kind: ConfigMap\n    metadata: {name: \
                c, namespace: elsewhere}\n";
    fake.define("ops", "more", "k", text);
    fake.define("ops", "twice", "k", &definitions(&[("1.8.3", "other")]));
    for (asked, words) in [
        (
            "2",
            "spec.controller.version: version \"2\" is defined, but its definition is malformed: ConfigMap ops/more, key \"k\", \
             entry 1 (version \"2\"), line 2: the entry has no fullSpec (its fields are: version); add it. Mend it there, or set another version",
        ),
        ("3", "spec.controller.version: version \"3\": "),
        (
            "4",
            "spec.controller.version: version \"4\": ConfigMap/c: metadata.namespace is \"elsewhere\", but a definition is rendered into the \
             namespace of its rollout, \"team-a\"; remove the field from the definition",
        ),
        (
            "1.8.3",
            "spec.controller.version: version \"1.8.3\" is defined more than once with different content, in ConfigMap \
             ops/defs, key \"d.yaml\", entry 1, line 2 and ConfigMap ops/twice, key \"k\", entry 1, line 2; remove all but one",
        ),
    ] {
        let judgement = fake.judge(&create(&version(asked)));
        assert!(judgement.doubts(About::Definitions));
        let said: Vec<String> = judgement.verdict().violations.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1);
        assert!(
            said[0] == words || (asked == "3" && said[0].starts_with(words) && said[0].contains("Secret")),
            "{said:?}"
        );
    }
}

#[test]
fn in_a_namespace_that_is_not_served_nothing_is_judged() {
    let mut fake = known();
    fake.settings.namespaces = ["served".to_owned()].into();
    let words = "namespace \"team-a\" is not served by the operator of this webhook (--watch-namespace): it was not checked, \
                 and that operator does nothing for it";
    assert_eq!(fake.said(&create(&version("7"))), (Vec::new(), vec![words.to_owned()]));
}

#[test]
fn what_is_doubtful_and_cannot_be_read_is_admitted_and_what_is_certain_is_not() {
    let mut object = version("7");
    let judgement = known().judge(&create(&object));
    assert_eq!(
        judgement.unchecked("timeout"),
        Verdict {
            violations: Vec::new(),
            warnings: vec![
                "spec.controller.version: could not be checked; the operator checks it again (timeout)".into()
            ],
        }
    );
    object["spec"]["strategy"] = json!({"type": "fast"});
    let verdict = known().judge(&create(&object)).unchecked("timeout");
    assert_eq!(verdict.violations.len(), 1);
    assert_eq!(verdict.violations[0].field, "spec.strategy.type");
}

#[test]
fn the_other_kinds_are_judged_by_their_own_rules() {
    let ppnd = json!({"ppnd": {"drainTimeout": "-1s"}});
    let metadata = json!({"name": "p"});
    for (kind, spec) in [
        ("PipelineRollout", json!({"pipeline": {"spec": {}}, "strategy": ppnd})),
        ("ISBServiceRollout", json!({"interStepBufferService": {"spec": {}}, "strategy": ppnd})),
    ] {
        let (violations, _) = known().said(&asked(kind, Some(&json!({"metadata": metadata, "spec": spec})), None));
        assert!(violations.iter().any(|v| v.starts_with("spec.strategy.ppnd.drainTimeout: ")), "{violations:?}");
    }
    let (violations, _) =
        known().said(&asked("MonoVertexRollout", Some(&json!({"metadata": metadata, "spec": {}})), None));
    assert_eq!(violations, ["spec.monoVertex: is missing; set it"]);
}

#[test]
fn what_was_wrong_before_keeps_nobody_from_resuming_a_pipeline() {
    let pipeline = |to: &str, phase: &str| {
        let spec = json!({
            "interStepBufferServiceName": "default",
            "lifecycle": {"desiredPhase": phase},
            "vertices": [{"name": "in", "source": {"generator": {}}}, {"name": "out", "sink": {"log": {}}}],
            "edges": [{"from": "in", "to": to}],
        });
        json!({"metadata": {"name": "p", "namespace": "team-a"}, "spec": {"pipeline": {"spec": spec}}})
    };
    let ask = |new: &Value, old: Option<&Value>| known().said(&asked("PipelineRollout", Some(new), old));
    let wrong = |to: &str| {
        let hint = if to == "ouut" { " (did you mean \"out\"?)" } else { "" };
        format!("spec.pipeline.spec.edges[0].to: no vertex is called {to:?}{hint}")
    };
    let (paused, running) = (pipeline("ouut", "Paused"), pipeline("ouut", "Running"));
    assert_eq!(ask(&running, None).0, [wrong("ouut")]);
    let (violations, warnings) = ask(&running, Some(&paused));
    assert_eq!((violations, &warnings[0]), (Vec::new(), &format!("not usable, as before: {}", wrong("ouut"))));
    // Another mistake is a new one, and what cannot be read excuses nothing.
    assert_eq!(ask(&pipeline("outt", "Running"), Some(&paused)).0.len(), 1);
    assert_eq!(ask(&running, Some(&json!({"spec": 1}))).0, [wrong("ouut")]);
    // What is made anew has nothing before it, whatever a caller says.
    let mut made = asked("PipelineRollout", Some(&running), Some(&paused));
    made["operation"] = json!("CREATE");
    assert_eq!(known().said(&made).0, [wrong("ouut")]);
}

#[test]
fn what_was_wrong_before_keeps_nobody_from_going_back() {
    let rollout = |version: &str| {
        let mut rollout = self::version(version);
        rollout["spec"]["strategy"] = json!({"assessment": {"window": "30"}});
        rollout
    };
    let (violations, warnings) = known().said(&update(&rollout("1.8.3"), &rollout("1.9.0")));
    assert_eq!(violations, [""; 0]);
    assert!(warnings[0].starts_with("not usable, as before: spec.strategy.assessment.window: "), "{warnings:?}");
    assert_eq!(known().said(&update(&rollout("7"), &rollout("1.9.0"))).0.len(), 1);
}

#[test]
fn an_old_spec_that_no_parser_takes_keeps_nobody_from_mending_it() {
    let good = json!({"source": {"generator": {}}, "sink": {"log": {}}});
    let object = |spec: &Value| json!({"metadata": {"name": "m"}, "spec": {"monoVertex": {"spec": spec}}});
    let mut bad = good.clone();
    bad["more"] = json!("DEEP");
    let body = |new: &Value, old: &Value, levels: usize| {
        let request = asked("MonoVertexRollout", Some(new), Some(old));
        let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        let deep = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        crate::admission::review::read(body.to_string().replace("\"DEEP\"", &deep).as_bytes()).unwrap()
    };
    let fake = known();
    let verdict = |review: &Review| judge(review, &View::new(&fake.world, &fake.settings, &fake.looked)).verdict();
    for levels in [64, 128, 100_000] {
        let mended = verdict(&body(&object(&good), &object(&bad), levels));
        assert_eq!(mended, Verdict::default());
        let stored = verdict(&body(&object(&bad), &object(&good), levels));
        let words = "spec.monoVertex.spec.more: is nested more than 64 levels deep, which no field of Numaflow is; remove what \
                     does not belong there";
        assert_eq!(stored.violations.iter().map(ToString::to_string).collect::<Vec<_>>(), [words]);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_known_of_a_cluster_that_was_not_heard_of_for_long_is_looked_at_before_it_counts() {
    let known = known();
    let doubts = |known: &Fake| {
        let judgement = known.judge(&create(&version("1.8.3")));
        assert_eq!(judgement.clone().verdict(), Verdict::default());
        judgement.doubts.iter().map(|doubt| doubt.about).collect::<Vec<_>>()
    };
    known.world.config_maps.lost("ops");
    assert_eq!(doubts(&known), []);
    tokio::time::advance(std::time::Duration::from_secs(31)).await;
    assert_eq!(doubts(&known), [About::Definitions, About::Rollouts]);
    known.world.config_maps.heard("ops");
    assert_eq!(doubts(&known), []);
}
