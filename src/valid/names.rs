//! Names: what Kubernetes and Numaflow make of the name of a rollout has to fit.
//!
//! Of a NumaflowControllerRollout nothing is made that could be too long: its children and labels have names that are cut, with a
//! hash (see [`crate::api::fit`]), and its production objects are named by definition and instance alone.

use kube::core::ObjectMeta;

use super::{Findings, place::Place};
use crate::{
    names::{LONGEST_LABEL, is_dns_1035},
    words::quoted,
};

/// What StatefulSets add to their name in the label `controller-revision-hash` of their pods.
const REVISION: usize = 11;
/// Where the name of a rollout stands.
const FIELD: &str = "metadata.name";

/// The name of an object of Numaflow's, and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct Called {
    /// The name.
    pub name: String,
    /// Whether it is not given yet: there is to be room for a number of four digits, so that no name gets too long one day.
    pub to_come: bool,
}

impl Called {
    /// The object has this name, or gets it now.
    pub fn now(name: &str) -> Self {
        Self { name: name.to_owned(), to_come: false }
    }

    /// What the object of a rollout with this status is called, or will be.
    pub fn by_status(rollout: &ObjectMeta, child: Option<&str>, count: Option<i32>) -> Self {
        let rollout = rollout.name.as_deref().unwrap_or_default();
        match (child.filter(|child| !child.is_empty()), count) {
            (Some(child), _) => Self::now(child),
            (None, Some(count)) => Self::now(&format!("{rollout}-{count}")),
            (None, None) => Self { name: format!("{rollout}-0000"), to_come: true },
        }
    }
}

/// A name that is made of the name of an object: in three parts.
struct Made<'n> {
    /// What has it, in words, and what kind of object that is.
    what: &'static str,
    parts: [&'n str; 3],
    /// Characters that come to it.
    more: usize,
}

impl Made<'_> {
    fn length(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum::<usize>() + self.more
    }

    /// How many characters it is too long.
    fn excess(&self) -> usize {
        self.length().saturating_sub(LONGEST_LABEL)
    }

    /// What is wrong with it, and what to do: `shorten` is what can be shortened.
    fn words(&self, called: &Called, shorten: &str) -> String {
        let room = if called.to_come { " (with room for a number of four digits)" } else { "" };
        format!(
            "{} {}{room} has {} characters, and {LONGEST_LABEL} are the limit; make {shorten} shorter by {}",
            self.what,
            quoted(&self.parts.concat()),
            self.length(),
            self.excess()
        )
    }
}

/// The name of a pipeline, and what is made of it without its vertices. Answers by how many characters it is too long.
pub(super) fn pipeline(found: &mut Findings, rollout: &ObjectMeta, called: &Called) -> usize {
    let parts = [&called.name, "-daemon-svc", ""];
    whole(found, rollout, called, &Made { what: "the name of Service", parts, more: 0 })
}

/// The name of a MonoVertex.
pub(super) fn mono_vertex(found: &mut Findings, rollout: &ObjectMeta, called: &Called) {
    let parts = [&called.name, "-mv-daemon-svc", ""];
    whole(found, rollout, called, &Made { what: "the name of Service", parts, more: 0 });
}

/// The name of an ISB service.
pub(super) fn isb_service(found: &mut Findings, rollout: &ObjectMeta, called: &Called) {
    let what = "the label controller-revision-hash of the pods of StatefulSet";
    whole(found, rollout, called, &Made { what, parts: ["isbsvc-", &called.name, "-js"], more: REVISION });
}

fn whole(found: &mut Findings, rollout: &ObjectMeta, called: &Called, longest: &Made<'_>) -> usize {
    let name = rollout.name.as_deref().unwrap_or_default();
    if !name.is_empty() && !is_dns_1035(name) {
        found.violation(
            FIELD,
            format!(
                "{} cannot be the beginning of the names of Services: use lower-case letters, digits and '-', beginning with a \
                 letter",
                quoted(name)
            ),
        );
    }
    if longest.excess() > 0 {
        found.violation(FIELD, longest.words(called, "it"));
    }
    longest.excess()
}

/// What is made of the name of a vertex, which stands at `place`. `reported` characters too many of the pipeline's own name were
/// reported already.
pub(super) fn vertex(found: &mut Findings, called: &Called, place: &Place<'_>, vertex: &str, reported: usize) {
    let parts = [&*format!("{}-", called.name), vertex, "-headless"];
    part(found, called, place, &Made { what: "the name of Service", parts, more: 0 }, reported);
}

/// What is made of the name of a side input, which stands at `place`.
pub(super) fn side_input(found: &mut Findings, called: &Called, place: &Place<'_>, side_input: &str, reported: usize) {
    let made = Made {
        what: "the label app.kubernetes.io/name of Deployment",
        parts: [&called.name, "-si-", side_input],
        more: 0,
    };
    part(found, called, place, &made, reported);
}

fn part(found: &mut Findings, called: &Called, place: &Place<'_>, made: &Made<'_>, reported: usize) {
    if made.excess() > reported {
        found.violation(place.path_of("name"), made.words(called, &format!("this name, or {FIELD},")));
    }
}

/// The one among `known` that a name was probably meant to be. As guessing takes its time, it is done for as much as anybody reads.
pub(super) fn nearest<'n>(found: &mut Findings, name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    const GUESSES: usize = 50;
    const LOOKED_AT: usize = 100;
    found.guesses += 1;
    if found.guesses > GUESSES { None } else { crate::nearest::nearest(name, known.take(LOOKED_AT)) }
}
