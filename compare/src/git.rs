//! Which source tree a result belongs to.

use std::process::Command;

use crate::result::Git;

/// The checkout around the current folder, if there is one.
pub(crate) fn current() -> Option<Git> {
    let commit = git(&["rev-parse", "HEAD"])?;
    // Untracked files (results, notes) do not change the build.
    let dirty = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(Git { commit, dirty })
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
