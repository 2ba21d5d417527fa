//! `result.json`: measured data only. Figures and verdicts are derived from it anew and stand in
//! `derived.json`.

mod browser;
mod git;
mod instructions;
mod planned;
mod provenance;
mod search;
mod selftest;
pub mod unfinished;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};
use measure::{Cell, CorpusRecord, Environment, RunRecord, SCHEMA_VERSION, Status, Tool, ValidityClass};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use terms::RelayUrl;

pub use browser::Browser;
pub use git::Git;
pub use instructions::{Conditions, Instructions, RESOLUTION, Row};
pub use planned::percent;
pub use planned::{Chosen, PlannedRounds};
pub use provenance::{MeasuredBy, Provenance};
pub use search::{
    AtLoad1, Axis, CellProbes, Played, Probe, ProbeOutcome, Purpose, Search, SearchConfig, SearchedLinks,
};
pub use selftest::TRIALS;
pub use selftest::{Oracle, SELFTESTS, SelfTest};

/// The name of the result file in its folder.
pub const RESULT_FILE: &str = "result.json";

/// The second name of JSON without compression, a standing A/A test.
pub const CONTROL: &str = "json-control";

/// The name of the relay that does no Nostr work.
pub const FLOOR: &str = "floor";

/// The name of the profile that is for trying things.
pub const QUICK: &str = "quick";

/// The most rounds of a result: the exact distribution of the signed-rank test costs the cube of
/// their number.
pub const MAX_ROUNDS: u32 = 200;

/// Rounds with the further ones that are played where times of blocks are invalid.
pub const fn with_further(rounds: u32) -> u32 {
    rounds + rounds / 2
}

/// One run of a matrix, or one search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResultFile {
    /// [`measure::SCHEMA_VERSION`] of the writer.
    pub schema_version: String,
    /// The program that wrote this.
    pub tool: Tool,
    /// The command line, `compare` first.
    pub command: Vec<String>,
    /// The source tree, when it ran inside a checkout of it.
    pub git: Option<Git>,
    /// The machine.
    pub host: Environment,
    /// Who measured it; absent where nobody said.
    pub provenance: Option<Provenance>,
    /// Wall clock at the start.
    pub started_utc: String,
    /// Whether all blocks of the schedule ran.
    pub status: Status,
    /// The run as asked for.
    pub config: Config,
    /// The instrument's own tests, made before.
    pub selftest: Option<SelfTest>,
    /// The events, as the first run stated them; absent when no run got that far.
    pub corpus: Option<CorpusRecord>,
    /// Cell ids by round, in the order they were to run.
    pub schedule: Vec<Vec<String>>,
    /// The cells with their blocks, in the order of every table.
    pub cells: Vec<CellResult>,
    /// Settings and probes of `compare search`; absent in other results.
    pub search: Option<Search>,
}

/// A run as asked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Config {
    /// Scenario names or files.
    pub scenarios: Vec<String>,
    /// The profile's name.
    pub profile: String,
    /// Rounds that were planned; the schedule has further ones where times of blocks were invalid.
    pub rounds: u32,
    /// Seconds a block.
    pub seconds: u32,
    /// The seed of the order; block seeds follow from it.
    pub seed: u64,
    /// Names of the cells whose verdicts are the primary family, named before the first block;
    /// empty where the cells of a load are one family.
    #[serde(default)]
    pub primary: Vec<String>,
    /// The corpus file, when another than the bundled one.
    pub corpus: Option<String>,
    /// The relay that every block was played against, where it was not a fresh one of our own.
    #[schemars(with = "Option<String>")]
    pub url: Option<RelayUrl>,
    /// The relays of a comparison, if there were several. The others are compared with the first.
    #[serde(default)]
    pub relays: Vec<RelayCommand>,
    /// Header fields of requests to it; the command line in the result has their names.
    #[serde(skip)]
    pub headers: Vec<terms::Header>,
    /// Cells that the relay declined and refused, where it was asked before the first round.
    pub foreign: Option<Foreign>,
    /// Further arguments of every client.
    pub client_args: Vec<String>,
    /// The SLO that every cell must keep, as it was given.
    pub slo: Option<String>,
    /// How the rounds were planned from a pilot, where `--precision` asked for it.
    pub planned_rounds: Option<PlannedRounds>,
    /// The rate of each scenario, or the load of each cell, that pilots chose.
    #[serde(default)]
    pub chosen: Vec<Chosen>,
    /// The browser of `compare browser`, whose pages played the blocks.
    pub browser: Option<Browser>,
}

/// A relay that a run starts for each block.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelayCommand {
    /// Its name in tables.
    pub name: String,
    /// The program and its arguments, in the words of a shell; `{address}`, `{port}` and `{dir}`
    /// stand for what it is given. Empty for a relay of our own.
    pub command: String,
    /// SHA-256 of each program file that ran for the relay while the doctor questioned it, by file. A
    /// block in which a file holds another one ends the run.
    #[serde(default)]
    pub programs: BTreeMap<String, String>,
    /// Seconds that it may take until it answers a handshake, where that was set.
    pub listen_within_s: Option<u32>,
}

impl RelayCommand {
    /// The file of a program that was replaced since, by the programs of a later start.
    pub fn replaced<'a>(&self, programs: &'a BTreeMap<String, String>) -> Option<&'a str> {
        let differs = |(file, sha256): &(&String, &String)| {
            self.programs.get(*file).is_some_and(|first| first != *sha256)
        };
        programs.iter().find(differs).map(|(file, _)| file.as_str())
    }

    /// Whether it is the floor, which does no Nostr work and so is no relay to compare.
    pub fn is_floor(&self) -> bool {
        self.command.is_empty() && self.name == FLOOR
    }
}

/// Cells that an external relay declined and refused by its own rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Foreign {
    /// Cells that are not measured or bear another name, each with the reason.
    pub declined: Vec<String>,
    /// Corpus events that are set aside, by reason.
    pub refused_events: BTreeMap<String, u64>,
}

/// The part of a cell in comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// One of the matrix.
    Cell,
    /// JSON without compression, at every fourth place: what the others are divided by.
    Anchor,
    /// JSON without compression under another name: the run's A/A test.
    Control,
    /// A relay that does no Nostr work: what the generator and the sockets cost by themselves.
    /// Never ranked.
    Floor,
}

/// One cell and all its blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellResult {
    /// The cell's name, such as `json+deflate`.
    pub id: String,
    /// Its part in comparisons.
    pub role: Role,
    /// Events published per second, where the matrix sets it.
    pub rate_per_s: Option<u32>,
    /// The share of its own relay's cores that its load was chosen for, with `--utilisation`.
    pub utilisation: Option<f64>,
    /// The cell as its runs stated it.
    pub cell: Cell,
    /// In the order they ran: one a round, several of an anchor.
    pub blocks: Vec<Block>,
}

/// One run of one cell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Block {
    /// The round, from 0.
    pub round: u32,
    /// The place in the round, from 0.
    pub position: u32,
    /// The seed of the run.
    pub seed: u64,
    /// When it began, from the start of the comparison.
    pub started_after_ns: u64,
    /// How long its process lived, starting the relay included.
    pub process_ns: u64,
    /// The client's exit code; absent when a signal ended it.
    pub exit_code: Option<i32>,
    /// Why the run failed: the client's last lines, or what it did instead.
    pub failure: Option<String>,
    /// Whether the user ended the run.
    #[serde(default)]
    pub interrupted: bool,
    /// The run's record, unless the run ended before writing one.
    pub record: Option<RunRecord>,
}

impl Block {
    /// The record, if the run is complete and nothing about it is invalid: what latencies and CPU
    /// times need.
    pub fn usable(&self) -> Option<&RunRecord> {
        self.counted().filter(|record| record.validity.class != ValidityClass::Invalid)
    }

    /// Whether the user ended it, by its record or, without one, by what its player says.
    pub fn is_interrupted(&self) -> bool {
        match &self.record {
            Some(record) => record.status == Status::Interrupted,
            None => self.interrupted,
        }
    }

    /// The record, if the run is complete and its ledger is valid: what counts of events, bytes and
    /// allocations need, on a busy host too.
    pub fn counted(&self) -> Option<&RunRecord> {
        let counted = |record: &&RunRecord| {
            record.status == Status::Complete && record.validity.counts != ValidityClass::Invalid
        };
        self.record.as_ref().filter(counted)
    }
}

/// The folders of results in this one, by their names; none where it cannot be read.
pub fn results_in(folder: &Path) -> Vec<PathBuf> {
    let holds = |folder: &PathBuf| {
        [RESULT_FILE, "result.json.gz", "blocks"].iter().any(|name| folder.join(name).exists())
    };
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(holds).collect();
    found.sort();
    found
}

impl ResultFile {
    /// A complete result of this program without blocks.
    pub fn begun(
        command: Vec<String>,
        git: Option<Git>,
        host: Environment,
        started_utc: String,
        config: Config,
    ) -> ResultFile {
        ResultFile {
            schema_version: SCHEMA_VERSION.to_owned(),
            tool: Tool { name: "compare".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            command,
            git,
            host,
            provenance: None,
            started_utc,
            status: Status::Complete,
            config,
            selftest: None,
            corpus: None,
            schedule: Vec::new(),
            cells: Vec::new(),
            search: None,
        }
    }

    /// The result with cells and their blocks; `schedule` has their names by round.
    pub fn with_cells(self, cells: Vec<CellResult>, schedule: Vec<Vec<String>>) -> ResultFile {
        let mut records =
            cells.iter().flat_map(|cell| &cell.blocks).filter_map(|block| block.record.as_ref());
        let corpus = records.next().map(|record| record.corpus.clone());
        ResultFile { corpus, cells, schedule, ..self }
    }

    /// The JSON schema of the file, generated from these types.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(ResultFile).to_value()
    }

    /// Reads a result. `path` is its folder or the file itself, which may be compressed with gzip
    /// (`result.json.gz`). A folder without that file is read as far as its run came.
    ///
    /// # Errors
    /// When the file is missing or of another major version.
    pub fn read(path: &Path) -> Result<ResultFile> {
        let mut file = if path.is_dir() { path.join(RESULT_FILE) } else { path.to_owned() };
        if !file.exists() {
            let packed = file.with_added_extension("gz");
            file = if packed.exists() { packed } else { file };
        }
        let name = file.display().to_string();
        let unfinished = if file.exists() { None } else { unfinished::read(path)? };
        let is_there = file.is_file() || unfinished.is_some();
        ensure!(
            is_there,
            "there is no {name}; expected the folder of a result, as `compare run` and others write it{}",
            results_in(path).last().map_or_else(String::new, |one| format!(", such as {}", one.display()))
        );
        let result = match unfinished {
            Some(result) => result,
            None => measure::read_versioned(&file, "result")?,
        };
        let rounds = result.config.rounds;
        ensure!(rounds <= MAX_ROUNDS, "{name} states {rounds} rounds; this tool makes at most {MAX_ROUNDS}");
        let played = result.schedule.len();
        ensure!(
            played <= with_further(MAX_ROUNDS) as usize,
            "{name} has a schedule of {played} rounds; this tool makes at most {}",
            with_further(MAX_ROUNDS)
        );
        let known = |block: &Block| (block.round as usize) < played;
        ensure!(
            result.cells.iter().flat_map(|cell| &cell.blocks).all(known),
            "{name} has blocks beyond its rounds"
        );
        Ok(result)
    }

    /// Why the schedule was not played to its end; `None` when it was.
    pub fn incomplete(&self) -> Option<&str> {
        self.status.reason()
    }

    /// Writes the result into its folder, where it is on the disk when this returns.
    ///
    /// # Errors
    /// When the file cannot be written; one that was there stays as it was.
    pub fn write(&self, folder: &Path) -> Result<()> {
        unfinished::write_json(&folder.join(RESULT_FILE), self)
    }
}
