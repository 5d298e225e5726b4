//! Requests of ISB services: whose pipelines they mean, and what is expected of one that failed while its ISB service is changed.

use super::model::Model;
use crate::drain::Scope;

/// One whose ISB service asks for a pause, which is among these.
fn asked(names: &[&str], changing: bool) -> Model {
    let mut m = Model::running();
    m.request(None);
    let request = &mut m.requests[0];
    request.by = "ISBServiceRollout/i".into();
    request.scope = Scope::Isb(names.iter().map(|name| (*name).to_owned()).collect());
    request.changing = changing;
    m
}

#[test]
fn a_request_means_pipelines_on_each_of_its_isb_services_and_no_others() {
    let mut m = asked(&["i-0", "default"], false);
    m.settle();
    assert_eq!((m.phase(), m.answer().0.as_str()), ("Paused", "Paused"));
    for names in [&[][..], &["i-0", "i-1"]] {
        let mut m = asked(names, false);
        m.settle();
        assert_eq!((m.phase(), m.status().pause_requests.len()), ("Running", 0), "{names:?}");
    }
}

/// Fails, and is looked at a little later than it may be waited for.
fn fail(m: &mut Model) {
    m.numaflow.fails = Some("isbsvc not healthy".into());
    m.settle();
    m.pass_time(61);
    m.settle();
}

#[test]
fn one_that_failed_before_its_isb_service_is_changed_is_excused_like_any_other() {
    let mut m = asked(&["default"], false);
    fail(&mut m);
    assert_eq!((m.phase(), m.answer().0.as_str()), ("Failed", "Excused"));
    assert!(m.answer().2.contains("it has been Failed for 1m: isbsvc not healthy"), "{:?}", m.answer());
}

#[test]
fn one_that_fails_while_its_isb_service_is_changed_is_kept_paused() {
    let mut m = asked(&["default"], true);
    fail(&mut m);
    assert_eq!((m.phase(), m.answer().0.as_str()), ("Failed", "Pausing"));
    assert!(m.wants_paused());
}

#[test]
fn the_change_of_another_isb_service_excuses_nothing() {
    let mut m = asked(&["another"], true);
    let theirs = m.requests[0].clone();
    m.request(None);
    m.requests.push(theirs);
    fail(&mut m);
    assert_eq!((m.phase(), m.answer().0.as_str()), ("Failed", "Excused"));
}
