//! Tells the crate which commit an optimised build was made from: `--version` names it.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A commit would compile every program anew while one works on them.
    if env::var("PROFILE").as_deref() != Ok("release") {
        return;
    }
    // Where these files lie in a checkout of something else, its commit says nothing about them.
    if git(&["ls-files", "--error-unmatch", "build.rs"]).is_none() {
        return;
    }
    // Every commit and every checkout writes to it. Cargo takes a missing file for a changed one.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists()) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(revision) = git(&["rev-parse", "--short=10", "HEAD"]) {
        println!("cargo::rustc-env=PROGRAM_REVISION={revision}");
    }
}

/// The output of git in the package's folder; `None` where it fails.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
