//! Scenarios of what ends a drain early, and of what follows it: a controller that is gone, force, deletion, and the
//! judgement while pipelines are paused.

use std::time::Duration;

use super::{
    drain::{deployed, draining, look, proven, status},
    model::{Model, Rule, text},
};
use crate::{
    api::{ANNOTATION_FORCE, UpgradeState},
    rollout::snapshot::state_of,
};

#[test]
fn a_controller_that_is_gone_is_noticed_at_rest_and_is_not_waited_for() {
    let mut model = deployed();
    let kill = |model: &mut Model| {
        let production = model.live.values_mut().filter(|l| !l.id.name.contains("-x-"));
        production.for_each(|l| l.workload.iter_mut().for_each(|w| w.available = 0));
    };
    let dead = |model: &Model| status(model).controller_unavailable.map(|c| c.gone);
    kill(&mut model);
    model.settle();
    assert_eq!((dead(&model), model.phase()), (Some(false), "Deployed"));
    let written = model.log.len();
    model.pass(Duration::from_mins(1));
    let again = model.turn(usize::MAX).1.unwrap();
    assert!(again <= Duration::from_secs(32), "{again:?}");
    assert_eq!(model.log.len(), written, "one write at each transition");
    // Somebody renews the lease still.
    model.pass(again);
    model.settle();
    assert_eq!(dead(&model), Some(false));
    model.leases.clear();
    model.lease_from = jiff::Timestamp::MAX;
    model.pass(Duration::from_secs(10));
    model.settle();
    assert_eq!(dead(&model), Some(true));
    model.play_workloads();
    model.settle();
    assert_eq!(dead(&model), None);
    // In a drain it ends the waiting.
    model.lease_from = jiff::Timestamp::MIN;
    model.pipeline("b-0", Rule::Stuck);
    proven(&mut model);
    look(&mut model);
    model.lease_from = jiff::Timestamp::MAX;
    model.leases.remove("numaflow-controller-lock");
    kill(&mut model);
    model.settle();
    assert_eq!((model.stage(), dead(&model)), (Some("Drain"), Some(false)));
    model.pass(Duration::from_secs(92));
    model.settle();
    assert!(matches!(model.stage(), Some("CutOver" | "Confirm")), "{}", model.message());
    assert!(model.drain().ended.starts_with("ControllerUnavailable: "), "{}", model.drain().ended);
    assert_eq!(model.drain().not_drained, ["b-0: its controller is gone"]);
    model.lease_from = jiff::Timestamp::MIN;
    model.run();
    assert_eq!((model.phase(), model.promoted(), model.asks(), dead(&model)), ("Deployed", Some("2.0"), false, None));
}

#[test]
fn a_controller_that_was_gone_before_the_drain_is_not_asked() {
    let mut model = deployed();
    model.set_version("2.0");
    model.settle();
    model.play_workloads();
    model.settle();
    model.lease_from = jiff::Timestamp::MAX;
    model.leases.remove("numaflow-controller-lock");
    let production = model.live.values_mut().filter(|l| !l.id.name.contains("-x-"));
    production.for_each(|l| l.workload.iter_mut().for_each(|w| w.available = 0));
    model.settle();
    model.pass(Duration::from_secs(92));
    model.settle();
    assert_eq!(model.request(), None);
    assert!(model.drain().ended.contains("nothing was paused"), "{}", model.drain().ended);
}

#[test]
fn a_lease_that_cannot_be_read_is_not_a_dead_controller() {
    let mut model = draining(Rule::Stuck);
    model.unreadable = true;
    let production = model.live.values_mut().filter(|l| !l.id.name.contains("-x-"));
    production.for_each(|l| l.workload.iter_mut().for_each(|w| w.available = 0));
    model.settle();
    model.pass(Duration::from_hours(1));
    look(&mut model);
    assert_eq!(status(&model).controller_unavailable.map(|c| c.gone), Some(false));
    assert_eq!(model.stage(), Some("Drain"));
}

#[test]
fn force_ends_the_drain_of_one_attempt() {
    let mut model = draining(Rule::Stuck);
    look(&mut model);
    model.annotate(ANNOTATION_FORCE, "lunch");
    model.settle();
    assert_eq!(model.stage(), Some("Confirm"));
    assert_eq!(model.drain().not_drained, ["b-0: ended by force"]);
    assert_eq!(model.drain().ended, "ended by force: lunch");
    assert_eq!(model.last_force(), Some(("lunch".into(), "the drain of version \"2.0\"".into())));
    model.run();
    assert_eq!((model.phase(), model.asks()), ("Deployed", false));
    // The same text is not honoured again.
    model.set_version("1.0");
    for _ in 0..5 {
        model.play_workloads();
        model.settle();
        model.pass(Duration::from_secs(30));
    }
    model.settle();
    assert_eq!((model.stage(), model.asks()), (Some("Drain"), true), "{}", model.message());
    model.annotate(ANNOTATION_FORCE, "lunch again");
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("1.0")));
}

#[test]
fn force_that_was_there_before_the_drain_leaves_it_out_and_one_that_comes_after_it_is_spent() {
    let mut model = deployed();
    model.annotate(ANNOTATION_FORCE, "now");
    proven(&mut model);
    assert_eq!((model.stage(), model.request()), (Some("Confirm"), None));
    assert_eq!(model.drain().not_drained, ["a-0: ended by force"]);
    model.annotate(ANNOTATION_FORCE, "too late");
    model.run();
    assert_eq!(model.last_force(), Some(("too late".into(), "nothing: there was no drain to wait for".into())));
    model.pipe("a-0").rule = Rule::Stuck;
    model.set_version("1.0");
    for _ in 0..5 {
        model.play_workloads();
        model.settle();
        model.pass(Duration::from_secs(30));
    }
    assert_eq!((model.stage(), model.asks()), (Some("Drain"), true));
}

#[test]
fn a_request_is_withdrawn_when_the_rollout_is_deleted_and_when_its_attempt_does_not_run() {
    let mut model = draining(Rule::Stuck);
    model.add_pipeline("a-0", "");
    model.delete();
    model.turn(1);
    assert!(!model.asks(), "before anything else");
    model.settle();
    assert!(model.message().contains("Pipeline/a-0"), "{}", model.message());
    assert_eq!((model.stage(), model.held()), (None, true));
    model.annotate(ANNOTATION_FORCE, "go");
    model.turn(1);
    assert_eq!(model.last_force(), Some(("go".into(), "the waiting of the deletion".into())));
    model.run();
    assert!(model.gone);
    let mut model = draining(Rule::Stuck);
    let status = model.rollout.status.as_mut().unwrap();
    status.upgrade = None;
    model.set_version("1.0");
    model.turn(1);
    assert!(!model.asks());
    model.run();
    assert_eq!(model.phase(), "Deployed");
}

#[test]
fn a_rollout_deleted_in_cut_over_does_not_replace_the_controller_under_pipelines_that_were_let_go() {
    let mut model = deployed();
    model.add_pipeline("a-0", "");
    let before = model.production();
    proven(&mut model);
    model.play_pipelines();
    let mut stages = std::collections::BTreeSet::new();
    for steps in 0..20 {
        let mut deleted = model.clone();
        deleted.turn(steps);
        let stage = deleted.stage().unwrap().to_owned();
        deleted.delete();
        deleted.settle();
        assert!(!deleted.asks() && !deleted.gone);
        if stage == "Confirm" {
            assert_ne!(deleted.production(), before, "it is in place, and judged");
            assert_eq!(deleted.stage(), Some("Confirm"));
        } else {
            let image = deleted.production();
            let old = before.iter().all(|object| image.contains(object));
            assert!(old, "{stage}: nothing goes in, and what went in is taken back: {image:?}");
            deleted.play_workloads();
            deleted.settle();
            assert_eq!(deleted.production(), before, "{stage}");
            assert_eq!((deleted.stage(), deleted.children.len()), (None, 1), "{stage}");
            let (name, child) = deleted.children.first_key_value().unwrap();
            assert_eq!((name.as_str(), state_of(child)), ("numaflow-controller-0", Some(UpgradeState::Promoted)));
            let last = status(&deleted).last_attempt.unwrap();
            assert_eq!((last.result.as_str(), last.stage.as_str()), ("Superseded", stage.as_str()));
            assert!(deleted.message().contains("Pipeline/a-0"), "{}", deleted.message());
        }
        stages.insert(stage);
    }
    assert_eq!(stages.into_iter().collect::<Vec<_>>(), ["Confirm", "CutOver", "Drain"]);
}

#[test]
fn a_failing_version_is_rolled_back_while_pipelines_are_paused_and_then_they_run() {
    let mut model = draining(Rule::Drains(0));
    model.broken.insert("2.0".into());
    model.pipe("b-0").rule = Rule::Undrained(0);
    look(&mut model);
    assert_eq!(model.stage(), Some("Confirm"));
    model.play_workloads();
    model.pass(Duration::from_secs(601));
    model.play_pipelines();
    model.settle();
    assert_eq!((model.stage(), model.asks()), (Some("RollBack"), true));
    model.run();
    assert_eq!((model.phase(), model.promoted(), model.asks()), ("Failed", Some("1.0"), false));
    assert!(model.message().contains("not drained: b-0: its grace period was over"), "{}", model.message());
}

#[test]
fn the_lease_is_looked_at_often_while_pipelines_are_paused() {
    let mut model = draining(Rule::Drains(0));
    model.lease_from = model.now + jiff::SignedDuration::from_secs(40);
    look(&mut model);
    model.play_workloads();
    let again = model.turn(usize::MAX).1;
    assert_eq!((model.stage(), again), (Some("Confirm"), Some(Duration::from_millis(100))), "{}", model.message());
    model.pass(Duration::from_secs(41));
    model.settle();
    assert_eq!((model.phase(), model.asks()), ("Deployed", false), "healthy once is enough");
}

/// A version with a configuration that says this of ISB services.
fn with_isbsvc(version: &str, image: &str) -> String {
    text(version, &["numaflow-controller"]).replace(
        "    instance: ",
        &format!(
            "    isbsvc: {{jetstream: {{versions: [{{version: '2.10', natsImage: '{image}'}}]}}}}\n    instance: "
        ),
    )
}

#[test]
fn isb_services_are_looked_at_once_or_for_a_window_where_their_settings_differ() {
    let mut model = deployed();
    model.isb("default", true);
    proven(&mut model);
    look(&mut model);
    model.play_workloads();
    model.settle();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")), "{}", model.message());
    model.define_text("4.0", &with_isbsvc("4.0", "nats:2.10"));
    model.set_version("4.0");
    for _ in 0..5 {
        model.play_workloads();
        model.settle();
        model.pass(Duration::from_secs(30));
    }
    look(&mut model);
    model.play_workloads();
    model.settle();
    assert!(model.message().contains("its StatefulSet runs , and nats:2.10 is wanted"), "{}", model.message());
    let set = model.isbs.get_mut("default").unwrap().stateful_set.as_mut().unwrap();
    set.image = "nats:2.10".into();
    model.settle();
    assert!(model.message().contains("it has to stay so for 1m"), "{}", model.message());
    model.pass(Duration::from_secs(59));
    model.settle();
    assert_eq!((model.stage(), model.asks()), (Some("Confirm"), true));
    model.pass(Duration::from_secs(2));
    model.settle();
    assert_eq!((model.phase(), model.promoted(), model.asks()), ("Deployed", Some("4.0"), false));
}

#[test]
fn an_isb_service_that_a_version_breaks_rolls_it_back_and_one_that_was_broken_before_does_not() {
    let mut model = deployed();
    model.isb("default", true);
    model.isb("broken", false);
    proven(&mut model);
    assert_eq!(status(&model).upgrade.unwrap().isb_unhealthy, ["broken"]);
    look(&mut model);
    model.isb("default", false);
    model.play_workloads();
    model.settle();
    assert!(model.message().contains("InterStepBufferService/default: phase Failed"), "{}", model.message());
    model.pass(Duration::from_secs(601));
    model.settle();
    model.isb("default", true);
    model.run();
    assert_eq!((model.phase(), model.result().2, model.asks()), ("Failed", "DeadlineExceeded", false));
    assert_eq!(model.promoted(), Some("1.0"));
    // One that somebody makes in the middle of it says nothing either.
    let mut model = deployed();
    proven(&mut model);
    model.isb("new", false);
    model.isbs.get_mut("new").unwrap().created = Some(model.now + jiff::SignedDuration::from_secs(5));
    look(&mut model);
    model.play_workloads();
    model.settle();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")), "{}", model.message());
}

#[test]
fn a_roll_back_waits_for_isb_services_until_its_own_deadline_and_no_longer() {
    let mut model = draining(Rule::Drains(0));
    model.isb("default", true);
    model.pass(Duration::from_secs(1));
    look(&mut model);
    model.isb("default", false);
    model.play_workloads();
    model.settle();
    model.pass(Duration::from_secs(601));
    model.settle();
    model.play_workloads();
    model.settle();
    assert_eq!((model.stage(), model.asks()), (Some("RollBack"), true), "{}", model.message());
    model.pass(Duration::from_secs(601));
    model.settle();
    assert_eq!((model.phase(), model.asks()), ("Failed", false));
    assert!(model.message().contains("not healthy either: InterStepBufferService/default"), "{}", model.message());
}

#[test]
fn pipelines_do_not_wait_for_an_answer_that_nobody_gives() {
    let mut model = draining(Rule::Drains(0));
    model.isb("default", true);
    look(&mut model);
    model.play_workloads();
    model.unreadable = true;
    model.settle();
    assert_eq!((model.stage(), model.asks()), (Some("Confirm"), true));
    // One that does not answer is not asked more often for that.
    assert_eq!(model.turn(usize::MAX).1, Some(Duration::from_secs(5)));
    model.pass(Duration::from_secs(601));
    model.settle();
    assert_eq!((model.stage(), model.asks()), (Some("Confirm"), false), "{}", model.message());
    model.unreadable = false;
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
}

#[test]
fn force_is_spent_on_the_attempt_that_it_was_there_for() {
    let mut model = deployed();
    model.annotate(ANNOTATION_FORCE, "now");
    model.set_version("3.0-broken");
    model.run();
    assert_eq!((model.phase(), model.request()), ("Failed", None));
    assert_eq!(model.last_force().unwrap().1, "nothing: the attempt that it was for ended before");
    proven(&mut model);
    assert_eq!((model.stage(), model.asks()), (Some("Drain"), true));
}

#[test]
fn a_child_that_somebody_deletes_in_the_middle_of_a_drain_gives_way_and_pipelines_go() {
    let mut model = draining(Rule::Stuck);
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(model.now);
    model.children.get_mut("numaflow-controller-1").unwrap().metadata.deletion_timestamp = Some(now);
    model.turn(1);
    assert_eq!((model.result(), model.asks()), (("Superseded", "Drain", "ChildDeleted"), false));
    model.children.remove("numaflow-controller-1");
    model.pipe("b-0").rule = Rule::Drains(0);
    model.run();
    assert_eq!((model.phase(), model.promoted(), model.asks()), ("Deployed", Some("2.0"), false));
}

#[test]
fn one_that_is_promoted_by_label_while_the_rollout_is_held_pauses_nobody() {
    let mut model = deployed();
    model.set_version("2.0");
    model.settle();
    model.edit(|spec| spec.paused = Some(true));
    let labels = model.children.get_mut("numaflow-controller-1").unwrap().metadata.labels.as_mut().unwrap();
    labels.insert(crate::api::LABEL_FORCE_PROMOTE.into(), "true".into());
    model.settle();
    assert_eq!((model.stage(), model.request(), model.phase()), (Some("Drain"), None, "Pending"));
    model.edit(|spec| spec.paused = None);
    model.settle();
    assert_eq!((model.stage(), model.asks()), (Some("Drain"), true));
}

#[test]
fn nobody_is_paused_while_pipelines_or_isb_services_cannot_be_seen() {
    let mut model = deployed();
    model.isb("default", true);
    model.isb_unreadable = true;
    proven(&mut model);
    assert_eq!(
        (model.stage(), model.request(), model.phase()),
        (Some("Verify"), None, "Failed"),
        "{}",
        model.message()
    );
    model.isb_unreadable = false;
    model.dependants.unlisted = vec!["Pipeline".into()];
    model.pass(Duration::from_secs(61));
    model.settle();
    model.pass(Duration::from_secs(61));
    model.settle();
    assert_eq!((model.stage(), model.request()), (Some("Verify"), None), "{}", model.message());
    assert!(model.message().contains("cannot be listed"), "{}", model.message());
    model.dependants.unlisted.clear();
    model.run();
    assert_eq!((model.phase(), model.promoted()), ("Deployed", Some("2.0")));
}

#[test]
fn a_dead_controller_is_noticed_while_its_rollout_is_being_deleted() {
    let mut model = deployed();
    model.add_pipeline("a-0", "");
    model.delete();
    model.settle();
    let production = model.live.values_mut();
    production.for_each(|l| l.workload.iter_mut().for_each(|w| w.available = 0));
    model.leases.clear();
    model.lease_from = jiff::Timestamp::MAX;
    model.settle();
    assert_eq!(status(&model).controller_unavailable.map(|c| c.gone), Some(false));
    model.pass(Duration::from_secs(92));
    model.settle();
    assert_eq!(status(&model).controller_unavailable.map(|c| c.gone), Some(true));
    assert!(model.message().contains("Pipeline/a-0"), "{}", model.message());
}
