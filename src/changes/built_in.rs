//! The rules that are built in, for the fields that Numaflow has.
//!
//! The question is the one that Numaflow's own documentation asks: whether there may be unprocessed messages, and the
//! new spec changes how they are processed. Then the old has to be done with them first. What only changes where and how
//! fast pods run (scale, replicas, resources, placement, probes, limits, templates, update strategy) is applied
//! directly: pods are replaced a few at a time, and unacknowledged messages are delivered again.

use super::{Kind, Rule, Rules};

/// What a container of the user's computes from. Files it mounts are read like its environment.
const COMPUTES: [&str; 6] = ["image", "command", "args", "env", "envFrom", "volumeMounts"];
/// Numaflow's sources that need no container. What is read, and from where.
const SOURCES: [&str; 9] =
    ["generator", "kafka", "http", "nats", "jetstream", "pulsar", "sqs", "serving", "redisStreams"];
/// Its sinks that need none. Where results go.
const SINKS: [&str; 7] = ["log", "kafka", "blackhole", "pulsar", "sqs", "serve", "retryStrategy"];

impl Rules {
    /// The rules of a kind that hold where nobody says otherwise.
    #[must_use]
    pub fn built_in(kind: Kind) -> Self {
        match kind {
            Kind::Pipeline => pipeline(),
            Kind::InterStepBufferService => inter_step_buffer_service(),
            Kind::MonoVertex => mono_vertex(),
            Kind::NumaflowController => Self {
                recreate: Vec::new(),
                data_loss: vec![field("spec.version"), field("spec.instanceID")],
                progressive: Vec::new(),
            },
        }
    }
}

/// Only the field.
fn field(path: impl Into<String>) -> Rule {
    Rule { path: path.into(), include_subfields: false }
}

/// The field and everything in it.
fn all_of(path: impl Into<String>) -> Rule {
    Rule { path: path.into(), include_subfields: true }
}

fn container(at: &str) -> impl Iterator<Item = Rule> {
    COMPUTES.iter().map(move |name| all_of(format!("{at}.{name}")))
}

fn pipeline() -> Rules {
    let vertex = "spec.vertices";
    let recreate = vec![
        // The buffers are in the old service, and a live pipeline does not make new ones in the new.
        field("spec.interStepBufferServiceName"),
        // A vertex of another type; Numaflow's webhook refuses it in place. Map and reduce differ by `groupBy`.
        field("spec.vertices.source"),
        field("spec.vertices.sink"),
        field("spec.vertices.udf"),
        field("spec.vertices.udf.groupBy"),
        // What a reduce vertex persists stays in the old volume; refused by the webhook too.
        all_of("spec.vertices.udf.groupBy.storage"),
    ];
    let mut data_loss = vec![
        // Topology: what waits in the buffer of a vertex that goes, or before an edge that goes, is never read.
        field("spec.vertices"),
        // With conditions, and what happens when a buffer is full.
        all_of("spec.edges"),
    ];
    data_loss.extend(steps(vertex));
    data_loss.extend([
        // Windows that are open are closed by other rules.
        all_of("spec.vertices.udf.groupBy"),
        // Buffers: some come or go, and keys move between them.
        field("spec.vertices.partitions"),
        // Which side inputs a vertex sees.
        field("spec.vertices.sideInputs"),
        all_of("spec.vertices.ordered"),
        all_of("spec.ordered"),
        // What is late, and when a window closes.
        all_of("spec.watermark"),
        // Compression: what is in the buffers was written the old way.
        all_of("spec.interStepBuffer"),
        field("spec.sideInputs"),
        all_of("spec.sideInputs.volumes"),
    ]);
    data_loss.extend(container("spec.sideInputs.container"));
    Rules { recreate, data_loss, progressive: Vec::new() }
}

/// None. A MonoVertex has source, function and sink in itself, and acknowledges a message after its sink has it: what a pod has
/// begun with when it goes, the next one begins anew. So a pause would save nothing, and cost the time that it takes.
fn mono_vertex() -> Rules {
    Rules { recreate: Vec::new(), data_loss: Vec::new(), progressive: Vec::new() }
}

/// Source, function and sink at a place, and what runs beside them.
fn steps(at: &str) -> Vec<Rule> {
    let mut rules = Vec::new();
    rules.extend(SOURCES.iter().map(|name| all_of(format!("{at}.source.{name}"))));
    for name in ["udsource", "transformer"] {
        rules.push(field(format!("{at}.source.{name}")));
        rules.extend(container(&format!("{at}.source.{name}.container")));
    }
    rules.push(all_of(format!("{at}.source.transformer.builtin")));
    rules.extend(container(&format!("{at}.udf.container")));
    rules.push(all_of(format!("{at}.udf.builtin")));
    rules.extend(SINKS.iter().map(|name| all_of(format!("{at}.sink.{name}"))));
    for sink in ["", ".fallback", ".onSuccess"] {
        if !sink.is_empty() {
            rules.push(field(format!("{at}.sink{sink}")));
            rules.extend(SINKS.iter().map(|name| all_of(format!("{at}.sink{sink}.{name}"))));
        }
        rules.push(field(format!("{at}.sink{sink}.udsink")));
        rules.extend(container(&format!("{at}.sink{sink}.udsink.container")));
    }
    // What the containers mount, and the containers beside them.
    rules.push(all_of(format!("{at}.volumes")));
    rules.extend(container(&format!("{at}.initContainers")));
    rules.extend(container(&format!("{at}.sidecars")));
    rules
}

/// A rolling change of the StatefulSet replaces one broker after the other, and the rest are a quorum meanwhile. So what
/// leaves the broker as it is (resources, placement, the containers beside it) is applied directly.
fn inter_step_buffer_service() -> Rules {
    Rules {
        recreate: vec![
            // Another kind of service.
            field("spec.jetstream"),
            field("spec.redis"),
            // A StatefulSet's claims cannot be changed.
            all_of("spec.jetstream.persistence"),
            // Streams keep the number of copies that they were made with, and fewer brokers may hold none of the data.
            field("spec.jetstream.replicas"),
            // For streams that are made from now on, and a pipeline makes its streams when it is made.
            field("spec.jetstream.bufferConfig"),
            // What is stored is not readable the other way.
            field("spec.jetstream.encryption"),
            // Brokers with and without it do not form a cluster, so that the first one to be replaced never gets ready.
            field("spec.jetstream.tls"),
            // Up to Numaflow 1.6.
            all_of("spec.redis.external"),
            field("spec.redis.native"),
            all_of("spec.redis.native.persistence"),
            field("spec.redis.native.replicas"),
        ],
        data_loss: vec![
            // Another broker on the same data, or one that is started otherwise.
            field("spec.jetstream.version"),
            field("spec.jetstream.settings"),
            field("spec.jetstream.startArgs"),
            all_of("spec.jetstream.containerTemplate.env"),
            all_of("spec.jetstream.containerTemplate.envFrom"),
            // Whether it may read what is on its volume.
            all_of("spec.jetstream.securityContext"),
            all_of("spec.jetstream.containerTemplate.securityContext"),
            field("spec.redis.native.version"),
            all_of("spec.redis.native.settings"),
        ],
        progressive: Vec::new(),
    }
}
