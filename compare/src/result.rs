//! The file a comparison leaves: everything that was measured, and enough to render every table again.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use measure::{Cell, CorpusRecord, Environment, RunRecord, SCHEMA_VERSION, Status, Tool, Verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    CellSpec, Plan,
    matrix::Role,
    report::{Comparison, Merged, Steadiness, comparisons},
    search::{CellSearch, SearchConfig},
    selftest::SelfTest,
    slo::SloResult,
    stats::MAX_PAIRS,
};

/// The name of the result file in its folder.
pub const RESULT_FILE: &str = "result.json";

/// One comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResultFile {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: String,
    /// The program that wrote this.
    pub tool: Tool,
    /// The command line, `compare` first.
    pub command: Vec<String>,
    /// The source tree, when it ran inside a checkout.
    pub git: Option<Git>,
    /// The machine.
    pub host: Environment,
    /// Wall clock at the start.
    pub started_utc: String,
    /// Whether all blocks of the schedule ran.
    pub status: Status,
    /// What was asked for.
    pub config: Config,
    /// What the instrument's own tests said before.
    #[serde(default)]
    pub selftest: Option<SelfTest>,
    /// The events, as the first run stated them; absent when no run got that far.
    pub corpus: Option<CorpusRecord>,
    /// Cell ids by round, in the order they were to run.
    pub schedule: Vec<Vec<String>>,
    /// What was measured, in the order of every table.
    pub cells: Vec<CellResult>,
    /// What `compare search` was asked for; absent in other results.
    #[serde(default)]
    pub search: Option<SearchConfig>,
    /// The highest rate that each cell sustains under the SLO of `search`, as a bracket, with every probe.
    #[serde(default)]
    pub slo: Vec<CellSearch>,
    /// What became of the SLO that was given, in each cell.
    #[serde(default)]
    pub slos: Vec<SloResult>,
    /// Each cell against its reference: for other readers. Reports compute it anew from the blocks.
    pub comparisons: Vec<Comparison>,
}

/// The source tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Git {
    /// The commit in full.
    pub commit: String,
    /// True when tracked files differed from it.
    pub dirty: bool,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Config {
    /// Scenario names or files.
    pub scenarios: Vec<String>,
    /// The profile's name.
    pub profile: String,
    /// Rounds.
    pub rounds: u32,
    /// Seconds a block.
    pub seconds: u32,
    /// The seed of the order; block seeds follow from it.
    pub seed: u64,
    /// The corpus file, when another than the bundled one.
    pub corpus: Option<String>,
    /// The relay that every block was played against, where it was not a fresh one of our own.
    #[serde(default)]
    pub url: Option<String>,
    /// Further arguments of every client.
    pub client_args: Vec<String>,
}

/// One cell: all its blocks, and their sum.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellResult {
    /// The cell's name, such as `json+deflate`.
    pub id: String,
    /// What it is for.
    pub role: Role,
    /// Events published per second, where the matrix sets it.
    pub rate_per_s: Option<u32>,
    /// The cell as its runs stated it.
    pub cell: Cell,
    /// In the order they ran: one a round, several of an anchor.
    pub blocks: Vec<Block>,
    /// The usable blocks together: for other readers. Reports compute it anew from the blocks.
    pub merged: Merged,
    /// Whether they were steady, where that can be told: for other readers, too.
    #[serde(default)]
    pub steady: Option<Steadiness>,
}

impl CellResult {
    fn new(spec: &CellSpec, blocks: Vec<Block>) -> CellResult {
        let stated = blocks.iter().find_map(|block| Some(block.record.as_ref()?.cell.clone()));
        let cell = stated.unwrap_or_else(|| Cell {
            scenario: spec.scenario.clone(),
            format: spec.format.clone(),
            implementation: spec.implementation.clone(),
            compression: spec.compression.clone(),
            compression_parameters: String::new(),
            verify: spec.verify.clone(),
            batching: if spec.batch_limits().is_some() { spec.batching.clone() } else { "none".to_owned() },
        });
        let merged = Merged::of(blocks.iter().filter_map(Block::usable));
        let mut result = CellResult {
            id: spec.id.clone(),
            role: spec.role,
            rate_per_s: spec.rate_per_s,
            cell,
            blocks,
            merged,
            steady: None,
        };
        result.steady = Steadiness::of(&result);
        result
    }
}

/// What a result says beside its blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// See [`ResultFile::command`].
    pub command: Vec<String>,
    /// See [`ResultFile::git`].
    pub git: Option<Git>,
    /// See [`ResultFile::host`].
    pub host: Environment,
    /// See [`ResultFile::started_utc`].
    pub started_utc: String,
    /// See [`ResultFile::status`].
    pub status: Status,
    /// See [`ResultFile::config`].
    pub config: Config,
    /// See [`ResultFile::selftest`].
    pub selftest: Option<SelfTest>,
}

/// One run of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    /// Why there is no usable end: the last lines the client wrote, or what it did instead.
    pub failure: Option<String>,
    /// What the run measured, unless it ended before that.
    pub record: Option<RunRecord>,
}

impl Block {
    /// The record, when the tables may use it: the run reached its end and is not invalid.
    pub fn usable(&self) -> Option<&RunRecord> {
        self.record
            .as_ref()
            .filter(|record| record.status == Status::Complete && record.validity.verdict != Verdict::Invalid)
    }
}

impl ResultFile {
    /// The JSON schema of the file, generated from these types.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(ResultFile).to_value()
    }

    /// Reads a result. `path` is its folder or the file itself, which may be compressed with gzip (`result.json.gz`).
    ///
    /// # Errors
    /// When there is none, or when it is of another major version.
    pub fn read(path: &Path) -> Result<ResultFile> {
        let mut file = if path.is_dir() { path.join(RESULT_FILE) } else { path.to_owned() };
        if !file.exists() {
            let packed = file.with_added_extension("gz");
            file = if packed.exists() { packed } else { file };
        }
        let name = file.display().to_string();
        ensure!(file.is_file(), "there is no {name}; expected a folder that `compare run` wrote");
        let result: ResultFile = measure::read_versioned(&file, "result")?;
        let rounds = result.config.rounds;
        ensure!(rounds <= MAX_PAIRS, "{name} states {rounds} rounds; this tool makes at most {MAX_PAIRS}");
        let known = |block: &Block| block.round < rounds;
        ensure!(
            result.cells.iter().flat_map(|cell| &cell.blocks).all(known),
            "{name} has blocks beyond its rounds"
        );
        Ok(result)
    }

    /// Writes the result into its folder.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let mut text = serde_json::to_string_pretty(self).context("a result does not serialize")?;
        text.push('\n');
        let file = folder.join(RESULT_FILE);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Sorts blocks under their cells. `blocks` pairs each block with its index in `cells`.
    pub fn assemble(
        header: Header,
        cells: &[CellSpec],
        plan: &Plan,
        blocks: Vec<(usize, Block)>,
    ) -> ResultFile {
        let mut by_cell: Vec<Vec<Block>> = cells.iter().map(|_| Vec::new()).collect();
        for (cell, block) in blocks {
            by_cell[cell].push(block);
        }
        let records = || by_cell.iter().flatten().filter_map(|block| block.record.as_ref());
        let corpus = records().next().map(|record| record.corpus.clone());
        let ids = |round: &Vec<usize>| round.iter().map(|cell| cells[*cell].id.clone()).collect();
        let schedule = plan.rounds.iter().map(ids).collect();
        let cells = cells.iter().zip(by_cell).map(|(spec, blocks)| CellResult::new(spec, blocks)).collect();
        let mut result = ResultFile {
            schema_version: SCHEMA_VERSION.to_owned(),
            tool: Tool { name: "compare".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            command: header.command,
            git: header.git,
            host: header.host,
            started_utc: header.started_utc,
            status: header.status,
            config: header.config,
            selftest: header.selftest,
            corpus,
            schedule,
            cells,
            search: None,
            slo: Vec::new(),
            slos: Vec::new(),
            comparisons: Vec::new(),
        };
        result.comparisons = comparisons(&result);
        result
    }

    /// What a search found. Its probes are no blocks of a schedule: each is at a rate of its own.
    pub fn of_search(
        header: Header,
        search: SearchConfig,
        slo: Vec<CellSearch>,
        corpus: Option<CorpusRecord>,
    ) -> ResultFile {
        let empty = ResultFile::assemble(header, &[], &Plan { rounds: Vec::new() }, Vec::new());
        ResultFile { corpus, search: Some(search), slo, ..empty }
    }
}
