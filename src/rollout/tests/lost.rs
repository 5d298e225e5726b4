//! Scenarios of what is lost or left behind: children, revisions, a status, a stage of another operator.

use super::scenarios::deployed;

#[test]
fn a_revision_deleted_in_the_middle_of_an_attempt_is_pinned_again_or_rolled_back() {
    for defined in [true, false] {
        let mut model = deployed();
        model.set_version("2.0");
        model.settle();
        model.revisions.retain(|r| r.version != "2.0");
        if !defined {
            model.definitions.remove("2.0");
        }
        model.run();
        let expected = if defined { ("Deployed", Some("2.0")) } else { ("Failed", Some("1.0")) };
        assert_eq!((model.phase(), model.promoted()), expected);
    }
}

#[test]
fn a13_a_promoted_child_that_was_deleted_comes_back_and_production_is_not_touched() {
    let mut model = deployed();
    let before = model.production();
    model.children.clear();
    model.run();
    assert_eq!(model.phase(), "Deployed");
    assert_eq!(model.children.len(), 1);
    assert_eq!(model.production(), before);
}

#[test]
fn a13_children_deleted_in_the_middle_of_an_attempt_do_not_stop_it() {
    for victims in [
        vec!["numaflow-controller-0"],
        vec!["numaflow-controller-1"],
        vec!["numaflow-controller-0", "numaflow-controller-1"],
    ] {
        for version in ["2.0", "3.0-broken"] {
            let mut model = deployed();
            model.set_version(version);
            model.settle();
            for victim in &victims {
                model.children.remove(*victim);
            }
            model.run();
            assert_eq!(model.children.len(), 1, "{victims:?} {version}");
            let expected = if version == "2.0" { ("Deployed", Some("2.0")) } else { ("Failed", Some("1.0")) };
            assert_eq!((model.phase(), model.promoted()), expected, "{victims:?}");
        }
    }
}

#[test]
fn a_roll_back_whose_revision_is_gone_holds_up_no_good_spec() {
    for defined in [true, false] {
        let mut model = deployed();
        model.set_version("3.0-broken");
        model.settle();
        model.play_workloads();
        model.revisions.clear();
        if !defined {
            model.definitions.remove("1.0");
        }
        model.set_version("2.0");
        model.settle();
        let upgrade = model.rollout.status.as_ref().unwrap().upgrade.as_ref().unwrap();
        assert_eq!((upgrade.version.as_str(), upgrade.stage.as_str()), ("2.0", "Confirm"), "{}", model.message());
    }
}

#[test]
fn a_lost_status_is_found_again_by_the_label_without_a_change() {
    let mut model = deployed();
    let before = model.production();
    model.rollout.status = None;
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("1.0")));
    assert_eq!(model.production(), before);
    assert_eq!(model.children.len(), 1);
}

#[test]
fn revisions_are_kept_up_to_the_limit_and_those_in_use_always() {
    let mut model = deployed();
    model.edit(|spec| spec.revision_history_limit = Some(1));
    for n in 4..9 {
        let version = format!("{n}.0");
        model.define(&version, &["numaflow-controller"]);
        model.set_version(&version);
        model.run();
    }
    let mut versions: Vec<_> = model.revisions.iter().map(|r| r.version.as_str()).collect();
    versions.sort_unstable();
    assert_eq!(versions, ["7.0", "8.0"]);
    let history = &model.rollout.status.as_ref().unwrap().history;
    assert_eq!(history.iter().map(|h| h.version.as_str()).collect::<Vec<_>>(), ["8.0", "7.0"]);
}

#[test]
fn stages_of_a_newer_operator_are_left_by_coming_back_to_what_was_confirmed() {
    let mut model = deployed();
    model.set_version("2.0");
    model.settle();
    model.rollout.status.as_mut().unwrap().upgrade.as_mut().unwrap().stage = "Teleport".into();
    model.run();
    assert_eq!(model.promoted(), Some("1.0"));
    assert_eq!(model.children.len(), 1);
}
