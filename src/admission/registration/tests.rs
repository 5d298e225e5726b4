use serde_json::json;

use super::*;

#[test]
fn nothing_but_what_is_ours_is_asked_about() {
    for hook in json!(configuration(&Target::default()))["webhooks"].as_array().unwrap() {
        let rule = &hook["rules"][0];
        for list in ["apiGroups", "apiVersions", "resources", "operations"] {
            for value in rule[list].as_array().unwrap() {
                assert!(!value.as_str().unwrap().contains(['*', '/']), "{list}: {value}");
            }
        }
        assert_eq!(rule["scope"], "Namespaced");
        assert_eq!((&hook["sideEffects"], &hook["matchPolicy"]), (&json!("None"), &json!("Equivalent")));
        assert!(hook["timeoutSeconds"].as_i64().unwrap() <= 10);
    }
}

#[test]
fn config_maps_are_never_held_up_and_asked_about_only_where_they_have_the_label() {
    let configuration = json!(configuration(&Target::default()));
    let hook = &configuration["webhooks"][1];
    assert_eq!(hook["failurePolicy"], "Ignore");
    let selector = json!({"matchExpressions": [{"key": "numaplane.numaproj.io/config", "operator": "Exists"}]});
    assert_eq!(hook["objectSelector"], selector);
    assert_eq!(configuration["webhooks"][0]["failurePolicy"], "Fail");
}

#[test]
fn a_process_outside_of_the_cluster_is_found_by_its_url() {
    let target = Target { namespace: "ops".to_owned(), address: Address::Url("https://127.0.0.1:9443/".to_owned()) };
    let configuration = json!(configuration(&target));
    assert_eq!(
        configuration["webhooks"][0]["clientConfig"],
        json!({"url": "https://127.0.0.1:9443/validate/rollouts"})
    );
    assert_eq!(
        configuration["webhooks"][0]["matchConditions"][0]["expression"],
        "!(request.userInfo.username in ['system:serviceaccount:ops:numaplane', \
         'system:serviceaccount:ops:numaplane-webhook'])"
    );
}
