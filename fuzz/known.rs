//! A small cluster, the same for every review: definitions good and bad, two rollouts beside each other, one that pins a
//! version which nobody defines any more, and objects of Numaflow that keep an instance in use.

use std::sync::Arc;

use numaplane::{
    admission::{Looked, View},
    api::{NumaflowControllerRollout, Promoted},
    definitions::{Definition, PermittedKinds, parse_config_map},
    numaflow::{Dependant, Dependants},
    settings::{Defaults, Settings},
    store::Seen,
    world::{CLUSTER, Decoded, DefinitionsMap, Pinned, PinnedContent, World},
};
use serde_json::json;

/// Namespace of the operator.
const OPERATOR: &str = "numaplane-system";

/// The cluster.
pub struct Cluster {
    settings: Settings,
    world: World,
    /// What is read of it for a review: before it was asked, and after.
    looked: [Looked; 2],
}

impl Cluster {
    pub fn new() -> Self {
        let scopes = [CLUSTER.to_owned()];
        let settings = Settings {
            operator_namespace: OPERATOR.to_owned(),
            namespaces: ["team-a", "team-b", OPERATOR].map(str::to_owned).into(),
            definitions_anywhere: true,
            permitted: PermittedKinds::default(),
            defaults: Defaults::default(),
            config: None,
            resync: std::time::Duration::from_mins(10),
            workers: 1,
        };
        let world = World::new(&scopes, &scopes, OPERATOR, [], Defaults::default());
        let asked = Looked { revisions: pinned().into(), dependants: Some(dependants()) };
        let cluster = Self { looked: [Looked::default(), asked], settings, world };
        cluster.define(OPERATOR, "definitions", include_str!("seeds/definitions/numaflow.yaml"));
        cluster.define(OPERATOR, "broken", include_str!("seeds/definitions/broken.yaml"));
        cluster.define(OPERATOR, "twice", include_str!("seeds/definitions/twice.yaml"));
        cluster.define("team-b", "own", include_str!("seeds/definitions/every-kind.yaml"));
        cluster.roll("team-a", "numaflow-controller", "", "1.8.0");
        cluster.roll("team-a", "other", "two", "1.8.0");
        cluster.roll("team-b", "numaflow-controller", "", "v2.0.0-rc.1+build");
        cluster
    }

    /// What is known of it: before it was asked, or after.
    pub fn view(&self, asked: bool) -> View<'_> {
        View::new(&self.world, &self.settings, &self.looked[usize::from(asked)])
    }

    fn define(&self, namespace: &str, name: &str, value: &str) {
        let data = [("definitions.yaml".to_owned(), value.to_owned())].into();
        let parsed = parse_config_map(namespace, name, &data);
        let key = (namespace.to_owned(), name.to_owned());
        self.world.config_maps.offer(
            key.clone(),
            Seen::for_good(name),
            DefinitionsMap { uid: name.to_owned(), parsed },
        );
        self.world.catalogue_follows(&key);
    }

    fn roll(&self, namespace: &str, name: &str, instance: &str, version: &str) {
        let rollout = json!({
            "apiVersion": "numaplane.numaproj.io/v1alpha1",
            "kind": "NumaflowControllerRollout",
            "metadata": {"namespace": namespace, "name": name, "creationTimestamp": "2025-11-01T10:00:00Z"},
            "spec": {"controller": {"version": version, "instanceID": instance}},
        });
        let mut rollout: NumaflowControllerRollout = serde_json::from_value(rollout).expect("a rollout");
        let promoted =
            Promoted { version: version.to_owned(), instance_id: instance.to_owned(), ..Promoted::default() };
        rollout.status.get_or_insert_default().promoted = Some(promoted);
        let key = (namespace.to_owned(), name.to_owned());
        self.world.rollouts.offer(key, Seen::for_good(name), Decoded::Good(Arc::new(rollout)));
    }
}

/// One version that is pinned here, and one in a Secret.
fn pinned() -> [(String, Arc<Pinned>); 2] {
    let definition = Definition {
        version: "1.6.0".to_owned(),
        full_spec: "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: \"a{{ .InstanceSuffix }}\"}\n".to_owned(),
        isolated: None,
        leader_election: None,
    };
    let pinned = |number: i64, version: &str, content: PinnedContent| {
        let owner = "0a1b2c3d-0000-4000-8000-000000000001".to_owned();
        let pinned = Pinned { uid: number.to_string(), owner, number, version: version.to_owned(), content };
        (revision(number), Arc::new(pinned))
    };
    [
        pinned(1, "1.6.0", PinnedContent::Here(Arc::new(definition))),
        pinned(2, "1.5.0", PinnedContent::Secret(revision(2))),
    ]
}

fn revision(number: i64) -> String {
    format!("numaflow-controller-0a1b2c3d-{number}")
}

fn dependants() -> Dependants {
    let pipeline = |name: &str, instance: &str| Dependant {
        kind: "Pipeline".to_owned(),
        name: name.to_owned(),
        instance: instance.to_owned(),
    };
    Dependants { unlisted: Vec::new(), objects: vec![pipeline("orders-0", ""), pipeline("clicks-0", "two")] }
}
