//! The operator's config file: read at the start, and looked at for as long as the process runs.
//!
//! Its content is looked at, rather than the file watched: a ConfigMap that is mounted is changed by swapping the
//! symlink of a folder beside it, so that the file that is named is never written. What watches files sees nothing of
//! that, or sees it once and then goes on watching the file that nobody will write to again.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::fallback::{Said, parse_file};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(500);
/// Most bytes that are read: what a ConfigMap can hold.
const LARGEST: u64 = 1 << 20;

/// What the file holds, or why that cannot be read.
type Content = Result<String, String>;

/// The config file.
pub struct ConfigFile {
    path: PathBuf,
    /// What was answered last.
    answered: Content,
    /// What was seen last.
    seen: Content,
    looks: Interval,
}

impl ConfigFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// It cannot be read or used: where, why, and what to do.
    pub async fn open(path: &Path) -> Result<(Self, Said), String> {
        let content = read(path).await;
        let said = parse(path, &content).map_err(|faults| faults.join("\n"))?;
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok((Self { path: path.to_owned(), answered: content.clone(), seen: content, looks }, said))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the file holds something else.
    ///
    /// # Errors
    /// It cannot be read or used any more: all that is wrong.
    pub async fn changed(&mut self) -> Result<Said, Vec<String>> {
        loop {
            self.looks.tick().await;
            let content = read(&self.path).await;
            if self.settled(content) {
                return parse(&self.path, &self.answered);
            }
        }
    }

    /// Whether this is something new, seen twice in a row: an editor may be in the middle of writing, and half a file
    /// can be a good one that says something else.
    fn settled(&mut self, content: Content) -> bool {
        let before = std::mem::replace(&mut self.seen, content);
        if self.seen == self.answered || self.seen != before {
            return false;
        }
        self.answered = self.seen.clone();
        true
    }
}

async fn read(path: &Path) -> Content {
    let path = path.to_owned();
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

fn parse(path: &Path, content: &Content) -> Result<Said, Vec<String>> {
    let place = format!("config file {}", path.display());
    let text = content.as_ref().map_err(|why| vec![format!("{place} {why}")])?;
    parse_file(text).map_err(|faults| faults.iter().map(|fault| fault.at(&place)).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn set(folder: &Path, text: &str) -> PathBuf {
        let path = folder.join("config.yaml");
        std::fs::write(&path, text).unwrap();
        path
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_cannot_be_used_is_refused_at_the_start_with_all_that_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let refused = async |path: &Path| ConfigFile::open(path).await.err().unwrap();
        let path = set(folder.path(), "defaultUpgradeStrategy: canary\nstrategy:\n  kind: progressive\n");
        let place = format!("config file {}", path.display());
        assert_eq!(
            refused(&path).await,
            format!(
                "{place}, key \"defaultUpgradeStrategy\", line 1: \"canary\" is not a strategy; use progressive, \
                 pause-and-drain or no-strategy\n\
                 {place}, key \"strategy\", line 3: strategy has no key kind; those it may have are type, assessment \
                 and ppnd"
            )
        );
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(refused(&path).await, format!("{place} cannot be read: stream did not contain valid UTF-8"));
        std::fs::write(&path, "#".repeat(LARGEST as usize + 1)).unwrap();
        assert_eq!(refused(&path).await, format!("{place} is larger than 1024 KiB"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(refused(&path).await, format!("{place} cannot be read: No such file or directory (os error 2)"));
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_file_is_not_taken_for_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let (mut file, _) = ConfigFile::open(&set(folder.path(), "a: 1\nb: 2\n")).await.unwrap();
        let mut look = |text: &str| file.settled(Ok(text.to_owned()));
        assert!(!look("a: 1\nb: 2\n") && !look("a: 1\nb: 2\n"), "nothing was changed");
        assert!(!look("a: 1\n") && !look("a: 1\nb: 3\n") && look("a: 1\nb: 3\n"), "the whole, once it is there");
        assert!(!look("a: 1\nb: 3\n"), "and only once");
        assert!(!look("") && !look("a: 1\nb: 3\n") && !look("a: 1\nb: 3\n"), "written again as it was");
    }

    #[tokio::test(start_paused = true)]
    async fn a_swapped_folder_an_edit_in_place_and_a_file_that_goes_and_comes_back_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        // As the kubelet does it: the file is a link into a folder that is a link, and that link is replaced.
        let mount = |version: &str, text: &str| {
            let content = folder.path().join(version);
            std::fs::create_dir(&content).unwrap();
            set(&content, text);
            symlink(version, folder.path().join("..tmp")).unwrap();
            std::fs::rename(folder.path().join("..tmp"), folder.path().join("..data")).unwrap();
        };
        mount("..1", "defaultUpgradeStrategy: progressive\n");
        let path = folder.path().join("config.yaml");
        symlink("..data/config.yaml", &path).unwrap();
        let (mut file, said) = ConfigFile::open(&path).await.unwrap();
        let strategy = |said: &Said| said.fallback.strategy.map(crate::api::Strategy::as_str);
        assert_eq!(strategy(&said), Some("progressive"));

        mount("..2", "defaultUpgradeStrategy: pause-and-drain\n");
        assert_eq!(strategy(&file.changed().await.unwrap()), Some("pause-and-drain"));
        std::fs::write(&path, "defaultUpgradeStrategy: no-strategy\n").unwrap();
        assert_eq!(strategy(&file.changed().await.unwrap()), Some("no-strategy"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.changed().await.unwrap_err().len(), 1);
        std::fs::write(&path, "").unwrap();
        assert_eq!(strategy(&file.changed().await.unwrap()), None);
    }
}
