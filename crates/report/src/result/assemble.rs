//! A result of its parts.

use measure::{CorpusRecord, Environment, SCHEMA_VERSION, Status, Tool};

use super::{CellResult, Config, Git, ResultFile, Search, SelfTest};

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

impl ResultFile {
    /// The result of cells with their blocks; `schedule` has their names by round.
    pub fn assemble(header: Header, cells: Vec<CellResult>, schedule: Vec<Vec<String>>) -> ResultFile {
        let mut records =
            cells.iter().flat_map(|cell| &cell.blocks).filter_map(|block| block.record.as_ref());
        let corpus = records.next().map(|record| record.corpus.clone());
        ResultFile {
            schema_version: SCHEMA_VERSION.to_owned(),
            tool: Tool { name: "compare".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            command: header.command,
            git: header.git,
            host: header.host,
            provenance: None,
            started_utc: header.started_utc,
            status: header.status,
            config: header.config,
            selftest: header.selftest,
            corpus,
            schedule,
            cells,
            search: None,
            old_pages: None,
        }
    }

    /// The result of a search, whose probes belong to no schedule: each has a rate of its own.
    pub fn of_search(header: Header, search: Search, corpus: Option<CorpusRecord>) -> ResultFile {
        let empty = ResultFile::assemble(header, Vec::new(), Vec::new());
        ResultFile { corpus, search: Some(search), ..empty }
    }
}
