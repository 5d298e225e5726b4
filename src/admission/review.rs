//! From the body of a request to a review, and from a verdict to the body of the answer.
//!
//! Whatever has a uid gets an answer with that uid: the API server can make nothing of any other, and says so to the user in
//! words of its own.

use std::collections::HashSet;

use kube::core::{
    GroupVersionKind, Status,
    admission::{AdmissionResponse, AdmissionReview, META_API_VERSION_V1, META_KIND, Operation},
    dynamic::DynamicObject,
    response::{StatusCause, StatusDetails, StatusSummary},
};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::Verdict;
use crate::{
    names::is_label,
    nesting::cut,
    valid::{Finding, sentence},
    words::quoted,
};

/// Most violations that an answer names one by one.
const CAUSES: usize = 50;
/// Most warnings in an answer, and most characters of one: the API server cuts what is longer where it likes.
const WARNINGS: (usize, usize) = (10, 256);

/// What the API server asks.
#[derive(Clone, Debug)]
pub struct Review {
    /// Identifies the question; the answer repeats it.
    pub uid: String,
    /// What is to be done; `None` for something that is not known here.
    pub operation: Option<Operation>,
    /// Kind of the object.
    pub kind: GroupVersionKind,
    /// Subresource, like `status`; empty for the object itself.
    pub sub_resource: String,
    /// Namespace of the object; empty for a cluster-scoped one.
    pub namespace: String,
    /// Name of the object, or what its name begins with where the server is to make one.
    pub name: String,
    /// Who asks for it.
    pub user: String,
    /// Whether nothing is to be stored in any case.
    pub dry_run: bool,
    /// The object as it is to be stored; `None` for a deletion.
    pub object: Option<Value>,
    /// The object as it is stored; `None` for one that is new, null for one that cannot be read.
    pub old_object: Option<Value>,
}

/// Why a body is no review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// There is nobody to answer to: a sentence for whoever sent it.
    NoReview(String),
    /// A review, but what it asks cannot be told.
    Question {
        /// Its uid.
        uid: String,
        /// What is wrong with it.
        finding: Finding,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Body {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Asker {
    uid: String,
}

/// Not kube's own type: it knows no operation but four, and objects only as far as their metadata is as it should be. Whatever
/// is wrong with either would leave the question without an answer.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an object")]
struct Request {
    #[serde(default)]
    operation: String,
    kind: GroupVersionKind,
    #[serde(default)]
    sub_resource: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    user_info: Option<Asking>,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default)]
    object: Option<Box<RawValue>>,
    #[serde(default)]
    old_object: Option<Box<RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(expecting = "an object")]
struct Asking {
    #[serde(default)]
    username: Option<String>,
}

/// Reads the body of a request.
///
/// # Errors
/// It is no review, or one that cannot be understood.
pub fn read(body: &[u8]) -> Result<Review, Unreadable> {
    let no_review = |message: String| Unreadable::NoReview(message);
    if body.is_empty() {
        return Err(no_review(format!("the body is empty; send an {META_KIND} of {META_API_VERSION_V1}")));
    }
    let other = |error: &dyn std::fmt::Display| {
        no_review(format!("the body is no {META_KIND} of {META_API_VERSION_V1}: {error}"))
    };
    if !is_object(body) {
        return Err(other(&"it is no JSON object"));
    }
    let body: Body = serde_json::from_slice(body).map_err(|error| other(&error))?;
    if (body.api_version.as_str(), body.kind.as_str()) != (META_API_VERSION_V1, META_KIND) {
        return Err(no_review(format!(
            "apiVersion {:?}, kind {:?} is not served here; send an {META_KIND} of {META_API_VERSION_V1}",
            body.api_version, body.kind
        )));
    }
    let request = body.request.ok_or_else(|| no_review(format!("the {META_KIND} has no request")))?;
    if !is_object(request.get().as_bytes()) {
        return Err(no_review("request is no JSON object".to_owned()));
    }
    let uid = match serde_json::from_str::<Asker>(request.get()) {
        Ok(Asker { uid }) if !uid.is_empty() => uid,
        Ok(_) => return Err(no_review("request.uid is empty".to_owned())),
        Err(error) => return Err(no_review(format!("request.uid cannot be read: {error}"))),
    };
    let question = |field: &str, error: &dyn std::fmt::Display| Unreadable::Question {
        uid: uid.clone(),
        finding: Finding { field: field.to_owned(), message: format!("cannot be read: {error}") },
    };
    let from = &mut serde_json::Deserializer::from_str(request.get());
    let request: Request = serde_path_to_error::deserialize(from).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { "request".to_owned() } else { format!("request.{path}") };
        question(&field, error.inner())
    })?;
    let object = |name: &str, raw: Option<Box<RawValue>>| match raw {
        None => Ok(None),
        Some(raw) => serde_json::from_str::<Value>(&cut(raw.get()))
            .map(|value| Some(value).filter(|value| !value.is_null()))
            .map_err(|error| question(name, &error)),
    };
    let new = object("object", request.object)?;
    // What is stored already must not keep anybody from mending it: there was something, of which nothing is known.
    let old = object("oldObject", request.old_object).unwrap_or(Some(Value::Null));
    let named = |field: &str| {
        let metadata = &new.as_ref().or(old.as_ref())?["metadata"];
        metadata[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let namespace = request.namespace.unwrap_or_default();
    if !namespace.is_empty() && !is_label(&namespace) {
        // It becomes part of the paths of requests.
        return Err(question("request.namespace", &format!("{} is not the name of one", quoted(&namespace))));
    }
    let name = request.name.filter(|name| !name.is_empty()).or_else(|| named("name")).or_else(|| named("generateName"));
    Ok(Review {
        operation: Operation::deserialize(Value::String(request.operation)).ok(),
        kind: request.kind,
        sub_resource: request.sub_resource.unwrap_or_default(),
        namespace,
        name: name.unwrap_or_default(),
        user: request.user_info.unwrap_or_default().username.unwrap_or_default(),
        dry_run: request.dry_run.unwrap_or_default(),
        object: new,
        old_object: old,
        uid,
    })
}

/// Whether JSON is an object, if it is JSON. A list is taken for one by serde: its items for fields, in their order.
fn is_object(json: &[u8]) -> bool {
    json.trim_ascii_start().starts_with(b"{")
}

/// The answer to a review.
#[must_use]
pub fn answer(review: &Review, verdict: &Verdict) -> AdmissionReview<DynamicObject> {
    let details = StatusDetails {
        group: review.kind.group.clone(),
        kind: review.kind.kind.clone(),
        name: review.name.clone(),
        ..no_details()
    };
    respond(&review.uid, verdict, details)
}

/// The answer to a question that cannot be understood.
#[must_use]
pub fn answer_to_unreadable(uid: &str, finding: &Finding) -> AdmissionReview<DynamicObject> {
    let verdict = Verdict { violations: vec![finding.clone()], warnings: Vec::new() };
    respond(uid, &verdict, no_details())
}

fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

fn respond(uid: &str, verdict: &Verdict, details: StatusDetails) -> AdmissionReview<DynamicObject> {
    // kube makes an answer from its own type of request, or this one, whose parts are all set here.
    let mut response = AdmissionResponse::invalid("");
    uid.clone_into(&mut response.uid);
    response.allowed = verdict.violations.is_empty();
    response.result = if response.allowed { Status::default() } else { refusal(&verdict.violations, details) };
    let warnings = warnings(&verdict.warnings);
    response.warnings = (!warnings.is_empty()).then_some(warnings);
    response.into_review()
}

/// As the API server refuses what a schema does not take: kubectl shows the causes one by one, other tools the message.
fn refusal(violations: &[Finding], details: StatusDetails) -> Status {
    let cause = |finding: &Finding| StatusCause {
        reason: "FieldValueInvalid".to_owned(),
        field: finding.field.clone(),
        message: finding.message.clone(),
    };
    let mut causes: Vec<StatusCause> = violations.iter().take(CAUSES).map(cause).collect();
    if violations.len() > CAUSES {
        // kubectl shows the causes alone, so that the others would not be heard of.
        let others = format!("and {} more mistakes", violations.len() - CAUSES);
        causes.push(StatusCause { reason: "FieldValueInvalid".to_owned(), field: "spec".to_owned(), message: others });
    }
    Status {
        status: Some(StatusSummary::Failure),
        code: 422,
        reason: "Invalid".to_owned(),
        message: sentence(violations),
        metadata: None,
        details: Some(StatusDetails { causes, ..details }),
    }
}

/// Warnings as the header takes them, in which each travels.
fn warnings(all: &[String]) -> Vec<String> {
    let mut known = HashSet::new();
    let mut shown: Vec<String> = all.iter().map(|text| in_header(text)).filter(|text| !text.is_empty()).collect();
    shown.retain(|warning| known.insert(warning.clone()));
    if shown.len() > WARNINGS.0 {
        let more = shown.len() - (WARNINGS.0 - 1);
        shown.truncate(WARNINGS.0 - 1);
        shown.push(format!("and {more} more warnings"));
    }
    shown
}

/// Text for a header: the API server drops a warning with a line break or another control character without a word, and what is
/// not ASCII does not come through every proxy. What is too long ends after a word.
fn in_header(text: &str) -> String {
    let plain = text.split(|c: char| c.is_control() || c == ' ').filter(|word| !word.is_empty());
    let mut line = String::new();
    for word in plain.map(|word| word.chars().map(ascii).collect::<String>()) {
        let space = usize::from(!line.is_empty());
        if line.len() + space + word.len() > WARNINGS.1 {
            return ended(line, &word);
        }
        line.push_str(&" "[..space]);
        line.push_str(&word);
    }
    line
}

/// A line that had no room for the next word.
fn ended(mut line: String, word: &str) -> String {
    const MORE: &str = " ...";
    if line.is_empty() {
        // All of it is ASCII by now.
        line.push_str(&word[..WARNINGS.1 - MORE.len()]);
    }
    while line.len() > WARNINGS.1 - MORE.len() {
        line.truncate(line.rfind(' ').unwrap_or(WARNINGS.1 - MORE.len()));
    }
    line + MORE
}

fn ascii(c: char) -> String {
    if c.is_ascii() { c.to_string() } else { c.escape_unicode().to_string() }
}

#[cfg(test)]
mod tests;
