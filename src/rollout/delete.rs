//! A rollout that is being deleted. Pure.

use std::{sync::Arc, time::Duration};

use crate::{
    api::{ANNOTATION_FORCE, AttemptResult, NumaflowControllerRolloutStatus, Promoted, Upgrade, mark_of_rollout},
    controller::removal::{Leaving, Removal, next},
    finalizer::release,
    manifest::Manifest,
    plan::{Plan, Step},
    rollout::{decide::Turn, upkeep::HandOver},
    summary::deleting,
    words::list,
};

/// What a force annotation ends here.
const DELETION: &str = "the waiting of the deletion";
/// When to look again at the latest.
const LONGEST: Duration = Duration::from_secs(30);

/// Keeps the controller running while anything depends on it, then removes what is ours, then lets go.
pub(super) fn decide(mut turn: Turn<'_>) -> Plan {
    let s = turn.s;
    if let Some(plan) = turn.withdraw_stray() {
        return plan;
    }
    if let Some(step) = turn.read_pin().or_else(|| turn.watch_controller()) {
        return Plan::of(vec![step]);
    }
    let promoted = turn.stored.promoted.clone();
    let instance = promoted.as_ref().map_or(s.rollout.spec.controller.instance(), |p| &p.instance_id);
    let inventory = s.inventory();
    // A text that was honoured before has done its work, unless that was this deletion.
    let used = turn.stored.last_force.as_ref();
    let counts = |text: &String| used.is_none_or(|last| last.text != *text || last.ended == DELETION);
    let annotations = s.rollout.metadata.annotations.as_ref();
    let forced = annotations.and_then(|a| a.get(ANNOTATION_FORCE)).is_some_and(counts);
    if let Some(text) = turn.force().filter(|_| s.learned.own_refusal().is_none()) {
        turn.use_force(&text, DELETION);
        let status = NumaflowControllerRolloutStatus { last_force: turn.next.last_force, ..turn.stored };
        return Plan::of(vec![Step::WriteStatus { status: Box::new(status), events: Vec::new() }]);
    }
    let removal = next(&Leaving {
        mark: &mark_of_rollout(s.name()),
        instance,
        forced,
        dependants: &s.dependants,
        live: &s.live,
        inventory: &inventory,
        unwatched: &s.unwatched,
        elsewhere: &s.elsewhere,
        learned: &s.learned,
    });
    match removal {
        Removal::Steps(steps) => Plan::of(steps),
        Removal::Done => {
            // Deleted with its dependents orphaned, it would leave these for good.
            let mut steps = if forced { turn.delete_children() } else { turn.drop_children(&[]) };
            if steps.is_empty() && !forced {
                let mut left: Vec<String> =
                    s.children.iter().flat_map(|c| turn.objects_of_copy(c)).map(ToString::to_string).collect();
                left.extend(
                    s.learned.living_copies.iter().map(|instance| format!("pods of the isolated copy {instance}")),
                );
                if !left.is_empty() {
                    return wait(turn, &format!("{} to be gone", list(&left, 5)));
                }
            }
            let revisions = s.revisions.iter().filter(|r| !s.learned.stays(&r.name));
            steps.extend(revisions.map(|r| Step::DeleteRevision { name: r.name.clone(), uid: r.uid.clone() }));
            if !steps.is_empty() && s.learned.own_refusal().is_none() {
                return Plan::of(steps);
            }
            Plan::of(vec![release(&s.rollout.metadata)])
        }
        Removal::Wait(words) => wait(turn, &words),
        Removal::Needed(words) => {
            // Meanwhile the controller is kept as it should be. No child and no revision is made for that: they may have
            // been taken already, with everything that the rollout owns (a foreground deletion does so at once).
            let kept = keeps(&turn, promoted.as_ref());
            let mut back = false;
            if let Some((child, manifest)) = &kept {
                let steps = relabelled(&turn, promoted.as_ref().filter(|p| p.name == *child));
                if !steps.is_empty() {
                    return Plan::of(steps);
                }
                let standing = turn.standing(manifest);
                let steps = turn.produce(child, manifest, &standing, standing.healthy());
                if !steps.is_empty() {
                    return Plan::of(steps);
                }
                back = standing.applied();
            }
            if let Some(promoted) = &promoted {
                // What has not touched production is not needed any more, nor what was taken out of it again.
                let taken_back = back && kept.is_some_and(|(child, _)| child == promoted.name);
                let unfinished = unfinished(&turn, taken_back);
                let attempt = turn.stored.upgrade.as_ref().filter(|_| unfinished.is_none());
                let mut kept = vec![promoted.name.as_str()];
                kept.extend(attempt.map(|u| u.name.as_str()));
                let steps = turn.drop_children(&kept);
                if !steps.is_empty() {
                    return Plan::of(steps);
                }
                if let Some(upgrade) = unfinished {
                    let words = "not attempted any more: the rollout is being deleted";
                    turn.end(&upgrade, AttemptResult::Superseded, &upgrade.stage, "Deleting", words);
                }
            }
            wait(turn, &words)
        }
    }
}

/// The running attempt, while it has not touched production, and once production was taken back from it.
fn unfinished(turn: &Turn<'_>, taken_back: bool) -> Option<Upgrade> {
    let over = |u: &&Upgrade| taken_back || !matches!(u.stage.as_str(), "CutOver" | "Confirm" | "RollBack");
    turn.stored.upgrade.as_ref().filter(over).cloned()
}

/// What stays in production until nothing needs it: a running attempt that is in place, and healthy or within its deadline,
/// else the last confirmed version. One that is only on its way into production goes no further: the pipelines that had
/// paused for it are let go as soon as the rollout is deleted, and would have their controller replaced while they run.
fn keeps(turn: &Turn<'_>, promoted: Option<&Promoted>) -> Option<(String, Arc<Manifest>)> {
    let stays = |u: &&Upgrade| u.stage == "Confirm" || (u.stage == "CutOver" && promoted.is_none());
    let attempt = turn.stored.upgrade.as_ref().filter(stays).and_then(|u| {
        let manifest = turn.s.manifest(&u.revision, &u.instance_id).ok()?;
        let good = promoted.is_none() || turn.in_stage(u) < turn.manner.deadline || turn.standing(&manifest).healthy();
        good.then(|| (u.to.clone(), manifest))
    });
    attempt.or_else(|| {
        let promoted = promoted?;
        Some((promoted.name.clone(), turn.s.manifest(&promoted.revision, &promoted.instance_id).ok()?))
    })
}

/// The steps by which the child of the last confirmed version gets its label back from an attempt; none that makes one anew.
fn relabelled(turn: &Turn<'_>, promoted: Option<&Promoted>) -> Vec<Step> {
    match promoted.filter(|_| turn.stored.upgrade.is_some()).map(|promoted| turn.hand_over(promoted)) {
        Some(HandOver::Steps(steps)) if !steps.iter().any(|s| matches!(s, Step::CreateChild { .. })) => steps,
        _ => Vec::new(),
    }
}

fn wait(mut turn: Turn<'_>, words: &str) -> Plan {
    let message = format!("being deleted, waiting for {words}");
    deleting(&mut turn.next, &message, turn.now);
    let left = turn.stored.upgrade.as_ref().map(|u| turn.manner.deadline.saturating_sub(turn.in_stage(u)));
    let again = left.filter(|left| !left.is_zero()).unwrap_or(LONGEST).min(LONGEST);
    let mut plan = Plan { steps: Vec::new(), again_after: turn.look_again_after(Some(again)) };
    if turn.next != turn.stored {
        plan.steps.push(Step::WriteStatus { status: Box::new(turn.next), events: Vec::new() });
    }
    plan
}
