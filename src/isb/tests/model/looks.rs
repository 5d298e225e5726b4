//! What the modelled server answers to looks at ISB services.

use super::*;
use crate::{
    evidence::{Evidence, Look},
    numaflow::IsbEvidence,
};

impl Model {
    pub(super) fn look(&mut self, look: &Look) {
        let evidence = Evidence {
            isb: look.isb.iter().filter_map(|name| Some((name.clone(), self.evidence(name)?))).collect(),
            unreadable: self.unreadable.then(|| "statefulsets: forbidden".to_owned()),
            ..Evidence::default()
        };
        self.learned.looks.insert(look.clone(), evidence);
    }

    fn evidence(&self, name: &str) -> Option<IsbEvidence> {
        let service = self.services.get(name)?;
        let lacking = (!service.lacks.is_empty()).then(|| format!("ChildrenResourcesHealthy: {}", service.lacks));
        Some(IsbEvidence {
            deleting: service.deleting,
            created: None,
            version: service.version(),
            generation: service.generation,
            observed_generation: service.observed,
            phase: service.phase.clone(),
            lacking: lacking.into_iter().collect(),
            stateful_set: service.set.clone(),
        })
    }
}
