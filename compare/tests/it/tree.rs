//! Rules about the whole tree that cargo does not keep: no link that leads nowhere, published results within 6 MB.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Upper bound on what is published, in bytes: everybody who clones the tree downloads it.
const MOST_PUBLISHED: u64 = 6_000_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Files below a folder, without what builds and runs make.
fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            // `results` holds runs of this machine beside what is published.
            let own_run = folder == root().join("results") && !["published", "contributed"].contains(&&*name);
            match path.is_dir() {
                true if own_run || ["target", ".git", "node_modules"].contains(&&*name) => {}
                true => folders.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn links_of_documents_lead_somewhere() {
    let (mut dead, mut seen) = (Vec::new(), 0);
    for file in files(&root()).iter().filter(|file| file.extension().is_some_and(|ext| ext == "md")) {
        let text = fs::read_to_string(file).unwrap();
        // Not within backticks.
        let outside: String = text.split('`').step_by(2).collect();
        let targets = outside.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '#']).next());
        for target in targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:")) {
            seen += 1;
            if !file.parent().unwrap().join(target).exists() {
                dead.push(format!("{}: {target}", file.display()));
            }
        }
    }
    assert!(seen > 100, "{seen} links: they are not found");
    assert_eq!(dead, Vec::<String>::new());
}

#[test]
fn published_results_weigh_at_most_6_mb() {
    let published = files(&root().join("results/published"));
    // `compare report` writes this file beside a result; it is not tracked (.gitignore).
    let tracked = published.iter().filter(|file| !file.ends_with("derived.json"));
    let in_all: u64 = tracked.map(|file| file.metadata().unwrap().len()).sum();
    assert!((1_000_000..=MOST_PUBLISHED).contains(&in_all), "{in_all} bytes");
}
