//! What a pipeline says to those who ask it for a pause. Pure.

use std::time::Duration;

use super::{
    decide::Turn,
    snapshot::Request,
    want::{Want, key_of},
};
use crate::{
    api::{ANNOTATION_ALLOW_DATA_LOSS, ANNOTATION_FORCE, PauseAnswer, answer, pausing},
    numaflow::LivePipeline,
};

impl Turn<'_> {
    /// Says to everyone who asks for a pause how it stands.
    pub(super) fn answer(&mut self, child: &LivePipeline, want: &Want) {
        let pause = self.next.pause.clone().filter(|p| p.state == pausing::PAUSED);
        let requests: Vec<Request> = self.requests_of(child.instance(), child.isb()).cloned().collect();
        let of = |request: &Request| {
            let said = PauseAnswer { by: request.by.clone(), attempt: request.attempt.clone(), ..Default::default() };
            let say = |answer: &str, why: String| PauseAnswer { answer: answer.to_owned(), why, ..said.clone() };
            let before = self.stored.pause_requests.iter().find(|a| a.by == said.by && a.attempt == said.attempt);
            if self.allows_data_loss() {
                return say(answer::FORCED, format!("{ANNOTATION_ALLOW_DATA_LOSS} is set"));
            }
            if self.is_forced(&key_of(request)) {
                return say(answer::FORCED, format!("{ANNOTATION_FORCE} is set"));
            }
            if let Some(pause) = &pause {
                let drained = pause.drained;
                return PauseAnswer { drained, ..say(answer::PAUSED, pause.not_drained.clone()) };
            }
            if let Some(before) = before.filter(|a| a.answer == answer::EXCUSED) {
                return before.clone();
            }
            if let Some(why) = &want.excused {
                return say(answer::EXCUSED, why.clone());
            }
            if request.timeout == Some(Duration::ZERO) {
                return say(answer::EXCUSED, "its time for draining is 0s".to_owned());
            }
            let trouble = if child.phase == "Failed" { child.message.clone() } else { String::new() };
            say(answer::PAUSING, trouble)
        };
        self.next.pause_requests = requests.iter().map(of).collect();
    }
}
