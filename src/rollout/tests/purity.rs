//! The walls of the house: what decides does not read clocks or clients, and one room writes to the cluster.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Rooms of pure data and decisions, below `src`.
const PURE: [&str; 23] = [
    "api",
    "changes",
    "controller",
    "definitions",
    "drain",
    "fallback",
    "isb",
    "mono_vertex",
    "numaflow",
    "pipeline",
    "rollout",
    "wrapped",
    "changes.rs",
    "evidence.rs",
    "fallback.rs",
    "finalizer.rs",
    "live.rs",
    "manifest.rs",
    "plan.rs",
    "settings.rs",
    "summary.rs",
    "time.rs",
    "words.rs",
];

/// What a pure room must not know: clients, clocks, processes, chance.
const IMPURE: [&str; 13] = [
    "Client",
    "Api<",
    "kube::api",
    "kube::runtime",
    "tokio",
    "async ",
    "::now()",
    "Instant",
    "std::env",
    "std::fs",
    "rand::",
    "thread::",
    "tracing::",
];

/// What only the writer may know.
const WRITING: [&str; 6] = ["PatchParams", "PostParams", "DeleteParams", ".patch(", ".patch_status(", ".create("];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the source tree can be read") {
        let path = entry.expect("a folder entry can be read").path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default().to_owned();
        if path.is_dir() {
            if name != "tests" {
                sources(&path, into);
            }
        } else if Path::new(&name).extension().is_some_and(|e| e == "rs") && name != "tests.rs" {
            into.push(path);
        }
    }
}

/// Lines of a file that are code of the product, numbered from 1: without comments and without its unit tests.
fn code(path: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).expect("a source file can be read");
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("mod tests {"))
        .map(|(n, line)| (n + 1, line.split("//").next().unwrap_or_default().to_owned()))
        .collect()
}

fn offences(files: &[PathBuf], words: &[&str]) -> Vec<String> {
    files
        .iter()
        .flat_map(|path| code(path).into_iter().map(move |(n, line)| (path, n, line)))
        .filter_map(|(path, n, line)| {
            let word = words.iter().find(|word| line.contains(*word))?;
            Some(format!("{}:{n} uses {word:?}: {}", path.display(), line.trim()))
        })
        .collect()
}

fn source_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

#[test]
fn what_decides_knows_no_client_no_clock_and_no_chance() {
    let mut files = Vec::new();
    for room in PURE {
        let path = source_root().join(room);
        if path.is_dir() { sources(&path, &mut files) } else { files.push(path) }
    }
    assert!(files.len() > 25, "the walk found only {files:?}");
    assert_eq!(offences(&files, &IMPURE), Vec::<String>::new());
}

#[test]
fn one_room_writes_to_the_cluster() {
    let mut files = Vec::new();
    sources(&source_root(), &mut files);
    files.retain(|path| {
        let text = path.strip_prefix(source_root()).expect("below the root").display().to_string();
        text != "cluster.rs" && !text.starts_with("cluster/")
    });
    assert!(files.len() > 40, "the walk found only {files:?}");
    assert_eq!(offences(&files, &WRITING), Vec::<String>::new());
}
