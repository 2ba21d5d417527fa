//! Work that is counted under Valgrind (`valgrind --tool=callgrind`): relay and clients in one
//! thread, from a seed, over connections in memory.
//!
//! The program runs in sections, and prints a line of JSON about each when it ends. The functions of
//! `probe` mark relay, clients and sections for the counting side (`compare instructions`). Without
//! Valgrind the program does the same work, and nothing is counted.
//!
//! Counted are real state machines, real messages, compression and WebSocket frames. Not counted
//! are the kernel, sockets, the runtime's scheduling, handshakes and clocks.

mod hot_paths;
mod probe;
mod publish;
mod wires;
mod world;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use anyhow::{Context, anyhow};
use cell::Cell;
use clap::Parser;
use codecs::Format;
use measure::Exit;
use serde::Deserialize;

use program::UsageError;
use program::report;
use workload::{
    Workload,
    inputs::{events, load, plan_over},
};

/// The first argument that makes a program count.
pub const COUNT_ROLE: &str = "role:count";

/// Plays for a counter of instructions.
#[derive(Debug, Parser)]
#[command(name = "client-sim role:count")]
struct Args {
    /// A scenario to play, without which the hot paths run.
    #[arg(long)]
    scenario: Option<String>,
    /// A cell to play the scenario with, as JSON: {"id": "…", "cell": {"format": "json", …}}. May
    /// be repeated, with cells of one rate and load.
    #[arg(long, requires = "scenario")]
    cell: Vec<Counted>,
    /// Seconds in which work is started.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Events to stream.
    #[arg(long)]
    corpus: Option<PathBuf>,
    #[arg(long)]
    skip_invalid: bool,
    /// Hot paths: only those whose names contain this.
    #[arg(long)]
    only: Option<String>,
    /// Subscriptions of 200 authors each in the path `publish json feeds`.
    #[arg(long, default_value_t = publish::FEEDS)]
    feeds: usize,
    /// Plant a cost in the hot paths: this format encodes one event in so many twice, as in
    /// json=50.
    #[arg(long, value_parser = plant)]
    plant: Option<(Format, usize)>,
}

/// A cell that a scenario is played with, and what its sections are called.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counted {
    id: String,
    cell: Cell,
}

impl std::str::FromStr for Counted {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Counted, serde_json::Error> {
        serde_json::from_str(text)
    }
}

/// Runs the program in the role that counts. `args` are the arguments after its name and role.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = std::iter::once("role:count".into()).chain(args).collect();
    let args = match program::parse::<Args>(&args) {
        Ok(args) => args,
        Err(not_parsed) => return not_parsed.code,
    };
    match play(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&format!("role:count: {error:#}"));
            if error.is::<UsageError>() { Exit::Usage } else { Exit::Error }.into()
        }
    }
}

fn play(args: &Args) -> anyhow::Result<()> {
    // On one core a corpus is checked by one thread, which allocates in the same order each time.
    measure::cores::keep_to_this().context("cannot keep to one core")?;
    probe::state_build()?;
    let Some(name) = &args.scenario else {
        let corpus = events(args.corpus.as_deref(), args.skip_invalid);
        let corpus = corpus.map_err(|error| UsageError(error.into()))?;
        let planted = hot_paths::Planted { codec: args.plant, feeds: args.feeds };
        return hot_paths::run(&corpus, args.seed, args.only.as_deref(), planted);
    };
    let cells: Vec<(&str, &Cell)> = args.cell.iter().map(|one| (one.id.as_str(), &one.cell)).collect();
    for (_, cell) in &cells {
        cell.format.codec(cell.implementation)?;
    }
    let pace = |cell: &Cell| (cell.rate_per_s, cell.load);
    if cells.windows(2).any(|two| pace(two[0].1) != pace(two[1].1)) {
        let why = "the cells of one count have one rate and load: count the others apart";
        return Err(UsageError(anyhow!(why)).into());
    }
    let loaded = load(name, &[], Some(args.seconds), args.corpus.as_deref(), args.skip_invalid);
    let (mut scenario, corpus) = loaded.map_err(UsageError)?;
    if let Some((_, cell)) = cells.first() {
        scenario.set_cell(cell).map_err(UsageError)?;
    }
    // As in a run: what one format of the comparison cannot hold is set aside for all.
    let formats: Vec<_> = Format::core().chain(cells.iter().map(|(_, cell)| cell.format)).collect();
    let workload = plan_over(&scenario, &corpus, args.seed, &formats).map_err(UsageError)?;
    play_all(&workload, &cells)
}

/// Plays a plan with each cell.
fn play_all(workload: &Workload, cells: &[(&str, &Cell)]) -> anyhow::Result<()> {
    cells.iter().try_for_each(|(id, cell)| world::play(workload.clone(), cell, id))
}

fn plant(text: &str) -> Result<(Format, usize), String> {
    let wrong = || format!("{text:?}: expected FORMAT=NUMBER, as in json=50");
    let (format, one_in) = text.split_once('=').ok_or_else(wrong)?;
    let one_in = one_in.parse().ok().filter(|one_in| *one_in > 0).ok_or_else(wrong)?;
    Ok((format.parse().map_err(|error| format!("{error}"))?, one_in))
}
