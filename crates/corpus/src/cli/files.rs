//! `corpus convert` and `corpus sample`: from one file into another.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use codecs::Event;
use corpus::{Census, CorpusError, Counted, EventWriter, Events, Reservoir, Skipped};

use super::{Progress, must_not_exist, say, tell_skipped};

#[derive(Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    /// Read from here.
    input: PathBuf,
    /// Write to here; must not exist.
    output: PathBuf,
    /// Leave out invalid events, and count them; each event is then verified.
    #[arg(long)]
    skip_invalid: bool,
}

/// Copies event by event; repeated ids are left out, as everywhere.
pub(crate) fn convert(args: &ConvertArgs) -> anyhow::Result<ExitCode> {
    let mut events = Events::open(&args.input, args.skip_invalid)?;
    let mut writer = EventWriter::create_new(&args.output)?;
    let counted = copy(&mut events, &mut writer)?;
    if counted.events == 0 {
        return Err(none(&args.input, events.skipped()));
    }
    writer.finish()?;
    tell_skipped(&args.input, events.skipped());
    say(&format!(
        "{}: {} events, {} that repeat an id left out, {} invalid skipped, fingerprint {}",
        args.output.display(),
        counted.events,
        counted.duplicates,
        events.skipped().count(),
        counted.fingerprint
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Why a file gives no event.
fn none(file: &Path, skipped: &Skipped) -> anyhow::Error {
    let path = file.to_owned();
    match skipped.count() {
        0 => CorpusError::Empty { path },
        _ => CorpusError::NoneValid { path, skipped: skipped.clone() },
    }
    .into()
}

fn copy(events: &mut Events, writer: &mut EventWriter) -> anyhow::Result<Counted> {
    let mut progress = Progress::new("converted", None, "events");
    let mut census = Census::default();
    for event in events {
        let event = event?;
        if census.add(&event) {
            writer.write(&event)?;
        }
        progress.report(census.events());
    }
    Ok(census.finish())
}

fn write(events: &[Event<'_>], mut writer: EventWriter) -> Result<(), CorpusError> {
    for event in events {
        writer.write(event)?;
    }
    writer.finish()
}

#[derive(Debug, clap::Args)]
pub(crate) struct SampleArgs {
    /// Draw from here.
    input: PathBuf,
    /// Write to here; must not exist.
    output: PathBuf,
    /// Number of events; all of them are held in memory, the input is not.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
    events: u32,
    /// Seed of the sample. A larger sample of the same seed holds the smaller ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these kinds, separated by commas.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<u16>,
    /// Leave out invalid events, and count them; each event is then verified.
    #[arg(long)]
    skip_invalid: bool,
}

/// Draws from a file of any length.
pub(crate) fn sample(args: &SampleArgs) -> anyhow::Result<ExitCode> {
    must_not_exist(&args.output)?;
    let mut progress = Progress::new("read", None, "events");
    let mut census = Census::default();
    let mut reservoir = Reservoir::new(args.events as usize, args.seed);
    let mut events = Events::open(&args.input, args.skip_invalid)?;
    for event in &mut events {
        let event = event?;
        let wanted = args.kinds.is_empty() || args.kinds.contains(&event.kind);
        if wanted && census.add(&event) {
            reservoir.add(event);
        }
        progress.report(census.events());
    }
    let drawn = reservoir.finish();
    let skipped = events.skipped();
    if census.events() == 0 && args.kinds.is_empty() {
        return Err(none(&args.input, skipped));
    }
    anyhow::ensure!(!drawn.is_empty(), "{:?} holds no such events", args.input);
    let writer = EventWriter::create_new(&args.output)?;
    write(&drawn, writer)?;
    tell_skipped(&args.input, skipped);
    say(&format!(
        "{}: {} of {} events, {} invalid skipped, fingerprint {}",
        args.output.display(),
        drawn.len(),
        census.events(),
        skipped.count(),
        corpus::Fingerprint::from_events(&drawn)
    ))?;
    Ok(ExitCode::SUCCESS)
}
