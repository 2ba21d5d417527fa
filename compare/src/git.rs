//! Which source tree a result belongs to.

use std::process::Command;

use report::result::Git;

/// A file of this project, from the root of a checkout.
const OWN_FILE: &str = ":/compare/src/git.rs";

/// The commit that this program was built from. A build that does not know it (`cargo build` without
/// `--release`) is taken for one of the checkout around the current folder.
pub(crate) fn current() -> Option<Git> {
    let tree = checkout();
    let Some(built) = program::built_from().map(Git::described) else { return tree };
    // Cargo does not ask git again when a file changes, so the tree may know of more changes.
    let dirty = built.dirty || tree.is_some_and(|tree| tree.dirty && tree.commit == built.commit);
    Some(Git { dirty, ..built })
}

/// The checkout of this project around the current folder, if there is one. That of a relay says
/// nothing about the program.
fn checkout() -> Option<Git> {
    git(&["ls-files", "--error-unmatch", OWN_FILE])?;
    let commit = git(&["rev-parse", "HEAD"])?;
    // Untracked files (results, notes) do not change the build.
    let dirty = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(Git { commit, dirty })
}

/// Whether a result of this tree can be made again by others.
///
/// # Errors
/// The reason, and what to do.
pub(crate) fn publishable(git: Option<&Git>) -> Result<(), String> {
    match git {
        None => Err(
            "the profile publish needs a commit, and this program knows none: it was built in no checkout, and this \
             folder is in no checkout of this program. Build it in one, or take --profile standard"
                .to_owned(),
        ),
        Some(Git { commit, dirty: true }) => Err(format!(
            "the profile publish needs a clean tree, and tracked files differ from commit {commit} (`git status`): \
             commit or stash them and build again, or take --profile standard"
        )),
        Some(_) => Ok(()),
    }
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
