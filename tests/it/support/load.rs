//! A steady stream of admissions, each asked for on time whether the one before has been answered or not.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{task::JoinSet, time::MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::asking::{Answer, User};

/// A stream that goes on until it is asked what came of it.
pub struct Load {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    answers: Arc<Mutex<Vec<(Duration, Answer)>>>,
}

impl Load {
    /// Asks so many times a second what would be if this object were created.
    pub fn start(user: &User, a_second: u32, object: Value) -> Self {
        let (stop, answers) = (CancellationToken::new(), Arc::new(Mutex::new(Vec::new())));
        let (stopped, told, user) = (stop.clone(), answers.clone(), user.clone().dry());
        let task = tokio::spawn(async move {
            let mut asked = JoinSet::new();
            let mut ticks = tokio::time::interval(Duration::from_secs(1) / a_second);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let mut n = 0;
            while !stopped.is_cancelled() {
                ticks.tick().await;
                n += 1;
                let (user, told, mut object) = (user.clone(), told.clone(), object.clone());
                object["metadata"]["name"] = json!(format!("load-{n}"));
                asked.spawn(async move {
                    let began = Instant::now();
                    let answer = user.create(&object).await;
                    told.lock().unwrap_or_else(PoisonError::into_inner).push((began.elapsed(), answer));
                });
            }
            asked.join_all().await;
        });
        Self { stop, task, answers }
    }

    /// How many were answered so far.
    pub fn answered(&self) -> usize {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Ends it; panics if one of them was not admitted. Returns how many there were, and the longest time one took.
    pub async fn all_admitted(self) -> (usize, Duration) {
        self.stop.cancel();
        self.task.await.expect("nobody panics");
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let failed: Vec<String> = answers.iter().filter(|(_, a)| !a.is_ok()).map(|(_, a)| a.describe()).collect();
        let some = failed.iter().take(5).cloned().collect::<Vec<_>>().join("\n");
        assert!(failed.is_empty(), "{} of {} were not admitted:\n{some}", failed.len(), answers.len());
        (answers.len(), answers.iter().map(|(time, _)| *time).max().unwrap_or_default())
    }
}
