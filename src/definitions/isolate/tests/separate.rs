//! Labels and selectors of the copy and of production.

use super::*;

fn policy(spec: &str) -> String {
    format!("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: policy}}\nspec: {spec}\n")
}

fn budget(selector: &str) -> String {
    format!(
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {{name: budget}}\nspec: {{selector: {selector}}}\n"
    )
}

fn service(selector: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: service}}\nspec: {{{selector}}}\n")
}

fn other(selector: &str, labels: &str) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: other}}\nspec: {{selector: {selector}, template: \
         {{metadata: {{labels: {labels}}}}}}}\n"
    )
}

/// The labels of the controller's pods.
fn labels(rendered: &Rendered) -> Value {
    the(rendered, "Deployment")["spec"]["template"]["metadata"]["labels"].clone()
}

#[test]
fn labels_that_selectors_of_production_use_get_values_of_their_own() {
    let part_of = |others: &[&str]| {
        let rendered = beside(&definition(CONTROLLER), others).expect("isolated");
        labels(&rendered)["part-of"].clone()
    };
    assert_eq!(part_of(&[]), "numaflow", "no selector asks for it");
    for selecting in [
        service("selector: {part-of: numaflow}"),
        service("selector: {part-of: another}"),
        budget("{matchLabels: {part-of: numaflow}}"),
        budget("{matchExpressions: [{key: part-of, operator: In, values: [numaflow]}]}"),
        policy("{podSelector: {matchLabels: {part-of: numaflow}}}"),
        other("{matchLabels: {part-of: numaflow}}", "{part-of: numaflow}"),
    ] {
        assert_eq!(part_of(&[&selecting]), "numaflow-x-0a1b2c3d", "{selecting}");
    }
}

#[test]
fn label_values_stay_valid_and_apart_whatever_they_are() {
    let longest = "v".repeat(63);
    let spec = instead("part-of: numaflow", &format!("part-of: {longest}, empty: '', nothing: null")).replace(
        "matchLabels: {app: controller}",
        &format!("matchLabels: {{app: controller, part-of: {longest}, empty: '', nothing: null}}"),
    );
    let rendered = isolated(&spec);
    let labels = labels(&rendered);
    assert_eq!((&labels["empty"], &labels["nothing"]), (&json!(ID), &json!(ID)));
    let cut = labels["part-of"].as_str().expect("a value");
    assert!(cut.len() == 63 && cut.starts_with("vvvv") && cut != longest, "{cut}");
    assert_eq!(the(&rendered, "Deployment")["spec"]["selector"]["matchLabels"], labels);
}

#[test]
fn every_way_to_select_is_followed() {
    let expressions = "matchExpressions: [{key: app, operator: In, values: [controller, x]}, {key: app, operator: NotIn, \
                       values: [w]}, {key: app, operator: Exists}, {key: z, operator: DoesNotExist}]";
    let rendered = isolated(&instead("matchLabels: {app: controller}", expressions));
    assert_eq!(
        the(&rendered, "Deployment")["spec"]["selector"],
        json!({
            "matchExpressions": [
                {"key": "app", "operator": "In", "values": ["controller-x-0a1b2c3d", "x-x-0a1b2c3d"]},
                {"key": "app", "operator": "NotIn", "values": ["w-x-0a1b2c3d"]},
                {"key": "app", "operator": "Exists"},
                {"key": "z", "operator": "DoesNotExist"},
            ],
            "matchLabels": {LABEL_ISOLATED: ID},
        })
    );
}

#[test]
fn an_isolated_service_sends_nothing_to_production_and_finds_its_own_pods() {
    let rendered = isolated(&with(&service("selector: {app: controller}")));
    let selector = the(&rendered, "Service")["spec"]["selector"].clone();
    assert_eq!(selector, json!({"app": "controller-x-0a1b2c3d", LABEL_ISOLATED: ID}));
    for none in ["", "selector: null", "selector: {}"] {
        let rendered = isolated(&with(&service(none)));
        let selector = the(&rendered, "Service")["spec"].get("selector").cloned().unwrap_or(Value::Null);
        assert!(selector.is_null() || selector == json!({}), "{none:?} stays without: {selector}");
    }
}

#[test]
fn an_isolated_network_policy_does_not_act_on_production_even_if_it_is_for_every_pod() {
    let spec = with(&policy("{podSelector: {}}"));
    let mut production = Footprint::default();
    production.add("apps", "Deployment", "other", &json!({}));
    for text in [
        spec.clone(),
        spec.replace("spec: {podSelector: {}}\n", ""),
        spec.replace("{podSelector: {}}", "{podSelector: null}"),
    ] {
        let rendered = isolate(&definition(&text), ID, &permitted(), &production).expect("isolated");
        let selector = &the(&rendered, "NetworkPolicy")["spec"]["podSelector"];
        assert_eq!(*selector, json!({"matchLabels": {LABEL_ISOLATED: ID}}));
    }
}

#[test]
fn a_selector_of_production_that_takes_the_isolated_pods_as_well_is_named() {
    let beside = |other: &str| beside(&definition(CONTROLLER), &[other]).expect_err(other);
    for (selecting, object, shown) in [
        (budget("{}"), "PodDisruptionBudget \"budget\"", "spec.selector: everything"),
        (policy("{podSelector: {}}"), "NetworkPolicy \"policy\"", "spec.podSelector: everything"),
        (policy("{policyTypes: [Ingress]}"), "NetworkPolicy \"policy\"", "spec.podSelector: everything"),
        (
            budget("{matchExpressions: [{key: app, operator: Exists}]}"),
            "PodDisruptionBudget \"budget\"",
            "spec.selector: app",
        ),
        (
            budget("{matchExpressions: [{key: app, operator: NotIn, values: [other]}]}"),
            "PodDisruptionBudget \"budget\"",
            "spec.selector: app notin (other)",
        ),
        (
            other("{matchExpressions: [{key: z, operator: DoesNotExist}]}", "{}"),
            "Deployment \"other\"",
            "spec.selector: !z",
        ),
        (budget("everything"), "PodDisruptionBudget \"budget\"", "spec.selector: everything"),
        (service("selector: 5"), "Service \"service\"", "spec.selector: everything"),
    ] {
        let error = beside(&selecting);
        assert!(
            error.starts_with(&format!(
                "{object} of production would act on the isolated pods of Deployment \"controller-x-0a1b2c3d\" as \
                 well (its {shown}); "
            )),
            "{error}"
        );
    }
    // It is the same with a selector of this very definition.
    assert!(refusal(&with(&policy("{podSelector: {}}"))).starts_with("NetworkPolicy \"policy\" of production"));
}

#[test]
fn a_budget_that_selects_nothing_and_one_of_other_pods_are_not_in_the_way() {
    for fine in [
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: b}\nspec: {minAvailable: 1}\n".to_owned(),
        budget("{matchLabels: {app: controller}}"),
        budget("{matchExpressions: [{key: z, operator: Exists}]}"),
        budget("{matchExpressions: [{key: part-of, operator: NotIn, values: [numaflow]}, {key: z, operator: Exists}]}"),
    ] {
        beside(&definition(CONTROLLER), &[&fine]).expect(&fine);
    }
}

#[test]
fn a_policy_lets_in_the_copys_own_pods_instead_of_productions() {
    let rendered = isolated(&with(&policy(
        "{podSelector: {matchLabels: {app: controller}}, ingress: [{from: [{podSelector: {matchLabels: {app: \
         controller}}}, {podSelector: {matchLabels: {app: prometheus}}}, {podSelector: {}}, {namespaceSelector: {}}]}], \
         egress: [{}, {to: [{podSelector: {matchExpressions: [{key: app, operator: In, values: [controller, nats]}]}}]}]}",
    )));
    let spec = &the(&rendered, "NetworkPolicy")["spec"];
    assert_eq!(
        spec["ingress"][0]["from"],
        json!([
            {"podSelector": {"matchLabels": {"app": "controller-x-0a1b2c3d"}}},
            {"podSelector": {"matchLabels": {"app": "prometheus"}}},
            {"podSelector": {}},
            {"namespaceSelector": {}},
        ])
    );
    assert_eq!(
        spec["egress"][1]["to"][0]["podSelector"]["matchExpressions"][0]["values"],
        json!(["controller-x-0a1b2c3d", "nats-x-0a1b2c3d"])
    );
}

#[test]
fn isolated_pods_keep_away_from_each_other_and_not_from_productions() {
    let term = "{labelSelector: {matchLabels: {app: controller}}, topologyKey: host}";
    let everything = "{labelSelector: {}, topologyKey: host}";
    let foreign = "{labelSelector: {matchLabels: {app: nats}}, topologyKey: host}";
    let affinity = |kind: &str| {
        format!(
            "{kind}: {{requiredDuringSchedulingIgnoredDuringExecution: [{term}, {everything}, {foreign}], \
             preferredDuringSchedulingIgnoredDuringExecution: [{{weight: 1, podAffinityTerm: {term}}}]}}"
        )
    };
    let spec = instead(
        "serviceAccountName: sa",
        &format!(
            "affinity: {{{}, {}}}\n      topologySpreadConstraints: [{term}, {foreign}]",
            affinity("podAffinity"),
            affinity("podAntiAffinity")
        ),
    );
    // Production's own term that keeps every pod away is refused, so beside another production alone.
    let mut production = Footprint::default();
    production.add("apps", "Deployment", "x", &json!({"spec": {"selector": {"matchLabels": {"app": "y"}}}}));
    let rendered = isolate(&definition(&spec), ID, &permitted(), &production).expect("isolated");
    let pod = &the(&rendered, "Deployment")["spec"]["template"]["spec"];
    let of = |kind: &str, list: &str, path: &str| {
        let terms = pod["affinity"][kind][list].as_array().expect("terms").clone();
        terms
            .iter()
            .map(|term| term.pointer(&format!("{path}/labelSelector")).expect("one").clone())
            .collect::<Vec<_>>()
    };
    let (required, preferred) =
        ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
    let own = json!({"matchLabels": {"app": "controller-x-0a1b2c3d"}});
    let apart = json!({"matchLabels": {"app": "controller-x-0a1b2c3d", LABEL_ISOLATED: ID}});
    let nats = json!({"matchLabels": {"app": "nats"}});
    assert_eq!(of("podAffinity", required, ""), [own.clone(), json!({}), nats.clone()]);
    assert_eq!(of("podAffinity", preferred, "/podAffinityTerm"), std::slice::from_ref(&own));
    let all_apart = json!({"matchLabels": {LABEL_ISOLATED: ID}});
    assert_eq!(of("podAntiAffinity", required, ""), [apart.clone(), all_apart, nats.clone()]);
    assert_eq!(of("podAntiAffinity", preferred, "/podAffinityTerm"), [apart]);
    let spread = &pod["topologySpreadConstraints"];
    assert_eq!((&spread[0]["labelSelector"], &spread[1]["labelSelector"]), (&own, &nats));
}

#[test]
fn production_pods_find_no_node_taken_by_isolated_ones_that_they_must_not_share_it_with() {
    let apart = |selector: &str| {
        format!(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: other}}\nspec: {{template: {{spec: {{affinity: \
             {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{labelSelector: {selector}, \
             topologyKey: host}}]}}}}}}}}}}\n"
        )
    };
    let rendered = beside(&definition(CONTROLLER), &[&apart("{matchLabels: {part-of: numaflow}}")]).expect("isolated");
    assert_eq!(labels(&rendered)["part-of"], "numaflow-x-0a1b2c3d");
    let error = beside(&definition(CONTROLLER), &[&apart("{}")]).expect_err("every pod");
    assert!(error.starts_with("Deployment \"other\" of production would act on the isolated pods"), "{error}");
    assert!(error.contains("(its podAntiAffinity: everything)"), "{error}");
    beside(&definition(CONTROLLER), &[&apart("null")]).expect("a term without selector is about no pod");
}

#[test]
fn who_writes_the_operators_label_into_selectors_is_told_that_it_is_not_theirs() {
    let none = "matchExpressions: [{key: numaplane.numaproj.io/isolated, operator: DoesNotExist}]";
    let refused =
        |spec: &str| isolate(&definition(spec), ID, &permitted(), &Footprint::default()).expect_err(spec).to_string();
    let error = refused(&instead("matchLabels: {app: controller}", none));
    assert!(error.starts_with("Deployment \"controller\": its selector (!numaplane.numaproj.io/isolated) does not"));
    assert!(error.contains("leave numaplane.numaproj.io/isolated to the operator"), "{error}");
    let error = refused(&with(&policy(&format!("{{podSelector: {{{none}}}}}"))));
    assert!(error.starts_with("NetworkPolicy \"policy\" would not select the pods of Deployment"), "{error}");
    assert!(error.contains("take numaplane.numaproj.io/isolated out of selectors"), "{error}");
    let label = "app: controller, numaplane.numaproj.io/isolated: mine";
    let rendered = isolated(&CONTROLLER.replace("{app: controller", &format!("{{{label}")));
    assert_eq!(labels(&rendered)[LABEL_ISOLATED], ID);
}

#[test]
fn a_selector_that_matches_in_one_instance_only_is_found_before_the_server_refuses_it() {
    let spec = instead("matchLabels: {app: controller}", "matchLabels: {instance: ''}")
        .replace("part-of: numaflow", "instance: '{{ .InstanceID }}'");
    let error = refusal(&spec);
    assert!(
        error.starts_with("Deployment \"controller-x-0a1b2c3d\": its selector (instance=) does not match"),
        "{error}"
    );
}

#[test]
fn a_selector_that_nobody_could_read_is_refused_with_its_place() {
    let definition = definition(&with(&service("selector: {app: 5}")));
    let error = isolate(&definition, ID, &permitted(), &Footprint::default()).expect_err("a number").to_string();
    assert_eq!(error, "Service \"service\": spec.selector is not a selector; correct it");
    for (of, with, place) in [
        ("matchLabels: {app: controller}", "matchLabels: []", "Deployment \"controller\": spec.selector"),
        ("labels: {app: controller, part-of: numaflow}", "labels: [a]", "Deployment \"controller\": the labels"),
        ("labels: {app: controller}}", "labels: [a]}", "Deployment \"controller\": metadata.labels is not a map"),
    ] {
        let definition = self::definition(&instead(of, with));
        let error = isolate(&definition, ID, &permitted(), &Footprint::default()).expect_err(with).to_string();
        assert!(error.starts_with(place), "{error}");
    }
}

#[test]
fn an_exported_manifest_does_not_make_the_copy_look_like_production() {
    let spec =
        instead("labels: {app: controller}}", "labels: {numaplane.numaproj.io/tracking-id: r, app: controller}}");
    assert_eq!(
        the(&isolated(&spec), "Deployment")["metadata"]["labels"],
        json!({"app": "controller", LABEL_ISOLATED: ID})
    );
}

#[test]
fn pods_without_labels_are_marked_too() {
    for metadata in ["", "metadata: {}, ", "metadata: null, ", "metadata: {labels: null}, "] {
        let spec = with(&format!(
            "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {{name: bare}}\nspec: {{template: {{{metadata}spec: {{}}}}}}\n"
        ));
        let rendered = isolated(&spec);
        assert_eq!(
            the(&rendered, "DaemonSet")["spec"]["template"]["metadata"]["labels"],
            json!({LABEL_ISOLATED: ID}),
            "{metadata}"
        );
    }
}
