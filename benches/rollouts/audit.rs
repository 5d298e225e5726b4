//! Counts requests from the audit log of the control plane.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::Result;

/// Reads the log on from where it stopped.
pub struct Audit {
    path: PathBuf,
    offset: u64,
    /// What was read and not taken yet.
    counts: Counts,
}

/// How many requests there were.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Writes that were meant: (verb, resource with subresource).
    pub writes: BTreeMap<(String, String), usize>,
    /// Writes that only asked what would happen.
    pub dry_runs: usize,
    /// Gets and lists: (verb, resource or path).
    pub reads: BTreeMap<(String, String), usize>,
    /// Watches that ended.
    pub watches: usize,
    /// Writes of a lease: by the clock, whatever there is to do.
    pub leases: usize,
    /// Requests answered with an error.
    pub errors: BTreeMap<(u64, String), usize>,
}

impl Counts {
    /// All writes.
    pub fn all_writes(&self) -> usize {
        self.writes.values().sum()
    }

    /// All reads.
    pub fn all_reads(&self) -> usize {
        self.reads.values().sum()
    }

    fn all(&self) -> usize {
        self.all_writes() + self.all_reads() + self.dry_runs
    }

    fn add(&mut self, entry: &Value) {
        if entry["stage"] != "ResponseComplete" {
            return;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (verb, uri) = (text(&entry["verb"]), text(&entry["requestURI"]));
        let about = &entry["objectRef"];
        let resource = match (about["resource"].as_str(), about["subresource"].as_str()) {
            (Some(resource), Some(sub)) => format!("{resource}/{sub}"),
            (Some(resource), None) => resource.to_owned(),
            // Discovery and the like.
            _ => uri.split('?').next().unwrap_or_default().to_owned(),
        };
        let code = entry["responseStatus"]["code"].as_u64().unwrap_or_default();
        if code >= 400 {
            *self.errors.entry((code, format!("{verb} {resource}"))).or_default() += 1;
        }
        match verb.as_str() {
            "watch" => self.watches += 1,
            "get" | "list" => *self.reads.entry((verb, resource)).or_default() += 1,
            _ if uri.contains("dryRun=All") => self.dry_runs += 1,
            _ if resource == "leases" => self.leases += 1,
            _ => *self.writes.entry((verb, resource)).or_default() += 1,
        }
    }
}

impl Audit {
    /// A reader of what comes from now on.
    pub fn new(path: PathBuf) -> Result<Self> {
        let mut audit = Self { path, offset: 0, counts: Counts::default() };
        audit.take()?;
        Ok(audit)
    }

    /// Takes whole lines in; the server may be in the middle of one.
    fn read(&mut self) -> Result<()> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        for line in bytes[..whole].split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            self.counts.add(&serde_json::from_slice(line)?);
        }
        self.offset += whole as u64;
        Ok(())
    }

    /// What came in since the last time.
    pub fn take(&mut self) -> Result<Counts> {
        self.read()?;
        Ok(std::mem::take(&mut self.counts))
    }

    /// Waits until there were no requests for two seconds (twenty at most) and takes what came in since the last time:
    /// what is tidied up after a phase belongs to it.
    pub async fn take_when_quiet(&mut self) -> Result<Counts> {
        let began = Instant::now();
        let (mut last, mut since) = (usize::MAX, Instant::now());
        while began.elapsed() < Duration::from_secs(20) && since.elapsed() < Duration::from_secs(2) {
            self.read()?;
            if self.counts.all() != last {
                (last, since) = (self.counts.all(), Instant::now());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.take()
    }
}
