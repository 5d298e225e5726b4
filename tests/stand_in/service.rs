//! One pass over an InterStepBufferService: its StatefulSet, and what is said of it.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use kube::{ResourceExt, api::DynamicObject};
use serde_json::{Value, json};

use super::{
    kinds::Kind,
    knobs::Knobs,
    view::{
        After, Draft, HASH, Pass, SERVICE_NAME, Step, asked, finalizer, generation, going, hash, in_group, inherited,
        instance, labels, number, owner, text,
    },
};

/// What is seen in a pass.
pub struct Look<'a> {
    /// The InterStepBufferService.
    pub service: &'a DynamicObject,
    /// Its StatefulSet.
    pub set: Option<&'a DynamicObject>,
    /// How many pipelines use it.
    pub pipelines: usize,
    /// The image of each version, as configured.
    pub images: &'a BTreeMap<String, String>,
    /// The instance of the controller.
    pub instance: &'a str,
    /// The time.
    pub now: Timestamp,
}

/// The StatefulSet of an InterStepBufferService.
pub fn set_name(service: &str) -> String {
    format!("isbsvc-{service}-js")
}

/// What is to be done about an InterStepBufferService.
pub fn pass(look: &Look) -> Pass {
    let Look { service, now, .. } = *look;
    let (name, knobs) = (service.name_any(), asked(service));
    if instance(service) != look.instance || knobs.silent {
        return Pass::NOTHING;
    }
    let mut draft = Draft::new(service, &["ChildrenResourcesHealthy", "Configured", "Deployed"]);
    let write =
        |draft: Draft| Step::Status(Kind::Service, service.name_any(), draft.finish(generation(service), now).into());
    let mine = in_group("isbsvc-controller");
    if going(service) {
        let Some(release) = finalizer(Kind::Service, service, &mine, false) else { return Pass::NOTHING };
        if look.pipelines == 0 {
            let steps = vec![Step::Delete(Kind::StatefulSet, set_name(&name)), release];
            return Pass { steps, after: After::Rest };
        }
        let message =
            format!("can not delete InterStepBufferService {name:?} which has {} pipelines connected", look.pipelines);
        draft.phase("Deleting", &message);
        for condition in ["ChildrenResourcesHealthy", "Configured", "Deployed"] {
            draft.condition(condition, true, "Successful", "");
        }
        return Pass { steps: vec![write(draft)], after: After::Retry };
    }
    let mut steps = Vec::new();
    steps.extend(finalizer(Kind::Service, service, &mine, true));
    let replicas = number(service, "/spec/jetstream/replicas").unwrap_or(3);
    let version = text(service, "/spec/jetstream/version");
    if version.is_empty() || replicas <= 0 || replicas == 2 {
        let message = "invalid spec: \"spec.jetstream\" needs a version, and any replicas but 2";
        draft.phase("Failed", message);
        draft.condition("Configured", false, "InvalidSpec", message);
        steps.push(write(draft));
        return Pass { steps, after: After::Retry };
    }
    draft.condition("Configured", true, "Successful", "");
    draft.set("type", "jetstream");
    let wanted = look.images.get(version).map(|image| statefulset(service, replicas, image, &knobs));
    let deployed = match (&wanted, look.set) {
        (None, _) => Err(format!("no jetstream configuration found for {version:?}")),
        (Some(wanted), Some(set)) if persistence(&wanted["metadata"]["annotations"][KEPT]) != kept(set) => {
            Err("failed to update jetstream StatefulSet: updates to statefulset spec for fields other than \
                 'replicas', 'template' and a few more are forbidden"
                .to_owned())
        }
        (Some(wanted), _) => Ok(wanted),
    };
    let wanted = match deployed {
        Ok(wanted) => wanted,
        Err(message) => {
            draft.phase("Failed", &message);
            draft.condition("Deployed", false, "JetStreamStatefulSetFailed", &message);
            steps.push(write(draft));
            return Pass { steps, after: After::Retry };
        }
    };
    draft.condition("Deployed", true, "Successful", "");
    draft.phase("Running", "");
    let made_from = wanted["metadata"]["annotations"][HASH].as_str();
    let applied = look.set.and_then(|set| set.annotations().get(HASH)).map(String::as_str);
    let changed = applied != made_from;
    if changed {
        steps.push(Step::Apply(Kind::StatefulSet, set_name(&name), wanted.clone()));
        if !knobs.stale_health.is_zero() && look.set.is_some() {
            let mut stale = draft.clone();
            stale.condition("ChildrenResourcesHealthy", true, "Healthy", "");
            steps.push(write(stale));
            steps.push(Step::Wait(knobs.stale_health.min(Duration::from_mins(1))));
        }
    }
    let (healthy, reason, message) = if knobs.unhealthy {
        (false, "Unavailable", "Waiting for 2 pods to be ready...".to_owned())
    } else {
        health(look.set.filter(|_| !changed), replicas)
    };
    draft.condition("ChildrenResourcesHealthy", healthy, reason, &message);
    steps.push(write(draft));
    Pass { steps, after: After::Rest }
}

fn health(set: Option<&DynamicObject>, replicas: i64) -> (bool, &'static str, String) {
    let Some(set) = set.filter(|set| number(set, "/status/observedGeneration") >= set.metadata.generation) else {
        return (false, "Progressing", "Waiting for statefulset spec update to be observed...".to_owned());
    };
    let update = text(set, "/status/updateRevision");
    if update != text(set, "/status/currentRevision") {
        let updated = number(set, "/status/updatedReplicas").unwrap_or_default();
        let words =
            format!("waiting for statefulset rolling update to complete {updated} pods at revision {update}...");
        return (false, "Progressing", words);
    }
    let majority = replicas / 2 + 1;
    let ready = number(set, "/status/readyReplicas").unwrap_or_default();
    if ready < majority {
        return (false, "Unavailable", format!("Waiting for {} pods to be ready...", majority - ready));
    }
    (true, "Healthy", String::new())
}

/// What of a StatefulSet cannot be changed.
const KEPT: &str = "stand-in.numaflow/persistence";

fn kept(set: &DynamicObject) -> String {
    set.annotations().get(KEPT).cloned().unwrap_or_default()
}

fn persistence(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn statefulset(service: &DynamicObject, replicas: i64, image: &str, knobs: &Knobs) -> Value {
    let name = service.name_any();
    let labels = labels(
        "isbsvc",
        "isbsvc-controller",
        &[(SERVICE_NAME, &name), ("numaflow.numaproj.io/isbsvc-type", "jetstream")],
    );
    let jetstream = service.data.pointer("/spec/jetstream").cloned().unwrap_or_default();
    let mut template_of = jetstream.clone();
    template_of.as_object_mut().map(|fields| fields.remove("version"));
    // No volumes: nobody would provide them. What is asked of them is kept all the same.
    let persistence = jetstream.get("persistence").map(Value::to_string).unwrap_or_default();
    let mut spec = json!({
        "replicas": replicas,
        "serviceName": format!("{}-svc", set_name(&name)),
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": {"stand-in.numaflow/of": hash(&template_of)}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": image}]},
        },
    });
    let mut annotations = inherited(service);
    annotations.insert(HASH.to_owned(), hash(&spec).into());
    // How its pods behave comes along with a roll, and is no reason for one.
    if let Some(template) = spec["template"]["metadata"]["annotations"].as_object_mut() {
        template.extend(knobs.of_pods());
    }
    annotations.insert(KEPT.to_owned(), persistence.into());
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": set_name(&name),
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": owner(Kind::Service, service),
        },
        "spec": spec,
    })
}
