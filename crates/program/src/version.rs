//! Texts of `-V` and `--version`.

use std::sync::LazyLock;

use clap::Command;
use measure::{Allocations, Environment};

static SHORT: LazyLock<String> = LazyLock::new(first_line);
static LONG: LazyLock<String> = LazyLock::new(long);

/// The version and the commit, on one line.
pub(crate) fn short() -> &'static str {
    &SHORT
}

/// The commit that the program was built from, followed by `-dirty` if files differed from it. `None` in
/// builds without optimisation or without a checkout.
pub fn built_from() -> Option<&'static str> {
    option_env!("PROGRAM_COMMIT")
}

fn first_line() -> String {
    let revision = match built_from() {
        Some(commit) => format!("rev {}", commit.get(..10).unwrap_or(commit)),
        None if Environment::is_optimised() => "unknown revision".to_owned(),
        None => "debug build".to_owned(),
    };
    format!("{} ({revision})", env!("CARGO_PKG_VERSION"))
}

/// The short version, and what else of the build decides about figures.
fn long() -> String {
    let sign = if Allocations::so_far().is_some() { '+' } else { '-' };
    let compiler = Environment::rustc().unwrap_or("unknown");
    format!("{}\n\nfeatures: {sign}count-allocations\ncompiler: {compiler}", short())
}

/// The command with the texts of both flags, if it states a version at all.
pub(crate) fn stated(command: Command) -> Command {
    match command.get_version() {
        Some(_) => command.version(short()).long_version(LONG.as_str()),
        None => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(command: Command, flag: &str) -> String {
        stated(command).try_get_matches_from(["it", flag]).unwrap_err().to_string()
    }

    #[test]
    fn the_first_line_is_the_version_and_the_commit() {
        let it = Command::new("it").version("0");
        let (short, long) = (said(it.clone(), "-V"), said(it, "--version"));
        assert_eq!(short.lines().count(), 1, "{short}");
        assert!(short.starts_with(concat!("it ", env!("CARGO_PKG_VERSION"), " (")), "{short}");
        assert!(long.starts_with(&short) && long.contains("\nfeatures: "), "{long}");
        assert!(long.contains("\ncompiler: rustc "), "{long}");
    }
}
