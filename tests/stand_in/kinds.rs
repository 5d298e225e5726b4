//! The kinds that a controller of Numaflow has to do with, and the definitions of its own ones.

use kube::api::{ApiResource, GroupVersionKind};
use serde_json::Value;

/// The group of Numaflow's own kinds.
pub const GROUP: &str = "numaflow.numaproj.io";

/// A kind that is watched and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A Pipeline.
    Pipeline,
    /// One vertex of a pipeline.
    Vertex,
    /// An InterStepBufferService.
    Service,
    /// A MonoVertex.
    MonoVertex,
    /// A pod of a vertex or of a MonoVertex.
    Pod,
    /// The StatefulSet of an InterStepBufferService.
    StatefulSet,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Pipeline, Self::Vertex, Self::Service, Self::MonoVertex, Self::Pod, Self::StatefulSet];

    /// Those over whose objects there are passes, by a worker each.
    pub const LOOKED_AT: [Self; 4] = [Self::Pipeline, Self::Vertex, Self::Service, Self::MonoVertex];

    /// How the API server calls it.
    pub fn resource(self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Pipeline => (GROUP, "v1alpha1", "Pipeline", "pipelines"),
            Self::Vertex => (GROUP, "v1alpha1", "Vertex", "vertices"),
            Self::Service => (GROUP, "v1alpha1", "InterStepBufferService", "interstepbufferservices"),
            Self::MonoVertex => (GROUP, "v1alpha1", "MonoVertex", "monovertices"),
            Self::Pod => ("", "v1", "Pod", "pods"),
            Self::StatefulSet => ("apps", "v1", "StatefulSet", "statefulsets"),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    /// Which of its objects matter, if not all of them.
    pub fn selector(self) -> Option<&'static str> {
        match self {
            Self::Pod => Some("app.kubernetes.io/part-of=numaflow,app.kubernetes.io/component in (vertex,mono-vertex)"),
            Self::StatefulSet => Some("app.kubernetes.io/part-of=numaflow,app.kubernetes.io/component=isbsvc"),
            _ => None,
        }
    }
}

/// The CustomResourceDefinitions of Numaflow's kinds.
// The file is part of the program.
#[allow(clippy::expect_used)]
pub fn definitions() -> Vec<Value> {
    include_str!("crds.yaml")
        .split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).expect("crds.yaml is YAML"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_numaflow_that_is_played_is_defined() {
        let names: Vec<String> = definitions().iter().map(|d| d["metadata"]["name"].as_str().unwrap().into()).collect();
        for kind in Kind::LOOKED_AT {
            let resource = kind.resource();
            assert!(names.contains(&format!("{}.{GROUP}", resource.plural)), "{names:?}");
        }
        assert_eq!(names.len(), 4);
    }
}
