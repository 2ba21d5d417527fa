//! Words to agents about a block.

use std::{collections::BTreeMap, fs, path::Path};

use agents::Play;
use anyhow::{Context, Result, ensure};
use cell::{Cell, Factor, Side};

use super::Relay;
use crate::{generator::Task, matrix::CellSpec};
use report::result::Role;

/// Words to agents about every block alike.
#[derive(Debug)]
pub(crate) struct Told {
    /// A relay that runs already: its URL, and what it was found to take.
    foreign: Option<(String, String)>,
    /// Whether agents tell what they count.
    live: bool,
    /// Of each scenario of the matrix the name at agents and, when it is a file, its text.
    scenarios: BTreeMap<String, (String, Option<String>)>,
}

impl Told {
    /// Reads it before agents come. With `live` agents tell what they count while they play.
    ///
    /// # Errors
    /// When a file cannot be read, or agents would refuse a block of these cells.
    pub(crate) fn read(relay: Relay<'_>, live: bool, cells: &[CellSpec], seconds: u32) -> Result<Told> {
        let foreign = match relay {
            Relay::Foreign { url, answers } => {
                let said = fs::read_to_string(answers).context("cannot read what the relay answered")?;
                Some((url.to_string(), said))
            }
            Relay::Here(_) | Relay::Elsewhere => None,
        };
        let known = |spec: &CellSpec| anyhow::Ok((spec.cell.scenario.clone(), scenario(&spec.cell)?));
        let scenarios = cells.iter().map(known).collect::<Result<_>>()?;
        let told = Told { foreign, live, scenarios };
        for cell in cells {
            ensure!(
                cell.cell.saturate.is_none(),
                "--saturate {} over agents: no agent knows what another's loops have sent. Leave one of them out",
                cell.id
            );
            let play = told.play(&first(cell, seconds))?;
            let refused = || format!("agents would refuse {} of scenario {}", cell.id, cell.cell.scenario);
            play.check().with_context(refused)?;
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
        let (url, answers) = self.foreign.clone().unwrap_or_default();
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
            answers,
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
fn first(cell: &CellSpec, seconds: u32) -> Task<'_> {
    Task { round: 0, position: 0, cell, comparable_with: &[], seed: 0, seconds, record: Path::new("") }
}

/// The name of a cell's scenario and, when it is a file, its text: agents know the others by name.
fn scenario(cell: &Cell) -> Result<(String, Option<String>)> {
    let file = &cell.scenario;
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
        let told = |scenario: &str, seconds| Told::read(Relay::Elsewhere, false, &[cell(scenario)], seconds);
        assert!(told("note-stream", 5).is_ok());
        for refused in [file("my load.toml", 9), file("long.toml", (64 << 10) + 1), "none.toml".to_owned()] {
            assert!(told(&refused, 5).is_err(), "{refused}");
        }
        assert!(told("note-stream", 0).is_err(), "a block of no time");
        let mine = file("mine.toml", 9);
        let told = told(&mine, 5).unwrap();
        fs::remove_file(&mine).unwrap();
        let play = told.play(&first(&cell(&mine), 5)).unwrap();
        assert_eq!((play.scenario, play.scenario_toml), ("mine".to_owned(), Some("x".repeat(9))));
        assert_eq!((play.cell["load"].as_str(), play.cell.contains_key("link")), ("1", false));
    }
}
