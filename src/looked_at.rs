//! Files that are read at the start, and looked at for as long as the process runs.
//!
//! Their content is looked at, rather than the files watched: what is mounted from a ConfigMap or a Secret is changed by
//! swapping the symlink of a folder beside it, so that the file that is named is never written. What watches files sees
//! nothing of that, or sees it once and then goes on watching the file that nobody will write to again.

use std::{fs::File, future::Future, io::Read, path::PathBuf, time::Duration};

use tokio::time::{Interval, MissedTickBehavior, interval};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Most bytes that are read of a file: what a ConfigMap or a Secret can hold.
pub const LARGEST: u64 = 1 << 20;

/// What a file holds, or why that cannot be read.
pub type Content = Result<String, String>;

/// What one or more files hold, and what they held before.
pub struct LookedAt<T> {
    /// What was answered last.
    answered: T,
    /// What was seen last.
    seen: T,
    looks: Interval,
}

impl<T: Clone + PartialEq> LookedAt<T> {
    /// Begins with what was read just now.
    #[must_use]
    pub fn new(content: T) -> Self {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { answered: content.clone(), seen: content, looks }
    }

    /// Waits until there is something else to `read`.
    pub async fn changed<R: Future<Output = T>>(&mut self, read: impl Fn() -> R) -> T {
        loop {
            self.looks.tick().await;
            if self.settled(read().await) {
                return self.answered.clone();
            }
        }
    }

    /// Whether this is something new, seen twice in a row: an editor may be in the middle of writing, and half a file
    /// can be a good one that says something else.
    fn settled(&mut self, content: T) -> bool {
        let before = std::mem::replace(&mut self.seen, content);
        if self.seen == self.answered || self.seen != before {
            return false;
        }
        self.answered = self.seen.clone();
        true
    }
}

/// Reads a file of text.
///
/// # Errors
/// It cannot be read, or is no text, or too large: what follows its name in a message.
pub async fn read(path: PathBuf) -> Content {
    // On a thread of its own, because a disk may be slow.
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        let file = File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
        // What is not UTF-8 is an error of reading, and says so.
        file.take(LARGEST + 1).read_to_string(&mut text).map_err(|error| format!("cannot be read: {error}"))?;
        if text.len() as u64 > LARGEST {
            return Err(format!("is larger than {} KiB", LARGEST >> 10));
        }
        Ok(text)
    });
    read.await.unwrap_or_else(|error| Err(format!("cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn half_a_file_is_not_taken_for_a_change() {
        let mut file = LookedAt::new("a: 1\nb: 2\n");
        let mut look = |text| file.settled(text);
        assert!(!look("a: 1\nb: 2\n") && !look("a: 1\nb: 2\n"), "nothing was changed");
        assert!(!look("a: 1\n") && !look("a: 1\nb: 3\n") && look("a: 1\nb: 3\n"), "the whole, once it is there");
        assert!(!look("a: 1\nb: 3\n"), "and only once");
        assert!(!look("") && !look("a: 1\nb: 3\n") && !look("a: 1\nb: 3\n"), "written again as it was");
    }
}
