//! How many requests a rollout costs, as the API server counts them.

use std::time::Duration;

use crate::support::{Scene, Team, audit, numaflow, stays, version};

/// Namespaces, each with a rollout.
const N: usize = 20;

/// Waits for all, then counts requests since the mark: the most writes, dry runs and reads for any of them.
async fn cost(what: &str, mark: audit::Mark, teams: &[Team], version: &str) -> (usize, usize, usize) {
    for team in teams {
        team.deployed("numaflow", version).await;
        team.one_child("numaflow").await;
    }
    // The child says so a moment later: what is counted is complete when nobody has written for a while.
    futures::future::join_all(teams.iter().map(|team| audit::settled(team, Duration::from_secs(1)))).await;
    let mut most = (0, 0, 0);
    let mut total = (0, 0, 0);
    for team in teams {
        let requests = audit::since(mark, &team.namespace);
        let count = |is: fn(&audit::Request) -> bool| requests.iter().filter(|r| is(r)).count();
        let one = (count(audit::Request::write), count(audit::Request::dry_run), count(audit::Request::read));
        if one.0 > most.0 {
            let words: Vec<_> = requests.iter().filter(|r| r.write()).map(audit::Request::describe).collect();
            println!("{what}, one of them: {}", words.join("; "));
        }
        if one.2 > most.2 {
            let words: Vec<_> = requests.iter().filter(|r| r.read()).map(audit::Request::describe).collect();
            println!("{what}, read by one of them: {}", words.join("; "));
        }
        most = (most.0.max(one.0), most.1.max(one.1), most.2.max(one.2));
        total = (total.0 + one.0, total.1 + one.1, total.2 + one.2);
    }
    println!("{what}: at most {most:?} (writes, dry runs, reads) a rollout, {total:?} for {} rollouts", teams.len());
    most
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_costs_a_dozen_writes_and_a_restart_none() {
    let scene = Scene::new("counts").await;
    let _kinds = numaflow::installed(&scene.team.client).await;
    // Without Verify and without a lease, whose looks depend on how long pods take; what those cost is told further down.
    let plain = |name: &str| version(name).whole().without_leader();
    scene.define(&[plain("1.3.3"), plain("1.4.0").not_isolated(), version("1.5.0").whole()]).await;
    let mut teams = Vec::new();
    for n in 0..N {
        teams.push(scene.another(&n.to_string()).await);
    }
    let busy = |s: &mut numaplane::settings::Settings| {
        s.workers = 16;
        // As it is by default; the other tests look much more often.
        s.defaults.interval = Duration::from_secs(5);
    };
    let operator = scene.operator_with(busy).await;
    // What is looked up once for all is looked up here.
    scene.team.install("numaflow", "1.3.3").await;
    scene.team.deployed("numaflow", "1.3.3").await;

    let mark = audit::mark();
    for team in &teams {
        team.install("numaflow", "1.3.3").await;
    }
    let (writes, _, reads) = cost("installation", mark, &teams, "1.3.3").await;
    assert!(writes <= 14, "{writes} writes");
    assert!(reads <= 1, "{reads} reads");

    let mark = audit::mark();
    for team in &teams {
        team.set_version("numaflow", "1.4.0").await;
    }
    let (writes, _, reads) = cost("upgrade", mark, &teams, "1.4.0").await;
    assert!(writes <= 14, "{writes} writes");
    assert!(reads <= 1, "{reads} reads");

    let mark = audit::mark();
    for team in &teams {
        team.set_version("numaflow", "1.5.0").await;
    }
    // Twice six objects and two labels more than without a copy, and their removal.
    let (writes, ..) = cost("upgrade with Verify", mark, &teams, "1.5.0").await;
    assert!(writes <= 40, "{writes} writes");

    let mark = audit::mark();
    operator.stop().await;
    let _operator = scene.operator_with(busy).await;
    stays("a restart writes nothing", Duration::from_secs(5), async || {
        let requests = teams.iter().flat_map(|t| audit::since(mark, &t.namespace));
        let writes: Vec<_> = requests.filter(audit::Request::write).map(|r| r.describe()).collect();
        if writes.is_empty() { Ok(()) } else { Err(writes.join("; ")) }
    })
    .await;
}
