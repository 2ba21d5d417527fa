//! The commands.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use clap::{Parser, Subcommand};
use codecs::{Event, Format, Implementation, VerifyLevel};
use corpus::{Corpus, FileFormat, Fingerprint, generate};

/// How many bad events `verify` lists; the count tells the rest.
const LISTED: usize = 20;

/// Progress is for those who wait: none in the first two seconds, then one line every two.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Files of Nostr events for load tests: make, verify, convert and describe them.
///
/// A file's format follows from its name: .jsonl .jsonl.gz .jsonl.zst (one NIP-01 object a line) or .pb.gz
/// (length-delimited ProtoEvent). data/README.md says what the bundled sample is and how to get real events.
#[derive(Debug, Parser)]
#[command(name = "corpus", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make signed events in the kind mix of an audited archive; the same seed makes the same events everywhere.
    Generate {
        /// How many; at most some 70,000.
        #[arg(long, default_value_t = 5_000)]
        events: usize,
        /// Another number, other events.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Where to; the name decides the format.
        #[arg(long)]
        out: PathBuf,
    },
    /// Check every id and signature; fails and lists the first 20 bad ones when any is wrong.
    Verify {
        /// The corpus.
        file: PathBuf,
    },
    /// Copy a corpus into another format, events in the same order.
    Convert {
        /// Read from here.
        input: PathBuf,
        /// Write to here; must not exist.
        output: PathBuf,
    },
    /// Describe a corpus: per kind, how many events, and quantiles of JSON bytes, tags and content bytes.
    Analyze {
        /// The corpus; the bundled sample when absent.
        file: Option<PathBuf>,
    },
}

/// Runs a command. Bad events are an exit code, everything else that goes wrong is an error.
pub(crate) fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.command {
        Command::Generate { events, seed, out } => generate_file(events, seed, &out),
        Command::Verify { file } => verify(&read(&file)?),
        Command::Convert { input, output } => convert(&input, &output),
        Command::Analyze { file } => {
            let corpus = match file {
                Some(file) => read(&file)?,
                None => Corpus::bundled(),
            };
            say(&table(&corpus));
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn read(path: &Path) -> anyhow::Result<Corpus> {
    let corpus = Corpus::read(path)?;
    if corpus.duplicates_dropped > 0 {
        eprintln!("{}: left out {} events with an id seen before", corpus.name, corpus.duplicates_dropped);
    }
    Ok(corpus)
}

fn generate_file(count: usize, seed: u64, out: &Path) -> anyhow::Result<ExitCode> {
    // A wrong name should fail before the work.
    FileFormat::of(out)?;
    let mut progress = Progress::new("made", count);
    let events = generate::events(count, seed, |done| progress.report(done))?;
    corpus::write(out, &events)?;
    let bytes = std::fs::metadata(out).with_context(|| format!("cannot find {out:?} again"))?.len();
    say(&format!(
        "{}: {count} events, {bytes} bytes, fingerprint {}",
        out.display(),
        Fingerprint::of(&events)
    ));
    Ok(ExitCode::SUCCESS)
}

fn verify(corpus: &Corpus) -> anyhow::Result<ExitCode> {
    let mut progress = Progress::new("verified", corpus.events.len());
    let mut bad = 0;
    for (index, event) in corpus.events.iter().enumerate() {
        if let Err(reason) = event.verify(VerifyLevel::Full) {
            bad += 1;
            if bad <= LISTED {
                eprintln!("event {} {}: {reason}", index + 1, codecs::hex::encode(&event.id));
            }
        }
        progress.report(index + 1);
    }
    let total = corpus.events.len();
    say(&format!(
        "{}: {total} events ({}), {} valid, {bad} bad, {} duplicates left out, fingerprint {}",
        corpus.name,
        corpus.origin,
        total - bad,
        corpus.duplicates_dropped,
        corpus.fingerprint
    ));
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn convert(input: &Path, output: &Path) -> anyhow::Result<ExitCode> {
    FileFormat::of(output)?;
    anyhow::ensure!(!output.exists(), "{output:?} exists already; convert never overwrites");
    let corpus = read(input)?;
    corpus::write(output, &corpus.events)?;
    say(&format!("{}: {} events, fingerprint {}", output.display(), corpus.events.len(), corpus.fingerprint));
    Ok(ExitCode::SUCCESS)
}

/// A line for each kind, commonest first, and one for all.
fn table(corpus: &Corpus) -> String {
    let mut kinds: BTreeMap<u16, Vec<&Event<'_>>> = BTreeMap::new();
    for event in &corpus.events {
        kinds.entry(event.kind).or_default().push(event);
    }
    let mut rows: Vec<_> = kinds.into_iter().collect();
    rows.sort_by_key(|(kind, events)| (std::cmp::Reverse(events.len()), *kind));
    let mut out = format!(
        "{}: {} events ({}), fingerprint {}\nquantiles: 5% 50% 95% max\n\n{:>6} {:>7} {:>7} {:>30} {:>8} {:>20} {:>26}\n",
        corpus.name,
        corpus.events.len(),
        corpus.origin,
        corpus.fingerprint,
        "kind",
        "events",
        "share",
        "JSON bytes",
        "mean",
        "tags",
        "content bytes"
    );
    let all: Vec<_> = corpus.events.iter().collect();
    for (name, events) in std::iter::once(("all".to_owned(), all))
        .chain(rows.into_iter().map(|(kind, events)| (kind.to_string(), events)))
    {
        row(&mut out, &name, &events, corpus.events.len());
    }
    out
}

fn row(out: &mut String, name: &str, events: &[&Event<'_>], total: usize) {
    let json: Vec<_> = events.iter().map(|event| json_bytes(event)).collect();
    let mean = json.iter().sum::<usize>() / events.len();
    let tags = quantiles(events.iter().map(|event| event.tags.len()).collect());
    let content = quantiles(events.iter().map(|event| event.content.len()).collect());
    let share = 100.0 * events.len() as f64 / total as f64;
    writeln!(
        out,
        "{name:>6} {:>7} {share:>6.1}% {:>30} {mean:>8} {tags:>20} {content:>26}",
        events.len(),
        quantiles(json),
    )
    .expect("a String can always be written to");
}

fn json_bytes(event: &Event<'_>) -> usize {
    let codec = Format::JSON.codec(Implementation::Library).expect("every format has this implementation");
    let mut bytes = Vec::new();
    codec.encode_event(event, &mut bytes).expect("JSON holds every event");
    bytes.len()
}

/// "p5 p50 p95 max"
fn quantiles(mut values: Vec<usize>) -> String {
    values.sort_unstable();
    let at = |percent: usize| values[(values.len() * percent / 100).min(values.len() - 1)];
    format!("{} {} {} {}", at(5), at(50), at(95), at(100))
}

#[expect(clippy::print_stdout, reason = "the answer of a command")]
fn say(text: &str) {
    println!("{}", text.trim_end());
}

struct Progress {
    verb: &'static str,
    total: usize,
    last: Instant,
}

impl Progress {
    fn new(verb: &'static str, total: usize) -> Progress {
        Progress { verb, total, last: Instant::now() }
    }

    fn report(&mut self, done: usize) {
        if self.last.elapsed() >= PROGRESS_EVERY {
            eprintln!("{} {done} of {} events", self.verb, self.total);
            self.last = Instant::now();
        }
    }
}
