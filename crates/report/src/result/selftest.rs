//! The result of the instrument's own tests.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Result, ensure};
use measure::{Environment, Tool};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{git::Git, unfinished::write_json};

/// The names of all tests, in the order they run. The short form has all but the last two.
pub const SELFTESTS: [&str; 14] = [
    "starved",
    "stall",
    "delay",
    "cpu",
    "saturated",
    "bytes",
    "workers",
    "killed",
    "ledger",
    "links",
    "wrong-link",
    "late-link",
    TRIALS[0],
    TRIALS[1],
];

/// The two that take minutes, measured as one experiment.
pub const TRIALS: [&str; 2] = ["a-a", "plus-10"];

/// The result of `compare selftest`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelfTest {
    /// [`measure::SCHEMA_VERSION`] of the writer.
    pub schema_version: String,
    /// The program that wrote this.
    pub tool: Tool,
    /// The source tree, when it ran inside a checkout of it.
    pub git: Option<Git>,
    /// The machine.
    pub host: Environment,
    /// Wall clock at the start.
    pub started_utc: String,
    /// True when only the short tests ran.
    pub quick: bool,
    /// In the order they ran.
    pub oracles: Vec<Oracle>,
    /// Which tests the host cannot run, and why.
    pub untested: Option<String>,
}

/// One test of the instrument.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Oracle {
    /// Its name.
    pub name: String,
    /// The disturbance that was planted.
    pub done: String,
    /// The finding that was expected.
    pub limit: String,
    /// The finding.
    pub measured: String,
    /// The finding's numbers, by name with unit.
    pub values: BTreeMap<String, f64>,
    /// Whether it is within the limit.
    pub passed: bool,
    /// How long it took.
    pub seconds: f64,
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

    /// How many tests its form has, as far as this version knows them.
    pub fn in_all(&self) -> usize {
        self.of_form().count()
    }

    /// The names of those that did not run.
    pub fn left_out(&self) -> Vec<&'static str> {
        let ran = |name: &str| self.oracles.iter().any(|oracle| oracle.name == name);
        self.of_form().filter(|name| !ran(name)).collect()
    }

    fn of_form(&self) -> impl Iterator<Item = &'static str> {
        let quick = self.quick;
        SELFTESTS.into_iter().filter(move |name| !(quick && TRIALS.contains(name)))
    }

    /// The sentence that another source tree than the result's was tested; `None` when it is the
    /// same.
    pub fn of_another_commit(&self, result: Option<&Git>) -> Option<String> {
        let name =
            |git: Option<&Git>| git.map_or_else(|| "no known commit".to_owned(), |git| format!("{git:.8}"));
        let tested = self.git.as_ref();
        (tested != result)
            .then(|| format!("the self-test is of {}, the result of {}", name(tested), name(result)))
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
        write_json(path, self)
    }
}
