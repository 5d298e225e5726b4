//! Scenarios of deletion: what a rollout waits for, who holds it, and a namespace that goes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{model::Model, scenarios::deployed};
use crate::{api::ANNOTATION_FORCE, rollout::resolve::Rival};

#[test]
fn a_rollout_that_runs_nothing_can_be_deleted_although_pipelines_of_its_instance_exist() {
    let mut model = Model::new();
    model.rivals.push(Rival {
        name: "x".into(),
        instances: vec![String::new()],
        promoted: Some(String::new()),
        created: 5,
    });
    model.run();
    model.add_pipeline("p", "");
    model.delete();
    model.settle();
    assert!(model.gone);
}

#[test]
fn a_deleted_rollout_waits_for_its_pipelines_and_keeps_their_controller() {
    let mut model = deployed();
    let before = model.production();
    model.add_pipeline("p", "");
    model.delete();
    model.settle();
    assert!(model.held() && !model.gone);
    assert_eq!(model.production(), before);
    assert!(model.message().contains("Pipeline/p"), "{}", model.message());
    model.live.values_mut().for_each(|l| l.fields = "taken".into());
    model.settle();
    assert!(model.live.values().all(|l| l.fields.starts_with("fields of")), "drift is still repaired");
    model.dependants.objects.clear();
    model.settle();
    assert!(model.gone);
    assert!(model.live.is_empty());
}

#[test]
fn a_foreground_deletion_that_takes_children_and_revisions_leaves_the_controller_to_its_pipelines() {
    for version in ["1.0", "2.0"] {
        let mut model = deployed();
        model.add_pipeline("p", "");
        model.set_version(version);
        model.settle();
        model.delete();
        model.children.clear();
        model.revisions.clear();
        model.live.retain(|id, _| id.kind != "Deployment");
        model.settle();
        assert!(!model.gone);
        assert!(model.uid_of("numaflow-controller").is_some(), "put back, from the ConfigMap");
        assert!(model.children.is_empty() && model.revisions.is_empty(), "they would be taken again and again");
        model.dependants.objects.clear();
        model.settle();
        assert!(model.gone && model.live.is_empty());
    }
}

#[test]
fn force_ends_the_waiting_of_a_deletion_and_leaves_the_controller_running() {
    let mut model = deployed();
    let before = model.production();
    model.add_pipeline("p", "");
    model.delete();
    model.rollout.metadata.annotations = Some([(ANNOTATION_FORCE.to_owned(), "now".to_owned())].into());
    model.settle();
    assert!(model.gone);
    assert_eq!(model.production(), before);
}

#[test]
fn whose_finalizer_holds_what_is_waited_for_is_named() {
    for deleted in [false, true] {
        let mut model = deployed();
        let held = model.live.values_mut().find(|l| l.id.kind == "Deployment").unwrap();
        (held.deleting, held.finalizers) = (true, vec!["team/audit".into()]);
        if deleted {
            model.delete();
        } else {
            model.set_version("2.0");
        }
        model.settle();
        let named = "Deployment/numaflow-controller (held by finalizer team/audit) to be gone";
        assert!(model.message().contains(named), "{}", model.message());
    }
    let mut model = deployed();
    let child = model.children.get_mut("numaflow-controller-0").unwrap();
    child.metadata.deletion_timestamp = Some(Time(model.now));
    child.metadata.finalizers = Some(vec!["team/audit".into()]);
    model.settle();
    let status = model.rollout.status.clone().unwrap();
    let message = serde_json::to_string(&status.conditions).unwrap();
    assert!(
        message.contains("NumaflowController/numaflow-controller-0 is being deleted (held by finalizer team/audit)"),
        "{message}"
    );
}

#[test]
fn unreadable_lists_of_dependants_hold_a_deletion() {
    let mut model = deployed();
    model.dependants.unlisted.push("Pipeline".into());
    model.delete();
    model.settle();
    assert!(!model.gone);
    assert!(model.message().contains("list Pipeline"), "{}", model.message());
}

#[test]
fn c14_a_terminating_namespace_gets_nothing_new_and_is_let_go() {
    for settled in [true, false] {
        let mut model = if settled { deployed() } else { Model::new() };
        if !settled {
            model.turn(4);
        }
        model.terminating = true;
        let steps = model.log.len();
        model.settle();
        assert!(model.log[steps..].iter().all(|step| step.starts_with("SetFinalizers")), "{:?}", &model.log[steps..]);
        assert!(!model.held());
    }
}

#[test]
fn a_controller_is_not_taken_from_a_pipeline_that_no_watch_has_brought_yet() {
    let mut model = deployed();
    model.add_pipeline("p", "");
    model.unseen = std::mem::take(&mut model.dependants.objects);
    let before = model.production();
    model.delete();
    model.settle();
    assert!(!model.gone);
    assert_eq!(model.production(), before);
    assert!(model.message().contains("Pipeline/p"), "{}", model.message());
    model.unseen.clear();
    model.settle();
    assert!(model.gone);
}
