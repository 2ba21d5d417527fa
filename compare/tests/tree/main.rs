//! Rules about the whole tree that the compiler does not keep: no circle of crates, no dependency
//! that nothing uses, no path or link that leads nowhere, published results within
//! 10 MB.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod graph;
mod prose;
mod used;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use graph::Graph;

/// Upper bound on what is published, in bytes: everybody who clones the tree downloads it.
const MOST_PUBLISHED: u64 = 10_000_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The text files below a folder, with their paths from the root of the tree. Leaves out what
/// builds and runs make.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // `results` holds runs of this machine beside what is published.
            let own_run = folder == root().join("results") && name != "published" && path.is_dir();
            if ["target", ".git", "node_modules"].contains(&name.as_str()) || own_run {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.push((path.strip_prefix(root()).unwrap().to_string_lossy().into_owned(), text));
            }
        }
    }
    found.sort();
    found
}

/// Packages of the workspace, by cargo.
fn packages() -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

#[test]
fn crates_import_each_other_without_a_circle() {
    let mut graph = Graph::default();
    for package in packages() {
        let name = package["name"].as_str().unwrap();
        // Development dependencies count: a bench that reaches up is a circle that cargo allows.
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["path"].is_string() {
                graph.add(name, dependency["name"].as_str().unwrap(), &format!("{name}/Cargo.toml"));
            }
        }
    }
    assert!(graph.len() >= 5, "the workspace has more crates that import others");
    assert_eq!(graph.circles(), Vec::<String>::new());
}

#[test]
fn crates_use_what_they_depend_on() {
    let texts: BTreeMap<String, String> = all_texts().collect();
    let mut unused = Vec::new();
    for package in packages() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().strip_prefix(root()).unwrap().to_str().unwrap();
        let code = used::code_of(&texts, folder);
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            if !used::names(&code, name) {
                unused.push(format!("{folder}/Cargo.toml: {name} is used nowhere; take it out"));
            }
        }
    }
    assert!(unused.is_empty(), "{}", unused.join("\n"));
}

#[test]
fn paths_in_documents_lead_somewhere() {
    let found: Vec<String> =
        all_texts().flat_map(|(name, text)| prose::dead_paths(&root(), &name, &text)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn links_of_documents_lead_somewhere() {
    let found: Vec<String> =
        all_texts().flat_map(|(name, text)| prose::dead_links(&root(), &name, &text)).collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn published_results_weigh_at_most_10_mb() {
    let (mut sizes, mut folders) = (Vec::new(), vec![root().join("results/published")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            // Files that `compare report` writes beside a result are not tracked (.gitignore).
            if path.ends_with("hgrm") || path.ends_with("derived.json") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                sizes.push((path.metadata().unwrap().len(), path));
            }
        }
    }
    sizes.sort();
    let in_all: u64 = sizes.iter().map(|(size, _)| size).sum();
    let largest = &sizes[sizes.len().saturating_sub(10)..];
    assert!(in_all <= MOST_PUBLISHED, "{in_all} bytes in all; the largest: {largest:#?}");
    assert!(in_all > 1_000_000, "{in_all} bytes in all: the walk misses files");
}

fn all_texts() -> impl Iterator<Item = (String, String)> {
    let texts = files(&root());
    for known in ["README.md", "codecs/src/lib.rs", "scenarios/note-stream.toml", ".ci/run"] {
        assert!(texts.iter().any(|(name, _)| name == known), "{known} is not looked at");
    }
    texts.into_iter()
}
