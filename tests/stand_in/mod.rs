//! A stand-in for Numaflow in simulated pods. Nothing runs in them, so what others see of Numaflow's controller has to
//! be done by somebody else: its leader election; and, by whoever leads, what it does about Pipelines with their
//! vertices and pods, about MonoVertices with their pods, and about each InterStepBufferService.
//!
//! | file | what it knows |
//! |---|---|
//! | `pod` | what a pod says about the process that would run in it |
//! | `configuration` | what that process reads when it starts, and how its lease is called |
//! | `processes` | which processes there are: started, crashed, living on after their pod |
//! | `election` | what becomes of one lease now, given its candidates |
//! | `run` | knows a client: watches pods, reads and writes leases, and says who leads |
//! | `kinds` | the kinds that a controller sees and writes; `crds.yaml` defines Numaflow's own |
//! | `knobs` | what annotations ask of the stand-in |
//! | `view` | what objects say, and what a pass over one of them comes to |
//! | `pipeline` | one pass over a Pipeline |
//! | `lifecycle` | the part of that pass that pauses, resumes and deletes |
//! | `vertices` | what is made of a pipeline, and one pass over a Vertex |
//! | `mono_vertex` | one pass over a MonoVertex |
//! | `service` | one pass over an InterStepBufferService |
//! | `sequences` | tests of these passes, one after the other, without a server |
//! | `mono_sequences` | the same of passes over a MonoVertex |
//! | `cache` | what is known of all objects, and which changes are a reason for a pass |
//! | `queue` | what a worker looks at next |
//! | `controller` | knows a client: watches objects and carries out passes, for whoever leads |
//! | `main` | the program `numaflow-stand-in`; the tests in `tests/it` run the same in their own process |
//!
//! A controller has one worker for each kind, which looks at one object at a time, and it decides from what it has seen,
//! which may be old: both are why flips of a pipeline's wanted phase that follow each other too fast end where nobody
//! wanted to be.
//!
//! # Knobs
//!
//! Annotations with the prefix `stand-in.numaflow/`, read at each pass. As with the real one, a change of annotations is
//! no reason for a pass over a Pipeline or MonoVertex; a change of its labels is. On a Pipeline:
//!
//! | knob | what it does |
//! |---|---|
//! | `pending: "7"` | so many messages stay in the buffers: the pause ends undrained when its grace is over |
//! | `drains-after: "2s"` | the buffers are empty that long after the pause began |
//! | `never-pauses: "true"` | stays Pausing whatever the grace |
//! | `pass-delay: "500ms"` | the worker, which all pipelines share, takes so long before each pass |
//! | `silent: "true"` | the controller never looks at it |
//! | `no-retries: "true"` | what fails is not tried again: only a change wakes the controller, as the next try may be far away |
//! | `fails: "text"` | is Failed with this text, with Deployed=False, at each pass |
//! | `daemon: "refused"`, `"hung"` | the daemon does not answer; hung, it keeps the worker for a while, too |
//! | `terminates-after: "3s"` | its pods take so long to go |
//! | `pod-takes: "1s"` | pods that are made while this is there become ready so long after they started |
//! | `never-ready: "true"` | pods that are made while this is there never become ready |
//! | `wedge: "running"`, `"paused"` | the next flip to Running or Paused ends in that wedge; for one flip, then it is removed |
//!
//! On a MonoVertex `silent`, `pass-delay`, `no-retries`, `fails`, `terminates-after`, `pod-takes` and `never-ready`. Pods that are
//! made while `terminates-after` is there take their time whoever deletes them, also with their MonoVertex; other pods
//! when the controller does. A container of the user with an image under `.invalid` cannot be pulled.
//!
//! On an InterStepBufferService `silent`, `pass-delay`, `no-retries`, and these, a change of which is a reason for a pass
//! over it:
//!
//! | knob | what it does |
//! |---|---|
//! | `unhealthy: "true"` | its children are not healthy, and pipelines that are looked at fail |
//! | `stale-health: "50ms"` | says that it is healthy for so long after it has seen a change of its version |
//! | `pod-takes: "1s"` | the next roll takes so long for each of its pods, which are rolled one after the other |
//! | `never-ready: "true"` | the next roll never ends: its first pod does not become ready |
//!
//! The last two go into the StatefulSet with the next change of the spec that rolls it, and alone they roll nothing: not
//! when they are turned on, and not when they are turned off. To end a roll that never ends, turn the knob off, then
//! revert the spec.

mod cache;
mod configuration;
mod controller;
mod election;
mod kinds;
mod knobs;
mod lifecycle;
#[cfg(test)]
mod mono_sequences;
mod mono_vertex;
mod pipeline;
mod pod;
mod processes;
mod queue;
mod run;
#[cfg(test)]
mod sequences;
mod service;
mod vertices;
mod view;

pub use election::Timings;
pub use kinds::definitions;
pub use run::run;
pub use view::Pace;
