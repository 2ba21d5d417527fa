//! Assembles a result from the blocks of a run or the probes of a search.

use std::{ffi::OsString, time::SystemTime};

use measure::{CorpusRecord, Environment, SCHEMA_VERSION, Status, Tool, command_line, utc};

use crate::{
    matrix::CellSpec,
    plan::Plan,
    result::{Block, BreakEven, Browser, CellResult, Config, Git, ResultFile, Search, SelfTest},
};

/// A result without its blocks.
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

impl Header {
    /// That of a complete result of this program on this host.
    pub(crate) fn new(args: &[OsString], git: Option<Git>, started: SystemTime, config: Config) -> Header {
        Header {
            command: command_line(args),
            git,
            host: Environment::collect(),
            started_utc: utc::format(started),
            status: Status::Complete,
            config,
            selftest: None,
        }
    }
}

impl ResultFile {
    /// Sorts blocks under their cells. `blocks` pairs each block with its index in `cells`.
    pub fn assemble(
        header: Header,
        cells: &[CellSpec],
        plan: &Plan,
        blocks: Vec<(usize, Block)>,
    ) -> ResultFile {
        let played = blocks.last().map_or(0, |(_, block)| block.round as usize + 1);
        let mut by_cell: Vec<Vec<Block>> = cells.iter().map(|_| Vec::new()).collect();
        for (cell, block) in blocks {
            by_cell[cell].push(block);
        }
        let records = || by_cell.iter().flatten().filter_map(|block| block.record.as_ref());
        let corpus = records().next().map(|record| record.corpus.clone());
        let ids = |round: &Vec<usize>| round.iter().map(|cell| cells[*cell].id.clone()).collect();
        let rounds = plan.rounds.iter().chain(&plan.spare).take(plan.rounds.len().max(played));
        let schedule = rounds.map(ids).collect();
        let cells = cells.iter().zip(by_cell).map(|(spec, blocks)| cell_result(spec, blocks)).collect();
        ResultFile {
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
            break_even: None,
            browser: None,
            instructions: None,
        }
    }

    /// A run before its first block, with the further rounds that it may come to.
    pub(crate) fn planned(header: Header, cells: &[CellSpec], plan: &Plan) -> ResultFile {
        let all =
            Plan { rounds: plan.rounds.iter().chain(&plan.spare).cloned().collect(), ..Plan::default() };
        ResultFile::assemble(header, cells, &all, Vec::new())
    }

    /// The result of a search, whose probes belong to no schedule: each has a rate of its own.
    pub fn of_search(header: Header, search: Search, corpus: Option<CorpusRecord>) -> ResultFile {
        let empty = ResultFile::assemble(header, &[], &Plan::default(), Vec::new());
        ResultFile { corpus, search: Some(search), ..empty }
    }

    /// The result of a search for break-even bandwidths, which has medians instead of records.
    pub fn of_break_even(header: Header, found: BreakEven, corpus: Option<CorpusRecord>) -> ResultFile {
        let empty = ResultFile::assemble(header, &[], &Plan::default(), Vec::new());
        ResultFile { corpus, break_even: Some(found), ..empty }
    }

    /// The result of pages in a browser; `schedule` has their cells by round.
    pub fn of_browser(
        header: Header,
        found: Browser,
        schedule: Vec<Vec<String>>,
        corpus: CorpusRecord,
    ) -> ResultFile {
        let empty = ResultFile::assemble(header, &[], &Plan::default(), Vec::new());
        ResultFile { corpus: Some(corpus), schedule, browser: Some(found), ..empty }
    }
}

/// The blocks of a cell with the names that its runs stated, or without a record the names of the
/// matrix.
fn cell_result(spec: &CellSpec, blocks: Vec<Block>) -> CellResult {
    let stated = blocks.iter().find_map(|block| Some(block.record.as_ref()?.cell.clone()));
    let cell = stated.unwrap_or_else(|| spec.cell.recorded());
    let rate_per_s = spec.cell.whole_rate_per_s();
    CellResult {
        id: spec.id.clone(),
        role: spec.role,
        rate_per_s,
        utilisation: spec.utilisation,
        cell,
        blocks,
    }
}
