//! How fast and how small is an event in each format, by the library and by tuned code?
//!
//! `cargo bench -p corpus-cli --bench codec-report -- --help` says what it can do; docs/codec-report.md
//! is its output.
//!
//! A row is a pass over the events of one kind after the other, so that caches see a stream and not
//! one hot event. An untimed pass precedes it: otherwise rows evict each other's frames, and a
//! decoder is charged for the wait. Rounds are interleaved: each times every row once, starting at
//! another row, so that a slow phase of the machine meets all rows alike, and ratios are of rows in
//! the same round. Everything runs on one thread, and inputs are built before the first round.
//!
//! The report reads corpora, so it stands here and not in `codecs`, which depends on nothing of the
//! workspace.

#![allow(clippy::print_stdout, reason = "the report is what this program is for")]
#![allow(clippy::cast_precision_loss, reason = "sizes and times here are far below 2^52")]

mod escapes;
mod json_libraries;
mod measure;
mod recommend;
mod report;
mod rows;
mod sets;
mod sizes;
mod statistics;
mod tables;
mod together;
mod what;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Parser;

use report::Report;
use sets::{Sets, Source};

/// Measures size and time of an event in each format, by the library and by tuned code
///
/// Times are nanoseconds an event: the median of the rounds with its 95 % bootstrap interval. A run
/// on the bundled events takes minutes; `--rounds 7 --events 500 --formats core` takes
/// seconds. Close other programs: on a busy machine the intervals are wide, and only ratios of one
/// run mean something.
#[derive(Debug, Parser)]
#[command(
    name = "codec-report",
    after_help = "Examples:\n  cargo bench -p corpus-cli --bench codec-report -- --markdown docs/codec-report.md\n  \
        cargo bench -p corpus-cli --bench codec-report -- my-events.jsonl.zst --formats json,capnp --rounds 7\n  \
        cargo bench -p corpus-cli --bench codec-report -- --recommend"
)]
struct Args {
    #[command(flatten)]
    source: Source,

    /// How often every row is timed; an even number is taken one up, so that the median is one of
    /// them
    #[arg(long, default_value_t = 21, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1001))]
    rounds: u16,

    /// One page in place of all tables: which format is smallest and which is quickest, for each
    /// kind of event
    #[arg(long)]
    recommend: bool,

    /// Sizes only: these do not depend on the machine
    #[arg(long)]
    no_times: bool,

    /// Writes the tables there as Markdown; a relative path is one from the workspace's root
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Writes everything there as JSON, with every column of every kind
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> anyhow::Result<()> {
    let formats = args.source.formats()?;
    let corpus = args.source.read()?;
    let sets = Sets::new(&corpus.events, &formats)?;
    let rounds = if args.no_times { 0 } else { usize::from(args.rounds) | 1 };
    let mut report = Report::about(&corpus, &sets, rounds);
    eprintln!("compressing {} events …", sets.sets[0].events.len());
    report.sizes = sizes::measure(&formats, &sets);
    report.batches = sizes::batches(&formats, &sets);
    if rounds > 0 {
        let inputs = rows::Inputs::new(&formats, &sets)?;
        let rows = rows::rows(&formats, &sets, &inputs);
        report.times = measure::measure(&rows, &sets, rounds);
    }
    let (more, tables) = if args.recommend {
        (recommend::opening(&report) + "\n", recommend::page(&report, &formats))
    } else {
        (String::new(), tables::tables(&report, &formats))
    };
    println!("{}", tables::text(&report, &more, &tables));
    if let Some(path) = &args.markdown {
        save(path, &tables::markdown(&report, &more, &tables))?;
    }
    if let Some(path) = &args.json {
        save(path, &(serde_json::to_string_pretty(&report)? + "\n"))?;
    }
    Ok(())
}

fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    let path = sets::from_root(path);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    eprintln!("wrote {}", path.display());
    Ok(())
}
