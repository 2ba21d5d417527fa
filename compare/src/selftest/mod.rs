//! Is the instrument right? A known disturbance goes in, and the result must show it.
//!
//! Each [`Oracle`] plays `selftest.toml` with real processes, after making the relay, the host or the plan misbehave
//! in a way whose effect can be computed. What came out stands beside what had to come out, in every report that
//! carries it.
//!
//! To add an oracle, add a method to `Bench` and a line to `TESTS`.

mod bench;
mod oracles;
mod proxy;
mod tcp_info;
mod trials;

use std::{collections::BTreeMap, fs, path::Path, time::Instant, time::SystemTime};

use anyhow::{Context, Result, ensure};
use measure::{Environment, SCHEMA_VERSION, Tool, utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Git, git};
use bench::Bench;

/// What `compare selftest` found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelfTest {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: String,
    /// The program that wrote this.
    pub tool: Tool,
    /// The source tree, when it ran inside a checkout.
    pub git: Option<Git>,
    /// The machine.
    pub host: Environment,
    /// Wall clock at the start.
    pub started_utc: String,
    /// True when only the short tests ran.
    pub quick: bool,
    /// In the order they ran.
    pub oracles: Vec<Oracle>,
}

/// One test of the instrument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Oracle {
    /// Its name.
    pub name: String,
    /// What was done.
    pub done: String,
    /// What had to be seen.
    pub limit: String,
    /// What was seen.
    pub measured: String,
    /// The same as numbers, by name with unit.
    pub values: BTreeMap<String, f64>,
    /// Whether it is within the limit.
    pub passed: bool,
    /// How long it took.
    pub seconds: f64,
}

/// What an oracle says, before it has a name.
#[derive(Debug)]
pub(crate) struct Finding {
    done: String,
    limit: String,
    measured: String,
    values: Vec<(&'static str, f64)>,
    passed: bool,
}

/// How much is tested.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only what takes seconds, and everything shorter.
    pub quick: bool,
    /// Only these, by name; all when empty.
    pub only: Vec<String>,
    /// How often the trials (A/A and +10 % CPU) are repeated.
    pub repeats: u32,
    /// Rounds of a trial.
    pub rounds: u32,
    /// Seconds of a trial's block.
    pub seconds: u32,
}

type Test = fn(&mut Bench<'_>) -> Result<Finding>;

/// The tests that take seconds, in the order they run. The busy loops come first: the kernel remembers for ten seconds how
/// busy the host was, and the trials must not be called invalid for it.
const TESTS: [(&str, Test); 7] = [
    ("starved", |bench| bench.starved()),
    ("stall", |bench| bench.stall()),
    ("delay", |bench| bench.delay()),
    ("cpu", |bench| bench.known_cpu()),
    ("bytes", |bench| bench.bytes()),
    ("workers", |bench| bench.workers()),
    ("killed", |bench| bench.killed()),
];

/// The two that take minutes; they are one experiment.
const TRIALS: [&str; 2] = ["a-a", "plus-10"];

/// The names of all tests.
pub fn names() -> Vec<&'static str> {
    TESTS.iter().map(|(name, _)| *name).chain(TRIALS).collect()
}

/// Runs the tests; `program` is this program's own file, which is also the relay and the clients, and `tell` hears of
/// each result at once.
///
/// # Errors
/// When a process cannot be started or leaves no record: then the instrument was not tested at all.
pub fn run(program: &Path, options: &Options, mut tell: impl FnMut(&Oracle)) -> Result<SelfTest> {
    let started_utc = utc::format(SystemTime::now());
    let folder = tempfile::tempdir().context("cannot make a folder for the records")?;
    let mut bench = Bench::new(program, folder.path(), options)?;
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let mut oracles = Vec::new();
    for (name, test) in TESTS.into_iter().filter(|(name, _)| wanted(name)) {
        let began = Instant::now();
        let found = test(&mut bench).with_context(|| format!("test {name}"))?;
        oracles.push(found.named(name, began));
        oracles.last().into_iter().for_each(&mut tell);
    }
    if !options.quick && TRIALS.into_iter().any(wanted) {
        let began = Instant::now();
        let findings = bench.trials().context("trials")?;
        for (name, found) in TRIALS.into_iter().zip(findings).filter(|(name, _)| wanted(name)) {
            oracles.push(found.named(name, began));
            oracles.last().into_iter().for_each(&mut tell);
        }
    }
    Ok(SelfTest {
        schema_version: SCHEMA_VERSION.to_owned(),
        tool: Tool { name: "compare".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        git: git::current(),
        host: Environment::collect(),
        started_utc,
        quick: options.quick,
        oracles,
    })
}

impl Finding {
    fn named(self, name: &str, began: Instant) -> Oracle {
        Oracle {
            name: name.to_owned(),
            done: self.done,
            limit: self.limit,
            measured: self.measured,
            // JSON has no NaN; what was not measured is absent.
            values: (self.values.into_iter().filter(|(_, value)| value.is_finite()))
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            passed: self.passed,
            seconds: began.elapsed().as_secs_f64(),
        }
    }
}

impl Oracle {
    /// One line for a terminal.
    pub fn line(&self) -> String {
        let verdict = if self.passed { "pass" } else { "FAIL" };
        format!(
            "{verdict}  {:<8} {}: {} (limit: {}; {:.0} s)",
            self.name, self.done, self.measured, self.limit, self.seconds
        )
    }
}

impl SelfTest {
    /// Whether every test passed.
    pub fn passed(&self) -> bool {
        self.oracles.iter().all(|oracle| oracle.passed)
    }

    /// The names of those that did not pass.
    pub fn failed(&self) -> Vec<&str> {
        self.oracles.iter().filter(|oracle| !oracle.passed).map(|oracle| oracle.name.as_str()).collect()
    }

    /// Reads what [`SelfTest::write`] wrote.
    ///
    /// # Errors
    /// When there is no such file, or when it is of another major version.
    pub fn read(path: &Path) -> Result<SelfTest> {
        let name = path.display();
        ensure!(path.is_file(), "there is no {name}; `compare selftest --out {name}` writes it");
        Ok(measure::read_versioned(path, "self-test")?)
    }

    /// Writes the result as indented JSON.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self).context("a self-test does not serialize")?;
        text.push('\n');
        fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_absent_and_the_file_can_be_read_again() {
        let found = Finding {
            done: "every block was invalid".to_owned(),
            limit: "worse".to_owned(),
            measured: "nothing".to_owned(),
            values: vec![("worse", 0.0), ("median_ratio", f64::NAN)],
            passed: false,
        };
        let oracle = found.named("plus-10", Instant::now());
        assert_eq!(oracle.values.keys().collect::<Vec<_>>(), ["worse"]);
        let test = SelfTest {
            schema_version: SCHEMA_VERSION.to_owned(),
            tool: Tool { name: "compare".to_owned(), version: "0".to_owned() },
            git: None,
            host: Environment::default(),
            started_utc: String::new(),
            quick: false,
            oracles: vec![oracle],
        };
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("selftest.json");
        test.write(&file).unwrap();
        assert_eq!(SelfTest::read(&file).unwrap(), test);
        assert_eq!((test.passed(), test.failed()), (false, vec!["plus-10"]));
    }
}
