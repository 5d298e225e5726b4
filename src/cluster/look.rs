//! Reads of leases, and of pods and their events: made when an assessment asks for them, never watched. Deleting the lease
//! of an isolated copy belongs here too.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Pod},
};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams},
    core::PartialObjectMeta,
};

use super::{
    Cluster, Lesson,
    answer::{is_absent, limited, with_sources},
};
use crate::{
    api::{ANNOTATION_INSTANCE, LABEL_ISOLATED},
    definitions::lease_of_instance,
    evidence::{Evidence, LeaseSeen, Look, PodSeen},
    kinds::{self, NUMAFLOW},
    numaflow::{Dependant, Dependants, IsbEvidence},
};

/// Pods of one workload that are looked at: what is wrong with a version is wrong with any of them.
const PODS: u32 = 50;
/// Pods whose events are asked for.
const TOLD: usize = 2;

impl Cluster {
    /// Reads what there is. What cannot be read is said so in the answer, which is evidence too.
    pub(super) async fn look(&self, namespace: &str, look: &Look) -> Evidence {
        let mut evidence = Evidence::default();
        if let Err(error) = self.read(namespace, look, &mut evidence).await {
            evidence.unreadable = Some(with_sources(&error));
        }
        evidence
    }

    async fn read(&self, namespace: &str, look: &Look, evidence: &mut Evidence) -> Result<(), kube::Error> {
        if let Some(name) = &look.lease {
            let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
            evidence.lease = limited(api.get_opt(name)).await?.as_ref().map(LeaseSeen::of);
        }
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        for (workload, selector) in &look.workloads {
            let list = limited(api.list(&ListParams::default().labels(selector).limit(PODS))).await?;
            evidence.pods.extend(list.items.iter().filter_map(|pod| PodSeen::of(pod, workload)));
        }
        for name in &look.isb {
            if let Some(seen) = self.isb(namespace, name).await? {
                evidence.isb.insert(name.clone(), seen);
            }
        }
        if look.events {
            let troubled = evidence.pods.iter_mut().filter(|p| !p.deleting && !p.trouble.is_empty());
            for pod in troubled.take(TOLD) {
                // Without its events a pod's own words still stand.
                pod.event = self.last_warning(namespace, &pod.name).await.unwrap_or_default();
            }
        }
        Ok(())
    }

    /// An ISB service and its StatefulSet; `None` where there is none of that name.
    async fn isb(&self, namespace: &str, name: &str) -> Result<Option<IsbEvidence>, kube::Error> {
        let Some(resource) = kinds::numaflow("InterStepBufferService") else { return Ok(None) };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        let Some(service) = limited(api.get_opt(name)).await? else { return Ok(None) };
        let Some(kind) = kinds::usual("apps", "StatefulSet") else { return Ok(None) };
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &kind.resource);
        let set = limited(api.get_opt(&format!("isbsvc-{name}-js"))).await?;
        let set = set.as_ref().map(|set| (&set.metadata, &set.data));
        Ok(Some(IsbEvidence::read(&service.metadata, &service.data, set)))
    }

    /// The last event about a pod that warns.
    async fn last_warning(&self, namespace: &str, pod: &str) -> Result<String, kube::Error> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        let about = format!("involvedObject.kind=Pod,involvedObject.name={pod},type=Warning");
        let events = limited(api.list(&ListParams::default().fields(&about))).await?.items;
        let when = |event: &Event| {
            let last = event.series.as_ref().and_then(|s| s.last_observed_time.as_ref()).map(|t| t.0);
            last.or(event.last_timestamp.as_ref().map(|t| t.0)).or(event.event_time.as_ref().map(|t| t.0))
        };
        let last = events.into_iter().max_by_key(when);
        Ok(last
            .map(|e| format!("{}: {}", e.reason.unwrap_or_default(), e.message.unwrap_or_default()))
            .unwrap_or_default())
    }

    /// Numaflow objects that are in a namespace now. A kind that nobody serves has none; one that cannot be listed is named.
    pub(super) async fn dependants(&self, namespace: &str) -> Dependants {
        let mut dependants = Dependants::default();
        for (kind, resource) in NUMAFLOW.iter().filter_map(|(kind, _)| Some((*kind, kinds::numaflow(kind)?))) {
            let api: Api<PartialObjectMeta<DynamicObject>> =
                Api::namespaced_with(self.client.clone(), namespace, &resource);
            match limited(api.list_metadata(&ListParams::default())).await {
                Ok(list) => dependants.objects.extend(list.items.iter().map(|object| {
                    let annotations = object.metadata.annotations.as_ref();
                    Dependant {
                        kind: kind.to_owned(),
                        name: object.metadata.name.clone().unwrap_or_default(),
                        instance: annotations.and_then(|a| a.get(ANNOTATION_INSTANCE)).cloned().unwrap_or_default(),
                    }
                })),
                Err(kube::Error::Api(status)) if is_absent(&status) => {}
                Err(error) => {
                    tracing::warn!(namespace, kind, error = with_sources(&error), "cannot be listed");
                    dependants.unlisted.push(kind.to_owned());
                }
            }
        }
        dependants
    }

    /// Deletes the lease of an isolated copy that has no pods any more; one that is gone already is as good. Nothing depends on
    /// it, so what cannot be read is taken for living pods, and what may not be read or deleted does no harm.
    pub(super) async fn delete_lease(&self, namespace: &str, instance: &str) -> Lesson {
        let name = lease_of_instance(instance);
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let of_copy = ListParams::default().labels(&format!("{LABEL_ISOLATED}={instance}")).limit(1);
        // A missing right, an admission policy: asking again does not help.
        let forbidden = |error: &kube::Error| matches!(error, kube::Error::Api(status) if (400..500).contains(&status.code) && ![409, 429].contains(&status.code));
        match limited(pods.list_metadata(&of_copy)).await {
            Ok(alive) if alive.items.is_empty() => {}
            Err(error) if forbidden(&error) => {}
            Ok(_) | Err(_) => return Lesson::CopyLives(instance.to_owned()),
        }
        let api: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        match limited(api.delete(&name, &DeleteParams::default())).await {
            Ok(_) => tracing::info!(namespace, lease = name, "the lease of an isolated copy removed"),
            Err(kube::Error::Api(status)) if is_absent(&status) => {}
            Err(error) if forbidden(&error) => {
                tracing::warn!(namespace, lease = name, says = %error, "the lease of an isolated copy stays");
            }
            Err(error) => {
                tracing::warn!(namespace, lease = name, says = %error, "the lease of an isolated copy stays for now");
                return Lesson::CopyLives(instance.to_owned());
            }
        }
        Lesson::LeaseDeleted(instance.to_owned())
    }
}
