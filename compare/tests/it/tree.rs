//! Rules about the whole tree that cargo does not keep: no dependency that nothing uses, no link that
//! leads nowhere, published results within 6 MB.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Upper bound on what is published, in bytes: everybody who clones the tree downloads it.
const MOST_PUBLISHED: u64 = 6_000_000;

/// Packages whose library has another name, or is named by a file of another crate that a test takes
/// in.
const NAMED_ELSEWHERE: [(&str, &str); 4] =
    [("wire", "rustls-webpki"), ("compare", "base64"), ("compare", "nkeys"), ("compare", "rcgen")];

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
fn crates_use_what_they_depend_on() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(root().join("Cargo.toml"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 10, "{metadata}");
    for package in packages {
        let folder = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap();
        let mut words = BTreeSet::new();
        for file in files(folder)
            .iter()
            .filter(|file| file.extension().is_some_and(|ext| ext == "rs") || file.ends_with("README.md"))
        {
            let text = fs::read_to_string(file).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("// "));
            let named = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
            words.extend(named.map(str::to_owned));
        }
        let name = package["name"].as_str().unwrap();
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = dependency["name"].as_str().unwrap();
            assert!(
                words.contains(&used.replace('-', "_")) || NAMED_ELSEWHERE.contains(&(name, used)),
                "{name}/Cargo.toml: {used} is used nowhere; take it out"
            );
        }
    }
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
