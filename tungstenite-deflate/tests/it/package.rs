//! The contents of the package.

use std::process::Command;

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
    let expected = ["CHANGELOG.md", "Cargo.lock", "Cargo.toml", "Cargo.toml.orig", "LICENSE", "README.md"];
    assert_eq!(others, expected);
}
