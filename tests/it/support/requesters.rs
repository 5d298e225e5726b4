//! Those for whose sake pipelines are paused and drained, told of in the same words: the rollout of a controller, and that of
//! an ISB service.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use numaplane::api::{
    Condition, DrainProgress, IsbServiceRollout, LastForce, NumaflowControllerRollout, PauseRequest, Phase,
};
use serde_json::{Value, json};

use super::{
    Team, Version,
    definitions::config_map_value,
    drains::ROLLOUT,
    eventually, numaflow,
    pipelines::controller,
    production::{image, image_of},
    rollouts::{Stage, spec_of, versions},
};

/// Tells each of these stories for both: under `controller` with the name that it has, under `isb` with that or with another.
macro_rules! told_for_both {
    ($($story:ident $(as $otherwise:ident)?),* $(,)?) => {
        mod controller {
            use $crate::support::requesters::By;
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $story() {
                    super::$story(By::Controller).await;
                }
            )*
        }

        mod isb {
            use $crate::support::requesters::By;
            $($crate::support::requesters::told_for_both!(@isb $story $($otherwise)?);)*
        }
    };
    (@isb $story:ident) => { $crate::support::requesters::told_for_both!(@isb $story $story); };
    (@isb $story:ident $name:ident) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            super::$story(By::Isb).await;
        }
    };
}
pub(crate) use told_for_both;

/// Who asks for pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The rollout of a controller, when its version changes.
    Controller,
    /// The rollout of an ISB service, when the version of that changes.
    Isb,
}

/// The change after which production is healthy only after a while, so that there is time for something while it is judged.
pub const SLOW: usize = 3;
/// The change after which production is never healthy.
pub const BAD: usize = 4;
/// As [`SLOW`].
pub const SLOW_TOO: usize = 5;
/// Versions of a controller, by the number of the change.
const CONTROLLERS: [&str; 6] = ["1.8.0", "1.8.1", "1.8.2", "1.9.0", "2.0.0", "1.9.1"];
/// Versions of an ISB service, by the number of the change.
const SERVICES: [&str; 6] = ["2.10", "2.11", "2.12", "2.13", "2.14", "2.15"];
/// The ISB service that pipelines name.
const SERVICE: &str = "default";

impl By {
    /// The kind of its rollout.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Controller => "NumaflowControllerRollout",
            Self::Isb => "ISBServiceRollout",
        }
    }

    /// The plural of its kind.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Controller => "numaflowcontrollerrollouts",
            Self::Isb => "isbservicerollouts",
        }
    }

    /// The stage in which production changes.
    pub fn applying(self) -> &'static str {
        match self {
            Self::Controller => "CutOver",
            Self::Isb => "Apply",
        }
    }

    /// The version of change number `n`, from 1; 0 is what was there before.
    pub fn version(self, n: usize) -> &'static str {
        match self {
            Self::Controller => CONTROLLERS[n],
            Self::Isb => SERVICES[n],
        }
    }

    fn number(self, version: &str) -> Option<usize> {
        (0..CONTROLLERS.len()).find(|n| self.version(*n) == version)
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Controller => "controller",
            Self::Isb => "isb",
        })
    }
}

/// One that asks for pauses.
#[derive(Clone)]
pub struct Requester {
    /// Of which sort.
    pub by: By,
    /// Name of its rollout.
    pub name: String,
    team: Team,
    /// Where versions are defined.
    system: Team,
    /// Whether all versions are defined.
    defined: bool,
    /// Which change was asked for, by generation of the spec.
    asked: Arc<Mutex<Vec<(i64, usize)>>>,
}

/// What a requester says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Whether that is about its spec as it is now.
    pub current: bool,
    /// Generation of its spec.
    pub generation: i64,
    pub phase: Phase,
    pub message: String,
    pub upgrade_in_progress: String,
    pub conditions: Vec<Condition>,
    pub pause_request: Option<PauseRequest>,
    /// The drain that is under way.
    pub drain: Option<DrainProgress>,
    pub last_drain: Option<DrainProgress>,
    pub last_force: Option<LastForce>,
    pub last_attempt: Option<Attempt>,
    /// The change that the spec asks for.
    pub wanted: Option<usize>,
    /// The change that production has.
    pub has: Option<usize>,
    /// The change that is under way, and its stage.
    pub under_way: Option<(Option<usize>, String)>,
}

/// How an attempt ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempt {
    pub result: String,
    pub reason: String,
    pub message: String,
}

impl View {
    /// The stage that change number `n` is in; empty if it is not under way.
    pub fn stage_of(&self, n: usize) -> &str {
        self.under_way.as_ref().filter(|(number, _)| *number == Some(n)).map_or("", |(_, stage)| stage)
    }

    /// Whether pipelines are asked to pause.
    pub fn asks(&self) -> bool {
        self.pause_request.as_ref().is_some_and(|r| r.active)
    }

    /// The pipelines that it says it waits for.
    pub fn waiting_for(&self) -> Vec<String> {
        self.drain.as_ref().map(|d| d.waiting_for.clone()).unwrap_or_default()
    }

    /// A condition.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.conditions.iter().find(|c| c.type_ == kind)
    }

    /// What it says about its own deletion.
    pub fn deleting(&self) -> &str {
        self.condition("Deleting").map(|c| c.message.as_str()).unwrap_or_default()
    }

    /// Panics unless it says that it drains, and names these pipelines.
    pub fn names_those_it_waits_for(&self, names: &[&str]) {
        assert_eq!((self.phase.as_str(), self.upgrade_in_progress.as_str()), ("Pending", "PipelinePauseAndDrain"));
        let reconciling = self.condition("Reconciling").map(|c| (c.status.as_str(), c.message.as_str()));
        assert_eq!(reconciling, Some(("True", self.message.as_str())));
        for name in names {
            assert!(self.message.contains(&format!("Pipeline/{name}")), "{name}: {}", self.message);
            assert!(self.waiting_for().iter().any(|n| n == name), "{name}: {:?}", self.drain);
        }
    }

    fn of_controller(rollout: &NumaflowControllerRollout) -> Self {
        let (by, status) = (By::Controller, rollout.status.clone().unwrap_or_default());
        Self {
            current: Some(status.observed_generation) == rollout.metadata.generation,
            generation: rollout.metadata.generation.unwrap_or_default(),
            phase: status.phase,
            message: status.message,
            upgrade_in_progress: status.upgrade_in_progress,
            conditions: status.conditions,
            pause_request: status.pause_request,
            drain: status.upgrade.as_ref().and_then(|u| u.drain.clone()),
            last_drain: status.last_drain,
            last_force: status.last_force,
            last_attempt: status.last_attempt.map(|a| Attempt {
                result: a.result,
                reason: a.reason,
                message: a.message,
            }),
            wanted: by.number(&rollout.spec.controller.version),
            has: status.promoted.and_then(|p| by.number(&p.version)),
            under_way: status.upgrade.map(|u| (by.number(&u.version), u.stage)),
        }
    }

    /// `asked` tells which change it is that began with a generation.
    fn of_isb(rollout: &IsbServiceRollout, service: Option<&DynamicObject>, asked: &[(i64, usize)]) -> Self {
        let (by, status) = (By::Isb, rollout.status.clone().unwrap_or_default());
        let number = |spec: &Value| spec["jetstream"]["version"].as_str().and_then(|v| by.number(v));
        let begun_at = |generation: i64| asked.iter().rfind(|(g, _)| *g <= generation).map(|(_, n)| *n);
        Self {
            current: Some(status.observed_generation) == rollout.metadata.generation,
            generation: rollout.metadata.generation.unwrap_or_default(),
            phase: status.phase,
            message: status.message,
            upgrade_in_progress: status.upgrade_in_progress,
            conditions: status.conditions,
            pause_request: status.pause_request,
            drain: status.change.as_ref().and_then(|c| c.drain.clone()),
            last_drain: status.last_drain,
            last_force: status.last_force,
            last_attempt: status.last_attempt.map(|a| Attempt {
                result: a.result,
                reason: a.reason,
                message: a.message,
            }),
            wanted: number(&rollout.spec.inter_step_buffer_service.spec.0),
            has: service.and_then(|s| number(&s.data["spec"])),
            under_way: status.change.map(|c| (begun_at(c.generation), c.stage)),
        }
    }
}

/// The versions of a controller, by the number of the change; those of a stage as they are to be changed.
pub fn all_versions(change: impl Fn(Version) -> Version) -> Vec<Version> {
    let in_production = |n: usize| controller(CONTROLLERS[n]).not_isolated();
    let slow = [SLOW, SLOW_TOO].map(|n| in_production(n).controller(|w| w.ready_after(8)));
    let bad = in_production(BAD).controller(|w| w.behaviour("never-ready"));
    versions().into_iter().map(change).chain(slow).chain([bad]).collect()
}

impl Requester {
    /// The requester of a stage that pipelines have unless they say otherwise; whether it is there is another question.
    pub fn of(stage: &Stage, by: By) -> Self {
        Self::named(stage, by, if by == By::Controller { ROLLOUT } else { SERVICE })
    }

    /// One of another name.
    pub fn named(stage: &Stage, by: By, name: &str) -> Self {
        let (team, system) = (stage.team().clone(), stage.scene.system.clone());
        Self { by, name: name.to_owned(), team, system, defined: false, asked: Arc::default() }
    }

    /// One all of whose versions are defined already.
    #[must_use]
    pub fn defined(self) -> Self {
        Self { defined: true, ..self }
    }

    /// How pipelines name it.
    pub fn key(&self) -> String {
        format!("{}/{}", self.by.kind(), self.name)
    }

    fn asked(&self) -> MutexGuard<'_, Vec<(i64, usize)>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- what users do ------------------------------------------------------------------------------------------

    /// Makes its rollout, with what change number 0 stands for, and waits until that is deployed.
    pub async fn install(&self) {
        match self.by {
            By::Controller => {
                self.team.install_with(&self.name, spec_of(self.by.version(0))).await;
            }
            By::Isb => {
                let spec = json!({"interStepBufferService": {"spec": {"jetstream": {"version": self.by.version(0)}}}});
                self.install_with(spec).await;
            }
        }
        self.deployed(0).await;
    }

    /// Makes the rollout of an ISB service with this spec.
    pub async fn install_with(&self, spec: Value) {
        let made: IsbServiceRollout = self
            .team
            .create(json!({
                "apiVersion": "numaplane.numaproj.io/v1alpha1", "kind": self.by.kind(), "metadata": {"name": self.name},
                "spec": spec,
            }))
            .await;
        self.asked().push((made.metadata.generation.unwrap_or_default(), 0));
    }

    /// Asks for change number `n`.
    pub async fn change(&self, n: usize) {
        if n >= SLOW && self.by == By::Controller && !self.defined {
            self.system.define("definitions", &config_map_value(&all_versions(|version| version))).await;
        }
        if self.by == By::Isb {
            self.behave(n).await;
        }
        self.edit(self.patch(n)).await;
    }

    /// What asks for change number `n`.
    pub fn patch(&self, n: usize) -> Value {
        let version = self.by.version(n);
        match self.by {
            By::Controller => json!({"spec": {"controller": {"version": version}}}),
            By::Isb => json!({"spec": {"interStepBufferService": {"spec": {"jetstream": {"version": version}}}}}),
        }
    }

    /// Changes its rollout by a merge patch.
    pub async fn edit(&self, patch: Value) {
        match self.by {
            By::Controller => {
                self.team.edit::<NumaflowControllerRollout>(&self.name, patch).await;
            }
            By::Isb => {
                let rollout: IsbServiceRollout = self.team.edit(&self.name, patch).await;
                let wanted = View::of_isb(&rollout, None, &[]).wanted;
                let generation = rollout.metadata.generation.unwrap_or_default();
                let mut asked = self.asked();
                if let Some(n) = wanted.filter(|n| asked.last().is_none_or(|(_, last)| last != n)) {
                    asked.push((generation, n));
                }
            }
        }
    }

    /// Sets how long pipelines may take to drain, and what happens then.
    pub async fn set_ppnd(&self, ppnd: Value) {
        self.edit(json!({"spec": {"strategy": {"ppnd": ppnd}}})).await;
    }

    /// Sets how long production may take to be healthy.
    pub async fn set_deadline(&self, seconds: u32) {
        self.edit(json!({"spec": {"strategy": {"assessment": {"deadline": format!("{seconds}s")}}}})).await;
    }

    /// Ends its waiting.
    pub async fn force(&self, text: &str) {
        self.annotate("force", text).await;
    }

    /// Sets one of the operator's annotations on its rollout.
    pub async fn annotate(&self, key: &str, text: &str) {
        self.edit(json!({"metadata": {"annotations": {format!("numaplane.numaproj.io/{key}"): text}}})).await;
    }

    /// Deletes its rollout, and does not wait for it to be gone.
    pub async fn delete(&self) {
        match self.by {
            By::Controller => self.team.delete::<NumaflowControllerRollout>(&self.name).await,
            By::Isb => self.team.delete::<IsbServiceRollout>(&self.name).await,
        }
    }

    /// Stores a status that nobody can read.
    pub async fn break_status(&self) {
        match self.by {
            By::Controller => self.team.break_status::<NumaflowControllerRollout>(&self.name).await,
            By::Isb => self.team.break_status::<IsbServiceRollout>(&self.name).await,
        }
    }

    /// Has the next roll of the ISB service go as change number `n` is to go. Alone, this rolls nothing.
    async fn behave(&self, n: usize) {
        let of = |yes: bool, value: &str| if yes { json!(value) } else { Value::Null };
        let (slow, bad) = (of(n == SLOW || n == SLOW_TOO, "3s"), of(n == BAD, "true"));
        let knobs = json!({"stand-in.numaflow/pod-takes": slow, "stand-in.numaflow/never-ready": bad});
        let Some(service) = self.service().await else { return };
        let as_now =
            |(knob, value): (&String, &Value)| service.annotations().get(knob).map(String::as_str) == value.as_str();
        if !knobs.as_object().into_iter().flatten().all(as_now) {
            let patch = json!({"metadata": {"annotations": knobs}});
            super::pipelines::edit(&self.team, "InterStepBufferService", &service.name_any(), patch).await;
        }
    }

    /// What is applied next gets healthy: what comes back after [`BAD`], too.
    pub async fn mend(&self) {
        if self.by == By::Controller {
            return;
        }
        let set = format!("isbsvc-{}-js", self.service_name().await);
        eventually("what is never healthy is there, or has been taken back", async || {
            let set = serde_json::to_value(self.team.get::<StatefulSet>(&set).await).expect("a StatefulSet is JSON");
            let view = self.view().await;
            let there = image(&set) == image_of(self.by.version(BAD)) || view.stage_of(BAD) != "Confirm";
            if there { Ok(()) } else { Err(format!("{} {view:?}", image(&set))) }
        })
        .await;
        self.behave(0).await;
    }

    // ---- what they see ------------------------------------------------------------------------------------------

    /// The API of its kind.
    pub fn objects(&self) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("numaplane.numaproj.io", "v1alpha1", self.by.kind());
        let resource = ApiResource::from_gvk_with_plural(&gvk, self.by.plural());
        Api::namespaced_with(self.team.client.clone(), &self.team.namespace, &resource)
    }

    /// What it says, if it is there.
    pub async fn found(&self) -> Option<View> {
        match self.by {
            By::Controller => self.team.find(&self.name).await.as_ref().map(View::of_controller),
            By::Isb => {
                let rollout: IsbServiceRollout = self.team.find(&self.name).await?;
                let service = self.service_of(&rollout).await;
                Some(View::of_isb(&rollout, service.as_ref(), &self.asked()))
            }
        }
    }

    /// What it says.
    pub async fn view(&self) -> View {
        self.found().await.unwrap_or_else(|| panic!("{} is not there", self.key()))
    }

    /// Name of the ISB service that its pipelines use.
    pub async fn service_name(&self) -> String {
        match self.by {
            By::Controller => SERVICE.to_owned(),
            By::Isb => {
                let rollout: IsbServiceRollout = self.team.get(&self.name).await;
                rollout.status.unwrap_or_default().child
            }
        }
    }

    /// The ISB service of its rollout.
    pub async fn service(&self) -> Option<DynamicObject> {
        let rollout: IsbServiceRollout = self.team.find(&self.name).await?;
        self.service_of(&rollout).await
    }

    async fn service_of(&self, rollout: &IsbServiceRollout) -> Option<DynamicObject> {
        let child = rollout.status.as_ref().map(|s| s.child.clone()).filter(|child| !child.is_empty())?;
        numaflow::api(&self.team, "InterStepBufferService").get_opt(&child).await.expect("it can be read")
    }

    /// What tells production of its own from any other: nobody has changed it while this stays the same.
    pub async fn production(&self) -> (Option<String>, Option<i64>) {
        let metadata = match self.by {
            By::Controller => self.team.get::<Deployment>(&self.name).await.metadata,
            By::Isb => self.service().await.expect("the ISB service is there").metadata,
        };
        (metadata.uid, metadata.generation)
    }

    /// Waits until it is as it should be.
    pub async fn until(&self, what: &str, is: impl Fn(&View) -> bool) -> View {
        eventually(&format!("{}: {what}", self.key()), async || match self.found().await {
            Some(view) if is(&view) => Ok(view),
            other => Err(format!("{other:?}")),
        })
        .await
    }

    /// Waits until change number `n` is in this stage.
    pub async fn reaches(&self, n: usize, stage: &str) -> View {
        self.until(&format!("change {n} is in {stage}"), |v| v.stage_of(n) == stage).await
    }

    /// Waits until change number `n` waits for these pipelines and no others.
    pub async fn draining(&self, n: usize, names: &[&str]) -> View {
        let waits = |v: &View| v.stage_of(n) == "Drain" && v.waiting_for() == names;
        self.until(&format!("change {n} waits for {names:?}"), waits).await
    }

    /// Sees change number `n` through its drain; at every look it names these pipelines. Gives how long that was.
    pub async fn drains(&self, n: usize, names: &[&str]) -> Duration {
        self.reaches(n, "Drain").await;
        let began = Instant::now();
        self.until(&format!("change {n} has drained"), |view| {
            if view.stage_of(n) != "Drain" {
                return true;
            }
            view.names_those_it_waits_for(names);
            false
        })
        .await;
        began.elapsed()
    }

    /// Waits until change number `n` is in production, confirmed and healthy.
    pub async fn deployed(&self, n: usize) -> View {
        self.until(&format!("change {n} is Deployed"), |v| {
            v.current
                && v.phase == Phase::deployed()
                && (v.wanted, v.has) == (Some(n), Some(n))
                && v.under_way.is_none()
        })
        .await
    }

    /// Waits until change number `n` is deployed, and gives the record of its drain.
    pub async fn done(&self, n: usize) -> DrainProgress {
        let view = self.deployed(n).await;
        assert!(!view.asks(), "{:?}", view.pause_request);
        assert_eq!(view.upgrade_in_progress, "");
        view.last_drain.expect("a drain is on record")
    }

    /// Waits until it is Failed and says all of these words.
    pub async fn failed(&self, words: &[&str]) -> View {
        self.until(&format!("is Failed and says {words:?}"), |v| {
            v.current
                && v.phase == Phase::failed()
                && v.under_way.is_none()
                && words.iter().all(|w| v.message.contains(w))
        })
        .await
    }
}
