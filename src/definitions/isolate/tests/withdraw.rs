//! What the copy does not take from production: ports, addresses, names in DNS, volumes that stay.

use super::*;

fn service(spec: &str) -> Value {
    let text = format!("apiVersion: v1\nkind: Service\nmetadata: {{name: s}}\nspec: {spec}\n");
    the(&isolated(&with(&text)), "Service")["spec"].clone()
}

#[test]
fn an_isolated_service_cannot_be_reached_from_outside_and_takes_no_address_or_port() {
    for kind in ["NodePort", "LoadBalancer"] {
        let spec = service(&format!(
            "{{type: {kind}, selector: {{app: controller}}, clusterIP: 10.0.0.5, clusterIPs: [10.0.0.5], externalIPs: \
             [1.2.3.4], loadBalancerIP: 1.2.3.4, loadBalancerClass: c, loadBalancerSourceRanges: [0.0.0.0/0], \
             allocateLoadBalancerNodePorts: true, healthCheckNodePort: 30001, externalTrafficPolicy: Local, \
             sessionAffinity: ClientIP, internalTrafficPolicy: Local, ports: [{{name: a, port: 80, nodePort: 30002}}, \
             {{name: b, port: 81}}]}}"
        ));
        assert_eq!(
            spec,
            json!({
                "type": "ClusterIP",
                "selector": {"app": "controller-x-0a1b2c3d", "numaplane.numaproj.io/isolated": ID},
                "sessionAffinity": "ClientIP",
                "internalTrafficPolicy": "Local",
                "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}],
            })
        );
    }
    let addressed = service("{clusterIP: 10.0.0.5, externalIPs: [1.2.3.4]}");
    assert_eq!(addressed, json!({}), "without a type it is a ClusterIP as well");
}

#[test]
fn a_headless_service_stays_headless_and_an_external_name_stays_one() {
    assert_eq!(
        service("{clusterIP: None, clusterIPs: [None], selector: {app: controller}}")["clusterIP"],
        json!("None")
    );
    assert_eq!(service("{clusterIP: None, clusterIPs: [None]}")["clusterIPs"], json!(["None"]));
    let name = json!({"type": "ExternalName", "externalName": "example.com"});
    assert_eq!(service("{type: ExternalName, externalName: example.com}"), name);
}

#[test]
fn a_dns_name_that_leads_to_production_is_not_taken() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: s, annotations: \
                {external-dns.alpha.kubernetes.io/hostname: a.example.com, prometheus.io/scrape: 'true'}}\n";
    let rendered = isolated(&with(text));
    assert_eq!(the(&rendered, "Service")["metadata"]["annotations"], json!({"prometheus.io/scrape": "true"}));
}

#[test]
fn a_port_of_the_node_is_not_taken_from_production() {
    let ports = |more: &str| {
        let container = "ports: [{containerPort: 80, hostPort: 80}]";
        let spec = instead("image: \"numaflow:v1.8.3\"", container)
            .replace("serviceAccountName: sa", &format!("{more}initContainers: [{{name: i, {container}}}]"));
        let rendered = beside(&trusted(&spec), &[]).expect("it is trusted");
        let pod = the(&rendered, "Deployment")["spec"]["template"]["spec"].clone();
        (pod["containers"][0]["ports"].clone(), pod["initContainers"][0]["ports"].clone())
    };
    let (free, taken) = (json!([{"containerPort": 80}]), json!([{"containerPort": 80, "hostPort": 80}]));
    assert_eq!(ports(""), (free.clone(), free.clone()));
    assert_eq!(ports("hostNetwork: false\n      "), (free.clone(), free));
    assert_eq!(ports("hostNetwork: true\n      "), (taken.clone(), taken), "there it is the port of the container");
}

#[test]
fn volumes_of_an_isolated_stateful_set_go_with_it() {
    let set = "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: s}\nspec:\n  persistentVolumeClaimRetentionPolicy: \
               {whenDeleted: Retain}\n";
    let deleted = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    let policy =
        |text: &str| the(&isolated(&with(text)), "StatefulSet")["spec"]["persistentVolumeClaimRetentionPolicy"].clone();
    assert_eq!(policy(&format!("{set}  volumeClaimTemplates: [{{metadata: {{name: data}}}}]\n")), deleted);
    assert_eq!(policy(&format!("{set}  volumeClaimTemplates: []\n")), json!({"whenDeleted": "Retain"}), "no volumes");
}
