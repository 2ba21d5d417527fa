//! `corpus convert` and `corpus sample`: from one file into another.

use std::{path::PathBuf, process::ExitCode};

use corpus::{Census, Counted, EventReader, EventWriter, Reservoir};

use super::{Progress, must_not_exist, say};

#[derive(Debug, clap::Args)]
pub(crate) struct ConvertArgs {
    /// Read from here.
    input: PathBuf,
    /// Write to here; must not exist.
    output: PathBuf,
}

/// Copies event by event; repeated ids are left out, as everywhere.
pub(crate) fn convert(args: &ConvertArgs) -> anyhow::Result<ExitCode> {
    must_not_exist(&args.output)?;
    let reader = EventReader::open(&args.input)?;
    let writer = EventWriter::create(&args.output)?;
    let counted = copy(reader, writer).inspect_err(|_| drop(std::fs::remove_file(&args.output)))?;
    say(&format!(
        "{}: {} events, {} that repeat an id left out, fingerprint {}",
        args.output.display(),
        counted.events,
        counted.duplicates,
        counted.fingerprint
    ));
    Ok(ExitCode::SUCCESS)
}

fn copy(reader: EventReader, mut writer: EventWriter) -> anyhow::Result<Counted> {
    let mut progress = Progress::new("converted", None, "events");
    let mut census = Census::default();
    for event in reader {
        let event = event?;
        if census.add(&event) {
            writer.write(&event)?;
        }
        progress.report(census.events());
    }
    writer.finish()?;
    Ok(census.finish())
}

#[derive(Debug, clap::Args)]
pub(crate) struct SampleArgs {
    /// Draw from here.
    input: PathBuf,
    /// Write to here; must not exist.
    output: PathBuf,
    /// How many; all of them are held in memory, the input is not.
    #[arg(long, default_value_t = 5_000)]
    events: usize,
    /// Another number, another sample. A larger sample of the same seed holds the smaller ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these kinds, separated by commas.
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<u16>,
}

/// Draws from a file of any length.
pub(crate) fn sample(args: &SampleArgs) -> anyhow::Result<ExitCode> {
    must_not_exist(&args.output)?;
    let mut progress = Progress::new("read", None, "events");
    let mut census = Census::default();
    let mut reservoir = Reservoir::new(args.events, args.seed);
    for event in EventReader::open(&args.input)? {
        let event = event?;
        let wanted = args.kinds.is_empty() || args.kinds.contains(&event.kind);
        if wanted && census.add(&event) {
            reservoir.add(event);
        }
        progress.report(census.events());
    }
    let drawn = reservoir.finish();
    anyhow::ensure!(!drawn.is_empty(), "{:?} holds no such events", args.input);
    corpus::write(&args.output, &drawn)?;
    say(&format!(
        "{}: {} of {} events, fingerprint {}",
        args.output.display(),
        drawn.len(),
        census.events(),
        corpus::Fingerprint::of(&drawn)
    ));
    Ok(ExitCode::SUCCESS)
}
