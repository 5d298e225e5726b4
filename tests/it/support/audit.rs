//! What operators asked of the API server, as the server itself recorded it.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    time::{Duration, Instant},
};

use serde::Deserialize;

use super::{control_plane::control_plane, team::Team, wait::eventually};

/// A place in the audit log.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

/// A request and its answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    stage: String,
    /// get, list, watch, create, update, patch, delete or deletecollection.
    pub verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    #[serde(default)]
    object_ref: Object,
    #[serde(default)]
    response_status: Answer,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Object {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    code: u16,
}

impl Request {
    /// HTTP status of the answer.
    pub fn code(&self) -> u16 {
        self.response_status.code
    }

    /// Kind of the object, in the plural, with the subresource.
    pub fn resource(&self) -> String {
        let object = &self.object_ref;
        let separator = if object.subresource.is_empty() { "" } else { "/" };
        format!("{}{separator}{}", object.resource, object.subresource)
    }

    /// Name of the object.
    pub fn name(&self) -> &str {
        &self.object_ref.name
    }

    /// Whether nothing was to be changed.
    pub fn dry_run(&self) -> bool {
        self.uri.contains("dryRun=All")
    }

    /// Whether it was to change something. Events are news, not state.
    pub fn write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
            && !self.dry_run()
            && self.object_ref.resource != "events"
    }

    /// Whether it is a request for content; a watch is none, because it is answered as things happen.
    pub fn read(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list")
    }

    /// In one line.
    pub fn describe(&self) -> String {
        let dry = if self.dry_run() { " (dry run)" } else { "" };
        format!("{} {}/{}: {}{dry}", self.verb, self.resource(), self.name(), self.code())
    }
}

/// The end of the log as it is now.
pub fn mark() -> Mark {
    Mark(control_plane().audit_length())
}

/// The operators' requests about objects in this namespace, after the mark.
pub fn since(mark: Mark, namespace: &str) -> Vec<Request> {
    read(&mut mark.clone(), namespace)
}

/// The requests after the mark that changed something or were to, in words. Moves the mark behind them.
pub fn new_writes(mark: &mut Mark, namespace: &str) -> Vec<String> {
    read(mark, namespace).iter().filter(|r| r.write()).map(Request::describe).collect()
}

/// Waits until operators have written nothing about a namespace for this long; returns the end of the log.
pub async fn settled(team: &Team, quiet: Duration) -> Mark {
    let mut mark = mark();
    let mut since = Instant::now();
    eventually("nothing is written any more", async || {
        let writes = new_writes(&mut mark, &team.namespace);
        if !writes.is_empty() {
            since = Instant::now();
        }
        if since.elapsed() > quiet { Ok(()) } else { Err(writes.join("; ")) }
    })
    .await;
    mark
}

fn read(mark: &mut Mark, namespace: &str) -> Vec<Request> {
    let mut text = String::new();
    let mut file = File::open(control_plane().audit_log()).expect("the audit log can be opened");
    file.seek(SeekFrom::Start(mark.0)).expect("the audit log can be read from there");
    file.read_to_string(&mut text).expect("the audit log is text");
    // The last line may still be being written.
    let complete = text.rfind('\n').map_or(0, |end| end + 1);
    mark.0 += complete as u64;
    let quoted = format!("{namespace:?}");
    text[..complete]
        .lines()
        .filter(|line| line.contains(&quoted))
        .map(|line| serde_json::from_str::<Request>(line).unwrap_or_else(|error| panic!("{error} in {line}")))
        .filter(|request| request.stage == "ResponseComplete" && request.object_ref.namespace == namespace)
        .collect()
}
