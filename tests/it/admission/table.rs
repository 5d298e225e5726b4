//! The table of what users write, told to the API server: each object is admitted or refused with exactly the words that
//! stand there, in a dry run as well; and where it is stored unseen by the webhook, the reconciler says the same.

use std::time::Duration;

use serde_json::{Value, json};

use super::case::{Case, Place, Places, Reconciled};
use crate::support::{
    Scene, Version,
    asking::{Answer, User},
    definitions::{config_map_value, entry},
    numaflow, version,
    webhook::{Webhook, refusal},
    within,
};

/// What the platform team has defined: good versions, one that is defined twice, and some that cannot be used.
pub async fn world(scene: &Scene) {
    let of = |kind: &str, metadata: Value| json!({"apiVersion": "v1", "kind": kind, "metadata": metadata});
    let service = |name: &str| {
        let mut service = of("Service", json!({"name": name}));
        service["spec"] = json!({"ports": [{"port": 8443}], "selector": {"a": "b"}});
        service
    };
    let good = ["1.3.3", "1.4.0", "1.8.2", "1.8.3", "1.9.0"].map(version);
    let unusable: [Version; 5] = [
        version("2.0.0").object(of("Secret", json!({"name": "token"}))),
        version("2.0.1").object(of("ConfigMap", json!({"name": "a", "namespace": "elsewhere"}))),
        version("2.0.2").object(of("ConfigMap", json!({"name": "A_b"}))),
        version("2.0.3").object(service("twice")).object(service("twice")),
        version("2.0.4").object(service(&format!("{}{{{{ .InstanceSuffix }}}}", "s".repeat(43)))),
    ];
    scene.define(good.iter().chain(&unusable)).await;
    let other = version("1.9.0").controller(|w| w.env("A", "B"));
    scene.define_in("more", &config_map_value(&[version("1.4.0").padding(100), other])).await;
    let broken = format!("controllerDefinitions:\n{}{}", entry("3.0.0", "a: ["), entry("3.0.1", "# nothing"));
    scene.define_in("broken", &broken).await;
}

/// The table, for the namespaces of a scene.
fn table(scene: &Scene) -> Vec<Case> {
    let places = Places { team: scene.team.namespace.clone(), system: scene.system.namespace.clone() };
    Case::all().into_iter().map(|case| case.at(&places)).collect()
}

/// Those who act on a case: a user, and the operator, whom the webhook does not see.
struct Actors {
    user: User,
    unseen: User,
}

impl Actors {
    async fn of(scene: &Scene, case: &Case) -> Self {
        let team = if case.place() == Place::Team { &scene.team } else { &scene.system };
        let user = User::of(team).await;
        Self { unseen: user.clone().acting_as(&Webhook::exempt(scene)), user }
    }

    /// Has stored what has to be there before the case.
    async fn prepare(&self, scene: &Scene, case: &Case) {
        let team = User::of(&scene.team).await.acting_as(&Webhook::exempt(scene));
        for (object, status) in case.given() {
            must(&case.case, team.create(&object).await);
            if !status.is_null() {
                let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
                must(&case.case, team.edit(kind, &format!("{name}/status"), &json!({"status": status})).await);
            }
        }
        if case.change.is_some() || case.deleted {
            must(&case.case, self.unseen.create(&case.object()).await);
        }
        if case.deleting {
            must(&case.case, self.unseen.delete(case.kind(), case.name()).await);
        }
    }

    /// Does what the case is about.
    async fn act(user: &User, case: &Case) -> Answer {
        match &case.change {
            Some(change) => user.edit(case.kind(), case.name(), change).await,
            None if case.deleted => user.delete(case.kind(), case.name()).await,
            None => user.create(&case.object()).await,
        }
    }

    /// Takes away what is left of the case.
    async fn clean(&self, scene: &Scene, case: &Case) {
        let bare = json!({"metadata": {"finalizers": null}});
        // Some of it is not there: it was refused, or deleted.
        let _ = self.unseen.edit(case.kind(), case.name(), &bare).await;
        let _ = self.unseen.delete(case.kind(), case.name()).await;
        let team = User::of(&scene.team).await.acting_as(&Webhook::exempt(scene));
        for (object, _) in case.given() {
            team.delete(object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap()).await;
        }
    }
}

fn must(case: &str, answer: Answer) {
    assert!(answer.is_ok(), "{case}: {}", answer.describe());
}

/// What the table says that the user is told. `by` is what the API server told, whose own causes come in any order.
fn told(case: &Case, by: &Answer) -> Answer {
    let mut told = Answer { warnings: case.warnings.clone(), ..Answer::default() };
    if !case.refused.is_empty() {
        let hook = if case.is_config_map() { "config-maps" } else { "rollouts" };
        told.message = refusal(hook, &case.refused.iter().map(String::as_str).collect::<Vec<_>>());
        told.causes.clone_from(&case.refused);
    } else if let [text] = &case.schema[..]
        && by.causes.is_empty()
    {
        told.message.clone_from(text);
    } else if !case.schema.is_empty() {
        let all = if by.causes.len() == 1 { by.causes.join("") } else { format!("[{}]", by.causes.join(", ")) };
        told.message = format!("{}.numaplane.numaproj.io {:?} is invalid: {all}", case.kind(), case.name());
        told.causes.clone_from(&case.schema);
    }
    told
}

/// What is otherwise than the table says, if anything.
fn difference(case: &Case, answer: &Answer) -> Option<String> {
    let (told, mut answer) = (told(case, answer), answer.clone());
    if !case.schema.is_empty() {
        answer.causes.sort();
    }
    let code = match (case.is_refused(), case.schema.is_empty()) {
        (false, _) => answer.is_ok(),
        (true, true) => answer.code == 422,
        (true, false) => matches!(answer.code, 400 | 422),
    };
    let same =
        code && (&answer.message, &answer.causes, &answer.warnings) == (&told.message, &told.causes, &told.warnings);
    (!same).then(|| format!("{}\n  is told:    {}\n  and should: {}", case.case, show(&answer), show(&told)))
}

fn show(answer: &Answer) -> String {
    let Answer { code, message, causes, warnings, .. } = answer;
    format!("{code} {message:?} causes {causes:?} warnings {warnings:?}")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_users_write_is_admitted_or_refused_with_these_words_and_a_dry_run_says_the_same() {
    let scene = Scene::new("table").await;
    world(&scene).await;
    let _webhook = Webhook::start(&scene).await;
    let mut wrong = Vec::new();
    for case in table(&scene) {
        let actors = Actors::of(&scene, &case).await;
        let (dry, answer) = within(Duration::from_mins(3), &case.case, async || {
            actors.prepare(&scene, &case).await;
            let before = actors.user.get(case.kind(), case.name()).await;
            let dry = Actors::act(&actors.user.clone().dry(), &case).await;
            let after = actors.user.get(case.kind(), case.name()).await;
            assert_eq!((before.code, &before.body), (after.code, &after.body), "{}: a dry run stores it", case.case);
            let answer = Actors::act(&actors.user, &case).await;
            actors.clean(&scene, &case).await;
            if dry.is_unchecked() || answer.is_unchecked() { Err(answer.describe()) } else { Ok((dry, answer)) }
        })
        .await;
        wrong.extend(difference(&case, &answer));
        if difference(&case, &dry).is_some() != difference(&case, &answer).is_some() {
            wrong.push(format!("{}\n  in a dry run: {}\n  and for good: {}", case.case, show(&dry), show(&answer)));
        }
    }
    assert!(wrong.is_empty(), "{} are not answered as the table says:\n{}", wrong.len(), wrong.join("\n"));
}

/// What a reconciler says of an object, once it has looked at it: phase and message.
async fn reconciled(user: &User, case: &Case) -> (String, String) {
    within(Duration::from_mins(3), &format!("{}: somebody has looked at it", case.case), async || {
        let object = user.get(case.kind(), case.name()).await.body;
        let status = &object["status"];
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        let looked = status["observedGeneration"] == object["metadata"]["generation"] && !text("phase").is_empty();
        if looked { Ok((text("phase"), text("message"))) } else { Err(status.to_string()) }
    })
    .await
}

/// What the reconciler is to say where the webhook does not see it, if that can be told from the table.
fn expected(case: &Case) -> Option<(&'static str, Option<String>)> {
    match &case.reconciled {
        Some(Reconciled::Failed(words)) => Some(("Failed", Some(words.clone()))),
        Some(Reconciled::Otherwise(_)) => None,
        None if case.refused.is_empty() => Some(("not Failed", None)),
        None => Some(("Failed", Some(case.refused.join("; ")))),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_unseen_is_failed_by_the_reconciler_with_the_words_of_the_refusal_and_nothing_else_is() {
    let scene = Scene::new("unseen").await;
    let _kinds = numaflow::installed(&scene.team.client).await;
    world(&scene).await;
    // What the API server takes and reconcilers look at; and what is changed only to show that nobody is asked has no verdict.
    let about_specs = |case: &Case| {
        let spec = case.change.as_ref().is_none_or(|change| !change["spec"].is_null());
        spec && !case.is_config_map() && case.schema.is_empty() && !case.deleting && !case.deleted
    };
    let cases: Vec<Case> = table(&scene).into_iter().filter(about_specs).collect();
    for case in &cases {
        let actors = Actors::of(&scene, case).await;
        actors.prepare(&scene, case).await;
        must(&case.case, Actors::act(&actors.user, case).await);
    }
    let _operator = scene.operator().await;
    let user = User::of(&scene.team).await;
    let mut wrong = Vec::new();
    // Twice: what is not Failed at first must not become so a moment later.
    for _ in 0..2 {
        for case in &cases {
            let Some((phase, words)) = expected(case) else { continue };
            let (is, says) = reconciled(&user, case).await;
            let same = match words {
                Some(words) => is == phase && says == words,
                None => is != "Failed",
            };
            if !same {
                wrong.push(format!("{}\n  is: {is} {says:?}\n  and should be: {phase} {:?}", case.case, case.refused));
            }
        }
        if !wrong.is_empty() {
            break;
        }
    }
    assert!(wrong.is_empty(), "{} are not judged alike:\n{}", wrong.len(), wrong.join("\n"));
}
