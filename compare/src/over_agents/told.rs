//! Words to agents about a block.

use std::{collections::BTreeMap, fs, path::Path};

use agents::Play;
use anyhow::{Context, Result, bail, ensure};
use cell::{Cell, Factor, Side};
use client_sim::answers::Answers;
use wire::RelayUrl;

use crate::{generator::Task, grants, matrix::CellSpec};
use report::result::Role;

/// Words to agents about every block alike.
#[derive(Debug)]
pub(super) struct Told {
    /// A relay that runs already: its URL, and what it was found to take.
    foreign: Option<(RelayUrl, String)>,
    /// Whether agents tell what they count.
    live: bool,
    /// Of each scenario of the matrix the name at agents and, when it is a file, its text.
    scenarios: BTreeMap<String, (String, Option<String>)>,
}

impl Told {
    /// Reads it before agents come. Of a relay that runs already there is its URL, and what the doctor
    /// was answered. With `live` agents tell what they count while they play.
    ///
    /// # Errors
    /// When a file cannot be read, or agents would refuse a block of these cells.
    pub(super) fn read(
        foreign: Option<(&RelayUrl, &Answers)>,
        live: bool,
        cells: &[CellSpec],
    ) -> Result<Told> {
        let said = |(url, answers): (&RelayUrl, &Answers)| {
            anyhow::Ok((url.clone(), grants::text(answers, Some(url))?))
        };
        let foreign = foreign.map(said).transpose()?;
        let known = |spec: &CellSpec| anyhow::Ok((spec.cell.scenario.clone(), scenario(&spec.cell)?));
        let scenarios = cells.iter().map(known).collect::<Result<_>>()?;
        let told = Told { foreign, live, scenarios };
        for cell in cells {
            ensure!(
                cell.cell.saturate.is_none(),
                "--saturate {} over agents: no agent knows what another's loops have sent. Leave one of them out",
                cell.id
            );
            ensure!(
                !cell.cell.via_gateway,
                "--via gateway over agents ({}): a gateway is measured on one machine. Leave one of them out",
                cell.id
            );
            if let Some(why) = told.play(&first(cell))?.refusal() {
                bail!("{why}, as agents have it from {}", cell.cell.scenario);
            }
        }
        Ok(told)
    }

    /// Words to the players of a block.
    ///
    /// # Errors
    /// When its cell is none of those that it was made for.
    pub(super) fn play(&self, task: &Task<'_>) -> Result<Play> {
        let spec = task.cell;
        let (scenario, scenario_toml) =
            self.scenarios.get(&spec.cell.scenario).cloned().context("a cell of another matrix")?;
        let (url, answers) = self.foreign.clone().unzip();
        // Agents read scenario and rate themselves, and have no links.
        let is_told = |factor: &Factor| match factor.row().side {
            Side::Load => *factor == Factor::Load,
            Side::Program => false,
            Side::Wire | Side::Relay | Side::Clients => true,
        };
        let word = |factor: Factor| (factor.row().name.to_owned(), (factor.row().write)(&spec.cell));
        Ok(Play {
            url,
            starts_relay: self.foreign.is_none(),
            floor: spec.role == Role::Floor,
            scenario,
            scenario_toml,
            answers: answers.unwrap_or_default(),
            cell: Factor::ALL.into_iter().filter(is_told).map(word).collect(),
            comparable_with: task.comparable_with.to_vec(),
            live: self.live,
            rate_per_s: spec.cell.whole_rate_per_s(),
            seed: task.seed,
            seconds: task.seconds,
            block_id: format!("{:016x}", rand::random::<u64>()),
        })
    }
}

/// A block of a cell, whatever its place in the plan.
fn first(cell: &CellSpec) -> Task<'_> {
    Task { round: 0, position: 0, cell, comparable_with: &[], seed: 0, seconds: 1, record: Path::new("") }
}

/// The name of a cell's scenario and, when it is a file, its text: agents know the others by name.
fn scenario(cell: &Cell) -> Result<(String, Option<String>)> {
    let file = &cell.scenario;
    ensure!(
        !workload::scenario::is_recording(file),
        "{file} is a recording, which agents are not sent: play it without --nats"
    );
    let read = || fs::read_to_string(file).with_context(|| format!("cannot read scenario {file}"));
    let text = file.contains(['/', '.']).then(read).transpose()?;
    Ok((cell.scenario_name().to_owned(), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(scenario: &str) -> CellSpec {
        let cell = cell::Cell { scenario: scenario.to_owned(), ..cell::Cell::default() };
        CellSpec {
            id: "json+none".to_owned(),
            role: Role::Anchor,
            cell,
            utilisation: None,
            over_links: None,
            faults: Vec::new(),
        }
    }

    #[test]
    fn a_scenario_is_read_and_refused_before_agents_come() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: usize| {
            let file = folder.path().join(name);
            fs::write(&file, "x".repeat(bytes)).unwrap();
            file.display().to_string()
        };
        let told = |scenario: &str| Told::read(None, false, &[cell(scenario)]);
        assert!(told("note-stream").is_ok());
        for refused in [file("my load.toml", 9), "none.toml".to_owned()] {
            assert!(told(&refused).is_err(), "{refused}");
        }
        let mine = file("mine.toml", 9);
        let told = told(&mine).unwrap();
        fs::remove_file(&mine).unwrap();
        let play = told.play(&first(&cell(&mine))).unwrap();
        assert_eq!((play.scenario, play.scenario_toml), ("mine".to_owned(), Some("x".repeat(9))));
        assert_eq!((play.cell["load"].as_str(), play.cell.contains_key("link")), ("1", false));
    }
}
