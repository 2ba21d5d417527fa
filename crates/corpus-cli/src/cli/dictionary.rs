//! `corpus train-dictionary`: what messages of a format have in common, for compression
//! `zstd-dict`.

use std::{borrow::Cow, path::PathBuf, process::ExitCode};

use anyhow::{Context, ensure};
use codecs::{Event, Format, RelayMessage};
use corpus::{
    Events, Fingerprint, Reservoir,
    generate::{Generator, Mix},
};
use sha2::{Digest, Sha256};

use super::{Progress, files::each, say};

/// Messages that are trained on, together: enough for a dictionary of a hundredth of that (zstd's
/// advice), and bounded because the trainer keeps about nine times as much in memory.
const MAX_SAMPLE_BYTES: usize = 32 << 20;

/// Larger messages fill the window by themselves; a dictionary of follow lists would help nothing
/// else.
const MAX_MESSAGE_BYTES: usize = 16 << 10;

/// An id as long as clients' own.
const SUBSCRIPTION: &str = "sub:1";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Output file; an existing file is replaced.
    out: PathBuf,
    /// The wire format of the messages.
    #[arg(long, default_value_t = Format::JSON)]
    format: Format,
    /// Events to learn from; never those that will be streamed. Without it generated ones, whose authors,
    /// words, relays and days no other generated events have.
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,
    /// Leave out invalid events of --corpus, and count them; each event is then verified.
    #[arg(long, requires = "corpus")]
    skip_invalid: bool,
    /// Number of events, drawn from the file or generated.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    events: u32,
    /// Seed of the draw or the generated events.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Largest size of the dictionary.
    #[arg(long, default_value_t = 32 << 10, value_parser = clap::value_parser!(u32).range(1 << 10..=1 << 20))]
    bytes: u32,
}

/// Trains on the EVENT messages that a relay sends.
pub(crate) fn train(args: &Args) -> anyhow::Result<ExitCode> {
    measure::try_file(&args.out)?;
    let events = events(args)?;
    let codec = args.format.spec().library;
    let (mut samples, mut sizes, mut left_out) = (Vec::new(), Vec::new(), 0);
    for event in &events {
        let start = samples.len();
        let message = RelayMessage::Event { subscription: SUBSCRIPTION.into(), event: Cow::Borrowed(event) };
        let whole = codec.encode_relay(&message, &mut samples).is_ok();
        let bytes = samples.len() - start;
        if whole && bytes <= MAX_MESSAGE_BYTES && samples.len() <= MAX_SAMPLE_BYTES {
            sizes.push(bytes);
        } else {
            samples.truncate(start);
            left_out += 1;
        }
    }
    ensure!(!sizes.is_empty(), "no event fits into a message of {MAX_MESSAGE_BYTES} bytes");
    let dictionary = zstd::dict::from_continuous(&samples, &sizes, args.bytes as usize).with_context(|| {
        format!(
            "zstd finds nothing to train on in {} messages of {} bytes together; try more --events or fewer --bytes",
            sizes.len(),
            samples.len()
        )
    })?;
    measure::write_whole(&args.out, &dictionary).with_context(|| format!("cannot write {:?}", args.out))?;
    let sha256 = codecs::hex::encode(&Sha256::digest(&dictionary));
    say(&format!(
        "{}: {} bytes, named {:.8} (SHA-256 {sha256}), from {} {} messages of {} bytes; {left_out} left out; events {}",
        args.out.display(),
        dictionary.len(),
        sha256,
        sizes.len(),
        args.format,
        samples.len(),
        Fingerprint::from_events(&events),
    ))?;
    Ok(ExitCode::SUCCESS)
}

fn events(args: &Args) -> anyhow::Result<Vec<Event<'static>>> {
    let Some(path) = &args.corpus else {
        let mut progress = Progress::new("made", Some(args.events.into()), "events");
        let generator = Generator::new(&Mix::audit(), args.events.into(), args.seed).elsewhere();
        return Ok(generator.events(|done| progress.report(done as u64)));
    };
    let mut file = Events::open(path, args.skip_invalid)?;
    let mut reservoir = Reservoir::new(args.events as usize, args.seed);
    each(path, &mut file, "read", |event| {
        reservoir.add(event);
        Ok(())
    })?;
    Ok(reservoir.finish())
}
