//! Numaflow's own manifests as definitions, unchanged but for the two templates, where a folder with them is at hand.

use std::{fs, path::PathBuf};

use crate::support::{
    Scene,
    definitions::{comments, entry},
};

/// (version, manifest) for each `controller-<version>.yaml` in the folder `NUMAFLOW_MANIFESTS`, oldest first.
fn manifests() -> Option<Vec<(String, String)>> {
    let Some(folder) = std::env::var_os("NUMAFLOW_MANIFESTS").map(PathBuf::from) else {
        println!("skipped: NUMAFLOW_MANIFESTS names no folder with controller-<version>.yaml");
        return None;
    };
    let mut found: Vec<(String, String)> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("NUMAFLOW_MANIFESTS {}: {error}", folder.display()))
        .filter_map(|file| {
            let path = file.ok()?.path();
            let version = path.file_stem()?.to_str()?.strip_prefix("controller-")?.to_owned();
            Some((version, fs::read_to_string(&path).ok()?))
        })
        .map(|(version, text)| (version, text.replace("instance: \"\"", "instance: \"{{ .InstanceID }}\"")))
        .collect();
    found.sort_by_key(|(version, _)| version.split('.').map(|n| n.parse().unwrap_or(0)).collect::<Vec<u32>>());
    assert!(found.len() > 1, "{} has no two controller-<version>.yaml", folder.display());
    Some(found)
}

/// Upgrades through all of them and back.
async fn up_and_down(scene: &Scene, versions: &[String]) {
    let team = &scene.team;
    let _operator = scene.operator().await;
    team.install("numaflow", &versions[0]).await;
    team.deployed("numaflow", &versions[0]).await;
    for version in versions.iter().chain(versions.iter().rev()).skip(1) {
        team.set_version("numaflow", version).await;
        let rollout = team.deployed("numaflow", version).await;
        team.is_true("numaflow", "Ready").await;
        // 1.3 knows no instances; all that came later proved themselves first.
        let skipped = rollout.status.and_then(|s| s.last_attempt).unwrap().message;
        assert_eq!(skipped.contains("without Verify"), version.starts_with("1.3."), "{version}: {skipped}");
        let image = format!("quay.io/numaproj/numaflow:v{version}");
        let pod = team.deployment("numaflow-controller").await.spec.unwrap().template.spec.unwrap();
        assert_eq!(pod.containers[0].image.as_ref(), Some(&image));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numaflows_own_manifests_are_definitions_and_can_be_upgraded_through_and_back() {
    let Some(manifests) = manifests() else { return };
    let scene = Scene::new("manifests").await;
    // One ConfigMap each, as the platform teams have them.
    for (version, text) in &manifests {
        let value = format!("controllerDefinitions:\n{}", entry(version, text));
        scene.define_in(&format!("definitions-{version}"), &value).await;
    }
    up_and_down(&scene, &manifests.into_iter().map(|(version, _)| version).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn numaflows_own_manifests_may_be_three_times_as_long() {
    let Some(manifests) = manifests() else { return };
    let scene = Scene::new("long").await;
    let entries = manifests.iter().map(|(version, text)| entry(version, &format!("{}{text}", comments(30_000))));
    scene.define_in("definitions", &format!("controllerDefinitions:\n{}", entries.collect::<String>())).await;
    up_and_down(&scene, &manifests.into_iter().map(|(version, _)| version).collect::<Vec<_>>()).await;
}
