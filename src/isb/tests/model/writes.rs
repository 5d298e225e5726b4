//! What the modelled server makes of steps. Whatever the operator may never do is noticed here.

use super::{numaflow::made, *};
use crate::{
    api::{IsbStage, answer},
    changes::{Change, classify},
    live::Version,
    plan::About,
};

/// What every status of ours keeps to.
fn assert_sound(status: &IsbServiceRolloutStatus) {
    let Some(request) = status.pause_request.as_ref().filter(|r| r.active) else { return };
    let change = status.change.as_ref().unwrap_or_else(|| panic!("a request without a change: {}", status.message));
    let stage = IsbStage::parse(&change.stage);
    assert!(stage.is_some_and(|s| s != IsbStage::Beside), "a request in {}", change.stage);
    assert_eq!(request.attempt, change.attempt, "a request for another change");
}

impl Model {
    pub fn carry_out(&mut self, step: &Step) -> Answer {
        if step.is_of_numaflow() && self.server.conflicts > 0 {
            self.server.conflicts -= 1;
            return Answer::Conflict;
        }
        match step {
            Step::SetFinalizers(all) => {
                self.rollout.metadata.finalizers = Some(all.clone());
                self.released = self.rollout.metadata.deletion_timestamp.is_some() && !self.is_held();
            }
            Step::WriteIsbServiceStatus { status, events } => {
                assert_sound(status);
                self.assert_moves(&status.child);
                // As it is stored: times in whole seconds.
                let stored = serde_json::to_value(status).and_then(serde_json::from_value);
                self.rollout.status = Some(stored.unwrap());
                self.events.extend(events.iter().map(|e| format!("{}: {}", e.reason, e.note)));
            }
            Step::Look(look) => self.look(look),
            Step::CheckNumaflow { body, expect, .. } => {
                if self.server.silent.is_some() {
                    return silence(About::Own);
                }
                if let Some(refusal) = self.refusal(body, About::Own).filter(|_| !self.server.lies) {
                    return Answer::Refused(refusal);
                }
                let hash = body["metadata"]["annotations"][crate::live::ANNOTATION_APPLIED].as_str().unwrap();
                self.learned.planned.insert((expect.name.clone(), hash.to_owned()));
            }
            Step::ApplyNumaflow { body, expect, .. } => {
                if let Some(refusal) = self.refusal(body, About::Own) {
                    return Answer::Refused(refusal);
                }
                if self.server.silent != Some(false) {
                    self.apply(body, expect.as_ref());
                }
                if self.server.silent.is_some() {
                    return silence(About::Own);
                }
            }
            Step::PatchNumaflow { object, patch, why, .. } => {
                if self.server.rigid {
                    let message = format!("InterStepBufferService/{}: this must not be changed", object.name);
                    let reason = "Forbidden".to_owned();
                    return Answer::Refused(Refusal { about: About::Steering, reason, message });
                }
                self.patch(object, patch);
                self.writes.push(format!("patch {}: {why}", object.name));
            }
            Step::DeleteNumaflow { object, .. } => {
                if self.server.keeps {
                    let message = format!("InterStepBufferService/{}: it must not be deleted", object.name);
                    return Answer::Refused(Refusal { about: About::Own, reason: "Forbidden".to_owned(), message });
                }
                self.assert_unused(&object.name);
                self.writes.push(format!("delete {}", object.name));
                self.delete_service(&object.name);
            }
            other => panic!("not a step about ISB services: {other:?}"),
        }
        Answer::Done
    }

    fn refusal(&self, body: &Value, about: About) -> Option<Refusal> {
        let text = self.server.refuses.as_ref().filter(|text| body.to_string().contains(*text))?;
        let message = format!("InterStepBufferService/{}: {text} is not allowed", body["metadata"]["name"]);
        Some(Refusal { about, reason: "Forbidden".to_owned(), message })
    }

    fn apply(&mut self, body: &Value, expect: Option<&Version>) {
        let name = body["metadata"]["name"].as_str().unwrap().to_owned();
        let Some(version) = expect else {
            assert!(!self.services.contains_key(&name) && !self.foreign.contains(&name), "{name} is there");
            self.made += 1;
            self.writes.push(format!("create {name}"));
            self.services.insert(name, made(format!("s{}", self.made), body));
            return;
        };
        self.assert_paused(&name, &body["spec"]);
        let text = |map: &Value| -> BTreeMap<String, String> { serde_json::from_value(map.clone()).unwrap() };
        let service = self.services.get_mut(&name).unwrap();
        assert_eq!((&version.uid, &version.resource_version), (&service.uid, &service.resource_version.to_string()));
        service.labels.extend(text(&body["metadata"]["labels"]));
        service.annotations.extend(text(&body["metadata"]["annotations"]));
        service.owned = true;
        // What is somebody else's stays.
        let mut spec = service.spec.clone();
        remove(&mut spec, &service.applied);
        overlay(&mut spec, &body["spec"]);
        service.applied = body["spec"].clone();
        if service.spec != spec {
            service.spec = spec;
            service.changed();
        }
        self.writes.push(format!("apply {name}"));
    }

    fn patch(&mut self, object: &Version, patch: &Value) {
        let service = self.services.get_mut(&object.name).unwrap();
        assert_eq!(object.uid, service.uid);
        for (key, value) in patch["metadata"]["labels"].as_object().into_iter().flatten() {
            service.labels.insert(key.clone(), value.as_str().unwrap().to_owned());
            service.resource_version += 1;
        }
        if patch["spec"].is_object() {
            let before = service.spec.clone();
            remove_nulls(&mut service.spec, &patch["spec"]);
            if service.spec != before {
                service.changed();
            }
        }
    }

    // ---- rules of conduct ---------------------------------------------------------------------------------------

    /// Pipelines are never sent from a service that is there to one that is not healthy.
    fn assert_moves(&self, to: &str) {
        let from = self.child();
        if from != to && self.services.contains_key(&from) {
            assert!(self.is_healthy(to), "from {from} to {to}: {:?}", self.services);
        }
    }

    /// A service is not deleted while a pipeline refers to it, and never the one in use, unless its rollout goes.
    fn assert_unused(&self, name: &str) {
        if self.rollout.metadata.deletion_timestamp.is_none() {
            assert_ne!(self.child(), name, "the service in use is deleted");
        }
        let forced = self.status().last_force.is_some_and(|f| f.ended == "the deletion");
        let users = self.pipes.iter().filter(|(_, p)| p.isb == name);
        assert!(forced || users.count() == 0, "{name} is deleted, and is used: {:?}", self.pipes);
    }

    /// What would lose data is changed only while pipelines stand still, or by record do not have to.
    fn assert_paused(&self, name: &str, spec: &Value) {
        let service = self.service(name);
        match classify(&service.applied, spec, &self.rules) {
            Change::None | Change::Direct(_) => return,
            Change::Pause(_) if self.strategy == Strategy::NoStrategy && self.status().change.is_none() => return,
            // What was changed by other rules is put back whatever they say now.
            Change::Recreate(_) if self.stage() == "RollBack" => {}
            Change::Recreate(fields) => panic!("{fields:?} changed in place"),
            Change::Pause(_) => {}
        }
        let status = self.status();
        let told = || format!("{} with {:?}", status.message, self.pipes);
        let change = status.change.as_ref().unwrap_or_else(|| panic!("changed without a change on record: {}", told()));
        let drain = change.drain.as_ref().unwrap_or_else(|| panic!("changed without a drain on record: {}", told()));
        for pipe in self.pipes.values().filter(|p| p.managed && !p.deleting && self.meant().contains(&p.isb)) {
            let answered = pipe.answers.iter().find(|a| a.attempt == change.attempt);
            let excused = answered.is_some_and(|a| matches!(a.answer.as_str(), answer::EXCUSED | answer::FORCED));
            // In mid-roll it may be changed again, or back, for those who are asked still.
            let ours = service.live(name).ownership.ours.clone();
            let touched = change.before.as_ref().is_some_and(|before| Some(&before.0["spec"]) != ours.as_ref());
            let put_back = change.stage == "RollBack" || (touched && self.asks());
            assert!(
                pipe.state == State::Paused || excused || !drain.ended.is_empty() || put_back,
                "changed under a pipeline that runs: {}",
                told()
            );
        }
    }
}

fn silence(about: About) -> Answer {
    Answer::Silent(Refusal { about, reason: "NoAnswer".to_owned(), message: "no answer within 10 s".to_owned() })
}

/// Removes the fields that were applied before.
fn remove(spec: &mut Value, applied: &Value) {
    let (Some(map), Some(applied)) = (spec.as_object_mut(), applied.as_object()) else { return };
    for (key, value) in applied {
        match map.get_mut(key) {
            Some(inner) if inner.is_object() && value.is_object() => remove(inner, value),
            Some(inner) if inner == value => drop(map.remove(key)),
            _ => {}
        }
    }
}

fn remove_nulls(spec: &mut Value, patch: &Value) {
    let (Some(map), Some(patch)) = (spec.as_object_mut(), patch.as_object()) else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else if let Some(inner) = map.get_mut(key) {
            remove_nulls(inner, value);
        }
    }
}

fn overlay(spec: &mut Value, applied: &Value) {
    match (spec, applied) {
        (Value::Object(map), Value::Object(applied)) => {
            for (key, value) in applied {
                overlay(map.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (spec, applied) => *spec = applied.clone(),
    }
}
