//! Takes back what would make isolated objects reachable from outside of the cluster, or take something that there is
//! only once.

use serde_json::{Map, Value, json};

use crate::definitions::{
    objects::Object,
    pods::{self, CONTAINERS},
    references::SERVICE,
};

/// Fields of a Service's spec that only make sense for one that is reached from outside.
const OUTSIDE: [&str; 7] = [
    "externalIPs",
    "loadBalancerIP",
    "loadBalancerClass",
    "loadBalancerSourceRanges",
    "allocateLoadBalancerNodePorts",
    "healthCheckNodePort",
    "externalTrafficPolicy",
];
/// Annotations with this prefix have a DNS name lead to a Service, whatever its type.
const DNS_NAMES: &str = "external-dns.";

/// Changes `object` so that it takes nothing that production may have.
pub(super) fn withdraw(object: &mut Object) {
    if object.key.is_of(SERVICE) {
        if let Some(annotations) = object.body.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
            annotations.retain(|name, _| !name.starts_with(DNS_NAMES));
        }
        if let Some(spec) = object.body.get_mut("spec").and_then(Value::as_object_mut) {
            service(spec);
        }
    }
    if object.key.is_of(("apps", "StatefulSet")) {
        // The copy's volumes would otherwise be there for ever: nobody else knows their names.
        let claims = !pods::items(object.body.get("spec").unwrap_or(&Value::Null), "volumeClaimTemplates").is_empty();
        if claims && let Some(spec) = object.body.get_mut("spec").and_then(Value::as_object_mut) {
            let policy = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
            spec.insert("persistentVolumeClaimRetentionPolicy".to_owned(), policy);
        }
    }
    let fields = pods::template_fields(&object.key.group, &object.key.kind);
    let spec = fields.and_then(|fields| {
        fields.iter().chain(&["spec"]).try_fold(&mut object.body, |value, field| value.get_mut(field))
    });
    if let Some(spec) = spec {
        host_ports(spec);
    }
}

fn service(spec: &mut Map<String, Value>) {
    if spec.get("type").is_some_and(|kind| kind == "NodePort" || kind == "LoadBalancer") {
        spec.insert("type".to_owned(), json!("ClusterIP"));
    }
    for field in OUTSIDE {
        spec.remove(field);
    }
    // "None" is no address but the wish to have none.
    if spec.get("clusterIP").is_some_and(|address| address != "None") {
        spec.remove("clusterIP");
    }
    if spec.get("clusterIPs").is_some_and(|addresses| *addresses != json!(["None"])) {
        spec.remove("clusterIPs");
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            port.remove("nodePort");
        }
    }
}

fn host_ports(spec: &mut Value) {
    // There every port is one of the node, and the server wants both numbers to be the same.
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        return;
    }
    for list in CONTAINERS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(port) = port.as_object_mut() {
                    port.remove("hostPort");
                }
            }
        }
    }
}
