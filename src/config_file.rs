//! The operator's config file: read at the start, and looked at for as long as the process runs.

use std::path::{Path, PathBuf};

use crate::{
    fallback::{Said, parse_file},
    looked_at::{Content, LookedAt, read},
};

/// The config file.
pub struct ConfigFile {
    path: PathBuf,
    content: LookedAt<Content>,
}

impl ConfigFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// It cannot be read or used: where, why, and what to do.
    pub async fn open(path: &Path) -> Result<(Self, Said), String> {
        let content = read(path.to_owned()).await;
        let said = parse(path, &content).map_err(|faults| faults.join("\n"))?;
        Ok((Self { path: path.to_owned(), content: LookedAt::new(content) }, said))
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
        let content = self.content.changed(|| read(self.path.clone())).await;
        parse(&self.path, &content)
    }
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
    use crate::looked_at::LARGEST;

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
