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
pub mod bits;
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
pub mod ledger;
mod links;
mod meaning;
mod memory;
mod meters;
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

use codecs::{Format, Implementation};
use wire::Compression;

pub use self::{cli::main, record::corpus_record};

/// Names of all wire formats, in the order of every table.
pub fn known_formats() -> Vec<&'static str> {
    Format::all().map(Format::name).collect()
}

/// Names of the core wire formats, which a comparison measures by default.
pub fn core_formats() -> Vec<&'static str> {
    Format::core().map(Format::name).collect()
}

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

/// Names of the implementations of a format; empty for a name that is no format.
pub fn known_implementations(format: &str) -> Vec<&'static str> {
    let Ok(format) = format.parse::<Format>() else { return Vec::new() };
    let has = |implementation: &Implementation| format.codec(*implementation).is_ok();
    Implementation::ALL.into_iter().filter(has).map(Implementation::name).collect()
}

/// The canonical spelling of a compression: its name and the parameters that differ from the
/// defaults.
///
/// # Errors
/// Says what is wrong with the text and what is allowed.
pub fn compression_label(text: &str) -> Result<String, String> {
    text.parse::<Compression>().map(|compression| compression.label()).map_err(|error| error.to_string())
}

/// The canonical spelling of an access link: a profile, and the parameters that differ from it.
///
/// # Errors
/// Says what is wrong with the text and what is allowed.
pub fn link_label(text: &str) -> Result<String, String> {
    text.parse::<link::Link>().map(|link| link.spelled_out()).map_err(|error| error.why().to_owned())
}

/// What a block of a scenario asks of its users' links, in JSON without compression: how long it
/// lasts and how many packets a second; `None` without links. `set`, `rate_per_s` and `corpus` are
/// as behind `--set`, `--rate` and `--corpus`, `link` as behind `--link`, or `none`.
///
/// # Errors
/// When there is no such scenario or corpus, or the plan cannot be made.
pub fn link_demand(
    scenario: &str,
    set: &[String],
    seconds: u32,
    rate_per_s: Option<u32>,
    corpus: Option<&str>,
    link: &str,
) -> anyhow::Result<Option<link::Demand>> {
    let run = if link == measure::NO_LINK { None } else { Some(link.parse::<link::Link>()?) };
    if run.is_none() && !scenario::Scenario::load_with(scenario, set)?.has_links() {
        return Ok(None);
    }
    let (mut scenario, corpus) =
        inputs::load(scenario, set, Some(f64::from(seconds)), corpus.map(std::path::Path::new))?;
    if let Some(rate) = rate_per_s {
        scenario.set_publish_rate(f64::from(rate))?;
    }
    let formats: Vec<_> = Format::core().collect();
    let workload = inputs::plan_over(&scenario, &corpus, 1, &formats)?;
    Ok(Some(demand::of(&workload, run.as_ref())))
}

/// Each compression at its best-known setting.
pub fn best_known_compressions() -> Vec<&'static str> {
    Compression::BEST_KNOWN.to_vec()
}

/// Names of all compressions, in the order of every table.
pub fn known_compressions() -> Vec<&'static str> {
    Compression::NAMES.to_vec()
}
