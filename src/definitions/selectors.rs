//! Selectors over labels, as Kubernetes matches them, and which objects act on pods by one.

use std::{collections::BTreeMap, fmt};

use serde_json::{Map, Value, json};

use super::pods::items;

/// Labels of an object or a pod template.
pub(super) type Labels = BTreeMap<String, String>;

/// A selector. The empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Selector {
    labels: Labels,
    expressions: Vec<Requirement>,
}

/// One of the `matchExpressions`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Selector {
    /// Reads a map of labels, like `spec.selector` of a Service. `None` for what the server would refuse.
    pub fn of_labels(value: &Value) -> Option<Self> {
        Some(Self { labels: labels(value)?, expressions: Vec::new() })
    }

    /// Reads a `LabelSelector`. `None` for what the server would refuse.
    pub fn of_label_selector(value: &Value) -> Option<Self> {
        let selector = value.as_object()?;
        let labels = selector.get("matchLabels").map_or(Some(Labels::new()), labels)?;
        let expressions = match selector.get("matchExpressions") {
            None | Some(Value::Null) => Vec::new(),
            Some(expressions) => expressions.as_array()?.iter().map(requirement).collect::<Option<_>>()?,
        };
        Some(Self { labels, expressions })
    }

    /// Whether something with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.expressions.iter().all(|expression| expression.matches(labels))
    }

    /// All it says, for hashes: two selectors that are displayed alike need not be the same.
    pub fn content(&self) -> Value {
        let expressions = self.expressions.iter();
        let expressions: Vec<_> = expressions.map(|e| json!([e.key, format!("{:?}", e.operator), e.values])).collect();
        json!([self.labels, expressions])
    }

    /// The keys it speaks of.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.labels.keys().chain(self.expressions.iter().map(|expression| &expression.key)).map(String::as_str)
    }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            // What has no such label is not in the set either.
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// As `kubectl --selector` takes it.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.labels.iter().map(|(key, value)| format!("{key}={value}"));
        let expressions = self.expressions.iter().map(|Requirement { key, operator, values }| match operator {
            Operator::In => format!("{key} in ({})", values.join(",")),
            Operator::NotIn => format!("{key} notin ({})", values.join(",")),
            Operator::Exists => key.clone(),
            Operator::DoesNotExist => format!("!{key}"),
        });
        let parts: Vec<_> = labels.chain(expressions).collect();
        f.write_str(if parts.is_empty() { "everything" } else { "" })?;
        f.write_str(&parts.join(","))
    }
}

fn requirement(value: &Value) -> Option<Requirement> {
    let text = |field| value.get(field).and_then(Value::as_str);
    let operator = match text("operator")? {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    };
    let values =
        items(value, "values").iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()?;
    let wants_values = matches!(operator, Operator::In | Operator::NotIn);
    (wants_values != values.is_empty()).then_some(Requirement { key: text("key")?.to_owned(), operator, values })
}

/// A map of labels. The server reads a value that is nothing as an empty one.
pub(super) fn labels(value: &Value) -> Option<Labels> {
    if value.is_null() {
        return Some(Labels::new());
    }
    let label = |(key, value): (&String, &Value)| match value {
        Value::String(text) => Some((key.clone(), text.clone())),
        Value::Null => Some((key.clone(), String::new())),
        _ => None,
    };
    value.as_object()?.iter().map(label).collect()
}

/// How a selector is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A map of labels.
    Labels,
    /// A `LabelSelector`.
    LabelSelector,
}

/// The selector by which an object acts on pods: has them as its own, sends them traffic, or rules what may be done with
/// them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Acting {
    /// Where it stands.
    pub fields: &'static [&'static str],
    /// How it is written.
    pub form: Form,
    /// `None` for one that cannot be read.
    pub selector: Option<Selector>,
}

/// The acting selector of `body`, an object of this kind; `None` where it has none and so selects nothing.
pub(super) fn acting(group: &str, kind: &str, body: &Value) -> Option<Acting> {
    const SELECTOR: &[&str] = &["spec", "selector"];
    let (fields, form): (&'static [&'static str], _) = match (group, kind) {
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch", "Job")
        | ("policy", "PodDisruptionBudget") => (SELECTOR, Form::LabelSelector),
        ("", "Service" | "ReplicationController") => (SELECTOR, Form::Labels),
        ("networking.k8s.io", "NetworkPolicy") => (&["spec", "podSelector"], Form::LabelSelector),
        _ => return None,
    };
    let found = fields.iter().try_fold(body, |value, field| value.get(field)).unwrap_or(&Value::Null);
    let selector = match (form, found) {
        // A policy that names no pods is one for all of them.
        (_, Value::Null) if kind == "NetworkPolicy" => Some(Selector::default()),
        (_, Value::Null) => return None,
        // Unlike other empty ones, that of a Service selects nothing.
        (Form::Labels, Value::Object(map)) if map.is_empty() => return None,
        (Form::Labels, value) => Selector::of_labels(value),
        (Form::LabelSelector, value) => Selector::of_label_selector(value),
    };
    Some(Acting { fields, form, selector })
}

/// Where the spec of a pod has terms of (anti-)affinity: the field of `affinity`, the list in it, and the way from an
/// item to the term.
const AFFINITY: [(&str, &str, &str); 4] = [
    ("podAffinity", "requiredDuringSchedulingIgnoredDuringExecution", ""),
    ("podAffinity", "preferredDuringSchedulingIgnoredDuringExecution", "/podAffinityTerm"),
    ("podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution", ""),
    ("podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution", "/podAffinityTerm"),
];

/// The selectors of pods that the pods described by `spec` must not share a node with. The scheduler heeds that the
/// other way round as well: such pods keep selected ones away from their nodes.
pub(super) fn repelled(spec: &Value) -> impl Iterator<Item = Option<Selector>> {
    let (field, list, _) = AFFINITY[2];
    let terms = spec.pointer(&format!("/affinity/{field}/{list}")).and_then(Value::as_array);
    let selectors = terms.into_iter().flatten().filter_map(|term| term.get("labelSelector"));
    selectors.filter(|selector| !selector.is_null()).map(Selector::of_label_selector)
}

/// Runs `change` on every `LabelSelector` in the spec of a pod, and says whether it is about pods to stay away from.
pub(super) fn each_of_pod(spec: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>, bool)) {
    for (field, list, term) in AFFINITY {
        let terms = spec.pointer_mut(&format!("/affinity/{field}/{list}")).and_then(Value::as_array_mut);
        for item in terms.into_iter().flatten() {
            if let Some(selector) = item.pointer_mut(&format!("{term}/labelSelector")).and_then(Value::as_object_mut) {
                change(selector, field == "podAntiAffinity");
            }
        }
    }
    let spread = spec.get_mut("topologySpreadConstraints").and_then(Value::as_array_mut);
    for constraint in spread.into_iter().flatten() {
        if let Some(selector) = constraint.get_mut("labelSelector").and_then(Value::as_object_mut) {
            change(selector, false);
        }
    }
}

/// Runs `change` on the selector of every peer in the `spec` of a `NetworkPolicy`.
pub(super) fn each_peer(spec: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        let rules = spec.get_mut(rules).and_then(Value::as_array_mut).into_iter().flatten();
        for rule in rules {
            for peer in rule.get_mut(peers).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(selector) = peer.get_mut("podSelector").and_then(Value::as_object_mut) {
                    change(selector);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &Value, pod: &Value) -> bool {
        Selector::of_label_selector(selector).expect("a selector").matches(&labels(pod).expect("labels"))
    }

    #[test]
    fn a_selector_matches_what_kubernetes_would_match() {
        let expression = |operator: &str, values: Value| match values {
            Value::Null => json!({"matchExpressions": [{"key": "a", "operator": operator}]}),
            values => json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}),
        };
        let (x, z, none) = (json!({"a": "x", "b": "y"}), json!({"a": "z"}), json!({}));
        for (selector, on_x, on_z, on_none) in [
            (json!({}), true, true, true),
            (json!({"matchLabels": null, "matchExpressions": null}), true, true, true),
            (json!({"matchLabels": {"a": "x"}}), true, false, false),
            (json!({"matchLabels": {"a": "x", "b": "y"}}), true, false, false),
            (json!({"matchLabels": {"a": "x", "c": "y"}}), false, false, false),
            (expression("In", json!(["w", "x"])), true, false, false),
            (expression("NotIn", json!(["x"])), false, true, true),
            (expression("Exists", json!(null)), true, true, false),
            (expression("DoesNotExist", json!(null)), false, false, true),
        ] {
            assert_eq!(
                (matches(&selector, &x), matches(&selector, &z), matches(&selector, &none)),
                (on_x, on_z, on_none),
                "{selector}"
            );
        }
        let both =
            json!({"matchLabels": {"a": "x"}, "matchExpressions": [{"key": "b", "operator": "In", "values": ["z"]}]});
        assert!(!matches(&both, &x), "all of it has to hold");
        assert!(matches(&json!({"matchLabels": {"a": ""}}), &json!({"a": null})), "nothing is read as empty");
    }

    #[test]
    fn what_the_server_would_refuse_is_no_selector() {
        for bad in [
            json!("a=b"),
            json!({"matchLabels": []}),
            json!({"matchLabels": {"a": 1}}),
            json!({"matchExpressions": {}}),
            json!({"matchExpressions": [{"key": "a", "operator": "Equals", "values": ["x"]}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]}),
            json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}),
            json!({"matchExpressions": [{"operator": "Exists"}]}),
        ] {
            assert_eq!(Selector::of_label_selector(&bad), None, "{bad}");
        }
        assert_eq!(Selector::of_labels(&json!({"a": true})), None);
    }

    #[test]
    fn a_selector_is_shown_as_kubectl_takes_it() {
        let selector = json!({"matchLabels": {"a": "x"}, "matchExpressions": [
            {"key": "b", "operator": "In", "values": ["y", "z"]}, {"key": "c", "operator": "NotIn", "values": ["w"]},
            {"key": "d", "operator": "Exists"}, {"key": "e", "operator": "DoesNotExist"}]});
        let selector = Selector::of_label_selector(&selector).expect("a selector");
        assert_eq!(selector.to_string(), "a=x,b in (y,z),c notin (w),d,!e");
        assert_eq!(Selector::default().to_string(), "everything");
        assert_eq!(selector.keys().collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn an_empty_selector_means_what_its_kind_takes_it_for() {
        let policy = "networking.k8s.io";
        for (group, kind, body, expected) in [
            ("", "Service", json!({"spec": {}}), None),
            ("", "Service", json!({"spec": {"selector": {}}}), None),
            ("policy", "PodDisruptionBudget", json!({"spec": {}}), None),
            ("policy", "PodDisruptionBudget", json!({"spec": {"selector": {}}}), Some("everything")),
            (policy, "NetworkPolicy", json!({"spec": {"podSelector": {}}}), Some("everything")),
            (policy, "NetworkPolicy", json!({"spec": {}}), Some("everything")),
            (policy, "NetworkPolicy", json!({}), Some("everything")),
            ("apps", "Deployment", json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}}), Some("a=b")),
            ("", "Service", json!({"spec": {"selector": {"a": "b"}}}), Some("a=b")),
            ("", "ConfigMap", json!({"spec": {"selector": {"a": "b"}}}), None),
            ("apps", "Deployment", json!({"spec": {"selector": "a"}}), Some("unreadable")),
        ] {
            let found = acting(group, kind, &body)
                .map(|acting| acting.selector.map_or("unreadable".to_owned(), |selector| selector.to_string()));
            assert_eq!(found.as_deref(), expected, "{kind} {body}");
        }
    }
}
