//! Requests of a user as kubectl makes them, and the answers of the API server as a user reads them: code, words, causes and
//! warnings.

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use serde_json::Value;

use super::{Team, control_plane::control_plane, eventually};

/// Kinds that users write: where the API server has them.
const KINDS: [(&str, &str); 5] = [
    ("NumaflowControllerRollout", ROLLOUTS),
    ("PipelineRollout", ROLLOUTS),
    ("ISBServiceRollout", ROLLOUTS),
    ("MonoVertexRollout", ROLLOUTS),
    ("ConfigMap", "v1"),
];
const ROLLOUTS: &str = "numaplane.numaproj.io/v1alpha1";

/// The API version of one of the kinds.
pub fn api_version(kind: &str) -> &'static str {
    KINDS.iter().find(|(known, _)| *known == kind).unwrap_or_else(|| panic!("{kind} is no kind that users write")).1
}

/// Somebody with kubectl, in one namespace. Each request is made once: a failure is seen, not made up for.
#[derive(Clone)]
pub struct User {
    client: Client,
    namespace: String,
    name: Option<String>,
    dry_run: bool,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// HTTP status.
    pub code: u16,
    /// What the server says about a refusal; empty where it did what was asked.
    pub message: String,
    /// Why, as `field: message` each.
    pub causes: Vec<String>,
    /// What it says besides, in order.
    pub warnings: Vec<String>,
    /// The object, or the `Status`.
    pub body: Value,
}

impl Answer {
    /// Whether it did what was asked.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// Whether the webhook let it pass because it could not be checked in time: on a busy machine it waits for a read no longer
    /// than it lets a user wait.
    pub fn is_unchecked(&self) -> bool {
        self.warnings.iter().any(|warning| warning.contains("could not be checked"))
    }

    /// In one line.
    pub fn describe(&self) -> String {
        let warned: String = self.warnings.iter().map(|w| format!(" [warning: {w}]")).collect();
        format!("{} {}{warned}", self.code, self.message)
    }
}

impl User {
    /// An administrator who works in the namespace of a team.
    pub async fn of(team: &Team) -> Self {
        let client = control_plane().asking_once().await;
        Self { client, namespace: team.namespace.clone(), name: None, dry_run: false }
    }

    /// As somebody else, who may do everything.
    #[must_use]
    pub fn acting_as(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    /// Who only asks what would be.
    #[must_use]
    pub fn dry(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// What is said of creating an object, once that could be checked; nothing is stored.
    pub async fn told(&self, object: &Value) -> Answer {
        let dry = self.clone().dry();
        eventually("it could be checked", async || dry.create(object).await.checked()).await
    }

    /// What is said of changing an object by a merge patch, once that could be checked; nothing is stored.
    pub async fn told_of_edit(&self, kind: &str, name: &str, patch: &Value) -> Answer {
        let dry = self.clone().dry();
        eventually("it could be checked", async || dry.edit(kind, name, patch).await.checked()).await
    }

    /// Creates an object.
    pub async fn create(&self, object: &Value) -> Answer {
        self.ask(Method::POST, object["kind"].as_str().unwrap_or_default(), "", "application/json", object).await
    }

    /// Applies an object, as `kubectl apply --server-side` does.
    pub async fn apply(&self, object: &Value) -> Answer {
        let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
        let (kind, name) = (kind.as_str().unwrap_or_default(), name.as_str().unwrap_or_default());
        self.ask(Method::PATCH, kind, name, "application/apply-patch+yaml", object).await
    }

    /// Changes an object by a merge patch; `name` may have a subresource behind it.
    pub async fn edit(&self, kind: &str, name: &str, patch: &Value) -> Answer {
        self.ask(Method::PATCH, kind, name, "application/merge-patch+json", patch).await
    }

    /// Deletes an object, without waiting for it to be gone.
    pub async fn delete(&self, kind: &str, name: &str) -> Answer {
        self.ask(Method::DELETE, kind, name, "application/json", &Value::Null).await
    }

    /// The object as it is stored.
    pub async fn get(&self, kind: &str, name: &str) -> Answer {
        self.ask(Method::GET, kind, name, "application/json", &Value::Null).await
    }

    async fn ask(&self, method: Method, kind: &str, name: &str, content: &str, body: &Value) -> Answer {
        let version = api_version(kind);
        let root = if version.contains('/') { "apis" } else { "api" };
        let plural = format!("{}s", kind.to_lowercase());
        let mut uri = format!("/{root}/{version}/namespaces/{}/{plural}", self.namespace);
        if !name.is_empty() {
            uri.push_str(&format!("/{name}"));
        }
        if method != Method::GET {
            // As kubectl: fields that nobody knows are refused, not dropped.
            uri.push_str("?fieldManager=kubectl&fieldValidation=Strict");
            uri.push_str(if self.dry_run { "&dryRun=All" } else { "" });
            uri.push_str(if content.contains("apply-patch") { "&force=true" } else { "" });
        }
        let mut request = Request::builder().method(&method).uri(&uri).header("content-type", content);
        if let Some(name) = &self.name {
            request = request.header("impersonate-user", name).header("impersonate-group", "system:masters");
        }
        let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body).expect("JSON") };
        let request = request.body(Body::from(bytes)).expect("a request");
        match self.client.send(request).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let warnings = head.headers.get_all("warning").iter();
                let warnings = warnings.map(|w| unquoted(&String::from_utf8_lossy(w.as_bytes()))).collect();
                let bytes = body.collect().await.expect("an answer ends").to_bytes();
                Answer::of(head.status.as_u16(), warnings, serde_json::from_slice(&bytes).unwrap_or_default())
            }
            // Nobody answered at all: the server is there in every story.
            Err(error) => panic!("{method} {uri}: {error}"),
        }
    }
}

impl Answer {
    fn checked(self) -> Result<Self, String> {
        if self.is_unchecked() { Err(self.describe()) } else { Ok(self) }
    }

    fn of(code: u16, warnings: Vec<String>, body: Value) -> Self {
        if (200..300).contains(&code) {
            return Self { code, warnings, body, ..Self::default() };
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let causes = body["details"]["causes"].as_array().into_iter().flatten();
        let causes = causes.map(|cause| format!("{}: {}", text(&cause["field"]), text(&cause["message"]))).collect();
        Self { code, message: text(&body["message"]), causes, warnings, body }
    }
}

/// The text of a `Warning` header: `299 - "text"`.
fn unquoted(header: &str) -> String {
    let text = header.splitn(3, ' ').nth(2).unwrap_or(header);
    let text = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}

#[cfg(test)]
mod tests {
    use super::unquoted;

    #[test]
    fn a_warning_is_read_as_it_was_written() {
        assert_eq!(unquoted(r#"299 - "a \"b\" c: \\d""#), r#"a "b" c: \d"#);
        assert_eq!(unquoted("299 numaplane text"), "text");
    }
}
