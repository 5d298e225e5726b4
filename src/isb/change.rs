//! How an ISB service differs from what its rollout asks for, what that needs, and how it is applied. Pure.

use std::sync::Arc;

use super::{decide::Turn, judge::Health};
use crate::{
    api::{ANNOTATION_INSTANCE, IsbChange, IsbStage, Strategy},
    changes::{self, Change, Field},
    numaflow::LiveIsb,
    plan::{NOT_KEPT, Plan, Step},
    summary::Summary,
    time::of_day,
    words::list,
    wrapped::{ISB_SERVICE, Tries, Wanted, drifted, removal},
};

/// How an ISB service differs from what is asked for; with the changed fields.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Pending {
    /// It does not.
    None,
    /// Somebody changed it directly.
    Drift,
    /// It can be changed at once.
    Direct(Vec<String>),
    /// Its pipelines have to pause first.
    Pause(Vec<String>),
    /// Another one has to take its place, and its pipelines have to pause first.
    Recreate(Vec<String>),
}

impl Turn<'_> {
    /// How the ISB service differs from what is asked for.
    pub(super) fn pending(&self, child: &LiveIsb) -> Pending {
        let wanted = self.wanted_for(&child.version.name);
        if child.deleting {
            // Nobody can take that back: its pipelines move to another one.
            return Pending::Recreate(vec!["metadata.deletionTimestamp".to_owned()]);
        }
        if child.applied() == Some(&wanted.hash) {
            let drift = drifted(child, &wanted, false, &self.next.left_alone);
            return if drift { Pending::Drift } else { Pending::None };
        }
        if child.instance() != wanted.instance() {
            // Numaflow never hands an object from one controller to another.
            return Pending::Recreate(vec![format!("metadata.annotations[{ANNOTATION_INSTANCE}]")]);
        }
        let old = child.ownership.ours.as_ref().unwrap_or(&child.spec);
        match changes::classify(old, &wanted.spec, &self.s.rules) {
            Change::None => Pending::Direct(vec!["metadata".to_owned()]),
            Change::Direct(fields) => Pending::Direct(paths(&fields)),
            Change::Pause(fields) if self.manner.strategy == Strategy::NoStrategy => Pending::Direct(paths(&fields)),
            Change::Pause(fields) => Pending::Pause(paths(&fields)),
            Change::Recreate(fields) => Pending::Recreate(paths(&fields)),
        }
    }

    /// The steps that bring it to what is wanted.
    pub(super) fn applying(&mut self, child: &LiveIsb, wanted: &Wanted) -> Vec<Step> {
        // Whoever refuses to remove them does not keep the rest from being applied.
        let refused = self.steering_refusal().is_some();
        let removal = removal(child, wanted, false).filter(|(_, hash)| !refused && *hash != self.next.left_alone);
        if let Some((patch, hash)) = removal {
            if self.s.learned.refusals.iter().any(|r| r.reason == NOT_KEPT) {
                // They come back: the server fills them in.
                self.next.left_alone = hash;
                return Vec::new();
            }
            let (object, patch) = (child.version.clone(), Arc::new(patch));
            let why = "fields that nobody asked for are removed";
            return vec![Step::PatchNumaflow { kind: ISB_SERVICE.kind, object, patch, why }];
        }
        let body = Arc::new(wanted.body(&child.version.name));
        vec![Step::ApplyNumaflow { kind: ISB_SERVICE.kind, body, expect: Some(child.version.clone()) }]
    }

    /// A change that pipelines have to pause for: whether it is begun now.
    pub(super) fn consider(mut self, child: &LiveIsb, pending: &Pending) -> Plan {
        let (Pending::Pause(fields) | Pending::Recreate(fields)) = pending else {
            return Plan::default();
        };
        let Ok(wanted) = self.wanted.clone() else { return Plan::default() };
        let now = self.now;
        match self.as_asked(&wanted).tries(self.next.last_attempt.as_ref(), now) {
            Tries::Now => {}
            // What somebody deletes is about another one, whatever was given up of this.
            Tries::Never if child.deleting => {}
            Tries::Never => {
                let (tidy, last) = (self.tidy(), self.next.last_attempt.clone().unwrap_or_default());
                return self.finish(tidy, Summary::failed(&last.reason, &last.message));
            }
            Tries::After(wait) => {
                self.again(wait);
                let (tidy, last) = (self.tidy(), self.next.last_attempt.clone().unwrap_or_default());
                return self.finish(tidy, Summary::blocked(&last.reason, &last.message));
            }
        }
        if let Some(words) = self.gone(wanted.instance()) {
            let words = format!("{words}; without it InterStepBufferService/{} cannot be changed", child.version.name);
            return self.finish(Vec::new(), Summary::pending("ControllerUnavailable", &words));
        }
        let change = IsbChange {
            attempt: self.new_attempt(&wanted.hash),
            generation: self.next.observed_generation,
            hash: wanted.hash.clone(),
            retry: self.retry.clone(),
            fields: fields.clone(),
            started_at: Some(self.stamp()),
            ..IsbChange::default()
        };
        if matches!(pending, Pending::Recreate(_)) {
            let to = self.next_name();
            self.next.name_count = crate::api::child_number(self.name(), &to);
            return self.enter(IsbChange { to, ..change }, IsbStage::Beside);
        }
        let named = self.wanted_for(&child.version.name);
        if !self.s.learned.planned.contains(&(child.version.name.clone(), named.hash.clone())) {
            if let Some(refusal) = self.refusal().cloned() {
                return self.blocked(&refusal);
            }
            // The server is asked before anybody is paused. Its resourceVersion would only make it fail when Numaflow is busy.
            let (body, expect) = (Arc::new(named.body(&child.version.name)), child.version.clone().of_any_state());
            return Plan::of(vec![Step::CheckNumaflow { kind: ISB_SERVICE.kind, body, expect }]);
        }
        match self.health(&child.version.name, child.instance()) {
            Err(look) => Plan::of(vec![look]),
            // Nobody is paused for what could not be judged afterwards.
            Ok(Health::Unknown(words)) => {
                self.again(self.manner.interval);
                let words = format!("InterStepBufferService/{}: {words}; nobody was paused", child.version.name);
                self.finish(Vec::new(), Summary::blocked("NoAnswer", &words))
            }
            Ok(_) => self.ask(change),
        }
    }

    /// What a change is, in words.
    pub(super) fn change_in_words(change: &IsbChange) -> String {
        let fields = list(&change.fields, 3);
        let since = change.started_at.as_ref().map(|t| of_day(t.0)).unwrap_or_default();
        format!("a change of {fields}, begun at {since}")
    }
}

fn paths(fields: &[Field]) -> Vec<String> {
    fields.iter().map(|field| field.path.clone()).collect()
}
