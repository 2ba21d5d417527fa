//! How long do users wait, how many bytes cross the wire and what does it cost in CPU, when a
//! scenario is played against a relay?
//!
//! A [`scenario::Scenario`] and a corpus become a [`workload::Workload`]: the whole plan, computed
//! from the seed before any clock starts. The [`swarm`] plays the plan against a relay, the
//! [`ledger`] proves that every planned event and every expected delivery is accounted for, and a
//! [`measure::RunRecord`] holds the measurements. The words are those of `docs/glossary.md`.
//!
//! To add a scenario, add a TOML file to `scenarios/`. To time something else, add a variant to
//! [`recorder::Timing`].

#[cfg(not(target_os = "linux"))]
compile_error!("client-sim paces with timerfd and reads other processes' CPU clocks: it needs Linux");

pub mod args;
mod auth;
mod cli;
mod client;
mod cores;
mod demand;
pub mod dial;
mod doctor;
mod driver;
mod expect;
pub mod explain;
mod figure;
mod first_delivery;
mod floor;
mod handshakes;
pub mod incidents;
mod inputs;
pub mod instructions;
mod interruption;
pub mod ledger;
mod links;
mod meaning;
mod memory;
mod meters;
pub mod metrics;
mod opening;
pub mod own_relay;
mod pacer;
pub mod plan_facts;
mod play;
mod prepare;
mod progress;
mod record;
pub mod recorder;
mod relay_pids;
mod resources;
mod run;
pub mod scenario;
mod schedule;
mod serve;
pub mod share;
pub mod shared;
#[cfg(test)]
mod simulation;
mod summary;
pub mod swarm;
mod worker;
pub mod workload;

use cell::Cell;
use codecs::Format;
use wire::Compression;

pub use self::{cli::main, record::corpus_record};

/// Why a block of so many seconds of a scenario holds too few bursts, and what would do; `None`
/// without bursts, and of a name that is no scenario.
pub fn too_few_bursts(scenario: &str, seconds: u32) -> Option<String> {
    scenario::Scenario::load(scenario).ok()?.too_few_bursts(f64::from(seconds))
}

/// Whether a relay that does no Nostr work can play a scenario; false of a name that is none.
pub fn has_floor(scenario: &str) -> bool {
    scenario::Scenario::load(scenario).is_ok_and(|scenario| {
        !scenario.auth
            && scenario.formats().all(|format| format == Format::JSON)
            && scenario.compressions().all(|compression| compression == Compression::None)
    })
}

/// What a block of a cell asks of its users' links, in JSON without compression: how long it lasts
/// and how many packets a second; `None` without links. `set`, `corpus` and
/// `skip_invalid` are as behind `--set`, `--corpus` and `--skip-invalid`.
///
/// # Errors
/// When there is no such scenario or corpus, or the plan cannot be made.
pub fn link_demand(
    cell: &Cell,
    set: &[String],
    seconds: u32,
    corpus: Option<&str>,
    skip_invalid: bool,
) -> anyhow::Result<Option<link::Demand>> {
    if cell.link.is_none() && !scenario::Scenario::load_with(&cell.scenario, set)?.has_links() {
        return Ok(None);
    }
    let (_, workload) = plan(cell, set, seconds, corpus, skip_invalid)?;
    Ok(Some(demand::of(&workload, cell.link.as_ref())))
}

/// What a block of a cell asks for in a second. The other arguments are those of [`link_demand`].
///
/// # Errors
/// As [`link_demand`].
pub fn asked_per_second(
    cell: &Cell,
    set: &[String],
    seconds: u32,
    corpus: Option<&str>,
    skip_invalid: bool,
) -> anyhow::Result<plan_facts::PerSecond> {
    let (scenario, workload) = plan(cell, set, seconds, corpus, skip_invalid)?;
    Ok(plan_facts::PlanFacts::of(&workload).per_second(&scenario))
}

fn plan(
    cell: &Cell,
    set: &[String],
    seconds: u32,
    corpus: Option<&str>,
    skip_invalid: bool,
) -> anyhow::Result<(scenario::Scenario, workload::Workload)> {
    let corpus = corpus.map(std::path::Path::new);
    let (mut scenario, corpus) =
        inputs::load(&cell.scenario, set, Some(f64::from(seconds)), corpus, skip_invalid)?;
    scenario.set_cell(cell)?;
    let formats: Vec<_> = Format::core().collect();
    let workload = inputs::plan_over(&scenario, &corpus, 1, &formats)?;
    Ok((scenario, workload))
}
