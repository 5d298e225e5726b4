//! The finalizer of this operator: who has it, and when it comes and goes. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    api::FINALIZER,
    plan::{Plan, Step},
};

/// What comes before everything else that may be decided about an object of our own kinds.
#[derive(Clone, Debug, PartialEq)]
pub enum Hold {
    /// This, and nothing else.
    First(Plan),
    /// It is being deleted, and waits for us.
    Deleting,
    /// It cannot go without us.
    Held,
}

impl Hold {
    /// How an object is held.
    #[must_use]
    pub fn of(metadata: &ObjectMeta, namespace_terminating: bool) -> Self {
        let held = metadata.finalizers.iter().flatten().any(|f| f == FINALIZER);
        if namespace_terminating {
            // Everything goes with the namespace; nothing may be created in it and nobody waits for us.
            return Self::First(if held { Plan::of(vec![release(metadata)]) } else { Plan::default() });
        }
        match (metadata.deletion_timestamp.is_some(), held) {
            (true, true) => Self::Deleting,
            (true, false) => Self::First(Plan::default()),
            (false, true) => Self::Held,
            (false, false) => {
                let mut all = metadata.finalizers.clone().unwrap_or_default();
                all.push(FINALIZER.to_owned());
                Self::First(Plan::of(vec![Step::SetFinalizers(all)]))
            }
        }
    }
}

/// Lets go of an object: the finalizers of others stay.
#[must_use]
pub fn release(metadata: &ObjectMeta) -> Step {
    let others = metadata.finalizers.iter().flatten().filter(|f| *f != FINALIZER);
    Step::SetFinalizers(others.cloned().collect())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    #[test]
    fn an_object_is_held_from_the_first_look_until_it_is_let_go_and_those_of_others_stay() {
        let set = |finalizers: &[&str]| {
            Hold::First(Plan::of(vec![Step::SetFinalizers(finalizers.iter().map(|f| (*f).to_owned()).collect())]))
        };
        let nothing = || Hold::First(Plan::default());
        let (free, ours) = (&["other/one"][..], &["other/one", FINALIZER][..]);
        let cases = [
            (free, false, false, set(ours)),
            (ours, false, false, Hold::Held),
            (ours, true, false, Hold::Deleting),
            (free, true, false, nothing()),
            (ours, false, true, set(free)),
            (ours, true, true, set(free)),
            (free, false, true, nothing()),
        ];
        for (finalizers, deleting, terminating, wanted) in cases {
            let metadata = ObjectMeta {
                finalizers: Some(finalizers.iter().map(|f| (*f).to_owned()).collect()),
                deletion_timestamp: deleting.then_some(Time(jiff::Timestamp::UNIX_EPOCH)),
                ..ObjectMeta::default()
            };
            assert_eq!(Hold::of(&metadata, terminating), wanted, "{finalizers:?} {deleting} {terminating}");
        }
    }
}
