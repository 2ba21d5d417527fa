//! `corpus convert` and `corpus sample`: from one file into another.

use std::{path::PathBuf, process::ExitCode};

use corpus::{Census, CorpusError, EventWriter, Events, Reservoir};

use super::{Progress, say, tell_skipped};

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
    let mut progress = Progress::new("converted", None, "events");
    let mut census = Census::default();
    for event in &mut events {
        let event = event?;
        if census.add(&event) {
            writer.write(&event)?;
        }
        progress.report(census.events());
    }
    let counted = census.finish();
    if counted.events == 0 {
        return Err(CorpusError::without_events(&args.input, events.skipped()).into());
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
    let writer = EventWriter::create_new(&args.output)?;
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
        return Err(CorpusError::without_events(&args.input, skipped).into());
    }
    anyhow::ensure!(!drawn.is_empty(), "{:?} holds no such events", args.input);
    writer.write_all(&drawn)?;
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
