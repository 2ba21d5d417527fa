//! The contents of the package.

use std::{fs, path::Path, process::Command};

/// Sources, tests and examples; no conformance suite, whose downloads are another project's.
#[test]
fn the_package_holds_what_it_needs_and_nothing_else() {
    let output = Command::new(env!("CARGO"))
        .args(["package", "--list", "--allow-dirty", "--offline", "--locked"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let listed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (rust, others): (Vec<_>, Vec<_>) = listed.lines().partition(|file| file.ends_with(".rs"));
    let folders = ["src/", "tests/it/", "examples/"];
    assert!(rust.iter().all(|file| folders.iter().any(|folder| file.starts_with(folder))), "{rust:?}");
    assert!(rust.len() > 12, "{rust:?}");
    // Only where there is a repository.
    let others: Vec<_> = others.into_iter().filter(|file| *file != ".cargo_vcs_info.json").collect();
    let (seeds, others): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|file| file.starts_with("tests/seeds/"));
    assert!(seeds.len() > 20, "{seeds:?}");
    let expected = [
        "CHANGELOG.md",
        "Cargo.lock",
        "Cargo.toml",
        "Cargo.toml.orig",
        "LICENSE",
        "README.md",
        "tests/public_api.txt",
    ];
    assert_eq!(others, expected);
}

/// The repository's toolchain compiles everything and runs all tests, so what is stated is tested.
#[test]
fn the_stated_rust_version_is_that_of_the_toolchain() {
    let (root, stated) = (Path::new(env!("CARGO_MANIFEST_DIR")), env!("CARGO_PKG_RUST_VERSION"));
    for document in ["README.md", "CHANGELOG.md"] {
        let text = fs::read_to_string(root.join(document)).unwrap();
        assert!(text.contains(&format!("Rust {stated}")), "{document} does not say Rust {stated}");
    }
    // cargo writes this file into packages, which come without the repository's toolchain.
    if !root.join("Cargo.toml.orig").exists() {
        let toolchain = fs::read_to_string(root.join("../../rust-toolchain.toml")).unwrap();
        assert!(toolchain.contains(&format!("channel = \"{stated}.0\"")), "{toolchain}");
    }
}
