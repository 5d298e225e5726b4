//! Admission: what is asked before an object is stored, and the answer. Pure: a review, and what is known of the cluster.
//!
//! ```text
//! bytes ─review::read─▶ Review ─judge(View)─▶ Judgement ─▶ Verdict ─review::answer─▶ the answer
//!                                  ▲              └▶ doubts: what is to be read again before anything is refused
//!                                  └──────────────────┘
//! ```
//!
//! Nothing here decides by itself what a good spec is: [`crate::valid`] and the reconcilers' own resolution do.

pub mod config_maps;
#[cfg(test)]
pub(crate) mod fake;
pub mod registration;
pub mod review;
pub mod rollouts;
mod view;

use std::{collections::HashMap, hash::Hash};

use self::review::Review;
pub use self::view::{Looked, User, View};
use crate::valid::Finding;

/// The answer to a review.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Why it is refused, field by field; empty for what is admitted.
    pub violations: Vec<Finding>,
    /// What the user is told in any case.
    pub warnings: Vec<String>,
}

/// What a review comes to by what is known: an answer, and whether that is certain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// What is wrong, whatever else there is in the cluster.
    pub violations: Vec<Finding>,
    /// What is wrong if nothing has happened that is not known yet.
    pub doubtful: Vec<Finding>,
    /// What the user is told in any case.
    pub warnings: Vec<String>,
    /// What has to be read from the API server before this can be the last word; empty where it is.
    pub doubts: Vec<Doubt>,
}

/// Something to be read from the API server, because a verdict hangs on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// What to read.
    pub about: About,
    /// What the user is told where that cannot be read.
    pub unchecked: String,
}

/// What a doubt is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum About {
    /// The definitions ConfigMaps that count for the namespace of the object.
    Definitions,
    /// The ControllerRevisions in which the rollout has pinned definitions.
    Revisions,
    /// The NumaflowControllerRollouts in the namespace of the object.
    Rollouts,
    /// All NumaflowControllerRollouts.
    AllRollouts,
    /// Numaflow's objects in the namespace of the object.
    Dependants,
}

/// Judges a review by what is known. What is neither one of the four rollout kinds nor a platform ConfigMap is admitted.
#[must_use]
pub fn judge(review: &Review, known: &View<'_>) -> Judgement {
    if config_maps::is_about(review) { config_maps::judge(review, known) } else { rollouts::judge(review, known) }
}

impl Judgement {
    fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// Refuses what is wrong now and was not before: whoever mends one thing must not have to mend all. Each fault is known by
    /// a mark.
    fn ratchet<M: Eq + Hash>(
        &mut self,
        now: impl IntoIterator<Item = (Finding, M)>,
        before: impl IntoIterator<Item = M>,
    ) {
        let mut known: HashMap<M, usize> = HashMap::new();
        for mark in before {
            *known.entry(mark).or_default() += 1;
        }
        for (finding, mark) in now {
            match known.get_mut(&mark).filter(|left| **left > 0) {
                Some(left) => {
                    *left -= 1;
                    self.warn(format!("not usable, as before: {finding}"));
                }
                None => self.violations.push(finding),
            }
        }
    }

    fn doubt(&mut self, about: About, unchecked: impl Into<String>) {
        self.doubts.push(Doubt { about, unchecked: unchecked.into() });
    }

    /// Whether this has to be read before it is the last word.
    #[must_use]
    pub fn doubts(&self, about: About) -> bool {
        self.doubts.iter().any(|doubt| doubt.about == about)
    }

    /// The answer, if what is known is all there is.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        let violations = self.violations.into_iter().chain(self.doubtful).collect();
        Verdict { violations, warnings: self.warnings }
    }

    /// The answer, if what is doubtful could not be read: it is admitted, because admission is a convenience there. The
    /// operator asks the same again when it comes to it.
    #[must_use]
    pub fn unchecked(self, why: &str) -> Verdict {
        let mut unchecked: Vec<String> = self.doubts.into_iter().map(|doubt| doubt.unchecked).collect();
        unchecked.dedup();
        let mut warnings = self.warnings;
        warnings.extend(unchecked.into_iter().map(|what| format!("{what} ({why})")));
        Verdict { violations: self.violations, warnings }
    }
}

#[cfg(test)]
mod tests;
