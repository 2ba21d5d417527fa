//! `corpus generate`

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use clap::ValueEnum;
use corpus::{
    Census, CorpusError, EventWriter,
    generate::{Generator, Mix},
};

use super::{Progress, say, unix_seconds};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Number of events; millions take minutes and some 100 MB of memory.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(1..))]
    events: u64,
    /// Another number, other events.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Which kinds of events in which shares.
    #[arg(long, value_enum, default_value_t = KindMix::Audit)]
    mix: KindMix,
    /// Make no event that common relays refuse by their defaults: none over 64 KiB as JSON, and
    /// only `e` and `p` tags of 64 hex digits. Follow lists over some 850 entries become shorter.
    #[arg(long)]
    strict: bool,
    /// Time of the newest event, as for relays that refuse old ones: `now`, or seconds since 1970.
    /// The oldest is eight days older, or a second for each event.
    #[arg(long, value_name = "TIME", value_parser = time)]
    newest: Option<i64>,
    /// Output file; the name decides the format. An existing file is replaced.
    #[arg(long)]
    out: PathBuf,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KindMix {
    /// An audit of 50,000 archived events: 42% notes, 12% reactions, 9% encrypted messages, 6%
    /// follow lists.
    Audit,
    /// 561 events that one relay sent live: 32% notes, 22% reactions, 8% deletions, 5% follow
    /// lists.
    Live,
}

/// `now`, or seconds since 1970.
fn time(text: &str) -> Result<i64, String> {
    let seconds =
        if text == "now" { Some(unix_seconds()) } else { text.parse().ok().filter(|time| *time >= 0) };
    seconds.ok_or_else(|| "expected now, or seconds since 1970".to_owned())
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mix = match args.mix {
        KindMix::Audit => Mix::audit(),
        KindMix::Live => Mix::live(),
    };
    let generator = Generator::new(&mix, args.events, args.seed);
    let generator = if args.strict { generator.strict() } else { generator };
    let generator = match args.newest {
        Some(newest) => generator.ending(newest),
        None => generator,
    };
    let mut writer = EventWriter::create(&args.out)?;
    let mut progress = Progress::new("made", Some(args.events), "events");
    let mut census = Census::default();
    generator.stream(|block| {
        for event in &block {
            census.add(event);
            writer.write(event)?;
        }
        progress.report(census.events());
        Ok::<(), CorpusError>(())
    })?;
    writer.finish()?;
    let counted = census.finish();
    let bytes =
        std::fs::metadata(&args.out).with_context(|| format!("cannot find {:?} again", args.out))?.len();
    say(&format!(
        "{}: {} events, {bytes} bytes, fingerprint {}",
        args.out.display(),
        counted.events,
        counted.fingerprint
    ))?;
    Ok(ExitCode::SUCCESS)
}
