//! `corpus convert` and `corpus sample`: from one file into another.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use codecs::Event;
use corpus::{Census, CorpusError, Counted, EventWriter, Events, Fingerprint, Reservoir};

use super::{Progress, say, tell};

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
    let counted = each(&args.input, &mut events, "converted", |event| Ok(writer.write(&event)?))?;
    writer.finish()?;
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
    let mut events = Events::open(&args.input, args.skip_invalid)?;
    let writer = EventWriter::create_new(&args.output)?;
    let mut reservoir = Reservoir::new(args.events as usize, args.seed);
    each(&args.input, &mut events, "read", |event| {
        if args.kinds.is_empty() || args.kinds.contains(&event.kind) {
            reservoir.add(event);
        }
        Ok(())
    })?;
    let offered = reservoir.offered();
    anyhow::ensure!(offered > 0, "{:?} holds no such events", args.input);
    let drawn = reservoir.finish();
    writer.write_all(&drawn)?;
    say(&format!(
        "{}: {} of {offered} events, {} invalid skipped, fingerprint {}",
        args.output.display(),
        drawn.len(),
        events.skipped().count(),
        Fingerprint::from_events(&drawn)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Passes each event of a file on, those that repeat an id left out; tells how far it is and what was
/// skipped.
///
/// # Errors
/// When the file cannot be read or has no event, or `take` fails.
pub(super) fn each(
    path: &Path,
    events: &mut Events,
    verb: &'static str,
    mut take: impl FnMut(Event<'static>) -> anyhow::Result<()>,
) -> anyhow::Result<Counted> {
    let mut progress = Progress::new(verb, None, "events");
    let mut census = Census::default();
    for event in &mut *events {
        let event = event?;
        if census.add(&event) {
            take(event)?;
        }
        progress.report(census.events());
    }
    let (counted, skipped) = (census.finish(), events.skipped());
    if counted.events == 0 {
        return Err(CorpusError::without_events(path, skipped).into());
    }
    if skipped.count() > 0 {
        tell(&format!("{}: {skipped}; `corpus verify` lists all", path.display()));
    }
    Ok(counted)
}
