//! Rounds of JSON against JSON, played and assembled as those of `compare run`.

use std::{collections::BTreeMap, env, time::SystemTime};

use anyhow::{Result, ensure};
use cell::{Cell, RelaySide};
use codecs::VerifyLevel;
use measure::Status;

use super::bench::Bench;
use crate::{
    assemble::{assemble, header},
    matrix::CellSpec,
    plan::BlockOrder,
    progress::Progress,
    run::{self, Request, Stopped},
    this_machine::ThisMachine,
};
use report::result::{Config, ResultFile, Role};

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

    /// The result of a plan that this machine plays; `None` after an interruption.
    ///
    /// # Errors
    /// When it is not played to its end.
    pub(super) async fn compared(
        &self,
        (config, cells, plan): (&Config, &[CellSpec], &BlockOrder),
        progress: &mut Progress,
        interrupt: impl Future<Output = ()>,
    ) -> Result<Option<ResultFile>> {
        let generator = &ThisMachine::new(self.program, config, BTreeMap::new())?;
        let request = Request { generator, config, cells, plan, folder: self.folder, keep: None };
        let started = SystemTime::now();
        let outcome = run::run(&request, progress, interrupt).await?;
        if outcome.stopped == Some(Stopped::Interrupted) {
            return Ok(None);
        }
        ensure!(
            outcome.status == Status::Complete,
            "a comparison did not end: {}",
            outcome.blocks.iter().find_map(|(_, block)| block.failure.as_deref()).unwrap_or_default()
        );
        let header = header(&env::args_os().collect::<Vec<_>>(), None, started, config.clone());
        Ok(Some(assemble(header, cells, plan, outcome.blocks)))
    }
}
