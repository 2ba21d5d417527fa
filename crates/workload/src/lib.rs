//! Who publishes, who reads, and when: a [`scenario::Scenario`] and a corpus become a [`Workload`],
//! the whole plan of a run, computed from the seed before any clock starts.
//!
//! To add a scenario, add a TOML file to `scenarios/`. To time something else, add a variant to
//! [`Timing`].

pub mod demand;
pub mod expect;
pub mod explain;
mod figure;
pub mod inputs;
mod plan;
pub mod plan_facts;
pub mod recorded;
pub mod scenario;
pub mod schedule;
mod timing;

use cell::Cell;
use codecs::Format;
use corpus::Corpus;
use measure::CorpusRecord;
use terms::Compression;

/// Kind of the event that answers a challenge (NIP-42).
pub const CLIENT_AUTH: u16 = 22_242;

pub use plan::*;
pub use recorded::{Says, Turn};
pub use timing::Timing;

/// The corpus as results name it.
pub fn corpus_record(corpus: &Corpus) -> CorpusRecord {
    CorpusRecord {
        name: corpus.name.clone(),
        sha256: corpus.fingerprint.to_string(),
        events: corpus.events.len() as u64,
        invalid_skipped: corpus.skipped.count(),
        origin: corpus.origin.to_string(),
        kinds: corpus.kinds().into_iter().map(|(kind, n)| (kind.to_string(), n as u64)).collect(),
    }
}

/// Why a block of this length holds too few bursts of a scenario, and the length that would do. `None` for
/// a scenario without bursts, and for an unknown name.
pub fn too_few_bursts(scenario: &str, seconds: u32) -> Option<String> {
    scenario::Scenario::load(scenario).ok()?.too_few_bursts(f64::from(seconds))
}

/// Whether a relay that does no Nostr work can play a scenario; false for an unknown name.
pub fn has_floor(scenario: &str) -> bool {
    scenario::Scenario::load(scenario).is_ok_and(|scenario| {
        !scenario.auth
            && scenario.replay.is_none()
            && scenario.formats().all(|format| format == Format::JSON)
            && scenario.compressions().all(|compression| compression == Compression::None)
    })
}

/// Demand of a cell's block on its users' links, in JSON without compression: how long it lasts
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
    Ok(Some(demand::for_workload(&workload, cell.link.as_ref())))
}

/// Demand of a block of a cell in a second. The other arguments are those of [`link_demand`].
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
    Ok(plan_facts::PlanFacts::from_workload(&workload).per_second(&scenario))
}

fn plan(
    cell: &Cell,
    set: &[String],
    seconds: u32,
    corpus: Option<&str>,
    skip_invalid: bool,
) -> anyhow::Result<(scenario::Scenario, Workload)> {
    let corpus = corpus.map(std::path::Path::new);
    let (mut scenario, corpus) =
        inputs::load(&cell.scenario, set, Some(f64::from(seconds)), corpus, skip_invalid)?;
    scenario.set_cell(cell)?;
    let formats: Vec<_> = Format::core().collect();
    let workload = inputs::plan_over(&scenario, &corpus, 1, &formats)?;
    Ok((scenario, workload))
}
