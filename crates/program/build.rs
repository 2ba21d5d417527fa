//! Tells the crate which commit an optimised build was made from: `--version` and results name it.
//! Where the files are in no checkout, who builds them may say it (`PROGRAM_COMMIT`).

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=PROGRAM_COMMIT");
    if env::var_os("PROGRAM_COMMIT").is_some() {
        return;
    }
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
    if let Some(commit) = git(&["describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]) {
        println!("cargo::rustc-env=PROGRAM_COMMIT={commit}");
    }
}

/// The output of git in the package's folder; `None` where it fails.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
