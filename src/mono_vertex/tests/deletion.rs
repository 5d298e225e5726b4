//! What happens when the rollout, or the namespace, is deleted.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::model::{FOREIGN, Model};

fn deleted() -> Model {
    let mut m = Model::running();
    m.rollout.metadata.deletion_timestamp = Some(Time(m.now));
    m
}

fn is_held(m: &Model) -> bool {
    m.rollout.metadata.finalizers.as_ref().is_some_and(|f| !f.is_empty())
}

#[test]
fn the_mono_vertex_goes_first_and_then_the_rollout() {
    let mut m = deleted();
    m.turn();
    assert_eq!((m.writes.as_slice(), m.child.is_none(), is_held(&m)), (["delete".to_owned()].as_slice(), true, false));
}

#[test]
fn who_else_holds_it_is_named_and_force_ends_the_waiting() {
    let mut m = deleted();
    m.child.as_mut().unwrap().object.finalizers = vec![FOREIGN.into()];
    m.turn();
    m.turn();
    assert!(is_held(&m));
    let words = "waiting for MonoVertex/m-0 (held by finalizer team/audit) to be gone";
    assert!(m.status().message.contains(words), "{}", m.status().message);
    assert_eq!((m.condition("Deleting").0.as_str(), m.condition("Ready").0.as_str()), ("True", "False"));
    m.annotate("force", "let go");
    m.turn();
    m.turn();
    assert!(!is_held(&m));
    assert_eq!(m.status().last_force.unwrap().ended, "the deletion");
}

#[test]
fn it_waits_until_it_is_known_whether_one_is_left() {
    let mut m = deleted();
    m.child = None;
    m.unknown = vec!["MonoVertices (not listed yet)".into()];
    m.turn();
    assert!(is_held(&m) && m.status().message.contains("to be listed"), "{}", m.status().message);
    (m.unknown, m.served) = (Vec::new(), false);
    m.turn();
    assert!(is_held(&m) && m.status().message.contains("to serve MonoVertices"), "{}", m.status().message);
    m.served = true;
    m.turn();
    assert!(!is_held(&m));
}

#[test]
fn in_a_namespace_that_goes_nobody_waits_for_us_and_nothing_is_made() {
    let mut m = Model::running();
    (m.terminating, m.child) = (true, None);
    m.turn();
    assert!(!is_held(&m) && m.writes.is_empty(), "{:?}", m.writes);
}
