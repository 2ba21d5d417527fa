//! `corpus verify`

use std::{num::NonZero, path::PathBuf, process::ExitCode, thread};

use codecs::{Event, VerifyError, VerifyLevel};
use corpus::{Census, EventReader};
use serde_json::json;

use super::{Progress, say};

/// How many bad events are listed; the count tells the rest.
const LISTED: u64 = 20;

/// Events that are checked together, on all cores: some 5 MB of memory, 100 ms of a core.
const BATCH: usize = 2_048;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The corpus.
    file: PathBuf,
    /// One JSON object instead of a sentence.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut reader = EventReader::open(&args.file)?;
    let mut progress = Progress::new("verified", None, "events");
    let mut census = Census::default();
    let (mut read, mut bad) = (0, 0);
    loop {
        let batch: Vec<_> = reader.by_ref().take(BATCH).collect::<Result<_, _>>()?;
        if batch.is_empty() {
            break;
        }
        for (event, result) in batch.iter().zip(check(&batch)) {
            read += 1;
            census.add(event);
            if let Err(reason) = result {
                bad += 1;
                if bad <= LISTED {
                    eprintln!("event {read} {}: {reason}", codecs::hex::encode(&event.id));
                }
            }
        }
        progress.report(read);
    }
    anyhow::ensure!(read > 0, "{:?} holds no events", args.file);
    let counted = census.finish();
    let name = args.file.display();
    if args.json {
        say(&json!({
            "file": name.to_string(),
            "events": read,
            "origin": counted.origin.name(),
            "valid": read - bad,
            "bad": bad,
            "duplicates": counted.duplicates,
            "not_checked_for_duplicates": counted.unchecked,
            "fingerprint": counted.fingerprint.to_string(),
        })
        .to_string());
    } else {
        say(&format!(
            "{name}: {read} events ({}), {} valid, {bad} bad, {} repeat an id, fingerprint {}",
            counted.origin,
            read - bad,
            counted.duplicates,
            counted.fingerprint
        ));
    }
    Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether each event is valid, in order.
fn check(events: &[Event<'_>]) -> Vec<Result<(), VerifyError>> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let share = events.len().div_ceil(cores).max(1);
    thread::scope(|scope| {
        let workers: Vec<_> = events
            .chunks(share)
            .map(|part| {
                scope.spawn(|| part.iter().map(|event| event.verify(VerifyLevel::Full)).collect::<Vec<_>>())
            })
            .collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| worker.join().expect("checking never panics");
        workers.into_iter().flat_map(join).collect()
    })
}
