//! Versions of a controller as a platform team would write them, made to order.

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};

use super::team::Team;

/// A version: service account, rights, configuration and one Deployment, unless changed.
#[derive(Clone, Debug)]
pub struct Version {
    version: String,
    workloads: Vec<Workload>,
    objects: Vec<Value>,
    padding: usize,
    /// Fields of the entry besides version and fullSpec.
    settings: Vec<String>,
}

/// A Deployment of a version.
#[derive(Clone, Debug)]
pub struct Workload {
    body: Value,
}

/// A version with one Deployment, `numaflow-controller`, and what belongs to it.
pub fn version(version: &str) -> Version {
    let controller = workload("numaflow-controller").image(&format!("quay.io/numaproj/numaflow:v{version}"));
    let objects = vec![service_account(), role(), role_binding(), configuration()];
    Version { version: version.to_owned(), workloads: vec![controller], objects, padding: 0, settings: Vec::new() }
}

impl Version {
    /// Changes its first Deployment.
    #[must_use]
    pub fn controller(mut self, change: impl FnOnce(Workload) -> Workload) -> Self {
        let first = self.workloads.remove(0);
        self.workloads.insert(0, change(first));
        self
    }

    /// Adds a Deployment.
    #[must_use]
    pub fn and(mut self, workload: Workload) -> Self {
        self.workloads.push(workload);
        self
    }

    /// Adds any other object.
    #[must_use]
    pub fn object(mut self, object: Value) -> Self {
        self.objects.push(object);
        self
    }

    /// Adds the second ConfigMap that Numaflow's own manifests have: six objects, as there.
    #[must_use]
    pub fn whole(self) -> Self {
        self.object(json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "numaflow-cmd-params-config{{ .InstanceSuffix }}"},
            "data": {"namespaced": "true"},
        }))
    }

    /// Says of itself that it cannot be isolated: it is judged in production then.
    #[must_use]
    pub fn not_isolated(self) -> Self {
        self.setting("isolated: false")
    }

    /// Says of itself that it elects no leader.
    #[must_use]
    pub fn without_leader(self) -> Self {
        self.setting("leaderElection: false")
    }

    /// Has these versions of an InterStepBufferService, each with its image.
    #[must_use]
    pub fn nats(mut self, versions: &[(&str, &str)]) -> Self {
        let lines: String =
            versions.iter().map(|(v, i)| format!("    - {{version: \"{v}\", natsImage: \"{i}\"}}\n")).collect();
        let text = format!("instance: \"{{{{ .InstanceID }}}}\"\nisbsvc:\n  jetstream:\n    versions:\n{lines}");
        let maps = self.objects.iter_mut().filter(|o| o["data"]["controller-config.yaml"].is_string());
        maps.for_each(|map| map["data"]["controller-config.yaml"] = text.clone().into());
        self
    }

    fn setting(mut self, line: &str) -> Self {
        self.settings.push(line.to_owned());
        self
    }

    /// Adds comments of this length.
    #[must_use]
    pub fn padding(mut self, bytes: usize) -> Self {
        self.padding = bytes;
        self
    }

    /// The text of `fullSpec`.
    pub fn full_spec(&self) -> String {
        let workloads = self.workloads.iter().map(|w| &w.body);
        let documents: Vec<String> = self
            .objects
            .iter()
            .chain(workloads)
            .map(|object| serde_json::to_string_pretty(object).expect("an object is JSON, which is YAML"))
            .collect();
        format!("{}{}\n", comments(self.padding), documents.join("\n---\n"))
    }
}

/// YAML comments of about this length.
pub fn comments(bytes: usize) -> String {
    let line = "# What the platform team thinks about this version, at some length, as it does about all of them.\n";
    line.repeat(bytes.div_ceil(line.len()))
}

/// A Deployment of one replica. Only the controller's runs a controller; the others are what Numaflow has besides it.
pub fn workload(name: &str) -> Workload {
    let runs = if name == "numaflow-controller" { "controller" } else { name };
    let full = format!("{name}{{{{ .InstanceSuffix }}}}");
    let labels = json!({"app.kubernetes.io/part-of": "numaflow", "app.kubernetes.io/name": full});
    Workload {
        body: json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": full},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "serviceAccountName": "numaflow-sa{{ .InstanceSuffix }}",
                        "containers": [{
                            "name": "controller-manager",
                            "image": "quay.io/numaproj/numaflow:latest",
                            "args": [runs],
                            "volumeMounts": [{"name": "controller-config", "mountPath": "/etc/numaflow"}],
                        }],
                        "volumes": [{
                            "name": "controller-config",
                            "configMap": {"name": "numaflow-controller-config{{ .InstanceSuffix }}"},
                        }],
                    },
                },
            },
        }),
    }
}

impl Workload {
    /// Adds these fields; `null` removes one.
    #[must_use]
    pub fn with(mut self, fields: Value) -> Self {
        merge(&mut self.body, fields);
        self
    }

    /// Adds these fields to its container.
    #[must_use]
    pub fn container_with(mut self, fields: Value) -> Self {
        merge(&mut self.body["spec"]["template"]["spec"]["containers"][0], fields);
        self
    }

    /// Gives it another name; its labels stay.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        self.with(json!({"metadata": {"name": format!("{name}{{{{ .InstanceSuffix }}}}")}}))
    }

    /// Gives its container another name.
    #[must_use]
    pub fn container_named(self, name: &str) -> Self {
        self.container_with(json!({"name": name}))
    }

    /// Gives its container another image.
    #[must_use]
    pub fn image(self, image: &str) -> Self {
        self.container_with(json!({"image": image}))
    }

    /// Gives its container these environment variables.
    #[must_use]
    pub fn env(self, name: &str, value: &str) -> Self {
        self.container_with(json!({"env": [{"name": name, "value": value}]}))
    }

    /// Adds a label to the pods alone.
    #[must_use]
    pub fn pod_label(self, name: &str, value: &str) -> Self {
        self.with(json!({"spec": {"template": {"metadata": {"labels": {name: value}}}}}))
    }

    /// Adds a label to pods and selector.
    #[must_use]
    pub fn selected_by(self, name: &str, value: &str) -> Self {
        self.with(json!({"spec": {"selector": {"matchLabels": {name: value}}}})).pod_label(name, value)
    }

    /// Lets the simulated pods behave: `never-ready`, `image-pull`, `crash-loop`.
    #[must_use]
    pub fn behaviour(self, behaviour: &str) -> Self {
        self.pod_label("numaplane.test/behaviour", behaviour)
    }

    /// Lets the simulated pods become ready late.
    #[must_use]
    pub fn ready_after(self, seconds: u32) -> Self {
        self.pod_label("numaplane.test/ready-after", &seconds.to_string())
    }

    /// Lets the simulated pods never take the lease of their instance, as if their processes hung.
    #[must_use]
    pub fn takes_no_lease(self) -> Self {
        self.pod_label("numaplane.test/lease", "none")
    }

    /// Lets the processes of the simulated pods live on, and renew their lease, for so long after their pods are gone.
    #[must_use]
    pub fn lingers(self, seconds: u32) -> Self {
        self.pod_label("numaplane.test/linger", &seconds.to_string())
    }

    /// Lets the simulated pods take the lease only so long after they became ready.
    #[must_use]
    pub fn leads_after(self, seconds: u32) -> Self {
        self.pod_label("numaplane.test/lease-after", &seconds.to_string())
    }

    /// Lets the simulated pods of a `crash-loop` crash so long after they are ready.
    #[must_use]
    pub fn crash_after(self, seconds: u32) -> Self {
        self.pod_label("numaplane.test/crash-after", &seconds.to_string())
    }

    /// … and be ready again so long after that.
    #[must_use]
    pub fn restart_after(self, seconds: u32) -> Self {
        self.pod_label("numaplane.test/restart-after", &seconds.to_string())
    }

    /// Lets no node take the pods.
    #[must_use]
    pub fn unschedulable(self) -> Self {
        self.with(json!({"spec": {"template": {"spec": {"nodeSelector": {"no-node": "has-this"}}}}}))
    }
}

/// As a JSON merge patch does.
fn merge(into: &mut Value, fields: Value) {
    match fields {
        Value::Object(fields) => {
            if !into.is_object() {
                *into = json!({});
            }
            for (name, value) in fields {
                if value.is_null() {
                    into.as_object_mut().map(|map| map.remove(&name));
                } else {
                    merge(&mut into[name], value);
                }
            }
        }
        other => *into = other,
    }
}

/// The value of a ConfigMap key that defines these versions.
pub fn config_map_value<'a>(versions: impl IntoIterator<Item = &'a Version>) -> String {
    let entries = versions.into_iter().map(|v| {
        let settings: String = v.settings.iter().map(|line| format!("  {line}\n")).collect();
        entry_with(&v.version, &settings, &v.full_spec())
    });
    format!("controllerDefinitions:\n{}", entries.collect::<String>())
}

/// One entry of such a value.
pub fn entry(version: &str, full_spec: &str) -> String {
    entry_with(version, "", full_spec)
}

fn entry_with(version: &str, settings: &str, full_spec: &str) -> String {
    let indented: String = full_spec.lines().map(|line| format!("    {line}\n")).collect();
    format!("- version: \"{version}\"\n{settings}  fullSpec: |\n{indented}")
}

fn service_account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "numaflow-sa{{ .InstanceSuffix }}"}})
}

fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "numaflow-role{{ .InstanceSuffix }}"},
        "rules": [
            {"apiGroups": ["numaflow.numaproj.io"], "resources": ["pipelines", "vertices"], "verbs": ["get", "list", "watch"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
        ],
    })
}

fn role_binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "numaflow-role-binding{{ .InstanceSuffix }}"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "numaflow-role{{ .InstanceSuffix }}",
        },
        "subjects": [{"kind": "ServiceAccount", "name": "numaflow-sa{{ .InstanceSuffix }}"}],
    })
}

fn configuration() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "numaflow-controller-config{{ .InstanceSuffix }}"},
        "data": {"controller-config.yaml": "instance: \"{{ .InstanceID }}\"\n"},
    })
}

impl Team {
    /// Applies everything that a version has, for this instance.
    pub async fn apply(&self, version: &Version, instance: &str) {
        let suffix = if instance.is_empty() { String::new() } else { format!("-{instance}") };
        let text = version.full_spec().replace("{{ .InstanceSuffix }}", &suffix).replace("{{ .InstanceID }}", instance);
        for document in text.split("\n---\n") {
            let body: Value = serde_json::from_str(document).expect("a test's definition is JSON");
            let (group, v) = body["apiVersion"].as_str().unwrap().split_once('/').unwrap_or(("", "v1"));
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, v, body["kind"].as_str().unwrap()));
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
            let name = body["metadata"]["name"].as_str().unwrap();
            let applied = api.patch(name, &PatchParams::apply("tests").force(), &Patch::Apply(&body)).await;
            applied.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}
