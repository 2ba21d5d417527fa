//! Rounds of JSON against JSON, played and assembled as those of `compare run`.

use std::{env, time::SystemTime};

use anyhow::{Result, ensure};
use cell::{Cell, RelaySide};
use codecs::VerifyLevel;
use measure::{Environment, Status, utc};
use program::command_line;

use super::bench::Bench;
use crate::{assemble::assemble, matrix::CellSpec, plan::BlockOrder, run::Outcome};
use report::result::{Config, Header, ResultFile, Role};

impl Bench<'_> {
    /// JSON without compression, whose relay checks `verify` and has these faults.
    pub(super) fn cell(&self, role: Role, id: &str, verify: VerifyLevel, faults: Vec<String>) -> CellSpec {
        let relay = Some(RelaySide { verify, ..RelaySide::default() });
        let cell = Cell { scenario: self.scenario.display().to_string(), relay, ..Cell::default() };
        CellSpec { id: id.to_owned(), role, cell, utilisation: None, over_links: None, faults }
    }

    /// So many rounds of blocks of so many seconds under a load, from seed 1 on.
    pub(super) fn config(&self, rounds: u32, seconds: u32, load: [&str; 2]) -> Config {
        Config {
            scenarios: vec![self.scenario.display().to_string()],
            profile: "selftest".to_owned(),
            rounds,
            seconds,
            seed: 1,
            client_args: load.map(str::to_owned).to_vec(),
            ..Config::default()
        }
    }
}

/// The result of a plan that was played.
///
/// # Errors
/// When it was not played to its end.
pub(super) fn result(
    config: &Config,
    cells: &[CellSpec],
    plan: &BlockOrder,
    outcome: Outcome,
    started: SystemTime,
) -> Result<ResultFile> {
    ensure!(
        outcome.status == Status::Complete,
        "a comparison did not end: {}",
        outcome.blocks.iter().find_map(|(_, block)| block.failure.as_deref()).unwrap_or_default()
    );
    let header = Header {
        command: command_line(&env::args_os().collect::<Vec<_>>()),
        git: None,
        host: Environment::collect(),
        started_utc: utc::format(started),
        status: outcome.status,
        config: config.clone(),
        selftest: None,
    };
    Ok(assemble(header, cells, plan, outcome.blocks))
}
