//! Replicas that are replaced one by one while reviews are asked for.

use serde_json::json;

use crate::support::{Scene, asking::User, eventually, load::Load, version, webhook::Webhook};

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_replaced_one_by_one_under_load_and_no_admission_fails() {
    let scene = Scene::new("rolling").await;
    scene.define(&[version("1.3.3")]).await;
    let drain = ["--drain", "2s"];
    let mut webhook = Webhook::start_with(&scene, 2, &drain).await;
    let object = json!({
        "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": "NumaflowControllerRollout",
        "metadata": {"name": "numaflow"}, "spec": {"controller": {"version": "1.3.3"}},
    });
    let load = Load::start(&User::of(&scene.team).await, 20, object);
    for _ in 0..2 {
        let mut old = webhook.replicas.remove(0);
        old.signal("TERM");
        webhook.add(&scene, &drain).await;
        let status = old.ended().await;
        assert!(status.success(), "{status}: {}", old.log());
        assert!(webhook.balancer.handed(old.serving) > 0, "nobody ever asked it");
    }
    // What is there now is what answers.
    let before = load.answered();
    eventually("reviews go on", async || if load.answered() > before + 40 { Ok(()) } else { Err(String::new()) }).await;
    let (count, longest) = load.all_admitted().await;
    println!("{count} reviews, the longest took {longest:?}");
    assert!(webhook.replicas.iter().any(|replica| webhook.balancer.handed(replica.serving) > 0));
}
