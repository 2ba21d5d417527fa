//! How many allocations, and of how many bytes, does an event cost in each format? Counted, not timed.
//!
//! `cargo bench -p codecs --bench codec-allocations` prints it for all events and by kind, as one JSON document with
//! `--json`. A program of its own, because a counting allocator makes every allocation slower: `codec-report` runs it
//! and puts the counts beside its times.

#![allow(clippy::print_stdout, reason = "the report is what this program is for")]
#![allow(clippy::cast_precision_loss, reason = "counts here are far below 2^52")]

#[path = "shared/counts.rs"]
mod counts;
mod shared;

use std::{hint::black_box, process::ExitCode};

use allocation_counter::AllocationInfo;
use clap::Parser;
use codecs::{Codec, Event};

use counts::{Count, Counts};
use shared::{EventSet, Sets, Source};

/// Counts the allocations of encoding, decoding and viewing an event.
#[derive(Parser)]
#[command(name = "codec-allocations", about, long_about = None)]
struct Args {
    #[command(flatten)]
    source: Source,

    /// One JSON document instead of a table
    #[arg(long)]
    json: bool,
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
    let mut all = Vec::new();
    for format in formats {
        let set = sets.of(format);
        for (by, codec) in shared::codecs_of(format) {
            let groups = set.groups.iter().filter(|group| !group.members.is_empty());
            let of_kinds =
                groups.filter_map(|group| group.kind.map(|kind| (Some(kind), group.members.clone())));
            let whole = (None, (0..set.events.len()).collect());
            for (kind, members) in [whole].into_iter().chain(of_kinds) {
                let (format, by) = (format.name().to_owned(), by.name().to_owned());
                let [encode, owned, flat, view] = count(codec, set, &members);
                all.push(Counts { format, by, kind, encode, owned, flat, view });
            }
        }
    }
    if args.json {
        println!("{}", serde_json::to_string(&all)?);
        return Ok(());
    }
    println!("allocations / bytes an event, {} ({})", corpus.name, corpus.fingerprint);
    println!(
        "{:16} {:8} {:>6} {:>16} {:>16} {:>16} {:>16}",
        "format", "by", "kind", "encode", "owned", "flat", "view"
    );
    for Counts { format, by, kind, encode, owned, flat, view } in all {
        let kind = kind.map_or("all".to_owned(), |kind| kind.to_string());
        println!("{format:16} {by:8} {kind:>6} {encode:>16} {owned:>16} {flat:>16} {view:>16}");
    }
    Ok(())
}

/// Encoding into a buffer that is large enough, decoding into an owned event, reading a flat one, viewing.
fn count(codec: &dyn Codec, set: &EventSet<'_>, members: &[usize]) -> [Count; 4] {
    let mut sums = [AllocationInfo::default(); 4];
    for at in members {
        let event: &Event<'static> = set.events[*at];
        let bytes = shared::encode(codec, event);
        let mut buffer = Vec::with_capacity(2 * bytes.len() + 1024);
        let read = "this codec wrote it";
        let costs = [
            allocation_counter::measure(|| codec.encode_event(event, &mut buffer).expect("it did before")),
            allocation_counter::measure(|| {
                black_box(codec.owned_event(&bytes).expect(read));
            }),
            allocation_counter::measure(|| {
                black_box(codec.flat_event(&bytes).expect(read));
            }),
            allocation_counter::measure(|| {
                black_box(codec.view_event(&bytes).expect(read));
            }),
        ];
        sums.iter_mut().zip(costs).for_each(|(sum, cost)| *sum += cost);
    }
    let mean = |sum: u64| sum as f64 / members.len() as f64;
    sums.map(|sum| Count { allocations: mean(sum.count_total), bytes: mean(sum.bytes_total) })
}
