//! Is the instrument right? A known disturbance goes in, and the result must show it.
//!
//! Each [`Oracle`](report::result::Oracle) plays `selftest.toml` with real processes while the
//! relay, the host or the plan misbehaves with a computable effect. Reports show the measured
//! effect beside the expected one.
//!
//! To add an oracle, add a method to `Bench`, a line to `TESTS` and its name to
//! [`report::result::SELFTESTS`].

mod bench;
mod finding;
mod ledger;
mod links;
mod oracles;
mod proxy;
mod rounds;
mod saturated;
mod trials;

use std::{path::Path, time::Instant, time::SystemTime};

use anyhow::{Context, Result, ensure};
use measure::{Environment, SCHEMA_VERSION, Tool, utc};

use crate::git;
use bench::Bench;
use finding::Finding;
pub use finding::Options;
use report::result::{SelfTest, TRIALS};

type Test = fn(&mut Bench<'_>) -> Result<Finding>;

/// The tests that take seconds, in the order they run. The busy loops come first, because CPU
/// pressure averages over ten seconds and would invalidate the trials.
const TESTS: [(&str, Test); 12] = [
    ("starved", |bench| bench.starved()),
    ("stall", |bench| bench.stall()),
    ("delay", |bench| bench.delay()),
    ("cpu", |bench| bench.known_cpu()),
    ("saturated", |bench| bench.saturated()),
    ("bytes", |bench| bench.bytes()),
    ("workers", |bench| bench.workers()),
    ("killed", |bench| bench.killed()),
    ("ledger", |bench| bench.ledger()),
    ("links", |bench| bench.links()),
    ("wrong-link", |bench| bench.wrong_link()),
    ("late-link", |bench| bench.late_link()),
];

/// The tests that need network namespaces. They are left out if the host forbids namespaces.
const OVER_LINKS: [&str; 3] = ["links", "wrong-link", "late-link"];

/// The names of all tests.
pub fn names() -> Vec<&'static str> {
    TESTS.iter().map(|(name, _)| *name).chain(TRIALS).collect()
}

/// Runs the tests and passes the results so far to `tell` after each. `program` is this program's
/// own file, which also plays relay and clients.
///
/// # Errors
/// When a process cannot be started or leaves no record, or the host cannot run a test of
/// `options.only`.
pub fn run(program: &Path, options: &Options, mut tell: impl FnMut(&SelfTest)) -> Result<SelfTest> {
    let folder =
        tempfile::TempDir::with_prefix("compare-").context("cannot make a folder for the records")?;
    let mut bench = Bench::new(program, folder.path(), options)?;
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let mut untested: Vec<String> = Vec::new();
    if OVER_LINKS.into_iter().any(wanted)
        && let Err(why) = link::probe(program)?
    {
        untested.push(format!("{}: {why}", OVER_LINKS.join(", ")));
        ensure!(options.only.is_empty(), "{}", untested[0]);
    }
    let has_links = untested.is_empty();
    let possible = |name: &str| has_links || !OVER_LINKS.contains(&name);
    let mut found = begun(options);
    found.untested = joined(&untested);
    for (name, test) in TESTS.into_iter().filter(|(name, _)| wanted(name) && possible(name)) {
        let began = Instant::now();
        let finding = test(&mut bench).with_context(|| format!("test {name}"))?;
        if let Some(why) = finding.untested {
            untested.push(format!("{name}: {why}"));
            found.untested = joined(&untested);
            continue;
        }
        found.oracles.push(finding.named(name, began));
        tell(&found);
    }
    if !options.quick && TRIALS.into_iter().any(wanted) {
        let began = Instant::now();
        let findings = bench.trials().context("trials")?;
        for (name, finding) in TRIALS.into_iter().zip(findings).filter(|(name, _)| wanted(name)) {
            found.oracles.push(finding.named(name, began));
            tell(&found);
        }
    }
    Ok(found)
}

/// A result before its first test.
fn begun(options: &Options) -> SelfTest {
    SelfTest {
        schema_version: SCHEMA_VERSION.to_owned(),
        tool: Tool { name: "compare".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        git: git::current(),
        host: Environment::collect(),
        started_utc: utc::format(SystemTime::now()),
        quick: options.quick,
        oracles: Vec::new(),
        untested: None,
    }
}

fn joined(untested: &[String]) -> Option<String> {
    (!untested.is_empty()).then(|| untested.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::result::SELFTESTS;

    #[test]
    fn reports_know_all_tests() {
        assert_eq!(names(), SELFTESTS);
    }
}
