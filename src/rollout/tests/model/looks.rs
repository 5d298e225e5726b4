//! What a look at leases, pods and ISB services finds in the modelled cluster.

use super::*;
use crate::evidence::{LeaseSeen, PodSeen};

impl Model {
    /// What a look finds: the pods of healthy workloads are ready, and the first of them leads unless an old process does.
    pub(super) fn look(&mut self, look: &Look) -> Evidence {
        let mut pods = Vec::new();
        let mut candidate = None;
        for (id, _) in &look.workloads {
            let Some(live) = self.live.get(id) else { continue };
            let hash = live.applied.clone().unwrap_or_default();
            let ready = live.workload.as_ref().is_some_and(|w| w.missing().is_none());
            let name = format!("{}-{hash}", id.name);
            if ready && !self.leaderless.contains(&hash) {
                candidate.get_or_insert(name.clone());
            }
            let trouble = if ready { String::new() } else { "container main CrashLoopBackOff".to_owned() };
            pods.push(PodSeen {
                hostname: name.clone(),
                name,
                deleting: false,
                trouble,
                ended: String::new(),
                event: String::new(),
            });
        }
        let lease = look.lease.as_ref().and_then(|lease| {
            if self.now >= self.lease_from
                && let Some(pod) = candidate
            {
                self.leases.insert(lease.clone(), pod);
            }
            let holder = self.leases.get(lease)?;
            Some(LeaseSeen { holder: format!("{holder}_uuid"), acquired: None, renewed: Some(self.now), seconds: 15 })
        });
        let asked = look.lease.is_some() || !look.isb.is_empty();
        let unreadable = ((self.unreadable && asked) || (self.isb_unreadable && !look.isb.is_empty()))
            .then(|| "too many requests".to_owned());
        let isb = look.isb.iter().filter_map(|name| Some((name.clone(), self.isbs.get(name)?.clone()))).collect();
        Evidence { lease, pods, isb, unreadable }
    }
}
